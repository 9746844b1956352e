//! Callers, and what each may choose for the user who owns the daemon.
//!
//! The choice of what muxtap connects to, starts, reads or remembers is the user's: a server named
//! by its socket's path receives messages, and a host added by its command runs that command. So
//! only the user may make it, on the daemon's own Unix socket or in the configuration. All other
//! callers can only name what is already known ([`Engine::check_server`], [`Engine::check_user`]).
//!
//! What a caller created is its own ([`Principal`]): another caller may end it only with the tier
//! `kill` ([`Engine::check_owner`]).

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use muxtap_api::{Error, ErrorCode, Result, Tier};
use muxtap_base::address;
use muxtap_tmux::Address;
use serde::{Deserialize, Serialize};

use super::{Engine, handles::socket_dir};

/// A caller of the engine.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Caller {
    /// The interface through which the caller came: `unix`, `http`, `mcp` and so on.
    pub face: &'static str,
    /// The caller's process or address, as far as it is known.
    pub who: String,
    /// The principal for which the caller speaks.
    pub principal: Principal,
}

/// The party for which a caller speaks, and which owns what the caller creates.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Principal {
    /// The program that contains the engine.
    Engine,
    /// The user with this id, on the daemon's Unix socket: the daemon's own user, or root.
    User(u32),
    /// A holder of the daemon's token, over TCP.
    Token,
    /// A browser, identified by the hash of its cookie.
    Page(Arc<str>),
    /// A logged-in device, identified by its id.
    Device(Arc<str>),
    /// An MCP session, identified by its number.
    Agent {
        /// The session's number, which no other session has.
        session: u64,
        /// The server that the user chose for the session when it began.
        server: Option<Arc<Path>>,
    },
    /// A member of the fleet, by its name.
    Fleet(Arc<str>),
    /// A client of an interface with its own admission: the bridge, or another program's router.
    Guest,
}

/// The interface of the fleet's members.
const FLEET: &str = "fleet";

/// The interfaces whose callers' waits another daemon can continue.
const FACES: [&str; 8] = ["engine", "unix", "http", "mcp", "agent", "mattermost", "bridge", FLEET];

/// A caller, stored for the daemon that replaces this one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StoredCaller {
    face: String,
    who: String,
    principal: StoredPrincipal,
}

/// A [`Principal`], stored for the daemon that replaces this one.
#[doc(hidden)]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredPrincipal(Stored);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Stored {
    Engine,
    User(u32),
    Token,
    Page(String),
    Device(String),
    Agent(u64, Option<PathBuf>),
    Guest,
    Fleet(String),
}

impl StoredPrincipal {
    /// Returns what is stored.
    pub fn of(principal: &Principal) -> Self {
        Self(match principal {
            Principal::Engine => Stored::Engine,
            Principal::User(uid) => Stored::User(*uid),
            Principal::Token => Stored::Token,
            Principal::Page(hash) => Stored::Page(hash.to_string()),
            Principal::Device(id) => Stored::Device(id.to_string()),
            Principal::Agent { session, server } => Stored::Agent(*session, server.as_deref().map(Path::to_owned)),
            Principal::Guest => Stored::Guest,
            Principal::Fleet(member) => Stored::Fleet(member.to_string()),
        })
    }

    /// Returns the principal. No later MCP session gets the number of one that another daemon had:
    /// otherwise it would own the earlier session's waits.
    pub fn restored(self) -> Principal {
        match self.0 {
            Stored::Engine => Principal::Engine,
            Stored::User(uid) => Principal::User(uid),
            Stored::Token => Principal::Token,
            Stored::Page(hash) => Principal::Page(hash.into()),
            Stored::Device(id) => Principal::Device(id.into()),
            Stored::Agent(session, server) => {
                NEXT_SESSION.fetch_max(session.saturating_add(1), Ordering::Relaxed);
                Principal::Agent { session, server: server.map(Arc::from) }
            }
            Stored::Guest => Principal::Guest,
            Stored::Fleet(member) => Principal::Fleet(member.into()),
        }
    }
}

impl StoredCaller {
    pub(super) fn of(caller: &Caller) -> Self {
        let principal = StoredPrincipal::of(&caller.principal);
        Self { face: caller.face.to_owned(), who: caller.who.clone(), principal }
    }

    /// Returns the caller; `None` if its interface is unknown.
    pub(super) fn restored(self) -> Option<Caller> {
        let principal = self.principal.restored();
        let face = FACES.into_iter().find(|face| *face == self.face)?;
        Some(Caller { face, who: self.who, principal })
    }

    /// Sets the number of an MCP session.
    #[cfg(test)]
    pub(super) fn set_session(&mut self, number: u64) {
        if let Stored::Agent(session, _) = &mut self.principal.0 {
            *session = number;
        }
    }
}

/// The number of the next MCP session.
static NEXT_SESSION: AtomicU64 = AtomicU64::new(1);

impl Default for Caller {
    /// Returns the program that contains the engine.
    fn default() -> Self {
        Self { face: "engine", who: String::new(), principal: Principal::Engine }
    }
}

impl Caller {
    /// Returns the caller to which limits count this one: the addresses of one machine count as one
    /// caller, as do all MCP sessions of one client.
    pub(super) fn counted(&self) -> Self {
        let principal = match &self.principal {
            Principal::Agent { .. } => Principal::Agent { session: 0, server: None },
            principal => principal.clone(),
        };
        Self { face: self.face, who: address::shared_name(&self.who), principal }
    }
}

impl Principal {
    /// Returns the caller that is a member of the fleet.
    pub fn member(name: &Arc<str>) -> Caller {
        Caller { face: FLEET, who: name.to_string(), principal: Self::Fleet(name.clone()) }
    }

    /// Creates the principal of a new MCP session. `server`: the server that the user chose for it.
    pub fn agent(server: Option<&Path>) -> Self {
        Self::Agent { session: NEXT_SESSION.fetch_add(1, Ordering::Relaxed), server: server.map(Arc::from) }
    }

    /// Returns the credential of a caller over TCP: `token`, `page` or `device`.
    pub fn login(&self) -> Option<&'static str> {
        match self {
            Self::Token => Some("token"),
            Self::Page(_) => Some("page"),
            Self::Device(_) => Some("device"),
            Self::Engine | Self::User(_) | Self::Agent { .. } | Self::Fleet(_) | Self::Guest => None,
        }
    }

    /// Returns whether this is the user, not a party that the user admits.
    pub fn is_user(&self) -> bool {
        matches!(self, Self::Engine | Self::User(_))
    }
}

impl Engine {
    /// Returns a handle of the same engine for this caller. The handle's requests are counted and
    /// recorded as the caller's own.
    pub fn with_caller(&self, caller: Caller) -> Self {
        Self { caller: Arc::new(caller), ..self.clone() }
    }

    /// Returns a handle of the same engine for the same caller, through another interface.
    pub fn by_face(&self, face: &'static str) -> Self {
        if let Principal::Fleet(_) = self.caller.principal {
            return self.clone();
        }
        self.with_caller(Caller { face, ..self.caller().clone() })
    }

    /// Returns the handle's caller.
    pub fn caller(&self) -> &Caller {
        &self.caller
    }

    /// Checks that the caller is the user. `what`: the action reserved for the user, such as
    /// `adding a host`. `instead`: the way out for other callers. Error: `UNAUTHORIZED`.
    pub fn check_user(&self, what: &str, instead: &str) -> Result<()> {
        if self.caller.principal.is_user() {
            return Ok(());
        }
        let message = format!("{what} is reserved for callers on the daemon's own socket; {instead}");
        Err(Error::new(ErrorCode::Unauthorized, message))
    }

    /// Checks that the caller may name the server with this address. The user may name any server.
    /// Others may name known servers (followed, configured, or in the directory of the user's
    /// tmux), and an MCP session also the server that the user chose for it. Error: `UNAUTHORIZED`.
    pub(super) fn check_server(&self, address: &Path) -> Result<()> {
        if self.caller.principal.is_user() || self.knows_server(address) {
            return Ok(());
        }
        let own = match &self.caller.principal {
            Principal::Agent { server, .. } => server.as_deref(),
            _ => None,
        };
        if own == Some(address) {
            return Ok(());
        }
        let message = format!(
            "socket: unknown server {}; callers over TCP and MCP must give a server's name, as for `tmux -L`, or the \
             path of one that is followed",
            address.display()
        );
        Err(Error::new(ErrorCode::Unauthorized, message))
    }

    /// Returns whether the caller may know that the server with this address is followed: a member of
    /// the fleet uses this host only, so all servers on other hosts are hidden from it.
    pub(super) fn may_know(&self, address: &Path) -> bool {
        !matches!(self.caller.principal, Principal::Fleet(_)) || matches!(Address::parse(address), Ok(Address::Here(_)))
    }

    fn knows_server(&self, address: &Path) -> bool {
        if self.hosts().contains_key(address) {
            return true;
        }
        match Address::parse(address) {
            // On another host, too, a name refers to the directory of the user's tmux.
            Ok(Address::Elsewhere(_, socket)) => !socket.contains('/'),
            Ok(Address::Here(path)) => {
                let foreign = &self.shared.options.program.foreign;
                let is_direct = |folder: &Path| path.parent() == Some(folder) && path.file_name().is_some();
                foreign.iter().any(|server| server.socket == path)
                    || socket_dir().is_ok_and(|folder| is_direct(&folder))
            }
            Err(_) => false,
        }
    }

    /// Checks that the caller may end what `owner` created: as the owner, as the user, or with the
    /// tier `kill`. Error: `READ_ONLY`; the refusal is recorded.
    pub fn check_owner(&self, owner: &Principal, what: &str) -> Result<()> {
        if self.owns(owner) || self.caller.principal.is_user() {
            return Ok(());
        }
        self.authorize(Tier::Kill).map_err(|error| {
            Error::new(error.code, format!("{what} belongs to another caller, and ending it requires the tier `kill`"))
        })
    }

    /// Returns whether the caller is this owner.
    pub(crate) fn owns(&self, owner: &Principal) -> bool {
        self.caller.principal == *owner
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use muxtap_api::Tiers;

    use muxtap_tmux::ForeignServer;

    use crate::Options;

    fn engine(options: Options, principal: Principal) -> Engine {
        Engine::new(options).with_caller(Caller { face: "test", who: String::new(), principal })
    }

    fn strangers() -> [Principal; 6] {
        [
            Principal::Token,
            Principal::Page("hash".into()),
            Principal::Device("device".into()),
            Principal::agent(None),
            Principal::Fleet("amy".into()),
            Principal::Guest,
        ]
    }

    #[test]
    fn a_client_counts_once_however_many_sessions_it_opens() {
        let caller = |who: &str, principal| Caller { face: "mcp", who: who.into(), principal }.counted();
        assert_eq!(caller("http", Principal::agent(None)), caller("http", Principal::agent(Some(Path::new("/s")))));
        assert_eq!(caller("127.0.0.1", Principal::Token), caller("127.7.7.7", Principal::Token));
        assert_ne!(caller("127.0.0.1", Principal::Token), caller("127.0.0.1", Principal::Page("hash".into())));
    }

    #[test]
    fn a_member_of_the_fleet_is_restored_as_itself() {
        let amy = Principal::member(&"amy".into());
        assert_eq!(StoredCaller::of(&amy).restored(), Some(amy));
        let guest = Caller { face: "bridge", who: "amy".into(), principal: Principal::Guest };
        assert_eq!(StoredCaller::of(&guest).restored(), Some(guest));
    }

    #[tokio::test]
    async fn a_handle_for_one_tier_has_no_other_one() {
        for tier in Tier::ALL {
            let engine = engine(Options::default(), Principal::Fleet("amy".into())).only(tier);
            // By whatever way it goes on.
            for engine in [engine.clone(), engine.by_face("mcp"), engine.with_caller(Caller::default())] {
                assert_eq!(engine.tiers().collect::<Vec<_>>(), [tier]);
            }
            let refused = engine.authorize(if tier == Tier::Read { Tier::Input } else { Tier::Read }).unwrap_err();
            assert_eq!(refused.code, ErrorCode::ReadOnly);
            assert!(refused.message.contains(&format!("only `{tier}`")), "{refused}");
        }
        let reader = engine(Options::default().allow(Tiers::READ_ONLY), Principal::Guest).only(Tier::Input);
        assert_eq!(reader.tiers().count(), 0, "what the daemon does not allow, no handle allows");
    }

    #[tokio::test]
    async fn only_the_user_may_name_a_server_by_any_path() {
        let folder = socket_dir().unwrap();
        for user in [Principal::Engine, Principal::User(1000)] {
            engine(Options::default(), user).server_named(Some("/elsewhere/s")).unwrap();
        }
        for stranger in strangers() {
            let engine = engine(Options::default(), stranger.clone());
            let refused = |word: &str| match engine.server_named(Some(word)) {
                Ok(server) => panic!("{stranger:?} reached {word} as {}", server.socket().display()),
                Err(error) => error.code,
            };
            assert_eq!(refused("/elsewhere/s"), ErrorCode::Unauthorized);
            for tricky in ["../s", "a/../../s"] {
                assert_ne!(refused(tricky), ErrorCode::InternalError);
            }
            let inside = folder.join("sub/s");
            let beside = folder.join("../s");
            for path in [inside, beside, folder.clone(), folder.join("..")] {
                assert_eq!(refused(path.to_str().unwrap()), ErrorCode::Unauthorized, "{}", path.display());
            }
            engine.server_named(Some("build")).unwrap();
            engine.server_named(Some(folder.join("build").to_str().unwrap())).unwrap();
            engine.server_named(None).unwrap();
        }
    }

    #[tokio::test]
    async fn a_server_that_is_followed_or_configured_may_be_named_by_all() {
        let mut options = Options::default();
        options.program.foreign = [ForeignServer { uid: 1001, socket: "/theirs/s".into() }].into();
        let owner = Engine::new(options);
        owner.server_named(Some("/mine/s")).unwrap();
        for stranger in strangers() {
            let engine = owner.with_caller(Caller { face: "test", who: String::new(), principal: stranger });
            engine.server_named(Some("/mine/s")).unwrap();
            engine.server_named(Some("/theirs/s")).unwrap();
            assert!(engine.server_named(Some("/other/s")).is_err());
        }
        let chosen = Principal::agent(Some(Path::new("/chosen/s")));
        owner
            .with_caller(Caller { face: "mcp", who: String::new(), principal: chosen })
            .server_named(Some("/chosen/s"))
            .unwrap();
    }

    #[tokio::test]
    async fn only_the_user_may_name_an_unknown_server_path_on_another_host() {
        let owner = Engine::new(Options::default());
        owner.add_host("box", ["ssh", "box"]).unwrap();
        let token = owner.with_caller(Caller { face: "http", who: String::new(), principal: Principal::Token });
        token.server_named(Some("box/")).unwrap();
        token.server_named(Some("box/build")).unwrap();
        assert_eq!(token.server_named(Some("box//tmp/s")).unwrap_err().code, ErrorCode::Unauthorized);
        owner.server_named(Some("box//tmp/s")).unwrap();
        token.server_named(Some("box//tmp/s")).unwrap();
    }

    #[tokio::test]
    async fn a_member_of_the_fleet_learns_of_no_server_on_another_host() {
        let owner = Engine::new(Options::default());
        owner.add_host("box", ["false"]).unwrap();
        let far = owner.server_named(Some("box/")).unwrap();
        let member = owner.with_caller(Principal::member(&"amy".into()));
        // Even if it is the only one that is followed.
        assert_eq!(owner.followed_by_caller().len(), 1);
        assert_eq!(owner.servers().len(), 1);
        assert!(member.servers().is_empty() && member.followed_servers().is_empty());
        assert_eq!(member.server_named(None).unwrap().socket(), socket_dir().unwrap().join("default"));
        let refused = member.server_at(far.socket()).unwrap_err();
        assert_eq!(refused.code, ErrorCode::Unauthorized, "{refused}");
        // Now there are several, and an error would name them.
        owner.server_named(Some("box/build")).unwrap();
        assert_eq!(member.servers().len(), 1);
        assert!(!member.servers()[0].socket.contains("box"));
    }

    #[tokio::test]
    async fn another_callers_wait_can_be_ended_only_with_the_kill_tier() {
        let options = Options::default().allow(Tiers::READ_ONLY);
        let mine = Principal::agent(None);
        let reader = engine(options, mine.clone());
        reader.check_owner(&mine, "wait w1").unwrap();
        for other in strangers() {
            let refused = reader.check_owner(&other, "wait w1").unwrap_err();
            assert_eq!(refused.code, ErrorCode::ReadOnly);
            engine(Options::default(), mine.clone()).check_owner(&other, "wait w1").unwrap();
        }
    }
}
