//! `GET /v1/events`: every requested pane, each byte once or in a gap, screens that can be drawn,
//! and no caller held up.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::Read as _,
    thread,
};

use crate::{
    common::{World, eventually},
    stream_screens::followed_in_memory,
    subscribers::{Drawn, Numbered, Sse, raw},
};

/// Returns a program that prints numbered lines on request, in bursts that a reader can follow.
pub fn bursts(bursts: u32, lines: u32) -> String {
    format!(
        "stty -echo; echo ready; read -r go; i=0; while [ $i -lt {bursts} ]; do \
         seq -f 'line %.0f' $((i * {lines} + 1)) $(((i + 1) * {lines})); i=$((i + 1)); sleep 0.02; done; echo END; exec cat"
    )
}

/// Returns a program that prints each burst of numbered lines on an Enter: a reader that requests a
/// burst after it has read the previous one keeps up on any machine.
pub fn bursts_on_demand(bursts: u32, lines: u32) -> String {
    format!(
        "stty -echo; echo ready; i=0; while [ $i -lt {bursts} ]; do read -r go; \
         seq -f 'line %.0f' $((i * {lines} + 1)) $(((i + 1) * {lines})); i=$((i + 1)); done; echo END; exec cat"
    )
}

fn ready(world: &World, pane: &str) {
    world.await_output(pane, "^ready");
}

#[test]
fn panes_are_followed_from_their_first_byte_to_their_end_and_new_ones_too() {
    const BEFORE: usize = 12;
    const AFTER: usize = 12;
    let world = World::with_server();
    world.ok(&["new-session", "-s", "work"]);
    let program =
        |number: usize| format!("echo begin {number}; read -r go; seq 1 200; echo end {number}; exit {number}");
    let make = |number: usize, name: &str| {
        let program = program(number);
        world.ok(&["new-window", "-t", "work", "-n", name, "--", "sh", "-c", &program])
    };
    let mut panes: BTreeMap<String, usize> = (0..BEFORE).map(|number| (make(number, "many"), number)).collect();
    let types = "types=output,pane-opened,pane-exited,gap";
    let mut events = Sse::open(&world, &format!("panes=work:many,work:late*&{types}&since=start"));
    panes.extend((BEFORE..BEFORE + AFTER).map(|number| (make(number, &format!("late-{number}")), number)));
    let other = make(99, "other");
    for pane in panes.keys().chain([&other]) {
        world.ok(&["send-keys", "-t", pane, "Enter"]);
    }
    let mut texts: BTreeMap<String, String> = BTreeMap::new();
    let mut exits = BTreeMap::new();
    let mut opened = BTreeSet::new();
    while exits.len() < panes.len() {
        let event = events.next().expect("an event");
        let pane = event.data["pane"].as_str().or(event.data["pane"]["id"].as_str()).unwrap().to_owned();
        assert!(panes.contains_key(&pane), "{event:?}");
        assert!(!exits.contains_key(&pane), "nothing comes after its end: {event:?}");
        match event.kind.as_str() {
            "output" => texts.entry(pane).or_default().push_str(event.data["text"].as_str().unwrap()),
            "pane-exited" => {
                exits.insert(pane, event.data["exit_status"].as_u64());
            }
            "pane-opened" => assert!(opened.insert(pane), "told once"),
            other => panic!("{other}: {event:?}"),
        }
    }
    let sequence = (1..=200).fold(String::new(), |text, number| text + &format!("{number}\n"));
    for (pane, number) in &panes {
        // Text typed into a cooked terminal is echoed as a new line.
        let wanted = format!("begin {number}\n\n{sequence}end {number}\n");
        assert_eq!(texts[pane], wanted, "{pane}");
        assert_eq!(exits[pane], Some(*number as u64), "{pane}");
        assert_eq!(opened.contains(pane), *number >= BEFORE, "{pane}");
    }
}

/// A reader that loses its connection again and again in a flood gets all bytes, each once, or a
/// gap that counts them.
#[test]
fn who_comes_back_with_the_last_id_goes_on_without_loss_or_repetition() {
    let world = World::with_server();
    let pane = world.window(&bursts(80, 1500));
    ready(&world, &pane);
    let query = format!("panes={pane}&types=output&format=raw&since=start").replace('%', "%25");
    let mut events = Sse::open(&world, &query);
    world.tmux(&["send-keys", "-t", &pane, "Enter"]);
    let (mut bytes, mut missing, mut turns) = (Vec::new(), 0, 0);
    let mut cut_at = 1;
    while !bytes.ends_with(b"END\r\n") {
        for _ in 0..cut_at {
            let event = events.next().expect("an event").data;
            if let Some(gap) = event["gap"].as_object() {
                missing += gap["bytes"].as_u64().unwrap();
                bytes.push(b'\n');
            }
            bytes.extend(raw(&event));
            if bytes.ends_with(b"END\r\n") {
                break;
            }
        }
        let last = events.id.clone().expect("every event has an id");
        turns += 1;
        cut_at = cut_at % 7 + 1;
        drop(events);
        events = Sse::resume(&world, &query, Some(&last));
    }
    let whole = world.json(&["read", "-t", &pane, "--since", "now"])["cursor"].as_str().unwrap().to_owned();
    let end: u64 = whole.split('.').nth(4).unwrap().parse().unwrap();
    let gaps = memchr::memchr_iter(b'\n', &bytes).count() - bytes.windows(2).filter(|two| two == b"\r\n").count();
    assert_eq!(bytes.len() as u64 - gaps as u64 + missing, end, "after {turns} connections and {gaps} gaps");
    assert!(turns > 10, "only {turns} connections");
    let mut numbered = Numbered::default();
    for (nth, part) in String::from_utf8(bytes).unwrap().replace("\r\n", "\u{1}").split('\n').enumerate() {
        let text = part.replace('\u{1}', "\n");
        let gap = (nth > 0).then(|| serde_json::json!({"reason": "trimmed"}));
        numbered.event(&serde_json::json!({"text": text, "gap": gap}));
    }
    assert_eq!(numbered.last(), Some(80 * 1500));
}

/// The bytes of panes from events, and the beginning of each.
#[derive(Clone, Default)]
struct Heard(BTreeMap<String, Vec<u8>>);

impl Heard {
    fn event(&mut self, event: &serde_json::Value) {
        assert_eq!(event["gap"], serde_json::Value::Null, "{event}");
        self.0.entry(event["pane"].as_str().unwrap().to_owned()).or_default().extend(raw(event));
    }

    fn ended(&self) -> usize {
        self.0.values().filter(|bytes| bytes.ends_with(b"END\r\n")).count()
    }
}

#[test]
fn an_id_is_short_and_each_one_is_exact_however_many_panes_are_followed() {
    const PANES: usize = 24;
    let world = World::with_server();
    world.ok(&["new-session", "-s", "work"]);
    let make = |_| world.ok(&["new-window", "-t", "work", "-n", "many", "--", "sh", "-c", &bursts(40, 50)]);
    let panes: Vec<String> = (0..PANES).map(make).collect();
    for pane in &panes {
        ready(&world, pane);
    }
    let query = "panes=work:many&types=output&format=raw&since=start";
    let mut events = Sse::open(&world, query);
    for pane in &panes {
        world.tmux(&["send-keys", "-t", pane, "Enter"]);
    }
    let mut heard = Heard::default();
    let (mut cut_at, mut longest, mut earlier) = (1, 0, Vec::new());
    while heard.ended() < PANES {
        for _ in 0..cut_at {
            heard.event(&events.next().expect("an event").data);
            longest = longest.max(events.id.as_ref().unwrap().len());
            if heard.ended() == PANES {
                break;
            }
        }
        let last = events.id.clone().expect("every event has an id");
        earlier.push((last.clone(), heard.clone()));
        cut_at = cut_at % 30 + 3;
        drop(events);
        events = Sse::resume(&world, query, Some(&last));
    }
    assert!(longest < 40, "an id of {longest} bytes");
    assert!(earlier.len() > 3, "only {} connections", earlier.len());
    let lines = (1..=40 * 50).fold(String::new(), |text, line| text + &format!("line {line}\r\n"));
    for pane in &panes {
        let text = String::from_utf8_lossy(&heard.0[pane]).into_owned();
        assert_eq!(text, format!("ready\r\n{lines}END\r\n"), "{pane}");
    }
    // A reader gets the rest after any event that it has seen last.
    for (id, mut heard) in earlier.into_iter().step_by(3) {
        let mut again = Sse::resume(&world, query, Some(&id));
        while heard.ended() < PANES {
            heard.event(&again.next().unwrap().data);
        }
        for pane in &panes {
            assert_eq!(heard.0[pane].len(), 7 + lines.len() + 5, "{id} {pane}");
        }
    }
}

#[test]
fn an_id_that_is_not_known_any_more_is_a_gap_in_every_pane() {
    const PANES: usize = 5;
    let world = World::with_server();
    world.ok(&["new-session", "-s", "work"]);
    let program = "stty -echo; echo ready; exec cat";
    let make = |_| world.ok(&["new-window", "-t", "work", "-n", "many", "--", "sh", "-c", program]);
    let panes: Vec<String> = (0..PANES).map(make).collect();
    for pane in &panes {
        ready(&world, pane);
    }
    let query = "panes=work:many&types=output,pane-opened";
    let mut first = Sse::open(&world, query);
    world.ok(&["send-keys", "-t", &panes[0], "-l", "one\n"]);
    assert_eq!(first.next().unwrap().data["text"], "one\n");
    let id = first.id.clone().unwrap();
    drop(first);
    let gaps = |id: &str, reason: &str| {
        let mut events = Sse::resume(&world, query, Some(id));
        let mut told = BTreeSet::new();
        while told.len() < PANES {
            let event = events.next().unwrap().data;
            assert_eq!(event["gap"]["reason"], reason, "{event}");
            told.insert(event["pane"].as_str().unwrap().to_owned());
        }
        events
    };
    // Afterwards so many streams end that it is forgotten.
    for _ in 0..1030 {
        drop(Sse::open(&world, query));
    }
    eventually("all have ended", || world.metric("muxtap_streams") == 0);
    let mut events = gaps(&id, "resume-expired");
    world.ok(&["send-keys", "-t", &panes[0], "-l", "two\n"]);
    assert_eq!(events.next().unwrap().data["text"], "two\n", "it begins where the request says: now");
    // After a restart, muxtap begins at the retained output.
    world.ok(&["stop"]);
    for pane in &panes {
        ready(&world, pane);
    }
    let mut events = gaps(&id, "muxtap-restarted");
    let text = events.find("the pane", |event| event.data["pane"] == panes[0].as_str()).data["text"].clone();
    assert!(text.as_str().unwrap().starts_with("ready\n"), "{text}");
}

#[test]
fn what_happened_while_a_reader_was_away_is_told_when_it_is_back() {
    let world = World::with_server();
    world.ok(&["new-session", "-s", "work"]);
    let talks = |word: &str| format!("echo {word} begins; read -r go; echo {word} ends; exit 5");
    let stays =
        world.ok(&["new-window", "-t", "work", "-n", "told", "--", "sh", "-c", "stty -echo; echo here; exec cat"]);
    let ends = world.ok(&["new-window", "-t", "work", "-n", "told", "--", "sh", "-c", &talks("one")]);
    world.await_output(&ends, "^one begins");
    world.await_output(&stays, "^here");
    let query = "panes=work:told*&types=output,pane-opened,pane-exited&since=start";
    let mut events = Sse::open(&world, query);
    let mut words: Vec<_> = [events.next(), events.next()].map(|event| event.unwrap().data["text"].clone()).into();
    words.sort_by_key(ToString::to_string);
    assert_eq!(words, ["here\n", "one begins\n"]);
    // Nothing more is pending; the position of the last event stands for all of them.
    let last = events.id.clone();
    drop(events);
    world.ok(&["send-keys", "-t", &ends, "Enter"]);
    world.ok(&["wait-for", "-t", &ends, "--exit", "--since", "start", "-T", "20"]);
    world.ok(&["send-keys", "-t", &stays, "-l", "still here\n"]);
    world.await_output(&stays, "^still here");
    let new = world.ok(&["new-window", "-t", "work", "-n", "told-too", "--", "sh", "-c", &talks("two")]);
    world.await_output(&new, "^two begins");
    let mut events = Sse::resume(&world, query, last.as_deref());
    let mut told: BTreeMap<String, Vec<String>> = BTreeMap::new();
    while told.values().map(Vec::len).sum::<usize>() < 5 {
        let event = events.next().unwrap().data;
        let pane = event["pane"].as_str().or(event["pane"]["id"].as_str()).unwrap();
        let what = event["text"].as_str().or(event["type"].as_str()).unwrap();
        told.entry(pane.to_owned()).or_default().push(what.to_owned());
    }
    assert_eq!(told[&ends], ["\none ends\n", "pane-exited"]);
    assert_eq!(told[&stays], ["still here\n"]);
    assert_eq!(told[&new], ["pane-opened", "two begins\n"]);
    // Its end was reported, and is not reported again.
    let mut again = Sse::resume(&world, query, events.id.as_deref());
    world.ok(&["send-keys", "-t", &stays, "-l", "and here\n"]);
    let next = again.next().unwrap().data;
    assert_eq!((&next["pane"], &next["text"]), (&stays.as_str().into(), &"and here\n".into()));
}

#[test]
fn a_place_of_another_run_is_told_as_a_gap_and_what_is_none_is_refused() {
    let world = World::with_server();
    let pane = world.window("echo before; exec cat");
    world.await_output(&pane, "^before");
    let query = "types=output&since=now";
    let mut events = Sse::open(&world, query);
    world.tmux(&["send-keys", "-t", &pane, "x", "Enter"]);
    events.find("the echo", |event| event.data["text"].as_str().unwrap().contains('x'));
    // The terminal's echo, and the line from cat: a cursor is after both.
    eventually("both stand there", || world.read_all(&pane) == "before\nx\nx\n");
    let last = events.id.clone().unwrap();
    for wrong in ["nonsense", "r1.0.0.0.1.abc", &format!("{last}x")] {
        let refused = Sse::ask(&world, query, Some(wrong)).err().unwrap();
        assert_eq!(refused["code"], "INVALID_ARGUMENT", "{refused}");
    }
    let in_query = Sse::ask(&world, &format!("{query}&resume=nonsense"), None).err().unwrap();
    assert_eq!(in_query["code"], "INVALID_ARGUMENT", "{in_query}");
    assert_eq!(Sse::ask(&world, "types=output,sounds", None).err().unwrap()["code"], "INVALID_ARGUMENT");
    assert_eq!(Sse::ask(&world, "panes=nowhere:1", None).err().unwrap()["code"], "NOT_FOUND");
    // A read's cursor works for its pane.
    let cursor = world.json(&["read", "-t", &pane, "--since", "start"])["cursor"].as_str().unwrap().to_owned();
    let mut from_cursor =
        Sse::resume(&world, &format!("panes={}&types=output", pane.replace('%', "%25")), Some(&cursor));
    world.tmux(&["send-keys", "-t", &pane, "-l", "y"]);
    assert_eq!(from_cursor.next().unwrap().data["text"], "y");
    world.ok(&["stop"]);
    world.await_output(&pane, "^before");
    let mut events = Sse::resume(&world, query, Some(&last));
    let event = events.find("the pane", |event| event.data["pane"] == pane.as_str()).data;
    assert_eq!(event["gap"]["reason"], "muxtap-restarted", "{event}");
    let event = events.find("the pane", |event| event.data["pane"] == pane.as_str()).data;
    assert!(event["text"].as_str().unwrap().starts_with("before\n"), "{event}");
}

#[test]
fn a_slow_reader_meets_gaps_while_a_fast_one_loses_nothing() {
    let world = World::with_server().with_floods_followed();
    let pane = world.window(&bursts_on_demand(100, 5000));
    ready(&world, &pane);
    let query = format!("panes={}&types=output&since=start", pane.replace('%', "%25"));
    let mut slow = Sse::open(&world, &query);
    let mut fast = Sse::open(&world, &query);
    let mut lines = Numbered::default();
    let mut asked = 0;
    while lines.others.last().is_none_or(|line| line != "END") {
        if lines.lines == asked && asked < 500_000 {
            world.tmux(&["send-keys", "-t", &pane, "Enter"]);
            asked += 5000;
        }
        lines.event(&fast.next().unwrap().data);
    }
    assert_eq!((lines.lines, lines.gaps), (500_000, 0), "the fast one");
    // It has not read a byte until now.
    let mut late = Numbered::default();
    while late.others.last().is_none_or(|line| line != "END") {
        let event = slow.next().unwrap().data;
        let reason = &event["gap"]["reason"];
        assert!(reason.is_null() || reason == "slow-reader", "{event}");
        late.event(&event);
    }
    assert!(late.gaps > 0 && late.lines < 500_000, "{} gaps, {} lines", late.gaps, late.lines);
    assert!(world.metric("muxtap_gaps_total{reason=\"slow-reader\"}") > 0);
}

#[test]
fn two_hundred_readers_of_one_pane_each_get_every_line() {
    let world = World::with_server();
    let pane = world.window(&bursts(50, 100));
    ready(&world, &pane);
    let query = format!("panes={}&types=output&since=start", pane.replace('%', "%25"));
    let readers: Vec<_> = (0..200).map(|_| Sse::open(&world, &query)).collect();
    assert_eq!(world.metric("muxtap_streams"), 200);
    world.tmux(&["send-keys", "-t", &pane, "Enter"]);
    thread::scope(|scope| {
        for mut reader in readers {
            scope.spawn(move || {
                let mut lines = Numbered::default();
                while lines.others.last().is_none_or(|line| line != "END") {
                    lines.event(&reader.next().unwrap().data);
                }
                assert_eq!((lines.lines, lines.gaps), (5000, 0));
            });
        }
    });
    eventually("nobody reads any more", || world.metric("muxtap_streams") == 0);
}

/// For programs that draw, the events alone give what `capture-pane` prints.
#[test]
fn a_screen_drawn_from_events_is_what_capture_pane_prints() {
    let world = World::with_server();
    let pane = world.window(crate::stream_screens::DRAWS);
    ready(&world, &pane);
    if !followed_in_memory(&world) {
        eprintln!("screens of this tmux are not followed: no events of them");
        return;
    }
    let of = pane.replace('%', "%25");
    let mut plain = Sse::open(&world, &format!("panes={of}&types=screen&screen=text"));
    let mut styled = Sse::open(&world, &format!("panes={of}&types=screen&screen=ansi"));
    let first = plain.next().unwrap().data;
    assert_eq!(first["rows"].as_array().unwrap().len(), 24, "the first event holds all rows: {first}");
    let (mut drawn, mut coloured) = (Drawn::default(), Drawn::default());
    drawn.event(&first);
    for step in 0..crate::stream_screens::STEPS {
        world.ok(&["send-keys", "-t", &pane, "-l", "go\n"]);
        let mark = format!("step {step} done");
        world.await_output(&pane, &mark);
        while drawn.rows.last() != Some(&mark) {
            drawn.event(&plain.next().unwrap().data);
        }
        while !coloured.rows.last().is_some_and(|row| row.contains(&mark)) {
            coloured.event(&styled.next().unwrap().data);
        }
        crate::stream_screens::is_what_tmux_prints(&world, &pane, &drawn, &coloured);
    }
    // A change of one row is reported as that row.
    world.ok(&["send-keys", "-t", &pane, "-l", "end\n"]);
    let last = plain.find("the last row drawn", |event| event.data["lines"][0] == "the end").data;
    assert_eq!(last["rows"], serde_json::json!([11]), "{last}");
    // Another size: all rows again.
    world.tmux(&["resize-window", "-t", &pane, "-x", "60", "-y", "15"]);
    let resized = plain.find("another size", |event| event.data["size"]["height"] == 15).data;
    assert_eq!(resized["rows"].as_array().unwrap().len(), 15);
    assert_eq!(resized["size"]["width"], 60);
}

#[test]
fn a_stopped_daemon_ends_streams_properly_whatever_their_readers_do() {
    let world = World::with_server().with_floods_followed();
    let flood = world.window("echo ready; while :; do seq 1 10000; done");
    world.await_output(&flood, "^1000$");
    let mut idle = Sse::open(&world, "types=topology");
    let mut busy = Sse::open(&world, "types=output");
    // It reads nothing: its stream cannot be ended properly, and blocks no other caller.
    let mut stuck = Sse::open(&world, "types=output");
    let reader = thread::spawn(move || while busy.next().is_some() {});
    // More than the socket and the ring can hold.
    eventually("the one that does not read is overtaken", || world.metric("muxtap_output_bytes_total") > 5_000_000);
    // It has read nothing by the time the daemon has stopped.
    world.ok(&["stop"]);
    while let Some(event) = idle.next() {
        assert_eq!(event.kind, "topology");
    }
    reader.join().expect("it ended properly");
    assert!(stuck.is_cut());
}

#[test]
fn readers_that_go_or_give_up_half_of_their_connection_are_let_go() {
    let world = World::with_server();
    let pane = world.window("stty -echo; echo ready; exec cat");
    ready(&world, &pane);
    let gone = Sse::open(&world, "types=output");
    let mut half = Sse::open(&world, "types=output");
    let mut stays = Sse::open(&world, "types=output");
    assert_eq!(world.metric("muxtap_streams"), 3);
    half.half_close();
    drop(gone);
    eventually("two have gone", || world.metric("muxtap_streams") == 1);
    assert!(half.is_cut());
    world.ok(&["send-keys", "-t", &pane, "-l", "hello\n"]);
    assert_eq!(stays.find("the pane's word", |_| true).data["text"], "hello\n");
}

/// Requests pipelined after a stream get no response: the connection ends with the stream.
#[test]
fn a_connection_ends_with_its_stream() {
    let world = World::with_server();
    world.ok(&["list-panes"]);
    let mut stream = world.http_send("GET", &format!("/v1/events{}", world.query()), None);
    let mut head = [0; 12];
    stream.read_exact(&mut head).unwrap();
    assert_eq!(&head, b"HTTP/1.1 200");
    world.ok(&["stop"]);
    let mut rest = String::new();
    stream.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("connection: close\r\n") && rest.ends_with("0\r\n\r\n"), "{rest}");
}
