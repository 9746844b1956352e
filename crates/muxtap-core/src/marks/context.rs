//! OSC 3008: contexts that nest (the UAPI group's specification; systemd 257 and later).

use super::{
    Directory, Line, NAME_BYTES, Sign,
    decode::{backslashes, name, number, split},
};

/// A context that begins. The same id begins again when a shell is back at its prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContextStart {
    /// The context's id.
    pub id: String,
    /// The kind of context.
    pub kind: ContextKind,
    /// The command line.
    pub line: Option<Line>,
    /// The directory, with the host.
    pub directory: Option<Directory>,
}

/// The kind of a context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContextKind {
    /// A shell, at its prompt.
    Shell,
    /// A command of a shell.
    Command,
    /// A container, a virtual machine, another user, another host …
    Other,
}

/// A context that ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContextEnd {
    /// The context's id.
    pub id: String,
    /// The exit status.
    pub status: Option<i32>,
    /// The name of the signal that ended it, for example `SIGINT`.
    pub signal: Option<String>,
}

/// Parses an OSC 3008 without `3008;`. `is_cut`: the end is missing.
pub(super) fn parse(payload: &[u8], is_cut: bool) -> Option<Sign<'_>> {
    let (first, rest) = split(payload, b';');
    let fields = || {
        let mut rest = rest;
        std::iter::from_fn(move || {
            let (field, after) = split(rest?, b';');
            rest = after;
            // The last field breaks off where the end is missing.
            (after.is_some() || !is_cut).then(|| split(field, b'='))
        })
        .filter_map(|(key, value)| Some((key, value?)))
    };
    if let Some(id) = first.strip_prefix(b"start=") {
        let mut kind = None;
        let (mut line, mut path, mut host) = (None, None, &b""[..]);
        for (key, value) in fields() {
            match key {
                b"type" => kind = Some(value),
                b"cmdline" => line = Line::reported(&backslashes(value), false),
                b"cwd" => path = Some(backslashes(value)),
                b"hostname" => host = value,
                _ => {}
            }
        }
        let kind = match kind? {
            b"shell" => ContextKind::Shell,
            b"command" => ContextKind::Command,
            _ => ContextKind::Other,
        };
        let directory = path.and_then(|path| Directory::of(&path, host));
        return Some(Sign::ContextStart(ContextStart { id: name(id, NAME_BYTES)?.to_owned(), kind, line, directory }));
    }
    let id = name(first.strip_prefix(b"end=")?, NAME_BYTES)?.to_owned();
    let (mut status, mut signal) = (None, None);
    for (key, value) in fields() {
        match (key, value) {
            (b"exit", b"success") => status = status.or(Some(0)),
            (b"status", status_text) => status = number(status_text).or(status),
            (b"signal", signal_text) => signal = name(signal_text, NAME_BYTES).map(str::to_owned),
            _ => {}
        }
    }
    Some(Sign::ContextEnd(ContextEnd { id, status, signal }))
}
