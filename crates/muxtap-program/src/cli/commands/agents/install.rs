//! `agents install`, `agents uninstall` and `agents status`: muxtap's entries in the hooks of agents.

mod files;
mod json;
mod kinds;

use std::path::{Path, PathBuf};

use clap::{Args, builder::PossibleValuesParser};
use serde::Serialize;

use self::{
    files::Change,
    kinds::{KINDS, Kind, Shape},
};
use super::super::{Caller, Outcome, output};
use crate::api::{Error, Result};

/// Add muxtap to the hooks of an agent
///
/// The agent then reports its state itself. Entries that are there stay, byte for byte; the file as it
/// was is kept beside it. Project files are meant for one machine: the entries name muxtap's own path.
#[derive(Debug, Args)]
pub(super) struct Install {
    #[command(flatten)]
    place: Place,
    /// Print the new file, and change nothing
    #[arg(long)]
    dry_run: bool,
}

/// Remove muxtap from the hooks of an agent
///
/// Restores the file as it was, if nothing else has changed since; else removes only muxtap's entries.
#[derive(Debug, Args)]
pub(super) struct Uninstall {
    #[command(flatten)]
    place: Place,
    /// Print the new file, and change nothing
    #[arg(long)]
    dry_run: bool,
}

/// Show in which agents' hooks muxtap is installed
#[derive(Debug, Args)]
pub(super) struct Status {
    /// Look in this directory's files instead of the user's
    #[arg(long)]
    project: bool,
}

#[derive(Debug, Args)]
struct Place {
    /// The agent
    #[arg(value_name = "AGENT", value_parser = PossibleValuesParser::new(KINDS.map(|kind| kind.id)))]
    agent: String,
    /// Change this directory's file instead of the user's
    #[arg(long)]
    project: bool,
}

/// The state of one agent's file.
#[derive(Debug, Serialize)]
struct Installed {
    agent: &'static str,
    file: PathBuf,
    /// Whether all entries, some, or none are there, and whether a plugin has them.
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

impl Place {
    fn kind(&self) -> Result<&'static Kind> {
        KINDS.iter().find(|kind| kind.id == self.agent).ok_or_else(|| Error::invalid("unknown agent"))
    }

    /// Returns where the text from before the installation is kept. That of a project is not kept in the
    /// project: it may hold secrets, and git does not ignore it.
    fn backup_of(&self, file: &Path) -> Result<PathBuf> {
        if self.project { files::project_backup_of(file) } else { Ok(files::backup_of(file)) }
    }
}

impl Install {
    pub(super) fn run(&self, caller: &Caller) -> Outcome {
        let kind = self.place.kind()?;
        let file = files::resolve(&kind.file(self.place.project)?)?;
        let old = files::read(&file)?;
        if let Some(by) = installed_by_plugin(kind, &file)? {
            return done(caller, self.dry_run, "installed by Claude Code's plugin `muxtap`; unchanged", &by, None);
        }
        let new = installed(kind, old.as_deref().unwrap_or_default(), &command(kind))
            .map_err(|error| in_file(&file, error))?;
        if old.as_deref() == Some(new.as_str()) {
            return done(caller, self.dry_run, "already installed", &file, None);
        }
        if self.dry_run {
            return done(caller, true, "would be written", &file, Some(&new));
        }
        let keep = old.as_deref().filter(|old| !is_all_ours(kind, old));
        let change = Change::Write { text: &new, keep };
        files::replace(&file, old.as_deref(), &self.place.backup_of(&file)?, &change)?;
        let outcome = done(caller, false, "installed", &file, None);
        if let Some(note) = kind.note {
            output::note(note);
        }
        outcome
    }
}

impl Uninstall {
    pub(super) fn run(&self, caller: &Caller) -> Outcome {
        let kind = self.place.kind()?;
        let file = files::resolve(&kind.file(self.place.project)?)?;
        let Some(old) = files::read(&file)?.filter(|old| has_any(kind, old)) else {
            return done(caller, self.dry_run, "not installed", &file, None);
        };
        let backup_file = self.place.backup_of(&file)?;
        if let Shape::Plugin(_) = kind.shape {
            return self.remove_plugin(caller, kind, &file, &backup_file, &old);
        }
        let backup = files::read(&backup_file)?;
        let command = command(kind);
        // What an installation makes of the backup, or of no file.
        let made = installed(kind, backup.as_deref().unwrap_or_default(), &command).ok();
        let is_untouched = made.as_deref() == Some(old.as_str());
        let change = match (&backup, is_untouched) {
            (Some(backup), true) => Change::Restore { text: backup },
            (None, true) => Change::Remove { keep: None },
            (_, false) => {
                let rest = removed(kind, &old).map_err(|error| in_file(&file, error))?;
                if backup.is_none() && is_bare(kind, &rest) {
                    return self.remove(caller, &file, &backup_file, &old, None);
                }
                if self.dry_run {
                    return done(caller, true, "would be written", &file, Some(&rest));
                }
                files::replace(&file, Some(&old), &backup_file, &Change::Write { text: &rest, keep: None })?;
                return done(caller, false, "removed muxtap's entries; the file had changed since", &file, None);
            }
        };
        if self.dry_run {
            return done(caller, true, "would be as before the installation", &file, backup.as_deref());
        }
        files::replace(&file, Some(&old), &backup_file, &change)?;
        done(caller, false, "as before the installation", &file, None)
    }

    /// Removes a plugin, of any version. One that a person has edited is kept beside it.
    fn remove_plugin(&self, caller: &Caller, kind: &Kind, file: &Path, backup: &Path, old: &str) -> Outcome {
        self.remove(caller, file, backup, old, Some(old).filter(|old| !kind.is_whole_plugin(old)))
    }

    fn remove(&self, caller: &Caller, file: &Path, backup: &Path, old: &str, keep: Option<&str>) -> Outcome {
        if self.dry_run {
            return done(caller, true, "would be removed", file, None);
        }
        files::replace(file, Some(old), backup, &Change::Remove { keep })?;
        done(caller, false, if keep.is_some() { "removed; a copy is kept" } else { "removed" }, file, None)
    }
}

impl Status {
    pub(super) fn run(&self, caller: &Caller) -> Outcome {
        let found = KINDS.iter().map(|kind| state_of(kind, self.project)).collect::<Result<Vec<_>>>()?;
        if caller.json {
            output::print_json(&serde_json::json!({ "agents": found }))?;
            return Ok(0);
        }
        let mut table = output::Table::new(&["AGENT", "STATE", "FILE"]);
        for one in &found {
            let state = one.error.clone().unwrap_or_else(|| one.state.to_owned());
            table.row(&[one.agent.to_owned(), state, one.file.display().to_string()]);
        }
        output::print(table.render())?;
        Ok(0)
    }
}

fn state_of(kind: &Kind, project: bool) -> Result<Installed> {
    let named = kind.file(project)?;
    let state = |file: &Path| -> Result<&'static str> {
        let Some(text) = files::read(file)? else { return Ok("not installed") };
        let is_whole = installed(kind, &text, &command(kind))? == text;
        let by_plugin = kind.has_enabled_plugin(&text);
        Ok(if by_plugin && has_any(kind, &text) {
            "installed, and by the plugin: uninstall"
        } else if by_plugin {
            "installed by the plugin"
        } else if is_whole {
            "installed"
        } else if has_any(kind, &text) {
            "differs: install again"
        } else {
            "not installed"
        })
    };
    let found = files::resolve(&named).and_then(|file| state(&file).map(|state| (file, state)));
    Ok(match found {
        Ok((file, state)) => Installed { agent: kind.id, file, state, error: None },
        Err(error) => Installed { agent: kind.id, file: named, state: "unknown", error: Some(error.message) },
    })
}

fn done(caller: &Caller, dry_run: bool, what: &str, file: &Path, text: Option<&str>) -> Outcome {
    if caller.json {
        let answer = serde_json::json!({ "result": what, "file": file, "dry_run": dry_run, "text": text });
        output::print_json(&answer)?;
    } else {
        output::print(format!("{}: {what}\n{}", file.display(), text.unwrap_or_default()))?;
    }
    Ok(0)
}

fn in_file(file: &Path, mut error: Error) -> Error {
    error.message = format!("{}: {}; the file was not changed", file.display(), error.message);
    error
}

/// Returns the shell command of an agent's hooks.
fn command(kind: &Kind) -> String {
    kind.command(&program())
}

/// Returns the path of the small program `muxtap`: of `PATH`, if it is this installation's, since that
/// stays the same over upgrades.
fn program() -> PathBuf {
    let running = std::env::current_exe().unwrap_or_else(|_| "muxtap".into());
    let beside = running.with_file_name("muxtap");
    // `muxtapd` has both programs, and may be installed alone.
    let own = if beside.is_file() { beside } else { running };
    let path = std::env::var_os("PATH").unwrap_or_default();
    let real = |path: &Path| std::fs::canonicalize(path).ok();
    let mut named = std::env::split_paths(&path).map(|folder| folder.join("muxtap"));
    named.find(|one| one.is_absolute() && real(one).is_some() && real(one) == real(&own)).unwrap_or(own)
}

/// Returns a file with muxtap's entries.
fn installed(kind: &Kind, text: &str, command: &str) -> Result<String> {
    match &kind.shape {
        Shape::Entries { events, version, .. } => {
            json::parse(text)?;
            if events.iter().all(|event| count(kind, text, event, command) == 1) && !has_other(kind, text, command) {
                return Ok(text.to_owned());
            }
            let mut edited = removed(kind, text)?;
            if *version {
                edited = json::add_member(&edited, "version", &1.into())?;
            }
            for event in *events {
                edited = json::add(&edited, &["hooks", event], &kind.entry(event, command))?;
            }
            json::parse(&edited)?;
            Ok(edited)
        }
        Shape::Plugin(_) => {
            if !text.is_empty() && !has_any(kind, text) {
                return Err(Error::invalid("the file is not muxtap's"));
            }
            kind.plugin(&program()).ok_or_else(|| Error::internal("no plugin"))
        }
    }
}

/// Returns the settings in which a plugin that has these hooks is enabled: this file, or the user's.
fn installed_by_plugin(kind: &Kind, file: &Path) -> Result<Option<PathBuf>> {
    for settings in [file.to_owned(), files::resolve(&kind.file(false)?)?] {
        if files::read(&settings)?.is_some_and(|text| kind.has_enabled_plugin(&text)) {
            return Ok(Some(settings));
        }
    }
    Ok(None)
}

/// Returns how many entries of an event are this installation's.
fn count(kind: &Kind, text: &str, event: &str, command: &str) -> usize {
    let Ok(value) = json::parse(text) else { return 0 };
    let Some(entries) = value.get("hooks").and_then(|hooks| hooks.get(event)?.as_array().cloned()) else { return 0 };
    entries.iter().filter(|entry| **entry == kind.entry(event, command)).count()
}

/// Returns whether a file has entries of muxtap that this installation would not write.
fn has_other(kind: &Kind, text: &str, command: &str) -> bool {
    let Ok(value) = json::parse(text) else { return false };
    let hooks = value.get("hooks").and_then(|hooks| hooks.as_object().cloned()).unwrap_or_default();
    hooks.iter().any(|(event, entries)| {
        let own = kind.entry(event, command);
        let known = kind.events().contains(&event.as_str());
        entries.as_array().into_iter().flatten().any(|entry| kind.is_own(entry) && !(known && *entry == own))
    })
}

/// Returns a file without muxtap's entries.
fn removed(kind: &Kind, text: &str) -> Result<String> {
    let value = json::parse(text)?;
    let mut edited = text.to_owned();
    for event in value.get("hooks").and_then(|hooks| hooks.as_object()).into_iter().flat_map(serde_json::Map::keys) {
        edited = json::remove(&edited, &["hooks", event], &|entry| kind.is_own(entry))?;
    }
    Ok(edited)
}

/// Returns whether a file has something of muxtap: an entry that an installation writes, or a plugin of
/// any version.
fn has_any(kind: &Kind, text: &str) -> bool {
    if let Shape::Plugin(_) = kind.shape {
        return text.starts_with(kinds::PLUGIN_MARK);
    }
    let Ok(value) = json::parse(text) else { return false };
    let events = value.get("hooks").and_then(|hooks| hooks.as_object()).into_iter().flat_map(serde_json::Map::values);
    events.flat_map(|entries| entries.as_array().into_iter().flatten()).any(|entry| kind.is_own(entry))
}

/// Returns whether an installation over this text removes nothing but what one of muxtap wrote. Then the
/// text from before the first one is kept already.
fn is_all_ours(kind: &Kind, text: &str) -> bool {
    has_any(kind, text) && (matches!(kind.shape, Shape::Entries { .. }) || kind.is_whole_plugin(text))
}

/// Returns whether a file says nothing: an object that is empty, or has only the version that an
/// installation adds.
fn is_bare(kind: &Kind, text: &str) -> bool {
    let has_version = matches!(kind.shape, Shape::Entries { version: true, .. });
    let value = json::parse(text).unwrap_or_default();
    value
        .as_object()
        .is_some_and(|members| members.iter().all(|(name, value)| has_version && name == "version" && *value == 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(id: &str) -> &'static Kind {
        KINDS.iter().find(|kind| kind.id == id).unwrap()
    }

    #[test]
    fn installing_again_changes_nothing_and_another_path_replaces_the_entries() {
        for kind in KINDS.iter().filter(|kind| !kind.events().is_empty()) {
            let theirs = "{\n  \"hooks\": {\n    \"Stop\": [{\"hooks\": [{\"type\": \"command\", \"command\": \"mine\"}]}]\n  }\n}\n";
            let command = |path: &str| kind.command(Path::new(path));
            let once = installed(kind, theirs, &command("/a/muxtap")).unwrap();
            assert_eq!(installed(kind, &once, &command("/a/muxtap")).unwrap(), once, "{}", kind.id);
            let moved = installed(kind, &once, &command("/b/muxtap")).unwrap();
            assert!(!moved.contains("/a/muxtap") && moved.contains("\"mine\""), "{moved}");
            assert_eq!(moved.matches("/b/muxtap").count(), kind.events().len());
            let rest = json::parse(&removed(kind, &moved).unwrap()).unwrap();
            assert_eq!(rest["hooks"], json::parse(theirs).unwrap()["hooks"], "{}", kind.id);
        }
    }

    #[test]
    fn a_hook_of_anothers_in_the_same_entry_is_not_removed() {
        let text = r#"{"hooks":{"Stop":[{"hooks":[{"command":"mine"},{"command":"/a/muxtap report-agent --hook claude || :"}]}]}}"#;
        assert_eq!(removed(kind("claude"), text).unwrap(), text);
    }

    #[test]
    fn words_of_muxtap_in_a_persons_file_are_not_its_entries() {
        let kind = kind("claude");
        let theirs =
            r#"{"hooks":{"Stop":[{"hooks":[{"type":"command","command":"x; muxtap report-agent --hook claude"}]}]}}"#;
        assert!(!has_any(kind, theirs) && !is_all_ours(kind, theirs));
        let new = installed(kind, theirs, &kind.command(Path::new("/a/muxtap"))).unwrap();
        assert!(new.contains("x; muxtap report-agent --hook claude\"") && has_any(kind, &new), "{new}");
    }

    #[test]
    fn only_what_an_installation_adds_is_bare() {
        assert!(is_bare(kind("cursor"), "{\"version\": 1}") && is_bare(kind("claude"), "{}\n"));
        for (id, text) in [("cursor", "{\"version\": 2}"), ("claude", "{\"version\": 1}"), ("cursor", "{\"hooks\": 1}")]
        {
            assert!(!is_bare(kind(id), text), "{id} {text}");
        }
    }
}
