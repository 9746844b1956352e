//! Input: keys, text, bytes, pastes. What is typed cannot become a command of tmux (F27, F28).

use std::{fmt::Write as _, sync::Arc};

use tokio::sync::oneshot;

use super::{Engine, Host, Pane, limits};
use crate::{
    api::{Error, ErrorCode, InputAnswer, InputRequest, Result, Tier},
    pane::cursor::Cursor,
    protocol::command::{Command, CommandLine, hex_keys},
    tmux::{Lost, Request},
};

/// What a request types, as it was given.
fn given(request: &InputRequest) -> Vec<u8> {
    let InputRequest { keys, text, hex, .. } = request;
    let keys = keys.iter().flatten().map(String::as_str);
    keys.chain(text.as_deref()).chain(hex.as_deref()).collect::<Vec<_>>().join(" ").into_bytes()
}

/// Keys of one command; more are several commands.
const KEYS_A_LINE: usize = 256;

/// What is sent, and what of it a terminal may echo.
pub(super) struct Typed {
    lines: Vec<Line>,
    echo: String,
}

/// One line to tmux.
struct Line {
    commands: CommandLine,
    /// The buffer that it makes, and deletes if all goes well.
    buffer: Option<String>,
}

impl From<CommandLine> for Line {
    fn from(commands: CommandLine) -> Self {
        Self { commands, buffer: None }
    }
}

impl Engine {
    /// Sends input to a pane. The answer's cursor is the end of the output just before it arrived.
    pub async fn input(&self, host: &Arc<Host>, target: &str, request: &InputRequest) -> Result<InputAnswer> {
        let act = self.act(Tier::Input, "input", host, target)?.typed(|| given(request));
        let done = async {
            let kinds = [request.keys.is_some(), request.text.is_some(), request.hex.is_some()];
            if kinds.iter().filter(|given| **given).count() != 1 && !(request.submit && kinds == [false; 3]) {
                return Err(Error::invalid("give exactly one of keys, text and hex"));
            }
            if request.paste && request.text.is_none() {
                return Err(Error::invalid("paste: only text can be pasted"));
            }
            let pane = self.pane(host, target).await?;
            act.means(pane.id());
            let typed = match (&request.keys, &request.text, &request.hex) {
                (Some(keys), _, _) => keys_typed(&pane, keys)?,
                (_, Some(text), _) if request.paste => pasted(&pane, text.as_bytes(), true)?,
                (_, Some(text), _) => text_typed(&pane, text.as_bytes())?,
                (_, _, Some(hex)) => text_typed(&pane, &unhex(hex)?)?,
                _ => Typed { lines: Vec::new(), echo: String::new() },
            };
            let (cursor, submit) = if request.submit {
                let text = typed.echo.clone();
                let (cursor, seen) = self.submit(host, &pane, typed, &text).await?;
                (cursor, Some(seen))
            } else {
                (self.send(host, &pane, typed).await?, None)
            };
            Ok(InputAnswer { pane: pane.id().to_string(), cursor: cursor.to_string(), submit })
        }
        .await;
        act.ended(done)
    }

    /// Sends text and then keys, with nothing of other callers between them.
    pub(crate) async fn text_and_keys(
        &self,
        host: &Arc<Host>,
        target: &str,
        text: &str,
        keys: &[String],
    ) -> Result<InputAnswer> {
        let act = self.act(Tier::Input, "input", host, target)?;
        let act = act.typed(|| {
            let text = Some(text).filter(|text| !text.is_empty());
            text.into_iter().chain(keys.iter().map(String::as_str)).collect::<Vec<_>>().join(" ").into_bytes()
        });
        let done = async {
            let pane = self.pane(host, target).await?;
            act.means(pane.id());
            let mut typed = text_typed(&pane, text.as_bytes())?;
            let keys = keys_typed(&pane, keys)?;
            typed.lines.extend(keys.lines);
            typed.echo.push_str(&keys.echo);
            let cursor = self.send(host, &pane, typed).await?;
            Ok(InputAnswer { pane: pane.id().to_string(), cursor: cursor.to_string(), submit: None })
        }
        .await;
        act.ended(done)
    }

    /// Sends, and marks the point of the stream before it: whatever answers it comes after that point.
    pub(super) async fn send(&self, host: &Arc<Host>, pane: &Arc<Pane>, typed: Typed) -> Result<Cursor> {
        host.server().connected().await?;
        // Only what can be seen on a line is looked for as an echo.
        let terminal = if host.server().spec().is_local() && typed.echo.chars().any(|c| !c.is_control() && c != ' ') {
            host.probe(pane.about(), |proc, about| proc.foreground(about.pid, &about.tty)).await.flatten()
        } else {
            None
        };
        if pane.exit().is_some() {
            return Err(Error::new(
                ErrorCode::Conflict,
                format!("the process in pane {} has ended; `muxtap respawn-pane` starts one", pane.id()),
            ));
        }
        let tty_echo = terminal.as_ref().is_some_and(|terminal| terminal.echo);
        // A terminal that collects lines and echoes nothing: what looks like an echo there is an answer.
        let silent = terminal.is_some_and(|terminal| terminal.canonical && !terminal.echo);
        // Marked before it is sent: while other panes flood, tmux may send this pane's answer ahead of its reply to us.
        let mark = pane.typed(if silent { "" } else { &typed.echo }, tty_echo);
        let mut waiting = Vec::new();
        for line in typed.lines {
            let (sender, receiver) = oneshot::channel();
            let server = host.server().clone();
            host.server().submit(Some(pane.id()), Request::Plain(line.commands), move |answer| {
                if let (Ok(Err(_)) | Err(_), Some(buffer)) = (&answer, line.buffer) {
                    // What was to be pasted may be a secret, and is nobody's to find.
                    let delete = CommandLine::of([Command::new("delete-buffer").opt("-b", buffer)]);
                    server.submit_at_last(None, Request::Plain(delete));
                }
                // The asker may have given up.
                let _ = sender.send(answer);
            });
            waiting.push(receiver);
        }
        for (line, receiver) in waiting.into_iter().enumerate() {
            let what = if line == 0 { "the input" } else { "the rest of the input" };
            match receiver.await {
                Ok(Ok(Ok(_))) => {}
                Ok(Ok(Err(message))) if message.contains("can't find pane") => {
                    return Err(Error::not_found(format!("pane {} is no longer there", pane.id())));
                }
                Ok(Ok(Err(message))) => return Err(Error::invalid(format!("tmux: {message}"))),
                Ok(Err(lost)) => return Err(lost.of_change(what)),
                Err(_) => return Err(Lost::Ended.of_change(what)),
            }
        }
        Ok(pane.cursor(mark))
    }
}

/// Keys by tmux's names; what is no name is text, as for `tmux send-keys`.
pub(super) fn keys_typed(pane: &Pane, keys: &[String]) -> Result<Typed> {
    check_size(keys.iter().map(String::len).sum())?;
    let target = pane.id().to_string();
    let lines = keys.chunks(KEYS_A_LINE).map(|keys| {
        let command = Command::new("send-keys").opt("-t", &target).end_of_flags();
        CommandLine::of([keys.iter().fold(command, Command::arg)]).into()
    });
    let mut echo = String::new();
    for key in keys {
        match key.as_str() {
            "Enter" | "C-m" | "KPEnter" | "C-j" => echo.push('\n'),
            "Space" => echo.push(' '),
            name if is_key_name(name) => {}
            text => echo.push_str(text),
        }
    }
    if keys.iter().any(|key| key.contains('\0')) {
        return Err(Error::invalid("keys: a key's name cannot hold a NUL byte; send it as hex 00 or as C-Space"));
    }
    Ok(Typed { lines: lines.collect(), echo })
}

/// Text as if typed.
pub(super) fn text_typed(pane: &Pane, bytes: &[u8]) -> Result<Typed> {
    check_size(bytes.len())?;
    if bytes.len() > limits::KEYS_BYTES && !bytes.contains(&0) {
        return pasted(pane, bytes, false);
    }
    let lines = hex_keys(pane.id(), bytes).map(|command| CommandLine::of([command]).into()).collect();
    Ok(Typed { lines, echo: String::from_utf8_lossy(bytes).into_owned() })
}

/// Text by way of a buffer of tmux. `bracketed`: with the marks of a paste, where the program asked for them, and line
/// ends as Enter.
fn pasted(pane: &Pane, bytes: &[u8], bracketed: bool) -> Result<Typed> {
    check_size(bytes.len())?;
    if bytes.contains(&0) {
        return Err(Error::invalid("text: a paste cannot hold a NUL byte; send it as hex"));
    }
    let target = pane.id().to_string();
    // One paste is one buffer: in pieces, each would have marks of its own.
    let piece = if bracketed { bytes.len().max(1) } else { limits::BUFFER_BYTES };
    let lines = bytes.chunks(piece).enumerate().map(|(index, bytes)| {
        let name = format!("muxtap-{}-{index}", pane.id().0);
        let set = Command::new("set-buffer").opt("-b", &name).end_of_flags().arg(bytes);
        let paste = Command::new("paste-buffer").flag("-d").flag(if bracketed { "-p" } else { "-r" });
        Line { commands: CommandLine::of([set, paste.opt("-b", &name).opt("-t", &target)]), buffer: Some(name) }
    });
    Ok(Typed { lines: lines.collect(), echo: String::from_utf8_lossy(bytes).into_owned() })
}

fn check_size(bytes: usize) -> Result<()> {
    if bytes > limits::INPUT_BYTES {
        return Err(Error::new(
            ErrorCode::ResourceLimit,
            format!("{bytes} bytes of input; at most {} in one request", limits::INPUT_BYTES),
        ));
    }
    Ok(())
}

/// Whether tmux takes it as a key and not as text.
fn is_key_name(key: &str) -> bool {
    const NAMES: [&str; 24] = [
        "Up", "Down", "Left", "Right", "Home", "End", "PageUp", "PgUp", "PageDown", "PgDn", "PPage", "NPage", "Insert",
        "IC", "Delete", "DC", "Escape", "Tab", "BTab", "BSpace", "Bspace", "Any", "None", "Space",
    ];
    let is_modified = |prefix: &str| key.strip_prefix(prefix).is_some_and(|rest| !rest.is_empty());
    let is_function = |prefix: &str| {
        key.strip_prefix(prefix).is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit()))
    };
    NAMES.iter().any(|name| name.eq_ignore_ascii_case(key))
        || ["C-", "M-", "S-", "^", "KP"].iter().any(|prefix| is_modified(prefix))
        || is_function("F")
        || is_function("User")
}

/// Bytes from hexadecimal digits.
fn unhex(hex: &str) -> Result<Vec<u8>> {
    let digits: Vec<u8> = hex.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let value = |digit: u8| char::from(digit).to_digit(16).map(|value| value as u8);
    if !digits.len().is_multiple_of(2) {
        return Err(Error::invalid("hex: an odd number of digits; each byte is two"));
    }
    let bytes = digits.chunks_exact(2).map(|pair| match pair {
        [high, low] => Some(value(*high)? << 4 | value(*low)?),
        _ => None,
    });
    bytes.collect::<Option<_>>().ok_or_else(|| Error::invalid("hex: only the digits 0-9 and a-f"))
}

/// Enter as a key of its own.
pub(super) fn enter(pane: &Pane) -> Typed {
    let command = Command::new("send-keys").opt("-t", pane.id().to_string()).arg("Enter");
    Typed { lines: vec![CommandLine::of([command]).into()], echo: String::new() }
}

impl std::fmt::Debug for Typed {
    /// Without what is typed: it may be a secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Typed(")?;
        write!(f, "{} bytes", self.echo.len())?;
        f.write_char(')')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hexadecimal_is_read_in_pairs() {
        assert_eq!(unhex("68 69\n0A").unwrap(), b"hi\n");
        assert!(unhex("6").is_err() && unhex("zz").is_err());
    }

    #[test]
    fn names_of_keys_are_not_text() {
        for key in ["C-c", "M-x", "F12", "Up", "escape", "BSpace", "^c"] {
            assert!(is_key_name(key), "{key}");
        }
        for text in ["ls", "F", "Fx", "C", "echo hi", "-", "^"] {
            assert!(!is_key_name(text), "{text}");
        }
    }
}
