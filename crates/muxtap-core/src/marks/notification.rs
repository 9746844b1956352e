//! Notifications: OSC 9 (iTerm2), OSC 777 (urxvt), OSC 99 (kitty), and joining those that come in
//! parts.

use serde::{Deserialize, Serialize};

use super::{
    NAME_BYTES, NOTIFICATION_BYTES,
    decode::{base64, clean, name, split},
};

/// The notifications that may be incomplete at once; with more, the earliest is shown as it is.
const OPEN: usize = 4;

/// A notification. Neither text is longer than [`NOTIFICATION_BYTES`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notification {
    /// The title; may be empty.
    pub title: String,
    /// The text; may be empty.
    pub body: String,
}

/// A notification, or a part of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotificationPart {
    /// Whether the notification is complete by itself (OSC 9 and 777) and joined with no part.
    pub is_whole: bool,
    /// The id that all parts of one notification share (OSC 99 `i=`).
    pub id: Option<String>,
    /// Whether further parts follow (OSC 99 `d=0`).
    pub more: bool,
    /// The texts of this part.
    pub piece: NotificationPiece,
}

/// The texts of a part, which follow those of earlier parts.
pub type NotificationPiece = Notification;

impl NotificationPart {
    /// Makes a complete notification; `None` without any text.
    pub(super) fn whole(title: &[u8], body: &[u8]) -> Option<Self> {
        let piece = Notification {
            title: clean(title, NOTIFICATION_BYTES, false),
            body: clean(body, NOTIFICATION_BYTES, true),
        };
        (!piece.title.is_empty() || !piece.body.is_empty()).then_some(Self {
            is_whole: true,
            id: None,
            more: false,
            piece,
        })
    }

    /// Parses an OSC 777 without `777;`: `notify;TITLE;BODY`.
    pub(super) fn parse_777(rest: &[u8]) -> Option<Self> {
        let (title, body) = split(rest.strip_prefix(b"notify;")?, b';');
        Self::whole(title, body.unwrap_or_default())
    }

    /// Parses an OSC 99 without `99;`: `KEY=VALUE:…;TEXT`. `None` for parts that are not texts:
    /// icons, buttons, queries.
    pub(super) fn parse_99(rest: &[u8]) -> Option<Self> {
        let (options, text) = split(rest, b';');
        let text = text?;
        let mut part = Self { is_whole: false, id: None, more: false, piece: Notification::default() };
        let (mut is_body, mut is_encoded) = (false, false);
        for option in options.split(|byte| *byte == b':') {
            match split(option, b'=') {
                (b"i", Some(id)) => part.id = name(id, NAME_BYTES).map(str::to_owned),
                (b"d", Some(done)) => part.more = done == b"0",
                (b"e", Some(encoded)) => is_encoded = encoded == b"1",
                (b"p", Some(b"title")) => is_body = false,
                (b"p", Some(b"body")) => is_body = true,
                (b"p", Some(_)) => return None,
                _ => {}
            }
        }
        // Text that is not base64 after all is shown as it is.
        let decoded = if is_encoded { base64(text) } else { None };
        let text = clean(decoded.as_deref().unwrap_or(text), NOTIFICATION_BYTES, is_body);
        *(if is_body { &mut part.piece.body } else { &mut part.piece.title }) = text;
        Some(part)
    }
}

/// Joins the parts of notifications.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Joiner(Vec<(Option<String>, Notification)>);

impl Joiner {
    /// Adds a part. Returns the notifications that are complete now, or that are given up.
    pub(super) fn add(&mut self, part: NotificationPart) -> impl Iterator<Item = Notification> + use<> {
        let at = self.0.iter().position(|(id, _)| *id == part.id && !part.is_whole);
        let mut joined = at.map(|at| self.0.remove(at).1).unwrap_or_default();
        append(&mut joined.title, &part.piece.title);
        append(&mut joined.body, &part.piece.body);
        let mut given_up = None;
        let mut whole = None;
        if part.more {
            if self.0.len() >= OPEN {
                given_up = Some(self.0.remove(0).1);
            }
            self.0.push((part.id, joined));
        } else {
            whole = Some(joined);
        }
        let has_text = |shown: &Notification| !shown.title.is_empty() || !shown.body.is_empty();
        given_up.into_iter().chain(whole).filter(has_text)
    }

    /// Returns the number of bytes held.
    pub(super) fn memory(&self) -> usize {
        let held = |(id, open): &(Option<String>, Notification)| {
            id.as_ref().map_or(0, String::len) + open.title.len() + open.body.len()
        };
        self.0.iter().map(held).sum()
    }
}

fn append(text: &mut String, more: &str) {
    let room = NOTIFICATION_BYTES.saturating_sub(text.len());
    text.extend(more.chars().scan(room, |room, character| {
        *room = room.checked_sub(character.len_utf8())?;
        Some(character)
    }));
}
