use super::*;
use crate::protocol::{
    command::Command,
    frame::{FrameKey, framed},
    notification::ExitReason,
};
use proptest::prelude::*;

/// Plays tmux: writes the blocks that a control client would read.
#[derive(Default)]
struct Tmux {
    wire: Vec<u8>,
    number: u64,
}

impl Tmux {
    fn raw(mut self, text: impl AsRef<[u8]>) -> Self {
        self.wire.extend_from_slice(text.as_ref());
        self
    }

    fn line(self, text: impl AsRef<[u8]>) -> Self {
        self.raw(text).raw("\n")
    }

    /// Returns the guard of the next block, which a forging pane would guess.
    fn coming(&self, flags: u32) -> String {
        format!("1700000000 {} {flags}", self.number)
    }

    fn block(mut self, flags: u32, body: impl AsRef<[u8]>, end: &str) -> Self {
        let guard = self.coming(flags);
        self.number += 1;
        self.line(format!("%begin {guard}")).raw(body).line(format!("%{end} {guard}"))
    }

    fn reply(self, body: impl AsRef<[u8]>) -> Self {
        self.block(1, body, "end")
    }

    fn error(self, body: impl AsRef<[u8]>) -> Self {
        self.block(1, body, "error")
    }

    fn nonce(self, nonce: [u8; 18]) -> Self {
        self.reply([&nonce[..], b"\n"].concat())
    }
}

fn sent(seqs: &[(u64, usize)]) -> FrameKey {
    let key = FrameKey::new();
    for (seq, parts) in seqs {
        framed(&key, *seq, &vec![Command::new("capture-pane").flag("-p"); *parts]).unwrap();
    }
    key
}

/// Decodes `wire`, which arrives in chunks of the given sizes (cycled), to the end of the stream.
fn decode_chunks(mut codec: ControlCodec, wire: &[u8], sizes: &[usize]) -> io::Result<Vec<Event>> {
    let mut events = Vec::new();
    let mut buffer = BytesMut::new();
    let mut left = wire;
    let mut sizes = sizes.iter().copied().cycle();
    while !left.is_empty() {
        let (chunk, rest) = left.split_at(sizes.next().unwrap().clamp(1, left.len()));
        buffer.extend_from_slice(chunk);
        left = rest;
        while let Some(event) = codec.decode(&mut buffer)? {
            events.push(event);
        }
    }
    while let Some(event) = codec.decode_eof(&mut buffer)? {
        events.push(event);
    }
    Ok(events)
}

/// Decodes a stream whole and byte by byte, and compares the two.
fn decode(key: &FrameKey, tmux: &Tmux) -> Vec<Event> {
    let [whole, bytewise] = [usize::MAX, 1].map(|size| {
        let again = key.snapshot();
        decode_chunks(ControlCodec::new(again), &tmux.wire, &[size]).unwrap()
    });
    assert_eq!(whole, bytewise);
    whole
}

fn output(pane: u32, data: &'static [u8]) -> Event {
    Event::Output { pane: PaneId(pane), data: Bytes::from_static(data), age_ms: None }
}

fn ok(body: &'static [u8]) -> Event {
    Event::Reply(Reply { ok: true, body: Bytes::from_static(body) })
}

fn failed(body: &'static [u8]) -> Event {
    Event::Reply(Reply { ok: false, body: Bytes::from_static(body) })
}

fn frame(seq: u64, parts: &[&[u8]], error: Option<&[u8]>) -> Event {
    let parts = parts.iter().map(|part| Bytes::copy_from_slice(part)).collect();
    Event::Frame(Frame { seq, parts, error: error.map(Bytes::copy_from_slice) })
}

fn stray(text: &'static [u8]) -> Event {
    Event::Stray(Bytes::from_static(text))
}

fn window_add(window: u32) -> Event {
    Event::Notification(Notification::WindowAdd(crate::protocol::ids::WindowId(window)))
}

#[test]
fn output_is_decoded_and_extended_output_carries_its_age() {
    let tmux = Tmux::default()
        .line(b"%output %3 a\\015\\012\\134\xc3\xa9")
        .line("%output %3 ")
        .line("%extended-output %4 250 later fields : \\033[1mb : c")
        .line("%extended-output %4 x : no age");
    let extended = Event::Output { pane: PaneId(4), data: Bytes::from_static(b"\x1b[1mb : c"), age_ms: Some(250) };
    let unknown = Notification::Unknown(Bytes::from_static(b"%extended-output %4 x : no age"));
    assert_eq!(
        decode(&sent(&[]), &tmux),
        [output(3, b"a\r\n\\\xc3\xa9"), output(3, b""), extended, Event::Notification(unknown)]
    );
}

#[test]
fn bytes_that_are_not_utf8_pass_through() {
    let tmux = Tmux::default().raw(b"%output %1 \xff\xfe\x7f\x80\r\n").raw(b"\xff\xfe\n").raw(b"\n");
    assert_eq!(decode(&sent(&[]), &tmux), [output(1, b"\xff\xfe\x7f\x80\r"), stray(b"\xff\xfe"), stray(b"")]);
}

#[test]
fn a_block_with_flag_1_is_a_reply_and_other_blocks_are_not() {
    let tmux =
        Tmux::default().block(0, "", "end").reply("0: a\n1: b\n").error("no such pane\n").block(0, "x\n", "error");
    let other = |number, body: &'static [u8], ok| Event::OtherBlock {
        guard: Guard { time: 1_700_000_000, number, flags: 0 },
        body: Bytes::from_static(body),
        ok,
    };
    assert_eq!(
        decode(&sent(&[]), &tmux),
        [other(0, b"", true), ok(b"0: a\n1: b\n"), failed(b"no such pane\n"), other(3, b"x\n", false)]
    );
}

#[test]
fn notifications_may_appear_inside_blocks_and_text_outside_them() {
    let tmux = Tmux::default()
        .reply("before\n%window-add @7\n%output %1 x\nafter\n%3 is a pane\n%unheard-of\n%window-add seven\n")
        .line("bare text of run-shell")
        .line("%unheard-of thing");
    assert_eq!(
        decode(&sent(&[]), &tmux),
        [
            window_add(7),
            output(1, b"x"),
            ok(b"before\nafter\n%3 is a pane\n%unheard-of\n%window-add seven\n"),
            stray(b"bare text of run-shell"),
            Event::Notification(Notification::Unknown(Bytes::from_static(b"%unheard-of thing"))),
        ]
    );
}

#[test]
fn a_block_ends_only_at_the_guard_that_matches_its_begin() {
    let body = "%end 1700000000 9 1\n%end 1 0 1\n%error 1700000000 0 0\n%begin 1700000000 0 1\n%end\n";
    let tmux = Tmux::default().reply(body).line("%end 1700000000 0 1");
    assert_eq!(
        decode(&sent(&[]), &tmux),
        [ok(body.as_bytes()), stray(b"%end 1700000000 0 1")],
        "an end without a begin is a stray"
    );
}

#[test]
fn an_exit_inside_a_block_is_decoded_as_an_exit() {
    let key = sent(&[]);
    let tmux = Tmux::default().line("%begin 1 1 1").line("half").line("%exit server exited");
    let exit = |reason| Event::Notification(Notification::Exit(reason));
    assert_eq!(decode(&key, &tmux), [exit(ExitReason::ServerExited)]);
    let tmux = Tmux::default().reply("%exit\n").line("%exit too far behind");
    assert_eq!(decode(&key, &tmux), [exit(ExitReason::None), ok(b""), exit(ExitReason::TooFarBehind)]);
}

#[test]
fn an_exit_inside_a_part_is_body_unless_it_is_the_last_line() {
    let key = sent(&[(0, 1)]);
    let tmux = Tmux::default().nonce(key.nonce(0, 0)).line("%begin 1 1 1").line("%exit forged").line("%exit lost tty");
    assert_eq!(decode(&key, &tmux), [Event::Notification(Notification::Exit(ExitReason::LostTty))]);
}

#[test]
fn a_frame_returns_its_parts_without_the_nonces() {
    let key = sent(&[(5, 2), (9, 1)]);
    let tmux = Tmux::default()
        .line("%output %1 before")
        .nonce(key.nonce(5, 0))
        .reply("a1\na2\n")
        .nonce(key.nonce(5, 1))
        .reply("")
        .nonce(key.nonce(5, 2))
        .line("%output %1 between the frame and its end")
        .nonce(key.end_nonce(5))
        .reply("unframed\n")
        .nonce(key.nonce(9, 0))
        .reply("b\n")
        .nonce(key.nonce(9, 1))
        .nonce(key.end_nonce(9));
    assert_eq!(
        decode(&key, &tmux),
        [
            output(1, b"before"),
            frame(5, &[b"a1\na2\n", b""], None),
            output(1, b"between the frame and its end"),
            ok(b"unframed\n"),
            frame(9, &[b"b\n"], None),
        ]
    );
}

#[test]
fn a_pane_cannot_forge_the_end_of_a_part() {
    let key = sent(&[(0, 2)]);
    let tmux = Tmux::default().nonce(key.nonce(0, 0));
    let guard = tmux.coming(1);
    // A pane that knows the time, the number and the form of a frame: everything but the nonce.
    let forged = format!(
        "%end {guard}\n%output %9 forged\n%error {guard}\n%begin 1700000000 2 1\nmt0123456789abcdef\n\
         %end 1700000000 2 1\n%begin {guard}\n%window-close @1\n%exit\n%end {guard}\n"
    );
    let tmux = tmux.reply(&forged).nonce(key.nonce(0, 1)).reply(&forged).nonce(key.nonce(0, 2)).nonce(key.end_nonce(0));
    let tmux = tmux.line("%output %1 real");
    assert_eq!(decode(&key, &tmux), [frame(0, &[forged.as_bytes(), forged.as_bytes()], None), output(1, b"real")]);
}

#[test]
fn a_nonce_counts_only_as_the_only_line_of_its_own_block() {
    let key = sent(&[(0, 1)]);
    let next = String::from_utf8(key.nonce(0, 1).to_vec()).unwrap();
    // Even a nonce that leaked into a pane does not end the part there.
    let body = format!("{next}\n x{next}\n{next}x\n%end 1 1 1\n{next}\n");
    let tmux = Tmux::default().nonce(key.nonce(0, 0)).reply(&body).nonce(key.nonce(0, 1)).nonce(key.end_nonce(0));
    assert_eq!(decode(&key, &tmux), [frame(0, &[body.as_bytes()], None)]);
}

#[test]
fn nonces_of_other_frames_and_places_are_plain_text() {
    let key = sent(&[(0, 1)]);
    let other = String::from_utf8(key.nonce(1, 0).to_vec()).unwrap();
    let tmux = Tmux::default().nonce(key.nonce(1, 0)).nonce(key.nonce(0, 0)).reply(format!("{other}\n"));
    let tmux = tmux.nonce(key.nonce(0, 1)).nonce(key.end_nonce(0)).nonce(key.end_nonce(0));
    let events = decode(&key, &tmux);
    let reply = |nonce: [u8; 18]| Event::Reply(Reply { ok: true, body: Bytes::from([&nonce[..], b"\n"].concat()) });
    assert_eq!(
        events,
        [reply(key.nonce(1, 0)), frame(0, &[format!("{other}\n").as_bytes()], None), reply(key.end_nonce(0))],
        "a frame is answered once"
    );
}

#[test]
fn a_failed_command_ends_its_frame_and_later_frames_decode_normally() {
    let key = sent(&[(0, 3), (1, 1)]);
    let tmux = Tmux::default()
        .nonce(key.nonce(0, 0))
        .reply("kept\n")
        .nonce(key.nonce(0, 1))
        .error("can't find pane: %7\n")
        .line("%output %1 real")
        .line("%window-add @2")
        .nonce(key.end_nonce(0))
        .nonce(key.nonce(1, 0))
        .reply("next\n")
        .nonce(key.nonce(1, 1))
        .nonce(key.end_nonce(1));
    assert_eq!(
        decode(&key, &tmux),
        [
            frame(0, &[b"kept\n"], Some(b"can't find pane: %7\n")),
            output(1, b"real"),
            window_add(2),
            frame(1, &[b"next\n"], None),
        ]
    );
}

#[test]
fn a_line_that_tmux_cannot_parse_fails_only_its_own_frame() {
    let key = sent(&[(0, 1), (1, 1)]);
    let tmux = Tmux::default()
        .error("somebody else's\n")
        .error("parse error: unknown command: oops\n")
        .line("%window-add @1")
        .nonce(key.end_nonce(0))
        .error("unframed again\n")
        .nonce(key.nonce(1, 0))
        .reply("x\n")
        .nonce(key.nonce(1, 1))
        .nonce(key.end_nonce(1))
        .error("no frame is under way\n");
    assert_eq!(
        decode(&key, &tmux),
        [
            failed(b"somebody else's\n"),
            window_add(1),
            frame(0, &[], Some(b"parse error: unknown command: oops\n")),
            failed(b"unframed again\n"),
            frame(1, &[b"x\n"], None),
            failed(b"no frame is under way\n"),
        ]
    );
}

#[test]
fn a_held_back_failed_reply_is_delivered_with_the_next_reply_or_at_the_end() {
    let key = sent(&[(0, 1)]);
    let tmux = Tmux::default().error("a\n").reply("b\n").error("c\n");
    assert_eq!(decode(&key, &tmux), [failed(b"a\n"), ok(b"b\n"), failed(b"c\n")]);
}

#[test]
fn hook_blocks_and_notifications_between_parts_are_reported() {
    let key = sent(&[(0, 2)]);
    let tmux = Tmux::default()
        .nonce(key.nonce(0, 0))
        .block(0, "hook\n", "end")
        .reply("a\n")
        .line("%window-add @1")
        .block(0, "", "end")
        .nonce(key.nonce(0, 1))
        .reply("b\n")
        .nonce(key.nonce(0, 2))
        .nonce(key.end_nonce(0));
    let kinds: Vec<_> = decode(&key, &tmux)
        .into_iter()
        .map(|event| match event {
            Event::OtherBlock { body, .. } => body,
            Event::Notification(_) => Bytes::from_static(b"notification"),
            Event::Frame(frame) => frame.parts.concat().into(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(kinds, [&b"hook\n"[..], b"notification", b"", b"a\nb\n"]);
}

#[test]
fn a_second_line_that_comes_too_early_fails_the_frame() {
    let key = sent(&[(0, 1), (1, 1)]);
    // tmux never does this; a codec must not stall on it.
    let tmux = Tmux::default()
        .nonce(key.nonce(0, 0))
        .nonce(key.end_nonce(0))
        .nonce(key.nonce(1, 0))
        .reply("half\n")
        .nonce(key.end_nonce(1))
        .reply("fine\n");
    let events = decode(&key, &tmux);
    assert_eq!(events.first(), Some(&frame(0, &[], Some(b""))));
    assert!(matches!(&events[1], Event::Frame(Frame { seq: 1, error: Some(_), .. })));
    assert_eq!(events[2..], [ok(b"fine\n")]);
}

#[test]
fn a_line_or_reply_over_the_limit_ends_the_connection() {
    let limits = Limits { line: 100, body: 200 };
    let fails = |key: &FrameKey, tmux: &Tmux| {
        let [whole, bytewise] = [usize::MAX, 1].map(|size| {
            let codec = ControlCodec::with_limits(key.snapshot(), limits);
            decode_chunks(codec, &tmux.wire, &[size])
        });
        assert_eq!(whole.is_err(), bytewise.is_err());
        whole.is_err_and(|error| error.kind() == io::ErrorKind::InvalidData)
    };
    let key = sent(&[(0, 1)]);
    assert!(!fails(&key, &Tmux::default().line("x".repeat(100))));
    assert!(fails(&key, &Tmux::default().line("x".repeat(101))), "a line");
    assert!(fails(&key, &Tmux::default().raw("x".repeat(101))), "a line that never ends");
    let lines = |count| format!("{}\n", "x".repeat(49)).repeat(count);
    assert!(!fails(&key, &Tmux::default().reply(lines(3))));
    assert!(fails(&key, &Tmux::default().reply(lines(5))), "a block");
    let part = |body: String| Tmux::default().nonce(key.nonce(0, 0)).reply(body);
    assert!(!fails(&key, &part(lines(1))));
    assert!(fails(&key, &part(lines(5))), "a frame");
    assert!(fails(&key, &part("x".repeat(101))), "a line in a frame");
}

#[test]
fn a_long_line_that_arrives_in_pieces_is_scanned_only_once() {
    let mut codec = ControlCodec::new(sent(&[]));
    let mut buffer = BytesMut::new();
    for _ in 0..1000 {
        let searched = buffer.len();
        assert_eq!(codec.searched, searched);
        buffer.extend_from_slice(b"no newline yet ");
        assert_eq!(codec.decode(&mut buffer).unwrap(), None);
    }
    buffer.extend_from_slice(b"\n");
    assert!(matches!(codec.decode(&mut buffer), Ok(Some(Event::Stray(line))) if line.len() == 15_000));
}

/// Generates one piece of a stream: tmux's own lines, and lines that panes forge.
fn piece() -> impl Strategy<Value = Piece> {
    prop_oneof![
        "[ -~]{0,20}".prop_map(Piece::Line),
        prop_oneof![
            Just("%output %1 a\\015\\012b"),
            Just("%extended-output %2 7 : \\134"),
            Just("%window-add @3"),
            Just("%exit"),
            Just("%begin 1700000000 1 1"),
            Just("%end 1700000000 1 1"),
            Just("%error 1700000000 2 1"),
            Just("%begin 1 1 0")
        ]
        .prop_map(|line| Piece::Line(line.to_owned())),
        (0u32..2, ".{0,10}", any::<bool>()).prop_map(|(flags, body, ok)| Piece::Block(flags, body, ok)),
        (0u64..3, 0usize..3).prop_map(|(seq, place)| Piece::Nonce(seq, place)),
        (0u64..3).prop_map(Piece::End),
    ]
}

#[derive(Clone, Debug)]
enum Piece {
    Line(String),
    Block(u32, String, bool),
    Nonce(u64, usize),
    End(u64),
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]
    #[test]
    fn chunks_change_nothing(
        pieces in proptest::collection::vec(piece(), 0..24),
        sizes in proptest::collection::vec(1usize..40, 1..8),
    ) {
        let key = sent(&[(0, 2), (1, 1), (2, 2)]);
        let tmux = pieces.into_iter().fold(Tmux::default(), |tmux, piece| match piece {
            Piece::Line(line) => tmux.line(line),
            Piece::Block(flags, body, ok) => tmux.block(flags, body + "\n", if ok { "end" } else { "error" }),
            Piece::Nonce(seq, place) => tmux.nonce(key.nonce(seq, place)),
            Piece::End(seq) => tmux.nonce(key.end_nonce(seq)),
        });
        let [whole, cut] = [&[usize::MAX][..], &sizes].map(|sizes| {
            decode_chunks(ControlCodec::new(key.snapshot()), &tmux.wire, sizes).unwrap()
        });
        prop_assert_eq!(whole, cut);
    }
}

/// The same stream over a terminal, as from `tmux -CC`.
#[test]
fn a_terminal_adds_to_lines_and_changes_nothing_that_is_decoded() {
    let tmux = || {
        Tmux::default()
            .block(0, "", "end")
            .line("%session-changed $0 main")
            .line("%output %1 one\\015\\012two\\033[1m")
            .reply("a\n\nb\n")
            .line("%extended-output %1 5 : three")
            .line("stray")
            .line("%exit")
    };
    let plain = tmux().wire;
    let events = decode_chunks(ControlCodec::new(FrameKey::new()), &plain, &[plain.len()]).unwrap();
    assert_eq!(events.len(), 7, "{events:?}");
    for line_end in [&b"\r\n"[..], b"\r\r\n"] {
        let lines: Vec<_> = plain.split_inclusive(|byte| *byte == b'\n').map(|line| &line[..line.len() - 1]).collect();
        let on_terminal: Vec<u8> = lines.iter().flat_map(|line| [line, line_end].concat()).collect();
        for (before, behind) in [(&b""[..], &b""[..]), (b"\x1bP1000p", b"\x1b\\"), (b"\x1bP1000p", b"\x1b\\\r\n")] {
            let wire = [before, &on_terminal, behind].concat();
            for sizes in [&[1][..], &[3, 1, 7], &[wire.len()]] {
                let codec = ControlCodec::new(FrameKey::new());
                assert_eq!(decode_chunks(codec, &wire, sizes).unwrap(), events, "{sizes:?}");
            }
        }
    }
    // A login prints text before the stream, a shell after it.
    let wire = [&b"Welcome\r\n\x1bP1000p%exit\r\n"[..], b"\x1b\\$ ls\r\n"].concat();
    let events = decode_chunks(ControlCodec::new(FrameKey::new()), &wire, &[4]).unwrap();
    let stray = |text: &'static [u8]| Event::Stray(Bytes::from_static(text));
    assert_eq!((&events[0], &events[2]), (&stray(b"Welcome"), &stray(b"$ ls")), "{events:?}");
    assert_eq!(events[1], Event::Notification(Notification::Exit(ExitReason::None)));
}

#[test]
fn frames_are_read_over_a_terminal() {
    let key = sent(&[(1, 1)]);
    let wire = Tmux::default()
        .nonce(key.nonce(1, 0))
        .reply("%end 1700000000 1 1\n\x1b\\text\n")
        .nonce(key.nonce(1, 1))
        .nonce(key.end_nonce(1))
        .wire;
    let on_terminal = String::from_utf8(wire).unwrap().replace('\n', "\r\n").into_bytes();
    let events = decode_chunks(ControlCodec::new(key), &on_terminal, &[5]).unwrap();
    let [Event::Frame(frame)] = events.as_slice() else { panic!("{events:?}") };
    assert_eq!(
        (frame.parts.as_slice(), &frame.error),
        (&[Bytes::from("%end 1700000000 1 1\n\x1b\\text\n")][..], &None)
    );
}

#[test]
fn a_line_over_a_terminal_is_bounded() {
    let codec = ControlCodec::with_limits(FrameKey::new(), Limits { line: 100, body: 1000 });
    let wire = [&b"\x1bP1000p%exit\r\n"[..], &[b'x'; 200]].concat();
    assert!(decode_chunks(codec, &wire, &[10]).is_err());
}
