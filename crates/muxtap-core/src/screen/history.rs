//! The lines that scrolled away, packed into blocks.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::packed::{Packed, UNSURE_WRAP, WRAPPED};

/// The number of lines in a block. Blocks are freed whole: a trimmed history holds at most one
/// block of lines more than it shows.
const BLOCK_LINES: usize = 128;
/// The divisor for the spare capacity of a full block: at most a fourth of its length.
const SLACK: usize = 4;

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Block {
    #[serde(with = "crate::stored::bytes")]
    bytes: Vec<u8>,
    /// The start of each line.
    starts: Vec<u32>,
}

impl Block {
    fn line(&self, at: usize) -> &[u8] {
        let Some(start) = self.starts.get(at) else { return &[] };
        let end = self.starts.get(at + 1).map_or(self.bytes.len(), |end| *end as usize);
        self.bytes.get(*start as usize..end).unwrap_or_default()
    }
}

/// The lines from the oldest to the newest.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct History {
    blocks: VecDeque<Block>,
    /// A dropped block's memory, for the next one. Where many panes print, blocks that grow by
    /// doubling and are then shrunk leave holes in the heap into which no new block fits.
    #[serde(skip)]
    spare: Block,
    /// The number of lines of the first block that were dropped.
    dropped: usize,
    lines: usize,
    bytes: usize,
    /// The number of the oldest line.
    first: u64,
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
        if self.blocks.back().is_none_or(|block| block.starts.len() >= BLOCK_LINES) {
            if let Some(full) = self.blocks.back_mut() {
                let before = full.bytes.capacity();
                // A little spare capacity stays: a later block of about that length will use this
                // memory.
                if before - full.bytes.len() > full.bytes.len() / SLACK {
                    full.bytes.shrink_to(full.bytes.len() + full.bytes.len() / (2 * SLACK));
                }
                full.starts.shrink_to_fit();
                self.bytes -= before - full.bytes.capacity();
            }
            self.blocks.push_back(std::mem::take(&mut self.spare));
        }
        let Some(block) = self.blocks.back_mut() else { return };
        let before = block.bytes.capacity();
        block.starts.push(block.bytes.len() as u32);
        pack(&mut block.bytes);
        self.bytes += block.bytes.capacity() - before;
        self.lines += 1;
    }

    /// Returns a line by its number from the oldest.
    pub(super) fn get(&self, line: usize) -> Option<Packed<'_>> {
        if line >= self.lines {
            return None;
        }
        let at = self.dropped + line;
        // Every block but the last is full.
        let block = self.blocks.get(at / BLOCK_LINES)?;
        Some(Packed::read(block.line(at % BLOCK_LINES)))
    }

    /// Returns the lines from this number on.
    pub(super) fn iter_from(&self, line: usize) -> impl Iterator<Item = Packed<'_>> {
        (line..self.lines).filter_map(|line| self.get(line))
    }

    /// Removes the newest line and returns it unpacked.
    pub(super) fn pop<T>(&mut self, unpack: impl FnOnce(Packed<'_>) -> T) -> Option<T> {
        if self.lines == 0 {
            return None;
        }
        let block = self.blocks.back_mut()?;
        let line = unpack(Packed::read(block.line(block.starts.len().checked_sub(1)?)));
        let start = block.starts.pop()?;
        block.bytes.truncate(start as usize);
        self.lines -= 1;
        if block.starts.is_empty() || self.lines == 0 {
            self.bytes -= block.bytes.capacity();
            self.blocks.pop_back();
        }
        if self.lines == 0 {
            self.clear();
        }
        Some(line)
    }

    /// Clears the wrap flag of the newest line.
    pub(super) fn unwrap_last(&mut self) {
        if self.lines == 0 {
            return;
        }
        let Some(block) = self.blocks.back_mut() else { return };
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
            if let Some(mut block) = self.blocks.pop_front() {
                self.bytes -= self.spare.bytes.capacity();
                block.bytes.clear();
                block.starts.clear();
                self.spare = block;
            }
        }
    }

    /// Returns the number of bytes held.
    pub(super) fn memory(&self) -> usize {
        let spare = self.spare.starts.capacity() * size_of::<u32>();
        self.bytes + spare + self.blocks.len() * (size_of::<Block>() + BLOCK_LINES * size_of::<u32>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push(history: &mut History, number: u32) {
        history.push(|out| out.extend([WRAPPED, number.to_le_bytes()[0] & 0x7f, 0]));
    }

    fn numbers(history: &History) -> Vec<u32> {
        history.iter_from(0).map(|line| line.used).collect()
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
            let blocks = history.blocks.iter().chain([&history.spare]).filter(|block| block.bytes.capacity() > 0);
            blocks.map(|block| block.bytes.as_ptr()).collect::<std::collections::BTreeSet<_>>()
        };
        let (before, memory) = (places(&history), history.memory());
        for number in 0..100 * BLOCK_LINES {
            // The blocks differ a little in length.
            line(&mut history, 70 + number % 11);
            let held = history.blocks.iter().map(|block| block.bytes.capacity()).sum::<usize>();
            assert_eq!(history.bytes, held + history.spare.bytes.capacity());
        }
        assert_eq!(places(&history), before);
        assert!(history.memory().abs_diff(memory) < 100, "{} and {memory}", history.memory());
        history.drop_oldest(usize::MAX);
        assert_eq!(history.memory(), 0);
    }

    #[test]
    fn lines_come_and_go_at_both_ends() {
        let mut history = History::default();
        for number in 0..300 {
            push(&mut history, number);
        }
        history.drop_oldest(130);
        assert_eq!(history.first(), 130);
        assert_eq!(numbers(&history), (130..300).map(|number| number & 0x7f).collect::<Vec<_>>());
        assert_eq!(history.pop(|line| line.used), Some(299 % 128));
        for _ in 0..60 {
            history.pop(|_| ());
        }
        push(&mut history, 5);
        assert_eq!(history.len(), 110);
        assert_eq!(numbers(&history).last(), Some(&5));
        history.unwrap_last();
        assert!(!history.get(109).unwrap().wrapped() && history.get(108).unwrap().wrapped());
        while history.pop(|_| ()).is_some() {}
        assert_eq!((history.len(), history.memory(), history.first()), (0, 0, 130));
        push(&mut history, 1);
        history.clear();
        assert_eq!((history.len(), history.first()), (0, 131), "a number is not used again");
    }
}
