//! The prompts of a session: one at a time, in order, and for each exactly one outcome. Pure: it is told what happens
//! and returns what is to be done.

use std::collections::VecDeque;

use muxtap_api::PromptOutcome;

/// Milliseconds on a clock that only goes on.
pub(super) type Millis = u64;

/// Something that is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Give this prompt to the agent, by a request with this number.
    Send { prompt: u64, request: u64, text: String },
    /// Tell the agent to cancel what runs (`session/cancel`).
    Cancel,
    /// Announce a prompt's outcome. It is the only one that the prompt ever has.
    Outcome { prompt: u64, outcome: PromptOutcome, error: Option<String> },
}

/// A reply of the agent to `session/prompt`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    /// The turn has ended so.
    Stop(PromptOutcome),
    /// An error in words.
    Error(String),
}

/// The state of the prompts.
#[derive(Debug)]
pub(super) struct Turns {
    queue: VecDeque<Queued>,
    turn: Turn,
    last_prompt: u64,
    last_request: u64,
    ended: bool,
}

#[derive(Debug)]
struct Queued {
    prompt: u64,
    text: String,
    deadline: Millis,
}

/// The agent's turn.
#[derive(Debug)]
enum Turn {
    /// The session is not open yet.
    Opening,
    /// The agent waits for a prompt.
    Free,
    /// A prompt runs.
    Running { prompt: u64, request: u64, deadline: Millis, cancelled: Option<Millis> },
    /// The prompt has its outcome, but the agent has not replied to it.
    Overdue { request: u64 },
}

impl Turns {
    /// Creates the state of a session that is not open yet. Requests are numbered from here on.
    pub(super) fn new(first_request: u64) -> Self {
        Self { queue: VecDeque::new(), turn: Turn::Opening, last_prompt: 0, last_request: first_request, ended: false }
    }

    /// Accepts a prompt. `None`: `most` wait already, or the agent has ended.
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

    /// Notes that the session is open: prompts can be given.
    pub(super) fn opened(&mut self, actions: &mut Vec<Action>) {
        if matches!(self.turn, Turn::Opening) && !self.ended {
            self.turn = Turn::Free;
            self.go_on(actions);
        }
    }

    /// Takes a reply. Returns whether it was waited for: another one is late, came twice, or answers nothing.
    pub(super) fn reply(&mut self, to: u64, reply: Reply, actions: &mut Vec<Action>) -> bool {
        match self.turn {
            Turn::Running { prompt, request, cancelled, .. } if request == to => {
                let (outcome, error) = match reply {
                    Reply::Stop(outcome) => (outcome, None),
                    // Agents fail when what they wait for is cancelled under them.
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

    /// Cancels the prompt that runs, and only that one. It becomes `cancelled` when the agent says so, or at `limit`.
    /// Returns its number.
    pub(super) fn interrupt(&mut self, limit: Millis, actions: &mut Vec<Action>) -> Option<u64> {
        let Turn::Running { prompt, cancelled, .. } = &mut self.turn else { return None };
        if cancelled.is_none() {
            *cancelled = Some(limit);
            actions.push(Action::Cancel);
        }
        Some(*prompt)
    }

    /// Ends everything: each prompt that has no outcome yet is `agent_exited`.
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

    /// Decides what is due by now.
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

    /// Returns when [`Turns::tick`] has something to decide.
    pub(super) fn next_deadline(&self) -> Option<Millis> {
        let running = match self.turn {
            Turn::Running { deadline, cancelled, .. } => Some(cancelled.map_or(deadline, |limit| limit.min(deadline))),
            _ => None,
        };
        self.queue.iter().map(|queued| queued.deadline).chain(running).min()
    }

    /// Returns the prompt that runs.
    pub(super) fn running(&self) -> Option<u64> {
        match self.turn {
            Turn::Running { prompt, .. } => Some(prompt),
            _ => None,
        }
    }

    /// Returns how many prompts wait for their turn.
    pub(super) fn queued(&self) -> usize {
        self.queue.len()
    }

    /// Returns whether the agent has not replied to a prompt that has its outcome.
    pub(super) fn is_overdue(&self) -> bool {
        matches!(self.turn, Turn::Overdue { .. })
    }

    /// Returns whether no prompt runs or waits.
    pub(super) fn is_idle(&self) -> bool {
        self.running().is_none() && self.queue.is_empty()
    }

    /// Returns a number for another request to the agent.
    pub(super) fn request(&mut self) -> u64 {
        self.last_request += 1;
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
        /// To the request of this many sends ago, which may have been answered.
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

    /// The history of prompts as one agent's world has seen it.
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
                        // One at a time: the agent has replied to all that was sent before.
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
        fn each_prompt_has_exactly_one_outcome_in_any_order_of_things(
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
    fn an_interrupt_ends_what_runs_and_nothing_else() {
        let (mut turns, mut actions) = (Turns::new(2), Vec::new());
        turns.opened(&mut actions);
        turns.push("one".into(), 1000, 8, &mut actions);
        turns.push("two".into(), 1000, 8, &mut actions);
        assert_eq!(turns.interrupt(50, &mut actions), Some(1));
        assert_eq!(turns.interrupt(60, &mut actions), Some(1), "asked twice, told once");
        assert_eq!(actions, [Action::Send { prompt: 1, request: 3, text: "one".into() }, Action::Cancel]);
        actions.clear();
        // It hangs: at the limit the outcome is known, but nothing else is given to it.
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
