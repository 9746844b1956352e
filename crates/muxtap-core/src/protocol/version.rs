//! The server's version, and the differences between versions as named questions.

use std::fmt;

/// A tmux version. Versions are ordered by age. A preview comes right after the release that it
/// precedes, since it has that release's new features; a build that names no release (`master`,
/// `openbsd-7.5`) counts as newer than all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// 3 of `3.3a`.
    pub major: u32,
    /// The second 3 of `3.3a`.
    pub minor: u32,
    /// `a` of `3.3a`; `None` for a release without letter.
    pub suffix: Option<char>,
    /// Whether this is a preview of the release: `next-3.9`, `3.4-rc2`. A preview is not covered by
    /// the proofs that come from comparing the release; otherwise it is treated like the release.
    pub is_preview: bool,
}

/// The error for a text that does not name a tmux version.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a tmux version")]
pub struct NotAVersion(String);

impl std::str::FromStr for Version {
    type Err = NotAVersion;

    fn from_str(text: &str) -> Result<Self, NotAVersion> {
        Self::parse(text.as_bytes())
    }
}

impl Version {
    /// The oldest version that muxtap works with; 3.2 itself is rejected.
    pub const MINIMUM: Self = Self::release(3, 2, Some('a'));

    /// A build that names no release, treated as the newest version.
    pub const UNKNOWN: Self = Self::release(u32::MAX, 0, None);

    const fn release(major: u32, minor: u32, suffix: Option<char>) -> Self {
        Self { major, minor, suffix, is_preview: false }
    }

    /// Parses the output of `tmux -V` (`tmux 3.3a`, `tmux next-3.9`, `tmux openbsd-7.5`), or the
    /// value of `#{version}`, which is the same without `tmux `. Release candidates (`3.4-rc2`) and
    /// `next-` builds are previews ([`Self::is_preview`]).
    pub fn parse(text: &[u8]) -> Result<Self, NotAVersion> {
        let text = text.trim_ascii();
        let error = || NotAVersion(String::from_utf8_lossy(text).into_owned());
        // Up to 3.2a, the output of `tmux -V` begins with the name of its own file, which may be
        // `tmux-3.2a`.
        let space = memchr::memchr(b' ', text).filter(|_| text.starts_with(b"tmux"));
        let text = space.and_then(|space| text.get(space..)).unwrap_or(text).trim_ascii();
        let next = text.strip_prefix(b"next-");
        let number = next.unwrap_or(text);
        if !number.first().is_some_and(u8::is_ascii_digit) {
            // OpenBSD numbers its own releases, and a git build may say `master`.
            let named = text.starts_with(b"openbsd-") || text == b"master";
            return if named { Ok(Self::UNKNOWN) } else { Err(error()) };
        }
        let number = std::str::from_utf8(number).map_err(|_| error())?;
        let (major, rest) = number.split_once('.').ok_or_else(error)?;
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let (digits, rest) = rest.split_at_checked(digits).ok_or_else(error)?;
        let suffix = rest.chars().next().filter(char::is_ascii_lowercase);
        let [major, minor] = [major.parse(), digits.parse()].map(|number| number.map_err(|_| error()));
        Ok(Self { major: major?, minor: minor?, suffix, is_preview: next.is_some() || rest.contains("-rc") })
    }

    /// Returns whether muxtap works with this version: 3.2a and later.
    pub fn is_supported(self) -> bool {
        self >= Self::MINIMUM
    }

    /// Returns whether control characters in `list-*` replies are octal-encoded: 3.4 to 3.5a (F26).
    pub fn lists_are_octal_encoded(self) -> bool {
        (Self::release(3, 4, None)..=Self::release(3, 5, Some('a'))).contains(&self)
    }

    /// Returns whether a session that a control client creates has that client's size, regardless
    /// of `-x` and `-y`: until 3.2a (N64).
    pub fn sizes_sessions_by_client(self) -> bool {
        self < Self::release(3, 3, None)
    }

    /// Returns whether the end of a session with a zoomed window ends the server as well: 3.4
    /// (N89).
    pub fn dies_with_zoomed_windows(self) -> bool {
        (self.major, self.minor) == (3, 4)
    }

    /// Returns whether a session that ends within the step that changed its current window ends the
    /// server as well: before 3.8 (N92).
    pub fn dies_of_changes_at_once(self) -> bool {
        self < Self::release(3, 8, None)
    }

    /// Returns whether respawning a pane crashes the server while output of the pane waits for a
    /// control client: before 3.8 (N98).
    pub fn dies_of_respawns(self) -> bool {
        self < Self::release(3, 8, None)
    }

    /// Returns whether `select-layout` knows this name or a prefix of it: names with `mirrored`
    /// from 3.5 on.
    pub fn knows_layout(self, name: &str) -> bool {
        const NAMES: [&str; 5] = ["even-horizontal", "even-vertical", "main-horizontal", "main-vertical", "tiled"];
        const MIRRORED: [&str; 2] = ["main-horizontal-mirrored", "main-vertical-mirrored"];
        let later = MIRRORED.iter().filter(|_| self >= Self::release(3, 5, None));
        !name.is_empty() && NAMES.iter().chain(later).any(|known| known.starts_with(name))
    }

    /// Returns whether `paste-buffer` without `-S` writes control characters as `^[`: from 3.7 on
    /// (N42).
    pub fn pastes_escape_controls(self) -> bool {
        self >= Self::release(3, 7, None)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::UNKNOWN {
            return f.write_str("(unnumbered)");
        }
        // The text is parsed again, for example by `muxtap doctor`.
        write!(f, "{}{}.{}", if self.is_preview { "next-" } else { "" }, self.major, self.minor)?;
        self.suffix.map_or(Ok(()), |suffix| write!(f, "{suffix}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(text: &str) -> Version {
        Version::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn versions_are_read_as_tmux_prints_them() {
        assert_eq!(version("tmux 3.3a\n"), Version::release(3, 3, Some('a')));
        assert_eq!(version("3.8"), Version::release(3, 8, None));
        for (text, release) in [("tmux next-3.9", "3.9"), ("tmux 3.4-rc2", "3.4")] {
            assert_eq!(version(text), Version { is_preview: true, ..version(release) });
        }
        assert_eq!(version("tmux-3.2a 3.2a"), version("3.2a"));
        assert_eq!(version("tmux openbsd-7.5"), Version::UNKNOWN);
        assert_eq!(version("tmux master"), Version::UNKNOWN);
        for text in ["3.3a", "3.8", "next-3.9"] {
            assert_eq!(version(text).to_string(), text);
        }
        for bad in ["", "tmux", "tmux 3", "screen 4.9", "tmux x.y", "tmux 3.", "\u{e9}"] {
            assert!(Version::parse(bad.as_bytes()).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn versions_are_ordered_by_age() {
        let order =
            ["1.8", "2.9a", "3.2", "3.2a", "3.3", "3.3a", "3.5a", "3.6b", "3.7c", "3.8", "next-3.9", "3.10", "master"];
        assert!(order.map(version).is_sorted());
        let supported = order.map(|text| version(text).is_supported());
        assert_eq!(supported.iter().position(|yes| *yes), Some(3), "3.2a is the first");
    }

    #[test]
    fn lists_are_octal_encoded_from_3_4_to_3_5a() {
        let cases = [("3.3a", false), ("3.4", true), ("3.5", true), ("3.5a", true), ("3.6", false), ("master", false)];
        for (text, expected) in cases {
            assert_eq!(version(text).lists_are_octal_encoded(), expected, "{text}");
        }
    }

    #[test]
    fn layouts_are_known_by_their_names() {
        for (text, name, known) in [
            ("3.3a", "tiled", true),
            ("3.3a", "even-h", true),
            ("3.3a", "main-vertical-mirrored", false),
            ("3.5a", "main-vertical-mirrored", true),
            ("3.8", "nonsense", false),
            ("3.8", "", false),
        ] {
            assert_eq!(version(text).knows_layout(name), known, "{text} {name}");
        }
        assert!(version("3.4").dies_with_zoomed_windows() && !version("3.5a").dies_with_zoomed_windows());
    }

    #[test]
    fn pastes_are_made_visible_from_3_7_on() {
        assert!(version("3.2a").sizes_sessions_by_client() && !version("3.3").sizes_sessions_by_client());
        assert!(!version("3.6b").pastes_escape_controls() && version("3.7c").pastes_escape_controls());
    }
}
