//! The view's updates from the daemon: one stream of its status, and one of events for each tmux
//! server.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    time::Instant,
};

use muxtap_tmux::same_socket;
use tokio::{sync::mpsc, task::JoinHandle};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::{
    api::{
        AgentInfo, AgentList, Error, Event, EventsRequest, PaneInfo, PaneList, ScreenFormat, StatusAnswer, WaitInfo,
        WaitList,
    },
    cli::{
        caller::Caller,
        client::Client,
        follow::{SHORT, SHORT_ONES},
        watch::Pace,
    },
    protocol::ids::PaneId,
};

/// The events that the view uses.
const EVENTS: &str = "topology,server,pane-opened,pane-exited,title,agent,screen";
/// The maximum number of pending updates. A faster stream waits, and then receives combined events.
const QUEUE: usize = 256;

/// An update.
pub(super) enum News {
    /// The followed servers.
    Status(StatusAnswer),
    /// The open waits.
    Waits(Vec<WaitInfo>),
    /// The panes of the server with this socket.
    Panes(String, Vec<PaneInfo>),
    /// The agents in the server's panes.
    Agents(String, Vec<AgentInfo>),
    /// Something happened on the server with this socket.
    Event(String, Box<Event>),
    /// The daemon was killed; waiting for another one.
    Lost(String),
    /// Connected to another daemon.
    Back,
    /// No more updates will come.
    Ended(String),
}

/// The stream of updates. Dropping it ends its tasks.
pub(super) struct Feed {
    news: mpsc::Receiver<News>,
    _stop: DropGuard,
}

impl Feed {
    /// Connects to the daemon; starts one if none is running.
    pub(super) async fn begin(caller: &Caller) -> Result<Self, Error> {
        let mut client = caller.client().await?;
        // From now on the daemon follows this server. If the server is not running, others may be.
        let own = client.get::<PaneList>("/v1/panes", &()).await;
        if caller.server_is_named {
            own?;
        }
        let (sender, news) = mpsc::channel(QUEUE);
        let stop = CancellationToken::new();
        let only = caller.server_is_named.then(|| caller.server.display().to_string());
        let own = caller.runs_in.as_ref().and_then(|(socket, pane)| Some((socket.into(), pane.parse().ok()?)));
        let source = Source { caller: copy(caller, caller.server.clone()), own, news: sender, stop: stop.clone() };
        tokio::spawn(stop.clone().run_until_cancelled_owned(source.follow_status(only)));
        Ok(Self { news, _stop: stop.drop_guard() })
    }

    /// Returns the next update. `None`: no more will come. Cancel safe.
    pub(super) async fn next(&mut self) -> Option<News> {
        self.news.recv().await
    }
}

fn copy(caller: &Caller, server: PathBuf) -> Caller {
    caller.on_server(server)
}

/// A task that sends updates.
struct Source {
    caller: Caller,
    /// The pane in which the view is drawn, with its server's socket: redrawing because of its own
    /// output would never end.
    own: Option<(PathBuf, PaneId)>,
    news: mpsc::Sender<News>,
    stop: CancellationToken,
}

/// The view has ended.
struct Unwanted;

/// A task that follows one server.
type Follower = JoinHandle<Option<Result<(), Unwanted>>>;

impl Source {
    async fn tell(&self, news: News) -> Result<(), Unwanted> {
        self.news.send(news).await.map_err(|_| Unwanted)
    }

    async fn client(&self) -> Result<Client, Error> {
        self.caller.running().await?.ok_or_else(|| Error::unavailable("the muxtap daemon has exited"))
    }

    /// Follows the daemon, and each tmux server that it follows (or `only` one).
    async fn follow_status(self, only: Option<String>) {
        let mut servers = HashMap::new();
        let mut short_ones = 0;
        loop {
            let begun = Instant::now();
            let why = match self.status(only.as_deref(), &mut servers).await {
                Ok(Ok(())) => {
                    let _ = self.tell(News::Ended("the daemon has ended".to_owned())).await;
                    return;
                }
                Ok(Err(error)) => error.message,
                Err(Unwanted) => return,
            };
            // The daemon rejects the stream, or crashes because of it: retrying would never end.
            short_ones = if begun.elapsed() < SHORT { short_ones + 1 } else { 0 };
            if short_ones > SHORT_ONES {
                let _ = self.tell(News::Ended(why)).await;
                return;
            }
            if self.tell(News::Lost(why)).await.is_err() {
                return;
            }
            if let Err(error) = self.caller.reconnect().await {
                let _ = self.tell(News::Ended(error.message)).await;
                return;
            }
            // The new daemon follows no server until a request needs it.
            for socket in servers.keys() {
                if let Ok(Some(mut client)) = copy(&self.caller, socket.into()).running().await {
                    let _ = client.get_from_same_daemon::<PaneList>("/v1/panes", &()).await;
                }
            }
            if self.tell(News::Back).await.is_err() {
                return;
            }
        }
    }

    /// Reads the daemon's status until its stream ends, normally or not.
    async fn status(
        &self,
        only: Option<&str>,
        servers: &mut HashMap<String, Follower>,
    ) -> Result<Result<(), Error>, Unwanted> {
        let opened = async {
            Ok::<_, Error>((self.client().await?.events("/v1/status/events", &(), None).await?, self.client().await?))
        };
        let (mut stream, mut client) = match opened.await {
            Ok(opened) => opened,
            Err(error) => return Ok(Err(error)),
        };
        loop {
            let mut status = None;
            match stream.next(|data| status = serde_json::from_slice::<StatusAnswer>(data).ok()).await {
                Ok(true) => {}
                Ok(false) => return Ok(Ok(())),
                Err(lost) => return Ok(Err(lost.into())),
            }
            let Some(mut status) = status else { continue };
            status
                .servers
                .retain(|server| only.is_none_or(|only| same_socket(Path::new(only), Path::new(&server.socket))));
            for server in status.servers.iter().filter(|server| server.state == "connected") {
                if servers.get(&server.socket).is_none_or(JoinHandle::is_finished) {
                    let source = Self {
                        caller: copy(&self.caller, PathBuf::from(&server.socket)),
                        own: self.own.clone().filter(|(own, _)| same_socket(own, Path::new(&server.socket))),
                        news: self.news.clone(),
                        stop: self.stop.clone(),
                    };
                    let follow =
                        self.stop.clone().run_until_cancelled_owned(source.follow_server(server.socket.clone()));
                    servers.insert(server.socket.clone(), tokio::spawn(follow));
                }
            }
            self.tell(News::Status(status)).await?;
            match client.get_from_same_daemon::<WaitList>("/v1/waits", &()).await {
                Ok(Ok(list)) => self.tell(News::Waits(list.waits)).await?,
                // A newer daemon may respond differently.
                Ok(Err(_)) => {}
                // If the daemon has exited, normally or not, the stream reports it next.
                Err(_) => {
                    if let Ok(again) = self.client().await {
                        client = again;
                    }
                }
            }
        }
    }

    /// Follows one server until it or the daemon has exited.
    async fn follow_server(self, socket: String) -> Result<(), Unwanted> {
        let request =
            EventsRequest { types: Some(EVENTS.to_owned()), screen: ScreenFormat::Text, ..EventsRequest::default() };
        let opened = async {
            Ok::<_, Error>((self.client().await?.events("/v1/events", &request, None).await?, self.client().await?))
        };
        let Ok((mut stream, mut client)) = opened.await else { return Ok(()) };
        let Ok(Ok(agents)) = client.get_from_same_daemon::<AgentList>("/v1/agents", &()).await else { return Ok(()) };
        self.list(&mut client, &socket).await?;
        self.tell(News::Agents(socket.clone(), agents.agents)).await?;
        let mut pace = Pace::begin();
        loop {
            let mut events = Vec::new();
            let read = tokio::select! {
                // A newer daemon may send events that are unknown here.
                read = stream.next(|data| events.extend(serde_json::from_slice::<Event>(data))) => read,
                () = pace.due() => {
                    pace.looked();
                    self.list(&mut client, &socket).await?;
                    continue;
                }
            };
            for event in events {
                if let Event::Screen { pane, .. } = &event {
                    if self.own.as_ref().is_some_and(|(_, own)| own == pane) {
                        continue;
                    }
                    pace.printed();
                } else {
                    pace.changed();
                }
                self.tell(News::Event(socket.clone(), Box::new(event))).await?;
            }
            if !matches!(read, Ok(true)) {
                return Ok(());
            }
        }
    }

    async fn list(&self, client: &mut Client, socket: &str) -> Result<(), Unwanted> {
        match client.get_from_same_daemon::<PaneList>("/v1/panes", &()).await {
            Ok(Ok(mut list)) => {
                let own = self.own.as_ref().map(|(_, own)| *own);
                list.panes.iter_mut().filter(|pane| Some(pane.id) == own).for_each(|pane| pane.cursor = None);
                self.tell(News::Panes(socket.to_owned(), list.panes)).await
            }
            // The status reports that the server has exited.
            _ => Ok(()),
        }
    }
}
