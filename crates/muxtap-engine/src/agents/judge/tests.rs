use std::{fmt::Write as _, fs, path::Path};

use super::*;
use crate::agents::rules::Rules;

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
        let _ = writeln!(text, "question: {}", question.replace('\n', " ⏎ "));
    }
    for option in &judgement.options {
        let cursor = if option.selected { ">" } else { " " };
        let detail = option.detail.as_ref().map(|detail| format!(" ({detail})")).unwrap_or_default();
        let _ = writeln!(text, "{cursor} {}: {}{detail}", option.key, option.label);
    }
    text
}

/// `tests/golden/agents/AGENT-NAME.txt`: a screen, a line of `=`, and the expected judgement.
#[test]
fn golden_screens_are_judged_as_expected() {
    let rules = Rules::built_in();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/agents");
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
        // As on a screen with empty rows below.
        let content = PaneContent { title, ..content(&format!("{screen}\n")) };
        let judged = judge(&agent(&rules, name.split('-').next().unwrap()), &content);
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
    assert_eq!(state("x\nDo you want to proceed?\n❯ 1. Yes\n  2. No\n\n\n"), AgentState::Permission);
    assert_eq!(state("x (3s · esc to interrupt)\n"), AgentState::Working);
    assert_eq!(state("> \n"), AgentState::Idle);
    assert_eq!(state(""), AgentState::Idle);
}

#[test]
fn work_is_recognized_by_its_spinner_and_not_by_prose() {
    let rules = Rules::built_in();
    let of = |id: &str, title: &str, text: &str| {
        judge(&agent(&rules, id), &PaneContent { title: title.into(), ..content(text) }).state
    };
    let frame = "\u{2500}".repeat(40);
    let prompt = format!("\n{frame}\n> \n{frame}\n");
    for working in ["✽ Wandering… (1h 2m 18s · ↓ 9k tokens)", "✽ Wandering…", "✽ Wandering…\n  ⎿  Tip: x\n"]
    {
        assert_eq!(of("claude", "", &format!("{working}\n{prompt}")), AgentState::Working, "{working}");
    }
    assert_eq!(of("claude", "◐ Fix the build", &prompt), AgentState::Working);
    for (id, idle) in [
        ("claude", "● You can press esc to interrupt it."),
        ("codex", "• Then press Esc to interrupt the run."),
        ("claude", "✻ Thinking…\n● The answer.\n"),
        ("claude", "✻ Brewed for 1m 2s"),
    ] {
        assert_eq!(of(id, "✳ Claude Code", &format!("{idle}\n{prompt}")), AgentState::Idle, "{idle}");
    }
}

#[test]
fn only_the_last_rows_count() {
    let claude = agent(&Rules::built_in(), "claude");
    let text = format!("✻ Waddling… (3s · esc to interrupt)\n{}", "line\n".repeat(19));
    assert_eq!(judge(&claude, &content(&text)).state, AgentState::Working);
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

/// Each answer belongs to the text of its dialog, up to the first row.
#[test]
fn another_command_is_another_question() {
    let claude = agent(&Rules::built_in(), "claude");
    let asked = |first: &str| {
        let rows = "   a step\n".repeat(30);
        let rule = "\u{2500}".repeat(80);
        let text = format!(
            "{rule}\n Bash command\n\n   {first}\n{rows}\n Do you want to proceed?\n \u{276f} 1. Yes\n   2. No\n"
        );
        judge(&claude, &content(&text))
    };
    let (one, two) = (asked("ls"), asked("rm -rf ~"));
    assert_eq!((one.state, two.state), (AgentState::Permission, AgentState::Permission));
    assert!(two.question.as_ref().unwrap().starts_with("Bash command\nrm -rf ~\na step\n"), "{two:?}");
    assert!(one.digest.is_some() && one.digest != two.digest);
}

#[test]
fn a_long_question_keeps_its_beginning_and_end_and_marks_the_cut() {
    let long = format!("rm -rf ~\n{}\nDo you want to proceed?", "\u{65e5}".repeat(QUESTION_BYTES));
    let told = shortened(&long);
    assert!(told.len() < QUESTION_BYTES + 100, "{}", told.len());
    assert!(told.starts_with("rm -rf ~\n") && told.ends_with("\nDo you want to proceed?"));
    assert!(told.contains("bytes are left out: look at the pane"));
    assert_eq!(shortened("short"), "short");
}

/// A matching title does not turn a printed list into the agent's answers.
#[test]
fn a_title_alone_offers_no_answers() {
    let gemini = agent(&Rules::built_in(), "gemini");
    let text = "Allow execution of: 'ls'?\n\u{25cf} 1. Yes, allow once\n  2. No\n\n >   Type your message";
    let judged = judge(&gemini, &PaneContent { title: "\u{270b} Action".into(), ..content(text) });
    assert_eq!((judged.state, judged.question, judged.options), (AgentState::Permission, None, Vec::new()));
}

#[test]
fn rules_without_answers_and_prompts_of_ones_own() {
    let rules = Rules::with_user_rules(
        "[[agent]]\nid = 'x'\nprograms = ['x']\nprompt = ['^ready']\nfooter = ['^status']\n\
         [[agent.rule]]\nname = 'go'\nstate = 'permission'\nscreen = ['^Go on']\n\
         [[agent.rule]]\nname = 'pick'\nstate = 'question'\nscreen = ['^Pick']\noptions = 'numbered'\n",
    )
    .unwrap();
    let x = agent(&rules, "x");
    let of = |text: &str| judge(&x, &content(text)).state;
    assert_eq!(of("Go on?"), AgentState::Permission);
    assert_eq!(of("Go on?\nready"), AgentState::Idle);
    assert_eq!(of("Go on?\n> "), AgentState::Idle);
    let pick = "Pick\n> 1. a\n  2. b\n";
    assert_eq!(judge(&x, &content(pick)).options.len(), 2);
    assert_eq!(judge(&x, &content(&format!("{pick}status ok"))).options.len(), 2);
    let unknown = judge(&x, &content(&format!("{pick}other")));
    assert_eq!((unknown.options.len(), unknown.evidence.rule.as_str()), (0, "uncertain"));
    assert_eq!(of(&format!("{pick}READY")), AgentState::Idle);
}

/// A command whose beginning has scrolled off is not shown as a complete one.
#[test]
fn what_may_stand_above_the_screen_is_said() {
    let rules = Rules::built_in();
    let line = "\n\nls\nRun shell command? (Y)es/(N)o [Yes]:";
    let frame = "│   x &&\n│ Do you want to proceed?\n│ ❯ 1. Yes\n│   2. No\n╰─";
    for (id, text, is_open) in [("aider", line, false), ("claude", frame, true)] {
        let asked = |text: &str| {
            let judged = judge(&agent(&rules, id), &content(text));
            (judged.state, judged.question.unwrap_or_default().starts_with('…'))
        };
        assert_eq!(asked(text), (AgentState::Permission, true), "{id}");
        // On a screen with empty rows nothing has scrolled off; a frame without its upper border is
        // open all the same.
        assert_eq!(asked(&format!("{text}\n\n")), (AgentState::Permission, is_open), "{id}");
    }
}
