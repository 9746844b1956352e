//! Panes beside a pane, found in the layout of their window.
//!
//! tmux resolves `{up-of}` and similar words from the pane that its *client* shows, whatever window
//! the target names (N88). Therefore muxtap resolves them itself.

use muxtap_core::protocol::ids::PaneId;

/// A pane's place in its window, in cells, without its borders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    id: PaneId,
    left: u32,
    top: u32,
    width: u32,
    height: u32,
}

/// Returns the panes beside a pane in the direction of a word such as `{up-of}`, wrapping around
/// the window's edges like tmux. `None` for any other word.
pub(super) fn beside(layout: &str, pane: PaneId, word: &str) -> Option<Vec<PaneId>> {
    let places = places(layout);
    let own = places.iter().find(|place| place.id == pane).copied();
    let width = places.iter().map(|place| place.left + place.width).max().unwrap_or_default();
    let height = places.iter().map(|place| place.top + place.height).max().unwrap_or_default();
    let touches: fn(Place, Place, u32, u32) -> bool = match word {
        "{up-of}" => |own, other, _, height| {
            let edge = if own.top == 0 { height + 1 } else { own.top };
            other.top + other.height + 1 == edge && overlap(own.columns(), other.columns())
        },
        "{down-of}" => |own, other, _, height| {
            let edge = own.top + own.height + 1;
            other.top == if edge >= height { 0 } else { edge } && overlap(own.columns(), other.columns())
        },
        "{left-of}" => |own, other, width, _| {
            let edge = if own.left == 0 { width + 1 } else { own.left };
            other.left + other.width + 1 == edge && overlap(own.rows(), other.rows())
        },
        "{right-of}" => |own, other, width, _| {
            let edge = own.left + own.width + 1;
            other.left == if edge >= width { 0 } else { edge } && overlap(own.rows(), other.rows())
        },
        _ => return None,
    };
    let others = places.iter().filter(|place| place.id != pane);
    let found =
        own.map(|own| others.filter(|other| touches(own, **other, width, height)).map(|place| place.id).collect());
    Some(found.unwrap_or_default())
}

impl Place {
    fn columns(self) -> (u32, u32) {
        (self.left, self.width)
    }

    fn rows(self) -> (u32, u32) {
        (self.top, self.height)
    }
}

/// Returns whether a pane's side touches another pane's, given the start and length of both. A
/// border counts as its pane's.
fn overlap((own, length): (u32, u32), (other, other_length): (u32, u32)) -> bool {
    let (end, other_end) = (own + length, (other + other_length).saturating_sub(1));
    other < own && other_end > end || (own..=end).contains(&other) || (own..=end).contains(&other_end)
}

/// Parses a layout: `b25d,80x24,0,0[80x12,0,0,1,80x11,0,13,2]`. A cell without a pane's number is a
/// frame around others.
fn places(layout: &str) -> Vec<Place> {
    let mut places = Vec::new();
    // Cells are separated by characters other than digits, except the `x` of a size.
    let mut rest = layout.split_once(',').map_or("", |(_, rest)| rest);
    while let Some(start) = rest.find(|c: char| c.is_ascii_digit()) {
        rest = rest.get(start..).unwrap_or_default();
        let end = rest.find(|c: char| !c.is_ascii_digit() && !matches!(c, 'x' | ',')).unwrap_or(rest.len());
        let (run, behind) = rest.split_at_checked(end).unwrap_or((rest, ""));
        let words: Vec<&str> = run.split(',').filter(|word| !word.is_empty()).collect();
        for cell in words.chunks(4) {
            let [size, left, top, id] = cell else { continue };
            let size =
                size.split_once('x').and_then(|(width, height)| Some((width.parse().ok()?, height.parse().ok()?)));
            let (Some((width, height)), Ok(left), Ok(top), Ok(id)) = (size, left.parse(), top.parse(), id.parse())
            else {
                continue;
            };
            places.push(Place { id: PaneId(id), left, top, width, height });
        }
        rest = behind;
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Panes 1 above 2 and 3, and 4 to the right of all.
    const LAYOUT: &str = "c5f1,100x40,0,0{60x40,0,0[60x20,0,0,1,60x19,0,21{30x19,0,21,2,29x19,31,21,3}],39x40,61,0,4}";

    #[test]
    fn a_layout_has_each_panes_place() {
        let found = places(LAYOUT);
        assert_eq!(found.iter().map(|place| place.id.0).collect::<Vec<_>>(), [1, 2, 3, 4]);
        assert_eq!(found[2], Place { id: PaneId(3), left: 31, top: 21, width: 29, height: 19 });
        assert_eq!(places("b25d,80x24,0,0,7")[0].id, PaneId(7));
        for strange in ["", "b25d", "b25d,80x24", "b25d,80x24,0,0[", "b25d,x,,,,", "b25d,99999999999x1,0,0,1"] {
            assert_eq!(places(strange), [], "{strange}");
        }
    }

    #[test]
    fn panes_beside_a_pane_are_found_round_the_ends() {
        let beside = |pane, word| {
            let found = beside(LAYOUT, PaneId(pane), word).unwrap();
            found.iter().map(|id| id.0).collect::<Vec<_>>()
        };
        assert_eq!(
            (beside(2, "{up-of}"), beside(2, "{right-of}"), beside(2, "{left-of}")),
            (vec![1], vec![3], vec![4])
        );
        assert_eq!((beside(1, "{down-of}"), beside(1, "{up-of}")), (vec![2, 3], vec![2, 3]));
        assert_eq!(
            (beside(4, "{left-of}"), beside(4, "{right-of}"), beside(4, "{up-of}")),
            (vec![1, 3], vec![1, 2], vec![])
        );
        assert_eq!(beside(9, "{up-of}"), Vec::<u32>::new());
        assert_eq!(super::beside(LAYOUT, PaneId(1), "{top}"), None);
    }
}
