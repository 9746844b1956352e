//! Recordings of panes: asciicast files, and live streams for asciinema's players.
//!
//! A recording follows its pane as any reader does, through the pane's handle, on a thread that all
//! recordings share: a slow disk delays neither the task that reads from tmux nor those that wait
//! for a pane. `docs/recordings.md` describes the files. `cast`, `alis` and `redact` are pure.

mod alis;
mod cast;
mod commands;
mod entry;
mod files;
pub mod live;
mod recorder;
mod redact;
mod source;
mod stored;

use std::{
    collections::VecDeque,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use muxtap_api::{Error, ErrorCode, PaneInfo, RecordRequest, RecordState, RecordingInfo, Result, Since, Tier};
use muxtap_base::{clock, files::make_private_folder};
use muxtap_engine::{Engine, Pane, Server};
use time::OffsetDateTime;
use tokio::{
    runtime::Handle,
    sync::{oneshot, watch},
};
use tokio_util::task::TaskTracker;

use self::{
    entry::Entry,
    files::{Files, Place},
    recorder::{Plan, Recorder},
    source::Source,
    stored::{Asks, Phase},
};

pub use alis::PROTOCOL as ALIS;
pub use entry::Attached;
pub use redact::Secrets;
pub use stored::{HeldRecordings, PreparedRecordings};

/// The maximum number of running recordings.
pub(crate) const OPEN_RECORDINGS: usize = 64;
/// The maximum number of ended recordings in the list; one more replaces the oldest.
pub(crate) const ENDED_RECORDINGS: usize = 256;
/// The maximum number of a recording's files in the list: the latest.
pub(crate) const FILES_TOLD: usize = 1000;
/// The smallest size limit of a file, in bytes.
pub(crate) const LEAST_BYTES: u64 = 4096;
/// The smallest time limit of a file.
pub(crate) const LEAST_TIME: Duration = Duration::from_secs(1);

/// How long a recording with `attend` waits for a caller to attach.
pub(crate) const ATTEND_TIME: Duration = Duration::from_secs(10);

/// The trust in a recording's caller, which decides where its files may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trust {
    /// The user, on the daemon's Unix socket: any file that does not exist yet.
    User,
    /// Any other caller: a name in the directory of recordings.
    Other,
}

impl Trust {
    /// Returns the trust in this engine's caller.
    fn of(engine: &Engine) -> Self {
        if engine.caller().principal.is_user() { Self::User } else { Self::Other }
    }
}

/// All recordings of a daemon; clones share them.
#[derive(Clone, Debug, Default)]
pub struct Recordings {
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// The directory of recordings.
    dir: Option<PathBuf>,
    all: Mutex<VecDeque<Arc<Entry>>>,
    /// The runtime of the thread that records.
    thread: Mutex<Option<Handle>>,
    tasks: TaskTracker,
    last: AtomicU64,
    /// Changed while `all` is locked, so each recording is handed over or has not begun.
    phase: watch::Sender<Phase>,
}

impl Recordings {
    /// Creates the recordings of a daemon, with this default directory.
    pub fn in_dir(dir: PathBuf) -> Self {
        Self { inner: Arc::new(Inner { dir: Some(dir), ..Inner::default() }) }
    }

    /// Checks whether a caller may start and stop recordings.
    ///
    /// Recordings read panes and create files. The user creates files anyway; others need the tier
    /// `create`.
    fn authorize(engine: &Engine) -> Result<()> {
        engine.authorize(if Trust::of(engine) == Trust::User { Tier::Read } else { Tier::Create })
    }

    /// Starts a recording. It ends with the pane, at a limit, or by [`Recordings::stop`].
    ///
    /// Errors: `INVALID_ARGUMENT`, `NOT_FOUND`, `CONFLICT` (the file exists), `RESOURCE_LIMIT`,
    /// `READ_ONLY`.
    pub async fn start(&self, server: &Server, request: &RecordRequest) -> Result<RecordingInfo> {
        let engine = server.engine().clone();
        Self::authorize(&engine)?;
        let since = request.since.as_deref().map_or(Ok(Since::Now), str::parse)?;
        let secrets = match request.redact.as_slice() {
            [] => None,
            redact => Some(Secrets::compile(&engine, redact.to_vec()).await?),
        };
        if let Some(bytes) = request.max_bytes.filter(|bytes| *bytes < LEAST_BYTES) {
            return Err(Error::invalid(format!("max_bytes: {bytes}; expected {LEAST_BYTES} or more")));
        }
        let max_time = request.max_ms.map(Duration::from_millis);
        if max_time.is_some_and(|time| time < LEAST_TIME) {
            let least = LEAST_TIME.as_millis();
            return Err(Error::invalid(format!(
                "max_ms: {}; expected {least} or more",
                request.max_ms.unwrap_or_default()
            )));
        }
        let pane = server.pane(&request.pane).await?;
        let info = pane.info();
        let started_ms = clock::now_ms();
        let place = self.place(request, &info, started_ms, Trust::of(&engine))?;
        let title = if info.session.is_empty() {
            info.id.to_string()
        } else {
            format!("{}:{}.{} {}", info.session, info.window_index, info.index, info.title)
        };
        let plan = Plan {
            format: request.format,
            max_bytes: request.max_bytes,
            max_time,
            secrets,
            input: request.input,
            title,
        };
        let (entry, asks) = self.enlist(&engine, &pane, request, started_ms)?;
        if request.attend {
            entry.set_attends();
            // Before the start: the caller may disconnect at any time, which drops this future.
            self.end_unattended(entry.clone(), &self.thread(&engine)?);
        }
        let begun = self.run(&engine, (entry.clone(), asks), pane, since, plan, place).await;
        engine.record("record", begun.as_ref().map_or_else(|error| error.code.as_str(), |()| "ok"));
        if let Err(error) = begun {
            self.all().retain(|other| !Arc::ptr_eq(other, &entry));
            return Err(error);
        }
        Ok(entry.info())
    }

    /// Lists all recordings, the oldest first.
    pub fn list(&self) -> Vec<RecordingInfo> {
        self.all().iter().map(|entry| entry.info()).collect()
    }

    /// Returns a recording's entry in the list.
    pub fn get(&self, id: &str) -> Result<RecordingInfo> {
        Ok(self.find(id)?.info())
    }

    /// Attaches to a recording, which ends when the result is dropped. Error: `READ_ONLY` for
    /// another caller's.
    pub fn attach(&self, engine: &Engine, id: &str) -> Result<Attached> {
        let entry = self.find_to_end(engine, id)?;
        entry.set_attends();
        entry.attended.cancel();
        Ok(Attached { entry })
    }

    /// Ends a recording, and waits until its last file is complete. An ended one is unchanged.
    ///
    /// Errors: `READ_ONLY` for another caller's, `TMUX_UNAVAILABLE` if another daemon has taken over.
    pub async fn stop(&self, engine: &Engine, id: &str) -> Result<RecordingInfo> {
        let entry = self.find_to_end(engine, id)?;
        entry.stop.cancel();
        let mut phase = entry.phase.clone();
        tokio::select! {
            () = entry.ended.cancelled() => Ok(entry.info()),
            _ = phase.wait_for(|phase| *phase == Phase::Left) => Err(taken_over()),
        }
    }

    /// Ends a recording to which no caller attaches: the caller that started it has died before.
    fn end_unattended(&self, entry: Arc<Entry>, thread: &Handle) {
        let wait = async move {
            tokio::select! {
                () = tokio::time::sleep(ATTEND_TIME) => entry.stop.cancel(),
                () = entry.attended.cancelled() => {}
                () = entry.ended.cancelled() => {}
            }
        };
        self.inner.tasks.spawn_on(wait, thread);
    }

    /// Finds a recording that the caller wants to end.
    fn find_to_end(&self, engine: &Engine, id: &str) -> Result<Arc<Entry>> {
        Self::authorize(engine)?;
        let entry = self.find(id)?;
        engine.check_owner(&entry.owner, &format!("recording {id}"))?;
        Ok(entry)
    }

    fn find(&self, id: &str) -> Result<Arc<Entry>> {
        let found = self.all().iter().find(|entry| entry.info().id == id).cloned();
        found.ok_or_else(|| Error::not_found(format!("unknown recording {id}; see the list of recordings")))
    }

    /// Returns the number of the last recording.
    fn last(&self) -> u64 {
        self.inner.last.load(Ordering::Relaxed)
    }

    fn set_last(&self, last: u64) {
        self.inner.last.store(last, Ordering::Relaxed);
    }

    fn all(&self) -> MutexGuard<'_, VecDeque<Arc<Entry>>> {
        self.inner.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a recording to the list. Error: `RESOURCE_LIMIT` if too many are running.
    fn enlist(
        &self,
        engine: &Engine,
        pane: &Pane,
        request: &RecordRequest,
        started_ms: u64,
    ) -> Result<(Arc<Entry>, Asks)> {
        if engine.is_stopping() {
            return Err(Error::unavailable("muxtap is stopping"));
        }
        let mut all = self.all();
        if *self.inner.phase.borrow() != Phase::Here {
            return Err(taken_over());
        }
        let goes_on = |entry: &Arc<Entry>| !entry.ended.is_cancelled();
        if all.iter().filter(|entry| goes_on(entry)).count() >= OPEN_RECORDINGS {
            let message = format!("too many recordings: at most {OPEN_RECORDINGS} can run at once");
            return Err(Error::new(ErrorCode::ResourceLimit, message));
        }
        while all.iter().filter(|entry| !goes_on(entry)).count() >= ENDED_RECORDINGS {
            if let Some(oldest) = all.iter().position(|entry| !goes_on(entry)) {
                all.remove(oldest);
            }
        }
        let number = self.inner.last.fetch_add(1, Ordering::Relaxed) + 1;
        let info = RecordingInfo {
            id: format!("r{number}"),
            pane: pane.id(),
            socket: pane.server().socket().display().to_string(),
            format: request.format,
            state: RecordState::Recording,
            files: Vec::new(),
            bytes: 0,
            started_ms,
            ended_ms: None,
            cursor: pane.cursor(),
            gaps: 0,
            redacted: 0,
            exit_status: None,
            error: None,
        };
        let (entry, asks) = Entry::new(info, engine.caller().principal.clone(), self.inner.phase.subscribe());
        let entry = Arc::new(entry);
        all.push_back(entry.clone());
        Ok((entry, asks))
    }

    /// Starts recording, on the thread of the recordings.
    async fn run(
        &self,
        engine: &Engine,
        (entry, asks): (Arc<Entry>, Asks),
        pane: Pane,
        since: Since,
        plan: Plan,
        place: Place,
    ) -> Result<()> {
        let (sender, begun) = oneshot::channel();
        let record = async move {
            let begin = async {
                let (source, start) = Source::begin(pane, &since, plan.max_bytes).await?;
                let files = Files::begin(place, plan.format)?;
                Recorder::begin(plan, (entry.clone(), asks), source, start, files)
            };
            match begin.await {
                Ok(recorder) => {
                    // If the caller has disconnected, the recording continues.
                    let _ = sender.send(Ok(()));
                    recorder.run().await;
                }
                Err(error) => {
                    entry.end(|info| info.state = RecordState::Failed);
                    let _ = sender.send(Err(error));
                }
            }
        };
        self.inner.tasks.spawn_on(record, &self.thread(engine)?);
        begun.await.unwrap_or_else(|_| Err(Error::unavailable("muxtap is stopping")))
    }

    /// Returns the runtime of the thread that records.
    ///
    /// The thread starts with the first recording, and ends with the engine once the last file is
    /// complete.
    fn thread(&self, engine: &Engine) -> Result<Handle> {
        let mut thread = self.inner.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(handle) = &*thread {
            return Ok(handle.clone());
        }
        let failed = |error: std::io::Error| Error::internal(format!("recordings: cannot start a thread: {error}"));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().map_err(failed)?;
        let handle = runtime.handle().clone();
        let (end, tasks) = (engine.end(), self.inner.tasks.clone());
        let run = move || {
            runtime.block_on(async {
                end.cancelled().await;
                tasks.close();
                tasks.wait().await;
            });
        };
        std::thread::Builder::new().name("recordings".into()).spawn(run).map_err(failed)?;
        let (end, tasks) = (engine.end(), self.inner.tasks.clone());
        engine.spawn(async move {
            end.cancelled().await;
            tasks.wait().await;
        });
        *thread = Some(handle.clone());
        Ok(handle)
    }

    /// Returns the directory of recordings; creates it if it is missing. Error: `CONFLICT` if it is
    /// not private to the user.
    fn own_dir(&self) -> Result<PathBuf> {
        let none = || Error::invalid("file: this process has no directory for recordings; give an absolute path");
        let dir = self.inner.dir.clone().ok_or_else(none)?;
        make_private_folder(&dir).map_err(|error| {
            Error::new(ErrorCode::Conflict, format!("the directory for recordings, {}, {error}", dir.display()))
        })?;
        Ok(dir)
    }

    /// Returns the destination of a recording.
    fn place(&self, request: &RecordRequest, pane: &PaneInfo, now_ms: u64, trust: Trust) -> Result<Place> {
        match (&request.file, &request.dir) {
            (Some(_), Some(_)) => Err(Error::invalid("give file or dir, not both")),
            (None, None) => Ok(Place::Files(self.own_dir()?, stem(pane, now_ms))),
            (None, Some(dir)) => Ok(Place::Files(absolute("dir", dir, trust)?, stem(pane, now_ms))),
            (Some(file), None) if file.contains('/') => Ok(Place::File(absolute("file", file, trust)?)),
            (Some(name), None) => {
                let is_odd = name.is_empty() || name.starts_with('.') || name.chars().any(char::is_control);
                if is_odd || name.len() > 200 {
                    return Err(Error::invalid(format!(
                        "file: invalid name {name:?}; expected at most 200 bytes, not beginning with a dot"
                    )));
                }
                Ok(Place::File(self.own_dir()?.join(name)))
            }
        }
    }
}

fn taken_over() -> Error {
    Error::unavailable("another muxtap daemon takes over: send the request again")
}

/// Checks a path from a caller.
fn absolute(field: &str, path: &str, trust: Trust) -> Result<PathBuf> {
    if trust != Trust::User {
        return Err(Error::invalid(format!(
            "{field}: {path:?}: only callers on the Unix socket choose a path; give file a name without a /, or neither"
        )));
    }
    if !Path::new(path).is_absolute() || path.contains('\0') {
        return Err(Error::invalid(format!("{field}: not an absolute path: {path:?}")));
    }
    Ok(PathBuf::from(path))
}

/// Returns the prefix of the names of a recording's files: session, pane and time.
fn stem(pane: &PaneInfo, now_ms: u64) -> String {
    let letter = |letter: char| if letter.is_ascii_alphanumeric() || letter == '_' { letter } else { '-' };
    let session: String = pane.session.chars().take(40).map(letter).collect();
    let at = i64::try_from(now_ms / 1000).ok().and_then(|at| OffsetDateTime::from_unix_timestamp(at).ok());
    let at = at.unwrap_or(OffsetDateTime::UNIX_EPOCH);
    let (date, time) = (at.date(), at.time());
    format!(
        "{}-{}-{:04}{:02}{:02}T{:02}{:02}{:02}Z",
        if session.is_empty() { "pane" } else { &session },
        pane.id.0,
        date.year(),
        u8::from(date.month()),
        date.day(),
        time.hour(),
        time.minute(),
        time.second()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(file: Option<&str>, dir: Option<&str>) -> RecordRequest {
        RecordRequest { file: file.map(str::to_owned), dir: dir.map(str::to_owned), ..RecordRequest::default() }
    }

    #[test]
    fn only_the_user_chooses_where_a_recording_goes() {
        let dir = tempfile::tempdir().unwrap();
        let recordings = Recordings::in_dir(dir.path().join("recordings"));
        let pane = PaneInfo { session: "a/b".into(), ..PaneInfo::of(muxtap_core::protocol::ids::PaneId(0)) };
        let place = |request: &RecordRequest, trust| recordings.place(request, &pane, 1_700_000_000_000, trust);
        for (file, given) in [(Some("/tmp/x"), None), (None, Some("/tmp")), (Some("a/b"), None), (Some("../x"), None)] {
            let refused = place(&request(file, given), Trust::Other).unwrap_err();
            assert_eq!(refused.code, ErrorCode::InvalidArgument, "{file:?} {given:?}");
        }
        for trust in [Trust::User, Trust::Other] {
            for name in ["", ".", "..", ".hidden", "a\nb", "relative/path"] {
                assert!(place(&request(Some(name), None), trust).is_err(), "{name:?}");
            }
            let here = Place::File(dir.path().join("recordings/x.cast"));
            assert_eq!(place(&request(Some("x.cast"), None), trust).unwrap(), here);
            let names = Place::Files(dir.path().join("recordings"), "a-b-0-20231114T221320Z".into());
            assert_eq!(place(&request(None, None), trust).unwrap(), names);
        }
        assert_eq!(place(&request(Some("/tmp/x"), None), Trust::User).unwrap(), Place::File("/tmp/x".into()));
        assert!(place(&request(None, Some("/tmp")), Trust::User).is_ok());
        assert!(place(&request(Some("x"), Some("/tmp")), Trust::User).is_err());
        assert!(Recordings::default().place(&request(Some("x"), None), &pane, 0, Trust::User).is_err());
    }
}
