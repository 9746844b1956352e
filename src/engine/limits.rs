//! Every limit of the engine, in one place. `docs/limits.md` explains them.

use std::time::Duration;

/// Bytes that a pane's ring keeps, unless configured otherwise.
pub const RING_BYTES: usize = 1024 * 1024;
/// Bytes of output and screens of all panes together, unless configured otherwise; above it the largest rings are halved first.
pub const BUDGET_BYTES: usize = 512 * 1024 * 1024;
/// How long an ended pane's output and a finished wait's result stay.
pub const KEEP: Duration = Duration::from_secs(600);
/// Ended panes of a server that stay readable; of more, those that ended first go.
pub const ENDED_PANES: usize = 1024;
/// Sockets without a server that are watched for one; of more, those that nobody asked for longest are forgotten.
pub const IDLE_HOSTS: usize = 16;
/// Waits that may be open at once.
pub const OPEN_WAITS: usize = 4096;
/// Waits that one caller may have open at once.
pub const CALLER_WAITS: usize = 2048;
/// Answers of ended waits that are kept; of more, the oldest go.
pub const ENDED_WAITS: usize = 8192;
/// Bytes that those answers take together; above it the oldest go.
pub const ENDED_BYTES: usize = 32 * 1024 * 1024;
/// Sets of patterns that are compiled at the same time.
pub const COMPILING: usize = 2;
/// Sets of patterns that are compiled or wait for it; more are refused.
pub const COMPILING_QUEUE: usize = 1024;
/// Panes one wait may watch.
pub const WAIT_PANES: usize = 256;
/// How long a wait lasts when it does not say.
pub const WAIT_DEFAULT: Duration = Duration::from_secs(30);
/// The longest a wait or a run may last.
pub const WAIT_LONGEST: Duration = Duration::from_secs(86_400);
/// The longest a read may wait for output, and a look at a wait for its end.
pub const POLL_LONGEST: Duration = Duration::from_secs(300);
/// Raw bytes one read gives when it does not say.
pub const READ_DEFAULT: u64 = 256 * 1024;
/// Raw bytes one read may give.
pub const READ_MOST: u64 = 8 * 1024 * 1024;
/// How long tmux has to answer what a wait or run asks at its beginning or end, however little of its time is left.
pub const ANSWER_GRACE: Duration = Duration::from_millis(500);
/// How long giving panes back to tmux may take when the engine stops.
pub const RELEASE: Duration = Duration::from_secs(1);
/// Bytes of input in one request.
pub const INPUT_BYTES: usize = 16 * 1024 * 1024;
/// Above this many bytes, text is handed to tmux as a buffer and not as keys.
pub const KEYS_BYTES: usize = 16 * 1024;
/// Bytes of one buffer handed to tmux (F28: one line of a megabyte arrives whole).
pub const BUFFER_BYTES: usize = 256 * 1024;
/// Bytes of a command given to `run`.
pub const COMMAND_BYTES: usize = 256 * 1024;
/// A stream that printed nothing for this long rests: a `$` at its end counts, an open match is settled.
pub const REST: Duration = Duration::from_millis(30);
/// tmux gives up a string (OSC, DCS, title …) that is not ended for this long (N57).
pub const STRING: Duration = Duration::from_secs(5);
/// What comes so shortly before or after that may have come on the other side of it for tmux.
pub const STRING_NEAR: Duration = Duration::from_millis(100);
/// A screen that never rests is looked at after this long all the same: what an agent does is told at most so much later.
pub const AGENT_LATEST: Duration = Duration::from_secs(1);
/// How soon the processes of a pane that prints are looked at again for an agent; twice as long each time, until …
pub const AGENT_LOOK: Duration = Duration::from_millis(100);
/// … this long. What tells that another program may run is not held up.
pub const AGENT_LOOK_LATEST: Duration = Duration::from_secs(5);
/// How often tmux is asked, at most, for the screen of an agent that prints, where screens are not followed in memory.
pub const AGENT_ASK: Duration = Duration::from_secs(1);
/// A prompt is looked for when the stream rested this long and the shell sends no marks of its own.
pub const PROMPT_REST: Duration = Duration::from_millis(120);
/// Lines of the screen in the answer to a wait that timed out.
pub const TIMEOUT_LINES: usize = 10;
/// Raw output from before a wait in which the patterns of one that timed out are looked for.
pub const STANDS_BYTES: u64 = 1024 * 1024;
/// How long that may take.
pub const STANDS_TIME: Duration = Duration::from_millis(500);
/// Patterns whose last answer is remembered for a pane.
pub const ANSWERED_PATTERNS: usize = 64;
/// Bytes of text before the end of the stream in which its last, unfinished line is looked for.
pub const LAST_LINE_BYTES: u64 = 8 * 1024;
/// Targets and patterns of one subscription.
pub const SUBSCRIPTION_TARGETS: usize = 256;
/// Bytes of one of them.
pub const TARGET_BYTES: usize = 1024;
/// Panes one subscription follows at once.
pub const SUBSCRIPTION_PANES: usize = 4096;
/// Panes of a subscription whose places stand in the `id` of its events; of more they are kept by the engine.
pub const PLACES_TOLD: usize = 3;
/// Steps of a subscription that are kept, so that its reader may come back to any of them: 10 MB of its smallest events.
pub const TRAIL_STEPS: usize = 64 * 1024;
/// Steps of all subscriptions together (16 bytes each). Above that those of subscriptions that have ended go, the oldest first.
pub const TRAIL_STEPS_ALL: usize = 2 * 1024 * 1024;
/// Subscriptions that have ended to which a reader may come back; of more, the oldest go.
pub const ENDED_TRAILS: usize = 1024;
/// Raw bytes of one output event.
pub const EVENT_BYTES: u64 = 64 * 1024;
/// Bytes of events of one pane that are kept for its next subscriber to read, made once for all of them.
pub const SHARED_BYTES: usize = 1024 * 1024;
/// The least time between two screen events of a pane.
pub const SCREEN_PACE: Duration = Duration::from_millis(16);
/// Times that a subscriber wakes up at once, before it is woken in steps of [`PACE`].
pub const PACE_BURST: u32 = 16;
/// A subscriber that woke up often just now looks no more often than this: what came meanwhile is one event.
pub const PACE: Duration = Duration::from_millis(5);
