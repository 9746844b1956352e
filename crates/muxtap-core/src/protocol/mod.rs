//! The control-mode protocol: everything that tmux and a control client exchange, as values.
//!
//! This module is pure: it maps bytes to values, without sockets, clocks or tasks. It never assumes
//! UTF-8 and never panics, whatever the bytes. `docs/protocol.md` numbers the rules on which it
//! relies, each with its test.
//!
//! Reading: [`codec`] frames lines with memchr, [`mod@line`] parses one, [`notification`],
//! [`guard`] and [`layout`] parse its contents, [`octal`] decodes pane output. Writing: only
//! [`command`] writes to tmux, [`names`] spells its commands, [`frame`] brackets commands whose
//! replies contain pane text. [`version`] names the differences between servers.

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
