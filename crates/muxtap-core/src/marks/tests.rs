use proptest::prelude::*;

use super::*;
use crate::{
    protocol::version::Version,
    screen::{self, CaptureOptions, Rules, Screen, Settings, Size},
    stream::{
        decoder::{PAYLOAD_LIMIT, TextDecoder},
        render::render_bytes,
        text::{Control, TextSink},
    },
};

/// Copies a payload for the rest of the test: the meaning of a mark borrows it.
fn leaked(payload: &[u8]) -> &'static [u8] {
    payload.to_vec().leak()
}

/// Collects the meanings of marks.
#[derive(Default)]
struct Signs(Vec<Option<Sign<'static>>>);

impl TextSink for Signs {
    fn text(&mut self, _: u64, _: &[u8]) {}
    fn control(&mut self, _: u64, _: Control) {}
    fn mark(&mut self, _: u64, _: u64, mark: Mark<'_>) {
        self.0.push(parse(match mark {
            Mark::Bell => Mark::Bell,
            Mark::Title(payload) => Mark::Title(leaked(payload)),
            Mark::Prompt(payload) => Mark::Prompt(leaked(payload)),
            Mark::Osc(payload) => Mark::Osc(leaked(payload)),
            Mark::Long(payload) => Mark::Long(leaked(payload)),
        }));
    }
}

/// Collects the text and the controls, without their offsets.
#[derive(Debug, Default, PartialEq)]
struct Text(Vec<Result<String, Control>>);

impl TextSink for Text {
    fn text(&mut self, _: u64, text: &[u8]) {
        let text = std::str::from_utf8(text).unwrap();
        match self.0.last_mut() {
            Some(Ok(before)) => before.push_str(text),
            _ => self.0.push(Ok(text.to_owned())),
        }
    }
    fn control(&mut self, _: u64, control: Control) {
        self.0.push(Err(control));
    }
}

/// Returns what waits and reads see of the output.
fn text(bytes: &[u8]) -> Text {
    let mut text = Text::default();
    TextDecoder::default().feed(0, bytes, &mut text);
    text
}

fn signs(bytes: &[u8]) -> Vec<Option<Sign<'static>>> {
    let mut signs = Signs::default();
    TextDecoder::default().feed(0, bytes, &mut signs);
    signs.0
}

/// Returns the meaning of one OSC.
fn sign(payload: &str) -> Option<Sign<'static>> {
    let signs = signs(format!("\x1b]{payload}\x07").as_bytes());
    assert_eq!(signs.len(), 1, "{payload:?}");
    signs.into_iter().next().unwrap()
}

fn shell(payload: &str) -> ShellMark<'static> {
    let Some(Sign::Shell(mark)) = sign(payload) else { panic!("{payload:?}") };
    mark
}

fn line(payload: &str) -> Option<String> {
    match shell(payload).step {
        Step::Output { line } => line.map(|line| line.text),
        Step::Line(line) => Some(line.text),
        _ => None,
    }
}

fn directory(payload: &str) -> Option<(String, Option<String>)> {
    match sign(payload) {
        Some(Sign::Directory(directory)) => Some((directory.path, directory.host)),
        _ => None,
    }
}

#[test]
fn osc_133_has_steps_and_options() {
    assert_eq!(shell("133;A;cl=m;aid=12").step, Step::Prompt);
    assert_eq!(shell("133;A;cl=m;aid=12").aid, Some("12"));
    assert_eq!(shell("133;A;k=i").step, Step::Prompt);
    for part in ["133;A;k=s", "133;A;k=c", "133;P;k=r", "133;P"] {
        assert_eq!(shell(part).step, Step::PromptPart, "{part}");
    }
    assert_eq!(shell("133;B").step, Step::Input);
    assert_eq!(shell("133;C").step, Step::Output { line: None });
    for (end, status) in [("133;D", None), ("133;D;0", Some(0)), ("133;D;130;aid=1", Some(130)), ("133;D;aid=1", None)]
    {
        assert_eq!(shell(end).step, Step::End { status }, "{end}");
    }
    assert_eq!(shell("133;D;3;muxtap=abc").nonce, Some("abc"));
    for other in ["133;", "133;X", "133;AA", "133", "134;A"] {
        assert_eq!(sign(other), None, "{other}");
    }
}

#[test]
fn a_command_line_comes_quoted_percent_encoded_or_with_backslashes() {
    assert_eq!(line(r"133;C;cmdline=echo\ a\;\ b").unwrap(), "echo a; b");
    assert_eq!(line(r"133;C;cmdline=$'cat <<E\na;b\nE';aid=7").unwrap(), "cat <<E\na;b\nE");
    assert_eq!(shell(r"133;C;cmdline=$'cat <<E\na;b\nE';aid=7").aid, Some("7"));
    assert_eq!(line("133;C;muxtap=n;cmdline_url=echo%20%22a%3Bb%22%0Als").unwrap(), "echo \"a;b\"\nls");
    assert_eq!(line(r"633;E;echo \x3b \\n \x0als;nonce").unwrap(), "echo ; \\n \nls");
    assert_eq!(line("133;C;cmdline=   "), None);
    assert_eq!(line("133;C;cmdline_url=a%1b%5b31mb%07").unwrap(), "a[31mb");
}

#[test]
fn osc_633_has_the_same_steps() {
    assert_eq!(shell("633;A").step, Step::Prompt);
    assert_eq!(shell("633;D").step, Step::End { status: None });
    assert_eq!(shell("633;D;7").step, Step::End { status: Some(7) });
    assert_eq!(directory(r"633;P;Cwd=/a\x3bb\\c"), Some((r"/a;b\c".into(), None)));
    assert_eq!(sign("633;P;IsWindows=False"), None);
}

#[test]
fn osc_3008_has_contexts_with_systemds_own_escapes() {
    let start = r"3008;start=0b5a;user=u;hostname=h;pid=3;type=command;cwd=/a\x3bb\x5xc\x5cd";
    let Some(Sign::ContextStart(start)) = sign(start) else { panic!() };
    assert_eq!((start.id.as_str(), start.kind), ("0b5a", ContextKind::Command));
    let directory = start.directory.unwrap();
    assert_eq!((directory.path.as_str(), directory.host.as_deref()), (r"/a;b\c\d", Some("h")));
    let end = |payload| match sign(payload) {
        Some(Sign::ContextEnd(end)) => (end.status, end.signal),
        other => panic!("{other:?}"),
    };
    assert_eq!(end("3008;end=x;exit=success"), (Some(0), None));
    assert_eq!(end("3008;end=x;exit=failure;status=3"), (Some(3), None));
    assert_eq!(end("3008;end=x;exit=interrupt;signal=SIGINT"), (None, Some("SIGINT".into())));
    for other in ["3008;start=;type=shell", "3008;start=x", "3008;start=a b;type=shell", "3008;x"] {
        assert_eq!(sign(other), None, "{other}");
    }
}

#[test]
fn directories_come_in_four_forms() {
    assert_eq!(directory("7;file://box/a%20b/%C3%BC"), Some(("/a b/\u{fc}".into(), Some("box".into()))));
    assert_eq!(directory("7;file:///a"), Some(("/a".into(), None)));
    assert_eq!(directory("1337;CurrentDir=/a b"), Some(("/a b".into(), None)));
    assert_eq!(directory("9;9;\"C:\\a\""), Some((r"C:\a".into(), None)));
    for other in ["7;/a", "7;http://h/a", "7;file://h", "7;file:///a%0ab", "1337;CurrentDir=", "1337;RemoteHost=u@h"] {
        assert_eq!(directory(other), None, "{other}");
    }
}

#[test]
fn progress_is_bounded_and_other_commands_of_conemu_are_no_notification() {
    let progress = |payload| match sign(payload) {
        Some(Sign::Progress(progress)) => Some((progress.state, progress.percent)),
        _ => None,
    };
    assert_eq!(progress("9;4;1;42"), Some((ProgressState::Running, Some(42))));
    assert_eq!(progress("9;4;2;4242"), Some((ProgressState::Failed, Some(100))));
    assert_eq!(progress("9;4;3"), Some((ProgressState::Unknown, None)));
    assert_eq!(progress("9;4;0;"), Some((ProgressState::Ended, None)));
    for other in ["9;4;5;1", "9;4;", "9;1;300", "9;12;x"] {
        assert_eq!(sign(other), None, "{other}");
    }
    assert!(matches!(sign("9;4 files; done"), Some(Sign::Notification(_))));
}

/// Feeds notifications through a joiner.
fn shown(payloads: &[&str]) -> Vec<(String, String)> {
    let mut joiner = notification::Joiner::default();
    let parts = payloads.iter().filter_map(|payload| match sign(payload) {
        Some(Sign::Notification(part)) => Some(part),
        _ => None,
    });
    parts.flat_map(|part| joiner.add(part)).map(|shown| (shown.title, shown.body)).collect()
}

#[test]
fn notifications_are_joined_from_their_parts() {
    let one = |title: &str, body: &str| (title.to_owned(), body.to_owned());
    assert_eq!(shown(&["9;done\u{9b}2J"]), [one("", "done2J")]);
    assert_eq!(shown(&["777;notify;Build;ok; all"]), [one("Build", "ok; all")]);
    assert_eq!(shown(&["99;;Hello"]), [one("Hello", "")]);
    let parts =
        ["99;i=1:d=0;Hel", "99;i=2;other", "99;i=1:d=0:p=icon;x", "99;i=1:d=0;lo", "99;i=1:p=body:e=1;d29ybGQ="];
    assert_eq!(shown(&parts), [one("other", ""), one("Hello", "world")]);
    // A notification that is complete by itself takes no part that another program left open.
    assert_eq!(shown(&["99;d=0;open", "9;done", "777;notify;Build;ok"]), [one("", "done"), one("Build", "ok")]);
    assert_eq!(shown(&["99;d=0;Hel", "9;done", "99;;lo"]), [one("", "done"), one("Hello", "")]);
    assert_eq!(shown(&["99;e=1;no base64"]), [one("no base64", "")]);
    // The earliest of too many is shown as it is.
    let open: Vec<String> = (0..5).map(|id| format!("99;i={id}:d=0;t{id}")).collect();
    assert_eq!(shown(&open.iter().map(String::as_str).collect::<Vec<_>>()), [one("t0", "")]);
    let long = format!("99;i=1:d=0;{}", "x".repeat(4000));
    assert_eq!(shown(&[&long, &long, "99;i=1;"])[0].0.len(), NOTIFICATION_BYTES);
}

/// K4: a long line costs its end, not the begin of the command.
#[test]
fn a_mark_that_is_too_long_keeps_its_step_and_its_lines_beginning() {
    let mark = shell(&format!("133;C;muxtap=abc;cmdline_url={}", "a%20".repeat(PAYLOAD_LIMIT)));
    assert_eq!(mark.nonce, Some("abc"));
    let Step::Output { line: Some(line) } = mark.step else { panic!("{:?}", mark.step) };
    assert!(line.is_cut && line.text.starts_with("a a a") && line.text.len() <= LINE_BYTES);
    let Step::Output { line: Some(line) } = shell(&format!("133;C;cmdline='{}", "a;".repeat(PAYLOAD_LIMIT))).step
    else {
        panic!()
    };
    assert!(line.is_cut && line.text.len() == LINE_BYTES);
    let Step::Line(line) = shell(&format!("633;E;{}", "a".repeat(PAYLOAD_LIMIT))).step else { panic!() };
    assert!(line.is_cut);
    let context = format!("3008;start=x;type=command;user=u;cwd=/{}", "a".repeat(PAYLOAD_LIMIT));
    let Some(Sign::ContextStart(context)) = sign(&context) else { panic!() };
    assert_eq!((context.kind, context.directory), (ContextKind::Command, None));
    for other in [format!("7;file:///{}", "a".repeat(PAYLOAD_LIMIT)), format!("9;{}", "a".repeat(PAYLOAD_LIMIT))] {
        assert_eq!(sign(&other), None);
    }
}

#[test]
fn each_kind_has_a_name() {
    let payloads = ["133;A", "633;A", "3008;end=x", "7;file:///a", "9;4;0", "9;text"];
    assert_eq!(payloads.map(|payload| sign(payload).unwrap().kind()), Sign::KINDS);
}

/// Generates a complete mark of a shell.
fn mark() -> impl Strategy<Value = String> {
    let payload = prop_oneof![
        "133;[ABCD](;[0-9]{1,3})?(;muxtap=n)?",
        "133;C;cmdline_url=[a-z%0-9]{0,9}",
        "633;[ABCDE];[ -~]{0,9}",
        "3008;(start|end)=[a-z]{1,3};type=(shell|command)",
        "7;file://h/[a-z]{0,5}",
        "9;4;[0-4];[0-9]{1,3}",
        "99;i=[0-9]:d=[01];[ -~]{0,9}",
    ];
    (payload, prop_oneof![Just("\x07"), Just("\x1b\\")]).prop_map(|(payload, end)| format!("\x1b]{payload}{end}"))
}

/// Generates text and whole control sequences.
fn printed() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => "[ -~\u{e9}\u{4e2d}\t]{0,9}(\r\n)?",
        1 => "[\r\n\u{8}]{0,3}",
        1 => "\u{1b}\\[[0-9]{0,2}[ABCDGHJKPX@m]",
    ]
}

/// Returns a capture of the screen after some output, with its history and attributes, and the
/// cursor.
fn drawn(bytes: &[u8]) -> (String, String) {
    let rules = Rules::for_version(Version::parse(b"3.3a").unwrap());
    let mut screen = Screen::new(Size { columns: 12, rows: 5 }, rules, Settings::default());
    screen.feed(bytes);
    let options = CaptureOptions { start: screen::Line::Edge, escapes: true, ..CaptureOptions::default() };
    (screen.capture(&options).escape_ascii().to_string(), format!("{:?}", screen.cursor()))
}

/// Generates marks, nearly marks, and other output.
pub(super) fn output() -> impl Strategy<Value = Vec<u8>> {
    let number = prop_oneof![
        Just("133"),
        Just("633"),
        Just("3008"),
        Just("7"),
        Just("9"),
        Just("9;4"),
        Just("99"),
        Just("777;notify"),
        Just("1337"),
        Just("2")
    ];
    let field = prop_oneof![
        4 => "[ABCDEP]",
        2 => "[0-9]{1,3}",
        2 => "(aid|k|muxtap|cmdline|cmdline_url|i|d|p|e|Cwd|CurrentDir)=[ -~]{0,9}",
        1 => "(start|end|type|cwd|exit|status|signal)=[ -~]{0,9}",
        2 => "(muxtap=n|start=a|end=a|start=b|end=b|type=shell|type=command|aid=1|aid=2)",
        1 => "file://h/[%a-f0-9/]{0,9}",
        2 => "[ -~\u{80}-\u{ff}]{0,12}",
    ];
    let fields = proptest::collection::vec(field, 0..5);
    let end = prop_oneof![5 => Just("\x07"), 5 => Just("\x1b\\"), 1 => Just("\x18"), 1 => Just("")];
    let mark = (number, fields, end)
        .prop_map(|(number, fields, end)| format!("\x1b]{number};{}{end}", fields.join(";")).into_bytes());
    let piece = prop_oneof![
        6 => mark,
        2 => "[ -~]{0,12}(\r\n)?".prop_map(String::into_bytes),
        1 => "\u{1b}\\[[0-9;?]{0,4}[A-Za-z]".prop_map(String::into_bytes),
        1 => proptest::collection::vec(any::<u8>(), 1..6),
    ];
    proptest::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// K4: marks have the same meaning wherever the output is cut.
    #[test]
    fn any_cut_gives_the_same_signs(output in output(), cut in 1_usize..40) {
        let mut cut_up = Signs::default();
        let mut decoder = TextDecoder::default();
        let mut offset = 0;
        for piece in output.chunks(cut) {
            decoder.feed(offset, piece, &mut cut_up);
            offset += piece.len() as u64;
        }
        prop_assert_eq!(cut_up.0, signs(&output));
    }

    /// K1: text and controls with marks in between are those without them, and so is the screen.
    #[test]
    fn marks_leave_the_text_as_it_is(pieces in proptest::collection::vec((printed(), mark()), 0..20)) {
        let plain: Vec<u8> = pieces.iter().flat_map(|(text, _)| text.bytes()).collect();
        let marked: Vec<u8> = pieces.iter().flat_map(|(text, mark)| text.bytes().chain(mark.bytes())).collect();
        prop_assert_eq!(text(&marked), text(&plain));
        prop_assert_eq!(render_bytes(&marked), render_bytes(&plain));
        prop_assert_eq!(drawn(&marked), drawn(&plain));
    }

    #[test]
    fn any_payload_has_a_meaning_or_none(number in "(133|633|3008|7|9|99|777|1337)", rest: Vec<u8>) {
        let payload = [number.as_bytes(), b";", &rest].concat();
        parse(Mark::Osc(&payload));
        parse(Mark::Long(&payload));
        parse(Mark::Prompt(&rest));
    }
}
