//! Limits on the cost of a matcher and its patterns.

/// Limits on the patterns of one wait and the memory of its matcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The maximum number of patterns in one set.
    pub patterns: usize,
    /// The maximum number of bytes of one pattern's text.
    pub pattern_bytes: usize,
    /// The maximum number of bytes of a set's compiled automaton, and of a pattern that is compiled
    /// alone ([`compile_one`](crate::stream::patterns::compile_one)).
    pub compiled_bytes: usize,
    /// The maximum number of bytes of recent match text that a matcher keeps between chunks; also
    /// the length of the longest match that is reported whole.
    pub window_bytes: usize,
    /// The maximum number of bytes of an automaton's lazily built states. When they are full, they
    /// are dropped and built again.
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
