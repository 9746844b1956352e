//! Random terminal sessions: the output of a program, and the pane's resizes.

/// A small random generator (splitmix64): the same seed gives the same case everywhere.
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// Returns a number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    pub fn pick<'a, T: ?Sized>(&mut self, from: &[&'a T]) -> &'a T {
        from[self.below(from.len() as u64) as usize]
    }
}

/// One step of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    Print(Vec<u8>),
    /// Waits until tmux has read everything before the next step.
    Rest,
    Resize(u16, u16),
    ClearHistory,
    Reset,
}

/// The life of a pane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    pub columns: u16,
    pub rows: u16,
    pub history_limit: u32,
    pub steps: Vec<Step>,
}

/// Limits on the content of a case.
#[derive(Clone, Copy, Debug, Default)]
pub struct Flavour {
    /// Only output of a well-behaved program: no broken UTF-8, no unknown or broken sequences.
    pub well_formed: bool,
    /// No resizes, resets or cleared histories: bytes alone.
    pub bytes_only: bool,
    /// No clusters of 32 bytes, which are cells without text (from 3.6 on): no seed shows those.
    pub tellable: bool,
}

const WIDE: [&str; 6] = ["漢", "字", "😀", "한", "🚀", "あ"];
const NARROW: [&str; 8] = ["é", "ß", "─", "│", "█", "→", "ж", "\u{a0}"];
const ZERO: [&str; 5] = ["\u{301}", "\u{308}", "\u{20dd}", "\u{fe0f}", "\u{200b}"];
const JOINED: [&str; 6] = ["\u{200d}", "👨\u{200d}👩\u{200d}👧", "🏳\u{fe0f}\u{200d}🌈", "👍🏽", "🇩🇪", "☺\u{fe0f}"];
/// Characters that join or not, by version: letters of flags, hands and tones, parts of Korean
/// syllables, characters that a selector widens.
const JOINING: [&str; 14] = [
    "\u{1f1e9}",
    "\u{1f1ea}\u{1f1ea}\u{1f1ea}",
    "👍",
    "\u{1f3fd}",
    "\u{1f3fd}👋",
    "\u{1100}",
    "\u{1161}",
    "\u{11a8}",
    "\u{a960}\u{d7b0}\u{d7cb}",
    "\u{3164}",
    "\u{200d}",
    "a\u{fe0f}",
    "☝",
    "é\u{200d}\t",
];
const ODD: [&str; 7] = ["\u{ad}", "\u{378}", "\u{85}", "\u{9b}31m", "\u{e000}", "\u{10ffff}", "\u{1160}"];

/// Creates a case from a seed.
pub fn case(seed: u64, flavour: Flavour) -> Case {
    let mut random = Random(seed);
    let r = &mut random;
    let (columns, rows) = match r.below(20) {
        0 => (1, 1),
        1 => (2, 2),
        2 => (1, 5),
        3 => (80, 24),
        _ => (r.between(2, 24) as u16, r.between(1, 8) as u16),
    };
    let history_limit = [2000, 2000, 2000, 30, 10, 3, 1, 0][r.below(8) as usize];
    let mut steps = Vec::new();
    for _ in 0..r.between(1, 40) {
        let step = if r.chance(4) {
            Step::Rest
        } else if !flavour.bytes_only && r.chance(3) {
            match r.below(8) {
                0 => Step::ClearHistory,
                1 => Step::Reset,
                _ => Step::Resize(r.between(1, 30) as u16, r.between(1, 10) as u16),
            }
        } else {
            Step::Print(piece(r, u32::from(columns), u32::from(rows), flavour))
        };
        steps.push(step);
    }
    // Cut at any position, also inside of characters and sequences.
    let mut cut = Vec::new();
    for step in steps {
        match step {
            Step::Print(bytes) if bytes.len() > 1 && r.chance(8) => {
                let at = r.between(1, bytes.len() as u64 - 1) as usize;
                cut.push(Step::Print(bytes[..at].to_vec()));
                cut.push(Step::Rest);
                cut.push(Step::Print(bytes[at..].to_vec()));
            }
            step => cut.push(step),
        }
    }
    Case { columns, rows, history_limit, steps: cut }
}

/// Returns a number for a sequence: small, around the size, or huge.
fn number(r: &mut Random, around: u32) -> String {
    match r.below(12) {
        0 => String::new(),
        1 => "0".into(),
        2 => r.between(0, 300).to_string(),
        3 => (i64::from(around) + r.between(0, 4).cast_signed() - 2).max(0).to_string(),
        4 if r.chance(20) => r.pick(&["32767", "65536", "2147483647", "2147483648", "99999999999999999999"]).into(),
        _ => r.between(1, u64::from(around.max(2))).to_string(),
    }
}

fn text(r: &mut Random, columns: u32) -> Vec<u8> {
    let length = if r.chance(15) { r.between(1, u64::from(columns) * 3) } else { r.between(1, 12) };
    (0..length).map(|_| if r.chance(20) { b' ' } else { b'a' + r.below(26) as u8 }).collect()
}

fn sgr(r: &mut Random) -> String {
    let mut parts = Vec::new();
    for _ in 0..r.between(1, 3) {
        let byte = |r: &mut Random| r.below(256).to_string();
        let part = match r.below(14) {
            0 => String::new(),
            1 => "0".into(),
            2 => r.between(1, 9).to_string(),
            3 => r.between(21, 29).to_string(),
            4 => r.between(30, 49).to_string(),
            5 => r.between(90, 107).to_string(),
            6 => format!("{};5;{}", r.pick(&["38", "48", "58"]), r.below(270)),
            7 => format!("{};2;{};{};{}", r.pick(&["38", "48", "58"]), byte(r), byte(r), byte(r)),
            8 => format!("{}:2::{}:{}:{}", r.pick(&["38", "48", "58"]), byte(r), byte(r), byte(r)),
            9 => format!("{}:2:{}:{}:{}", r.pick(&["38", "48", "58"]), byte(r), byte(r), byte(r)),
            10 => format!("{}:5:{}", r.pick(&["38", "48", "58"]), r.below(270)),
            11 => format!("4:{}", r.below(7)),
            12 => r.pick(&["53", "55", "59", "73", "38;5", "38;2;1;2", "4:3:1", "38:2", ":", "4:"]).into(),
            _ => r.pick(&["41", "44", "31", "7", "1"]).into(),
        };
        parts.push(part);
    }
    format!("\x1b[{}m", parts.join(";"))
}

/// Returns a piece of a program's output.
fn piece(r: &mut Random, columns: u32, rows: u32, flavour: Flavour) -> Vec<u8> {
    let n = |r: &mut Random| number(r, columns);
    let m = |r: &mut Random| number(r, rows);
    let string = match r.below(100) {
        22..26 => r.pick(&WIDE).repeat(r.between(1, 4) as usize),
        26..29 => r.pick(&NARROW).repeat(r.between(1, 4) as usize),
        29..32 => r.pick(&ZERO).repeat(if r.chance(5) { 9 } else { 1 }),
        32..34 => r.pick(&JOINED).into(),
        34 => r.pick(&JOINING).repeat(if !flavour.tellable && r.chance(5) { 12 } else { 1 }),
        35 if !flavour.well_formed => r.pick(&ODD).into(),
        36..44 => "\r\n".into(),
        44 => r.pick(&["\n", "\r", "\x0b", "\x0c", "\n\n\n"]).into(),
        45 => "\x08".repeat(r.between(1, 4) as usize),
        46..48 => "\t".into(),
        48 => r.pick(&["\x0e", "\x0f", "\x1b(0", "\x1b(B", "\x1b)0", "\x1b)B", "lqqk"]).into(),
        49..54 => format!("\x1b[{};{}H", m(r), n(r)),
        54..56 => format!("\x1b[{}{}", m(r), r.pick(&["A", "B", "E", "F", "d"])),
        56..58 => format!("\x1b[{}{}", n(r), r.pick(&["C", "D", "G", "`"])),
        58..61 => format!("\x1b[{}K", r.pick(&["", "0", "1", "2", "3"])),
        61..63 => format!("\x1b[{}J", r.pick(&["", "0", "1", "2", "3"])),
        63..66 => format!("\x1b[{}{}", n(r), r.pick(&["@", "P", "X"])),
        66..69 => format!("\x1b[{}{}", m(r), r.pick(&["L", "M"])),
        69..71 => format!("\x1b[{}{}", m(r), r.pick(&["S", "T"])),
        71 => format!("\x1b[{}b", n(r)),
        72 => format!("\x1b[{}{}", n(r), r.pick(&["Z", "I"])),
        73..75 => format!("\x1b[{};{}r", m(r), m(r)),
        75..82 => sgr(r),
        82 => format!("\x1b[{}", r.pick(&["?1049h", "?1049l", "?47h", "?47l", "?1047h", "?1047l", "?1048h", "?1048l"])),
        83 => format!(
            "\x1b[{}",
            r.pick(&[
                "4h", "4l", "?7l", "?7h", "?6h", "?6l", "20h", "20l", "?25l", "?25h", "?3h", "?3l", "?69h", "?5h"
            ])
        ),
        84 => r.pick(&["\x1b7", "\x1b8", "\x1b[s", "\x1b[u"]).into(),
        85..87 => r.pick(&["\x1bD", "\x1bM", "\x1bE"]).into(),
        87 => r.pick(&["\x1bH", "\x1b[g", "\x1b[3g", "\x1b[0g", "\x1b[5W"]).into(),
        88 => r.pick(&["\x1bc", "\x1b#8", "\x1b[!p", "\x1b=", "\x1b>", "\x1b#3", "\x1b[2;4s"]).into(),
        89 => r
            .pick(&[
                "\x1b]0;title\x07",
                "\x1b]2;two\x1b\\",
                "\x1b]8;;http://x/\x07link\x1b]8;;\x07",
                "\x1b]4;1;red\x07",
                "\x1b]133;A\x07",
                "\x1b]52;c;aGk=\x07",
                "\x1b]10;#ff0000\x07",
            ])
            .into(),
        90 => r
            .pick(&[
                "\x1bPq#0;2;0;0;0~\x1b\\",
                "\x1bP+q544e\x1b\\",
                "\x1b_apc\x1b\\",
                "\x1b^pm\x1b\\",
                "\x1bXsos\x1b\\",
                "\x1bkname\x1b\\",
            ])
            .into(),
        91 => r
            .pick(&[
                "\x1b[?1000h",
                "\x1b[?2004h",
                "\x1b[?1h",
                "\x1b[2 q",
                "\x1b[>4;1m",
                "\x1b[?2026h",
                "\x1b[?2026l",
                "\x1b[?1004h",
                "\x1b[?12l",
            ])
            .into(),
        92 => format!("\x1b[{}b", m(r)),
        93..97 if !flavour.well_formed => return broken(r, columns),
        _ => return text(r, columns),
    };
    string.into_bytes()
}

/// Returns bytes that no program should print.
fn broken(r: &mut Random, columns: u32) -> Vec<u8> {
    match r.below(12) {
        0 => (0..r.between(1, 6)).map(|_| 0x80 + r.below(0x80) as u8).collect(),
        1 => b"\xe2\x82".to_vec(),
        2 => b"\xf0\x9f\x98".to_vec(),
        3 => b"\xed\xa0\x80\xc0\xaf\xff".to_vec(),
        4 => b"\x1b[".to_vec(),
        5 => format!("\x1b[{}", number(r, columns)).into_bytes(),
        6 => r.pick(&["\x18", "\x1a", "\x1b", "\x7f", "\x1b[31\x18", "\x1b[1\rm", "\x1b[2\nJ"]).as_bytes().to_vec(),
        7 => {
            let last = r.between(0x40, 0x7e) as u8;
            let first = *r.pick(&[&b""[..], b"?", b">", b"<", b"="]).first().unwrap_or(&b'1');
            let mut bytes = vec![0x1b, b'[', first];
            bytes.extend(number(r, columns).bytes());
            bytes.extend(r.pick(&[&b""[..], b" ", b"$", b"!", b"'"]));
            // Window operations and reports may cause a reply, which is not read.
            bytes.push(last);
            bytes
        }
        8 => vec![0x1b, r.between(0x20, 0x7e) as u8],
        9 => format!("\x1b[{}m", vec!["1"; r.between(20, 40) as usize].join(";")).into_bytes(),
        10 => format!("\x1b[{}m", "0".repeat(r.between(55, 70) as usize)).into_bytes(),
        _ => (0..r.between(1, 8)).map(|_| r.below(256) as u8).collect(),
    }
}
