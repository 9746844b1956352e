//! The two programs: the command line, the daemon and their settings.

pub mod cli;
pub mod config;
pub mod daemon;

use muxtap_api as api;
use muxtap_core::{protocol, screen};
