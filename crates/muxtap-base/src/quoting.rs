//! Words of a shell.

/// Quotes a word so that sh, bash, zsh and fish read it back.
pub fn shell_word(word: &str) -> String {
    let harmless = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:=@%+,".contains(&byte);
    // A leading `=` is an expansion in zsh, and `%` a job.
    if !word.is_empty() && word.bytes().all(harmless) && !word.starts_with(['=', '%']) {
        return word.to_owned();
    }
    // In fish a backslash between quotes can escape, so it stands outside of them, as the quote
    // itself does.
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
