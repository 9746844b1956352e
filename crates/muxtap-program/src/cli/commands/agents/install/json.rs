//! Edits of a person's JSON file that leave every other byte as it is.

use serde_json::Value;

use crate::api::{Error, Result};

/// A place in a JSON text.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Span {
    start: usize,
    /// Just after its last byte.
    end: usize,
}

/// The members of an object, or the elements of an array (with empty names), as they are in the text.
#[derive(Clone, Debug)]
struct Items {
    whole: Span,
    items: Vec<(String, Span)>,
}

/// Parses a person's file. An empty file is an empty object.
///
/// Error: `INVALID_ARGUMENT` for invalid JSON, with its line, or if it is not an object.
pub(super) fn parse(text: &str) -> Result<Value> {
    let value: Value = if text.trim().is_empty() {
        Value::Object(serde_json::Map::new())
    } else {
        serde_json::from_str(text).map_err(|error| Error::invalid(describe(text, &error)))?
    };
    if value.is_object() { Ok(value) } else { Err(Error::invalid("expected a JSON object")) }
}

fn describe(text: &str, error: &serde_json::Error) -> String {
    let line = text.lines().nth(error.line().saturating_sub(1)).unwrap_or_default();
    let rest = line.get(error.column().saturating_sub(1)..).unwrap_or_default().trim_start();
    let is_comment = rest.starts_with("//") || rest.starts_with("/*") || rest.starts_with('/');
    let why = if is_comment { "comments are not supported".to_owned() } else { error.to_string() };
    format!("invalid JSON at line {}, column {}: {why}", error.line(), error.column())
}

/// Adds an element to the array at `path` (names of members), which is created where it is missing.
/// Error: something on the path is not an object, or its end is not an array.
pub(super) fn add(text: &str, path: &[&str], element: &Value) -> Result<String> {
    let text = if text.trim().is_empty() { "{}\n".to_owned() } else { text.to_owned() };
    let wrong = |name: &str, what: &str| Error::invalid(format!("`{name}`: expected {what}"));
    let mut at = items_of(&text, root(&text)?)?;
    for (depth, name) in path.iter().enumerate() {
        let Some((_, span)) = at.items.iter().rev().find(|(known, _)| known == name) else {
            // The rest of the path is new.
            let mut value = Value::Array(vec![element.clone()]);
            for name in path.iter().skip(depth + 1).rev() {
                value = Value::Object(std::iter::once(((*name).to_owned(), value)).collect());
            }
            return Ok(insert(&text, &at, depth, &format!("{}: {value}", Value::from(*name))));
        };
        let is_last = depth + 1 == path.len();
        let opens = text.as_bytes().get(span.start);
        if opens != Some(if is_last { &b'[' } else { &b'{' }) {
            return Err(wrong(name, if is_last { "an array" } else { "an object" }));
        }
        at = items_of(&text, span.start)?;
    }
    Ok(insert(&text, &at, path.len(), &element.to_string()))
}

/// Adds a member to the root object, if it has none of this name.
pub(super) fn add_member(text: &str, name: &str, value: &Value) -> Result<String> {
    let text = if text.trim().is_empty() { "{}\n".to_owned() } else { text.to_owned() };
    let at = items_of(&text, root(&text)?)?;
    if at.items.iter().any(|(known, _)| known == name) {
        return Ok(text);
    }
    Ok(insert(&text, &at, 0, &format!("{}: {value}", Value::from(name))))
}

/// Removes the elements of the array at `path` for which `is_ours` holds; then the array, and the
/// objects around it, if nothing is left in them.
pub(super) fn remove(text: &str, path: &[&str], is_ours: &dyn Fn(&Value) -> bool) -> Result<String> {
    let mut text = text.to_owned();
    loop {
        let Some((array, _)) = find(&text, path)? else { return Ok(text) };
        let ours = array.items.iter().position(|(_, span)| {
            text.get(span.start..span.end)
                .and_then(|one| serde_json::from_str(one).ok())
                .is_some_and(|one| is_ours(&one))
        });
        let Some(at) = ours else { return Ok(text) };
        text = without(&text, &array, at);
        // What is empty now was made for the element.
        for depth in (0..path.len()).rev() {
            let Some((inner, Some((outer, member)))) = find(&text, path.get(..=depth).unwrap_or_default())? else {
                break;
            };
            if !inner.items.is_empty() {
                break;
            }
            text = without(&text, &outer, member);
        }
    }
}

/// Returns what is at a path, and the object around it with the index of its member.
#[allow(clippy::type_complexity, reason = "two places, of which the second has an index")]
fn find(text: &str, path: &[&str]) -> Result<Option<(Items, Option<(Items, usize)>)>> {
    if text.trim().is_empty() {
        return Ok(None);
    }
    let mut at = items_of(text, root(text)?)?;
    let mut around = None;
    for name in path {
        if text.as_bytes().get(at.whole.start) != Some(&b'{') {
            return Ok(None);
        }
        let Some(member) = at.items.iter().rposition(|(known, _)| known == name) else { return Ok(None) };
        let Some((_, span)) = at.items.get(member).cloned() else { return Ok(None) };
        if !matches!(text.as_bytes().get(span.start), Some(b'{' | b'[')) {
            return Ok(None);
        }
        let inner = items_of(text, span.start)?;
        around = Some((std::mem::replace(&mut at, inner), member));
    }
    Ok(Some((at, around)))
}

/// Inserts an item at the end of an object or array, on a line of its own.
fn insert(text: &str, at: &Items, depth: usize, item: &str) -> String {
    let indent = "  ".repeat(depth + 1);
    if let Some((_, last)) = at.items.last() {
        let (head, tail) = text.split_at_checked(last.end).unwrap_or((text, ""));
        return format!("{head},\n{indent}{item}{tail}");
    }
    let (head, _) = text.split_at_checked(at.whole.start + 1).unwrap_or((text, ""));
    let tail = text.get(at.whole.end - 1..).unwrap_or_default();
    format!("{head}\n{indent}{item}\n{}{tail}", "  ".repeat(depth))
}

/// Removes an item, with its member's name and one comma.
fn without(text: &str, at: &Items, index: usize) -> String {
    let Some((_, own)) = at.items.get(index) else { return text.to_owned() };
    let before = index.checked_sub(1).and_then(|before| at.items.get(before));
    let (from, to) = match (before, at.items.get(index + 1)) {
        (Some((_, before)), _) => (before.end, own.end),
        (None, Some((_, next))) => {
            // From the opening bracket to the beginning of the next item, whose name is before its value.
            let start = at.whole.start + 1;
            let next = text
                .get(own.end..next.start)
                .and_then(|gap| gap.find(','))
                .map_or(own.end, |comma| own.end + comma + 1);
            (start, next)
        }
        (None, None) => (at.whole.start + 1, at.whole.end - 1),
    };
    format!("{}{}", text.get(..from).unwrap_or_default(), text.get(to..).unwrap_or_default())
}

/// Returns where the root object begins.
fn root(text: &str) -> Result<usize> {
    text.find('{').ok_or_else(|| Error::invalid("expected a JSON object"))
}

/// Returns the items of the object or array that begins here. The text is valid JSON.
fn items_of(text: &str, start: usize) -> Result<Items> {
    let bytes = text.as_bytes();
    let broken = || Error::internal("the text is not the JSON that was parsed");
    let is_object = bytes.get(start) == Some(&b'{');
    let mut items = Vec::new();
    let mut at = start + 1;
    loop {
        at = skip_blank(bytes, at);
        match bytes.get(at).ok_or_else(broken)? {
            b'}' | b']' => return Ok(Items { whole: Span { start, end: at + 1 }, items }),
            b',' => at += 1,
            _ => {
                let mut name = String::new();
                if is_object {
                    let end = end_of_value(bytes, at).ok_or_else(broken)?;
                    name = text.get(at..end).and_then(|word| serde_json::from_str(word).ok()).ok_or_else(broken)?;
                    let colon = skip_blank(bytes, end);
                    at = skip_blank(bytes, colon + 1);
                }
                let end = end_of_value(bytes, at).ok_or_else(broken)?;
                items.push((name, Span { start: at, end }));
                at = end;
            }
        }
    }
}

fn skip_blank(bytes: &[u8], mut at: usize) -> usize {
    while bytes.get(at).is_some_and(u8::is_ascii_whitespace) {
        at += 1;
    }
    at
}

/// Returns the end of the value that begins here.
fn end_of_value(bytes: &[u8], start: usize) -> Option<usize> {
    let (mut at, mut depth, mut in_string) = (start, 0_usize, false);
    loop {
        let byte = *bytes.get(at)?;
        if in_string {
            match byte {
                b'\\' => at += 1,
                b'"' => in_string = false,
                _ => {}
            }
            if !in_string && depth == 0 {
                return Some(at + 1);
            }
        } else {
            match byte {
                b'"' => in_string = true,
                b'{' | b'[' => depth += 1,
                b'}' | b']' | b',' if depth == 0 => return Some(at),
                b'}' | b']' => {
                    depth -= 1;
                    if depth == 0 {
                        return Some(at + 1);
                    }
                }
                _ if depth == 0 && byte.is_ascii_whitespace() => return Some(at),
                _ => {}
            }
        }
        at += 1;
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const THEIRS: &str = "{\n    \"model\": \"opus\",  \n    \"hooks\": {\"Stop\": [ {\"theirs\": \"a \\\" ] } ,\"} ],\n\t\"Else\": []}\n}";

    fn is_ours(value: &Value) -> bool {
        value["ours"].is_number()
    }

    #[test]
    fn an_added_element_is_removed_without_a_trace() {
        for text in [
            THEIRS,
            "{}",
            "{ }\n",
            "{\"a\":1}",
            "{\"hooks\":{\"x\":[1]}}",
            "{\"hooks\":{\"Stop\":[1 , 2]}, \"b\": [{}]}",
        ] {
            let mut edited = text.to_owned();
            for number in 0..3 {
                for path in [&["hooks", "Stop"][..], &["hooks", "New"], &["top"]] {
                    edited = add(&edited, path, &json!({"ours": number})).unwrap();
                }
            }
            let value = parse(&edited).unwrap();
            assert!(value["hooks"]["New"][2]["ours"] == 2 && value["top"][0]["ours"] == 0, "{edited}");
            for (name, theirs) in parse(text).unwrap().as_object().unwrap() {
                if name != "hooks" {
                    assert_eq!(&value[name], theirs);
                }
            }
            for path in [&["hooks", "Stop"][..], &["hooks", "New"], &["top"]] {
                edited = remove(&edited, path, &is_ours).unwrap();
            }
            let squeeze = |text: &str| text.split_whitespace().collect::<String>();
            assert_eq!(squeeze(&edited), squeeze(text));
        }
        // Where something was, every byte stays.
        let edited = add(THEIRS, &["hooks", "Stop"], &json!({"ours": 1})).unwrap();
        assert_eq!(remove(&edited, &["hooks", "Stop"], &is_ours).unwrap(), THEIRS);
    }

    #[test]
    fn an_element_is_removed_wherever_it_is() {
        for text in
            ["{\"a\":[{\"ours\":1},2,3]}", "{\"a\":[2,{\"ours\":1},3]}", "{\"a\":[2,3,{\"ours\":1},{\"ours\":2}]}"]
        {
            assert_eq!(parse(&remove(text, &["a"], &is_ours).unwrap()).unwrap(), json!({"a": [2, 3]}), "{text}");
        }
        let removed = remove("{\"a\": [{\"ours\":1}], \"b\": \"a,}\"}", &["a"], &is_ours).unwrap();
        assert_eq!(parse(&removed).unwrap(), json!({"b": "a,}"}));
    }

    #[test]
    fn what_is_not_plain_json_is_refused() {
        for (text, says) in [
            ("{", "line 1"),
            ("{\n  \"a\": 1,\n}", "line 3"),
            ("{\n  // mine\n  \"a\": 1\n}", "comments are not supported"),
            ("[]", "a JSON object"),
            ("nonsense", "line 1"),
        ] {
            assert!(parse(text).unwrap_err().message.contains(says), "{text}: {:?}", parse(text));
        }
        for text in ["{\"hooks\": []}", "{\"hooks\": {\"Stop\": {}}}", "{\"hooks\": 5}"] {
            assert!(
                add(text, &["hooks", "Stop"], &json!(1)).unwrap_err().message.contains("`: expected an "),
                "{text}"
            );
        }
    }
}
