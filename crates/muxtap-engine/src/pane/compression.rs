//! Compression of a pane's history in memory.

use super::{MemoryDelta, PaneState};

impl PaneState {
    /// Begins a compression, unless nothing can be compressed or one has begun.
    pub(crate) fn begin_compression(&self) -> bool {
        self.lock().uncounted().output.screen.begin_compression()
    }

    /// Compresses a part of the history. Returns whether nothing is left to compress.
    pub(crate) fn compress_next(&self) -> (bool, MemoryDelta) {
        let mut locked = self.lock();
        let before = locked.held_bytes();
        let is_over = !locked.uncounted().output.screen.compress_next();
        (is_over, locked.memory_since(before))
    }
}
