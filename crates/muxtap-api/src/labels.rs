//! Labels of panes and sessions: their form in tmux's options, and what a label may be.

use std::{
    collections::BTreeMap,
    fmt::{self, Write as _},
};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Error, ErrorCode, Result};

/// The tmux option (`set-option -p`) that holds a pane's labels. As with any user option, a pane
/// without its own has its window's.
pub const LABELS_OPTION: &str = "@muxtap_labels";
/// The tmux option of a session that holds its labels, which its panes inherit. A name of its own: a
/// format with the other name shows the pane's value and hides the session's.
pub const SESSION_LABELS_OPTION: &str = "@muxtap_session_labels";
/// The most labels that a pane or a session sets.
pub const LABELS_MOST: usize = 32;
/// The longest key of a label, in bytes.
pub const LABEL_KEY_BYTES: usize = 63;
/// The longest value of a label, in bytes.
pub const LABEL_VALUE_BYTES: usize = 256;
/// The longest text of all labels that a pane or a session sets, in bytes.
pub const LABELS_BYTES: usize = 4096;

/// The labels of a pane or a session: keys and nonempty values.
///
/// Their text is `key=value,key=value`, in the order of the keys. In a value, `%` and two hexadecimal
/// digits stand for a byte; `%`, `,`, `#`, `{`, `}` and white space are always written so: the text is
/// one word, and has neither formats nor styles of tmux's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(from = "BTreeMap<String, String>")]
pub struct Labels(BTreeMap<String, String>);

/// Labels of another host, which may send anything: what is no label is skipped.
impl From<BTreeMap<String, String>> for Labels {
    fn from(given: BTreeMap<String, String>) -> Self {
        let is_label =
            |key: &str, value: &str| !value.is_empty() && check_key(key).is_ok() && check_value(key, value).is_ok();
        // A pane's own ones and those of its session.
        Self(given.into_iter().filter(|(key, value)| is_label(key, value)).take(2 * LABELS_MOST).collect())
    }
}

impl Labels {
    /// Reads labels from tmux's option, which a person may have set: parts that are no label are
    /// skipped, and so is a text that is too long. Of two labels with one key the first counts.
    pub fn parse(text: &str) -> Self {
        let mut labels = Self::default();
        if text.len() > LABELS_BYTES {
            return labels;
        }
        for part in text.split(',') {
            let Some((key, value)) = part.trim().split_once('=') else { continue };
            let Some(value) = decode(value).filter(|value| !value.is_empty()) else { continue };
            if labels.0.len() < LABELS_MOST && check_key(key).is_ok() && check_value(key, &value).is_ok() {
                labels.0.entry(key.to_owned()).or_insert(value);
            }
        }
        labels
    }

    /// Returns these labels with changes: an empty value removes a label.
    ///
    /// Errors: `INVALID_ARGUMENT` for an invalid key or value, `RESOURCE_LIMIT` for too many labels.
    pub fn with(&self, changes: &BTreeMap<String, String>) -> Result<Self> {
        check_each(changes)?;
        let labels = self.replaced(changes);
        labels.check()?;
        Ok(labels)
    }

    /// Returns these labels with the values of other ones: an empty value removes a label.
    #[must_use]
    pub fn replaced(&self, values: &BTreeMap<String, String>) -> Self {
        let mut labels = self.clone();
        for (key, value) in values {
            if value.is_empty() {
                labels.0.remove(key);
            } else {
                labels.0.insert(key.clone(), value.clone());
            }
        }
        labels
    }

    /// Returns these labels and those of `base` with other keys: a pane's over those of its session.
    #[must_use]
    pub fn over(&self, base: &Self) -> Self {
        let mut labels = base.clone();
        labels.0.extend(self.0.clone());
        labels
    }

    /// Checks that one option of tmux may hold these labels. Error: `RESOURCE_LIMIT`.
    pub fn check(&self) -> Result<()> {
        let too_many = |what: String| Err(Error::new(ErrorCode::ResourceLimit, what));
        if self.0.len() > LABELS_MOST {
            return too_many(format!("labels: {}; at most {LABELS_MOST} are allowed", self.0.len()));
        }
        let bytes = self.to_string().len();
        if bytes > LABELS_BYTES {
            return too_many(format!("labels: {bytes} bytes; at most {LABELS_BYTES} in all are allowed"));
        }
        Ok(())
    }

    /// Returns a label's value.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }

    /// Returns whether there are no labels.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Iterates over keys and values, in the order of the keys.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }
}

impl fmt::Display for Labels {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, (key, value)) in self.iter().enumerate() {
            let comma = if place == 0 { "" } else { "," };
            write!(formatter, "{comma}{key}={}", encode(value))?;
        }
        Ok(())
    }
}

/// Checks changes of labels: each key and value, and that there is one. Error: `INVALID_ARGUMENT`.
pub fn check_changes(changes: &BTreeMap<String, String>) -> Result<()> {
    if changes.is_empty() {
        return Err(Error::invalid("labels: empty; expected at least one key"));
    }
    check_each(changes)
}

/// Checks each key and value. Error: `INVALID_ARGUMENT`.
fn check_each(changes: &BTreeMap<String, String>) -> Result<()> {
    changes.iter().try_for_each(|(key, value)| check_key(key).and_then(|()| check_value(key, value)))
}

/// Checks the key of a label. Error: `INVALID_ARGUMENT`.
pub fn check_key(key: &str) -> Result<()> {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"._-".contains(&byte);
    if !key.is_empty() && key.len() <= LABEL_KEY_BYTES && key.bytes().all(is_plain) {
        return Ok(());
    }
    let shown: String = key.chars().take(LABEL_KEY_BYTES).collect();
    Err(Error::invalid(format!(
        "labels: invalid key {shown:?}; expected 1 to {LABEL_KEY_BYTES} of a-z, 0-9, `.`, `_` and `-`"
    )))
}

/// Checks the value of a label. Error: `INVALID_ARGUMENT`.
pub fn check_value(key: &str, value: &str) -> Result<()> {
    if value.len() > LABEL_VALUE_BYTES {
        let given = value.len();
        return Err(Error::invalid(format!("labels: {key}: {given} bytes; expected at most {LABEL_VALUE_BYTES}")));
    }
    if value.chars().any(char::is_control) {
        return Err(Error::invalid(format!("labels: {key}: the value contains a control character; expected text")));
    }
    Ok(())
}

/// Returns a value as it is written in tmux's option and in a selector.
fn encode(value: &str) -> String {
    let mut written = String::with_capacity(value.len());
    for letter in value.chars() {
        if letter.is_whitespace() || "%,#{}".contains(letter) {
            let mut bytes = [0; 4];
            for byte in letter.encode_utf8(&mut bytes).bytes() {
                // Writing to a string succeeds.
                let _ = write!(written, "%{byte:02X}");
            }
        } else {
            written.push(letter);
        }
    }
    written
}

/// Returns the value that was written so; `None`: a `%` without two hexadecimal digits, or bytes that
/// are not UTF-8.
pub fn decode(written: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(written.len());
    let mut rest = written.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        rest = behind;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let (digits, behind) = rest.split_at_checked(2)?;
        let digits = std::str::from_utf8(digits).ok().filter(|digits| !digits.starts_with('+'))?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        rest = behind;
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(changes: &[(&str, &str)]) -> Result<Labels> {
        let changes = changes.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        Labels::parse("role=build,team=a").with(&changes)
    }

    #[test]
    fn what_is_written_is_read() {
        let odd = "a,b=%c #{x} {é}\u{2028}'\";\\ ";
        let labels = changed(&[("note", odd), ("team", "")]).unwrap();
        let text = labels.to_string();
        assert!(!text.contains(['#', '{', '}', ' ', '\u{2028}']), "{text}");
        assert_eq!(text.matches(',').count(), 1, "{text}");
        assert_eq!(Labels::parse(&text), labels);
        assert_eq!((labels.get("note"), labels.get("team")), (Some(odd), None));
        let longest = "%".repeat(LABEL_VALUE_BYTES);
        assert_eq!(Labels::parse(&changed(&[("a", &longest)]).unwrap().to_string()).get("a"), Some(&*longest));
    }

    #[test]
    fn a_panes_label_is_over_the_one_of_its_session() {
        let (pane, session) = (Labels::parse("role=build"), Labels::parse("role=none,team=a"));
        assert_eq!(pane.over(&session).to_string(), "role=build,team=a");
        assert_eq!(Labels::default().over(&session), session);
        assert_eq!(pane.over(&Labels::default()), pane);
    }

    #[test]
    fn a_persons_text_is_read_as_far_as_it_is_labels() {
        for (text, read) in [
            ("", ""),
            (" role=build , team=a ", "role=build,team=a"),
            ("role=build,role=test", "role=build"),
            ("role,=x,Role=x,a b=c,ok=1,empty=", "ok=1"),
            ("a=%4,b=%zz,c=%ff,d=%+1,e=%41", "e=A"),
            ("a=x\u{1b}[31m,b=%1b,c=%0a,d=1", "d=1"),
            ("a=b=c", "a=b=c"),
            ("#{pane_id}=x,b=#(touch /x)", "b=%23(touch%20/x)"),
        ] {
            assert_eq!(Labels::parse(text).to_string(), read, "{text:?}");
        }
        assert!(Labels::parse(&format!("a=1,b={}", "x".repeat(LABELS_BYTES))).is_empty());
        assert!(Labels::parse(&format!("a=1,b={}", "x".repeat(LABEL_VALUE_BYTES + 1))).get("b").is_none());
        let many: Vec<_> = (0..LABELS_MOST + 5).map(|number| format!("k{number}=1")).collect();
        assert_eq!(Labels::parse(&many.join(",")).iter().count(), LABELS_MOST);
    }

    #[test]
    fn another_hosts_labels_are_read_as_far_as_they_are_labels() {
        let sent = "{\"role\":\"build\",\"\\u001b[31m\":\"x\",\"A\":\"x\",\"a\":\"\\n\",\"b\":\"\"}";
        let read: Labels = serde_json::from_str(sent).unwrap();
        assert_eq!(serde_json::to_string(&read).unwrap(), "{\"role\":\"build\"}");
        let many: BTreeMap<_, _> = (0..2 * LABELS_MOST + 5).map(|number| (format!("k{number}"), "1".into())).collect();
        assert_eq!(Labels::from(many).iter().count(), 2 * LABELS_MOST);
    }

    #[test]
    fn what_is_no_label_is_refused() {
        let long = "x".repeat(LABEL_VALUE_BYTES + 1);
        let key = "k".repeat(LABEL_KEY_BYTES + 1);
        for (key, value) in
            [("", "x"), ("A", "x"), ("a b", "x"), ("é", "x"), (&*key, "x"), ("a", &*long), ("a", "\n"), ("a", "\u{9b}")]
        {
            let error = changed(&[(key, value)]).unwrap_err();
            assert_eq!(error.code, ErrorCode::InvalidArgument, "{key}={value:?}");
            assert!(!error.message.contains(['\n', '\u{9b}']), "{error}");
        }
        let names: Vec<_> = (0..LABELS_MOST).map(|number| format!("k{number}")).collect();
        let many: Vec<_> = names.iter().map(|name| (&**name, "1")).collect();
        assert_eq!(changed(&many).unwrap_err().code, ErrorCode::ResourceLimit);
        let full = "%".repeat(LABEL_VALUE_BYTES);
        let large: Vec<_> = names.iter().take(6).map(|name| (&**name, &*full)).collect();
        assert_eq!(changed(&large).unwrap_err().code, ErrorCode::ResourceLimit);
    }
}
