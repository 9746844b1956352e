//! Differences that a person may notice: behaviors of tmux, each run without muxtap and beside it
//! in each of its modes.
//!
//! [`table::ROWS`] says for each whether it is the same; `docs/unnoticed.md` is that table as a
//! page. A cell that claims a difference must differ, so that the table stays true.

mod ends;
mod events;
mod lists;
mod person;
mod scene;
mod table;

use scene::{Mode, Scene};
use table::{ROWS, Row};

const FOLLOWED: [Mode; 4] = [Mode::Rest, Mode::Used, Mode::Sessions, Mode::Hub];

/// Runs a row in a mode. A failing run is recorded too, so that the other rows of its test run.
fn observe(row: &Row, mode: Mode) -> Result<String, String> {
    let run = std::panic::catch_unwind(|| {
        let scene = Scene::new(mode);
        (row.observe)(&scene)
    });
    run.map_err(|panic| panic.downcast_ref::<String>().cloned().unwrap_or_else(|| "it panicked".into()))
}

/// Runs the rows of one test, plain and followed.
fn check(test: &str) {
    let version = table::version_under_test();
    let mut wrong = Vec::new();
    let rows: Vec<&Row> = ROWS.iter().filter(|row| row.test == test).collect();
    assert!(!rows.is_empty(), "no row names {test}");
    for row in rows {
        let (plain, followed) = std::thread::scope(|scope| {
            let plain = scope.spawn(|| observe(row, Mode::Plain));
            let run = FOLLOWED.into_iter().filter(|mode| row.cell(*mode).is_run());
            let followed: Vec<_> = run.map(|mode| (mode, scope.spawn(move || observe(row, mode)))).collect();
            let followed: Vec<_> = followed.into_iter().map(|(mode, thread)| (mode, thread.join().unwrap())).collect();
            (plain.join().unwrap(), followed)
        });
        for (mode, seen) in followed {
            let (plain, seen) = match (&plain, &seen) {
                (Ok(plain), Ok(seen)) => (plain, seen),
                (Err(failure), _) | (_, Err(failure)) => {
                    wrong.push(format!("{}: {mode:?} failed: {failure}", row.what));
                    continue;
                }
            };
            let differs = seen != plain;
            println!("unnoticed\t{version}\t{}\t{mode:?}\t{differs}\t{plain:?}\t{seen:?}", row.what);
            if differs != row.cell(mode).differs(version) {
                wrong.push(format!("{}: {mode:?}:\n plain    {plain:?}\n followed {seen:?}", row.what));
            }
        }
    }
    assert!(wrong.is_empty(), "tmux {version}: other than the table says:\n{}", wrong.join("\n"));
}

macro_rules! tests {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            check(stringify!($name));
        })*

        /// The tests; each row belongs to one.
        const TESTS: &[&str] = &[$(stringify!($name)),*];
    };
}

tests! {
    the_focus_reaches_programs
    alerts_are_raised
    attached_sessions_are_counted
    hooks_run_as_often_as_without_muxtap
    destructive_hooks_end_nothing_more_than_without_muxtap
    servers_and_sessions_end_when_they_should
    a_person_whose_session_ends_goes_where_tmux_says
    scripts_reach_the_persons_terminal
    attaching_leads_to_the_same_session
    lists_show_the_same_as_without_muxtap
    windows_are_the_same_as_without_muxtap
}

#[test]
fn the_page_is_the_table() {
    assert!(ROWS.iter().all(|row| TESTS.contains(&row.test)));
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/unnoticed.md")).unwrap();
    let told: Vec<&str> = page.lines().filter(|line| line.starts_with("| ") && line.contains("`unnoticed::")).collect();
    let table: Vec<String> = ROWS.iter().map(Row::markdown).collect();
    assert_eq!(told, table, "docs/unnoticed.md; the table is:\n{}", table.join("\n"));
}
