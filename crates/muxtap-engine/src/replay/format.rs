//! tmux's formats, as far as muxtap uses them.

/// Expands a format. `value`: the value of a variable.
pub(super) fn expand(format: &str, value: &dyn Fn(&str) -> String) -> String {
    let (mut out, mut rest) = (String::new(), format);
    while let Some(at) = rest.find("#{") {
        let inner = &rest[at + 2..];
        let end = closing(inner);
        out.push_str(&rest[..at]);
        out.push_str(&expression(&inner[..end], value));
        rest = &inner[(end + 1).min(inner.len())..];
    }
    out + rest
}

/// Returns the place of the brace that ends an expression.
fn closing(text: &str) -> usize {
    let mut depth = 0;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' if depth == 0 => return at,
            b'}' => depth -= 1,
            _ => {}
        }
    }
    text.len()
}

fn expression(text: &str, value: &dyn Fn(&str) -> String) -> String {
    if let Some(choice) = text.strip_prefix('?') {
        let parts = parts(choice);
        let is_true = !matches!(&*expression(parts[0], value), "" | "0");
        return expand(parts.get(if is_true { 1 } else { 2 }).copied().unwrap_or_default(), value);
    }
    if let Some(character) = text.strip_prefix("w;l:") {
        let character = character.chars().next().unwrap_or_default();
        return muxtap_core::width::of_text(&character.to_string()).to_string();
    }
    if text.starts_with("s/") {
        return value(text.rsplit(':').next().unwrap_or_default());
    }
    value(text)
}

/// Splits the parts of a choice.
fn parts(text: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut begin) = (Vec::new(), 0, 0);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' => depth -= 1,
            b',' if depth == 0 => {
                parts.push(&text[begin..at]);
                begin = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[begin..]);
    parts
}
