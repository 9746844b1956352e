//! The script that a shell reads to run a command of `run`.
//!
//! What the script does for itself neither changes nor uses the shell's options, aliases, functions
//! and traces. Each step that looks needless is about one of those; `docs/run.md` has a table.

use muxtap_base::quoting::shell_word;

use super::{command_line::TypedLine, prompt::EmptyPrompt, shell::Shell};
use crate::pane::shell_marks::RUN_OSC;

/// The beginning of a script for sh and bash: `set -v` shows its first line, and no further one.
pub(crate) const BEGIN: &str = "{ _muxtap_s=$? _muxtap_f=$-;";

/// How the script removes the typed line from the screen before it prints the command in its place.
pub(crate) struct Erasure {
    /// The rows from the line's first row to the row below the line.
    rows: usize,
    /// The column in which the line begins, from 0.
    column: u16,
    /// The last row of the prompt, for a shell that draws its prompt anew when a line is entered. Only
    /// if the line is on one row.
    prompt: Option<String>,
}

impl Erasure {
    /// Returns how to remove a line that is typed at a prompt.
    pub(crate) fn of(line: &TypedLine, prompt: &EmptyPrompt) -> Self {
        let rows = prompt.rows_below(line.shown.len());
        let is_on_one_row = prompt.above.0 == 0 && rows == 1;
        Self { rows, column: prompt.above.1, prompt: is_on_one_row.then(|| prompt.text.clone()) }
    }

    /// Returns the arguments of printf that remove the line.
    fn in_place(&self) -> String {
        format!("'\\33[{}A\\33[{}G\\33[J'", self.rows, self.column + 1)
    }
}

/// Returns the script that runs a command between marks with this nonce. `path` is the script's own.
pub(crate) fn script(shell: Shell, command: &str, nonce: &str, path: &str, erasure: &Erasure) -> String {
    if shell == Shell::Fish {
        return fish_script(command, nonce, erasure);
    }
    let steps = Steps { shell, words: Words::of(shell), command: &shell_word(command), nonce };
    let shown = shown_word(command, steps.command);
    [
        format!("{}\n", steps.store("_muxtap_s", "_muxtap_f").trim_end_matches("; ")),
        steps.name().to_owned(),
        steps.erase(erasure),
        format!("{} '{}' {shown}; ", steps.words.print, begin_marks(nonce)),
        steps.forget_line(path),
        steps.run_and_end(),
        steps.give_back(),
    ]
    .concat()
}

/// The commands of a POSIX shell that no function and no alias replaces.
struct Words {
    eval: &'static str,
    exit: &'static str,
    give_back: &'static str,
    print: &'static str,
    set: &'static str,
}

impl Words {
    fn of(shell: Shell) -> Self {
        match shell {
            Shell::Bash | Shell::Zsh => Self {
                eval: r"\builtin eval",
                exit: r"\builtin exit",
                give_back: r"\builtin return",
                print: r"\builtin printf",
                set: r"\builtin set",
            },
            Shell::Posix | Shell::Fish => Self {
                eval: r"\command eval",
                exit: r"\exit",
                give_back: r"\return",
                print: r"\command printf",
                set: r"\set",
            },
        }
    }
}

/// The steps of the script of a POSIX shell, bash or zsh.
struct Steps<'a> {
    shell: Shell,
    words: Words,
    /// The command as one word.
    command: &'a str,
    nonce: &'a str,
}

impl Steps<'_> {
    /// Stores the status and the options, and switches off that lines are shown, without showing that.
    fn store(&self, status: &str, options: &str) -> String {
        match self.shell {
            // Neither `case` nor the assignments in its word are traced.
            Shell::Zsh => {
                format!(
                    "case ${{{status}::=$?}}${{{options}::=$-}}${{options[xtrace]::=off}}${{options[verbose]::=off}} \
                     in *) ;; esac; "
                )
            }
            _ => format!("{{ {status}=$? {options}=$-; {} +xv; }} 2>/dev/null; ", self.words.set),
        }
    }

    /// Sets what differs in a file that is read: in zsh, the shell's name. In bash, removes what an
    /// interrupted command has left in `PS4`.
    fn name(&self) -> &'static str {
        match self.shell {
            Shell::Zsh => "0=${ZSH_ARGZERO-zsh}; ",
            Shell::Bash => r"case $PS4 in $'\r'*) PS4=${PS4##*$'\r'};; esac; ",
            Shell::Posix | Shell::Fish => "",
        }
    }

    /// Removes the typed line from the screen, unless a trace of it has moved it.
    fn erase(&self, erasure: &Erasure) -> String {
        let print = self.words.print;
        let in_place = format!("{print} {}", erasure.in_place());
        let erase = match &erasure.prompt {
            None => in_place,
            Some(prompt) => {
                let again = format!("{print} '\\33[1A\\r\\33[J%s' {}", shell_word(prompt));
                match self.shell {
                    Shell::Zsh => format!(
                        "case \"${{functions[zle-line-finish]-}}${{functions[zle-line-init]-}}\
                         ${{widgets[zle-line-finish]-}}${{widgets[zle-line-init]-}}\
                         ${{POWERLEVEL9K_TRANSIENT_PROMPT-}}\" \
                         in *reset-prompt*|*recursive-edit*|*azhw:*|*always*|*same-dir*) {again};; *) {in_place};; esac"
                    ),
                    Shell::Bash => format!("case ${{BLE_VERSION-}} in '') {in_place};; *) {again};; esac"),
                    Shell::Posix | Shell::Fish => in_place,
                }
            }
        };
        format!("case $_muxtap_f in *x*) ;; *) {erase};; esac; ")
    }

    /// Removes the typed line from the history.
    fn forget_line(&self, path: &str) -> String {
        match self.shell {
            // Only where the history has it. A negative number is unknown before bash 5. A trap may have
            // printed lines before that of the history. It is a line of its own: bash skips the rest of one that
            // fails.
            Shell::Bash => format!(
                "_muxtap_h=$(HISTTIMEFORMAT= \\builtin history 1 2>/dev/null); _muxtap_h=${{_muxtap_h##*$'\\n'}}; case \
                 $_muxtap_h in *{path}*) _muxtap_h=${{_muxtap_h#\"${{_muxtap_h%%[0-9]*}}\"}}; \\builtin history -d \
                 \"${{_muxtap_h%%[^0-9]*}}\" 2>/dev/null;; esac; \\unset _muxtap_h\n"
            ),
            // A line that is to be forgotten is removed as soon as another one follows.
            Shell::Zsh => format!(
                "case ${{_muxtap_h+x}} in x) options[histignorespace]=$_muxtap_h; \\unset _muxtap_h; \\builtin print \
                 -rs -- {};; esac; ",
                self.command
            ),
            Shell::Posix | Shell::Fish => String::new(),
        }
    }

    /// Runs the command with the status and the options that the shell had, and prints the mark of
    /// its end.
    fn run_and_end(&self) -> String {
        let Words { eval, exit, print, set, .. } = self.words;
        let command = self.command;
        let store = self.store("_muxtap_s", "_muxtap_g");
        // bash repeats the first character of `PS4` for each level; a return of the carriage is not seen.
        let is_bash = self.shell == Shell::Bash;
        let level = if is_bash { r"PS4=$'\''\r'\''$PS4; " } else { "" };
        let level_back = if is_bash { r"case $PS4 in $'\r'*) PS4=${PS4#?};; esac; " } else { "" };
        // With `set -e`, `eval` must not fail for a status that the shell itself ignores (`! true`); so
        // the options are stored within it. `_muxtap_g` stays empty if the command has an error of syntax.
        let run = format!(
            "_muxtap_g= _muxtap_p=; case $_muxtap_f in *x*) _muxtap_p='{level}{set} -x; ';; esac; \
             case $_muxtap_f in \
             *e*) {set} +e; {eval} \"$_muxtap_p\"'{set} -e; '\"\"{command}\"\"'\n\n{store}{set} +e'; \
             case $_muxtap_g in '') _muxtap_s=$? _muxtap_g=$_muxtap_f;; esac;; \
             *x*) {eval} \"$_muxtap_p\"{command}\n{store};; \
             *) if ({exit} \"$_muxtap_s\"); then {eval} {command}; else {eval} {command}; fi\n{store};; esac\n"
        )
        .replace("; ;;", ";;");
        let end = format!("{level_back}{print} '\\33]{RUN_OSC};{};e;%s\\7' \"$_muxtap_s\"\n", self.nonce);
        if self.shell == Shell::Zsh {
            // A person's Ctrl-C ends the rest of the file, but not this block.
            let store = store.trim_end_matches("; ");
            format!("{{ {run}}} always {{ case $_muxtap_g in '') {store};; esac; {end}}}\n")
        } else {
            run + &end
        }
    }

    /// Restores the options, and gives the status back. With `set -e` it is 0: the shell would end if
    /// the file failed.
    fn give_back(&self) -> String {
        let Words { eval, give_back, set, .. } = self.words;
        let forget = r"\unset _muxtap_s _muxtap_f _muxtap_g _muxtap_p";
        let traced = match self.shell {
            Shell::Zsh => format!("{{ {give_back} $_muxtap_s }} always {{ options[xtrace]=on }}"),
            _ => format!("{{ {set} -x; {give_back} $_muxtap_s; }} 2>/dev/null"),
        };
        format!(
            "case $_muxtap_f in *v*) {set} -v;; esac; case $_muxtap_g in *e*) _muxtap_s=0; {set} -e;; esac; \
             case $_muxtap_g in *x*) {eval} \"{forget}; \
             {traced}\";; *) {eval} \"{forget}; {give_back} $_muxtap_s\";; esac\n"
        )
    }
}

/// Returns the format that prints the end of the typed line, the command, and the mark at which its
/// output begins.
pub(super) fn begin_marks(nonce: &str) -> String {
    format!("\\33]{RUN_OSC};{nonce};c\\7%s\\n\\33]{RUN_OSC};{nonce};s\\7")
}

/// Returns the word that is shown as the command. Control characters are not shown, because the
/// terminal would obey them.
pub(super) fn shown_word<'a>(command: &str, word: &'a str) -> &'a str {
    let is_tame = command.chars().all(|character| !character.is_control() || matches!(character, '\n' | '\t'));
    if is_tame { word } else { "'(a command with control characters)'" }
}

/// Returns the script of fish. The line has stored the status.
fn fish_script(command: &str, nonce: &str, erasure: &Erasure) -> String {
    let quoted = shell_word(command);
    let in_place = format!("builtin printf {}", erasure.in_place());
    let erase = match &erasure.prompt {
        None => in_place,
        // Ways in which a prompt is drawn anew when a line is entered.
        Some(prompt) => format!(
            "if set -q fish_transient_prompt; or set -q TRANSIENT; or functions -q _omp_enter_key_handler; builtin \
             printf '\\33[1A\\r\\33[J%s' {}; else; {in_place}; end",
            shell_word(prompt)
        ),
    };
    // A function that removes itself restores the status.
    let restore = "function _muxtap_r; functions -e _muxtap_r; set -l status_ $_muxtap_s; set -eg _muxtap_s; return \
                   $status_; end; _muxtap_r";
    format!(
        "{erase}; builtin printf '{}' {}; {restore}; eval {quoted}\nset -g _muxtap_s $status; builtin printf \
         '\\33]{RUN_OSC};{nonce};e;%s\\7' $_muxtap_s; {restore}\n",
        begin_marks(nonce),
        shown_word(command, &quoted)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_begins_as_lines_that_are_shown_are_recognized() {
        for shell in [Shell::Bash, Shell::Posix] {
            let erasure = Erasure { rows: 1, column: 2, prompt: None };
            assert!(script(shell, "true", "0011", "/x/r", &erasure).starts_with(BEGIN));
        }
    }
}
