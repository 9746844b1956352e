//! A fleet in a folder of its own, its server, and clients that try what they may.

#![allow(dead_code, reason = "each test uses a part of it")]

use std::{
    collections::BTreeSet,
    io::{BufRead as _, BufReader, Read as _},
    net::TcpListener,
    process::{Child, ChildStderr, Command, Stdio},
};

use async_nats::{Client, ConnectError, ConnectOptions, Event};
use muxtap_api::Tier;
use muxtap_fleet::{
    admin::{Description, Folder, Request},
    subject,
};
use tempfile::TempDir;
use tokio::sync::mpsc;

use super::LIMIT;

/// Returns whether nats-server is in `PATH`; if `CI` is set, it must be.
pub fn is_installed() -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).any(|folder| folder.join("nats-server").is_file());
    let ci = std::env::var_os("CI").is_some_and(|ci| !ci.is_empty());
    assert!(found || !ci, "nats-server is not installed, and CI is set: nothing is skipped there");
    if !found {
        eprintln!("skipped: nats-server is not installed; scripts/setup nats-server installs it");
    }
    found
}

/// A fleet that listens on loopback.
pub struct Fleet {
    pub folder: Folder,
    _top: TempDir,
}

impl Fleet {
    /// Creates one; `None`: nats-server is not installed.
    pub fn new() -> Option<Self> {
        if !is_installed() {
            return None;
        }
        let top = tempfile::tempdir().unwrap();
        let port = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
        let description = Description::new(([127, 0, 0, 1], port).into(), vec!["localhost".into()]);
        let folder = Folder::init(&top.path().join("fleet"), &description).unwrap();
        Some(Self { folder, _top: top })
    }

    pub fn try_add(&self, name: &str, offer: &[Tier], uses: &[Tier], hosts: &[&str]) -> Result<(), String> {
        let hosts: Vec<_> = hosts.iter().map(|host| (*host).to_owned()).collect();
        let added = self.folder.add(Request { name, offer, uses, hosts: &hosts, audit: name.ends_with("-audited") });
        added.map(drop).map_err(|error| error.message)
    }

    pub fn add(&self, name: &str, offer: &[Tier], uses: &[Tier], hosts: &[&str]) {
        self.try_add(name, offer, uses, hosts).unwrap();
    }

    /// Returns what the server prints about its configuration, which must be valid.
    pub fn check_configuration(&self) -> String {
        let output = Command::new("nats-server").arg("-t").arg("-c").arg(self.folder.server()).output().unwrap();
        let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert!(output.status.success(), "{text}");
        text
    }

    /// Starts the server.
    pub fn start(&self) -> Server {
        let port = self.folder.description().unwrap().listen.port();
        let mut command = Command::new("nats-server");
        command.arg("-c").arg(self.folder.server()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let log = BufReader::new(child.stderr.take().unwrap());
        let mut server = Server { child, log, port };
        server.await_line("Server is ready");
        server
    }

    /// Connects as a member whose seed is in the folder.
    pub async fn connect(&self, server: &Server, name: &str) -> Result<Peer, ConnectError> {
        self.connect_with(server, name, self.folder.seed(name).unwrap().unwrap()).await
    }

    pub async fn connect_with(&self, server: &Server, name: &str, seed: String) -> Result<Peer, ConnectError> {
        let (sender, events) = mpsc::unbounded_channel();
        let options = ConnectOptions::new()
            .nkey(seed)
            .custom_inbox_prefix(subject::inbox(name))
            .add_root_certificates(self.folder.authority())
            .require_tls(true)
            .max_reconnects(2)
            .event_callback(move |event| {
                let _ = sender.send(event);
                async {}
            });
        Ok(Peer { client: options.connect(server.url()).await?, events })
    }
}

/// A running server; it is killed at the end.
pub struct Server {
    child: Child,
    log: BufReader<ChildStderr>,
    pub port: u16,
}

impl Server {
    pub fn url(&self) -> String {
        format!("tls://localhost:{}", self.port)
    }

    /// Lets the server read its configuration again, and waits until it has.
    pub fn reload(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::HUP).unwrap();
        self.await_line("Reloaded server configuration");
    }

    /// Kills the server. Returns the rest of its log.
    pub fn end(mut self) -> String {
        self.child.kill().unwrap();
        let mut rest = String::new();
        self.log.read_to_string(&mut rest).unwrap();
        rest
    }

    fn await_line(&mut self, words: &str) {
        let mut seen = String::new();
        let mut line = String::new();
        while self.log.read_line(&mut line).unwrap() > 0 {
            if line.contains(words) {
                return;
            }
            seen += &line;
            line.clear();
        }
        panic!("the server ended: {seen}");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A member's connection.
pub struct Peer {
    pub client: Client,
    events: mpsc::UnboundedReceiver<Event>,
}

impl Peer {
    /// Waits until the server has read everything that was sent.
    pub async fn sync(&self) {
        let absent = self.client.request("$SRV.INFO.muxtap.absent", "".into()).await.unwrap_err();
        assert_eq!(absent.kind(), async_nats::RequestErrorKind::NoResponders, "{absent}");
    }

    /// Publishes to these subjects. Returns those that the server refused.
    pub async fn refused_publishing<'a>(&mut self, subjects: impl IntoIterator<Item = &'a str>) -> BTreeSet<String> {
        let subjects: Vec<_> = subjects.into_iter().collect();
        for subject in &subjects {
            self.client.publish((*subject).to_owned(), "".into()).await.unwrap();
        }
        self.refused(&subjects).await
    }

    /// Subscribes to these subjects. Returns those that the server refused.
    pub async fn refused_subscribing<'a>(&mut self, subjects: impl IntoIterator<Item = &'a str>) -> BTreeSet<String> {
        let subjects: Vec<_> = subjects.into_iter().collect();
        let mut held = Vec::new();
        for subject in &subjects {
            held.push(self.client.subscribe((*subject).to_owned()).await.unwrap());
        }
        self.refused(&subjects).await
    }

    /// Reports come in order: those about `subjects` are there when that about the last one is.
    async fn refused(&mut self, subjects: &[&str]) -> BTreeSet<String> {
        const LAST: &str = "never.permitted";
        self.client.publish(LAST, "".into()).await.unwrap();
        let mut refused = BTreeSet::new();
        loop {
            let event = tokio::time::timeout(LIMIT, self.events.recv()).await.unwrap().unwrap();
            let Event::ServerError(error) = event else { continue };
            let text = error.to_string();
            let about = |subject: &str| text.contains(&format!("\"{subject}\""));
            if about(LAST) {
                return refused;
            }
            let subject = subjects.iter().find(|subject| about(subject));
            refused.insert((*subject.unwrap_or_else(|| panic!("{text}"))).to_owned());
        }
    }

    /// Waits until the connection is closed for good.
    pub async fn closed(&mut self) {
        let closed = async {
            while let Some(event) = self.events.recv().await {
                if matches!(event, Event::Closed | Event::ClientError(_)) {
                    return;
                }
            }
        };
        tokio::time::timeout(LIMIT, closed).await.unwrap();
    }
}
