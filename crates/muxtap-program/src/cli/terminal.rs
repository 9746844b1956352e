//! Exclusive use of a terminal by a command: the alternate screen, the keyboard, the signals. The
//! terminal is restored however the command ends.

use std::{
    io::{self, Write as _},
    sync::{Mutex, Once, PoisonError},
};

use muxtap_core::width;
use rustix::termios::{self, LocalModes, OptionalActions, Termios};
use tokio::signal::unix::{self, SignalKind, signal};

use super::output::{self, Failure};
use crate::api::Error;

/// Shows the alternate screen and hides the cursor.
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
/// Reverts both.
const LEAVE: &str = "\x1b[0m\x1b[?25h\x1b[?1049l";

/// The terminal's saved modes. There is one terminal.
static TAKEN: Mutex<Option<Taken>> = Mutex::new(None);

struct Taken {
    /// The modes of stdin; `None` if it is not a terminal.
    modes: Option<Termios>,
}

/// How keys reach a command that uses the terminal exclusively.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keys {
    /// Nothing reads keys, and they are not echoed; Ctrl-C and Ctrl-Z are signals.
    Ignored,
    /// The command reads each key.
    #[cfg(feature = "top")]
    Raw,
}

/// Exclusive use of the terminal. The terminal is restored on drop, on a panic and by
/// [`FullScreen::suspend`].
pub(super) struct FullScreen {
    keys: Keys,
}

impl FullScreen {
    /// Takes the terminal on stdout.
    pub(super) fn enter(keys: Keys) -> Result<Self, Failure> {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let hook = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |panic| {
                // Its message would disappear with the alternate screen.
                give_back();
                hook(panic);
            }));
        });
        take(keys)?;
        Ok(Self { keys })
    }

    /// Restores the terminal and stops this process, as Ctrl-Z does; returns when it continues.
    pub(super) fn suspend(&self) -> Result<(), Failure> {
        give_back();
        stop()?;
        take(self.keys)
    }
}

impl Drop for FullScreen {
    fn drop(&mut self) {
        give_back();
    }
}

/// Stops this process until it is continued.
pub(super) fn stop() -> Result<(), Error> {
    rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::STOP)
        .map_err(|error| Error::internal(format!("cannot stop: {error}")))
}

fn take(keys: Keys) -> Result<(), Failure> {
    let modes = termios::tcgetattr(io::stdin()).ok();
    let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(modes) = &modes {
        let mut changed = modes.clone();
        match keys {
            Keys::Ignored => changed.local_modes.remove(LocalModes::ECHO | LocalModes::ICANON),
            #[cfg(feature = "top")]
            Keys::Raw => changed.make_raw(),
        }
        // In the background, for example after `bg`, this call stops the process (SIGTTOU).
        let _ = termios::tcsetattr(io::stdin(), OptionalActions::Drain, &changed);
    }
    *taken = Some(Taken { modes });
    output::print_raw(ENTER)
}

/// Restores the terminal if it is in use.
fn give_back() {
    let Some(Taken { modes }) = TAKEN.lock().unwrap_or_else(PoisonError::into_inner).take() else { return };
    let mut stdout = io::stdout().lock();
    // A terminal that has gone needs no restoring.
    let _ = stdout.write_all(LEAVE.as_bytes()).and_then(|()| stdout.flush());
    if let Some(modes) = modes {
        let _ = termios::tcsetattr(io::stdin(), OptionalActions::Flush, &modes);
    }
}

/// Shows a text from the top of the terminal, cut to its size, without line breaks.
pub(super) fn draw(text: &str) -> Result<(), Failure> {
    output::print_raw(frame(text, size()))
}

/// Returns the terminal's columns and rows.
pub(super) fn size() -> (usize, usize) {
    let size = termios::tcgetwinsize(io::stdout()).ok().filter(|size| size.ws_col > 0 && size.ws_row > 0);
    size.map_or((80, 24), |size| (size.ws_col.into(), size.ws_row.into()))
}

/// Returns the bytes that replace the contents of a terminal of this size with a text.
fn frame(text: &str, (columns, rows): (usize, usize)) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let mut frame = "\x1b[H".to_owned();
    let fits = lines.len() <= rows;
    let shown = if fits { lines.len() } else { rows.saturating_sub(1) };
    for (row, line) in lines.iter().take(shown).enumerate() {
        frame.push_str(if row > 0 { "\r\n" } else { "" });
        frame.push_str(clip(line, columns));
        frame.push_str("\x1b[K");
    }
    if !fits {
        let more = format!("… {} more lines", lines.len() - shown);
        frame.push_str(if shown > 0 { "\r\n" } else { "" });
        frame.push_str(clip(&more, columns));
        frame.push_str("\x1b[K");
    }
    // Output on stderr appears below.
    if lines.len() < rows {
        frame.push_str("\r\n");
    }
    frame.push_str("\x1b[J");
    frame
}

/// Returns the beginning of a line that fits into this many columns.
pub(super) fn clip(line: &str, columns: usize) -> &str {
    if line.len() <= columns {
        // No character has more columns than bytes.
        return line;
    }
    let mut end = 0;
    let mut taken = 0;
    for (at, character) in line.char_indices() {
        let next = at + character.len_utf8();
        taken += line.get(at..next).map_or(0, width::of_text);
        if taken > columns {
            break;
        }
        end = next;
    }
    line.get(..end).unwrap_or_default()
}

/// A signal that a long-running command handles itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Signal {
    /// Exit with this status.
    End(u8),
    /// Stop until continued.
    Stop,
    /// The terminal's size has changed.
    Resized,
}

/// The signals of a command that uses the terminal exclusively.
pub(super) struct Signals {
    interrupt: unix::Signal,
    terminate: unix::Signal,
    hang_up: unix::Signal,
    quit: unix::Signal,
    stop: unix::Signal,
    resized: unix::Signal,
}

/// `SIGTSTP`, which tokio has no name for.
const STOP: i32 = rustix::process::Signal::TSTP.as_raw();

impl Signals {
    pub(super) fn new() -> Result<Self, Error> {
        let listen = |kind| signal(kind).map_err(|error| Error::internal(format!("signals: {error}")));
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            hang_up: listen(SignalKind::hangup())?,
            quit: listen(SignalKind::quit())?,
            stop: listen(SignalKind::from_raw(STOP))?,
            resized: listen(SignalKind::window_change())?,
        })
    }

    /// Returns the next signal. Cancel safe.
    pub(super) async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.interrupt.recv() => Signal::End(super::EXIT_INTERRUPTED),
            _ = self.terminate.recv() => Signal::End(143),
            _ = self.hang_up.recv() => Signal::End(129),
            _ = self.quit.recv() => Signal::End(131),
            _ = self.stop.recv() => Signal::Stop,
            _ = self.resized.recv() => Signal::Resized,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_to_the_terminal() {
        assert_eq!(frame("ab\ncd\n", (80, 24)), "\x1b[Hab\x1b[K\r\ncd\x1b[K\r\n\x1b[J");
        assert_eq!(frame("abc\nd\n", (2, 2)), "\x1b[Hab\x1b[K\r\nd\x1b[K\x1b[J");
        assert_eq!(frame("a\nb\nc\n", (80, 2)), "\x1b[Ha\x1b[K\r\n… 2 more lines\x1b[K\x1b[J");
        assert_eq!(frame("a\nb\n", (1, 1)), "\x1b[H…\x1b[K\x1b[J");
        assert_eq!(frame("", (1, 1)), "\x1b[H\r\n\x1b[J");
    }

    #[test]
    fn wide_characters_are_not_cut_in_half() {
        assert_eq!(clip("日本語", 5), "日本");
        assert_eq!(clip("e\u{301}x", 1), "e\u{301}");
        assert_eq!((clip("日", 1), clip("", 0), clip("ab", 9)), ("", "", "ab"));
    }
}
