//! The fields of a request that say where it goes.

use crate::{
    AlisQuery, CaptureRequest, EventsRequest, FormatListQuery, FormatQuery, InputRequest, ListAllQuery, ListQuery,
    NewSessionRequest, NewWindowRequest, PatchRequest, ReadRequest, RecordRequest, ReportAgentRequest, RunRequest,
    SplitRequest, SubscribeRequest, WaitListQuery, WaitRequest,
};

/// A field that names targets, each of which may begin with a host: `HOST/TARGET`.
#[derive(Debug)]
pub enum TargetField<'a> {
    /// One target.
    One(&'a mut String),
    /// Targets that are separated by commas.
    Listed(&'a mut String),
}

impl TargetField<'_> {
    /// Passes single targets to `visit`.
    pub fn visit_each<'a>(targets: impl IntoIterator<Item = &'a mut String>, visit: &mut dyn FnMut(TargetField<'_>)) {
        for target in targets {
            visit(TargetField::One(target));
        }
    }

    /// Passes targets that are separated by commas to `visit`, if there are any.
    fn visit_listed(targets: &mut Option<String>, visit: &mut dyn FnMut(TargetField<'_>)) {
        if let Some(targets) = targets {
            visit(TargetField::Listed(targets));
        }
    }
}

/// Returns whether the word before a target's `/` is a pattern for names of hosts.
pub fn is_host_pattern(word: &str) -> bool {
    let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'*');
    word.contains('*') && word.bytes().all(is_of_name)
}

/// The fields of a request: its query, its body, or a tool's arguments.
///
/// Each interface parses a request into its type before it takes the host out of these fields.
pub trait Fields {
    /// Passes each field that names targets to `visit`.
    fn visit_targets(&mut self, visit: &mut dyn FnMut(TargetField<'_>)) {
        let _ = visit;
    }

    /// Returns the targets that may be on several hosts. `None`: the request is for one host.
    fn spread(&self) -> Option<Vec<String>> {
        None
    }

    /// Removes the fields that have a meaning only on the caller's host. For a request that is
    /// forwarded.
    fn remove_caller(&mut self) {}

    /// Returns the wait that the request begins.
    fn wait(&self) -> Option<&WaitRequest> {
        None
    }
}

impl Fields for () {}
impl Fields for AlisQuery {}
impl Fields for CaptureRequest {}
impl Fields for FormatQuery {}
impl Fields for InputRequest {}
impl Fields for ReadRequest {}
impl Fields for ReportAgentRequest {}
impl Fields for WaitListQuery {}
impl Fields for RunRequest {}

impl Fields for ListQuery {
    fn visit_targets(&mut self, visit: &mut dyn FnMut(TargetField<'_>)) {
        TargetField::visit_listed(&mut self.targets, visit);
    }

    fn spread(&self) -> Option<Vec<String>> {
        Some(self.items())
    }
}

impl Fields for ListAllQuery {
    fn visit_targets(&mut self, visit: &mut dyn FnMut(TargetField<'_>)) {
        TargetField::visit_listed(&mut self.targets, visit);
    }

    fn spread(&self) -> Option<Vec<String>> {
        Some(self.items())
    }
}

impl Fields for FormatListQuery {
    fn visit_targets(&mut self, visit: &mut dyn FnMut(TargetField<'_>)) {
        TargetField::visit_listed(&mut self.targets, visit);
    }
}

impl Fields for EventsRequest {
    fn visit_targets(&mut self, visit: &mut dyn FnMut(TargetField<'_>)) {
        TargetField::visit_listed(&mut self.panes, visit);
    }
}

impl Fields for SubscribeRequest {
    fn visit_targets(&mut self, visit: &mut dyn FnMut(TargetField<'_>)) {
        TargetField::visit_each(&mut self.panes, visit);
    }
}

impl Fields for WaitRequest {
    fn visit_targets(&mut self, visit: &mut dyn FnMut(TargetField<'_>)) {
        TargetField::visit_each(&mut self.panes, visit);
    }

    fn spread(&self) -> Option<Vec<String>> {
        Some(self.panes.clone())
    }

    fn wait(&self) -> Option<&WaitRequest> {
        Some(self)
    }
}

impl Fields for NewSessionRequest {
    fn remove_caller(&mut self) {
        self.spawn.remove_caller();
    }
}

impl Fields for NewWindowRequest {
    fn visit_targets(&mut self, visit: &mut dyn FnMut(TargetField<'_>)) {
        visit(TargetField::One(&mut self.session));
    }

    fn remove_caller(&mut self) {
        self.spawn.remove_caller();
    }
}

impl Fields for SplitRequest {
    fn visit_targets(&mut self, visit: &mut dyn FnMut(TargetField<'_>)) {
        visit(TargetField::One(&mut self.pane));
    }

    fn remove_caller(&mut self) {
        self.spawn.remove_caller();
    }
}

impl Fields for PatchRequest {
    fn remove_caller(&mut self) {
        self.respawn.iter_mut().for_each(|respawn| respawn.spawn.remove_caller());
    }
}

impl Fields for RecordRequest {
    fn visit_targets(&mut self, visit: &mut dyn FnMut(TargetField<'_>)) {
        visit(TargetField::One(&mut self.pane));
    }
}
