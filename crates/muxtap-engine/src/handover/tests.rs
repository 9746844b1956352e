use std::{collections::BTreeSet, fmt::Write as _};

use bytes::Bytes;
use muxtap_api::{Cursor, GapReason, Since};
use muxtap_core::{
    protocol::{ids::PaneId, version::Version},
    screen::{self, CaptureOptions, Line, Rules},
    stream::{
        echo::Verdict,
        render,
        ring::{Reading, SEGMENT},
    },
};
use muxtap_tmux::{Exit, Observer as _, Seed, ServerIdentity};
use proptest::prelude::*;

use super::*;

/// The limit of what does not take long.
const LONG: Duration = Duration::from_secs(300);

const RING: usize = 64 * 1024;

/// Returns a seed with what tmux 3.3a reports of a pane of twenty columns that shows a prompt.
pub(crate) fn prompt() -> Seed {
    let fields = "2|0|0|4|0|0|||7|20|2000|4294967295|4294967295|0|3|0|0|1|1|\n";
    let lines = "$ \n\n\n\n";
    let parts = [lines, "\n", fields, lines, "\n"].map(|part| Bytes::copy_from_slice(part.as_bytes()));
    Seed { text: b"$ ".to_vec(), screen: screen::seed::parse(&parts), ..Seed::default() }
}

fn rules() -> Rules {
    Rules::for_version(Version::parse(b"3.3a").unwrap())
}

/// Returns a pane that shows a prompt.
fn pane() -> Arc<PaneState> {
    let pane = PaneState::new(PaneId(1), muxtap_api::Epoch { server: 7, engine: 9 }, RING);
    let _ = pane.seed_first(&prompt(), Some(rules()));
    assert!(pane.lock().screen().current().is_some());
    pane
}

fn restored(pane: &PaneState) -> Arc<PaneState> {
    PaneState::restore(&pane.store().unwrap(), RING).unwrap()
}

/// Returns everything that a caller can learn of a pane.
fn answers(pane: &PaneState) -> String {
    let mut answers = String::new();
    let locked = pane.lock();
    let ring = locked.ring();
    let mut from = ring.start();
    loop {
        let chunk = ring.read(from, Reading { most: 5000, whole_sequences: true, at_end: false });
        writeln!(answers, "{chunk:?}").unwrap();
        if !chunk.more {
            break;
        }
        from = chunk.end;
    }
    let text = render::render_text(ring, ring.start(), ring.end());
    writeln!(answers, "{}-{} {:?} {text}", ring.start(), ring.end(), ring.string_start()).unwrap();
    let model = locked.screen();
    writeln!(answers, "{:?} {:?}", model.why_not_followed(), model.is_unsure()).unwrap();
    if let Some(screen) = model.last() {
        let all = CaptureOptions { start: Line::Edge, escapes: true, trailing: true, ..CaptureOptions::default() };
        let captured = String::from_utf8_lossy(&screen.capture(&all)).into_owned();
        let known = screen.known(&all).is_some();
        writeln!(answers, "{captured} {known} {:?} {:?}", screen.cursor(), screen.modes()).unwrap();
        writeln!(answers, "{} {:?} {}", screen.title(), screen.trusted(), screen.history_size()).unwrap();
    }
    writeln!(answers, "{:?} {:?}", locked.shell_marks(), locked.exit()).unwrap();
    drop(locked);
    for command in pane.commands() {
        let mut command = PaneCommandShown(&command).to_string();
        command.push('\n');
        answers.push_str(&command);
    }
    answers
}

/// A command without how long it ran, which depends on when its end was read.
struct PaneCommandShown<'a>(&'a crate::PaneCommand);

impl std::fmt::Display for PaneCommandShown<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let crate::PaneCommand { command, start, end } = self.0;
        let muxtap_core::marks::Command { number, parent, line, directory, status, signal, end: how, .. } = command;
        write!(f, "{number} {parent:?} {line:?} {directory:?} {status:?} {signal:?} {how:?} {start:?} {end:?}")
    }
}

/// Pieces of output, of which some leave a sequence or a mode open.
const PIECES: &[&[u8]] = &[
    b"hello ",
    b"\r\n",
    "\u{e9}\u{6f22}\u{1f642}\u{fe0f}".as_bytes(),
    b"\x1b[31m",
    b"\x1b[38;2;1;2;3;4m",
    b"\x1b[0m",
    b"\x1b[H",
    b"\x1b[2J",
    b"\x1b[3;3H",
    b"\x1b[K",
    b"\x1b[L",
    b"\x1b[?1049h",
    b"\x1b[?1049l",
    b"\x1b7",
    b"\x1b8",
    b"\x1b]0;a title\x07",
    b"\x1b]8;;http://a/b\x1b\\linked",
    b"\x1b]8;;\x1b\\",
    b"\x1b]133;A\x07$ \x1b]133;B\x07",
    b"make all\r\n\x1b]133;C\x07",
    b"\x1b]133;D;2\x07",
    b"\x1b]7;file:///tmp\x07",
    b"\x1b]99;i=1:d=0;half\x1b\\",
    b"\x1bP1$",
    b"\x1b_x",
    b"\x1b\\",
    b"\x1b(0qq\x1b(B",
    b"\x1b[3b",
    b"\t",
    b"\x08\x08",
    b"\x1b[2;3r",
    b"\xff\xc3",
    b"\x1b[?2004h\x1b[?1000h\x1b[4h",
    b"a line that is longer than the screen is wide, so that it wraps",
    b"1\r\n2\r\n3\r\n4\r\n5\r\n6\r\n7\r\n8\r\n9\r\n",
];

fn output() -> impl Strategy<Value = Vec<u8>> {
    let piece = (0..PIECES.len()).prop_map(|index| PIECES[index].to_vec());
    proptest::collection::vec(piece, 1..80).prop_map(|pieces| pieces.concat())
}

proptest! {
    /// T1, T3.
    #[test]
    fn a_restored_pane_answers_like_the_saved_one(output in output(), at in any::<prop::sample::Index>(), gap: bool) {
        let saved = pane();
        let (before, after) = output.split_at(at.index(output.len() + 1));
        let _ = saved.push(0, before);
        if gap {
            let _ = saved.seed_after_gap(&prompt(), Some(rules()), GapReason::Paused);
        }
        let restored = restored(&saved);
        prop_assert_eq!(answers(&saved), answers(&restored));
        // In two pieces: state may also be read from the middle of one.
        let (one, other) = after.split_at(after.len() / 3);
        for piece in [one, other] {
            let _ = (saved.push(0, piece), restored.push(0, piece));
            prop_assert_eq!(answers(&saved), answers(&restored));
        }
    }
}

/// An event in a pane after it was copied.
#[derive(Clone, Debug)]
enum Later {
    Prints(usize),
    Gap,
    IsTyped,
    /// Changes neither the output nor the screen.
    Seeds,
    Exits,
    /// Changes the form in memory alone.
    IsCompressed,
    Trims(usize),
}

fn laters() -> impl Strategy<Value = Vec<Later>> {
    let later = prop_oneof![
        (0..PIECES.len()).prop_map(Later::Prints),
        Just(Later::Gap),
        Just(Later::IsTyped),
        Just(Later::Seeds),
        Just(Later::Exits),
        Just(Later::IsCompressed),
        (0..40_000_usize).prop_map(Later::Trims),
    ];
    proptest::collection::vec(later, 0..4)
}

fn happens(pane: &PaneState, later: &Later) {
    match later {
        Later::Prints(piece) => drop(pane.push(0, &PIECES[*piece].repeat(200))),
        Later::Gap => drop(pane.seed_after_gap(&prompt(), Some(rules()), GapReason::Paused)),
        Later::IsTyped => drop(pane.record_input("echo typed\n", true)),
        Later::Seeds => drop(pane.begin_generation()),
        Later::Exits => drop(pane.mark_exited(Exit { status: Some(3), signal: None })),
        Later::Trims(bytes) => pane.trim_output(*bytes),
        Later::IsCompressed => {
            let _ = pane.begin_compression();
            let _ = pane.compress_next();
        }
    }
}

/// Copies panes as a handover does. Returns what the old process and the new one have of the copy.
fn copied(panes: &[Arc<PaneState>]) -> (CopiedPanes, Copy) {
    let mut copy = Copy::default();
    let (copied, bytes) = copied_again(panes, CopiedPanes::default(), &mut copy);
    assert!(Copy::default().add(&bytes[..bytes.len() - 1]).is_err());
    (copied, copy)
}

/// Copies panes once more. Returns what the old process has of the copies, and the bytes of this one.
fn copied_again(panes: &[Arc<PaneState>], copied: CopiedPanes, copy: &mut Copy) -> (CopiedPanes, Vec<u8>) {
    use std::io::{Read as _, Seek as _};

    let file = tempfile::tempfile().unwrap();
    let (copied, mut file) = copy::copy(copied, panes.to_vec(), Vec::new(), file).unwrap();
    let mut bytes = Vec::new();
    file.rewind().unwrap();
    file.read_to_end(&mut bytes).unwrap();
    copy.add(&bytes[..]).unwrap();
    (copied, bytes)
}

proptest! {
    /// T41.
    #[test]
    fn a_pane_that_was_copied_before_is_restored_as_it_is_later(
        lines in 0..4000_usize,
        between in proptest::option::of((0..4000_usize, laters())),
        laters in laters(),
    ) {
        let saved = pane();
        let (idle, unknown) = (pane(), pane());
        for number in 0..lines {
            let _ = saved.push(0, format!("line {number}\r\n").as_bytes());
        }
        let (mut copied, mut copy) = copied(&[idle.clone(), saved.clone()]);
        if let Some((lines, laters)) = between {
            for number in 0..lines {
                let _ = saved.push(0, format!("later line {number}\r\n").as_bytes());
            }
            for later in &laters {
                happens(&saved, later);
            }
            // In another order, as after output of another pane.
            (copied, _) = copied_again(&[saved.clone(), idle.clone()], copied, &mut copy);
        }
        for later in &laters {
            happens(&saved, later);
        }
        let stored = [&saved, &idle, &unknown].map(|pane| copied.store(pane).unwrap());
        prop_assert!(matches!(stored[1], StoredPane::Unchanged(0)) && matches!(stored[2], StoredPane::Changed(None, _)));
        prop_assert!(!laters.is_empty() || matches!(stored[0], StoredPane::Unchanged(1)));
        for (stored, pane) in stored.into_iter().zip([&saved, &idle, &unknown]) {
            let restored = copy.restore(stored, RING).unwrap();
            prop_assert_eq!(answers(pane), answers(&restored));
            prop_assert_eq!((pane.generation(), pane.exit()), (restored.generation(), restored.exit()));
            let typed = |pane: &PaneState| pane.lock().since_input().map(|(offset, _)| offset);
            prop_assert_eq!(typed(pane), typed(&restored));
        }
    }
}

#[test]
fn output_that_was_copied_is_not_stored_again() {
    let saved = pane();
    for number in 0..8000 {
        let _ = saved.push(0, format!("line {number}\r\n").as_bytes());
    }
    let (copied, _) = copied(std::slice::from_ref(&saved));
    let _ = saved.push(0, b"one more\r\n");
    let StoredPane::Changed(Some(0), Blob(bytes)) = copied.store(&saved).unwrap() else { panic!("changed") };
    let whole = saved.store().unwrap();
    // All but the last segment, which may be full.
    assert!(bytes.len() + RING - SEGMENT < whole.len(), "{} {}", bytes.len(), whole.len());
}

/// T47.
#[test]
fn output_that_is_printed_while_panes_are_copied_is_copied_next() {
    let (saved, idle) = (pane(), pane());
    let panes = [saved.clone(), idle];
    let (mut copied, mut copy) = copied(&panes);
    for round in 0..3 {
        for number in 0..8000 {
            let _ = saved.push(0, format!("line {number} of {round}\r\n").as_bytes());
        }
        assert!(copied.uncopied(&panes) > 2 * SEGMENT as u64);
        (copied, _) = copied_again(&panes, copied, &mut copy);
        assert_eq!(copied.uncopied(&panes), 0);
    }
    // Each segment that has become full counts.
    let _ = saved.push(0, &b"x".repeat(SEGMENT));
    assert_eq!(copied.uncopied(&panes), SEGMENT as u64);
    // So does a pane that was opened since; one that has left its host does not.
    let opened = pane();
    let _ = opened.push(0, &b"y".repeat(3 * SEGMENT));
    let now = [panes[1].clone(), opened];
    let uncopied = copied.uncopied(&now);
    assert!((2 * SEGMENT as u64..=3 * SEGMENT as u64).contains(&uncopied), "{uncopied}");
    (copied, _) = copied_again(&panes, copied, &mut copy);
    // What has not changed is not copied again.
    let (copied, nothing) = copied_again(&panes, copied, &mut copy);
    assert!(nothing.is_empty());
    let _ = saved.push(0, b"one more\r\n");
    let stored = copied.store(&saved).unwrap();
    let StoredPane::Changed(Some(0), Blob(bytes)) = &stored else { panic!("{stored:?}") };
    let whole = saved.store().unwrap();
    // All but the last segment, which may be full.
    assert!(bytes.len() + RING - SEGMENT < whole.len(), "{} {}", bytes.len(), whole.len());
    assert_eq!(answers(&copy.restore(stored, RING).unwrap()), answers(&saved));
}

#[test]
fn a_pane_that_is_not_in_the_copy_is_rejected() {
    let saved = pane();
    let (known, mut copy) = copied(std::slice::from_ref(&saved));
    assert!(copy.restore(StoredPane::Unchanged(1), RING).is_err());
    assert!(copy.restore(known.store(&saved).unwrap(), RING).is_ok());
    // Each is used once.
    assert!(copy.restore(known.store(&saved).unwrap(), RING).is_err());
}

/// T1: what the ring drops and where segments begin is the same afterwards.
#[test]
fn a_flood_after_the_handover_trims_like_one_before() {
    let saved = pane();
    for number in 0..4000 {
        let _ = saved.push(0, format!("line {number} of a flood\r\n").as_bytes());
    }
    let restored = restored(&saved);
    assert_eq!(answers(&saved), answers(&restored));
    for number in 0..4000 {
        let line = format!("\x1b[3{}mline {number}\r\n", number % 8);
        let _ = (saved.push(0, line.as_bytes()), restored.push(0, line.as_bytes()));
    }
    assert_eq!(answers(&saved), answers(&restored));
}

/// T4.
#[test]
fn typed_text_is_an_echo_afterwards() {
    let saved = pane();
    let _ = saved.record_input("echo done\n", true);
    let restored = restored(&saved);
    for pane in [saved, restored] {
        let _ = pane.push(0, b"echo done\r\ndone\r\n");
        let locked = pane.lock();
        let echo = locked.echo();
        // After the two bytes of the prompt.
        assert_eq!(echo.verdict(7, 11), Verdict::Echo);
        assert_eq!(echo.verdict(13, 17), Verdict::Answer);
        assert_eq!(locked.since_input().map(|(offset, _)| offset), Some(2));
    }
}

#[test]
fn the_generation_of_the_output_and_the_times_are_kept() {
    let saved = pane();
    let generation = saved.begin_generation();
    let _ = saved.push(generation, b"printed\r\n");
    let now = muxtap_base::clock::now_ms();
    let restored = restored(&saved);
    assert!(restored.push(generation - 1, b"late").is_none() && restored.push(generation, b"more").is_some());
    let printed = |pane: &PaneState, at_ms| pane.lock().printed_since(at_ms);
    assert_eq!(printed(&restored, now - 60_000), printed(&saved, now - 60_000));
    assert_eq!(printed(&restored, now + 60_000), restored.end_offset());
    assert!(restored.lock().last_output().elapsed().as_secs() < 60);
}

#[test]
fn an_ended_pane_is_still_ended() {
    let saved = pane();
    let _ = saved.mark_exited(Exit { status: Some(3), signal: None });
    let restored = restored(&saved);
    assert_eq!((answers(&saved), restored.exit()), (answers(&restored), Some(Exit { status: Some(3), signal: None })));
    assert!(restored.ended_at().is_some() && restored.snapshot() == saved.snapshot());
}

fn identity() -> ServerIdentity {
    ServerIdentity { pid: 7, started: 70, version: Version::parse(b"3.3a").unwrap() }
}

/// Returns an engine with a server that has a live pane and one that has ended.
fn engine() -> (Engine, Arc<Host>) {
    let engine = Engine::new(Options { ring_bytes: RING, ..Options::default() });
    let host = Host::new(Path::new("/nowhere/default"), &engine.shared);
    let reports = Reports(Arc::downgrade(&host));
    reports.identified(&identity());
    for id in [1, 2] {
        let sink = reports.seeded(PaneId(id), prompt(), muxtap_tmux::Seeding::First);
        sink.output(format!("\x1b]133;A\x07$ \x1b]133;B\x07make {id}\r\n\x1b]133;C\x07\x1b[1mdone\r\n").as_bytes());
    }
    reports.exited(PaneId(2), Exit { status: Some(1), signal: None });
    reports.closed(PaneId(2));
    engine.hosts().insert(host.socket().to_owned(), host.clone());
    (engine, host)
}

fn continued(state: &[u8]) -> (Engine, Arc<Host>) {
    let engine = Prepared::read(Options { ring_bytes: RING, ..Options::default() }, state, Vec::new()).unwrap().start();
    let host = engine.hosts().values().next().unwrap().clone();
    (engine, host)
}

/// T2.
#[tokio::test]
async fn cursors_from_before_are_valid_afterwards() {
    let (before, host) = engine();
    let cursors: Vec<Cursor> = host.panes().iter().chain(&host.ended_panes()).map(|pane| pane.cursor(4)).collect();
    let trail = before.shared.trails.begin();
    let number = trail.number();
    drop(trail);
    let (after, continued) = continued(&before.store().unwrap());
    assert_eq!((continued.socket(), continued.epoch()), (host.socket(), host.epoch()));
    assert_eq!(cursors.len(), 2);
    for cursor in cursors {
        let (old, new) = (host.pane(cursor.pane).unwrap(), continued.pane(cursor.pane).unwrap());
        let locked = new.lock();
        assert_eq!(new.resolve_since(&locked, &Since::At(cursor)).unwrap(), (4, None));
        drop(locked);
        assert_eq!(new.retained_cursors(), old.retained_cursors());
    }
    let held: usize = continued.panes().iter().chain(&continued.ended_panes()).map(|pane| pane.held_bytes()).sum();
    assert_eq!(after.shared.held_bytes.load(std::sync::atomic::Ordering::Relaxed), held);
    // The number of an event stream is never given twice.
    assert!(after.shared.trails.begin().number() > number);
    // The server is the same one, so its panes are.
    let reports = Reports(Arc::downgrade(&continued));
    reports.identified(&identity());
    assert!(continued.live_pane(PaneId(1)).is_some());
    // A pane that is not listed any more has ended meanwhile.
    reports.topology(&muxtap_tmux::Topology::default());
    assert!(continued.live_pane(PaneId(1)).is_none());
    assert!(continued.pane(PaneId(1)).is_some_and(|pane| pane.exit().is_some()));
}

#[tokio::test]
async fn panes_end_if_their_server_has_ended_before_it_was_reached() {
    let (before, _) = engine();
    let (after, continued) = continued(&before.store().unwrap());
    assert!(continued.live_pane(PaneId(1)).is_some());
    let pane = continued.live_pane(PaneId(1)).unwrap();
    // Nothing listens on the socket.
    let mut changes = pane.changes();
    while pane.exit().is_none() {
        changes.changed().await.unwrap();
    }
    after.stop().await;
}

#[tokio::test]
async fn a_stream_goes_on_with_a_gap_where_no_client_carried_it() {
    let (before, _) = engine();
    let (_after, continued) = continued(&before.store().unwrap());
    let pane = continued.live_pane(PaneId(1)).unwrap();
    assert!(pane.lock().screen().current().is_none(), "a screen that is not followed is not printed");
    let end = pane.end_offset();
    let reports = Reports(Arc::downgrade(&continued));
    reports.identified(&identity());
    let seed = Seed { text: b"$ $ make 1\r\ndone\r\nmissed\r\n".to_vec(), ..prompt() };
    reports.seeded(PaneId(1), seed, muxtap_tmux::Seeding::First).output(b"more\r\n");
    let locked = pane.lock();
    assert_eq!(locked.ring().gap_at(end).map(|gap| gap.reason), Some(GapReason::Reconnected));
    assert_eq!(render::render_text(locked.ring(), end, locked.ring().end()), "missed\nmore\n");
}

/// T6.
#[tokio::test]
async fn a_state_that_cannot_be_read_is_rejected_as_a_whole() {
    let (before, _) = engine();
    let state = before.store().unwrap();
    let rejected = |state: &[u8]| match Prepared::read(Options::default(), state, Vec::new()) {
        Err(error) if error.code == ErrorCode::Conflict => error.message,
        other => panic!("{:?}", other.map(drop)),
    };
    assert!(header(&state).is_ok());
    for length in [0, MAGIC.len() - 1, MAGIC.len(), MAGIC.len() + 3, state.len() / 2, state.len() - 1] {
        rejected(&state[..length]);
    }
    assert!(rejected(&[&state, &b"x"[..]].concat()).contains("left over"));
    let surplus = vec![OwnedFd::from(std::io::pipe().unwrap().0)];
    assert!(Prepared::read(Options::default(), &state, surplus).is_err());
    let header = Header { version: STATE_VERSION + 1, program: "9.8.7".into() };
    let other = postcard::to_extend(&header, MAGIC.to_vec()).unwrap();
    let message = rejected(&other);
    let versions = [STATE_VERSION + 1, STATE_VERSION].map(|version| format!("version {version}"));
    for part in ["9.8.7", env!("CARGO_PKG_VERSION"), &versions[0], &versions[1], "muxtap stop"] {
        assert!(message.contains(part), "{message}");
    }
}

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

/// Returns a pane with a value in as many places as possible.
fn rich() -> Arc<PaneState> {
    let pane = pane();
    assert!(pane.trust_shell("0123456789abcdef0123".into()));
    // Blocks of history: one that is compressed, one that cannot be, and two as they were printed.
    let mut random = 1_u64;
    for line in 0..1700_u32 {
        let mut text = format!("line {line}");
        if (512..1024).contains(&line) {
            text.extend((0..32).map(|_| {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                char::from(b'!' + (random >> 57) as u8 % 90)
            }));
        }
        let _ = pane.push(0, format!("{text}\r\n").as_bytes());
    }
    assert!(pane.begin_compression());
    assert!(!pane.compress_next().0 && !pane.compress_next().0);
    let _ = pane.push(0, &PIECES[..12].concat());
    let _ = pane.push(0, b"\x1b[?1049l\x1b]133;A\x07$ \x1b]133;B\x07make\r\n\x1b]133;C\x07out\x1b]133;D;1\x07");
    let _ = pane.push(0, b"\x1b]7;file://host/tmp\x07\x1b]8;;http://a/b\x1b\\linked\x1b]8;;\x1b\\\x1b]9;a note\x07");
    let _ = pane
        .push(0, b"\x1b]99;i=1:d=0;half\x1b\\\x1b7\x1b]133;A\x07$ \x1b]133;B\x07sleep\r\n\x1b]133;C\x07\x1b[?1049h");
    let _ = pane.seed_after_gap(&prompt(), Some(rules()), GapReason::Paused);
    let _ = pane.record_input("echo typed\n", true);
    let _ = pane.push(0, b"echo typed\r\ntyped\r\n$ ");
    let _ = pane.record_input("echo again\n", false);
    let _ = pane.mark_exited(Exit { status: Some(3), signal: None });
    pane.mark_started(3);
    let _ = pane.push(0, b"\x1b]2;an open title");
    pane
}

/// T5. The files are written anew, for a new version, with `MUXTAP_WRITE_STATE=1`.
#[tokio::test]
async fn the_stored_state_of_this_version_is_read_and_written_unchanged() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/handover");
    let files = ["bin", "shape"].map(|kind| folder.join(format!("state-{STATE_VERSION}.{kind}")));
    let pane = rich();
    let state = engine().0.store().unwrap();
    let (engine, _) = postcard::take_from_bytes::<StoredEngine>(header(&state).unwrap()).unwrap();
    let waits = crate::wait::stored_as_json().await;
    let parts = [serde_json::to_value(&engine).unwrap(), Trails::stored_as_json(), pane.stored_as_json(), waits];
    let shape = parts.map(|part| shape(&part) + "\n").concat();
    if std::env::var_os("MUXTAP_WRITE_STATE").is_some() {
        std::fs::write(&files[0], pane.store().unwrap()).unwrap();
        std::fs::write(&files[1], &shape).unwrap();
    }
    let [bytes, known] = files.map(|file| std::fs::read(file).unwrap());
    assert_eq!(shape, String::from_utf8(known).unwrap(), "a stored type has changed: raise STATE_VERSION");
    assert_eq!(answers(&PaneState::restore(&bytes, RING).unwrap()), answers(&pane));
}

#[tokio::test]
async fn an_engine_that_has_left_keeps_no_panes() {
    let (before, _) = engine();
    let (engine, host) = continued(&before.store().unwrap());
    let panes: Vec<_> = host.panes().iter().map(Arc::downgrade).collect();
    drop(host);
    assert!(!panes.is_empty() && panes.iter().all(|pane| pane.strong_count() > 0));
    // As in a process that relays, which keeps its engine.
    let kept = engine.clone();
    let waits = Waits::hold(&engine, LONG).await.unwrap();
    PausedEngine { engine, state: Vec::new(), descriptors: Vec::new(), links: Vec::new(), waits }.leave().await;
    assert_eq!(panes.iter().map(std::sync::Weak::strong_count).sum::<usize>(), 0);
    drop(kept);
}
