//! The state of a wait on each of several hosts, and the outcome of all together.

use muxtap_api::{Error, ErrorCode, WaitAnswer, WaitMode, WaitOutcome, WaitRequest};
use muxtap_engine::several::{Part, is_about_request};
use muxtap_tmux::is_absent;

/// A wait's state on one host.
pub(super) struct Branch {
    pub(super) host: Option<String>,
    /// The part of the request, and its own request; `None`: the wait has begun before, and only its
    /// id is known.
    pub(super) part: Option<(Part, WaitRequest)>,
    /// The last answer.
    pub(super) answer: Option<WaitAnswer>,
    /// Why the last request has no answer.
    pub(super) error: Option<Error>,
    /// Whether nothing more is expected of the host, whose last request has no answer.
    pub(super) is_gone: bool,
    /// Whether the host has nothing of what a pattern names: it is not part of the wait.
    pub(super) is_left_out: bool,
}

impl Branch {
    pub(super) fn new(host: Option<String>, part: Option<(Part, WaitRequest)>) -> Self {
        Self { host, part, answer: None, error: None, is_gone: false, is_left_out: false }
    }

    /// Returns how the wait ended on this host. `None`: it has not, or the host is silent.
    pub(super) fn outcome(&self) -> Option<WaitOutcome> {
        self.answer.as_ref().map(|answer| answer.outcome).filter(|outcome| *outcome != WaitOutcome::Pending)
    }

    pub(super) fn has_replied(&self) -> bool {
        self.answer.is_some() || self.error.is_some()
    }

    /// Returns whether nothing more is expected of a host that takes part.
    pub(super) fn is_lost(&self) -> bool {
        self.is_gone && !self.is_left_out
    }

    /// Notes why the last request has no answer. `is_forgotten`: no host has the name any more. Returns
    /// the error with which the whole wait ends; `None`: it continues on the other hosts.
    pub(super) fn fail(&mut self, mode: WaitMode, error: Error, is_forgotten: bool) -> Option<Error> {
        let has_begun = self.answer.is_some();
        // A host that has begun the wait takes part, whatever it has now.
        self.is_left_out = !has_begun && self.part.as_ref().is_some_and(|(part, _)| part.has_nothing(&error));
        self.is_gone = self.part.is_some() || is_forgotten || error.code == ErrorCode::NotFound;
        if self.is_gone && (error.code == ErrorCode::NotFound || is_absent(&error)) {
            self.answer = None;
        }
        let is_fatal = mode == WaitMode::All || (!has_begun && is_about_request(&error));
        let is_fatal = is_fatal && self.part.is_some() && !self.is_left_out;
        self.error = Some(error);
        if !is_fatal {
            return None;
        }
        if has_begun { self.named_error() } else { self.error.clone() }
    }

    /// Returns the error with the host's name.
    pub(super) fn named_error(&self) -> Option<Error> {
        let mut error = self.error.clone()?;
        let name = self.host.as_deref().map_or_else(|| "this host".to_owned(), |host| format!("host {host}"));
        let is_named = error.message.strip_prefix(&name).is_some_and(|rest| rest.starts_with([':', '\'']));
        if !is_named {
            error.message = format!("{name}: {}", error.message);
        }
        Some(error)
    }

    /// Returns whether the wait is on this host, as far as is known.
    pub(super) fn is_in_wait(&self) -> bool {
        !self.is_left_out && (self.answer.is_some() || !self.is_gone)
    }
}

/// Returns how a wait has ended, and the branch that decided it. `None`: it continues.
pub(super) fn decided(mode: WaitMode, branches: &[Branch]) -> Option<(WaitOutcome, Option<usize>)> {
    let at = |wanted: WaitOutcome| branches.iter().position(|branch| branch.outcome() == Some(wanted));
    let first = |outcomes: &[WaitOutcome]| outcomes.iter().find_map(|outcome| Some((*outcome, at(*outcome)?)));
    if let Some(at) = at(WaitOutcome::Failed) {
        return Some((WaitOutcome::Failed, Some(at)));
    }
    let mut taking_part = branches.iter().filter(|branch| !branch.is_left_out);
    match mode {
        WaitMode::Any => {
            if let Some(at) = at(WaitOutcome::Matched) {
                return Some((WaitOutcome::Matched, Some(at)));
            }
            if !taking_part.all(|branch| branch.outcome().is_some() || branch.is_gone) {
                return None;
            }
            let (outcome, at) = first(&[WaitOutcome::Timeout, WaitOutcome::Cancelled, WaitOutcome::Ended])?;
            Some((outcome, Some(at).filter(|_| outcome == WaitOutcome::Ended)))
        }
        WaitMode::All => {
            if let Some((outcome, at)) = first(&[WaitOutcome::Ended, WaitOutcome::Timeout, WaitOutcome::Cancelled]) {
                return Some((outcome, Some(at).filter(|_| outcome == WaitOutcome::Ended)));
            }
            let is_begun = branches.iter().any(|branch| branch.answer.is_some());
            let are_matched = taking_part.all(|branch| branch.outcome() == Some(WaitOutcome::Matched));
            (is_begun && are_matched).then_some((WaitOutcome::Matched, None))
        }
    }
}

#[cfg(test)]
mod tests {
    use muxtap_api::ServerQuery;
    use serde_json::json;

    use super::*;

    fn answer(outcome: &str) -> WaitAnswer {
        let answer = json!({"id": "w", "outcome": outcome, "predicates": [], "duration_ms": 1.0});
        serde_json::from_value(answer).unwrap()
    }

    fn branches(outcomes: &[&str]) -> Vec<Branch> {
        let branch = |outcome: &&str| {
            let mut branch = Branch::new(Some("box".into()), None);
            match *outcome {
                "" => {}
                "gone" => branch.is_gone = true,
                "out" => branch.is_left_out = true,
                outcome => branch.answer = Some(answer(outcome)),
            }
            branch
        };
        outcomes.iter().map(branch).collect()
    }

    #[test]
    fn the_hosts_outcomes_decide_the_waits_outcome() {
        use WaitOutcome::{Cancelled, Ended, Failed, Matched, Timeout};
        for (any, all, outcomes) in [
            (None, None, &["pending", ""][..]),
            (Some((Matched, Some(1))), None, &["pending", "matched"]),
            (Some((Matched, Some(0))), Some((Matched, None)), &["matched", "matched"]),
            (Some((Matched, Some(1))), Some((Matched, None)), &["out", "matched"]),
            (Some((Matched, Some(1))), None, &["gone", "matched"]),
            (Some((Failed, Some(1))), Some((Failed, Some(1))), &["pending", "failed", "matched"]),
            (None, Some((Ended, Some(0))), &["ended", "pending"]),
            (Some((Ended, Some(0))), Some((Ended, Some(0))), &["ended", "ended"]),
            (Some((Ended, Some(1))), Some((Ended, Some(1))), &["gone", "ended"]),
            (None, Some((Timeout, None)), &["timeout", "pending"]),
            (Some((Timeout, None)), Some((Ended, Some(1))), &["timeout", "ended"]),
            (Some((Cancelled, None)), Some((Cancelled, None)), &["cancelled", "cancelled"]),
            (None, None, &["gone", "gone"]),
            (None, None, &["out", "out"]),
        ] {
            let branches = branches(outcomes);
            assert_eq!(decided(WaitMode::Any, &branches), any, "any: {outcomes:?}");
            assert_eq!(decided(WaitMode::All, &branches), all, "all: {outcomes:?}");
        }
    }

    /// Returns a host that patterns name and that has begun the wait; without a `part`, by its id.
    fn begun(has_part: bool) -> Branch {
        let request = serde_json::from_value(json!({"panes": ["work"], "patterns": ["x"]})).unwrap();
        let at = ServerQuery::default();
        let part = Part { host: Some("box".into()), at, targets: vec!["work".into()], by_pattern: true };
        let mut branch = Branch::new(Some("box".into()), has_part.then_some((part, request)));
        branch.answer = Some(answer("pending"));
        branch
    }

    #[test]
    fn a_host_that_has_lost_its_wait_still_takes_part() {
        let lost = || Error::not_found("nothing matches `work`");
        let matched = || Branch { answer: Some(answer("matched")), ..Branch::new(Some("other".into()), None) };
        for has_part in [true, false] {
            // `all` ends with an error that names the host, or is never decided.
            let mut branch = begun(has_part);
            let fatal = branch.fail(WaitMode::All, lost(), false);
            let named = branch.named_error().unwrap();
            assert_eq!((named.code, named.message.as_str()), (ErrorCode::NotFound, "host box: nothing matches `work`"));
            assert_eq!(fatal, has_part.then_some(named));
            assert!(branch.is_lost() && !branch.is_in_wait());
            assert_eq!(decided(WaitMode::All, &[branch, matched()]), None);
            // `any` continues on the other hosts.
            let mut branch = begun(has_part);
            assert_eq!(branch.fail(WaitMode::Any, lost(), false), None);
            assert!(branch.is_lost() && branch.error.is_some() && !branch.is_in_wait());
        }
    }

    #[test]
    fn a_host_that_has_begun_no_wait_is_left_out_or_ends_the_request() {
        let unbegun = || Branch { answer: None, ..begun(true) };
        for mode in [WaitMode::Any, WaitMode::All] {
            let mut branch = unbegun();
            assert_eq!(branch.fail(mode, Error::not_found("nothing"), false), None);
            assert!(branch.is_left_out && !branch.is_lost());
            let fatal = unbegun().fail(mode, Error::invalid("pattern"), false).unwrap();
            assert_eq!(fatal.message, "pattern");
        }
        let away = || Error::unavailable("host box: no reply");
        assert_eq!(unbegun().fail(WaitMode::Any, away(), false), None);
        assert_eq!(unbegun().fail(WaitMode::All, away(), false), Some(away()));
    }

    #[test]
    fn a_wait_by_its_id_is_gone_with_its_host_and_not_with_the_link() {
        let away = || Error::unavailable("host box: no reply");
        let mut branch = begun(false);
        assert_eq!(branch.fail(WaitMode::All, away(), false), None);
        assert!(!branch.is_gone && branch.is_in_wait());
        assert_eq!(branch.named_error(), Some(away()));
        assert_eq!(branch.fail(WaitMode::All, Error::invalid("socket: unknown host box"), true), None);
        assert!(branch.is_lost());
    }
}
