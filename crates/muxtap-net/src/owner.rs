//! The user at the other end of a TCP connection within this machine.
//!
//! Linux lists its sockets in `/proc/net/tcp` and `/proc/net/tcp6`, each with the user that created
//! it (proc(5)). The peer of an accepted connection is the socket with the connection's own
//! addresses swapped. A socket that no process holds (closed, `TIME_WAIT`) is listed with inode 0
//! and user 0, so only a socket with an inode counts: a caller that sends a request and closes
//! immediately does not pass for root.

use std::{
    collections::HashMap,
    fmt,
    fs::File,
    io::{self, BufRead as _, BufReader, Read as _},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    os::fd::AsFd,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OnceCell, Semaphore, oneshot},
    time::timeout,
};

/// The files in which Linux lists TCP sockets. An IPv6 socket may have an IPv4 address.
const TABLES: [&str; 2] = ["/proc/net/tcp", "/proc/net/tcp6"];
/// The most bytes of one table that are read: some 400,000 sockets.
const TABLE_BYTES: u64 = 64 * 1024 * 1024;
/// The number of concurrent readings of the tables, for all connections.
const READERS: usize = 1;
/// Owner lookups that may be pending at once.
const LOOKUPS: usize = 128;
/// The time limit for finding a connection's owner, among those looked up at once. Two readings are
/// short, but the thread that starts them and receives their results may be busy with a thousand
/// waits.
const OWNER_LIMIT: Duration = Duration::from_secs(30);
/// The number of users in a user namespace that has all users: the machine's own.
const ALL_USERS: u64 = u32::MAX as u64;

static READING: Semaphore = Semaphore::const_new(READERS);
static LOOKING: Semaphore = Semaphore::const_new(LOOKUPS);
/// The lookups for the next reading.
static WAITING: Mutex<Vec<Lookup>> = Mutex::new(Vec::new());

/// The user at the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// The user that created the peer's open socket.
    User(u32),
    /// The peer is not listed as an open socket of a known user: it was closed, or its user has no
    /// number in this user namespace.
    Unlisted,
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User(user) => write!(f, "user {user}"),
            Self::Unlisted => {
                f.write_str("an unknown user (the connection was closed, or its user has no ID in this user namespace)")
            }
        }
    }
}

/// The two ends of an accepted connection: an extension of each of its requests.
#[derive(Debug)]
pub struct Ends {
    own: Option<(SocketAddr, u64)>,
    peer: SocketAddr,
    found: OnceCell<Owner>,
}

impl Ends {
    /// Records the ends of an accepted connection.
    pub(super) fn of(stream: &TcpStream, peer: SocketAddr) -> Self {
        let own = stream.local_addr().ok().zip(inode(stream));
        Self { own: own.map(|(addr, inode)| (canonical(addr), inode)), peer: canonical(peer), found: OnceCell::new() }
    }

    /// Returns the user at the other end. The first call looks it up, within 30 s; later calls
    /// return the same value. [`Owner::Unlisted`] if the system does not report it, which
    /// [`is_told`] determines beforehand.
    pub async fn owner(&self) -> Owner {
        let look_up = async {
            let Some((own, inode)) = self.own else { return Owner::Unlisted };
            let Ok(_looking) = LOOKING.acquire().await else { return Owner::Unlisted };
            let found = timeout(OWNER_LIMIT, look_up(own, inode, self.peer)).await;
            found.ok().flatten().unwrap_or(Owner::Unlisted)
        };
        *self.found.get_or_init(|| look_up).await
    }
}

/// Waits until fewer than [`LOOKUPS`] owner lookups are pending. A connection counts as
/// unauthenticated until its owner is found, and accepting more connections meanwhile would evict it.
pub(super) async fn keeps_up() {
    // The semaphore is never closed.
    let _ = LOOKING.acquire().await;
}

/// Looks up a connection together with all pending ones: one reading of the tables serves all of
/// them, so many connections of another user delay one of this user by at most two readings.
async fn look_up(own: SocketAddr, inode: u64, peer: SocketAddr) -> Option<Owner> {
    let (answer, mut found) = oneshot::channel();
    WAITING.lock().unwrap_or_else(PoisonError::into_inner).push(Lookup { own, inode, peer, answer });
    tokio::select! {
        biased;
        found = &mut found => return found.ok().flatten(),
        permit = READING.acquire() => {
            let permit = permit.ok()?;
            // The reading continues for other connections if this one ends.
            tokio::task::spawn_blocking(move || {
                answer_all(std::mem::take(&mut *WAITING.lock().unwrap_or_else(PoisonError::into_inner)));
                drop(permit);
            });
        }
    }
    found.await.ok().flatten()
}

/// A connection whose user is looked up.
struct Lookup {
    own: SocketAddr,
    inode: u64,
    peer: SocketAddr,
    answer: oneshot::Sender<Option<Owner>>,
}

/// Reads the tables once and answers all of these lookups.
fn answer_all(lookups: Vec<Lookup>) {
    if lookups.is_empty() {
        // An earlier reading has answered all lookups.
        return;
    }
    let wanted: Vec<_> = lookups.iter().map(|lookup| (lookup.own, lookup.inode, lookup.peer)).collect();
    let found = Found::read(&wanted).unwrap_or_default();
    let found = found.iter().map(Found::owner).chain(std::iter::repeat(None));
    for (lookup, owner) in lookups.into_iter().zip(found) {
        // The connection may have ended.
        let _ = lookup.answer.send(owner);
    }
}

/// Returns whether the system lists sockets with their users; tested with this listener.
pub fn is_told(listener: &TcpListener) -> bool {
    let Some((addr, own)) = listener.local_addr().ok().zip(inode(listener)) else { return false };
    let listed = |row: &Row| row.inode == own && row.own == canonical(addr);
    TABLES.iter().any(|table| rows(table, |row| listed(row)).unwrap_or_default())
}

/// The tables' entries for a connection.
#[derive(Clone, Debug, Default)]
struct Found {
    /// Whether the connection's own end is listed with its inode: the entry is this connection's,
    /// not that of a later one with the same addresses.
    is_own: bool,
    /// The user of the peer's open socket.
    peer: Option<u32>,
}

impl Found {
    /// Reads the tables' entries for connections: own address, inode of the own end, the peer's
    /// address.
    fn read(wanted: &[(SocketAddr, u64, SocketAddr)]) -> io::Result<Vec<Self>> {
        let places: HashMap<_, _> = wanted.iter().zip(0..).map(|((own, _, peer), at)| ((*own, *peer), at)).collect();
        let mut found = vec![Self::default(); wanted.len()];
        let mut missing = wanted.len();
        let mut look = |row: &Row| {
            let (at, is_own) = match (places.get(&(row.own, row.peer)), places.get(&(row.peer, row.own))) {
                (Some(at), _) => (*at, true),
                (None, Some(at)) => (*at, false),
                (None, None) => return false,
            };
            let (Some(one), Some((_, inode, _))) = (found.get_mut(at), wanted.get::<usize>(at)) else { return false };
            let was_whole = one.is_whole();
            if is_own {
                one.is_own |= row.inode == *inode;
            } else if row.inode != 0 {
                one.peer = Some(row.user);
            }
            missing -= usize::from(one.is_whole() && !was_whole);
            missing == 0
        };
        // Without IPv6 the second table does not exist.
        for (table, is_required) in TABLES.iter().zip([true, false]) {
            match rows(table, &mut look) {
                Ok(true) => break,
                Err(error) if is_required => return Err(error),
                Ok(false) | Err(_) => {}
            }
        }
        Ok(found)
    }

    const fn is_whole(&self) -> bool {
        self.is_own && self.peer.is_some()
    }

    fn owner(&self) -> Option<Owner> {
        self.peer.filter(|user| self.is_own && is_certain(*user)).map(Owner::User)
    }
}

/// Returns whether this number means one user: a user namespace shows all users without a number in
/// it as one, the overflow user (`user_namespaces(7)`).
fn is_certain(user: u32) -> bool {
    let overflow = std::fs::read_to_string("/proc/sys/kernel/overflowuid").ok();
    let overflow = overflow.and_then(|text| text.trim().parse().ok()).unwrap_or(65534);
    // Without user namespaces the map does not exist.
    user != overflow || std::fs::read_to_string("/proc/self/uid_map").map_or(true, |map| has_all_users(&map))
}

/// Returns whether a map of users (`inside outside count` in each row) covers all of them.
fn has_all_users(map: &str) -> bool {
    let count = |row: &str| row.split_ascii_whitespace().nth(2).and_then(|count| count.parse::<u64>().ok());
    map.lines().filter_map(count).fold(0, u64::saturating_add) >= ALL_USERS
}

/// A row of a table.
#[derive(Debug, PartialEq, Eq)]
struct Row {
    own: SocketAddr,
    peer: SocketAddr,
    user: u32,
    inode: u64,
}

impl Row {
    /// Parses `sl local rem st tx:rx tr:when retrnsmt uid timeout inode …`.
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split_ascii_whitespace().skip(1);
        let (own, peer) = (address(words.next()?)?, address(words.next()?)?);
        let user = words.nth(4)?.parse().ok()?;
        let inode = words.nth(1)?.parse().ok()?;
        Some(Self { own, peer, user, inode })
    }
}

/// Parses an address: 32-bit words in this machine's byte order, then the port.
fn address(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let word = |at: usize| u32::from_str_radix(ip.get(at..at + 8)?, 16).ok().map(u32::to_ne_bytes);
    let ip = match ip.len() {
        8 => IpAddr::V4(Ipv4Addr::from(word(0)?)),
        32 => {
            let words = [word(0)?, word(8)?, word(16)?, word(24)?];
            let mut bytes = [0; 16];
            bytes.iter_mut().zip(words.iter().flatten()).for_each(|(to, from)| *to = *from);
            IpAddr::V6(Ipv6Addr::from(bytes))
        }
        _ => return None,
    };
    Some(canonical(SocketAddr::new(ip, u16::from_str_radix(port, 16).ok()?)))
}

/// Passes the rows of a table to `look` until it returns `true`. Returns whether it did.
fn rows(table: &str, mut look: impl FnMut(&Row) -> bool) -> io::Result<bool> {
    let mut reader = BufReader::with_capacity(64 * 1024, File::open(table)?.take(TABLE_BYTES));
    let mut line = String::new();
    while reader.read_line(&mut line)? > 0 {
        if Row::parse(&line).is_some_and(|row| look(&row)) {
            return Ok(true);
        }
        line.clear();
    }
    Ok(false)
}

/// Returns an address in the one form that all sockets share: IPv4 if it is a mapped one, without
/// flow and scope.
fn canonical(addr: SocketAddr) -> SocketAddr {
    SocketAddr::new(addr.ip().to_canonical(), addr.port())
}

fn inode(socket: impl AsFd) -> Option<u64> {
    rustix::fs::fstat(socket).ok().map(|found| found.st_ino).filter(|inode| *inode != 0)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_row_is_read_as_the_kernel_writes_it() {
        let line =
            "   3: 0100007F:0D0D 0200007F:C350 01 00000000:00000000 00:00000000 00000000  1000        0 4711 1 0 20";
        if cfg!(target_endian = "little") {
            let row = Row::parse(line).unwrap();
            assert_eq!((row.own, row.peer), ("127.0.0.1:3341".parse().unwrap(), "127.0.0.2:50000".parse().unwrap()));
            assert_eq!((row.user, row.inode), (1000, 4711));
            // An IPv4 address in an IPv6 socket.
            let mapped = address("0000000000000000FFFF00000100007F:0D0D").unwrap();
            assert_eq!(mapped, "127.0.0.1:3341".parse().unwrap());
            let six = address("00000000000000000000000001000000:0D0D").unwrap();
            assert_eq!(six, "[::1]:3341".parse().unwrap());
        }
        for line in ["  sl  local_address rem_address   st tx_queue", "", "0: x y", "0: 0100007F:0D0D 0200007F:C350 01"]
        {
            assert_eq!(Row::parse(line), None, "{line:?}");
        }
    }

    #[test]
    fn the_overflow_user_is_uncertain_in_a_namespace_without_all_users() {
        assert!(has_all_users("         0          0 4294967295\n"));
        assert!(has_all_users("0 0 1000\n1000 1000 4294966295\n"));
        for part in ["", "0 1000 1\n", "0 1000 1\n1 100000 65536\n", "0 0 x\n"] {
            assert!(!has_all_users(part), "{part:?}");
        }
        assert!(is_certain(0) && is_certain(1000));
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn an_open_connections_user_is_known_and_a_closed_ones_is_not() {
        let own = Owner::User(rustix::process::geteuid().as_raw());
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(address).await else {
                println!("not tested: no {address}");
                continue;
            };
            assert!(is_told(&listener));
            let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let (stream, peer) = listener.accept().await.unwrap();
            let ends = Ends::of(&stream, peer);
            assert_eq!(ends.owner().await, own);
            drop(client);
            assert_eq!(ends.owner().await, own, "looked up once");
            assert_eq!(Ends::of(&stream, peer).owner().await, Owner::Unlisted, "it was closed");
        }
    }

    /// Many concurrent lookups need few readings, each with its own result.
    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn many_connections_are_looked_up_together() {
        let own = Owner::User(rustix::process::geteuid().as_raw());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (mut clients, mut ends) = (Vec::new(), Vec::new());
        for at in 0..40 {
            let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let (stream, peer) = listener.accept().await.unwrap();
            ends.push(Ends::of(&stream, peer));
            // Every other client disconnects.
            clients.push((stream, (at % 2 == 0).then_some(client)));
        }
        let owners = futures_util::future::join_all(ends.iter().map(Ends::owner)).await;
        for (at, owner) in owners.into_iter().enumerate() {
            assert_eq!(owner, if at % 2 == 0 { own } else { Owner::Unlisted }, "{at}");
        }
        drop(clients);
    }

    /// A later connection with the same two addresses is a different one.
    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn a_connection_is_not_confused_with_another_of_the_same_addresses() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, peer) = listener.accept().await.unwrap();
        let (own, inode) = Ends::of(&stream, peer).own.unwrap();
        let owner = |inode| Found::read(&[(own, inode, canonical(peer))]).unwrap().first().and_then(Found::owner);
        assert!(matches!(owner(inode), Some(Owner::User(_))));
        assert_eq!(owner(inode + 1), None);
        drop(client);
    }

    /// Connections are accepted no faster than their users are found, so newer connections evict none whose lookup is
    /// pending.
    #[tokio::test]
    async fn connections_whose_user_is_looked_for_lose_no_place_to_newer_ones() {
        use axum::{Extension, Router, routing::get};
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

        use crate::{ConnectionPermit, Credential, Limits, Listener, OpenConnections, serve};

        const PLACES: usize = LOOKUPS + 64;
        let own = |Extension(ends): Extension<Arc<Ends>>, Extension(permit): Extension<ConnectionPermit>| async move {
            let _ = ends.owner().await;
            permit.authenticate(Credential::Token).to_string()
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let stop = tokio_util::sync::CancellationToken::new();
        let limits = Limits { unauthenticated: Some(PLACES), ..Limits::TCP };
        let router = Router::new().route("/", get(own));
        let writers = tokio::runtime::Handle::current();
        let open = OpenConnections::default();
        let serving = tokio::spawn(serve(Listener::Tcp(listener), router, limits, writers, open, stop.clone()));
        // Keeps the reading busy until all lookups are pending.
        let reading = READING.acquire().await.unwrap();
        let mut clients = Vec::new();
        for _ in 0..PLACES + 64 {
            let mut client = TcpStream::connect(addr).await.unwrap();
            client.write_all(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await.unwrap();
            clients.push(client);
            // The accept loop has had its turn.
            tokio::task::yield_now().await;
        }
        drop(reading);
        for mut client in clients {
            let mut answer = String::new();
            client.read_to_string(&mut answer).await.unwrap();
            assert!(answer.ends_with("true"), "{answer:?}");
        }
        stop.cancel();
        serving.await.unwrap();
    }
}
