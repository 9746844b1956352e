//! tmux's names of keys, and the nearest one to a name of another program.

use std::fmt::Write as _;

use muxtap_api::{Error, Result};

/// The keys with names, as `tmux list-keys` writes them (key-string.c).
const NAMES: [&str; 45] = [
    "Enter", "Escape", "Tab", "BTab", "Space", "BSpace", "Up", "Down", "Left", "Right", "Home", "End", "PageUp",
    "PageDown", "Insert", "Delete", "F1", "F2", "F3", "F4", "F5", "F6", "F7", "F8", "F9", "F10", "F11", "F12",
    "KPEnter", "KP/", "KP*", "KP-", "KP+", "KP.", "KP0", "KP1", "KP2", "KP3", "KP4", "KP5", "KP6", "KP7", "KP8", "KP9",
    "Any",
];

/// Other names that tmux accepts.
const ALSO: [&str; 8] = ["IC", "DC", "NPage", "PgDn", "PPage", "PgUp", "FocusIn", "FocusOut"];

/// Names that people and other programs use, in lower case without signs, and tmux's names for
/// them.
const FOREIGN: [(&str, &str); 27] = [
    ("return", "Enter"),
    ("ret", "Enter"),
    ("cr", "Enter"),
    ("newline", "Enter"),
    ("linefeed", "Enter"),
    ("carriagereturn", "Enter"),
    ("esc", "Escape"),
    ("backspace", "BSpace"),
    ("bs", "BSpace"),
    ("bksp", "BSpace"),
    ("del", "Delete"),
    ("ins", "Insert"),
    ("spacebar", "Space"),
    ("backtab", "BTab"),
    ("pgup", "PageUp"),
    ("pgdn", "PageDown"),
    ("pgdown", "PageDown"),
    ("prior", "PageUp"),
    ("next", "PageDown"),
    ("uparrow", "Up"),
    ("arrowup", "Up"),
    ("downarrow", "Down"),
    ("arrowdown", "Down"),
    ("leftarrow", "Left"),
    ("arrowleft", "Left"),
    ("rightarrow", "Right"),
    ("arrowright", "Right"),
];

/// The longest name that is compared with the others; longer text is not a name.
const LONGEST: usize = 24;

/// Checks that each item names a key.
///
/// The error shows the first item that does not, with the nearest name. Text belongs in `text`.
pub fn check_keys(keys: &[String]) -> Result<()> {
    let Some(wrong) = keys.iter().find(|key| !is_key(key)) else { return Ok(()) };
    let mut message = format!("keys: unknown key {wrong:?}");
    let words: Vec<_> = wrong.split_whitespace().collect();
    // Writing to a String cannot fail.
    let _ = match nearest(wrong) {
        _ if wrong.is_empty() => write!(message, "; name one (Enter, C-c), or leave `keys` out"),
        _ if words.len() > 1 && words.iter().all(|word| is_key(word) && word.len() > 1) => {
            write!(message, "; write a list with each key as an item: {}", serde_json::json!(words))
        }
        Some(name) => write!(message, "; write {name:?}, or put it into `text` to have it typed"),
        None => write!(message, "; put it into `text` to have it typed (keys are named as in tmux: Enter, C-c, Up)"),
    };
    message.push_str("; nothing was typed");
    Err(Error::invalid(message))
}

/// Returns whether tmux takes this as one key instead of text.
fn is_key(name: &str) -> bool {
    let hex = name.strip_prefix("0x").is_some_and(|digits| !digits.is_empty() && is_all(digits, u8::is_ascii_hexdigit));
    let user = name.strip_prefix("User").is_some_and(|digits| !digits.is_empty() && is_all(digits, u8::is_ascii_digit));
    if hex || user {
        return true;
    }
    let mut rest = name.strip_prefix('^').filter(|rest| !rest.is_empty()).unwrap_or(name);
    while let Some((modifier, key)) = rest.split_once('-').filter(|(modifier, _)| modifier.len() == 1) {
        if !"CcMmSs".contains(modifier) || key.is_empty() {
            break;
        }
        rest = key;
    }
    let mut characters = rest.chars();
    let single = characters.next().is_some_and(|only| !only.is_control()) && characters.next().is_none();
    single || canonical(rest).is_some() || is_mouse(rest)
}

fn is_all(text: &str, holds: impl Fn(&u8) -> bool) -> bool {
    text.bytes().all(|byte| holds(&byte))
}

/// Returns whether this is a mouse key, such as `MouseDown1Pane`.
fn is_mouse(name: &str) -> bool {
    const KINDS: [&str; 5] = ["Mouse", "Wheel", "DoubleClick", "TripleClick", "SecondClick"];
    const PLACES: [&str; 6] = ["Pane", "Status", "StatusLeft", "StatusRight", "StatusDefault", "Border"];
    KINDS.iter().any(|kind| name.starts_with(kind))
        && PLACES.iter().any(|place| name.ends_with(place))
        && is_all(name, u8::is_ascii_alphanumeric)
}

/// Returns tmux's own spelling of a key's name, ignoring case.
fn canonical(name: &str) -> Option<&'static str> {
    NAMES.iter().chain(&ALSO).find(|known| known.eq_ignore_ascii_case(name)).copied()
}

/// Returns the name of the key that is probably meant.
fn nearest(wrong: &str) -> Option<String> {
    let bare = wrong.trim().trim_start_matches(['<', '{', '[', '\\']).trim_end_matches(['>', '}', ']']);
    if bare.is_empty() || bare.chars().count() > LONGEST {
        return None;
    }
    // The last sign may be the key itself: `Ctrl--`.
    let cut = |c: char| c == '-' || c == '+' || c == '_' || c.is_whitespace();
    let mut modifiers = String::new();
    let mut rest = bare.trim_start_matches('^');
    if rest.len() < bare.len() {
        modifiers.push_str("C-");
    }
    while let Some(at) = rest.find(cut).filter(|at| *at > 0 && at + 1 < rest.len()) {
        let (word, key) = (rest.get(..at)?, rest.get(at + 1..)?);
        let modifier = match word.to_ascii_lowercase().as_str() {
            "c" | "ctrl" | "control" | "ctl" => "C-",
            "m" | "alt" | "meta" | "opt" | "option" | "a" => "M-",
            "s" | "shift" => "S-",
            _ => break,
        };
        if !modifiers.contains(modifier) {
            modifiers.push_str(modifier);
        }
        rest = key;
    }
    let mut characters = rest.chars();
    let key = match (characters.next(), characters.next()) {
        (Some(only), None) if modifiers.is_empty() => only.to_string(),
        // Ctrl+C is C-c: a capital letter would add Shift.
        (Some(only), None) => only.to_ascii_lowercase().to_string(),
        _ => named(rest)?,
    };
    match (modifiers.as_str(), key.as_str()) {
        ("S-", "Tab") => Some("BTab".to_owned()),
        _ => Some(modifiers + &key),
    }
}

/// Returns the key that a word means in another program, or the key whose name differs least from
/// the word.
fn named(word: &str) -> Option<String> {
    let plain: String = word.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_lowercase();
    if let Some((_, name)) = FOREIGN.iter().find(|(foreign, _)| *foreign == plain) {
        return Some((*name).to_owned());
    }
    if let Some(name) = canonical(&plain) {
        return Some(name.to_owned());
    }
    // tmux has F13 to F24 as shifted keys.
    let function = plain.strip_prefix('f').and_then(|number| number.parse::<u8>().ok());
    if let Some(number @ 13..=24) = function {
        return Some(format!("S-F{}", number - 12));
    }
    let near =
        NAMES.iter().filter(|name| name.len() > 3).map(|name| (distance(&plain, &name.to_ascii_lowercase()), *name));
    let (far, name) = near.min()?;
    (far <= 1 + usize::from(plain.len() > 4)).then(|| name.to_owned())
}

/// Returns the number of letters to change, add or remove to turn one word into the other.
fn distance(one: &str, other: &str) -> usize {
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (i, a) in one.bytes().enumerate() {
        let mut last = i + 1;
        let mut next = vec![last];
        for ((b, diagonal), above) in other.bytes().zip(&row).zip(row.iter().skip(1)) {
            last = (diagonal + usize::from(a != b)).min(above + 1).min(last + 1);
            next.push(last);
        }
        row = next;
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_tmux_reads_as_a_key_is_one() {
        for key in [
            "C-c",
            "c-c",
            "^C",
            "Enter",
            "enter",
            "Up",
            "S-Up",
            "C-M-x",
            "M-Enter",
            "F12",
            "BSpace",
            "PgDn",
            "y",
            "1",
            "-",
            "^",
            "C--",
            "KPEnter",
            "KP5",
            "0x1b",
            "User3",
            "WheelUpPane",
            "ü",
            "NPage",
            "IC",
            "C-Space",
            "^Up",
        ] {
            assert!(is_key(key), "{key}");
        }
        for text in ["", "Ctrl+C", "Return", "<Enter>", "ctrl-c", "ESC", "hello", "F13", "C-", "X-a", "Up Up", "\n"] {
            assert!(!is_key(text), "{text:?}");
        }
    }

    #[test]
    fn the_nearest_name_is_said() {
        for (wrong, right) in [
            ("Ctrl+C", "C-c"),
            ("ctrl-c", "C-c"),
            ("Control-D", "C-d"),
            ("CTRL C", "C-c"),
            ("<C-c>", "C-c"),
            ("Return", "Enter"),
            ("<Enter>", "Enter"),
            ("<CR>", "Enter"),
            ("{Enter}", "Enter"),
            ("ESC", "Escape"),
            ("<Esc>", "Escape"),
            ("Escpae", "Escape"),
            ("Backspace", "BSpace"),
            ("ArrowUp", "Up"),
            ("Page Down", "PageDown"),
            ("page_up", "PageUp"),
            ("Shift+Tab", "BTab"),
            ("Alt+Left", "M-Left"),
            ("Ctrl+Shift+Up", "C-S-Up"),
            ("Ctrl+Return", "C-Enter"),
            ("F13", "S-F1"),
            ("Del", "Delete"),
            ("Entre", "Enter"),
        ] {
            assert_eq!(nearest(wrong).as_deref(), Some(right), "{wrong}");
        }
        for text in ["make test", "hello", "yes please", "q!", ":wq"] {
            assert_eq!(nearest(text), None, "{text}");
        }
        let keys = |keys: &[&str]| keys.iter().map(|key| (*key).to_owned()).collect::<Vec<_>>();
        let message = |wrong: &[&str]| check_keys(&keys(wrong)).unwrap_err().message;
        assert!(message(&["Up", "Ctrl+C"]).contains(r#"unknown key "Ctrl+C"; write "C-c""#));
        assert!(message(&["C-c Enter"]).contains(r#"write a list with each key as an item: ["C-c","Enter"]"#));
        assert!(message(&["ls -l"]).contains("put it into `text`"));
        assert!(check_keys(&keys(&["C-c", "y", "Enter"])).is_ok());
    }
}
