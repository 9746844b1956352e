//! Limits of rules and their actions.

use std::time::Duration;

/// The maximum number of rules.
pub(crate) const RULES: usize = 1000;
/// The longest pattern, in bytes.
pub(crate) const PATTERN_BYTES: usize = 1024;
/// The largest compiled form of all patterns of a kind, in bytes, in each automaton.
pub(crate) const REGEX_BYTES: usize = 64 << 20;
/// The largest cache of each of the two automata of a kind, in bytes.
pub(crate) const DFA_BYTES: usize = 16 << 20;
/// How much of a line is matched, in bytes.
pub(crate) const LINE_BYTES: usize = 4096;
/// How long a line without an end must rest before it is matched.
pub(crate) const LINE_REST: Duration = Duration::from_millis(100);
/// The default of `every`.
pub(crate) const EVERY: Duration = Duration::from_secs(10);
/// The smallest `every`.
pub(crate) const EVERY_LEAST: Duration = Duration::from_millis(100);
/// How long a pane must print nothing, after a rule has typed into it, before a rule may type because of
/// it again.
pub(crate) const TYPED_REST: Duration = Duration::from_secs(60);
/// The number of typed lines that are remembered in a pane.
pub(crate) const TYPED_LINES: usize = 32;

/// The default of `timeout`.
pub(crate) const RUN_LIMIT: Duration = Duration::from_secs(30);
/// The largest `timeout`.
pub(crate) const RUN_MOST: Duration = Duration::from_secs(3600);
/// The most programs of rules that run at once.
pub(crate) const RUNNING: usize = 16;
/// How much of a program's output is logged, in bytes.
pub(crate) const RUN_OUTPUT: usize = 16 * 1024;
/// The time limit of an HTTP request, its connection included.
pub(crate) const POST_LIMIT: Duration = Duration::from_secs(10);
/// How much of an HTTP response is read, in bytes.
pub(crate) const ANSWER_BYTES: usize = 64 * 1024;
/// The pause after the first failed request of a rule; it doubles with each further one.
pub(crate) const PAUSE: Duration = Duration::from_secs(1);
/// The longest pause.
pub(crate) const PAUSE_MOST: Duration = Duration::from_secs(300);
/// The time limit of a desktop notification.
pub(crate) const NOTIFY_LIMIT: Duration = Duration::from_secs(10);
/// The time limit of typing.
pub(crate) const TYPE_LIMIT: Duration = Duration::from_secs(30);
/// The longest time between an event and the typing that it causes.
pub(crate) const TYPE_LATE: Duration = Duration::from_secs(5);
/// How long what a rule typed is taken for its echo.
pub(crate) const ECHO: Duration = Duration::from_secs(5);
/// The most firings of a rule that wait for their turn; more are lost.
pub(crate) const QUEUE: usize = 64;

/// How long firings may take once the daemon stops.
pub(crate) const STOP_LIMIT: Duration = Duration::from_secs(4);
/// How long the end of the rules' thread is awaited: more than [`STOP_LIMIT`].
pub(crate) const END_LIMIT: Duration = Duration::from_secs(6);

/// The length of the journal at which it is rotated, in bytes.
pub(crate) const JOURNAL_BYTES: u64 = 4 << 20;
/// How much of a text is in a fact, in bytes.
pub(crate) const FACT_BYTES: usize = 4096;
/// How much of a text is in the journal, in bytes.
pub(crate) const JOURNAL_TEXT: usize = 300;
/// The longest file of added rules, in bytes.
pub(crate) const ADDED_BYTES: u64 = 1 << 20;
/// The largest secret, in bytes.
pub(crate) const SECRET_BYTES: u64 = 4096;
