//! `top`.

mod draw;
mod feed;
mod model;

use std::{
    io::{self, IsTerminal as _},
    time::{Duration, Instant},
};

use clap::Args;
use ratatui::{
    Terminal, TerminalOptions, Viewport,
    backend::CrosstermBackend,
    crossterm::event::{self, Event as Input, KeyEvent, KeyEventKind},
    layout::Rect,
};
use tokio::{sync::mpsc, time::MissedTickBehavior};

use self::{feed::Feed, model::Model};
use super::{
    Caller, Outcome,
    output::{self, ColorChoice, Failure},
};
use crate::{
    api::{Error, ErrorCode},
    cli::{
        EXIT_ERROR, EXIT_INTERRUPTED,
        terminal::{self, FullScreen, Keys, Signal, Signals},
    },
};

/// The minimum time between two frames.
const FRAME: Duration = Duration::from_millis(100);
/// How often elapsed times are redrawn.
const TICK: Duration = Duration::from_secs(1);

/// Show all panes live on one screen
///
/// Shows programs, last lines, output, agents, and open waits with their callers, for all tmux
/// servers that the daemon follows and the caller's own; with -L or -S only for that server.
/// Redraws on events, without polling, and once a second for times. `?` shows the keys.
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  muxtap top
  muxtap -L work top                             one tmux server

Keys: q, Ctrl-C quit; arrows, j, k select; Enter show the screen; / filter; s sort; ? help")]
pub(in crate::cli) struct Top {
    /// Color agents that ask and panes that print
    #[arg(long, value_name = "WHEN", value_enum, default_value_t)]
    color: ColorChoice,
}

/// A key's request that the view does not handle itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wish {
    None,
    Quit(u8),
    Suspend,
    Redraw,
}

impl Top {
    pub(in crate::cli) async fn run(self, caller: &Caller) -> Outcome {
        let is_dumb = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
        if caller.json || is_dumb || !io::stdout().is_terminal() || !io::stdin().is_terminal() {
            let message = "top requires a terminal; programs can use `muxtap list-panes --watch --json`";
            return Err(Error::new(ErrorCode::Conflict, message).into());
        }
        // An initial problem is an error, not shown on a screen that disappears.
        let mut feed = Feed::begin(caller).await?;
        let mut signals = Signals::new()?;
        let mut model = Model::new(self.color.enabled());
        let screen = FullScreen::enter(Keys::Raw)?;
        let outcome = show(&screen, &mut feed, &mut signals, &mut model).await;
        drop(screen);
        if let Some(last) = model.last_words() {
            output::note(&last);
        }
        outcome
    }
}

async fn show(screen: &FullScreen, feed: &mut Feed, signals: &mut Signals, model: &mut Model) -> Outcome {
    let mut terminal = empty()?;
    let mut keys = keys();
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut drawn: Option<Instant> = None;
    let mut is_dirty = true;
    loop {
        let due = drawn.map_or_else(Instant::now, |drawn| drawn + FRAME);
        tokio::select! {
            biased;
            signal = signals.next() => match signal {
                Signal::End(status) => return Ok(status),
                Signal::Stop => {
                    screen.suspend()?;
                    terminal = empty()?;
                },
                Signal::Resized => terminal = empty()?,
            },
            key = keys.recv() => match key.map_or(Wish::Quit(EXIT_ERROR), |key| model.key(key)) {
                Wish::None => {}
                Wish::Quit(status) => return Ok(status),
                Wish::Suspend => {
                    screen.suspend()?;
                    terminal = empty()?;
                },
                Wish::Redraw => terminal = empty()?,
            },
            () = tokio::time::sleep_until(due.into()), if is_dirty => {
                terminal.draw(|frame| draw::draw(frame, model, Instant::now()))?;
                drawn = Some(Instant::now());
                is_dirty = false;
                continue;
            }
            news = feed.next() => {
                let Some(news) = news else { return Ok(EXIT_ERROR) };
                if matches!(news, feed::News::Back) {
                    // The start of another daemon may have printed on the screen.
                    terminal = empty()?;
                }
                if model.take(news, Instant::now()) {
                    return Ok(EXIT_ERROR);
                }
            }
            _ = ticks.tick() => {}
        }
        is_dirty = true;
    }
}

/// Clears the terminal, and returns it with its current size. A terminal that follows its size by
/// itself queries the cursor's position, and the response would mix with the keys.
fn empty() -> Result<Terminal<CrosstermBackend<io::Stdout>>, Failure> {
    output::print_raw("\x1b[0m\x1b[2J")?;
    let (columns, rows) = terminal::size();
    let side = |cells: usize| u16::try_from(cells).unwrap_or(u16::MAX);
    let viewport = Viewport::Fixed(Rect::new(0, 0, side(columns), side(rows)));
    Ok(Terminal::with_options(CrosstermBackend::new(io::stdout()), TerminalOptions { viewport })?)
}

/// Reads keys on a thread that is never joined: it ends with the process.
fn keys() -> mpsc::Receiver<KeyEvent> {
    let (sender, receiver) = mpsc::channel(16);
    std::thread::spawn(move || {
        loop {
            match event::read() {
                Ok(Input::Key(key)) if key.kind != KeyEventKind::Release => {
                    if sender.blocking_send(key).is_err() {
                        return;
                    }
                }
                Ok(_) => {}
                Err(_) => return,
            }
        }
    });
    receiver
}

/// The exit status after Ctrl-C, which arrives as a key.
const INTERRUPTED: Wish = Wish::Quit(EXIT_INTERRUPTED);
