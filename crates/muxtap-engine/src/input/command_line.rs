//! The line that makes a shell run a command, report where its output begins and ends, and leave no
//! trace of the line itself.

use std::fmt::Write as _;

use muxtap_api::{Error, ErrorCode, Result};

use crate::{
    input::{
        prompt::{EmptyPrompt, Keymap},
        shell::Shell,
    },
    pane::shell_marks::RUN_OSC,
};

/// The most bytes of one line in a terminal in cooked mode (F28).
const COOKED_LINE: usize = 4095;

/// A word that zsh's line editor expands to `xx`. The expansion sets the option by which zsh
/// forgets a line that begins with a space, and stores its old value. If the line itself set the
/// option, that would be too late.
const ZSH_FORGET: &str = "${${_muxtap_h::=$options[histignorespace]}:+x}${${options[histignorespace]::=on}:+x}";
const ZSH_FORGET_SHOWN: usize = 2;
/// Expands the word before the cursor (`expand-word`).
const ZSH_EXPAND: &str = "\x18*";
/// Runs first: the shell may abandon the line, but has marked it as one to forget by then.
const ZSH_RESTORE: &str = "options[histignorespace]=$_muxtap_h;unset _muxtap_h;";
const ZSH_END: &str = ";unset _muxtap";

/// Words of zsh's continuation prompt (`%_`, zshmisc(1)).
const ZSH_CONTINUES: [&str; 30] = [
    "for",
    "while",
    "until",
    "if",
    "then",
    "elif",
    "else",
    "case",
    "select",
    "repeat",
    "function",
    "quote",
    "dquote",
    "bquote",
    "cmdsubst",
    "mathsubst",
    "heredoc",
    "heredocd",
    "pipe",
    "errpipe",
    "cmdand",
    "cmdor",
    "cursh",
    "subsh",
    "array",
    "braceparam",
    "foreach",
    "always",
    "nocorrect",
    "cond",
];

impl Shell {
    /// Returns the keys to type at an empty prompt, including Enter.
    ///
    /// The line stores the command in a variable and removes itself from the screen and the
    /// history. It prints the command in its own place, a mark with the command's length, and after
    /// the output a mark with its status. Only running the line can print the marks: the line, and
    /// so its echo, spells the escape byte as characters. The line is printable ASCII throughout:
    /// its width on the screen is known, and no line editor completes or expands anything in it.
    /// The leading space keeps it out of most histories.
    pub(crate) fn command_line(self, command: &str, nonce: &str, prompt: &EmptyPrompt) -> Result<Vec<u8>> {
        let kept = self.assignment(command);
        let forget = match self {
            // `-s` replaces the line if it is in the history; then the newest entry is dropped.
            Self::Bash => "history -s x;history -d -1 2>/dev/null;",
            // A line that is to be forgotten is removed as soon as another one follows.
            Self::Zsh if prompt.editor == Some(Keymap::Emacs) => "print -rs -- $_muxtap;",
            _ => "",
        };
        let restore_history = if self == Self::Zsh && prompt.editor == Some(Keymap::Emacs) { ZSH_RESTORE } else { "" };
        let (value, length, run, status, end) = match self {
            Self::Posix | Self::Bash => {
                ("\"$_muxtap\"", "${#_muxtap}", "command eval \"$_muxtap\"", "$?", "unset _muxtap")
            }
            Self::Zsh => ("\"$_muxtap\"", "${#_muxtap}", "eval \"$_muxtap\"", "$?", "unset _muxtap"),
            Self::Fish => ("$_muxtap", "(string length -- $_muxtap)", "eval $_muxtap", "$status", "set -e _muxtap"),
        };
        // Control characters are not shown, because the terminal would obey them.
        let tame = command.chars().all(|character| !character.is_control() || matches!(character, '\n' | '\t'));
        let shown = if tame { value } else { "'(a command with control characters)'" };
        let tail = if self == Self::Zsh && prompt.editor == Some(Keymap::Emacs) {
            (": ", ZSH_FORGET, ZSH_FORGET_SHOWN, ZSH_EXPAND, ZSH_END)
        } else {
            (end, "", 0, "", "")
        };
        let (above, column) = prompt.above;
        let line = |rows: usize| {
            format!(
                " {restore_history}{kept};{forget}printf \
                 '\\33[{rows:04}A\\33[{:04}G\\33[J%s\\n\\33]{RUN_OSC};{nonce};s;%s\\7' {shown} {length};{run};printf \
                 '\\33]{RUN_OSC};{nonce};e;%s\\7' {status};{}",
                column + 1,
                tail.0
            )
        };
        let (_, word, word_shown, expand, restore) = tail;
        let width = usize::from(prompt.cursor.width.max(1));
        let cells = usize::from(prompt.column) + line(0).len() + word_shown + restore.len();
        // If the line ends at the end of a row, the cursor may be on that row or on the next one. A
        // space makes it certain.
        let space = if cells.is_multiple_of(width) { " " } else { "" };
        let rows = usize::from(above) + (cells + space.len()) / width + 1;
        let typed = format!("{}{word}{expand}{restore}{space}\r", line(rows));
        if prompt.editor.is_none() && typed.len() > COOKED_LINE {
            return Err(Error::new(
                ErrorCode::InvalidArgument,
                format!(
                    "command: too long to type: a line of {} bytes; a terminal accepts at most {COOKED_LINE} in one \
                     line: write it to a file and run that",
                    typed.len()
                ),
            ));
        }
        Ok([prompt.clear.as_slice(), typed.as_bytes()].concat())
    }

    /// Returns whether a prompt is this shell's continuation prompt.
    pub(crate) fn is_continuation(self, prompt: &str) -> bool {
        let bare = prompt.trim();
        // Prompts of common configurations: dots (`...`) and the signs of starship and others.
        let is_dot = |character| matches!(character, '.' | '…' | '∙' | '·' | '⋅' | '•');
        if self != Self::Fish && !bare.is_empty() && bare.chars().all(is_dot) {
            return true;
        }
        let Some(words) = prompt.trim_end().strip_suffix('>') else { return false };
        match self {
            Self::Posix | Self::Bash => words.is_empty(),
            Self::Zsh => words.split(' ').all(|word| ZSH_CONTINUES.contains(&word)),
            // Fish's line editor holds the whole command.
            Self::Fish => false,
        }
    }

    /// Returns the assignment of the command to `_muxtap`.
    fn assignment(self, command: &str) -> String {
        let ends_quote = |byte: u8| byte == b'\'' || byte == b'\\' && self == Self::Fish;
        let plain = command.bytes().all(|byte| matches!(byte, b' '..=b'~') && !ends_quote(byte));
        match (self, plain) {
            (Self::Fish, true) => format!("set -g _muxtap '{command}'"),
            (Self::Fish, false) => format!("set -g _muxtap (printf '{}'|string collect)", as_format(command)),
            (_, true) => format!("_muxtap='{command}'"),
            (_, false) => format!("_muxtap=\"$(printf '{}')\"", as_format(command)),
        }
    }
}

/// Returns a format with which printf prints this text. Nothing in it is special to a quote, a
/// history or a line editor.
fn as_format(command: &str) -> String {
    command.bytes().fold(String::new(), |mut text, byte| {
        match byte {
            b'%' => text.push_str("%%"),
            b'\'' | b'"' | b'\\' | b'!' | b'`' | b'$' | b'(' | b')' | b'#' => octal(byte, &mut text),
            b' '..=b'~' => text.push(char::from(byte)),
            _ => octal(byte, &mut text),
        }
        text
    })
}

fn octal(byte: u8, text: &mut String) {
    // Writing to a String cannot fail.
    let _ = write!(text, "\\{byte:03o}");
}
