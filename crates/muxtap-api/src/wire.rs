//! Names of headers, and of the protocols that a connection is upgraded to, for both sides.

/// A request header with a key: requests with the same key are carried out once.
pub const IDEMPOTENCY_KEY: &str = "idempotency-key";
/// A request header that says how long the response may take (RFC 7240).
pub const PREFER: &str = "prefer";
/// A request header with the id of the last event received, as an `EventSource` sends it: the
/// stream continues after that event.
pub const LAST_EVENT_ID: &str = "last-event-id";
/// The header of every response that names the daemon's version.
pub const VERSION: &str = "muxtap-version";
/// The header of a response that names the host of its ids.
pub const HOST: &str = "muxtap-host";
/// The header in which `muxtap stdio` says what it offers, and the daemon what it accepts and
/// supports.
pub const PEER: &str = "muxtap-peer";
/// A value of [`PEER`]: stdin and stdout are handed over.
pub const HAND_OVER: &str = "hand-over";
/// A value of [`PEER`]: a wait that is requested again with its key continues.
pub const KEYS: &str = "keys";
/// In `Upgrade`: HTTP/2, for muxtap on another host.
pub const PEER_PROTOCOL: &str = "muxtap-peer-1";
/// In `Upgrade`: MCP as over stdin and stdout, for `muxtap mcp`.
pub const MCP_PROTOCOL: &str = "muxtap-mcp-stdio";
/// In `Upgrade`: the conversation by which a daemon takes over, for `muxtap serve --replace`.
pub const REPLACE_PROTOCOL: &str = "muxtap-replace-1";
/// The header in which `muxtap serve --replace` says that what cannot be handed over may end.
pub const FORCE: &str = "muxtap-force";
/// The header of a request that a daemon sends for one of its callers to the daemon that has taken over.
/// If the new daemon is also replaced, the response says so by this header or comment and ends.
pub const RELAY: &str = "muxtap-relay";
