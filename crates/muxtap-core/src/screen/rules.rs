//! The differences between tmux versions, as named rules. No other code of this module depends on a
//! version.

use serde::{Deserialize, Serialize};

use crate::protocol::version::Version;

/// The evidence that a version's screens are followed exactly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Proof {
    /// The differential suite found no difference.
    Compared,
    /// According to tmux's history, the changes between this version and one that was compared do
    /// not affect the grid. It was not compared itself.
    ByChanges,
    /// No evidence: ask tmux.
    None,
}

/// The behavior of the running tmux where versions differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(clippy::struct_excessive_bools, reason = "each is one difference with a name")]
pub struct Rules {
    proof: Proof,
    /// Whether `capture-pane` prints all existing cells of a line, not only written ones. Not in
    /// 3.3.
    pub(super) prints_untouched_cells: bool,
    /// Whether it also does this with `-J`. Until 3.2a.
    pub(super) joins_untouched_cells: bool,
    /// Whether `-e` prints the colors of underlines. From 3.3 on.
    pub(super) prints_underline_colours: bool,
    /// Whether `-e` omits the codes of default colors after a reset. From 3.4 on.
    pub(super) resets_colours: bool,
    /// Whether REP repeats any character, not only ASCII. From 3.5 on.
    pub(super) repeats_any_character: bool,
    /// Whether repeating line drawing with REP depends on the build. In 3.5.
    pub(super) repeats_line_drawing_by_build: bool,
    /// Whether a joiner is kept until the next character, which it joins to the cell before. In
    /// 3.3.
    pub(super) joiners_wait: bool,
    /// Whether characters that join the cell before are recognized by their kind (joiners,
    /// variation selectors, modifiers), and some of them make that cell wide. From 3.4 on.
    pub(super) joins_by_kind: bool,
    /// Whether letters of flags and skin tones join only a matching character, and parts of Korean
    /// syllables each other. From 3.6 on.
    pub(super) joins_by_pair: bool,
    /// Whether a flag has at most two letters. From 3.7 on.
    pub(super) pairs_flags: bool,
    /// Whether a character of no width that does not fit into a cluster is dropped. From 3.8 on.
    pub(super) drops_what_has_no_room: bool,
    /// Whether the right half of a cell that became wide is written one column too far. In 3.4.
    pub(super) widens_too_far: bool,
    /// Whether the cursor stays in place if a joined cell extends past the window. From 3.7 on.
    pub(super) moves_where_visible: bool,
    /// Whether a place beyond the window's last column counts as inside. In 3.7.
    pub(super) sees_outside: bool,
    /// Whether tmux looks for that place as if the pane were at the window's left edge, where
    /// another pane may be. In 3.7.
    pub(super) widens_by_layout: bool,
    /// Whether a cluster has up to 32 bytes, not 21. From 3.6 on.
    pub(super) long_clusters: bool,
    /// Whether characters of unknown width in the C library are kept. Not in 3.3.
    pub(super) keeps_unknown_characters: bool,
    /// Whether `#{w:…}` is safe for any character. 3.3 never returns from a character whose width
    /// the C library does not know: the server hangs. From 3.4 on.
    pub(super) widths_can_be_asked: bool,
    /// Whether C1 controls are among the characters of unknown width, one column wide. Until 3.2a.
    pub(super) widens_controls: bool,
    /// Whether invalid bytes are printed as U+FFFD. From 3.6 on.
    pub(super) prints_invalid: bool,
    /// Whether the letters of flags are wide. From 3.4 to 3.5.
    pub(super) wide_flags: bool,
    /// Whether a tab over blanks is kept as a tab. From 3.6 on.
    pub(super) keeps_tabs: bool,
    /// Whether a partly overwritten tab leaves tabs of one column. In 3.6 and 3.7.
    pub(super) splits_tabs: bool,
    /// Whether right halves of wide characters are short cells, and then count as a column in
    /// reflow. From 3.6 on.
    pub(super) short_padding: bool,
    /// Whether right halves have the background of the left ones, and the remains of cut wide
    /// characters keep it. From 3.8 on.
    pub(super) colours_padding: bool,
    /// Whether text cuts a wide character in the first column like any other. From 3.6 on.
    pub(super) cuts_first_column: bool,
    /// Whether text blanks a right half without a left one in the first column. From 3.7 on.
    pub(super) cuts_orphans: bool,
    /// Whether erased cells stay in their long form. From 3.7 on.
    pub(super) erases_in_place: bool,
    /// Whether all written cells are in the long form. In 3.4.
    pub(super) only_long_cells: bool,
    /// Whether sixel images are drawn, if tmux was built with them: the cursor moves below them, by
    /// the size of the client's characters. From 3.4 on.
    pub(super) draws_images: bool,
    /// Whether requests for settings or capabilities (DECRQSS, XTGETTCAP) are treated as images if
    /// they parse as images. Until 3.5.
    pub(super) draws_requests: bool,
    /// Whether OSC 8 makes hyperlinks, which `-e` prints. From 3.4 on.
    pub(super) keeps_links: bool,
    /// Whether a pane that stays when its process ends gets a row, whatever its options. Until
    /// 3.2a.
    always_draws_at_death: bool,
    /// Whether the lines of an alternate screen that was resized are reflowed on leaving it. Until
    /// 3.3.
    pub(super) reflows_alternate: bool,
}

impl Rules {
    /// Returns the rules of a version.
    pub fn for_version(version: Version) -> Self {
        let from = |minor| version >= Version { major: 3, minor, suffix: None, is_preview: false };
        let only = |minor| from(minor) && !from(minor + 1);
        Self {
            proof: proof(version),
            prints_untouched_cells: !only(3),
            joins_untouched_cells: !from(3),
            prints_underline_colours: from(3),
            resets_colours: from(4),
            repeats_any_character: from(5),
            repeats_line_drawing_by_build: only(5),
            joiners_wait: only(3),
            joins_by_kind: from(4),
            joins_by_pair: from(6),
            pairs_flags: from(7),
            drops_what_has_no_room: from(8),
            widens_too_far: only(4),
            moves_where_visible: from(7),
            sees_outside: only(7),
            widens_by_layout: only(7),
            long_clusters: from(6),
            keeps_unknown_characters: !only(3),
            widths_can_be_asked: from(4),
            widens_controls: !from(3),
            prints_invalid: from(6),
            wide_flags: from(4) && !from(6),
            keeps_tabs: from(6),
            splits_tabs: from(6) && !from(8),
            short_padding: from(6),
            colours_padding: from(8),
            cuts_first_column: from(6),
            cuts_orphans: from(7),
            erases_in_place: from(7),
            only_long_cells: only(4),
            draws_images: from(4),
            draws_requests: from(4) && !from(6),
            keeps_links: from(4),
            always_draws_at_death: !from(3),
            reflows_alternate: !from(4),
        }
    }

    /// Returns whether the screens of this version are followed exactly. If false, ask tmux.
    pub fn proven(&self) -> bool {
        self.proof != Proof::None
    }

    /// Returns the evidence for that.
    pub fn proof(&self) -> Proof {
        self.proof
    }

    /// Returns whether `-J` prints unwritten cells, as blanks at the ends of lines.
    pub fn pads_joined_lines(&self) -> bool {
        self.joins_untouched_cells
    }

    /// Returns whether tmux draws a row into every pane that stays when its process ends: such a
    /// tmux has no `remain-on-exit-format`.
    pub fn always_draws_at_death(&self) -> bool {
        self.always_draws_at_death
    }

    /// Returns the maximum number of bytes of a cluster.
    pub(super) fn cluster_bytes(&self) -> usize {
        if self.long_clusters { 32 } else { 21 }
    }
}

/// Returns the evidence for a version. The versions are listed, not compared: versions between them
/// were never tested.
fn proof(version: Version) -> Proof {
    match (version.major, version.minor, version.suffix) {
        _ if version.is_preview => Proof::None,
        (3, 2 | 3 | 5, Some('a')) | (3, 4 | 8, None) | (3, 6, Some('b')) | (3, 7, Some('c')) => Proof::Compared,
        // The changes from 3.6 to 3.6a make characters join.
        (3, 3 | 5 | 7, None) | (3, 6, Some('a')) | (3, 7, Some('a' | 'b')) => Proof::ByChanges,
        _ => Proof::None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_compared_is_proven() {
        let rules = |text: &str| Rules::for_version(Version::parse(text.as_bytes()).unwrap());
        for (version, proof) in [
            ("3.2", Proof::None),
            ("3.2a", Proof::Compared),
            ("3.3", Proof::ByChanges),
            ("3.3a", Proof::Compared),
            ("3.4", Proof::Compared),
            ("3.5", Proof::ByChanges),
            ("3.5a", Proof::Compared),
            ("3.6", Proof::None),
            ("3.6a", Proof::ByChanges),
            ("3.6b", Proof::Compared),
            ("3.7", Proof::ByChanges),
            ("3.7b", Proof::ByChanges),
            ("3.7c", Proof::Compared),
            ("3.7d", Proof::None),
            ("3.8", Proof::Compared),
            ("next-3.8", Proof::None),
            ("3.4-rc2", Proof::None),
            ("3.8a", Proof::None),
            ("3.9", Proof::None),
            ("4.0", Proof::None),
        ] {
            assert_eq!(rules(version).proof(), proof, "{version}");
        }
        assert!(!rules("3.4").repeats_any_character && rules("3.5").repeats_any_character);
        assert!(rules("3.2a").prints_untouched_cells && !rules("3.3").prints_untouched_cells);
    }
}
