use std::{collections::BTreeSet, fs::File, path::Path};

use muxtap_api::RecordState;
use muxtap_core::{
    protocol::{ids::PaneId, version::Version},
    screen::{self, Rules},
};
use muxtap_engine::Principal;

use super::*;
use crate::{cast::Header, files::Place};

/// Returns the shape of stored values: the names and kinds of all fields, without the values.
fn shape(value: &serde_json::Value) -> String {
    use serde_json::Value;
    match value {
        Value::Null => "null".into(),
        Value::Bool(_) => "bool".into(),
        Value::Number(_) => "number".into(),
        Value::String(_) => "string".into(),
        Value::Array(items) => {
            let shapes: BTreeSet<_> = items.iter().map(shape).collect();
            format!("[{}]", Vec::from_iter(shapes).join(" | "))
        }
        Value::Object(fields) => {
            let fields: Vec<_> = fields.iter().map(|(name, value)| format!("{name}: {}", shape(value))).collect();
            format!("{{{}}}", fields.join(", "))
        }
    }
}

fn info() -> RecordingInfo {
    let pane = PaneId(1);
    RecordingInfo {
        id: "r3".into(),
        pane,
        socket: "/tmp/s".into(),
        format: RecordFormat::V3,
        state: RecordState::Recording,
        files: vec!["/tmp/a.cast".into()],
        bytes: 7,
        started_ms: 1,
        ended_ms: None,
        cursor: Cursor { epoch: muxtap_api::Epoch { server: 7, engine: 9 }, pane, offset: 11 },
        gaps: 0,
        redacted: 0,
        exit_status: None,
        error: None,
    }
}

/// Returns a recorder with a value in as many places as possible.
fn recorder(dir: &Path) -> (StoredRecorder, OwnedFd) {
    let size = Size { width: 20, height: 4 };
    let patterns = vec!["hunter2".to_owned()];
    let mut redactor = Redactor::new(Secrets::new(&patterns).unwrap(), size);
    drop(redactor.feed(Duration::from_secs(1), b"\x1b[2;2Ha hunter2 b\r\nhun"));
    let place = Place::Files(dir.to_owned(), "a".into());
    let (files, file) = Files::begin(place, RecordFormat::V3).unwrap().store().unwrap();
    let header = Header { size, timestamp: 1, title: "t".into() };
    let mut cast = Cast::new(RecordFormat::V3, &header, Duration::ZERO, &mut Vec::new());
    cast.output(Duration::from_secs(1), b"half \xe6", &mut Vec::new());
    let rules = Rules::for_version(Version::parse(b"3.3a").unwrap());
    let mut screen = Screen::new(screen::Size { columns: 20, rows: 4 }, rules, screen::Settings::default());
    screen.feed(b"\x1b[31mshown");
    let recorder = StoredRecorder {
        plan: StoredPlan {
            format: RecordFormat::V3,
            max_bytes: Some(5000),
            max_time: Some(Duration::from_secs(60)),
            patterns,
            input: true,
            title: "t".into(),
        },
        source: StoredSource::sample(info().cursor),
        files,
        cast,
        screen: Some(screen),
        size,
        output: Some(redactor.store()),
        input: Some(redactor.store()),
        began_ms: 1,
        file_began: Duration::from_secs(2),
        head: 3,
        cursor: info().cursor,
        last_fed: Some(Instant::now()),
    };
    (recorder, file)
}

fn stored(recorder: Option<&StoredRecorder>) -> StoredRecordings {
    let entry = StoredEntry {
        info: serde_json::to_string(&info()).unwrap(),
        owner: StoredPrincipal::of(&Principal::User(1000)),
        attends: true,
        recorder: recorder.map(|recorder| Blob(postcard::to_allocvec(recorder).unwrap())),
    };
    StoredRecordings { last: 3, all: vec![entry] }
}

fn bytes(stored: &StoredRecordings) -> Vec<u8> {
    postcard::to_allocvec(&(VERSION, stored)).unwrap()
}

/// T5. The files are written anew, for a new version, with `MUXTAP_WRITE_STATE=1`.
#[test]
fn the_stored_recordings_of_this_version_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let (recorder, file) = recorder(dir.path());
    let stored = stored(Some(&recorder));
    let parts = [serde_json::to_value(&stored).unwrap(), serde_json::to_value(&recorder).unwrap()];
    let shape = parts.map(|part| shape(&part) + "\n").concat();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/stored");
    let files = ["bin", "shape"].map(|kind| folder.join(format!("recordings-{VERSION}.{kind}")));
    if std::env::var_os("MUXTAP_WRITE_STATE").is_some() {
        std::fs::write(&files[0], bytes(&stored)).unwrap();
        std::fs::write(&files[1], &shape).unwrap();
    }
    let [known_bytes, known] = files.map(|file| std::fs::read(file).unwrap());
    assert_eq!(shape, String::from_utf8(known).unwrap(), "a stored type has changed: raise VERSION");
    let read = PreparedRecordings::read(&known_bytes, &mut [file].into_iter()).unwrap();
    assert_eq!((read.last, read.all[0].info.clone(), read.all[0].attends), (3, info(), true));
    let (recorder, plan, _) = read.all.into_iter().next().unwrap().recorder.unwrap();
    assert_eq!((plan.secrets.unwrap().patterns(), plan.max_bytes), (&["hunter2".to_owned()][..], Some(5000)));
    let mut redactor = Redactor::restore(recorder.output.unwrap(), Secrets::new(&["hunter2".into()]).unwrap());
    let rest: Vec<u8> = redactor.feed(Duration::ZERO, b"ter2\r\n").into_iter().flat_map(|(_, bytes)| bytes).collect();
    assert_eq!(rest, b"*******\r\n");
}

/// T6.
#[test]
fn recordings_that_cannot_be_continued_are_rejected() {
    let dir = tempfile::tempdir().unwrap();
    let (mut recorder, file) = recorder(dir.path());
    let rejected = |bytes: &[u8], files: Vec<OwnedFd>| match PreparedRecordings::read(bytes, &mut files.into_iter()) {
        Err(error) if error.code == ErrorCode::Conflict => error.message,
        other => panic!("{:?}", other.map(drop)),
    };
    let whole = bytes(&stored(Some(&recorder)));
    for length in [0, 1, whole.len() / 2, whole.len() - 1] {
        rejected(&whole[..length], vec![file.try_clone().unwrap()]);
    }
    assert!(rejected(&[&whole, &b"x"[..]].concat(), Vec::new()).contains("left over"));
    assert!(rejected(&whole, Vec::new()).contains("recording r3: its file is missing"));
    let other = postcard::to_allocvec(&(VERSION + 1, stored(None))).unwrap();
    assert!(rejected(&other, Vec::new()).contains(&format!("version {}", VERSION + 1)));
    recorder.plan.patterns = vec!["(".into()];
    assert!(rejected(&bytes(&stored(Some(&recorder))), vec![file]).contains("recording r3"));
    // An ended one needs no file, and a surplus one is left to the caller.
    let mut surplus = [OwnedFd::from(File::open("/dev/null").unwrap())].into_iter();
    assert!(PreparedRecordings::read(&bytes(&stored(None)), &mut surplus).is_ok() && surplus.next().is_some());
}
