//! Shell words.

/// Returns whether each character of a path is itself in every shell: ASCII letters, digits, `.`,
/// `/`, `_` and `-`.
pub fn is_plain_path(path: &str) -> bool {
    path.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/._-".contains(&byte))
}

/// Quotes a word that sh, bash, zsh and fish read back unchanged.
pub fn shell_word(word: &str) -> String {
    let harmless = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:=@%+,".contains(&byte);
    // A leading `=` is an expansion in zsh, and a leading `%` a job.
    if !word.is_empty() && word.bytes().all(harmless) && !word.starts_with(['=', '%']) {
        return word.to_owned();
    }
    // In fish a backslash within quotes can escape, so it is placed outside of them, like the quote
    // itself.
    let mut quoted = String::from("'");
    for c in word.chars() {
        if c == '\'' || c == '\\' {
            quoted.push_str("'\\");
            quoted.push(c);
            quoted.push('\'');
        } else {
            quoted.push(c);
        }
    }
    quoted.push('\'');
    quoted
}
