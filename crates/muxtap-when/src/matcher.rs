//! Which rules fire: a pure function of events and time.
//!
//! One matcher sees the events of one tmux server. It keeps what a rule needs to know of each pane: the
//! line being printed, the rows that match, the agent's state, when rules fired, and what rules typed.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::Arc,
    time::{Duration, Instant},
};

use muxtap_api::{AgentInfo, AgentState, CommandInfo, Epoch, Event, PaneInfo, ProgressState};
use muxtap_core::protocol::ids::PaneId;

use self::pane::{Agent, Pane, Typed};
use crate::{
    facts::{Facts, beginning},
    limits::{LINE_BYTES, LINE_REST, TYPED_LINES},
    rule::{Condition, Rule, RuleSet},
};

/// A rule that fires.
#[derive(Clone, Debug)]
pub(crate) struct Fired {
    pub(crate) rule: Arc<Rule>,
    pub(crate) facts: Facts,
    pub(crate) pane: PaneId,
    pub(crate) at: Instant,
    /// The pane's server and engine, where known: the next server has panes with the same ids.
    pub(crate) epoch: Option<Epoch>,
}

/// Why a rule did not fire although its condition was met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Withheld {
    /// `every`.
    TooSoon,
    /// A rule had typed what it saw.
    OwnTyping,
}

/// What an event caused.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) fired: Vec<Fired>,
    pub(crate) withheld: Vec<(Arc<Rule>, Withheld)>,
}

/// The state of the rules on one server.
pub(crate) struct Matcher {
    rules: Arc<RuleSet>,
    server: String,
    host: Option<String>,
    panes: HashMap<PaneId, Pane>,
    /// The rules of quiet, the shortest first.
    quiets: Vec<(Duration, usize)>,
    /// Room for the lines that end in an event.
    ended: String,
}

impl Matcher {
    pub(crate) fn new(rules: Arc<RuleSet>, server: String, host: Option<String>) -> Self {
        let (panes, quiets, ended) = (HashMap::new(), Vec::new(), String::new());
        let mut matcher = Self { rules: Arc::default(), server, host, panes, quiets, ended };
        matcher.set_rules(rules);
        matcher
    }

    /// Replaces the rules. A rule that is in both sets goes on with what it has seen.
    pub(crate) fn set_rules(&mut self, rules: Arc<RuleSet>) {
        let before = std::mem::replace(&mut self.rules, rules);
        let of: HashMap<&str, usize> =
            self.rules.rules.iter().enumerate().map(|(place, rule)| (rule.name(), place)).collect();
        // By its place before, the place of each rule that is as it was.
        let kept = before.rules.iter().enumerate().filter_map(|(old, rule)| {
            let new = *of.get(rule.name())?;
            (self.rules.rules.get(new)?.given == rule.given).then_some((old, new))
        });
        let kept: HashMap<usize, usize> = kept.collect();
        let new: HashSet<usize> = {
            let known: HashSet<usize> = kept.values().copied().collect();
            (0..self.rules.rules.len()).filter(|place| !known.contains(place)).collect()
        };
        let quiets = self.rules.rules.iter().enumerate().filter_map(|(place, rule)| match rule.condition {
            Condition::Quiet(quiet) => Some((quiet, place)),
            _ => None,
        });
        let mut quiets: Vec<_> = quiets.collect();
        quiets.sort_unstable();
        let quiets_before = std::mem::replace(&mut self.quiets, quiets);
        for pane in self.panes.values_mut() {
            let moved = |places: &HashSet<usize>| -> HashSet<usize> {
                places.iter().filter_map(|place| kept.get(place).copied()).collect()
            };
            // What a pane shows already is no news to a new rule.
            let rests = pane.is_line_seen();
            pane.line_seen = moved(&pane.line_seen);
            if !pane.lines.line().is_empty() {
                pane.line_seen.extend(&new);
            }
            if rests {
                pane.line_seen.insert(usize::MAX);
            }
            if let Some(rows) = &mut pane.rows {
                let all = std::mem::take(rows).into_iter();
                *rows = all.filter_map(|(place, rows)| Some((*kept.get(&place)?, rows))).collect();
            }
            pane.screen_unseen = moved(&pane.screen_unseen);
            pane.screen_unseen.extend(&new);
            let seen = quiets_before.iter().take(pane.quiets_seen).map(|(_, place)| *place).collect();
            let mut done = moved(&seen);
            pane.quiets_new = moved(&pane.quiets_new);
            pane.quiets_new.extend(&new);
            done.extend(&pane.quiets_new);
            pane.quiets_seen = self.quiets.iter().take_while(|(_, place)| done.contains(place)).count();
            pane.fired.retain(|name, _| of.contains_key(name.as_str()));
        }
    }

    /// Updates names. Panes that are not listed have gone, unless they just ended.
    pub(crate) fn set_panes(&mut self, listed: Vec<PaneInfo>) {
        let ids: HashSet<_> = listed.iter().map(|info| info.id).collect();
        self.panes.retain(|id, _| ids.contains(id));
        for info in listed.into_iter().filter(|info| !info.earlier_server) {
            match self.panes.get_mut(&info.id) {
                // An ended pane has no window any more; rules know it by its last one.
                Some(pane) if info.window_id.is_empty() => pane.info.dead = info.dead,
                Some(pane) => pane.info = info,
                None => drop(self.panes.insert(info.id, Pane::new(info))),
            }
        }
    }

    /// Records the agents that are there when watching begins: their states are no news.
    pub(crate) fn set_agents(&mut self, agents: &[AgentInfo]) {
        for agent in agents {
            if let Some(pane) = self.panes.get_mut(&agent.pane) {
                pane.set_agent(Agent::of(agent));
            }
        }
    }

    /// Records that a rule types into a pane, before it does.
    pub(crate) fn typed(&mut self, pane: PaneId, text: &str, now: Instant) {
        let Some(pane) = self.panes.get_mut(&pane) else { return };
        let typed = pane.typed.get_or_insert_with(|| Typed { lines: VecDeque::new(), at: now });
        typed.at = now;
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
            typed.lines.push_back((beginning(line, LINE_BYTES).to_owned(), now));
        }
        while typed.lines.len() > TYPED_LINES {
            typed.lines.pop_front();
        }
    }

    /// Records that someone else typed into a pane through muxtap: what follows is an answer to that.
    pub(crate) fn typed_by_another(&mut self, pane: PaneId) {
        if let Some(pane) = self.panes.get_mut(&pane) {
            pane.typed = None;
        }
    }

    /// Returns when [`Self::on_time`] has something to do.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.panes.values().filter_map(|pane| self.due_of(pane)).min()
    }

    fn due_of(&self, pane: &Pane) -> Option<Instant> {
        let printed = pane.printed?;
        let line = (!pane.lines.line().is_empty() && !pane.is_line_seen()).then_some(LINE_REST);
        let quiet = self.quiets.get(pane.quiets_seen).map(|(quiet, _)| *quiet);
        line.into_iter().chain(quiet).min().map(|rest| printed + rest)
    }

    /// Handles the passing of time.
    pub(crate) fn on_time(&mut self, now: Instant, now_ms: u64) -> Outcome {
        let mut outcome = Outcome::default();
        let is_due = |pane: &Pane| self.due_of(pane).is_some_and(|due| due <= now);
        let due: Vec<_> = self.panes.iter().filter(|(_, pane)| is_due(pane)).map(|(id, _)| *id).collect();
        for id in due {
            let Some(pane) = self.panes.get_mut(&id) else { continue };
            let Some(printed) = pane.printed else { continue };
            let rest = now.saturating_duration_since(printed);
            if !pane.lines.line().is_empty() && rest >= LINE_REST && !pane.is_line_seen() {
                pane.line_seen.insert(usize::MAX);
                self.match_line(id, now, now_ms, &mut outcome);
            }
            while let Some(pane) = self.panes.get_mut(&id)
                && let Some((quiet, place)) = self.quiets.get(pane.quiets_seen).copied()
                && rest >= quiet
            {
                pane.quiets_seen += 1;
                if pane.quiets_new.contains(&place) {
                    continue;
                }
                let quiet_ms = u64::try_from(quiet.as_millis()).ok();
                self.fire(place, id, now, now_ms, &mut outcome, |facts| Facts { duration_ms: quiet_ms, ..facts });
            }
        }
        outcome
    }

    /// Handles an event of the server.
    pub(crate) fn on_event(&mut self, event: &Event, now: Instant, now_ms: u64) -> Outcome {
        let mut outcome = Outcome::default();
        match event {
            Event::PaneOpened { pane } => {
                let mut opened = Pane::new((**pane).clone());
                // All that it shows is new.
                opened.rows = Some(HashMap::new());
                self.panes.insert(pane.id, opened);
            }
            Event::Title { pane, title } => {
                if let Some(pane) = self.panes.get_mut(pane) {
                    pane.info.title.clone_from(title);
                }
            }
            Event::Output { pane, text, gap, .. } => {
                let text = text.as_deref().unwrap_or_default();
                self.on_output(*pane, text, gap.is_some(), (now, now_ms), &mut outcome);
            }
            Event::Screen { pane, rows, lines: Some(lines), size, .. } => {
                self.on_screen(*pane, (size.height, rows, lines), now, now_ms, &mut outcome);
            }
            Event::CommandFinished { pane, command } => self.on_command(*pane, command, now, now_ms, &mut outcome),
            Event::Progress { pane, state, .. } => {
                let changed = |pane: &mut Pane| pane.progress.replace(*state) != Some(*state);
                if self.panes.get_mut(pane).is_some_and(changed) {
                    let name = word(*state);
                    self.fire_where(
                        *pane,
                        (now, now_ms),
                        &mut outcome,
                        |condition| *condition == Condition::Progress(*state),
                        |facts| Facts { state: name.clone(), ..facts },
                    );
                }
            }
            Event::Notification { pane, title, body } => {
                let text = [title.as_str(), body.as_str()].into_iter().filter(|part| !part.is_empty());
                let text = text.collect::<Vec<_>>().join("\n");
                for place in self.rules.notification.matching(beginning(&text, LINE_BYTES)) {
                    self.fire(place, *pane, now, now_ms, &mut outcome, |facts| facts.with_text(&text));
                }
            }
            Event::PaneExited { pane, exit_status, exit_signal } => {
                self.on_end(*pane, (*exit_status, *exit_signal), now, now_ms, &mut outcome);
            }
            Event::Agent(agent) => self.on_agent(agent, now, now_ms, &mut outcome),
            _ => {}
        }
        outcome
    }

    fn on_output(&mut self, id: PaneId, text: &str, has_gap: bool, now: (Instant, u64), outcome: &mut Outcome) {
        let Some(pane) = self.panes.get_mut(&id) else { return };
        if has_gap {
            pane.lines.reset();
            pane.line_seen.clear();
        }
        let mut ended = std::mem::take(&mut self.ended);
        ended.clear();
        let prints = pane.lines.feed(text.as_bytes(), &mut ended);
        // Escape sequences alone print nothing.
        if prints {
            pane.forget_old_typing(now.0);
            (pane.printed, pane.quiets_seen) = (Some(now.0), 0);
            pane.quiets_new.clear();
        }
        if self.rules.output.is_empty() {
            pane.end_line();
        } else {
            let seen = if ended.is_empty() { HashSet::new() } else { std::mem::take(&mut pane.line_seen) };
            if prints {
                // The line being printed has grown, or is another one.
                pane.line_seen.remove(&usize::MAX);
            }
            self.match_ended(id, &ended, &seen, now, outcome);
        }
        self.ended = ended;
    }

    /// Matches lines that have ended; each has a `\n` after it. `seen`: the rules that have seen the first one.
    fn match_ended(
        &mut self,
        id: PaneId,
        lines: &str,
        seen: &HashSet<usize>,
        (now, now_ms): (Instant, u64),
        outcome: &mut Outcome,
    ) {
        let (rules, mut from) = (self.rules.clone(), 0);
        while let Some(place) = rules.output.next_line(lines, from) {
            let line = lines.get(place.clone()).unwrap_or_default();
            for rule in rules.output.matching(line).into_iter().filter(|rule| place.start > 0 || !seen.contains(rule)) {
                self.fire(rule, id, now, now_ms, outcome, |facts| facts.with_text(line));
            }
            from = place.end + 1;
        }
    }

    /// Matches the line being printed; each rule sees a match in it once.
    fn match_line(&mut self, id: PaneId, now: Instant, now_ms: u64, outcome: &mut Outcome) {
        let Some(pane) = self.panes.get(&id) else { return };
        let line = pane.lines.line().to_owned();
        for place in self.rules.output.matching(&line) {
            if self.panes.get_mut(&id).is_some_and(|pane| pane.line_seen.insert(place)) {
                self.fire(place, id, now, now_ms, outcome, |facts| facts.with_text(&line));
            }
        }
    }

    fn on_screen(
        &mut self,
        id: PaneId,
        (height, rows, lines): (u16, &[u16], &[String]),
        now: Instant,
        now_ms: u64,
        outcome: &mut Outcome,
    ) {
        let Some(pane) = self.panes.get_mut(&id) else { return };
        let is_first = pane.rows.is_none();
        let matching = pane.rows.get_or_insert_default();
        let had: HashSet<usize> =
            matching.iter().filter(|(_, rows)| !rows.is_empty()).map(|(place, _)| *place).collect();
        // A pane that has shrunk has no news about the rows that it lost.
        for found in matching.values_mut() {
            found.retain(|row| *row < height);
        }
        let mut began = Vec::new();
        for (row, line) in rows.iter().zip(lines) {
            for found in matching.values_mut() {
                found.remove(row);
            }
            for place in self.rules.screen.matching(beginning(line, LINE_BYTES)) {
                matching.entry(place).or_default().insert(*row);
                if !had.contains(&place) && !began.iter().any(|(other, _)| *other == place) {
                    began.push((place, line.clone()));
                }
            }
        }
        // What a pane showed before it was watched, or before the rule was added, is no news.
        let unseen = std::mem::take(&mut pane.screen_unseen);
        if !is_first {
            for (place, line) in began.into_iter().filter(|(place, _)| !unseen.contains(place)) {
                self.fire(place, id, now, now_ms, outcome, |facts| facts.with_text(line.trim_end()));
            }
        }
    }

    fn on_command(&mut self, id: PaneId, command: &CommandInfo, now: Instant, now_ms: u64, outcome: &mut Outcome) {
        let CommandInfo { status, signal, duration_ms, .. } = command;
        let ran = duration_ms.map(Duration::from_millis);
        let fits = |condition: &Condition| match condition {
            Condition::Command { status: wanted, longer } => {
                wanted.is_none_or(|wanted| wanted.is_met(*status, signal.as_deref()))
                    && longer.is_none_or(|longer| ran.is_some_and(|ran| ran > longer))
            }
            _ => false,
        };
        let line = command.one_line();
        self.fire_where(id, (now, now_ms), outcome, fits, |facts| {
            let facts = facts.with_text(&line);
            Facts { status: *status, signal: signal.clone().unwrap_or_default(), duration_ms: *duration_ms, ..facts }
        });
    }

    fn on_end(
        &mut self,
        id: PaneId,
        (status, signal): (Option<i32>, Option<i32>),
        now: Instant,
        now_ms: u64,
        outcome: &mut Outcome,
    ) {
        if let Some(pane) = self.panes.get_mut(&id) {
            // The rest of a line without an end.
            if !pane.lines.line().is_empty() && !self.rules.output.is_empty() {
                self.match_line(id, now, now_ms, outcome);
            }
        }
        let signal = signal.map(|signal| signal.to_string());
        let fits = |condition: &Condition| match condition {
            Condition::Ended { status: wanted } => wanted.is_none_or(|wanted| wanted.is_met(status, signal.as_deref())),
            _ => false,
        };
        self.fire_where(id, (now, now_ms), outcome, fits, |facts| Facts {
            status,
            signal: signal.clone().unwrap_or_default(),
            ..facts
        });
        if let Some(pane) = self.panes.get_mut(&id) {
            pane.end_line();
            // A quiet pane is one whose program may still print.
            (pane.printed, pane.typed) = (None, None);
        }
    }

    fn on_agent(&mut self, info: &AgentInfo, now: Instant, now_ms: u64, outcome: &mut Outcome) {
        let Some(pane) = self.panes.get_mut(&info.pane) else { return };
        let agent = Agent::of(info);
        if pane.knows(&agent) {
            return;
        }
        let last = pane.agent.as_ref();
        let asks_anew = is_question(info.state)
            && (agent.question.is_some() || last.is_none_or(|last| last.state != info.state))
            && last.is_none_or(|last| last.question != agent.question || last.state != agent.state);
        if asks_anew {
            // Its agent asks: what a rule types now answers that, not the rule's own typing.
            pane.typed = None;
        }
        let is_news = last.is_none_or(|last| last.state != agent.state || last.pid != agent.pid) || asks_anew;
        pane.agent = Some(agent);
        if is_news {
            let text = info.question.clone().or_else(|| info.evidence.message.clone()).unwrap_or_default();
            let fits = |condition: &Condition| *condition == Condition::Agent(info.state);
            self.fire_where(info.pane, (now, now_ms), outcome, fits, |facts| {
                let facts = facts.with_text(&text);
                Facts { agent: info.agent.clone(), state: info.state.as_str().into(), ..facts }
            });
        }
        if info.state == AgentState::Ended
            && let Some(pane) = self.panes.get_mut(&info.pane)
        {
            pane.ended = pane.agent.take();
        }
    }

    fn fire_where(
        &mut self,
        pane: PaneId,
        (now, now_ms): (Instant, u64),
        outcome: &mut Outcome,
        fits: impl Fn(&Condition) -> bool,
        with: impl Fn(Facts) -> Facts,
    ) {
        let rules = self.rules.clone();
        for (place, _) in rules.rules.iter().enumerate().filter(|(_, rule)| fits(&rule.condition)) {
            self.fire(place, pane, now, now_ms, outcome, &with);
        }
    }

    /// Fires a rule whose condition is met, if its panes include this one and nothing withholds it.
    fn fire(
        &mut self,
        place: usize,
        id: PaneId,
        now: Instant,
        now_ms: u64,
        outcome: &mut Outcome,
        with: impl Fn(Facts) -> Facts,
    ) {
        let Some(rule) = self.rules.rules.get(place).cloned() else { return };
        let Some(pane) = self.panes.get_mut(&id) else { return };
        let agent = pane.agent.as_ref().map(|agent| agent.kind.as_str());
        if !rule.is_on(self.host.as_deref()) || !rule.is_in(&pane.info, agent) {
            return;
        }
        let last = pane.fired.get(rule.name());
        let is_too_soon = last.is_some_and(|last| now.saturating_duration_since(*last) < rule.every);
        if is_too_soon && pane.typed.is_none() {
            outcome.withheld.push((rule, Withheld::TooSoon));
            return;
        }
        let facts = Facts {
            agent: agent.unwrap_or_default().to_owned(),
            ..Facts::of(&pane.info, &self.server, self.host.as_deref())
        };
        let facts = with(facts);
        if pane.is_own(&rule, &facts, now) {
            outcome.withheld.push((rule, Withheld::OwnTyping));
            return;
        }
        if is_too_soon {
            outcome.withheld.push((rule, Withheld::TooSoon));
            return;
        }
        pane.fired.insert(rule.name().to_owned(), now);
        let facts = Facts { rule: rule.name().into(), kind: rule.condition.kind(), at_ms: now_ms, ..facts };
        outcome.fired.push(Fired { rule, facts, pane: id, at: now, epoch: None });
    }
}

const fn is_question(state: AgentState) -> bool {
    matches!(state, AgentState::Permission | AgentState::Question)
}

/// Returns a value's word on the wire.
fn word(state: ProgressState) -> String {
    serde_json::to_value(state).ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}

mod pane;
#[cfg(test)]
mod tests;
