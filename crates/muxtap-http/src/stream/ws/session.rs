//! One WebSocket from its opening to its end.
//!
//! One task does everything: it reads a request after the response to the previous one, and takes
//! an event from a subscription when the socket accepts more. So the memory for a client is one
//! message and the part of the last ones that the socket has not accepted.

use std::{
    collections::{HashMap, VecDeque},
    future::poll_fn,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use axum::extract::ws::{CloseFrame, Message, close_code};
use futures_util::{
    FutureExt as _, Sink, SinkExt as _, Stream, StreamExt as _,
    future::BoxFuture,
    stream::{self, BoxStream, SelectAll},
};
use tokio::time::{Instant, Interval, MissedTickBehavior};
use tokio_tungstenite::tungstenite;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::MESSAGE_BYTES;

use muxtap_api::{
    Error, ErrorCode, Fields as _, Result, ServerQuery, StreamAnswer, StreamInput, StreamMessage, StreamRequest,
    StreamWait, SubscribeRequest, TargetField, WaitAnswer, words,
};
use muxtap_engine::{Delivery, OwnedWait, Subscription};

use crate::{
    App,
    stream::{CLOSE_LIMIT, OpenStreamGauge, YIELD_BYTES, wire},
};

/// The maximum number of subscriptions of one connection.
const SUBSCRIPTIONS: usize = 64;
/// The time between two pings.
const PING: Duration = Duration::from_secs(15);
/// How long a peer may be silent after a ping before it counts as disconnected.
const PONG_LIMIT: Duration = Duration::from_secs(45);

/// Serves a WebSocket. `server`: the tmux server of requests that name none.
pub(super) async fn run<S: Socket>(socket: S, app: App, server: ServerQuery) {
    let _gauge = OpenStreamGauge::new();
    let mut session = Session::new(socket, app, server);
    let end = session.serve().await;
    let Session { mut socket, .. } = session;
    let goodbye = async {
        if let Some(frame) = end {
            // The peer may have disconnected; further requests get no response.
            let _ = socket.send(Message::Close(Some(frame))).await;
        }
        while let Some(Ok(_)) = socket.next().await {}
    };
    // A peer that does not reply was sent the reason all the same.
    let _ = tokio::time::timeout(CLOSE_LIMIT, goodbye).await;
}

/// A session's transport.
pub(super) trait Socket:
    Stream<Item = std::result::Result<Message, axum::Error>> + Sink<Message, Error = axum::Error> + Send + Unpin
{
}

impl<S> Socket for S where
    S: Stream<Item = std::result::Result<Message, axum::Error>> + Sink<Message, Error = axum::Error> + Send + Unpin
{
}

struct Session<S> {
    socket: S,
    app: App,
    server: ServerQuery,
    subscriptions: HashMap<u64, ActiveSubscription>,
    /// The number of subscriptions so far.
    subscription_count: u64,
    /// The open waits by their numbers.
    waits: HashMap<u64, ActiveWait>,
    /// Events of subscriptions, and results of waits.
    events: SelectAll<BoxStream<'static, Item>>,
    /// The outcome of the current request.
    request: Option<BoxFuture<'static, Outcome>>,
    /// Messages that are sent before another event is taken.
    answers: VecDeque<Message>,
    /// An event that is sent next.
    event: Option<Message>,
    /// Whether the socket holds unflushed messages.
    unflushed: bool,
    ping: Interval,
    /// The state of the next ping. Unlike a response, a pending ping does not delay requests.
    pinging: Pinging,
    /// When the first ping since the peer's last message was flushed.
    unanswered: Option<Instant>,
    stopping: BoxFuture<'static, ()>,
}

/// The state of the next ping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pinging {
    /// No ping is due.
    Idle,
    /// A ping waits until the socket accepts it.
    Due,
    /// The socket has accepted the ping and not flushed it yet.
    Written,
}

/// The session's side of a subscription.
struct ActiveSubscription {
    /// Distinguishes this subscription from an earlier one with the same id.
    number: u64,
    binary: bool,
    end: CancellationToken,
}

/// The session's side of a wait. Dropping it cancels the wait.
struct ActiveWait {
    cancel: CancellationToken,
    _dropped: DropGuard,
}

/// An item that a subscription or a wait has for the client.
enum Item {
    /// An event of a subscription, or its end: the subscription's id and number.
    Delivery(u64, u64, Result<Delivery>),
    /// The result of a wait: the wait's id.
    Waited(u64, Result<Box<WaitAnswer>>),
}

/// The outcome of a request.
enum Outcome {
    Answer(StreamMessage),
    Subscribed { id: u64, binary: bool, subscription: Box<Subscription> },
    Waiting { id: u64, wait: OwnedWait },
}

/// Takes the host out of a request's targets, when the hosts are known that they may name. Returns the
/// tmux server that the request selects. `visit`: passes each target of the request to its argument.
async fn placed(
    app: &App,
    mut at: ServerQuery,
    mut visit: impl FnMut(&mut dyn FnMut(TargetField<'_>)) + Send,
) -> Result<muxtap_engine::Server> {
    app.engine.await_hosts(&at, &mut visit).await;
    app.engine.place(&mut at, visit)?;
    crate::server(app, &at)
}

/// The next step of a session.
enum Step {
    Received(Option<std::result::Result<Message, axum::Error>>),
    Done(Outcome),
    Event(Item),
    Ping,
    Stop,
    /// The socket accepts nothing more.
    Lost,
}

impl<S: Socket> Session<S> {
    fn new(socket: S, app: App, server: ServerQuery) -> Self {
        let mut ping = tokio::time::interval_at(Instant::now() + PING, PING);
        ping.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let engine = app.engine.clone();
        Self {
            socket,
            app,
            server,
            subscriptions: HashMap::new(),
            subscription_count: 0,
            waits: HashMap::new(),
            events: SelectAll::new(),
            request: None,
            answers: VecDeque::new(),
            event: None,
            unflushed: false,
            ping,
            pinging: Pinging::Idle,
            unanswered: None,
            stopping: async move { engine.stopping().await }.boxed(),
        }
    }

    /// Serves until the session ends. Returns the close frame to send, if the peer can still read
    /// it.
    async fn serve(&mut self) -> Option<CloseFrame> {
        let mut unyielded = 0;
        loop {
            if unyielded >= YIELD_BYTES {
                unyielded = 0;
                tokio::task::yield_now().await;
            }
            match poll_fn(|cx| self.poll_step(cx)).await {
                Step::Stop if self.app.engine.waits_have_left() => {
                    return Some(close(close_code::RESTART, "another muxtap daemon has taken over: connect again"));
                }
                Step::Stop => return Some(close(close_code::AWAY, "muxtap is stopping")),
                Step::Lost | Step::Received(None) => return None,
                Step::Received(Some(Err(error))) => return close_frame(&error),
                Step::Received(Some(Ok(message))) => {
                    self.unanswered = None;
                    match message {
                        Message::Text(text) => self.handle_request(&text),
                        Message::Binary(_) => {
                            self.answer(&refused(None, "message: expected a text frame, got a binary one"));
                        }
                        Message::Ping(_) | Message::Pong(_) => {}
                        Message::Close(_) => return None,
                    }
                }
                Step::Done(outcome) => self.finish_request(outcome),
                Step::Event(Item::Delivery(id, number, delivery)) => unyielded += self.send_event(id, number, delivery),
                Step::Event(Item::Waited(id, result)) => self.send_result(id, result),
                Step::Ping => {
                    let silent = self.unanswered.is_some_and(|since| since.elapsed() >= PONG_LIMIT);
                    // The socket is not read while a request or a response is pending, so a pong
                    // may wait unread.
                    if silent && self.request.is_none() && self.answers.is_empty() {
                        return Some(close(close_code::POLICY, "no pong received"));
                    }
                    if self.pinging == Pinging::Idle {
                        self.pinging = Pinging::Due;
                    }
                }
            }
        }
    }

    fn poll_step(&mut self, cx: &mut Context<'_>) -> Poll<Step> {
        if self.stopping.poll_unpin(cx).is_ready() {
            return Poll::Ready(Step::Stop);
        }
        if self.ping.poll_tick(cx).is_ready() {
            return Poll::Ready(Step::Ping);
        }
        let accepts_request = self.request.is_none() && self.answers.is_empty();
        if let Some(request) = &mut self.request {
            if let Poll::Ready(outcome) = request.poll_unpin(cx) {
                self.request = None;
                return Poll::Ready(Step::Done(outcome));
            }
        } else if accepts_request && let Poll::Ready(received) = self.socket.poll_next_unpin(cx) {
            return Poll::Ready(Step::Received(received));
        }
        let written = self.poll_write(cx);
        if !accepts_request && self.request.is_none() && self.answers.is_empty() {
            // All responses are written, so the next request can be read.
            cx.waker().wake_by_ref();
        }
        written
    }

    /// Writes pending messages, and takes an event when the socket accepts more.
    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<Step> {
        loop {
            if ready!(self.socket.poll_ready_unpin(cx)).is_err() {
                return Poll::Ready(Step::Lost);
            }
            // The event first: the response to `unsubscribe` may be waiting, and no event comes
            // after that.
            let message = self.event.take().or_else(|| self.answers.pop_front()).or_else(|| self.due_ping());
            if let Some(message) = message {
                if self.socket.start_send_unpin(message).is_err() {
                    return Poll::Ready(Step::Lost);
                }
                self.unflushed = true;
                continue;
            }
            // An empty set is ready with nothing.
            if let Poll::Ready(Some(item)) = Pin::new(&mut self.events).poll_next(cx) {
                return Poll::Ready(Step::Event(item));
            }
            if !self.unflushed {
                return Poll::Pending;
            }
            if ready!(self.socket.poll_flush_unpin(cx)).is_err() {
                return Poll::Ready(Step::Lost);
            }
            self.unflushed = false;
            if self.pinging == Pinging::Written {
                self.pinging = Pinging::Idle;
                self.unanswered.get_or_insert_with(Instant::now);
            }
            return Poll::Pending;
        }
    }

    /// Takes the ping that is due.
    fn due_ping(&mut self) -> Option<Message> {
        (self.pinging == Pinging::Due).then(|| {
            self.pinging = Pinging::Written;
            Message::Ping(bytes::Bytes::new())
        })
    }

    fn answer(&mut self, message: &StreamMessage) {
        let message = match message {
            StreamMessage::Failed { id, error } => {
                let mut error = error.clone();
                error.message = words::for_programs(&error.message);
                &StreamMessage::Failed { id: *id, error }
            }
            other => other,
        };
        self.answers.push_back(wire::write(message));
    }

    /// Begins to carry out a request.
    fn handle_request(&mut self, text: &str) {
        if text.len() > MESSAGE_BYTES {
            let message = format!("message: {} bytes; at most {MESSAGE_BYTES}", text.len());
            let error = Error::new(ErrorCode::ResourceLimit, message);
            return self.answer(&StreamMessage::Failed { id: None, error });
        }
        match wire::read(text) {
            Err(answer) => self.answer(&answer),
            Ok(StreamRequest::Ping(ping)) => self.answer(&wire::answer(ping.id, Ok(StreamAnswer::Nothing {}))),
            Ok(StreamRequest::Unsubscribe(request)) => {
                let (id, ended) = (request.id, self.end(request.id));
                let answer = ended.then_some(StreamAnswer::Nothing {});
                let answer = answer.ok_or_else(|| Error::not_found(format!("unknown subscription {id}")));
                self.answer(&wire::answer(Some(id), answer));
            }
            Ok(StreamRequest::Subscribe(request)) => self.subscribe(request),
            Ok(StreamRequest::Input(input)) => self.input(input),
            Ok(StreamRequest::Wait(wait)) => self.wait(*wait),
            Ok(StreamRequest::Cancel(request)) => {
                // Its result comes all the same: the wait may have ended meanwhile.
                let (id, wait) = (request.id, self.waits.get(&request.id));
                let answer = wait.map(|wait| wait.cancel.cancel()).map(|()| StreamAnswer::Nothing {});
                let answer = answer.ok_or_else(|| Error::not_found(format!("no open wait has the id {id}")));
                self.answer(&wire::answer(Some(id), answer));
            }
        }
    }

    fn subscribe(&mut self, mut request: SubscribeRequest) {
        let id = request.id;
        if self.subscriptions.contains_key(&id) {
            let error =
                Error::new(ErrorCode::Conflict, format!("id: subscription {id} is active; end it or use another id"));
            return self.answer(&failed(id, error));
        }
        if self.subscriptions.len() >= SUBSCRIPTIONS {
            let message = format!(
                "too many subscriptions: at most {SUBSCRIPTIONS} per connection; end one, or open another connection"
            );
            return self.answer(&failed(id, Error::new(ErrorCode::ResourceLimit, message)));
        }
        let (app, at) = (self.app.clone(), self.at(request.socket.take()));
        let binary = request.binary;
        self.run_on_engine(async move {
            let subscribed = async {
                let server = placed(&app, at, |visit| request.visit_targets(visit)).await?;
                server.subscribe(&request).await
            };
            match subscribed.await {
                Ok(subscription) => Outcome::Subscribed { id, binary, subscription: Box::new(subscription) },
                Err(error) => Outcome::Answer(failed(id, error)),
            }
        });
    }

    fn input(&mut self, mut input: StreamInput) {
        let (app, at) = (self.app.clone(), self.at(input.socket.take()));
        self.run_on_engine(async move {
            let (id, mut pane) = (input.id, std::mem::take(&mut input.pane));
            let typed = async {
                let server = placed(&app, at, |visit| visit(TargetField::One(&mut pane))).await?;
                server.input(&pane, &input.into_request()).await
            };
            Outcome::Answer(wire::answer(id, typed.await.map(StreamAnswer::Typed)))
        });
    }

    fn wait(&mut self, mut wait: StreamWait) {
        let id = wait.id;
        if self.waits.contains_key(&id) {
            let message = format!("id: wait {id} is open; cancel it or use another id");
            return self.answer(&failed(id, Error::new(ErrorCode::Conflict, message)));
        }
        let (app, at) = (self.app.clone(), self.at(wait.socket.take()));
        self.run_on_engine(async move {
            let begun = async {
                let server = placed(&app, at, |visit| wait.request.visit_targets(visit)).await?;
                server.begin_wait(&wait.request).await
            };
            match begun.await {
                Ok(wait) => Outcome::Waiting { id, wait },
                Err(error) => Outcome::Answer(failed(id, error)),
            }
        });
    }

    /// Runs a request on the engine's own thread, where it completes even if the client
    /// disconnects.
    fn run_on_engine(&mut self, what: impl Future<Output = Outcome> + Send + 'static) {
        let asked = self.app.daemon.streams.engine_runtime.spawn(what);
        self.request = Some(
            async move {
                asked.await.unwrap_or_else(|_| {
                    Outcome::Answer(StreamMessage::Failed {
                        id: None,
                        error: Error::internal("the request was not executed"),
                    })
                })
            }
            .boxed(),
        );
    }

    /// Returns the tmux server of a request that names this one, or no server.
    fn at(&self, named: Option<String>) -> ServerQuery {
        let mut at = self.server.clone();
        at.socket = named.or(at.socket);
        at
    }

    fn finish_request(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Answer(message) => self.answer(&message),
            Outcome::Subscribed { id, binary, mut subscription } => {
                let (panes, resume) = (subscription.panes(), subscription.resume_token());
                self.answer(&wire::answer(Some(id), Ok(StreamAnswer::Subscribed { panes, resume })));
                self.subscription_count += 1;
                let (number, end) = (self.subscription_count, CancellationToken::new());
                let events = stream::unfold(subscription, async |mut subscription| {
                    let delivery = subscription.next().await?;
                    Some((delivery, subscription))
                });
                let events = events
                    .map(move |delivery| Item::Delivery(id, number, delivery))
                    .take_until(end.clone().cancelled_owned());
                self.events.push(events.boxed());
                self.subscriptions.insert(id, ActiveSubscription { number, binary, end });
            }
            Outcome::Waiting { id, wait } => {
                self.answer(&wire::answer(Some(id), Ok(StreamAnswer::Waiting { wait: wait.id().to_owned() })));
                let cancel = CancellationToken::new();
                let (cancelled, dropped) = (cancel.clone().cancelled_owned(), cancel.clone().drop_guard());
                // Queries of tmux for a result run on the engine's own thread.
                let result = self.app.daemon.streams.engine_runtime.spawn(async move {
                    tokio::select! {
                        result = wait.result() => result,
                        () = cancelled => {
                            wait.cancel();
                            wait.result().await
                        }
                    }
                });
                let result = result.map(move |result| {
                    let result = result.map_err(|_| Error::internal("a wait ended without a result"));
                    Item::Waited(id, result.map(Box::new))
                });
                self.events.push(stream::once(result).boxed());
                self.waits.insert(id, ActiveWait { cancel, _dropped: dropped });
            }
        }
    }

    /// Sends an event of a subscription. Returns its length in bytes.
    fn send_event(&mut self, id: u64, number: u64, delivery: Result<Delivery>) -> usize {
        let Some(active) = self.subscriptions.get(&id).filter(|active| active.number == number) else { return 0 };
        let message = match delivery {
            Ok(delivery) => wire::event(id, &delivery, active.binary),
            Err(error) => {
                self.end(id);
                wire::write(&StreamMessage::Ended { sub: id, error })
            }
        };
        let length = match &message {
            Message::Text(text) => text.len(),
            Message::Binary(bytes) => bytes.len(),
            _ => 0,
        };
        self.event = Some(message);
        length
    }

    /// Sends the result of a wait.
    fn send_result(&mut self, id: u64, result: Result<Box<WaitAnswer>>) {
        self.waits.remove(&id);
        self.event = Some(wire::write(&match result {
            Ok(result) => StreamMessage::Waited { wait: id, result },
            Err(error) => failed(id, error),
        }));
    }

    /// Ends a subscription. Returns whether it ran.
    fn end(&mut self, id: u64) -> bool {
        let ended = self.subscriptions.remove(&id);
        ended.inspect(|active| active.end.cancel()).is_some()
    }
}

fn failed(id: u64, error: Error) -> StreamMessage {
    StreamMessage::Failed { id: Some(id), error }
}

fn refused(id: Option<u64>, message: &str) -> StreamMessage {
    StreamMessage::Failed { id, error: Error::invalid(message) }
}

fn close(code: u16, reason: &'static str) -> CloseFrame {
    CloseFrame { code, reason: reason.into() }
}

/// Returns the close frame for a peer that violated the protocol; `None` for one that has
/// disconnected.
fn close_frame(error: &axum::Error) -> Option<CloseFrame> {
    let cause = std::error::Error::source(error).and_then(|cause| cause.downcast_ref::<tungstenite::Error>());
    match cause? {
        tungstenite::Error::Capacity(_) => Some(close(close_code::SIZE, "the message is too large")),
        tungstenite::Error::Utf8(_) => Some(close(close_code::INVALID, "a text frame is not UTF-8")),
        tungstenite::Error::Protocol(tungstenite::error::ProtocolError::ResetWithoutClosingHandshake) => None,
        tungstenite::Error::Protocol(_) => Some(close(close_code::PROTOCOL, "protocol violation (RFC 6455)")),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
