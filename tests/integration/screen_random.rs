//! The screen model equals tmux for random sequences on a real pane.
//!
//! Runs `MUXTAP_SCREEN_CASES` cases (a few hundred by default) from `MUXTAP_SCREEN_SEED` on.

pub mod driver;
pub mod generator;

use std::collections::BTreeMap;

use self::driver::{Run, Tmux};
use self::generator::{Case, Flavour, Step};
use muxtap::screen::Rules;

fn from_env(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().map_or(default, |value| value.parse().unwrap_or_else(|_| panic!("{name}: {value}")))
}

fn show(case: &Case) -> String {
    let steps: Vec<_> = case
        .steps
        .iter()
        .map(|step| match step {
            Step::Print(bytes) => format!("print \"{}\"", bytes.escape_ascii()),
            step => format!("{step:?}"),
        })
        .collect();
    format!("{}x{}, history {}:\n    {}", case.columns, case.rows, case.history_limit, steps.join("\n    "))
}

/// Requires that a proven version does not differ. For other versions, on which the model is not
/// used, prints its accuracy.
fn expect(tmux: &Tmux, same: bool, verdict: &str) {
    if Rules::for_version(tmux.version).proven() {
        assert!(same, "{verdict}");
    } else {
        println!("not proven: {verdict}");
    }
}

/// Runs cases; prints the differences of the first few, and fails if any case differs.
fn compare(default: u64, flavour: Flavour, run: Run) {
    let mut tmux = Tmux::new();
    let first = from_env("MUXTAP_SCREEN_SEED", 1);
    let count = from_env("MUXTAP_SCREEN_CASES", default);
    let shown = from_env("MUXTAP_SCREEN_SHOWN", 3);
    let mut failed = Vec::new();
    for seed in first..first + count {
        let case = generator::case(seed, flavour);
        if let Some(difference) = run(&mut tmux, &case) {
            if (failed.len() as u64) < shown {
                let small = driver::minimized(&mut tmux, &case, run);
                let difference = run(&mut tmux, &small).unwrap_or(difference);
                println!("seed {seed} differs: {difference}\n  minimized: {}\n", show(&small));
            }
            failed.push(seed);
        }
    }
    let known = known(&tmux.counts);
    println!("tmux {}: {count} cases from seed {first}, {} differ; {known}", tmux.version, failed.len());
    if !tmux.restless.is_empty() {
        println!("  before the pane rested and was seeded anew: {}", self::known(&tmux.restless));
    }
    let some: Vec<_> = failed.iter().take(20).collect();
    let verdict = format!("{} of {count} differ from tmux {}; seeds {some:?}", failed.len(), tmux.version);
    expect(&tmux, failed.is_empty(), &verdict);
}

/// Returns how many of the captures memory could give.
pub fn known(counts: &BTreeMap<String, [u64; 2]>) -> String {
    let percent = |[known, all]: [u64; 2]| {
        let tenths = known * 1000 / all.max(1);
        format!("{}.{}", tenths / 10, tenths % 10)
    };
    let total = counts.values().fold([0, 0], |[known, all], [more, of]| [known + more, all + of]);
    let each: Vec<_> = counts
        .iter()
        .map(|(flags, counts)| format!("{} {}", if flags.is_empty() { "plain" } else { flags }, percent(*counts)))
        .collect();
    format!("from memory {} % ({})", percent(total), each.join(", "))
}

#[test]
fn random_bytes() {
    compare(300, Flavour { well_formed: false, bytes_only: true, tellable: false }, driver::run);
}

#[test]
fn random_bytes_and_resizes() {
    compare(200, Flavour::default(), driver::run);
}

#[test]
fn a_screen_seeded_halfway_through_equals_tmuxs() {
    compare(150, Flavour { well_formed: true, bytes_only: true, tellable: true }, driver::run_seeded);
}

/// Every difference that was ever found, named by what it taught: columns, rows, history limit and
/// the printed text. U+F8FE precedes two characters that are a new size, U+F8FD one that is a byte,
/// U+F8FF marks where tmux has read everything before it.
const CASES: &[(&str, u16, u16, u32, &str)] = &[
    (
        "after a reset the default colours are printed too",
        6,
        6,
        2000,
        "\x1b[34;4:5;38;2;120;246;84mmmpgtwpjt c l\x1b[4P",
    ),
    ("an overline is printed in two parts", 10, 2, 10, "\x1b[53mover\x1b[55m not"),
    ("a joiner waits for the next character that is no plain ASCII", 80, 24, 0, "\u{200d}8T字字"),
    ("a joiner at the end joins nothing", 9, 4, 3, "😀😀\u{200d}"),
    ("a joiner at a line's start swallows the next", 4, 2, 0, "\u{200d}🚀"),
    ("a read's end ends a joiner", 4, 2, 0, "a\u{200d}\u{f8ff}🚀"),
    ("line drawing is joined as well", 6, 7, 30, "\u{200d}\x1b(0\t "),
    ("an OSC ends what REP repeats", 18, 4, 2000, "link\x1b]8;;\x07\x1b[8b"),
    ("REP repeats after an unknown sequence", 18, 4, 2000, "x\x1b[99y\x1b[3b"),
    ("a wide character in the first column survives its right half", 3, 1, 2000, "漢漢\x1b[2Gc"),
    ("a wide character elsewhere does not", 6, 1, 2000, " 漢漢\x1b[3Gc"),
    ("a character wider than the screen leaves its right half behind", 1, 1, 2000, "한t  dm lfb x\u{f8fe}\u{9}\u{6}"),
    (
        "a screen that shrinks without reflow keeps its cells and its cursor",
        19,
        5,
        2000,
        "\x1b[?1049hygdoe\u{f8fe}\u{2}\u{8}",
    ),
    (
        "lines of the alternate screen are reflowed on the way out",
        2,
        2,
        2000,
        "\x1b[?47h\u{f8fe}\u{d}\u{2}  bwq x yz\x1b[?47l",
    ),
    ("and the last of them still goes on", 1, 5, 0, "\x1b[?1047h\u{f8fe}\u{4}\u{a} p\x1b[?47l"),
    (
        "inserted cells are used, with their background",
        18,
        6,
        2000,
        "\x1b[48;2;89;43;25m\x1b[5@\x1b[?3h\u{f8fe}\u{d}\u{7}",
    ),
    ("a space without looks on an untouched cell is not written", 5, 2, 2000, "\x1b[58:5:155m\x1b[?7lo  es kgvdu"),
    ("the colour of underlines alone is no difference", 14, 5, 3, "\x1b(0  pj  rdpl\r\x1b[58;5;86mb lkboz q"),
    ("an inserted line at the region's end erases it", 5, 4, 10, "a\r\nb\r\nc\r\nd\x1b[2;3r\x1b[2;1H\x1b[2L"),
    (
        "an inserted line outside of the region reaches the bottom",
        5,
        4,
        10,
        "a\r\nb\r\nc\r\nd\x1b[1;2r\x1b[3;1H\x1b[9L",
    ),
    ("inserted characters that reach the edge do nothing", 5, 2, 10, "abcde\x1b[1;2H\x1b[9@"),
    ("the cursor behind the margin goes right into the last column", 4, 2, 10, "abcd\x1b[Cx"),
    ("erased cells with a background are not printed", 6, 2, 10, "a\x1b[41m\x1b[K\x1b[m\r\nb"),
    ("but those before a written one are", 6, 2, 10, "a\x1b[41m\x1b[K\x1b[m\x1b[5Gb"),
    (
        "a region that does not begin at the top scrolls into history",
        4,
        4,
        10,
        "a\r\nb\r\nc\r\nd\x1b[2;3r\x1b[3;1H\n\n",
    ),
    ("a cleared screen goes into history as far as it is used", 4, 4, 10, "a\r\n\r\nc\x1b[2J"),
    (
        "a history at its limit loses a tenth",
        4,
        1,
        20,
        "1\n2\n3\n4\n5\n6\n7\n8\n9\na\nb\nc\nd\ne\nf\ng\nh\ni\nj\nk\nl\nm\nn",
    ),
    ("a REP leaves line drawing to what follows it, from 3.4 on", 8, 1, 10, "\x1b(0漢\x1b[b漢a漢"),
    ("a link, and what follows it", 8, 3, 10, "\x1b]8;;x\x07ab\x1b]8;;\x07c\x1b[?1049hd\x1b[?1049l"),
    ("a link ends nothing", 8, 2, 10, "\x1b]8;;x\x07a\x1b]8;id=1:id=2;y\x07b\x1b]8;;\x07c"),
    ("hands are wide from 3.4 on", 8, 1, 10, "\u{261d}a\u{270c}b"),
    ("a combined character brings the cursor back", 9, 2, 10, "\x1b[?1049habcdefgh\u{f8fe}\u{5}\u{2}\u{200b}"),
    ("existing cells are printed with -J too, until 3.2a", 20, 2, 10, "abcde\x1b[41m\x1b[3C \x1b[K\r\nabcdef"),
    ("colours of underlines are not printed until 3.2a", 10, 1, 10, "\x1b[4;58;5;3ma\x1b[59mb\x1b[mc"),
    ("unknown characters and C1 controls by version", 10, 1, 10, "\u{378}a\u{85}b\u{10ffff}c"),
    ("a joiner waits in 3.3 alone", 10, 1, 10, "a\u{200d}é漢\u{200d}漢"),
    ("REP repeats any character from 3.5 on", 12, 1, 10, "é\x1b[2b漢\x1b[b"),
    ("a widened cell has its right half a column too far in 3.4", 10, 1, 10, "☺\u{fe0f}ab\x1b[2Gc\x1b[3Gd"),
    ("and at the margin", 3, 2, 10, "ab☺\u{fe0f}c"),
    ("a blank is not written over one, but for 3.4", 10, 1, 10, "\x1b[4;38;5;1m \x1b[38;5;1m\r\x1b[4h\x1b[4l\x1b[?7l "),
    ("underlines in colour over the same letter", 10, 1, 10, "\x1b[?7lab\r\x1b[58;5;3ma\x1b[31mb"),
    (
        "letters of flags: one alone, two, three",
        20,
        1,
        10,
        "\u{1f1e9}a\u{1f1e9}\u{1f1ea}b\u{1f1e9}\u{1f1ea}\u{1f1eb}\u{1f1ec}c",
    ),
    ("tones join hands before and behind them, from 3.6 on nothing else", 24, 1, 10, "👍🏽a🏽👍b漢🏽ce🏽d"),
    ("parts of Korean syllables", 20, 1, 10, "\u{1100}\u{1161}\u{11a8}a\u{1161}b\u{1100}\u{200d}\u{1100}\u{d7b0}"),
    ("the Korean filler is nothing from 3.6 on", 10, 1, 10, "a\u{3164}b"),
    (
        "a cluster of 32 bytes is none",
        8,
        2,
        10,
        "ab\u{fe0f}\u{fe0f}\u{fe0f}\u{fe0f}\u{fe0f}\u{fe0f}\u{fe0f}\u{fe0f}\u{fe0f}\u{301}\u{301}\u{301}é\u{301}",
    ),
    ("a joiner without room", 8, 1, 10, "👨\u{200d}👩\u{200d}👧\u{200d}👦\u{200d}👨\u{200d}\u{301}a\u{fe0f}b"),
    ("a tab over blanks is one cell from 3.6 on", 24, 2, 10, "a\tb\tc\x1b[2;1H\x1b[41m\x1b[K\t\x1b[mx\x1b[2;3H\ty"),
    ("a tab with something in it is none", 24, 1, 10, "\x1b[4Gx\r\ty\x1b[3g\tz"),
    ("a tab that is overwritten", 24, 3, 10, "\ta\rx\r\n\ta\x1b[2;4Hx\r\n\ta\r\x1b[4hx漢"),
    ("a tab after a joiner", 24, 1, 10, "é\u{200d}\tb"),
    ("marks on a tab are gone", 24, 1, 10, "\x1b[7G\tx\x1b[9G\u{301}\u{fe0f}y"),
    ("a tab is as wide as 32 columns", 60, 1, 10, "\x1b[3g\x1b[34G\x1bH\r\x1b[2G\tx\r\ty"),
    ("tabs in history and back", 12, 2, 10, "a\tb\r\n\t\r\nc\u{f8fe}\u{c}\u{4}d\u{f8fe}\u{5}\u{4}"),
    ("a right half counts as a column in reflow, from 3.6 on", 12, 4, 10, "漢字漢字ab\u{f8fe}\u{7}\u{4}c"),
    (
        "but not where the cell was long before",
        12,
        4,
        10,
        "\x1b[38;2;1;2;3mabcdefghij\x1b[m\r漢字漢字ab\u{f8fe}\u{7}\u{4}c",
    ),
    (
        "erased cells stay long from 3.7 on",
        12,
        4,
        10,
        "\x1b[38;2;1;2;3mabcdefghij\x1b[m\x1b[9D\x1b[8X\r漢字漢字ab\u{f8fe}\u{7}\u{4}c",
    ),
    (
        "right halves that reflow left alone are not cut",
        9,
        4,
        10,
        "漢字漢字\u{f8fe}\u{3}\u{4}\x1b[2;1H\x1b[4hx\x1b[4l漢",
    ),
    (
        "what is no character is U+FFFD from 3.6 on",
        20,
        1,
        10,
        "a\u{f8fd}\u{e2}\u{f8fd}\u{82}b\u{f8fd}\u{ff}\u{f8fd}\u{c0}c\u{f8fd}\u{e2}\x1b[1md",
    ),
    ("text in the middle of a wide character in the first column", 4, 1, 10, "漢\x1b[2Gc"),
    ("what is left of a wide character keeps its colour from 3.8 on", 8, 1, 10, "\x1b[41m漢字\x1b[m\x1b[2Ga\x1b[3Gb"),
    ("text over a right half without a left one", 6, 1, 10, "漢字\x1b[1;1H\x1b[P\x1b[2Gx"),
    ("a tab that a wide character covers in part leaves tabs until 3.7", 24, 1, 10, "\ta\r漢"),
    ("text over the right halves of a tab without its beginning", 24, 1, 10, "\ta\x1b[1G\x1b[P\x1b[3Gx"),
    (
        "a mark without room is gone from 3.8 on",
        8,
        2,
        10,
        "👨\u{200d}👩\u{200d}👧\u{200d}👦\u{301}\u{301}\u{301}\u{301}",
    ),
    ("a request is no image from 3.6 on", 8, 3, 10, "a\x1bP$q q\x1b\\b"),
    (
        "a cluster has 21 bytes at most",
        4,
        1,
        10,
        "a\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}b",
    ),
];

/// Returns the steps of a named case.
fn steps(text: &str) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match character {
            '\u{f8ff}' => steps.push(Step::Rest),
            '\u{f8fe}' => {
                let mut side = || u16::try_from(u32::from(characters.next().unwrap())).unwrap();
                steps.push(Step::Resize(side(), side()));
            }
            '\u{f8fd}' => steps.push(Step::Print(vec![u8::try_from(u32::from(characters.next().unwrap())).unwrap()])),
            _ => steps.push(Step::Print(character.to_string().into_bytes())),
        }
    }
    steps
}

#[test]
fn named_cases() {
    let mut tmux = Tmux::new();
    let mut failed = Vec::new();
    for (name, columns, rows, history_limit, text) in CASES {
        let case = Case { columns: *columns, rows: *rows, history_limit: *history_limit, steps: steps(text) };
        if let Some(difference) = driver::run(&mut tmux, &case) {
            failed.push(format!("{name}: {difference}"));
        }
    }
    expect(&tmux, failed.is_empty(), &failed.join("\n"));
}
