//! Differences between tmux versions, as named rules. Nothing else in this floor asks for a
//! version.

use crate::protocol::version::Version;

/// The behaviour of the running tmux where versions differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "each is one difference with a name")]
pub struct Rules {
    proven: bool,
    /// Whether `capture-pane` without `-J` prints all cells of a line that exist, not only those
    /// that were written. From 3.4 on.
    pub(super) prints_untouched_cells: bool,
    /// Whether after a reset `-e` leaves out the codes of default colours. From 3.4 on.
    pub(super) resets_colours: bool,
    /// Whether REP repeats any character, not only ASCII. From 3.4 on.
    pub(super) repeats_any_character: bool,
    /// Whether what joins the cell before is known by its kind (joiners, variation selectors,
    /// modifiers), and some of it makes that cell wide. From 3.4 on.
    pub(super) joins_by_kind: bool,
    /// Whether characters whose width the C library does not know are kept. From 3.4 on.
    pub(super) keeps_unknown_characters: bool,
    /// Whether sixel images are drawn, if it was built so: the cursor goes below them, by the size
    /// of the client's characters. What asks for settings or capabilities (DECRQSS, XTGETTCAP) is
    /// drawn too where it can be read as one. From 3.4 on.
    pub(super) draws_images: bool,
    /// Whether OSC 8 makes hyperlinks, which `-e` prints. From 3.4 on.
    pub(super) keeps_links: bool,
    /// Whether lines of an alternate screen that was resized are reflowed when it is left. Until
    /// 3.3a.
    pub(super) reflows_alternate: bool,
}

impl Rules {
    /// Returns the rules of a version.
    pub fn for_version(version: Version) -> Self {
        let at_least = |minor| version >= Version { major: 3, minor, suffix: None };
        Self {
            // The version numbers are not compared: what stands between was never tried.
            proven: [(3, Some('a')), (5, Some('a'))].contains(&(version.minor, version.suffix)) && version.major == 3,
            prints_untouched_cells: at_least(4),
            resets_colours: at_least(4),
            repeats_any_character: at_least(4),
            joins_by_kind: at_least(4),
            keeps_unknown_characters: at_least(4),
            draws_images: at_least(4),
            keeps_links: at_least(4),
            reflows_alternate: !at_least(4),
        }
    }

    /// Whether the differential suite found no difference for this version. Where it is false, ask
    /// tmux.
    pub fn proven(&self) -> bool {
        self.proven
    }

    /// Whether the output of `-N` is known. Before 3.4 it prints what was written, from 3.4 on the
    /// cells that exist, and how many do can depend on where tmux's reads ended, which is not
    /// known: then tmux is to be asked.
    pub fn knows_trailing(&self) -> bool {
        !self.prints_untouched_cells
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_compared_is_proven() {
        let rules = |text: &str| Rules::for_version(Version::parse(text.as_bytes()).unwrap());
        assert!(rules("3.3a").proven());
        assert!(rules("3.5a").proven());
        assert!(!rules("3.4").proven() && !rules("3.5").proven() && !rules("3.2a").proven());
        assert!(!rules("3.9").proven());
        assert!(!rules("3.3a").repeats_any_character && rules("3.4").repeats_any_character);
    }
}
