//! Values that tmux pushes when they change (F8), and one-time queries for them.
//!
//! If the kernel can be read, tmux is queried only for facts that it alone knows
//! ([`Reads::TmuxAlone`]), and only for windows in which they are used or an end is awaited that no
//! other source reports: tmux evaluates each subscription once a second, whether anything happens
//! or not.
//!
//! Each window has one subscription, on a connection whose session shows it. Three other kinds
//! would be shorter but are never used: subscriptions to all panes, to all windows and to the
//! session kill servers before 3.8 whose session ends just before tmux evaluates them (N31). A
//! subscription to a single pane reports nothing of a pane that is dead.

use bytes::Bytes;
use muxtap_api::LABELS_OPTION;
use muxtap_core::protocol::{
    command::Command,
    ids::{PaneId, WindowId},
};

use super::Value;

/// The control characters that tmux removes from values. A line end in a path would otherwise end
/// the line, and the text after it would be read as a notification. Written out, since a colon (as
/// in `[[:cntrl:]]`) ends the list of modifiers (N1).
const CONTROL: &str = "[\u{1}-\u{1f}\u{7f}]";
/// The separator of a pane's values: no value contains it, since tmux removes it.
const BETWEEN_VALUES: u8 = 0x1f;
/// The terminator of each pane's values.
const AFTER_PANE: u8 = 0x1e;
/// The prefix of a subscription's name; the window's id follows.
const NAME: &str = "muxtap-";
/// The format of whether the pane's process has ended. A pane that was created without a process
/// has none that could (N100).
const DEAD: &str = "#{?#{==:#{pane_pid},0},0,#{pane_dead}}";
/// The format of the cursor's place and the history's size.
const PLACE: &str = "#{history_size} #{cursor_x} #{cursor_y}";

/// The values of a pane that tmux has to report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reads {
    /// Those that only tmux knows. The kernel reports the command, the path and the end of a
    /// process.
    TmuxAlone,
    /// All that change: this process cannot read the server's kernel.
    All,
}

/// Returns the format of a variable's value without control characters.
fn text(variable: &str) -> String {
    format!("#{{s/{CONTROL}/?/:{variable}}}")
}

/// Returns the command that subscribes to the values of a window's panes, until [`unsubscribe`].
pub fn subscribe(window: WindowId, reads: Reads) -> Command {
    let (between, after) = (char::from(BETWEEN_VALUES), char::from(AFTER_PANE));
    let mut values = vec!["#{pane_id}".into(), DEAD.into(), PLACE.into(), text("pane_title"), text(LABELS_OPTION)];
    if reads == Reads::All {
        // Each costs tmux a read of `/proc`.
        values.extend([text("pane_current_command"), text("pane_current_path")]);
    }
    let values = values.join(&between.to_string());
    Command::new("refresh-client").flag("-B").format(format!("{NAME}{window}:{window}:#{{P:{values}{after}}}"))
}

/// Returns the command that ends the subscription to a window.
pub fn unsubscribe(window: WindowId) -> Command {
    Command::new("refresh-client").opt("-B", format!("{NAME}{window}"))
}

/// Returns the query for the present facts that only tmux knows of a pane.
pub fn question(pane: PaneId) -> Vec<Command> {
    let ask = |format: String| Command::new("display-message").flag("-p").opt("-t", pane.to_string()).format(format);
    vec![ask(PLACE.into()), ask(text("pane_title"))]
}

/// Parses the reply to [`question`].
pub fn answer(parts: &[Bytes]) -> Vec<Value> {
    let [place, title] = parts else { return Vec::new() };
    let line = |part: &[u8]| String::from_utf8_lossy(part.strip_suffix(b"\n").unwrap_or(part)).into_owned();
    vec![Value::PlaceHere(line(place)), Value::Title(line(title))]
}

/// The prefix of the name of a subscription to a pane's return; the pane's id follows.
const RETURN: &str = "muxtap-return-";

/// Returns the command that has tmux push a value when a pane has come back to the session of the
/// client that sends this. `swap-window` is announced to no client (N80). The first value of a new
/// subscription is always pushed, within a second.
pub fn watch_return(pane: PaneId) -> Command {
    Command::new("refresh-client").flag("-B").format(format!("{RETURN}{pane}:{pane}:#{{pane_id}}"))
}

/// Returns the command that ends the subscription to a pane's return.
pub fn unwatch_return(pane: PaneId) -> Command {
    Command::new("refresh-client").opt("-B", format!("{RETURN}{pane}"))
}

/// Returns whether a subscription with this name was pushed for a pane that has come back.
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
    /// The text of its labels.
    pub labels: String,
    /// The running command, only with [`Reads::All`].
    command: Option<String>,
    /// The working directory, only with [`Reads::All`].
    path: Option<String>,
}

impl Values {
    /// Returns the values that differ from `before`; all of them if none were known.
    pub fn news(&self, before: Option<&Self>) -> Vec<Value> {
        type Field = (fn(&Values) -> Option<&String>, fn(String) -> Value);
        let fields: [Field; 4] = [
            (|values| Some(&values.place), Value::Place),
            (|values| Some(&values.title), Value::Title),
            (|values| values.command.as_ref(), Value::Command),
            (|values| values.path.as_ref(), Value::Path),
        ];
        let changed = fields.into_iter().filter(|(field, _)| before.and_then(field) != field(self));
        changed.filter_map(|(field, value)| field(self).cloned().map(value)).collect()
    }
}

/// Parses the values that a subscription pushed for the panes of its window; empty if the name is
/// not that of one of muxtap's subscriptions.
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
    let (place, title, labels, command, path) = (text()?, text()?, text()?, text(), text());
    // A pane with a missing part was cut off.
    (command.is_some() == path.is_some()).then_some((id, Values { dead, place, title, labels, command, path }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOLD: &[u8] =
        b"%3\x1f0\x1f7 0 2\x1fa title \xff\x1frole=build\x1fsh\x1f/tmp\x1e%4\x1f1\x1f0 0 0\x1f\x1f\x1f\x1f\x1e";

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
        assert_eq!(parse(b"muxtap-@1", b"%3\x1f0\x1f7 0 2\x1ftitle\x1f\x1fcut\x1e"), []);
    }

    #[test]
    fn tmux_is_not_asked_for_what_the_kernel_tells() {
        let line = |reads| String::from_utf8(subscribe(WindowId(5), reads).line().unwrap()).unwrap();
        assert!(line(Reads::All).contains("pane_current_path"));
        assert!(!line(Reads::TmuxAlone).contains("pane_current"));
        let panes = parse(b"muxtap-@1", b"%3\x1f0\x1f7 0 2\x1fa title\x1f\x1e");
        let [(PaneId(3), three)] = &panes[..] else { panic!("{panes:?}") };
        assert_eq!(three.news(None), [Value::Place("7 0 2".into()), Value::Title("a title".into())]);
    }

    #[test]
    fn an_answer_is_a_place_and_a_title() {
        let parts = [Bytes::from_static(b"7 0 2\n"), Bytes::from_static(b"a title\n")];
        assert_eq!(answer(&parts), [Value::PlaceHere("7 0 2".into()), Value::Title("a title".into())]);
        assert_eq!(answer(&parts[..1]), []);
    }

    #[test]
    fn only_kinds_that_no_server_dies_of_are_asked_for() {
        let line = subscribe(WindowId(5), Reads::All).line().unwrap();
        assert!(line.starts_with(b"refresh-clien -B \"muxtap-@5:@5:#{P:"), "{}", String::from_utf8_lossy(&line));
        assert_eq!(unsubscribe(WindowId(5)).line().unwrap(), b"refresh-clien -B muxtap-@5\n");
    }
}
