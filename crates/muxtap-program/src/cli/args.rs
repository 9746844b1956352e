//! The argument tree: all commands, and their common options.

use std::{
    any::TypeId,
    ffi::OsString,
    fmt::Write as _,
    num::{IntErrorKind, ParseIntError},
};

use clap::{
    Arg, ArgMatches, Args as _, CommandFactory as _, FromArgMatches as _, Parser, Subcommand,
    builder::StyledStr,
    error::{ContextKind, ContextValue, ErrorKind},
};
use muxtap_tmux::ServerChoice;

use super::commands::agent_session::AgentSessionArgs;
#[cfg(feature = "bridge")]
use super::commands::bridge::Bridge;
#[cfg(feature = "fleet")]
use super::commands::fleet::FleetArgs;
use super::commands::open::Open;
#[cfg(feature = "top")]
use super::commands::top::Top;
use super::commands::workspace::{WorkspaceArgs, is_freshell};
use super::{
    Outcome,
    caller::Caller,
    commands::{
        agents::Agents,
        approvals::ApprovalsArgs,
        attach::AttachSession,
        audit_check::AuditCheck,
        capability::CapabilityArgs,
        capture::CapturePane,
        change::{
            CopyMode, KillPane, KillSession, KillWindow, RenameSession, RenameWindow, ResizePane, ResizeWindow,
            RespawnPane, SelectLayout, SelectPane, SelectWindow,
        },
        command_list::Commands,
        completions::Completions,
        create::{NewSession, NewWindow, SplitWindow},
        daemon::{Config, Serve, Status, Stop, TokenArgs, Upgrade},
        demo::Demo,
        doctor::Doctor,
        events::Events,
        group::GroupArgs,
        hosts::Hosts,
        input::SendKeys,
        label::Label,
        layout::LayoutArgs,
        list::{DisplayMessage, HasSession, ListPanes, ListSessions, ListWindows},
        mcp::Mcp,
        read::{CursorOf, Read},
        record::Record,
        report_agent::ReportAgent,
        run::Run,
        search::Search,
        shell_integration::ShellIntegration,
        snapshot::SnapshotArgs,
        status_line::StatusLine,
        stdio::Stdio,
        tail::Tail,
        wait_for::{WaitFor, WaitResult},
        when::WhenArgs,
    },
    one_request,
    output::{self, Failure},
};
use crate::api::Error;

/// Follow tmux panes, wait for their output, read, capture and type, without polling.
///
/// A daemon follows panes while they are in use and retains their output; the first command starts
/// it. Sessions, windows and panes are named as in tmux: `%3`, `@1`, `$0`, `work`, `work:1`,
/// `work:logs.0`; names match exactly.
#[derive(Debug, Parser)]
#[command(
    name = "muxtap",
    version,
    max_term_width = 100,
    after_long_help = "Examples:
  muxtap new-session -s work                     create a session
  muxtap send-keys -t work 'make test' Enter     type into its pane
  muxtap wait-for -t work -p 'PASS|FAIL' -T 600  return as soon as a line matches
  muxtap run -t work -- ls -l                    print a command's output, return its exit status
  muxtap tail -f 'work:*'                        follow all panes of a session

Exit status: 0; 1 error; 2 invalid argument; 124 timeout; `run`: the command's own;
`wait-for`: 3 when a --fail pattern matched or the pane ended first."
)]
struct Cli {
    #[command(flatten)]
    common: Common,

    #[command(subcommand)]
    command: Command,
}

/// Options before the command.
#[derive(Debug, clap::Args)]
struct Common {
    /// Use the tmux server with this name, as `tmux -L` (default: the caller's, else `default`)
    #[arg(short = 'L', value_name = "NAME", help_heading = "Global options")]
    socket_name: Option<OsString>,

    /// Use the tmux server with this socket, as `tmux -S`
    #[arg(short = 'S', long, value_name = "PATH", help_heading = "Global options")]
    socket_path: Option<OsString>,

    /// Reach the tmux server of a remote host by this command: `ssh box`, `docker exec -i web`;
    /// `box/%3` then names a pane of the host until the daemon exits. `NAME=COMMAND` sets the
    /// host's name
    #[arg(long, global = true, value_name = "COMMAND", help_heading = "Global options")]
    via: Option<String>,

    /// With --via: use the remote tmux directly, even if the host has muxtap
    #[arg(long, global = true, help_heading = "Global options")]
    no_peer: bool,

    /// Print results and errors as JSON, one object per line, with the fields of HTTP
    #[arg(long, global = true, help_heading = "Global options")]
    json: bool,
}

/// muxtap's commands.
#[derive(Debug, Subcommand)]
#[command(subcommand_value_name = "COMMAND")]
pub(super) enum Command {
    Demo(Demo),
    Serve(Box<Serve>),
    Status(Status),
    #[cfg(feature = "top")]
    Top(Top),
    Open(Open),
    Stop(Stop),
    Upgrade(Upgrade),
    Config(Config),
    Token(TokenArgs),
    AuditCheck(AuditCheck),
    Doctor(Doctor),
    #[command(visible_alias = "ls")]
    ListSessions(ListSessions),
    #[command(visible_alias = "lsw")]
    ListWindows(ListWindows),
    #[command(visible_alias = "lsp")]
    ListPanes(ListPanes),
    #[command(visible_alias = "has")]
    HasSession(HasSession),
    #[command(visible_alias = "display")]
    DisplayMessage(DisplayMessage),
    #[command(visible_alias = "attach")]
    AttachSession(AttachSession),
    #[command(visible_alias = "new")]
    NewSession(NewSession),
    #[command(visible_alias = "neww")]
    NewWindow(NewWindow),
    #[command(visible_alias = "splitw")]
    SplitWindow(SplitWindow),
    #[command(visible_alias = "killp")]
    KillPane(KillPane),
    #[command(visible_alias = "killw")]
    KillWindow(KillWindow),
    KillSession(KillSession),
    #[command(visible_alias = "respawnp")]
    RespawnPane(RespawnPane),
    #[command(visible_alias = "rename")]
    RenameSession(RenameSession),
    #[command(visible_alias = "renamew")]
    RenameWindow(RenameWindow),
    #[command(visible_alias = "resizep")]
    ResizePane(ResizePane),
    #[command(visible_alias = "resizew")]
    ResizeWindow(ResizeWindow),
    #[command(visible_alias = "selectw")]
    SelectWindow(SelectWindow),
    #[command(visible_alias = "selectp")]
    SelectPane(SelectPane),
    #[command(visible_alias = "selectl")]
    SelectLayout(SelectLayout),
    CopyMode(CopyMode),
    Label(Label),
    #[command(visible_alias = "send")]
    SendKeys(SendKeys),
    #[command(visible_alias = "capturep")]
    CapturePane(CapturePane),
    Read(Read),
    Search(Search),
    Commands(Commands),
    Cursor(CursorOf),
    Tail(Tail),
    #[command(visible_alias = "wait")]
    WaitFor(Box<WaitFor>),
    Result(WaitResult),
    Run(Run),
    Record(Box<Record>),
    Events(Events),
    When(WhenArgs),
    Agents(Agents),
    ReportAgent(Box<ReportAgent>),
    StatusLine(StatusLine),
    AgentSession(AgentSessionArgs),
    Snapshot(SnapshotArgs),
    Layout(LayoutArgs),
    Group(GroupArgs),
    Hosts(Hosts),
    #[cfg(feature = "fleet")]
    Fleet(FleetArgs),
    Workspace(WorkspaceArgs),
    Approvals(ApprovalsArgs),
    Mcp(Mcp),
    Stdio(Stdio),
    Capability(CapabilityArgs),
    #[cfg(feature = "bridge")]
    Bridge(Bridge),
    Completions(Completions),
    ShellIntegration(ShellIntegration),
}

impl Command {
    pub(super) async fn run(self, caller: &Caller) -> Outcome {
        let goes_on = self.goes_on();
        let run = Box::pin(self.dispatch(caller));
        if goes_on { output::while_read(run).await } else { run.await }
    }

    /// Returns whether the command only prints, until its reader exits.
    fn goes_on(&self) -> bool {
        match self {
            Self::Events(_) | Self::StatusLine(_) => true,
            Self::Tail(args) => args.goes_on(),
            Self::Commands(args) => args.goes_on(),
            Self::Read(args) => args.goes_on(),
            Self::Agents(args) => args.goes_on(),
            Self::Approvals(args) => args.goes_on(),
            Self::Status(args) => args.goes_on(),
            Self::ListSessions(args) => args.goes_on(),
            Self::ListWindows(args) => args.goes_on(),
            Self::ListPanes(args) => args.goes_on(),
            Self::AgentSession(args) => args.goes_on(),
            _ => false,
        }
    }

    async fn dispatch(self, caller: &Caller) -> Outcome {
        match self {
            Self::Demo(args) => args.run(caller).await,
            Self::Status(args) => args.run(caller).await,
            #[cfg(feature = "top")]
            Self::Top(args) => args.run(caller).await,
            Self::Open(args) => args.run(caller).await,
            Self::Stop(args) => args.run(caller).await,
            Self::Upgrade(args) => args.run(caller).await,
            Self::Config(args) => args.run(caller).await,
            Self::Token(args) => args.run(caller).await,
            Self::AuditCheck(args) => args.run(caller).await,
            Self::ListSessions(args) => args.run(caller).await,
            Self::ListWindows(args) => args.run(caller).await,
            Self::ListPanes(args) => args.run(caller).await,
            Self::HasSession(args) => one_request::run(&args, caller).await,
            Self::DisplayMessage(args) => one_request::run(&args, caller).await,
            Self::AttachSession(args) => args.run(caller).await,
            Self::NewSession(args) => args.run(caller).await,
            Self::NewWindow(args) => args.run(caller).await,
            Self::SplitWindow(args) => args.run(caller).await,
            Self::KillPane(args) => args.run(caller).await,
            Self::KillWindow(args) => args.run(caller).await,
            Self::KillSession(args) => args.run(caller).await,
            Self::RespawnPane(args) => args.run(caller).await,
            Self::RenameSession(args) => args.run(caller).await,
            Self::RenameWindow(args) => args.run(caller).await,
            Self::ResizePane(args) => args.run(caller).await,
            Self::ResizeWindow(args) => args.run(caller).await,
            Self::SelectWindow(args) => args.run(caller).await,
            Self::SelectPane(args) => args.run(caller).await,
            Self::SelectLayout(args) => args.run(caller).await,
            Self::CopyMode(args) => args.run(caller).await,
            Self::Label(args) => args.run(caller).await,
            Self::SendKeys(args) => args.run(caller).await,
            Self::CapturePane(args) => one_request::run(&args, caller).await,
            Self::Read(args) => args.run(caller).await,
            Self::Search(args) => args.run(caller).await,
            Self::Commands(args) => args.run(caller).await,
            Self::Cursor(args) => one_request::run(&args, caller).await,
            Self::Tail(args) => args.run(caller).await,
            Self::WaitFor(args) => args.run(caller).await,
            Self::Result(args) => args.run(caller).await,
            Self::Run(args) => args.run(caller).await,
            Self::Record(args) => args.run(caller).await,
            Self::Events(args) => args.run(caller).await,
            Self::When(args) => args.run(caller).await,
            Self::Agents(args) => args.run(caller).await,
            Self::ReportAgent(args) => args.run(caller).await,
            Self::StatusLine(args) => args.run(caller).await,
            Self::AgentSession(args) => args.run(caller).await,
            Self::Snapshot(args) => args.run(caller).await,
            Self::Layout(args) => args.run(caller).await,
            Self::Group(args) => args.run(caller).await,
            Self::Hosts(args) => args.run(caller).await,
            #[cfg(feature = "fleet")]
            Self::Fleet(args) => args.run(caller).await,
            Self::Workspace(args) => args.run(caller).await,
            Self::Approvals(args) => args.run(caller).await,
            Self::Mcp(args) => args.run(caller).await,
            Self::Stdio(args) => args.run(caller).await,
            Self::Capability(args) => args.run(caller).await,
            Self::Completions(args) => args.run(tree()),
            Self::ShellIntegration(args) => args.run(),
            #[cfg(feature = "bridge")]
            Self::Bridge(_) => Err(not_here()),
            Self::Serve(_) | Self::Doctor(_) => Err(not_here()),
        }
    }
}

/// Returns the error for commands that `cli::with_engine` handles earlier.
fn not_here() -> Failure {
    Error::internal("this command needs muxtapd").into()
}

/// A parsed command line.
#[derive(Debug)]
pub(super) struct Invocation {
    /// The command's name, without an alias.
    pub(super) name: String,
    pub(super) json: bool,
    pub(super) via: Option<String>,
    pub(super) no_peer: bool,
    pub(super) server: ServerChoice,
    pub(super) command: Command,
}

/// The groups of commands in `--help`, each in the order of use: titles and the commands' names.
/// Commands of features that are off are skipped.
const GROUPS: [(&str, &[&str]); 9] = [
    ("Watch and wait", &["wait-for", "result", "tail", "top", "open", "events", "when"]),
    ("Read and capture", &["capture-pane", "read", "search", "commands", "cursor", "display-message"]),
    ("Type and run", &["send-keys", "run", "group"]),
    (
        "Sessions, windows, panes",
        &[
            "new-session",
            "attach-session",
            "list-panes",
            "list-sessions",
            "list-windows",
            "new-window",
            "split-window",
            "kill-pane",
            "kill-window",
            "kill-session",
            "has-session",
            "respawn-pane",
            "rename-session",
            "rename-window",
            "resize-pane",
            "resize-window",
            "select-window",
            "select-pane",
            "select-layout",
            "copy-mode",
            "label",
        ],
    ),
    ("Agents", &["agents", "report-agent", "status-line", "agent-session", "approvals", "mcp", "capability"]),
    ("Record and restore", &["record", "snapshot", "layout"]),
    ("Hosts", &["hosts", "fleet", "workspace", "stdio", "bridge"]),
    ("Daemon", &["status", "doctor", "stop", "upgrade", "serve", "config", "token", "audit-check"]),
    ("Demo and setup", &["demo", "completions", "shell-integration"]),
];

/// Returns the template of `muxtap --help`: clap's own, with the commands in [`GROUPS`], which clap
/// cannot do. Names, aliases and summaries are the tree's own.
fn help_template(tree: &clap::Command) -> StyledStr {
    let styles = tree.get_styles();
    let (header, literal) = (styles.get_header(), styles.get_literal());
    let names = |command: &clap::Command| {
        let names = std::iter::once(command.get_name()).chain(command.get_visible_aliases());
        names.collect::<Vec<_>>().join(", ")
    };
    let width = tree.get_subcommands().map(|command| names(command).len()).max().unwrap_or_default();
    let mut text = "{before-help}{about-with-newline}\n{usage-heading} {usage}\n".to_owned();
    for (title, commands) in GROUPS {
        let _ = writeln!(text, "\n{header}{title}:{header:#}");
        for command in commands.iter().filter_map(|name| tree.find_subcommand(name)) {
            let about = command.get_about().map(ToString::to_string).unwrap_or_default();
            let _ = writeln!(text, "  {literal}{:width$}{literal:#}  {about}", names(command));
        }
    }
    let _ = write!(
        text,
        "\n{literal}muxtap COMMAND --help{literal:#} explains a command.\n\n\
         {header}Options:{header:#}\n{{options}}{{after-help}}"
    );
    text.into()
}

/// Builds the whole tree, as help, completions and the documentation's tests see it. `-L` and `-S`
/// are not global arguments of clap: in `capture-pane` `-S` is the first line and in `select-pane`
/// `-L` means left, as in tmux, and clap allows no exceptions from global arguments. Each command
/// gets its own, with the letters that are free. Targets may be negative numbers.
pub fn tree() -> clap::Command {
    let tree = Cli::command().mut_subcommands(with_server);
    let template = help_template(&tree);
    tree.help_template(template)
}

fn with_server(command: clap::Command) -> clap::Command {
    // `-t -1` is the previous one. A number's error is about the number: else `-5` would be an unknown
    // flag.
    let numbers = [TypeId::of::<u64>(), TypeId::of::<u32>(), TypeId::of::<u16>(), TypeId::of::<u8>()];
    let is_number = |arg: &Arg| numbers.iter().any(|number| arg.get_value_parser().type_id() == *number);
    let takes_number = |arg: &Arg| {
        arg.get_action().takes_values()
            && !arg.is_allow_hyphen_values_set()
            && (arg.get_short() == Some('t') || is_number(arg))
    };
    let command = command.mut_args(|arg| if takes_number(&arg) { arg.allow_negative_numbers(true) } else { arg });
    let global = |id: &'static str, value: &'static str, help: &'static str| {
        let arg = Arg::new(id).value_name(value).value_parser(clap::value_parser!(OsString));
        arg.help(help).help_heading("Global options")
    };
    let path =
        global(SUBCOMMAND_PATH, "PATH", "Use the tmux server with this socket, as `tmux -S`").long("socket-path");
    let name = global(SUBCOMMAND_NAME, "NAME", "Use the tmux server with this name, as `tmux -L`");
    let is_taken = |letter| command.get_arguments().any(|arg| arg.get_short() == Some(letter));
    let (path_taken, name_taken) = (is_taken('S'), is_taken('L'));
    let command = command.arg(if path_taken { path } else { path.short('S') });
    let command = if name_taken { command } else { command.arg(name.short('L')) };
    command.mut_subcommands(with_server)
}

/// The ids of the server's socket among each command's arguments.
pub(super) const SUBCOMMAND_PATH: &str = "subcommand_socket_path";
pub(super) const SUBCOMMAND_NAME: &str = "subcommand_socket_name";

/// Parses a command line, which includes the program's name.
pub(super) fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Invocation, clap::Error> {
    let args: Vec<_> = args.into_iter().collect();
    let args = under_its_name(args);
    let parsed = parse_as_written(&args)?;
    // clap would look for --via only where --no-peer is, before or after the command.
    if parsed.no_peer && parsed.via.is_none() {
        let message = "--no-peer requires --via COMMAND\n\nFor more information, try '--help'.\n";
        return Err(clap::Error::raw(ErrorKind::MissingRequiredArgument, message).with_cmd(&tree()));
    }
    if let Command::Run(run) = &parsed.command
        && let Some(option) = own_option_behind(&args, &run.command)
    {
        let message = format!(
            "{option} comes after the command: options of `run` come before it (`muxtap run {option} … COMMAND`); \
             after `--`, all words are the command's\n\nFor more information, try '--help'.\n"
        );
        return Err(clap::Error::raw(ErrorKind::ArgumentConflict, message).with_cmd(&tree()));
    }
    Ok(parsed)
}

/// Inserts `workspace` if the program is called `freshell`. Not for `serve`: the daemon is started
/// by the program's file, whatever its name.
fn under_its_name(mut args: Vec<OsString>) -> Vec<OsString> {
    if is_freshell(args.first().map(OsString::as_os_str)) && args.get(1).is_none_or(|word| word != "serve") {
        args.insert(1, "workspace".into());
    }
    args
}

/// Returns an option of `run` among the words after a whole shell command line (`run 'make test' -T
/// 10m`): `make test -T 10m` cannot be meant.
fn own_option_behind<'a>(args: &[OsString], command: &'a [String]) -> Option<&'a str> {
    let (line, words) = command.split_first()?;
    let first = args.len().checked_sub(command.len())?;
    let is_assigned = first.checked_sub(1).and_then(|before| args.get(before)).is_some_and(|before| before == "--");
    if is_assigned || !line.contains(char::is_whitespace) {
        return None;
    }
    let is_own = |word: &&str| matches!(*word, "-t" | "-T" | "--timeout" | "--clear-line" | "--json");
    words.iter().map(String::as_str).find(is_own)
}

fn parse_as_written(args: &[OsString]) -> Result<Invocation, clap::Error> {
    if let Some(invocation) = parse_by_own_tree(args) {
        return Ok(invocation);
    }
    let mut tree = tree();
    let matches = tree.try_get_matches_from_mut(args).map_err(|mut error| {
        if let Some(tip) = tip_for_stray_word(&error, args, &tree) {
            error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
        }
        with_plain_number(error, &tree)
    })?;
    let Cli { common, command } = Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut tree))?;
    Ok(invocation(&matches, common, command))
}

/// Returns how a word that a command does not take could be meant: a target without `-t` (`read work`),
/// or a number of lines for `read`.
fn tip_for_stray_word(error: &clap::Error, args: &[OsString], tree: &clap::Command) -> Option<String> {
    if error.kind() != ErrorKind::UnknownArgument || error.get(ContextKind::Suggested).is_some() {
        return None;
    }
    let Some(ContextValue::String(stray)) = error.get(ContextKind::InvalidArg) else { return None };
    let words = || args.iter().filter_map(|word| word.to_str());
    let command = words()
        .skip(1)
        .take_while(|word| word != stray)
        .fold(tree, |command, word| command.find_subcommand(word).unwrap_or(command));
    if stray == "-n" && command.get_name() == "read" {
        let count = words().skip_while(|word| *word != "-n").nth(1).and_then(|count| count.parse::<u32>().ok());
        let count = count.unwrap_or(5);
        return Some(format!(
            "`--since lines:{count}` prints the last {count} lines, and so does `muxtap tail -n {count}`"
        ));
    }
    if stray.starts_with('-') {
        return None;
    }
    let takes_target = command.get_arguments().any(|arg| arg.get_short() == Some('t'));
    let has_target = words().any(|word| word.starts_with("-t") || word == "--target" || word.starts_with("--target="));
    (takes_target && !has_target)
        .then(|| format!("a target follows -t: `-t {}`", muxtap_base::quoting::shell_word(stray)))
}

/// Returns the error about a value that is no number in words for people; the standard library's are
/// "invalid digit found in string".
fn with_plain_number(error: clap::Error, tree: &clap::Command) -> clap::Error {
    let source = std::error::Error::source(&error).and_then(|source| source.downcast_ref::<ParseIntError>());
    let expected = match source.map(ParseIntError::kind) {
        None => return error,
        Some(IntErrorKind::PosOverflow) => "the number is too large",
        Some(_) => "expected a whole number, 0 or more",
    };
    let given = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => text.as_str(),
        _ => "",
    };
    let (value, arg) = (given(ContextKind::InvalidValue), given(ContextKind::InvalidArg));
    let message = format!("invalid value '{value}' for '{arg}': {expected}\n\nFor more information, try '--help'.\n");
    clap::Error::raw(ErrorKind::ValueValidation, message).with_cmd(tree)
}

fn invocation(matches: &ArgMatches, common: Common, command: Command) -> Invocation {
    let given = |id: &str| {
        // The innermost subcommand with this argument: `snapshot -L a save -L b`.
        let words = std::iter::successors(matches.subcommand(), |(_, matches)| matches.subcommand());
        words.filter_map(|(_, matches)| matches.try_get_one::<OsString>(id).ok().flatten().cloned()).last()
    };
    let path = given(SUBCOMMAND_PATH).or(common.socket_path);
    let server = ServerChoice { path, name: given(SUBCOMMAND_NAME).or(common.socket_name) };
    let name = matches.subcommand_name().unwrap_or_default().to_owned();
    Invocation { name, json: common.json, via: common.via, no_peer: common.no_peer, server, command }
}

/// Parses commands that scripts call often, each with its own small tree: building the whole tree
/// takes longer than a request. `None`: another command, or an error that the whole tree must
/// report.
fn parse_by_own_tree(args: &[OsString]) -> Option<Invocation> {
    fn own<T: clap::Args>(args: &[OsString], name: &'static str, command: fn(T) -> Command) -> Option<Invocation> {
        let own = with_server(T::augment_args(clap::Command::new(name)));
        let tree = Common::augment_args(clap::Command::new("muxtap")).subcommand_required(true).subcommand(own);
        let matches = tree.disable_help_subcommand(true).try_get_matches_from(args).ok()?;
        let common = Common::from_arg_matches(&matches).ok()?;
        let own = T::from_arg_matches(matches.subcommand_matches(name)?).ok()?;
        Some(invocation(&matches, common, command(own)))
    }
    let mut words = args.iter().skip(1).map(|word| word.to_str());
    loop {
        return match words.next()?? {
            "-S" | "-L" | "--via" => {
                words.next()?;
                continue;
            }
            "--json" | "--no-peer" => continue,
            "capture-pane" => own(args, "capture-pane", Command::CapturePane),
            "send-keys" => own(args, "send-keys", Command::SendKeys),
            "read" => own(args, "read", Command::Read),
            "wait-for" => own(args, "wait-for", |args| Command::WaitFor(Box::new(args))),
            "run" => own(args, "run", Command::Run),
            "list-panes" => own(args, "list-panes", Command::ListPanes),
            _ => None,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Invocation {
        parse(line.split(' ').map(OsString::from)).unwrap_or_else(|error| panic!("{line}: {error}"))
    }

    #[test]
    fn the_tree_is_sound() {
        tree().debug_assert();
    }

    #[test]
    fn every_command_and_flag_says_what_it_is() {
        for command in tree().get_subcommands() {
            assert!(command.get_about().is_some(), "{}", command.get_name());
            assert!(command.get_after_long_help().is_some(), "{} shows no example", command.get_name());
            for arg in command.get_arguments() {
                assert!(arg.get_help().is_some(), "{} {}", command.get_name(), arg.get_id());
            }
        }
    }

    #[test]
    fn every_visible_command_is_in_one_group() {
        let tree = tree();
        let mut grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, commands)| commands.iter().copied()).collect();
        // The names of features that are off.
        let off = |name: &str| matches!(name, "top" | "bridge") && tree.find_subcommand(name).is_none();
        grouped.retain(|name| !off(name));
        grouped.sort_unstable();
        let visible = tree.get_subcommands().filter(|command| !command.is_hide_set());
        let mut visible: Vec<&str> = visible.map(clap::Command::get_name).collect();
        visible.sort_unstable();
        assert_eq!(grouped, visible);
    }

    #[test]
    fn help_lists_groups_in_lines_that_fit_a_terminal() {
        let short = tree().render_help().to_string();
        let long = tree().render_long_help().to_string();
        for text in [&short, &long] {
            let titles = text.lines().filter_map(|line| line.strip_suffix(':')).filter(|line| !line.starts_with(' '));
            let groups = GROUPS.iter().map(|(title, _)| *title).chain(["Options"]);
            let titles: Vec<_> = titles.filter(|title| *title != "Examples").collect();
            assert_eq!(titles, groups.collect::<Vec<_>>(), "{text}");
            // The template's own text is not wrapped.
            let list = text.lines().skip_while(|line| !line.starts_with(GROUPS[0].0));
            for line in list.take_while(|line| *line != "Options:") {
                assert!(line.len() <= 80, "{line}");
            }
        }
        assert!(short.contains("  list-panes, lsp  "), "{short}");
    }

    /// The contents of `docs/cli.md` have the groups of `--help`.
    #[test]
    fn the_documentation_has_the_groups_of_help() {
        let page = include_str!("../../../../docs/cli.md");
        let contents = page.split("\n- **").skip(1).take(GROUPS.len());
        let mut found = Vec::new();
        for group in contents {
            let group = group.split("\n\n").next().unwrap();
            let (title, commands) = group.split_once("**:").unwrap();
            let commands = commands.split("[`").skip(1).map(|command| command.split('`').next().unwrap());
            found.push((title, commands.collect::<Vec<_>>()));
        }
        assert_eq!(found, GROUPS.map(|(title, commands)| (title, commands.to_vec())));
    }

    /// `docs/cli.md` is the reference that people read: a section for each command, and in it each
    /// of its flags.
    #[test]
    fn the_documentation_has_every_command_and_flag_and_no_other() {
        let page = include_str!("../../../../docs/cli.md");
        let mut sections: Vec<(&str, String)> = Vec::new();
        for section in page.split("\n### `").skip(1) {
            let (name, body) = section.split_once('`').unwrap();
            // Where the page breaks its lines means nothing.
            sections.push((name, body.split_whitespace().collect::<Vec<_>>().join(" ")));
        }
        let documented: Vec<&str> = sections.iter().map(|(name, _)| *name).collect();
        let tree = tree();
        let commands: Vec<&str> = tree.get_subcommands().map(clap::Command::get_name).collect();
        assert_eq!(documented, commands, "docs/cli.md lists the commands in the order of --help");
        for (command, (name, body)) in tree.get_subcommands().zip(&sections) {
            for arg in command.get_arguments().filter(|arg| {
                !arg.is_hide_set() && ![SUBCOMMAND_PATH, SUBCOMMAND_NAME].contains(&arg.get_id().as_str())
            }) {
                let short = arg.get_short().map(|short| format!("`-{short}"));
                let long = arg.get_long().map(|long| format!("`--{long}"));
                for flag in short.into_iter().chain(long) {
                    let stands = |mark: &str| body.contains(&format!("{flag}{mark}"));
                    assert!(stands("`") || stands(" "), "{name}: {flag}` is not in docs/cli.md");
                }
            }
            for alias in command.get_visible_aliases() {
                assert!(body.contains(&format!("`{alias}`")), "{name}: the alias {alias} is not in docs/cli.md");
            }
        }
    }

    #[test]
    fn global_options_stand_before_or_after_the_command() {
        for line in ["muxtap --json -S /x list-panes", "muxtap list-panes -S /x --json"] {
            let invocation = parsed(line);
            assert!(invocation.json, "{line}");
            assert_eq!(invocation.server.path, Some(OsString::from("/x")), "{line}");
        }
        for line in ["muxtap -L other ls", "muxtap ls -L other"] {
            assert_eq!(parsed(line).server.name, Some(OsString::from("other")), "{line}");
        }
    }

    #[test]
    fn in_capture_pane_s_is_the_first_line_as_in_tmux() {
        let invocation = parsed("muxtap -S /x capture-pane -p -t %1 -S -10 -E -");
        assert_eq!(invocation.server.path, Some(OsString::from("/x")));
        let Command::CapturePane(args) = invocation.command else { panic!("not a capture") };
        assert_eq!((args.start.as_deref(), args.end.as_deref()), (Some("-10"), Some("-")));
        let invocation = parsed("muxtap capture-pane --socket-path /y -t %1");
        assert_eq!(invocation.server.path, Some(OsString::from("/y")));
    }

    /// A command parsed by its own tree means the same as by the whole tree.
    #[test]
    fn the_commands_with_a_tree_of_their_own_mean_the_same() {
        for line in [
            "muxtap -S /x capture-pane -p -t %1 -S -10 -E - -J",
            "muxtap --json -L n capture-pane --socket-path /y -t %1 -L m",
            "muxtap send-keys -t %1 -S /x --json C-c -x",
            "muxtap read -t %1 --since start --format raw -S /x",
            "muxtap wait-for -t %1 -t %2 --all -p x --fail y -T 5 --json",
            "muxtap run -t %1 -T 5 -- ls -l",
            "muxtap list-panes -L n",
        ] {
            let args: Vec<_> = line.split(' ').map(OsString::from).collect();
            let own = parse_by_own_tree(&args).unwrap_or_else(|| panic!("{line}"));
            let matches = tree().try_get_matches_from(args).unwrap();
            let Cli { common, command } = Cli::from_arg_matches(&matches).unwrap();
            assert_eq!(format!("{own:?}"), format!("{:?}", invocation(&matches, common, command)), "{line}");
        }
        for line in ["muxtap capture-pane --nope", "muxtap wait-for --help", "muxtap --version", "muxtap status"] {
            let args: Vec<_> = line.split(' ').map(OsString::from).collect();
            assert!(parse_by_own_tree(&args).is_none(), "{line}");
        }
    }

    #[test]
    fn a_word_that_is_not_taken_is_answered_with_how_it_may_be_meant() {
        for (line, tip) in [
            ("muxtap kill-session work", "`-t work`"),
            ("muxtap select-window work:1", "`-t work:1`"),
            ("muxtap read -n 3", "`--since lines:3` prints the last 3 lines"),
            ("muxtap read -n", "--since lines:5"),
        ] {
            let error = parse(line.split(' ').map(OsString::from)).unwrap_err().to_string();
            let said = error.lines().find(|line| line.contains("tip: "));
            assert!(said.is_some_and(|said| said.contains(tip)), "{line}: {error}");
        }
        for target in ["-t work", "--target work", "--target=work"] {
            let line = format!("muxtap capture-pane {target} more");
            let error = parse(line.split(' ').map(OsString::from)).unwrap_err().to_string();
            assert!(!error.contains("a target follows"), "{error}");
        }
    }

    #[test]
    fn in_split_window_h_is_the_direction_as_in_tmux() {
        let Command::SplitWindow(args) = parsed("muxtap splitw -h -l 30% -t %1 top -d 1").command else {
            panic!("not a split")
        };
        assert!(args.horizontal);
        assert_eq!(args.spawn.command, ["top", "-d", "1"]);
        let error = parse(["muxtap", "split-window", "--help"].map(OsString::from)).unwrap_err();
        assert_eq!(error.kind(), clap::error::ErrorKind::DisplayHelp);
    }

    #[test]
    fn what_follows_a_command_or_keys_is_theirs() {
        let Command::NewSession(args) = parsed("muxtap new -s a vim -u NONE --json").command else {
            panic!("not a session")
        };
        assert_eq!(args.spawn.command, ["vim", "-u", "NONE", "--json"]);
        let Command::SendKeys(args) = parsed("muxtap send-keys -t %1 C-c -x --json").command else {
            panic!("not an input")
        };
        assert_eq!(args.keys, ["C-c", "-x", "--json"]);
    }

    #[test]
    fn options_of_run_come_before_the_command() {
        let run = |words: &[&str]| {
            parse(["muxtap", "run"].iter().chain(words).map(OsString::from)).map(|invocation| {
                match invocation.command {
                    Command::Run(run) => run.command,
                    _ => panic!("{words:?}"),
                }
            })
        };
        for words in [&["-t", "%0", "make test", "-T", "10m"][..], &["make test", "--json", "-t", "%0"]] {
            let error = run(words).unwrap_err().to_string();
            assert!(error.contains("come before it"), "{error}");
        }
        // A command's own words are its own.
        for (words, command) in [
            (&["-t", "%0", "ls", "-T", "5"][..], &["ls", "-T", "5"][..]),
            (&["-t", "%0", "make test", "--verbose"], &["make test", "--verbose"]),
            (&["-t", "%0", "--", "make test", "-T", "5"], &["make test", "-T", "5"]),
        ] {
            assert_eq!(run(words).unwrap(), command);
        }
    }

    /// Every flag with a number, a time or a size says what it expects.
    #[test]
    fn a_value_that_is_no_number_is_refused_in_plain_words() {
        fn check(words: &[&str], command: &clap::Command, seen: &mut usize) {
            for inner in command.get_subcommands() {
                check(&[words, &[inner.get_name()]].concat(), inner, seen);
            }
            for arg in command.get_arguments().filter(|arg| arg.get_action().takes_values()) {
                let flag = match (arg.get_long(), arg.get_short()) {
                    (Some(long), _) => format!("--{long}"),
                    (None, Some(short)) => format!("-{short}"),
                    (None, None) => continue,
                };
                for value in ["abc", "-5", "99999999999999999999999"] {
                    let line = words.iter().copied().chain([flag.as_str(), value]).map(OsString::from);
                    let Err(error) = parse(line) else { continue };
                    let text = error.to_string();
                    assert!(!text.contains("digit") && !text.contains("target type"), "{words:?} {flag}: {text}");
                    if error.kind() == ErrorKind::ValueValidation {
                        *seen += 1;
                        assert!(text.contains(&format!("'{value}' for '{flag}")), "{words:?}: {text}");
                        let says = ["expected", "is not in", "must be between", "too large", "unknown unit", "not a "];
                        assert!(says.iter().any(|says| text.contains(says)), "{words:?}: {text}");
                    }
                }
            }
        }
        let mut seen = 0;
        check(&["muxtap"], &tree(), &mut seen);
        assert!(seen > 60, "{seen}");
        let error = parse(["muxtap", "tail", "-n", "-5", "x"].map(OsString::from)).unwrap_err().to_string();
        assert!(
            error.starts_with("error: invalid value '-5' for '--lines <LINES>': expected a whole number"),
            "{error}"
        );
    }

    #[test]
    fn a_wrong_flag_is_a_usage_error() {
        for line in ["muxtap list-panes --nope", "muxtap wait-for -p x", "muxtap run -t %1", "muxtap", "muxtap nope"] {
            assert!(parse(line.split(' ').map(OsString::from)).is_err(), "{line}");
        }
    }
}
