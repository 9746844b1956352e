//! The examples of the README and the cookbook, on tmux servers of their own.

use std::{fmt::Write as _, fs, os::unix::fs::PermissionsExt as _};

use crate::common::World;

const README: &str = include_str!("../../README.md");
const COOKBOOK: &str = include_str!("../../docs/cookbook.md");
/// The build of the examples.
const BUILD: &str = "#!/bin/sh
sleep 0.2; echo '[1/2] cc parser.c'
sleep 0.1; echo '[2/2] ld parser'
echo '41 passed, 0 failed'
";

/// A command and what the README says that it prints.
struct Example {
    command: String,
    says: Vec<String>,
}

/// The examples of all `console` blocks, in order.
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

/// Whether a line is as told; `…` stands for anything.
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

/// Whether the lines are as told; a `…` alone stands for any number of them.
fn all_fit(told: &[String], lines: &[&str]) -> bool {
    match told.split_first() {
        None => lines.is_empty(),
        Some((first, rest)) if first == "…" => (0..=lines.len()).any(|skip| all_fit(rest, &lines[skip..])),
        Some((first, rest)) => lines.first().is_some_and(|line| fits(first, line)) && all_fit(rest, &lines[1..]),
    }
}

/// Runs the examples of a page, and compares what they print.
fn check(page: &str) {
    let mut world = World::new();
    let program = std::env::var_os("MUXTAP_TEST_BIN").unwrap_or_else(|| env!("CARGO_BIN_EXE_muxtap").into());
    fs::create_dir(world.path("bin")).unwrap();
    std::os::unix::fs::symlink(program, world.path("bin/muxtap")).unwrap();
    // The tmux that is tested: another version's client may not speak with its server (N85).
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
    check(README);
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
fn the_recording_is_the_one_in_the_docs() {
    assert!(README.contains(&format!("```\n{}```\n", include_str!("../../docs/demo.txt"))));
}

#[test]
fn there_are_ten_examples() {
    for number in 1..=10 {
        assert!(README.contains(&format!("\n**{number}. ")), "{number}");
    }
}
