//! Differences between two snapshots.

use super::{
    answers::Difference,
    model::{Pane, Session, Snapshot, Window},
};

/// Returns the differences between two snapshots.
///
/// Sessions are compared by name, windows by index, panes by their place in the layout. History is
/// not compared.
pub fn diff(from: &Snapshot, to: &Snapshot) -> Vec<Difference> {
    let mut found = Vec::new();
    let name = |session: &Session| session.name.clone();
    pairs(&from.sessions, &to.sessions, name, &mut |place, from, to| match (from, to) {
        (Some(from), Some(to)) => sessions(&place, from, to, &mut found),
        (from, to) => found.push(presence(&place, "session", from.is_some(), to.is_some())),
    });
    found
}

/// Pairs the items of two lists by key, in the order of the first list.
fn pairs<'a, T>(
    from: &'a [T],
    to: &'a [T],
    key: impl Fn(&T) -> String,
    pair: &mut dyn FnMut(String, Option<&'a T>, Option<&'a T>),
) {
    for item in from {
        let key_of = key(item);
        pair(key_of.clone(), Some(item), to.iter().find(|other| key(other) == key_of));
    }
    for item in to.iter().filter(|item| !from.iter().any(|other| key(other) == key(item))) {
        pair(key(item), None, Some(item));
    }
}

fn presence(place: &str, field: &str, was: bool, is: bool) -> Difference {
    let word = |there: bool| if there { "there" } else { "not there" }.to_owned();
    Difference { place: place.to_owned(), field: field.to_owned(), from: word(was), to: word(is) }
}

fn sessions(place: &str, from: &Session, to: &Session, found: &mut Vec<Difference>) {
    fields(
        place,
        &[
            ("directory", from.directory.clone(), to.directory.clone()),
            ("labels", from.labels.to_string(), to.labels.to_string()),
            ("environment", format!("{:?}", from.environment), format!("{:?}", to.environment)),
            ("group", option(from.grouped_with.as_ref()), option(to.grouped_with.as_ref())),
            ("current", option(from.current.as_ref()), option(to.current.as_ref())),
            ("last", option(from.last.as_ref()), option(to.last.as_ref())),
        ],
        found,
    );
    let numbered =
        |session: &Session| -> Vec<(usize, Window)> { session.windows.iter().cloned().enumerate().collect() };
    let (from, to) = (numbered(from), numbered(to));
    let key = |(at, window): &(usize, Window)| window.index.map_or_else(|| format!("#{at}"), |index| index.to_string());
    pairs(&from, &to, key, &mut |key, from, to| {
        let place = format!("{place}:{key}");
        match (from, to) {
            (Some((_, from)), Some((_, to))) => windows(&place, from, to, found),
            (from, to) => found.push(presence(&place, "window", from.is_some(), to.is_some())),
        }
    });
}

fn windows(place: &str, from: &Window, to: &Window, found: &mut Vec<Difference>) {
    let size = |window: &Window| window.size.map(|(columns, rows)| format!("{columns}x{rows}")).unwrap_or_default();
    let linked = |window: &Window| window.linked.as_ref().map(|(name, at)| format!("{name}:{at}")).unwrap_or_default();
    fields(
        place,
        &[
            ("name", from.name.clone(), to.name.clone()),
            ("automatic name", from.auto_name.to_string(), to.auto_name.to_string()),
            ("current", from.current.to_string(), to.current.to_string()),
            ("last", from.last.to_string(), to.last.to_string()),
            ("size", size(from), size(to)),
            ("fixed size", from.fixed_size.to_string(), to.fixed_size.to_string()),
            ("layout", from.layout.clone(), to.layout.clone()),
            ("zoomed", from.zoomed.to_string(), to.zoomed.to_string()),
            ("synchronized", from.synchronized.to_string(), to.synchronized.to_string()),
            ("linked", linked(from), linked(to)),
        ],
        found,
    );
    for at in 0..from.panes.len().max(to.panes.len()) {
        let place = format!("{place}.{at}");
        match (from.panes.get(at), to.panes.get(at)) {
            (Some(from), Some(to)) => panes(&place, from, to, found),
            (from, to) => found.push(presence(&place, "pane", from.is_some(), to.is_some())),
        }
    }
}

fn panes(place: &str, from: &Pane, to: &Pane, found: &mut Vec<Difference>) {
    fields(
        place,
        &[
            ("directory", from.directory.clone(), to.directory.clone()),
            ("title", from.title.clone(), to.title.clone()),
            ("labels", from.labels.to_string(), to.labels.to_string()),
            ("active", from.active.to_string(), to.active.to_string()),
            ("last", from.last.to_string(), to.last.to_string()),
            ("program", from.argv.join(" "), to.argv.join(" ")),
            ("lines", from.lines.join("; "), to.lines.join("; ")),
            ("floating", format!("{:?}", from.floating), format!("{:?}", to.floating)),
        ],
        found,
    );
}

fn option(value: Option<&impl ToString>) -> String {
    value.map(ToString::to_string).unwrap_or_default()
}

fn fields(place: &str, values: &[(&str, String, String)], found: &mut Vec<Difference>) {
    let differ = values.iter().filter(|(_, from, to)| from != to);
    found.extend(differ.map(|(field, from, to)| Difference {
        place: place.to_owned(),
        field: (*field).to_owned(),
        from: from.clone(),
        to: to.clone(),
    }));
}
