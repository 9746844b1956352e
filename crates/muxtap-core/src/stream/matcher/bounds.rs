//! Limits on the cost of a matcher and its patterns.

/// Limits on the patterns of one wait and the memory of its matcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Patterns in one set.
    pub patterns: usize,
    /// Bytes of one pattern's text.
    pub pattern_bytes: usize,
    /// Bytes of a set's compiled automaton; a pattern that is compiled alone
    /// ([`compile_one`](crate::stream::patterns::compile_one)) has the same.
    pub compiled_bytes: usize,
    /// Bytes of recent match text that a matcher keeps at most, between chunks; the length of the
    /// longest match that is reported whole.
    pub window_bytes: usize,
    /// Bytes that an automaton's lazily built states may take. When they are full they are dropped
    /// and built anew.
    pub cache_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            patterns: 64,
            pattern_bytes: 64 << 10,
            compiled_bytes: 10 << 20,
            window_bytes: 64 << 10,
            cache_bytes: 256 << 10,
        }
    }
}
