//! Layouts without ids: panes are numbered in the order of the text.

use muxtap_core::protocol::{
    ids::PaneId,
    layout::{Cell, CellKind, Layout},
};

/// A window's layout, and the panes at its places.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Numbered {
    /// tmux's text, with panes numbered from 0; floating panes are left out.
    pub text: String,
    /// The tiled panes, in the order of the text.
    pub tiled: Vec<PaneId>,
    /// The size of the whole window.
    pub size: (u32, u32),
}

/// Returns a layout with numbered panes. `None`: the text is not a layout, or every pane floats.
///
/// `floating`: panes that are not tiled, which 3.7 lists among the others.
pub fn numbered(text: &str, floating: &[PaneId]) -> Option<Numbered> {
    let layout = Layout::parse(text.as_bytes()).ok()?;
    let aside: Vec<PaneId> = layout.floating.iter().filter_map(pane_of).chain(floating.iter().copied()).collect();
    let mut root = without(layout.root?, &aside)?;
    let mut tiled = Vec::new();
    number(&mut root, &mut tiled);
    let size = (root.w, root.h);
    Some(Numbered { text: Layout { root: Some(root), floating: Vec::new() }.to_string(), tiled, size })
}

/// The layouts that every version of tmux knows by name.
const NAMES: [&str; 5] = ["even-horizontal", "even-vertical", "main-horizontal", "main-vertical", "tiled"];

/// Returns whether a layout may be sent to tmux.
///
/// Only such layouts are sent, because 3.3a crashes at an invalid one.
pub fn is_known(layout: &str) -> bool {
    NAMES.contains(&layout) || panes(layout).is_some()
}

/// Removes the escapes with which tmux stores names of sessions and windows (vis(3), C style).
///
/// tmux would escape an escaped name again.
pub fn unescaped(name: &str) -> String {
    let mut plain = String::with_capacity(name.len());
    let mut rest = name.chars().peekable();
    while let Some(each) = rest.next() {
        if each != '\\' {
            plain.push(each);
            continue;
        }
        let control = match rest.peek() {
            Some('\\') => '\\',
            Some('$') => '$',
            Some('"') => '"',
            Some('n') => '\n',
            Some('t') => '\t',
            Some('r') => '\r',
            Some('a') => '\u{7}',
            Some('b') => '\u{8}',
            Some('v') => '\u{b}',
            Some('f') => '\u{c}',
            Some('s') => ' ',
            Some(digit) if digit.is_digit(8) => {
                let digits: String = rest.clone().take(3).take_while(|digit| digit.is_digit(8)).collect();
                match u8::from_str_radix(&digits, 8) {
                    Ok(byte) if byte < 0x80 => {
                        plain.push(char::from(byte));
                        for _ in digits.chars() {
                            rest.next();
                        }
                    }
                    // A byte that is not valid UTF-8.
                    _ => plain.push(each),
                }
                continue;
            }
            _ => {
                plain.push(each);
                continue;
            }
        };
        plain.push(control);
        rest.next();
    }
    plain
}

/// Returns the number of panes in a layout. `None`: the text is not a tmux layout.
pub fn panes(text: &str) -> Option<usize> {
    Layout::parse(text.as_bytes()).ok().map(|layout| layout.panes().count())
}

fn pane_of(cell: &Cell) -> Option<PaneId> {
    match cell.kind {
        CellKind::Pane(pane) => Some(pane),
        CellKind::LeftRight(_) | CellKind::TopBottom(_) => None,
    }
}

/// Removes panes from a tree. A cell with one remaining child becomes that child.
fn without(cell: Cell, aside: &[PaneId]) -> Option<Cell> {
    let Cell { w, h, x, y, kind } = cell;
    let inner = |cells: Vec<Cell>| -> Vec<Cell> { cells.into_iter().filter_map(|cell| without(cell, aside)).collect() };
    let (mut cells, side_by_side) = match kind {
        CellKind::Pane(pane) => return (!aside.contains(&pane)).then_some(Cell { w, h, x, y, kind }),
        CellKind::LeftRight(cells) => (inner(cells), true),
        CellKind::TopBottom(cells) => (inner(cells), false),
    };
    if cells.len() <= 1 {
        return cells.pop();
    }
    let kind = if side_by_side { CellKind::LeftRight(cells) } else { CellKind::TopBottom(cells) };
    Some(Cell { w, h, x, y, kind })
}

fn number(cell: &mut Cell, seen: &mut Vec<PaneId>) {
    match &mut cell.kind {
        CellKind::Pane(pane) => {
            let next = PaneId(seen.len() as u32);
            seen.push(std::mem::replace(pane, next));
        }
        CellKind::LeftRight(cells) | CellKind::TopBottom(cells) => {
            for cell in cells {
                number(cell, seen);
            }
        }
    }
}
