//! Every limit of the engine, in one place. `docs/limits.md` explains them.

use std::time::Duration;

/// Bytes that a pane's ring keeps, unless configured otherwise.
pub const RING_BYTES: usize = 1024 * 1024;
/// Bytes of output and screens of all panes together, unless configured otherwise. Above it the
/// largest rings are halved first.
pub const BUDGET_BYTES: usize = 512 * 1024 * 1024;
/// How long an ended pane's output and a finished wait's result are kept.
pub const KEEP: Duration = Duration::from_secs(600);
/// Ended panes of a server that stay readable; of more, those that ended first are dropped.
pub const ENDED_PANES: usize = 1024;
/// Sockets without a server that are watched for one; of more, those that were asked for longest
/// ago are forgotten.
pub const IDLE_HOSTS: usize = 16;
/// Waits that may be open at once.
pub const OPEN_WAITS: usize = 4096;
/// Waits that one caller may have open at once.
pub const CALLER_WAITS: usize = 2048;
/// Results of ended waits that are kept; of more, the oldest are dropped.
pub const ENDED_WAITS: usize = 8192;
/// Bytes of those results together; above it the oldest are dropped.
pub const ENDED_BYTES: usize = 32 * 1024 * 1024;
/// Runs whose end can be asked for by an id, those that go on included; of more, those that ended
/// first are dropped.
pub const RUNS: usize = 4096;
/// Sets of patterns that are compiled at the same time.
pub const COMPILING: usize = 2;
/// Sets of patterns that are compiled or wait for it; more are refused.
pub const COMPILING_QUEUE: usize = 1024;
/// Bytes of all open waits and subscriptions: compiled patterns, and what each has of its own.
pub const OPEN_BYTES: usize = 256 * 1024 * 1024;
/// Of them, those of one caller.
pub const CALLER_OPEN_BYTES: usize = 64 * 1024 * 1024;
/// Bytes of the states that the searches of all open waits have built; above it a search drops its own with each chunk.
pub const SEARCH_BYTES: usize = 128 * 1024 * 1024;
/// Panes that one wait may watch.
pub const WAIT_PANES: usize = 256;
/// Default timeout of a wait.
pub const WAIT_DEFAULT: Duration = Duration::from_secs(30);
/// The longest timeout of a wait or a run.
pub const WAIT_LONGEST: Duration = Duration::from_secs(86_400);
/// The longest that a read may wait for output, and a request for the end of a wait.
pub const POLL_LONGEST: Duration = Duration::from_secs(300);
/// Raw bytes that one read returns by default.
pub const READ_DEFAULT: u64 = 256 * 1024;
/// Raw bytes that one read may return.
pub const READ_MOST: u64 = 8 * 1024 * 1024;
/// How long tmux has to reply to what a wait or run asks at its beginning or end, however little of
/// its time is left.
pub const ANSWER_GRACE: Duration = Duration::from_millis(500);
/// How long what must not be left half-done on a server may take when the engine stops.
pub const WORKS: Duration = Duration::from_secs(2);
/// How long returning panes to tmux may take when the engine stops.
pub const RELEASE: Duration = Duration::from_secs(1);
/// Bytes of input in one request.
pub const INPUT_BYTES: usize = 16 * 1024 * 1024;
/// Above this many bytes, text is sent to tmux as a buffer and not as keys.
pub const KEYS_BYTES: usize = 16 * 1024;
/// Bytes of one buffer sent to tmux (F28: one line of a megabyte arrives whole).
pub const BUFFER_BYTES: usize = 256 * 1024;
/// Bytes of a command given to `run`.
pub const COMMAND_BYTES: usize = 256 * 1024;
/// A stream that printed nothing for this long rests: a `$` at its end matches, an open match is
/// complete.
pub const REST: Duration = Duration::from_millis(30);
/// A stale screen of a pane that does not rest is asked for again after this many times what tmux
/// took to reply, or [`REST`] if that is more; each time after twice as many.
pub const RESYNC_PAUSE: u32 = 4;
/// At most after this many.
pub const RESYNC_PAUSE_MOST: u32 = 64;
/// Output behind a seed that begins in the middle of a character is held back until tmux shows the
/// whole character: for so many replies at most.
pub const CUT_TRIES: u8 = 3;
/// And so many bytes.
pub const CUT_BYTES: usize = 64 * 1024;
/// How long a string (OSC, DCS, title …) may stay unterminated before tmux gives it up (N57).
pub const STRING: Duration = Duration::from_secs(5);
/// Bytes that come this close to that timeout may have reached tmux on its other side.
pub const STRING_NEAR: Duration = Duration::from_millis(100);
/// How long an agent's screen that never rests goes without being judged: the agent's state is at
/// most so old.
pub const AGENT_LATEST: Duration = Duration::from_secs(1);
/// The first interval at which the processes of a pane that prints are checked for an agent. It
/// doubles each time, up to [`AGENT_LOOK_LATEST`].
pub const AGENT_LOOK: Duration = Duration::from_millis(100);
/// The longest such interval. Signs that another program may run are not delayed.
pub const AGENT_LOOK_LATEST: Duration = Duration::from_secs(5);
/// The shortest interval at which tmux is asked for the screen of an agent that prints, where
/// screens are not followed in memory.
pub const AGENT_ASK: Duration = Duration::from_secs(1);
/// How long a pane is followed after its last use, where nobody said otherwise
/// ([`muxtap_tmux::CoverageMode::Used`]).
pub const FOLLOW_FOR: Duration = Duration::from_secs(600);
/// How long after its last use a pane counts as in use: as long tmux pushes what it alone knows of
/// it.
pub const IN_USE: Duration = Duration::from_secs(10);
/// How long the stream rests before a prompt is looked for, where the shell sends no marks of its
/// own.
pub const PROMPT_REST: Duration = Duration::from_millis(120);
/// Lines of the screen in the result of a wait that timed out.
pub const TIMEOUT_LINES: usize = 10;
/// Raw output from before a wait that is searched for its patterns when the wait timed out.
pub const STANDS_BYTES: u64 = 1024 * 1024;
/// How long that search may take.
pub const STANDS_TIME: Duration = Duration::from_millis(500);
/// Patterns whose last match is stored for a pane.
pub const ANSWERED_PATTERNS: usize = 64;
/// Marks of a pane that say when it printed what; of more, neighbours become one, or the oldest go.
pub const OUTPUT_TIMES: usize = 1024;
/// Bytes of text before the end of the stream that are searched for its last, unfinished line.
pub const LAST_LINE_BYTES: u64 = 8 * 1024;
/// Targets and patterns of one subscription.
pub const SUBSCRIPTION_TARGETS: usize = 256;
/// Bytes of one target or pattern.
pub const TARGET_BYTES: usize = 1024;
/// Panes that one subscription follows at once.
pub const SUBSCRIPTION_PANES: usize = 4096;
/// Panes of a subscription whose positions stand in the `id` of its events; with more panes the
/// engine stores the positions.
pub const PLACES_TOLD: usize = 3;
/// Steps of a subscription that are kept, so that its reader may resume at any of them: 10 MB of
/// its smallest events.
pub const TRAIL_STEPS: usize = 64 * 1024;
/// Steps of all subscriptions together (16 bytes each). Above that those of ended subscriptions are
/// dropped, the oldest first.
pub const TRAIL_STEPS_ALL: usize = 2 * 1024 * 1024;
/// Ended subscriptions that a reader may resume; of more, the oldest are dropped.
pub const ENDED_TRAILS: usize = 1024;
/// Raw bytes of one output event.
pub const EVENT_BYTES: u64 = 64 * 1024;
/// Bytes of encoded events of one pane that are kept for its other subscribers.
pub const SHARED_BYTES: usize = 1024 * 1024;
/// The least time between two screen events of a pane.
pub const SCREEN_PACE: Duration = Duration::from_millis(16);
/// Times that a subscriber is woken at once, before it is woken in steps of [`PACE`].
pub const PACE_BURST: u32 = 16;
/// The shortest interval between wake-ups of a subscriber that woke up often just now: what came
/// meanwhile is one event.
pub const PACE: Duration = Duration::from_millis(5);
