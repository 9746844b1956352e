//! The examples of the README, the cookbook and the pages for each kind of reader, on separate tmux
//! servers.

use std::{collections::BTreeMap, fmt::Write as _, fs, os::unix::fs::PermissionsExt as _};

use serde_json::Value;

use crate::{
    common::{Background, World, run},
    mcp::Client,
};

const README: &str = include_str!("../../README.md");
const COOKBOOK: &str = include_str!("../../docs/cookbook.md");
const RECORDING: &str = include_str!("../../docs/demo.txt");
/// The build of the examples.
const BUILD: &str = "#!/bin/sh
sleep 0.2; echo '[1/2] cc parser.c'
sleep 0.1; echo '[2/2] ld parser'
echo '41 passed, 0 failed'
";

/// A command and its output according to the README.
struct Example {
    command: String,
    says: Vec<String>,
}

/// Returns the examples of all `console` blocks, in order.
fn examples(page: &str) -> Vec<Example> {
    let mut examples: Vec<Example> = Vec::new();
    for block in page.split("```console\n").skip(1).filter_map(|rest| rest.split("```").next()) {
        for line in block.lines() {
            match line.strip_prefix("$ ") {
                Some(command) => examples.push(Example { command: command.to_owned(), says: Vec::new() }),
                None => examples.last_mut().unwrap().says.push(line.trim_end().to_owned()),
            }
        }
    }
    examples
}

/// Returns whether a line is as documented; `…` stands for anything.
fn fits(told: &str, line: &str) -> bool {
    let mut parts = told.split('…');
    let Some(mut rest) = line.strip_prefix(parts.next().unwrap()) else { return false };
    let parts: Vec<_> = parts.collect();
    let Some((last, middle)) = parts.split_last() else { return rest.is_empty() };
    for part in middle {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

/// Returns whether the lines are as documented; a `…` alone stands for any number of them.
fn all_fit(told: &[String], lines: &[&str]) -> bool {
    match told.split_first() {
        None => lines.is_empty(),
        Some((first, rest)) if first == "…" => (0..=lines.len()).any(|skip| all_fit(rest, &lines[skip..])),
        Some((first, rest)) => lines.first().is_some_and(|line| fits(first, line)) && all_fit(rest, &lines[1..]),
    }
}

/// Creates a reader's world: `muxtap` and `tmux` are on the `PATH`, and there is something to
/// build.
pub(crate) fn reader() -> World {
    let mut world = World::new();
    let program = std::env::var_os("MUXTAP_TEST_BIN").unwrap_or_else(|| env!("CARGO_BIN_EXE_muxtap").into());
    fs::create_dir(world.path("bin")).unwrap();
    std::os::unix::fs::symlink(program, world.path("bin/muxtap")).unwrap();
    // The tmux under test: another version's client may not work with its server (N85).
    let tmux = crate::common::tmux_program();
    if tmux.contains('/') {
        fs::write(world.path("bin/tmux"), format!("#!/bin/sh\nexec {tmux} \"$@\"\n")).unwrap();
        fs::set_permissions(world.path("bin/tmux"), fs::Permissions::from_mode(0o755)).unwrap();
    }
    world.set("PATH", format!("{}:{}", world.path("bin").display(), std::env::var("PATH").unwrap()));
    world.set("SHELL", "/bin/bash");
    world.also_end(world.path(&format!("run/tmux-{}/default", rustix::process::getuid().as_raw())));
    fs::write(world.path("home/.bash_profile"), "PS1='~$ '\n").unwrap();
    fs::write(world.path("work/build.sh"), BUILD).unwrap();
    fs::set_permissions(world.path("work/build.sh"), fs::Permissions::from_mode(0o755)).unwrap();
    world
}

/// Runs the examples of a page and compares their output.
fn check(page: &str) {
    check_in(&reader(), page);
}

fn check_in(world: &World, page: &str) {
    let examples = examples(page);
    assert!(!examples.is_empty(), "{page}");
    let mut transcript = String::new();
    for Example { command, says } in examples {
        let answer = crate::common::run(world.command("sh").args(["-c", &format!("exec 2>&1\n{command}")]));
        let text = answer.text();
        writeln!(transcript, "$ {command}\n{text}").unwrap();
        let lines: Vec<_> = text.lines().map(str::trim_end).collect();
        assert!(all_fit(&says, &lines), "{command}\nis told to print\n{}\n\n{transcript}", says.join("\n"));
    }
}

#[test]
fn the_examples_print_what_the_readme_says() {
    let world = reader();
    // A newcomer has no build.
    fs::remove_file(world.path("work/build.sh")).unwrap();
    check_in(&world, README);
}

#[test]
fn twenty_recipes_do_what_they_say() {
    let recipes: Vec<&str> = COOKBOOK.split("\n## ").skip(1).collect();
    assert_eq!(recipes.len(), 20);
    for (number, recipe) in recipes.iter().enumerate() {
        assert!(recipe.starts_with(&format!("{}. ", number + 1)), "{recipe}");
        check(recipe);
    }
}

#[test]
fn people_at_a_terminal_get_what_their_page_says() {
    check(include_str!("../../docs/for-terminals.md"));
}

/// Uses the page's own `m`, with the daemon's socket in its default place.
#[test]
fn programs_get_what_their_page_says() {
    let page = include_str!("../../docs/for-programs.md");
    let mut world = reader();
    world.set("MUXTAP_SOCKET", "");
    let calls = page.lines().find(|line| line.starts_with("m() {")).unwrap();
    fs::write(world.path("bin/m"), format!("#!/bin/sh\n{calls}\nm \"$@\"\n")).unwrap();
    fs::set_permissions(world.path("bin/m"), fs::Permissions::from_mode(0o755)).unwrap();
    check_in(&world, page);
}

/// Returns the tool call in a line of a page, if it is one.
fn tool_call(line: &str) -> Option<(&str, Value)> {
    let (tool, arguments) = line.split_once(' ')?;
    let is_tool = tool.bytes().all(|letter| letter.is_ascii_lowercase() || letter == b'_');
    serde_json::from_str(arguments)
        .ok()
        .filter(|arguments: &Value| is_tool && arguments.is_object())
        .map(|arguments| (tool, arguments))
}

#[test]
fn agents_get_what_their_page_says() {
    let page = include_str!("../../docs/for-agents.md");
    let world = reader();
    let mut client = Client::started(Background::start(world.command("muxtap").arg("mcp")));
    let mut calls = 0;
    for block in page.split("```mcp\n").skip(1).filter_map(|rest| rest.split("```").next()) {
        let lines: Vec<&str> = block.lines().collect();
        let begins: Vec<usize> = (0..lines.len()).filter(|at| tool_call(lines[*at]).is_some()).collect();
        for (number, begin) in begins.iter().enumerate() {
            let end = begins.get(number + 1).copied().unwrap_or(lines.len());
            let (tool, arguments) = tool_call(lines[*begin]).unwrap();
            let answer = client.ask("tools/call", &serde_json::json!({ "name": tool, "arguments": arguments }));
            let text = answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{answer}"));
            let told: Vec<String> = lines[begin + 1..end].iter().map(|line| (*line).to_owned()).collect();
            let said: Vec<&str> = text.trim_end().lines().collect();
            assert!(
                all_fit(&told, &said),
                "{}\nis told to answer\n{}\n\nand answers\n{text}",
                lines[*begin],
                told.join("\n")
            );
            calls += 1;
        }
    }
    assert!(calls > 10, "{calls}");
}

/// Each page for a kind of reader shows five things, and the README links to it.
#[test]
fn there_is_a_page_of_five_things_for_each_reader() {
    for page in ["terminals", "agents", "programs", "rust"] {
        let name = format!("docs/for-{page}.md");
        assert!(README.contains(&format!("]({name})")), "{name}");
        let text = fs::read_to_string(std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(&name)).unwrap();
        let headings: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("## ")).collect();
        let (last, things) = headings.split_last().unwrap();
        assert_eq!((*last, things.len()), ("On from here", 5), "{name}");
        for (number, thing) in (1..).zip(things) {
            assert!(thing.starts_with(&format!("{number}. ")), "{name}: {thing}");
        }
    }
}

/// The picture above the README's fold is drawn from the recording beside it.
#[test]
fn the_picture_is_the_one_of_the_recording() {
    let place = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let picture = fs::read_to_string(place.join("docs/demo.svg")).unwrap();
    let world = World::new();
    let drawn = run(world.command(place.join("scripts/picture")).arg("docs/demo.txt"));
    assert_eq!((drawn.status, drawn.text()), (0, picture.clone()), "{}", drawn.stderr);
    for line in RECORDING.lines().filter(|line| !line.is_empty()) {
        let last = line.rsplit(['│', '<', '>', '&']).next().unwrap();
        assert!(picture.contains(last.trim_start_matches("ok ").trim_start_matches("no ")), "{line}");
    }
    let head = README.split("\n## ").next().unwrap();
    assert!(head.lines().take(15).any(|line| line.contains("](docs/demo.svg)")), "{head}");
}

/// Returns the lines that a demo prints, by pane, with all numbers made equal: the order of panes
/// varies.
fn shape(printed: &str) -> BTreeMap<String, Vec<String>> {
    let mut shape: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for line in printed.lines() {
        let mut same = String::new();
        for letter in line.chars() {
            let is_number = letter.is_ascii_digit();
            if !(is_number && same.ends_with('0')) {
                same.push(if is_number { '0' } else { letter });
            }
        }
        let pane = same.split_once(" │").map(|(pane, _)| pane.to_owned()).unwrap_or_default();
        shape.entry(pane).or_default().push(same);
    }
    shape
}

#[test]
fn the_recording_is_what_a_run_prints_up_to_times() {
    let world = World::new();
    let printed = run(world.plain_muxtap_command().arg("demo"));
    assert_eq!(printed.status, 0, "{printed:?}");
    assert_eq!(shape(&printed.text()), shape(RECORDING));
}

#[test]
fn there_are_ten_examples() {
    for number in 1..=10 {
        assert!(README.contains(&format!("\n**{number}. ")), "{number}");
    }
}
