//! What is known about a firing: variables of a program, and words of a template.

use muxtap_api::PaneInfo;

use crate::limits::FACT_BYTES;

/// What is known about a firing. Texts of panes are shortened to 4096 bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Facts {
    /// The firing's id; empty in a test.
    pub(crate) id: String,
    pub(crate) rule: String,
    pub(crate) kind: &'static str,
    pub(crate) at_ms: u64,
    pub(crate) server: String,
    pub(crate) host: String,
    pub(crate) pane: String,
    pub(crate) session: String,
    pub(crate) window: String,
    pub(crate) window_index: u32,
    pub(crate) title: String,
    /// What was seen: the line, the row, the command's line, the question, the notification's text.
    pub(crate) text: String,
    pub(crate) status: Option<i32>,
    pub(crate) signal: String,
    pub(crate) duration_ms: Option<u64>,
    pub(crate) agent: String,
    pub(crate) state: String,
}

/// The names of all facts, in the order of [`Facts::all`].
pub(crate) const NAMES: [&str; 17] = [
    "id",
    "rule",
    "kind",
    "at_ms",
    "server",
    "host",
    "pane",
    "session",
    "window",
    "window_index",
    "title",
    "text",
    "status",
    "signal",
    "duration_ms",
    "agent",
    "state",
];

impl Facts {
    /// Returns the facts about a pane.
    pub(crate) fn of(pane: &PaneInfo, server: &str, host: Option<&str>) -> Self {
        Self {
            server: server.to_owned(),
            host: host.unwrap_or_default().to_owned(),
            pane: pane.id.to_string(),
            session: cut(&pane.session),
            window: cut(&pane.window),
            window_index: pane.window_index,
            title: cut(&pane.title),
            ..Self::default()
        }
    }

    /// Returns the facts with this text.
    pub(crate) fn with_text(self, text: &str) -> Self {
        Self { text: cut(text), ..self }
    }

    /// Returns each fact as text, in the order of [`NAMES`]; what is unknown is empty.
    pub(crate) fn all(&self) -> [(&'static str, String); 17] {
        let number = |number: Option<i64>| number.map_or_else(String::new, |number| number.to_string());
        let texts = [
            self.id.clone(),
            self.rule.clone(),
            self.kind.to_owned(),
            self.at_ms.to_string(),
            self.server.clone(),
            self.host.clone(),
            self.pane.clone(),
            self.session.clone(),
            self.window.clone(),
            self.window_index.to_string(),
            self.title.clone(),
            self.text.clone(),
            number(self.status.map(i64::from)),
            self.signal.clone(),
            number(self.duration_ms.and_then(|ms| i64::try_from(ms).ok())),
            self.agent.clone(),
            self.state.clone(),
        ];
        let mut texts = texts.into_iter();
        NAMES.map(|name| (name, texts.next().unwrap_or_default()))
    }

    /// Returns the place for people: `SESSION:WINDOW`, and on another host its name.
    pub(crate) fn place(&self) -> String {
        let host = if self.host.is_empty() { String::new() } else { format!("{}/", self.host) };
        let window = if self.window.is_empty() { self.window_index.to_string() } else { self.window.clone() };
        format!("{host}{}:{window}", self.session)
    }

    /// Returns one line for people: what happened, in which pane.
    pub(crate) fn summary(&self) -> String {
        let what = match (self.kind, self.status, self.signal.as_str()) {
            ("command", Some(status), _) => format!("status {status}"),
            ("command", None, signal) if !signal.is_empty() => format!("signal {signal}"),
            ("command", ..) => "command ended".into(),
            ("ended", Some(status), _) => format!("ended with status {status}"),
            ("ended", ..) => "ended".into(),
            ("agent", ..) => format!("{} {}", self.agent, self.state),
            ("progress", ..) => format!("progress {}", self.state),
            ("quiet", ..) => "quiet".into(),
            _ => String::new(),
        };
        let parts = [what.as_str(), self.text.trim()];
        parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(": ")
    }
}

/// Returns the beginning of a text, whole characters.
pub(crate) fn beginning(text: &str, most: usize) -> &str {
    let mut end = most.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default()
}

fn cut(text: &str) -> String {
    beginning(text, FACT_BYTES).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fact_has_its_own_name() {
        let facts = Facts {
            id: "1".into(),
            rule: "2".into(),
            kind: "3",
            at_ms: 4,
            server: "5".into(),
            host: "6".into(),
            pane: "7".into(),
            session: "8".into(),
            window: "9".into(),
            window_index: 10,
            title: "11".into(),
            text: "12".into(),
            status: Some(13),
            signal: "14".into(),
            duration_ms: Some(15),
            agent: "16".into(),
            state: "17".into(),
        };
        let all = facts.all();
        assert!(all.iter().enumerate().all(|(at, (name, text))| *name == NAMES[at] && *text == (at + 1).to_string()));
    }

    #[test]
    fn a_text_is_cut_between_characters() {
        assert_eq!(beginning("aé", 2), "a");
        assert_eq!(cut(&"é".repeat(4000)).len(), FACT_BYTES);
    }
}
