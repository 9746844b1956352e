//! Administration of a fleet: the server's configuration, and its members' keys and permissions.
//!
//! Everything is in one folder on the server's machine. [`Folder`] is the only writer. What NATS
//! lets a member do is decided in [`permissions`] alone.

mod audit;
mod certificate;
mod doctor;
mod folder;
mod member;
pub mod permissions;
mod reach;
mod server;

pub use self::{
    audit::Copies,
    certificate::{NAMES, SERVER_DAYS, check_host_name},
    doctor::{Finding, Level, doctor},
    folder::{Folder, Request},
    member::{ADMIN, MEMBERS, Member, Members, PATTERNS},
    permissions::Permissions,
    reach::{Instance, MemberStatus, Status, status},
    server::{Description, PORT, listen_address},
};
