//! The prompts of a session: one at a time, in order, each with exactly one outcome.
//!
//! Pure: the functions take what happened, and return what to do.

use std::collections::VecDeque;

use muxtap_api::PromptOutcome;
use serde::{Deserialize, Serialize};

/// Milliseconds on a monotonic clock.
pub(super) type Millis = u64;

/// An action for the caller to carry out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Send this prompt to the agent, as the request with this number.
    Send { prompt: u64, request: u64, text: String },
    /// Cancel the running prompt (`session/cancel`).
    Cancel,
    /// Announce a prompt's outcome, the only one that it ever has.
    Outcome { prompt: u64, outcome: PromptOutcome, error: Option<String> },
}

/// A response of the agent to `session/prompt`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    /// The turn ended with this outcome.
    Stop(PromptOutcome),
    /// An error, in words.
    Error(String),
}

/// The state of the prompts.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Turns {
    queue: VecDeque<Queued>,
    turn: Turn,
    last_prompt: u64,
    last_request: u64,
    ended: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Queued {
    prompt: u64,
    text: String,
    deadline: Millis,
}

/// The agent's turn.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum Turn {
    /// The session is not open yet.
    Opening,
    /// The agent waits for a prompt.
    Free,
    /// A prompt runs.
    Running { prompt: u64, request: u64, deadline: Millis, cancelled: Option<Millis> },
    /// The prompt has its outcome, but the agent has not responded to it.
    Overdue { request: u64 },
}

impl Turns {
    /// Creates the state of a session that is not open yet. Request numbers follow `first_request`.
    pub(super) fn new(first_request: u64) -> Self {
        Self { queue: VecDeque::new(), turn: Turn::Opening, last_prompt: 0, last_request: first_request, ended: false }
    }

    /// Accepts a prompt. `None`: `most` prompts are queued already, or the agent has ended.
    pub(super) fn push(
        &mut self,
        text: String,
        deadline: Millis,
        most: usize,
        actions: &mut Vec<Action>,
    ) -> Option<u64> {
        if self.ended || self.queue.len() >= most {
            return None;
        }
        self.last_prompt += 1;
        self.queue.push_back(Queued { prompt: self.last_prompt, text, deadline });
        self.go_on(actions);
        Some(self.last_prompt)
    }

    /// Notes that the session is open, and prompts can be sent.
    pub(super) fn opened(&mut self, actions: &mut Vec<Action>) {
        if matches!(self.turn, Turn::Opening) && !self.ended {
            self.turn = Turn::Free;
            self.go_on(actions);
        }
    }

    /// Handles a response. `false`: it was not expected, because it is late, repeated, or answers
    /// no request.
    pub(super) fn reply(&mut self, to: u64, reply: Reply, actions: &mut Vec<Action>) -> bool {
        match self.turn {
            Turn::Running { prompt, request, cancelled, .. } if request == to => {
                let (outcome, error) = match reply {
                    Reply::Stop(outcome) => (outcome, None),
                    // Agents fail when the call that they wait for is cancelled.
                    Reply::Error(_) if cancelled.is_some() => (PromptOutcome::Cancelled, None),
                    Reply::Error(error) => (PromptOutcome::Failed, Some(error)),
                };
                actions.push(Action::Outcome { prompt, outcome, error });
                self.turn = Turn::Free;
                self.go_on(actions);
                true
            }
            Turn::Overdue { request } if request == to => {
                self.turn = Turn::Free;
                self.go_on(actions);
                false
            }
            _ => false,
        }
    }

    /// Cancels the running prompt, and no other. Returns its number.
    ///
    /// The turn becomes `cancelled` when the agent responds, or at `limit`.
    pub(super) fn interrupt(&mut self, limit: Millis, actions: &mut Vec<Action>) -> Option<u64> {
        let Turn::Running { prompt, cancelled, .. } = &mut self.turn else { return None };
        if cancelled.is_none() {
            *cancelled = Some(limit);
            actions.push(Action::Cancel);
        }
        Some(*prompt)
    }

    /// Ends everything: each prompt without an outcome is `agent_exited`.
    pub(super) fn end(&mut self, actions: &mut Vec<Action>) {
        self.ended = true;
        if let Turn::Running { prompt, .. } = self.turn {
            actions.push(Action::Outcome { prompt, outcome: PromptOutcome::AgentExited, error: None });
        }
        self.turn = Turn::Free;
        let outcome = PromptOutcome::AgentExited;
        actions.extend(self.queue.drain(..).map(|queued| Action::Outcome {
            prompt: queued.prompt,
            outcome,
            error: None,
        }));
    }

    /// Decides what is due now.
    pub(super) fn tick(&mut self, now: Millis, actions: &mut Vec<Action>) {
        let outcome = PromptOutcome::Timeout;
        self.queue.retain(|queued| {
            let waits = queued.deadline > now;
            if !waits {
                actions.push(Action::Outcome { prompt: queued.prompt, outcome, error: None });
            }
            waits
        });
        let Turn::Running { prompt, request, deadline, cancelled } = self.turn else { return };
        let outcome = match cancelled {
            Some(limit) if limit <= now => PromptOutcome::Cancelled,
            _ if deadline <= now => PromptOutcome::Timeout,
            _ => return,
        };
        if cancelled.is_none() {
            actions.push(Action::Cancel);
        }
        actions.push(Action::Outcome { prompt, outcome, error: None });
        self.turn = Turn::Overdue { request };
    }

    /// Returns when [`Turns::tick`] is due.
    pub(super) fn next_deadline(&self) -> Option<Millis> {
        let running = match self.turn {
            Turn::Running { deadline, cancelled, .. } => Some(cancelled.map_or(deadline, |limit| limit.min(deadline))),
            _ => None,
        };
        self.queue.iter().map(|queued| queued.deadline).chain(running).min()
    }

    /// Returns the running prompt.
    pub(super) fn running(&self) -> Option<u64> {
        match self.turn {
            Turn::Running { prompt, .. } => Some(prompt),
            _ => None,
        }
    }

    /// Returns the number of queued prompts.
    pub(super) fn queued(&self) -> usize {
        self.queue.len()
    }

    /// Returns whether the agent still owes a response to a prompt that has its outcome.
    pub(super) fn is_overdue(&self) -> bool {
        matches!(self.turn, Turn::Overdue { .. })
    }

    /// Returns whether no prompt runs or is queued.
    pub(super) fn is_idle(&self) -> bool {
        self.running().is_none() && self.queue.is_empty()
    }

    /// Returns the number of the next other request to the agent.
    pub(super) fn request(&mut self) -> u64 {
        self.last_request += 1;
        self.last_request
    }

    /// Returns the number of the last request to the agent.
    pub(super) fn last_request(&self) -> u64 {
        self.last_request
    }

    fn go_on(&mut self, actions: &mut Vec<Action>) {
        if matches!(self.turn, Turn::Free)
            && !self.ended
            && let Some(Queued { prompt, text, deadline }) = self.queue.pop_front()
        {
            let request = self.request();
            self.turn = Turn::Running { prompt, request, deadline, cancelled: None };
            actions.push(Action::Send { prompt, request, text });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Step {
        Push(u64),
        Open,
        /// The request of this many sends ago, which may have its response.
        Reply(usize, bool),
        Interrupt,
        Pass(u64),
        End,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (1_u64..60).prop_map(Step::Push),
            1 => Just(Step::Open),
            4 => (0_usize..3, any::<bool>()).prop_map(|(back, stop)| Step::Reply(back, stop)),
            2 => Just(Step::Interrupt),
            2 => (1_u64..40).prop_map(Step::Pass),
            1 => Just(Step::End),
        ]
    }

    /// The history of prompts, as the agent's side has seen it.
    #[derive(Default)]
    struct Seen {
        accepted: Vec<u64>,
        sent: Vec<(u64, u64)>,
        outcomes: BTreeMap<u64, PromptOutcome>,
        replied: Vec<u64>,
    }

    impl Seen {
        fn take(&mut self, actions: Vec<Action>) {
            for action in actions {
                match action {
                    Action::Send { prompt, request, .. } => {
                        // One at a time: the agent has responded to all earlier requests.
                        assert!(self.sent.iter().all(|(_, request)| self.replied.contains(request)));
                        assert!(!self.outcomes.contains_key(&prompt));
                        assert!(self.sent.last().is_none_or(|(last, _)| *last < prompt), "in order, and once");
                        self.sent.push((prompt, request));
                    }
                    Action::Cancel => assert!(!self.sent.is_empty()),
                    Action::Outcome { prompt, outcome, .. } => {
                        assert!(self.accepted.contains(&prompt));
                        let second = self.outcomes.insert(prompt, outcome);
                        assert_eq!(second, None, "one outcome for {prompt}");
                    }
                }
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

        #[test]
        fn each_prompt_has_exactly_one_outcome_in_any_order_of_events(
            steps in prop::collection::vec(step(), 0..60)
        ) {
            let (mut turns, mut seen, mut now) = (Turns::new(2), Seen::default(), 0);
            let mut ended = false;
            for step in steps {
                let mut actions = Vec::new();
                match step {
                    Step::Push(time) => {
                        let accepted = turns.push("x".into(), now + time, 4, &mut actions);
                        prop_assert!(!ended || accepted.is_none());
                        seen.accepted.extend(accepted);
                    }
                    Step::Open => turns.opened(&mut actions),
                    Step::Reply(back, stop) => {
                        let Some((prompt, request)) = seen.sent.iter().rev().nth(back).copied() else { continue };
                        let reply =
                            if stop { Reply::Stop(PromptOutcome::EndTurn) } else { Reply::Error("no".into()) };
                        let had = seen.outcomes.contains_key(&prompt);
                        seen.replied.push(request);
                        let counts = turns.reply(request, reply, &mut actions);
                        prop_assert_eq!(counts, !had, "a late or second reply counts for nothing");
                    }
                    Step::Interrupt => {
                        let running = turns.running();
                        prop_assert_eq!(turns.interrupt(now + 10, &mut actions), running);
                        let decided = actions.iter().any(|action| matches!(action, Action::Outcome { .. }));
                        prop_assert!(!decided, "the agent has the last word, or the limit");
                    }
                    Step::Pass(time) => {
                        now += time;
                        turns.tick(now, &mut actions);
                        prop_assert!(turns.next_deadline().is_none_or(|next| next > now));
                    }
                    Step::End => {
                        ended = true;
                        turns.end(&mut actions);
                    }
                }
                seen.take(actions);
                let open = seen.accepted.len() - seen.outcomes.len();
                let waiting = turns.queued() + usize::from(turns.running().is_some());
                prop_assert_eq!(open, waiting, "no prompt is lost, none is kept that has its outcome");
                prop_assert!(open == 0 || turns.next_deadline().is_some(), "what is open ends by itself");
            }
            let mut actions = Vec::new();
            turns.end(&mut actions);
            seen.take(actions);
            prop_assert_eq!(seen.outcomes.len(), seen.accepted.len());
        }
    }

    #[test]
    fn an_interrupt_ends_only_the_running_prompt() {
        let (mut turns, mut actions) = (Turns::new(2), Vec::new());
        turns.opened(&mut actions);
        turns.push("one".into(), 1000, 8, &mut actions);
        turns.push("two".into(), 1000, 8, &mut actions);
        assert_eq!(turns.interrupt(50, &mut actions), Some(1));
        assert_eq!(turns.interrupt(60, &mut actions), Some(1), "asked twice, told once");
        assert_eq!(actions, [Action::Send { prompt: 1, request: 3, text: "one".into() }, Action::Cancel]);
        actions.clear();
        // The agent hangs: at the limit the outcome is known, but it gets no further prompt.
        turns.tick(50, &mut actions);
        let outcome = |prompt, outcome| Action::Outcome { prompt, outcome, error: None };
        assert_eq!(actions, [outcome(1, PromptOutcome::Cancelled)]);
        assert!(turns.is_overdue() && turns.queued() == 1);
        actions.clear();
        assert!(!turns.reply(3, Reply::Stop(PromptOutcome::Cancelled), &mut actions), "late");
        assert_eq!(actions, [Action::Send { prompt: 2, request: 4, text: "two".into() }]);
        actions.clear();
        turns.reply(4, Reply::Error("no model".into()), &mut actions);
        let failed = Action::Outcome { prompt: 2, outcome: PromptOutcome::Failed, error: Some("no model".into()) };
        assert_eq!(actions, [failed]);
    }

    #[test]
    fn a_prompt_that_is_late_in_the_queue_is_never_sent() {
        let (mut turns, mut actions) = (Turns::new(2), Vec::new());
        turns.push("one".into(), 10, 8, &mut actions);
        turns.tick(10, &mut actions);
        turns.opened(&mut actions);
        assert_eq!(actions, [Action::Outcome { prompt: 1, outcome: PromptOutcome::Timeout, error: None }]);
    }
}
