use muxtap_api::{Epoch, GapReason};
use muxtap_core::{
    marks::{Directory, End, LineSource},
    protocol::ids::PaneId,
};
use muxtap_tmux::Seed;

use super::*;

fn pane() -> std::sync::Arc<PaneState> {
    PaneState::new(PaneId(1), Epoch::default(), 100 * 1024)
}

fn only(pane: &PaneState) -> Command {
    let commands = pane.commands();
    assert_eq!(commands.len(), 1, "{commands:?}");
    commands[0].command.clone()
}

#[test]
fn a_line_is_read_from_the_output_unless_the_shell_reports_it() {
    let pane = pane();
    let typed = b"\x1b]133;A\x07$ \x1b]133;B\x07mak\x08\x08\x08\x1b[Kecho  'a b'\r\n\x1b[?2004l\r";
    let pushed = pane.push(0, typed).unwrap();
    assert!(!pushed.has_command_changes);
    let pushed = pane.push(0, b"\x1b]133;C\x07a b\r\n\x1b]133;D;0\x07").unwrap();
    assert!(pushed.has_command_changes);
    let line = only(&pane).line.unwrap();
    assert_eq!((line.text.as_str(), line.source), ("echo  'a b'", LineSource::Screen));
    let _ = pane.push(0, b"\x1b]133;C;cmdline_url=ls\x07");
    let line = pane.command(2).unwrap().command.line.unwrap();
    assert_eq!((line.text.as_str(), line.source), ("ls", LineSource::Shell));
}

/// A flood of begins costs no rendering for each of them.
#[test]
fn of_one_chunk_the_last_two_lines_are_read() {
    let pane = pane();
    let marks = (0..5)
        .map(|number| format!("\x1b]133;A\x07$ \x1b]133;B\x07l{number}\r\n\x1b]133;C\x07x"))
        .collect::<Vec<_>>()
        .concat();
    let _ = pane.push(0, marks.as_bytes());
    let lines: Vec<_> = pane.commands().into_iter().map(|ran| ran.command.line.map(|line| line.text.clone())).collect();
    assert_eq!(lines, [None, None, None, Some("l3".to_owned()), Some("l4".to_owned())]);
}

#[test]
fn changes_are_taken_once_with_their_commands() {
    let pane = pane();
    let _ = pane.push(0, b"\x1b]7;file:///a\x07\x1b]133;C\x07x\x1b]133;D;3\x07");
    let changes = pane.take_command_changes();
    let directory = std::sync::Arc::new(Directory { path: "/a".into(), host: None });
    let [(first, None), (Change::Started(1), Some(started)), (Change::Finished(1), Some(finished))] = &changes[..]
    else {
        panic!("{changes:?}")
    };
    assert_eq!(first, &Change::Directory(directory));
    // Both have the command as it is now.
    assert_eq!(started, finished);
    assert_eq!((finished.command.status, finished.end.offset - finished.start.offset), (Some(3), 1));
    assert_eq!(pane.take_command_changes(), []);
}

/// K2.
#[test]
fn a_range_is_not_whole_after_a_gap_and_when_its_beginning_is_no_longer_kept() {
    let pane = pane();
    let _ = pane.push(0, b"\x1b]133;C\x07working\r\n");
    assert!(only(&pane).output.is_whole);
    let seed = Seed { text: b"working\r\nmore\r\n".to_vec(), ..Seed::default() };
    let _ = pane.seed_after_gap(&seed, None, GapReason::Paused);
    let _ = pane.push(1, b"\x1b]133;D;0\x07");
    assert!(!only(&pane).output.is_whole);

    let pane = self::pane();
    let _ = pane.push(0, b"\x1b]133;C\x07");
    for _ in 0..40 {
        let _ = pane.push(0, &b"0123456789abcde\n".repeat(256));
    }
    let command = &pane.commands()[0];
    assert!(!command.command.output.is_whole);
    assert_eq!(command.end.offset - command.start.offset, 40 * 4096);
    let chunk = pane.command_chunk(command, command.start.offset).unwrap();
    assert!(chunk.start > command.start.offset && chunk.end == command.end.offset);
}

#[test]
fn the_end_of_the_process_ends_the_command_and_a_restart_begins_anew() {
    let pane = pane();
    let _ = pane.push(0, b"\x1b]133;A\x07$ \x1b]133;B\x07exit 4\r\n\x1b]133;C\x07exit\r\n");
    let _ = pane.mark_exited(Exit { status: Some(4), signal: None });
    let command = only(&pane);
    assert_eq!((command.end, command.status), (Some(End::ProcessEnded), Some(4)));
    let _ = pane.restart(false);
    let _ = pane.push(0, b"\x1b]133;A\x07$ \x1b]133;B\x07ls\r\n\x1b]133;C\x07");
    let running = pane.command(2).unwrap().command;
    assert_eq!((running.parent, running.end), (None, None));
    let _ = pane.mark_exited(Exit { status: None, signal: Some(9) });
    assert_eq!(pane.command(2).unwrap().command.signal.as_deref(), Some("9"));
}

/// K6: the memory of commands counts.
#[test]
fn held_bytes_count_the_commands() {
    let pane = pane();
    let before = pane.held_bytes();
    let mark = b"\x1b]133;C;cmdline_url=make\x07";
    let pushed = pane.push(0, mark).unwrap();
    assert_eq!(pushed.memory.before, before);
    assert_eq!(pushed.memory.after, pane.held_bytes());
    assert!(pane.held_bytes() >= before + mark.len() + size_of::<Command>());
}
