//! Tests of the redactor.

use std::time::Duration;

use proptest::prelude::*;

use super::*;

fn secrets(patterns: &[&str]) -> Secrets {
    Secrets::new(&patterns.iter().map(|pattern| (*pattern).to_owned()).collect::<Vec<_>>()).unwrap()
}

fn size(columns: u16) -> Size {
    Size { width: columns, height: 24 }
}

/// Returns the output for these chunks: at once, and when the pane rests.
fn redacted(patterns: &[&str], chunks: &[&[u8]]) -> (String, String) {
    let mut redactor = Redactor::new(secrets(patterns), size(80));
    let text = |pieces: Vec<Piece>| String::from_utf8(pieces.into_iter().flat_map(|(_, bytes)| bytes).collect());
    let mut at_once = String::new();
    for chunk in chunks {
        at_once += &text(redactor.feed(Duration::ZERO, chunk)).unwrap();
    }
    (at_once, text(redactor.flush(Duration::ZERO)).unwrap())
}

fn whole(patterns: &[&str], chunks: &[&[u8]]) -> String {
    let (at_once, rest) = redacted(patterns, chunks);
    at_once + &rest
}

#[test]
fn a_secret_becomes_as_many_stars_however_it_is_cut() {
    let output = b"$ login hunter2 now\r\nnext".as_slice();
    for cut in 0..output.len() {
        let (one, two) = output.split_at(cut);
        assert_eq!(whole(&["hunter2"], &[one, two]), "$ login ******* now\r\nnext", "cut at {cut}");
    }
    let bytes: Vec<&[u8]> = output.chunks(1).collect();
    assert_eq!(whole(&["hunter2"], &bytes), "$ login ******* now\r\nnext");
}

#[test]
fn escape_sequences_between_its_characters_stay() {
    assert_eq!(whole(&["hunter2"], &[b"hu\x1b[1mnt", b"er\x1b[0m2!"]), "**\x1b[1m****\x1b[0m*!");
    // As zsh colors what is typed: each character again, with another style.
    assert_eq!(
        whole(&["abc"], &[b"\x1b[4ma\x1b[24m", b"\x08\x1b[4ma\x1b[4mb\x1b[24m", b"\x08\x08abc"]).matches('*').count(),
        6
    );
    let typed = whole(&["abc"], &[b"\x1b[4ma\x1b[24m", b"\x08\x1b[4ma\x1b[4mb\x1b[24m", b"\x08\x08abc"]);
    assert!(!typed.contains(['a', 'b', 'c']), "{typed:?}");
}

#[test]
fn what_may_become_one_is_held_and_what_cannot_is_not() {
    assert_eq!(redacted(&["hunter2"], &[b"say hun"]), ("say ".into(), "hun".into()));
    assert_eq!(redacted(&["hunter2"], &[b"say hun", b"ger"]), ("say hunger".into(), String::new()));
    assert_eq!(redacted(&["hunter2"], &[b"say hun", b"\r\n"]), ("say hun\r\n".into(), String::new()));
    // An endless match is replaced as it comes.
    assert_eq!(redacted(&[r"token=\S+"], &[b"token=a", b"bc", b"d"]), ("**********".into(), String::new()));
    assert_eq!(whole(&[r"token=\S+"], &[b"token=a", b"bc d"]), "********* d");
}

#[test]
fn wide_characters_become_two_stars() {
    assert_eq!(whole(&["geheim\u{4e16}\u{754c}"], &["x geheim\u{4e16}\u{754c} y".as_bytes()]), "x ********** y");
    let text = "\u{e9}\u{4e16}\u{1f600}!".as_bytes();
    for cut in 0..text.len() {
        let (one, two) = text.split_at(cut);
        assert_eq!(whole(&["\u{1f600}"], &[one, two]), "\u{e9}\u{4e16}**!");
    }
    assert_eq!(whole(&["x"], &[b"a\xffb\xe4\xb8"]), "a\u{fffd}b\u{fffd}");
}

#[test]
fn a_line_that_wraps_is_one_line() {
    let secrets = secrets(&["0123456789"]);
    let mut redactor = Redactor::new(secrets, size(8));
    let out: Vec<u8> = redactor.feed(Duration::ZERO, b"pw: 0123456789 ").into_iter().flat_map(|(_, b)| b).collect();
    assert_eq!(String::from_utf8(out).unwrap(), "pw: ********** ");
    // Back to the beginning of the row, not of the line.
    let out: Vec<u8> = redactor.feed(Duration::ZERO, b"\r56").into_iter().flat_map(|(_, b)| b).collect();
    assert_eq!(String::from_utf8(out).unwrap(), "\r56");
}

#[test]
fn a_secret_that_is_placed_in_pieces_is_seen_as_the_screen_shows_it() {
    let of = |output: &str| whole(&["hunter2"], &[output.as_bytes()]);
    for (output, shown) in [
        ("hun\r\n\x1b[A\x1b[3Cter2\r\nx", "***\r\n\x1b[A\x1b[3C****\r\nx"),
        ("\x1b[5;4Hter2\x1b[5;1Hhun", "\x1b[5;4H****\x1b[5;1H***"),
        ("\x1b[1;4Hte\x1b[1;6Hr2\x1b[2;1Hlog\x1b[1;1Hhun", "\x1b[1;4H**\x1b[1;6H**\x1b[2;1Hlog\x1b[1;1H***"),
        ("\x1b[Hter2\x1b[H\x1b[3@hun", "\x1b[H****\x1b[H\x1b[3@***"),
        // Lines that move, and a state that is gone at the end.
        (
            "\x1b[2;1Hhun\x1b[1;1H\x1b[L\x1b[3;4Hter2\x1b[J\x1b[2J",
            "\x1b[2;1H***\x1b[1;1H\x1b[L\x1b[3;4H****\x1b[J\x1b[2J",
        ),
        ("hun\x1b7\x1b[9;9Hx\x1b8ter2", "***\x1b7\x1b[9;9Hx\x1b8****"),
        ("\x1b[1;1Hhun\x1b[1;5Hter2", "\x1b[1;1Hhun\x1b[1;5Hter2"),
    ] {
        assert_eq!(of(output), shown, "{output:?}");
    }
    // What was written before stays; the rest is replaced.
    assert_eq!(whole(&["hunter2"], &[b"hun\r\n", b"\x1b[A\x1b[3C", b"te", b"r2"]), "hun\r\n\x1b[A\x1b[3C****");
    // Colors are the output's own, and mean nothing here.
    assert_eq!(of("\x1b[38;2;0;0;1mhun\x1b[A\x1b[4;1Hter2"), "\x1b[38;2;0;0;1mhun\x1b[A\x1b[4;1Hter2");
}

#[test]
fn titles_and_other_strings_are_searched_too() {
    assert_eq!(whole(&["hunter2"], &[b"\x1b]2;pw hun", b"ter2\x07x"]), "\x1b]2;pw *******\x07x");
    assert_eq!(whole(&["hunter2"], &[b"\x1b]2;hunter2\x1b\\x"]), "\x1b]2;*******\x1b\\x");
    assert_eq!(whole(&["hunter2"], &[b"\x1b]2;hunter2\x1b[1mx"]), "\x1b]2;*******\x1b\\\x1b[1mx");
    assert_eq!(whole(&["hunter2"], &[b"\x1b]2;hunter2\x1bMx"]), "\x1b]2;*******\x1b\\\x1bMx");
    assert_eq!(whole(&["hunter2"], &[b"\x1b]2;hunter2\x18x"]), "\x1b]2;*******\x18x");
    // An incomplete string is never written.
    assert_eq!(whole(&["hunter2"], &[b"\x1b]2;hunte"]), "");
    let long = [b"\x1bPq", &vec![b'x'; 2 * HELD_BYTES][..], b"\x1b\\y"].concat();
    assert_eq!(whole(&["hunter2"], &[&long]), "y");
}

#[test]
fn a_string_that_has_not_ended_waits_for_its_end_or_for_tmux_to_give_it_up() {
    for string in ["\x1b]0;abc", "\x1bPq"] {
        let mut redactor = Redactor::new(secrets(&["hunter2"]), size(80));
        let text = |pieces: Vec<Piece>| pieces.into_iter().flat_map(|(_, bytes)| bytes).collect::<Vec<u8>>();
        assert_eq!(text(redactor.feed(Duration::ZERO, string.as_bytes())), b"");
        assert!(!redactor.is_holding(), "a rest lets nothing go of it: {string:?}");
        assert_eq!(text(redactor.flush(Duration::ZERO)), b"");
        redactor.give_up();
        assert_eq!(text(redactor.feed(Duration::ZERO, b"after hunter2\r\n")), b"after *******\r\n", "{string:?}");
        // A string that is too long is left out.
        redactor.feed(Duration::ZERO, &[string.as_bytes(), &vec![b'x'; 2 * HELD_BYTES]].concat());
        redactor.give_up();
        assert_eq!(text(redactor.feed(Duration::ZERO, b"after\x1b]2;t\x07")), b"after\x1b]2;t\x07", "{string:?}");
    }
}

#[test]
fn a_secret_that_is_half_on_the_screen_is_replaced_from_there_on() {
    let begun = |line: &str, column, output: &[u8]| {
        let mut redactor = Redactor::new(secrets(&["hunter2-[a-z]+", "^key"]), size(8));
        redactor.begin_in_line(line.chars().map(Some).collect(), column);
        let mut pieces = redactor.feed(Duration::ZERO, output);
        pieces.extend(redactor.flush(Duration::ZERO));
        String::from_utf8(pieces.into_iter().flat_map(|(_, bytes)| bytes).collect()).unwrap()
    };
    assert_eq!(begun("pw=hunt", 7, b"er2-horse now"), "********* now");
    // Wrapped: the second row of a line.
    assert_eq!(begun("password hunter2", 16, b"-horse"), "******");
    assert_eq!(begun("password hunter2", 16, b"\r\n-horse"), "\r\n-horse");
    // In the middle of a line, and a text that does not begin its line.
    assert_eq!(begun("hunter1-horse", 6, b"2"), "*");
    assert_eq!(begun("$ ", 2, b"key"), "key");
    assert_eq!(begun("", 0, b"key"), "***");
}

#[test]
fn a_match_that_goes_on_costs_no_more_than_its_length() {
    let patterns = ["[A-Za-z0-9+/=]{20,}", "(abcd)+"];
    let cost = |kib: usize| {
        let long = "abcd".repeat(kib * 256);
        let stars = "*".repeat(long.len());
        let title = format!("\x1b]52;c;{long}\x07");
        muxtap_base::clock::cost(|| {
            assert_eq!(secrets(&patterns).replace(&long), stars);
            assert_eq!(whole(&patterns, &[long.as_bytes(), b"\r\n"]), format!("{stars}\r\n"));
            assert!(!whole(&patterns, &[&title.as_bytes()[..title.len() - 8], b"\x07"]).contains("abcd"));
        })
    };
    // Sixteen times longer: 256 times the work if each match were compared with each character.
    let (short, long) = (cost(1), cost(16));
    assert!(long < 80 * short, "{short:?}, {long:?}");
}

#[test]
fn a_line_that_has_not_changed_is_not_searched_again() {
    let steps = |output: &str| {
        let mut redactor = Redactor::new(secrets(&["hunter2"]), size(80));
        redactor.feed(Duration::ZERO, "x".repeat(80 * 20).as_bytes());
        redactor.feed(Duration::ZERO, output.as_bytes());
        redactor.feed(Duration::ZERO, output.as_bytes());
        redactor.shown.unwrap().steps
    };
    // 1600 cells at each of 20,000 sequences would be 32 million.
    let still = steps(&"\x1b[A\x1b[B".repeat(10_000));
    assert!(still < 20_000, "{still}");
    let printed = steps(&"x\x1b[A".repeat(10_000));
    assert!(printed < 3_000_000, "{printed}");
}

#[test]
fn what_is_held_is_bounded() {
    let mut redactor = Redactor::new(secrets(&["a+b"]), size(80));
    let chunk = vec![b'a'; 1000];
    let mut out = 0;
    for _ in 0..200 {
        out += redactor.feed(Duration::ZERO, &chunk).iter().map(|(_, bytes)| bytes.len()).sum::<usize>();
        assert!(redactor.held_bytes <= HELD_BYTES);
    }
    assert!(out >= 200_000 - HELD_BYTES);
}

#[test]
fn a_pattern_that_would_be_everywhere_is_refused() {
    for pattern in ["", "a*", "(", "x{2000}{2000}"] {
        assert!(Secrets::new(&[pattern.to_owned()]).is_err(), "{pattern}");
    }
    assert!(Secrets::new(&vec!["a".to_owned(); 65]).is_err());
}

#[test]
fn anchors_are_those_of_lines() {
    assert_eq!(whole(&["^secret"], &[b"secret secret\r\nsecret"]), "****** secret\r\n******");
    assert_eq!(whole(&[r"\bkey\b"], &[b"a key b"]), "a *** b");
    assert_eq!(secrets(&["^a", "b$"]).replace("ab\nab"), "**\n**");
}

proptest! {
    /// The splitting of output affects only its times.
    #[test]
    fn chunks_change_nothing(
        pieces in prop::collection::vec(
            prop::sample::select(vec![
                "a", "b", "ab", "abc", "\x08", "\r", "\r\n", "\x1b[1m", "\x1b[C", "\x1b[2D", "\x1b[K", "\x1b]2;abc\x07",
                " ", "\t", "\x1b[2;2H", "\x1b[@", "\x1b[P",
            ]),
            0..30,
        ),
        cuts in prop::collection::vec(0usize..80, 0..6),
    ) {
        let output = pieces.concat().into_bytes();
        let mut cuts: Vec<usize> = cuts.into_iter().filter(|cut| *cut < output.len()).collect();
        cuts.sort_unstable();
        let (mut chunks, mut from) = (Vec::new(), 0);
        for cut in cuts {
            chunks.push(&output[from..cut]);
            from = cut;
        }
        chunks.push(&output[from..]);
        let cut = whole(&["abc"], &chunks);
        let mut last = 0;
        // What is replaced in one piece is replaced in several: a rest between may only hide more.
        prop_assert_eq!(cut.len(), whole(&["abc"], &[&output]).len());
        for line in cut.split(['\r', '\n', '\x08', '\x1b']) {
            prop_assert!(!line.contains("abc"), "{:?}", cut);
            last += line.len();
        }
        prop_assert!(last <= cut.len());
    }

    /// Output without a secret is unchanged.
    #[test]
    fn other_output_stays_as_it_was(text in "[a-y \\r\\n\\x1b\\[0-9;mHKJ\u{e9}\u{4e16}]{0,200}") {
        let out = whole(&["zz", "z[0-9]+"], &[text.as_bytes()]);
        // An unterminated title is left out, and one that is cut off gets an end.
        if !text.contains("\u{1b}k") {
            prop_assert_eq!(out, text);
        }
    }
}

/// Pieces of output, of which some leave a sequence, a character or a string open.
const PIECES: &[&str] = &[
    "hunter2",
    "hun",
    "ter",
    "2",
    "token=ab ",
    "c",
    "\r\n",
    "\r",
    "\x08",
    "\t",
    "\x1b[31m",
    "\x1b[0m",
    "\x1b[2D",
    "\x1b[K",
    "\x1b[5G",
    "\x1b[H",
    "\x1b[2;7H",
    "\x1b[A",
    "\x1b[L",
    "\x1b[2J",
    "\x1b]2;a hunter2 title\x07",
    "\x1b]2;open",
    "\x1b\\",
    "\u{6f22}\u{1f642}",
    "words that fill the line ",
];

proptest! {
    /// T27: in whole pieces of output, as recordings are handed over.
    #[test]
    fn a_redactor_that_is_handed_over_replaces_the_same(
        pieces in proptest::collection::vec(0..PIECES.len(), 1..60),
        cuts in proptest::collection::vec(1..12_usize, 1..40),
        flushes: u64,
    ) {
        let output: String = pieces.iter().map(|index| PIECES[*index]).collect();
        let secrets = secrets(&["hunter2", r"token=\S+", "^c.*t$"]);
        let mut stays = Redactor::new(secrets.clone(), size(20));
        let mut moves = Redactor::new(secrets.clone(), size(20));
        let (mut rest, mut cuts) = (output.as_bytes(), cuts.into_iter().cycle());
        let mut number = 0;
        while !rest.is_empty() {
            let (chunk, behind) = rest.split_at(cuts.next().unwrap().min(rest.len()));
            rest = behind;
            let at = Duration::from_secs(number);
            prop_assert_eq!(stays.feed(at, chunk), moves.feed(at, chunk));
            let stored = postcard::to_allocvec(&moves.store()).unwrap();
            moves = Redactor::restore(postcard::from_bytes(&stored).unwrap(), secrets.clone());
            prop_assert_eq!(stays.is_holding(), moves.is_holding());
            if flushes >> (number % 64) & 1 == 1 {
                prop_assert_eq!(stays.flush(at), moves.flush(at));
            }
            number += 1;
        }
        prop_assert_eq!(stays.flush(Duration::ZERO), moves.flush(Duration::ZERO));
        prop_assert_eq!(stays.replaced(), moves.replaced());
    }
}
