//! One cell in eight bytes: its content, style and width.

use serde::{Deserialize, Serialize};

use super::style::{LONG_STYLE, StyleId, UNTOLD_STYLE};

/// The maximum number of bytes of a cluster, in any version: a character and those combined with
/// it.
pub(super) const CLUSTER_BYTES: usize = 32;

/// A cell: its content in the lower half, its look in the upper one (flags and width in that half's
/// low byte, the style's number in the rest). It is a single number, because most questions about
/// many cells can then be answered for several at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Cell(u64);

const PADDING: u32 = 1;
const CLEARED: u32 = 2;
const WIDTH_SHIFT: u32 = 2;
const WIDTH: u32 = 0x3f;
/// In the glyph: the cell contains several characters.
const CLUSTER: u32 = 0x8000_0000;
/// In the glyph: tmux keeps the cell in its long form. From then on the cell stays long, whatever
/// is written over it.
const LONG: u32 = 0x4000_0000;
const TAB: u32 = '\t' as u32;

/// The content of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Glyph {
    Char(char),
    /// An index in [`Clusters`].
    Cluster(u32),
}

impl Cell {
    /// A cell that was never written.
    pub(super) const CLEARED: Self = Self::new(' ' as u32, CLEARED | 1 << WIDTH_SHIFT);
    /// A cell that was erased with a background that no seed reported.
    pub(super) const UNTOLD: Self = Self::erased(UNTOLD_STYLE);
    /// A written space without a style.
    pub(super) const SPACE: Self = Self::new(' ' as u32, 1 << WIDTH_SHIFT);
    /// The right half of a wide character.
    pub(super) const PADDING: Self = Self::new(' ' as u32, PADDING);

    const fn new(glyph: u32, look: u32) -> Self {
        Self(glyph as u64 | (look as u64) << 32)
    }

    /// Makes a cell that is long if its style is.
    const fn styled(glyph: u32, style: StyleId, look: u32) -> Self {
        let long = if style & LONG_STYLE != 0 { LONG } else { 0 };
        Self::new(glyph | long, style << 8 | look)
    }

    /// Makes a cell with an ASCII character.
    pub(super) const fn ascii(byte: u8, style: StyleId) -> Self {
        Self::styled(byte as u32, style, 1 << WIDTH_SHIFT)
    }

    /// Makes the same cell with another ASCII character; this one must contain NUL.
    #[inline]
    pub(super) const fn with_byte(self, byte: u8) -> Self {
        Self(self.0 | byte as u64)
    }

    pub(super) fn character(character: char, width: u8, style: StyleId) -> Self {
        Self::new(u32::from(character) | LONG, style << 8 | u32::from(width) << WIDTH_SHIFT)
    }

    pub(super) fn cluster(index: u32, width: u8, style: StyleId) -> Self {
        Self::new(CLUSTER | LONG | index & !LONG, style << 8 | u32::from(width) << WIDTH_SHIFT)
    }

    /// Makes a tab of the given width.
    pub(super) fn tab(width: u32, style: StyleId) -> Self {
        Self::new(TAB | LONG, style << 8 | (width & WIDTH) << WIDTH_SHIFT)
    }

    /// Makes the right half of a wide character, with a background.
    pub(super) const fn padding(style: StyleId) -> Self {
        Self::styled(' ' as u32, style, PADDING)
    }

    /// Makes a cell that was erased with a background.
    pub(super) const fn erased(style: StyleId) -> Self {
        Self::styled(' ' as u32, style, CLEARED | 1 << WIDTH_SHIFT)
    }

    /// Returns the same cell in the long form.
    pub(super) const fn lengthened(self) -> Self {
        Self(self.0 | LONG as u64)
    }

    /// Returns the cell that results from writing this one over `memory`.
    #[inline]
    pub(super) const fn over(self, memory: Self) -> Self {
        Self(self.0 | memory.0 & LONG as u64)
    }

    /// Returns whether tmux keeps the cell in its long form.
    pub(super) const fn is_long(self) -> bool {
        self.0 & LONG as u64 != 0
    }

    /// Returns the cell as copied to unused memory: in the form that its content needs.
    pub(super) fn copied(self) -> Self {
        let cell = Self(self.0 & !(u64::from(LONG) | u64::from(CLEARED) << 32));
        let needs = cell.low() >= 0x80 || cell.width() > 1 || cell.is_tab() || cell.style() & LONG_STYLE != 0;
        if needs { cell.lengthened() } else { cell }
    }

    fn low(self) -> u32 {
        self.0 as u32 & !LONG
    }

    pub(super) fn glyph(self) -> Glyph {
        if self.is_cluster() {
            Glyph::Cluster(self.low() & !CLUSTER)
        } else {
            Glyph::Char(char::from_u32(self.low()).unwrap_or(' '))
        }
    }

    /// Returns whether the cell contains several characters.
    pub(super) fn is_cluster(self) -> bool {
        self.low() & CLUSTER != 0
    }

    /// Returns the byte, if the cell contains a single ASCII character.
    pub(super) fn as_ascii(self) -> Option<u8> {
        (self.low() < 0x80).then_some(self.0 as u8)
    }

    /// Returns whether the cell is a tab.
    pub(super) fn is_tab(self) -> bool {
        self.low() == TAB
    }

    /// Returns whether the cell's last character is `character`.
    pub(super) fn ends_in(self, character: char, clusters: &Clusters) -> bool {
        match self.glyph() {
            Glyph::Char(only) => only == character,
            Glyph::Cluster(index) => clusters.get(index).ends_with(character.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }

    /// Counts the cells at the start that are ASCII characters with the look of this one.
    pub(super) fn ascii_run(self, cells: &[Self]) -> usize {
        let same = |any: u64| any & !0x7f == 0;
        // Four at once, without a branch for each: one by one, this took a third of the time of
        // plain lines.
        let (fours, _) = cells.as_chunks::<4>();
        let same_four = |four: &&[Self; 4]| same(four.iter().fold(0, |any, cell| any | cell.0 ^ self.0));
        let whole = 4 * fours.iter().take_while(same_four).count();
        whole + cells.iter().skip(whole).take_while(|cell| same(cell.0 ^ self.0)).count()
    }

    /// Returns whether none of these cells was ever written.
    pub(super) fn are_cleared(cells: &[Self]) -> bool {
        cells.iter().fold(0, |any, cell| any | cell.0 ^ Self::CLEARED.0) == 0
    }

    /// Appends the bytes of cells that are ASCII characters.
    pub(super) fn append_ascii(cells: &[Self], out: &mut Vec<u8>) {
        out.extend(cells.iter().map(|cell| cell.0 as u8));
    }

    pub(super) fn style(self) -> StyleId {
        self.look() >> 8
    }

    pub(super) fn width(self) -> u32 {
        self.look() >> WIDTH_SHIFT & WIDTH
    }

    pub(super) fn is_padding(self) -> bool {
        self.look() & PADDING != 0
    }

    pub(super) fn is_cleared(self) -> bool {
        self.look() & CLEARED != 0
    }

    /// Returns style, flags and width at once: cells with the same look differ only in their
    /// glyphs.
    pub(super) fn look(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

/// A character and those combined with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Cluster {
    bytes: [u8; CLUSTER_BYTES],
    length: u8,
}

impl Cluster {
    pub(super) fn new(bytes: &[u8]) -> Option<Self> {
        let mut cluster = Self::default();
        cluster.bytes.get_mut(..bytes.len())?.copy_from_slice(bytes);
        cluster.length = bytes.len() as u8;
        Some(cluster)
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.length)).unwrap_or_default()
    }
}

/// The clusters to which cells refer; swept like styles.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Clusters {
    list: Vec<Cluster>,
    free: Vec<u32>,
    sweep_at: usize,
}

impl Default for Clusters {
    fn default() -> Self {
        Self { list: Vec::new(), free: Vec::new(), sweep_at: 1024 }
    }
}

impl Clusters {
    pub(super) fn get(&self, index: u32) -> &[u8] {
        self.list.get(index as usize).map_or(b" ", Cluster::as_bytes)
    }

    pub(super) fn add(&mut self, cluster: Cluster) -> u32 {
        if let Some(index) = self.free.pop() {
            if let Some(slot) = self.list.get_mut(index as usize) {
                *slot = cluster;
            }
            return index;
        }
        self.list.push(cluster);
        self.list.len() as u32 - 1
    }

    pub(super) fn is_sweep_due(&self) -> bool {
        self.list.len() - self.free.len() >= self.sweep_at
    }

    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    pub(super) fn sweep(&mut self, used: &[bool]) {
        let live = used.iter().rposition(|used| *used).map_or(0, |last| last + 1);
        self.list.truncate(live);
        self.list.shrink_to(1024);
        self.free = (0..live as u32).filter(|index| !used.get(*index as usize).copied().unwrap_or_default()).collect();
        self.sweep_at = ((self.list.len() - self.free.len()) * 2).max(1024);
    }

    pub(super) fn memory(&self) -> usize {
        self.list.capacity() * size_of::<Cluster>() + self.free.capacity() * size_of::<u32>()
    }
}

/// Appends a cell's text; nothing for the right half of a wide character.
pub(super) fn append_text(cell: Cell, clusters: &Clusters, out: &mut Vec<u8>) {
    if cell.is_padding() {
        return;
    }
    match cell.glyph() {
        Glyph::Char(character) => append_character(character, out),
        Glyph::Cluster(index) => out.extend_from_slice(clusters.get(index)),
    }
}

/// Appends a character. Each length is a case of its own, which stores the few bytes without a call
/// of a copying function: that call took a sixth of the time of Chinese text.
fn append_character(character: char, out: &mut Vec<u8>) {
    let mut bytes = [0; 4];
    let length = character.encode_utf8(&mut bytes).len();
    match (length, bytes) {
        (1, [one, ..]) => out.push(one),
        (2, [one, two, ..]) => out.extend_from_slice(&[one, two]),
        (3, [one, two, three, _]) => out.extend_from_slice(&[one, two, three]),
        _ => out.extend_from_slice(&bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_is_eight_bytes_and_gives_back_what_it_was_given() {
        assert_eq!(size_of::<Cell>(), 8);
        let cell = Cell::character('漢', 2, 0x00ff_ffff);
        assert_eq!((cell.glyph(), cell.width(), cell.style()), (Glyph::Char('漢'), 2, 0x00ff_ffff));
        assert!(!cell.is_padding() && !cell.is_cleared());
        assert!(Cell::PADDING.is_padding() && Cell::CLEARED.is_cleared());
        assert_eq!(Cell::cluster(7, 1, 3).glyph(), Glyph::Cluster(7));
    }

    #[test]
    fn a_swept_cluster_makes_room() {
        let mut clusters = Clusters::default();
        let first = clusters.add(Cluster::new(b"a").unwrap());
        let second = clusters.add(Cluster::new(b"b").unwrap());
        clusters.sweep(&[false, true]);
        assert_eq!(clusters.get(second), b"b");
        assert_eq!(clusters.add(Cluster::new(b"c").unwrap()), first);
        assert!(Cluster::new(&[b'x'; 33]).is_none());
    }
}
