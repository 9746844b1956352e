//! Encodes rows as JSON: runs of text, their columns and styles (`docs/page.md`).

use std::fmt::Write as _;

use muxtap_core::screen::{
    RowRuns, RunKind, Screen,
    style::{Colour, Style, attribute},
};

/// The attributes and their names.
const WORDS: [(u16, &str); 13] = [
    (attribute::BRIGHT, "b"),
    (attribute::DIM, "d"),
    (attribute::ITALICS, "i"),
    (attribute::UNDERLINE, "u"),
    (attribute::UNDERLINE_2, "u2"),
    (attribute::UNDERLINE_3, "u3"),
    (attribute::UNDERLINE_4, "u4"),
    (attribute::UNDERLINE_5, "u5"),
    (attribute::BLINK, "k"),
    (attribute::REVERSE, "r"),
    (attribute::HIDDEN, "h"),
    (attribute::STRIKE, "s"),
    (attribute::OVERLINE, "o"),
];

/// The schemes of links that are sent; other links become text.
const SCHEMES: [&str; 3] = ["http:", "https:", "mailto:"];

/// Appends a row as a JSON array.
pub(super) fn row(screen: &Screen, row: &RowRuns, out: &mut String) {
    out.push('[');
    let mut runs = row.runs().peekable();
    while let Some(run) = runs.next() {
        let link = screen.link(run.style.link).filter(|link| is_safe(link));
        let style = words(&run.style);
        // A last element `"+"` alone would mean that the line continues.
        let is_mark = run.text == "+" && runs.peek().is_none();
        if run.kind == RunKind::Ascii && style.is_empty() && link.is_none() && !is_mark {
            text(run.text, out);
        } else {
            out.push('[');
            text(run.text, out);
            let _ = write!(out, ",{},\"{style}\"", run.columns);
            if let Some(link) = link {
                out.push(',');
                text(link, out);
            }
            out.push(']');
        }
        if runs.peek().is_some() || row.wrapped {
            out.push(',');
        }
    }
    out.push_str(if row.wrapped { "\"+\"]" } else { "]" });
}

/// Appends a JSON string.
pub(super) fn text(text: &str, out: &mut String) {
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            control if u32::from(control) < 0x20 => {
                let _ = write!(out, "\\u{:04x}", u32::from(control));
            }
            other => out.push(other),
        }
    }
    out.push('"');
}

fn is_safe(link: &str) -> bool {
    SCHEMES.iter().any(|scheme| link.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme)))
}

/// Returns a style as a list of words.
fn words(style: &Style) -> String {
    let mut words = String::new();
    let mut add = |word: &dyn std::fmt::Display| {
        let space = if words.is_empty() { "" } else { " " };
        let _ = write!(words, "{space}{word}");
    };
    for (bit, word) in WORDS {
        if style.has(bit) {
            add(&word);
        }
    }
    for (letter, colour) in [('f', style.foreground), ('g', style.background), ('U', style.underline)] {
        let of_underline = letter == 'U' && colour.as_palette().is_none() && colour.as_rgb().is_none();
        if let Some(colour) = name(colour).filter(|_| !of_underline) {
            add(&format_args!("{letter}{colour}"));
        }
    }
    words
}

/// Returns a color's name: a number of 256, or `#rrggbb`; `None` for the terminal's default.
fn name(colour: Colour) -> Option<String> {
    if let Some(index) = colour.as_palette() {
        return Some(index.to_string());
    }
    if let Some([red, green, blue]) = colour.as_rgb() {
        return Some(format!("#{red:02x}{green:02x}{blue:02x}"));
    }
    match colour.0 {
        index @ 0..=7 => Some(index.to_string()),
        bright @ 90..=97 => Some((bright - 82).to_string()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use muxtap_core::{
        protocol::version::Version,
        screen::{Rules, Settings, Size},
    };

    fn rows(output: &str) -> Vec<String> {
        let rules = Rules::for_version(Version::parse(b"3.5a").unwrap());
        let mut screen = Screen::new(Size { columns: 20, rows: 3 }, rules, Settings::default());
        screen.feed(output.as_bytes());
        let (mut runs, mut rows) = (RowRuns::default(), Vec::new());
        for y in 0..3 {
            let mut out = String::new();
            assert!(screen.read_row(y, &mut runs));
            row(&screen, &runs, &mut out);
            serde_json::from_str::<serde_json::Value>(&out).unwrap();
            rows.push(out);
        }
        rows
    }

    #[test]
    fn a_row_is_runs_with_columns_and_styles() {
        let output = "plain \x1b[1;4:3;31;48;5;200;58;2;1;2;3mloud\x1b[m \"\\\r\n漢─\x1b[97;44mx\x1b[m+\r\n\
                      \x1b]8;;https://x/?\"\x07a\x1b]8;;javascript:x\x07b\x1b]8;;\x07";
        let rows = rows(output);
        assert_eq!(rows[0], r#"["plain ",["loud",4,"b u3 f1 g200 U#010203"]," \"\\"]"#);
        assert_eq!(rows[1], r#"[["漢",2,""],["─",1,""],["x",1,"f15 g4"],["+",1,""]]"#);
        assert_eq!(rows[2], r#"[["a",1,"","https://x/?\""],"b"]"#);
    }

    #[test]
    fn a_line_that_goes_on_says_so() {
        let rows = rows("01234567890123456789+");
        assert_eq!(rows[..2], [r#"["01234567890123456789","+"]"#, r#"[["+",1,""]]"#]);
        assert_eq!(rows[2], "[]");
    }
}
