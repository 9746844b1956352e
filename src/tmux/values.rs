//! Values that tmux is asked to push when they change (F8): whether panes are dead, where their
//! cursors are, their titles, commands and paths.
//!
//! There is one subscription for each window, on a connection whose session shows it. Three other
//! kinds would be shorter to ask for and are never asked for: those of all panes, of all windows
//! and of the session kill servers before 3.8 whose session ends just before tmux's look (N31). One
//! for each pane says nothing of a pane that is dead.

use super::Value;
use crate::protocol::{
    command::Command,
    ids::{PaneId, WindowId},
};

/// The control characters that tmux takes out of values. A line end in a path would otherwise end
/// the line, and what follows it would be read as a notification. Written out, since a colon (as in
/// `[[:cntrl:]]`) ends the list of modifiers (N1).
const CONTROL: &str = "[\u{1}-\u{1f}\u{7f}]";
/// Between the values of a pane: no value holds it, since tmux takes it out.
const BETWEEN_VALUES: u8 = 0x1f;
/// Behind each pane.
const AFTER_PANE: u8 = 0x1e;
/// The prefix of a subscription's name; the window's id follows.
const NAME: &str = "muxtap-";

/// Returns the command that subscribes to the values of a window's panes, until [`unsubscribe`].
pub fn subscribe(window: WindowId) -> Command {
    let (between, after) = (char::from(BETWEEN_VALUES), char::from(AFTER_PANE));
    let text = |variable: &str| format!("#{{s/{CONTROL}/?/:{variable}}}");
    let values = [
        "#{pane_id}".into(),
        "#{pane_dead}".into(),
        "#{history_size} #{cursor_x} #{cursor_y}".into(),
        text("pane_title"),
        text("pane_current_command"),
        text("pane_current_path"),
    ];
    let values = values.join(&between.to_string());
    Command::new("refresh-client").flag("-B").format(format!("{NAME}{window}:{window}:#{{P:{values}{after}}}"))
}

/// Ends it.
pub fn unsubscribe(window: WindowId) -> Command {
    Command::new("refresh-client").opt("-B", format!("{NAME}{window}"))
}

/// The prefix of the name of a subscription to a pane's return; the pane's id follows.
const RETURN: &str = "muxtap-return-";

/// Returns the command that has tmux push something when a pane has come back to the session of the
/// client that sends this. `swap-window` is announced to no client (N80). What a new subscription
/// finds is always pushed, within a second.
pub fn watch_return(pane: PaneId) -> Command {
    Command::new("refresh-client").flag("-B").format(format!("{RETURN}{pane}:{pane}:#{{pane_id}}"))
}

/// Ends it.
pub fn unwatch_return(pane: PaneId) -> Command {
    Command::new("refresh-client").opt("-B", format!("{RETURN}{pane}"))
}

/// Whether a subscription with this name was pushed for a pane that has come back.
pub fn is_return(name: &[u8]) -> bool {
    name.starts_with(RETURN.as_bytes())
}

/// The values of one pane, as tmux pushed them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Values {
    /// Whether the pane's process has ended.
    pub dead: bool,
    place: String,
    title: String,
    command: String,
    path: String,
}

impl Values {
    /// Returns the values that differ from `before`; all of them where nothing was known.
    pub fn news(&self, before: Option<&Self>) -> Vec<Value> {
        type Field = (fn(&Values) -> &String, fn(String) -> Value);
        let fields: [Field; 4] = [
            (|values| &values.place, Value::Place),
            (|values| &values.title, Value::Title),
            (|values| &values.command, Value::Command),
            (|values| &values.path, Value::Path),
        ];
        let changed = fields.into_iter().filter(|(field, _)| before.map(field) != Some(field(self)));
        changed.map(|(field, value)| value(field(self).clone())).collect()
    }
}

/// Parses the values that a subscription pushed for the panes of its window. Empty where the name
/// is not that of one of muxtap's subscriptions.
pub fn parse(name: &[u8], value: &[u8]) -> Vec<(PaneId, Values)> {
    let ours = name.strip_prefix(NAME.as_bytes()).is_some_and(|window| WindowId::from_bytes(window).is_some());
    let panes = value.split_inclusive(|byte| *byte == AFTER_PANE).filter(|_| ours);
    panes.filter_map(|pane| of_pane(pane.strip_suffix(&[AFTER_PANE])?)).collect()
}

fn of_pane(pane: &[u8]) -> Option<(PaneId, Values)> {
    let mut values = pane.split(|byte| *byte == BETWEEN_VALUES);
    let id = PaneId::from_bytes(values.next()?)?;
    let dead = values.next()? == b"1";
    let mut text = || values.next().map(|value| String::from_utf8_lossy(value).into_owned());
    let values = Values { dead, place: text()?, title: text()?, command: text()?, path: text()? };
    Some((id, values))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOLD: &[u8] = b"%3\x1f0\x1f7 0 2\x1fa title \xff\x1fsh\x1f/tmp\x1e%4\x1f1\x1f0 0 0\x1f\x1f\x1f\x1e";

    #[test]
    fn each_pane_of_the_window_is_told() {
        let panes = parse(b"muxtap-@1", TOLD);
        let [(PaneId(3), three), (PaneId(4), four)] = &panes[..] else { panic!("{panes:?}") };
        assert!(!three.dead && four.dead);
        let all = [
            Value::Place("7 0 2".into()),
            Value::Title("a title \u{fffd}".into()),
            Value::Command("sh".into()),
            Value::Path("/tmp".into()),
        ];
        assert_eq!(three.news(None), all);
        assert_eq!(three.news(Some(three)), []);
        let moved = Values { place: "8 0 2".into(), ..three.clone() };
        assert_eq!(moved.news(Some(three)), [Value::Place("8 0 2".into())]);
    }

    #[test]
    fn what_is_cut_or_not_ours_tells_nothing() {
        assert_eq!(parse(b"theirs", TOLD), []);
        assert_eq!(parse(b"muxtap-title", TOLD), []);
        let first = TOLD.iter().position(|byte| *byte == AFTER_PANE).unwrap();
        for end in 0..TOLD.len() {
            let told = parse(b"muxtap-@1", &TOLD[..end]);
            assert_eq!(told.len(), usize::from(end > first), "{end}");
        }
        assert_eq!(parse(b"muxtap-@1", b"%3\x1f0\x1f7 0 2\x1fcut\x1e"), []);
    }

    #[test]
    fn only_kinds_that_no_server_dies_of_are_asked_for() {
        let line = subscribe(WindowId(5)).line().unwrap();
        assert!(line.starts_with(b"refresh-client -B \"muxtap-@5:@5:#{P:"), "{}", String::from_utf8_lossy(&line));
        assert_eq!(unsubscribe(WindowId(5)).line().unwrap(), b"refresh-client -B muxtap-@5\n");
    }
}
