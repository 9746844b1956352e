use std::{
    io::{Read as _, Write as _},
    os::unix::fs::PermissionsExt as _,
};

use tokio::task::JoinHandle;

use super::*;

/// Time without anything after which it counts as missing.
const LIMIT: Duration = Duration::from_secs(20);

/// A stand-in for a tmux server, whose socket it holds.
struct Server {
    _dir: tempfile::TempDir,
    socket: PathBuf,
    listener: UnixListener,
    /// The user that the server claims to belong to.
    owner: u32,
}

fn own_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

impl Server {
    fn new() -> Self {
        let dir = tempfile::tempdir_in("/tmp").unwrap();
        let socket = dir.path().join("server");
        let listener = UnixListener::bind(&socket).unwrap();
        Self { _dir: dir, socket, listener, owner: own_uid() }
    }

    /// Returns a client that connects to a relay to this server.
    fn client(&self) -> (std::os::unix::net::UnixStream, PathBuf, JoinHandle<Result<(), RelayError>>) {
        let relay = Relay::listen(self.socket.as_path().into(), self.owner).unwrap();
        let place = relay.socket().to_owned();
        let client = std::os::unix::net::UnixStream::connect(&place).unwrap();
        client.set_read_timeout(Some(LIMIT)).unwrap();
        (client, place, tokio::spawn(relay.run()))
    }

    async fn accept(&self) -> UnixStream {
        tokio::time::timeout(LIMIT, self.listener.accept()).await.expect("a client comes").unwrap().0
    }

    /// Returns whether a client waits to be accepted.
    fn has_client(&self) -> bool {
        let mut ready = [rustix::event::PollFd::new(&self.listener, rustix::event::PollFlags::IN)];
        let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        rustix::event::poll(&mut ready, Some(&now)).unwrap() > 0
    }
}

fn message(kind: u32, marks: u16, data: &[u8]) -> Vec<u8> {
    let length = u16::try_from(16 + data.len()).unwrap();
    let words = [8_u32, 4711].map(u32::to_ne_bytes).concat();
    [&kind.to_ne_bytes()[..], &length.to_ne_bytes(), &marks.to_ne_bytes(), &words, data].concat()
}

/// Sends bytes with a descriptor over a socket that blocks.
fn send_with(socket: &std::os::unix::net::UnixStream, bytes: &[u8], descriptor: &OwnedFd) {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors = [descriptor.as_fd()];
    assert!(control.push(SendAncillaryMessage::ScmRights(&descriptors)));
    rustix::net::sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::empty()).unwrap();
}

async fn next(socket: &UnixStream) -> (Vec<u8>, Vec<OwnedFd>) {
    tokio::time::timeout(LIMIT, receive(socket)).await.expect("something comes").unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_server_sees_a_client_only_when_its_introduction_is_complete() {
    let server = Server::new();
    let (mut client, place, relay) = server.client();
    let (mut stdin, theirs) = io::pipe().unwrap();
    let theirs = OwnedFd::from(theirs);
    client.write_all(&message(100, 0, &[0; 4])).unwrap();
    client.write_all(&message(111, 0, &[0; 8])).unwrap();
    send_with(&client, &message(104, 1, b""), &theirs);
    client.write_all(&message(105, 0, b"LANG=C\0")).unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!server.has_client(), "it has only half introduced itself");
    client.write_all(&[message(106, 0, b""), message(200, 0, b"attach\0")].concat()).unwrap();

    let accepted = server.accept().await;
    // A read ends behind a descriptor.
    let (mut bytes, mut descriptors) = (Vec::new(), Vec::new());
    while descriptors.is_empty() {
        let (more, came) = next(&accepted).await;
        bytes.extend(more);
        descriptors.extend(came);
    }
    assert_eq!(bytes, [message(105, 0, b"LANG=C\0"), message(104, 1, b"")].concat());
    assert_eq!(descriptors.len(), 1);
    let last = [message(100, 0, &[0; 4]), message(111, 0, &[0; 8]), message(106, 0, b""), message(200, 0, b"attach\0")];
    assert_eq!(next(&accepted).await.0, last.concat(), "in one read");
    assert!(!place.exists() && !place.parent().unwrap().exists(), "its socket has gone");

    // The descriptor is the client's own, and no other process holds it.
    drop(theirs);
    std::fs::File::from(descriptors.into_iter().next().unwrap()).write_all(b"it is").unwrap();
    let mut text = String::new();
    stdin.read_to_string(&mut text).unwrap();
    assert_eq!(text, "it is");

    // From now on the relay passes bytes both ways.
    let ready = message(207, 0, b"");
    send(&accepted, Write { bytes: ready.clone(), descriptor: None }).await.unwrap();
    let mut answer = vec![0; ready.len()];
    client.read_exact(&mut answer).unwrap();
    assert_eq!(answer, ready);
    client.write_all(b"exiting").unwrap();
    assert_eq!(next(&accepted).await.0, b"exiting");
    drop(client);
    assert_eq!(next(&accepted).await.0, b"", "it has left");
    assert!(relay.await.unwrap().is_ok());
}

/// C9: the server's user is known before the first byte is sent to it.
#[tokio::test]
async fn a_server_of_another_user_is_sent_nothing() {
    let server = Server { owner: own_uid() + 1, ..Server::new() };
    let (mut client, _, relay) = server.client();
    client.write_all(&[message(105, 0, b"API_KEY=secret\0"), message(106, 0, b"")].concat()).unwrap();
    let accepted = server.accept().await;
    assert_eq!(next(&accepted).await.0, b"", "nothing was sent, and the connection has ended");
    let refused = relay.await.unwrap();
    assert!(matches!(refused, Err(RelayError::Stranger(uid)) if uid == own_uid()), "{refused:?}");
    assert_eq!(client.read(&mut [0; 9]).unwrap_or(0), 0);
}

/// C9: the server's messages reach the client only if the client needs them.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_cannot_make_its_client_run_a_command() {
    let server = Server::new();
    let (mut client, _, relay) = server.client();
    client.write_all(&message(106, 0, b"")).unwrap();
    let accepted = server.accept().await;
    assert_eq!(next(&accepted).await.0, message(106, 0, b""));
    let (lock, ready, shell) = (message(206, 0, b"touch /x\0"), message(207, 0, b""), message(209, 0, b"/bin/x\0"));
    send(&accepted, Write { bytes: [lock, ready.clone(), shell].concat(), descriptor: None }).await.unwrap();
    let ended = relay.await.unwrap();
    assert!(matches!(ended, Err(RelayError::Hostile(_))), "{ended:?}");
    let mut received = Vec::new();
    let _ = client.read_to_end(&mut received);
    assert!(received.is_empty() || received == ready, "{received:?}");
    assert_eq!(next(&accepted).await.0, b"", "the server was left");
}

#[tokio::test]
async fn a_client_that_dies_on_its_way_is_never_seen() {
    let server = Server::new();
    for messages in 0..3 {
        let (mut client, place, relay) = server.client();
        let sent = [message(100, 0, &[0; 4]), message(111, 0, &[0; 8]), message(105, 0, b"LANG=C\0")];
        client.write_all(&sent[..messages].concat()).unwrap();
        drop(client);
        assert!(relay.await.unwrap().is_ok(), "it has left, which is no failure of the server");
        assert!(!server.has_client(), "after {messages} messages");
        assert!(!place.exists());
    }
}

#[tokio::test]
async fn the_client_learns_that_the_server_has_gone() {
    let server = Server::new();
    let (mut client, _, relay) = server.client();
    client.write_all(&message(106, 0, b"")).unwrap();
    let accepted = server.accept().await;
    assert_eq!(next(&accepted).await.0, message(106, 0, b""));
    drop(accepted);
    assert!(relay.await.unwrap().is_ok());
    assert_eq!(client.read(&mut [0; 9]).unwrap_or(0), 0);

    let (mut client, _, relay) = server.client();
    std::fs::remove_file(&server.socket).unwrap();
    client.write_all(&message(106, 0, b"")).unwrap();
    let error = relay.await.unwrap().unwrap_err().to_string();
    assert!(error.starts_with("cannot connect to the server: "), "{error}");
    assert_eq!(client.read(&mut [0; 9]).unwrap_or(0), 0);
}

#[tokio::test]
async fn a_client_that_is_no_tmux_is_refused() {
    let server = Server::new();
    let (mut client, _, relay) = server.client();
    client.write_all(&[255; 64]).unwrap();
    assert!(matches!(relay.await.unwrap(), Err(RelayError::Malformed(_))));
    assert!(!server.has_client());
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_go_on_is_let_go() {
    let server = Server::new();
    let (client, _, relay) = server.client();
    assert!(matches!(relay.await.unwrap(), Err(RelayError::Late)));
    drop(client);
    assert!(!server.has_client());
}

#[tokio::test]
async fn the_relay_socket_is_private_and_its_directory_is_removed() {
    let relay = Relay::listen(Path::new("/nowhere").into(), own_uid()).unwrap();
    let directory = relay.socket().parent().unwrap().to_owned();
    assert_eq!(std::fs::metadata(&directory).unwrap().permissions().mode() & 0o7777, 0o700);
    drop(relay);
    assert!(!directory.exists());
    // A place whose path is too long for a socket is skipped.
    assert!(PrivateSocket::make_in(&Path::new("/tmp").join("x".repeat(120))).is_err());
}
