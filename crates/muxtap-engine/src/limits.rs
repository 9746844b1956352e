//! All limits of the engine. `docs/limits.md` explains them.

use std::time::Duration;

/// Bytes that a pane's ring keeps, unless configured otherwise.
pub const RING_BYTES: usize = 1024 * 1024;
/// Bytes of output and screens of all panes together, unless configured otherwise. Above this
/// budget the largest rings are halved first.
pub const BUDGET_BYTES: usize = 512 * 1024 * 1024;
/// How long an ended pane's output and a finished wait's result are kept.
pub const KEEP: Duration = Duration::from_secs(600);
/// Ended panes of a server that stay readable; beyond this limit, the first to end are dropped.
pub const ENDED_PANES: usize = 1024;
/// Sockets without a server that are watched for one; beyond this limit, the least recently
/// requested are forgotten.
pub const IDLE_HOSTS: usize = 16;
/// Waits that may be open at once.
pub const OPEN_WAITS: usize = 4096;
/// Waits that one caller may have open at once.
pub const CALLER_WAITS: usize = 2048;
/// Results of ended waits that are kept; beyond this limit, the oldest are dropped.
pub const ENDED_WAITS: usize = 8192;
/// Bytes of the results of ended waits; beyond this limit, the oldest are dropped.
pub const ENDED_BYTES: usize = 32 * 1024 * 1024;
/// How long the result of a wait whose caller did not stay for it is kept, over restarts too.
pub const KEEP_LEFT_WAITS: Duration = Duration::from_secs(86_400);
/// Results of such waits that are kept; beyond this limit, the oldest are dropped.
pub const LEFT_WAITS: usize = 1024;
/// Of these, those of one caller.
pub const CALLER_LEFT_WAITS: usize = 512;
/// Bytes of the file of such a result; a longer one is not kept.
pub const LEFT_WAIT_BYTES: u64 = 1024 * 1024;
/// Bytes of the id of a wait whose result is kept.
pub const WAIT_ID_BYTES: usize = 160;
/// Runs whose result can be requested by id, including running ones; beyond this limit, the first
/// to end are dropped.
pub const RUNS: usize = 4096;
/// Pattern sets that are compiled at the same time.
pub const COMPILING: usize = 2;
/// Pattern sets that are being compiled or wait for their turn; more are rejected.
pub const COMPILING_QUEUE: usize = 1024;
/// Bytes of all open waits and subscriptions: compiled patterns and their own state.
pub const OPEN_BYTES: usize = 256 * 1024 * 1024;
/// Bytes of the open waits and subscriptions of one caller, as part of [`OPEN_BYTES`].
pub const CALLER_OPEN_BYTES: usize = 64 * 1024 * 1024;
/// Bytes of the automaton states that the searches of all open waits have built. Above this limit a
/// search drops its own states with each chunk.
pub const SEARCH_BYTES: usize = 128 * 1024 * 1024;
/// Panes that one wait may watch.
pub const WAIT_PANES: usize = 256;
/// Default timeout of a wait.
pub const WAIT_DEFAULT: Duration = Duration::from_secs(30);
/// The longest timeout of a wait or a run.
pub const WAIT_LONGEST: Duration = Duration::from_secs(86_400);
/// The longest time that a read may wait for output, or a request for the end of a wait.
pub const POLL_LONGEST: Duration = Duration::from_secs(300);
/// Raw bytes that one read returns by default.
pub const READ_DEFAULT: u64 = 256 * 1024;
/// Raw bytes of a command's output that may be drawn to find the text that it left; more is text as it was printed.
pub const REDRAWN_BYTES: u64 = 1024 * 1024;
/// Raw bytes that one read may return.
pub const READ_MOST: u64 = 8 * 1024 * 1024;
/// Time that tmux has to reply to the requests at the beginning and end of a wait or run, however
/// little time the wait or run has left.
pub const ANSWER_GRACE: Duration = Duration::from_millis(500);
/// Time for work that must not be left half done on a server when the engine stops.
pub const WORKS: Duration = Duration::from_secs(2);
/// Time for returning panes to tmux when the engine stops.
pub const RELEASE: Duration = Duration::from_secs(1);
/// Bytes of input in one request.
pub const INPUT_BYTES: usize = 16 * 1024 * 1024;
/// Bytes of text above which it is sent to tmux as a buffer, not as keys.
pub const KEYS_BYTES: usize = 16 * 1024;
/// Bytes of one buffer sent to tmux (F28: one line of a megabyte arrives whole).
pub const BUFFER_BYTES: usize = 256 * 1024;
/// Bytes of a command given to `run`.
pub const COMMAND_BYTES: usize = 256 * 1024;
/// Time without output after which a stream rests: a `$` at its end matches, and an open match is
/// complete.
pub const REST: Duration = Duration::from_millis(30);
/// Time without output after which a pane's history is compressed.
pub const COLD: Duration = Duration::from_secs(1);
/// Pause before tmux is queried again for the stale screen of a pane that does not rest: this many
/// times the duration of tmux's reply, or of [`REST`] if that is longer. The factor doubles each
/// time, up to [`RESYNC_PAUSE_MOST`].
pub const RESYNC_PAUSE: u32 = 4;
/// The highest factor to which [`RESYNC_PAUSE`] grows.
pub const RESYNC_PAUSE_MOST: u32 = 64;
/// Replies for which output behind a seed is held back if it begins in the middle of a character:
/// until tmux shows the whole character, or this many replies have come.
pub const CUT_TRIES: u8 = 3;
/// Bytes of output that are held back for such a character.
pub const CUT_BYTES: usize = 64 * 1024;
/// Time that a string (OSC, DCS, title …) may stay unterminated before tmux gives it up (N57).
pub const STRING: Duration = Duration::from_secs(5);
/// Tolerance around [`STRING`]: bytes that arrive this close to the timeout may have reached tmux
/// on the other side of it.
pub const STRING_NEAR: Duration = Duration::from_millis(100);
/// The longest time that an agent's screen goes without being judged if it never rests. The agent's
/// state is at most this old.
pub const AGENT_LATEST: Duration = Duration::from_secs(1);
/// The first interval at which the processes of a pane that prints are checked for an agent. It
/// doubles each time, up to [`AGENT_LOOK_LATEST`].
pub const AGENT_LOOK: Duration = Duration::from_millis(100);
/// The longest interval between these checks. Signs that another program may run are not delayed.
pub const AGENT_LOOK_LATEST: Duration = Duration::from_secs(5);
/// The shortest interval between queries for the screen of an agent that prints, if screens are not
/// followed in memory.
pub const AGENT_ASK: Duration = Duration::from_secs(1);
/// The most reports of agents that are kept of one pane; the oldest are dropped.
pub const AGENT_REPORTS: usize = 16;
/// The most bytes of the name of a report's source.
pub const AGENT_SOURCE_BYTES: usize = 32;
/// The most bytes of a message, an answer or a session's id in an agent's report; longer ones are cut.
pub const AGENT_REPORT_BYTES: usize = 1024;
/// The most bytes of a question in an agent's report; a longer one is cut.
pub const AGENT_QUESTION_BYTES: usize = 4096;
/// The most answers in an agent's report.
pub const AGENT_REPORT_OPTIONS: usize = 16;
/// How long a pane is followed after its last use, unless configured otherwise
/// ([`muxtap_tmux::CoverageMode::Used`]).
pub const FOLLOW_FOR: Duration = Duration::from_secs(600);
/// How long a pane counts as in use after its last use. For that time tmux pushes the facts about
/// the pane that only tmux knows.
pub const IN_USE: Duration = Duration::from_secs(10);
/// How long the stream must rest before a prompt is looked for, if the shell sends no marks of its
/// own.
pub const PROMPT_REST: Duration = Duration::from_millis(120);
/// Lines of the screen in the result of a wait that timed out.
pub const TIMEOUT_LINES: usize = 10;
/// Raw bytes of output from before a wait that are searched for the wait's patterns after its
/// timeout.
pub const STANDS_BYTES: u64 = 1024 * 1024;
/// Time for that search.
pub const STANDS_TIME: Duration = Duration::from_millis(500);
/// Patterns whose last match is remembered for a pane.
pub const ANSWERED_PATTERNS: usize = 64;
/// Marks of the times at which a pane printed its output; beyond this limit, neighbors merge or the
/// oldest are dropped.
pub const OUTPUT_TIMES: usize = 1024;
/// Bytes at the end of the stream that are searched for its last, unfinished line.
pub const LAST_LINE_BYTES: u64 = 8 * 1024;
/// Targets and patterns of one subscription.
pub const SUBSCRIPTION_TARGETS: usize = 256;
/// Bytes of one target or pattern.
pub const TARGET_BYTES: usize = 1024;
/// Panes that one subscription follows at once.
pub const SUBSCRIPTION_PANES: usize = 4096;
/// Panes of a subscription up to which the `id` of its events contains their positions. With more
/// panes the engine stores the positions.
pub const PLACES_TOLD: usize = 3;
/// Steps of a subscription that are kept, at any of which a reader can resume: 10 MB of the
/// smallest events.
pub const TRAIL_STEPS: usize = 64 * 1024;
/// Steps of all subscriptions together (16 bytes each). Above this limit those of ended
/// subscriptions are dropped, the oldest first, and then half of the growing one's.
pub const TRAIL_STEPS_ALL: usize = 2 * 1024 * 1024;
/// Ended subscriptions that a reader can resume; beyond this limit, the oldest are dropped.
pub const ENDED_TRAILS: usize = 1024;
/// Raw bytes of one output event.
pub const EVENT_BYTES: u64 = 64 * 1024;
/// Bytes of one pane's output events that are kept for its other subscribers: text as it is and as JSON, or
/// raw bytes.
pub const SHARED_BYTES: usize = 1024 * 1024;
/// The least time between two screen events of a pane.
pub const SCREEN_PACE: Duration = Duration::from_millis(16);
/// Wake-ups of a subscriber at once, before they are paced by [`PACE`].
pub const PACE_BURST: u32 = 16;
/// The shortest interval between wake-ups of a subscriber that woke up often recently: what is
/// printed meanwhile becomes one event.
pub const PACE: Duration = Duration::from_millis(5);
