//! Finds the place of a command line's last word in the argument tree, and the valid words there.

use std::ffi::OsString;

use clap::{Arg, ArgAction, Command};
use muxtap_tmux::ServerChoice;

use super::{
    Candidate,
    targets::{Asked, Part},
};

use crate::{
    api::{EventKind, Tier},
    cli::args::{SUBCOMMAND_NAME, SUBCOMMAND_PATH},
};

/// The place of the completed word.
#[derive(Debug)]
pub(super) struct Place {
    /// The kinds of words that are valid there.
    pub(super) offer: Offer,
    /// The part of the word before the value: `--color=`, `-t`, `output,`.
    pub(super) before: String,
    /// The rest of the word.
    pub(super) value: String,
    /// The tmux server that the line has named so far.
    pub(super) server: ServerChoice,
    /// The device whose workspace the line has named so far.
    pub(super) device: Option<String>,
    /// Whether the program is called `freshell`, which is a different device from `muxtap workspace`.
    pub(super) freshell: bool,
}

/// A kind of word that is valid at a place.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Offer {
    /// These words.
    Words(Vec<Candidate>),
    /// Names from the daemon or from a directory of sockets.
    Asked(Asked),
    /// A file.
    Files,
    /// A directory.
    Dirs,
    /// A word of an embedded command line, whose first word is the line's word with this number
    /// (0: the program).
    Command(usize),
}

/// tmux's names of layouts.
const LAYOUTS: [&str; 5] = ["even-horizontal", "even-vertical", "main-horizontal", "main-vertical", "tiled"];
/// Commands that accept an ended pane.
const READ_ENDED: [&str; 5] = ["capture-pane", "read", "commands", "cursor", "tail"];

impl Place {
    /// Walks the built tree along the words before `current`.
    pub(super) fn find(tree: &Command, words: &[String], current: &str) -> Self {
        let mut walk = Walk::new(tree);
        let freshell = crate::cli::commands::workspace::is_freshell(words.first().map(std::ffi::OsStr::new));
        if let (true, Some(workspace)) = (freshell, tree.find_subcommand("workspace")) {
            (walk.command, walk.in_workspace) = (workspace, true);
        }
        for (index, word) in words.iter().enumerate().skip(1) {
            walk.take(index, word);
        }
        let (offer, before) = walk.offer(words.len(), current);
        let value = current.strip_prefix(before.as_str()).unwrap_or_default().to_owned();
        let server = ServerChoice { path: walk.path.map(expanded), name: walk.name.map(OsString::from) };
        Self { offer, before, value, server, device: walk.device, freshell }
    }
}

/// Replaces `~` with the home directory: the shell has not expanded it yet.
fn expanded(path: String) -> OsString {
    match (path.strip_prefix("~/"), std::env::var_os("HOME")) {
        (Some(rest), Some(mut home)) => {
            home.push("/");
            home.push(rest);
            home
        }
        _ => path.into(),
    }
}

/// The state of parsing a command line word by word.
struct Walk<'a> {
    command: &'a Command,
    /// The option whose values come next, and how many it already has.
    pending: Option<(&'a Arg, usize)>,
    /// Words that are not options.
    positionals: usize,
    /// Whether `--` was found, or an embedded command line has begun.
    no_options: bool,
    /// The first word of an embedded command line.
    inner: Option<usize>,
    path: Option<String>,
    name: Option<String>,
    /// Whether the command is about workspaces, and the device that it names.
    in_workspace: bool,
    device: Option<String>,
}

impl<'a> Walk<'a> {
    fn new(command: &'a Command) -> Self {
        Self {
            command,
            pending: None,
            positionals: 0,
            no_options: false,
            inner: None,
            path: None,
            name: None,
            in_workspace: false,
            device: None,
        }
    }

    fn take(&mut self, index: usize, word: &str) {
        if let Some((arg, count)) = self.pending
            && self.is_value(arg, count, word)
        {
            self.record(arg, word);
            let most = arg.get_num_args().map_or(1, |range| range.max_values());
            self.pending = (count + 1 < most).then_some((arg, count + 1));
            return;
        }
        self.pending = None;
        if self.no_options {
            self.positional(index);
        } else if word == "--" {
            self.no_options = true;
        } else if let Some(long) = word.strip_prefix("--") {
            let (name, value) = long.split_once('=').map_or((long, None), |(name, value)| (name, Some(value)));
            if let Some(arg) = self.long(name) {
                self.option(arg, value);
            }
        } else if let Some((arg, value)) = self.cluster(word) {
            self.option(arg, value);
        } else if word.starts_with('-') && word.len() > 1 && self.shorts(word) {
            // Flags without values.
        } else if let Some(command) = self.command.find_subcommand(word) {
            self.in_workspace |= command.get_name() == "workspace";
            self.command = command;
            self.positionals = 0;
        } else {
            self.positional(index);
        }
    }

    /// Whether a word is a value of an option that already has `count` values.
    fn is_value(&self, arg: &Arg, count: usize, word: &str) -> bool {
        let least = arg.get_num_args().map_or(1, |range| range.min_values());
        count < least || !word.starts_with('-') && !self.no_options
    }

    fn option(&mut self, arg: &'a Arg, value: Option<&str>) {
        match value {
            Some(value) => self.record(arg, value),
            None if takes_value(arg) => self.pending = Some((arg, 0)),
            None => {}
        }
    }

    fn record(&mut self, arg: &Arg, value: &str) {
        match arg.get_id().as_str() {
            SUBCOMMAND_PATH | "socket_path" => self.path = Some(value.to_owned()),
            SUBCOMMAND_NAME | "socket_name" => self.name = Some(value.to_owned()),
            "device" => self.device = Some(value.to_owned()),
            _ => {}
        }
    }

    fn positional(&mut self, index: usize) {
        if let Some(arg) = self.next_positional()
            && is_command(arg)
        {
            self.no_options = true;
            self.inner.get_or_insert(index);
        }
        self.positionals += 1;
    }

    /// Returns the argument for which a word that is not an option would be a value.
    fn next_positional(&self) -> Option<&'a Arg> {
        let last = || self.command.get_positionals().last().filter(|arg| has_many(arg));
        self.command.get_positionals().nth(self.positionals).or_else(last)
    }

    fn long(&self, name: &str) -> Option<&'a Arg> {
        let is_named = |arg: &&Arg| {
            arg.get_long() == Some(name) || arg.get_all_aliases().is_some_and(|aliases| aliases.contains(&name))
        };
        self.command.get_arguments().find(is_named)
    }

    fn short(&self, letter: char) -> Option<&'a Arg> {
        let is_named = |arg: &&Arg| {
            arg.get_short() == Some(letter)
                || arg.get_all_short_aliases().is_some_and(|aliases| aliases.contains(&letter))
        };
        self.command.get_arguments().find(is_named)
    }

    /// Returns the option with a value in a word of letters, and the value that follows it there.
    fn cluster<'w>(&self, word: &'w str) -> Option<(&'a Arg, Option<&'w str>)> {
        let letters = word.strip_prefix('-')?;
        for (at, letter) in letters.char_indices() {
            let arg = self.short(letter)?;
            if takes_value(arg) {
                let rest = letters.get(at + letter.len_utf8()..)?;
                return Some((arg, Some(rest).filter(|rest| !rest.is_empty())));
            }
        }
        None
    }

    /// Whether a word consists of flags' letters.
    fn shorts(&self, word: &str) -> bool {
        word.chars().skip(1).all(|letter| self.short(letter).is_some())
    }

    /// Returns the valid kinds for the word with this number, and its part before the value.
    fn offer(&self, index: usize, current: &str) -> (Offer, String) {
        if let Some((arg, count)) = self.pending
            && self.is_value(arg, count, current)
        {
            return self.values(arg, index, String::new(), current);
        }
        if !self.no_options && current.starts_with('-') {
            if let Some((name, value)) = current.strip_prefix("--").and_then(|long| long.split_once('='))
                && let Some(arg) = self.long(name)
            {
                return self.values(arg, index, format!("--{name}="), value);
            }
            if let Some((arg, Some(value))) = self.cluster(current) {
                let before = current.strip_suffix(value).unwrap_or_default();
                return self.values(arg, index, before.to_owned(), value);
            }
            return (Offer::Words(self.options()), String::new());
        }
        if self.command.has_subcommands() && self.positionals == 0 {
            return (Offer::Words(self.subcommands()), String::new());
        }
        match self.next_positional() {
            Some(arg) => self.values(arg, index, String::new(), current),
            None => (Offer::Words(Vec::new()), String::new()),
        }
    }

    /// Returns what an argument accepts. `before` is the word's part before `value`.
    fn values(&self, arg: &Arg, index: usize, before: String, value: &str) -> (Offer, String) {
        let possible = arg.get_possible_values();
        if !possible.is_empty() {
            let shown = possible.iter().filter(|value| !value.is_hide_set());
            let help =
                |value: &clap::builder::PossibleValue| value.get_help().map(ToString::to_string).unwrap_or_default();
            return (Offer::Words(shown.map(|value| Candidate::new(value.get_name(), help(value))).collect()), before);
        }
        let words = |words: &[&str]| Offer::Words(words.iter().map(|word| Candidate::new(*word, "")).collect());
        // Commas separate lists: the part before the last comma stays.
        let list = |all: &[&str]| {
            let earlier = value.rfind(',').and_then(|comma| value.get(..=comma)).unwrap_or_default();
            let left: Vec<&str> =
                all.iter().filter(|word| !earlier.split(',').any(|one| one == **word)).copied().collect();
            (words(&left), format!("{before}{earlier}"))
        };
        let reads_ended = READ_ENDED.contains(&self.command.get_name());
        let id = arg.get_id().as_str();
        let offer = match arg.get_value_names().and_then(|names| names.first()).map_or("", |name| name.as_str()) {
            "TAB" if self.in_workspace => Offer::Asked(Asked::Workspace(Part::Tabs)),
            "PANE" if self.in_workspace => Offer::Asked(Asked::Workspace(Part::Panes)),
            "TERMINAL" if self.in_workspace => Offer::Asked(Asked::Workspace(Part::Terminals)),
            "DEVICE" if self.in_workspace => Offer::Asked(Asked::Workspace(Part::Devices)),
            "SESSION" => Offer::Asked(Asked::Sessions),
            "WINDOW" => Offer::Asked(Asked::Windows),
            "PANE" | "TARGET" => Offer::Asked(Asked::Panes { ended: reads_ended }),
            "NAME" if matches!(id, SUBCOMMAND_NAME | "socket_name") => Offer::Asked(Asked::ServerNames),
            "ID" => Offer::Asked(Asked::Approvals),
            "FILE" | "PATH" => Offer::Files,
            "DIR" => Offer::Dirs,
            "COMMAND" if is_command(arg) => Offer::Command(self.inner.unwrap_or(index)),
            "LAYOUT" => words(&LAYOUTS),
            "TYPES" => return list(&EventKind::ALL.map(EventKind::as_str)),
            "TIERS" => return list(&Tier::ALL.map(Tier::as_str)),
            _ => Offer::Words(Vec::new()),
        };
        (offer, before)
    }

    fn options(&self) -> Vec<Candidate> {
        let mut options = Vec::new();
        for arg in self.command.get_arguments().filter(|arg| !arg.is_hide_set() && !arg.is_positional()) {
            let help = arg.get_help().map(first_line).unwrap_or_default();
            let short = arg.get_short().map(|short| format!("-{short}"));
            let long = arg.get_long().map(|long| format!("--{long}"));
            options.extend(short.into_iter().chain(long).map(|name| Candidate::new(name, help.clone())));
        }
        options
    }

    fn subcommands(&self) -> Vec<Candidate> {
        let shown = self.command.get_subcommands().filter(|command| !command.is_hide_set());
        shown
            .map(|command| Candidate::new(command.get_name(), command.get_about().map(first_line).unwrap_or_default()))
            .collect()
    }
}

fn first_line(help: &clap::builder::StyledStr) -> String {
    // Help has the line breaks of the source.
    help.to_string().split_whitespace().collect::<Vec<_>>().join(" ")
}

fn takes_value(arg: &Arg) -> bool {
    matches!(arg.get_action(), ArgAction::Set | ArgAction::Append)
}

fn has_many(arg: &Arg) -> bool {
    arg.get_num_args().is_some_and(|range| range.max_values() > 1)
}

/// Whether an argument is an embedded command line.
fn is_command(arg: &Arg) -> bool {
    arg.is_positional() && arg.is_trailing_var_arg_set()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::args::tree;

    fn find(line: &str) -> Place {
        let mut tree = tree();
        tree.build();
        let mut words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let current = words.pop().unwrap();
        Place::find(&tree, &words, &current)
    }

    #[test]
    fn what_an_option_takes_is_known_by_its_kind() {
        let panes = || Offer::Asked(Asked::Panes { ended: false });
        for (line, offer) in [
            ("muxtap capture-pane -t wo", Offer::Asked(Asked::Panes { ended: true })),
            ("muxtap capturep -t ", Offer::Asked(Asked::Panes { ended: true })),
            ("muxtap kill-pane -t", panes()),
            ("muxtap kill-pane -t ", panes()),
            ("muxtap --json kill-pane -t ", panes()),
            ("muxtap kill-window -t ", Offer::Asked(Asked::Windows)),
            ("muxtap kill-session -t ", Offer::Asked(Asked::Sessions)),
            ("muxtap list-windows -t ", Offer::Asked(Asked::Sessions)),
            ("muxtap wait-for --all -t %1 ", panes()),
            ("muxtap events -t work:1 wo", panes()),
            ("muxtap tail -f wo", Offer::Asked(Asked::Panes { ended: true })),
            ("muxtap tail -f -- wo", Offer::Asked(Asked::Panes { ended: true })),
            ("muxtap -L ", Offer::Asked(Asked::ServerNames)),
            ("muxtap ls -L ", Offer::Asked(Asked::ServerNames)),
            ("muxtap approvals approve ", Offer::Asked(Asked::Approvals)),
            ("muxtap workspace kill-tab -t ", Offer::Asked(Asked::Workspace(Part::Tabs))),
            ("muxtap workspace kill-pane -t ", Offer::Asked(Asked::Workspace(Part::Panes))),
            ("muxtap workspace kill-pane --tab ", Offer::Asked(Asked::Workspace(Part::Tabs))),
            ("muxtap workspace send-keys -t ", Offer::Asked(Asked::Workspace(Part::Terminals))),
            ("muxtap workspace list-tabs --device ", Offer::Asked(Asked::Workspace(Part::Devices))),
            ("muxtap workspace allow ", Offer::Asked(Asked::Workspace(Part::Devices))),
            ("muxtap capture-pane -S ", Offer::Words(Vec::new())),
            ("muxtap kill-pane -S ", Offer::Files),
            ("muxtap new-session -c ", Offer::Dirs),
            ("muxtap run -t %1 ", Offer::Command(4)),
            ("muxtap run -t %1 ls -t ", Offer::Command(4)),
            ("muxtap new -s a -- ", Offer::Command(5)),
        ] {
            // A flag alone is completed to itself.
            let found = find(line).offer;
            let flags = matches!(&found, Offer::Words(words) if words.iter().any(|word| word.value == "-t"));
            assert!(found == offer || flags && line.ends_with("-t"), "{line}: {found:?}");
        }
    }

    /// Targets of future commands are completed, too.
    #[test]
    fn every_target_of_the_tree_is_completed() {
        let mut tree = tree();
        tree.build();
        let mut targets = 0;
        for command in tree.get_subcommands() {
            for arg in command.get_arguments().filter(|arg| arg.get_short() == Some('t') && takes_value(arg)) {
                let walk = Walk::new(command);
                let (offer, _) = walk.values(arg, 3, String::new(), "");
                assert!(matches!(offer, Offer::Asked(_)), "{} {offer:?}", command.get_name());
                targets += 1;
            }
        }
        assert!(targets > 20, "{targets}");
    }

    #[test]
    fn by_the_name_freshell_the_line_begins_in_the_workspace() {
        for program in ["freshell", "/home/me/bin/freshell"] {
            let place = find(&format!("{program} kill-tab --device laptop -t "));
            assert_eq!(place.offer, Offer::Asked(Asked::Workspace(Part::Tabs)));
            assert_eq!((place.device.as_deref(), place.freshell), (Some("laptop"), true));
            let Offer::Words(commands) = find(&format!("{program} ")).offer else { panic!("no commands") };
            let has = |name: &str| commands.iter().any(|word| word.value == name);
            assert!(has("list-tabs") && has("session-send") && !has("capture") && !has("workspace"), "{commands:?}");
            assert_eq!(find(&format!("{program} -L work list-terminals ")).server.name, Some("work".into()));
        }
        assert!(!find("muxtap workspace kill-tab -t ").freshell);
    }

    #[test]
    fn the_device_is_the_one_that_the_line_names() {
        assert_eq!(find("muxtap workspace kill-tab --device laptop -t ").device, Some("laptop".into()));
        assert_eq!(find("muxtap workspace kill-tab --device=laptop -t ").device, Some("laptop".into()));
        assert_eq!(find("muxtap workspace kill-tab -t ").device, None);
    }

    #[test]
    fn the_server_is_the_one_that_the_line_names() {
        let server = |line: &str| find(line).server;
        assert_eq!(server("muxtap -S /a kill-pane -t ").path, Some("/a".into()));
        assert_eq!(server("muxtap -S/a kill-pane -t ").path, Some("/a".into()));
        assert_eq!(server("muxtap kill-pane --socket-path=/b -t ").path, Some("/b".into()));
        assert_eq!(server("muxtap -L x kill-pane -L y -t ").name, Some("y".into()));
        assert_eq!(server("muxtap capture-pane -S -10 -t "), ServerChoice::default());
        assert_eq!(server("muxtap run -t %0 tmux -L other "), ServerChoice::default());
    }

    #[test]
    fn a_value_may_hang_on_its_option() {
        let place = find("muxtap kill-pane -two");
        assert_eq!(
            (place.offer, place.before.as_str(), place.value.as_str()),
            (Offer::Asked(Asked::Panes { ended: false }), "-t", "wo")
        );
        let place = find("muxtap events --types=output,pa");
        assert_eq!((place.before.as_str(), place.value.as_str()), ("--types=output,", "pa"));
        assert!(matches!(place.offer, Offer::Words(words) if words.iter().all(|word| word.value != "output")));
    }
}
