//! Finding out by the marks of the shell and by the screen whether something is typed at a prompt.

use std::time::Duration;

use muxtap_api::Result;
use muxtap_core::stream::width::columns;
use tokio::time::Instant;

use super::{CursorPosition, EmptyPrompt, PATIENCE, Prompt, PromptState};
use crate::input::shell::Shell;

/// Signs that end prompts.
const SIGILS: &str = "$#%>❯❮➜→λ»›▶⟩❱∴✗✔\u{e0b0}";
/// Those of them that tell whether the last command failed.
const STATUS_SIGNS: &str = "✗✔❮";
/// How long after a prompt text may appear that was typed ahead.
const TYPED_AHEAD: Duration = Duration::from_millis(30);
/// Makes a line editor insert text, with vi keys in either mode and with emacs keys.
const INSERT: &[u8] = b"i\x7f";

impl Prompt<'_> {
    /// Finds out by the marks of the shell and by the screen whether something is typed at a line editor.
    pub(super) async fn look(&self) -> Result<PromptState> {
        let give_up = Instant::now() + PATIENCE;
        let (is_calm, spot, shown) = loop {
            // Text that was typed ahead appears just after the prompt.
            let is_calm = self.until_calm().await;
            let spot = self.spot().await?;
            let rows_below = usize::from(spot.height.saturating_sub(spot.y + 1));
            let cells = usize::from(spot.width) * (1 + rows_below);
            let shown = self.text_from(CursorPosition { x: 0, ..spot }, cells).await?;
            // The shell waits for a line a moment before it has printed its prompt.
            let is_shown = spot.x > 0 && !split_at_column(&shown, usize::from(spot.x)).0.trim().is_empty();
            // ble.sh switches it on before it draws the prompt, unlike zsh.
            let is_zsh_empty = self.reader.shell == Shell::Zsh && self.pane.is_zsh_line_empty();
            if is_shown || is_zsh_empty || Instant::now() >= give_up {
                break (is_calm, spot, shown);
            }
            let end = self.pane.end_offset();
            let _ = tokio::time::timeout_at(give_up, self.pane.until_output(end)).await;
        };
        let (row, below) = split_at_column(&shown, usize::from(spot.width));
        let (prompt, after) = split_at_column(row, usize::from(spot.x));
        let cells = usize::from(spot.width.saturating_sub(spot.x));
        let may_be_right = matches!(self.reader.shell, Shell::Zsh | Shell::Fish) && is_right_prompt(after, cells);
        let is_blank = below.trim().is_empty() && (after.trim().is_empty() || may_be_right);
        let at_cursor = || EmptyPrompt {
            cursor: spot,
            clear: INSERT.to_vec(),
            column: spot.x,
            above: (0, spot.x),
            has_editor: true,
            text: prompt.to_owned(),
        };
        let empty = || {
            self.pane.set_primary_prompt(self.reader.id(), prompt.to_owned());
            PromptState::Empty(at_cursor())
        };
        // Text to the right may be a right prompt, if nothing was shown since the prompt.
        let is_marked_empty =
            self.pane.is_trusted_line_empty() || self.reader.is_marked && self.pane.is_marked_line_empty();
        if is_marked_empty {
            // What tmux shows may have come after what muxtap has read.
            if self.pane.lock().resting_line().trim_end().ends_with(prompt.trim_end()) {
                return Ok(empty());
            }
            if self.reader.is_marked {
                return Ok(PromptState::Disturbed);
            }
        }
        let is_untouched = self.reader.shell == Shell::Zsh && self.pane.is_zsh_line_empty();
        let known = self.pane.primary_prompt(self.reader.id()).filter(|known| !known.trim().is_empty());
        // The last row of a long line may look like a prompt.
        let right = Some(after.trim()).filter(|right| may_be_right && !right.is_empty());
        let is_first_row = is_untouched || !self.is_wrapped(spot, right).await?;
        if is_first_row && known.as_deref() == Some(prompt) && (is_blank || is_untouched) {
            return Ok(empty());
        }
        let lines = self.pane.lines_of_shell(self.reader.shell != Shell::Zsh);
        let is_after_output = |known: &str| {
            follows_output(prompt, known) || prompt.ends_with(known) && lines.iter().any(|line| line == known)
        };
        if is_first_row && is_blank && known.as_deref().is_some_and(is_after_output) {
            return Ok(PromptState::Empty(at_cursor()));
        }
        let typed = known.as_deref().and_then(|known| prompt.strip_prefix(known));
        if let Some(text) = typed.map(|typed| format!("{typed}{}", after.trim_end())).filter(|text| !text.is_empty()) {
            return Ok(PromptState::Typed(text));
        }
        if self.reader.shell.is_continuation(prompt) {
            return Ok(PromptState::Continued(prompt.to_owned()));
        }
        if is_question(prompt) {
            return Ok(PromptState::Question(prompt.to_owned()));
        }
        // Else zsh's `vared` edits a variable.
        let has_blank_prompt =
            || self.pane.primary_prompt(self.reader.id()).is_none_or(|known| known.trim().is_empty());
        if prompt.trim().is_empty() && is_untouched && has_blank_prompt() {
            return Ok(empty());
        }
        let is_like_known = known.is_none_or(|known| has_like_sign(&known, prompt));
        // bash has `> ` before the rest of a command.
        let bare = prompt.trim_end();
        let is_rest = self.reader.shell == Shell::Bash && bare.ends_with('>') && !bare.ends_with(">>>");
        if is_first_row && (is_blank || is_untouched) {
            let is_prompt = |row: &str| !is_rest && (ends_in_only_sigil(row) || follows_place(row));
            let is_sign =
                is_prompt(prompt) || is_untouched && (ends_in_word_sigil(prompt) || begins_with_sigil(prompt));
            if is_like_known && is_sign {
                return Ok(empty());
            }
            // The output before it is no part of the prompt.
            if lines.iter().any(|line| line.len() < prompt.len() && prompt.ends_with(line.as_str()) && is_prompt(line))
            {
                return Ok(PromptState::Empty(at_cursor()));
            }
        }
        if self.reader.is_marked {
            let typed = self.pane.marked_line().filter(|text| is_calm && !text.is_empty());
            return Ok(typed.map_or_else(|| PromptState::Unknown(String::new()), PromptState::Typed));
        }
        if !is_calm {
            return Ok(PromptState::Unknown(String::new()));
        }
        Ok(typed_or_unknown(prompt, after))
    }

    /// Returns whether the row above is full and may go on in the cursor's row. tmux knows where bash wraps
    /// a line; zsh, fish and busybox move to the next row themselves. `right`: the right prompt, which the row above
    /// may have, too.
    async fn is_wrapped(&self, spot: CursorPosition, right: Option<&str>) -> Result<bool> {
        let Some(above) = spot.y.checked_sub(1) else { return Ok(false) };
        let joined = self.captured(above, usize::from(spot.y), "-J").await?;
        let mut lines = joined.lines();
        let line = lines.next().unwrap_or_default();
        let is_marked = lines.next().is_none();
        // tmux keeps the mark of a row that was wrapped, and is erased by now.
        let (row, _) = split_at_column(line, usize::from(spot.width));
        if is_marked {
            return Ok(!row.trim().is_empty());
        }
        if right.and_then(|right| row.trim_end().strip_suffix(right)).is_some_and(|before| before.ends_with("  ")) {
            return Ok(false);
        }
        // The last cell may be a blank that is typed, or half of a wide character.
        let (_, last) = split_at_column(row, usize::from(spot.width.saturating_sub(2)));
        Ok(!last.trim().is_empty() && self.reader.shell != Shell::Bash)
    }

    /// Waits until the pane has printed nothing for a moment. Returns false if something prints all
    /// the time.
    pub(super) async fn until_calm(&self) -> bool {
        let mut changes = self.pane.changes();
        let latest = Instant::now() + PATIENCE;
        loop {
            changes.borrow_and_update();
            let due = self.pane.lock().last_output() + TYPED_AHEAD;
            let now = Instant::now();
            if now >= due || now >= latest {
                return now >= due;
            }
            tokio::select! {
                () = tokio::time::sleep_until(due.min(latest)) => {}
                changed = changes.changed() => if changed.is_err() { return false },
            }
        }
    }
}

/// Splits a row at a column.
fn split_at_column(row: &str, column: usize) -> (&str, &str) {
    let mut cells = 0;
    let at = row.char_indices().find(|(_, character)| {
        let is_there = cells >= column && columns(*character) > 0;
        cells += columns(*character);
        is_there
    });
    row.split_at(at.map_or(row.len(), |(at, _)| at))
}

/// Returns whether a word is the name of a user, a host or a directory, or an icon.
fn is_place(word: &&str) -> bool {
    let is_icon = |character: char| !character.is_ascii() && !character.is_alphanumeric();
    word.contains(['@', '~', '/', ':', '[', ']', '(', ')']) || word.chars().all(is_icon)
}

/// Returns whether a text ends in a sign that ends prompts.
fn ends_in_sigil(text: &str) -> bool {
    text.trim_end().ends_with(|last| SIGILS.contains(last))
}

/// Returns whether a text has a sign that ends prompts: what follows may be typed.
fn has_sign(text: &str) -> bool {
    text.contains(['$', '#', '>']) || text.split_whitespace().any(|word| word.ends_with(|last| SIGILS.contains(last)))
}

/// Returns whether a prompt's last row ends in a sign and a blank, and has no sign before: then nothing is typed after
/// it. A sign that a shell's language has, too, is no proof as a word of its own after others, nor after several words
/// that do not begin with a place.
fn ends_in_only_sigil(prompt: &str) -> bool {
    let bare = prompt.trim_end();
    let Some(last) = bare.chars().last().filter(|last| prompt.ends_with(' ') && SIGILS.contains(*last)) else {
        return false;
    };
    let before = bare.trim_end_matches(|character| SIGILS.contains(character));
    if has_sign(before) || appends(bare) {
        return false;
    }
    let words: Vec<&str> = before.split_whitespace().collect();
    let is_word = before.ends_with(' ') && !words.is_empty();
    match last {
        '$' | '#' | '>' if is_word => false,
        '$' | '#' | '>' | '%' => words.len() < 2 || words.first().is_some_and(is_place),
        _ => true,
    }
}

/// Returns whether a prompt's last row ends in `$`, `#` or `>` as a word of its own after words.
fn ends_in_word_sigil(prompt: &str) -> bool {
    words_before_sigil(prompt).is_some_and(|words| !words.trim().is_empty())
}

/// Returns whether a row ends in the operator `>>`.
fn appends(bare: &str) -> bool {
    bare.ends_with(">>") && !bare.ends_with(">>>")
}

/// Returns whether two prompts end in the same sign, or one in a sign that tells whether the last command failed, and
/// the other in a sign that no language of a shell has (`❯`, `✗`).
fn has_like_sign(known: &str, prompt: &str) -> bool {
    let signs = [known, prompt].map(|row| row.trim_end().chars().last());
    let [known, sign] = signs;
    let tells = |sign: &Option<char>| sign.is_some_and(|sign| STATUS_SIGNS.contains(sign));
    known == sign || signs.iter().any(tells) && signs.iter().all(|sign| sign.is_some_and(|sign| !sign.is_ascii()))
}

/// Returns what precedes a `$`, `#`, `>` or `>>>` that is a word of its own at the end of a row.
fn words_before_sigil(prompt: &str) -> Option<&str> {
    let bare = prompt.trim_end();
    let words = bare.strip_suffix(">>>").or_else(|| bare.strip_suffix(['$', '#', '>']))?;
    (prompt.ends_with(' ') && words.ends_with(' ')).then_some(words)
}

/// Returns whether a prompt's last row begins with a sign, as that of oh-my-zsh does.
fn begins_with_sigil(prompt: &str) -> bool {
    prompt.chars().next().is_some_and(|first| SIGILS.contains(first) && !first.is_ascii())
}

/// Returns whether a prompt's last row is places and a `$`, `#` or `>`: names of users, hosts and directories
/// (`me@host ~/src $ `, `/ # `). Before a `$` or `#`, also a place and one other word (`me@host src $ `,
/// `~/src main $ `), after the environment that Python or conda puts before a prompt (`(venv) `).
/// Or it is oh-my-zsh's (`➜  src git:(main) ✗ `, `➜  ~ `), or an object in JSON.
fn follows_place(prompt: &str) -> bool {
    let bare = prompt.trim_end();
    if !prompt.ends_with(' ') {
        return false;
    }
    if bare.starts_with("{\"") && bare.ends_with('}') {
        return true;
    }
    if let Some(after) = bare.strip_prefix("➜  ") {
        let words: Vec<&str> = after.trim_end_matches('✗').split_whitespace().collect();
        return match words.as_slice() {
            [directory] => is_place(directory),
            [_, branch] => branch.starts_with("git:(") && branch.ends_with(')'),
            _ => false,
        };
    }
    let Some(words) = words_before_sigil(prompt).filter(|words| !has_sign(words)) else { return false };
    let is_environment = |word: &&str| word.starts_with('(') && word.ends_with(')');
    let mut words: Vec<&str> = words.split_whitespace().collect();
    if words.len() > 2 && words.first().is_some_and(is_environment) {
        words.remove(0);
    }
    match words.as_slice() {
        [] => false,
        [place, _] if !bare.ends_with('>') && (place.contains('@') || place.starts_with(['~', '/'])) => true,
        words => words.iter().all(is_place),
    }
}

/// Returns whether the text after the cursor, in a row with so many cells left, looks like a right prompt: one piece,
/// at the edge of the row.
fn is_right_prompt(after: &str, cells: usize) -> bool {
    let text = after.trim_end();
    let width: usize = text.chars().map(columns).sum();
    text.starts_with("  ") && !text.trim_start().contains("  ") && width + 1 >= cells
}

/// Returns what is typed after the first sign that ends prompts; without one, the row does not tell. `after`: the text
/// after the cursor.
pub(super) fn typed_or_unknown(prompt: &str, after: &str) -> PromptState {
    // A directory follows the sign at the beginning of oh-my-zsh's prompt.
    let begin = usize::from(prompt.starts_with("➜  "));
    let signs = prompt.char_indices().skip(begin).filter(|(_, character)| SIGILS.contains(*character));
    let mut typed = signs.filter_map(|(at, sign)| prompt.get(at + sign.len_utf8()..)?.strip_prefix(' '));
    match typed.next().map(|typed| format!("{typed}{}", after.trim_end())) {
        // A prompt of several signs.
        Some(typed) if ends_in_sigil(&typed) => PromptState::Unknown(prompt.to_owned()),
        Some(typed) if !typed.trim().is_empty() => PromptState::Typed(typed),
        _ => PromptState::Unknown(prompt.to_owned()),
    }
}

/// Returns the output without a line end before the known prompt in this row. bash's line editor counts
/// its columns from the prompt then, and much of what it prints is not understood. A prompt without a
/// name could as well be the end of what is typed.
fn output_before<'a>(row: &'a str, known: &str) -> Option<&'a str> {
    let has_name = known.chars().filter(|character| character.is_alphanumeric()).count() >= 3;
    row.strip_suffix(known).filter(|output| has_name && !output.is_empty())
}

/// Returns whether a row is the known prompt after output without a line end, and nothing that is typed.
fn follows_output(row: &str, known: &str) -> bool {
    ends_in_only_sigil(known)
        && output_before(row, known).is_some_and(|output| !output.contains(|character| SIGILS.contains(character)))
}

/// Returns whether a shell's builtin asks something with this text.
pub(super) fn is_question(prompt: &str) -> bool {
    let bare = prompt.trim_end();
    let lower = bare.to_lowercase();
    let unsigned = bare.trim_end_matches(|character| SIGILS.contains(character)).trim_end();
    // Prompts with a user, a host or a directory end in a colon, too.
    let is_named = bare.ends_with(':') && !bare.contains(['@', '~', '/', ']']);
    is_named
        || unsigned.ends_with('?')
        // fish's `read`, and `select` in bash and zsh.
        || ["read>", "#?", "?#"].contains(&bare)
        || ["[y/n]", "(y/n)", "(yes/no", "[yes/no"].iter().any(|choice| lower.contains(choice))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_sign_that_nothing_typed_can_be_ends_a_prompt() {
        for (row, is_prompt) in [
            ("me@host:~# ", true),
            ("$ ", true),
            ("host% ", true),
            ("me@host dir % ", true),
            ("~/dir \u{276f} ", true),
            ("$ echo $ ", false),
            ("[host] echo 100 $ ", false),
            ("[host] cat /dev/null > ", false),
            ("~$echo 100 $ ", false),
            ("words ", false),
            ("[me@host src]$ ", true),
            ("\u{276f}\u{276f}\u{276f} ", true),
            ("date +%", false),
            ("host date +% ", false),
            ("ls foo# ", false),
            ("/tmp#date +% ", false),
            ("me@host:~$ ls # ", false),
            ("[me@host ~] cat>> ", false),
            ("cat>> ", false),
        ] {
            assert_eq!(ends_in_only_sigil(row), is_prompt, "{row:?}");
        }
    }

    #[test]
    fn a_place_and_a_sign_are_a_prompt() {
        for (row, is_prompt) in [
            ("/ # ", true),
            ("~/src $ ", true),
            ("(venv) me@host ~/src $ ", true),
            ("[12:31:02] me@host # ", true),
            ("me@host src $ ", true),
            ("~/src main $ ", true),
            ("\u{1f427} /tmp # ", true),
            ("\u{279c}  src git:(main) \u{2717} ", true),
            ("\u{279c}  src git:(main) ", true),
            ("\u{279c}  ~ ", true),
            ("\u{279c}  src ", false),
            ("\u{279c}  src git:(main) ls ", false),
            ("me@host src main $ ", false),
            ("~/src echo 100 $ ", false),
            ("words $ ", false),
            ("$ ", false),
            ("/ #", false),
            ("me@host ~/src > ", true),
            ("(venv) me@host src $ ", true),
            ("(base) ~/src main # ", true),
            ("(venv) echo 100 $ ", false),
            ("(venv) $ ", true),
            ("(true) me@host ls x $ ", false),
            ("~/src >>> ", true),
            ("cat ~/src >>> ", false),
            ("me@host ls >> ", false),
            ("[me@host ~] ./deploy >> ", false),
            ("~/src >> ", false),
            ("{\"cwd\":\"/tmp\"} ", true),
            ("{ echo \"}\"; } ", false),
            ("me@host:~$ ls # ", false),
            ("me@host:~$ ./x /y $ ", false),
            ("[me@host src]$ /bin/true $ ", false),
            ("me@host:~# cat > ", false),
            ("me@host dir % ./x /y > ", false),
            ("\u{276f} ./x ", false),
            ("me@host ls > ", false),
            ("cat /dev/null > ", false),
        ] {
            assert_eq!(follows_place(row), is_prompt, "{row:?}");
        }
    }

    #[test]
    fn a_sign_may_change_into_another_one_that_nothing_typed_can_be() {
        for (known, prompt, is_like) in [
            ("~/src \u{276f} ", "~/src \u{2717} ", true),
            ("$ ", "# ", false),
            ("\u{276f} ", "date +% ", false),
            ("\u{276f} ", "\u{2192} ", false),
            ("$ ", "$ echo \u{276f} ", false),
            ("", "", true),
        ] {
            assert_eq!(has_like_sign(known, prompt), is_like, "{known:?}, {prompt:?}");
        }
    }

    #[test]
    fn what_is_typed_follows_the_first_sign() {
        for (prompt, after, typed) in [
            ("me@host:~# touch a ", "", Some("touch a ")),
            ("$ echo $ ", "", None),
            ("~ \u{276f} echo", " one  ", Some("echo one")),
            ("$ ", "echo one", Some("echo one")),
            ("$ ", "", None),
            ("words touch a", "", None),
            ("\u{279c}  src ", "", None),
            ("\u{279c}  src git:(main) \u{2717} ls", "", Some("ls")),
        ] {
            let found = match typed_or_unknown(prompt, after) {
                PromptState::Typed(typed) => Some(typed),
                _ => None,
            };
            assert_eq!(found.as_deref(), typed, "{prompt:?}");
        }
    }

    #[test]
    fn a_right_prompt_is_apart_and_at_the_edge() {
        for (after, cells, is_right) in [
            ("     right", 10, true),
            ("    right", 10, true),
            ("  right", 10, false),
            ("  x  right", 10, false),
            ("abcdefghij", 10, false),
            (" bcdefghij", 10, false),
        ] {
            assert_eq!(is_right_prompt(after, cells), is_right, "{after:?}");
        }
    }

    #[test]
    fn a_known_prompt_may_follow_output_but_not_typed_text() {
        for (row, known, follows) in [
            ("outme@host:~# ", "me@host:~# ", true),
            ("out$ ", "$ ", false),
            ("cat /dev/null > ", "> ", false),
            ("$ ", "$ ", false),
            ("me@host:~# echo me@host:~# ", "me@host:~# ", false),
            ("out", "me@host:~# ", false),
        ] {
            assert_eq!(follows_output(row, known), follows, "{row:?}");
        }
    }

    #[test]
    fn a_question_may_end_in_a_sign() {
        for (row, asks) in [
            ("Continue? $ ", true),
            ("Install? [y/N] ", true),
            ("Overwrite?> ", true),
            ("me@host:~$ ", false),
            ("dir git:(main) \u{2717} ", false),
        ] {
            assert_eq!(is_question(row), asks, "{row:?}");
        }
    }
}
