use std::{fmt::Write as _, fs, path::Path};

use super::*;
use crate::engine::agents::rules::Rules;

fn agent(rules: &Rules, id: &str) -> Agent {
    rules.agents.iter().find(|agent| agent.id == id).unwrap().as_ref().clone()
}

fn content(text: &str) -> PaneContent {
    PaneContent { rows: text.lines().map(str::to_owned).collect(), ..PaneContent::default() }
}

fn said(judgement: &Judgement) -> String {
    let mut text = format!("{} {}\n", judgement.state.as_str(), judgement.evidence.rule);
    for row in &judgement.evidence.rows {
        let _ = writeln!(text, "  row {}: {}", row.row, row.text.trim());
    }
    if let Some(question) = &judgement.question {
        let _ = writeln!(text, "question: {question}");
    }
    for option in &judgement.options {
        let cursor = if option.selected { ">" } else { " " };
        let detail = option.detail.as_ref().map(|detail| format!(" ({detail})")).unwrap_or_default();
        let _ = writeln!(text, "{cursor} {}: {}{detail}", option.key, option.label);
    }
    text
}

/// `tests/golden/agents/AGENT-NAME.txt`: a screen, a line of `=`, and what is to be said of it.
#[test]
fn the_screens_are_read_right() {
    let rules = Rules::built_in();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/agents");
    let mut read = 0;
    let mut wrong = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        if path.extension().is_none_or(|kind| kind != "txt") {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        let (head, rest) = text.split_once('\n').unwrap();
        let (screen, expected) = rest.split_once("\n====\n").unwrap();
        let title = head.strip_prefix("title: ").unwrap_or_default().to_owned();
        let judged = judge(&agent(&rules, name.split('-').next().unwrap()), &PaneContent { title, ..content(screen) });
        if said(&judged) != expected {
            wrong.push(format!("--- {name}\n{}", said(&judged)));
        }
        read += 1;
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(read > 20, "{read}");
}

#[test]
fn the_states_of_the_older_supervision_are_those_of_its_contract() {
    let claude = agent(&Rules::built_in(), "claude");
    let state = |text: &str| judge(&claude, &content(text)).state;
    assert_eq!(state("x\nDo you want to proceed?\nesc to interrupt\n\n\n"), AgentState::Permission);
    assert_eq!(state("x (3s · esc to interrupt)\n"), AgentState::Working);
    assert_eq!(state("> \n"), AgentState::Idle);
    assert_eq!(state(""), AgentState::Idle);
}

#[test]
fn only_the_last_rows_count() {
    let claude = agent(&Rules::built_in(), "claude");
    let text = format!("Do you want to proceed?\n{}", "line\n".repeat(19));
    assert_eq!(judge(&claude, &content(&text)).state, AgentState::Permission);
    assert_eq!(judge(&claude, &content(&format!("{text}line\n\n\n"))).state, AgentState::Idle);
}

#[test]
fn a_rule_may_ask_for_a_bell_and_a_title_and_what_must_not_stand_there() {
    let rules = Rules::with_user_rules(
        "[[agent]]\nid = 'x'\nprograms = ['x']\n\
         [[agent.rule]]\nname = 'rang'\nstate = 'question'\nbell = true\n\
         [[agent.rule]]\nname = 'busy'\nstate = 'working'\ntitle = '^busy'\nscreen = ['run']\nunless = ['done']\n",
    )
    .unwrap();
    let x = agent(&rules, "x");
    let of = |bell_rang, title: &str, text: &str| {
        judge(&x, &PaneContent { bell_rang, title: title.into(), ..content(text) }).state
    };
    assert_eq!(of(true, "busy", "run"), AgentState::Question);
    assert_eq!(of(false, "busy", "run"), AgentState::Working);
    assert_eq!(of(false, "idle", "run"), AgentState::Idle);
    assert_eq!(of(false, "busy", "run\ndone"), AgentState::Idle);
}

#[test]
fn where_the_cursor_stands_is_no_news() {
    let claude = agent(&Rules::built_in(), "claude");
    let one = judge(&claude, &content("Do you want to proceed?\n❯ 1. Yes\n  2. No"));
    let two = judge(&claude, &content("Do you want to proceed?\n  1. Yes\n❯ 2. No"));
    assert!(one != two && !one.differs(&two));
    assert!(one.differs(&judge(&claude, &content("Do you want to proceed?\n❯ 1. Yes\n  2. Never"))));
}
