//! Window layouts: `bb62,159x48,0,0{79x48,0,0,79x48,80,0}` as a tree (F23).

use super::{field::number, ids::PaneId};
use nom::{IResult, Parser, bytes::complete::tag, combinator::opt, sequence::preceded};
use std::fmt::{self, Write as _};

/// The deepest nesting of cells. tmux itself rejects deep strings only from 3.7 on, beyond 1000
/// levels; real windows stay under ten.
pub const MAX_DEPTH: usize = 64;

/// A window's layout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The tiled cells; `None` where all panes of the window float (3.7).
    pub root: Option<Cell>,
    /// The panes that float above the tiled ones, topmost first. 3.7 writes them; older servers
    /// have no floating panes, and 3.8 omits them from the layouts for control clients: only
    /// `list-panes` reports them.
    pub floating: Vec<Cell>,
}

/// A rectangle of a window. Sizes and positions are in character cells; borders lie between cells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cell {
    /// The width.
    pub w: u32,
    /// The height.
    pub h: u32,
    /// The column of the left edge; negative where a floating pane extends past the window's edge.
    pub x: i32,
    /// The row of the top edge; negative where a floating pane extends past the window's edge.
    pub y: i32,
    /// The content of the rectangle.
    pub kind: CellKind,
}

/// The content of a cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CellKind {
    /// A pane.
    Pane(PaneId),
    /// Cells side by side, `{…}`.
    LeftRight(Vec<Cell>),
    /// Cells one above the other, `[…]`.
    TopBottom(Vec<Cell>),
}

/// The reason for which a text is not a layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// The text does not have the form of a layout.
    #[error("not a tmux layout")]
    Malformed,
    /// The four hexadecimal digits at the start do not match the rest.
    #[error("layout checksum is {found:04x}, should be {expected:04x}")]
    Checksum {
        /// The checksum in the text.
        found: u16,
        /// The checksum of the rest of the text.
        expected: u16,
    },
    /// More than [`MAX_DEPTH`] cells inside each other.
    #[error("layout nests deeper than {MAX_DEPTH} cells")]
    TooDeep,
}

/// Returns tmux's checksum of a layout: for each byte, rotate right by one and add the byte (F23).
pub fn checksum(body: &[u8]) -> u16 {
    // tmux adds a signed char; the layouts that tmux writes are ASCII.
    body.iter().fold(0, |sum: u16, &byte| sum.rotate_right(1).wrapping_add(u16::from(byte)))
}

impl Layout {
    /// Parses `CSUM,WxH,X,Y…` and verifies the checksum.
    pub fn parse(text: &[u8]) -> Result<Self, LayoutError> {
        let (sum, body) = text.split_at_checked(4).ok_or(LayoutError::Malformed)?;
        let body = body.strip_prefix(b",").ok_or(LayoutError::Malformed)?;
        if !sum.iter().all(u8::is_ascii_hexdigit) {
            return Err(LayoutError::Malformed);
        }
        let sum = std::str::from_utf8(sum).ok().and_then(|sum| u16::from_str_radix(sum, 16).ok());
        let found = sum.ok_or(LayoutError::Malformed)?;
        let expected = checksum(body);
        if found != expected {
            return Err(LayoutError::Checksum { found, expected });
        }
        Self::parse_body(body)
    }

    /// Parses the text after the checksum.
    fn parse_body(body: &[u8]) -> Result<Self, LayoutError> {
        if depth(body) > MAX_DEPTH {
            return Err(LayoutError::TooDeep);
        }
        let floating = (tag(&b"<"[..]), cells, tag(&b">"[..])).map(|(_, cells, _)| cells);
        let (left, (root, floating)) = (opt(cell), opt(floating)).parse(body).map_err(|_| LayoutError::Malformed)?;
        if !left.is_empty() || (root.is_none() && floating.is_none()) {
            return Err(LayoutError::Malformed);
        }
        Ok(Self { root, floating: floating.unwrap_or_default() })
    }

    /// Returns the panes, tiled ones first, in the order of the text: tmux's pane order.
    pub fn panes(&self) -> impl Iterator<Item = PaneId> + '_ {
        self.leaves().map(|(pane, _)| pane)
    }

    /// Returns the panes with the cells that they fill, in the order of [`Layout::panes`].
    pub fn leaves(&self) -> impl Iterator<Item = (PaneId, &Cell)> + '_ {
        let mut stack: Vec<&Cell> = self.floating.iter().rev().chain(&self.root).collect();
        std::iter::from_fn(move || {
            while let Some(cell) = stack.pop() {
                match &cell.kind {
                    CellKind::Pane(pane) => return Some((*pane, cell)),
                    CellKind::LeftRight(cells) | CellKind::TopBottom(cells) => stack.extend(cells.iter().rev()),
                }
            }
            None
        })
    }
}

/// Returns the deepest nesting of brackets. This count comes before parsing, and so bounds the
/// parser's recursion.
fn depth(body: &[u8]) -> usize {
    let mut open: usize = 0;
    let mut deepest = 0;
    for byte in body {
        match byte {
            b'{' | b'[' | b'<' => open += 1,
            b'}' | b']' | b'>' => open = open.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(open);
    }
    deepest
}

fn offset(input: &[u8]) -> IResult<&[u8], i32> {
    let (left, (minus, digits)) = (opt(tag(&b"-"[..])), number::<u32>).parse(input)?;
    let value = i64::from(digits) * if minus.is_some() { -1 } else { 1 };
    match i32::try_from(value) {
        Ok(value) => Ok((left, value)),
        Err(_) => nom::combinator::fail().parse(input),
    }
}

fn cells(input: &[u8]) -> IResult<&[u8], Vec<Cell>> {
    nom::multi::separated_list1(tag(&b","[..]), cell).parse(input)
}

fn cell(input: &[u8]) -> IResult<&[u8], Cell> {
    let (left, (w, _, h, _, x, _, y)) =
        (number, tag(&b"x"[..]), number, tag(&b","[..]), offset, tag(&b","[..]), offset).parse(input)?;
    let (left, kind) = match left.first() {
        Some(b'{') => {
            (tag(&b"{"[..]), cells, tag(&b"}"[..])).map(|(_, cells, _)| CellKind::LeftRight(cells)).parse(left)?
        }
        Some(b'[') => {
            (tag(&b"["[..]), cells, tag(&b"]"[..])).map(|(_, cells, _)| CellKind::TopBottom(cells)).parse(left)?
        }
        _ => preceded(tag(&b","[..]), number).map(|id| CellKind::Pane(PaneId(id))).parse(left)?,
    };
    Ok((left, Cell { w, h, x, y, kind }))
}

impl fmt::Display for Layout {
    /// Writes the text that tmux would write, checksum included.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut body = self.root.as_ref().map(Cell::to_string).unwrap_or_default();
        if !self.floating.is_empty() {
            write!(body, "<{}>", Joined(&self.floating))?;
        }
        write!(f, "{:04x},{body}", checksum(body.as_bytes()))
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{},{},{}", self.w, self.h, self.x, self.y)?;
        match &self.kind {
            CellKind::Pane(pane) => write!(f, ",{}", pane.0),
            CellKind::LeftRight(cells) => write!(f, "{{{}}}", Joined(cells)),
            CellKind::TopBottom(cells) => write!(f, "[{}]", Joined(cells)),
        }
    }
}

struct Joined<'a>(&'a [Cell]);

impl fmt::Display for Joined<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, cell) in self.0.iter().enumerate() {
            if at > 0 {
                f.write_str(",")?;
            }
            cell.fmt(f)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn round_trip(text: &str) -> Layout {
        let layout = Layout::parse(text.as_bytes()).unwrap();
        assert_eq!(layout.to_string(), text);
        layout
    }

    fn summed(body: &str) -> String {
        format!("{:04x},{body}", checksum(body.as_bytes()))
    }

    /// The texts are what tmux 3.3a wrote for a window that was split three times.
    #[test]
    fn layouts_are_trees() {
        let layout = round_trip("d03d,159x48,0,0,0");
        assert_eq!(layout.root, Some(Cell { w: 159, h: 48, x: 0, y: 0, kind: CellKind::Pane(PaneId(0)) }));

        let layout = round_trip(
            "3777,159x48,0,0{79x48,0,0,0,79x48,80,0[79x24,80,0,1,79x23,80,25{39x23,80,25,2,39x23,120,25,3}]}",
        );
        let Some(Cell { kind: CellKind::LeftRight(halves), .. }) = &layout.root else { panic!("{layout:?}") };
        let CellKind::TopBottom(right) = &halves[1].kind else { panic!("{layout:?}") };
        assert_eq!(
            right.iter().map(|cell| (cell.w, cell.h, cell.x, cell.y)).collect::<Vec<_>>(),
            [(79, 24, 80, 0), (79, 23, 80, 25)]
        );
        assert_eq!(layout.panes().collect::<Vec<_>>(), [0, 1, 2, 3].map(PaneId));
        let last = layout.leaves().last().map(|(pane, cell)| (pane, cell.x));
        assert_eq!(last, Some((PaneId(3), 120)));
    }

    #[test]
    fn floating_panes_follow_the_root_and_may_hang_over_the_edge() {
        let layout = round_trip(&summed("80x24,0,0{40x24,0,0,0,39x24,41,0,1}<20x5,-3,-1,4,10x5,70,22,2>"));
        assert_eq!(layout.floating.iter().map(|cell| (cell.x, cell.y)).collect::<Vec<_>>(), [(-3, -1), (70, 22)]);
        assert_eq!(layout.panes().collect::<Vec<_>>(), [0, 1, 4, 2].map(PaneId));
        let layout = round_trip(&summed("<20x5,3,1,4>"));
        assert_eq!((layout.root.is_none(), layout.panes().count()), (true, 1), "nothing is tiled");
    }

    #[test]
    fn a_layout_with_a_wrong_checksum_is_rejected() {
        assert_eq!(Layout::parse(b"d03e,159x48,0,0,0"), Err(LayoutError::Checksum { found: 0xd03e, expected: 0xd03d }));
    }

    #[test]
    fn what_is_no_layout_is_malformed() {
        for body in [
            "",
            "80x24",
            "80x24,0,0",
            "80x24,0,0,",
            "80x24,0,0,1,",
            "80x24,0,0{}",
            "80x24,0,0{1x1,0,0,1]",
            "x24,0,0,1",
            "80x24,0,0,%1",
            "80x24,0,0,1<>",
            "80x24,0,0,1<1x1,0,0,2",
            "80x24,--1,0,1",
            "80x24,2147483648,0,1",
            "80x24,0,0{1x1,0,0,1,}",
            "<>",
            "80x24,0,0,1 ",
            "99999999999x1,0,0,1",
        ] {
            assert_eq!(Layout::parse(summed(body).as_bytes()), Err(LayoutError::Malformed), "{body}");
        }
        for text in ["", "d03", "d03d", "d03d 159x48,0,0,0", "+03d,159x48,0,0,0", "d03g,159x48,0,0,0"] {
            assert_eq!(Layout::parse(text.as_bytes()), Err(LayoutError::Malformed), "{text}");
        }
    }

    #[test]
    fn nesting_is_bounded() {
        let nested = |depth| summed(&format!("{}1x1,0,0,1{}", "1x1,0,0{".repeat(depth), "}".repeat(depth)));
        assert!(Layout::parse(nested(MAX_DEPTH).as_bytes()).is_ok());
        assert_eq!(Layout::parse(nested(MAX_DEPTH + 1).as_bytes()), Err(LayoutError::TooDeep));
        assert_eq!(Layout::parse(nested(1_000_000).as_bytes()), Err(LayoutError::TooDeep));
        let closers = summed(&"}1x1,0,0{".repeat(100_000));
        assert_eq!(Layout::parse(closers.as_bytes()), Err(LayoutError::Malformed), "closers buy no depth");
    }

    fn cell() -> impl Strategy<Value = Cell> {
        let place = (any::<u32>(), any::<u32>(), any::<i32>(), any::<i32>());
        let pane =
            (place, any::<u32>()).prop_map(|((w, h, x, y), id)| Cell { w, h, x, y, kind: CellKind::Pane(PaneId(id)) });
        pane.prop_recursive(6, 48, 4, move |inner| {
            (place, proptest::collection::vec(inner, 1..4), any::<bool>()).prop_map(|((w, h, x, y), cells, beside)| {
                let kind = if beside { CellKind::LeftRight(cells) } else { CellKind::TopBottom(cells) };
                Cell { w, h, x, y, kind }
            })
        })
    }

    proptest! {
        #[test]
        fn a_written_layout_parses_back(root in cell(), floating in proptest::collection::vec(cell(), 0..3)) {
            let layout = Layout { root: Some(root), floating };
            prop_assert_eq!(Layout::parse(layout.to_string().as_bytes()), Ok(layout));
        }
    }
}
