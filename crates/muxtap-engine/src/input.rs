//! Input: keys, text, bytes, pastes. Typed input can never become a tmux command (F27, F28).

pub(crate) mod command_line;
mod key_names;
pub(super) mod prompt;
pub(super) mod run;
mod run_file;
pub(crate) mod run_script;
pub(super) mod runs;
pub(super) mod shell;
pub(super) mod submit;

use std::{fmt::Write as _, sync::Arc};

use data_encoding::{DecodeKind, HEXLOWER_PERMISSIVE};
use muxtap_tmux::{Answer, Lost, Request, TerminalInput};
use tokio::sync::oneshot;

pub use key_names::check_keys;

use muxtap_api::{Cursor, Error, ErrorCode, InputAnswer, InputRequest, Operation, Result};
use muxtap_core::protocol::{
    command::{Command, CommandLine, hex_keys},
    ids::PaneId,
    version::Version,
};

use super::{Host, PaneState, Server, activity::Deed, input::prompt::CursorPosition, limits};

/// Returns the input of a request as it was given, for the audit log.
fn audited_input(request: &InputRequest) -> Vec<u8> {
    let InputRequest { keys, text, hex, .. } = request;
    let keys = keys.iter().flatten().map(String::as_str);
    keys.chain(text.as_deref()).chain(hex.as_deref()).collect::<Vec<_>>().join(" ").into_bytes()
}

/// Keys of one command; more are split into several commands.
const KEYS_A_LINE: usize = 256;

/// A command that tmux does not know. If tmux reaches it, the rest of the line does not run (N40).
const REFUSAL: &str = "muxtap-refuses-a-pane-in-a-mode";

/// What a terminal sends before and after a paste if the program requested it (mode 2004).
const PASTE_START: &[u8] = b"\x1b[200~";
const PASTE_END: &[u8] = b"\x1b[201~";

/// A second unknown command, for lines that may run only while the cursor has not moved.
const MOVED: &str = "muxtap-refuses-a-moved-cursor";

/// Input that is ready to be sent, and the text that a terminal may echo for it.
pub(super) struct PreparedInput {
    lines: Vec<InputLine>,
    echo: String,
}

impl PreparedInput {
    /// Returns the bytes that the program reads, if they are known; otherwise the text.
    fn bytes(&self) -> Vec<u8> {
        let keys = self.lines.iter().map(|line| match &line.kind {
            InputKind::Keys(Ok(bytes)) | InputKind::Message(_, bytes) => Some(bytes.as_slice()),
            _ => None,
        });
        let keys: Option<Vec<_>> = keys.collect();
        keys.map_or_else(|| self.echo.replace('\n', "\r").into_bytes(), |keys| keys.concat())
    }
}

/// One command line for tmux.
struct InputLine {
    commands: Vec<Command>,
    kind: InputKind,
}

/// How a line reaches the program while a user views the pane in one of tmux's modes.
enum InputKind {
    /// Keys, which a mode would read. tmux runs the line only outside modes; in a mode these bytes
    /// are pasted instead.
    Keys(Result<Vec<u8>, UnknownBytes>),
    /// A buffer of this name that is pasted unchanged: modes do not see it (N41).
    Buffer(String),
    /// A bracketed paste, which is rejected in a mode: tmux omits the paste's marks there (N41).
    Bracketed(String),
    /// Text of several lines that is submitted: its buffer's name, and the text. tmux pastes it
    /// unchanged, with marks if the program requested them. In a mode the marks are ours.
    Message(String, Vec<u8>),
}

/// A key whose bytes depend on what the program requested from its terminal, or on tmux's options.
struct UnknownBytes(String);

impl InputLine {
    /// Creates a line of keys, with the same keys as bytes.
    fn keys(commands: impl IntoIterator<Item = Command>, bytes: Result<Vec<u8>, UnknownBytes>) -> Self {
        Self { commands: commands.into_iter().collect(), kind: InputKind::Keys(bytes) }
    }

    /// Returns the name of the buffer that the line creates, and deletes if it succeeds.
    fn buffer(&self) -> Option<&str> {
        match &self.kind {
            InputKind::Keys(_) => None,
            InputKind::Buffer(name) | InputKind::Bracketed(name) | InputKind::Message(name, _) => Some(name),
        }
    }

    /// Returns the commands for tmux as one line. tmux runs it without a break, and runs none of it
    /// while the pane is in a mode that would take the input.
    fn commands(&self, pane: PaneId, version: Version, only_at: Option<CursorPosition>) -> CommandLine {
        let mut commands = self.commands.clone();
        let unchanged = |name: &str| {
            let paste = Command::new("paste-buffer").flag("-d").flag("-r");
            let paste = if version.pastes_escape_controls() { paste.flag("-S") } else { paste };
            paste.opt("-b", name).opt("-t", pane.to_string())
        };
        match &self.kind {
            InputKind::Keys(_) | InputKind::Bracketed(_) => commands.insert(0, outside_of_modes(pane)),
            InputKind::Buffer(name) => commands.push(unchanged(name)),
            InputKind::Message(name, _) => {
                commands.insert(0, outside_of_modes(pane));
                commands.push(unchanged(name).flag("-p"));
            }
        }
        commands.splice(0..0, only_at.map(|spot| unmoved(pane, spot)));
        CommandLine::of(commands)
    }
}

/// Returns a command that ends its line if the pane is in a mode. tmux parses the unknown command
/// only when it is about to run it, and a command that it cannot parse ends the line (N40). With
/// `-F` nothing blocks (F15).
fn outside_of_modes(pane: PaneId) -> Command {
    Command::new("if-shell").flag("-F").opt("-t", pane.to_string()).format("#{pane_in_mode}").arg(REFUSAL)
}

/// Returns a command that ends its line if the pane's cursor has moved: a user has typed, or the
/// program has printed.
fn unmoved(pane: PaneId, CursorPosition { x, y, .. }: CursorPosition) -> Command {
    let elsewhere = format!("#{{||:#{{!=:#{{cursor_x}},{x}}},#{{!=:#{{cursor_y}},{y}}}}}");
    Command::new("if-shell").flag("-F").opt("-t", pane.to_string()).format(elsewhere).arg(MOVED)
}

impl PreparedInput {
    /// Appends other input, in one line if both are keys.
    fn then(mut self, other: Self) -> Self {
        self.echo.push_str(&other.echo);
        for line in other.lines {
            match (self.lines.last_mut(), line) {
                (
                    Some(InputLine { commands, kind: InputKind::Keys(bytes) }),
                    InputLine { commands: more, kind: InputKind::Keys(other) },
                ) => {
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

impl Server {
    /// Sends input to a pane. The cursor in the response is the end of the output just before the
    /// input arrived.
    pub async fn input(&self, target: &str, request: &InputRequest) -> Result<InputAnswer> {
        let host = &self.host;
        let audit = self.engine.audit(Operation::Input, host, target)?.input(|| audited_input(request));
        let done = async {
            let kinds = [request.keys.is_some(), request.text.is_some(), request.hex.is_some()];
            if kinds.iter().filter(|given| **given).count() != 1 && !(request.submit && kinds == [false; 3]) {
                return Err(Error::invalid("give exactly one of keys, text and hex"));
            }
            if request.paste && request.text.is_none() {
                return Err(Error::invalid("paste: only text can be pasted"));
            }
            let pane = self.resolve_pane(target).await?;
            audit.resolved(pane.id());
            if let Some(run) = &request.run
                && !pane.is_typed_run(run)
            {
                let message = format!("the command of this run does not run in pane {}; nothing was typed", pane.id());
                return Err(Error::new(ErrorCode::Conflict, message).at_stage("queued"));
            }
            let typed = match (&request.keys, &request.text, &request.hex) {
                (Some(keys), _, _) if request.submit => prepare_message_keys(&pane, keys)?,
                (Some(keys), _, _) => prepare_keys(&pane, keys)?,
                (_, Some(text), _) if request.paste => prepare_paste(&pane, text.as_bytes())?,
                (_, Some(text), _) if request.submit => prepare_message(&pane, text.as_bytes())?,
                (_, Some(text), _) => prepare_text(&pane, text.as_bytes())?,
                (_, _, Some(hex)) => prepare_text(&pane, &unhex(hex)?)?,
                _ => PreparedInput { lines: Vec::new(), echo: String::new() },
            };
            let (cursor, submit) = if request.submit {
                let text = typed.echo.clone();
                let (cursor, seen) = self.submit(&pane, typed, &text).await?;
                (cursor, Some(seen))
            } else {
                (self.send(&pane, typed).await?, None)
            };
            Ok(InputAnswer { pane: pane.id(), cursor, submit })
        }
        .await;
        audit.finish(done)
    }

    /// Sends text and then keys, without other callers' input between them.
    pub async fn text_and_keys(&self, target: &str, text: &str, keys: &[String]) -> Result<InputAnswer> {
        let host = &self.host;
        let audit = self.engine.audit(Operation::Input, host, target)?;
        let audit = audit.input(|| {
            let text = Some(text).filter(|text| !text.is_empty());
            text.into_iter().chain(keys.iter().map(String::as_str)).collect::<Vec<_>>().join(" ").into_bytes()
        });
        let done = async {
            let pane = self.resolve_pane(target).await?;
            audit.resolved(pane.id());
            let typed = prepare_text(&pane, text.as_bytes())?.then(prepare_keys(&pane, keys)?);
            let cursor = self.send(&pane, typed).await?;
            Ok(InputAnswer { pane: pane.id(), cursor, submit: None })
        }
        .await;
        audit.finish(done)
    }

    /// Sends input. Returns the cursor just before it; the program's reaction follows that cursor.
    pub(super) async fn send(&self, pane: &Arc<PaneState>, typed: PreparedInput) -> Result<Cursor> {
        let sent = self.send_if(pane, typed, None).await?;
        sent.ok_or_else(|| Error::internal("unconditional input was refused"))
    }

    /// Sends input if the cursor is still at `only_at`. Otherwise sends nothing and returns `None`.
    pub(super) async fn send_if(
        &self,
        pane: &Arc<PaneState>,
        typed: PreparedInput,
        only_at: Option<CursorPosition>,
    ) -> Result<Option<Cursor>> {
        let host = &self.host;
        let version = host.server_of(pane).connected().await?.version;
        // Only printable input can be found as an echo.
        let is_printable = typed.echo.chars().any(|c| !c.is_control() && c != ' ');
        let terminal = if host.server().spec().is_local() && is_printable {
            host.probe(pane.metadata(), |proc, metadata| proc.foreground(metadata.pid, &metadata.tty)).await.flatten()
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
        // Without a view of the terminal it is unknown whether a password is being typed.
        let is_unseen = is_printable && terminal.is_none();
        // A terminal that collects lines and echoes nothing: output that looks like an echo is the
        // program's.
        let silent = terminal.is_some_and(|terminal| terminal.input == TerminalInput::Lines && !terminal.echo);
        if only_at.is_some() && typed.lines.len() > 1 {
            // The first line would move the cursor.
            return Err(Error::new(
                ErrorCode::InvalidArgument,
                "the input is too long to be sent in one piece; nothing was sent",
            ));
        }
        // Recorded before it is sent: while other panes flood, tmux may send this pane's output
        // ahead of its reply (N27).
        let before = pane.record_input(if silent { "" } else { &typed.echo }, tty_echo);
        // Noted once it has arrived: a recording contains what was typed, not what was meant to be.
        let mut begun = self.engine.begin_input(pane);
        let deed = self.engine.notes_activities().then(|| Deed::Input((!silent && !is_unseen).then(|| typed.bytes())));
        let mut some_arrived = false;
        let arrived = send_lines(host, pane, typed.lines, version, only_at, &mut some_arrived).await;
        let refused = match &arrived {
            Ok(arrived) => !arrived,
            // After any other error it is unknown whether the input was typed.
            Err(error) => !some_arrived && error.code == ErrorCode::Conflict,
        };
        if refused {
            pane.retract_input(&before);
        } else if let Some(deed) = deed {
            begun.deed = deed;
        }
        drop(begun);
        Ok(arrived?.then(|| pane.cursor(before.mark)))
    }

    /// Presses keys of a line editor. They are not a caller's input: no read or wait begins with
    /// them.
    pub(super) async fn press(&self, pane: &PaneState, keys: &[u8]) -> Result<()> {
        let host = &self.host;
        let version = host.server_of(pane).connected().await?.version;
        let line = InputLine::keys(hex_keys(pane.id(), keys), Ok(keys.to_vec()));
        send_lines(host, pane, vec![line], version, None, &mut false).await.map(|_| ())
    }
}

/// Sends lines in direct succession. Returns whether the cursor was at `only_at`. Sets
/// `some_arrived` once a line was typed.
async fn send_lines(
    host: &Host,
    pane: &PaneState,
    lines: Vec<InputLine>,
    version: Version,
    only_at: Option<CursorPosition>,
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

/// Sends a line to tmux. The reply comes over the channel.
fn send_line(
    host: &Host,
    pane: &PaneState,
    line: &InputLine,
    version: Version,
    only_at: Option<CursorPosition>,
) -> oneshot::Receiver<Result<Answer, Lost>> {
    let (sender, receiver) = oneshot::channel();
    let server = host.server_of(pane);
    let buffer = line.buffer().map(str::to_owned);
    let request = Request::Plain(line.commands(pane.id(), version, only_at));
    server.clone().submit(Some(pane.id()), request, move |answer| {
        if let (Ok(Err(_)) | Err(_), Some(buffer)) = (&answer, buffer) {
            // The buffer may contain a secret, so it must not remain.
            let delete = CommandLine::of([Command::new("delete-buffer").opt("-b", buffer)]);
            server.submit_at_last(None, Request::Plain(delete));
        }
        // The caller may have given up.
        let _ = sender.send(answer);
    });
    receiver
}

/// Sends input that tmux refused because a user views the pane in a mode. The input is pasted,
/// which reaches the program without a change to the mode or its scroll position, or it is
/// rejected.
async fn send_in_mode(
    host: &Host,
    pane: &PaneState,
    line: InputLine,
    version: Version,
    only_at: Option<CursorPosition>,
    some_arrived: bool,
) -> Result<bool> {
    let kind = match line.kind {
        // tmux would omit the marks (N41).
        InputKind::Message(_, text) if pane.brackets_pastes() => {
            InputKind::Keys(Ok([PASTE_START, &text, PASTE_END].concat()))
        }
        InputKind::Message(_, text) => InputKind::Keys(Ok(text)),
        kind => kind,
    };
    let (what, hint) = match kind {
        InputKind::Keys(Ok(bytes)) if !bytes.contains(&0) => {
            for (index, line) in raw_paste(pane, &bytes).into_iter().enumerate() {
                // The first line moves the cursor, so only that line can depend on its position.
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
        InputKind::Keys(Ok(_)) => ("a NUL byte".to_owned(), "send it when they have left it"),
        InputKind::Keys(Err(UnknownBytes(key))) => {
            (format!("the key {key}"), "send text, Enter, Tab, Escape or C- with a letter, or the key's bytes with -H")
        }
        InputKind::Buffer(_) | InputKind::Bracketed(_) | InputKind::Message(..) => {
            ("a bracketed paste".to_owned(), "send it without --paste, or when they have left it")
        }
    };
    let mode = mode_of(host, pane).await?;
    let sent = if some_arrived { "; the input before it was sent" } else { "; nothing was sent" };
    Err(Error::new(
        ErrorCode::Conflict,
        format!(
            "pane {} is in {mode}: a person is viewing it, and {what} cannot be sent past that mode{sent}; {hint}",
            pane.id()
        ),
    )
    .with_details(serde_json::json!({ "mode": mode })))
}

/// Returns tmux's name of the mode that a pane is in (`copy-mode`, `tree-mode` …).
async fn mode_of(host: &Host, pane: &PaneState) -> Result<String> {
    let question = || {
        let ask = Command::new("display-message").flag("-p").opt("-t", pane.id().to_string());
        Request::Plain(CommandLine::of([ask.format("#{pane_mode}")]))
    };
    let answer = host.server_of(pane).read(Some(pane.id()), question).await?;
    let answer = answer.map_err(|message| refused_by_tmux(pane, &message))?;
    let mode = answer.first().map(|name| String::from_utf8_lossy(name).trim().to_owned());
    Ok(mode.filter(|mode| !mode.is_empty()).unwrap_or_else(|| "a mode".to_owned()))
}

fn refused_by_tmux(pane: &PaneState, message: &str) -> Error {
    if message.contains("can't find pane") {
        return Error::not_found(format!("pane {} no longer exists", pane.id()));
    }
    Error::invalid(format!("tmux: {message}"))
}

/// Prepares keys by tmux's names. A word that is not a key name is text, as in `tmux send-keys`.
pub(super) fn prepare_keys(pane: &PaneState, keys: &[String]) -> Result<PreparedInput> {
    check_size(keys.iter().map(String::len).sum())?;
    if keys.iter().any(|key| key.contains('\0')) {
        return Err(Error::invalid("keys: a key's name cannot contain a NUL byte; send it as hex 00 or as C-Space"));
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
            bytes.extend(key_bytes(key).ok_or_else(|| UnknownBytes(key.clone()))?);
            Ok(bytes)
        });
    }
    let lines = if keys.is_empty() { Vec::new() } else { vec![InputLine::keys(commands, bytes)] };
    Ok(PreparedInput { lines, echo })
}

/// Prepares text to be typed.
pub(super) fn prepare_text(pane: &PaneState, bytes: &[u8]) -> Result<PreparedInput> {
    check_size(bytes.len())?;
    let echo = String::from_utf8_lossy(bytes).into_owned();
    if bytes.len() > limits::KEYS_BYTES && !bytes.contains(&0) {
        return Ok(PreparedInput { lines: raw_paste(pane, bytes), echo });
    }
    // One line: tmux runs it without a break, so no mode can begin in the middle.
    let lines = if bytes.is_empty() {
        Vec::new()
    } else {
        vec![InputLine::keys(hex_keys(pane.id(), bytes), Ok(bytes.to_vec()))]
    };
    Ok(PreparedInput { lines, echo })
}

/// Returns lines that paste these bytes unchanged.
fn raw_paste(pane: &PaneState, bytes: &[u8]) -> Vec<InputLine> {
    let pieces = bytes.chunks(limits::BUFFER_BYTES).enumerate();
    let line = |(index, bytes)| {
        let (name, set) = buffer(pane, index, bytes);
        InputLine { commands: vec![set], kind: InputKind::Buffer(name) }
    };
    pieces.map(line).collect()
}

/// Prepares text as one paste: with paste marks if the program requested them, and with line ends
/// as Enter.
fn prepare_paste(pane: &PaneState, bytes: &[u8]) -> Result<PreparedInput> {
    check_size(bytes.len())?;
    if bytes.contains(&0) {
        return Err(Error::invalid("text: a paste cannot contain a NUL byte; send it as hex"));
    }
    check_paste(bytes)?;
    // One paste is one buffer: each piece of a split paste would have its own marks.
    let (name, set) = buffer(pane, 0, bytes);
    let paste = Command::new("paste-buffer").flag("-d").flag("-p").opt("-b", &name).opt("-t", pane.id().to_string());
    let line = InputLine { commands: vec![set, paste], kind: InputKind::Bracketed(name) };
    Ok(PreparedInput { lines: vec![line], echo: String::from_utf8_lossy(bytes).into_owned() })
}

/// Error: `INVALID_ARGUMENT` for text that would end its own paste: what follows would be typed.
fn check_paste(bytes: &[u8]) -> Result<()> {
    let ends = [PASTE_END, b"\x9b201~", "\u{9b}201~".as_bytes()];
    if ends.iter().any(|end| memchr::memmem::find(bytes, end).is_some()) {
        return Err(Error::invalid(
            "text: it contains the end mark of a paste (ESC [ 201 ~), and what follows would be typed; remove the mark",
        ));
    }
    Ok(())
}

/// Prepares text that is submitted. To a program that requested paste marks, several lines are one
/// paste: each line end would submit otherwise. To any other program the same bytes are typed.
fn prepare_message(pane: &PaneState, bytes: &[u8]) -> Result<PreparedInput> {
    if !has_line_end(bytes) || bytes.contains(&0) {
        return prepare_text(pane, bytes);
    }
    check_size(bytes.len())?;
    check_paste(bytes)?;
    let (name, set) = buffer(pane, 0, bytes);
    let line = InputLine { commands: vec![set], kind: InputKind::Message(name, bytes.to_vec()) };
    Ok(PreparedInput { lines: vec![line], echo: String::from_utf8_lossy(bytes).into_owned() })
}

/// Prepares keys that are submitted; text of several lines among them as [`prepare_message`] does.
fn prepare_message_keys(pane: &PaneState, keys: &[String]) -> Result<PreparedInput> {
    let is_message = |key: &String| has_line_end(key.as_bytes());
    if !keys.iter().any(is_message) {
        return prepare_keys(pane, keys);
    }
    check_size(keys.iter().map(String::len).sum())?;
    let mut typed = PreparedInput { lines: Vec::new(), echo: String::new() };
    for same in keys.chunk_by(|one, next| is_message(one) == is_message(next)) {
        let is_text = same.first().is_some_and(is_message);
        let more = if is_text { prepare_message(pane, same.concat().as_bytes()) } else { prepare_keys(pane, same) };
        typed = typed.then(more?);
    }
    Ok(typed)
}

fn has_line_end(text: &[u8]) -> bool {
    text.iter().any(|byte| matches!(byte, b'\n' | b'\r'))
}

/// Returns a buffer's name, and the command that creates it.
fn buffer(pane: &PaneState, index: usize, bytes: &[u8]) -> (String, Command) {
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

/// Returns whether tmux takes this as a key, not as text.
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

/// Returns the bytes that a key sends regardless of what the program requested from its terminal;
/// `None` if the bytes depend on that, or are unknown.
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
    // Names that tmux may know although they are not listed above: `0x1b`, `MouseDown1Pane`.
    let is_name = is_key_name(key)
        || key.starts_with("0x")
        || ["Mouse", "Wheel", "Double", "Triple", "Second", "Focus", "Paste", "Drag"]
            .iter()
            .any(|kind| key.starts_with(kind))
            && key.bytes().all(|byte| byte.is_ascii_alphanumeric());
    (!is_name).then(|| key.as_bytes().to_vec())
}

/// Decodes hexadecimal digits, in either case and with white space between them. Error:
/// `INVALID_ARGUMENT` for any other character, or an odd number of digits.
pub fn unhex(hex: &str) -> Result<Vec<u8>> {
    let digits: Vec<u8> = hex.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    HEXLOWER_PERMISSIVE.decode(&digits).map_err(|error| match error.kind {
        DecodeKind::Length => Error::invalid("hex: an odd number of digits; expected two for each byte"),
        _ => Error::invalid("hex: expected only the digits 0-9 and a-f"),
    })
}

/// Prepares text without an expected echo. The caller handles the echo.
pub(super) fn prepare_unechoed(pane: &PaneState, bytes: &[u8]) -> Result<PreparedInput> {
    Ok(PreparedInput { echo: String::new(), ..prepare_text(pane, bytes)? })
}

/// Prepares Enter as a key of its own.
pub(super) fn prepare_enter(pane: &PaneState) -> PreparedInput {
    let command = Command::new("send-keys").opt("-t", pane.id().to_string()).arg("Enter");
    PreparedInput { lines: vec![InputLine::keys([command], Ok(b"\r".to_vec()))], echo: String::new() }
}

impl std::fmt::Debug for PreparedInput {
    /// Omits the input itself, which may be a secret.
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
        // These depend on the cursor key mode, on options, or on an encoding that the program
        // requested.
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
