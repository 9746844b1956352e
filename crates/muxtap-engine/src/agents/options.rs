//! Finds the answers that an agent offers on its screen.

use std::{ops::Range, sync::LazyLock};

use muxtap_api::AgentOption;
use regex::Regex;

/// Matches an answer of a numbered list, in a box or not.
static NUMBERED: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"^[\s│┃|▌]*(?P<cursor>[❯›>●▶▸→➤])?\s*(?P<key>\d{1,2})[.)]\s+(?P<label>\S.*)$").ok());

/// The most answers of one list.
const MAX_OPTIONS: usize = 32;
/// The most rows between two answers.
const MAX_ROWS_BETWEEN: usize = 8;

/// The answers of one list, and their place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct OptionBlock {
    /// The rows from the first answer to the last one.
    pub(super) rows: Range<usize>,
    /// The rows of the answers and of their descriptions.
    pub(super) own_rows: Vec<usize>,
    /// The answers, each with its row.
    pub(super) options: Vec<(usize, AgentOption)>,
    /// The column of the labels.
    pub(super) indent: usize,
}

/// Returns the lists that count 1, 2, 3 … and have exactly one cursor, from the top.
pub(super) fn numbered(rows: &[&str]) -> Vec<OptionBlock> {
    let mut lists = Vec::new();
    let mut at = 0;
    while at < rows.len() {
        let Some(list) = list_at(rows, at) else {
            at += 1;
            continue;
        };
        at = list.rows.end;
        if list.options.iter().filter(|(_, option)| option.selected).count() == 1 {
            lists.push(list);
        }
    }
    lists
}

/// Returns the list that begins in this row.
fn list_at(rows: &[&str], first: usize) -> Option<OptionBlock> {
    let mut list: Vec<(usize, AgentOption)> = Vec::new();
    let mut own_rows = Vec::new();
    // The column of the labels. Text at the same column below a label belongs to it; in a box, also
    // text at the number's column.
    let (mut indent, mut number_at) = (0, None);
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
            let column = |at: usize| char_count(row.get(..at).unwrap_or_default());
            indent = found.name("label").map_or(0, |label| column(label.start()));
            number_at = found.name("key").filter(|_| is_boxed(row)).map(|key| column(key.start()));
            own_rows.push(at);
            let option = AgentOption {
                key: group("key").unwrap_or_default().into(),
                label: unboxed(label).into(),
                detail: None,
                selected: group("cursor").is_some(),
                key_shown: true,
            };
            list.push((at, option));
            end = at + 1;
        } else if list.is_empty() || at >= end + MAX_ROWS_BETWEEN {
            break;
        } else if let Some((_, option)) = list.last_mut().filter(|_| {
            let is_label = |column| column == indent || Some(column) == number_at && is_rest_in_box(row);
            at == end && text_column(row).is_some_and(is_label)
        }) {
            let text = unboxed(row);
            option.detail = Some(option.detail.take().map_or_else(|| text.into(), |detail| format!("{detail} {text}")));
            own_rows.push(at);
            end = at + 1;
        }
    }
    (!list.is_empty()).then_some(OptionBlock { rows: first..end, own_rows, options: list, indent })
}

/// Returns the matches of an expression with a group `label`, from the top; matches in consecutive
/// rows form one list.
pub(super) fn matching(regex: &Regex, rows: &[&str]) -> Vec<OptionBlock> {
    let text = rows.join("\n");
    let mut blocks: Vec<OptionBlock> = Vec::new();
    for found in regex.captures_iter(&text) {
        let Some(label) = found.name("label") else { continue };
        let at = text.get(..label.start()).map_or(0, |before| before.matches('\n').count());
        let option = AgentOption {
            key: found.name("key").map_or_else(String::new, |key| key.as_str().into()),
            label: unboxed(label.as_str()).into(),
            detail: None,
            selected: found.name("cursor").is_some(),
            key_shown: found.name("key").is_some(),
        };
        let last = blocks.last_mut().filter(|block| at <= block.rows.end && block.options.len() < MAX_OPTIONS);
        match last {
            Some(block) => {
                block.rows.end = at + 1;
                block.own_rows.push(at);
                block.options.push((at, option));
            }
            None => blocks.push(OptionBlock {
                rows: at..at + 1,
                own_rows: vec![at],
                options: vec![(at, option)],
                indent: usize::MAX,
            }),
        }
    }
    blocks.retain(|block| block.options.iter().filter(|(_, option)| option.selected).count() <= 1);
    blocks
}

impl OptionBlock {
    /// Returns the answers from this row on. An answer without a key of its own gets its position
    /// as key.
    pub(super) fn options_from(&self, row: usize) -> Vec<AgentOption> {
        let own = self.options.iter().filter(|(at, _)| *at >= row).map(|(_, option)| option.clone());
        own.zip(1..)
            .map(|(option, place)| {
                let key = if option.key_shown { option.key } else { place.to_string() };
                AgentOption { key, ..option }
            })
            .collect()
    }
}

/// Returns a row's text without the box around it.
pub(super) fn unboxed(row: &str) -> &str {
    row.trim_matches(|c: char| c.is_whitespace() || "│┃|▌╭╮╰╯─━".contains(c))
}

fn is_boxed(row: &str) -> bool {
    row.trim_start().starts_with(['│', '┃'])
}

/// Returns whether a row in a box may be the rest of a label: it is no prompt.
fn is_rest_in_box(row: &str) -> bool {
    is_boxed(row) && !unboxed(row).starts_with(['>', '❯', '›', '→'])
}

/// Returns the number of characters.
fn char_count(text: &str) -> usize {
    text.chars().count()
}

/// Returns the column at which a row's text begins, or `None` for an empty row.
pub(super) fn text_column(row: &str) -> Option<usize> {
    let text = unboxed(row);
    (!text.is_empty()).then(|| row.find(text).and_then(|at| row.get(..at))).flatten().map(char_count)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn short(block: &OptionBlock) -> Vec<String> {
        let options = block.options_from(0);
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
        let list = numbered(&rows).pop().unwrap();
        let options = list.options_from(0);
        assert_eq!(list.rows, 3..7);
        assert_eq!(short(&list), ["*1=Yes", "2=Yes, and don't ask again for rm commands in", "3=No (esc)"]);
        assert_eq!(options[1].detail.as_deref(), Some("/home/me"));
        assert_eq!(numbered(&rows[..3]), []);
        assert_eq!(numbered(&[]), []);
        assert_eq!(numbered(&["❯ 1. Yes", "❯ 2. No"]), [], "there is one cursor");
    }

    #[test]
    fn in_a_box_the_rest_of_a_label_may_be_below_its_number() {
        let rows = ["│ ❯ 1. Yes         │", "│   2. Yes, here    │", "│   (/home/me)      │", "│   3. No           │"];
        let list = numbered(&rows).pop().unwrap();
        assert_eq!(short(&list), ["*1=Yes", "2=Yes, here", "3=No"]);
        assert_eq!(list.options_from(0)[1].detail.as_deref(), Some("(/home/me)"));
        assert_eq!(list.own_rows, [0, 1, 2, 3]);
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
        let list = numbered(&rows).pop().unwrap();
        let options = list.options_from(0);
        assert_eq!(short(&list), ["*1=date-fns", "2=moment", "3=Chat about this"]);
        assert_eq!(options[0].detail.as_deref(), Some("Small and fast"));
        assert_eq!((options[1].detail.as_ref(), options[2].detail.as_ref()), (None, None));
    }

    #[test]
    fn every_list_is_found() {
        let rows = ["❯ 1. old", "  2. older", "text", "› 1. new", "  2. newer"];
        let lists = numbered(&rows);
        assert_eq!(lists.iter().map(short).collect::<Vec<_>>(), [["*1=old", "2=older"], ["*1=new", "2=newer"]]);
    }

    #[test]
    fn answers_without_numbers_are_matched() {
        let regex = Regex::new(r"(?P<label>\((?P<key>[A-Z])\)[^/\[\s]+(?: [^/\[\s]+)*)").unwrap();
        let text = "Run it? (Y)es/(N)o/(D)on't ask again [Yes]: ";
        assert_eq!(
            short(&matching(&regex, &["Of (O)thers", "", text])[1]),
            ["Y=(Y)es", "N=(N)o", "D=(D)on't ask again"]
        );
    }
}
