use std::sync::Arc;

use muxtap_api::Epoch;
use muxtap_core::protocol::ids::PaneId;

use super::*;

const NONCE: &str = "0123456789abcdef";

fn pane() -> Arc<PaneState> {
    let pane = PaneState::new(PaneId(1), Epoch::default(), 100 * 1024);
    pane.event_cache.add_reader();
    pane
}

fn print(pane: &PaneState, text: &str) {
    let _ = pane.push(0, text.as_bytes());
}

/// Returns the changes as `+1`, `-1` for the begin and end of the command 1, and else as a letter.
fn shown<'a>(noted: impl IntoIterator<Item = &'a Noted>) -> Vec<String> {
    let shown = noted.into_iter().map(|noted| match &noted.change {
        Change::Started(number) => format!("+{number}"),
        Change::Finished(number) => format!("-{number}"),
        Change::Directory(_) => "d".to_owned(),
        Change::Progress(_) => "p".to_owned(),
        Change::Notification(_) => "n".to_owned(),
    });
    shown.collect()
}

fn noted(pane: &PaneState) -> Vec<String> {
    shown(pane.noted_changes(0, u64::MAX).0.iter().map(AsRef::as_ref))
}

#[test]
fn changes_come_in_the_order_of_the_stream() {
    let pane = pane();
    print(&pane, "\x1b]9;4;1;5\x07\x1b]133;C\x07x\x1b]133;D;0\x07\x1b]7;file:///a\x07");
    assert_eq!(noted(&pane), ["p", "+1", "-1", "d"]);
    let (first, next) = pane.noted_changes(0, 20);
    assert_eq!(shown(first.iter().map(AsRef::as_ref)), ["p", "+1"]);
    let (rest, _) = pane.noted_changes(next, u64::MAX);
    assert_eq!(shown(rest.iter().map(AsRef::as_ref)), ["-1", "d"]);
}

/// K3.
#[test]
fn a_flood_of_claimed_changes_displaces_no_trusted_one() {
    let pane = pane();
    pane.trust_shell(NONCE.into());
    print(&pane, &format!("\x1b]133;C;muxtap={NONCE}\x07x\x1b]133;D;0;muxtap={NONCE}\x07"));
    for number in 0..2 * NOTED {
        print(&pane, &format!("\x1b]9;notification {number}\x07"));
    }
    assert_eq!(noted(&pane)[..3], ["+1", "-1", "n"]);
    assert_eq!(noted(&pane).len(), NOTED);
    for _ in 0..NOTED {
        print(&pane, &format!("\x1b]9;{}\x07", "x".repeat(4000)));
    }
    assert!((noted(&pane).len() - 2) * 4000 <= NOTED_BYTES, "{}", noted(&pane).len());
}

#[test]
fn without_subscribers_nothing_is_kept() {
    let pane = PaneState::new(PaneId(1), Epoch::default(), 100 * 1024);
    print(&pane, "\x1b]133;C\x07x\x1b]133;D;0\x07");
    assert_eq!(noted(&pane), Vec::<String>::new());
    assert_eq!(pane.take_command_changes().len(), 2);
}

/// A subscriber whose token is any place of the stream gets what follows it, and nothing twice.
#[test]
fn what_follows_a_place_is_in_the_log() {
    let pane = pane();
    let parts = ["\x1b]133;C\x07", "\x1b]133;D;0\x07", "$ ", "\x1b]133;C\x07", "x", "\x1b]133;D;1\x07"];
    let mut after = Vec::new();
    for part in parts {
        print(&pane, part);
        after.push(pane.lock().ring().end());
    }
    let from = |offset: u64| shown(&pane.lock().noted_after(&pane, offset, false));
    assert_eq!(from(0), ["+1", "-1", "+2", "-2"]);
    assert_eq!(from(after[0]), ["-1", "+2", "-2"], "the first command printed nothing");
    assert_eq!(from(after[1]), ["+2", "-2"]);
    assert_eq!(from(after[2]), ["+2", "-2"]);
    assert_eq!(from(after[4]), ["-2"]);
    assert_eq!(from(after[5]), Vec::<String>::new());
}
