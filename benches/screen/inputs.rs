//! Program output, the same in every run.

use std::{fmt::Write as _, fs, io::Read as _, path::Path};

use flate2::read::GzDecoder;
use muxtap::protocol::version::Version;

/// Output and its description.
pub struct Input {
    pub name: String,
    pub bytes: Vec<u8>,
    /// The tmux version whose rules muxtap follows.
    pub version: Version,
}

const SIZE: usize = 8 << 20;
const TMUX_3_3: Version = Version { major: 3, minor: 3, suffix: Some('a'), is_preview: false };
const TMUX_3_5: Version = Version { major: 3, minor: 5, suffix: Some('a'), is_preview: false };

/// Repeats lines until the input is large enough.
fn filled(name: &str, mut line: impl FnMut(&mut String, u64)) -> Input {
    let mut text = String::with_capacity(SIZE + 4096);
    let mut number = 0;
    while text.len() < SIZE {
        line(&mut text, number);
        number += 1;
    }
    Input { name: name.into(), bytes: text.into_bytes(), version: TMUX_3_3 }
}

/// Spreads numbers.
fn mixed(number: u64) -> u64 {
    (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (number >> 7)) >> 24
}

/// Returns all inputs.
pub fn all() -> Vec<Input> {
    // From 3.4 on tmux checks the cell before a character that is not ASCII.
    let later = Input { name: "Chinese text, tmux 3.5a".into(), version: TMUX_3_5, ..wide() };
    vec![plain(), short(), colours(), log(), full_screen(), wide(), later, emoji(), recordings()]
}

/// Returns what real agents printed, in the order of the recordings' names, each on a cleared screen.
fn recordings() -> Input {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/agents");
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut paths: Vec<_> = entries.map(|entry| entry.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "gz"));
    paths.sort();
    let mut text = String::new();
    for path in paths {
        text.push_str("\x1bc");
        let mut recording = String::new();
        let read = fs::File::open(path).and_then(|file| GzDecoder::new(file).read_to_string(&mut recording));
        for line in recording.lines().skip(1).filter(|_| read.is_ok()) {
            if let Ok((_, kind, printed)) = serde_json::from_str::<(f64, String, String)>(line)
                && kind == "o"
            {
                text.push_str(&printed);
            }
        }
    }
    Input { name: "recordings of agents".into(), bytes: text.into_bytes(), version: TMUX_3_3 }
}

fn plain() -> Input {
    filled("plain lines", |text, number| {
        let _ = write!(
            text,
            "2026-11-21T15:{:02}:{:02}.{:03}Z  INFO server::request: handled id={number} path=/v1/x in {}us\r\n",
            number / 60 % 60,
            number % 60,
            number % 997,
            mixed(number) % 100_000
        );
    })
}

fn short() -> Input {
    filled("short lines", |text, number| {
        let _ = write!(text, "{number}\r\n");
    })
}

fn colours() -> Input {
    filled("a coloured listing", |text, number| {
        let (colour, mark) = match mixed(number) % 4 {
            0 => ("01;34", "/"),
            1 => ("01;32", "*"),
            2 => ("01;36", "@"),
            _ => ("00", ""),
        };
        let _ = write!(
            text,
            "-rw-r--r-- 1 user group {:>7} Nov 21 15:{:02} \x1b[{colour}mfile-{number}\x1b[0m{mark}\r\n",
            mixed(number) % 1_000_000,
            number % 60
        );
    })
}

fn log() -> Input {
    filled("a coloured log", |text, number| {
        let at = mixed(number);
        let (colour, level) = match at % 4 {
            0 => ("32", "INFO"),
            1 => ("34", "DEBUG"),
            2 => ("33", "WARN"),
            _ => ("1;31", "ERROR"),
        };
        let _ = write!(
            text,
            "\x1b[2m2026-11-21T15:{:02}:{:02}Z\x1b[0m \x1b[{colour}m{level:>5}\x1b[0m \x1b[2mserver::request\x1b[0m\x1b[2m:\x1b[0m \
             handled \x1b[3mid\x1b[0m\x1b[2m=\x1b[0m{number} \x1b[3mtook\x1b[0m\x1b[2m=\x1b[0m\x1b[38;5;{}m{}us\x1b[39m\r\n",
            number / 60 % 60,
            number % 60,
            at % 256,
            at % 100_000
        );
    })
}

fn full_screen() -> Input {
    filled("cursor addressing and colours", |text, number| {
        let at = mixed(number);
        let _ = write!(
            text,
            "\x1b[{};{}H\x1b[38;5;{}m\x1b[{}m{:>5}\x1b[39;49m %\x1b[1m{}\x1b[0m\x1b[K",
            at % 24 + 1,
            at / 24 % 60 + 1,
            at / 7 % 256,
            40 + at / 11 % 8,
            at % 10_000,
            number % 100
        );
    })
}

fn wide() -> Input {
    filled("Chinese text", |text, number| {
        let from = 0x4e00 + (mixed(number) % 4096) as u32;
        text.extend((from..from + 30).filter_map(char::from_u32));
        text.push_str("\r\n");
    })
}

fn emoji() -> Input {
    filled("Chinese text and emoji", |text, number| {
        let from = 0x4e00 + (mixed(number) % 4096) as u32;
        text.extend((from..from + 24).filter_map(char::from_u32));
        let faces = [0x1f600 + (mixed(number) % 64) as u32, 0x1f680 + (number % 32) as u32];
        text.extend(faces.into_iter().filter_map(char::from_u32));
        text.push_str(" ok\r\n");
    })
}

/// Returns a build's output: 10,500 lines of a compiler, with warnings.
pub fn build() -> Input {
    let mut text = String::new();
    let mut lines = 0;
    for number in 0_u64.. {
        let at = mixed(number);
        let _ = write!(
            text,
            "\x1b[1m\x1b[32m   Compiling\x1b[0m crate-{} v{}.{}.{} (/home/user/src/workspace/member-{})\r\n",
            at % 977,
            at % 7,
            at % 13,
            at % 31,
            at % 41
        );
        lines += 1;
        if number % 5 == 0 {
            let _ = write!(
                text,
                "\x1b[1m\x1b[33mwarning\x1b[0m\x1b[1m: unused variable: `value_{number}`\x1b[0m\r\n\
                 \x1b[1m\x1b[94m  --> \x1b[0msrc/module_{}/file_{}.rs:{}:{}\r\n\
                 \x1b[1m\x1b[94m   |\x1b[0m\r\n\
                 \x1b[1m\x1b[94m{:>3} |\x1b[0m     let value_{number} = compute(input, {});\r\n\
                 \x1b[1m\x1b[94m   |\x1b[0m         \x1b[1m\x1b[33m^^^^^^^^\x1b[0m \x1b[1m\x1b[33mhelp: prefix it with an underscore: `_value_{number}`\x1b[0m\r\n\r\n",
                at % 19,
                at % 23,
                at % 900,
                at % 70,
                at % 900,
                at % 12_345
            );
            lines += 6;
        }
        if lines > 10_500 {
            break;
        }
    }
    Input { name: "a build".into(), bytes: text.into_bytes(), version: TMUX_3_3 }
}
