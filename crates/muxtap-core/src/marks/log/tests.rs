use proptest::prelude::*;

use super::*;
use crate::{
    marks::{COMMAND_TEXT_BYTES, COMMANDS, LINE_BYTES, command::Held, tests::output},
    stream::{
        decoder::TextDecoder,
        text::{Control, TextSink},
    },
};

/// The nonce that panes trust. It is longer than the nonces of random marks.
const NONCE: &str = "0123456789abcdef0123456789abcdef";

/// A pane of which only the bytes are known. A letter in braces is a mark: `{A}` is `OSC 133 ; A`,
/// `{+A}` the same with a nonce of muxtap's, `{633;A}` and `{3008;…}` are what they say.
#[derive(Default)]
struct Pane {
    log: CommandLog,
    decoder: TextDecoder,
    bytes: Vec<u8>,
}

impl TextSink for CommandLog {
    fn text(&mut self, _: u64, _: &[u8]) {}
    fn control(&mut self, _: u64, _: Control) {}
    fn mark(&mut self, start: u64, end: u64, mark: Mark<'_>) {
        // Each byte takes a millisecond.
        let now = Moment { unix_ms: end, monotonic: Duration::from_millis(end) };
        Self::mark(self, start, end, mark, now);
    }
}

impl Pane {
    fn new() -> Self {
        let mut pane = Self::default();
        pane.log.trust(NONCE.into());
        pane
    }

    fn print(&mut self, script: &str) -> &mut Self {
        let printed = |(at, part): (usize, &str)| match (at % 2, part.strip_prefix('+')) {
            (0, _) => part.to_owned(),
            (_, Some(trusted)) => format!("\x1b]133;{trusted};muxtap={NONCE}\x07"),
            _ if part.starts_with(|first: char| first.is_ascii_digit()) => format!("\x1b]{part}\x1b\\"),
            _ => format!("\x1b]133;{part}\x07"),
        };
        let bytes: String = script.split(['{', '}']).enumerate().map(printed).collect();
        self.feed(bytes.as_bytes());
        self
    }

    fn feed(&mut self, bytes: &[u8]) {
        let offset = self.bytes.len() as u64;
        self.bytes.extend_from_slice(bytes);
        self.decoder.feed(offset, bytes, &mut self.log);
    }

    /// Returns the output of a command, without its marks.
    fn output(&self, command: &Command) -> String {
        let end = command.output.end.unwrap_or(self.bytes.len() as u64);
        let range = &self.bytes[command.output.start as usize..end as usize];
        crate::stream::render::render_bytes(range)
    }

    /// Returns each command as `NUMBER[<PARENT][!]: LINE = OUTPUT -> END`; `!` is a claimed one.
    fn commands(&self) -> Vec<String> {
        let commands = self.log.commands().map(|command| {
            let parent = command.parent.map_or(String::new(), |parent| format!("<{parent}"));
            let claimed = if command.is_trusted { "" } else { "!" };
            let line = command.line.as_ref().map_or("?", |line| &line.text);
            let status = command.status.map_or("?".to_owned(), |status| status.to_string());
            let signal = command.signal.as_ref().map_or(String::new(), |signal| format!(" {signal}"));
            let end = match command.end {
                None => "runs".to_owned(),
                Some(End::Reported) => format!("{status}{signal}"),
                Some(End::Unreported) => format!("unreported {status}"),
                Some(End::ShellGone) => format!("shell gone {status}"),
                Some(End::ProcessEnded) => format!("process ended {status}{signal}"),
            };
            let whole = if command.output.is_whole { "" } else { " (not whole)" };
            format!("{}{parent}{claimed}: {line} = {:?} -> {end}{whole}", command.number, self.output(command))
        });
        commands.collect()
    }
}

/// Returns the commands of a stream.
fn commands(script: &str) -> Vec<String> {
    let mut pane = Pane::new();
    pane.print(script);
    let commands = pane.commands();
    // K4: any cut gives the same.
    let bytes = pane.bytes.clone();
    for size in [1, 2, 7] {
        let mut again = Pane::new();
        bytes.chunks(size).for_each(|piece| again.feed(piece));
        assert_eq!(again.commands(), commands, "in pieces of {size}");
    }
    commands
}

#[test]
fn a_command_has_line_output_status_and_times() {
    let mut pane = Pane::new();
    pane.print("{+A}$ {+B}make\r\n{+C;cmdline_url=make}ok\r\nno newline{+D;2}{+A}$ {+B}");
    assert_eq!(pane.commands(), ["1: make = \"ok\\nno newline\" -> 2"]);
    let command = pane.log.command(1).unwrap();
    let output = command.output;
    assert_eq!((command.started_ms, command.end), (output.start, Some(End::Reported)));
    assert!(command.duration.unwrap() > Duration::from_millis(output.end.unwrap() - output.start));
    assert_eq!(pane.log.take_changes(), [Change::Started(1), Change::Finished(1)]);
}

#[test]
fn a_line_that_the_shell_does_not_report_is_asked_of_the_screen() {
    let mut pane = Pane::new();
    pane.print("{A}$ {B}make\r\n{C}ok");
    let lineless = pane.log.take_lineless();
    let [(1, typed)] = lineless.as_slice() else { panic!("{lineless:?}") };
    assert_eq!(&pane.bytes[typed.start as usize..typed.end as usize], b"make\r\n");
    pane.log.set_line(1, "make\n");
    let line = pane.log.command(1).unwrap().line.clone().unwrap();
    assert_eq!((line.text.as_str(), line.source), ("make", LineSource::Screen));
    pane.log.set_line(1, "other");
    assert_eq!(pane.commands(), ["1!: make = \"ok\" -> runs"]);
}

/// K3: a background job can print between `B` and `C`.
#[test]
fn a_trusted_command_has_no_line_of_the_screen() {
    let mut pane = Pane::new();
    // The second one was claimed first.
    pane.print("{+A}$ {+B}make\r\n{+C}ok{+D;0}{A}{+A}$ {B}{+B}make\r\n{C}{+C}ok");
    assert_eq!(pane.log.take_lineless(), []);
    pane.log.set_line(1, "forged");
    pane.log.set_line(2, "forged");
    assert_eq!(pane.commands(), ["1: ? = \"ok\" -> 0", "2: ? = \"ok\" -> runs"]);
}

#[test]
fn an_end_without_a_begin_is_no_command() {
    assert!(commands("{D;0}{A}$ {B}{D}{A}$ {B}{633;D;1}{3008;end=x;exit=success}").is_empty());
}

#[test]
fn a_begin_without_an_end_ends_at_the_next_prompt_without_a_status() {
    let expected = ["1!: ? = \"one\\n\" -> unreported ?", "2!: ? = \"two\\n\" -> 3"];
    assert_eq!(commands("{A}${B}{C}one\n{A}${B}{C}two\n{D;3}{A}"), expected);
    // Neither prompt nor end.
    let expected = ["1!: ? = \"one\\n\" -> unreported ?", "2!: ? = \"two\\n\" -> runs"];
    assert_eq!(commands("{C}one\n{C}two\n"), expected);
}

#[test]
fn an_empty_line_is_no_command() {
    assert!(commands("{A}$ {B}\r\n{A}$ {B}\r\n{D;0}{A}$ {B}\r\n").is_empty());
}

#[test]
fn ctrl_c_at_the_prompt_is_no_command() {
    assert!(commands("{A}$ {B}half a li^C\r\n{D;130}{A}$ {B}").is_empty());
}

#[test]
fn ctrl_c_in_a_command_is_what_the_shell_reports() {
    let expected = ["1!: sleep 9 = \"^C\\n\" -> 130"];
    assert_eq!(commands("{A}$ {B}sleep 9\r\n{C;cmdline=sleep\\ 9}^C\r\n{D;130}{A}"), expected);
    let expected = ["1!: ? = \"^C\" -> ? SIGINT"];
    let script = "{3008;start=s;type=shell}${3008;start=c;type=command}^C{3008;end=c;exit=interrupt;signal=SIGINT}";
    assert_eq!(commands(script), expected);
}

#[test]
fn a_redrawn_prompt_begins_the_line_anew() {
    let mut pane = Pane::new();
    pane.print("{A}$ {B}mak\r{A}$ {B}ma\r{A}% {P}{B}make\r\n{C}ok{D;0}");
    let typed = pane.log.take_lineless().remove(0).1;
    assert_eq!(&pane.bytes[typed.start as usize..typed.end as usize], b"make\r\n");
    assert_eq!(pane.commands(), ["1!: ? = \"ok\" -> 0"]);
}

#[test]
fn a_command_of_several_lines_is_one_command() {
    let script = "{A}$ {B}cat <<E\r\n{A;k=s}> a\r\n{P;k=s}> E\r\n{C;cmdline=$'cat <<E\\na\\nE'}a\r\n{D;0}";
    assert_eq!(commands(script), ["1!: cat <<E\na\nE = \"a\\n\" -> 0"]);
}

#[test]
fn a_background_job_prints_into_no_range_but_that_of_a_later_command() {
    let script = "{A}${B}x &\n{C}[1]\n{D;0}{A}${B}job\n{A}${B}ls\n{C}a\njob\nb\n{D;0}{A}";
    assert_eq!(commands(script), ["1!: ? = \"[1]\\n\" -> 0", "2!: ? = \"a\\njob\\nb\\n\" -> 0"]);
}

#[test]
fn a_shell_that_execs_another_shell_leaves_its_command_unreported() {
    let script = "{A}${B}{C;cmdline=exec\\ zsh}{A}%{B}{C;cmdline=ls}a\n{D;0}";
    assert_eq!(commands(script), ["1!: exec zsh = \"\" -> unreported ?", "2!: ls = \"a\\n\" -> 0"]);
}

#[test]
fn the_end_of_the_panes_process_ends_all_commands() {
    let mut pane = Pane::new();
    pane.print("{+A}${+B}{+C;cmdline_url=exec%20prog}out");
    pane.log.process_ended(pane.bytes.len() as u64, Some(3), None, Moment::default());
    assert_eq!(pane.commands(), ["1: exec prog = \"out\" -> process ended 3"]);
    // A killed shell within another one: the status is that of the pane's process.
    let mut pane = Pane::new();
    pane.print("{A;aid=1}${B}{C;cmdline=sh}{A;aid=2}${B}{C;cmdline=make}out");
    pane.log.process_ended(pane.bytes.len() as u64, None, Some("SIGKILL".into()), Moment::default());
    let expected = ["1!: sh = \"$out\" -> process ended ? SIGKILL", "2<1!: make = \"out\" -> process ended ?"];
    assert_eq!(pane.commands(), expected);
    // Another context around the shell that runs the command.
    let mut outer = Pane::new();
    outer
        .print("{3008;start=s;type=shell}{3008;start=box;type=container}{3008;start=t;type=shell}${C;cmdline=make}out");
    outer.log.process_ended(outer.bytes.len() as u64, Some(3), None, Moment::default());
    assert_eq!(outer.commands(), ["1!: make = \"out\" -> process ended 3"]);
    // systemd's mark comes before muxtap's.
    let mut outer = Pane::new();
    outer.print("{3008;start=s;type=shell}{+A}${+B}{+C;cmdline_url=exec%20prog}out");
    outer.log.process_ended(outer.bytes.len() as u64, Some(3), None, Moment::default());
    assert_eq!(outer.commands(), ["1: exec prog = \"out\" -> process ended 3"]);
    // Another program in the same pane.
    pane.print("{A}${B}{C}x{D;0}");
    assert_eq!(pane.commands().last().unwrap(), "3!: ? = \"x\" -> 0");
}

#[test]
fn two_integrations_mark_one_command() {
    let systemd = "{3008;end=c;exit=success}{3008;start=s;type=shell;cwd=/a}";
    let begin = "{3008;start=c;type=command;cwd=/a}";
    let expected = ["1!: ls = \"a\\n\" -> 0", "2!: ls = \"b\\n\" -> 4"];
    for (order, script) in [
        "{A}${B}ls\n{C;cmdline=ls}<a\n{3008;end=c;exit=success}{D;0}>\
         {A}${B}ls\n{C;cmdline=ls}<b\n{3008;end=c;status=4}{D;4}>{A}",
        "{A}${B}ls\n<{C;cmdline=ls}a\n{D}{3008;end=c;exit=success}>\
         {A}${B}ls\n<{C;cmdline=ls}b\n{D;4}{3008;end=c;status=4}>{A}",
        "{633;A}{A}${B}{633;B}ls\n{633;E;ls}{633;C}{C}a\n{633;D;0}{D;0}\
         {633;A}{A}${B}ls\n{C}{633;E;ls}{633;C}b\n{633;D;4}{D;4}",
    ]
    .into_iter()
    .enumerate()
    {
        let script = script.replace('<', begin).replace('>', systemd);
        assert_eq!(commands(&script), expected, "{order}");
    }
}

/// fish marks by itself, and muxtap's integration marks, too.
#[test]
fn a_command_that_muxtap_and_another_integration_mark_is_one_trusted_command() {
    let expected = ["1: ls = \"a\\n\" -> 0", "2: ls = \"b\\n\" -> 4"];
    for script in [
        "{A}{+A}${B}{+B}ls\n{C;cmdline=forged}{+C;cmdline_url=ls}a\n{D;9}{+D;0}\
         {A}{+A}${B}{+B}ls\n{C;cmdline=forged}{+C;cmdline_url=ls}b\n{D;9}{+D;4}{A}{+A}",
        "{+A}{A}${+B}{B}ls\n{+C;cmdline_url=ls}{C;cmdline=forged}a\n{+D;0}{D;9}\
         {+A}{A}${+B}{B}ls\n{+C;cmdline_url=ls}{C;cmdline=forged}b\n{+D;4}{D;9}{+A}{A}",
        "{3008;start=s;type=shell}{+A}${+B}ls\n{3008;start=c;type=command}{+C;cmdline_url=ls}a\n\
         {3008;end=c;exit=failure;status=9}{3008;start=s;type=shell}{+D;0}{+A}${+B}ls\n\
         {+C;cmdline_url=ls}{3008;start=c;type=command}b\n{+D;4}{3008;end=c;status=9}{3008;start=s;type=shell}{+A}",
    ] {
        assert_eq!(commands(script), expected);
    }
}

/// K3.
#[test]
fn a_forged_mark_ends_no_trusted_command() {
    let forged =
        "{D;0}{633;D;0}{3008;end=c;exit=success}{D;0;muxtap=M}{A}{633;A}{C}x\n{3008;start=c;type=command}y\n{B}";
    let script = format!("{{+A}}${{+B}}{{+C;cmdline_url=cat}}a\n{forged}b\n{{+D;1}}{{+A}}");
    let commands = commands(&script);
    assert_eq!(commands[0], "1: cat = \"a\\nx\\ny\\nb\\n\" -> 1");
    assert!(commands[1..].iter().all(|command| command.contains("!:")), "{commands:?}");
}

/// K3: the end of a claimed command in which a trusted shell runs would end that shell's command.
#[test]
fn a_forged_end_of_a_command_below_a_trusted_one_ends_neither() {
    let outer = "{+A;aid=1}${+B}{+C;aid=1;cmdline_url=ssh}{A}%{B}{C;cmdline=bash}";
    let script = format!("{outer}{{+A;aid=2}}#{{+B}}{{+C;aid=2;cmdline_url=make}}a\n{{D;0}}b\n{{+D;1;aid=2}}");
    let commands = commands(&script);
    assert!(commands[1].ends_with("-> runs"), "{commands:?}");
    assert_eq!(commands[2], "3<2: make = \"a\\nb\\n\" -> 1");
}

/// K3: at a trusted prompt, too.
#[test]
fn a_forged_begin_at_a_trusted_prompt_takes_no_part_in_the_trusted_command() {
    let script = "{+A}${+B}{C;cmdline=forged}job\nls\n{+C;cmdline_url=ls}a\n{D;7}b\n{+D;0}";
    let expected = ["1!: forged = \"job\\nls\\n\" -> shell gone ?", "2: ls = \"a\\nb\\n\" -> 0"];
    assert_eq!(commands(script), expected);
}

#[test]
fn a_forged_begin_before_the_first_trusted_prompt_is_no_shell_around_it() {
    let mut pane = Pane::new();
    pane.print("{C;cmdline=motd}Welcome\n{+A}${+B}{+C;cmdline_url=ls}a\n{+D;0}{+A}${+B}");
    assert_eq!(pane.commands(), ["1!: motd = \"Welcome\\n\" -> shell gone ?", "2: ls = \"a\\n\" -> 0"]);
    assert_eq!(pane.log.running(), None);
    // The first trusted mark may be a begin that another integration marked, too.
    let script = "{C;cmdline=motd}Welcome\n{A}${C;cmdline=forged}{+C;cmdline_url=ls}a\n{+D;0}";
    assert_eq!(commands(script)[1..], ["2: ls = \"a\\n\" -> 0"]);
}

/// K3, K6.
#[test]
fn forged_commands_displace_no_trusted_command() {
    let mut pane = Pane::new();
    for number in 0..COMMANDS / 2 {
        pane.print(&format!("{{+A}}${{+B}}{{+C;cmdline_url={number}}}x\n{{+D;0}}"));
    }
    pane.print("{+A}${+B}{+C;cmdline_url=cat}");
    let count = |pane: &Pane| {
        let held = &pane.log;
        let counted = held.commands().map(Held::of).fold(Held::default(), |mut sum, held| {
            sum.add(held);
            sum
        });
        assert_eq!((counted, held.commands().len() <= COMMANDS + LEVELS), (held.commands.held, true));
        held.commands().filter(|command| command.is_trusted).count()
    };
    for number in 0..2 * COMMANDS {
        pane.print(&format!("x{{C;cmdline={number}}}{{D;0}}"));
    }
    assert_eq!((count(&pane), pane.log.commands().len()), (COMMANDS / 2 + 1, COMMANDS));
    // 2 MiB of lines and directories.
    for number in 0..512 {
        let text = "x".repeat(LINE_BYTES - 4);
        pane.print(&format!("x{{7;file:///{number}{text}}}{{C;cmdline={text}}}{{D;0}}"));
    }
    assert_eq!(count(&pane), COMMANDS / 2 + 1);
    assert!(pane.log.commands.held.bytes() <= COMMAND_TEXT_BYTES);
    // A directory is claimed, too: long ones leave, the commands stay.
    pane.print("{+D;0}");
    for number in COMMANDS / 2 + 1..COMMANDS {
        let path = format!("{number}{}", "x".repeat(LINE_BYTES - 4));
        pane.print(&format!("{{7;file:///{path}}}{{+A}}${{+B}}{{+C;cmdline_url={number}}}x\n{{+D;0}}"));
    }
    assert_eq!(count(&pane), COMMANDS);
    assert!(pane.log.commands.held.bytes() <= COMMAND_TEXT_BYTES && pane.log.command(1).unwrap().line.is_some());
    // Claimed commands that run have no place of their own.
    for number in 0..2 * LEVELS {
        pane.print(&format!("{{A;aid={number}}}{{C;aid={number}}}x"));
    }
    assert_eq!(count(&pane), COMMANDS);
    // Only trusted commands displace trusted ones.
    pane.print("{+A}${+B}{+C;cmdline_url=last}x\n{+D;0}");
    assert_eq!((count(&pane), pane.log.command(1)), (COMMANDS, None));
}

/// K3.
#[test]
fn forged_changes_displace_no_trusted_change() {
    let mut pane = Pane::new();
    pane.print("{+A}${+B}{C;cmdline=forged}{+C;cmdline_url=cat}");
    for number in 0..CHANGES {
        pane.print(&format!("{{C}}x{{D;0}}{{9;4;1;{}}}{{9;text {number}}}", number % 100));
    }
    pane.print("{+D;1}");
    let changes = pane.log.take_changes();
    assert_eq!(changes.len(), CHANGES);
    assert_eq!((&changes[0], changes.last()), (&Change::Started(1), Some(&Change::Finished(1))));
    // Trusted changes displace the earliest trusted ones, claimed changes none.
    for _ in 0..CHANGES {
        pane.print("{+A}${+B}{+C;cmdline_url=ls}x{+D;0}{9;text}");
    }
    let changes = pane.log.take_changes();
    assert!(changes.iter().all(|change| matches!(change, Change::Started(_) | Change::Finished(_))));
    assert_eq!(changes.len(), CHANGES);
}

#[test]
fn of_directories_and_progress_the_last_one_is_kept() {
    let mut pane = Pane::new();
    for number in 0..2 * CHANGES {
        pane.print(&format!("{{7;file:///{number}}}{{9;4;1;{}}}", number % 100));
    }
    pane.print("{C}{9;4;0}{7;file:///a}");
    let changes = pane.log.take_changes();
    let [
        Change::Directory(last),
        Change::Progress(percent),
        Change::Started(1),
        Change::Progress(_),
        Change::Directory(_),
    ] = &changes[..]
    else {
        panic!("{changes:?}")
    };
    assert_eq!((last.path.as_str(), percent.percent), ("/511", Some(11)));
}

/// The path of a long OSC 7 is not copied for each command.
#[test]
fn commands_share_their_directory() {
    let mut pane = Pane::new();
    pane.print("{7;file:///a}{C}x{D;0}{C}y");
    let directories: Vec<_> = pane.log.commands().map(|command| command.directory.clone().unwrap()).collect();
    assert!(Arc::ptr_eq(&directories[0], &directories[1]));
}

/// K3, K6: a flood of claimed shells displaces no trusted one.
#[test]
fn forged_shells_are_bounded_and_displace_no_trusted_shell() {
    let mut pane = Pane::new();
    pane.print("{+A}${+B}{+C;cmdline_url=cat}");
    for number in 0..200 {
        pane.print(&format!("{{A;aid={number}}}{{C;aid={number}}}x"));
    }
    assert!(pane.log.levels.len() <= LEVELS + 1);
    pane.print("{+D;5}");
    assert!(pane.commands()[0].ends_with("-> 5"));
    assert_eq!(pane.log.levels.len(), 1);
}

#[test]
fn a_shell_in_a_shell_is_told_apart_by_its_id() {
    let script = "{A;aid=1}${B}{C;cmdline=bash}{A;aid=2}${B}{C;cmdline=ls}a\n{D;0;aid=2}{A;aid=2}${B}\
                  {C;cmdline=exit}exit\n{D;3;aid=1}{A;aid=1}${B}{C;cmdline=id}u\n{D;0;aid=1}";
    let expected = [
        "1!: bash = \"$a\\n$exit\\n\" -> 3",
        "2<1!: ls = \"a\\n\" -> 0",
        "3<1!: exit = \"exit\\n\" -> shell gone ?",
        "4!: id = \"u\\n\" -> 0",
    ];
    assert_eq!(commands(script), expected);
}

/// fish 4.9 marks the begin of the line itself, after muxtap's integration.
#[test]
fn a_second_mark_of_a_prompt_is_of_the_same_shell() {
    for (prompt, is_trusted) in [("{A}$ {B;shell=fish}{B}", false), ("{A}{+A}$ {+B;shell=fish}{B}", true)] {
        let mut pane = Pane::new();
        pane.print(prompt);
        let open = pane.log.open_line().map(|line| (line.shell.map(str::to_owned), line.is_trusted));
        assert_eq!(open, Some((Some("fish".into()), is_trusted)), "{prompt}");
        // A shell that it runs has a name of its own, or none.
        pane.print(if is_trusted { "bash\r\n{+C}" } else { "bash\r\n{C}" }).print("{A;aid=1}inner$ {B;aid=1}");
        let open = pane.log.open_line().map(|line| (line.shell.map(str::to_owned), line.is_trusted));
        assert_eq!(open, Some((None, false)), "{prompt}");
    }
}

#[test]
fn contexts_nest() {
    let script = "{3008;start=s1;type=shell;cwd=/a}${3008;start=c1;type=command;cwd=/a}\
                  {3008;start=box;type=container}{3008;start=s2;type=shell;cwd=/b}#\
                  {3008;start=c2;type=command;cwd=/b}x\n{3008;end=c2;exit=success}{3008;start=s2;type=shell;cwd=/b}#\
                  {3008;end=box}{3008;end=c1;exit=failure;status=2}{3008;start=s1;type=shell;cwd=/a}$";
    assert_eq!(commands(script), ["1!: ? = \"#x\\n#\" -> 2", "2<1!: ? = \"x\\n\" -> 0"]);
    let mut pane = Pane::new();
    pane.print(script);
    let directories: Vec<_> =
        pane.log.commands().map(|command| command.directory.as_ref().unwrap().path.clone()).collect();
    assert_eq!(directories, ["/a", "/b"]);
    assert_eq!(pane.log.directory().unwrap().path, "/a");
}

#[test]
fn a_shell_without_marks_of_muxtap_in_a_trusted_one_has_commands_of_its_own() {
    let script = "{+A}${+B}{+C;cmdline_url=ssh%20box}{A}%{B}{C;cmdline=ls}a\n{D;0}{A}%{B}{C;cmdline=exit}\
                  bye\n{+D;0}{+A}${+B}{+C;cmdline_url=id}u\n{+D;0}";
    let expected = [
        "1: ssh box = \"%a\\n%bye\\n\" -> 0",
        "2<1!: ls = \"a\\n\" -> 0",
        "3<1!: exit = \"bye\\n\" -> shell gone ?",
        "4: id = \"u\\n\" -> 0",
    ];
    assert_eq!(commands(script), expected);
}

/// fish 4.0 with the integration: sequences without text are between its own marks and muxtap's.
#[test]
fn a_command_that_a_shell_marks_twice_with_sequences_between_is_one() {
    let prompt = "{+A}{A}${+B}";
    let begin = |own: &str| format!("{prompt}x\r\n{{C;cmdline_url={own}}}\x1b[?2004l\x1b[>4;0m{{+C;cmdline_url=make}}");
    let end = "a\n{D;2}\x1b\\{+D;2}{+A}${+B}";
    assert_eq!(commands(&format!("{}{end}", begin("make"))), ["1: make = \"a\\n\" -> 2"]);
    // Another line is of another command, which only claims to have begun.
    let other = commands(&format!("{}{end}", begin("other")));
    assert_eq!(other, ["1!: other = \"\" -> shell gone ?", "2: make = \"a\\n\" -> 2"]);
}

#[test]
fn a_shell_in_a_shell_without_ids_ends_the_outer_command_at_its_prompt() {
    let script = "{A}${B}{C;cmdline=bash}{A}${B}{C;cmdline=ls}a\n{D;0}{A}${B}{C;cmdline=exit}exit\n{D;0}{A}${B}";
    let expected = ["1!: bash = \"\" -> unreported ?", "2!: ls = \"a\\n\" -> 0", "3!: exit = \"exit\\n\" -> 0"];
    assert_eq!(commands(script), expected);
}

#[test]
fn a_gap_makes_a_range_incomplete_and_marks_beyond_it_count() {
    let mut pane = Pane::new();
    pane.print("{A}${B}{C;cmdline=make}one\n");
    pane.log.interrupt();
    pane.print("two\n{D;0}{A}${B}{C;cmdline=ls}a\n{D;0}");
    let expected = ["1!: make = \"one\\ntwo\\n\" -> 0 (not whole)", "2!: ls = \"a\\n\" -> 0"];
    assert_eq!(pane.commands(), expected);
}

#[test]
fn an_end_that_is_lost_in_a_gap_leaves_the_command_unreported() {
    let mut pane = Pane::new();
    pane.print("{+A}${+B}{+C;cmdline_url=make}one\n");
    pane.log.interrupt();
    pane.print("two\n$ ");
    assert_eq!(pane.commands(), ["1: make = \"one\\ntwo\\n$ \" -> runs (not whole)"]);
    pane.print("{+A}$ {+B}ls\r\n{+C;cmdline_url=ls}a\n{+D;0}");
    let expected = ["1: make = \"one\\ntwo\\n$ \" -> unreported ? (not whole)", "2: ls = \"a\\n\" -> 0"];
    assert_eq!(pane.commands(), expected);
}

#[test]
fn a_stream_that_begins_within_a_command_has_the_next_one_first() {
    assert_eq!(commands("half\n{D;0}{A}${B}{C;cmdline=ls}a\n{D;0}"), ["1!: ls = \"a\\n\" -> 0"]);
}

#[test]
fn directories_are_those_of_the_shell_that_runs() {
    let mut pane = Pane::new();
    pane.print("{7;file:///a}{A;aid=1}${B}{C}{7;file://box/b}{A;aid=2}%{B}{C}x{D;0;aid=2}{A;aid=2}");
    pane.print("%{D;0;aid=1}{A;aid=1}${B}{C}y{D}{7;file:///c}{A;aid=1}${B}{C}z");
    let directories: Vec<_> =
        pane.log.commands().map(|command| command.directory.as_ref().unwrap().path.clone()).collect();
    assert_eq!(directories, ["/a", "/b", "/a", "/c"]);
}

/// K6.
#[test]
fn the_latest_commands_are_kept_and_those_that_run() {
    let mut pane = Pane::new();
    pane.print("{+A}${+B}{+C;cmdline_url=ssh}");
    for number in 0..1500 {
        pane.print(&format!("{{A}}${{B}}{{C;cmdline={number}}}x\n{{D;0}}"));
    }
    let commands = pane.commands();
    assert_eq!(commands.len(), COMMANDS);
    assert!(commands[0].starts_with("1: ssh") && commands[1].starts_with("503<1!: 501 "), "{:?}", &commands[..2]);
    assert_eq!(pane.log.take_changes().len(), CHANGES);
    // Long lines are fewer.
    for _ in 0..600 {
        pane.print(&format!("{{A}}${{B}}{{C;cmdline={}}}{{D;0}}", "x".repeat(LINE_BYTES)));
    }
    assert!(pane.log.commands.held.bytes() <= COMMAND_TEXT_BYTES && pane.log.commands().len() > 200);
    let counted: usize = pane.log.commands().map(|command| Held::of(command).bytes()).sum();
    assert_eq!(counted, pane.log.commands.held.bytes());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// K3, K4, K6, for any output: cuts change nothing, numbers ascend, memory is counted, and only
    /// what carries the nonce is trusted.
    #[test]
    fn any_output_keeps_the_invariants(output in output(), cut in 1_usize..40, gap in 0_usize..30) {
        let (mut whole, mut pieces) = (Pane::new(), Pane::new());
        whole.log.trust("n".into());
        pieces.log.trust("n".into());
        whole.feed(&output);
        output.chunks(cut).for_each(|piece| pieces.feed(piece));
        prop_assert_eq!(whole.log.commands, pieces.log.commands);
        prop_assert_eq!(whole.log.changes, pieces.log.changes);

        let mut pane = Pane::new();
        for (number, piece) in output.chunks(cut).enumerate() {
            if number == gap {
                pane.log.interrupt();
            }
            pane.feed(piece);
        }
        let end = pane.bytes.len() as u64;
        let numbers: Vec<u64> = pane.log.commands().map(|command| command.number).collect();
        prop_assert!(numbers.is_sorted_by(|a, b| a < b));
        let counted = pane.log.commands().map(|command| Held::of(command).bytes()).sum::<usize>();
        prop_assert_eq!(pane.log.commands.held.bytes(), counted);
        prop_assert!(pane.log.commands().all(|command| !command.is_trusted));
        prop_assert!(pane.log.commands().all(|command| command.parent.is_none_or(|parent| parent != command.number)));
        pane.log.process_ended(end, None, None, Moment::default());
        for command in pane.log.commands() {
            let Output { start, end: to, .. } = command.output;
            prop_assert!(start <= to.unwrap() && to.unwrap() <= end && command.end.is_some());
        }
    }

    /// K3: whatever a program prints within a trusted command, the command is the same.
    #[test]
    fn no_output_changes_a_trusted_command(output in output()) {
        let mut pane = Pane::new();
        pane.print("{+A}$ {+B}cat x\r\n{+C;cmdline_url=cat%20x}begin ");
        pane.feed(&output);
        // Only a DCS whose last byte is ESC goes on after an `ESC \`.
        pane.feed(ST);
        prop_assume!(pane.decoder.state().string_start().is_none() || output.last() != Some(&0x1b));
        let end = pane.bytes.len() as u64;
        pane.print("{+D;3}{+A}$ {+B}");
        let command = pane.log.commands().find(|command| command.is_trusted).unwrap();
        prop_assert_eq!(command.line.as_ref().map(|line| line.text.as_str()), Some("cat x"));
        prop_assert_eq!((command.status, command.end), (Some(3), Some(End::Reported)));
        // A forged `D` directly before is where the output ended; only marks are behind it.
        let to = command.output.end.unwrap();
        prop_assert!(to <= end && command.output.is_whole);
        let rest = &pane.bytes[to as usize..end as usize];
        prop_assert!(to == end || rest.starts_with(b"\x1b]"), "{:?}", String::from_utf8_lossy(rest));
        prop_assert_eq!(pane.log.commands().filter(|command| command.is_trusted).count(), 1);
        prop_assert!(pane.log.running().is_none());
    }
}

/// What the shell integrations print directly before `133;D`.
const ST: &[u8] = b"\x1b\\";

/// K3: one `ESC \` ends each string that a program leaves open, a DCS at whose end an ESC is needs
/// two.
#[test]
fn an_open_string_swallows_no_trusted_end() {
    for open in
        ["\x1b]0;title", "\x1b]133;C;cmdline=x", "\x1bP1;2q data", "\x1b_apc", "\x1b^pm", "\x1bXsos", "\x1b[3", "\x1b"]
    {
        let mut pane = Pane::new();
        pane.print("{+A}${+B}{+C;cmdline_url=cat}x");
        pane.feed(open.as_bytes());
        pane.feed(ST);
        pane.print("{+D;3}{+A}");
        assert!(pane.commands()[0].ends_with("-> 3"), "{open:?}");
    }
    for (ends, end) in [(1, "runs"), (2, "3")] {
        let mut pane = Pane::new();
        pane.print("{+A}${+B}{+C;cmdline_url=cat}x");
        pane.feed(b"\x1bPq\x1b");
        pane.feed(&ST.repeat(ends));
        pane.print("{+D;3}{+A}");
        assert!(pane.commands()[0].ends_with(&format!("-> {end}")), "{:?}", pane.commands());
    }
}
