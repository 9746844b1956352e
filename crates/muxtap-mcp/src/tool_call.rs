//! A tool's call as a value: its arguments in their type, the host that they name, and the
//! operation that it is.

use muxtap_api::{Fields, Operation, Result, ServerQuery, TargetField};
use muxtap_engine::several::Part;
use rmcp::model::JsonObject;
use serde::Serialize;

use super::{
    CallContext,
    args::{self, parse},
    capability, devices,
    output::ToolOutput,
    record::{self, Record},
    sessions::{self, AgentSessionArguments},
    snapshot::{self, Snapshot},
    tools, wait, watch,
};

/// A call of a tool. A call that is forwarded is written without the fields that have their default,
/// so a muxtap of another version need not know them.
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum ToolCall {
    List(args::List),
    Capture(args::Capture),
    Read(args::Read),
    Wait(Box<args::Wait>),
    Run(args::Run),
    Send(args::Send),
    Create(Box<args::Create>),
    Kill(args::Kill),
    Change(Box<args::Change>),
    Search(args::Search),
    Watch(args::Watch),
    #[serde(skip_serializing)]
    Record(Box<Record>),
    #[serde(skip_serializing)]
    Snapshot(Box<Snapshot>),
    #[serde(skip_serializing)]
    AgentSession(Box<AgentSessionArguments>),
    /// Its panes are those of its own sandbox, whatever they are named.
    #[serde(skip_serializing)]
    Capability(JsonObject),
    #[serde(skip_serializing)]
    Devices(JsonObject),
    #[serde(skip_serializing)]
    Workspace(JsonObject),
}

/// How a call is forwarded to another muxtap.
#[derive(Clone, Copy)]
pub(super) struct Remote {
    /// The operation that the caller must be allowed to carry out on this host first.
    pub(super) operation: Operation,
    /// Whether the call may be sent again after the link was lost.
    pub(super) again: bool,
}

impl ToolCall {
    /// Parses a tool's arguments. `None`: no tool has this name.
    pub(super) fn parse(name: &str, arguments: JsonObject) -> Option<Result<Self>> {
        Some(match name {
            "list" => parse(arguments).map(Self::List),
            "capture_pane" => parse(arguments).map(Self::Capture),
            "read_since" => parse(arguments).map(Self::Read),
            "wait_for" => parse(arguments).map(Self::Wait),
            "run" => parse(arguments).map(Self::Run),
            "send_keys" => parse(arguments).map(Self::Send),
            "create" => parse(arguments).map(Self::Create),
            "kill" => parse(arguments).map(Self::Kill),
            "rename" => parse(arguments).map(|args: args::Rename| Self::Change(Box::new(args.into()))),
            "resize" => parse(arguments).map(|args: args::Resize| Self::Change(Box::new(args.into()))),
            "select" => parse(arguments).map(|args: args::Select| Self::Change(Box::new(args.into()))),
            "respawn" => parse(arguments).map(|args: args::Respawn| Self::Change(Box::new(args.into()))),
            "change" => parse(arguments).map(Self::Change),
            "search" => parse(arguments).map(Self::Search),
            "watch" => parse(arguments).map(Self::Watch),
            "record" => parse(arguments).map(Self::Record),
            snapshot::NAME => parse(arguments).map(Self::Snapshot),
            sessions::NAME => parse(arguments).map(Self::AgentSession),
            capability::NAME => Ok(Self::Capability(arguments)),
            "devices" => Ok(Self::Devices(arguments)),
            "workspace" => Ok(Self::Workspace(arguments)),
            _ => return None,
        })
    }

    /// Waits until the hosts are known that the call may name.
    pub(super) async fn await_hosts(&mut self, call: &CallContext) {
        let Some(server) = self.server() else { return };
        let at = ServerQuery { socket: server.clone(), from: None };
        call.engine.await_hosts(&at, |visit| self.visit_targets(visit)).await;
    }

    /// Takes the host out of the call's targets and selects that host's server. Returns the host;
    /// `None`: this one.
    ///
    /// Error: `INVALID_ARGUMENT` if the targets name several places.
    pub(super) fn place(&mut self, call: &CallContext) -> Result<Option<String>> {
        let Some(server) = self.server() else { return Ok(None) };
        let mut at = ServerQuery { socket: server.take(), from: None };
        let host = call.engine.place(&mut at, |visit| self.visit_targets(visit));
        if let Some(server) = self.server() {
            *server = at.socket;
        }
        host
    }

    /// Splits a call by the hosts of its targets. `None`: it is for one host.
    pub(super) fn split(&self, call: &CallContext) -> Result<Option<Vec<Part>>> {
        let (targets, server) = match self {
            Self::List(args) if args.what != args::ListKind::Commands => (args.target.as_slice(), &args.server),
            Self::Wait(args) if args.id.is_none() => (args.panes.as_slice(), &args.server),
            _ => return Ok(None),
        };
        call.engine.split(&ServerQuery { socket: server.clone(), from: None }, targets)
    }

    /// Returns the argument `server`. `None`: the tool uses no tmux server that a call can name.
    pub(super) fn server(&mut self) -> Option<&mut Option<String>> {
        Some(match self {
            Self::List(args) => &mut args.server,
            Self::Capture(args) => &mut args.server,
            Self::Read(args) => &mut args.server,
            Self::Wait(args) => &mut args.server,
            Self::Run(args) => &mut args.server,
            Self::Send(args) => &mut args.server,
            Self::Create(args) => &mut args.server,
            Self::Kill(args) => &mut args.server,
            Self::Change(args) => &mut args.server,
            Self::Search(args) => &mut args.server,
            Self::Watch(args) => &mut args.server,
            Self::Record(args) => &mut args.server,
            Self::Snapshot(args) => &mut args.server,
            Self::AgentSession(args) => &mut args.server,
            Self::Capability(_) | Self::Devices(_) | Self::Workspace(_) => return None,
        })
    }

    /// Returns the target of a call that changes something, for a person who is asked.
    pub(super) fn target(&self) -> &str {
        match self {
            Self::Send(args) => &args.target,
            Self::Kill(args) => &args.target,
            Self::Change(args) => &args.target,
            Self::Run(args) => args.target.as_deref().unwrap_or_default(),
            Self::Create(args) => args.target.as_deref().unwrap_or_default(),
            _ => "",
        }
    }

    /// Returns the id of the pending wait or run that the call resumes.
    pub(super) fn resumed_id(&self) -> Option<&str> {
        match self {
            Self::Wait(args) => args.id.as_deref(),
            Self::Run(args) => args.id.as_deref(),
            _ => None,
        }
    }

    /// Returns the name of the tool by which another muxtap has the call.
    pub(super) fn wire_name<'n>(&self, name: &'n str) -> &'n str {
        // `rename`, `resize`, `select` and `respawn` are parts of it.
        if matches!(self, Self::Change(_)) { "change" } else { name }
    }

    /// Returns how the call is forwarded. `None`: it is never forwarded.
    pub(super) fn remote(&self) -> Option<Remote> {
        let (operation, again) = match self {
            Self::List(_) | Self::Capture(_) | Self::Read(_) | Self::Search(_) => (Operation::Look, true),
            Self::Wait(_) | Self::Watch(_) => (Operation::Look, false),
            // A request by id types nothing.
            Self::Run(args) if args.id.is_some() => (Operation::Look, false),
            Self::Run(_) => (Operation::Run, false),
            Self::Send(_) => (Operation::Input, false),
            Self::Create(args) => (args.operation(), false),
            Self::Change(args) => (args.operation(), false),
            Self::Kill(_) => (Operation::KillPane, false),
            Self::Record(_)
            | Self::Snapshot(_)
            | Self::AgentSession(_)
            | Self::Capability(_)
            | Self::Devices(_)
            | Self::Workspace(_) => return None,
        };
        // A request by id can be repeated, however often the link is lost.
        Some(Remote { operation, again: again || self.resumed_id().is_some() })
    }

    /// Carries out the call on this host.
    pub(super) async fn perform(self, call: &CallContext) -> Result<ToolOutput> {
        match self {
            Self::List(args) => tools::list(call, args, None).await,
            Self::Capture(args) => tools::capture(call, args).await,
            Self::Read(args) => tools::read(call, args).await,
            Self::Wait(args) => wait::wait(call, *args).await,
            Self::Run(args) => tools::run(call, args).await,
            Self::Send(args) => tools::send(call, args).await,
            Self::Create(args) => tools::create(call, *args).await,
            Self::Kill(args) => tools::kill(call, args).await,
            Self::Change(args) => tools::change(call, *args).await,
            Self::Search(args) => tools::search(call, args).await,
            Self::Watch(args) => watch::watch(call, args).await,
            Self::Record(args) => record::record(call, *args).await,
            Self::Snapshot(args) => snapshot::call(call, *args).await,
            Self::AgentSession(args) => sessions::call(call, *args).await,
            Self::Capability(arguments) => capability::call(call, arguments).await,
            Self::Devices(arguments) => devices::list(call, arguments),
            Self::Workspace(arguments) => devices::workspace(call, arguments).await,
        }
    }
}

impl Fields for ToolCall {
    fn visit_targets(&mut self, visit: &mut dyn FnMut(TargetField<'_>)) {
        match self {
            Self::Capture(args) => visit(TargetField::One(&mut args.target)),
            Self::Read(args) => visit(TargetField::One(&mut args.target)),
            Self::Send(args) => visit(TargetField::One(&mut args.target)),
            Self::Kill(args) => visit(TargetField::One(&mut args.target)),
            Self::Change(args) => visit(TargetField::One(&mut args.target)),
            Self::List(args) => TargetField::visit_each(&mut args.target, visit),
            Self::Create(args) => TargetField::visit_each(&mut args.target, visit),
            Self::Record(args) => TargetField::visit_each(&mut args.target, visit),
            // An id is written with its host, like a target, and has no target beside it.
            Self::Wait(args) if args.panes.is_empty() => TargetField::visit_each(&mut args.id, visit),
            Self::Wait(args) => TargetField::visit_each(&mut args.panes, visit),
            Self::Run(args) => TargetField::visit_each(args.target.as_mut().or(args.id.as_mut()), visit),
            Self::Search(args) => TargetField::visit_each(&mut args.targets, visit),
            Self::Watch(args) => TargetField::visit_each(&mut args.targets, visit),
            Self::Snapshot(args) => TargetField::visit_each(&mut args.targets, visit),
            Self::AgentSession(_) | Self::Capability(_) | Self::Devices(_) | Self::Workspace(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use muxtap_api::Tier;
    use serde_json::{Value, json};

    use super::*;

    fn call(name: &str, arguments: &Value) -> ToolCall {
        ToolCall::parse(name, arguments.as_object().unwrap().clone()).unwrap().unwrap()
    }

    #[test]
    fn the_tier_of_a_call_is_known_before_it_is_forwarded() {
        let tier = |name, arguments: Value| call(name, &arguments).remote().map(|remote| remote.operation.tier());
        assert_eq!(tier("list", json!({})), Some(Tier::Read));
        assert_eq!(tier("wait_for", json!({"panes": "%0"})), Some(Tier::Read));
        assert_eq!(tier("run", json!({"id": "r1"})), Some(Tier::Read));
        assert_eq!(tier("run", json!({"target": "%0", "command": "x"})), Some(Tier::Input));
        assert_eq!(tier("send_keys", json!({"target": "%0", "text": "x"})), Some(Tier::Input));
        assert_eq!(tier("create", json!({})), Some(Tier::Create));
        assert_eq!(tier("change", json!({"target": "%0", "respawn": true})), Some(Tier::Create));
        assert_eq!(tier("change", json!({"target": "%0", "respawn": true, "kill": true})), Some(Tier::Kill));
        assert_eq!(tier("respawn", json!({"target": "%0"})), Some(Tier::Create));
        assert_eq!(tier("respawn", json!({"target": "%0", "kill": true})), Some(Tier::Kill));
        assert_eq!(tier("kill", json!({"target": "%0"})), Some(Tier::Kill));
        assert_eq!(tier("record", json!({})), None);
        assert_eq!(tier("snapshot", json!({"action": "list"})), None);
    }

    /// A call that is parsed and written again is the same call, so another muxtap gets what the
    /// caller meant.
    #[test]
    fn a_call_is_forwarded_as_it_was_meant() {
        for (name, given, written) in [
            (
                "wait_for",
                json!({"pane": "%0", "pattern": "x", "gone": ["y"], "detach": true}),
                json!({"panes": ["%0"]}),
            ),
            ("read_since", json!({"target": "%0", "format": "raw", "since": "start"}), json!({"format": "raw"})),
            ("create", json!({"what": "pane", "target": "%0", "command": "top"}), json!({"what": "pane"})),
            ("watch", json!({"targets": "w*", "types": ["output"], "screen": "ansi"}), json!({"screen": "ansi"})),
            ("kill", json!({"target": "x", "what": "window"}), json!({"what": "window"})),
        ] {
            let sent = serde_json::to_value(call(name, &given)).unwrap();
            for (field, value) in written.as_object().unwrap() {
                assert_eq!(sent.get(field), Some(value), "{name}: {sent}");
            }
            let again = serde_json::to_value(call(name, &sent)).unwrap();
            assert_eq!(sent, again, "{name}");
        }
    }

    /// Each part of `change` is the call that `change` would be.
    #[test]
    fn a_change_by_its_own_name_is_forwarded_as_a_change() {
        for (name, given, change) in [
            ("rename", json!({"target": "w", "name": "x"}), json!({"target": "w", "name": "x"})),
            ("resize", json!({"target": "%0", "zoom": false}), json!({"target": "%0", "zoom": false})),
            ("resize", json!({"target": "w:1", "width": "90"}), json!({"target": "w:1", "width": 90})),
            ("select", json!({"target": "%0"}), json!({"target": "%0", "select": true})),
            ("select", json!({"target": "%0", "leave_mode": true}), json!({"target": "%0", "leave_mode": true})),
            (
                "respawn",
                json!({"pane": "%0", "cmd": "top", "kill": true}),
                json!({"target": "%0", "respawn": true, "command": ["top"], "kill": true}),
            ),
        ] {
            let call = call(name, &given);
            assert_eq!(call.wire_name(name), "change");
            assert_eq!(serde_json::to_value(call).unwrap(), change, "{name}");
        }
        assert!(ToolCall::parse("resize", JsonObject::new()).unwrap().is_err());
    }

    #[test]
    fn a_forwarded_call_has_no_field_that_its_caller_left_out() {
        for (name, least) in [
            ("list", json!({"what": "panes"})),
            ("capture_pane", json!({"target": "%0"})),
            ("read_since", json!({"target": "%0", "format": "text"})),
            ("wait_for", json!({"panes": ["%0"]})),
            ("run", json!({"target": "%0", "command": "x"})),
            ("send_keys", json!({"target": "%0"})),
            ("create", json!({"what": "session"})),
            ("kill", json!({"target": "%0"})),
            ("change", json!({"target": "%0"})),
            ("search", json!({"pattern": "x"})),
            ("watch", json!({"format": "text", "screen": "rows"})),
        ] {
            assert_eq!(serde_json::to_value(call(name, &least)).unwrap(), least, "{name}");
        }
    }
}
