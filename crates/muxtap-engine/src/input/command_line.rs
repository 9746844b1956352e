//! What `run` types into a shell.
//!
//! The typed line is short and the same for each command: it makes the shell read a private file
//! ([`super::run_script`]). Where the shell cannot read muxtap's files, the line itself has the
//! command and the marks ([`Shell::typed_line`]).

use std::fmt::Write as _;

use muxtap_api::{Error, ErrorCode, Result};
use serde::{Deserialize, Serialize};

use crate::{
    input::{
        prompt::EmptyPrompt,
        run_script::{self, begin_marks, shown_word},
        shell::Shell,
    },
    pane::shell_marks::RUN_OSC,
};

/// The most rows of a prompt that are known.
const PROMPT_ROWS: usize = 2;
/// The number of characters by which a part of a typed line is recognized.
const LINE_START: usize = 12;
/// The most bytes of one line in a terminal in cooked mode (F28).
const COOKED_LINE: usize = 4095;

/// The end of a line, after which keys that a person presses at the last moment are a comment.
const HARMLESS: &str = " #";
/// Expands the word before the cursor in zsh's emacs keymap (`expand-word`).
const ZSH_EXPAND: &str = "\x18*";
/// In zsh's word: sets the option by which zsh forgets a line that begins with a space, and stores
/// its old value. If the line itself set the option, that would be too late.
const ZSH_FORGET: &str = "${${_muxtap_h:=${options[histignorespace]}}:+}${${options[histignorespace]::=on}:+}";

/// A line for the shell's prompt.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct TypedLine {
    /// The keys, without Enter.
    pub(crate) keys: String,
    /// The line as the line editor shows it then; printable ASCII.
    pub(crate) shown: String,
    /// The end of the line in any redrawing of it.
    pub(crate) ending: String,
    /// A part of the line that no other text has.
    pub(crate) token: String,
    /// Whether the line reads the command from a file, without which it runs nothing.
    #[serde(default)]
    pub(crate) reads_file: bool,
}

impl TypedLine {
    /// Returns whether a text shows this line, rows of the prompt, and nothing else. `before`: the text
    /// before it, which ends in the prompt. `entered`: the line was entered, not removed.
    pub(crate) fn is_all_of(&self, printed: &str, before: &str, entered: bool) -> bool {
        let Self { keys, shown, ending, token, .. } = self;
        let known: Vec<_> = before.lines().rev().take(PROMPT_ROWS).map(str::trim).collect();
        let longest = known.iter().map(|row| row.chars().count()).max().unwrap_or_default();
        // A right prompt, with blanks before it.
        let is_right = |text: &str| known.iter().any(|row| row.ends_with(text));
        let is_ours = |text: &str| {
            let length = text.chars().count();
            // A prompt that is drawn anew or a trace may precede the line.
            let is_short = length <= keys.chars().count() + longest + LINE_START;
            let is_line = match text.rsplit_once(ending.as_str()).filter(|_| entered) {
                Some((_, after)) => {
                    let after = after.trim_start().trim_start_matches('#').trim();
                    after.is_empty() || is_right(after)
                }
                None => text.contains(token),
            };
            // Line editors draw a row of a longer line by itself, and characters twice where a row ends;
            // keys that they do not know are shown after a line that was removed.
            let start: String = text.chars().take(LINE_START).collect();
            let is_row = keys != shown && (length == 1 || length >= LINE_START) && keys.contains(&start);
            is_short && (is_line || is_row) || known.contains(&text) || text.starts_with(run_script::BEGIN)
        };
        printed.lines().filter(|line| !line.trim().is_empty()).all(|line| {
            let mut texts = line.split("  ").map(str::trim).filter(|text| !text.is_empty());
            is_ours(line.trim())
                || texts.next().is_some_and(is_ours) && texts.all(|text| is_ours(text) || is_right(text))
        })
    }

    /// Adds a space if the line ends where a row ends: then the cursor's row is known.
    pub(crate) fn padded(mut self, prompt: &EmptyPrompt) -> Self {
        if prompt.fills_row(self.shown.len()) {
            self.keys.push(' ');
            self.shown.push(' ');
        }
        self
    }
}

/// The parts of a line that holds the command with which it keeps `$?`.
struct StatusKept {
    /// Stores the status in `_muxtap_s`.
    store: &'static str,
    /// Runs the command with that status before it.
    run: &'static str,
    /// Forgets the variables, and has that status.
    end: &'static str,
    /// The end of `end`.
    ending: &'static str,
}

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
    /// Returns the line that makes the shell read this file. The leading space keeps it out of most
    /// histories. `forgets`: zsh is made to forget it, if its line editor has emacs keys.
    pub(crate) fn source_line(self, path: &str, forgets: bool) -> TypedLine {
        let word = match self {
            Self::Posix => r"\.",
            Self::Bash | Self::Zsh => r"\builtin .",
            // In a file that is read, `exit` does not end the shell.
            Self::Fish => {
                let line = format!(" set -g _muxtap_s $status; eval (builtin string collect <{path}) ");
                let token = path.to_owned();
                return TypedLine {
                    keys: line.clone(),
                    shown: line,
                    ending: format!("{path})"),
                    token,
                    reads_file: true,
                };
            }
        };
        // In zsh, where a comment may not be known, and in fish, they are arguments that nothing uses.
        let after = if self == Self::Zsh { " " } else { HARMLESS };
        let shown = format!(" {word} {path}{after}");
        let (head, tail) = path.rsplit_once('/').unwrap_or(("", path));
        let keys = if self == Self::Zsh && forgets {
            format!(" {word} {head}/{ZSH_FORGET}{tail}{ZSH_EXPAND}{after}")
        } else {
            shown.clone()
        };
        TypedLine { keys, shown, ending: path.to_owned(), token: head.to_owned(), reads_file: true }
    }

    /// Returns a line that holds the command itself, for a shell that cannot read muxtap's files.
    ///
    /// Only running the line can print the marks: the line, and so its echo, spells the escape byte
    /// as characters. The line is printable ASCII throughout: its width on the screen is known, and no
    /// line editor completes or expands anything in it.
    pub(crate) fn typed_line(self, command: &str, nonce: &str, prompt: &EmptyPrompt) -> Result<TypedLine> {
        // No alias and no function is in between, and no mark is in the line as it is printed: a hook may print the
        // line, and interpret it.
        let (builtin, kept) = (self.builtin(), self.assignment(command));
        let forget = match self {
            Self::Bash => r"\builtin history -s x;\builtin history -d -1 2>/dev/null;",
            _ => "",
        };
        let (head, tail) = nonce.split_at_checked(nonce.len() / 2).unwrap_or((nonce, ""));
        let split = format!("{head}''{tail}");
        let (value, length) = match self {
            Self::Posix | Self::Bash | Self::Zsh => ("\"$_muxtap\"", "${#_muxtap}"),
            Self::Fish => ("$_muxtap", "(string length -- $_muxtap)"),
        };
        let StatusKept { store, run, end, ending } = self.status_kept();
        let shown = shown_word(command, value);
        let column = prompt.above.1 + 1;
        let line = |rows: usize| {
            format!(
                " {store};{kept};{forget}{builtin} printf '\\33[{rows:04}A\\33[{column:04}G\\33[J{}' {shown} \
                 {length};{run};{store};{builtin} printf '\\33]{RUN_OSC};{split};e;%s\\7' $_muxtap_s;{end}",
                begin_marks(&split).replacen(";s\\7", ";s;%s\\7", 1)
            )
        };
        let cells = line(0).len();
        let rows = prompt.rows_below(cells + usize::from(prompt.fills_row(cells)));
        let shown = line(rows);
        if !prompt.has_editor && shown.len() > COOKED_LINE {
            return Err(Error::new(
                ErrorCode::InvalidArgument,
                format!(
                    "command: too long to type: a line of {} bytes; a terminal accepts at most {COOKED_LINE} in one \
                     line: write it to a file and run that",
                    shown.len()
                ),
            ));
        }
        Ok(TypedLine {
            keys: shown.clone(),
            shown,
            ending: ending.to_owned(),
            token: head.to_owned(),
            reads_file: false,
        })
    }

    /// Returns whether a prompt is this shell's continuation prompt.
    pub(crate) fn is_continuation(self, prompt: &str) -> bool {
        let bare = prompt.trim();
        // Prompts of common configurations: dots (`...`) and the signs of starship and others.
        let is_dot = |character| matches!(character, '.' | '…' | '∙' | '·' | '⋅' | '•');
        if self != Self::Fish && !bare.is_empty() && bare.chars().all(is_dot) {
            return true;
        }
        if self != Self::Fish && bare.starts_with('…') {
            return true;
        }
        let Some(words) = prompt.trim_end().strip_suffix(['>', '❯']) else { return false };
        match self {
            Self::Posix | Self::Bash if bare.ends_with('❯') => false,
            Self::Zsh if words.trim().is_empty() => false,
            Self::Posix | Self::Bash => words.is_empty(),
            Self::Zsh => words.split_whitespace().all(|word| ZSH_CONTINUES.contains(&word)),
            // Fish's line editor holds the whole command.
            Self::Fish => false,
        }
    }

    /// Returns how a line that holds the command keeps the status, before the command and after it.
    fn status_kept(self) -> StatusKept {
        match self {
            // `if` makes no trap and no `set -e` act on the status from before.
            Self::Posix => StatusKept {
                store: "_muxtap_s=$?",
                run: r#"if (\exit $_muxtap_s);then \command eval "$_muxtap";else \command eval "$_muxtap";fi"#,
                end: r#"case $- in *e*)\unset _muxtap _muxtap_s;;*)\command eval "\unset _muxtap _muxtap_s;(\exit $_muxtap_s)";;esac"#,
                ending: r#"(\exit $_muxtap_s)";;esac"#,
            },
            Self::Bash | Self::Zsh => StatusKept {
                store: "_muxtap_s=$?",
                run: r#"if (\builtin exit $_muxtap_s);then \builtin eval "$_muxtap";else \builtin eval "$_muxtap";fi"#,
                end: r#"case $- in *e*)\unset _muxtap _muxtap_s;;*)\builtin eval "\unset _muxtap _muxtap_s;(\builtin exit $_muxtap_s)";;esac"#,
                ending: r#"(\builtin exit $_muxtap_s)";;esac"#,
            },
            Self::Fish => StatusKept {
                store: "set -g _muxtap_s $status",
                run: "function _muxtap_r;set -l s $_muxtap_s;if set -q argv[1];functions -e _muxtap_r;set -eg _muxtap \
                      _muxtap_s;end;return $s;end;_muxtap_r;eval $_muxtap",
                end: "_muxtap_r x",
                ending: "_muxtap_r x",
            },
        }
    }

    /// Returns the word before a builtin that passes aliases and functions by.
    fn builtin(self) -> &'static str {
        match self {
            Self::Posix => r"\command",
            Self::Bash | Self::Zsh => r"\builtin",
            Self::Fish => "builtin",
        }
    }

    /// Returns the assignment of the command to `_muxtap`.
    fn assignment(self, command: &str) -> String {
        let ends_quote = |byte: u8| byte == b'\'' || byte == b'\\' && self == Self::Fish;
        let plain = command.bytes().all(|byte| matches!(byte, b' '..=b'~') && !ends_quote(byte));
        match (self, plain) {
            (Self::Fish, true) => format!("set -g _muxtap '{command}'"),
            (Self::Fish, false) => format!("set -g _muxtap (builtin printf '{}'|string collect)", as_format(command)),
            (_, true) => format!("_muxtap='{command}'"),
            (_, false) => format!("_muxtap=\"$({} printf '{}')\"", self.builtin(), as_format(command)),
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

#[cfg(test)]
mod tests {
    use super::*;

    const PATH: &str = "/run/user/1/muxtap-r7-0011aabb/r";

    #[test]
    fn only_the_line_and_the_prompt_are_ours() {
        let line = Shell::Bash.source_line(PATH, false);
        let typed = format!(" \\builtin . {PATH} #");
        for (before, printed, is_ours) in [
            ("$ ", typed.clone(), true),
            ("~/dir right\n$ ", format!("{typed}   right\n"), true),
            // A prompt that is drawn anew, and a trace.
            ("~/dir\n❯ ", format!("{typed}\n~/dir\n> {typed}\n+ builtin . {PATH}\n"), true),
            ("$ ", format!("{typed}\n{{ _muxtap_s=$? _muxtap_f=$-; \\builtin set +xv; }} 2>/dev/null\n"), true),
            // Other programs' text, also if it is a part of the line or was printed long before.
            ("$ ", format!("{typed}\ntick\n"), false),
            ("$ ", format!("{typed}\nbuiltin\n"), false),
            ("$ ", format!("{typed}\n.\n"), false),
            ("tick\nrow\nrow\n$ ", format!("tick\n{typed}\n"), false),
            ("$ ", format!("{typed}touch\n"), false),
            ("$ ", format!("{}{typed}\n", "x".repeat(100)), false),
            ("$ ", "tick\n".to_owned(), false),
        ] {
            assert_eq!(line.is_all_of(&printed, before, true), is_ours, "{before:?} {printed:?}");
        }
    }

    #[test]
    fn a_line_of_zsh_is_drawn_in_parts() {
        let line = Shell::Zsh.source_line(PATH, true);
        let first = format!("i {}", line.keys.chars().take(90).collect::<String>());
        let second: String = line.keys.chars().skip(90).filter(|key| !key.is_control()).collect();
        for (printed, entered, is_ours) in [
            (format!("{first}\n{second}\n  r  19:26 right\n"), true, true),
            // With vi keys, what expands the word is shown, and the line is removed.
            (format!("{first}\n{second}*^E\n"), false, true),
            (format!("{first}\n{second}\ntick\n"), true, false),
        ] {
            assert_eq!(line.is_all_of(&printed, "vm# 19:26 right", entered), is_ours, "{printed:?}");
        }
    }
}
