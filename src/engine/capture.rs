//! `capture-pane`: what tmux prints, byte for byte, over the open connection.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::oneshot;

use super::{Engine, Host, Pane};
use crate::{
    api::{CaptureAnswer, CaptureRequest, CaptureSource, Error, ErrorCode, Result},
    protocol::command::Command,
    tmux::{Lost, Request},
};

impl Engine {
    /// What `tmux capture-pane -p` prints.
    pub async fn capture(&self, host: &Arc<Host>, target: &str, request: &CaptureRequest) -> Result<CaptureAnswer> {
        let start = line("start", request.start.as_deref())?;
        let end = line("end", request.end.as_deref())?;
        let pane = self.pane(host, target).await?;
        let command = |pane: &Pane| {
            let mut command = Command::new("capture-pane").flag("-p").opt("-t", pane.id().to_string());
            for (wanted, flag) in [(request.escapes, "-e"), (request.join, "-J"), (request.trailing, "-N")] {
                if wanted {
                    command = command.flag(flag);
                }
            }
            for (value, flag) in [(&start, "-S"), (&end, "-E")] {
                if let Some(value) = value {
                    command = command.opt(flag, value);
                }
            }
            command
        };
        let asked = self.ask_screen(host, &pane, || command(&pane)).await;
        let (text, offset) = match asked {
            Ok((body, offset)) => (String::from_utf8_lossy(&body).into_owned(), offset),
            Err(error) => return kept(&pane, request, error),
        };
        Ok(CaptureAnswer {
            pane: pane.id().to_string(),
            text,
            source: CaptureSource::Tmux,
            size: pane.about().size,
            cursor: pane.cursor(offset).to_string(),
        })
    }

    /// The visible screen as text, and the point of the stream at which it looked so. `joined`: wrapped lines are one.
    pub(super) async fn screen(&self, host: &Arc<Host>, pane: &Arc<Pane>, joined: bool) -> Result<(String, u64)> {
        let command = || {
            let command = Command::new("capture-pane").flag("-p").opt("-t", pane.id().to_string());
            if joined { command.flag("-J") } else { command }
        };
        match self.ask_screen(host, pane, command).await {
            Ok((body, offset)) => Ok((String::from_utf8_lossy(&body).into_owned(), offset)),
            Err(error) => {
                let state = pane.lock();
                match &state.kept {
                    Some(kept) => Ok((kept.clone(), state.ring.end())),
                    None => Err(error),
                }
            }
        }
    }

    /// A capture, and a point of the stream that it shows for certain. It changes nothing, so it is asked again over another
    /// connection when one is lost.
    async fn ask_screen(
        &self,
        host: &Arc<Host>,
        pane: &Arc<Pane>,
        command: impl Fn() -> Command,
    ) -> Result<(Bytes, u64)> {
        for _ in 0..3 {
            host.server().connected().await?;
            let (sender, receiver) = oneshot::channel();
            // Taken before it is asked: what the pane prints meanwhile may come ahead of the reply and not be shown in it. Reading on from
            // here can show a line once more, never leave one out.
            let end = pane.lock().ring.end();
            host.server().submit(Some(pane.id()), Request::Framed(vec![command()]), move |answer| {
                // The asker may have given up.
                let _ = sender.send(answer);
            });
            match receiver.await {
                Ok(Ok(Ok(parts))) => return Ok((parts.into_iter().next().unwrap_or_default(), end)),
                Ok(Ok(Err(message))) if message.contains("can't find pane") => {
                    return Err(Error::not_found(format!(
                        "pane {} is no longer on {}; `muxtap read` still gives what it printed",
                        pane.id(),
                        host.socket().display()
                    )));
                }
                Ok(Ok(Err(message))) => return Err(Error::invalid(format!("tmux: {message}"))),
                Ok(Err(Lost)) | Err(_) => tokio::task::yield_now().await,
            }
        }
        Err(Lost.into())
    }
}

/// For a pane that has gone: its last screen, if that is what was asked for.
fn kept(pane: &Pane, request: &CaptureRequest, error: Error) -> Result<CaptureAnswer> {
    let state = pane.lock();
    let Some(kept) = state.kept.clone().filter(|_| state.exit.is_some()) else { return Err(error) };
    if request.escapes || request.join || request.trailing || request.start.is_some() || request.end.is_some() {
        return Err(Error::new(
            ErrorCode::UnsupportedCaptureMode,
            format!("pane {} has ended; only its last screen as plain text was kept", pane.id()),
        ));
    }
    let (size, end) = (state.about.size, state.ring.end());
    let rows: Vec<_> = kept.lines().collect();
    let screen = rows.get(rows.len().saturating_sub(usize::from(size.height))..).unwrap_or_default();
    let mut text = screen.join("\n");
    text.push('\n');
    Ok(CaptureAnswer {
        pane: pane.id().to_string(),
        text,
        source: CaptureSource::Kept,
        size,
        cursor: pane.cursor(end).to_string(),
    })
}

/// A line as `-S` and `-E` take it: a number or `-`.
fn line(field: &str, value: Option<&str>) -> Result<Option<String>> {
    let Some(value) = value else { return Ok(None) };
    if value == "-" || value.parse::<i32>().is_ok() {
        return Ok(Some(value.to_owned()));
    }
    Err(Error::invalid(format!(
        "{field}: {value:?}; give a line number (0 is the first visible line, -1 the one above it) or -"
    )))
}
