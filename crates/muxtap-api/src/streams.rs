//! Requests of subscribers, and the messages of the WebSocket `GET /v1/stream`. `docs/http.md`
//! describes the protocol.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{Error, Event, EventKind, InputAnswer, InputRequest, ReadFormat, Result, WaitAnswer, WaitRequest};

/// The contents of `screen` events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ScreenFormat {
    /// The numbers of the changed rows.
    #[default]
    Rows,
    /// Also the rows' text, as `capture-pane -p` prints it.
    Text,
    /// The rows' text with colors and attributes, as `capture-pane -p -e` prints each row alone.
    Ansi,
}

/// The query of `GET /v1/events`: subscribes to events.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams, ToSchema)]
#[into_params(parameter_in = Query)]
pub struct EventsRequest {
    /// Comma-separated targets (at most 256); a `*` in a session's or window's name stands for any
    /// characters; absent: all panes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub panes: Option<String>,
    /// Comma-separated event types; absent: all but `output` and `screen`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub types: Option<String>,
    /// For `output` events: the form of their payload.
    #[serde(default)]
    pub format: ReadFormat,
    /// For `screen` events: their contents.
    #[serde(default)]
    pub screen: ScreenFormat,
    /// Begin each pane's output here: `now` (default), `start`, `input`, `lines:N`, how long ago
    /// (`90s`, `10m`), or, with one pane's id as `panes`, a cursor. A named pane that has ended
    /// yields its remaining output and then `pane-exited`, which ends the stream of a follower.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// Continue after the event with this `id`. The header `Last-Event-ID` takes precedence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resume: Option<String>,
}

/// Selects a subscriber's events; in a query its lists are separated by commas.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SubscribeRequest {
    /// The subscription's number: `sub` in its events.
    pub id: u64,
    /// The tmux server, by the absolute path of its socket; absent: the one in the request that
    /// opened the WebSocket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket: Option<String>,
    /// Targets (at most 256); a `*` in a session's or window's name stands for any characters;
    /// empty: all panes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub panes: Vec<String>,
    /// Event types; empty: all but `output` and `screen`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub types: Vec<EventKind>,
    /// For `output` events: the form of their payload.
    #[serde(default)]
    pub format: ReadFormat,
    /// With `format: raw`: output is sent in binary frames.
    #[serde(default)]
    pub binary: bool,
    /// For `screen` events: their contents.
    #[serde(default)]
    pub screen: ScreenFormat,
    /// Begin each pane's output here, as for `GET /v1/events`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// Continue at the position of this `resume` token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resume: Option<String>,
}

impl TryFrom<EventsRequest> for SubscribeRequest {
    type Error = Error;

    fn try_from(request: EventsRequest) -> Result<Self> {
        let EventsRequest { panes, types, format, screen, since, resume } = request;
        let panes = items(&panes.unwrap_or_default()).map(str::to_owned).collect();
        let types = items(&types.unwrap_or_default()).map(str::parse).collect::<Result<_>>()?;
        Ok(Self { panes, types, format, screen, since, resume, ..Self::default() })
    }
}

/// Returns the items between commas. A comma in braces, as in `{role=build,team=a}`, is part of its
/// item.
pub fn items(list: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(list);
    let split = std::iter::from_fn(move || {
        let text = rest?;
        let braces = braces_end(text);
        let comma = text.get(braces..).and_then(|behind| behind.find(','));
        let (item, behind) = comma.and_then(|at| text.split_at_checked(braces + at)).unwrap_or((text, ""));
        rest = behind.strip_prefix(',');
        Some(item.trim())
    });
    split.filter(|item| !item.is_empty())
}

/// Returns the end of the braces that a list's first item consists of, after its host; 0 without
/// them. Other braces are part of a name.
fn braces_end(list: &str) -> usize {
    let start = list.trim_start();
    let target = match start.split_once('/') {
        Some((host, target)) if !host.contains([',', '{']) => target,
        _ => start,
    };
    let braces = target.split_inclusive('}').next().filter(|braces| braces.starts_with('{') && braces.contains('='));
    braces.filter(|braces| braces.ends_with('}')).map_or(0, |braces| list.len() - target.len() + braces.len())
}

/// Ends a subscription.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UnsubscribeRequest {
    /// The subscription's number.
    pub id: u64,
}

/// Types into a pane, as `POST /v1/panes/{pane}/input` does.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StreamInput {
    /// The number that the response repeats.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<u64>,
    /// The tmux server; absent: the one in the request that opened the WebSocket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket: Option<String>,
    /// The pane.
    pub pane: String,
    /// Keys by tmux's names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keys: Option<Vec<String>>,
    /// Text, typed literally.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Bytes in hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hex: Option<String>,
    /// With `text`: paste it.
    #[serde(default)]
    pub paste: bool,
    /// Then press Enter, and check that something happened.
    #[serde(default)]
    pub submit: bool,
}

impl StreamInput {
    /// Returns the input to type.
    pub fn into_request(self) -> InputRequest {
        let Self { keys, text, hex, paste, submit, .. } = self;
        InputRequest { keys, text, hex, paste, submit, run: None }
    }
}

/// Begins a wait, as `POST /v1/waits` does. The wait ends with the connection.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StreamWait {
    /// The wait's number: `wait` in its result.
    pub id: u64,
    /// The tmux server; absent: the one in the request that opened the WebSocket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket: Option<String>,
    /// The panes and the predicates; without `detach`.
    #[serde(flatten)]
    pub request: WaitRequest,
}

/// Cancels a wait.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CancelRequest {
    /// The wait's number.
    pub id: u64,
}

/// Requests a response, and nothing else.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PingRequest {
    /// The number that the response repeats.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<u64>,
}

/// A message of a client of `GET /v1/stream`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "op", rename_all = "lowercase")]
pub enum StreamRequest {
    /// Subscribes.
    Subscribe(SubscribeRequest),
    /// Ends a subscription.
    Unsubscribe(UnsubscribeRequest),
    /// Types into a pane.
    Input(StreamInput),
    /// Begins a wait.
    Wait(Box<StreamWait>),
    /// Cancels a wait.
    Cancel(CancelRequest),
    /// Requests a response.
    Ping(PingRequest),
}

/// A message of the daemon on `GET /v1/stream`: the response to a request (`ok` or `error`, with
/// the request's `id`), an event of a subscription (`sub`), or a wait's result (`wait`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum StreamMessage {
    /// Something happened.
    #[schema(title = "Event")]
    Event {
        /// The subscription's number.
        sub: u64,
        /// The event.
        event: Event,
        /// The position at which to continue after the event, if the event changes it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        resume: Option<String>,
    },
    /// A subscription ended with an error.
    #[schema(title = "Ended")]
    Ended {
        /// The subscription's number.
        sub: u64,
        /// The error.
        error: Error,
    },
    /// A wait has ended.
    #[schema(title = "Waited")]
    Waited {
        /// The wait's number.
        wait: u64,
        /// Its result, as the response to `POST /v1/waits`.
        result: Box<WaitAnswer>,
    },
    /// A request was carried out.
    #[schema(title = "Done")]
    Done {
        /// The request's number.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<u64>,
        /// The result.
        ok: StreamAnswer,
    },
    /// A request failed.
    #[schema(title = "Failed")]
    Failed {
        /// The request's number.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<u64>,
        /// The error.
        error: Error,
    },
}

/// The result of a request on `GET /v1/stream`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum StreamAnswer {
    /// The result of `subscribe`.
    #[schema(title = "Subscribed")]
    Subscribed {
        /// The panes that are followed from now on.
        panes: Vec<String>,
        /// Where the subscription begins.
        resume: String,
    },
    /// The result of `wait`: the wait has begun.
    #[schema(title = "Waiting")]
    Waiting {
        /// The wait's id for `GET /v1/waits` and `GET /v1/waits/{id}`.
        wait: String,
    },
    /// The result of `input`.
    Typed(InputAnswer),
    /// The result of the other requests.
    #[schema(title = "Nothing")]
    Nothing {},
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(request: serde_json::Value) -> std::result::Result<StreamRequest, String> {
        serde_json::from_value(request).map_err(|error| error.to_string())
    }

    #[test]
    fn a_comma_in_a_selector_is_part_of_it() {
        for (list, read) in [
            ("", &[][..]),
            (",a, b ,", &["a", "b"]),
            ("{a=1,b!=2}", &["{a=1,b!=2}"]),
            ("x, box/{a=1,b=2},y", &["x", "box/{a=1,b=2}", "y"]),
            ("{a=/,b=1},z", &["{a=/,b=1}", "z"]),
            // Braces in names, and those of tmux's words.
            ("a{,b}=", &["a{", "b}="]),
            ("{last},{a", &["{last}", "{a"]),
            ("{a,b=1", &["{a", "b=1"]),
        ] {
            assert_eq!(items(list).collect::<Vec<_>>(), read, "{list:?}");
        }
    }

    #[test]
    fn requests_are_read_by_their_op_and_strangers_are_refused() {
        let StreamRequest::Subscribe(subscribe) =
            read(json!({"op": "subscribe", "id": 1, "panes": ["w*"], "types": ["pane-exited"], "screen": "ansi"}))
                .unwrap()
        else {
            panic!("another op")
        };
        assert_eq!((subscribe.id, subscribe.types), (1, vec![EventKind::PaneExited]));
        let input = read(json!({"op": "input", "pane": "%3", "text": "x", "submit": true})).unwrap();
        let StreamRequest::Input(input) = input else { panic!("another op") };
        assert_eq!(
            input.into_request(),
            InputRequest { text: Some("x".into()), submit: true, ..InputRequest::default() }
        );
        assert!(read(json!({"op": "ping"})).is_ok());
        for (request, says) in [
            (json!({"op": "shout"}), "unknown variant `shout`"),
            (json!({"id": 1}), "missing field `op`"),
            (json!({"op": "subscribe", "id": 1, "pane": "%0"}), "unknown field `pane`"),
            (json!({"op": "subscribe"}), "missing field `id`"),
            (json!({"op": "input", "pane": "%0", "kyes": []}), "unknown field `kyes`"),
            (json!({"op": "ping", "id": -1}), "invalid value"),
            (json!({"op": "subscribe", "id": 1, "types": ["outputs"]}), "unknown variant `outputs`"),
        ] {
            let error = read(request).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
    }

    #[test]
    fn a_query_has_the_same_as_lists() {
        let query = EventsRequest {
            panes: Some(" work:* ,%3,".into()),
            types: Some("output,gap".into()),
            ..EventsRequest::default()
        };
        let request = SubscribeRequest::try_from(query).unwrap();
        assert_eq!(request.panes, ["work:*", "%3"]);
        assert_eq!(request.types, [EventKind::Output, EventKind::Gap]);
        let unknown = EventsRequest { types: Some("output,gaps".into()), ..EventsRequest::default() };
        let error = SubscribeRequest::try_from(unknown).unwrap_err().message;
        assert!(error.starts_with("types: unknown event type \"gaps\""), "{error}");
    }
}
