//! `snapshot`.

use std::{fmt::Write as _, io::Read as _, path::PathBuf};

use clap::{Args, Subcommand};
use muxtap_base::plain;
use muxtap_snapshot::{
    FILE_BYTES,
    answers::{
        DiffAnswer, DiffQuery, ImportFormat, ImportRequest, RestoreAnswer, RestoreRequest, SaveRequest, SavedAnswer,
        ShowQuery, SnapshotList,
    },
};
use rustix::fs::{Mode, OFlags};
use serde_json::Value;

use super::{
    Caller, Outcome,
    output::{self, Table},
    path_of,
};

use crate::{
    api::{DoneAnswer, Error, Result},
    cli::caller::whole_environment,
};

const PATH: &str = "/v1/snapshots";

/// Save and restore sessions
///
/// A snapshot has the sessions' windows, layouts and exact sizes, zoomed and active panes,
/// directories, titles, and running programs with all arguments. Restored panes are shells in their
/// directories; only with --run are programs started, lines typed, and variables and labels of a file
/// from elsewhere set. Check them first (show): shells run the values of some variables.
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  muxtap snapshot save evening                   every session of the server
  muxtap snapshot restore evening                after a reboot
  muxtap snapshot restore evening --name again   beside the existing sessions
  muxtap snapshot diff evening                   differences from the current sessions
  muxtap snapshot import web ~/.tmuxinator/web.yml")]
pub(in crate::cli) struct SnapshotArgs {
    #[command(subcommand)]
    word: SnapshotCommand,
}

#[derive(Debug, Subcommand)]
enum SnapshotCommand {
    /// Save sessions
    Save {
        /// The snapshot's name
        #[arg(value_name = "NAME")]
        name: String,
        /// Save only this session; repeatable (default: all)
        #[arg(short = 't', value_name = "SESSION")]
        sessions: Vec<String>,
        /// Save this many lines of each pane's history and screen, as text
        #[arg(long, value_name = "LINES", default_value_t = 0)]
        history: u32,
        /// Save this variable of the sessions' environment; `*` stands for any characters;
        /// repeatable
        #[arg(long, value_name = "VARIABLE")]
        env: Vec<String>,
        /// Replace a snapshot of that name
        #[arg(long)]
        replace: bool,
    },
    /// List snapshots
    List,
    /// Show a snapshot
    Show {
        /// The snapshot's name
        #[arg(value_name = "NAME")]
        name: String,
        /// Include the saved history
        #[arg(long)]
        history: bool,
        /// Print this session as a file for tmuxp
        #[arg(long, value_name = "SESSION")]
        tmuxp: Option<String>,
        /// With --tmuxp: let tmuxp type the panes' programs
        #[arg(long, requires = "tmuxp")]
        run: bool,
    },
    /// Compare with another snapshot, or with the current state
    Diff {
        /// The snapshot's name
        #[arg(value_name = "NAME")]
        name: String,
        /// The other snapshot (default: the current sessions)
        #[arg(value_name = "OTHER")]
        with: Option<String>,
    },
    /// Restore a snapshot's sessions
    Restore {
        /// The snapshot's name
        #[arg(value_name = "NAME")]
        name: String,
        /// Restore only this session; repeatable (default: all)
        #[arg(short = 't', value_name = "SESSION")]
        sessions: Vec<String>,
        /// The new session's name; for several sessions a prefix
        #[arg(long = "name", value_name = "NEW")]
        new_name: Option<String>,
        /// Start the panes' programs again, type the lines of imported files, and set the variables
        /// and labels of a snapshot that was not saved here, or was edited
        #[arg(long)]
        run: bool,
    },
    /// Remove a snapshot
    Remove {
        /// The snapshot's name
        #[arg(value_name = "NAME")]
        name: String,
    },
    /// Import a file of tmuxp, tmuxinator, smug or tmux-resurrect
    Import {
        /// The snapshot's name
        #[arg(value_name = "NAME")]
        name: String,
        /// The file, `-` for stdin
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// The file's program (default: detected by its keys)
        #[arg(long, value_name = "PROGRAM", value_parser = ["tmuxp", "tmuxinator", "smug", "resurrect"])]
        format: Option<String>,
        /// Replace a snapshot of that name
        #[arg(long)]
        replace: bool,
    },
}

impl SnapshotArgs {
    pub(in crate::cli) async fn run(self, caller: &Caller) -> Outcome {
        let mut client = caller.client().await?;
        let of = |name: &str| path_of("snapshots", name);
        match self.word {
            SnapshotCommand::Save { name, sessions, history, env, replace } => {
                let request = SaveRequest { name, sessions, history, env, replace };
                print_saved(caller, &client.post(PATH, &request).await?)
            }
            SnapshotCommand::List => print_list(caller, &client.get(PATH, &()).await?),
            SnapshotCommand::Show { name, history, tmuxp, run } => {
                let query = ShowQuery { session: tmuxp, run };
                let file: Value = client.get(&of(&name), &query).await?;
                if caller.json {
                    output::print_json(&file)?;
                } else if query.session.is_some() {
                    let text =
                        serde_json::to_string_pretty(&file).map_err(|error| Error::internal(error.to_string()))?;
                    output::print(format!("{}\n", plain::json(&text)))?;
                } else {
                    output::print(shown(&file, history))?;
                }
                Ok(0)
            }
            SnapshotCommand::Diff { name, with } => {
                let answer: DiffAnswer = client.get(&format!("{}/diff", of(&name)), &DiffQuery { with }).await?;
                print_diff(caller, &answer)
            }
            SnapshotCommand::Restore { name, sessions, new_name, run } => {
                let request = RestoreRequest { sessions, name: new_name, run, caller_env: Some(whole_environment()) };
                let answer: RestoreAnswer = client.post(&format!("{}/restore", of(&name)), &request).await?;
                if caller.json {
                    output::print_json(&answer)?;
                    return Ok(0);
                }
                answer.notes.iter().for_each(|note| output::note(note));
                output::print(format!(
                    "{}\n",
                    answer.sessions.iter().map(|name| plain::name(name)).collect::<Vec<_>>().join("\n")
                ))?;
                Ok(0)
            }
            SnapshotCommand::Remove { name } => {
                let done: DoneAnswer = client.delete(&of(&name)).await?;
                if caller.json {
                    output::print_json(&done)?;
                }
                Ok(0)
            }
            SnapshotCommand::Import { name, file, format, replace } => {
                let request =
                    ImportRequest { text: text_of(&file)?, format: format.as_deref().and_then(format_of), replace };
                print_saved(caller, &client.put(&of(&name), &request).await?)
            }
        }
    }
}

fn format_of(word: &str) -> Option<ImportFormat> {
    match word {
        "tmuxp" => Some(ImportFormat::Tmuxp),
        "tmuxinator" => Some(ImportFormat::Tmuxinator),
        "smug" => Some(ImportFormat::Smug),
        "resurrect" => Some(ImportFormat::Resurrect),
        _ => None,
    }
}

fn text_of(file: &std::path::Path) -> Result<String> {
    let invalid = |error: std::io::Error| Error::invalid(format!("{}: {error}", file.display()));
    let source: Box<dyn std::io::Read> = if file.as_os_str() == "-" {
        Box::new(std::io::stdin().lock())
    } else {
        // A FIFO is opened without blocking, and rejected.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let opened = rustix::fs::open(file, flags, Mode::empty()).map_err(|error| invalid(error.into()))?;
        let opened = std::fs::File::from(opened);
        if !opened.metadata().map_err(invalid)?.is_file() {
            return Err(Error::invalid(format!("{}: not a regular file; pipe it in, with `-`", file.display())));
        }
        Box::new(opened)
    };
    let mut text = String::new();
    source.take(FILE_BYTES + 1).read_to_string(&mut text).map_err(invalid)?;
    if text.len() as u64 > FILE_BYTES {
        return Err(Error::invalid(format!("{}: too large; at most {FILE_BYTES} bytes", file.display())));
    }
    Ok(text)
}

fn print_saved(caller: &Caller, saved: &SavedAnswer) -> Outcome {
    if caller.json {
        output::print_json(saved)?;
        return Ok(0);
    }
    saved.notes.iter().for_each(|note| output::note(note));
    output::print(format!(
        "{}: {}, {}, {}\n",
        saved.name,
        output::counted(saved.sessions.len(), "session"),
        output::counted(saved.windows as usize, "window"),
        output::counted(saved.panes as usize, "pane")
    ))?;
    if !saved.runs.is_empty() {
        let mut text = "with --run a restore of it:\n".to_owned();
        for line in &saved.runs {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "  {}", plain::name(line));
        }
        output::print(text)?;
    }
    Ok(0)
}

fn print_list(caller: &Caller, list: &SnapshotList) -> Outcome {
    if caller.json {
        output::print_json(list)?;
        return Ok(0);
    }
    let mut table = Table::new(&["NAME", "SAVED", "WINDOWS", "PANES", "SESSIONS"]);
    for one in &list.snapshots {
        let sessions = one.error.clone().unwrap_or_else(|| one.sessions.join(", "));
        let saved = match (one.saved.is_empty(), one.saved_here) {
            (true, _) => "imported".to_owned(),
            (false, true) => one.saved.clone(),
            (false, false) => format!("{} (elsewhere)", one.saved),
        };
        table.row(&[one.name.clone(), saved, one.windows.to_string(), one.panes.to_string(), sessions]);
    }
    output::print(table.render())?;
    Ok(0)
}

fn print_diff(caller: &Caller, answer: &DiffAnswer) -> Outcome {
    if caller.json {
        output::print_json(answer)?;
    } else {
        let line = |one: &muxtap_snapshot::answers::Difference| {
            let (place, from, to) = (plain::name(&one.place), plain::name(&one.from), plain::name(&one.to));
            format!("{place} {}: {from} -> {to}\n", one.field)
        };
        output::print(answer.differences.iter().map(line).collect::<String>())?;
    }
    // As diff(1): 1 if something differs.
    Ok(u8::from(!answer.differences.is_empty()))
}

/// Describes a snapshot for people: a line for each session, window and pane.
fn shown(file: &Value, with_history: bool) -> String {
    let mut text = String::new();
    let more = items(at(at(file, "muxtap"), "sessions"));
    let is_own = *at(at(file, "muxtap"), "saved_here") == true;
    for session in std::iter::once(file).chain(more) {
        session_lines(&mut text, session, is_own, with_history);
    }
    text
}

fn session_lines(text: &mut String, session: &Value, is_own: bool, with_history: bool) {
    // Writing to a String cannot fail; also below.
    let _ = writeln!(text, "{}", word(at(session, "session_name")));
    let when = if is_own { "" } else { "  (set with --run only)" };
    for (name, value) in at(session, "environment").as_object().into_iter().flatten() {
        let value = value.as_str().unwrap_or_default();
        let _ =
            writeln!(text, "  {}{when}", plain::name(&format!("{name}={}", muxtap_base::quoting::shell_word(value))));
    }
    if let Some(labels) = at(at(session, "muxtap"), "labels").as_str() {
        let _ = writeln!(text, "  {{{}}}{when}", plain::name(labels));
    }
    if let Some(with) = at(at(session, "muxtap"), "grouped_with").as_str() {
        let _ = writeln!(text, "  shares the windows of {}", plain::name(with));
    }
    for window in items(at(session, "windows")) {
        let own = at(window, "muxtap");
        let mut marks = String::new();
        for (mark, is_so) in [
            ("*", *at(window, "focus") == true),
            ("-", *at(own, "last") == true),
            ("Z", *at(own, "zoomed") == true),
            ("S", !at(window, "options_after").is_null()),
        ] {
            marks.push_str(if is_so { mark } else { "" });
        }
        let size = match (items(at(own, "size")).next(), items(at(own, "size")).nth(1)) {
            (Some(columns), Some(rows)) => format!(" {columns}x{rows}"),
            _ => String::new(),
        };
        let index = at(window, "window_index").as_u64().map(|index| format!("{index}: ")).unwrap_or_default();
        let _ = writeln!(text, "  {index}{}{marks}{size}", word(at(window, "window_name")));
        if !at(own, "linked").is_null() {
            let linked = at(own, "linked");
            let _ = writeln!(text, "    linked: {}:{}", word(at(linked, "session")), at(linked, "index"));
        }
        for (number, pane) in items(at(window, "panes")).enumerate() {
            pane_lines(text, number, pane, with_history);
        }
    }
}

fn pane_lines(text: &mut String, number: usize, pane: &Value, with_history: bool) {
    let own = at(pane, "muxtap");
    let active = if *at(pane, "focus") == true { "*" } else { "" };
    let argv: Vec<String> =
        items(at(own, "argv")).filter_map(Value::as_str).map(muxtap_base::quoting::shell_word).collect();
    let lines: Vec<&str> = items(at(pane, "shell_command")).filter_map(Value::as_str).collect();
    let mut runs = String::new();
    if !argv.is_empty() {
        let _ = write!(runs, "  runs {}", plain::name(&argv.join(" ")));
    }
    if !lines.is_empty() {
        let _ = write!(runs, "  lines {}", plain::name(&lines.join("; ")));
    }
    let title = at(own, "title").as_str().map(|title| format!("  \"{}\"", plain::name(title))).unwrap_or_default();
    let labels = at(own, "labels").as_str().map(|labels| format!("  {{{}}}", plain::name(labels))).unwrap_or_default();
    let _ = writeln!(text, "    .{number}{active} {}{title}{labels}{runs}", word(at(pane, "start_directory")));
    if with_history {
        if let Some(line) = at(own, "last_line").as_str() {
            let _ = writeln!(text, "      last command: {}", plain::name(line));
        }
        for line in items(at(own, "history")).filter_map(Value::as_str) {
            let _ = writeln!(text, "      | {}", plain::name(line));
        }
    }
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn at<'a>(value: &'a Value, name: &str) -> &'a Value {
    value.get(name).unwrap_or(&Value::Null)
}

fn word(value: &Value) -> String {
    plain::name(value.as_str().unwrap_or_default()).into_owned()
}
