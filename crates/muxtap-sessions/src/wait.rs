//! Waits for an agent's output and state: conditions stay met, and nothing polls.

use std::time::{Duration, Instant};

use muxtap_engine::{Charge, Engine};

use super::{
    session::Session,
    text::{Pattern, TextLines},
};

use muxtap_api::{
    AgentCondition, AgentEventsAnswer, AgentGap, AgentWaitAnswer, AgentWaitOutcome, AgentWaitRequest, Error, Result,
};

/// The maximum number of a wait's patterns.
pub(super) const MOST_PATTERNS: usize = 16;
/// The default timeout of a wait.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The maximum timeout of a wait.
pub(super) const MOST_TIME: Duration = Duration::from_secs(86_400);
/// The number of events that are read at once.
const PAGE: usize = 256;

/// A wait in progress.
pub(super) struct Waiting {
    patterns: Vec<Pattern>,
    _charge: Charge,
    conditions: Vec<AgentCondition>,
    stable: Option<Duration>,
    /// Whether an open question ends the wait.
    question: bool,
    lines: TextLines,
    at: u64,
    gap: Option<AgentGap>,
    until: Instant,
}

impl Waiting {
    /// Checks a request.
    ///
    /// Errors: `INVALID_ARGUMENT` for a missing condition, an invalid regex, or a timeout that is
    /// too long.
    pub(super) async fn begin(session: &Session, request: &AgentWaitRequest, engine: &Engine) -> Result<Self> {
        let has_none = request.patterns.is_empty() && request.stable_ms.is_none() && !request.exit && !request.idle;
        if has_none && !request.question {
            return Err(Error::invalid("a wait needs a condition: patterns, stable_ms, exit, idle or question"));
        }
        if request.patterns.len() > MOST_PATTERNS {
            return Err(Error::invalid(format!("patterns: too many; at most {MOST_PATTERNS}")));
        }
        let time = |field: &str, given: Option<u64>| match given.map(Duration::from_millis) {
            Some(time) if time > MOST_TIME => {
                Err(Error::invalid(format!("{field}: at most {} ms", MOST_TIME.as_millis())))
            }
            time => Ok(time),
        };
        let stable = time("stable_ms", request.stable_ms)?;
        let timeout = time("timeout_ms", request.timeout_ms)?.unwrap_or(TIMEOUT);
        let texts = request.patterns.clone();
        let compile = move || texts.iter().map(|text| Pattern::new(text)).collect::<Result<Vec<_>>>();
        let patterns = engine.compile(request.patterns.iter().map(String::as_str), compile).await?;
        let charge = engine.charge_open(patterns.iter().map(Pattern::memory).sum())?;
        let (at, gap) = session.resolve(request.since.as_deref(), "prompt")?;
        let mut conditions: Vec<_> =
            request.patterns.iter().map(|text| AgentCondition::new("pattern", Some(text.clone()))).collect();
        let kinds = [("stable", stable.is_some()), ("exit", request.exit), ("idle", request.idle)];
        conditions.extend(kinds.iter().filter(|(_, asked)| *asked).map(|(kind, _)| AgentCondition::new(kind, None)));
        let until = Instant::now() + timeout;
        let question = request.question;
        Ok(Self {
            patterns,
            _charge: charge,
            conditions,
            stable,
            question,
            lines: TextLines::default(),
            at,
            gap,
            until,
        })
    }

    /// Waits until every condition is met, the agent has ended, or the timeout has passed.
    pub async fn run(mut self, session: &Session) -> AgentWaitAnswer {
        let mut changes = session.changes();
        loop {
            let quiet_at = self.look(session);
            let met = !self.conditions.is_empty() && self.conditions.iter().all(|condition| condition.met);
            let glance = session.glance();
            let outcome = if met {
                Some(AgentWaitOutcome::Matched)
            } else if self.question && glance.asking {
                Some(AgentWaitOutcome::Asking)
            } else if glance.ended && self.is_read(session) {
                Some(AgentWaitOutcome::Ended)
            } else if Instant::now() >= self.until {
                Some(AgentWaitOutcome::Timeout)
            } else {
                None
            };
            if let Some(outcome) = outcome {
                let (page, _) = session.read(self.at, 0);
                let mut answer = AgentWaitAnswer::new(session.name(), outcome, self.conditions, page.cursor);
                (answer.gap, answer.questions) = (self.gap, session.questions());
                return answer;
            }
            let next = quiet_at.map_or(self.until, |at| at.min(self.until));
            tokio::select! {
                // The sender lives: the session owns it, and is borrowed here.
                _ = changes.changed() => {}
                () = tokio::time::sleep_until(next.into()) => {}
            }
        }
    }

    fn is_read(&self, session: &Session) -> bool {
        !session.read(self.at, 0).0.more
    }

    /// Checks new events. Returns when the session will have been quiet for long enough, if the
    /// wait needs that.
    fn look(&mut self, session: &Session) -> Option<Instant> {
        loop {
            let (AgentEventsAnswer { events, gap, more, .. }, end) = session.read(self.at, PAGE);
            self.gap = self.gap.or(gap);
            self.at = end;
            let (patterns, conditions) = (&self.patterns, &mut self.conditions);
            for entry in &events {
                self.lines.feed(&entry.event, |line, finished| {
                    for (pattern, condition) in patterns.iter().zip(conditions.iter_mut()) {
                        if !condition.met {
                            pattern.find(line, finished, condition);
                        }
                    }
                });
            }
            if !more {
                break;
            }
        }
        let glance = session.glance();
        let quiet_at = self.stable.map(|stable| glance.last_event + stable);
        let is_quiet = quiet_at.is_some_and(|at| at <= Instant::now());
        for condition in &mut self.conditions {
            condition.met |= match condition.kind.as_str() {
                "stable" => is_quiet,
                "exit" => glance.ended,
                "idle" => glance.idle,
                _ => false,
            };
        }
        quiet_at.filter(|_| !is_quiet)
    }
}
