//! Names of headers, and of the protocols for which a connection is upgraded, for both sides.

/// A request's header with a key under which the same is done once, however often it is asked for.
pub const IDEMPOTENCY_KEY: &str = "idempotency-key";
/// A request's header that says how long its answer may take (RFC 7240).
pub const PREFER: &str = "prefer";
/// A request's header with the id of the last event that was seen, as an `EventSource` sends it: the stream continues
/// behind that event.
pub const LAST_EVENT_ID: &str = "last-event-id";
/// The header of each answer that names the daemon's version.
pub const VERSION: &str = "muxtap-version";
/// The header of an answer that names the host on which its ids are.
pub const HOST: &str = "muxtap-host";
/// The header by which `muxtap stdio` says what it offers, and the daemon what it accepts and can.
pub const PEER: &str = "muxtap-peer";
/// A value of [`PEER`]: stdin and stdout are handed over.
pub const HAND_OVER: &str = "hand-over";
/// A value of [`PEER`]: a wait that is asked for again under its key continues.
pub const KEYS: &str = "keys";
/// In `Upgrade`: HTTP/2, for the muxtap of another host.
pub const PEER_PROTOCOL: &str = "muxtap-peer-1";
/// In `Upgrade`: MCP as over stdin and stdout, for `muxtap mcp`.
pub const MCP_PROTOCOL: &str = "muxtap-mcp-stdio";
