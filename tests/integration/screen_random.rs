//! The screen model equals tmux: random sequences on a real pane and on the model.
//!
//! `MUXTAP_SCREEN_CASES` cases are run (a few hundred unless it is set) from `MUXTAP_SCREEN_SEED` on.

pub mod driver;
pub mod generator;

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

/// A version that is proven must not differ. Of others, where the model is not used, it is told how far it is.
fn expect(tmux: &Tmux, same: bool, verdict: &str) {
    if Rules::for_version(tmux.version).proven() {
        assert!(same, "{verdict}");
    } else {
        println!("not proven: {verdict}");
    }
}

/// Runs cases; says of the first few that differ how, and fails if any does.
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
    let known = known(&tmux);
    println!("tmux {}: {count} cases from seed {first}, {} differ; {known}", tmux.version, failed.len());
    let some: Vec<_> = failed.iter().take(20).collect();
    let verdict = format!("{} of {count} differ from tmux {}; seeds {some:?}", failed.len(), tmux.version);
    expect(&tmux, failed.is_empty(), &verdict);
}

/// How many of the captures could be told from memory.
fn known(tmux: &Tmux) -> String {
    let percent = |[known, all]: [u64; 2]| {
        let tenths = known * 1000 / all.max(1);
        format!("{}.{}", tenths / 10, tenths % 10)
    };
    let total = tmux.counts.values().fold([0, 0], |[known, all], [more, of]| [known + more, all + of]);
    let each: Vec<_> = tmux
        .counts
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
fn a_seed_half_way() {
    compare(150, Flavour { well_formed: true, bytes_only: true, tellable: true }, driver::run_seeded);
}

/// Every difference that was ever found, by what it taught: columns, rows, history limit and what is printed. U+F8FE stands
/// before two characters that are a new size, U+F8FF where tmux has read all that stands before it.
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
    (
        "a cluster has 21 bytes at most",
        4,
        1,
        10,
        "a\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}b",
    ),
];

/// The steps of a named case.
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
