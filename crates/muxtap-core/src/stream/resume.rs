//! The position of a reader of many panes, as one short word for the reader to keep.

use std::{fmt, str::FromStr};

use crate::{
    Cursor, Epoch, Error, Result,
    cursor::{base36, check},
    protocol::ids::PaneId,
};

/// The position of a reader in one pane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The cursor: all bytes before it were read.
    pub cursor: Cursor,
    /// Whether the pane's end was reported, too.
    pub ended: bool,
}

/// The positions of a reader in several panes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resume {
    /// Positions that the word itself contains.
    ///
    /// As text: `r1`, then for each epoch `.SERVER.ENGINE` and `.PANE.OFFSET` for each of its panes
    /// (`PANE.OFFSETx` where its end was reported), epochs separated by `_`; at the end check
    /// digits, as in a [`Cursor`]. Panes of one epoch are grouped. A single cursor is accepted in
    /// place of the word.
    Places(Vec<Place>),
    /// Positions that the engine keeps. As text: `r2.ENGINE.STREAM.POINT` and check digits.
    Point(Point),
}

/// A point of a stream of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    /// Distinguishes runs of muxtap, like [`Epoch::engine`].
    pub engine: u64,
    /// The stream's number in that run.
    pub stream: u64,
    /// The number of steps that its reader had completed.
    pub at: u64,
}

impl fmt::Display for Resume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let body = match self {
            Self::Places(places) => written(places)?,
            Self::Point(Point { engine, stream, at }) => {
                format!("r2.{}.{}.{}", base36(*engine), base36(*stream), base36(*at))
            }
        };
        write!(f, "{body}.{}", check(&body))
    }
}

fn written(places: &[Place]) -> Result<String, fmt::Error> {
    use fmt::Write as _;
    let mut body = String::with_capacity(32 + 16 * places.len());
    body.push_str("r1");
    let mut last: Option<Epoch> = None;
    for Place { cursor, ended } in places {
        if last != Some(cursor.epoch) {
            let Epoch { server, engine } = cursor.epoch;
            let between = if last.is_some() { "_" } else { "." };
            write!(body, "{between}{}.{}", base36(server), base36(engine))?;
            last = Some(cursor.epoch);
        }
        write!(body, ".{}.{}{}", cursor.pane.0, cursor.offset, if *ended { "x" } else { "" })?;
    }
    Ok(body)
}

impl FromStr for Resume {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        if text.starts_with("c1.") {
            return Ok(Self::Places(vec![Place { cursor: text.parse()?, ended: false }]));
        }
        let resume = point(text).map(Self::Point).or_else(|| Some(Self::Places(places(text)?)));
        resume.filter(|resume| resume.to_string() == text).ok_or_else(|| {
            let shown: String = text.chars().take(80).collect();
            Error::invalid(format!("resume: invalid position `{shown}`; pass an event's `id` exactly as received"))
        })
    }
}

/// Parses a word as a point. The caller writes it again to verify that the word came from muxtap.
fn point(text: &str) -> Option<Point> {
    let mut numbers = text.strip_prefix("r2.")?.split('.').map(|part| u64::from_str_radix(part, 36).ok());
    Some(Point { engine: numbers.next()??, stream: numbers.next()??, at: numbers.next()?? })
}

/// Parses a word that contains its positions.
fn places(text: &str) -> Option<Vec<Place>> {
    let (body, _) = text.strip_prefix("r1.")?.rsplit_once('.').unwrap_or_default();
    let mut places = Vec::new();
    for group in body.split('_').filter(|group| !group.is_empty()) {
        let mut parts = group.split('.');
        let mut number = |radix| u64::from_str_radix(parts.next()?, radix).ok();
        let epoch = Epoch { server: number(36)?, engine: number(36)? };
        while let Some(pane) = parts.next() {
            let offset = parts.next()?;
            let (offset, ended) = offset.strip_suffix('x').map_or((offset, false), |offset| (offset, true));
            let cursor = Cursor { epoch, pane: PaneId(pane.parse().ok()?), offset: offset.parse().ok()? };
            places.push(Place { cursor, ended });
        }
    }
    Some(places)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn place(server: u64, pane: u32, offset: u64, ended: bool) -> Place {
        Place { cursor: Cursor { epoch: Epoch { server, engine: 7 }, pane: PaneId(pane), offset }, ended }
    }

    #[test]
    fn it_is_a_short_word() {
        let resume = Resume::Places(vec![place(36, 0, 5, false), place(36, 12, 4711, true), place(37, 0, 1, false)]);
        let text = resume.to_string();
        assert!(text.starts_with("r1.10.7.0.5.12.4711x_11.7.0.1."), "{text}");
        assert_eq!(text.parse::<Resume>().unwrap(), resume);
        assert_eq!(Resume::Places(Vec::new()).to_string().parse::<Resume>().unwrap(), Resume::Places(Vec::new()));
        let point = Resume::Point(Point { engine: u64::from(u32::MAX), stream: 1_000_000, at: 1_000_000_000 });
        let text = point.to_string();
        assert!(text.starts_with("r2.1z141z3.lfls.gjdgxs.") && text.len() < 32, "{text}");
        assert_eq!(text.parse::<Resume>().unwrap(), point);
    }

    #[test]
    fn a_cursor_says_how_far_one_pane_was_told() {
        let one = place(3, 4, 5, false);
        assert_eq!(one.cursor.to_string().parse::<Resume>().unwrap(), Resume::Places(vec![one]));
    }

    #[test]
    fn other_words_are_refused() {
        for word in [
            "",
            "r1",
            "r1.",
            "r2.1.1.0.5.abc",
            "x",
            "c1.1",
            "r1.1.7.0.5",
            "r1.1.7.0.5.000",
            "r1.1.7.0.\u{e9}.000",
            "r2",
            "r2.1.2",
            "r2.1.2.3",
            "r2.1.2.3.000",
        ] {
            assert!(word.parse::<Resume>().is_err(), "{word:?}");
        }
    }

    proptest! {
        #[test]
        fn it_comes_back_and_a_changed_one_is_refused(
            places in proptest::collection::vec((0_u64..3, any::<u32>(), any::<u64>(), any::<bool>()), 0..9),
            point in (any::<bool>(), any::<u64>(), any::<u64>(), any::<u64>()),
            at in any::<prop::sample::Index>(),
        ) {
            let mut places: Vec<_> =
                places.into_iter().map(|(server, pane, offset, ended)| place(server, pane, offset, ended)).collect();
            places.sort_by_key(|place| place.cursor.epoch.server);
            let (is_point, engine, stream, step) = point;
            let point = Resume::Point(Point { engine, stream, at: step });
            let resume = if is_point { point } else { Resume::Places(places) };
            let text = resume.to_string();
            prop_assert_eq!(&text.parse::<Resume>().unwrap(), &resume);
            let at = at.index(text.len());
            let changed = ('0'..='9').chain('a'..='z').chain(['.', '_']).map(|byte| {
                let mut changed = text.clone();
                changed.replace_range(at..=at, byte.encode_utf8(&mut [0; 4]));
                changed
            });
            // The check has three digits: one word of 46,656 has it by chance.
            let taken = changed.filter(|changed| *changed != text && changed.parse::<Resume>().is_ok()).count();
            prop_assert!(taken <= 2, "{taken} changed words of {text}");
        }
    }
}
