//! Frequent commands with a plain command line and a single request: parsed, sent and printed
//! without the tree of arguments and without a runtime. The whole program handles all other command
//! lines, and reports errors in them.

use std::ffi::OsString;

use muxtap_tmux::ServerChoice;

use super::{
    Outcome,
    caller::Caller,
    commands::{
        capture::CapturePane,
        input::SendKeys,
        list::{DisplayMessage, HasSession, List, ListPanes, ListSessions, ListWindows},
        read::{CursorOf, Read},
        report_agent::ReportAgent,
        wait_for::WaitFor,
    },
    exit_status,
    one_request::{OneRequest, run_at_once},
};

/// Runs a command line, which includes the program's name, and returns the exit status. `None`:
/// nothing was done, and the whole program must run the command. `begin` is called before a command
/// line that is plain is run.
pub(super) fn run(args: impl IntoIterator<Item = OsString>, begin: impl FnOnce()) -> Option<u8> {
    let line = parse(args)?;
    begin();
    if matches!(&line.command, Quick::Report(report) if report.is_quiet()) {
        let Quick::Report(report) = line.command else { return Some(0) };
        report.run_quietly(line.server);
        return Some(0);
    }
    let caller = Caller::new(&line.server, line.json).ok()?;
    let outcome = match &line.command {
        Quick::Capture(command) => run_at_once(command, &caller),
        Quick::Cursor(command) => run_at_once(command, &caller),
        Quick::Display(command) => run_at_once(command, &caller),
        Quick::Has(command) => run_at_once(command, &caller),
        Quick::Panes(command) => list(command, &caller),
        Quick::Read(command) => command.run_at_once(&caller),
        Quick::Report(command) => run_at_once(&**command, &caller),
        Quick::Send(command) => run_at_once(command, &caller),
        Quick::Sessions(command) => list(command, &caller),
        Quick::Wait(command) => command.run_at_once(&caller),
        Quick::Windows(command) => list(command, &caller),
    }?;
    Some(exit_status(outcome, line.json, line.name))
}

fn list<C: List + OneRequest>(command: &C, caller: &Caller) -> Option<Outcome> {
    match command.formatted() {
        Some(Ok(formatted)) => run_at_once(&formatted, caller),
        Some(Err(error)) => Some(Err(error.into())),
        None => run_at_once(command, caller),
    }
}

/// A plain command line.
#[derive(Debug)]
struct Line {
    /// The command's name, without an alias.
    name: &'static str,
    json: bool,
    server: ServerChoice,
    command: Quick,
}

#[derive(Debug)]
enum Quick {
    Capture(CapturePane),
    Cursor(CursorOf),
    Display(DisplayMessage),
    Has(HasSession),
    Panes(ListPanes),
    Read(Read),
    Report(Box<ReportAgent>),
    Send(SendKeys),
    Sessions(ListSessions),
    Wait(Box<WaitFor>),
    Windows(ListWindows),
}

/// The options and words that a command accepts.
#[derive(Clone, Copy, Default)]
struct Takes {
    /// Letters of options without a value.
    flags: &'static str,
    /// Letters of options with a value.
    values: &'static str,
    /// Letters of options whose value may begin with `-`: a line number.
    lines: &'static str,
    /// Letters of options with a value that may be given several times.
    repeated: &'static str,
    /// Long options without a value.
    words: &'static [&'static str],
    /// Long options with a value.
    long_values: &'static [&'static str],
    /// Long options with a value that may be given several times.
    long_repeated: &'static [&'static str],
    /// Whether more words may follow.
    rest: Rest,
}

/// The words after a command's options.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Rest {
    /// No words.
    #[default]
    Nothing,
    /// At most one word, with no option after it.
    One,
    /// All words from the first one on, including options.
    All,
}

fn parse(args: impl IntoIterator<Item = OsString>) -> Option<Line> {
    // Under another name the program is a different command.
    let mut args = args.into_iter();
    let name = args.next()?;
    if super::commands::workspace::is_freshell(Some(&name)) {
        return None;
    }
    let mut words = Words::default();
    let mut args = args.map(|word| word.into_string().ok());
    let command = loop {
        match args.next()??.as_str() {
            "--json" => words.json()?,
            letter @ ("-L" | "-S") => words.server(letter == "-S", args.next()??)?,
            word if word.starts_with('-') => return None,
            command => break command.to_owned(),
        }
    };
    let list = Takes { values: "Ft", flags: "a", ..Takes::default() };
    let with_target = Takes { values: "t", ..Takes::default() };
    let name = match command.as_str() {
        "capture-pane" | "capturep" => "capture-pane",
        "cursor" => "cursor",
        "display-message" | "display" => "display-message",
        "has-session" | "has" => "has-session",
        "list-panes" | "lsp" => "list-panes",
        "list-sessions" | "ls" => "list-sessions",
        "list-windows" | "lsw" => "list-windows",
        "read" => "read",
        "report-agent" => "report-agent",
        "send-keys" | "send" => "send-keys",
        "wait-for" | "wait" => "wait-for",
        _ => return None,
    };
    let takes = match name {
        "capture-pane" => Takes { flags: "JeNp", lines: "SE", words: &["verify"], ..with_target },
        "display-message" => Takes { flags: "p", rest: Rest::One, ..with_target },
        "list-panes" => Takes { flags: "as", ..list },
        "list-sessions" => Takes { values: "Ft", ..Takes::default() },
        "list-windows" => list,
        "read" => Takes { long_values: &["since", "until", "format", "max-bytes"], ..with_target },
        "report-agent" => Takes {
            words: &["quiet"],
            long_values: &["state", "source", "seq", "message", "question", "session", "hook", "event"],
            long_repeated: &["option"],
            ..with_target
        },
        "send-keys" => {
            Takes { flags: "lH", words: &["literal", "hex", "paste", "submit"], rest: Rest::All, ..with_target }
        }
        "wait-for" => Takes {
            values: "T",
            repeated: "tp",
            words: &["any", "all", "exit", "propagate", "prompt", "bell", "command"],
            long_values: &["stable", "title", "since", "settle", "timeout", "status"],
            long_repeated: &["screen", "gone", "fail"],
            ..Takes::default()
        },
        _ => with_target,
    };
    words.fill(takes, args)?;
    let command = match name {
        "capture-pane" => Quick::Capture(CapturePane::plain(&mut words)),
        "cursor" => Quick::Cursor(CursorOf::plain(&mut words)),
        "display-message" => Quick::Display(DisplayMessage::plain(&mut words)?),
        "has-session" => Quick::Has(HasSession::plain(&mut words)),
        "list-panes" => Quick::Panes(ListPanes::plain(&mut words)?),
        "list-sessions" => Quick::Sessions(ListSessions::plain(&mut words)),
        "list-windows" => Quick::Windows(ListWindows::plain(&mut words)?),
        "read" => Quick::Read(Read::plain(&mut words)?),
        "report-agent" => Quick::Report(Box::new(ReportAgent::plain(&mut words)?)),
        "wait-for" => Quick::Wait(Box::new(WaitFor::plain(&mut words)?)),
        _ => Quick::Send(SendKeys::plain(&mut words)?),
    };
    Some(Line { name, json: words.json, server: words.server, command })
}

/// The words of a command line: separate options, then the rest. An option is there once, unless
/// its command takes it several times.
#[derive(Debug, Default)]
pub(super) struct Words {
    json: bool,
    server: ServerChoice,
    flags: Vec<char>,
    values: Vec<(char, String)>,
    long: Vec<&'static str>,
    long_values: Vec<(&'static str, String)>,
    rest: Vec<String>,
}

impl Words {
    /// Returns whether this short option is present.
    pub(super) fn has(&self, letter: char) -> bool {
        self.flags.contains(&letter)
    }

    /// Returns whether this long option is present.
    pub(super) fn has_long(&self, word: &str) -> bool {
        self.long.contains(&word)
    }

    /// Removes and returns an option's value.
    pub(super) fn value(&mut self, letter: char) -> Option<String> {
        let at = self.values.iter().position(|(given, _)| *given == letter)?;
        Some(self.values.remove(at).1)
    }

    /// Removes and returns the values of an option that may be given several times.
    pub(super) fn values(&mut self, letter: char) -> Vec<String> {
        self.values.extract_if(.., |(given, _)| *given == letter).map(|(_, value)| value).collect()
    }

    /// Removes and returns a long option's value.
    pub(super) fn long_value(&mut self, word: &str) -> Option<String> {
        self.long_values(word).pop()
    }

    /// Removes and returns the values of a long option that may be given several times.
    pub(super) fn long_values(&mut self, word: &str) -> Vec<String> {
        self.long_values.extract_if(.., |(given, _)| *given == word).map(|(_, value)| value).collect()
    }

    /// Removes and returns the words after the options.
    pub(super) fn rest(&mut self) -> Vec<String> {
        std::mem::take(&mut self.rest)
    }

    /// Parses the words after the command. `None`: they are not plain, or invalid.
    fn fill(&mut self, takes: Takes, mut args: impl Iterator<Item = Option<String>>) -> Option<()> {
        while let Some(word) = args.next() {
            let word = word?;
            if let Some(long) = word.strip_prefix("--") {
                self.long_option(takes, long, &mut args)?;
            } else if let Some(letters) = word.strip_prefix('-') {
                let mut letters = letters.chars();
                let (Some(letter), None) = (letters.next(), letters.next()) else { return None };
                self.option(takes, letter, &mut args)?;
            } else if takes.rest == Rest::Nothing || word.is_empty() {
                return None;
            } else {
                self.rest.push(word);
                for word in args.by_ref() {
                    self.rest.push(word?);
                }
                let is_plain = match takes.rest {
                    Rest::All => self.rest.iter().all(|word| word != "--"),
                    Rest::One | Rest::Nothing => self.rest.len() == 1,
                };
                return is_plain.then_some(());
            }
        }
        Some(())
    }

    fn long_option(&mut self, takes: Takes, long: &str, args: &mut impl Iterator<Item = Option<String>>) -> Option<()> {
        let known = |words: &[&'static str]| words.iter().copied().find(|known| *known == long);
        if let Some(word) = known(takes.words) {
            return (!self.has_long(word)).then(|| self.long.push(word));
        }
        if let Some(word) = known(takes.long_repeated).or_else(|| known(takes.long_values)) {
            let value = plain_value(args)?;
            if known(takes.long_values).is_some() && self.long_values.iter().any(|(given, _)| *given == word) {
                return None;
            }
            self.long_values.push((word, value));
            return Some(());
        }
        if long == "json" { self.json() } else { None }
    }

    fn option(&mut self, takes: Takes, letter: char, args: &mut impl Iterator<Item = Option<String>>) -> Option<()> {
        if takes.flags.contains(letter) {
            if self.has(letter) {
                return None;
            }
            self.flags.push(letter);
            return Some(());
        }
        if takes.repeated.contains(letter) {
            self.values.push((letter, plain_value(args)?));
            return Some(());
        }
        let value = args.next()??;
        if takes.lines.contains(letter) {
            let digits = value.strip_prefix('-').unwrap_or(&value);
            if value != "-" && (digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit())) {
                return None;
            }
        } else if takes.values.contains(letter) {
            if value.is_empty() || value.starts_with('-') {
                return None;
            }
        } else {
            // `-L` and `-S` select the server unless the command has such options itself.
            return if matches!(letter, 'L' | 'S') { self.server(letter == 'S', value) } else { None };
        }
        if self.values.iter().any(|(given, _)| *given == letter) {
            return None;
        }
        self.values.push((letter, value));
        Some(())
    }

    fn json(&mut self) -> Option<()> {
        (!std::mem::replace(&mut self.json, true)).then_some(())
    }

    fn server(&mut self, is_path: bool, value: String) -> Option<()> {
        let given = if is_path { &mut self.server.path } else { &mut self.server.name };
        if value.is_empty() || value.starts_with('-') || given.is_some() {
            return None;
        }
        *given = Some(value.into());
        Some(())
    }
}

/// Returns the next word. `None`: it is not plain as an option's value.
fn plain_value(args: &mut impl Iterator<Item = Option<String>>) -> Option<String> {
    args.next()?.filter(|value| !value.is_empty() && !value.starts_with('-'))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::cli::args::{self, Command, Invocation};

    /// Parses a plain command line into the same form as the whole tree of arguments.
    fn read_plainly(words: &[&str]) -> Option<String> {
        let Line { name, json, server, command } = parse(words.iter().map(OsString::from))?;
        let command = match command {
            Quick::Capture(args) => Command::CapturePane(args),
            Quick::Cursor(args) => Command::Cursor(args),
            Quick::Display(args) => Command::DisplayMessage(args),
            Quick::Has(args) => Command::HasSession(args),
            Quick::Panes(args) => Command::ListPanes(args),
            Quick::Read(args) => Command::Read(args),
            Quick::Report(args) => Command::ReportAgent(args),
            Quick::Send(args) => Command::SendKeys(args),
            Quick::Sessions(args) => Command::ListSessions(args),
            Quick::Wait(args) => Command::WaitFor(args),
            Quick::Windows(args) => Command::ListWindows(args),
        };
        Some(format!("{:?}", Invocation { name: name.to_owned(), json, via: None, no_peer: false, server, command }))
    }

    fn read_by_the_tree(words: &[&str]) -> String {
        format!("{:?}", args::parse(words.iter().map(OsString::from)).map_err(|error| error.kind()))
    }

    fn assert_same(words: &[&str]) -> bool {
        let plainly = read_plainly(words);
        if let Some(line) = &plainly {
            assert_eq!(read_by_the_tree(words), format!("Ok({line})"), "{words:?}");
        }
        plainly.is_some()
    }

    #[test]
    fn plain_lines_mean_what_the_tree_reads() {
        for line in [
            "muxtap -S /x capture-pane -p -t %1 -S -10 -E - -J",
            "muxtap --json -L n capturep -t %1 --verify -e -N",
            "muxtap send-keys -t %1 -S /x --json C-c -x --json",
            "muxtap send -t work:1.0 -l -S /x ü",
            "muxtap send-keys --submit",
            "/usr/bin/muxtap send-keys --hex -t %1 1b 5b",
            "muxtap list-panes -L n",
            "muxtap lsp -s -t 1 -F #{pane_id}",
            "muxtap list-windows -t 1 --json",
            "muxtap lsw -a",
            "muxtap ls -F #{session_name}",
            "muxtap has -t work",
            "muxtap display -p",
            "muxtap display-message -t %1 -p #S",
            "muxtap cursor -t %1",
            "muxtap read -t %1 --since start --format raw --max-bytes 4K --json",
            "muxtap read --until 10m -S /x",
            "muxtap report-agent --state working --source a --seq 7 --message x -t %1",
            "muxtap report-agent --state question --source a --question x --option y --option z --session s --quiet",
            "muxtap report-agent --hook claude",
            "muxtap report-agent --hook copilot --event agentStop --source mine --seq 1",
            "muxtap wait-for -t %1 -p passed -p failed --fail error --fail FAILED -T 10m --since start",
            "muxtap wait-for -T 60 -t %1 -t %2 -p a -p b --all",
            "muxtap wait -t %2 -p b -T 60 -t %1 -p a",
            "muxtap wait-for -t %1 -t work:1 --all --exit --propagate --timeout 1.5",
            "muxtap wait-for -t %1 --command --propagate",
            "muxtap wait-for -t %1 --status !0 --propagate",
            "muxtap wait-for -t %1 --screen a --gone b --title c --stable 2 --settle 1 --prompt --bell --any -L n",
        ] {
            assert!(assert_same(&line.split(' ').collect::<Vec<_>>()), "{line}");
        }
    }

    #[test]
    fn whatever_is_not_plain_is_left_to_the_tree() {
        for line in [
            "muxtap",
            "muxtap --version",
            "muxtap --via ssh capture-pane",
            "muxtap __complete fish",
            "muxtap capture-pane --help",
            "muxtap capture-pane -pt %1",
            "muxtap capture-pane -t",
            "muxtap capture-pane -t %1 -t %2",
            "muxtap capture-pane -t -1",
            "muxtap capture-pane -S x",
            "muxtap list-panes --watch",
            "muxtap list-panes -a -t x",
            "muxtap send-keys -t %1",
            "muxtap send-keys -t work:* x",
            "muxtap send-keys -t %group x",
            "muxtap send-keys -l -",
            "muxtap send-keys -l -H 1b",
            "muxtap send-keys -l --literal x",
            "muxtap send-keys -H --hex 78",
            "muxtap send-keys a -- b",
            "muxtap display-message",
            "muxtap display-message -p a b",
            "muxtap read -t %1 --wait 3",
            "muxtap read --format json",
            "muxtap read --max-bytes x",
            "muxtap read --since start --since start",
            "muxtap wait-for -t %1",
            "muxtap report-agent",
            "muxtap report-agent --state working",
            "muxtap report-agent --state ended --source a",
            "muxtap report-agent --state idle --source a --seq x",
            "muxtap report-agent --state idle --source a --event x",
            "muxtap report-agent --hook claude --state idle",
            "muxtap wait-for -p x",
            "muxtap wait-for -t %1 %2 -p x",
            "muxtap wait-for -t %1 -p -x",
            "muxtap wait-for -t %1 --any --all -p x",
            "muxtap wait-for -t %1 -p x --propagate",
            "muxtap wait-for -t %1 -p x -T soon",
            "muxtap wait-for -t %1 --status none",
            "muxtap wait-for -t %1 -p x -T 1 --timeout 2",
            "muxtap wait-for -t %1 -p x --notify",
            "muxtap wait-for -t %1 --title a --title b",
            "freshell capture-pane",
        ] {
            assert_eq!(read_plainly(&line.split(' ').collect::<Vec<_>>()), None, "{line}");
        }
        assert!(read_plainly(&["muxtap", "capture-pane", "-t", ""]).is_none());
    }

    proptest! {
        #[test]
        fn no_plain_line_means_anything_else_to_the_tree(
            before in prop::sample::select(vec![&[] as &[_], &["--json"], &["-S", "/x"], &["-L", "n"]]),
            command in prop::sample::select(vec![
                "capture-pane", "cursor", "display", "has-session", "list-panes", "ls", "lsw", "read", "report-agent",
                "send-keys", "wait-for",
            ]),
            words in prop::collection::vec(
                prop::sample::select(vec![
                    &["-t", "%1"] as &[_], &["-t", "%2"], &["-t", "1"], &["-S", "-10"], &["-S", "/x"], &["-L", "n"],
                    &["-E", "-"],
                    &["-F", "#S"], &["-t"], &["-J"], &["-e"], &["-p"], &["-a"], &["-s"], &["-l"], &["-H"], &["--hex"],
                    &["--submit"], &["--paste"], &["--literal"], &["--verify"], &["--json"], &["--"], &["-"], &["x"],
                    &[""], &["ü"], &["-5"], &["-p", "x"], &["-p", "y"], &["-T", "5"], &["--timeout", "1m"],
                    &["--since", "start"],
                    &["--since", "never"], &["--until", "5s"], &["--format", "ansi"], &["--max-bytes", "1"], &["--all"],
                    &["--any"], &["--exit"], &["--propagate"], &["--stable", "1.5"], &["--screen", "x"],
                    &["--title", "x"], &["--hook", "x"], &["--state", "idle"], &["--source", "x"], &["--quiet"],
                    &["--option", "x"], &["--event", "x"],
                ]),
                0..7,
            ),
        ) {
            let line: Vec<_> = std::iter::once("muxtap").chain(before.iter().copied()).chain([command])
                .chain(words.into_iter().flatten().copied()).collect();
            assert_same(&line);
        }
    }
}
