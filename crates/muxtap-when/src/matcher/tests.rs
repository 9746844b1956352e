use muxtap_api::{AgentEvidence, Cursor, Epoch, Gap, GapReason, Size};
use proptest::prelude::*;

use super::*;
use crate::{
    limits::{ECHO, TYPED_REST},
    rule::tests::rules,
};

/// Rules on one pane, `%1` (`work:build`), with a clock of its own.
struct World {
    matcher: Matcher,
    start: Instant,
    now: Duration,
}

impl World {
    fn new(toml: &str) -> Self {
        let set = Arc::new(rules(toml).unwrap_or_else(|error| panic!("{error}")));
        let mut world =
            Self { matcher: Matcher::new(set, "/s".into(), None), start: Instant::now(), now: Duration::ZERO };
        world.open(1, "build");
        world
    }

    fn open(&mut self, id: u32, window: &str) {
        let pane = PaneInfo {
            session: "work".into(),
            window: window.into(),
            window_id: "@1".into(),
            ..PaneInfo::of(PaneId(id))
        };
        assert!(self.event(&Event::PaneOpened { pane: Box::new(pane) }).fired.is_empty());
    }

    fn event(&mut self, event: &Event) -> Outcome {
        self.matcher.on_event(event, self.start + self.now, 0)
    }

    fn print_in(&mut self, pane: u32, text: &str) -> Vec<(String, String)> {
        let cursor = Cursor { epoch: Epoch::default(), pane: PaneId(pane), offset: 0 };
        let event = Event::Output { pane: PaneId(pane), text: Some(text.into()), data: None, cursor, gap: None };
        texts(&self.event(&event))
    }

    fn print(&mut self, text: &str) -> Vec<(String, String)> {
        self.print_in(1, text)
    }

    fn show(&mut self, row: u16, line: &str) -> Vec<(String, String)> {
        let cursor = Cursor { epoch: Epoch::default(), pane: PaneId(1), offset: 0 };
        texts(&self.event(&Event::Screen {
            pane: PaneId(1),
            rows: vec![row],
            lines: Some(vec![line.into()]),
            size: Size { width: 80, height: 24 },
            cursor_x: 0,
            cursor_y: 0,
            cursor_visible: true,
            alternate: false,
            cursor,
        }))
    }

    fn agent(&mut self, state: AgentState, question: Option<&str>) -> Vec<(String, String)> {
        texts(&self.event(&Event::Agent(Box::new(AgentInfo {
            host: None,
            pane: PaneId(1),
            session: "work".into(),
            session_id: "$0".into(),
            window_id: "@1".into(),
            window_index: 0,
            window: "build".into(),
            index: 0,
            socket: "/s".into(),
            agent: "claude".into(),
            name: "Claude".into(),
            version: None,
            untested: false,
            pid: Some(7),
            state,
            since_ms: 0,
            question: question.map(Into::into),
            question_id: question.map(Into::into),
            options: Vec::new(),
            evidence: AgentEvidence::default(),
        }))))
    }

    /// Lets time pass, step by step as a task does.
    fn pass(&mut self, time: Duration) -> Vec<(String, String)> {
        let end = self.now + time;
        let mut fired = Vec::new();
        while let Some(due) = self.matcher.due().filter(|due| *due <= self.start + end) {
            self.now = self.now.max(due.saturating_duration_since(self.start));
            fired.extend(texts(&self.matcher.on_time(due, 0)));
        }
        self.now = end;
        fired
    }

    fn typed(&mut self, pane: u32, text: &str) {
        self.matcher.typed(PaneId(pane), text, self.start + self.now);
    }
}

fn texts(outcome: &Outcome) -> Vec<(String, String)> {
    outcome.fired.iter().map(|fired| (fired.rule.name().to_owned(), fired.facts.text.clone())).collect()
}

fn one(rule: &str, text: &str) -> Vec<(String, String)> {
    vec![(rule.into(), text.into())]
}

const MINUTE: Duration = Duration::from_secs(60);
const OUTPUT: &str = "[[when]]\nname='a'\noutput='error: \\d+$'\nnotify=true\nevery='100ms'\n";

#[test]
fn a_line_fires_once_however_it_is_cut() {
    let mut world = World::new(OUTPUT);
    assert_eq!(world.print("an err"), []);
    assert_eq!(world.print("or: 1"), []);
    assert_eq!(world.print("2\r\nnext"), one("a", "an error: 12"));
    world.pass(MINUTE);
    assert_eq!(world.print(" line\nerror: 3\n"), one("a", "error: 3"));
}

#[test]
fn a_line_without_an_end_fires_when_it_rests() {
    let mut world = World::new(OUTPUT);
    assert_eq!(world.print("error: 1"), []);
    assert_eq!(world.pass(MINUTE), one("a", "error: 1"));
    // The same line, longer: it has fired.
    assert_eq!(world.print("2"), []);
    assert_eq!(world.pass(MINUTE), []);
    assert_eq!(world.print("\nerror: 3\n"), one("a", "error: 3"));
    assert_eq!(world.matcher.due(), None, "nothing is awaited while nothing is printed");
}

#[test]
fn a_rewritten_line_is_a_new_line_wherever_the_output_is_cut() {
    let text =
        "10% error: 1\r20% error: 2\r\u{1b}[Kerror: 3\r\ndone: error: 4\r\r\n\u{1b}[31mtyqo\u{8}\u{8}po: error: 5\n";
    let wanted = ["10% error: 1", "20% error: 2", "error: 3", "done: error: 4", "typo: error: 5"];
    for size in [1, 2, 3, 7, text.len()] {
        let (mut world, mut fired) = (World::new(OUTPUT), Vec::new());
        let mut rest = text;
        while !rest.is_empty() {
            let (piece, after) = rest.split_at(size.min(rest.len()));
            // Longer than `every`; a line's rest is not awaited.
            world.now += MINUTE;
            for part in piece.split_inclusive(['\r', '\n']) {
                world.now += MINUTE;
                fired.extend(world.print(part).into_iter().map(|(_, text)| text));
            }
            rest = after;
        }
        assert_eq!(fired, wanted, "{size}");
    }
    // What is printed elsewhere on the screen is another line.
    let mut world = World::new(OUTPUT);
    assert_eq!(world.print("error: 1\u{1b}[3;1Hx\n"), one("a", "error: 1"));
    // Escape sequences alone are no output.
    let mut world = World::new("[[when]]\nname='q'\nquiet='1m'\nnotify=true\n");
    world.print("\u{1b}[?25l\u{1b}[31m");
    assert_eq!(world.matcher.due(), None);
}

#[test]
fn a_gap_ends_a_line_and_a_long_line_is_cut() {
    let mut world = World::new(OUTPUT);
    world.print("error: ");
    let cursor = Cursor { epoch: Epoch::default(), pane: PaneId(1), offset: 0 };
    let gap = Some(Gap::new(GapReason::SlowReader, Some(9)));
    world.event(&Event::Output { pane: PaneId(1), text: Some("5\n".into()), data: None, cursor, gap });
    assert_eq!(world.print(&format!("{}error: 1\n", "x".repeat(LINE_BYTES))), []);
    assert_eq!(world.print("error: 1\n"), one("a", "error: 1"));
    world.print(&"y".repeat(1 << 20));
    assert_eq!(world.matcher.panes[&PaneId(1)].lines.line().len(), LINE_BYTES);
}

#[test]
fn a_rule_fires_at_most_once_in_its_time_in_each_pane() {
    let mut world = World::new("[[when]]\nname='a'\noutput='x'\nnotify=true\n");
    world.open(2, "test");
    assert_eq!(world.print("x1\nx2\n"), one("a", "x1"));
    assert_eq!(world.print_in(2, "x3\n"), one("a", "x3"));
    world.pass(Duration::from_secs(9));
    let held = |world: &mut World| {
        let cursor = Cursor { epoch: Epoch::default(), pane: PaneId(1), offset: 0 };
        let event = Event::Output { pane: PaneId(1), text: Some("x4\n".into()), data: None, cursor, gap: None };
        world.event(&event).withheld.iter().map(|(_, why)| *why).collect::<Vec<_>>()
    };
    assert_eq!(held(&mut world), [Withheld::TooSoon]);
    world.pass(Duration::from_secs(1));
    assert_eq!(held(&mut world), []);
}

#[test]
fn a_row_fires_when_it_begins_to_match() {
    let mut world = World::new("[[when]]\nname='a'\nscreen='^ready'\nnotify=true\nevery='100ms'\n");
    assert_eq!(world.show(0, "ready"), one("a", "ready"));
    world.pass(MINUTE);
    // It moves, and stays on the screen.
    assert_eq!(world.show(1, "ready 2"), []);
    assert_eq!(world.show(0, ""), []);
    assert_eq!(world.show(1, ""), []);
    assert_eq!(world.show(5, "ready"), one("a", "ready"));
}

#[test]
fn a_row_fires_again_after_a_pane_shrank() {
    let mut world = World::new("[[when]]\nname='a'\nscreen='^ready'\nnotify=true\nevery='100ms'\n");
    assert_eq!(world.show(20, "ready"), one("a", "ready"));
    world.pass(MINUTE);
    let cursor = Cursor { epoch: Epoch::default(), pane: PaneId(1), offset: 0 };
    let shrunk = Event::Screen {
        pane: PaneId(1),
        rows: vec![0],
        lines: Some(vec![String::new()]),
        size: Size { width: 80, height: 10 },
        cursor_x: 0,
        cursor_y: 0,
        cursor_visible: true,
        alternate: false,
        cursor,
    };
    assert_eq!(texts(&world.event(&shrunk)), []);
    assert_eq!(world.show(0, "ready"), one("a", "ready"));
}

#[test]
fn what_a_pane_showed_before_it_was_watched_is_no_news() {
    let mut world = World::new("[[when]]\nname='a'\nscreen='ready'\nnotify=true\nevery='100ms'\n");
    let known = PaneInfo { window_id: "@1".into(), ..PaneInfo::of(PaneId(9)) };
    world.matcher.set_panes(vec![known]);
    let event = |row: u16, line: &str| Event::Screen {
        pane: PaneId(9),
        rows: vec![row],
        lines: Some(vec![line.into()]),
        size: Size { width: 80, height: 24 },
        cursor_x: 0,
        cursor_y: 0,
        cursor_visible: true,
        alternate: false,
        cursor: Cursor { epoch: Epoch::default(), pane: PaneId(9), offset: 0 },
    };
    assert!(world.event(&event(0, "ready")).fired.is_empty());
    assert!(world.event(&event(0, "")).fired.is_empty());
    assert_eq!(world.event(&event(0, "ready")).fired.len(), 1);
}

#[test]
fn quiet_counts_from_the_last_output_and_fires_once() {
    let mut world = World::new(
        "[[when]]\nname='long'\nquiet='5m'\nnotify=true\n[[when]]\nname='short'\nquiet='30s'\nnotify=true\n",
    );
    assert_eq!(world.pass(10 * MINUTE), [], "it has printed nothing");
    world.print("x");
    assert_eq!(world.pass(Duration::from_secs(29)), []);
    world.print("y");
    assert_eq!(world.pass(Duration::from_secs(29)), []);
    assert_eq!(world.pass(Duration::from_secs(2)), one("short", ""));
    assert_eq!(world.pass(20 * MINUTE), one("long", ""));
    assert_eq!(world.matcher.due(), None);
    world.print("z");
    assert_eq!(world.pass(MINUTE), one("short", ""));
}

#[test]
fn an_agent_fires_at_a_new_state_and_a_new_question() {
    let mut world = World::new(
        "[[when]]\nname='asks'\nagent='permission'\nnotify=true\nevery='100ms'\n\
             [[when]]\nname='idle'\nagent='idle'\nnotify=true\nevery='100ms'\n",
    );
    assert_eq!(world.agent(AgentState::Working, None), []);
    assert_eq!(world.agent(AgentState::Permission, Some("rm?")), one("asks", "rm?"));
    world.pass(MINUTE);
    assert_eq!(world.agent(AgentState::Permission, Some("rm?")), [], "the same one");
    assert_eq!(world.agent(AgentState::Permission, Some("ls?")), one("asks", "ls?"));
    assert_eq!(world.agent(AgentState::Idle, None), one("idle", ""));
    assert_eq!(world.agent(AgentState::Idle, None), []);
}

/// The agents are listed again after each change of the rules, also those that have ended.
#[test]
fn the_end_of_an_agent_fires_once() {
    let mut world = World::new("[[when]]\nname='end'\nagent='ended'\nnotify=true\nevery='100ms'\n");
    assert_eq!(world.agent(AgentState::Working, None), []);
    assert_eq!(world.agent(AgentState::Ended, None), one("end", ""));
    world.pass(MINUTE);
    assert_eq!(world.agent(AgentState::Ended, None), [], "the same one");
    assert_eq!(world.agent(AgentState::Working, None), []);
    assert_eq!(world.agent(AgentState::Ended, None), one("end", ""));
}

#[test]
fn only_panes_with_the_agent_count() {
    let mut world = World::new("[[when]]\nname='a'\noutput='x'\nagents=['claude']\nnotify=true\nevery='100ms'\n");
    assert_eq!(world.print("x\n"), []);
    world.agent(AgentState::Working, None);
    assert_eq!(world.print("x\n"), one("a", "x"));
    world.pass(MINUTE);
    world.agent(AgentState::Ended, None);
    assert_eq!(world.print("x\n"), []);
}

#[test]
fn commands_progress_notifications_and_ends_fire() {
    let mut world = World::new(
        "[[when]]\nname='failed'\ncommand=true\nstatus='!0'\nlonger='10s'\nnotify=true\n\
         [[when]]\nname='progress'\nprogress='failed'\nnotify=true\n\
         [[when]]\nname='told'\nnotification='ready'\nnotify=true\n\
         [[when]]\nname='both'\nnotification='(?s)Build.*failed'\nnotify=true\n\
         [[when]]\nname='ended'\nended=true\nstatus=3\nnotify=true\n",
    );
    let cursor = Cursor { epoch: Epoch::default(), pane: PaneId(1), offset: 0 };
    let command = |status: i32, ms: u64| {
        let command: CommandInfo = serde_json::from_value(serde_json::json!({
            "number": 1, "line": "make", "started_ms": 0, "duration_ms": ms, "status": status, "trusted": true,
            "output_start": cursor, "output_end": cursor, "bytes": 0, "whole": true,
        }))
        .unwrap();
        Event::CommandFinished { pane: PaneId(1), command: Box::new(command) }
    };
    for (status, ms) in [(0, 20_000), (1, 9_000)] {
        assert!(world.event(&command(status, ms)).fired.is_empty());
    }
    assert_eq!(texts(&world.event(&command(2, 20_000))), one("failed", "make"));
    let progress = |state| Event::Progress { pane: PaneId(1), state, percent: None };
    assert!(world.event(&progress(ProgressState::Running)).fired.is_empty());
    assert_eq!(texts(&world.event(&progress(ProgressState::Failed))), one("progress", ""));
    // OSC 777.
    let notification =
        |title: &str, body: &str| Event::Notification { pane: PaneId(1), title: title.into(), body: body.into() };
    assert_eq!(texts(&world.event(&notification("t", "ready"))), one("told", "t\nready"));
    assert_eq!(texts(&world.event(&notification("Build", "it failed"))), one("both", "Build\nit failed"));
    let end = |status| Event::PaneExited { pane: PaneId(1), exit_status: Some(status), exit_signal: None };
    assert!(world.event(&end(0)).fired.is_empty());
    assert_eq!(texts(&world.event(&end(3))), one("ended", ""));
}

#[test]
fn the_end_of_a_pane_ends_its_line() {
    let mut world = World::new(OUTPUT);
    world.print("error: 1");
    let end = Event::PaneExited { pane: PaneId(1), exit_status: Some(0), exit_signal: None };
    assert_eq!(texts(&world.event(&end)), one("a", "error: 1"));
    assert_eq!(world.matcher.due(), None);
}

const LOOP: &str = "[[when]]\nname='ping'\noutput='ping'\ntype=\"echo pong\\n\"\nevery='100ms'\n\
    [[when]]\nname='pong'\noutput='pong'\ntype=\"echo ping\\n\"\nevery='100ms'\n\
    [[when]]\nname='watch'\noutput='p.ng'\nnotify=true\nevery='100ms'\n";

/// WN5 and WN6.
#[test]
fn two_rules_that_type_into_each_others_panes_do_not_loop() {
    let mut world = World::new(LOOP);
    world.open(2, "other");
    assert_eq!(world.print("ping\n"), [one("ping", "ping"), one("watch", "ping")].concat());
    // The first rule types into the other pane; its echo and its answer come there.
    world.typed(2, "echo pong");
    world.pass(Duration::from_secs(1));
    assert_eq!(world.print_in(2, "$ echo pong\n"), [], "the echo fires nothing");
    assert_eq!(world.print_in(2, "pong\n"), one("watch", "pong"), "the answer fires no rule that types");
    // However long the answer takes, as long as the pane is not quiet in between.
    for _ in 0..100 {
        world.pass(Duration::from_secs(50));
        assert!(world.print_in(2, "pong\n").iter().all(|(rule, _)| rule == "watch"));
    }
    // Someone else types there: what follows is no answer to a rule.
    world.matcher.typed_by_another(PaneId(2));
    world.pass(MINUTE);
    assert_eq!(world.print_in(2, "pong\n"), [one("pong", "pong"), one("watch", "pong")].concat());
}

#[test]
fn what_a_pane_prints_by_itself_after_a_long_quiet_is_no_answer() {
    let mut world = World::new(LOOP);
    world.typed(1, "echo pong");
    world.print("pong\n");
    world.pass(TYPED_REST);
    assert_eq!(world.print("pong\n"), [one("pong", "pong"), one("watch", "pong")].concat());
}

#[test]
fn quiet_after_a_rules_typing_is_its_answers_quiet() {
    let mut world = World::new("[[when]]\nname='more'\nquiet='2m'\ntype=\"continue\\n\"\n");
    world.print("x\n");
    assert_eq!(world.pass(3 * MINUTE), one("more", ""));
    world.typed(1, "continue");
    world.print("continue\nx\n");
    assert_eq!(world.pass(60 * MINUTE), [], "it would continue forever");
}

#[test]
fn an_agents_next_question_is_not_a_rules_typing() {
    let mut world = World::new("[[when]]\nname='yes'\nagent='permission'\ntype='y'\nevery='100ms'\n");
    assert_eq!(world.agent(AgentState::Permission, Some("a?")), one("yes", "a?"));
    world.typed(1, "y");
    world.pass(Duration::from_secs(1));
    assert_eq!(world.agent(AgentState::Working, None), []);
    assert_eq!(world.agent(AgentState::Permission, Some("b?")), one("yes", "b?"));
    // A rule that types at idle is answered by the next idle: that is a loop.
    let mut world = World::new("[[when]]\nname='on'\nagent='idle'\ntype=\"go on\\n\"\nevery='100ms'\n");
    assert_eq!(world.agent(AgentState::Idle, None), one("on", ""));
    world.typed(1, "go on");
    world.pass(Duration::from_secs(1));
    world.agent(AgentState::Working, None);
    assert_eq!(world.agent(AgentState::Idle, None), []);
}

/// A pane's output concerns that pane, whatever it says.
#[test]
fn a_pane_cannot_report_for_another() {
    let mut world = World::new("[[when]]\nname='a'\noutput='x'\npanes=['work:build']\nnotify=true\n");
    world.open(2, "other");
    assert_eq!(world.print_in(2, "x %1 work:build \u{1b}]0;build\u{7}\n"), []);
    // A pane that is not known, as one of another server.
    assert_eq!(world.print_in(77, "x\n"), []);
}

#[test]
fn new_rules_do_not_see_what_was_there() {
    let mut world = World::new(OUTPUT);
    world.print("error: 1");
    let more = format!("{OUTPUT}[[when]]\nname='b'\nquiet='1s'\nnotify=true\n");
    world.matcher.set_rules(Arc::new(rules(&more).unwrap()));
    // For the rule that stood before, nothing has changed.
    assert_eq!(world.pass(MINUTE), one("a", "error: 1"));
    assert_eq!(world.print("\nerror: 2\n"), one("a", "error: 2"));
    assert_eq!(world.pass(MINUTE), one("b", ""));
}

#[test]
fn a_change_of_other_rules_changes_nothing_for_a_rule() {
    let kept = "[[when]]\nname='long'\nquiet='5m'\nnotify=true\n[[when]]\nname='short'\nquiet='30s'\nnotify=true\n\
                [[when]]\nname='row'\nscreen='^ready'\nnotify=true\nevery='100ms'\n\
                [[when]]\nname='line'\noutput='error: 1'\nnotify=true\nevery='100ms'\n";
    let other = "[[when]]\nname='other'\nquiet='1m'\nnotify=true\n\
                 [[when]]\nname='row2'\nscreen='^ready'\nnotify=true\nevery='100ms'\n";
    let mut world = World::new(kept);
    world.print("error: 1");
    assert_eq!(world.pass(MINUTE), [one("line", "error: 1"), one("short", "")].concat());
    assert_eq!(world.show(0, "ready"), one("row", "ready"));
    // Before the others, so that every place changes.
    world.matcher.set_rules(Arc::new(rules(&format!("{other}{kept}")).unwrap()));
    world.pass(MINUTE);
    // The whole screen comes again.
    assert_eq!(world.show(0, "ready"), []);
    assert_eq!(world.print("2"), []);
    world.matcher.set_rules(Arc::new(rules(kept).unwrap()));
    assert_eq!(world.pass(5 * MINUTE), [one("short", ""), one("long", "")].concat());
    assert_eq!(world.show(1, ""), []);
    assert_eq!(world.show(0, ""), []);
    assert_eq!(world.show(0, "ready"), one("row", "ready"));
    // A quiet that has begun goes on for a rule that stays.
    world.print("x");
    world.pass(MINUTE);
    world.matcher.set_rules(Arc::new(rules(&format!("{other}{kept}")).unwrap()));
    assert_eq!(world.pass(5 * MINUTE), one("long", ""));
    // It is the next quiet that counts for a new one.
    world.print("x");
    assert_eq!(world.pass(MINUTE), [one("short", ""), one("other", "")].concat());
}

#[test]
fn a_short_text_that_was_typed_hides_nothing_but_its_echo() {
    let mut world = World::new("[[when]]\nname='a'\noutput='y'\nnotify=true\nevery='100ms'\n");
    world.typed(1, "y");
    assert_eq!(world.print("proceed? [y/N] y\ny\n"), []);
    assert_eq!(world.print("you may go\n"), one("a", "you may go"));
    world.pass(Duration::from_secs(1));
    assert_eq!(world.print("ready\n"), one("a", "ready"));
    // Later it is no echo.
    world.pass(ECHO);
    assert_eq!(world.print("y\n"), one("a", "y"));
}

/// 1,000 rules on 200 panes: what a line costs does not grow with rules that do not match.
#[test]
fn nothing_is_due_while_nothing_happens() {
    let toml = (0..1000)
        .map(|number| format!("[[when]]\nname='r{number}'\noutput='never {number}$'\nnotify=true\n"))
        .collect::<Vec<_>>()
        .concat();
    let mut world = World::new(&toml);
    for pane in 2..200 {
        world.open(pane, "w");
        world.print_in(pane, "a line\n");
    }
    assert_eq!(world.matcher.due(), None);
    assert_eq!(world.print("never 999\n"), one("r999", "never 999"));
}

proptest! {
    /// However a text is cut into pieces, the same lines fire.
    #[test]
    fn cuts_change_nothing(
        lines in prop::collection::vec("[ab]{0,5}", 0..8),
        cuts in prop::collection::vec(1..7usize, 1..20),
    ) {
        let toml = "[[when]]\nname='a'\noutput='^a+$'\nnotify=true\nevery='100ms'\n";
        let text = lines.join("\n") + "\n";
        let (mut world, mut fired, mut rest) = (World::new(toml), Vec::new(), text.as_str());
        for size in cuts.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (piece, after) = rest.split_at((*size).min(rest.len()));
            // Longer than `every`, and shorter than a line's rest: no time passes for the matcher.
            world.now += MINUTE;
            for part in piece.split_inclusive('\n') {
                world.now += MINUTE;
                fired.extend(world.print(part));
            }
            rest = after;
        }
        let fits = |line: &&String| !line.is_empty() && line.bytes().all(|byte| byte == b'a');
        let wanted: Vec<_> = lines.iter().filter(fits).collect();
        prop_assert_eq!(fired.iter().map(|(_, text)| text).collect::<Vec<_>>(), wanted);
    }
}
