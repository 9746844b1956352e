//! Limits of snapshots; `docs/limits.md` explains them.

/// The maximum size of a snapshot's or layout's file, and of an imported text, in bytes.
pub const FILE_BYTES: u64 = 64 << 20;
/// The maximum number of values in an imported JSON text.
pub const JSON_VALUES: usize = 2_000_000;
/// The maximum size of an imported YAML text, in bytes.
pub const YAML_BYTES: usize = 1 << 20;
/// The maximum number of values in a YAML text, with its aliases expanded.
pub const YAML_VALUES: usize = 100_000;
/// The maximum size of the strings in a YAML text, with its aliases expanded, in bytes.
pub const YAML_TEXT: usize = 16 << 20;
/// The maximum size of the directories and lines of all panes of a file, in bytes.
///
/// One value in the file may apply to every pane.
pub const PANE_TEXT: usize = 64 << 20;
/// The maximum nesting depth of values in a YAML text.
pub const YAML_DEPTH: usize = 64;
/// The maximum length of the name of a snapshot, a layout or a group, in bytes.
pub const NAME_BYTES: usize = 100;
/// The maximum number of a pane's history lines in a snapshot.
pub const HISTORY_LINES: u32 = 10_000;
/// The maximum size of the history of all panes in a snapshot, in bytes.
pub const HISTORY_BYTES: usize = 32 << 20;
/// The maximum number of windows in a snapshot.
pub const WINDOWS: usize = 1000;
/// The maximum number of panes in a window of a snapshot.
pub const PANES: usize = 500;
/// The maximum number of lines in an import's response that say what the file would run.
pub const RUNS_SHOWN: usize = 100;
/// The maximum length of one of these lines, in characters.
pub const RUN_CHARS: usize = 1000;
/// The maximum number of panes in a group.
pub const GROUP_PANES: usize = 256;
