//! Splits text into requests: tags `<capability …/>`, comments, and lines of JSON.
//!
//! A tag may span lines, and a line may hold several. A malformed request of one line that closes all
//! that it began is an error alone. Else its end is unknown, and all text behind it may be the text of one
//! of its values: nothing behind it is carried out until the sender repeats a marker that only the
//! response to the malformed request contained.

use std::collections::VecDeque;

use muxtap_base::nonce;
use serde_json::{Map, Value, json};

use super::{answer::CapabilityAnswer, request::refused};

/// The beginning of a tag.
const TAG: &str = "<capability";
/// The end of a tag that has one.
const CLOSING: &str = "</capability>";
const COMMENT: (&str, &str) = ("<!--", "-->");
/// The beginning of a line of Markdown around the tags.
const FENCE: &str = "```";
/// The maximum size of an unfinished tag or comment, in bytes.
const OPEN_BYTES: usize = 1 << 20;
/// The forms of a request, for errors.
pub(super) const FORMS: &str = r#"Send {"action":"list"} or <capability name="tmux" action="list" />"#;
/// The error for bytes that are no text.
const NO_TEXT: &str = "The request is not valid UTF-8";

/// The requests in a text that arrives line by line.
#[derive(Debug, Default)]
pub struct Requests {
    pieces: Pieces,
    /// The marker that ends the refusal of all input, after a malformed request.
    marker: Option<String>,
    /// Responses that are due.
    due: VecDeque<CapabilityAnswer>,
}

/// The fields of a request, or the response to it.
pub type Fields = Result<Map<String, Value>, CapabilityAnswer>;

impl Requests {
    /// Adds a line; a missing line end is added.
    pub fn feed(&mut self, line: &str) {
        self.pieces.text.push_str(line);
        if !line.ends_with('\n') {
            self.pieces.text.push('\n');
        }
    }

    /// Adds a line as it was read. A line that is not valid UTF-8 is rejected.
    pub fn feed_bytes(&mut self, line: Vec<u8>) {
        let line = match String::from_utf8(line) {
            Ok(line) => return self.feed(&line),
            Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
        };
        if self.marker.is_some() {
            self.refuse(&line);
        } else if !self.is_open() && is_closed(&line) {
            self.due.push_back(refused(NO_TEXT, FORMS));
        } else {
            self.pieces = Pieces::default();
            let refusal = self.lose(NO_TEXT);
            self.due.push_back(refusal);
        }
    }

    /// Returns whether a tag or a comment is unfinished, once [`Requests::next`] has returned `None`.
    pub fn is_open(&self) -> bool {
        !self.pieces.text.is_empty()
    }

    /// Returns the next complete request. `is_end`: the text pauses or ends here, so an unfinished
    /// tag is an error.
    pub fn next(&mut self, is_end: bool) -> Option<Fields> {
        loop {
            if let Some(due) = self.due.pop_front() {
                return Some(Err(due));
            }
            if self.marker.is_none() {
                let malformed = match self.pieces.next(is_end)? {
                    Found::Request(fields) => return Some(fields),
                    Found::Malformed(malformed) => malformed,
                };
                let refusal =
                    if malformed.is_closed { refused(malformed.why, FORMS) } else { self.lose(&malformed.why) };
                let suggestion = self.marker.as_deref().map_or_else(|| FORMS.to_owned(), resume);
                let why = "Not run: it is behind a malformed request in its line";
                self.due.extend(std::iter::repeat_with(|| refused(why, suggestion.clone())).take(malformed.behind));
                return Some(Err(refusal));
            }
            let line = self.pieces.line()?;
            self.refuse(&line);
        }
    }

    /// Begins to refuse all input. Returns the response to the malformed request.
    fn lose(&mut self, why: &str) -> CapabilityAnswer {
        let marker = nonce::hex64();
        let refusal = refused(format!("{why}; where it ends is unknown, so nothing behind it is run"), resume(&marker));
        self.marker = Some(marker);
        refusal
    }

    /// Refuses each request that seems to begin in a line, unless the line has the marker.
    fn refuse(&mut self, line: &str) {
        let Some(marker) = &self.marker else { return };
        if line.contains(marker.as_str()) {
            self.marker = None;
            self.due.push_back(CapabilityAnswer::done(json!({ "resumed": true })));
            return;
        }
        let count = if line.trim_start().starts_with('{') { 1 } else { line.matches(TAG).count() };
        let why = "Not run: it may be the text of an earlier, malformed request";
        self.due.extend(std::iter::repeat_with(|| refused(why, resume(marker))).take(count));
    }
}

/// Returns the suggestion for the input behind a malformed request.
fn resume(marker: &str) -> String {
    format!(
        "First send <capability name=\"tmux\" action=\"resume\" marker=\"{marker}\" /> on a line of its own, then the \
         corrected requests"
    )
}

/// Parses a text with exactly one request.
pub(super) fn one(text: &str) -> Fields {
    if text.len() > OPEN_BYTES {
        let why = format!("The request is too large: {} bytes; at most {OPEN_BYTES}", text.len());
        return Err(refused(why, "Write the text to a file, or send it in parts"));
    }
    let mut pieces = Pieces { text: format!("{text}\n"), ..Pieces::default() };
    match (pieces.next(true), pieces.next(true)) {
        (None, _) => Err(refused("The request is empty", FORMS)),
        (Some(Found::Malformed(malformed)), _) => Err(refused(malformed.why, FORMS)),
        (Some(Found::Request(fields)), None) => fields,
        _ => Err(refused("The text has more than one request; nothing was carried out", "Send them one by one")),
    }
}

/// The pieces of a text.
#[derive(Debug, Default)]
struct Pieces {
    text: String,
    /// The start of the text that is not read yet.
    at: usize,
    /// The state of the unfinished piece that starts there.
    open: Option<Scan>,
}

/// A request in a text.
enum Found {
    Request(Fields),
    /// The rest of the line where it was found to be malformed is skipped.
    Malformed(Malformed),
}

/// A malformed request.
struct Malformed {
    why: String,
    /// Whether it ends with its line; else its end is unknown.
    is_closed: bool,
    /// The number of tags behind it in the skipped line.
    behind: usize,
}

impl Pieces {
    fn next(&mut self, is_end: bool) -> Option<Found> {
        loop {
            let unread = self.text.get(self.at..).unwrap_or_default();
            let text = unread.trim_start();
            self.at += unread.len() - text.len();
            let scan = self.open.take().or_else(|| Scan::of(text));
            let piece = match scan {
                Some(mut scan) => match scan.run(text) {
                    Piece::Open if is_end || text.len() > OPEN_BYTES => {
                        Piece::Unfinished(text.len(), scan.unfinished())
                    }
                    Piece::Open => {
                        self.open = Some(scan);
                        Piece::Open
                    }
                    piece => piece,
                },
                None => piece(text),
            };
            match piece {
                Piece::Nothing | Piece::Open => {
                    self.forget_read();
                    return None;
                }
                Piece::Skipped(length) => self.at += length,
                Piece::Request(length, fields) => {
                    self.at += length;
                    return Some(Found::Request(fields));
                }
                Piece::Malformed(length, why) => {
                    let skipped = text.get(length..).unwrap_or_default();
                    let skipped = skipped.get(..line_length(skipped)).unwrap_or(skipped);
                    // The first tag of a line that begins with something else is the malformed one.
                    let behind = skipped.matches(TAG).count().saturating_sub(usize::from(length == 0));
                    let length = length + skipped.len();
                    self.at += length;
                    let is_closed = text.get(..length).is_some_and(is_closed);
                    return Some(Found::Malformed(Malformed { why, is_closed, behind }));
                }
                Piece::Unfinished(length, why) => {
                    self.at += length;
                    return Some(Found::Malformed(Malformed { why, is_closed: false, behind: 0 }));
                }
            }
        }
    }

    /// Takes the next line as it is.
    fn line(&mut self) -> Option<String> {
        let unread = self.text.get(self.at..).unwrap_or_default();
        if unread.is_empty() {
            self.forget_read();
            return None;
        }
        let line = unread.get(..line_length(unread)).unwrap_or(unread).to_owned();
        self.at += line.len();
        Some(line)
    }

    fn forget_read(&mut self) {
        self.text.drain(..self.at);
        self.at = 0;
    }
}

/// The piece at the start of a text, with its length.
enum Piece {
    Nothing,
    /// A comment, or anything else that is no request.
    Skipped(usize),
    Request(usize, Fields),
    /// A request is malformed up to there.
    Malformed(usize, String),
    /// A tag or comment has no end, or is too large.
    Unfinished(usize, String),
    /// The tag is incomplete. All text belongs to it.
    Open,
}

/// Returns the piece at the start of a text that is not a tag or a comment.
fn piece(text: &str) -> Piece {
    if text.is_empty() {
        return Piece::Nothing;
    }
    if text.starts_with(FENCE) {
        return Piece::Skipped(fence(text));
    }
    if text.starts_with(CLOSING) {
        return Piece::Skipped(CLOSING.len());
    }
    let length = line_length(text);
    let line = text.get(..length).unwrap_or(text).trim();
    match serde_json::from_str(line) {
        Ok(Value::Object(fields)) => Piece::Request(length, Ok(fields)),
        Ok(_) => Piece::Request(length, Err(refused("The request is not a JSON object", FORMS))),
        Err(_) if line.starts_with('<') => Piece::Malformed(0, invalid("expected <capability …/>")),
        Err(_) if line.contains(TAG) => {
            Piece::Malformed(0, invalid("text before a tag in its line; begin a tag on a line of its own"))
        }
        Err(error) => {
            let why = format!("The request is not valid JSON: {error}");
            // No request begins in a line without these.
            if line.contains(['{', '<']) {
                Piece::Malformed(0, why)
            } else {
                Piece::Request(length, Err(refused(why, FORMS)))
            }
        }
    }
}

/// Returns whether a malformed request ends with its line: it began there, it closes what it began, and
/// each quote stands where one begins or ends a value. Elsewhere a quote may be within a value, whose
/// end is then unknown.
fn is_closed(text: &str) -> bool {
    let text = text.trim();
    if text.contains('\n') {
        return false;
    }
    let is_json = text.starts_with('{') || !text.contains('<');
    let (quotes, before, behind): (&[char], _, _) =
        if is_json { (&['"'], "{[,:", "}],:") } else { (&['"', '\''], "=", "/>") };
    let mut rest = text;
    let mut depth = 0_i64;
    while let Some((plain, quoted)) = split_at_first(rest, quotes) {
        depth += depth_of(plain);
        let quote = quoted.chars().next().unwrap_or('"');
        let value = quoted.get(1..).unwrap_or_default();
        let end = if is_json { end_of_string(value) } else { value.find(quote) };
        let Some(end) = end else { return false };
        rest = value.get(end + 1..).unwrap_or_default();
        let next = if is_json { rest.trim_start() } else { rest };
        let ends = next.starts_with(|next: char| behind.contains(next) || !is_json && next.is_whitespace());
        if !plain.trim_end().ends_with(|last| before.contains(last)) || !ends {
            return false;
        }
    }
    if is_json {
        depth + depth_of(rest) == 0 && rest.ends_with('}')
    } else {
        rest.ends_with("/>") || rest.ends_with(CLOSING)
    }
}

/// Splits a text before the first of these characters.
fn split_at_first<'a>(text: &'a str, quotes: &[char]) -> Option<(&'a str, &'a str)> {
    text.find(quotes).map(|at| text.split_at(at))
}

/// Returns by how many braces a text is open at its end.
fn depth_of(text: &str) -> i64 {
    let count = |brace| i64::try_from(text.matches(brace).count()).unwrap_or(i64::MAX);
    count('{') - count('}')
}

/// Returns the end of a JSON string that begins before this text.
fn end_of_string(text: &str) -> Option<usize> {
    let mut is_escaped = false;
    text.char_indices().find_map(|(at, character)| {
        let ends = character == '"' && !is_escaped;
        is_escaped = character == '\\' && !is_escaped;
        ends.then_some(at)
    })
}

/// Returns the length of the first line, with its end.
fn line_length(text: &str) -> usize {
    text.find('\n').map_or(text.len(), |end| end + 1)
}

/// Returns the length of a fence: with the rest of its line, unless a tag or an object follows its
/// info word there.
fn fence(text: &str) -> usize {
    let info = text.trim_start_matches('`');
    let ticks = text.len() - info.len();
    let Some(end) = info.find(['\n', '<', '{', '`']) else { return text.len() };
    let word = || info.find(|c: char| c.is_whitespace() || "<{`".contains(c)).unwrap_or(end);
    ticks + if info.get(end..).is_some_and(|rest| rest.starts_with(['<', '{'])) { word() } else { end }
}

/// The scan of a piece that may span lines. It continues where it stopped, so that input that
/// arrives line by line is read once.
#[derive(Debug)]
struct Scan {
    place: Place,
    /// The length of the text that was read.
    at: usize,
    fields: Map<String, Value>,
    /// The quote of the last value.
    quote: char,
}

/// Where a scan stopped.
#[derive(Debug)]
enum Place {
    Comment,
    /// Between attributes.
    Between {
        is_spaced: bool,
    },
    /// Behind the name of an attribute.
    Named(String),
    /// Behind the equals sign.
    Equals(String),
    /// In a value that starts there.
    Value(String, usize),
    /// Behind the tag's `>`.
    Content,
}

/// What follows a step of a scan.
enum Step {
    Next,
    End(Piece),
}

impl Scan {
    /// Starts the scan of a text that begins with a tag or a comment.
    fn of(text: &str) -> Option<Self> {
        let new = |place, at| Self { place, at, fields: Map::new(), quote: '"' };
        if text.starts_with(COMMENT.0) {
            return Some(new(Place::Comment, COMMENT.0.len()));
        }
        let rest = text.strip_prefix(TAG)?;
        let is_tag = rest.starts_with(|c: char| c.is_whitespace() || "/>".contains(c));
        is_tag.then(|| new(Place::Between { is_spaced: true }, TAG.len()))
    }

    /// Reads on in the text, whose start is the same in each call.
    fn run(&mut self, text: &str) -> Piece {
        loop {
            if let Step::End(piece) = self.step(text) {
                return piece;
            }
        }
    }

    /// Returns the error for a piece that has no end.
    fn unfinished(&self) -> String {
        match &self.place {
            Place::Comment => "A comment has no --> at its end".into(),
            Place::Value(..) => invalid(&format!("a value has no {} at its end, expected it and />", self.quote)),
            Place::Content => invalid("expected /> or </capability> at the end"),
            _ => invalid("expected /> at the end"),
        }
    }

    fn step(&mut self, text: &str) -> Step {
        let rest = text.get(self.at..).unwrap_or_default();
        match std::mem::replace(&mut self.place, Place::Comment) {
            Place::Comment => {
                if let Some(end) = rest.find(COMMENT.1) {
                    return Step::End(Piece::Skipped(self.at + end + COMMENT.1.len()));
                }
                // Its end may be half read.
                let near = text.len().saturating_sub(COMMENT.1.len()).max(self.at);
                let at = (near..text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len());
                self.open(Place::Comment, at)
            }
            Place::Between { is_spaced } => self.between(text, is_spaced),
            Place::Named(name) => {
                let equals = rest.trim_start();
                self.at = text.len() - equals.len();
                if equals.is_empty() {
                    return self.open(Place::Named(name), self.at);
                }
                if !equals.starts_with('=') {
                    return self.malformed("an attribute has no value");
                }
                self.at += 1;
                self.go(Place::Equals(name))
            }
            Place::Equals(name) => {
                let value = rest.trim_start();
                self.at = text.len() - value.len();
                match value.chars().next() {
                    None => self.open(Place::Equals(name), self.at),
                    Some(quote @ ('"' | '\'')) => {
                        self.quote = quote;
                        self.at += 1;
                        self.go(Place::Value(name, self.at))
                    }
                    Some(_) => self.malformed("a value is not in quotes"),
                }
            }
            Place::Value(name, from) => match rest.find(self.quote) {
                None => self.open(Place::Value(name, from), text.len()),
                Some(end) => {
                    let end = self.at + end;
                    self.at = end + 1;
                    self.value(&name, text.get(from..end).unwrap_or_default())
                }
            },
            Place::Content => {
                let content = rest.trim_start();
                self.at = text.len() - content.len();
                if content.starts_with(CLOSING) {
                    return self.end(CLOSING.len());
                }
                if CLOSING.starts_with(content) {
                    return self.open(Place::Content, self.at);
                }
                self.malformed(
                    "text between <capability …> and </capability>; give it as an attribute, such as command=\"…\"",
                )
            }
        }
    }

    fn go(&mut self, place: Place) -> Step {
        self.place = place;
        Step::Next
    }

    fn open(&mut self, place: Place, at: usize) -> Step {
        (self.place, self.at) = (place, at);
        Step::End(Piece::Open)
    }

    fn end(&mut self, length: usize) -> Step {
        Step::End(Piece::Request(self.at + length, Ok(std::mem::take(&mut self.fields))))
    }

    fn malformed(&self, why: &str) -> Step {
        Step::End(Piece::Malformed(self.at, invalid(why)))
    }

    fn between(&mut self, text: &str, is_spaced: bool) -> Step {
        let rest = text.get(self.at..).unwrap_or_default();
        let found = rest.trim_start();
        let is_spaced = is_spaced || found.len() < rest.len();
        self.at = text.len() - found.len();
        if found.is_empty() || found == "/" {
            return self.open(Place::Between { is_spaced }, self.at);
        }
        if found.starts_with("/>") {
            return self.end(2);
        }
        if found.starts_with('>') {
            self.at += 1;
            return self.go(Place::Content);
        }
        if !is_spaced {
            return self.malformed("a space is missing after a value; write \" within a value as &quot;");
        }
        let named = found.trim_start_matches(|c: char| c.is_alphanumeric() || "_-:.".contains(c));
        let name = found.get(..found.len() - named.len()).unwrap_or_default();
        if name.is_empty() {
            return self.malformed("an attribute has no name");
        }
        self.at += name.len();
        self.go(Place::Named(name.to_owned()))
    }

    fn value(&mut self, name: &str, value: &str) -> Step {
        // The action `window` of the original contract has a second `name`: the window's.
        let name = if name == "name" && self.fields.contains_key("name") { "window_name" } else { name };
        if self.fields.insert(name.to_owned(), unescaped(value).into()).is_some() {
            return self.malformed(&format!("the attribute {name} is given twice"));
        }
        self.go(Place::Between { is_spaced: false })
    }
}

fn invalid(what: &str) -> String {
    format!("Invalid tag: {what}")
}

/// Decodes XML's escapes. Any other `&` is itself, as in `a && b`.
fn unescaped(text: &str) -> String {
    let mut decoded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, escape)) = rest.split_once('&') {
        decoded.push_str(before);
        let character = escape.split_once(';').and_then(|(name, after)| Some((character(name)?, after)));
        let (character, after) = character.unwrap_or(('&', escape));
        decoded.push(character);
        rest = after;
    }
    decoded.push_str(rest);
    decoded
}

/// Returns the character that an escape names. `None`: the escape is unknown.
fn character(name: &str) -> Option<char> {
    Some(match name {
        "amp" => '&',
        "lt" => '<',
        "gt" => '>',
        "quot" => '"',
        "apos" => '\'',
        _ => {
            let number = name.strip_prefix('#')?;
            let code = match number.strip_prefix(['x', 'X']) {
                Some(hex) => u32::from_str_radix(hex, 16).ok()?,
                None => number.parse().ok()?,
            };
            char::from_u32(code)?
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(fields: Fields) -> String {
        match fields {
            Ok(fields) => fields
                .iter()
                .filter(|(name, _)| *name != "name")
                .map(|(_, value)| value.as_str().map_or_else(|| value.to_string(), str::to_owned))
                .collect::<Vec<_>>()
                .join("|"),
            Err(answer) => answer.error.map_or_else(|| "resumed".into(), |error| format!("! {error}")),
        }
    }

    /// Returns the requests in a text, line by line, as `action pane command` or the error.
    fn all(text: &str) -> Vec<String> {
        let (mut requests, mut found) = (Requests::default(), Vec::new());
        for line in text.split_inclusive('\n') {
            requests.feed(line);
            found.extend(std::iter::from_fn(|| requests.next(false)).map(said));
        }
        found.extend(std::iter::from_fn(|| requests.next(true)).map(said));
        assert!(!requests.is_open());
        found
    }

    #[test]
    fn tags_span_lines_and_share_them() {
        let seed = "```xml\n<!-- Clone -->\n<capability name=\"tmux\" action=\"send\"\n  pane=\"1.0\"\r\n  \
                    command=\"git clone x && cd repo\" />\n\n<!-- two\nlines <capability action=\"kill\"/> -->\n```\n";
        assert_eq!(all(seed), ["send|git clone x && cd repo|1.0"]);
        let two = "<capability action='kill' pane='0.1'/><capability action='list'></capability> <!-- x --> \
                   <capability action='read'\n/>\n<capability action='list'>\n</capability>\n{\"action\":\"init\"}\n";
        assert_eq!(all(two), ["kill|0.1", "list", "read", "list", "init"]);
        assert_eq!(
            all("<capability action='send' command='<capability action=\"kill\" pane=\"0.0\"/>\n> {'/>"),
            ["send|<capability action=\"kill\" pane=\"0.0\"/>\n> {"]
        );
    }

    #[test]
    fn an_ampersand_that_begins_no_escape_is_itself() {
        for (written, meant) in [
            ("a && b", "a && b"),
            ("a &amp;&amp; b &gt; &quot;c&quot; &#39;d&#x27;", "a && b > \"c\" 'd'"),
            ("a & b; c &amp", "a & b; c &amp"),
            ("&nope; &#xzz; &#1114112;", "&nope; &#xzz; &#1114112;"),
            ("x?a=1&lt=2", "x?a=1&lt=2"),
        ] {
            assert_eq!(unescaped(written), meant);
        }
    }

    /// Requests whose end is unknown.
    const MALFORMED: [&str; 15] = [
        "<capability action=\"send\" command=\"printf \"<br/>",
        "<capability action=\"send\" command=\"echo \"hi\"\"/>",
        "<capability action=\"send\" command=\"a\" b\" c\"/>",
        "{\"action\":\"send\",\"command\":\"awk \"/x/ {print}}",
        "{\"command\":\"echo \"<capability action='kill' pane='0.1'/>\"\"}",
        "<!-- see <br/>",
        "<capability action=\"send\" command=\"a\" b c\"/>",
        "<capability action=\"send\">",
        "<capability action=\"kill\" pane=\"0.1\"",
        "<capability",
        "```xml rm <capability action=\"kill\"",
        "so: {\"action\":\"send\",\"command\":\"cat <<EOF",
        "{\"action\":\"send\",\"command\":\"a \"b",
        "{\"action\":\"send\",\"command\":\"a \\\"}",
        "<!-- no end",
    ];

    /// Requests that are malformed, and end with their line.
    const CLOSED: [&str; 9] = [
        "<capability action=list/>",
        "<capability action=\"kill\" pane=\"0.0\" pane=\"0.1\"/>",
        "<capability action=\"kill\" pane/>",
        "<capability action=\"send\">npm test</capability>",
        "<capabilities/>",
        "rm -rf <capability action=\"kill\" pane=\"0.1\"/>",
        "```xml rm <capability action=\"kill\"/>",
        "{action: \"list\"}",
        "so: {\"action\":\"list\",}",
    ];

    #[test]
    fn tags_behind_a_malformed_one_in_its_line_have_their_responses() {
        let list = "<capability action=\"list\"/>";
        let found = all(&format!("{list} <capability action=list/> {list}{list}\n{list}\n"));
        let [first, malformed, third, fourth, last] = found.as_slice() else { panic!("{found:?}") };
        assert!(first == "list" && last == "list" && malformed.contains("quotes"), "{found:?}");
        assert!(third.contains("Not run") && fourth.contains("Not run"), "{found:?}");
    }

    #[test]
    fn a_malformed_request_that_ends_with_its_line_is_an_error_alone() {
        for closed in CLOSED {
            let found = all(&format!("{closed}\n{{\"action\":\"list\"}}\n"));
            assert!(matches!(found.as_slice(), [error, list] if error.starts_with('!') && list == "list"), "{found:?}");
        }
    }

    #[test]
    fn nothing_behind_a_malformed_request_is_carried_out_until_its_marker_is_sent() {
        let tag = "<capability action=\"kill\" pane=\"0.1\"/>";
        let json = "{\"action\":\"kill\",\"pane\":\"0.1\"}";
        for malformed in MALFORMED {
            for pauses in [false, true] {
                let mut requests = Requests::default();
                requests.feed(malformed);
                let mut found: Vec<_> = std::iter::from_fn(|| requests.next(pauses)).collect();
                for line in [tag, json, "", "text", "</capability>", "\"/>", "'}", "EOF\"}", tag, json] {
                    requests.feed(line);
                    found.extend(std::iter::from_fn(|| requests.next(pauses)));
                }
                found.extend(std::iter::from_fn(|| requests.next(true)));
                assert!(found.iter().all(Result::is_err), "{malformed}: {found:?}");
                let said = found.pop().unwrap().unwrap_err().suggestion.unwrap();
                let resume = said.find("<cap").and_then(|at| said.get(at..=said.find("/>")? + 1)).unwrap();
                requests.feed(resume);
                assert_eq!(said_of(requests.next(false)), "resumed", "{malformed}: {resume}");
                requests.feed(json);
                assert_eq!(said_of(requests.next(false)), "kill|0.1");
            }
        }
    }

    fn said_of(fields: Option<Fields>) -> String {
        fields.map_or_else(String::new, said)
    }

    #[test]
    fn each_request_behind_a_malformed_one_has_its_response() {
        let list = "<capability action=\"list\"/>";
        let found = all(&format!("<capability action=list\n{list}{list}\n{{\"action\":\"list\"}}\nEOF\n\n"));
        assert_eq!(found.len(), 4, "{found:?}");
        assert!(found[0].contains("quotes") && found[1..].iter().all(|found| found.contains("Not run")), "{found:?}");
    }

    #[test]
    fn a_line_in_which_no_request_begins_is_an_error_alone() {
        for line in ["hello", "don't say \"it", "[]", "7", "{\"a\":1,}"] {
            let found = all(&format!("{line}\n{{\"action\":\"list\"}}\n"));
            assert!(matches!(found.as_slice(), [error, list] if error.starts_with('!') && list == "list"), "{found:?}");
        }
        let mut requests = Requests::default();
        requests.feed_bytes(b"{\"action\":\"\xff\"}".to_vec());
        requests.feed("{\"action\":\"list\"}");
        assert!(said_of(requests.next(false)).contains("UTF-8"));
        assert_eq!(said_of(requests.next(false)), "list");
        requests.feed_bytes(b"<capability action='send' command='\xff".to_vec());
        assert!(said_of(requests.next(false)).contains("UTF-8"));
        requests.feed("{\"action\":\"list\"}");
        assert!(said_of(requests.next(false)).contains("Not run"));
    }

    #[test]
    fn a_tag_that_is_too_large_is_refused_with_what_follows() {
        let mut requests = Requests::default();
        requests.feed("<capability action='send' command='");
        assert!(requests.next(false).is_none() && requests.is_open());
        requests.feed(&"x".repeat(OPEN_BYTES));
        assert!(requests.next(false).unwrap().is_err());
        requests.feed("{\"action\":\"kill\",\"pane\":\"0.1\"}");
        assert!(requests.next(false).unwrap().is_err() && requests.next(false).is_none() && !requests.is_open());
    }

    #[test]
    fn a_fence_in_a_tags_line_is_skipped_alone() {
        for text in [
            "```<capability action=\"list\"/>```\n",
            "```xml <capability action=\"list\"/>\n```\n",
            "```xml\n<capability action=\"list\"/>```\n",
            "```json {\"action\":\"list\"}\n```\n",
            "```xml title=x\n{\"action\":\"list\"}\n```",
        ] {
            assert_eq!(all(text), ["list"], "{text}");
        }
    }

    #[test]
    fn a_long_text_is_read_once() {
        let count = 10_000;
        let texts = [
            "</capability>".repeat(5 * count),
            "<capability a=''/>".repeat(count),
            "<capability a='' ".repeat(count),
            "``` ".repeat(count),
            format!("<!--{}-->", "\n".repeat(10 * count)),
            format!("<capability action='send' command='{}'/>", "\n".repeat(10 * count)),
            format!("<capability action{}='send'/>", "\n".repeat(10 * count)),
            format!("<capability action='send'>{}</capability>", "\n".repeat(10 * count)),
        ];
        // Text that is read again for each piece or line would take longer than a test may.
        for text in &texts {
            all(text);
        }
        assert!(one(&"</capability>".repeat(300_000)).unwrap_err().error.unwrap().contains("too large"));
    }

    #[test]
    fn one_request_is_one() {
        assert!(one("<!-- a -->\n<capability action='list'\n/>\n").is_ok());
        for text in ["", "<!-- a -->", "<capability action='list'/><capability action='list'/>", "<capability"] {
            assert!(one(text).is_err(), "{text}");
        }
        for malformed in MALFORMED {
            let refusal = one(malformed).unwrap_err();
            assert!(!refusal.suggestion.unwrap().contains("marker"), "{malformed}");
        }
    }
}
