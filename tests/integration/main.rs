//! Tests of muxtap as its users see it: its binary, its sockets, and real tmux servers.
//!
//! One crate, so that it is linked once; each test has its own [`common::World`] and runs in any
//! order beside the others.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::string_slice,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::similar_names,
    clippy::format_collect,
    clippy::needless_raw_string_hashes,
    clippy::too_many_lines,
    missing_docs,
    reason = "a test says what is wrong by panicking, is its own documentation, and may be one long table"
)]

mod agent_reports;
mod agent_sessions;
mod agents;
mod all_at_once;
mod arrival;
mod attacks;
mod bad_input;
mod bridge;
mod capability;
mod capture;
mod cli;
mod commands;
mod common;
mod completion;
mod container;
mod daemon_trouble;
mod demo;
mod devices;
mod disconnect;
mod docs;
mod doctor;
mod echo;
mod elsewhere;
mod ends;
mod faults;
mod first_hour;
mod fleet;
mod fleet_admin;
mod floods;
mod guest;
mod hostile;
mod hosts;
mod http_port;
mod hub;
mod input;
mod interfaces;
mod judges;
mod labels;
mod library;
mod lifecycle;
mod long_waits;
mod many_panes;
mod marked;
mod mcp;
mod mcp_clients;
mod mcp_tasks;
mod modes;
mod open_strings;
mod outside;
mod own_answers;
mod own_lines;
mod packaging;
mod page;
mod peers;
mod places;
mod planted;
mod plugin;
mod protocol;
mod readme;
mod record;
mod respawn;
mod rules_killed;
mod run;
mod run_behind;
mod run_enter;
mod run_felt;
mod run_matrix;
mod run_new_pane;
mod run_prompt;
mod screen_programs;
mod screen_random;
mod servers;
mod several;
mod shell_integration;
mod snapshots;
mod soak;
mod socket_file;
mod started_shells;
mod strangers;
mod stream_screens;
mod stream_sse;
mod stream_ws;
mod streams;
mod subscribers;
mod supervise;
mod systemd;
mod targets;
mod tmux_habits;
#[cfg(feature = "top")]
mod top;
mod two_programs;
mod unheld;
mod unnoticed;
mod unresponsive;
mod upgrade;
mod upgrade_callers;
mod upgrade_record;
mod wait_begin;
mod waits;
mod watch;
mod when;
mod wire;
