//! Messages from a page, and the small ones to it (`docs/page.md`).

use base64::{Engine as _, engine::general_purpose::STANDARD};
use muxtap_api::{Error, InputAnswer, Result};
use muxtap_engine::Pane;
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// The maximum number of characters of a malformed message, and of its error, that an error shows.
const SHOWN: usize = 400;

/// A message from a page.
#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub(super) enum Message {
    Hello {
        #[serde(default)]
        client: Option<String>,
    },
    List {},
    Show {
        view: u32,
        key: String,
    },
    Hide {
        view: u32,
    },
    Drawn {
        #[serde(default)]
        views: Vec<u32>,
        #[serde(default)]
        list: bool,
    },
    History {
        id: u64,
        view: u32,
        from: u64,
        count: u64,
    },
    Commands {
        id: u64,
        view: u32,
        /// Only what has changed since the last response for this view.
        #[serde(default)]
        changed: bool,
    },
    Input(Input),
    Fit {
        id: u64,
        key: String,
        columns: u16,
        rows: u16,
    },
    Unfit {
        id: u64,
        key: String,
    },
    Waits {},
    Approvals {},
    Call {
        id: u64,
        tool: String,
        #[serde(default)]
        arguments: Map<String, Value>,
    },
}

/// An input with its number.
#[derive(Debug, Deserialize)]
pub(super) struct Input {
    pub(super) seq: u64,
    pub(super) key: String,
    #[serde(default)]
    keys: Option<Vec<String>>,
    #[serde(default)]
    text: Option<String>,
    #[serde(default)]
    paste: Option<String>,
    #[serde(default)]
    bytes: Option<String>,
}

/// Content to type.
#[derive(Debug)]
pub(super) enum Typed {
    Keys(Vec<String>),
    Text(String),
    Paste(String),
    Bytes(Vec<u8>),
}

impl Input {
    /// Returns the content to type. Error: `INVALID_ARGUMENT` unless the input has exactly one.
    pub(super) fn typed(&mut self) -> Result<Typed> {
        match (self.keys.take(), self.text.take(), self.paste.take(), self.bytes.take()) {
            (Some(keys), None, None, None) => Ok(Typed::Keys(keys)),
            (None, Some(text), None, None) => Ok(Typed::Text(text)),
            (None, None, Some(text), None) => Ok(Typed::Paste(harmless(&text))),
            (None, None, None, Some(bytes)) => STANDARD
                .decode(&bytes)
                .map(Typed::Bytes)
                .map_err(|error| Error::invalid(format!("bytes: invalid base64: {error}"))),
            _ => Err(Error::invalid("expected exactly one of `keys`, `text`, `paste` and `bytes`")),
        }
    }
}

/// Removes control characters from a text to paste.
///
/// One of them could end the brackets in which tmux types it, and what follows would be keys.
fn harmless(text: &str) -> String {
    text.chars().filter(|c| !c.is_control() || matches!(c, '\t' | '\n' | '\r')).collect()
}

impl Typed {
    /// Types the content into a pane.
    pub(super) async fn give(self, pane: &Pane) -> Result<InputAnswer> {
        match self {
            Self::Keys(keys) => pane.send_keys(keys).await,
            Self::Text(text) => pane.type_text(text).await,
            Self::Paste(text) => pane.paste(text).await,
            Self::Bytes(bytes) => pane.send_bytes(&bytes).await,
        }
    }
}

impl Message {
    /// Parses a message. Error: the reason, and the view or number that it is about.
    pub(super) fn read(value: Value) -> std::result::Result<Self, String> {
        let kind = value.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
        let about = ["view", "id"].into_iter().filter_map(|name| Some((name, value.get(name)?.as_u64()?)));
        let about: Vec<_> = about.collect();
        serde_json::from_value(value).map_err(|error| {
            // Both may contain text that the page sent.
            let kind: String = kind.chars().take(SHOWN).collect();
            let wrong: String = error.to_string().chars().take(SHOWN).collect();
            let error = Error::invalid(format!("invalid message of type {kind:?}: {wrong}"));
            failed(&error, about)
        })
    }
}

/// Builds an `error` message.
pub(super) fn failed(error: &Error, about: impl IntoIterator<Item = (&'static str, u64)>) -> String {
    let mut message = json!({ "type": "error", "error": error });
    for (name, value) in about {
        if let Some(message) = message.as_object_mut() {
            message.insert(name.to_owned(), value.into());
        }
    }
    message.to_string()
}
