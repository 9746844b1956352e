//! Building and quoting commands. Only this module writes to tmux.
//!
//! A [`Command`] never lets an argument end early: whatever bytes a user gives, tmux's command
//! parser reads back exactly these bytes as one argument. How a command then treats an argument is
//! a second question: some expand formats (`#{…}`), some also pass it through strftime (F16).
//! [`Command::format`], [`Command::literal`] and [`Command::timed_literal`] choose between these
//! treatments.

use super::{ids::PaneId, names::spelled};

/// The bytes of keys in one `send-keys -H` line. At three characters a byte, the line stays under 4
/// KiB (F27).
pub const HEX_KEYS_PER_LINE: usize = 1280;

/// The reason for which a command cannot be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    /// An argument contains a NUL: tmux's arguments are C strings, and no quoting can represent it.
    #[error("a tmux command cannot carry a NUL byte; send it as keys")]
    Nul,
    /// The line contains no command: tmux interprets an empty line as a request to detach (F14).
    #[error("an empty command line would detach the client")]
    Empty,
    /// A frame has more than [`super::frame::MAX_PARTS`] commands.
    #[error("too many commands in one frame")]
    TooManyParts,
}

/// A tmux command.
///
/// ```
/// # use muxtap_core::protocol::command::Command;
/// let rename = Command::new("rename-window").opt("-t", "@3");
/// let line = rename.end_of_flags().literal("a; $HOME #{b}").line().unwrap();
/// assert_eq!(line, b"rename-windo -t @3 -- \"a; \\$HOME ##{b}\"\n");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    name: &'static str,
    text: Vec<u8>,
    error: Option<CommandError>,
}

impl Command {
    /// Makes a command without arguments from its name, in a spelling that is not an alias
    /// ([`names`](super::names)). The name is the program's own text and is not quoted.
    pub fn new(name: &'static str) -> Self {
        Self { name, text: spelled(name).as_bytes().to_vec(), error: None }
    }

    /// Returns the full name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Adds a flag, such as `-p`, or several in one, such as `-pe`. The flag is the program's own
    /// text and is not quoted.
    pub fn flag(mut self, flag: &'static str) -> Self {
        self.text.push(b' ');
        self.text.extend_from_slice(flag.as_bytes());
        self
    }

    /// Adds a flag with a value, whose exact bytes tmux receives.
    pub fn opt(self, flag: &'static str, value: impl AsRef<[u8]>) -> Self {
        self.flag(flag).arg(value)
    }

    /// Adds `--`: the arguments after it are not flags, even if they begin with `-`.
    pub fn end_of_flags(self) -> Self {
        self.flag("--")
    }

    /// Adds an argument, whose exact bytes tmux receives. With a NUL in it, rendering the command
    /// returns an error.
    pub fn arg(mut self, value: impl AsRef<[u8]>) -> Self {
        self.text.push(b' ');
        if let Err(error) = quote(value.as_ref(), &mut self.text) {
            self.error = Some(error);
        }
        self
    }

    /// Adds an argument whose `#{…}` tmux expands. The effect is that of [`Command::arg`]; the name
    /// shows the intent.
    pub fn format(self, format: impl AsRef<[u8]>) -> Self {
        self.arg(format)
    }

    /// Adds an argument that tmux expands as a format (a window's or session's name, a value for
    /// `set-option -F`), escaped against any expansion. For commands that also apply strftime see
    /// [`Command::timed_literal`].
    pub fn literal(self, text: impl AsRef<[u8]>) -> Self {
        self.arg(escape_format(text.as_ref()))
    }

    /// Adds an argument like [`Command::literal`], for commands that also apply strftime:
    /// `display-message`, `pipe-pane` (F16).
    pub fn timed_literal(self, text: impl AsRef<[u8]>) -> Self {
        let mut doubled = Vec::with_capacity(text.as_ref().len());
        for &byte in text.as_ref() {
            if byte == b'%' {
                doubled.push(byte);
            }
            doubled.push(byte);
        }
        self.literal(doubled)
    }

    /// Returns the command as words after `tmux` on a command line. tmux interprets a `;` at the
    /// end of a word as the end of the command, and `\;` as a `;` (`cmd_parse_from_arguments`).
    pub fn words(&self) -> Result<Vec<Vec<u8>>, CommandError> {
        match self.error {
            Some(error) => Err(error),
            None => Ok(unquoted(&self.text)),
        }
    }

    /// Returns the command as a line of its own, newline included.
    pub fn line(&self) -> Result<Vec<u8>, CommandError> {
        render(std::slice::from_ref(self))
    }
}

/// A line of several commands, joined by ` ; `, that tmux runs in one go. Each command gets a block
/// of its own. After a failed command, tmux drops the rest; a parse error in any command gives one
/// block for the whole line, and no command runs (F14).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommandLine {
    commands: Vec<Command>,
}

impl CommandLine {
    /// Makes an empty line; add a command before sending it.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes a line of these commands, in this order.
    pub fn of(commands: impl IntoIterator<Item = Command>) -> Self {
        Self { commands: commands.into_iter().collect() }
    }

    /// Adds a command at the end.
    pub fn then(mut self, command: Command) -> Self {
        self.commands.push(command);
        self
    }

    /// Returns the commands: one for each block, if all succeed.
    pub fn commands(&self) -> &[Command] {
        &self.commands
    }

    /// Returns the bytes to send, newline included.
    pub fn render(&self) -> Result<Vec<u8>, CommandError> {
        render(&self.commands)
    }
}

impl From<Command> for CommandLine {
    fn from(command: Command) -> Self {
        Self { commands: vec![command] }
    }
}

impl FromIterator<Command> for CommandLine {
    fn from_iter<I: IntoIterator<Item = Command>>(commands: I) -> Self {
        Self { commands: commands.into_iter().collect() }
    }
}

/// Returns the commands as one line, newline included.
pub(super) fn render(commands: &[Command]) -> Result<Vec<u8>, CommandError> {
    let mut line = Vec::new();
    for command in commands {
        if let Some(error) = command.error {
            return Err(error);
        }
        if !line.is_empty() {
            line.extend_from_slice(b" ; ");
        }
        line.extend_from_slice(&command.text);
    }
    if line.is_empty() {
        return Err(CommandError::Empty);
    }
    line.push(b'\n');
    Ok(line)
}

/// Returns `send-keys -H` commands that type any bytes, NUL included, into a pane; tmux cannot
/// interpret any of the bytes as a flag, a key's name or a command (F27). Each
/// [`HEX_KEYS_PER_LINE`] bytes give one command; send each as a line of its own.
pub fn hex_keys(pane: PaneId, bytes: &[u8]) -> impl Iterator<Item = Command> + '_ {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    bytes.chunks(HEX_KEYS_PER_LINE).map(move |chunk| {
        let mut command = Command::new("send-keys").opt("-t", pane.to_string()).flag("-H");
        command.text.reserve(chunk.len() * 3);
        for byte in chunk {
            let digit = |nibble: u8| DIGITS.get(usize::from(nibble)).copied().unwrap_or(b'0');
            command.text.extend_from_slice(&[b' ', digit(byte >> 4), digit(byte & 0x0f)]);
        }
        command
    })
}

/// Returns whether tmux's command parser reads a byte as itself outside of quotes, anywhere in a
/// token.
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b'/' | b':' | b'@' | b'+' | b',')
}

/// Writes `value` as one token of tmux's command language (cmd-parse.y).
fn quote(value: &[u8], out: &mut Vec<u8>) -> Result<(), CommandError> {
    if value.contains(&0) {
        return Err(CommandError::Nul);
    }
    if !value.is_empty() && value.iter().copied().all(is_plain) {
        out.extend_from_slice(value);
        return Ok(());
    }
    out.push(b'"');
    for &byte in value {
        match byte {
            // `~` at the start of a token means a home directory; `\~` is literal everywhere.
            b'"' | b'\\' | b'$' | b'~' => out.extend_from_slice(&[b'\\', byte]),
            b'\n' => out.extend_from_slice(b"\\n"),
            // A parser that keeps characters in a signed char reads 0xff as EOF.
            0x01..0x20 | 0x7f | 0xff => out.extend_from_slice(format!("\\{byte:03o}").as_bytes()),
            _ => out.push(byte),
        }
    }
    out.push(b'"');
    Ok(())
}

/// Returns the tokens that [`quote`] wrote, as words of a command line.
fn unquoted(text: &[u8]) -> Vec<Vec<u8>> {
    let (mut words, mut is_quoted) = (vec![Vec::new()], false);
    let mut bytes = text.iter().copied();
    while let Some(byte) = bytes.next() {
        let Some(word) = words.last_mut() else { break };
        match byte {
            b' ' if !is_quoted => words.push(Vec::new()),
            b'"' => is_quoted = !is_quoted,
            b'\\' => match bytes.next() {
                Some(b'n') => word.push(b'\n'),
                Some(first @ b'0'..=b'7') => {
                    let digits = [first, bytes.next().unwrap_or(b'0'), bytes.next().unwrap_or(b'0')];
                    word.push(
                        digits.iter().fold(0, |value: u8, digit| value.wrapping_mul(8).wrapping_add(digit - b'0')),
                    );
                }
                Some(other) => word.push(other),
                None => {}
            },
            _ => word.push(byte),
        }
    }
    for word in &mut words {
        if word.ends_with(b";") {
            word.insert(word.len() - 1, b'\\');
        }
    }
    words
}

/// Doubles each `#`, except in a run before `[`: tmux leaves such a run unchanged, as a style.
fn escape_format(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut left = text;
    while let Some(at) = memchr::memchr(b'#', left) {
        let (before, from) = left.split_at(at);
        out.extend_from_slice(before);
        let run = from.iter().take_while(|byte| **byte == b'#').count();
        let (hashes, after) = from.split_at(run);
        out.extend_from_slice(hashes);
        if after.first() != Some(&b'[') {
            out.extend_from_slice(hashes);
        }
        left = after;
    }
    out.extend_from_slice(left);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(command: &Command) -> String {
        String::from_utf8(command.line().unwrap()).unwrap()
    }

    fn quoted(value: &str) -> String {
        let line = line(&Command::new("x").arg(value));
        line.strip_prefix("x ").and_then(|rest| rest.strip_suffix('\n')).unwrap().to_owned()
    }

    #[test]
    fn any_argument_is_quoted_as_one_token() {
        assert_eq!(quoted("plain-1.2_/:@+,"), "plain-1.2_/:@+,");
        assert_eq!(quoted(""), "\"\"");
        assert_eq!(quoted("a b"), "\"a b\"");
        assert_eq!(quoted("; kill-server"), "\"; kill-server\"");
        assert_eq!(quoted("a\"b\\c$HOME ~"), r#""a\"b\\c\$HOME \~""#);
        assert_eq!(quoted("{a} 'b' #c %1"), "\"{a} 'b' #c %1\"");
        assert_eq!(quoted("%if"), "\"%if\"");
        assert_eq!(quoted("A=b"), "\"A=b\"");
    }

    #[test]
    fn control_bytes_are_escaped_so_that_a_line_stays_one_line() {
        assert_eq!(quoted("a\nb\r\t\u{1b}\u{7f}"), r#""a\nb\015\011\033\177""#);
        let line = Command::new("x").arg(b"\xff\xfe\x80").line().unwrap();
        assert_eq!(line, b"x \"\\377\xfe\x80\"\n");
    }

    #[test]
    fn a_nul_and_an_empty_command_are_rejected() {
        assert_eq!(Command::new("x").arg("a\0b").flag("-p").line(), Err(CommandError::Nul));
        let line = CommandLine::new().then(Command::new("a")).then(Command::new("b").opt("-t", "\0"));
        assert_eq!(line.render(), Err(CommandError::Nul));
        assert_eq!(CommandLine::new().render(), Err(CommandError::Empty));
        assert_eq!(Command::new("").line(), Err(CommandError::Empty));
    }

    #[test]
    fn words_of_a_command_line_are_as_they_are_but_for_a_semicolon_at_the_end() {
        let words = |command: &Command| {
            command.words().unwrap().into_iter().map(|word| String::from_utf8(word).unwrap()).collect::<Vec<_>>()
        };
        let command =
            Command::new("new-window").flag("-d -P").opt("-F", "#{a} \"b\"").end_of_flags().arg("a; b;").arg("");
        assert_eq!(words(&command), ["new-windo", "-d", "-P", "-F", "#{a} \"b\"", "--", "a; b\\;", ""]);
        let bytes: Vec<u8> = (1..=255).collect();
        assert_eq!(Command::new("x").arg(&bytes).words().unwrap(), [b"x".to_vec(), bytes]);
        assert_eq!(Command::new("x").arg("\0").words().err(), Some(CommandError::Nul));
    }

    #[test]
    fn several_commands_are_one_line() {
        let commands = CommandLine::from(Command::new("a").flag("-p")).then(Command::new("b").end_of_flags().arg("-x"));
        assert_eq!(commands.render().unwrap(), b"a -p ; b -- -x\n");
        assert_eq!(commands.commands().len(), 2);
    }

    #[test]
    fn formats_are_kept_and_literals_are_not_expanded() {
        assert_eq!(line(&Command::new("x").format("#{pane_id} %H")), "x \"#{pane_id} %H\"\n");
        assert_eq!(line(&Command::new("x").literal("#{a} ## #(b) %H")), "x \"##{a} #### ##(b) %H\"\n");
        assert_eq!(line(&Command::new("x").literal("#[a] ##[b] #")), "x \"#[a] ##[b] ##\"\n");
        assert_eq!(line(&Command::new("x").timed_literal("%H #S")), "x \"%%H ##S\"\n");
    }

    #[test]
    fn keys_are_sent_as_hex_in_lines_of_at_most_4_kib() {
        let keys = |bytes: &[u8]| hex_keys(PaneId(7), bytes).map(|command| line(&command)).collect::<Vec<_>>();
        assert_eq!(keys(b"hi\0\xff"), ["send-ke -t \"%7\" -H 68 69 00 ff\n"]);
        assert!(keys(b"").is_empty());
        let long = keys(&[b'x'; 2 * HEX_KEYS_PER_LINE + 1]);
        assert_eq!(long.len(), 3);
        assert!(long.iter().all(|line| line.len() <= 4096));
    }
}
