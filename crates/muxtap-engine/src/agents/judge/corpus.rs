//! Recordings of real agents, judged as they were: `tests/fixtures/agents/AGENT-VERSION.cast.gz`.
//!
//! `scripts/agents-corpus` makes them. A marker `state: …` is at a moment at which the screen rests, and
//! says what the agent was doing by the requests that its model had. So the judgement there must be this
//! state, and on the way from one marker to the next it must be one of the two, at each rest.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs,
    io::Read as _,
    path::{Path, PathBuf},
};

use flate2::read::GzDecoder;
use muxtap_core::{
    protocol::version::Version,
    screen::{self, Rules, Screen, Settings},
};
use serde_json::Value;

use super::*;
use crate::agents::{follow::shown_lines, rules::Rules as AgentRules};

/// The pause after which a screen is judged, in seconds.
const REST: f64 = 0.03;

/// A recording that is played.
struct Play {
    agent: Agent,
    screen: Screen,
    name: String,
    version: Option<AgentVersion>,
    /// The state at the last marker, once the agent has started.
    before: Option<&'static str>,
    /// The judgements at rests since the last marker, each once in a row, with its rule, its screen and
    /// its time.
    since: Vec<(&'static str, String, String, f64)>,
    /// How many markers there were, and what was judged otherwise.
    markers: usize,
    wrong: String,
}

impl Play {
    fn judged(&mut self) -> (&'static str, String, String) {
        let (content, _) = shown_lines(&self.screen);
        self.version = self.version.or_else(|| self.agent.version_in(&content.rows));
        let content = PaneContent { title: self.screen.title().to_owned(), version: self.version, ..content };
        let judgement = judge(&self.agent, &content);
        let answers = judgement.options.len();
        let shown = format!("{}\n(title: {})\n", content.rows.join("\n").trim_end(), content.title);
        (judgement.state.as_str(), format!("{}, {answers} answers", judgement.evidence.rule), shown)
    }

    fn rest(&mut self, at: f64) {
        let (judged, rule, shown) = self.judged();
        if self.since.last().is_none_or(|last| last.0 != judged) {
            self.since.push((judged, rule, shown, at));
        }
    }

    fn marker(&mut self, at: f64, state: &str) {
        self.markers += 1;
        self.rest(at);
        let (judged, rule, shown) = self.judged();
        let name = &self.name;
        if judged != state {
            let _ = writeln!(self.wrong, "--- {name} at {at}: {judged} ({rule}) instead of {state}\n{shown}");
        }
        if state == "permission" && rule.ends_with(" 0 answers") {
            let _ = writeln!(self.wrong, "--- {name} at {at}: no answers ({rule})\n{shown}");
        }
        // Until it is idle for the first time, the agent starts: it may show a dialog again for a moment.
        let before = self.before.take();
        if before.is_some() || judged == "idle" {
            self.before = Some(judged);
        }
        let ends: Vec<_> = self.since.iter().skip(1).map(|one| one.3).chain([at]).collect();
        for ((judged, rule, shown, begin), end) in self.since.drain(..).zip(ends) {
            let Some(before) = before else { continue };
            let long = end - begin;
            let is_on_the_way = match (before, state) {
                // It passes the answer on, or ends the turn.
                ("permission" | "question", "idle") => judged == "working",
                // It draws its prompt first, then the error.
                ("working", "errored") => judged == "idle",
                _ => false,
            };
            if judged != before && judged != state && !is_on_the_way {
                let name = &self.name;
                let _ = writeln!(
                    self.wrong,
                    "--- {name} before {at}: {judged} for {long:.3} s ({rule}) between {before} and {state}\n{shown}"
                );
            }
        }
    }
}

fn play(path: &Path) -> Play {
    let mut text = String::new();
    GzDecoder::new(fs::File::open(path).unwrap()).read_to_string(&mut text).unwrap();
    let mut lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let header = lines.next().unwrap();
    let size = |name: &str| u16::try_from(header[name].as_u64().unwrap()).unwrap();
    let name = path.file_name().unwrap().to_str().unwrap().trim_end_matches(".cast.gz").to_owned();
    let rules = AgentRules::built_in();
    let agent = rules.agents.iter().find(|agent| Some(agent.id.as_str()) == name.split('-').next()).unwrap();
    let size = screen::Size { columns: size("width"), rows: size("height") };
    let tmux = Rules::for_version(Version::parse(b"3.3a").unwrap());
    let screen = Screen::new(size, tmux, Settings::default());
    let mut play = Play {
        agent: agent.as_ref().clone(),
        screen,
        name,
        version: None,
        before: None,
        since: Vec::new(),
        markers: 0,
        wrong: String::new(),
    };
    let mut last = 0.0;
    for event in lines {
        let (at, data) = (event[0].as_f64().unwrap(), event[2].as_str().unwrap());
        if at - last > REST {
            play.rest(last);
        }
        last = at;
        match event[1].as_str().unwrap() {
            "o" => play.screen.feed(data.as_bytes()),
            "m" => play.marker(at, data.strip_prefix("state: ").unwrap()),
            _ => {}
        }
    }
    play
}

/// Returns the recordings.
fn casts() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/agents");
    let folder = std::env::var_os("MUXTAP_AGENT_CASTS").map_or(folder, Into::into);
    let all = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    all.filter(|path| path.extension().is_some_and(|kind| kind == "gz")).collect()
}

#[test]
fn real_agents_are_judged_as_they_were() {
    let (mut wrong, mut counts) = (String::new(), BTreeMap::new());
    for cast in casts() {
        let played = play(&cast);
        *counts.entry(played.agent.id.clone()).or_insert(0) += played.markers;
        wrong += &played.wrong;
    }
    assert!(wrong.is_empty(), "{counts:?}\n{wrong}");
    let least = if std::env::var_os("MUXTAP_AGENT_CASTS").is_some() { 10 } else { 1000 };
    assert!(counts.values().sum::<usize>() > least, "{counts:?}");
}

/// The newest version that was recorded is the one up to which `doctor` says nothing.
#[test]
fn versions_count_as_tested_up_to_the_newest_recording() {
    let mut newest: BTreeMap<String, AgentVersion> = BTreeMap::new();
    for cast in casts() {
        let played = play(&cast);
        let (_, version) = played.name.split_once('-').unwrap();
        let version = AgentVersion::parse(version).unwrap();
        assert!(played.version.is_none_or(|shown| shown == version), "{}: {:?}", played.name, played.version);
        let last = newest.entry(played.agent.id.clone()).or_insert(version);
        *last = (*last).max(version);
    }
    for agent in &AgentRules::built_in().agents {
        assert_eq!(agent.tested, newest.get(&agent.id).copied(), "{}", agent.id);
    }
}
