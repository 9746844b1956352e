//! Characters that join the character before them into one cluster.

use super::rules::Rules;

/// The joiner: joins two characters into one.
pub(super) const JOINER: char = '\u{200d}';
/// The variation selector that requests the picture form of a character.
pub(super) const SELECTOR: char = '\u{fe0f}';
/// A filler letter of Korean. From 3.6 on tmux prints nothing for it.
pub(super) const FILLER: char = '\u{3164}';
/// The letters of flags.
pub(super) const FLAGS: std::ops::RangeInclusive<char> = '\u{1f1e6}'..='\u{1f1ff}';
const TONES: std::ops::RangeInclusive<char> = '\u{1f3fb}'..='\u{1f3ff}';

/// Pictures that accept a skin tone, from 3.6 on: the first and last of each run.
const TONED: [(u32, u32); 22] = [
    (0x1f44b, 0x1f450),
    (0x1f466, 0x1f469),
    (0x1f46e, 0x1f46e),
    (0x1f470, 0x1f478),
    (0x1f47c, 0x1f47c),
    (0x1f481, 0x1f483),
    (0x1f485, 0x1f487),
    (0x1f4aa, 0x1f4aa),
    (0x1f575, 0x1f575),
    (0x1f57a, 0x1f57a),
    (0x1f590, 0x1f590),
    (0x1f595, 0x1f596),
    (0x1f645, 0x1f647),
    (0x1f64b, 0x1f64f),
    (0x1f6b4, 0x1f6b6),
    (0x1f926, 0x1f926),
    (0x1f937, 0x1f939),
    (0x1f93d, 0x1f93e),
    (0x1f9b5, 0x1f9b6),
    (0x1f9b8, 0x1f9b9),
    (0x1f9cd, 0x1f9cf),
    (0x1f9d1, 0x1f9df),
];

/// Returns whether a character accepts a skin tone and is wide from 3.4 on, regardless of the C
/// library.
pub(super) fn is_hand(character: char) -> bool {
    matches!(
        character,
        '\u{261d}'
            | '\u{26f9}'
            | '\u{270c}'
            | '\u{270d}'
            | '\u{1f3cb}'
            | '\u{1f3cc}'
            | '\u{1f574}'
            | '\u{1f575}'
            | '\u{1f590}'
            | '\u{1faf7}'
            | '\u{1faf8}'
    )
}

/// The effect of a character on the one before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Joined {
    /// No effect: the character stays by itself.
    Alone,
    /// No effect, and the character is dropped.
    Dropped,
    /// Both become one cluster.
    With {
        /// Whether the cluster is two columns wide.
        wide: bool,
    },
}

/// Returns whether a character joins some others: letters of flags and of Korean syllables, skin
/// tones and the characters that accept them.
pub(super) fn may_join(character: char) -> bool {
    match character {
        ..'\u{1100}' | '\u{1200}'..'\u{a960}' | '\u{ac00}'..'\u{d7b0}' => false,
        '\u{1f1e6}'.. => FLAGS.contains(&character) || TONES.contains(&character) || takes_tone(character),
        _ => jamo(character).is_some(),
    }
}

/// Returns how a character joins the text of the cell before it. `zero`: the character has no width
/// of its own.
pub(super) fn joined(text: &[u8], width: u8, character: char, zero: bool, rules: Rules) -> Joined {
    if zero {
        return Joined::With { wide: character == SELECTOR && width == 1 };
    }
    let after_joiner = text.ends_with(JOINER.encode_utf8(&mut [0; 4]).as_bytes());
    if !rules.joins_by_pair {
        let modifier = FLAGS.contains(&character) || TONES.contains(&character);
        return match modifier {
            true if text.len() < 2 => Joined::Alone,
            false if !after_joiner => Joined::Alone,
            modifier => Joined::With { wide: modifier },
        };
    }
    if let Some(part) = jamo(character) {
        let before = text.len().checked_sub(3).and_then(|at| text.get(at..));
        let before = before.and_then(|last| std::str::from_utf8(last).ok()?.chars().next()).and_then(jamo);
        return match (part, before) {
            (Jamo::Initial, _) => Joined::Alone,
            (Jamo::Vowel, Some(Jamo::Initial)) | (Jamo::Final, Some(Jamo::Vowel)) => Joined::With { wide: false },
            _ => Joined::Dropped,
        };
    }
    if is_pair(text, character, rules) {
        Joined::With { wide: true }
    } else if after_joiner {
        Joined::With { wide: false }
    } else {
        Joined::Alone
    }
}

/// Returns whether a text and a character form a pair: two letters of a flag, or a skin tone and a
/// character that accepts it.
fn is_pair(text: &[u8], character: char, rules: Rules) -> bool {
    let Some(first) = first(text) else { return false };
    if FLAGS.contains(&first) && FLAGS.contains(&character) {
        return !rules.pairs_flags || letters(text) == 1;
    }
    let toned = |one: char, other: char| takes_tone(one) && TONES.contains(&other);
    toned(first, character) || toned(character, first)
}

/// Returns the first character of a text, if it is valid.
fn first(text: &[u8]) -> Option<char> {
    let valid = match std::str::from_utf8(text) {
        Ok(text) => text,
        Err(error) => text.get(..error.valid_up_to()).and_then(|valid| std::str::from_utf8(valid).ok())?,
    };
    valid.chars().next()
}

/// Counts the letters of flags in a text.
fn letters(text: &[u8]) -> usize {
    text.windows(4).filter(|bytes| matches!(bytes, [0xf0, 0x9f, 0x87, 0xa6..=0xbf])).count()
}

fn takes_tone(character: char) -> bool {
    let code = u32::from(character);
    let after = TONED.partition_point(|(first, _)| *first <= code);
    after.checked_sub(1).and_then(|at| TONED.get(at)).is_some_and(|(_, last)| code <= *last)
}

/// A part of a Korean syllable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Jamo {
    Initial,
    Vowel,
    Final,
}

fn jamo(character: char) -> Option<Jamo> {
    match character {
        '\u{1100}'..='\u{115f}' | '\u{a960}'..='\u{a97c}' => Some(Jamo::Initial),
        '\u{1160}'..='\u{11a7}' | '\u{d7b0}'..='\u{d7c6}' => Some(Jamo::Vowel),
        '\u{11a8}'..='\u{11ff}' | '\u{d7cb}'..='\u{d7fb}' => Some(Jamo::Final),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::version::Version;

    fn join(version: &str, text: &str, character: char) -> Joined {
        let rules = Rules::for_version(Version::parse(version.as_bytes()).unwrap());
        joined(text.as_bytes(), 1, character, false, rules)
    }

    #[test]
    fn letters_of_flags_join_in_pairs() {
        let (d, e) = ("\u{1f1e9}", '\u{1f1ea}');
        for version in ["3.4", "3.6b", "3.7c"] {
            assert_eq!(join(version, d, e), Joined::With { wide: true }, "{version}");
        }
        let pair = "\u{1f1e9}\u{1f1ea}";
        assert_eq!(join("3.6b", pair, e), Joined::With { wide: true });
        assert_eq!(join("3.7c", pair, e), Joined::Alone);
        assert_eq!(join("3.5a", "é", e), Joined::With { wide: true });
        assert_eq!(join("3.6b", "é", e), Joined::Alone);
    }

    #[test]
    fn parts_of_syllables_join_what_goes_before_them() {
        assert_eq!(join("3.6b", "\u{1100}", '\u{1161}'), Joined::With { wide: false });
        assert_eq!(join("3.6b", "\u{1100}\u{1161}", '\u{11a8}'), Joined::With { wide: false });
        assert_eq!(join("3.6b", "a", '\u{1161}'), Joined::Dropped);
        assert_eq!(join("3.6b", "\u{1100}", '\u{1100}'), Joined::Alone);
        assert_eq!(join("3.5a", "a", '\u{1161}'), Joined::Alone);
    }

    #[test]
    fn tones_join_hands_on_either_side() {
        assert_eq!(join("3.6b", "\u{1f44d}", '\u{1f3fd}'), Joined::With { wide: true });
        assert_eq!(join("3.6b", "\u{1f3fd}", '\u{1f44d}'), Joined::With { wide: true });
        assert_eq!(join("3.6b", "漢", '\u{1f3fd}'), Joined::Alone);
        assert_eq!(join("3.5a", "漢", '\u{1f3fd}'), Joined::With { wide: true });
    }

    #[test]
    fn what_may_join_is_seen_at_once() {
        for code in 0x80..0x11_0000 {
            let Some(character) = char::from_u32(code) else { continue };
            let may = FLAGS.contains(&character)
                || TONES.contains(&character)
                || takes_tone(character)
                || jamo(character).is_some();
            assert_eq!(may_join(character), may, "{code:x}");
        }
    }
}
