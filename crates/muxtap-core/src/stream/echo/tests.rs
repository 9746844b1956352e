use super::*;
use crate::stream::decoder::TextDecoder;

/// A pane in which text is typed and printed.
#[derive(Default)]
struct Pane {
    filter: EchoFilter,
    decoder: TextDecoder,
    printed: String,
}

impl Pane {
    fn with(printed: &str) -> Self {
        Self { printed: printed.to_owned(), ..Self::default() }
    }
    fn typed(mut self, text: &str, resting: &str, tty_echo: bool) -> Self {
        self.filter.typed(self.printed.len() as u64, text.as_bytes(), resting, 80, tty_echo);
        self
    }
    fn prints(mut self, text: &str) -> Self {
        if !self.filter.is_idle() {
            self.decoder.feed(self.printed.len() as u64, text.as_bytes(), &mut self.filter);
        }
        self.printed.push_str(text);
        self
    }
    /// Returns the kind of each occurrence: E for an echo, A for output, ? for undecided.
    fn verdicts(&self, pattern: &str) -> String {
        let verdict = |(at, found): (usize, &str)| match self.filter.verdict(at as u64, (at + found.len()) as u64) {
            Verdict::Echo => 'E',
            Verdict::Answer => 'A',
            Verdict::Undecided => '?',
        };
        self.printed.match_indices(pattern).map(verdict).collect()
    }
}

#[test]
fn what_is_typed_behind_a_prompt_is_an_echo_and_the_next_line_is_not() {
    let pane = Pane::with("$ ").typed("echo OK\r", "$ ", false).prints("echo OK");
    assert_eq!(pane.verdicts("OK"), "E");
    let pane = pane.prints("\r\nOK\r\n");
    assert_eq!(pane.verdicts("OK"), "EA");
    assert_eq!(pane.verdicts("echo OK\r\n"), "E");
    assert_eq!(pane.verdicts("OK\r\nOK"), "A", "a match that reaches beyond the echo is output");
    assert!(pane.filter.is_idle());
}

#[test]
fn a_match_in_the_first_part_of_an_echo_waits_for_the_rest() {
    let pane = Pane::with("$ ").typed("echo OK; sleep 1\r", "$ ", false).prints("echo OK");
    assert_eq!(pane.verdicts("OK"), "?");
    assert_eq!(pane.prints("AY").verdicts("OK"), "A");
}

#[test]
fn a_prompt_that_stood_before_the_input_is_no_echo() {
    let pane = Pane::with("$ ").typed("ls\r", "$ ", false).prints("ls\r\n$ ");
    assert_eq!(pane.verdicts("$ "), "AA");
    assert_eq!(pane.verdicts("$ ls"), "E");
}

#[test]
fn another_answer_on_the_same_line_is_an_answer() {
    let pane = Pane::with("Go on? ").typed("y", "Go on? ", true).prints("yes sir");
    assert_eq!(pane.verdicts("yes sir"), "A");
    let pane = Pane::with("> ").typed("hello\r", "> ", false).prints("got: hello");
    assert_eq!(pane.verdicts("hello"), "A");
}

#[test]
fn a_progress_bar_moves_on_although_something_was_typed() {
    let pane = Pane::with("at 10 %").typed("q", "at 10 %", false).prints("\rat 11 %");
    assert_eq!(pane.verdicts("11"), "A");
    let pane = Pane::with("loading...").typed("q", "loading...", false).prints("\rdone");
    assert_eq!(pane.verdicts("done"), "A");
}

/// A `run` draws its command over its typed text: the cursor moves up and stays there.
#[test]
fn what_is_printed_above_an_earlier_line_is_an_answer() {
    let pane = Pane::with("$ ").typed("true\r", "$ ", true).prints("true\r\n$ ");
    let pane = pane.prints("^R\r\n a long line\r\n\x1b[2A\x1b[3G\x1b[Jtrue\r\n\x1b]7717;a;e;0\x07$ ");
    let pane = pane.typed("echo f\"\"in\r", "$ ", true).prints("echo f\"\"in\r\nfin\r\n$ ");
    assert_eq!(pane.verdicts("fin"), "A");
    assert_eq!(pane.verdicts("echo f"), "E");
}

#[test]
fn rows_that_are_drawn_anew_above_the_typed_line_are_answers() {
    let pane = Pane::with("one\r\ntwo\r\n").typed("q", "", false);
    let pane = pane.prints("\x1b[2A\x1b[2Kone: done\r\n\x1b[2Ktwo: done\r\n");
    assert_eq!(pane.verdicts("done"), "AA");
    let pane = pane.prints("\x1b[2A\x1b[Jall went\r\nwell\r\n").typed("again\r", "", false);
    assert_eq!(pane.verdicts("we"), "AA");
    assert_eq!(pane.prints("and again\r\n").verdicts("again"), "A");
}

/// A prompt of two rows that is redrawn, as zsh does, and a prompt that is redrawn shorter when its
/// line is entered.
#[test]
fn an_echo_that_is_drawn_anew_with_the_rows_above_it_is_an_echo() {
    let pane = Pane::with("~/x\r\n: ").typed("echo OK\r", ": ", false).prints("echo");
    let pane = pane.prints("\r\x1b[A\x1b[J~/y\r\n: echo OK");
    assert_eq!(pane.verdicts("OK"), "E");
    assert_eq!(pane.prints("\r\nOK\r\n").verdicts("OK"), "EA");
    let pane = Pane::with("~/x\r\n: ").typed("echo OK\r", ": ", false).prints("echo OK");
    let pane = pane.prints("\r\x1b[A\x1b[J: echo OK\r\nOK\r\n");
    assert_eq!(pane.verdicts("OK"), "EEA");
}

#[test]
fn what_is_typed_in_pieces_is_one_line() {
    let pane = Pane::with("$ ").typed("echo ", "$ ", false).typed("OK", "$ ", false).typed("\r", "$ ", false);
    let pane = pane.prints("echo ").prints("OK\r\nOK\r\n");
    assert_eq!(pane.verdicts("OK"), "EA");
    let pane = Pane::with("$ ").typed("echo ", "$ ", false).prints("echo ").typed("OK", "$ echo ", false);
    let pane = pane.prints("OK\r\nOK\r\n");
    assert_eq!(pane.verdicts("OK"), "EA");
}

#[test]
fn keys_without_characters_are_never_echoed() {
    let pane = Pane::with("$ ").typed("\r", "$ ", false).typed("\u{1b}[A", "$ ", false).typed("\u{3}", "$ ", false);
    assert!(pane.filter.is_idle());
}

#[test]
fn of_too_many_lines_the_oldest_are_not_expected() {
    let lines = |input: usize| (0..40).fold(String::new(), |text, line| text + &format!("echo {input}-{line}\r"));
    // Typed in several inputs, and in one.
    for inputs in [vec![lines(1); 10], vec![lines(1).repeat(10)]] {
        let mut pane = inputs.iter().fold(Pane::with("$ "), |pane, input| pane.typed(input, "$ ", false));
        pane = pane.typed("echo LAST\r", "$ ", false);
        assert!(pane.filter.expected.len() <= LINES);
        assert_eq!(pane.prints("echo LAST\r\nLAST\r\n").verdicts("LAST"), "EA");
    }
    let pane = Pane::with("$ ").typed(&(lines(1).repeat(10) + "echo LAST\r"), "$ ", false);
    assert_eq!(pane.prints("$ echo LAST\r\nLAST\r\n").verdicts("LAST"), "EA");
}

#[test]
fn a_kernel_echo_in_the_middle_of_a_flood_is_found() {
    let pane = Pane::with("line 1\r\nli").typed("echo OK\r", "li", true).prints("ne 2\r\nliecho OK\r\nne 3\r\n");
    assert_eq!(pane.verdicts("OK"), "E");
    let pane = pane.prints("echo OK\r\n");
    assert_eq!(pane.verdicts("OK"), "EA", "the kernel echoes once");
}

#[test]
fn what_was_typed_ahead_is_echoed_again_behind_a_known_prompt_only() {
    let pane = Pane::with("~ $ ").typed("sleep 1\r", "~ $ ", false).prints("sleep 1\r\n");
    let pane = pane.typed("echo OK\r", "", true).prints("echo OK\r\nname: echo OK\r\n/tmp $ echo OK\r\nOK\r\n");
    assert_eq!(pane.verdicts("echo OK"), "EAE");
}

#[test]
fn a_summary_that_repeats_a_question_is_an_answer() {
    let pane = Pane::with("Name: ").typed("bob\r", "Name: ", true).prints("bob\r\nName: bob\r\n");
    assert_eq!(pane.verdicts("bob"), "EA");
}

#[test]
fn an_echo_is_remembered_after_the_filter_rests() {
    let mut pane = Pane::with("$ ").typed("echo OK\r", "$ ", false).prints("echo OK\r\nOK\r\n$ ");
    for _ in 0..20 {
        pane = pane.typed("true\r", "$ ", false).prints("true\r\n$ ");
    }
    assert_eq!(pane.verdicts("OK"), "EA");
}

#[test]
fn output_after_a_gap_is_not_held_against_the_old_line() {
    let mut pane = Pane::with("$ ").typed("OK\r", "$ ", false);
    pane.filter.interrupt();
    assert_eq!(pane.prints("OK\r\n").verdicts("OK"), "A");
}

proptest::proptest! {
    /// Whatever is typed and printed, the filter returns a verdict and its memory is bounded.
    #[test]
    fn no_bytes_make_it_fail(
        typed in proptest::collection::vec(crate::stream::decoder::tests::terminal_bytes(), 1..4),
        printed in crate::stream::decoder::tests::terminal_bytes(),
        columns in 0_u16..30,
    ) {
        let mut filter = EchoFilter::default();
        let mut decoder = TextDecoder::default();
        let mut at = 0;
        for typed in &typed {
            filter.typed(at, typed, String::from_utf8_lossy(typed).into_owned(), columns, columns.is_multiple_of(2));
            for bytes in [&printed, typed] {
                decoder.feed(at, bytes, &mut filter);
                at += bytes.len() as u64;
                filter.verdict(at / 2, at);
            }
        }
    }
}
