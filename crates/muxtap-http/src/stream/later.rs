//! The rest of an event stream, from the daemon that has taken over (`docs/upgrade.md`).

use axum::http::request::Parts;
use bytes::Bytes;

use crate::App;

/// The rest of an event stream.
#[cfg(feature = "daemon")]
pub struct Later {
    app: App,
    uri: String,
    /// The targets of the stream, and their panes when the other daemon took over.
    targets: Vec<String>,
    panes: Vec<String>,
    /// Whether the reader is another replaced daemon, which asks its own successor.
    is_relay: bool,
    /// Whether the reader's access can be revoked, of which only the other daemon learns.
    is_revocable: bool,
    /// Whether the end was sent to such a reader.
    is_over: bool,
    /// Only a `Mutex` makes it `Sync`.
    body: Option<(std::sync::Mutex<axum::body::BodyDataStream>, Ids)>,
}

#[cfg(feature = "daemon")]
impl Later {
    /// Returns the rest of the stream that this request has begun.
    pub fn of(app: &App, parts: &Parts, targets: &[String]) -> Self {
        let uri = parts.uri.path_and_query().map_or("/v1/events", |uri| uri.as_str()).to_owned();
        let is_relay = parts.headers.contains_key(muxtap_api::wire::RELAY);
        Self {
            app: app.clone(),
            uri,
            targets: targets.to_vec(),
            panes: Vec::new(),
            is_relay,
            is_revocable: crate::guard::is_revocable(parts),
            is_over: false,
            body: None,
        }
    }

    /// Notes the panes that the stream has: the names of its targets may mean others by now.
    pub fn note_panes(&mut self, panes: Vec<String>) {
        self.panes = panes;
    }

    /// Resolves when another daemon has taken over.
    pub async fn taken_over(&self) {
        self.app.replacing().taken_over().await;
    }

    /// Returns whether another daemon has taken over, once that is decided.
    pub async fn has_begun(&self) -> bool {
        self.app.replacing().decided().await
    }

    /// Returns the next piece of the rest. `last`: the id of the last event.
    pub async fn next(&mut self, last: &mut String) -> Option<Result<Bytes, axum::Error>> {
        use futures_util::StreamExt as _;

        if self.is_revocable {
            // The reader connects again, resumes after its last event, and is authenticated there.
            return None;
        }
        if self.is_relay {
            return (!std::mem::replace(&mut self.is_over, true)).then(|| Ok(Bytes::from_static(MOVED)));
        }
        loop {
            let (body, ids) = match &mut self.body {
                Some(open) => open,
                None => match self.open(last).await {
                    Ok(body) => self.body.insert((body.into(), Ids::default())),
                    Err(_) if self.is_over => return None,
                    Err(error) => {
                        self.is_over = true;
                        let data = serde_json::to_string(&error).unwrap_or_default();
                        return Some(Ok(format!("event: error\ndata: {data}\n\n").into()));
                    }
                },
            };
            match body.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner).next().await {
                Some(Ok(piece)) => {
                    ids.read(&piece, last);
                    return Some(Ok(piece));
                }
                // The other daemon was also replaced.
                None if ids.is_moved => self.body = None,
                None => return None,
                // That daemon has ended between two events: they go on in the one that has taken over from it.
                Some(Err(_)) if ids.is_at_last() => self.body = None,
                Some(Err(error)) => return Some(Err(error)),
            }
        }
    }

    async fn open(&self, last: &str) -> muxtap_api::Result<axum::body::BodyDataStream> {
        use muxtap_api::wire::{LAST_EVENT_ID, RELAY};

        if self.is_over {
            return Err(muxtap_api::Error::unavailable("the stream is over"));
        }
        let headers = [(LAST_EVENT_ID, last), (RELAY, "1")];
        let mut ids: Vec<_> = self.panes.iter().filter(|pane| !self.targets.contains(pane)).cloned().collect();
        if self.targets.is_empty() || self.targets.len() + ids.len() > muxtap_engine::limits::SUBSCRIPTION_TARGETS {
            ids.clear();
        }
        let all =
            if ids.is_empty() { self.uri.clone() } else { with_panes(&self.uri, &[&self.targets[..], &ids].concat()) };
        let mut response = self.app.get_elsewhere_at_last(&all, &headers).await?;
        // A name that was resolved once may be gone. The panes are not.
        if !response.status().is_success() && !ids.is_empty() {
            response = self.app.get_elsewhere_at_last(&with_panes(&self.uri, &ids), &headers).await?;
        }
        if response.status().is_success() {
            return Ok(response.into_body().into_data_stream());
        }
        Err(crate::replace::error_of(response).await)
    }
}

/// Returns the target of a request with other panes in its query.
#[cfg(feature = "daemon")]
fn with_panes(uri: &str, panes: &[String]) -> String {
    let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
    let others = query.split('&').filter(|part| !part.is_empty() && !part.starts_with("panes="));
    let panes = format!("panes={}", muxtap_api::url::encode(&panes.join(",")));
    format!("{path}?{}", others.chain([panes.as_str()]).collect::<Vec<_>>().join("&"))
}

/// The end of a stream whose reader asks the next daemon for the rest.
#[cfg(feature = "daemon")]
const MOVED: &[u8] = b": muxtap-relay\n\n";
/// The most bytes of a line that are looked at.
#[cfg(feature = "daemon")]
const LINE_BYTES: usize = 16 * 1024;

/// Finds the last id in the pieces of a stream.
#[cfg(feature = "daemon")]
#[derive(Debug, Default)]
struct Ids {
    line: Vec<u8>,
    /// Whether the last line says that the stream continues elsewhere.
    is_moved: bool,
    /// Whether the last whole event has an id.
    has_id: bool,
    open: OpenEvent,
}

/// What was read of an event that has not ended.
#[cfg(feature = "daemon")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum OpenEvent {
    /// Nothing but comments.
    #[default]
    Nothing,
    Fields,
    Id,
}

#[cfg(feature = "daemon")]
impl Ids {
    fn read(&mut self, piece: &[u8], last: &mut String) {
        for part in piece.split_inclusive(|byte| *byte == b'\n') {
            let room = LINE_BYTES.saturating_sub(self.line.len());
            self.line.extend(part.iter().take(room));
            if !part.ends_with(b"\n") {
                return;
            }
            let line = std::mem::take(&mut self.line);
            let line = line.strip_suffix(b"\n").unwrap_or(&line);
            if let Some(id) = line.strip_prefix(b"id: ") {
                *last = String::from_utf8_lossy(id).into_owned();
                self.open = OpenEvent::Id;
            } else if line.is_empty() {
                let open = std::mem::take(&mut self.open);
                self.has_id = if open == OpenEvent::Nothing { self.has_id } else { open == OpenEvent::Id };
            } else if !line.starts_with(b":") && self.open == OpenEvent::Nothing {
                self.open = OpenEvent::Fields;
            }
            self.is_moved |= line == MOVED.trim_ascii_end();
        }
    }

    /// Returns whether all that was read ends with the event of the last id.
    fn is_at_last(&self) -> bool {
        self.has_id && self.line.is_empty() && self.open == OpenEvent::Nothing
    }
}

/// The rest of an event stream, which only a daemon has.
#[cfg(not(feature = "daemon"))]
pub struct Later(());

#[cfg(not(feature = "daemon"))]
#[allow(clippy::unused_async, clippy::unused_self, clippy::needless_pass_by_ref_mut, reason = "as with a daemon")]
impl Later {
    /// Returns nothing.
    pub fn of(_: &App, _: &Parts, _: &[String]) -> Self {
        Self(())
    }

    /// Never called.
    pub fn note_panes(&mut self, _: Vec<String>) {}

    /// Never resolves.
    pub async fn taken_over(&self) {
        std::future::pending().await
    }

    /// Returns false.
    pub async fn has_begun(&self) -> bool {
        false
    }

    /// Never called.
    pub async fn next(&mut self, _: &mut String) -> Option<Result<Bytes, axum::Error>> {
        None
    }
}

#[cfg(all(test, feature = "daemon"))]
mod tests {
    use super::*;

    #[test]
    fn panes_replace_those_of_a_request() {
        let panes = ["w:a".to_owned(), "%3".to_owned()];
        assert_eq!(
            with_panes("/v1/events?panes=w%3Aa&types=output", &panes),
            "/v1/events?types=output&panes=w%3Aa%2C%253"
        );
        assert_eq!(with_panes("/v1/events", &panes), "/v1/events?panes=w%3Aa%2C%253");
    }

    #[test]
    fn ids_are_found_however_the_stream_is_cut() {
        let stream = b"id: first\n\nevent: output\ndata: {\"text\":\"id: no\"}\nid: second\n\n:\n\n: muxtap-relay\n\n";
        for cut in 1..stream.len() {
            let (mut ids, mut last) = (Ids::default(), String::new());
            for piece in stream.chunks(cut) {
                // Only the empty line that ends the comment may be left.
                assert!(!ids.is_moved || piece == b"\n", "{cut}");
                ids.read(piece, &mut last);
            }
            assert_eq!((ids.is_moved, last.as_str()), (true, "second"), "{cut}");
        }
    }

    #[test]
    fn an_event_that_is_cut_or_has_no_id_is_noticed() {
        let stream = b"id: first\n\nevent: output\ndata: {}\nid: second\n\n:\n\nevent: bell\ndata: {}\n\n:\n\n";
        for cut in 1..=stream.len() {
            let (mut ids, mut last) = (Ids::default(), String::new());
            let begun = stream.get(..cut).unwrap();
            ids.read(begun, &mut last);
            // At the ends of the events with an id, and in the comment that follows.
            let is_at_last = [11, 46, 48, 49].contains(&cut);
            assert_eq!(ids.is_at_last(), is_at_last, "{cut}: {:?}", std::str::from_utf8(begun));
        }
    }
}
