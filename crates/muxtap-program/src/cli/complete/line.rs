//! Splits a command line as a shell does, as far as completion needs it.

/// The words before the cursor, and the one that ends there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Line {
    /// The words before the last one, without quotes; the first one is the program.
    pub(super) words: Vec<String>,
    pub(super) current: Word,
}

/// The word that is completed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Word {
    /// Its text, without quotes.
    pub(super) text: String,
    /// How many bytes of `text` bash does not replace: all up to the last character that ends a
    /// word for its line editor, or to the open quote.
    kept: usize,
    /// The open quote.
    quote: Option<char>,
}

impl Line {
    /// Reads a line up to the cursor. `breaks`: the characters that end a word for the line editor
    /// (`COMP_WORDBREAKS`).
    pub(super) fn parse(line: &str, breaks: &str) -> Self {
        let mut words = Vec::new();
        let mut current = Word::default();
        let mut begun = false;
        let mut characters = line.chars();
        while let Some(character) = characters.next() {
            match (current.quote, character) {
                (None, ' ' | '\t' | '\n') => {
                    if std::mem::take(&mut begun) {
                        words.push(std::mem::take(&mut current).text);
                    }
                    continue;
                }
                (None, '\'' | '"') => {
                    current.quote = Some(character);
                    current.kept = current.text.len();
                }
                (Some(quote), _) if character == quote => current.quote = None,
                (None, '\\') => current.text.extend(characters.next()),
                (Some('"'), '\\') => match characters.next() {
                    Some(escaped @ ('"' | '\\' | '$' | '`')) => current.text.push(escaped),
                    other => {
                        current.text.push('\\');
                        current.text.extend(other);
                    }
                },
                (quote, _) => {
                    current.text.push(character);
                    if quote.is_none() && breaks.contains(character) {
                        current.kept = current.text.len();
                    }
                }
            }
            begun = true;
        }
        Self { words, current }
    }
}

impl Word {
    /// A word that its shell replaces as a whole and quotes.
    pub(super) fn new(text: String) -> Self {
        Self { text, ..Self::default() }
    }

    /// Returns how bash must insert a value that begins with this word. `None`: the value cannot be
    /// inside the open quote.
    pub(super) fn completed(&self, value: &str) -> Option<String> {
        let rest = value.get(self.kept..)?;
        match self.quote {
            Some('\'') => (!rest.contains('\'')).then(|| rest.to_owned()),
            // An interactive bash expands every `!` there.
            Some(_) if rest.contains('!') => None,
            Some(_) => Some(escaped(rest, |character| matches!(character, '"' | '\\' | '$' | '`'))),
            None => Some(escaped(rest, |character| {
                character.is_ascii() && !character.is_ascii_alphanumeric() && !"_-./:@%+,=".contains(character)
            })),
        }
    }
}

fn escaped(text: &str, is_special: impl Fn(char) -> bool) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        if is_special(character) {
            escaped.push('\\');
        }
        escaped.push(character);
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    const BREAKS: &str = " \t\n\"'@><=;|&(:";

    fn current(line: &str) -> Word {
        Line::parse(line, BREAKS).current
    }

    #[test]
    fn words_are_those_of_the_shell() {
        let line = Line::parse(r#"muxtap  -S '/a b/s' "x\"y" a\ b wo"#, BREAKS);
        assert_eq!(line.words, ["muxtap", "-S", "/a b/s", "x\"y", "a b"]);
        assert_eq!(line.current.text, "wo");
        assert_eq!(Line::parse("muxtap -t ", BREAKS).current, Word::default());
        assert_eq!(Line::parse("muxtap ''", BREAKS).words, ["muxtap"]);
    }

    #[test]
    fn bash_replaces_what_stands_behind_the_last_colon_alone() {
        assert_eq!(current("m -t wo").completed("work:a b").as_deref(), Some(r"work:a\ b"));
        assert_eq!(current("m -t work:a").completed("work:a b").as_deref(), Some(r"a\ b"));
        assert_eq!(current(r"m -t a\ b:").completed("a b:$x").as_deref(), Some(r"\$x"));
        assert_eq!(current("m -t 'work:a").completed("work:a b").as_deref(), Some("work:a b"));
        assert_eq!(current("m -t 'wor").completed("work:it's"), None);
        assert_eq!(current("m -t \"wo").completed("work:$(x)`y`").as_deref(), Some(r"work:\$(x)\`y\`"));
        assert_eq!(current("m -t \"wo").completed("work:!"), None);
        assert_eq!(current("m -t @").completed("@1").as_deref(), Some("1"));
    }

    #[test]
    fn what_is_inserted_means_the_value() {
        for value in
            ["a b", "it's", "$(touch x)", "`x`", "a\\b", "~x", "#", "a;b&c|d", "größe 日本", "!!", "\"", "*?[]"]
        {
            let typed = current("m -t ");
            let line = format!("m -t {}", typed.completed(value).unwrap());
            assert_eq!(current(&line).text, value);
        }
    }
}
