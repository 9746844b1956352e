//! Joins an agent's report with what its screen shows.
//!
//! The table is in `docs/agent-reports.md`; each of its lines is a test below. No line depends on
//! time: a report is worth less only when the screen contradicts it, or its process ends.

use muxtap_api::{AgentState, ReportPhase};

/// What a screen shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shown {
    pub(super) state: AgentState,
    pub(super) strength: Strength,
}

/// What a state by the screen is based on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Strength {
    /// No rule applies, or a dialog is uncertain.
    Nothing,
    /// A rule applies.
    Rule,
    /// The agent's own dialog, with answers.
    Dialog,
}

/// A report as the join needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reported {
    pub(super) state: AgentState,
    pub(super) phase: ReportPhase,
    /// Whether it belongs to the process that is followed in the pane.
    pub(super) is_own: bool,
    /// What the screen showed when the report was last joined, or came; `None`: it was not judged.
    pub(super) before: Option<Shown>,
    /// Whether the same rule applies as then, to other text.
    pub(super) moves: bool,
}

/// A line of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Line {
    NoReport,
    OtherProcess,
    Dialog,
    Same,
    Answered,
    Interrupted,
    MovedOn,
    Turned,
    Continues,
    Unseen,
}

impl Line {
    /// Returns its name in the table and in `evidence.joined`.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::NoReport => "no-report",
            Self::OtherProcess => "other-process",
            Self::Dialog => "dialog",
            Self::Same => "same",
            Self::Answered => "answered",
            Self::Interrupted => "interrupted",
            Self::MovedOn => "moved-on",
            Self::Turned => "turned",
            Self::Continues => "continues",
            Self::Unseen => "unseen",
        }
    }

    /// Returns whether the state is the report's; else it is the screen's.
    pub(super) const fn is_reports(self) -> bool {
        matches!(self, Self::Same | Self::Unseen)
    }

    /// Returns what the report is worth from now on.
    const fn phase(self, phase: ReportPhase) -> ReportPhase {
        match self {
            Self::Same => ReportPhase::Confirmed,
            Self::Answered | Self::Interrupted | Self::MovedOn | Self::Turned | Self::Continues => ReportPhase::Spent,
            Self::NoReport | Self::OtherProcess | Self::Dialog | Self::Unseen => phase,
        }
    }
}

/// Returns the line of the table that decides, and what the report is worth from now on.
pub(super) fn join(report: Option<Reported>, shown: Shown) -> (Line, ReportPhase) {
    let Some(report) = report.filter(|report| report.phase != ReportPhase::Spent) else {
        return (Line::NoReport, ReportPhase::Spent);
    };
    let line = line_of(report, shown);
    let asks = line == Line::Dialog && is_asking(report.state);
    // A dialog is what a report of a question announced.
    (line, if asks { ReportPhase::Confirmed } else { line.phase(report.phase) })
}

fn line_of(report: Reported, shown: Shown) -> Line {
    use AgentState::{Idle, Working};
    let applies = shown.strength != Strength::Nothing;
    let is_same = if is_asking(report.state) {
        is_asking(shown.state)
    } else {
        // A screen that no rule knows is what a waiting agent shows.
        shown.state == report.state && (applies || report.state == Idle)
    };
    if !report.is_own {
        Line::OtherProcess
    } else if shown.strength == Strength::Dialog {
        Line::Dialog
    } else if is_same {
        Line::Same
    } else if report.phase == ReportPhase::Confirmed {
        match report.state {
            state if is_asking(state) => Line::Answered,
            Working => Line::Interrupted,
            _ if applies => Line::MovedOn,
            _ => Line::Unseen,
        }
    } else if applies && report.before.is_some_and(|before| before.state != shown.state) {
        Line::Turned
    } else if applies && shown.state == Working && report.moves && (report.state == Idle || is_asking(report.state)) {
        // A hook of another one blocked the end of the turn, say.
        Line::Continues
    } else {
        Line::Unseen
    }
}

const fn is_asking(state: AgentState) -> bool {
    matches!(state, AgentState::Permission | AgentState::Question)
}

#[cfg(test)]
mod tests {
    use AgentState::{Errored, Idle, Permission, Question, Working};
    use ReportPhase::{Confirmed, Fresh, Spent};

    use super::*;

    const NONE: Shown = Shown { state: Idle, strength: Strength::Nothing };

    fn rule(state: AgentState) -> Shown {
        Shown { state, strength: Strength::Rule }
    }

    fn dialog(state: AgentState) -> Shown {
        Shown { state, strength: Strength::Dialog }
    }

    fn report(state: AgentState, phase: ReportPhase) -> Reported {
        Reported { state, phase, is_own: true, before: Some(NONE), moves: false }
    }

    /// The state that a caller sees after a report and these screens, and the last line.
    fn after(state: AgentState, before: Shown, screens: &[Shown]) -> (AgentState, Line) {
        let mut report = Reported { before: Some(before), ..report(state, Fresh) };
        let mut last = (state, Line::NoReport);
        for shown in screens {
            let (line, phase) = join(Some(report), *shown);
            report = Reported { phase, before: Some(*shown), ..report };
            last = (if line.is_reports() { state } else { shown.state }, line);
        }
        last
    }

    /// Each line of the table: the report, the screen, the line, and what the report is worth after it.
    #[test]
    fn each_line_of_the_table() {
        let own = |state, phase| Some(report(state, phase));
        let other = Some(Reported { is_own: false, ..report(Working, Confirmed) });
        let before = |shown, state| Some(Reported { before: Some(shown), ..report(state, Fresh) });
        let unjudged = Some(Reported { before: None, ..report(Idle, Fresh) });
        let moves = |state| Some(Reported { before: Some(rule(Working)), moves: true, ..report(state, Fresh) });
        let uncertain = Shown { state: Question, strength: Strength::Nothing };
        for (report, shown, line, phase) in [
            (None, rule(Working), Line::NoReport, Spent),
            (own(Permission, Spent), rule(Working), Line::NoReport, Spent),
            (other, NONE, Line::OtherProcess, Confirmed),
            (other, dialog(Permission), Line::OtherProcess, Confirmed),
            (own(Working, Fresh), dialog(Permission), Line::Dialog, Fresh),
            (own(Idle, Confirmed), dialog(Question), Line::Dialog, Confirmed),
            (own(Permission, Fresh), dialog(Permission), Line::Dialog, Confirmed),
            (own(Question, Fresh), dialog(Permission), Line::Dialog, Confirmed),
            (own(Working, Fresh), rule(Working), Line::Same, Confirmed),
            (own(Idle, Fresh), NONE, Line::Same, Confirmed),
            (own(Errored, Fresh), rule(Errored), Line::Same, Confirmed),
            (own(Permission, Fresh), rule(Permission), Line::Same, Confirmed),
            (own(Question, Fresh), uncertain, Line::Same, Confirmed),
            (own(Permission, Confirmed), NONE, Line::Answered, Spent),
            (own(Question, Confirmed), rule(Working), Line::Answered, Spent),
            (own(Working, Confirmed), NONE, Line::Interrupted, Spent),
            (own(Working, Confirmed), rule(Errored), Line::Interrupted, Spent),
            (own(Idle, Confirmed), rule(Working), Line::MovedOn, Spent),
            (own(Errored, Confirmed), rule(Working), Line::MovedOn, Spent),
            (own(Working, Fresh), rule(Errored), Line::Turned, Spent),
            (before(rule(Working), Idle), rule(Errored), Line::Turned, Spent),
            (moves(Idle), rule(Working), Line::Continues, Spent),
            (moves(Permission), rule(Working), Line::Continues, Spent),
            (moves(Question), rule(Working), Line::Continues, Spent),
            (moves(Errored), rule(Working), Line::Unseen, Fresh),
            (moves(Working), rule(Working), Line::Same, Confirmed),
            (moves(Idle), dialog(Permission), Line::Dialog, Fresh),
            (own(Working, Fresh), NONE, Line::Unseen, Fresh),
            (own(Permission, Fresh), NONE, Line::Unseen, Fresh),
            (own(Errored, Confirmed), NONE, Line::Unseen, Confirmed),
            (before(rule(Working), Idle), rule(Working), Line::Unseen, Fresh),
            (before(rule(Working), Permission), rule(Working), Line::Unseen, Fresh),
            (unjudged, rule(Working), Line::Unseen, Fresh),
        ] {
            assert_eq!(join(report, shown), (line, phase), "{report:?} with {shown:?}");
        }
    }

    #[test]
    fn a_dialog_that_is_answered_without_a_hook_ends_its_report() {
        let screens = [rule(Working), dialog(Permission), rule(Working)];
        assert_eq!(after(Permission, rule(Working), &screens), (Working, Line::Answered));
        assert_eq!(after(Permission, rule(Working), &screens[..2]), (Permission, Line::Dialog));
        // Before it is drawn, and with a look that no rule knows.
        assert_eq!(after(Permission, rule(Working), &screens[..1]), (Permission, Line::Unseen));
        assert_eq!(after(Permission, rule(Working), &[NONE]), (Permission, Line::Unseen));
        assert_eq!(after(Permission, rule(Working), &[NONE, rule(Working)]), (Working, Line::Turned));
    }

    #[test]
    fn an_interruption_fires_no_hook() {
        assert_eq!(after(Working, NONE, &[rule(Working), NONE]), (Idle, Line::Interrupted));
        // A screen on which no rule has ever seen the agent work.
        assert_eq!(after(Working, NONE, &[NONE, NONE]), (Working, Line::Unseen));
    }

    #[test]
    fn a_hook_that_never_comes_does_not_keep_a_state() {
        assert_eq!(after(Idle, rule(Working), &[rule(Working), NONE, rule(Working)]), (Working, Line::MovedOn));
        assert_eq!(after(Errored, NONE, &[rule(Errored), rule(Working)]), (Working, Line::MovedOn));
        assert_eq!(after(Idle, NONE, &[NONE, rule(Errored)]), (Errored, Line::MovedOn));
    }

    #[test]
    fn words_on_a_screen_that_were_there_before_do_not_contradict_a_report() {
        // Text such as "press esc to interrupt" in an answer.
        assert_eq!(after(Idle, rule(Working), &[rule(Working), rule(Working)]), (Idle, Line::Unseen));
    }

    #[test]
    fn a_report_that_was_contradicted_never_counts_again() {
        let screens = [rule(Working), NONE, rule(Working)];
        assert_eq!(after(Working, NONE, &screens), (Working, Line::NoReport));
    }
}
