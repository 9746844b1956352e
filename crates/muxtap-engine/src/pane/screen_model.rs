//! The known part of a pane's screen, and why it may be stale.
//!
//! The stream contains nearly everything that happens to a screen. What it does not contain (a
//! resize, a cleared history, lost output) makes the screen *stale*: until a resync with tmux,
//! captures come from tmux. `docs/screen.md` lists the cases.

use std::collections::BTreeSet;

use muxtap_base::metrics;
use muxtap_core::screen::{self, CaptureOptions, Changes, Line, Rules, Screen, Settings, Trouble};
use tokio::time::Instant;

use serde::{Deserialize, Serialize};

use crate::limits;

/// Why a screen may differ from tmux's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Staleness {
    /// The pane was resized.
    Resized,
    /// Another program was started in the pane.
    Restarted,
    /// tmux reports another cursor position or history size: the history was cleared, or the pane
    /// was reset.
    Moved,
    /// A comparison with tmux's screen found a difference.
    Different,
    /// A string continued or ended so close to its timeout that the two may have been in the other
    /// order for tmux.
    OpenString,
    /// A resize left the cursor where it cannot be computed.
    CursorLost,
    /// A sixel image, which moves the cursor by the size of the client's character cells.
    Image,
    /// Output that builds of the same tmux version draw differently.
    Build,
    /// A joiner before a character: tmux joins them only if its read did not end between the two.
    Reads,
    /// The program continued from a state that a seed does not report.
    Untold,
    /// A wide character after which the cursor depends on the panes beside this one.
    Layout,
    /// The pane's output is not followed now: the pane has no connection, or its seed has not
    /// arrived.
    Unfollowed,
    /// The program left an alternate screen that came from a seed. tmux does not report all of the
    /// screen that reappears.
    Uncovered,
    /// The screen was dropped to stay within the memory budget.
    Dropped,
}

impl Staleness {
    /// Returns whether the pen follows from the stream alone: nothing else reset it.
    fn keeps_pen(self) -> bool {
        use Staleness as S;
        matches!(
            self,
            S::Resized | S::CursorLost | S::Image | S::Build | S::Layout | S::Reads | S::Untold | S::Uncovered
        )
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::Resized => "resized",
            Self::Restarted => "restarted",
            Self::Moved => "moved",
            Self::Different => "different",
            Self::OpenString => "open-string",
            Self::CursorLost => "cursor-lost",
            Self::Image => "image",
            Self::Build => "build",
            Self::Reads => "reads",
            Self::Untold => "untold",
            Self::Layout => "layout",
            Self::Unfollowed => "unfollowed",
            Self::Uncovered => "uncovered",
            Self::Dropped => "dropped",
        }
    }
}

/// Result of comparing a screen with tmux's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reconciled {
    /// The screen equaled tmux's.
    Same,
    /// The screen differed from tmux's.
    Different,
    /// The screen was known to be uncertain (an image, a lost cursor, an open string), or had been
    /// dropped.
    Unknown,
    /// The pane printed meanwhile, and nothing agrees with tmux's reply yet; a later reply will.
    Unsettled,
}

/// A pane's screen, and how far it can be trusted.
#[derive(Default, Serialize, Deserialize)]
#[allow(clippy::struct_excessive_bools, reason = "each is one thing that was noted of the screen")]
pub(crate) struct ScreenModel {
    screen: Option<Box<Screen>>,
    /// The drawing rules of the running version of tmux.
    rules: Option<Rules>,
    staleness: Option<Staleness>,
    /// Whether the screen was already stale when its output ceased to be followed.
    was_stale: bool,
    /// Whether a reply of tmux has replaced a screen that differed from it. The screen may then show output that the
    /// stream lacks: muxtap may have asked on the connection of a session that the pane has left.
    is_corrected: bool,
    /// How often the screen became stale or was replaced. A resync that began in an earlier
    /// generation proves nothing.
    generation: u64,
    /// How often the screen was replaced by a different one.
    made: u64,
    /// How often the same screen was refreshed from tmux, which knew more of it.
    refreshed: u64,
    /// How often the screen's width changed, which numbers its lines anew.
    reflowed: u64,
    /// Whether the screen came from a seed taken while the alternate screen was shown.
    covered: bool,
    /// Whether the screen is the program's last one, below which tmux draws a row of its own (N65).
    kept: bool,
    /// Whether the pane floods and is held. The screen is then that of the last reading.
    held: bool,
    /// The screen of tmux's last reply with all output since, if the pane printed between request
    /// and reply.
    #[serde(skip)]
    candidate: Option<Box<Screen>>,
    /// Whether a resync is in progress.
    #[serde(skip)]
    resyncing: bool,
    /// Whether the pane's rest is awaited for a resync that reveals what the last seed did not
    /// report.
    #[serde(skip)]
    awaits_rest: bool,
    /// Whether a task awaits the pane's rest to compress the history.
    #[serde(skip)]
    compressing: bool,
    /// When tmux may be queried next for that resync.
    #[serde(skip)]
    may_ask: Option<Instant>,
    /// The open string, or the last one that was given up.
    string: Option<OpenString>,
}

/// An unterminated string in the output to the screen.
#[derive(Clone, Copy, Serialize, Deserialize)]
struct OpenString {
    number: u64,
    #[serde(with = "muxtap_base::age")]
    since: Instant,
    /// Whether the string came with a seed. Then it may have begun earlier, and tmux may have given
    /// it up already.
    seeded: bool,
    /// Whether output has arrived since.
    fed: bool,
    given_up: bool,
}

impl OpenString {
    fn new(number: u64, seeded: bool) -> Self {
        Self { number, since: Instant::now(), seeded, fed: false, given_up: false }
    }
}

impl ScreenModel {
    /// Replaces the screen with tmux's. `live`: the pane will be followed. For a version of tmux
    /// whose screens are not proven, only a last screen is kept.
    pub(crate) fn adopt(&mut self, seed: Option<&screen::Seed>, rules: Option<Rules>, live: bool) {
        self.rules = rules;
        let seed = seed.zip(rules).filter(|_| self.is_proven() || !live);
        self.is_corrected = false;
        self.set(seed.and_then(|(seed, rules)| Screen::from_seed(seed, rules, Settings::default())));
    }

    fn set(&mut self, screen: Option<Screen>) {
        self.made += 1;
        self.replace(screen);
    }

    fn replace(&mut self, screen: Option<Screen>) {
        self.generation += 1;
        self.staleness = None;
        self.candidate = None;
        (self.kept, self.held) = (false, false);
        self.covered = screen.as_ref().is_some_and(Screen::alternate);
        let open = screen.as_ref().and_then(Screen::open_string);
        self.string = open.map(|number| OpenString::new(number, true));
        self.screen = screen.map(Box::new);
    }

    /// Feeds output to the screen. `quiet`: the pane had rested before. Returns what changed, and
    /// why the screen became stale, if it did.
    #[cfg(test)]
    pub(crate) fn feed(&mut self, data: &[u8], quiet: bool) -> (Option<Changes>, Option<Staleness>) {
        self.feed_with(data, quiet, |screen| {
            if let Some(screen) = screen {
                screen.feed(data);
            }
        })
    }

    /// Feeds output by a function of the caller's, which gets the screen and feeds `data` to it. `quiet`:
    /// the pane had rested before. Returns what changed, and why the screen became stale, if it did.
    pub(crate) fn feed_with(
        &mut self,
        data: &[u8],
        quiet: bool,
        feed: impl FnOnce(Option<&mut Screen>),
    ) -> (Option<Changes>, Option<Staleness>) {
        let Some(screen) = &mut self.screen else {
            feed(None);
            return (None, None);
        };
        if quiet {
            screen.read_ended();
        }
        let near =
            self.string.is_some_and(|string| string.since.elapsed().abs_diff(limits::STRING) <= limits::STRING_NEAR);
        feed(Some(screen));
        if let Some(candidate) = &mut self.candidate {
            if quiet {
                candidate.read_ended();
            }
            candidate.feed(data);
        }
        let trouble = screen.trusted().err();
        self.string = match (screen.open_string(), self.string) {
            (Some(number), Some(string)) if string.number == number => Some(OpenString { fed: true, ..string }),
            (Some(number), _) => Some(OpenString::new(number, false)),
            (None, Some(string)) if string.given_up => Some(string),
            (None, _) => None,
        };
        let changes = screen.take_changes();
        let staleness = match trouble {
            _ if near => Some(Staleness::OpenString),
            Some(Trouble::CursorLost) => Some(Staleness::CursorLost),
            Some(Trouble::Image) => Some(Staleness::Image),
            Some(Trouble::Build) => Some(Staleness::Build),
            Some(Trouble::Layout) => Some(Staleness::Layout),
            Some(Trouble::Reads) => Some(Staleness::Reads),
            // This holds even if the program returned to the alternate screen in the same chunk, as
            // after a resize.
            _ if self.covered && changes.alternate => Some(Staleness::Uncovered),
            Some(Trouble::Untold) => Some(Staleness::Untold),
            Some(Trouble::OpenString) | None => None,
        };
        let news = staleness.filter(|_| self.staleness.is_none()).filter(|staleness| self.mark_stale(*staleness));
        (Some(changes), news)
    }

    /// Returns when to give up the open string.
    pub(crate) fn string_due(&self) -> Option<Instant> {
        self.string.filter(|string| !string.given_up).map(|string| string.since + limits::STRING)
    }

    /// Gives up a string whose timeout has passed. Returns the reason if the screen became stale.
    pub(crate) fn give_up_string(&mut self, now: Instant) -> Option<Staleness> {
        let due = self.string_due()?;
        let string = self.string.as_mut().filter(|_| now >= due)?;
        string.given_up = true;
        self.candidate = None;
        self.screen.as_mut()?.give_up();
        // It is unknown when a string from a seed began: tmux may have drawn output since then as
        // text.
        let unsure = string.seeded && string.fed;
        (unsure && self.staleness.is_none() && self.mark_stale(Staleness::OpenString)).then_some(Staleness::OpenString)
    }

    /// Marks the screen as stale. Returns whether it needs a resync.
    pub(crate) fn mark_stale(&mut self, staleness: Staleness) -> bool {
        if self.screen.is_none() || !self.is_proven() || self.kept {
            return false;
        }
        self.generation += 1;
        self.candidate = None;
        self.staleness = Some(staleness);
        metrics::screen_doubt(staleness.as_str());
        true
    }

    /// Keeps the screen unchanged: its program has ended, and what tmux itself draws then is not
    /// the program's.
    pub(crate) fn keep(&mut self) {
        self.kept = self.screen.is_some();
    }

    /// Marks the screen as that of a held pane, until the next seed.
    pub(crate) fn hold(&mut self) {
        self.held = true;
    }

    /// Returns whether the pane is held.
    pub(crate) fn is_held(&self) -> bool {
        self.held
    }

    /// Returns whether the screen is a program's last one, while tmux shows another.
    pub(crate) fn is_kept(&self) -> bool {
        self.kept
    }

    /// Marks a screen on which another program begins. Returns whether it needs a resync.
    pub(crate) fn restart(&mut self) -> bool {
        self.kept = false;
        self.mark_stale(Staleness::Restarted)
    }

    /// Suspends the screen: the pane's output is no longer followed until it is seeded again.
    pub(crate) fn suspend(&mut self) {
        self.was_stale = self.staleness.is_some_and(|staleness| staleness != Staleness::Unfollowed || self.was_stale);
        self.mark_stale(Staleness::Unfollowed);
    }

    /// Returns whether the screen would equal tmux's after this output; `None` if that cannot be
    /// decided.
    pub(crate) fn agrees_after(&self, output: &[u8], seed: &screen::Seed, rules: Rules) -> Option<bool> {
        let drawn_from_stream = !self.was_stale && !self.is_corrected;
        let knows = self.is_proven() && self.staleness == Some(Staleness::Unfollowed) && drawn_from_stream;
        let mut ours = self.screen.as_deref().filter(|_| knows)?.clone();
        let theirs = Screen::from_seed(seed, rules, Settings::default())?;
        if ours.size() != theirs.size() {
            return None;
        }
        ours.feed(output);
        ours.trusted().ok()?;
        is_same(&ours, &theirs, rules)
    }

    /// Begins a resync. Returns `false` if one is in progress.
    pub(super) fn begin_resync(&mut self) -> bool {
        !std::mem::replace(&mut self.resyncing, true)
    }

    /// Ends a resync.
    pub(super) fn end_resync(&mut self) {
        self.resyncing = false;
    }

    /// Begins to await the pane's rest, if another seed would reveal more. Returns `false` if it
    /// would not, or if the rest is already awaited.
    pub(super) fn begin_await_rest(&mut self) -> bool {
        self.is_unsure() && !std::mem::replace(&mut self.awaits_rest, true)
    }

    /// Returns whether a part of the history can be compressed, and no task awaits that.
    pub(crate) fn is_compressible(&self) -> bool {
        !self.compressing && self.screen.as_ref().is_some_and(|screen| screen.is_compressible())
    }

    /// Begins to await the pane's rest, if a part of the history can be compressed. Returns `false` if
    /// none can, or if the rest is already awaited.
    pub(super) fn begin_compression(&mut self) -> bool {
        self.is_compressible() && !std::mem::replace(&mut self.compressing, true)
    }

    /// Compresses a part of the history. Returns whether more is left; `false` ends the compression.
    pub(super) fn compress_next(&mut self) -> bool {
        self.compressing = self.screen.as_mut().is_some_and(|screen| screen.compress_next());
        self.compressing
    }

    /// Ends the wait for the pane's rest. Returns whether a resync is due and has begun.
    pub(super) fn end_await_rest(&mut self) -> bool {
        self.awaits_rest = false;
        self.is_unsure() && self.begin_resync()
    }

    /// Returns whether a resync is in progress, or the pane's rest is awaited for a resync.
    pub(crate) fn awaits_resync(&self) -> bool {
        self.resyncing || self.awaits_rest
    }

    pub(super) fn may_ask_at(&self) -> Option<Instant> {
        self.may_ask
    }

    pub(super) fn ask_not_before(&mut self, at: Instant) {
        self.may_ask = Some(at);
    }

    /// Returns whether a resync can prove anything. A pane that is about to be seeded needs none.
    pub(crate) fn can_reconcile(&self) -> bool {
        self.staleness != Some(Staleness::Unfollowed)
    }

    /// Resizes the screen. Returns whether it needs a resync.
    pub(crate) fn resize(&mut self, size: screen::Size) -> bool {
        let Some(screen) = self.screen.as_mut().filter(|screen| screen.size() != size) else { return false };
        self.reflowed += u64::from(screen.size().columns != size.columns);
        screen.resize(size);
        self.mark_stale(Staleness::Resized)
    }

    /// Returns whether tmux reports another cursor position or history size than this screen has.
    pub(crate) fn has_moved(&self, report: CursorReport) -> bool {
        let Some(screen) = self.followed().filter(|_| !self.resyncing && !self.kept && !self.held) else {
            return false;
        };
        let cursor = screen.cursor();
        report != CursorReport { history: screen.history_size(), column: cursor.column, row: cursor.row }
    }

    /// Returns the screen if it certainly equals tmux's.
    pub(crate) fn followed(&self) -> Option<&Screen> {
        self.screen.as_deref().filter(|screen| self.is_proven() && self.staleness.is_none() && screen.trusted().is_ok())
    }

    /// Returns the screen if tmux certainly shows it now. The screen of a held pane does not
    /// qualify: it is that of the last reading.
    pub(crate) fn current(&self) -> Option<&Screen> {
        self.followed().filter(|_| !self.held)
    }

    /// Returns the screen if it equals tmux's, even while a string is open, since neither screen is
    /// drawn on then.
    pub(crate) fn shown(&self) -> Option<&Screen> {
        let is_right = |screen: &&Screen| matches!(screen.trusted(), Ok(()) | Err(Trouble::OpenString));
        self.screen.as_deref().filter(|_| self.is_proven() && self.staleness.is_none()).filter(is_right)
    }

    /// Returns the output that `capture-pane` would print, if it is certain.
    pub(crate) fn capture(&self, options: &CaptureOptions) -> Option<Vec<u8>> {
        self.current()?.known(options)
    }

    /// Returns the last known screen, stale or not.
    pub(crate) fn last(&self) -> Option<&Screen> {
        self.screen.as_deref()
    }

    /// Returns the reason if captures are not served from memory.
    pub(crate) fn why_not_followed(&self) -> Option<&'static str> {
        match (&self.screen, self.staleness) {
            _ if !self.is_proven() => Some("the screens of this version of tmux are not followed in memory"),
            (None, _) => Some("its screen is not in memory; it is restored when muxtap reads the pane again"),
            (_, Some(staleness)) => Some(staleness.as_str()),
            _ if self.held => Some("the pane floods and is read about once a second; see `floods` in docs/config.md"),
            (Some(screen), None) => screen.trusted().is_err().then_some("its output has an unterminated string"),
        }
    }

    /// Returns whether captures with any flags are right for as long as the screen is not stale.
    pub(crate) fn is_proven(&self) -> bool {
        self.rules.is_some_and(|rules| rules.proven())
    }

    /// Returns whether the screen needs a resync.
    pub(crate) fn is_stale(&self) -> bool {
        self.staleness.is_some()
    }

    /// Returns whether another seed would reveal more of the screen.
    pub(crate) fn is_unsure(&self) -> bool {
        self.followed().is_some_and(Screen::is_unsure)
    }

    /// Returns whether this output begins in the middle of a character whose beginning came before
    /// the seed. If so, the screen becomes stale.
    pub(crate) fn begins_within_character(&mut self, output: &[u8]) -> bool {
        self.followed().is_some_and(|screen| screen.begins_within_character(output))
            && self.mark_stale(Staleness::Untold)
    }

    /// Returns the beginning of a character that came before the seed, if `output`, which is all
    /// output since the seed, begins with the character's end: the beginning with which this screen
    /// becomes what tmux reports now.
    pub(crate) fn beginning_of(&self, output: &[u8], seed: &screen::Seed, rules: Rules) -> Option<Vec<u8>> {
        let ours = self.screen.as_deref()?;
        let theirs = Screen::from_seed(seed, rules, Settings::default())?;
        let length = output.iter().take_while(|byte| (0x80..=0xbf).contains(*byte)).count();
        let end = output.get(..length)?;
        let rows: Vec<_> = (0..theirs.size().rows).map(|row| theirs.row_text(row)).collect();
        let characters: BTreeSet<char> = rows.iter().flat_map(|row| row.chars()).collect();
        characters.into_iter().find_map(|character| {
            let mut bytes = [0; 4];
            let beginning = character.encode_utf8(&mut bytes).as_bytes().strip_suffix(end)?;
            let mut whole = ours.clone();
            whole.feed(beginning);
            whole.feed(output);
            may_be_same(&whole, &theirs, rules).then(|| beginning.to_vec())
        })
    }

    /// Returns how often the screen became stale or was replaced so far.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// Returns how often the screen was replaced by a different one so far. Line numbers of its
    /// history are valid for this screen only.
    pub(crate) fn made(&self) -> u64 {
        self.made
    }

    /// Returns how often the same screen was refreshed from tmux so far. Line numbers stay valid,
    /// though a line may look different.
    pub(crate) fn refreshed(&self) -> u64 {
        self.refreshed
    }

    /// Returns what a line's number depends on: numbers from another value name other lines.
    pub(crate) fn numbering(&self) -> (u64, u64) {
        (self.made, self.reflowed)
    }

    /// Reconciles the screen with tmux's. A screen that is the same is kept, with all that tmux
    /// does not report.
    pub(crate) fn reconcile(&mut self, seed: &screen::Seed, rules: Rules) -> Reconciled {
        if self.kept {
            // A reply to a request from before the program's end may show tmux's row.
            return Reconciled::Same;
        }
        let mut theirs = self.seeded(seed, rules);
        let ours = self.screen.as_deref().filter(|screen| screen.trusted().is_ok());
        let outcome = match (ours, &theirs) {
            (None, _) => Reconciled::Unknown,
            (Some(ours), Some(theirs)) if may_be_same(ours, theirs, rules) => Reconciled::Same,
            _ => Reconciled::Different,
        };
        // A screen that is right in all it knows may know less than this one.
        let knows_less = ours.is_some_and(Screen::is_unsure);
        if outcome == Reconciled::Same
            && let Some((ours, theirs)) = ours.zip(theirs.as_mut())
        {
            theirs.take_parser(ours);
            theirs.take_numbers(ours);
        }
        if outcome != Reconciled::Same {
            self.is_corrected = true;
            self.set(theirs);
        } else if knows_less {
            self.refreshed += 1;
            self.replace(theirs);
        }
        self.settle();
        outcome
    }

    /// Reconciles the screen with tmux's if the pane printed between request and reply.
    ///
    /// If other panes print too, the reply may come late, behind output that tmux read after it
    /// (N93), so a reply proves nothing by itself. The screen is proven if the reply equals it, or
    /// equals the last reply with the output since.
    pub(crate) fn reconcile_moving(&mut self, seed: &screen::Seed, rules: Rules) -> Reconciled {
        if self.kept {
            return Reconciled::Same;
        }
        let Some(theirs) = self.seeded(seed, rules) else { return Reconciled::Unsettled };
        let agrees = |screen: &Screen| screen.trusted().is_ok() && may_be_same(screen, &theirs, rules);
        if self.screen.as_deref().is_some_and(agrees) {
            self.settle();
            return Reconciled::Same;
        }
        if self.candidate.as_deref().is_some_and(agrees) {
            let candidate = self.candidate.take();
            self.is_corrected = true;
            self.set(candidate.map(|screen| *screen));
            self.settle();
            return Reconciled::Different;
        }
        self.candidate = Some(Box::new(theirs));
        Reconciled::Unsettled
    }

    /// Creates a screen from tmux's reply and from what only the stream contains. The screen in
    /// memory takes the reported modes.
    fn seeded(&mut self, seed: &screen::Seed, rules: Rules) -> Option<Screen> {
        let mut theirs = Screen::from_seed(seed, rules, Settings::default());
        // A restarted program begins with the modes of a new pane.
        let restarted = self.staleness == Some(Staleness::Restarted);
        let modes = self.screen.as_deref().filter(|_| !restarted).map(Screen::kept_modes);
        for screen in self.screen.as_deref_mut().into_iter().chain(&mut theirs) {
            screen.take_modes(seed, modes);
        }
        if let Some((ours, theirs)) = self.screen.as_deref().zip(theirs.as_mut()).filter(|_| !restarted) {
            theirs.take_stream_state(ours, self.staleness.is_none_or(Staleness::keeps_pen));
        }
        theirs
    }

    fn settle(&mut self) {
        self.generation += 1;
        self.candidate = None;
        self.staleness = None;
    }

    /// Drops the screen and frees its memory.
    pub(crate) fn drop_screen(&mut self) {
        self.mark_stale(Staleness::Dropped);
        self.kept = false;
        self.screen = None;
        self.string = None;
    }

    /// Returns the number of bytes held.
    pub(crate) fn memory(&self) -> usize {
        self.screen.iter().chain(&self.candidate).map(|screen| screen.memory()).sum()
    }
}

/// A pane's cursor position and history size, as tmux reports them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CursorReport {
    pub(crate) history: u32,
    pub(crate) column: u32,
    pub(crate) row: u32,
}

impl CursorReport {
    /// Parses the text of a [`muxtap_tmux::Value::Place`].
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.split(' ').map(|number| number.parse().ok());
        Some(Self { history: numbers.next()??, column: numbers.next()??, row: numbers.next()?? })
    }
}

/// A capture of all lines as plain text, which is certain in most cases in which styles and trailing cells are not.
const TEXT: CaptureOptions =
    CaptureOptions { start: Line::Edge, end: Line::Default, join: false, escapes: false, trailing: false };

/// Returns whether no difference of two screens is known.
fn may_be_same(one: &Screen, other: &Screen, rules: Rules) -> bool {
    is_same(one, other, rules) != Some(false)
}

/// Returns whether tmux would print the same for both screens, as far as that is certain; `None` if even their
/// text is not.
fn is_same(one: &Screen, other: &Screen, rules: Rules) -> Option<bool> {
    let all = CaptureOptions { escapes: true, ..TEXT };
    let trailing = CaptureOptions { trailing: true, ..all };
    let (cursor, theirs) = (one.cursor(), other.cursor());
    let has_same_place = one.size() == other.size()
        && one.history_size() == other.history_size()
        && (cursor.column, cursor.row) == (theirs.column, theirs.row);
    if !has_same_place || !joins_same(one, other, rules) {
        return Some(false);
    }
    let prints_same = |options| Some(one.known(options)? == other.known(options)?);
    let shows_same = prints_same(&all).or_else(|| prints_same(&TEXT))?;
    Some(shows_same && prints_same(&trailing).unwrap_or(true))
}

/// Returns whether the same lines continue in the next ones. If `-J` prints cells that may not
/// exist, blanks at the ends of lines and the styles that end in them are not compared.
fn joins_same(one: &Screen, other: &Screen, rules: Rules) -> bool {
    let padded = rules.pads_joined_lines();
    let options = CaptureOptions { start: Line::Edge, join: true, escapes: !padded, ..CaptureOptions::default() };
    if one.known(&options).is_none() || other.known(&options).is_none() {
        return true;
    }
    let (one, other) = (one.capture(&options), other.capture(&options));
    if !padded {
        return one == other;
    }
    let lines =
        |text: &[u8]| text.split(|byte| *byte == b'\n').map(|line| line.trim_ascii_end().to_vec()).collect::<Vec<_>>();
    lines(&one) == lines(&other)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use muxtap_core::protocol::version::Version;

    use super::*;

    fn model() -> ScreenModel {
        let rules = Rules::for_version(Version::parse(b"3.3a").unwrap());
        let screen = Screen::new(screen::Size { columns: 20, rows: 4 }, rules, Settings::default());
        ScreenModel { screen: Some(Box::new(screen)), rules: Some(rules), ..ScreenModel::default() }
    }

    /// From 3.4 on, how many cells of a line exist may be uncertain, and so is what `-e` prints of them.
    #[test]
    fn screens_with_uncertain_styles_are_compared_by_their_text() {
        let rules = Rules::for_version(Version::parse(b"3.8").unwrap());
        let screen = |output: &[u8]| {
            let size = screen::Size { columns: 20, rows: 4 };
            let mut screen = Screen::new(size, rules, Settings { history_limit: 5, ..Settings::default() });
            screen.feed(output);
            screen
        };
        let link = |text: &str| format!("\x1b]8;;http://x\x1b\\{text}\x1b]8;;\x1b\\\r\n");
        let lines = |from: u32| (from..from + 12).map(|line| link(&line.to_string())).collect::<String>();
        let [ours, theirs] = [lines(0), lines(1)].map(|lines| screen(lines.as_bytes()));
        assert!(ours.known(&CaptureOptions { escapes: true, ..TEXT }).is_none(), "nothing is uncertain");
        assert_eq!(is_same(&ours, &ours.clone(), rules), Some(true));
        assert_eq!(is_same(&ours, &theirs, rules), Some(false));
    }

    fn shown(model: &ScreenModel) -> Option<String> {
        model.followed().map(|screen| screen.row_text(0))
    }

    #[test]
    fn what_is_doubted_is_not_shown() {
        let mut model = model();
        let (changes, staleness) = model.feed(b"hello", false);
        assert!(changes.is_some_and(|changes| changes.row(0) && !changes.row(1)) && staleness.is_none());
        assert_eq!(shown(&model).as_deref(), Some("hello"));
        assert!(model.resize(screen::Size { columns: 30, rows: 4 }));
        assert_eq!(shown(&model), None);
        assert!(!model.resize(screen::Size { columns: 30, rows: 4 }), "it has that size");
        assert_eq!(model.last().map(|screen| screen.row_text(0)).as_deref(), Some("hello"));
    }

    #[test]
    fn an_alternate_screen_from_a_seed_is_doubted_once_it_was_left() {
        for output in [&b"\x1b[?1049l"[..], b"\x1b[?1049l\x1b[?1049h"] {
            let mut model = model();
            let mut seeded = model.screen.take().unwrap();
            seeded.feed(b"\x1b[?1049h");
            seeded.take_changes();
            model.set(Some(*seeded));
            assert_eq!(model.feed(b"in it", false).1, None);
            assert_eq!(model.feed(output, false).1, Some(Staleness::Uncovered), "{}", output.escape_ascii());
        }
    }

    #[test]
    fn a_string_that_is_open_hides_the_screen_until_it_ends() {
        let mut model = model();
        model.feed(b"a\x1b]2;half a title", false);
        assert_eq!(shown(&model), None);
        model.feed(b" more\x07b", false);
        assert_eq!(shown(&model).as_deref(), Some("ab"));
    }

    #[test]
    fn a_string_that_never_ends_is_given_up() {
        let mut model = model();
        model.feed(b"a\x1b]2;half a title", false);
        let begun = model.string.unwrap().since;
        assert_eq!(model.give_up_string(begun + limits::STRING.saturating_sub(Duration::from_millis(1))), None);
        assert_eq!(shown(&model), None);
        model.feed(b"\x1b]2;another", false);
        let again = model.string.unwrap().since;
        assert!(again > begun, "each string has its own time");
        assert_eq!(model.give_up_string(again + limits::STRING), None, "nothing came near it");
        assert_eq!(shown(&model).as_deref(), Some("a"));
        assert_eq!(model.feed(b"b", false).1, None);
        assert_eq!(shown(&model).as_deref(), Some("ab"));
    }

    #[test]
    fn what_comes_as_a_string_is_given_up_is_doubted() {
        let mut model = model();
        model.feed(b"a\x1b]2;half a title", false);
        let passed = limits::STRING.saturating_sub(limits::STRING_NEAR / 2);
        model.string.as_mut().unwrap().since = Instant::now().checked_sub(passed).unwrap();
        assert_eq!(model.feed(b"\x07b", false).1, Some(Staleness::OpenString));
        assert_eq!(shown(&model), None);
    }

    #[test]
    fn what_tmux_draws_below_a_last_screen_is_no_doubt() {
        let mut model = model();
        model.feed(b"last words", false);
        model.keep();
        assert!(!model.has_moved(CursorReport::parse("1 0 3").unwrap()) && !model.mark_stale(Staleness::Moved));
        assert!(!model.resize(screen::Size { columns: 30, rows: 4 }));
        assert_eq!((shown(&model).as_deref(), model.is_kept()), (Some("last words"), true));
        assert!(model.restart() && !model.is_kept());
        assert_eq!(shown(&model), None);
    }

    #[test]
    fn a_cursor_elsewhere_is_told() {
        let mut model = model();
        model.feed(b"ab\r\nc", false);
        assert!(!model.has_moved(CursorReport { history: 0, column: 1, row: 1 }));
        assert!(model.has_moved(CursorReport::parse("0 0 0").unwrap()));
        model.mark_stale(Staleness::Moved);
        assert!(!model.has_moved(CursorReport::parse("0 0 0").unwrap()), "it is doubted already");
        assert_eq!(CursorReport::parse("0 1"), None);
    }

    #[test]
    fn a_screen_whose_output_is_not_followed_is_not_shown_and_not_settled() {
        let mut model = model();
        model.suspend();
        assert!(shown(&model).is_none() && !model.can_reconcile());
        model.adopt(None, None, true);
        assert!(model.can_reconcile());
    }

    #[test]
    fn what_cannot_be_followed_is_no_difference() {
        let rules = Rules::for_version(Version::parse(b"3.5a").unwrap());
        let fields = "2|0|0|2|0|0|||7|20|2000|4294967295|4294967295|0|1|0|0|1|1|\n";
        // tmux allocates a quarter of a line in which something was written.
        let parts = ["ab\n\n", "\n", fields, "ab\n\n", "\n", "ab   \n\n", "\n"]
            .map(|part| bytes::Bytes::copy_from_slice(part.as_bytes()));
        let seed = screen::seed::parse(&parts).unwrap();
        let outcome = |output: &[u8]| {
            let mut model = ScreenModel { rules: Some(rules), ..ScreenModel::default() };
            let size = screen::Size { columns: 20, rows: 2 };
            model.set(Some(Screen::new(size, rules, Settings::default())));
            model.feed(output, false);
            let outcome = model.reconcile(&seed, rules);
            assert_eq!(shown(&model).as_deref(), Some("ab"));
            outcome
        };
        assert_eq!(outcome(b"ab"), Reconciled::Same);
        assert_eq!(outcome(b"ac"), Reconciled::Different);
        assert_eq!(outcome(b"ab\x1bPq#0~\x1b\\"), Reconciled::Unknown);
    }

    #[test]
    fn a_reply_in_the_middle_of_output_counts_once_another_agrees_with_it() {
        let rules = Rules::for_version(Version::parse(b"3.3a").unwrap());
        // Two rows of twenty columns, and the history above them; no modes, no scroll region.
        let seed = |history: usize, lines: &str| {
            let fields = format!("0|1|{history}|2|0|0|||7|20|2000|4294967295|4294967295|0|1|0|0|1|1|\n");
            let parts = [lines, "\n", &fields, lines, "\n"].map(|part| bytes::Bytes::copy_from_slice(part.as_bytes()));
            screen::seed::parse(&parts).unwrap()
        };
        let mut model = ScreenModel { rules: Some(rules), ..ScreenModel::default() };
        model.set(Some(Screen::new(screen::Size { columns: 20, rows: 2 }, rules, Settings::default())));
        model.feed(b"of before\r\n1\r\n", false);
        assert!(model.restart());
        // This reply is late: `2` came ahead of it.
        model.feed(b"2\r\n", false);
        assert_eq!(model.reconcile_moving(&seed(0, "1\n\n"), rules), Reconciled::Unsettled);
        model.feed(b"3\r\n", false);
        assert_eq!(model.reconcile_moving(&seed(2, "1\n2\n3\n\n"), rules), Reconciled::Unsettled, "2 is missing");
        assert_eq!(shown(&model), None);
        model.feed(b"4\r\n", false);
        assert_eq!(model.reconcile_moving(&seed(3, "1\n2\n3\n4\n\n"), rules), Reconciled::Different);
        assert_eq!((shown(&model).as_deref(), model.is_stale()), (Some("4"), false));
        // A screen that was right all the time needs no second reply.
        assert!(model.mark_stale(Staleness::Moved));
        model.feed(b"5\r\n", false);
        assert_eq!(model.reconcile_moving(&seed(4, "1\n2\n3\n4\n5\n\n"), rules), Reconciled::Same);
        // A new staleness in between invalidates the last reply.
        assert!(model.restart());
        let of_before = seed(0, "x\n\n");
        assert_eq!(model.reconcile_moving(&of_before, rules), Reconciled::Unsettled);
        assert!(model.mark_stale(Staleness::Moved));
        assert_eq!(model.reconcile_moving(&of_before, rules), Reconciled::Unsettled);
    }

    #[test]
    fn a_new_screen_keeps_the_pen_that_the_stream_told() {
        let rules = Rules::for_version(Version::parse(b"3.3a").unwrap());
        let fields = "2|0|0|2|0|0|||7|30|2000|4294967295|4294967295|0|1|0|0|1|1|\n";
        let parts = ["ab\n\n", "\n", fields, "ab\n\n", "\n"].map(|part| bytes::Bytes::copy_from_slice(part.as_bytes()));
        let seed = screen::seed::parse(&parts).unwrap();
        let coloured = |doubt: Staleness| {
            let mut model = model();
            // The last byte is the first half of a character.
            model.feed(b"xx\x1b[31m\xc3", false);
            model.mark_stale(doubt);
            assert_eq!(model.reconcile(&seed, rules), Reconciled::Different);
            model.feed(b"\xa9", false);
            let captured = model.capture(&CaptureOptions { escapes: true, ..CaptureOptions::default() });
            captured.map(|captured| String::from_utf8(captured).unwrap())
        };
        let kept = coloured(Staleness::Resized);
        assert!(kept.as_ref().is_some_and(|kept| kept.starts_with("ab\x1b[31mé")), "{kept:?}");
        // `send-keys -R` resets the pen, although clearing the history does not; a new program
        // begins without one.
        assert_eq!(coloured(Staleness::Moved), None);
        assert_eq!(coloured(Staleness::Restarted), None);
    }

    /// Returns the replies of tmux 3.3a for a pane of twenty columns with one row of text.
    fn told(column: u16, row: &str) -> screen::Seed {
        let fields = format!("{column}|0|0|2|0|0|||7|20|2000|4294967295|4294967295|0|1|0|0|1|1|\n");
        let lines = format!("{row}\n\n");
        let parts = [&lines, "\n", &fields, &lines, "\n"].map(|part| bytes::Bytes::copy_from_slice(part.as_bytes()));
        screen::seed::parse(&parts).unwrap()
    }

    fn seeded(column: u16, row: &str) -> (ScreenModel, Rules) {
        let rules = Rules::for_version(Version::parse(b"3.3a").unwrap());
        let mut model = ScreenModel::default();
        model.adopt(Some(&told(column, row)), Some(rules), true);
        (model, rules)
    }

    #[test]
    fn state_missing_from_a_seed_is_learned_from_the_next() {
        let (mut model, rules) = seeded(2, "ab");
        let styled = CaptureOptions { escapes: true, ..CaptureOptions::default() };
        assert_eq!(model.capture(&styled).as_deref(), Some(&b"ab\n\n"[..]));
        model.feed(b"c", false);
        assert_eq!(shown(&model).as_deref(), Some("abc"));
        assert!(model.capture(&styled).is_none() && model.is_unsure());
        let made = model.made();
        assert_eq!(model.reconcile(&told(3, "ab\x1b[31mc"), rules), Reconciled::Same);
        assert!(!model.is_unsure());
        assert_eq!((model.made(), model.refreshed()), (made, 1), "its lines have their numbers");
        // The pen is that of the output that was printed with it.
        model.feed(b"d\x1b[1me", false);
        assert!(!model.is_unsure());
        assert_eq!(model.capture(&styled).as_deref(), Some(&b"ab\x1b[31mcd\x1b[1me\n\n"[..]));
    }

    #[test]
    fn what_goes_on_from_what_a_seed_does_not_tell_is_doubted() {
        for output in [&b"\x1b[3b"[..], b"\x1b8", b"\x97\xa5"] {
            let (mut model, _) = seeded(2, "ab");
            assert_eq!(model.feed(output, false).1, Some(Staleness::Untold), "{}", output.escape_ascii());
        }
        let (mut model, _) = seeded(2, "ab");
        model.feed(b"c\x1b[2b\x1b7x\x1b8y", false);
        assert_eq!(shown(&model).as_deref(), Some("abcccy"), "what came since is known");
    }

    #[test]
    fn the_beginning_of_a_cut_character_is_found_in_the_next_reply() {
        let (mut model, rules) = seeded(2, "ab");
        assert!(!model.begins_within_character(b"c") && !model.begins_within_character("漢".as_bytes()));
        assert!(model.begins_within_character(b"\xa2c"));
        let beginning = |output: &[u8], column, row: &str| model.beginning_of(output, &told(column, row), rules);
        assert_eq!(beginning(b"\xa2c", 5, "ab漢c").as_deref(), Some(&b"\xe6\xbc"[..]));
        assert_eq!(beginning(b"\xbc\xa2c", 5, "ab漢c").as_deref(), Some(&b"\xe6"[..]));
        assert_eq!(beginning(b"\xa2c", 6, "ab漢cd"), None, "more has come");
        assert_eq!(beginning(b"\xa2c", 4, "abéc"), None);
    }

    #[test]
    fn without_a_screen_nothing_is_doubted() {
        let mut model = ScreenModel::default();
        assert!(!model.mark_stale(Staleness::Restarted));
        assert_eq!(model.feed(b"x", false), (None, None));
    }
}
