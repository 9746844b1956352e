//! `capture-pane`: tmux's output, byte for byte, from memory or from tmux.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use muxtap_api::{
    CaptureAnswer, CaptureRequest, CaptureSource, Cursor, Error, ErrorCode, Result, Size, Tier, Verified,
};
use muxtap_base::metrics;
use muxtap_core::{
    protocol::{command::Command, ids::PaneId},
    screen::{self, CaptureOptions, Line, Screen},
};
use muxtap_tmux::{Lost, Request, seed};
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::{PaneState, Server, pane::resync};

/// The longest wait for a verified pane to become quiet.
const VERIFY_LIMIT: Duration = Duration::from_secs(2);
/// Error text: why a capture cannot be printed from a followed screen.
const UNKNOWN: &str = "with these flags it shows what only tmux can print (hyperlinks, or cells never written)";

/// Error text: why the screen of a pane without a process is not followed.
const NO_PROCESS: &str = "no process prints its content, so tmux is always queried";

impl Server {
    /// Returns the output of `tmux capture-pane -p`: from memory if the screen is followed, else
    /// from tmux.
    pub async fn capture(&self, target: &str, request: &CaptureRequest) -> Result<CaptureAnswer> {
        Ok(self.capture_with_place(target, request).await?.0)
    }

    /// Returns a capture, as [`Server::capture`] does, and the place of the screen's cursor in it:
    /// row and column, from 0. `None`: that place is unknown.
    pub async fn capture_with_place(
        &self,
        target: &str,
        request: &CaptureRequest,
    ) -> Result<(CaptureAnswer, Option<Place>)> {
        let host = &self.host;
        self.engine.authorize(Tier::Read)?;
        let options = options(request)?;
        if !request.verify
            && let Some(answer) = self.capture_once(target, &options).await?
        {
            return Ok(answer);
        }
        let pane = self.resolve_seen(target).await?;
        if request.verify {
            return Ok((self.verify(&pane, &options).await?, None));
        }
        host.confirm_values(&pane).await;
        let there = host.live_pane(pane.id()).is_some_and(|there| Arc::ptr_eq(&there, &pane));
        if let Some((text, offset, place)) = from_memory(&pane, &options).filter(|_| there) {
            let source = if pane.lock().screen().is_kept() { CaptureSource::Kept } else { CaptureSource::Model };
            return Ok((answer(&pane, &text, source, offset), place));
        }
        host.resync_unsure(&pane);
        let commands = || vec![capture_command(pane.id(), &options), place_command(pane.id())];
        match self.ask_parts(&pane, commands).await {
            Ok((parts, offset)) => {
                let [text, place] = parts.as_slice() else { return Err(unreadable(pane.id())) };
                Ok((answer(&pane, text, CaptureSource::Tmux, offset), parse_place(place).map(|(_, place)| place)))
            }
            Err(error) => of_ended(&pane, &options, error),
        }
    }

    /// Captures a pane that is not followed, by a plain client. `None` if the pane is followed, or
    /// was captured recently and is to be followed from now on.
    async fn capture_once(
        &self,
        target: &str,
        options: &CaptureOptions,
    ) -> Result<Option<(CaptureAnswer, Option<Place>)>> {
        let host = &self.host;
        let id = match self.locate_pane(target).await {
            Ok(id) if host.pane(id).is_none_or(|pane| pane.exit().is_none()) && host.looks_once(id) => id,
            // Ended panes and errors are handled by the full lookup.
            _ => return Ok(None),
        };
        let question = || Request::Framed(vec![capture_command(id, options), place_command(id)]);
        let Ok(parts) = host.server().read(None, question).await? else { return Ok(None) };
        let [text, place] = parts.as_slice() else { return Ok(None) };
        let Some((size, place)) = parse_place(place) else { return Ok(None) };
        metrics::capture(CaptureSource::Tmux.as_str());
        // Output printed from now on follows this position. For a pane that was never followed, all
        // output does.
        let known = host.live_pane(id).map(|pane| pane.end_cursor());
        let answer = CaptureAnswer {
            pane: id,
            text: String::from_utf8_lossy(text).into_owned(),
            source: CaptureSource::Tmux,
            size,
            cursor: known.unwrap_or(Cursor { epoch: host.epoch(), pane: id, offset: 0 }),
            verified: None,
        };
        Ok(Some((answer, Some(place))))
    }

    /// Captures from memory, and compares with tmux's output at the same position of the stream.
    async fn verify(&self, pane: &Arc<PaneState>, options: &CaptureOptions) -> Result<CaptureAnswer> {
        let host = &self.host;
        let refuse = |why: &str| Error::new(ErrorCode::Conflict, format!("cannot verify pane {}: {why}", pane.id()));
        let begun = Instant::now();
        while begun.elapsed() < VERIFY_LIMIT {
            let before = pane.revision();
            let Some((ours, offset, _)) = from_memory(pane, options) else {
                host.resync_unsure(pane);
                let (why, resyncing) = {
                    let locked = pane.lock();
                    let why = locked.screen().why_not_followed().unwrap_or(UNKNOWN);
                    let awaits = locked.screen().awaits_resync();
                    (if locked.has_no_process() { NO_PROCESS } else { why }, awaits)
                };
                if !resyncing {
                    return Err(refuse(why));
                }
                // A resync is in progress.
                let _ = tokio::time::timeout(VERIFY_LIMIT, pane.changes().changed()).await;
                continue;
            };
            let (theirs, _) = self.ask_screen(pane, || capture_command(pane.id(), options)).await?;
            if pane.revision() != before {
                let left = VERIFY_LIMIT.saturating_sub(begun.elapsed());
                let _ = tokio::time::timeout(left, resync::until_rest(pane)).await;
                continue;
            }
            let verified = compare(&ours, &theirs);
            if !verified.same && pane.mark_screen_different() {
                host.resync(pane);
            }
            return Ok(CaptureAnswer { verified: Some(verified), ..answer(pane, &ours, CaptureSource::Model, offset) });
        }
        Err(refuse("it keeps changing"))
    }

    /// Returns the visible screen as text, and the stream offset of that screen. With `joined`,
    /// wrapped lines are joined, and trailing blanks are kept if they were printed.
    pub(crate) async fn screen(&self, pane: &Arc<PaneState>, joined: bool) -> Result<(String, u64)> {
        let options = CaptureOptions { join: joined, ..CaptureOptions::default() };
        let padded = joined && self.host.rules().is_some_and(|rules| rules.pads_joined_lines());
        self.host.confirm_values(pane).await;
        let from_memory = {
            let locked = pane.lock();
            let text = locked.screen().current().filter(|_| padded).map(|screen| without_padding(screen, &options));
            let text = text.or_else(|| locked.screen().capture(&options)).filter(|_| !locked.has_no_process());
            text.map(|text| (Bytes::from(text), locked.ring().end()))
        };
        let (text, offset) = match from_memory {
            Some(known) => known,
            None => match self.ask_screen(pane, || capture_command(pane.id(), &options)).await {
                // The cursor's position was not requested, so the line that ends there loses its
                // blanks.
                Ok((text, offset)) if padded => (seed::without_padding(&text, 0, None, u32::MAX).into(), offset),
                Ok(asked) => asked,
                Err(error) => {
                    let locked = pane.lock();
                    let last = locked.screen().last().filter(|_| locked.exit().is_some()).ok_or(error)?;
                    let text = if padded { without_padding(last, &options) } else { last.capture(&options) };
                    (Bytes::from(text), locked.ring().end())
                }
            },
        };
        Ok((String::from_utf8_lossy(&text).into_owned(), offset))
    }

    /// Queries tmux for the visible rows, with wrapped rows joined. Returns also whether the first
    /// row continues a line from above the screen. For an ended pane: its last screen.
    pub(crate) async fn joined_lines(&self, pane: &Arc<PaneState>) -> Result<(String, bool)> {
        self.engine.authorize(Tier::Read)?;
        let shown = CaptureOptions { join: true, ..CaptureOptions::default() };
        let with_row_above = CaptureOptions { start: Line::At(-1), ..shown };
        let commands = || vec![capture_command(pane.id(), &shown), capture_command(pane.id(), &with_row_above)];
        let Ok((parts, _)) = self.ask_parts(pane, commands).await else {
            return Ok((self.screen(pane, true).await?.0, false));
        };
        let mut parts = parts.iter().map(|part| String::from_utf8_lossy(part).into_owned());
        let (text, longer) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        // A row above that does not continue adds a line of its own. Without a history both texts
        // are equal.
        let starts_within_line = text != longer && text.lines().count() == longer.lines().count();
        Ok((text, starts_within_line))
    }

    /// Queries tmux for a capture. Returns it with a stream offset that it certainly shows.
    ///
    /// The query changes nothing, so it is repeated over another connection if one is lost, but
    /// only on the pane's own server.
    async fn ask_screen(&self, pane: &Arc<PaneState>, command: impl Fn() -> Command) -> Result<(Bytes, u64)> {
        let (parts, end) = self.ask_parts(pane, || vec![command()]).await?;
        Ok((parts.into_iter().next().unwrap_or_default(), end))
    }

    /// Queries tmux for the pane's screen. Returns the screen without history, the stream offset
    /// that it certainly shows, and the number of lines in the history.
    pub(crate) async fn shown(&self, pane: &Arc<PaneState>) -> Result<(Screen, u64, u32)> {
        self.engine.authorize(Tier::Read)?;
        let rules = self.host.rules();
        let (parts, end) = self.ask_parts(pane, || screen::seed::question_shown(pane.id(), rules)).await?;
        let read = screen::seed::parse_shown(&parts).zip(rules);
        let screen = read.and_then(|((seed, history), rules)| {
            Some((Screen::from_seed(&seed, rules, screen::Settings::default())?, end, history))
        });
        screen.ok_or_else(|| unreadable(pane.id()))
    }

    async fn ask_parts(&self, pane: &Arc<PaneState>, commands: impl Fn() -> Vec<Command>) -> Result<(Vec<Bytes>, u64)> {
        let host = &self.host;
        let server = host.server_of(pane);
        for _ in 0..3 {
            server.connected().await?;
            let (sender, receiver) = oneshot::channel();
            // Recorded before the query: output printed meanwhile may arrive before the reply
            // without being shown in it. Reading on from this offset can repeat a line but never
            // omits one.
            let end = pane.lock().ring().end();
            server.submit(Some(pane.id()), Request::Framed(commands()), move |answer| {
                // The caller may have left.
                let _ = sender.send(answer);
            });
            match receiver.await {
                Ok(Ok(Ok(parts))) => return Ok((parts, end)),
                Ok(Ok(Err(message))) if message.contains("can't find pane") => {
                    return Err(Error::not_found(format!(
                        "pane {} is no longer on {}; `muxtap read` still returns its output",
                        pane.id(),
                        host.socket().display()
                    )));
                }
                Ok(Ok(Err(message))) => return Err(Error::invalid(format!("tmux: {message}"))),
                Ok(Err(Lost::Ended)) | Err(_) => tokio::task::yield_now().await,
                Ok(Err(lost)) => return Err(lost.into()),
            }
        }
        Err(Lost::Ended.into())
    }
}

/// Returns the screen's joined lines without the blanks that tmux adds to them (N61).
fn without_padding(screen: &Screen, options: &CaptureOptions) -> Vec<u8> {
    let (size, cursor) = (screen.size(), screen.cursor());
    let place = (u64::from(cursor.row), cursor.column);
    seed::without_padding(&screen.capture(options), u64::from(size.rows), Some(place), u32::from(size.columns))
}

/// Returns the capture from memory, if it certainly equals tmux's.
fn from_memory(pane: &PaneState, options: &CaptureOptions) -> Option<(Vec<u8>, u64, Option<Place>)> {
    let locked = pane.lock();
    if locked.has_no_process() {
        return None;
    }
    let screen = locked.screen();
    Some((screen.capture(options)?, locked.ring().end(), screen.current().or_else(|| screen.last()).map(place_on)))
}

fn answer(pane: &PaneState, text: &[u8], source: CaptureSource, offset: u64) -> CaptureAnswer {
    metrics::capture(source.as_str());
    CaptureAnswer {
        pane: pane.id(),
        text: String::from_utf8_lossy(text).into_owned(),
        source,
        size: pane.size(),
        cursor: pane.cursor(offset),
        verified: None,
    }
}

/// Captures the last screen of an ended pane, with its history.
fn of_ended(pane: &PaneState, options: &CaptureOptions, error: Error) -> Result<(CaptureAnswer, Option<Place>)> {
    let (text, offset, place) = {
        let locked = pane.lock();
        let Some(last) = locked.screen().last().filter(|_| locked.exit().is_some()) else { return Err(error) };
        if !locked.screen().is_proven() && (options.escapes || options.join || options.trailing) {
            return Err(Error::new(
                ErrorCode::UnsupportedCaptureMode,
                format!("pane {} has ended; with this version of tmux only its plain text is kept", pane.id()),
            ));
        }
        (last.capture(options), locked.ring().end(), place_on(last))
    };
    Ok((answer(pane, &text, CaptureSource::Kept, offset), Some(place)))
}

/// A row and a column of a screen, from 0.
pub type Place = (u16, u16);

fn place_on(screen: &Screen) -> Place {
    let cursor = screen.cursor();
    (u16::try_from(cursor.row).unwrap_or(u16::MAX), u16::try_from(cursor.column).unwrap_or(u16::MAX))
}

/// Returns the command that reports the pane's size and its cursor's place.
fn place_command(pane: PaneId) -> Command {
    let command = Command::new("display-message").flag("-p").opt("-t", pane.to_string());
    command.format("#{pane_width} #{pane_height} #{cursor_y} #{cursor_x}")
}

fn parse_place(reply: &[u8]) -> Option<(Size, Place)> {
    let reply = String::from_utf8_lossy(reply);
    let mut numbers = reply.split_whitespace().map_while(|number| number.parse::<u16>().ok());
    let (width, height) = (numbers.next()?, numbers.next()?);
    Some((Size { width, height }, (numbers.next()?, numbers.next()?)))
}

fn unreadable(pane: PaneId) -> Error {
    Error::internal(format!("unreadable reply from tmux about pane {pane}"))
}

/// Returns the `capture-pane` command for these options.
fn capture_command(pane: PaneId, options: &CaptureOptions) -> Command {
    let mut command = Command::new("capture-pane").flag("-p").opt("-t", pane.to_string());
    for (wanted, flag) in [(options.escapes, "-e"), (options.join, "-J"), (options.trailing, "-N")] {
        if wanted {
            command = command.flag(flag);
        }
    }
    for (line, flag) in [(options.start, "-S"), (options.end, "-E")] {
        match line {
            Line::Default => {}
            Line::Edge => command = command.opt(flag, "-"),
            Line::At(at) => command = command.opt(flag, at.to_string()),
        }
    }
    command
}

fn options(request: &CaptureRequest) -> Result<CaptureOptions> {
    Ok(CaptureOptions {
        start: line("start", request.start.as_deref())?,
        end: line("end", request.end.as_deref())?,
        join: request.join,
        escapes: request.escapes,
        trailing: request.trailing,
    })
}

/// Parses a line number in the form of `-S` and `-E`: a number or `-`.
fn line(field: &str, value: Option<&str>) -> Result<Line> {
    match value {
        None => Ok(Line::Default),
        Some("-") => Ok(Line::Edge),
        Some(number) => number.parse().map(Line::At).map_err(|_| {
            Error::invalid(format!(
                "{field}: expected a line number (0 is the first visible line, -1 the one above it) or -, got \
                 {number:?}"
            ))
        }),
    }
}

/// Returns the first difference between two captures.
fn compare(ours: &[u8], theirs: &[u8]) -> Verified {
    if ours == theirs {
        return Verified { same: true, line: None, model: None, tmux: None };
    }
    let lines = |text: &[u8]| text.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect::<Vec<_>>();
    let (ours, theirs) = (lines(ours), lines(theirs));
    let at = ours.iter().zip(&theirs).position(|(one, other)| one != other).unwrap_or(ours.len().min(theirs.len()));
    let text = |lines: &[Vec<u8>]| lines.get(at).map(|line| String::from_utf8_lossy(line).into_owned());
    Verified { same: false, line: Some(at as u64), model: text(&ours), tmux: text(&theirs) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_that_differs_is_told() {
        assert!(compare(b"a\nb\n", b"a\nb\n").same);
        let differs = compare(b"a\nb\nc\n", b"a\nB\nC\n");
        assert_eq!((differs.line, differs.model.as_deref(), differs.tmux.as_deref()), (Some(1), Some("b"), Some("B")));
        let shorter = compare(b"a", b"a\nb");
        assert_eq!((shorter.line, shorter.model, shorter.tmux.as_deref()), (Some(1), None, Some("b")));
    }
}
