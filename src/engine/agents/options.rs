//! Finds the answers that an agent offers on its screen.

use std::sync::LazyLock;

use regex::Regex;

use crate::api::AgentOption;

/// Matches an answer of a numbered list, in a box or not.
static NUMBERED: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"^[\s│┃|▌]*(?P<cursor>[❯›>●▶▸→➤])?\s*(?P<key>\d{1,2})[.)]\s+(?P<label>\S.*)$").ok());

/// The most answers of one list.
const MAX_OPTIONS: usize = 32;
/// The most rows that may stand between two answers.
const MAX_ROWS_BETWEEN: usize = 8;

/// The row index of the first answer, and the answers.
pub(super) type FirstAndOptions = Option<(usize, Vec<AgentOption>)>;

/// Returns the last list that counts 1, 2, 3 … and has a cursor.
pub(super) fn numbered(rows: &[&str]) -> FirstAndOptions {
    let mut last = None;
    let mut at = 0;
    while at < rows.len() {
        let Some((end, list)) = list_at(rows, at) else {
            at += 1;
            continue;
        };
        if list.iter().any(|option| option.selected) {
            last = Some((at, list));
        }
        at = end;
    }
    last
}

/// Returns the list that begins in this row, and the index of the row after it.
fn list_at(rows: &[&str], first: usize) -> Option<(usize, Vec<AgentOption>)> {
    let mut list: Vec<AgentOption> = Vec::new();
    // The column of the labels. Text under a label at the same column belongs to it.
    let mut indent = 0;
    let mut end = first;
    for (at, row) in rows.iter().enumerate().skip(first) {
        let found = NUMBERED.as_ref().and_then(|regex| regex.captures(row));
        let number = found.as_ref().and_then(|found| found.name("key")?.as_str().parse::<usize>().ok());
        if number == Some(1) && !list.is_empty() {
            // Another list begins here.
            break;
        }
        let next = found.filter(|_| number == Some(list.len() + 1));
        if let Some(found) = next {
            if list.len() == MAX_OPTIONS {
                break;
            }
            let group = |name| found.name(name).map(|group| group.as_str());
            let label = group("label").unwrap_or_default();
            indent = found.name("label").map_or(0, |label| char_count(row.get(..label.start()).unwrap_or_default()));
            list.push(AgentOption {
                key: group("key").unwrap_or_default().into(),
                label: unboxed(label).into(),
                detail: None,
                selected: group("cursor").is_some(),
                key_shown: true,
            });
            end = at + 1;
        } else if list.is_empty() || at >= end + MAX_ROWS_BETWEEN {
            break;
        } else if let Some(option) = list.last_mut().filter(|_| at == end && text_column(row) == Some(indent)) {
            let text = unboxed(row);
            option.detail = Some(option.detail.take().map_or_else(|| text.into(), |detail| format!("{detail} {text}")));
            end = at + 1;
        }
    }
    (!list.is_empty()).then_some((end, list))
}

/// Returns every match of an expression with a group `label`.
pub(super) fn matching(regex: &Regex, text: &str) -> Vec<AgentOption> {
    let found = regex.captures_iter(text).take(MAX_OPTIONS).zip(1..);
    let options = found.filter_map(|(found, place)| {
        Some(AgentOption {
            key: found.name("key").map_or_else(|| place.to_string(), |key| key.as_str().into()),
            label: unboxed(found.name("label")?.as_str()).into(),
            detail: None,
            selected: found.name("cursor").is_some(),
            key_shown: found.name("key").is_some(),
        })
    });
    options.collect()
}

/// Returns a row's text without the box around it.
pub(super) fn unboxed(row: &str) -> &str {
    row.trim_matches(|c: char| c.is_whitespace() || "│┃|▌╭╮╰╯─━".contains(c))
}

/// Returns the number of characters.
fn char_count(text: &str) -> usize {
    text.chars().count()
}

/// Returns the column at which a row's text begins, or `None` for an empty row.
fn text_column(row: &str) -> Option<usize> {
    let text = unboxed(row);
    (!text.is_empty()).then(|| row.find(text).and_then(|at| row.get(..at))).flatten().map(char_count)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn short(options: &[AgentOption]) -> Vec<String> {
        let mark = |option: &AgentOption| if option.selected { "*" } else { "" };
        options.iter().map(|option| format!("{}{}={}", mark(option), option.key, option.label)).collect()
    }

    #[test]
    fn a_list_has_a_cursor_and_counts_from_one() {
        let rows = [
            "1. a plan",
            "2. that is no list of answers",
            "│ Do you want to proceed?      │",
            "│ ❯ 1. Yes                     │",
            "│   2. Yes, and don't ask again for rm commands in │",
            "│      /home/me                │",
            "│   3. No (esc)                │",
            "╰──────────────────────────────╯",
            " 7. not one of them",
        ];
        let (at, options) = numbered(&rows).unwrap();
        assert_eq!(at, 3);
        assert_eq!(short(&options), ["*1=Yes", "2=Yes, and don't ask again for rm commands in", "3=No (esc)"]);
        assert_eq!(options[1].detail.as_deref(), Some("/home/me"));
        assert_eq!(numbered(&rows[..3]), None);
        assert_eq!(numbered(&[]), None);
    }

    #[test]
    fn a_description_belongs_to_its_answer() {
        let rows = [
            "❯ 1. date-fns",
            "     Small",
            "     and fast",
            "  2. moment",
            "─────",
            "  3. Chat about this",
            "",
            "Enter to select",
        ];
        let (_, options) = numbered(&rows).unwrap();
        assert_eq!(short(&options), ["*1=date-fns", "2=moment", "3=Chat about this"]);
        assert_eq!(options[0].detail.as_deref(), Some("Small and fast"));
        assert_eq!((options[1].detail.as_ref(), options[2].detail.as_ref()), (None, None));
    }

    #[test]
    fn the_last_list_counts() {
        let rows = ["❯ 1. old", "  2. older", "text", "› 1. new", "  2. newer"];
        assert_eq!(short(&numbered(&rows).unwrap().1), ["*1=new", "2=newer"]);
    }

    #[test]
    fn answers_without_numbers_are_matched() {
        let regex = Regex::new(r"(?P<label>\((?P<key>[A-Z])\)[^/\[\s]+(?: [^/\[\s]+)*)").unwrap();
        let text = "Run it? (Y)es/(N)o/(D)on't ask again [Yes]: ";
        assert_eq!(short(&matching(&regex, text)), ["Y=(Y)es", "N=(N)o", "D=(D)on't ask again"]);
    }
}
