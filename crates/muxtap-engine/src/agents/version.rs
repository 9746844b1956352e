//! Versions of agents, as they show them, and the ranges for which a rule is made.

use std::fmt;

/// The numbers of a version: `2.1.197`. Missing ones are 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct AgentVersion([u64; 3]);

impl AgentVersion {
    /// Reads one to three numbers; what follows them (`-beta`) is ignored.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let end = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(text.len());
        let mut numbers = [0; 3];
        let mut count = 0;
        for (place, part) in text.get(..end)?.trim_end_matches('.').split('.').enumerate() {
            *numbers.get_mut(place)? = part.parse().ok()?;
            count += 1;
        }
        (count > 0).then_some(Self(numbers))
    }
}

impl fmt::Display for AgentVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self([major, minor, patch]) = self;
        write!(f, "{major}.{minor}.{patch}")
    }
}

/// Versions that meet all of some comparisons: `>=2.1, <2.2`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct VersionRange(Vec<(Comparison, AgentVersion)>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    Less,
    AtMost,
    Equal,
    AtLeast,
    Greater,
}

impl VersionRange {
    pub(super) fn parse(text: &str) -> Option<Self> {
        const SIGNS: [(&str, Comparison); 5] = [
            ("<=", Comparison::AtMost),
            (">=", Comparison::AtLeast),
            ("<", Comparison::Less),
            (">", Comparison::Greater),
            ("=", Comparison::Equal),
        ];
        let one = |text: &str| {
            let text = text.trim();
            let (rest, sign) = SIGNS.iter().find_map(|(sign, is)| Some((text.strip_prefix(sign)?, *is)))?;
            let rest = rest.trim();
            let is_plain = rest.chars().all(|letter| letter.is_ascii_digit() || letter == '.');
            Some((sign, AgentVersion::parse(rest).filter(|_| is_plain)?))
        };
        text.split(',').map(one).collect::<Option<Vec<_>>>().map(Self)
    }

    pub(super) fn contains(&self, version: AgentVersion) -> bool {
        self.0.iter().all(|(comparison, other)| match comparison {
            Comparison::Less => version < *other,
            Comparison::AtMost => version <= *other,
            Comparison::Equal => version == *other,
            Comparison::AtLeast => version >= *other,
            Comparison::Greater => version > *other,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_by_their_numbers() {
        let of = |text| AgentVersion::parse(text).unwrap();
        assert!(of("2.1.9") < of("2.1.53") && of("0.171.0") < of("1") && of("1.2") == of("1.2.0"));
        assert_eq!(of("2.1.53-beta.1").to_string(), "2.1.53");
        for wrong in ["", "x", "1.2.3.4", "1..2", ".", "99999999999999999999"] {
            assert_eq!(AgentVersion::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_range_is_all_of_its_comparisons() {
        let range = VersionRange::parse(">=2.1, < 2.2").unwrap();
        let fits = |text| range.contains(AgentVersion::parse(text).unwrap());
        assert!(fits("2.1.0") && fits("2.1.999") && !fits("2.0.9") && !fits("2.2.0"));
        assert!(VersionRange::parse("=1.0.3").unwrap().contains(AgentVersion::parse("1.0.3").unwrap()));
        for wrong in ["", "2.1", ">=", ">=2,", "~2", ">=2.1.x", ">= 1.2.3.4"] {
            assert_eq!(VersionRange::parse(wrong), None, "{wrong}");
        }
    }
}
