//! The commands of a pane, for the interfaces: the list, and the output of one command.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use muxtap_api::{
    CommandChoice, CommandInfo, CommandsAnswer, CommandsRequest, Error, Gap, GapReason, ReadAnswer, ReadFormat,
    ReadRequest, Result, SeenMarks, Since, Tier,
};
use muxtap_core::stream::ring::{Chunk, Reading};
use regex::RegexBuilder;

use super::read::{check_most, read_answer};
use crate::{PaneState, Server, limits, pane::LockedPane};

/// The greatest number in a request: that of the document of HTTP (`int64`).
const MOST: u64 = i64::MAX.unsigned_abs();
/// The size limit of a compiled pattern, in bytes.
const PATTERN_BYTES: usize = 1 << 20;

impl Server {
    /// Lists the commands that ran in a pane while it was followed, the earliest first.
    ///
    /// Errors: those of a target; `INVALID_ARGUMENT` for an invalid pattern or a number out of range.
    pub fn list_commands<'a>(
        &'a self,
        target: &'a str,
        request: &'a CommandsRequest,
    ) -> BoxFuture<'a, Result<CommandsAnswer>> {
        Box::pin(self.list_commands_here(target, request))
    }

    async fn list_commands_here(&self, target: &str, request: &CommandsRequest) -> Result<CommandsAnswer> {
        self.engine.authorize(Tier::Read)?;
        for (name, least, given) in [("n", 1, request.n), ("over_ms", 0, request.over_ms)] {
            if let Some(given) = given.filter(|given| !(least..=MOST).contains(given)) {
                return Err(Error::invalid(format!("{name}: expected {least} to {MOST}, got {given}")));
            }
        }
        let pane = self.resolve_pane(target).await?;
        let (placed, marks) = (pane.commands(), pane.lock().seen_marks());
        let mut commands: Vec<_> = placed.iter().map(CommandInfo::from).collect();
        if request.failed {
            commands.retain(CommandInfo::has_failed);
        }
        if let Some(over_ms) = request.over_ms {
            commands.retain(|command| command.took(over_ms));
        }
        if let Some(grep) = &request.grep {
            commands = self.matching(commands, grep).await?;
        }
        let most = request.n.map_or(usize::MAX, |n| usize::try_from(n).unwrap_or(usize::MAX));
        commands.drain(..commands.len().saturating_sub(most));
        Ok(CommandsAnswer { pane: pane.id(), marks, commands })
    }

    /// Returns the commands whose line matches a pattern. Matching takes time like compiling, and
    /// happens in the same turn.
    async fn matching(&self, mut commands: Vec<CommandInfo>, grep: &str) -> Result<Vec<CommandInfo>> {
        let text = grep.to_owned();
        let filter = move || {
            let pattern = RegexBuilder::new(&text).size_limit(PATTERN_BYTES).build();
            let pattern = pattern.map_err(|error| Error::invalid(format!("grep: {error}")))?;
            commands.retain(|command| command.line.as_ref().is_some_and(|line| pattern.is_match(line)));
            Ok(commands)
        };
        self.engine.compile([grep], filter).await
    }

    /// Reads the output of one command. Returns the answer without its text, and the chunk.
    pub(super) async fn read_command(
        &self,
        target: &str,
        request: &ReadRequest,
        choice: CommandChoice,
    ) -> Result<(ReadAnswer, Chunk, Arc<PaneState>)> {
        self.engine.authorize(Tier::Read)?;
        if request.until.is_some() || request.wait_ms.is_some() {
            return Err(Error::invalid("command: its output has its own end; leave out until and wait_ms"));
        }
        let most = request.max_bytes.unwrap_or(limits::READ_DEFAULT);
        check_most(most)?;
        let since = request.since.as_deref().map(str::parse).transpose()?;
        let pane = self.resolve_pane(target).await?;
        let (command, chunk, gap) = {
            let locked = pane.lock();
            let Some(command) = pane.chosen_command(&locked, choice) else {
                return Err(no_such_command(&pane, &locked, choice));
            };
            let (start, end) = (command.start.offset, command.end.offset);
            let from = match &since {
                None => start,
                Some(Since::At(cursor)) => match pane.locate(&locked, cursor)? {
                    (_, None | Some(Gap { reason: GapReason::Trimmed, .. })) => cursor.offset.clamp(start, end),
                    _ => {
                        return Err(Error::invalid(
                            "since: this cursor belongs to another run of muxtap or tmux, which knew other commands",
                        ));
                    }
                },
                Some(_) => {
                    return Err(Error::invalid("since: with command, expected a cursor of an earlier response"));
                }
            };
            let (chunk, gap) = read_range(&locked, from..end, most, request.format, command.command.end.is_some());
            (CommandInfo::from(&command), chunk, gap)
        };
        let answer = ReadAnswer { command: Some(Box::new(command)), ..read_answer(&pane, &chunk, gap) };
        Ok((answer, chunk, pane))
    }
}

/// Reads the next output within a range, up to a gap, and returns the gap before it. The last output
/// of a range that is closed ends exactly with the range.
fn read_range(
    locked: &LockedPane,
    range: std::ops::Range<u64>,
    most: u64,
    format: ReadFormat,
    is_closed: bool,
) -> (Chunk, Option<Gap>) {
    let ring = locked.ring();
    let kept = range.start.max(ring.start()).min(range.end);
    let dropped = kept - range.start;
    let trimmed = (dropped > 0).then_some(Gap::new(GapReason::Trimmed, Some(dropped)));
    let left = range.end - kept;
    if left == 0 {
        // Also for a range of which nothing is left.
        let mut chunk = ring.read(kept, Reading { most: 0, whole_sequences: false, at_end: false });
        (chunk.start, chunk.end, chunk.more) = (kept, kept, false);
        return (chunk, trimmed);
    }
    let exact = Reading { most: left, whole_sequences: false, at_end: false };
    let mut chunk = if is_closed && left <= most {
        ring.read(kept, exact)
    } else {
        ring.read(kept, locked.reading(most.min(left), format))
    };
    if is_closed && chunk.end > range.end {
        // A sequence that is open at the end continues beyond it.
        chunk = ring.read(kept, exact);
    }
    if is_closed {
        chunk.more = chunk.end < range.end;
    }
    let gap = trimmed.or(chunk.gap);
    (chunk, gap)
}

fn no_such_command(pane: &PaneState, locked: &LockedPane, choice: CommandChoice) -> Error {
    let id = pane.id();
    let Some((first, last)) = locked.kept_commands() else {
        return Error::not_found(format!("no command is known in {id}; {}", why_none(locked.seen_marks())));
    };
    let kept = format!("the commands {first} to {last} are kept");
    Error::not_found(match choice {
        CommandChoice::Number(number) => format!("no command {number} in {id}; {kept}"),
        CommandChoice::FromEnd(place) => format!("no command -{place} in {id}; {kept}"),
        CommandChoice::LastFailed => format!("no command in {id} failed; {kept}"),
    })
}

/// Explains why a pane has no commands.
fn why_none(marks: SeenMarks) -> &'static str {
    match marks {
        SeenMarks::None => {
            "its shell has printed no marks since muxtap began to follow the pane; `muxtap shell-integration` switches \
             them on"
        }
        SeenMarks::Claimed | SeenMarks::Trusted => "its shell has run none since muxtap began to follow the pane",
    }
}
