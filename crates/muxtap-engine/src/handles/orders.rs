//! tmux's own commands, for features that are built on the handles.

use muxtap_api::{Operation, Result, Tier};
use muxtap_base::nonce;
use muxtap_core::protocol::{
    command::{Command, CommandLine},
    ids::PaneId,
    octal,
    version::Version,
};
use muxtap_tmux::{LinkState, Request, unreadable};

use super::Server;

use crate::{input::shell, pane::PaneMetadata, spawn::create::tmux_error};

/// A list that tmux prints: a command that takes `-F`, and the variables to read of each entry.
pub struct ValueList {
    /// The command, without its format.
    pub command: Command,
    /// The variables' names.
    pub fields: &'static [&'static str],
}

impl Server {
    /// Attaches a control client before layouts are read: tmux 3.8 writes them as JSON for plain
    /// clients.
    pub async fn follow_for_layouts(&self) -> Result<()> {
        let link = self.host.server();
        let identity = link.connected().await?;
        if identity.version >= (Version { major: 3, minor: 8, suffix: None, is_preview: false }) {
            link.cover_all().await?;
        }
        Ok(())
    }

    /// Returns the values of variables, a row for each entry of each list. All lists are read by
    /// one line of commands, so nothing changes between them. Values may contain any text.
    pub async fn values(&self, lists: &[ValueList]) -> Result<Vec<Vec<Vec<String>>>> {
        self.engine.authorize(Tier::Read)?;
        // No value can contain the separator, since each call makes a new one.
        let separator = nonce::hex64();
        let question = || {
            let commands = lists.iter().map(|list| {
                let format =
                    list.fields.iter().fold(String::new(), |format, field| format + "#{" + field + "}" + &separator);
                list.command.clone().flag("-F").format(format)
            });
            Request::Framed(commands.collect())
        };
        let answer = self.host.server().read(None, question).await?;
        let bodies = answer.map_err(|message| tmux_error(&message))?;
        let is_octal = match self.host.server().state() {
            LinkState::Connected(identity) => identity.version.lists_are_octal_encoded(),
            _ => false,
        };
        let rows = |(list, body): (&ValueList, &bytes::Bytes)| {
            let values = split(body, separator.as_bytes());
            let row = |row: &[&[u8]]| row.iter().map(|value| text(value, is_octal)).collect::<Vec<_>>();
            let rows: Vec<_> = values.chunks_exact(list.fields.len()).map(row).collect();
            // An empty list prints nothing.
            if rows.is_empty() && !body.is_empty() { Err(unreadable(list.command.name())) } else { Ok(rows) }
        };
        lists.iter().zip(&bodies).map(rows).collect()
    }

    /// Returns what tmux prints for one command that changes nothing.
    pub async fn printed(&self, command: Command) -> Result<String> {
        self.engine.authorize(Tier::Read)?;
        let answer = self.host.server().read(None, || Request::Framed(vec![command.clone()])).await?;
        let bodies = answer.map_err(|message| tmux_error(&message))?;
        Ok(bodies.first().map(|body| String::from_utf8_lossy(body).into_owned()).unwrap_or_default())
    }

    /// Runs commands as one line and returns what each printed. The audit log records them as one
    /// action on `target`. The first command that tmux rejects ends the line.
    pub async fn orders(
        &self,
        action: &'static str,
        target: &str,
        commands: impl IntoIterator<Item = Command>,
    ) -> Result<Vec<String>> {
        let audit = self.engine.audit(Operation::Arrange(action), &self.host, target)?;
        let done = async {
            let line = CommandLine::of(commands);
            let answer = self.host.server().write(None, Request::Plain(line)).await?;
            let bodies = answer.map_err(|message| tmux_error(&message))?;
            Ok(bodies.iter().map(|body| String::from_utf8_lossy(body).trim_end().to_owned()).collect())
        }
        .await;
        audit.finish(done)
    }

    /// Returns all arguments of the program in a pane's foreground. `None` if a shell is idle in
    /// the pane, or the arguments cannot be read (another system, another machine, a process that
    /// hangs).
    pub async fn foreground_args(&self, pane: PaneId) -> Option<Vec<String>> {
        if !self.host.server().spec().is_local() {
            return None;
        }
        let listed = || self.host.server().topology().pane(pane).map(PaneMetadata::from);
        // For a pane that is not followed, tmux's last listing of it.
        let metadata = self.host.live_pane(pane).map(|pane| pane.metadata()).or_else(listed)?;
        self.host.probe(metadata, shell::program_args).await.flatten()
    }

    /// Runs a shell script on the other host of the server, with these arguments, and returns what it
    /// prints; a profile of the host may print before it. Error: `TMUX_UNAVAILABLE` if the host
    /// cannot be reached.
    pub async fn script_there(&self, script: &str, args: &[&str]) -> Result<String> {
        self.engine.authorize(Tier::Read)?;
        self.host.server().spec().script_there(script, args).await
    }

    /// Returns whether the server runs on this machine, where its directories exist too.
    pub fn is_local(&self) -> bool {
        self.host.server().spec().is_local()
    }

    /// Returns whether the server belongs to the user of the daemon.
    pub fn is_of_this_user(&self) -> bool {
        self.host.server().spec().is_of_this_user()
    }
}

/// Returns the pieces that end with the separator.
fn split<'a>(body: &'a [u8], separator: &[u8]) -> Vec<&'a [u8]> {
    let mut from = 0;
    let pieces = memchr::memmem::find_iter(body, separator).map(|at| {
        let piece = body.get(from..at).unwrap_or_default();
        from = at + separator.len();
        piece
    });
    pieces.collect()
}

/// Returns a value as text. A line end before the first value of a row belongs to the previous row.
fn text(value: &[u8], is_octal: bool) -> String {
    let mut bytes = value.strip_prefix(b"\n").unwrap_or(value).to_vec();
    if is_octal {
        let length = octal::decode_in_place(&mut bytes);
        bytes.truncate(length);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
