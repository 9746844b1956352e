//! The styles of cells: attributes and colors in tmux's terms, interned.

use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hash, Hasher},
};

use serde::{Deserialize, Serialize};

/// A color in tmux's numbering: 0 to 7, 90 to 97 (the bright ones), 8 the default; `38;5;n` and RGB
/// with flags of their own, which keeps `31` and `38;5;1` apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Colour(pub u32);

impl Colour {
    /// The terminal's own color.
    pub const DEFAULT: Self = Self(8);
    /// A background that no seed reported: any in tmux.
    pub(super) const UNTOLD: Self = Self(0x0400_0008);
    /// No underline color, where tmux represents that by 0 and not by 8.
    pub const NONE: Self = Self(0);
    const PALETTE: u32 = 0x0100_0000;
    const RGB: u32 = 0x0200_0000;

    /// Makes a palette color, as from `38;5;n`.
    pub fn palette(index: u8) -> Self {
        Self(Self::PALETTE | u32::from(index))
    }

    /// Makes an RGB color, as from `38;2;r;g;b`.
    pub fn rgb(red: u8, green: u8, blue: u8) -> Self {
        Self(Self::RGB | u32::from(red) << 16 | u32::from(green) << 8 | u32::from(blue))
    }

    /// Returns the index of a palette color.
    pub fn as_palette(self) -> Option<u8> {
        (self.0 & Self::PALETTE != 0).then_some(self.0.to_le_bytes()[0])
    }

    /// Returns red, green and blue of an RGB color.
    pub fn as_rgb(self) -> Option<[u8; 3]> {
        let [blue, green, red, _] = self.0.to_le_bytes();
        (self.0 & Self::RGB != 0).then_some([red, green, blue])
    }

    /// Returns whether the color is tmux's `COLOUR_DEFAULT`.
    pub fn is_default(self) -> bool {
        self == Self::DEFAULT || self == Self::UNTOLD
    }
}

/// Attributes as bits.
pub mod attribute {
    /// SGR 1.
    pub const BRIGHT: u16 = 1;
    /// SGR 2.
    pub const DIM: u16 = 1 << 1;
    /// SGR 4.
    pub const UNDERLINE: u16 = 1 << 2;
    /// SGR 5.
    pub const BLINK: u16 = 1 << 3;
    /// SGR 7.
    pub const REVERSE: u16 = 1 << 4;
    /// SGR 8.
    pub const HIDDEN: u16 = 1 << 5;
    /// SGR 3.
    pub const ITALICS: u16 = 1 << 6;
    /// DEC line drawing: the byte is kept, and this attribute says how to interpret it.
    pub const CHARSET: u16 = 1 << 7;
    /// SGR 9.
    pub const STRIKE: u16 = 1 << 8;
    /// SGR 21 or 4:2.
    pub const UNDERLINE_2: u16 = 1 << 9;
    /// SGR 4:3.
    pub const UNDERLINE_3: u16 = 1 << 10;
    /// SGR 4:4.
    pub const UNDERLINE_4: u16 = 1 << 11;
    /// SGR 4:5.
    pub const UNDERLINE_5: u16 = 1 << 12;
    /// SGR 53.
    pub const OVERLINE: u16 = 1 << 13;
    /// A part of the cell's style was not in the seed: tmux may print another. Never printed.
    pub(in crate::screen) const UNTOLD: u16 = 1 << 14;
    /// All kinds of underlining.
    pub const UNDERLINES: u16 = UNDERLINE | UNDERLINE_2 | UNDERLINE_3 | UNDERLINE_4 | UNDERLINE_5;
}

/// The style of a cell: colors and attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Style {
    /// Bits of [`attribute`].
    pub attributes: u16,
    /// The foreground color.
    pub foreground: Colour,
    /// The background color.
    pub background: Colour,
    /// The underline's color; [`Colour::NONE`] or [`Colour::DEFAULT`] if not set, depending on the
    /// version.
    pub underline: Colour,
    /// A hyperlink's number, 0 for no link.
    pub link: u32,
}

impl Style {
    /// The default style: nothing set.
    pub const DEFAULT: Self = Self {
        attributes: 0,
        foreground: Colour::DEFAULT,
        background: Colour::DEFAULT,
        underline: Colour::NONE,
        link: 0,
    };

    /// The default style as far as known: for cells that were erased with a background that no seed
    /// reported.
    pub(super) const UNTOLD: Self = Self { attributes: attribute::UNTOLD, ..Self::DEFAULT };

    /// Returns the style of a cell that was erased with this background.
    pub fn erased(background: Colour) -> Self {
        Self { background, ..Self::DEFAULT }
    }

    /// Returns the style of the remains of a cut cell of this style: its background.
    pub(super) fn cut(&self) -> Self {
        Self { attributes: self.attributes & attribute::UNTOLD, ..Self::erased(self.background) }
    }

    /// Returns the known part of the style. (In a style that is not known, the link identifies the
    /// pen.)
    pub(super) fn shown(&self) -> Self {
        if !self.has(attribute::UNTOLD) {
            return *self;
        }
        Self { attributes: self.attributes & !attribute::UNTOLD, link: 0, ..*self }
    }

    /// Returns whether tmux keeps a cell of this style in its long form.
    pub fn is_long(&self) -> bool {
        self.attributes & !attribute::UNTOLD > 0xff
            || (self.foreground.0 | self.background.0) & Colour::RGB != 0
            || self.underline != Colour::NONE
            || self.link != 0
    }

    /// Returns whether an attribute is set.
    pub fn has(&self, attribute: u16) -> bool {
        self.attributes & attribute != 0
    }
}

impl Default for Style {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl Hash for Style {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(u64::from(self.foreground.0) << 32 | u64::from(self.background.0));
        state.write_u64(u64::from(self.underline.0) << 32 | u64::from(self.link));
        state.write_u64(u64::from(self.attributes));
    }
}

/// A hash of a few words: fast, and an attacker gains nothing from collisions in a table that is
/// swept.
#[derive(Clone, Copy, Debug, Default)]
pub struct WordHasher(u64);

impl Hasher for WordHasher {
    fn finish(&self) -> u64 {
        self.0 ^ self.0 >> 32
    }
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }
    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(23) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

/// The number of a style in a [`Styles`]. 0 is the default style.
pub type StyleId = u32;

/// The number of [`Style::UNTOLD`].
pub(super) const UNTOLD_STYLE: StyleId = 1;

/// In a number: cells with this style are kept in tmux's long form.
pub(super) const LONG_STYLE: StyleId = 1 << 23;

/// The maximum number of styles, practically unlimited: a cell has 24 bits for the number, one of
/// which is [`LONG_STYLE`].
const MOST: usize = 1 << 23;

/// Returns the index of a style in a list of all.
pub(super) fn place(id: StyleId) -> usize {
    (id & !LONG_STYLE) as usize
}

/// The styles to which cells refer. Numbers stay the same until a sweep frees those that no cell
/// uses.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(from = "StoredStyles", into = "StoredStyles")]
pub struct Styles {
    list: Vec<Style>,
    numbers: HashMap<Style, StyleId, BuildHasherDefault<WordHasher>>,
    free: Vec<StyleId>,
    sweep_at: usize,
}

/// The stored form of [`Styles`]: without the index.
#[derive(Serialize, Deserialize)]
struct StoredStyles {
    list: Vec<Style>,
    free: Vec<StyleId>,
    sweep_at: usize,
}

impl From<Styles> for StoredStyles {
    fn from(Styles { list, free, sweep_at, .. }: Styles) -> Self {
        Self { list, free, sweep_at }
    }
}

impl From<StoredStyles> for Styles {
    fn from(StoredStyles { list, free, sweep_at }: StoredStyles) -> Self {
        let mut is_free = vec![false; list.len()];
        for id in &free {
            if let Some(is_free) = is_free.get_mut(*id as usize) {
                *is_free = true;
            }
        }
        let used = list.iter().enumerate().zip(is_free).filter(|(_, is_free)| !is_free);
        let numbers = used.map(|((at, style), _)| (*style, numbered(at as StyleId, *style))).collect();
        Self { list, numbers, free, sweep_at }
    }
}

/// Returns the number of a style at this place of the list.
fn numbered(at: StyleId, style: Style) -> StyleId {
    if style.is_long() && at != UNTOLD_STYLE { at | LONG_STYLE } else { at }
}

impl Default for Styles {
    fn default() -> Self {
        let mut numbers = HashMap::default();
        numbers.insert(Style::DEFAULT, 0);
        numbers.insert(Style::UNTOLD, UNTOLD_STYLE);
        Self { list: vec![Style::DEFAULT, Style::UNTOLD], numbers, free: Vec::new(), sweep_at: 1024 }
    }
}

impl Styles {
    /// Returns a style by its number.
    pub fn get(&self, id: StyleId) -> Style {
        self.list.get(place(id)).copied().unwrap_or_default()
    }

    /// Returns the number of a style; `None` if it has no number.
    pub(super) fn find(&self, style: Style) -> Option<StyleId> {
        self.numbers.get(&style).copied()
    }

    /// Returns the number of a style, or the default's if all numbers are in use.
    pub fn intern(&mut self, style: Style) -> StyleId {
        if style == Style::DEFAULT {
            return 0;
        }
        if let Some(id) = self.numbers.get(&style) {
            return *id;
        }
        let at = if let Some(at) = self.free.pop() {
            if let Some(slot) = self.list.get_mut(at as usize) {
                *slot = style;
            }
            at
        } else if self.list.len() < MOST {
            self.list.push(style);
            self.list.len() as StyleId - 1
        } else {
            return 0;
        };
        let id = numbered(at, style);
        self.numbers.insert(style, id);
        id
    }

    /// Returns whether the number of styles calls for a sweep.
    pub fn is_sweep_due(&self) -> bool {
        self.numbers.len() >= self.sweep_at
    }

    /// Returns the number of places, for a set of those in use.
    pub(super) fn numbers(&self) -> usize {
        self.list.len()
    }

    /// Frees every style whose place in `used` is not set.
    pub fn sweep(&mut self, used: &[bool]) {
        let Self { list, numbers, free, .. } = self;
        numbers.retain(|_, id| {
            let at = place(*id);
            let keep = at <= place(UNTOLD_STYLE) || used.get(at).copied().unwrap_or_default();
            if !keep {
                free.push(at as StyleId);
            }
            keep
        });
        while list.len() > 2 && numbers.len() < list.len() / 4 {
            // An unused tail is removed: otherwise a burst of styles would be kept forever.
            let last = list.len() as StyleId - 1;
            if used.get(last as usize).copied().unwrap_or_default() {
                break;
            }
            list.pop();
        }
        let left = list.len();
        free.retain(|id| (*id as usize) < left);
        free.shrink_to_fit();
        list.shrink_to(1024);
        numbers.shrink_to(1024);
        self.sweep_at = (self.numbers.len() * 2).max(1024);
    }

    /// Returns the number of bytes held.
    pub fn memory(&self) -> usize {
        self.list.capacity() * size_of::<Style>()
            + self.numbers.capacity() * (size_of::<Style>() + size_of::<StyleId>() + 1)
            + self.free.capacity() * size_of::<StyleId>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_style_has_one_number_until_it_is_swept() {
        let mut styles = Styles::default();
        assert_eq!(styles.intern(Style::DEFAULT), 0);
        let red = styles.intern(Style::erased(Colour(1)));
        let green = styles.intern(Style::erased(Colour(2)));
        assert_eq!(styles.intern(Style::erased(Colour(1))), red);
        assert_eq!(styles.get(green).background, Colour(2));
        let mut used = vec![false; styles.numbers()];
        used[green as usize] = true;
        styles.sweep(&used);
        assert_eq!(styles.get(green).background, Colour(2));
        assert_eq!(styles.intern(Style::erased(Colour(3))), red);
    }

    #[test]
    fn colours_of_different_kinds_stay_apart() {
        assert_ne!(Colour(1), Colour::palette(1));
        assert_eq!(Colour::palette(200).as_palette(), Some(200));
        assert_eq!(Colour::rgb(1, 2, 3).as_rgb(), Some([1, 2, 3]));
        assert_eq!(Colour(97).as_palette(), None);
    }
}
