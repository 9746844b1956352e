//! The control mode protocol: all that travels between tmux and a control client, as values.
//!
//! This floor is pure: bytes in, values out. It knows no socket, no clock and no task. Nothing here
//! assumes UTF-8 and nothing panics, whatever the bytes. `docs/protocol.md` numbers what it relies
//! on and names the test of each clause.
//!
//! Inwards: [`codec`] frames lines with memchr, [`mod@line`] reads one, [`notification`], [`guard`]
//! and [`layout`] are what they say, [`octal`] decodes pane output. Outwards: [`command`] is the
//! only thing that writes to tmux, [`names`] spells its commands, [`frame`] brackets commands whose replies carry pane text.
//! [`version`] names what differs between servers.

pub mod codec;
pub mod command;
mod field;
pub mod frame;
pub mod guard;
pub mod ids;
pub mod layout;
pub mod line;
pub mod names;
pub mod notification;
pub mod octal;
pub mod version;
