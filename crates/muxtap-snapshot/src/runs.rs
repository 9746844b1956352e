//! What a snapshot would run, in words, for the person who confirms a restore with `run`.

use muxtap_api::Labels;
use muxtap_base::quoting::shell_word;

use super::{
    limits::{RUN_CHARS, RUNS_SHOWN},
    model::Snapshot,
};

/// The number of successive spaces that are shown unchanged.
const SPACES: usize = 8;

/// Returns what a restore with `run` would do beyond making panes.
///
/// Variables come first, since a shell runs the contents of some (`PROMPT_COMMAND`, `BASH_ENV`),
/// then the labels of sessions, then the labels, programs and lines of panes. Beyond `RUNS_SHOWN`, the
/// last line counts the rest.
pub fn shown(snapshot: &Snapshot) -> Vec<String> {
    let mut all = lines(snapshot);
    let mut shown: Vec<String> = all.by_ref().take(RUNS_SHOWN).map(|line| cut(&line)).collect();
    let more = all.count();
    if more > 0 {
        shown.push(format!("and {more} more"));
    }
    shown
}

/// Returns everything that a restore with `run` would do, for the person who confirms it.
///
/// `None`: more than is shown.
pub fn whole(snapshot: &Snapshot) -> Option<Vec<String>> {
    let all: Vec<String> = lines(snapshot).take(RUNS_SHOWN + 1).collect();
    let fits = all.len() <= RUNS_SHOWN && all.iter().all(|line| line.chars().count() <= RUN_CHARS);
    fits.then_some(all)
}

fn lines(snapshot: &Snapshot) -> impl Iterator<Item = String> {
    let variables = snapshot.sessions.iter().flat_map(|session| {
        session.environment.iter().map(|(name, value)| format!("{}: sets {name}={}", session.name, shell_word(value)))
    });
    let labeled =
        |place: &str, labels: &Labels| (!labels.is_empty()).then(|| format!("{place}: has the labels {labels}"));
    let labels = snapshot.sessions.iter().filter_map(move |session| labeled(&session.name, &session.labels));
    let windows = snapshot.sessions.iter().flat_map(|session| {
        session.windows.iter().enumerate().map(|(number, window)| {
            let index = window.index.map_or_else(|| format!("#{number}"), |index| index.to_string());
            (format!("{}:{index}", session.name), window)
        })
    });
    let panes = windows.flat_map(|(place, window)| {
        window.panes.iter().enumerate().map(move |(number, pane)| (format!("{place}.{number}"), pane))
    });
    let programs = panes.flat_map(move |(place, pane)| {
        let words: Vec<String> = pane.argv.iter().map(|word| shell_word(word)).collect();
        let starts = (!words.is_empty()).then(|| format!("{place}: starts {}", words.join(" ")));
        labeled(&place, &pane.labels)
            .into_iter()
            .chain(starts)
            .chain(pane.lines.iter().map(move |line| format!("{place}: types {line}")))
    });
    variables.chain(labels).chain(programs).map(|line| with_spaces(&line))
}

/// Replaces many successive spaces by their number: text behind them would be out of sight.
fn with_spaces(line: &str) -> String {
    let (mut shown, mut spaces) = (String::with_capacity(line.len()), 0);
    for character in line.chars().map(Some).chain([None]) {
        if character == Some(' ') {
            spaces += 1;
            continue;
        }
        match std::mem::take(&mut spaces) {
            many if many > SPACES => shown.extend([" (", &many.to_string(), " spaces) "]),
            few => shown.extend(std::iter::repeat_n(' ', few)),
        }
        shown.extend(character);
    }
    shown
}

/// Cuts an overlong line in its middle, and says so: its end may be what matters.
fn cut(line: &str) -> String {
    let most = line.chars().count();
    if most <= RUN_CHARS {
        return line.to_owned();
    }
    let half = RUN_CHARS / 2;
    let head: String = line.chars().take(half).collect();
    let tail: String = line.chars().skip(most - half).collect();
    format!("{head}… ({} characters omitted) …{tail}", most - 2 * half)
}
