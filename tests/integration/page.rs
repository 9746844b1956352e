//! Pages: a client of the protocol in `docs/page.md`, and the access to it.

use std::{
    collections::{BTreeMap, HashMap},
    fmt::Write as _,
    fs::OpenOptions,
    io::{Read, Write},
    net::TcpStream,
    os::unix::net::UnixStream,
    path::Path,
    time::Instant,
};

use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::{self, Message, WebSocket, client::IntoClientRequest as _};

use crate::common::{Background, Http, LIMIT, World, eventually, signal};

/// A cell: its text and its style.
type Cell = (String, String);

/// A page that is a real WebSocket client.
pub struct Page<S> {
    socket: WebSocket<S>,
    views: HashMap<u64, View>,
    /// Messages other than screens.
    others: Vec<Value>,
    client: String,
    /// The highest number that the daemon had accepted before.
    taken: u64,
    may: Vec<String>,
    /// The number of messages for views.
    screens: usize,
    /// The number of those that changed a view. Others confirm what it shows: tmux told the daemon
    /// what the screen did not know yet, which happens once a pane rests.
    changes: usize,
    bytes: usize,
    draws: bool,
}

/// A view as the page has it.
#[derive(Clone, Default, PartialEq)]
struct View {
    rows: Vec<Value>,
    columns: usize,
    at: (u64, u64),
    cursor: String,
    modes: Value,
    history: u64,
    first: u64,
    stale: bool,
}

impl View {
    fn apply(&mut self, message: &Value) {
        let number = |name: &str| message[name].as_u64();
        if message["whole"] == true {
            *self = Self::default();
            self.rows.resize(number("rows").unwrap() as usize, json!([]));
        }
        self.columns = number("columns").map_or(self.columns, |columns| columns as usize);
        let height = self.rows.len();
        self.rows.drain(..number("up").unwrap() as usize);
        self.rows.resize(height, json!([]));
        for (y, row) in message["lines"].as_object().unwrap() {
            self.rows[y.parse::<usize>().unwrap()] = row.clone();
        }
        self.at = (message["at"][0].as_u64().unwrap(), message["at"][1].as_u64().unwrap());
        message["cursor"].as_str().unwrap().clone_into(&mut self.cursor);
        self.history = number("history").unwrap_or(self.history);
        self.first = number("first").unwrap_or(self.first);
        self.stale = message["stale"].as_bool().unwrap_or(self.stale);
        if !message["modes"].is_null() {
            self.modes = message["modes"].clone();
        }
    }

    fn text(&self) -> String {
        self.rows.iter().map(text_of).collect::<Vec<_>>().join("\n")
    }

    fn cells(&self) -> Vec<Vec<Cell>> {
        self.rows.iter().map(|row| cells_of(row, self.columns)).collect()
    }
}

/// Returns a row's text.
fn text_of(row: &Value) -> String {
    let runs = row.as_array().unwrap();
    let goes_on = runs.last() == Some(&json!("+"));
    let text = |run: &Value| run.as_str().or(run[0].as_str()).unwrap().to_owned();
    runs[..runs.len() - usize::from(goes_on)].iter().map(text).collect()
}

/// Returns a row's cells: a wide one, and empty ones after it.
fn cells_of(row: &Value, columns: usize) -> Vec<Cell> {
    let mut cells = Vec::new();
    let runs = row.as_array().unwrap();
    let goes_on = runs.last() == Some(&json!("+"));
    for run in &runs[..runs.len() - usize::from(goes_on)] {
        let (text, width, style) = match run {
            Value::String(text) => (text.as_str(), text.len() as u64, ""),
            run => (run[0].as_str().unwrap(), run[1].as_u64().unwrap(), run[2].as_str().unwrap()),
        };
        let looks = looks_of(style);
        if text.chars().count() as u64 == width {
            cells.extend(text.chars().map(|letter| (letter.to_string(), looks.clone())));
        } else {
            cells.push((text.to_owned(), looks.clone()));
            cells.extend((1..width).map(|_| (String::new(), looks.clone())));
        }
    }
    cells.resize(columns, (" ".into(), String::new()));
    cells
}

/// Returns the words of a style that another terminal can report too.
fn looks_of(style: &str) -> String {
    let told = |word: &&str| matches!(*word, "b" | "d" | "i" | "u" | "r") || word.starts_with(['f', 'g']);
    style.split(' ').filter(told).collect::<Vec<_>>().join(" ")
}

fn size16(number: u64) -> std::num::NonZeroU16 {
    u16::try_from(number).ok().and_then(std::num::NonZeroU16::new).unwrap()
}

/// The rows of cells, and the cursor's column and row.
type Shown = (Vec<Vec<Cell>>, (u64, u64));

/// Returns tmux's own content of a pane, as another terminal interprets it.
fn shown_by_tmux(world: &World, pane: &str) -> Shown {
    let size =
        world.tmux(&["display-message", "-p", "-t", pane, "#{pane_width} #{pane_height} #{cursor_x} #{cursor_y}"]);
    let numbers: Vec<u64> = size.split(' ').map(|number| number.parse().unwrap()).collect();
    let [columns, rows, x, y] = numbers[..] else { panic!("{size}") };
    let text = world.tmux(&["capture-pane", "-e", "-N", "-p", "-t", pane]);
    let mut terminal = vt100::Parser::new(size16(rows), size16(columns), 0);
    for (y, line) in text.split('\n').enumerate() {
        terminal.process(format!("\x1b[{};1H{line}", y + 1).as_bytes());
    }
    let colour = |letter: char, colour: vt100::Color| match colour {
        vt100::Color::Default => None,
        vt100::Color::Idx(index) => Some(format!("{letter}{index}")),
        vt100::Color::Rgb(red, green, blue) => Some(format!("{letter}#{red:02x}{green:02x}{blue:02x}")),
    };
    let cell = |y: u64, x: u64| {
        let cell = terminal.screen().cell(y as u16, x as u16).unwrap();
        let flags = [
            ("b", cell.bold()),
            ("d", cell.dim()),
            ("i", cell.italic()),
            ("u", cell.underline()),
            ("r", cell.inverse()),
        ];
        let words = flags.iter().filter(|(_, set)| *set).map(|(word, _)| (*word).to_owned());
        let colours = [colour('f', cell.fgcolor()), colour('g', cell.bgcolor())];
        let looks = words.chain(colours.into_iter().flatten()).collect::<Vec<_>>().join(" ");
        let text = if cell.is_wide_continuation() {
            ""
        } else if cell.has_contents() {
            cell.contents()
        } else {
            " "
        };
        (text.to_owned(), looks)
    };
    ((0..rows).map(|y| (0..columns).map(|x| cell(y, x)).collect()).collect(), (x, y))
}

/// Removes styles that are invisible in a blank.
fn visible(cells: Vec<Vec<Cell>>) -> Vec<Vec<Cell>> {
    let seen = |word: &&str| matches!(*word, "u" | "r") || word.starts_with('g');
    let cell = |(text, looks): Cell| {
        let shows = looks.split(' ').any(|word| seen(&word));
        let looks = if text == " " && !shows { String::new() } else { looks };
        // The right half has its left half's style.
        if text.is_empty() { (text, String::new()) } else { (text, looks) }
    };
    cells.into_iter().map(|row| row.into_iter().map(cell).collect()).collect()
}

/// Opens a page on the daemon's socket.
fn page(world: &World) -> Page<UnixStream> {
    again(world, None)
}

/// Opens a page that continues another's input.
fn again(world: &World, client: Option<&str>) -> Page<UnixStream> {
    world.ok(&["list-panes"]);
    connect(world, client)
}

/// Connects a page without asking tmux first.
fn connect(world: &World, client: Option<&str>) -> Page<UnixStream> {
    let stream = UnixStream::connect(world.daemon_socket()).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    let (socket, _) = tungstenite::client::client("ws://muxtap/v1/page/ws", stream).unwrap();
    Page::begin(socket, client)
}

impl<S: Read + Write> Page<S> {
    fn begin(socket: WebSocket<S>, client: Option<&str>) -> Self {
        let mut page = Self {
            socket,
            views: HashMap::new(),
            others: Vec::new(),
            client: String::new(),
            taken: 0,
            may: Vec::new(),
            screens: 0,
            changes: 0,
            bytes: 0,
            draws: true,
        };
        page.say(&json!({"type": "hello", "client": client}));
        let welcome = page.next_of("welcome");
        welcome["client"].as_str().unwrap().clone_into(&mut page.client);
        page.taken = welcome["input"].as_u64().unwrap();
        let own = format!("/run/tmux-{}", rustix::process::getuid().as_raw());
        assert!(welcome["sockets"].as_str().unwrap().ends_with(&own), "{welcome}");
        page.may = welcome["may"].as_array().unwrap().iter().map(|tier| tier.as_str().unwrap().to_owned()).collect();
        page
    }

    pub fn say(&mut self, message: &Value) {
        self.socket.send(Message::text(message.to_string())).unwrap();
    }

    /// Returns the next message; null at the end. Screens are applied, and drawn unless the page
    /// does not draw.
    fn next(&mut self) -> Value {
        self.next_within_limit().expect("something came, or the connection ended")
    }

    /// Returns the next message; nothing if none came for `LIMIT` and the connection stays.
    fn next_within_limit(&mut self) -> Option<Value> {
        let begun = Instant::now();
        // Pings arrive even if nothing else does.
        while begun.elapsed() < LIMIT {
            let text = match self.socket.read() {
                Ok(Message::Text(text)) => text,
                Ok(Message::Close(_)) | Err(_) => return Some(Value::Null),
                Ok(_) => continue,
            };
            let message: Value = serde_json::from_str(&text).unwrap();
            if message["type"] == "screen" {
                self.screens += 1;
                self.bytes += text.len();
                let view = message["view"].as_u64().unwrap();
                let shown = self.views.entry(view).or_default();
                let before = shown.clone();
                shown.apply(&message);
                self.changes += usize::from(*shown != before);
                if self.draws {
                    // The connection may be ending.
                    let drawn = json!({"type": "drawn", "views": [view]});
                    let _ = self.socket.send(Message::text(drawn.to_string()));
                }
            }
            return Some(message);
        }
        None
    }

    pub fn next_of(&mut self, kind: &str) -> Value {
        if let Some(at) = self.others.iter().position(|message| message["type"] == kind) {
            return self.others.remove(at);
        }
        loop {
            let message = self.next();
            assert!(!message.is_null(), "the connection ended before a message {kind}");
            if message["type"] == kind {
                return message;
            }
            if message["type"] != "screen" {
                self.others.push(message);
            }
        }
    }

    /// Returns the key of each pane, by its id.
    fn keys(&mut self) -> BTreeMap<String, String> {
        self.say(&json!({"type": "list"}));
        let panes = self.next_of("panes");
        assert_eq!(panes["whole"], true);
        let text = |pane: &Value, name: &str| pane[name].as_str().unwrap().to_owned();
        panes["set"].as_array().unwrap().iter().map(|pane| (text(pane, "id"), text(pane, "key"))).collect()
    }

    fn show(&mut self, view: u64, key: &str) {
        self.say(&json!({"type": "show", "view": view, "key": key}));
        while !self.views.contains_key(&view) {
            assert!(!self.next().is_null());
        }
    }

    /// Reads until a view meets this condition.
    fn until(&mut self, view: u64, what: &str, fits: impl Fn(&View) -> bool) {
        while !self.views.get(&view).is_some_and(&fits) {
            let shown = self.views.get(&view).map(View::text).unwrap_or_default();
            assert!(!self.next().is_null(), "{what}: {shown}");
        }
    }

    fn until_text(&mut self, view: u64, text: &str) {
        self.until(view, text, |view| view.text().contains(text));
    }

    /// Compares a view with tmux's screen.
    fn check(&mut self, view: u64, world: &World, pane: &str) {
        let (ours, theirs, text) = self.both(view, world, pane);
        check_same(&ours, &theirs, &text);
    }

    /// Reads until the view equals tmux's current screen: earlier input may still be in transit.
    fn until_same(&mut self, view: u64, world: &World, pane: &str) {
        loop {
            let (ours, theirs, text) = self.both(view, world, pane);
            if ours == theirs {
                return;
            }
            if self.next_within_limit().is_none_or(|message| message.is_null()) {
                check_same(&ours, &theirs, &text);
            }
        }
    }

    /// Returns the view's content and cursor, tmux's content and cursor, and the view's text.
    fn both(&self, view: u64, world: &World, pane: &str) -> (Shown, Shown, String) {
        let (theirs, at) = shown_by_tmux(world, pane);
        let view = &self.views[&view];
        let (mut ours, theirs) = (visible(view.cells()), visible(theirs));
        for (ours, theirs) in ours.iter_mut().zip(&theirs) {
            // tmux does not report cells after the last one in use that were erased with a
            // background.
            let blank = (" ".to_owned(), String::new());
            let told = theirs.iter().rposition(|cell| *cell != blank).map_or(0, |last| last + 1);
            ours.iter_mut().skip(told).filter(|(text, _)| text == " ").for_each(|(_, looks)| looks.clear());
        }
        ((ours, view.at), (theirs, at), view.text())
    }

    /// Sends a request whose response comes after all pending messages.
    fn settle(&mut self) {
        self.say(&json!({"type": "nothing", "id": 7}));
        while self.next_of("error")["id"] != 7 {}
    }
}

/// Panics at the first difference between a view and tmux's screen.
fn check_same((ours, at): &Shown, theirs: &Shown, text: &str) {
    let differs = ours.iter().zip(&theirs.0).enumerate().find(|(_, (ours, theirs))| ours != theirs);
    if let Some((row, (ours, theirs))) = differs {
        let at = ours.iter().zip(theirs).position(|(ours, theirs)| ours != theirs);
        let cells = at.map(|at| (at, &ours[at], &theirs[at]));
        panic!("row {row}: column, ours, tmux's: {cells:?}, of {} and {} cells\n{text}", ours.len(), theirs.len());
    }
    assert_eq!(ours.len(), theirs.0.len(), "{text}");
    assert_eq!(*at, theirs.1);
}

/// Creates a pane that prints only what is written to its terminal.
fn silent_pane(world: &World) -> (String, std::fs::File) {
    let pane = world.window("stty raw -echo; echo ready; exec sleep 1000");
    world.await_output(&pane, "ready");
    let tty = world.tmux(&["display-message", "-p", "-t", &pane, "#{pane_tty}"]);
    let terminal = OpenOptions::new().write(true).open(tty).unwrap();
    (pane, terminal)
}

/// A pseudorandom number, the same in each run.
struct Random(u64);

impl Random {
    fn below(&mut self, most: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % most
    }

    fn output(&mut self, pieces: usize) -> String {
        const PIECES: [&str; 26] = [
            "word ",
            "a line\r\n",
            "\x1b[31m",
            "\x1b[1;44m",
            "\x1b[m",
            "\x1b[38;5;200m",
            "\x1b[48;2;1;2;3m",
            "\x1b[7m",
            "\x1b[5;3H",
            "\x1b[H",
            "\x1b[2J",
            "\x1b[K",
            "\x1b[L",
            "\x1b[M",
            "\x1b[3P",
            "\x1b[2@",
            "\x1bM",
            "\x1b[2;8r",
            "\x1b[r",
            "漢字",
            "e\u{301}é─",
            "\x1b[?1049h",
            "\x1b[?1049l",
            "\x1b[4mu\x1b[24m",
            "\r\n\r\n\r\n",
            "0123456789",
        ];
        (0..pieces).map(|_| PIECES[self.below(PIECES.len())]).collect()
    }
}

/// The page draws the bars of commands anew for those that changed, and asks for them alone.
#[test]
fn only_commands_that_have_changed_are_sent_again() {
    let world = World::with_server();
    let (pane, mut terminal) = silent_pane(&world);
    let mut page = page(&world);
    let key = page.keys()[&pane].clone();
    page.show(1, &key);
    let listed = |page: &mut Page<_>, changed: bool| {
        page.say(&json!({"type": "commands", "id": 8, "view": 1, "changed": changed}));
        let result = page.next_of("result")["result"].clone();
        let commands = result["commands"].as_array().unwrap().iter();
        let told = |one: &Value| (one["number"].as_u64().unwrap(), one["line"].clone(), one["status"].clone());
        (commands.map(told).collect::<Vec<_>>(), result["gone"].clone())
    };
    let mut print = |page: &mut Page<_>, output: &str, shown: &str| {
        terminal.write_all(output.as_bytes()).unwrap();
        page.until_text(1, shown);
    };
    let begin = |line: &str| format!("\x1b]133;A\x07$ \x1b]133;B\x07{line}\r\n\x1b]133;C;cmdline_url={line}\x07");
    let make = |status: Value| (1, json!("make"), status);
    print(&mut page, &(begin("make") + "it runs\r\n"), "it runs");
    assert_eq!(listed(&mut page, false), (vec![make(Value::Null)], json!([])));
    assert_eq!(listed(&mut page, true), (vec![], json!([])));
    print(&mut page, "\x1b]133;D;2\x07it has ended\r\n", "it has ended");
    assert_eq!(listed(&mut page, true), (vec![make(json!(2))], json!([])));
    print(&mut page, &(begin("test") + "the next one\r\n"), "the next one");
    let test = || (2, json!("test"), Value::Null);
    assert_eq!(listed(&mut page, true), (vec![test()], json!([])));
    assert_eq!(listed(&mut page, false), (vec![make(json!(2)), test()], json!([])));
    // Their lines are not known in another width.
    world.tmux(&["resize-window", "-t", &pane, "-x", "60"]);
    page.until(1, "another width", |view| view.columns == 60 && !view.stale);
    assert_eq!(listed(&mut page, true), (vec![], json!([1, 2])));
}

#[test]
fn a_page_shows_what_tmux_shows() {
    let world = World::with_server();
    let (pane, mut terminal) = silent_pane(&world);
    let mut page = page(&world);
    let key = page.keys()[&pane].clone();
    page.show(1, &key);
    let mut random = Random(7);
    for round in 0..60 {
        if round % 10 == 9 {
            let (columns, rows) = (20 + random.below(100), 5 + random.below(40));
            let (columns, rows) = (columns.to_string(), rows.to_string());
            world.tmux(&["resize-window", "-t", &pane, "-x", &columns, "-y", &rows]);
        }
        let end = format!("END-{round}.");
        let output = format!("{}\x1b[m\x1b[r\r\n{end}", random.output(80));
        terminal.write_all(output.as_bytes()).unwrap();
        page.until(1, &end, |view| view.text().contains(&end) && !view.stale);
        // What the seed did not tell (a cursor that was saved before it, with its colors) is
        // guessed until the pane is at rest.
        page.until_same(1, &world, &pane);
    }
    // Modes too.
    terminal.write_all(b"\x1b[?1003;1006;1;2004h\x1b[5 q").unwrap();
    page.until(1, "modes", |view| view.modes["mouse"] == 1003);
    let modes = &page.views[&1].modes;
    assert_eq!((&modes["sgr"], &modes["keys"], &modes["shape"]), (&json!(true), &json!(true), &json!(5)));
}

#[test]
fn history_is_read_by_numbers_that_stay() {
    let world = World::with_server();
    let (pane, mut terminal) = silent_pane(&world);
    let mut page = page(&world);
    let key = page.keys()[&pane].clone();
    page.show(1, &key);
    let lines: String = (0..500).fold(String::new(), |mut lines, line| {
        let _ = write!(lines, "\r\nline {line}.");
        lines
    });
    terminal.write_all(lines.as_bytes()).unwrap();
    page.until_text(1, "line 499.");
    let (first, history) = (page.views[&1].first, page.views[&1].history);
    let read = |page: &mut Page<UnixStream>, from: u64, count: u64| {
        page.say(&json!({"type": "history", "id": 5, "view": 1, "from": from, "count": count}));
        let answer = page.next_of("history");
        let lines: Vec<String> = answer["lines"].as_array().unwrap().iter().map(text_of).collect();
        (answer["from"].as_u64().unwrap(), lines, answer["next"].as_u64().unwrap())
    };
    let (from, all, next) = read(&mut page, first, 1000);
    assert_eq!((from, all.len() as u64, next), (first, history, first + history));
    let at = all.iter().position(|line| line == "line 300.").unwrap() as u64;
    assert_eq!(read(&mut page, first + at, 2).1, ["line 300.", "line 301."]);
    terminal.write_all(b"\r\nmore\r\nand more").unwrap();
    page.until_text(1, "and more");
    assert_eq!(read(&mut page, first + at, 1).1, ["line 300."], "it has the number that it had");
    world.tmux(&["clear-history", "-t", &pane]);
    page.until(1, "a history that was cleared", |view| view.history == 0);
    assert!(read(&mut page, first, 10).1.is_empty());
}

/// Commands come with the numbers of the lines on which they were typed, as history counts lines; a
/// screen that was cleared has none.
#[test]
fn commands_have_the_lines_on_which_they_were_typed() {
    let world = World::with_server();
    let (pane, mut terminal) = silent_pane(&world);
    let mut page = page(&world);
    let key = page.keys()[&pane].clone();
    page.show(1, &key);
    let mut id = 0;
    let mut commands = |page: &mut Page<UnixStream>| {
        id += 1;
        page.say(&json!({"type": "commands", "id": id, "view": 1}));
        let answer = page.next_of("result");
        assert_eq!(answer["id"], id, "{answer}");
        answer["result"]["commands"].as_array().unwrap().clone()
    };
    let run = |line: &str, output: &str, status: u32| {
        format!(
            "\r\n\x1b]133;A\x07$ \x1b]133;B\x07{line}\r\n\x1b]133;C;cmdline={line}\x07{output}\x1b]133;D;{status}\x1b\\"
        )
    };
    let many = (0..100).fold(String::new(), |all, number| all + &format!("{number}\r\n"));
    for text in [run("first", &many, 0), run("second", "out\r\n", 3), "\x1b]133;A\x07$ \x1b]133;B\x07waiting".into()] {
        terminal.write_all(text.as_bytes()).unwrap();
    }
    page.until_text(1, "waiting");
    let listed = commands(&mut page);
    let known: Vec<_> =
        listed.iter().map(|one| (one["line"].as_str().unwrap(), one["status"].as_u64().unwrap())).collect();
    assert_eq!(known, [("first", 0), ("second", 3)]);
    for command in &listed {
        let at = command["at"].as_u64().unwrap();
        let View { first, history, .. } = page.views[&1];
        let text = if at >= first + history {
            text_of(&page.views[&1].rows[(at - first - history) as usize])
        } else {
            page.say(&json!({"type": "history", "id": 900, "view": 1, "from": at, "count": 1}));
            text_of(&page.next_of("history")["lines"][0])
        };
        assert_eq!(text, format!("$ {}", command["line"].as_str().unwrap()), "{at}, {first}, {history}, {listed:?}");
    }
    terminal.write_all(b"\x1b[H\x1b[2J\x1b]133;A\x07$ \x1b]133;B\x07cleared").unwrap();
    page.until_text(1, "cleared");
    let top = page.views[&1].first + page.views[&1].history;
    assert!(commands(&mut page).iter().all(|command| command["at"].as_u64().unwrap() < top));
    page.say(&json!({"type": "commands", "id": 77, "view": 9}));
    assert_eq!(page.next_of("error")["error"]["code"], "NOT_FOUND");
}

#[test]
fn a_page_that_does_not_draw_gets_no_further_screens() {
    let world = World::with_server();
    let (pane, mut terminal) = silent_pane(&world);
    let mut page = page(&world);
    let key = page.keys()[&pane].clone();
    page.draws = false;
    page.show(1, &key);
    for number in 0..50 {
        terminal.write_all(format!("\r\nline {number}.").as_bytes()).unwrap();
        world.await_output(&pane, &format!("line {number}\\."));
    }
    page.settle();
    assert_eq!(page.screens, 1);
    // When the page draws, it gets the current screen, once.
    page.draws = true;
    page.say(&json!({"type": "drawn", "views": [1]}));
    page.until_text(1, "line 49.");
    page.settle();
    assert_eq!(page.changes, 2);
    page.check(1, &world, &pane);
}

#[test]
fn a_flood_sends_a_page_no_more_than_its_frame_rate() {
    let world = World::with_server();
    let (pane, mut terminal) = silent_pane(&world);
    let mut page = page(&world);
    let key = page.keys()[&pane].clone();
    page.show(1, &key);
    let before = page.screens;
    let begun = Instant::now();
    let flood = std::thread::spawn(move || {
        let line = format!("\r\n{}", "0123456789".repeat(7));
        let chunk = line.repeat(200);
        for _ in 0..400 {
            terminal.write_all(chunk.as_bytes()).unwrap();
        }
        terminal.write_all(b"\r\nTHE END").unwrap();
    });
    page.until_text(1, "THE END");
    flood.join().unwrap();
    let (took, screens) = (begun.elapsed(), page.screens - before);
    // 5.8 MB were printed. The rate holds on any slow machine.
    assert!(screens as u128 <= took.as_millis() * 60 / 1000 + 3, "{screens} in {took:?}");
    assert!(page.bytes / screens.max(1) < 8_000, "{} bytes, {screens} messages", page.bytes);
    page.check(1, &world, &pane);
}

#[test]
fn nothing_is_sent_for_quiet_panes() {
    let world = World::with_server();
    let panes: Vec<_> = (0..10).map(|_| world.window("echo ready; exec sleep 1000")).collect();
    for pane in &panes {
        world.await_output(pane, "ready");
    }
    let mut page = page(&world);
    let keys = page.keys();
    for (view, pane) in (0..200).zip(panes.iter().cycle()) {
        page.say(&json!({"type": "show", "view": view, "key": keys[pane]}));
    }
    while (0..200).any(|view| !page.views.get(&view).is_some_and(|view| view.text().contains("ready"))) {
        assert!(!page.next().is_null());
    }
    page.settle();
    let before = page.changes;
    // Events in other panes do not affect the views.
    let (other, mut terminal) = silent_pane(&world);
    for number in 0..20 {
        terminal.write_all(format!("\r\nnumber {number}.").as_bytes()).unwrap();
        world.await_output(&other, &format!("number {number}\\."));
    }
    page.settle();
    assert_eq!(page.changes, before);
    // One view too many, and a hidden one.
    for view in 200..513 {
        page.say(&json!({"type": "show", "view": view, "key": keys[&panes[0]]}));
    }
    assert_eq!(page.next_of("error")["error"]["code"], "RESOURCE_LIMIT");
}

#[test]
fn typed_keys_survive_reconnects_and_arrive_exactly_once() {
    let world = World::with_server();
    let pane = world.window("stty raw -echo; printf ready; exec cat -u");
    world.await_output(&pane, "ready");
    let tries = std::env::var("MUXTAP_TEST_RECONNECTS").ok().and_then(|tries| tries.parse().ok()).unwrap_or(50);
    let mut random = Random(11);
    let mut client: Option<String> = None;
    let (mut next, mut settled) = (1_u64, 0_u64);
    // Typed text is shown in colors, so that these are compared too.
    let plain = |seq: u64| format!("{seq:05}.");
    let word = |seq: u64| format!("\x1b[0;1;3{};4{}m{}", seq % 7, seq % 8, plain(seq));
    for _ in 0..tries {
        let mut page = again(&world, client.as_deref());
        client = Some(page.client.clone());
        settled = settled.max(page.taken);
        let key = page.keys()[&pane].clone();
        page.show(1, &key);
        page.until_same(1, &world, &pane);
        // Input that was neither acknowledged nor counted is sent again.
        let resend = settled + 1..next;
        let new = next..next + 1 + random.below(8) as u64;
        for seq in resend.chain(new.clone()) {
            page.say(&json!({"type": "input", "seq": seq, "key": key, "text": word(seq)}));
        }
        next = new.end;
        // Some responses are read, then the connection breaks in the middle.
        page.say(&json!({"type": "nothing", "id": 9}));
        for _ in 0..random.below(12) {
            let message = page.next();
            if message["type"] == "ack" {
                settled = settled.max(message["seq"].as_u64().unwrap());
            } else if message["type"] == "error" {
                break;
            }
        }
        drop(page);
    }
    let mut page = again(&world, client.as_deref());
    let key = page.keys()[&pane].clone();
    page.show(1, &key);
    for seq in settled.max(page.taken) + 1..next {
        page.say(&json!({"type": "input", "seq": seq, "key": key, "text": word(seq)}));
    }
    // Input that was already applied is acknowledged again and not typed again; a missing number is
    // refused.
    page.say(&json!({"type": "input", "seq": next - 1, "key": key, "text": word(next - 1)}));
    page.say(&json!({"type": "input", "seq": next + 1, "key": key, "text": "never"}));
    assert_eq!(page.next_of("nack")["error"]["code"], "INVALID_ARGUMENT");
    page.say(&json!({"type": "input", "seq": next, "key": key, "text": "!"}));
    while page.next_of("ack")["seq"] != next {}
    page.until_text(1, "!");
    let typed: String = world.read_all(&pane).chars().filter(|letter| !letter.is_whitespace()).collect();
    let wanted: String = (1..next).map(plain).collect();
    assert_eq!(typed, format!("ready{wanted}!"));
    page.check(1, &world, &pane);
}

/// T23.
/// The number of inputs without an outcome: like the real page, a test does not wait for outcomes.
#[cfg(target_os = "linux")]
const IN_FLIGHT: u64 = 5;

#[test]
#[cfg(target_os = "linux")]
fn a_page_goes_on_in_the_next_daemon_and_types_each_key_once() {
    let world = World::with_server();
    let pane = world.window("stty raw -echo; printf ready; exec cat -u");
    world.await_output(&pane, "ready");
    let mut page = page(&world);
    let client = page.client.clone();
    let (mut next, mut sent, mut settled, mut closed) = (1_u64, 0_u64, 0_u64, 0);
    let word = |seq: u64| format!("{seq:05}.");
    let (is_back, back) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let upgrades = scope.spawn(|| {
            let back = back;
            for _ in 0..3 {
                world.ok(&["upgrade"]);
                back.recv().unwrap();
            }
        });
        // Dropped with this closure: the thread ends then, too.
        let is_back = is_back;
        let mut key = String::new();
        page.say(&json!({"type": "list"}));
        while !upgrades.is_finished() || settled + 1 < next {
            let message = match page.socket.read() {
                Ok(Message::Text(text)) => serde_json::from_str::<Value>(&text).unwrap(),
                Ok(Message::Close(frame)) => {
                    assert_eq!(frame.map(|frame| u16::from(frame.code)), Some(1012));
                    closed += 1;
                    page = connect_again(&world, &client);
                    assert_eq!(page.client, client, "the next daemon knows the page");
                    settled = settled.max(page.taken);
                    // What had no response is sent again.
                    sent = settled;
                    key.clear();
                    page.say(&json!({"type": "list"}));
                    // After the last upgrade, it is not awaited.
                    let _ = is_back.send(());
                    continue;
                }
                Ok(_) => continue,
                Err(error) => panic!("{error}"),
            };
            if message["type"] == "panes" {
                let found = message["set"].as_array().unwrap().iter().find(|one| one["id"] == *pane);
                let Some(found) = found else { continue };
                found["key"].as_str().unwrap().clone_into(&mut key);
            } else if message["type"] == "ack" {
                settled = settled.max(message["seq"].as_u64().unwrap());
            } else {
                assert_ne!(message["type"], "nack", "{message}");
                continue;
            }
            if key.is_empty() {
                continue;
            }
            if !upgrades.is_finished() {
                next = next.max(settled + 1 + IN_FLIGHT);
            }
            for seq in sent.max(settled) + 1..next {
                let input = json!({"type": "input", "seq": seq, "key": key, "text": word(seq)});
                // The connection may be ending.
                let _ = page.socket.send(Message::text(input.to_string()));
            }
            sent = next - 1;
        }
        upgrades.join().unwrap();
    });
    // A daemon that is leaving may have closed a connection that came too early.
    assert!(closed >= 3, "{closed}");
    let wanted: String = (1..next).map(word).collect();
    let typed = || world.read_all(&pane).split_whitespace().collect::<String>();
    eventually("everything is typed", || typed().ends_with(&word(next - 1)));
    assert_eq!(typed(), format!("ready{wanted}"));
}

/// Connects a page of a daemon that was replaced. One that has not let go of its socket refuses it.
fn connect_again(world: &World, client: &str) -> Page<UnixStream> {
    loop {
        let stream = UnixStream::connect(world.daemon_socket()).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        if let Ok((socket, _)) = tungstenite::client::client("ws://muxtap/v1/page/ws", stream) {
            return Page::begin(socket, Some(client));
        }
    }
}

#[test]
fn two_pages_never_resize_a_pane() {
    let world = World::with_server();
    let (pane, mut terminal) = silent_pane(&world);
    let size = || world.tmux(&["display-message", "-p", "-t", &pane, "#{pane_width}x#{pane_height} #{window_width}"]);
    let before = size();
    let (mut one, mut other) = (page(&world), page(&world));
    let key = one.keys()[&pane].clone();
    for view in 0..3 {
        one.show(view, &key);
        other.show(view, &key);
    }
    terminal.write_all(b"both").unwrap();
    one.until_text(0, "both");
    other.until_text(2, "both");
    assert_eq!(size(), before);
    // The second connection with the same input ends the first.
    let client = one.client.clone();
    let mut newer = again(&world, Some(&client));
    assert_eq!(one.next_of("error")["error"]["code"], "REPLACED");
    assert!(one.next().is_null());
    newer.show(1, &key);
    assert_eq!(size(), before);
}

#[test]
fn a_window_has_a_pages_size_from_fit_to_unfit() {
    let world = World::with_server();
    let (pane, _terminal) = silent_pane(&world);
    let format = "#{window_width}x#{window_height}";
    let size = || world.tmux(&["display-message", "-p", "-t", &pane, format]);
    let option = || world.tmux(&["show-options", "-wqv", "-t", &pane, "window-size"]);
    let before = size();
    let (mut one, mut other) = (page(&world), page(&world));
    let key = one.keys()[&pane].clone();
    let mut id = 0;
    let mut ask = |page: &mut Page<UnixStream>, kind: &str, columns: u16, rows: u16| {
        id += 1;
        page.say(&json!({"type": kind, "id": id, "key": key, "columns": columns, "rows": rows}));
        let answer = page.next_of("result");
        assert_eq!(answer["id"], id);
        answer
    };
    let fitted = ask(&mut one, "fit", 100, 30);
    assert_eq!(fitted["result"], json!({"columns": 100, "rows": 30}), "{fitted}");
    assert_eq!((size(), option()), ("100x30".into(), "manual".into()));
    // Another page takes over the size; the first cannot take it back.
    ask(&mut other, "fit", 90, 20);
    ask(&mut one, "unfit", 0, 0);
    assert_eq!(size(), "90x20");
    assert_eq!(ask(&mut one, "fit", 0, 20)["error"]["code"], "INVALID_ARGUMENT");
    assert_eq!(ask(&mut other, "unfit", 0, 0)["result"], json!({}));
    assert_eq!((size(), option()), (before.clone(), String::new()));
    // The window's own size is restored. A page that reconnects in time keeps its size, and the
    // daemon's end restores it.
    world.tmux(&["set-option", "-w", "-t", &pane, "window-size", "smallest"]);
    ask(&mut one, "fit", 70, 18);
    let client = one.client.clone();
    drop(one);
    let mut one = again(&world, Some(&client));
    assert_eq!(size(), "70x18");
    ask(&mut one, "fit", 70, 18);
    world.ok(&["stop"]);
    eventually("it is given back", || size() == before && option() == "smallest");
}

#[test]
fn a_window_that_a_killed_daemon_fitted_is_restored_by_the_next_daemon() {
    let world = World::with_server();
    let (pane, _terminal) = silent_pane(&world);
    let other = world.window("exec cat");
    let size = |pane: &str| world.tmux(&["display-message", "-p", "-t", pane, "#{window_width}x#{window_height}"]);
    let option = |pane: &str, name: &str| world.tmux(&["show-options", "-wqv", "-t", pane, name]);
    let before = size(&pane);
    let fit = |page: &mut Page<UnixStream>, pane: &str, columns: u16| {
        let key = page.keys()[pane].clone();
        page.say(&json!({"type": "fit", "id": 1, "key": key, "columns": columns, "rows": 18}));
        assert_eq!(page.next_of("result")["result"], json!({"columns": columns, "rows": 18}));
    };
    world.tmux(&["set-option", "-w", "-t", &pane, "window-size", "smallest"]);
    let mut killed = page(&world);
    fit(&mut killed, &pane, 70);
    world.kill_daemon(rustix::process::Signal::KILL);
    assert_eq!((size(&pane), option(&pane, "window-size")), ("70x18".into(), "manual".into()));
    // Another program's text is not a size: such a window stays unchanged.
    world.tmux(&["set-option", "-w", "-t", &other, "@muxtap-fit", "x 1 10 10 ;kill-server"]);
    let mut next = page(&world);
    eventually("it is given back", || size(&pane) == before && option(&pane, "window-size") == "smallest");
    eventually("its mark is gone", || option(&pane, "@muxtap-fit").is_empty());
    assert_eq!(size(&other), before);
    // A page's later size has its own mark, and its daemon restores it.
    fit(&mut next, &pane, 60);
    assert!(option(&pane, "@muxtap-fit").ends_with(" smallest"));
    world.ok(&["stop"]);
    eventually("it is given back", || size(&pane) == before && option(&pane, "@muxtap-fit").is_empty());
}

#[test]
fn a_qr_code_holds_the_link_for_another_machine() {
    let world = World::with_server();
    // The daemon names an address beyond this machine only if the system has one.
    let probe = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
    if probe.connect("192.0.2.1:9").is_err() {
        println!("no way to another network: no address for a QR code");
        return;
    }
    let ip = probe.local_addr().unwrap().ip();
    let _daemon = Background::start(world.plain_muxtap_command().args([
        "serve",
        "--tls",
        "--http",
        "0.0.0.0:0",
        "--http",
        "127.0.0.1:0",
    ]));
    eventually("the daemon answers", || world.daemon_pid().is_some());
    let printed = world.ok(&["open", "--qr", "--read-only"]);
    let (link, drawn) = printed.split_once('\n').unwrap();
    assert!(link.starts_with(&format!("https://{ip}:")) && link.contains("/#code="), "{link}");
    // Each character is two modules, one above the other.
    let rows: Vec<Vec<bool>> = drawn
        .lines()
        .flat_map(|line| {
            let half = |upper: bool| {
                let dark = move |block| match block {
                    ' ' => false,
                    '\u{2588}' => true,
                    '\u{2580}' => upper,
                    '\u{2584}' => !upper,
                    other => panic!("{other:?} is no block"),
                };
                line.chars().map(dark).collect()
            };
            [half(true), half(false)]
        })
        .collect();
    let quiet = rows.iter().take_while(|row| !row.contains(&true)).count();
    assert!(quiet >= 4, "a reader needs four empty modules around it:\n{drawn}");
    let side = rows[quiet].len() - 2 * quiet;
    let grid = rqrr::SimpleGrid::from_func(side, |x, y| rows[quiet + y][quiet + x]);
    let (_, read) = rqrr::Grid::new(grid).decode().unwrap();
    assert_eq!(read, link);
}

#[test]
fn an_unresponsive_server_keeps_its_panes_in_the_list() {
    let world = World::with_server();
    let mut first = page(&world);
    let keys = first.keys();
    assert_eq!(keys.len(), 1);
    let server = world.server_pid();
    signal(server, rustix::process::Signal::STOP);
    let mut second = connect(&world, None);
    let listed = second.keys();
    signal(server, rustix::process::Signal::CONT);
    assert_eq!(listed, keys);
    // An ended pane has none.
    first.say(&json!({"type": "drawn", "list": true}));
    world.tmux(&["kill-server"]);
    while first.next_of("panes")["gone"].as_array().unwrap().is_empty() {
        first.say(&json!({"type": "drawn", "list": true}));
    }
}

#[test]
fn a_paste_cannot_end_its_brackets() {
    let world = World::with_server();
    let pane = world.window("stty raw -echo; printf '\\033[?2004hready'; exec cat -v");
    world.await_output(&pane, "ready");
    let mut page = page(&world);
    let key = page.keys()[&pane].clone();
    page.say(&json!({"type": "input", "seq": 1, "key": key, "paste": "one\u{1b}[201~two\tthree\u{7f}\u{9b}."}));
    page.next_of("ack");
    page.show(1, &key);
    page.until_text(1, "[201~");
    let text = page.views[&1].text();
    assert!(text.contains("^[[200~one[201~two") && text.contains("three.^[[201~"), "{text}");
    assert_eq!(text.matches("^[[201~").count(), 1, "{text}");
}

#[test]
fn output_of_a_hostile_pane_stays_text() {
    let world = World::with_server();
    let (pane, mut terminal) = silent_pane(&world);
    let mut page = page(&world);
    let key = page.keys()[&pane].clone();
    page.show(1, &key);
    let markup = "<script>alert(1)</script>\"\\u0000\\\"]},{";
    // 3.2a gives C1 characters their own cells and prints them unchanged: a terminal interprets
    // that as controls.
    let controls = if world.tmux(&["display-message", "-p", "#{version}"]) == "3.2a" { "" } else { "\u{85}\u{9b}" };
    let hostile = format!(
        "{markup}\r\n\x1b]2;<b>\x01\x07\x1b]8;;javascript:alert(1)\x07link\x1b]8;;\x07\x1b]52;c;aGk=\x07\r\n{controls}1m\x1b[8mx\
         \x1b[m\r\n\x1bPq#0~\x1b\\END."
    );
    terminal.write_all(hostile.as_bytes()).unwrap();
    page.until_text(1, "END.");
    let view = &page.views[&1];
    assert!(view.text().starts_with(markup) || view.text().contains(markup), "{}", view.text());
    let said = json!(view.rows).to_string();
    assert!(!said.contains("javascript"), "{said}");
    assert!(!view.rows.iter().any(|row| text_of(row).contains(char::is_control)));
    page.check(1, &world, &pane);
    // The end of a program is reported, and its screen stays.
    world.tmux(&["kill-pane", "-t", &pane]);
    assert_eq!(page.next_of("ended")["view"], 1);
    page.say(&json!({"type": "input", "seq": 1, "key": key, "keys": ["Enter"]}));
    assert_eq!(page.next_of("nack")["seq"], 1);
    page.say(&json!({"type": "show", "view": 2, "key": "0.0.0"}));
    assert_eq!(page.next_of("error")["error"]["code"], "NOT_FOUND");
}

#[test]
fn a_page_lists_panes_waits_and_calls_tools() {
    let world = World::with_server();
    let mut page = page(&world);
    page.keys();
    page.say(&json!({"type": "waits"}));
    assert_eq!(page.next_of("waits")["waits"], json!([]));
    page.say(&json!({"type": "drawn", "list": true}));
    let pane = world.window("exec sleep 1000");
    let news = page.next_of("panes");
    assert!(news["whole"].is_null() && news["set"].to_string().contains(&format!("\"{pane}\"")), "{news}");
    let waiting = world.spawn(&["wait-for", "-t", &pane, "-p", "never"]);
    assert_eq!(page.next_of("waits")["waits"].as_array().unwrap().len(), 1);
    drop(waiting);
    page.say(&json!({"type": "call", "id": 3, "tool": "list", "arguments": {"server": world.socket()}}));
    let answer = page.next_of("result");
    assert!(answer["id"] == 3 && !answer["result"].is_null(), "{answer}");
    page.say(&json!({"type": "call", "id": 4, "tool": "no_such_tool"}));
    assert_eq!(page.next_of("result")["error"]["code"], "NOT_FOUND");
    page.say(&json!({"type": "drawn", "list": true}));
    world.tmux(&["kill-pane", "-t", &pane]);
    while page.next_of("panes")["gone"].as_array().unwrap().is_empty() {
        page.say(&json!({"type": "drawn", "list": true}));
    }
    // An invalid message ends the connection.
    page.socket.send(Message::text("{")).unwrap();
    // The messages about the pane's end may still be in transit.
    while !page.next().is_null() {}
}

/// Sends a request over TCP with these header lines. Returns the response and its head.
pub fn ask(addr: &str, method: &str, path: &str, headers: &[&str], body: &str) -> (Http, String) {
    let mut stream = TcpStream::connect(addr).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    let mut head = format!(
        "{method} {path} HTTP/1.1\r\nhost: {addr}\r\nconnection: close\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n",
        body.len()
    );
    for header in headers {
        write!(head, "{header}\r\n").unwrap();
    }
    stream.write_all(format!("{head}\r\n{body}").as_bytes()).unwrap();
    let answer = Http::read(stream);
    let head = answer.head.clone();
    (answer, head)
}

/// Opens a link: returns the daemon's address, and the cookie as a header line.
pub fn log_in(world: &World, flags: &[&str]) -> (String, String) {
    let link = world.ok(&[&["open", "--print"], flags].concat());
    let (base, code) = link.split_once("/#code=").unwrap();
    let addr = base.strip_prefix("http://").unwrap().to_owned();
    let body = json!({"code": code}).to_string();
    let (answer, head) = ask(&addr, "POST", "/v1/page/login", &[&format!("origin: http://{addr}")], &body);
    assert_eq!(answer.status, 200, "{head}");
    let cookie = head.lines().find_map(|line| line.strip_prefix("set-cookie: ")).unwrap();
    for word in ["HttpOnly", "SameSite=Strict", "Path=/"] {
        assert!(cookie.contains(word), "{cookie}");
    }
    // A link works once.
    assert_eq!(ask(&addr, "POST", "/v1/page/login", &[], &body).0.status, 401);
    (addr, format!("cookie: {}", cookie.split(';').next().unwrap()))
}

pub fn open(addr: &str, headers: &[(&'static str, &str)]) -> Result<Page<TcpStream>, u16> {
    Ok(Page::begin(
        web_socket(addr, "page/ws", &[headers, &[("sec-websocket-protocol", "muxtap-page-1")]].concat())?,
        None,
    ))
}

/// Opens a WebSocket over TCP. Error: the status of a different response.
fn web_socket(addr: &str, path: &str, headers: &[(&'static str, &str)]) -> Result<WebSocket<TcpStream>, u16> {
    let stream = TcpStream::connect(addr).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    let mut request = format!("ws://{addr}/v1/{path}").into_client_request().unwrap();
    for (name, value) in headers {
        request.headers_mut().insert(*name, value.parse().unwrap());
    }
    match tungstenite::client::client(request, stream) {
        Ok((socket, _)) => Ok(socket),
        Err(tungstenite::HandshakeError::Failure(tungstenite::Error::Http(answer))) => Err(answer.status().as_u16()),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn only_the_pages_files_are_reachable_without_the_cookie() {
    let world = World::with_server();
    let (addr, cookie) = log_in(&world, &[]);
    let value = cookie.strip_prefix("cookie: ").unwrap();
    // No other page on this machine is sent the cookie.
    assert!(cfg!(not(target_os = "linux")) || !addr.starts_with("127.0."), "{addr}");
    let own = format!("http://{addr}");
    let (index, head) = ask(&addr, "GET", "/", &[], "");
    assert_eq!((index.status, &index.body[..2]), (200, &[0x1f, 0x8b][..]));
    for line in
        ["content-security-policy: default-src 'self'", "x-content-type-options: nosniff", "content-encoding: gzip"]
    {
        assert!(head.contains(line), "{head}");
    }
    let tag = head.lines().find_map(|line| line.strip_prefix("etag: ")).unwrap();
    assert_eq!(ask(&addr, "GET", "/", &[&format!("if-none-match: {tag}")], "").0.status, 304);
    assert_eq!(ask(&addr, "GET", "/page/page.js", &[], "").0.status, 200);
    assert_eq!(ask(&addr, "GET", "/page/..%2f..%2fCargo.toml", &[], "").0.status, 404);
    for path in ["/v1/panes", "/v1/page/ws", "/v1/status", "/mcp", "/v1/devices"] {
        assert_eq!(ask(&addr, "GET", path, &[], "").0.status, 401, "{path}");
        assert_eq!(ask(&addr, "GET", path, &["cookie: muxtap_page=forged"], "").0.status, 401, "{path}");
    }
    // Codes are created only on the Unix socket.
    let origin = format!("origin: {own}");
    assert_eq!(ask(&addr, "POST", "/v1/page/codes", &[&cookie, &origin], "{}").0.status, 401);
    // With the cookie, from the page itself.
    let status = |method: &str, path: &str, headers: &[&str]| ask(&addr, method, path, headers, "{}").0.status;
    assert_eq!(status("GET", "/v1/panes", &[&cookie]), 200);
    assert_eq!(status("GET", "/v1/panes", &[&cookie, "sec-fetch-site: same-site"]), 401);
    assert_eq!(status("POST", "/v1/stop", &[&cookie]), 401);
    assert_eq!(status("POST", "/v1/stop", &[&cookie, "origin: http://127.0.0.1:1"]), 403);
    let run = |headers: &[&str]| status("GET", "/v1/approvals", headers);
    assert_eq!((run(&[&cookie]), run(&[])), (200, 401));
    assert_eq!(open(&addr, &[]).err(), Some(401));
    assert_eq!(open(&addr, &[("cookie", value)]).err(), Some(401));
    assert_eq!(open(&addr, &[("cookie", value), ("origin", "http://evil.example")]).err(), Some(403));
    let mut page = open(&addr, &[("cookie", value), ("origin", &own)]).ok().unwrap();
    assert_eq!(page.may, ["read", "input", "create", "kill"]);
    assert_eq!(page.keys().len(), 1);
    // The login ends, and its connections too.
    let opened = [("cookie", value), ("origin", own.as_str())];
    let mut sockets = ["stream", "devices/ws"].map(|path| web_socket(&addr, path, &opened).unwrap());
    let mut events = TcpStream::connect(&addr).unwrap();
    events.set_read_timeout(Some(LIMIT)).unwrap();
    write!(events, "GET /v1/events HTTP/1.1\r\nhost: {addr}\r\nconnection: close\r\n{cookie}\r\n\r\n").unwrap();
    let mut first = [0; 16];
    events.read_exact(&mut first).unwrap();
    assert_eq!(&first[..15], b"HTTP/1.1 200 OK");
    world.ok(&["open", "--revoke"]);
    while !page.next().is_null() {}
    for socket in &mut sockets {
        let end = (0..100).find_map(|_| socket.read().err());
        let is_late =
            matches!(&end, Some(tungstenite::Error::Io(error)) if error.kind() == std::io::ErrorKind::WouldBlock);
        assert!(end.is_some() && !is_late, "{end:?}");
    }
    events.read_to_end(&mut Vec::new()).unwrap();
    assert_eq!(status("GET", "/v1/panes", &[&cookie]), 401);
    let (_, cookie) = log_in(&world, &[]);
    assert_eq!(status("POST", "/v1/page/logout", &[&cookie, &origin]), 200);
    assert_eq!(status("GET", "/v1/panes", &[&cookie]), 401);
    // A QR code would be for another machine, which cannot connect.
    assert!(world.error("INVALID_ARGUMENT", &["open", "--qr"]).contains("TLS"));
    let kept = std::fs::read_to_string(world.path("m.sock.page-sessions.json")).unwrap();
    assert!(!kept.contains(value.split('=').nth(1).unwrap()));
}

#[test]
fn an_editor_saves_only_a_file_that_no_other_program_changed() {
    let world = World::with_server();
    let (addr, cookie) = log_in(&world, &[]);
    let origin = format!("origin: http://{addr}");
    let home = world.path("home");
    std::fs::create_dir_all(&home).unwrap();
    let file = home.join("notes.txt");
    std::fs::write(&file, "one\n").unwrap();
    let read = |path: &Path, headers: &[&str]| {
        ask(&addr, "GET", &format!("/v1/page/files?path={}", path.display()), headers, "").0
    };
    let save = |text: &str, version: &str, headers: &[&str]| {
        let body = json!({"path": file, "text": text, "version": version}).to_string();
        ask(&addr, "PUT", "/v1/page/files", headers, &body).0
    };
    let opened = read(&file, &[&cookie]).json();
    assert_eq!((&opened["text"], &opened["writable"]), (&json!("one\n"), &json!(true)), "{opened}");
    let saved = save("two\n", opened["version"].as_str().unwrap(), &[&cookie, &origin]);
    assert_eq!(saved.status, 200);
    let late = save("three\n", opened["version"].as_str().unwrap(), &[&cookie, &origin]);
    assert_eq!((late.status, &late.json()["code"]), (409, &json!("CONFLICT")));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "two\n");
    // Not for another page, not with read access only, and not outside of the directories.
    let version = saved.json()["version"].as_str().unwrap().to_owned();
    assert_eq!(save("no", &version, &[&cookie]).status, 401);
    assert_eq!(save("no", &version, &[]).status, 401);
    assert_eq!(read(Path::new("/etc/hostname"), &[&cookie]).status, 400);
    assert_eq!(read(&home.join("none"), &[&cookie]).status, 404);
    let (addr, cookie) = log_in(&world, &["--read-only"]);
    let asked = ask(&addr, "GET", &format!("/v1/page/files?path={}", file.display()), &[&cookie], "").0;
    assert_eq!(asked.status, 403);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "two\n");
}

#[test]
fn a_viewer_with_a_read_only_link_can_change_nothing() {
    let world = World::with_server();
    let (addr, cookie) = log_in(&world, &["--read-only"]);
    let (value, own) = (cookie.strip_prefix("cookie: ").unwrap(), format!("http://{addr}"));
    let mut page = open(&addr, &[("cookie", value), ("origin", &own)]).ok().unwrap();
    assert_eq!(page.may, ["read"]);
    let keys = page.keys();
    let (pane, key) = keys.first_key_value().unwrap();
    page.show(1, key);
    page.say(&json!({"type": "input", "seq": 1, "key": key, "text": "typed"}));
    assert_eq!(page.next_of("nack")["error"]["code"], "READ_ONLY");
    page.say(&json!({"type": "call", "id": 1, "tool": "send", "arguments": {"pane": pane, "text": "typed"}}));
    let refused = page.next_of("result");
    assert!(!refused["error"].is_null(), "{refused}");
    page.say(&json!({"type": "approvals"}));
    assert_eq!(page.next_of("error")["error"]["code"], "UNAUTHORIZED");
    let origin = format!("origin: {own}");
    for (method, path) in [
        ("POST", "/v1/panes/%250/input"),
        ("DELETE", "/v1/panes/%250"),
        ("POST", "/v1/stop"),
        ("POST", "/mcp"),
        ("GET", "/v1/stream"),
        ("GET", "/v1/devices/ws"),
        ("POST", "/v1/tools/send"),
    ] {
        let (answer, _) = ask(&addr, method, path, &[&cookie, &origin], "{\"text\":\"typed\"}");
        assert_eq!(answer.status, 403, "{method} {path}");
    }
    assert_eq!(ask(&addr, "GET", "/v1/panes", &[&cookie], "").0.status, 200);
    assert!(!world.read_all(pane).contains("typed"));
}
