//! The lines that scrolled away, packed into blocks.
//!
//! Full blocks can be compressed ([`History::compress_next`]), which is not done while output arrives:
//! it would take as long as drawing it. The last block never is, so a line is appended, taken back
//! and looked at without decompressing anything.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::packed::{Packed, UNSURE_WRAP, WRAPPED, put, take};

/// The number of lines in a block. Blocks are freed whole: a trimmed history holds at most one
/// block of lines more than it shows. Smaller blocks are compressed less well: 128 lines of a log
/// need a tenth to a quarter more.
const BLOCK_LINES: usize = 512;
/// The divisor for the spare capacity of a full block: at most a fourth of its length.
const SLACK: usize = 4;
/// A block stays as it is unless compression saves this part of it, the divisor.
const WORTH: usize = 8;

/// Lines as they were appended.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Plain {
    #[serde(with = "crate::stored::bytes")]
    bytes: Vec<u8>,
    /// The start of each line.
    starts: Vec<u32>,
}

impl Plain {
    fn line(&self, at: usize) -> &[u8] {
        let Some(start) = self.starts.get(at) else { return &[] };
        let end = self.starts.get(at + 1).map_or(self.bytes.len(), |end| *end as usize);
        self.bytes.get(*start as usize..end).unwrap_or_default()
    }

    /// Returns whether each line ends where the next one starts.
    fn is_ordered(&self) -> bool {
        self.starts.is_sorted() && self.starts.last().is_none_or(|last| *last as usize <= self.bytes.len())
    }

    fn memory(&self) -> usize {
        self.bytes.capacity() + self.starts.capacity() * size_of::<u32>()
    }

    /// Returns the block compressed, if that is worth it.
    fn compressed(&self) -> Option<Compressed> {
        let mut plain = Vec::with_capacity(self.starts.len() + self.bytes.len());
        let ends = self.starts.iter().skip(1).copied().chain([self.bytes.len() as u32]);
        for (start, end) in self.starts.iter().zip(ends) {
            put(end.saturating_sub(*start), &mut plain);
        }
        plain.extend_from_slice(&self.bytes);
        let mut bytes = lz4_flex::block::compress(&plain);
        bytes.shrink_to_fit();
        let is_worth_it = bytes.len() < plain.len() - plain.len() / WORTH;
        is_worth_it.then_some(Compressed { length: plain.len() as u32, bytes })
    }
}

/// The lengths of a block's lines and their bytes, in the block format of LZ4.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Compressed {
    /// The number of bytes when decompressed.
    length: u32,
    #[serde(with = "crate::stored::bytes")]
    bytes: Vec<u8>,
}

impl Compressed {
    /// Decompresses the block. A damaged one is empty.
    fn plain(&self) -> Plain {
        // LZ4 cannot shorten more than this: a damaged length must not reserve gigabytes.
        if self.length as usize > 255 * self.bytes.len() {
            return Plain::default();
        }
        let Ok(bytes) = lz4_flex::block::decompress(&self.bytes, self.length as usize) else { return Plain::default() };
        let mut rest = bytes.as_slice();
        let mut starts = Vec::with_capacity(BLOCK_LINES);
        let mut start = 0_u32;
        for _ in 0..BLOCK_LINES {
            starts.push(start);
            start = start.saturating_add(take(&mut rest));
        }
        Plain { bytes: rest.to_vec(), starts }
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
enum Block {
    Plain(Plain),
    /// A full block that compression hardly shortens.
    Dense(Plain),
    Compressed(Compressed),
}

impl Block {
    /// Returns the block's lines, if they are not compressed.
    fn as_plain(&self) -> Option<&Plain> {
        match self {
            Self::Plain(plain) | Self::Dense(plain) => Some(plain),
            Self::Compressed(_) => None,
        }
    }

    fn memory(&self) -> usize {
        match self {
            Self::Plain(plain) | Self::Dense(plain) => plain.memory(),
            Self::Compressed(compressed) => compressed.bytes.capacity(),
        }
    }
}

/// The lines from the oldest to the newest.
///
/// Invariants: every block but the last is full; the last one is `Plain`; no `Plain` block precedes
/// one of the others.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(try_from = "StoredHistory")]
pub(super) struct History {
    blocks: VecDeque<Block>,
    /// A dropped block's memory, for the next one. Where many panes print, blocks that grow by
    /// doubling and are then shrunk leave holes in the heap into which no new block fits.
    #[serde(skip)]
    spare: Plain,
    /// The number of lines of the first block that were dropped.
    dropped: usize,
    lines: usize,
    /// The number of bytes that the blocks hold.
    #[serde(skip)]
    bytes: usize,
    /// The number of the oldest line.
    first: u64,
}

/// The stored form of a history, in this order.
#[derive(Deserialize)]
struct StoredHistory {
    blocks: VecDeque<Block>,
    dropped: usize,
    lines: usize,
    first: u64,
}

impl TryFrom<StoredHistory> for History {
    type Error = &'static str;

    /// Checks the invariants: what is stored may be damaged.
    fn try_from(stored: StoredHistory) -> Result<Self, Self::Error> {
        let StoredHistory { blocks, dropped, lines, first } = stored;
        let held = match blocks.back() {
            Some(Block::Plain(last)) => (blocks.len() - 1) * BLOCK_LINES + last.starts.len(),
            None => 0,
            Some(_) => return Err("the last block of a history is not one that grows"),
        };
        let full = blocks.len().saturating_sub(1);
        let is_whole = |block: &Block| block.as_plain().is_none_or(|plain| plain.starts.len() == BLOCK_LINES);
        let is_ordered = |block: &Block| block.as_plain().is_none_or(Plain::is_ordered);
        let plain_from = blocks.iter().position(|block| matches!(block, Block::Plain(_))).unwrap_or(blocks.len());
        let is_valid = held.checked_sub(dropped) == Some(lines)
            && dropped < BLOCK_LINES
            && first.checked_add(lines as u64).is_some()
            && blocks.iter().take(full).all(is_whole)
            && blocks.iter().all(is_ordered)
            && blocks.iter().skip(plain_from).all(|block| matches!(block, Block::Plain(_)));
        if !is_valid {
            return Err("the blocks of a history do not fit together");
        }
        let bytes = blocks.iter().map(Block::memory).sum();
        Ok(Self { blocks, spare: Plain::default(), dropped, lines, bytes, first })
    }
}

impl History {
    /// Returns the number of the oldest line. Dropped lines keep their numbers.
    pub(super) fn first(&self) -> u64 {
        self.first
    }

    /// Gives the lines the numbers from `other`, which has the same number of lines.
    pub(super) fn take_numbers(&mut self, other: &Self) {
        debug_assert_eq!(self.lines, other.lines);
        self.first = other.first;
    }

    /// Drops all lines. Later lines get higher numbers.
    pub(super) fn clear(&mut self) {
        *self = Self { first: self.first + self.lines as u64, ..Self::default() };
    }

    pub(super) fn len(&self) -> usize {
        self.lines
    }

    /// Appends a line that `pack` writes.
    pub(super) fn push(&mut self, pack: impl FnOnce(&mut Vec<u8>)) {
        match self.blocks.back_mut() {
            Some(Block::Plain(last)) if last.starts.len() < BLOCK_LINES => {}
            Some(Block::Plain(full)) => {
                let before = full.memory();
                // A little spare capacity stays: a later block of about that length will use this
                // memory.
                if full.bytes.capacity() - full.bytes.len() > full.bytes.len() / SLACK {
                    full.bytes.shrink_to(full.bytes.len() + full.bytes.len() / (2 * SLACK));
                }
                self.bytes -= before - full.memory();
                self.begin_block();
            }
            _ => self.begin_block(),
        }
        let Some(Block::Plain(block)) = self.blocks.back_mut() else { return };
        let before = block.memory();
        block.starts.push(block.bytes.len() as u32);
        pack(&mut block.bytes);
        self.bytes += block.memory() - before;
        self.lines += 1;
    }

    fn begin_block(&mut self) {
        let block = std::mem::take(&mut self.spare);
        self.bytes += block.memory();
        self.blocks.push_back(Block::Plain(block));
    }

    /// Returns the newest line.
    pub(super) fn last(&self) -> Option<Packed<'_>> {
        let block = self.blocks.back()?.as_plain()?;
        Some(Packed::read(block.line(block.starts.len().checked_sub(1)?)))
    }

    /// Returns a reader of lines.
    pub(super) fn reader(&self) -> Reader<'_> {
        Reader { history: self, at: usize::MAX, block: Plain::default() }
    }

    /// Removes the newest line and returns it unpacked.
    pub(super) fn pop<T>(&mut self, unpack: impl FnOnce(Packed<'_>) -> T) -> Option<T> {
        let line = unpack(self.last()?);
        let Some(Block::Plain(block)) = self.blocks.back_mut() else { return None };
        let start = block.starts.pop()?;
        block.bytes.truncate(start as usize);
        self.lines = self.lines.checked_sub(1)?;
        if self.lines == 0 {
            self.clear();
        } else if block.starts.is_empty() {
            self.bytes -= block.memory();
            self.blocks.pop_back();
            self.decompress_last();
        }
        Some(line)
    }

    /// Makes the last block one to which lines can be appended.
    fn decompress_last(&mut self) {
        let Some(last) = self.blocks.back_mut() else { return };
        self.bytes -= last.memory();
        *last = Block::Plain(match std::mem::replace(last, Block::Plain(Plain::default())) {
            Block::Plain(plain) | Block::Dense(plain) => plain,
            Block::Compressed(compressed) => compressed.plain(),
        });
        self.bytes += last.memory();
    }

    /// Clears the wrap flag of the newest line.
    pub(super) fn unwrap_last(&mut self) {
        let Some(Block::Plain(block)) = self.blocks.back_mut() else { return };
        if let Some(flags) = block.starts.last().and_then(|start| block.bytes.get_mut(*start as usize)) {
            *flags &= !(WRAPPED | UNSURE_WRAP);
        }
    }

    /// Drops the oldest lines.
    pub(super) fn drop_oldest(&mut self, lines: usize) {
        let lines = lines.min(self.lines);
        self.lines -= lines;
        self.first += lines as u64;
        if self.lines == 0 {
            self.clear();
            return;
        }
        self.dropped += lines;
        while self.dropped >= BLOCK_LINES {
            self.dropped -= BLOCK_LINES;
            let Some(block) = self.blocks.pop_front() else { return };
            self.bytes -= block.memory();
            if let Block::Plain(plain) | Block::Dense(plain) = block {
                self.keep_spare(plain);
            }
        }
    }

    fn keep_spare(&mut self, mut block: Plain) {
        block.bytes.clear();
        block.starts.clear();
        self.spare = block;
    }

    /// Returns whether a block can be compressed.
    pub(super) fn is_compressible(&self) -> bool {
        let at = self.blocks.len().checked_sub(2).and_then(|at| self.blocks.get(at));
        matches!(at, Some(Block::Plain(_)))
    }

    /// Compresses the oldest block that was not yet considered, and frees memory that only further
    /// output would need. Returns whether more blocks are left.
    pub(super) fn compress_next(&mut self) -> bool {
        let next = self.blocks.partition_point(|block| !matches!(block, Block::Plain(_)));
        if next + 1 < self.blocks.len()
            && let Some(block) = self.blocks.get_mut(next)
            && let Block::Plain(plain) = block
        {
            let before = plain.memory();
            *block = match plain.compressed() {
                Some(compressed) => Block::Compressed(compressed),
                None => Block::Dense(std::mem::take(plain)),
            };
            self.bytes = self.bytes + block.memory() - before;
        }
        if self.is_compressible() {
            return true;
        }
        self.spare = Plain::default();
        if let Some(Block::Plain(last)) = self.blocks.back_mut() {
            let before = last.memory();
            last.bytes.shrink_to_fit();
            last.starts.shrink_to_fit();
            self.bytes = self.bytes + last.memory() - before;
        }
        false
    }

    /// Returns the number of bytes held.
    pub(super) fn memory(&self) -> usize {
        self.bytes + self.spare.memory() + self.blocks.capacity() * size_of::<Block>()
    }
}

/// Reads lines. Each compressed block is decompressed once while lines of it are read.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    history: &'a History,
    /// The number of the block that is decompressed.
    at: usize,
    block: Plain,
}

impl Reader<'_> {
    /// Returns a line by its number from the oldest.
    pub(super) fn get(&mut self, line: usize) -> Option<Packed<'_>> {
        if line >= self.history.lines {
            return None;
        }
        let (number, line) = ((self.history.dropped + line) / BLOCK_LINES, (self.history.dropped + line) % BLOCK_LINES);
        let block = match self.history.blocks.get(number)? {
            Block::Plain(plain) | Block::Dense(plain) => plain,
            Block::Compressed(compressed) => {
                if self.at != number {
                    self.block = compressed.plain();
                    self.at = number;
                }
                &self.block
            }
        };
        Some(Packed::read(block.line(line)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push(history: &mut History, number: u32) {
        history.push(|out| out.extend([WRAPPED, number.to_le_bytes()[0] & 0x7f, 0]));
    }

    fn numbers(history: &History) -> Vec<u32> {
        let mut reader = history.reader();
        (0..history.len()).map(|line| reader.get(line).unwrap().used).collect()
    }

    fn held(history: &History) -> usize {
        history.blocks.iter().map(Block::memory).sum()
    }

    #[test]
    fn a_full_history_reuses_its_memory() {
        let mut history = History::default();
        let line = |history: &mut History, length: usize| {
            history.push(|out| out.resize(out.len() + length, b'x'));
            history.drop_oldest(history.len().saturating_sub(10 * BLOCK_LINES));
        };
        for number in 0..20 * BLOCK_LINES {
            line(&mut history, 70 + number % 10);
        }
        let places = |history: &History| {
            let blocks = history.blocks.iter().filter_map(Block::as_plain).chain([&history.spare]);
            let places = blocks.filter(|block| block.bytes.capacity() > 0).map(|block| block.bytes.as_ptr());
            places.collect::<std::collections::BTreeSet<_>>()
        };
        let (before, memory) = (places(&history), history.memory());
        for number in 0..100 * BLOCK_LINES {
            // The blocks differ a little in length.
            line(&mut history, 70 + number % 11);
            assert_eq!(history.bytes, held(&history));
        }
        assert_eq!(places(&history), before);
        assert!(history.memory().abs_diff(memory) < 100, "{} and {memory}", history.memory());
        history.drop_oldest(usize::MAX);
        assert_eq!(history.memory(), 0);
    }

    #[test]
    fn lines_come_and_go_at_both_ends() {
        let mut history = History::default();
        for number in 0..1200 {
            push(&mut history, number);
        }
        history.drop_oldest(530);
        assert_eq!(history.first(), 530);
        assert_eq!(numbers(&history), (530..1200).map(|number| number & 0x7f).collect::<Vec<_>>());
        assert_eq!(history.pop(|line| line.used), Some(1199 % 128));
        for _ in 0..200 {
            history.pop(|_| ());
        }
        push(&mut history, 5);
        assert_eq!(history.len(), 470);
        assert_eq!(numbers(&history).last(), Some(&5));
        history.unwrap_last();
        let mut reader = history.reader();
        assert!(!reader.get(469).unwrap().wrapped() && reader.get(468).unwrap().wrapped());
        while history.pop(|_| ()).is_some() {}
        assert_eq!((history.len(), history.memory(), history.first()), (0, 0, 530));
        push(&mut history, 1);
        history.clear();
        assert_eq!((history.len(), history.first()), (0, 531), "a number is not used again");
    }

    #[test]
    fn a_damaged_block_has_empty_lines() {
        let damaged = Compressed { length: 100, bytes: vec![0xff; 40] };
        assert!(damaged.plain().line(0).is_empty());
        let nothing = lz4_flex::block::compress(&[0xff; 9]);
        assert!(Compressed { length: 9, bytes: nothing }.plain().line(511).is_empty());
        assert!(Compressed { length: u32::MAX, bytes: vec![0; 9] }.plain().starts.is_empty());
    }

    #[test]
    fn a_stored_history_whose_parts_do_not_fit_is_rejected() {
        let mut history = History::default();
        (0..1200).for_each(|number| push(&mut history, number));
        history.drop_oldest(100);
        while history.compress_next() {}
        let stored = |history: &History| postcard::to_allocvec(history).unwrap();
        let read = |bytes: &[u8]| postcard::from_bytes::<History>(bytes);
        let whole = read(&stored(&history)).unwrap();
        assert_eq!((numbers(&whole), whole.bytes), (numbers(&history), held(&whole)));
        let breaks: [fn(&mut History); 6] = [
            |it| it.lines += 1,
            |it| it.dropped += BLOCK_LINES,
            |it| it.first = u64::MAX,
            |it| drop(it.blocks.pop_back()),
            |it| it.blocks.swap(0, 2),
            |it| {
                if let Some(Block::Plain(last)) = it.blocks.back_mut() {
                    last.starts[0] = u32::MAX;
                }
            },
        ];
        for broken in breaks {
            let mut history = history.clone();
            broken(&mut history);
            assert!(read(&stored(&history)).is_err());
        }
    }

    proptest::proptest! {
        /// A history that is compressed at any moments has the same lines as one that never is.
        #[test]
        fn compression_changes_no_line(steps in proptest::collection::vec((0_u8..6, 1_usize..900), 1..40)) {
            let (mut history, mut other) = (History::default(), History::default());
            let mut number = 0_usize;
            for (step, amount) in steps {
                match step {
                    0..=2 => for _ in 0..amount {
                        number += 1;
                        let text = format!("\0{number}: {}", "words and digits ".repeat(number % 7));
                        history.push(|out| out.extend(text.as_bytes()));
                        other.push(|out| out.extend(text.as_bytes()));
                    },
                    3 => for _ in 0..amount {
                        let used = |line: Packed<'_>| (line.used, line.size);
                        proptest::prop_assert_eq!(history.pop(used), other.pop(used));
                    },
                    4 => {
                        history.drop_oldest(amount);
                        other.drop_oldest(amount);
                    }
                    _ => while history.compress_next() {},
                }
                proptest::prop_assert_eq!(history.bytes, held(&history));
                proptest::prop_assert_eq!((history.len(), history.first()), (other.len(), other.first()));
                proptest::prop_assert!(history.blocks.back().is_none_or(|last| matches!(last, Block::Plain(_))));
                let (mut reader, mut plain) = (history.reader(), other.reader());
                for line in 0..=history.len() {
                    let used = |line: Packed<'_>| (line.used, line.size);
                    proptest::prop_assert_eq!(reader.get(line).map(used), plain.get(line).map(used));
                }
            }
            let lines = |history: &History| {
                let blocks = history.blocks.iter().map(|block| match block {
                    Block::Plain(plain) | Block::Dense(plain) => plain.clone(),
                    Block::Compressed(compressed) => compressed.plain(),
                });
                let all = |block: Plain| (0..block.starts.len()).map(|at| block.line(at).to_vec()).collect::<Vec<_>>();
                let lines = blocks.flat_map(all);
                lines.skip(history.dropped).collect::<Vec<_>>()
            };
            proptest::prop_assert_eq!(lines(&history), lines(&other));
        }
    }
}
