//! Recordings, stored for the daemon that replaces this one (`docs/upgrade.md`).
//!
//! Each recorder stops between two events, when nothing of its pane's output is read any more, and
//! stores its place in the output with everything that is not in the file yet. The next daemon
//! continues with the same open file. Patterns are compiled again.

use std::{
    os::fd::OwnedFd,
    sync::Arc,
    time::{Duration, Instant},
};

use muxtap_api::{Cursor, Error, ErrorCode, RecordFormat, RecordState, RecordingInfo, Result, Size};
use muxtap_base::clock;
use muxtap_core::{screen::Screen, stored};
use muxtap_engine::{Engine, handover::StoredPrincipal};
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot, watch};

use super::{
    Entry, Recordings,
    cast::Cast,
    files::{Files, StoredFiles},
    recorder::{Plan, Recorder},
    redact::{Redactor, Secrets, StoredRedactor},
    source::{Source, StoredSource},
};

/// The version of the stored recordings. A change of any stored type is a new version.
const VERSION: u32 = 2;

/// The longest that a recorder may take to finish what it writes.
const HOLD_LIMIT: Duration = Duration::from_secs(2);

/// Whether recordings go on in this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Phase {
    /// They do.
    #[default]
    Here,
    /// They are being handed over: no recorder writes.
    Held,
    /// Another daemon continues them.
    Left,
}

/// A recorder that has stopped, and its file.
pub(super) type Stopped = Result<(StoredRecorder, OwnedFd)>;

/// The requests for a recorder to stop.
pub(super) type Asks = mpsc::Receiver<oneshot::Sender<Stopped>>;

/// A recorder that was asked to stop. `None`: it has not answered an earlier request yet.
pub(super) type Asked = Option<oneshot::Receiver<Stopped>>;

/// All recordings.
#[derive(Debug, Serialize, Deserialize)]
struct StoredRecordings {
    /// The number of the last one.
    last: u64,
    all: Vec<StoredEntry>,
}

#[derive(Debug, Serialize, Deserialize)]
struct StoredEntry {
    /// As JSON: its form omits fields.
    info: String,
    owner: StoredPrincipal,
    /// Whether it ends with a request that awaits its end.
    attends: bool,
    /// `None`: it has ended.
    recorder: Option<Blob>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Blob(#[serde(with = "stored::bytes")] Vec<u8>);

/// A recorder between two events.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct StoredRecorder {
    pub(super) plan: StoredPlan,
    pub(super) source: StoredSource,
    pub(super) files: StoredFiles,
    pub(super) cast: Cast,
    pub(super) screen: Option<Screen>,
    pub(super) size: Size,
    pub(super) output: Option<StoredRedactor>,
    pub(super) input: Option<StoredRedactor>,
    pub(super) began_ms: u64,
    pub(super) file_began: Duration,
    pub(super) head: u64,
    pub(super) cursor: Cursor,
    #[serde(with = "muxtap_base::age")]
    pub(super) last_fed: Option<Instant>,
}

/// See [`Plan`].
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct StoredPlan {
    format: RecordFormat,
    max_bytes: Option<u64>,
    max_time: Option<Duration>,
    patterns: Vec<String>,
    input: bool,
    title: String,
}

impl StoredPlan {
    pub(super) fn of(plan: &Plan) -> Self {
        let Plan { format, max_bytes, max_time, secrets, input, title } = plan.clone();
        let patterns = secrets.map(|secrets| secrets.patterns().to_vec()).unwrap_or_default();
        Self { format, max_bytes, max_time, patterns, input, title }
    }

    /// Compiles the patterns.
    fn prepare(&self) -> Result<Plan> {
        let Self { format, max_bytes, max_time, patterns, input, title } = self;
        let secrets = if patterns.is_empty() { None } else { Some(Secrets::new(patterns)?) };
        Ok(Plan {
            format: *format,
            max_bytes: *max_bytes,
            max_time: *max_time,
            secrets,
            input: *input,
            title: title.clone(),
        })
    }
}

/// Recordings that were read completely.
#[derive(Default)]
pub struct PreparedRecordings {
    last: u64,
    all: Vec<PreparedEntry>,
}

struct PreparedEntry {
    info: RecordingInfo,
    owner: StoredPrincipal,
    attends: bool,
    recorder: Option<(StoredRecorder, Plan, OwnedFd)>,
}

impl PreparedRecordings {
    /// Reads stored recordings, with their files' descriptors. Begins nothing.
    ///
    /// Error: `CONFLICT` if this program cannot continue one of them. With `force` that one fails
    /// instead, for this reason. Ended ones that cannot be read are left out.
    pub fn read(bytes: &[u8], descriptors: Vec<OwnedFd>, force: bool) -> Result<Self> {
        // Each recording that goes on has a descriptor.
        let may_be_lost = force || descriptors.is_empty();
        let StoredRecordings { last, all } = match StoredRecordings::read(bytes) {
            Err(error) if may_be_lost => {
                tracing::warn!("{}", error.message);
                return Ok(Self::default());
            }
            stored => stored?,
        };
        let mut descriptors = descriptors.into_iter();
        let all = all.into_iter().map(|entry| entry.prepare(&mut descriptors, force));
        let all = all.filter_map(Result::transpose).collect::<Result<_>>()?;
        if descriptors.next().is_some() {
            return Err(unreadable("a descriptor is left over"));
        }
        Ok(Self { last, all })
    }
}

impl StoredRecordings {
    fn read(bytes: &[u8]) -> Result<Self> {
        let broken = |error: postcard::Error| unreadable(&error.to_string());
        let (version, rest) = postcard::take_from_bytes::<u32>(bytes).map_err(broken)?;
        if version != VERSION {
            return Err(unreadable(&format!("their form has version {version}, and this program reads {VERSION}")));
        }
        let (stored, rest) = postcard::take_from_bytes(rest).map_err(broken)?;
        if rest.is_empty() { Ok(stored) } else { Err(unreadable("bytes are left over")) }
    }
}

impl StoredEntry {
    /// Reads an entry. `None`: it is left out.
    fn prepare(self, descriptors: &mut impl Iterator<Item = OwnedFd>, force: bool) -> Result<Option<PreparedEntry>> {
        let Self { info, owner, attends, recorder } = self;
        let has_recorder = recorder.is_some();
        // Whatever follows: the next descriptor is that of the next entry.
        let recorder = recorder.map(|recorder| (recorder, descriptors.next()));
        let mut info: RecordingInfo = match serde_json::from_str(&info) {
            Err(error) if force || !has_recorder => {
                tracing::warn!("a recording of the earlier daemon is left out of the list: {error}");
                return Ok(None);
            }
            info => info.map_err(|error| unreadable(&error.to_string()))?,
        };
        let recorder = match recorder.map(|(recorder, file)| recorder.prepare(file)).transpose() {
            Err(why) if force => {
                tracing::warn!("cannot continue recording {}: {why}", info.id);
                fail(&mut info, &format!("the next daemon cannot continue it: {why}"));
                None
            }
            recorder => recorder.map_err(|why| {
                Error::new(ErrorCode::Conflict, format!("cannot continue recording {}: {why}", info.id))
            })?,
        };
        Ok(Some(PreparedEntry { info, owner, attends, recorder }))
    }
}

impl Blob {
    /// Reads a recorder. Error: the reason why it cannot be continued.
    fn prepare(self, file: Option<OwnedFd>) -> std::result::Result<(StoredRecorder, Plan, OwnedFd), String> {
        let recorder: StoredRecorder = postcard::from_bytes(&self.0).map_err(|error| error.to_string())?;
        let plan = recorder.plan.prepare().map_err(|error| error.message)?;
        Ok((recorder, plan, file.ok_or("its file is missing")?))
    }
}

/// Notes that a recording has failed now, for this reason.
fn fail(info: &mut RecordingInfo, why: &str) {
    (info.state, info.error, info.ended_ms) = (RecordState::Failed, Some(why.to_owned()), Some(clock::now_ms()));
}

fn unreadable(why: &str) -> Error {
    Error::new(ErrorCode::Conflict, format!("the recordings of the daemon cannot be read: {why}"))
}

/// The recordings are being handed over. Dropped, they go on here.
#[must_use]
pub struct HeldRecordings(watch::Sender<Phase>);

impl HeldRecordings {
    /// Leaves the recordings to the daemon that has their state.
    pub fn leave(self) {
        self.0.send_replace(Phase::Left);
    }
}

impl Drop for HeldRecordings {
    fn drop(&mut self) {
        self.0.send_if_modified(|phase| {
            let is_held = *phase == Phase::Held;
            if is_held {
                *phase = Phase::Here;
            }
            is_held
        });
    }
}

impl Recordings {
    /// Stops all recordings between two events, and returns them with their files' descriptors.
    ///
    /// Error: `CONFLICT` if one does not stop in time. With `force` that one ends with this daemon.
    pub async fn hold(&self, force: bool) -> Result<(HeldRecordings, Vec<u8>, Vec<OwnedFd>)> {
        let (held, entries) = {
            let all = self.all();
            // None begins from here on.
            self.inner.phase.send_replace(Phase::Held);
            (HeldRecordings(self.inner.phase.clone()), all.iter().cloned().collect::<Vec<_>>())
        };
        // All stop at once.
        let stopping: Vec<_> = entries.iter().map(|entry| entry.ask_to_stop()).collect();
        let until = tokio::time::Instant::now() + HOLD_LIMIT;
        let (mut stored, mut descriptors) = (Vec::new(), Vec::new());
        for (entry, stopping) in entries.iter().zip(stopping) {
            let stopped = entry.stopped(stopping, until).await;
            let mut info = entry.info();
            let id = info.id.clone();
            let recorder = match stopped {
                Ok(Some((recorder, file))) => {
                    descriptors.push(file);
                    Some(Blob(postcard::to_allocvec(&recorder).map_err(|error| cannot_store(&id, &error))?))
                }
                Ok(None) => None,
                Err(error) if force => {
                    tracing::warn!("a recording is not handed over: {}", error.message);
                    fail(&mut info, &format!("it was not handed over to the next daemon: {}", error.message));
                    None
                }
                Err(error) => return Err(error),
            };
            stored.push(StoredEntry {
                info: serde_json::to_string(&info).map_err(|error| cannot_store(&id, &error))?,
                owner: StoredPrincipal::of(&entry.owner),
                attends: entry.attends(),
                recorder,
            });
        }
        let stored = StoredRecordings { last: self.last(), all: stored };
        let bytes = postcard::to_allocvec(&(VERSION, stored)).map_err(|error| cannot_store("list", &error))?;
        Ok((held, bytes, descriptors))
    }

    /// Continues the recordings of another daemon. Those whose panes this engine has not taken over
    /// fail.
    ///
    /// When this returns, each one gets all events: so it must be called before the engine's tasks
    /// run.
    pub fn restore(&self, engine: &Engine, prepared: PreparedRecordings) {
        self.set_last(prepared.last);
        for PreparedEntry { info, owner, attends, recorder } in prepared.all {
            let (entry, asks) = Entry::new(info, owner.restored(), self.inner.phase.subscribe());
            let entry = Arc::new(entry);
            self.all().push_back(entry.clone());
            let Some((recorder, plan, file)) = recorder else {
                entry.ended.cancel();
                continue;
            };
            let thread = match self.thread(engine) {
                Ok(thread) => thread,
                Err(error) => {
                    entry.fail(&error.message);
                    continue;
                }
            };
            let Some(recorder) = Recorder::restore(recorder, plan, file, &entry, asks, engine) else {
                entry.fail("its pane was not taken over by the next daemon; the file is complete up to here");
                continue;
            };
            if attends {
                // The replaced daemon passes the caller's request on to this one.
                entry.set_attends();
                self.end_unattended(entry, &thread);
            }
            self.inner.tasks.spawn_on(recorder.run(), &thread);
        }
    }
}

impl Entry {
    /// Waits until the recorder has stopped for another daemon. `None`: the recording has ended. Error:
    /// `CONFLICT` if neither happens in time.
    async fn stopped(&self, asked: Asked, until: tokio::time::Instant) -> Result<Option<(StoredRecorder, OwnedFd)>> {
        let conflict =
            |why: &str| Error::new(ErrorCode::Conflict, format!("recording {} {why}; try again", self.info().id));
        let busy = || conflict("is busy, or its disk does not respond");
        let Some(stopping) = asked else { return Err(busy()) };
        if let Ok(stopped) = tokio::time::timeout_at(until, stopping).await.map_err(|_| busy())? {
            return stopped.map(Some);
        }
        let ended = tokio::time::timeout_at(until, self.ended.cancelled()).await;
        ended.map(|()| None).map_err(|_| conflict("is ending"))
    }
}

fn cannot_store(what: &str, error: &dyn std::fmt::Display) -> Error {
    Error::internal(format!("cannot store recording {what} for the next daemon: {error}"))
}

impl Recorder {
    /// Stores the recorder between two events.
    pub(super) fn store(&mut self) -> Stopped {
        let id = self.entry.info().id;
        let (files, file) = self.files.store().map_err(|error| cannot_store(&id, &error))?;
        let stored = StoredRecorder {
            plan: StoredPlan::of(&self.plan),
            source: self.source.store(),
            files,
            cast: self.cast.clone(),
            screen: self.screen.clone(),
            size: self.size,
            output: self.output.as_ref().map(Redactor::store),
            input: self.input.as_ref().map(Redactor::store),
            began_ms: self.began_ms,
            file_began: self.file_began,
            head: self.head,
            cursor: self.cursor,
            last_fed: self.last_fed,
        };
        Ok((stored, file))
    }

    /// Continues in an engine that has taken over the pane. `None`: it has not.
    fn restore(
        stored: StoredRecorder,
        plan: Plan,
        file: OwnedFd,
        entry: &Arc<Entry>,
        asks: Asks,
        engine: &Engine,
    ) -> Option<Self> {
        let redactor = |stored: Option<StoredRedactor>| {
            stored.zip(plan.secrets.clone()).map(|(stored, secrets)| Redactor::restore(stored, secrets))
        };
        Some(Self {
            entry: entry.clone(),
            asks,
            source: Source::restore(stored.source, engine)?,
            files: Files::restore(stored.files, file, plan.format),
            cast: stored.cast,
            screen: stored.screen,
            size: stored.size,
            output: redactor(stored.output),
            input: redactor(stored.input),
            began_ms: stored.began_ms,
            file_began: stored.file_began,
            head: stored.head,
            cursor: stored.cursor,
            last_fed: stored.last_fed,
            lines: Vec::new(),
            plan,
        })
    }
}

/// Stores a path as its bytes.
pub(super) mod path {
    use std::{
        ffi::OsString,
        os::unix::ffi::{OsStrExt as _, OsStringExt as _},
        path::{Path, PathBuf},
    };

    use muxtap_core::stored::bytes;
    use serde::{Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
        bytes::serialize(path.as_os_str().as_bytes(), serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PathBuf, D::Error> {
        Ok(OsString::from_vec(bytes::deserialize(deserializer)?).into())
    }
}

#[cfg(test)]
mod tests;
