//! The places of a TCP port's connections.
//!
//! A connection whose caller has not authenticated holds one of few places. If all are taken, it
//! loses its place to a newer connection, so silent connections never keep a caller with a token
//! waiting. A connection whose caller has authenticated keeps its place, and no credential can take
//! the places of all others.

use std::{
    collections::{BTreeMap, HashMap},
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use muxtap_base::address::group;
use tokio_util::sync::CancellationToken;

/// The most connections at once whose callers have not authenticated, for all addresses.
pub(super) const UNAUTHENTICATED: usize = 512;
/// The most of them from one remote address; the addresses of this machine share
/// [`UNAUTHENTICATED`].
const ADDRESS_UNAUTHENTICATED: usize = 64;
/// The time for which a new connection keeps its place while older ones have one: its request is on
/// its way.
const GRACE: Duration = Duration::from_secs(2);
/// The most connections at once of callers with the token.
const TOKEN_CONNECTIONS: usize = 3072;
/// The most connections at once of one login: a page's cookie or a device's session.
const LOGIN_CONNECTIONS: usize = 256;

/// The credential by which a connection's caller has authenticated.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Credential {
    /// The token of the port.
    Token,
    /// A login with this name: a page's cookie or a device's session.
    Login(String),
}

impl Credential {
    /// Returns the most connections at once of this credential.
    fn most(&self) -> usize {
        match self {
            Self::Token => TOKEN_CONNECTIONS,
            Self::Login(_) => LOGIN_CONNECTIONS,
        }
    }
}

/// The places of a port.
#[derive(Debug)]
pub struct Places {
    unauthenticated: usize,
    authenticated: usize,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    next: u64,
    /// Connections without an authenticated caller, the oldest first.
    unauthenticated: BTreeMap<u64, Unauthenticated>,
    /// The number of connections with an authenticated caller.
    authenticated: usize,
    of_credentials: HashMap<Credential, usize>,
}

#[derive(Debug)]
struct Unauthenticated {
    address: IpAddr,
    /// The number of responses in progress.
    responses: usize,
    since: Instant,
    /// Cancelled to close the connection.
    evicted: CancellationToken,
}

/// The place of one connection, until it is dropped.
#[derive(Debug)]
pub struct Place {
    places: Arc<Places>,
    number: u64,
    evicted: CancellationToken,
    /// `None` until the caller authenticates.
    credential: Mutex<Option<Credential>>,
}

/// A response in progress on a connection.
#[derive(Debug)]
pub struct Response(Arc<Place>);

impl Places {
    /// Creates the places of a port: a number for callers that have not authenticated, and one for
    /// callers that have.
    pub fn new(unauthenticated: usize, authenticated: usize) -> Arc<Self> {
        Arc::new(Self { unauthenticated, authenticated, taken: Mutex::default() })
    }

    /// Gives a new connection a place. If all are taken, the oldest connection without a response
    /// in progress loses its place, otherwise the oldest one; connections that have just arrived
    /// lose theirs last. If the new one's address has too many, one of that address loses its
    /// place.
    pub fn take(self: &Arc<Self>, addr: SocketAddr) -> Arc<Place> {
        let address = group(addr.ip());
        let most = if address.is_loopback() { self.unauthenticated } else { ADDRESS_UNAUTHENTICATED };
        let mut taken = self.taken();
        let own = taken.unauthenticated.values().filter(|one| one.address == address).count();
        if own >= most {
            taken.evict(|one| one.address == address);
        } else if taken.unauthenticated.len() >= self.unauthenticated {
            taken.evict(|_| true);
        }
        let number = taken.next;
        taken.next += 1;
        let evicted = CancellationToken::new();
        let one = Unauthenticated { address, responses: 0, since: Instant::now(), evicted: evicted.clone() };
        taken.unauthenticated.insert(number, one);
        drop(taken);
        Arc::new(Place { places: self.clone(), number, evicted, credential: Mutex::default() })
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Taken {
    fn evict(&mut self, of: impl Fn(&Unauthenticated) -> bool) {
        let among = self.unauthenticated.iter().filter(|(_, one)| of(one));
        // A new connection is about to authenticate, so older ones are evicted first: their holders
        // cannot crowd it out.
        let order =
            |(number, one): &(&u64, &Unauthenticated)| (one.since.elapsed() < GRACE, one.responses > 0, **number);
        let first = among.min_by_key(order).map(|(number, _)| *number);
        if let Some(one) = first.and_then(|number| self.unauthenticated.remove(&number)) {
            one.evicted.cancel();
        }
    }
}

impl Place {
    /// Marks the place as one of an authenticated caller, so that the connection keeps it. Returns
    /// false if the credential, or all together, have reached their limit, or if the place was lost
    /// in the meantime.
    pub fn authenticate(&self, credential: Credential) -> bool {
        let mut own = self.credential.lock().unwrap_or_else(PoisonError::into_inner);
        // The first credential counts: a connection has one place, for all credentials that use it.
        if own.is_some() {
            return true;
        }
        let mut taken = self.places.taken();
        let of_credential = taken.of_credentials.get(&credential).copied().unwrap_or_default();
        if of_credential >= credential.most() || taken.authenticated >= self.places.authenticated {
            return false;
        }
        if taken.unauthenticated.remove(&self.number).is_none() {
            return false;
        }
        taken.authenticated += 1;
        *taken.of_credentials.entry(credential.clone()).or_default() += 1;
        *own = Some(credential);
        true
    }

    /// Resolves when the connection has lost its place.
    pub async fn lost(&self) {
        self.evicted.cancelled().await;
    }

    /// Counts a response as in progress, until the returned value is dropped.
    pub fn respond(self: &Arc<Self>) -> Response {
        if let Some(one) = self.places.taken().unauthenticated.get_mut(&self.number) {
            one.responses += 1;
        }
        Response(self.clone())
    }
}

impl Drop for Response {
    fn drop(&mut self) {
        if let Some(one) = self.0.places.taken().unauthenticated.get_mut(&self.0.number) {
            one.responses = one.responses.saturating_sub(1);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let credential = self.credential.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        let mut taken = self.places.taken();
        let Some(credential) = credential else {
            taken.unauthenticated.remove(&self.number);
            return;
        };
        taken.authenticated = taken.authenticated.saturating_sub(1);
        if let Some(own) = taken.of_credentials.get_mut(&credential) {
            *own = own.saturating_sub(1);
            if *own == 0 {
                taken.of_credentials.remove(&credential);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(address: &str) -> SocketAddr {
        SocketAddr::new(address.parse().unwrap(), 1)
    }

    fn is_lost(place: &Place) -> bool {
        place.evicted.is_cancelled()
    }

    #[test]
    fn a_new_connection_displaces_the_oldest_unauthenticated_one() {
        let places = Places::new(3, 9);
        let [holder, first, second] = [(); 3].map(|()| places.take(from("127.0.0.1")));
        assert!(holder.authenticate(Credential::Token));
        let answered = first.respond();
        let third = places.take(from("127.9.9.9"));
        assert!(![&holder, &first, &second, &third].iter().any(|place| is_lost(place)));
        // The first one has a response in progress, so the second one loses its place.
        let fourth = places.take(from("::1"));
        assert!(is_lost(&second) && !is_lost(&first) && !is_lost(&holder));
        assert!(!second.authenticate(Credential::Token), "its place is lost");
        let more: Vec<_> = (0..9).map(|_| places.take(from("127.0.0.1"))).collect();
        assert!(is_lost(&third) && is_lost(&fourth) && !is_lost(&first) && !is_lost(&holder));
        // If all have a response in progress, the oldest loses its place.
        let _answered: Vec<_> = more.iter().map(Place::respond).collect();
        let _last = places.take(from("127.0.0.1"));
        assert!(is_lost(&first) && !is_lost(&holder));
        drop(answered);
    }

    #[test]
    fn one_address_displaces_only_its_own_connections() {
        let places = Places::new(UNAUTHENTICATED, 9);
        let of_other = places.take(from("192.0.2.1"));
        let many: Vec<_> = (0..UNAUTHENTICATED * 2).map(|_| places.take(from("192.0.2.2"))).collect();
        assert!(!is_lost(&of_other) && is_lost(&many[0]));
        assert_eq!(places.taken().unauthenticated.len(), ADDRESS_UNAUTHENTICATED + 1);
        drop(many);
        assert_eq!(places.taken().unauthenticated.len(), 1);
    }

    #[test]
    fn one_login_cannot_take_all_connection_slots() {
        let places = Places::new(UNAUTHENTICATED, LOGIN_CONNECTIONS + 1);
        let login = || Credential::Login("a link".into());
        let taken = || places.take(from("127.0.0.1"));
        let own: Vec<_> = (0..LOGIN_CONNECTIONS).map(|_| taken()).collect();
        assert!(own.iter().all(|place| place.authenticate(login())));
        assert!(!taken().authenticate(login()));
        let holder = taken();
        assert!(holder.authenticate(Credential::Token) && !taken().authenticate(Credential::Token));
        // A released place can be taken again.
        drop(own);
        assert!(taken().authenticate(login()));
        assert_eq!(places.taken().of_credentials.len(), 1);
    }
}
