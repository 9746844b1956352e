//! `list-sessions`, `list-windows`, `list-panes`.

use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args;
use muxtap_engine::is_number;

use super::{
    Caller, Outcome,
    events::join_targets,
    label::{term, with_labels},
    listed,
    output::{self, Table, place, short_duration},
    path_named,
};

use crate::{
    api::{
        DoneAnswer, Error, EventsRequest, FormatAnswer, FormatListQuery, FormatQuery, HostInfo, ListAllQuery, Listed,
        PaneInfo, PaneList, SessionInfo, SessionList, Size, WindowList,
    },
    cli::{
        one_request::{self, Ask, OneRequest},
        quick::Words,
        url,
        watch::{Source, View, watch},
    },
};

/// List sessions
///
/// Lists all sessions of the tmux server except muxtap's own.
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  muxtap list-sessions
  muxtap ls --json | jq -r '.sessions[].name'
  muxtap ls -F '#{session_name}'
  muxtap ls --watch                              keep updating, until Ctrl-C")]
pub(in crate::cli) struct ListSessions {
    /// Print a tmux format for each session instead of the table
    #[arg(short = 'F', value_name = "FORMAT")]
    format: Option<String>,
    /// List only the session with this name, which may contain `*`, or this id, `$0`
    #[arg(short = 't', value_name = "SESSION")]
    target: Option<String>,
    /// Keep updating the list
    #[arg(short, long)]
    watch: bool,
}

/// Test whether a session exists, by exit status
///
/// Exit status: 0 the session exists; 1 it does not, with a line on stderr.
#[derive(Debug, Args)]
#[command(after_long_help = "Example:
  muxtap has-session -t work || muxtap new-session -s work")]
pub(in crate::cli) struct HasSession {
    /// The session (default: the caller's)
    #[arg(short = 't', value_name = "SESSION")]
    target: Option<String>,
}

/// Print tmux's expansion of a format
///
/// A format can run a program, `#(date)`, so the command needs the tier `input`.
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  muxtap display-message -p '#{session_name}:#{window_name}'
  muxtap display-message -p -t %3 '#{pane_current_path}'")]
pub(in crate::cli) struct DisplayMessage {
    /// The pane (default: the caller's)
    #[arg(short = 't', value_name = "PANE")]
    target: Option<String>,
    /// Print to stdout; required, as muxtap writes to no status line
    #[arg(short = 'p', required = true)]
    print: bool,
    /// The format, see FORMATS in tmux's manual page
    #[arg(value_name = "FORMAT", default_value = PLACE_AND_PROGRAM)]
    format: String,
}

/// The default format of `display-message`: tmux's, as far as muxtap's callers have its values.
const PLACE_AND_PROGRAM: &str = "[#{session_name}] #{window_index}:#{window_name}, current pane #{pane_index}";

/// List windows
///
/// Lists the windows of all sessions; a window linked into several sessions once for each.
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  muxtap list-windows
  muxtap list-windows -t work --json
  muxtap list-windows -F '#{window_name} #{window_layout}'
  muxtap list-windows --watch --json             a line for each change")]
pub(in crate::cli) struct ListWindows {
    /// Print a tmux format for each window instead of the table
    #[arg(short = 'F', value_name = "FORMAT")]
    format: Option<String>,
    /// List only windows of this session: a name, which may contain `*`, or `$0`
    #[arg(short = 't', value_name = "SESSION")]
    target: Option<String>,
    /// List windows of all sessions; the default
    #[arg(short = 'a', conflicts_with = "target")]
    all: bool,
    /// Keep updating the list
    #[arg(short, long)]
    watch: bool,
}

/// List panes
///
/// Lists the panes of all sessions, each once. Panes whose process ended in the last ten minutes
/// come last and can still be read.
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  muxtap list-panes
  muxtap list-panes -t 'work:*'
  muxtap list-panes -F '#{pane_id} #{pane_current_command}'
  muxtap list-panes --json | jq -r '.panes[] | select(.dead) | .id'
  muxtap list-panes --watch                      keep updating, until Ctrl-C")]
pub(in crate::cli) struct ListPanes {
    /// Print a tmux format for each pane that has not ended instead of the table
    #[arg(short = 'F', value_name = "FORMAT")]
    format: Option<String>,
    /// List only panes of this session, window or pane; names may contain `*`
    #[arg(short = 't', value_name = "TARGET")]
    target: Option<String>,
    /// Only panes with this label, KEY=VALUE or KEY!=VALUE, in whose value `*` stands for anything;
    /// repeatable, all must match
    #[arg(short = 'l', long = "label", value_name = "KEY=VALUE", conflicts_with = "target", value_parser = term)]
    labels: Vec<String>,
    /// List panes of all sessions; the default
    #[arg(short = 'a', conflicts_with = "target")]
    all: bool,
    /// Treat a bare number in -t as a session, as in tmux
    #[arg(short = 's')]
    session: bool,
    /// Keep updating the list
    #[arg(short, long)]
    watch: bool,
}

impl HasSession {
    /// Parses the words of a plain command line.
    pub(in crate::cli) fn plain(words: &mut Words) -> Self {
        Self { target: words.value('t') }
    }
}

impl OneRequest for HasSession {
    type Answer = SessionInfo;

    fn ask(&self, caller: &Caller) -> Result<Ask, Error> {
        Ok(Ask::get(path_named("sessions", &caller.target(self.target.clone())?)?))
    }

    fn print(&self, caller: &Caller, _: &SessionInfo) -> Outcome {
        if caller.json {
            output::print_json(&DoneAnswer { ok: true })?;
        }
        Ok(0)
    }
}

impl DisplayMessage {
    /// Parses the words of a plain command line. `None`: a required word is missing.
    pub(in crate::cli) fn plain(words: &mut Words) -> Option<Self> {
        let (target, print, mut rest) = (words.value('t'), words.has('p'), words.rest());
        let format = rest.pop().unwrap_or_else(|| PLACE_AND_PROGRAM.to_owned());
        (print && rest.is_empty()).then_some(Self { target, print, format })
    }
}

impl OneRequest for DisplayMessage {
    type Answer = FormatAnswer;

    fn ask(&self, caller: &Caller) -> Result<Ask, Error> {
        let path = format!("{}/format", path_named("panes", &caller.target(self.target.clone())?)?);
        Ok(Ask::get(url::with_query(&path, &format_query(&self.format))))
    }

    fn print(&self, caller: &Caller, answer: &FormatAnswer) -> Outcome {
        if caller.json {
            output::print_json(answer)?;
        } else {
            output::print(lines(answer))?;
        }
        Ok(0)
    }
}

/// Returns the query of a format for one pane.
pub(super) fn format_query(format: &str) -> FormatQuery {
    FormatQuery { format: format.to_owned() }
}

/// A format's expansions for the items of a list.
pub(in crate::cli) struct Formatted {
    query: FormatListQuery,
    targets: Vec<String>,
}

impl Formatted {
    fn new(each: Listed, format: &str, targets: &[String]) -> Result<Self, Error> {
        let query = FormatListQuery { each, format: format.to_owned(), targets: listed(targets)?.targets };
        Ok(Self { query, targets: targets.to_vec() })
    }
}

impl OneRequest for Formatted {
    type Answer = FormatAnswer;

    fn ask(&self, _: &Caller) -> Result<Ask, Error> {
        Ok(Ask::get(url::with_query("/v1/format", &self.query)))
    }

    fn print(&self, caller: &Caller, answer: &FormatAnswer) -> Outcome {
        self.view(answer)?.print(caller)
    }
}

impl Seen for Formatted {
    fn view(&self, answer: &FormatAnswer) -> Result<View, Error> {
        if let Some(error) = nothing_there(&self.targets, answer.lines.is_empty()) {
            return Err(error);
        }
        View::new(lines(answer), answer, answer)
    }
}

/// A list that can be watched.
trait Seen: OneRequest {
    /// Returns the list in all its forms.
    fn view(&self, answer: &Self::Answer) -> Result<View, Error>;
}

/// A command that lists.
pub(in crate::cli) trait List: OneRequest {
    /// Returns the list expanded by a format. `None`: the command has no format.
    fn formatted(&self) -> Option<Result<Formatted, Error>>;
}

/// Requests a list.
async fn look<C: List + Seen>(command: &C, caller: &Caller) -> Result<View, Error> {
    match command.formatted() {
        Some(formatted) => {
            let formatted = formatted?;
            formatted.view(&one_request::answer(&formatted, caller).await?)
        }
        None => command.view(&one_request::answer(command, caller).await?),
    }
}

/// Returns each line with its line end; an empty list has no lines.
fn lines(answer: &FormatAnswer) -> String {
    answer.lines.iter().flat_map(|line| [line, "\n"]).collect()
}

/// Prints a list, once, or whenever one of these kinds of events has changed it.
async fn print_or_watch(
    caller: &Caller,
    watched: Option<(&str, &[String])>,
    look: impl AsyncFn(&Caller) -> Result<View, Error>,
) -> Outcome {
    let Some((types, targets)) = watched else { return look(caller).await?.print(caller) };
    let request =
        EventsRequest { types: Some(types.to_owned()), panes: join_targets(targets)?, ..EventsRequest::default() };
    watch(caller, Source::Events(request), look).await
}

/// Returns an id in the form that can be used as a target.
pub(super) fn shown(host: Option<&str>, id: impl std::fmt::Display) -> String {
    host.map_or_else(|| id.to_string(), |host| format!("{host}/{id}"))
}

/// Returns the query of a list: of all hosts if neither a server nor a target is named.
fn listed_everywhere(caller: &Caller, targets: &[String]) -> Result<ListAllQuery, Error> {
    let everywhere = !caller.server_is_named && targets.is_empty();
    Ok(ListAllQuery { targets: join_targets(targets)?, everywhere })
}

/// Reports the hosts that are missing from a list.
pub(super) fn note_unreachable(hosts: &[HostInfo]) {
    for host in hosts {
        let error = host.error.as_deref().unwrap_or("cannot reach a host");
        let name = &host.name;
        // This host has no name.
        let stays = host.configured || name.is_empty();
        let way_out = if stays { String::new() } else { format!("; `muxtap hosts forget {name}` removes it") };
        output::note(&format!("{error}{way_out}"));
    }
}

/// Returns the error for a target without a match. `None`: the list is not empty, or no target was
/// given.
fn nothing_there(target: &[String], is_empty: bool) -> Option<Error> {
    let target = target.first().filter(|_| is_empty)?;
    Some(Error::not_found(format!("nothing matches `{target}`; `muxtap list-panes` shows what is there")))
}

impl ListSessions {
    /// Returns whether the command prints until it is stopped.
    pub(in crate::cli) fn goes_on(&self) -> bool {
        self.watch
    }

    pub(in crate::cli) async fn run(self, caller: &Caller) -> Outcome {
        let watched = self.watch.then_some(("topology,server", [].as_slice()));
        print_or_watch(caller, watched, async |caller: &Caller| look(&self, caller).await).await
    }

    /// Parses the words of a plain command line.
    pub(in crate::cli) fn plain(words: &mut Words) -> Self {
        Self { format: words.value('F'), target: words.value('t'), watch: false }
    }

    /// Returns the target. A number is a session: only sessions are valid.
    fn targets(&self) -> Vec<String> {
        self.target.iter().map(|target| session_target(target)).collect()
    }
}

/// Returns a target that must be a session: a number means a session.
fn session_target(target: &str) -> String {
    if is_number(target) { format!("{target}:") } else { target.to_owned() }
}

impl List for ListSessions {
    fn formatted(&self) -> Option<Result<Formatted, Error>> {
        self.format.as_ref().map(|format| Formatted::new(Listed::Sessions, format, &self.targets()))
    }
}

impl OneRequest for ListSessions {
    type Answer = SessionList;

    fn ask(&self, caller: &Caller) -> Result<Ask, Error> {
        let targets = self.targets();
        Ok(Ask::get(url::with_query("/v1/sessions", &listed_everywhere(caller, &targets)?)))
    }

    fn print(&self, caller: &Caller, list: &SessionList) -> Outcome {
        self.view(list)?.print(caller)
    }
}

impl Seen for ListSessions {
    fn view(&self, list: &SessionList) -> Result<View, Error> {
        note_unreachable(&list.unreachable);
        if let Some(error) = nothing_there(&self.targets(), list.sessions.is_empty()) {
            return Err(error);
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
        let has_labels = list.sessions.iter().any(|session| !session.labels.is_empty());
        let mut head = vec!["ID", "NAME", "WINDOWS", "ATTACHED", "AGE", "IDLE"];
        head.extend(has_labels.then_some("LABELS"));
        let mut table = Table::new(&head);
        for session in &list.sessions {
            let mut row = vec![
                shown(session.host.as_deref(), &session.id),
                session.name.clone(),
                session.windows.to_string(),
                session.attached.to_string(),
                short_duration(now.saturating_sub(session.created)),
                short_duration(now.saturating_sub(session.activity)),
            ];
            row.extend(has_labels.then(|| session.labels.to_string()));
            table.row(&row);
        }
        let mut key = list.clone();
        key.sessions.iter_mut().for_each(|session| session.activity = 0);
        View::new(table.render(), list, &key)
    }
}

impl ListWindows {
    /// Returns whether the command prints until it is stopped.
    pub(in crate::cli) fn goes_on(&self) -> bool {
        self.watch
    }

    pub(in crate::cli) async fn run(self, caller: &Caller) -> Outcome {
        let watched = self.watch.then_some(("topology,server", [].as_slice()));
        print_or_watch(caller, watched, async |caller: &Caller| look(&self, caller).await).await
    }

    /// Parses the words of a plain command line. `None`: they contradict each other.
    pub(in crate::cli) fn plain(words: &mut Words) -> Option<Self> {
        let (format, target, all) = (words.value('F'), words.value('t'), words.has('a'));
        (!all || target.is_none()).then_some(Self { format, target, all, watch: false })
    }

    /// Returns the target. A number is a session: only sessions are valid.
    fn targets(&self) -> Vec<String> {
        self.target.iter().map(|target| session_target(target)).collect()
    }
}

impl List for ListWindows {
    fn formatted(&self) -> Option<Result<Formatted, Error>> {
        self.format.as_ref().map(|format| Formatted::new(Listed::Windows, format, &self.targets()))
    }
}

impl OneRequest for ListWindows {
    type Answer = WindowList;

    fn ask(&self, caller: &Caller) -> Result<Ask, Error> {
        let targets = self.targets();
        Ok(Ask::get(url::with_query("/v1/windows", &listed_everywhere(caller, &targets)?)))
    }

    fn print(&self, caller: &Caller, list: &WindowList) -> Outcome {
        self.view(list)?.print(caller)
    }
}

impl Seen for ListWindows {
    fn view(&self, list: &WindowList) -> Result<View, Error> {
        note_unreachable(&list.unreachable);
        if let Some(error) = nothing_there(&self.targets(), list.windows.is_empty()) {
            return Err(error);
        }
        let mut table = Table::new(&["ID", "WINDOW", "NAME", "PANES", "SIZE", "ACTIVE"]);
        for window in &list.windows {
            table.row(&[
                shown(window.host.as_deref(), &window.id),
                format!("{}:{}", window.session, window.index),
                window.name.clone(),
                window.panes.to_string(),
                size(window.size),
                mark(window.active),
            ]);
        }
        View::new(table.render(), list, list)
    }
}

/// The events that may change a list of panes. No event reports a pane's program and directory;
/// usually the pane shows something new then.
const PANE_EVENTS: &str = "topology,server,pane-opened,pane-exited,title,screen";

impl ListPanes {
    /// Returns whether the command prints until it is stopped.
    pub(in crate::cli) fn goes_on(&self) -> bool {
        self.watch
    }

    pub(in crate::cli) async fn run(self, caller: &Caller) -> Outcome {
        let targets = self.targets();
        let watched = self.watch.then_some((PANE_EVENTS, targets.as_slice()));
        print_or_watch(caller, watched, async |caller: &Caller| look(&self, caller).await).await
    }

    /// Parses the words of a plain command line. `None`: they contradict each other.
    pub(in crate::cli) fn plain(words: &mut Words) -> Option<Self> {
        let (format, target) = (words.value('F'), words.value('t'));
        let (all, session) = (words.has('a'), words.has('s'));
        (!all || target.is_none()).then_some(Self { format, target, labels: Vec::new(), all, session, watch: false })
    }

    /// Returns the target. With `-s` a number is a session.
    fn targets(&self) -> Vec<String> {
        let is_session = |target: &str| self.session && is_number(target);
        let whole = |target: &String| if is_session(target) { format!("{target}:") } else { target.clone() };
        with_labels(self.target.iter().map(whole).collect(), &self.labels)
    }
}

impl List for ListPanes {
    fn formatted(&self) -> Option<Result<Formatted, Error>> {
        self.format.as_ref().map(|format| Formatted::new(Listed::Panes, format, &self.targets()))
    }
}

impl OneRequest for ListPanes {
    type Answer = PaneList;

    fn ask(&self, caller: &Caller) -> Result<Ask, Error> {
        let targets = self.targets();
        Ok(Ask::get(url::with_query("/v1/panes", &listed_everywhere(caller, &targets)?)))
    }

    fn print(&self, caller: &Caller, list: &PaneList) -> Outcome {
        self.view(list)?.print(caller)
    }
}

impl Seen for ListPanes {
    fn view(&self, list: &PaneList) -> Result<View, Error> {
        note_unreachable(&list.unreachable);
        if let Some(error) = nothing_there(&self.targets(), list.panes.is_empty()) {
            return Err(error);
        }
        let mut head = vec!["ID", "PANE", "NAME", "COMMAND", "PID", "SIZE", "ACTIVE", "STATE", "PATH"];
        let has_labels = list.panes.iter().any(|pane| !pane.labels.is_empty());
        head.extend(has_labels.then_some("LABELS"));
        let mut table = Table::new(&head);
        for pane in &list.panes {
            let mut row = vec![
                shown(pane.host.as_deref(), pane.id),
                // An ended pane no longer has a place.
                if pane.window_id.is_empty() {
                    String::new()
                } else {
                    place(&pane.session, pane.window_index, pane.index)
                },
                output::name(pane, &list.panes),
                pane.command.clone(),
                pane.pid.to_string(),
                size(pane.size),
                mark(pane.active),
                state(pane),
                pane.path.clone(),
            ];
            row.extend(has_labels.then(|| pane.labels.to_string()));
            table.row(&row);
        }
        let mut key = list.clone();
        key.panes.iter_mut().for_each(|pane| pane.cursor = None);
        View::new(table.render(), list, &key)
    }
}

fn size(size: Size) -> String {
    format!("{}x{}", size.width, size.height)
}

fn mark(yes: bool) -> String {
    if yes { "*" } else { "" }.to_owned()
}

fn state(pane: &PaneInfo) -> String {
    if !pane.dead {
        return "running".to_owned();
    }
    let ended = output::ended(pane.exit_status, pane.exit_signal);
    if pane.earlier_server { format!("{ended}, on an earlier server") } else { ended }
}
