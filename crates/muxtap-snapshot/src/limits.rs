//! Limits of snapshots. `docs/limits.md` explains them.

/// Bytes of a snapshot's or layout's file, and of a text that is imported.
pub const FILE_BYTES: u64 = 64 << 20;
/// Values of an imported JSON text.
pub const JSON_VALUES: usize = 2_000_000;
/// Bytes of an imported YAML text.
pub const YAML_BYTES: usize = 1 << 20;
/// Values of a YAML text, those behind its aliases included.
pub const YAML_VALUES: usize = 100_000;
/// Bytes of the texts of a YAML text, those behind its aliases included.
pub const YAML_TEXT: usize = 16 << 20;
/// Bytes of the directories and lines of all panes of a file that is read: what stands there once
/// may be meant for each.
pub const PANE_TEXT: usize = 64 << 20;
/// Values of a YAML text inside each other.
pub const YAML_DEPTH: usize = 64;
/// Bytes of a name of a snapshot, a layout or a group.
pub const NAME_BYTES: usize = 100;
/// Lines of a pane's history that a snapshot keeps.
pub const HISTORY_LINES: u32 = 10_000;
/// Bytes of the history of all panes of a snapshot.
pub const HISTORY_BYTES: usize = 32 << 20;
/// Windows of a snapshot.
pub const WINDOWS: usize = 1000;
/// Panes of one of its windows.
pub const PANES: usize = 500;
/// Lines of an import's answer that say what the file would run.
pub const RUNS_SHOWN: usize = 100;
/// Characters of one of them.
pub const RUN_CHARS: usize = 1000;
/// Panes of a group.
pub const GROUP_PANES: usize = 256;
