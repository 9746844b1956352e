//! The copies of audit logs, as the admin reads them (`docs/fleet.md`).

use std::collections::HashSet;

use async_nats::{
    Client,
    jetstream::{
        self,
        stream::{self, LastRawMessageErrorKind, Stream},
    },
};
use muxtap_api::{Error, Result};
use serde_json::json;

use super::{
    folder::Folder,
    member::ADMIN,
    permissions::AUDIT_STREAM,
    reach::{Connection, connect, explain},
};
use crate::{settings::check_name, subject};

/// The most bytes of all copies; then the oldest messages are removed.
const COPY_BYTES: i64 = 192 << 20;
/// The longest message, with its header: that of a daemon is 64 KiB.
const LONGEST: i32 = 128 << 10;

/// The copies of audit logs.
pub struct Copies {
    /// Keeps the connection open.
    _connection: Connection,
    stream: Stream,
    subject: String,
    /// The subjects whose messages are copies.
    known: HashSet<String>,
    /// Whether lines of several members are read.
    is_all: bool,
    next: u64,
}

impl Copies {
    /// Opens the copy of one member's log, or those of all. Creates the stream that takes them if it is
    /// missing.
    pub async fn open(folder: &Folder, name: Option<&str>) -> Result<Self> {
        let members = folder.members()?;
        if let Some(name) = name {
            check_name(name)?;
            // The copy of a revoked member stays.
            if members.get(name).is_some_and(|member| member.audit.is_none()) {
                return Err(Error::invalid(format!("member `{name}` was added without --audit")));
            }
        }
        // Without one, NATS does not permit reading to the admin.
        if !members.iter().any(|member| member.audit.is_some()) {
            return Err(Error::invalid("no member was added with --audit, so no audit log is copied"));
        }
        let url = folder.description()?.local_url();
        let connection = connect(folder, &url, ADMIN, folder.admin_seed()?).await.map_err(|error| {
            let (why, fix) = explain(&error, ADMIN);
            Error::unavailable(format!("{url}: {why}; {fix}"))
        })?;
        let stream = create(&connection.client).await?;
        let subject = name.map_or_else(|| subject::AUDITS.to_owned(), |name| subject::audit(name, "*"));
        // A reply of NATS can be sent to any other subject in a member's name.
        let mut known = folder.audit_subjects()?;
        if let Some(name) = name {
            known.retain(|subject| subject::member_of_audit(subject) == Some(name));
            if known.is_empty() {
                return Err(Error::not_found(format!("unknown member `{name}`: its audit log is not copied")));
            }
        }
        Ok(Self { _connection: connection, stream, subject, known, is_all: name.is_none(), next: 1 })
    }

    /// Returns the next lines, in the order in which NATS has stored them: as they are in the member's
    /// files, or with the field `host` if those of all are read. `None`: there are no more.
    pub async fn next(&mut self) -> Result<Option<String>> {
        let message = loop {
            let found = self.stream.get_first_raw_message_by_subject(&self.subject, self.next).await;
            let message = match found {
                Ok(message) => message,
                Err(error) if error.kind() == LastRawMessageErrorKind::NoMessageFound => return Ok(None),
                Err(error) => return Err(unusable(&error)),
            };
            self.next = message.sequence + 1;
            if self.known.contains(message.subject.as_str()) {
                break message;
            }
        };
        let lines = String::from_utf8_lossy(&message.payload);
        let member = subject::member_of_audit(&message.subject).unwrap_or_default();
        Ok(Some(if self.is_all { with_host(&lines, member) } else { lines.into_owned() }))
    }
}

/// Returns the stream. It permits neither purging nor deleting: see `permissions`.
async fn create(client: &Client) -> Result<Stream> {
    let config = stream::Config {
        name: AUDIT_STREAM.to_owned(),
        subjects: vec![subject::AUDITS.to_owned()],
        max_bytes: COPY_BYTES,
        max_message_size: LONGEST,
        deny_delete: true,
        deny_purge: true,
        storage: stream::StorageType::File,
        ..stream::Config::default()
    };
    jetstream::new(client.clone()).get_or_create_stream(config).await.map_err(|error| unusable(&error))
}

/// Returns lines of JSON with the field `host` in front; a line that is not a JSON object becomes the field
/// `line`.
fn with_host(lines: &str, host: &str) -> String {
    let named = |line: &str| match serde_json::from_str::<serde_json::Map<_, _>>(line) {
        Ok(fields) if !fields.is_empty() && !fields.contains_key("host") => {
            format!("{{\"host\":\"{host}\",{}\n", line.trim_start().trim_start_matches('{'))
        }
        _ => format!("{}\n", json!({ "host": host, "line": line })),
    };
    lines.lines().map(named).collect()
}

fn unusable(error: &dyn std::fmt::Display) -> Error {
    Error::unavailable(format!(
        "the copies of audit logs cannot be read: {}",
        muxtap_base::plain::name(&error.to_string())
    ))
}
