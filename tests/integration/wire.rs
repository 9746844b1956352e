//! Output of real servers, recorded byte for byte in `tests/golden/wire`, is parsed to the last
//! line.
use std::{collections::BTreeSet, fs, path::PathBuf};

use bytes::BytesMut;
use muxtap::protocol::{
    codec::{ControlCodec, Event},
    frame::FrameKey,
    layout::Layout,
    notification::Notification,
};

/// Returns each recording with its version.
fn recordings() -> Vec<(String, Vec<u8>)> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/wire");
    let mut found: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "raw"))
        .map(|path| (path.file_stem().unwrap().to_string_lossy().into_owned(), fs::read(path).unwrap()))
        .collect();
    found.sort();
    let versions: Vec<_> = found.iter().map(|(version, _)| version.as_str()).collect();
    assert_eq!(versions, ["3.3a", "3.5a", "3.8"]);
    found
}

fn decoded(bytes: &[u8], chunk: usize) -> Vec<Event> {
    let mut codec = ControlCodec::new(FrameKey::new());
    let (mut buffer, mut events) = (BytesMut::new(), Vec::new());
    for chunk in bytes.chunks(chunk) {
        buffer.extend_from_slice(chunk);
        while let Some(event) = codec.decode(&mut buffer).unwrap() {
            events.push(event);
        }
    }
    while let Some(event) = codec.decode_eof(&mut buffer).unwrap() {
        events.push(event);
    }
    assert!(buffer.is_empty(), "{buffer:?}");
    events
}

#[test]
fn no_line_of_a_real_server_is_unknown_or_stray() {
    for (version, bytes) in recordings() {
        for event in decoded(&bytes, usize::MAX) {
            let odd = matches!(&event, Event::Stray(_) | Event::Notification(Notification::Unknown(_)));
            assert!(!odd, "{version}: {event:?}");
        }
    }
}

#[test]
fn chunks_of_any_size_give_the_same_events() {
    for (version, bytes) in recordings() {
        let whole = format!("{:#?}", decoded(&bytes, usize::MAX));
        for chunk in [1, 2, 7, 64, 1000] {
            assert_eq!(format!("{:#?}", decoded(&bytes, chunk)), whole, "{version}, chunks of {chunk}");
        }
    }
}

/// The scenario of `scripts/record-wire`, in order.
#[test]
fn every_step_of_the_recorded_scenario_is_told() {
    for (version, bytes) in recordings() {
        let events = decoded(&bytes, 4096);
        let (mut printed, mut kinds, mut layouts) = (Vec::new(), BTreeSet::new(), 0);
        let (mut bodies, mut refused, mut forged) = (Vec::new(), Vec::new(), Vec::new());
        for event in &events {
            match event {
                Event::Output { data, age_ms: None, .. } => forged.push(data.clone()),
                Event::Output { pane, data, .. } if pane.0 == 0 => printed.extend_from_slice(data),
                Event::Notification(Notification::LayoutChange { layout, visible, .. }) => {
                    for layout in [Some(layout), visible.as_ref()].into_iter().flatten() {
                        assert!(Layout::parse(layout).is_ok(), "{version}: {layout:?}");
                    }
                    layouts += 1;
                }
                Event::Notification(notification) => {
                    let text = format!("{notification:?}");
                    kinds.insert(text.split(|c: char| !c.is_alphanumeric()).next().unwrap().to_owned());
                }
                Event::Reply(reply) if reply.ok => bodies.push(String::from_utf8_lossy(&reply.body).into_owned()),
                Event::Reply(reply) => refused.push(String::from_utf8_lossy(&reply.body).into_owned()),
                _ => {}
            }
        }
        let spoken = "h\u{e9}llo \u{2192} \u{1f980} ".as_bytes();
        let spoken = [spoken, b"\xff back\\slash\ttab \x1b[1;31mred\x1b[0m\x1b]2;t\xc3\xadtle\x07\r"].concat();
        assert!(printed.windows(spoken.len()).any(|window| window == spoken), "{version}: {printed:?}");
        for kind in [
            "Exit",
            "PaneModeChanged",
            "Pause",
            "Continue",
            "SessionChanged",
            "SessionRenamed",
            "SessionWindowChanged",
            "SessionsChanged",
            "SubscriptionChanged",
            "UnlinkedWindowAdd",
            "WindowAdd",
            "WindowPaneChanged",
            "WindowRenamed",
        ] {
            assert!(kinds.contains(kind), "{version}: {kind} of {kinds:?}");
        }
        assert_eq!(bodies[0], format!("{version} $0 @0 %0\n"));
        assert!(layouts >= 5, "{version}: {layouts}");
        // With pause-after every real output has an age. In a plain block a pane's text counts as
        // protocol (F13): muxtap requests it only in a frame. A forged end does not count unless
        // its numbers are those of the block.
        assert_eq!(forged, ["forged\r\n"], "{version}");
        assert!(
            bodies.iter().any(|body| body.starts_with("%end 1700000000 1 1\n") && body.contains("\nmark\n")),
            "{version}"
        );
        // By a command, by the parser, and in the middle of a sequence.
        assert_eq!(refused.len(), 3, "{version}: {refused:?}");
        assert!(!bodies.contains(&"three\n".to_owned()), "{version}: what stands behind a failed command is not run");
    }
}
