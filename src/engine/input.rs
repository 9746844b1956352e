//! Input: keys, text, bytes, pastes. What is typed cannot become a command of tmux (F27, F28).

use std::{fmt::Write as _, sync::Arc};

use tokio::sync::oneshot;

use super::{Engine, Host, Pane, limits, prompt::Spot};
use crate::{
    api::{Error, ErrorCode, InputAnswer, InputRequest, Result, Tier},
    protocol::{
        command::{Command, CommandLine, hex_keys},
        ids::PaneId,
        version::Version,
    },
    stream::cursor::Cursor,
    tmux::{Answer, Lost, Request},
};

/// What a request types, as it was given.
fn given(request: &InputRequest) -> Vec<u8> {
    let InputRequest { keys, text, hex, .. } = request;
    let keys = keys.iter().flatten().map(String::as_str);
    keys.chain(text.as_deref()).chain(hex.as_deref()).collect::<Vec<_>>().join(" ").into_bytes()
}

/// Keys of one command; more are several commands.
const KEYS_A_LINE: usize = 256;

/// A command that tmux does not know. Where it is reached, the rest of its line is not run (N40).
const REFUSAL: &str = "muxtap-refuses-a-pane-in-a-mode";

/// The same for a line that is only to be sent while the cursor stands where it stood.
const MOVED: &str = "muxtap-refuses-a-moved-cursor";

/// What is sent, and what of it a terminal may echo.
pub(super) struct Typed {
    lines: Vec<Line>,
    echo: String,
}

/// One line to tmux.
struct Line {
    commands: Vec<Command>,
    way: Way,
}

/// How a line reaches the program while somebody looks at the pane in one of tmux's modes.
enum Way {
    /// Keys: a mode would read them. tmux runs the line outside of modes only; in one, these bytes are pasted instead.
    Keys(Result<Vec<u8>, WithoutBytes>),
    /// A buffer of this name that is pasted as it is: no mode sees it (N41).
    Buffer(String),
    /// A bracketed paste: in a mode tmux leaves its marks out (N41), so it is refused there.
    Bracketed(String),
}

/// A key whose bytes depend on what the program asked of its terminal, or on tmux's options.
struct WithoutBytes(String);

impl Line {
    /// A line of keys, and what they are as bytes.
    fn keys(commands: impl IntoIterator<Item = Command>, bytes: Result<Vec<u8>, WithoutBytes>) -> Self {
        Self { commands: commands.into_iter().collect(), way: Way::Keys(bytes) }
    }

    /// The buffer that it makes, and deletes if all goes well.
    fn buffer(&self) -> Option<&str> {
        match &self.way {
            Way::Keys(_) => None,
            Way::Buffer(name) | Way::Bracketed(name) => Some(name),
        }
    }

    /// What tmux is given: one line, which it runs without a break, and of which it runs nothing while the pane is in a
    /// mode that would take it.
    fn commands(&self, pane: PaneId, version: Version, only_at: Option<Spot>) -> CommandLine {
        let mut commands = self.commands.clone();
        match &self.way {
            Way::Keys(_) | Way::Bracketed(_) => commands.insert(0, outside_of_modes(pane)),
            Way::Buffer(name) => {
                let paste = Command::new("paste-buffer").flag("-d").flag("-r");
                let paste = if version.pastes_escape_controls() { paste.flag("-S") } else { paste };
                commands.push(paste.opt("-b", name).opt("-t", pane.to_string()));
            }
        }
        commands.splice(0..0, only_at.map(|spot| unmoved(pane, spot)));
        CommandLine::of(commands)
    }
}

/// Ends its line where the pane is in a mode. tmux reads the refused command only when it comes to run it, and one that
/// it cannot read ends the line (N40). With `-F` nothing blocks (F15).
fn outside_of_modes(pane: PaneId) -> Command {
    Command::new("if-shell").flag("-F").opt("-t", pane.to_string()).format("#{pane_in_mode}").arg(REFUSAL)
}

/// Ends its line where the pane's cursor stands elsewhere: somebody has typed, or the program has printed.
fn unmoved(pane: PaneId, Spot { x, y, .. }: Spot) -> Command {
    let elsewhere = format!("#{{||:#{{!=:#{{cursor_x}},{x}}},#{{!=:#{{cursor_y}},{y}}}}}");
    Command::new("if-shell").flag("-F").opt("-t", pane.to_string()).format(elsewhere).arg(MOVED)
}

impl Typed {
    /// This, and then that: as one line where both are keys.
    fn then(mut self, other: Self) -> Self {
        self.echo.push_str(&other.echo);
        for line in other.lines {
            match (self.lines.last_mut(), line) {
                (Some(Line { commands, way: Way::Keys(bytes) }), Line { commands: more, way: Way::Keys(other) }) => {
                    commands.extend(more);
                    match (bytes.as_mut(), other) {
                        (Ok(bytes), Ok(more)) => bytes.extend(more),
                        (Ok(_), Err(key)) => *bytes = Err(key),
                        (Err(_), _) => {}
                    }
                }
                (_, line) => self.lines.push(line),
            }
        }
        self
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
                (_, Some(text), _) if request.paste => pasted(&pane, text.as_bytes())?,
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
            let typed = text_typed(&pane, text.as_bytes())?.then(keys_typed(&pane, keys)?);
            let cursor = self.send(host, &pane, typed).await?;
            Ok(InputAnswer { pane: pane.id().to_string(), cursor: cursor.to_string(), submit: None })
        }
        .await;
        act.ended(done)
    }

    /// Sends, and marks the point of the stream before it: whatever answers it comes after that point.
    pub(super) async fn send(&self, host: &Arc<Host>, pane: &Arc<Pane>, typed: Typed) -> Result<Cursor> {
        let sent = self.send_if(host, pane, typed, None).await?;
        sent.ok_or_else(|| Error::internal("input that could not be refused was refused"))
    }

    /// Sends if the cursor still stands on that spot; `None` if it does not, and nothing was sent.
    pub(super) async fn send_if(
        &self,
        host: &Arc<Host>,
        pane: &Arc<Pane>,
        typed: Typed,
        only_at: Option<Spot>,
    ) -> Result<Option<Cursor>> {
        let version = host.server().connected().await?.version;
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
        if only_at.is_some() && typed.lines.len() > 1 {
            // The cursor has moved once the first line was typed.
            return Err(Error::new(
                ErrorCode::InvalidArgument,
                "the input is too long to be sent as one; nothing was sent",
            ));
        }
        // Marked before it is sent: while other panes flood, tmux may send this pane's answer ahead of its reply to us.
        let before = pane.typed(if silent { "" } else { &typed.echo }, tty_echo);
        let mut some_arrived = false;
        let arrived = deliver(host, pane, typed.lines, version, only_at, &mut some_arrived).await;
        let refused = match &arrived {
            Ok(arrived) => !arrived,
            // Of anything else that goes wrong it is not known whether it was typed.
            Err(error) => !some_arrived && error.code == ErrorCode::Conflict,
        };
        if refused {
            pane.not_typed(&before);
        }
        Ok(arrived?.then(|| pane.cursor(before.mark)))
    }

    /// Presses keys of a line editor. It is no input of a caller's: no read or wait begins with it.
    pub(super) async fn press(&self, host: &Host, pane: &Pane, keys: &[u8]) -> Result<()> {
        let version = host.server().connected().await?.version;
        let line = Line::keys(hex_keys(pane.id(), keys), Ok(keys.to_vec()));
        deliver(host, pane, vec![line], version, None, &mut false).await.map(|_| ())
    }
}

/// Sends lines, one right after the other. Returns whether the cursor stood where it was to stand; `some_arrived` is set
/// once a line was typed.
async fn deliver(
    host: &Host,
    pane: &Pane,
    lines: Vec<Line>,
    version: Version,
    only_at: Option<Spot>,
    some_arrived: &mut bool,
) -> Result<bool> {
    let sent: Vec<_> = lines.into_iter().map(|line| (send_line(host, pane, &line, version, only_at), line)).collect();
    for (answer, line) in sent {
        match answer.await.unwrap_or(Err(Lost::Ended)) {
            Ok(Ok(_)) => {}
            Ok(Err(message)) if message.contains(MOVED) => return Ok(false),
            Ok(Err(message)) if message.contains(REFUSAL) => {
                if !send_in_mode(host, pane, line, version, only_at, *some_arrived).await? {
                    return Ok(false);
                }
            }
            Ok(Err(message)) => return Err(refused_by_tmux(pane, &message)),
            Err(lost) => return Err(lost.of_change(if *some_arrived { "the rest of the input" } else { "the input" })),
        }
        *some_arrived = true;
    }
    Ok(true)
}

/// Gives a line to tmux, whose answer comes on the channel.
fn send_line(
    host: &Host,
    pane: &Pane,
    line: &Line,
    version: Version,
    only_at: Option<Spot>,
) -> oneshot::Receiver<Result<Answer, Lost>> {
    let (sender, receiver) = oneshot::channel();
    let server = host.server().clone();
    let buffer = line.buffer().map(str::to_owned);
    host.server().submit(Some(pane.id()), Request::Plain(line.commands(pane.id(), version, only_at)), move |answer| {
        if let (Ok(Err(_)) | Err(_), Some(buffer)) = (&answer, buffer) {
            // What was to be pasted may be a secret, and is nobody's to find.
            let delete = CommandLine::of([Command::new("delete-buffer").opt("-b", buffer)]);
            server.submit_at_last(None, Request::Plain(delete));
        }
        // The asker may have given up.
        let _ = sender.send(answer);
    });
    receiver
}

/// Sends what tmux refused because somebody looks at the pane in a mode: pasted, which reaches the program and leaves the
/// mode and its scroll position alone; or not at all.
async fn send_in_mode(
    host: &Host,
    pane: &Pane,
    line: Line,
    version: Version,
    only_at: Option<Spot>,
    some_arrived: bool,
) -> Result<bool> {
    let (what, hint) = match line.way {
        Way::Keys(Ok(bytes)) if !bytes.contains(&0) => {
            for (index, line) in raw_paste(pane, &bytes).into_iter().enumerate() {
                // The first one moves the cursor.
                let only_at = only_at.filter(|_| index == 0);
                match send_line(host, pane, &line, version, only_at).await.unwrap_or(Err(Lost::Ended)) {
                    Ok(Ok(_)) => {}
                    Ok(Err(message)) if message.contains(MOVED) => return Ok(false),
                    Ok(Err(message)) => return Err(refused_by_tmux(pane, &message)),
                    Err(lost) => return Err(lost.of_change("the input, or a part of it,")),
                }
            }
            return Ok(true);
        }
        Way::Keys(Ok(_)) => ("a NUL byte".to_owned(), "send it when they have left it"),
        Way::Keys(Err(WithoutBytes(key))) => {
            (format!("the key {key}"), "send text, Enter, Tab, Escape or C- with a letter, or the key's bytes with -H")
        }
        Way::Buffer(_) | Way::Bracketed(_) => {
            ("a bracketed paste".to_owned(), "send it without --paste, or when they have left it")
        }
    };
    let mode = mode_of(host, pane).await?;
    let sent = if some_arrived { "; what stood before it was sent" } else { "; nothing was sent" };
    Err(Error::new(
        ErrorCode::Conflict,
        format!(
            "pane {} is in {mode}: somebody looks at it there, and {what} cannot be sent past that{sent}; {hint}",
            pane.id()
        ),
    )
    .with_details(serde_json::json!({ "mode": mode })))
}

/// The name of the mode that a pane is in, by tmux's word (`copy-mode`, `tree-mode` …).
async fn mode_of(host: &Host, pane: &Pane) -> Result<String> {
    let question = || {
        let ask = Command::new("display-message").flag("-p").opt("-t", pane.id().to_string());
        Request::Plain(CommandLine::of([ask.format("#{pane_mode}")]))
    };
    let answer = host.server().read(Some(pane.id()), question).await?;
    let answer = answer.map_err(|message| refused_by_tmux(pane, &message))?;
    let mode = answer.first().map(|name| String::from_utf8_lossy(name).trim().to_owned());
    Ok(mode.filter(|mode| !mode.is_empty()).unwrap_or_else(|| "a mode".to_owned()))
}

fn refused_by_tmux(pane: &Pane, message: &str) -> Error {
    if message.contains("can't find pane") {
        return Error::not_found(format!("pane {} is no longer there", pane.id()));
    }
    Error::invalid(format!("tmux: {message}"))
}

/// Keys by tmux's names; what is no name is text, as for `tmux send-keys`.
pub(super) fn keys_typed(pane: &Pane, keys: &[String]) -> Result<Typed> {
    check_size(keys.iter().map(String::len).sum())?;
    if keys.iter().any(|key| key.contains('\0')) {
        return Err(Error::invalid("keys: a key's name cannot hold a NUL byte; send it as hex 00 or as C-Space"));
    }
    let target = pane.id().to_string();
    let commands = keys.chunks(KEYS_A_LINE).map(|keys| {
        let command = Command::new("send-keys").opt("-t", &target).end_of_flags();
        keys.iter().fold(command, Command::arg)
    });
    let mut bytes = Ok(Vec::new());
    let mut echo = String::new();
    for key in keys {
        match key.as_str() {
            "Enter" | "C-m" | "KPEnter" | "C-j" => echo.push('\n'),
            "Space" => echo.push(' '),
            name if is_key_name(name) => {}
            text => echo.push_str(text),
        }
        bytes = bytes.and_then(|mut bytes: Vec<u8>| {
            bytes.extend(key_bytes(key).ok_or_else(|| WithoutBytes(key.clone()))?);
            Ok(bytes)
        });
    }
    let lines = if keys.is_empty() { Vec::new() } else { vec![Line::keys(commands, bytes)] };
    Ok(Typed { lines, echo })
}

/// Text as if typed.
pub(super) fn text_typed(pane: &Pane, bytes: &[u8]) -> Result<Typed> {
    check_size(bytes.len())?;
    let echo = String::from_utf8_lossy(bytes).into_owned();
    if bytes.len() > limits::KEYS_BYTES && !bytes.contains(&0) {
        return Ok(Typed { lines: raw_paste(pane, bytes), echo });
    }
    // One line: tmux runs it without a break, so that no mode begins in the midst of it.
    let lines =
        if bytes.is_empty() { Vec::new() } else { vec![Line::keys(hex_keys(pane.id(), bytes), Ok(bytes.to_vec()))] };
    Ok(Typed { lines, echo })
}

/// Lines that paste these bytes as they are.
fn raw_paste(pane: &Pane, bytes: &[u8]) -> Vec<Line> {
    let pieces = bytes.chunks(limits::BUFFER_BYTES).enumerate();
    let line = |(index, bytes)| {
        let (name, set) = buffer(pane, index, bytes);
        Line { commands: vec![set], way: Way::Buffer(name) }
    };
    pieces.map(line).collect()
}

/// Text as one paste: with its marks where the program asked for them, and line ends as Enter.
fn pasted(pane: &Pane, bytes: &[u8]) -> Result<Typed> {
    check_size(bytes.len())?;
    if bytes.contains(&0) {
        return Err(Error::invalid("text: a paste cannot hold a NUL byte; send it as hex"));
    }
    // One paste is one buffer: in pieces, each would have marks of its own.
    let (name, set) = buffer(pane, 0, bytes);
    let paste = Command::new("paste-buffer").flag("-d").flag("-p").opt("-b", &name).opt("-t", pane.id().to_string());
    let line = Line { commands: vec![set, paste], way: Way::Bracketed(name) };
    Ok(Typed { lines: vec![line], echo: String::from_utf8_lossy(bytes).into_owned() })
}

/// A buffer's name, and the command that makes it.
fn buffer(pane: &Pane, index: usize, bytes: &[u8]) -> (String, Command) {
    let name = format!("muxtap-{}-{index}", pane.id().0);
    let set = Command::new("set-buffer").opt("-b", &name).end_of_flags().arg(bytes);
    (name, set)
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

/// The bytes that a key is to a program whatever it asked of its terminal; `None` where that depends, or is not known.
fn key_bytes(key: &str) -> Option<Vec<u8>> {
    let mut characters = key.chars();
    if let (Some(_), None) = (characters.next(), characters.next()) {
        return Some(key.as_bytes().to_vec());
    }
    match key.to_ascii_lowercase().as_str() {
        "enter" => return Some(b"\r".to_vec()),
        "tab" => return Some(b"\t".to_vec()),
        "escape" => return Some(b"\x1b".to_vec()),
        "space" => return Some(b" ".to_vec()),
        _ => {}
    }
    let control = key.strip_prefix("C-").or_else(|| key.strip_prefix("c-")).or_else(|| key.strip_prefix('^'));
    if let Some([letter @ (b'a'..=b'z' | b'A'..=b'Z')]) = control.map(str::as_bytes) {
        return Some(vec![letter.to_ascii_lowercase() - b'a' + 1]);
    }
    // What may be a name to tmux though it is not known here: `0x1b`, `MouseDown1Pane`.
    let is_name = is_key_name(key)
        || key.starts_with("0x")
        || ["Mouse", "Wheel", "Double", "Triple", "Second", "Focus", "Paste", "Drag"]
            .iter()
            .any(|kind| key.starts_with(kind))
            && key.bytes().all(|byte| byte.is_ascii_alphanumeric());
    (!is_name).then(|| key.as_bytes().to_vec())
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

/// Text whose echo is known otherwise.
pub(super) fn typed_unseen(pane: &Pane, bytes: &[u8]) -> Result<Typed> {
    Ok(Typed { echo: String::new(), ..text_typed(pane, bytes)? })
}

/// Enter as a key of its own.
pub(super) fn enter(pane: &Pane) -> Typed {
    let command = Command::new("send-keys").opt("-t", pane.id().to_string()).arg("Enter");
    Typed { lines: vec![Line::keys([command], Ok(b"\r".to_vec()))], echo: String::new() }
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
    fn keys_that_are_the_same_bytes_to_every_program() {
        for (key, bytes) in [("Enter", "\r"), ("escape", "\x1b"), ("C-c", "\x03"), ("^U", "\x15"), ("Space", " ")] {
            assert_eq!(key_bytes(key).as_deref(), Some(bytes.as_bytes()), "{key}");
        }
        for text in ["f", "ü", "make all", "F", "C", "^", "Pasted text", "--"] {
            assert_eq!(key_bytes(text).as_deref(), Some(text.as_bytes()), "{text}");
        }
        // By the cursor keys' mode, by options, or by an encoding that the program asked for.
        for key in
            ["Up", "Home", "F1", "BSpace", "M-x", "C-Up", "C-Space", "S-Tab", "0x1b", "WheelUpPane", "PasteStart"]
        {
            assert_eq!(key_bytes(key), None, "{key}");
        }
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
