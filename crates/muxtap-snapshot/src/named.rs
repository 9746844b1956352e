//! Operations on snapshots by name, for the interfaces.

use std::path::Path;

use futures_util::future::BoxFuture;
use muxtap_engine::Server;
use serde_json::Value;

use super::{
    answers::{
        DiffAnswer, DiffQuery, ImportRequest, RestoreAnswer, RestoreRequest, SaveRequest, SavedAnswer, ShowQuery,
        SnapshotInfo, SnapshotList,
    },
    diff::diff,
    file::{self, Programs},
    import,
    limits::{RUN_CHARS, RUNS_SHOWN},
    model::Snapshot,
    restore::{chosen, restore},
    runs,
    save::{self, Wanted},
    seal,
    store::{Kind, Store, check_name},
};

use muxtap_api::{Error, ErrorCode, Result};

impl Store {
    /// Saves sessions of a server.
    ///
    /// Errors: `NOT_FOUND`, `CONFLICT` if a snapshot of that name exists, `INVALID_ARGUMENT`,
    /// `TMUX_UNAVAILABLE`.
    pub fn save<'a>(&'a self, server: &'a Server, request: &'a SaveRequest) -> BoxFuture<'a, Result<SavedAnswer>> {
        Box::pin(self.save_here(server, request))
    }

    async fn save_here(&self, server: &Server, request: &SaveRequest) -> Result<SavedAnswer> {
        check_name(&request.name)?;
        let wanted = Wanted { sessions: request.sessions.clone(), history: request.history, env: request.env.clone() };
        let (snapshot, notes) = save::save(server, &wanted).await?;
        // The user did not choose the variables of another host, or of another user's server.
        let is_own = server.is_local() && server.is_of_this_user();
        self.keep(&request.name, snapshot, request.replace, notes, is_own).await
    }

    /// Imports another program's file. Errors: `INVALID_ARGUMENT`, `CONFLICT`.
    pub fn import<'a>(&'a self, name: &'a str, request: &'a ImportRequest) -> BoxFuture<'a, Result<SavedAnswer>> {
        Box::pin(self.import_here(name, request))
    }

    async fn import_here(&self, name: &str, request: &ImportRequest) -> Result<SavedAnswer> {
        check_name(name)?;
        let (text, format) = (request.text.clone(), request.format);
        let (_, import::Imported { mut snapshot, left_out }) = self.run(move |_| import::read(&text, format)).await?;
        // Another muxtap's file contains the time at which that one saved it.
        snapshot.saved.clear();
        let mut notes = Vec::new();
        if !left_out.is_empty() {
            notes.push(format!("left out: {}", left_out.join(", ")));
        }
        let runs = runs::shown(&snapshot);
        if !runs.is_empty() {
            notes.push("saved programs and variables are run and set only with --run".to_owned());
        }
        let saved = self.keep(name, snapshot, request.replace, notes, false).await?;
        Ok(SavedAnswer { runs, ..saved })
    }

    async fn keep(
        &self,
        name: &str,
        snapshot: Snapshot,
        replace: bool,
        notes: Vec<String>,
        is_own: bool,
    ) -> Result<SavedAnswer> {
        let owned = name.to_owned();
        self.run(move |store| {
            let mut file = file::write(&snapshot);
            if is_own {
                seal::seal(&store.snapshots, &owned, &mut file)?;
            }
            let path = store.write(Kind::Snapshot, &owned, &file, replace)?;
            Ok(saved(&owned, &path, &snapshot, notes))
        })
        .await
    }

    /// Reads a snapshot. Also returns whether it was saved here.
    fn read_snapshot(&self, name: &str) -> Result<(Snapshot, bool)> {
        let mut file = self.read(Kind::Snapshot, name)?;
        let is_own = seal::unseal(&self.snapshots, name, &mut file);
        Ok((parse(name, &file)?, is_own))
    }

    async fn snapshot(&self, name: &str) -> Result<(Snapshot, bool)> {
        let name = name.to_owned();
        self.run(move |store| store.read_snapshot(&name)).await
    }

    /// Returns what a restore of these sessions (empty: all) would run, for the person who confirms
    /// it.
    ///
    /// Error: `RESOURCE_LIMIT` if that is more than a person is shown.
    pub fn what_runs<'a>(&'a self, name: &'a str, sessions: &'a [String]) -> BoxFuture<'a, Result<Vec<String>>> {
        Box::pin(self.what_runs_here(name, sessions))
    }

    async fn what_runs_here(&self, name: &str, sessions: &[String]) -> Result<Vec<String>> {
        let sessions = chosen(&self.snapshot(name).await?.0, sessions)?;
        runs::whole(&Snapshot { saved: String::new(), sessions }).ok_or_else(|| {
            let message = format!(
                "{name} would run or set more than a confirmation can show ({RUNS_SHOWN} lines of {RUN_CHARS} \
                 characters): restore fewer of its sessions at once, omit `run`, or restore it with \
                 `muxtap snapshot restore`"
            );
            Error::new(ErrorCode::ResourceLimit, message)
        })
    }

    /// Lists the snapshots. An unreadable one is listed with the reason.
    pub async fn list(&self) -> Result<SnapshotList> {
        let list = |store: &Self| {
            let info = |name: String| match store.read_snapshot(&name) {
                Ok((snapshot, saved_here)) => SnapshotInfo {
                    name,
                    saved: snapshot.saved.clone(),
                    saved_here,
                    sessions: names(&snapshot),
                    windows: snapshot.windows() as u64,
                    panes: snapshot.panes() as u64,
                    error: None,
                },
                Err(error) => SnapshotInfo { name, error: Some(error.message), ..SnapshotInfo::default() },
            };
            Ok(SnapshotList { snapshots: store.names(Kind::Snapshot)?.into_iter().map(info).collect() })
        };
        self.run(list).await
    }

    /// Returns a snapshot's file, or one session of it as a separate file.
    pub async fn show(&self, name: &str, query: &ShowQuery) -> Result<Value> {
        let (snapshot, saved_here) = self.snapshot(name).await?;
        let Some(session) = &query.session else {
            if query.run {
                return Err(Error::invalid("run: requires `session`, as a tmuxp file holds one session"));
            }
            let mut file = file::write(&snapshot);
            if let Some(own) = file.get_mut(file::OWN).and_then(Value::as_object_mut) {
                own.insert("saved_here".into(), saved_here.into());
            }
            return Ok(file);
        };
        let mut chosen = chosen(&snapshot, std::slice::from_ref(session))?;
        let session = chosen.pop().ok_or_else(|| Error::not_found("no such session"))?;
        Ok(file::write_session(&session, if query.run { Programs::Typed } else { Programs::Kept }))
    }

    /// Compares a snapshot with another one, or with the current sessions of its names.
    pub fn diff<'a>(
        &'a self,
        server: &'a Server,
        name: &'a str,
        query: &'a DiffQuery,
    ) -> BoxFuture<'a, Result<DiffAnswer>> {
        Box::pin(self.diff_here(server, name, query))
    }

    async fn diff_here(&self, server: &Server, name: &str, query: &DiffQuery) -> Result<DiffAnswer> {
        let (from, _) = self.snapshot(name).await?;
        let to = match &query.with {
            Some(other) => self.snapshot(other).await?.0,
            None => now(server, &from).await?,
        };
        Ok(DiffAnswer { differences: diff(&from, &to) })
    }

    /// Restores sessions of a snapshot.
    pub fn restore<'a>(
        &'a self,
        server: &'a Server,
        name: &'a str,
        request: &'a RestoreRequest,
    ) -> BoxFuture<'a, Result<RestoreAnswer>> {
        Box::pin(self.restore_here(server, name, request))
    }

    async fn restore_here(&self, server: &Server, name: &str, request: &RestoreRequest) -> Result<RestoreAnswer> {
        let (snapshot, is_own) = self.snapshot(name).await?;
        restore(server, &snapshot, is_own, request).await
    }

    /// Removes a snapshot. Error: `NOT_FOUND`.
    pub async fn forget(&self, name: &str) -> Result<()> {
        let name = name.to_owned();
        self.run(move |store| store.remove(Kind::Snapshot, &name)).await
    }
}

fn parse(name: &str, value: &Value) -> Result<Snapshot> {
    file::read(value).map_err(|error| {
        let message = format!("snapshot {name:?} is unusable: {}", error.message);
        Error::new(ErrorCode::InconsistentState, message)
    })
}

fn names(snapshot: &Snapshot) -> Vec<String> {
    snapshot.sessions.iter().map(|session| session.name.clone()).collect()
}

fn saved(name: &str, path: &Path, snapshot: &Snapshot, notes: Vec<String>) -> SavedAnswer {
    SavedAnswer {
        name: name.to_owned(),
        path: path.display().to_string(),
        sessions: names(snapshot),
        windows: snapshot.windows() as u64,
        panes: snapshot.panes() as u64,
        notes,
        runs: Vec::new(),
    }
}

/// Reads the current sessions with a snapshot's names, and their variables of the same names.
async fn now(server: &Server, snapshot: &Snapshot) -> Result<Snapshot> {
    // Without a running server there are none.
    let there = server.sessions().await.unwrap_or_default();
    let wanted = names(snapshot);
    let sessions: Vec<String> =
        there.iter().filter(|session| wanted.contains(&session.name)).map(|session| session.id.clone()).collect();
    if sessions.is_empty() {
        return Ok(Snapshot::default());
    }
    let env = snapshot.sessions.iter().flat_map(|session| session.environment.keys().cloned()).collect();
    Ok(save::save(server, &Wanted { sessions, history: 0, env }).await?.0)
}
