//! Layouts without ids: panes are numbered as they stand in the text.

use crate::protocol::{
    ids::PaneId,
    layout::{Cell, CellKind, Layout},
};

/// A window's layout, and which pane stood where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Numbered {
    /// tmux's text, with panes numbered from 0; floating panes are left out.
    pub text: String,
    /// The tiled panes, in the order of the text.
    pub tiled: Vec<PaneId>,
    /// The size of the whole.
    pub size: (u32, u32),
}

/// Returns a layout with its panes numbered. `floating`: panes that are not tiled, which 3.7 writes
/// among the others. `None`: the text is no layout, or every pane floats.
pub fn numbered(text: &str, floating: &[PaneId]) -> Option<Numbered> {
    let layout = Layout::parse(text.as_bytes()).ok()?;
    let aside: Vec<PaneId> = layout.floating.iter().filter_map(pane_of).chain(floating.iter().copied()).collect();
    let mut root = without(layout.root?, &aside)?;
    let mut tiled = Vec::new();
    number(&mut root, &mut tiled);
    let size = (root.w, root.h);
    Some(Numbered { text: Layout { root: Some(root), floating: Vec::new() }.to_string(), tiled, size })
}

/// Returns how many panes a layout's text has. `None`: it is no text of tmux's.
pub fn panes(text: &str) -> Option<usize> {
    Layout::parse(text.as_bytes()).ok().map(|layout| layout.panes().count())
}

fn pane_of(cell: &Cell) -> Option<PaneId> {
    match cell.kind {
        CellKind::Pane(pane) => Some(pane),
        CellKind::LeftRight(_) | CellKind::TopBottom(_) => None,
    }
}

/// Takes panes out of a tree. A cell that is left with one child is that child.
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
            cells.iter_mut().for_each(|cell| number(cell, seen));
        }
    }
}
