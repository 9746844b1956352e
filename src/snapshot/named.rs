//! Snapshots by name: what the faces ask.

use std::path::Path;

use serde_json::Value;

use super::{
    answers::{
        DiffAnswer, DiffQuery, ImportRequest, RestoreAnswer, RestoreRequest, SaveRequest, SavedAnswer, ShowQuery,
        SnapshotInfo, SnapshotList,
    },
    diff::diff,
    file::{self, Programs},
    import,
    model::Snapshot,
    restore::{chosen, restore},
    save::{self, Wanted},
    store::{Kind, Store, check_name},
};
use crate::{
    api::{Error, ErrorCode, Result},
    engine::Server,
};

impl Store {
    /// Keeps sessions of a server as they are. Errors: `NOT_FOUND`, `CONFLICT` where a snapshot of
    /// that name is there, `INVALID_ARGUMENT`, `TMUX_UNAVAILABLE`.
    pub(crate) async fn save(&self, server: &Server, request: &SaveRequest) -> Result<SavedAnswer> {
        check_name(&request.name)?;
        let wanted = Wanted { sessions: request.sessions.clone(), history: request.history, env: request.env.clone() };
        let (snapshot, notes) = save::save(server, &wanted).await?;
        self.keep(&request.name, snapshot, request.replace, notes).await
    }

    /// Keeps another program's file. Errors: `INVALID_ARGUMENT`, `CONFLICT`.
    pub(crate) async fn import(&self, name: &str, request: &ImportRequest) -> Result<SavedAnswer> {
        check_name(name)?;
        let (text, format) = (request.text.clone(), request.format);
        let (_, snapshot) = self.run(move |_| import::read(&text, format)).await?;
        let mut notes = Vec::new();
        let windows = || snapshot.sessions.iter().flat_map(|session| &session.windows);
        if windows().any(|window| window.panes.iter().any(|pane| !pane.lines.is_empty())) {
            notes.push("its lines for the shell are kept; they are typed with --run only".to_owned());
        }
        self.keep(name, snapshot, request.replace, notes).await
    }

    async fn keep(&self, name: &str, snapshot: Snapshot, replace: bool, notes: Vec<String>) -> Result<SavedAnswer> {
        let owned = name.to_owned();
        self.run(move |store| {
            let path = store.write(Kind::Snapshot, &owned, &file::write(&snapshot), replace)?;
            Ok(saved(&owned, &path, &snapshot, notes))
        })
        .await
    }

    async fn snapshot(&self, name: &str) -> Result<Snapshot> {
        let name = name.to_owned();
        self.run(move |store| parse(&name, &store.read(Kind::Snapshot, &name)?)).await
    }

    /// Lists the snapshots. One that cannot be read is listed with why.
    pub(crate) async fn list(&self) -> Result<SnapshotList> {
        let list = |store: &Self| {
            let info = |name: String| {
                let read = store.read(Kind::Snapshot, &name).and_then(|value| parse(&name, &value));
                match read {
                    Ok(snapshot) => SnapshotInfo {
                        name,
                        saved: snapshot.saved.clone(),
                        sessions: names(&snapshot),
                        windows: snapshot.windows() as u64,
                        panes: snapshot.panes() as u64,
                        error: None,
                    },
                    Err(error) => SnapshotInfo { name, error: Some(error.message), ..SnapshotInfo::default() },
                }
            };
            Ok(SnapshotList { snapshots: store.names(Kind::Snapshot)?.into_iter().map(info).collect() })
        };
        self.run(list).await
    }

    /// Returns a snapshot's file, or one session of it as a file of its own.
    pub(crate) async fn show(&self, name: &str, query: &ShowQuery) -> Result<Value> {
        let snapshot = self.snapshot(name).await?;
        let Some(session) = &query.session else {
            if query.run {
                return Err(Error::invalid("run: only with `session`: a file of tmuxp's is one session"));
            }
            return Ok(file::write(&snapshot));
        };
        let mut chosen = chosen(&snapshot, std::slice::from_ref(session))?;
        let session = chosen.pop().ok_or_else(|| Error::not_found("no such session"))?;
        Ok(file::write_session(&session, if query.run { Programs::Typed } else { Programs::Kept }))
    }

    /// Compares a snapshot with another one, or with its sessions as they are now.
    pub(crate) async fn diff(&self, server: &Server, name: &str, query: &DiffQuery) -> Result<DiffAnswer> {
        let from = self.snapshot(name).await?;
        let to = match &query.with {
            Some(other) => self.snapshot(other).await?,
            None => now(server, &from).await?,
        };
        Ok(DiffAnswer { differences: diff(&from, &to) })
    }

    /// Makes sessions of a snapshot ([`restore`]).
    pub(crate) async fn restore(&self, server: &Server, name: &str, request: &RestoreRequest) -> Result<RestoreAnswer> {
        restore(server, &self.snapshot(name).await?, request).await
    }

    /// Removes a snapshot. Error: `NOT_FOUND`.
    pub(crate) async fn forget(&self, name: &str) -> Result<()> {
        let name = name.to_owned();
        self.run(move |store| store.remove(Kind::Snapshot, &name)).await
    }
}

fn parse(name: &str, value: &Value) -> Result<Snapshot> {
    file::read(value).map_err(|error| {
        let message = format!("snapshot {name:?} cannot be used: {}", error.message);
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
    }
}

/// Takes the sessions that a snapshot has as they are now, with the same variables.
async fn now(server: &Server, snapshot: &Snapshot) -> Result<Snapshot> {
    // Where no server runs there are none.
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
