use std::time::Duration;

use muxtap_core::{
    marks::Moment,
    stream::{
        decoder::TextDecoder,
        text::{Control, Mark, TextSink},
    },
};

use super::*;

/// A log of commands with the stream that it comes from.
#[derive(Default)]
struct Pane {
    log: CommandLog,
    decoder: TextDecoder,
    end: u64,
}

struct Sink<'a>(&'a mut CommandLog);

impl TextSink for Sink<'_> {
    fn text(&mut self, _: u64, _: &[u8]) {}
    fn control(&mut self, _: u64, _: Control) {}
    fn mark(&mut self, start: u64, end: u64, mark: Mark<'_>) {
        let now = Moment { unix_ms: end, monotonic: Duration::from_millis(end) };
        self.0.mark(start, end, mark, now);
    }
}

impl Pane {
    /// Prints text with marks: `{C}` is `OSC 133 ; C`. Returns the end of the stream.
    fn print(&mut self, script: &str) -> u64 {
        let parts = script.split(['{', '}']).enumerate();
        let bytes: String = parts
            .map(|(at, part)| if at % 2 == 0 { part.to_owned() } else { format!("\x1b]133;{part}\x07") })
            .collect();
        self.decoder.feed(self.end, bytes.as_bytes(), &mut Sink(&mut self.log));
        self.end += bytes.len() as u64;
        self.end
    }

    fn now(&self) -> AwaitedCommand {
        self.requested(self.end, None, None)
    }

    fn requested(&self, requested: u64, unanswered_input: Option<u64>, status: Option<&str>) -> AwaitedCommand {
        let begin = Begin::Requested { requested, unanswered_input };
        AwaitedCommand::new(&self.log, begin, status.map(|status| status.parse().unwrap()))
    }
}

/// Returns the number of the command that a wait was satisfied by.
fn ended(awaited: &mut AwaitedCommand, pane: &Pane) -> Option<u64> {
    awaited.ended(&pane.log).map(|command| command.number)
}

#[test]
fn the_command_that_runs_is_awaited() {
    let mut pane = Pane::default();
    pane.print("{A}$ {B}one{C}x{D;0}{A}$ {B}two{C}");
    let mut awaited = pane.now();
    assert_eq!(ended(&mut awaited, &pane), None);
    pane.print("y{D;3}");
    assert_eq!(ended(&mut awaited, &pane), Some(2));
}

#[test]
fn at_a_prompt_the_next_command_is_awaited() {
    let mut pane = Pane::default();
    pane.print("{A}$ {B}one{C}x{D;0}{A}$ {B}");
    let mut awaited = pane.now();
    assert_eq!(ended(&mut awaited, &pane), None, "the earlier command does not count");
    pane.print("two{C}y{D;0}{A}$ {B}three{C}");
    assert_eq!(ended(&mut awaited, &pane), Some(2));
}

/// The offset at which a command that a wait returned ended.
fn answer(pane: &Pane, number: u64) -> Option<u64> {
    pane.log.command(number).unwrap().ended_at
}

#[test]
fn a_command_that_ended_before_the_request_counts_if_the_last_input_started_it() {
    let mut pane = Pane::default();
    let input = pane.print("{A}$ {B}");
    let requested = pane.print("one{C}x{D;1}{A}$ {B}");
    assert_eq!(ended(&mut pane.requested(requested, Some(input), None), &pane), Some(1));
    let answered = answer(&pane, 1);
    assert_eq!(ended(&mut pane.requested(requested, answered, None), &pane), None, "it was answered");
    // A command that a person runs meanwhile.
    pane.print("two{C}");
    assert_eq!(ended(&mut pane.requested(pane.end, Some(input), None), &pane), None, "another one runs");
    pane.print("y{D;0}{A}");
    let latest = ended(&mut pane.requested(pane.end, Some(input), None), &pane);
    assert_eq!(latest, Some(2), "the last one counts");
}

#[test]
fn a_command_that_prints_nothing_is_answered_once() {
    let mut pane = Pane::default();
    let input = pane.print("{A}$ {B}");
    pane.print("true{C}{D;0}{A}$ {B}");
    assert_eq!(ended(&mut pane.requested(pane.end, Some(input), None), &pane), Some(1));
    let answered = answer(&pane, 1);
    assert_eq!(ended(&mut pane.requested(pane.end, answered, None), &pane), None);
    let mut from_answer = AwaitedCommand::new(&pane.log, Begin::At(answered.unwrap()), None);
    assert_eq!(ended(&mut from_answer, &pane), None, "the cursor of an answer is after its command");
}

#[test]
fn input_that_is_typed_ahead_of_a_silent_command_did_not_start_it() {
    let mut pane = Pane::default();
    let input = pane.print("{A}$ {B}sleep{C}");
    pane.print("{D;0}{A}$ {B}");
    assert_eq!(ended(&mut pane.requested(pane.end, Some(input), None), &pane), None);
}

#[test]
fn a_status_that_another_integration_reports_later_counts() {
    let mut pane = Pane::default();
    pane.print("{A}$ {B}one{C}");
    let mut succeeded = pane.requested(pane.end, None, Some("0"));
    pane.print("x{D}");
    assert_eq!(ended(&mut succeeded, &pane), None);
    pane.print("{D;0}");
    assert_eq!(ended(&mut succeeded, &pane), Some(1));
}

#[test]
fn a_command_that_ends_between_request_and_look_counts() {
    let mut pane = Pane::default();
    let requested = pane.print("{A}$ {B}one{C}x");
    pane.print("y{D;0}{A}$ {B}two{C}");
    assert_eq!(ended(&mut pane.requested(requested, None, None), &pane), Some(1));
}

#[test]
fn from_a_cursor_the_first_command_that_ended_after_it_counts() {
    let mut pane = Pane::default();
    let first = pane.print("{A}$ {B}one{C}x{D;0}");
    pane.print("{A}$ {B}two{C}y{D;0}{A}$ {B}three{C}y{D;0}{A}");
    assert_eq!(ended(&mut AwaitedCommand::new(&pane.log, Begin::At(0), None), &pane), Some(1));
    assert_eq!(ended(&mut AwaitedCommand::new(&pane.log, Begin::At(first), None), &pane), Some(2));
    assert_eq!(ended(&mut AwaitedCommand::new(&pane.log, Begin::At(pane.end), None), &pane), None);
}

#[test]
fn commands_with_another_status_are_passed_over() {
    let mut pane = Pane::default();
    pane.print("{A}$ {B}one{C}");
    let mut failed = pane.requested(pane.end, None, Some("!0"));
    pane.print("x{D;0}{A}$ {B}two{C}x{D;0}{A}$ {B}three{C}x{D;2}{A}$ {B}four{C}x{D;3}");
    assert_eq!(ended(&mut failed, &pane), Some(3), "in one chunk");
    let mut two = AwaitedCommand::new(&pane.log, Begin::At(0), Some("2".parse().unwrap()));
    assert_eq!(ended(&mut two, &pane), Some(3));
    let mut nine = AwaitedCommand::new(&pane.log, Begin::At(0), Some("9".parse().unwrap()));
    assert_eq!(ended(&mut nine, &pane), None);
    pane.print("{A}$ {B}five{C}x{D;9}");
    assert_eq!(ended(&mut nine, &pane), Some(5));
}

/// Where a wait is requested, in the next test.
fn trusted_pane(before: &str, forged: &str) -> Pane {
    let mut pane = Pane::default();
    pane.log.trust(NONCE.into());
    pane.print(&format!("{}$ {}", trusted("A"), trusted("B")));
    pane.print(before);
    pane.print(forged);
    pane
}

const NONCE: &str = "0123456789abcdef";

fn trusted(step: &str) -> String {
    format!("{{{step};muxtap={NONCE}}}")
}

/// K3: marks that programs print end no wait in a pane whose shell is trusted.
#[test]
fn forged_marks_end_no_wait_in_a_trusted_shell() {
    let forged = ["{A}$ {B}forged{C}x{D;0}{D;0}", "{A}", "{A}$ {B}x{C}", "{C}", "{D;0}"];
    for forged in forged {
        // In a command that runs: before and after the request.
        let mut pane = trusted_pane(&trusted("C"), forged);
        let mut awaited = pane.now();
        pane.print("{C}y{D;0}");
        assert_eq!(ended(&mut awaited, &pane), None, "{forged}");
        pane.print(&trusted("D;1"));
        assert_eq!(ended(&mut awaited, &pane), Some(1), "{forged}");
        // At the prompt, by a background job.
        let mut pane = trusted_pane("", forged);
        let mut awaited = pane.now();
        pane.print("{C}y{D;0}");
        assert_eq!(ended(&mut awaited, &pane), None, "{forged}");
        pane.print(&format!("{}x{}", trusted("C"), trusted("D;1")));
        let command = awaited.ended(&pane.log).unwrap();
        assert_eq!((command.is_trusted, command.status), (true, Some(1)), "{forged}");
        // In a command that muxtap typed, which ended before the request.
        let mut pane = trusted_pane(&trusted("C"), forged);
        pane.print(&trusted("D;1"));
        let mut awaited = pane.requested(pane.end, Some(5), None);
        assert_eq!(awaited.ended(&pane.log).unwrap().status, Some(1), "{forged}");
    }
}

#[test]
fn in_a_shell_in_a_shell_the_inner_commands_are_awaited() {
    let mut pane = Pane::default();
    pane.print("{A;aid=1}$ {B}ssh{C;aid=1}{A;aid=2}$ {B}");
    let mut awaited = pane.now();
    pane.print("make{C;aid=2}");
    assert_eq!(ended(&mut awaited, &pane), None);
    pane.print("x{D;0;aid=2}");
    assert_eq!(ended(&mut awaited, &pane), Some(2));
}

#[test]
fn a_command_that_is_no_longer_kept_is_passed_over() {
    let mut pane = Pane::default();
    pane.print("{A}$ {B}");
    let mut awaited = pane.now();
    for _ in 0..1500 {
        pane.print("{C}x{D;0}");
    }
    assert_eq!(ended(&mut awaited, &pane), Some(501));
}
