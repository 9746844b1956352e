//! Tiers: the permissions of a daemon's callers.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Error;

/// A kind of request, by what it can do to the user's terminals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Tier {
    /// Look: lists, captures, reads, waits, events.
    Read,
    /// Type: input and `run`.
    Input,
    /// Create and change: sessions, windows, panes, their names, sizes and layouts; respawn a pane
    /// whose program has ended.
    Create,
    /// End: sessions, windows, panes, the program of a pane that is respawned, and the daemon.
    Kill,
}

impl Tier {
    /// All tiers, from the most harmless to the most destructive.
    pub const ALL: [Self; 4] = [Self::Read, Self::Input, Self::Create, Self::Kill];

    /// Returns its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Input => "input",
            Self::Create => "create",
            Self::Kill => "kill",
        }
    }
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Tier {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Self::ALL.into_iter().find(|tier| tier.as_str() == text).ok_or_else(|| {
            let known = Self::ALL.map(Self::as_str).join(", ");
            Error::invalid(format!("unknown tier {text:?}; expected one of {known}"))
        })
    }
}

/// The set of allowed tiers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tiers(u8);

impl Tiers {
    /// All tiers.
    pub const ALL: Self = Self(0b1111);
    /// Only `read`.
    pub const READ_ONLY: Self = Self(1 << Tier::Read as u8);

    /// Returns whether this tier is allowed.
    pub const fn has(self, tier: Tier) -> bool {
        self.0 & (1 << tier as u8) != 0
    }

    /// Returns the set without these tiers.
    pub fn without(self, tiers: &[Tier]) -> Self {
        Self(tiers.iter().fold(self.0, |all, tier| all & !(1 << *tier as u8)))
    }

    /// Returns the names of the allowed tiers.
    pub fn names(self) -> Vec<&'static str> {
        Tier::ALL.into_iter().filter(|tier| self.has(*tier)).map(Tier::as_str).collect()
    }
}

impl FromIterator<Tier> for Tiers {
    fn from_iter<T: IntoIterator<Item = Tier>>(tiers: T) -> Self {
        Self(tiers.into_iter().fold(0, |all, tier| all | (1 << tier as u8)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_of_tiers_has_what_was_put_in() {
        let tiers: Tiers = [Tier::Read, Tier::Kill].into_iter().collect();
        assert_eq!(tiers.names(), ["read", "kill"]);
        assert_eq!(tiers.without(&[Tier::Kill]), Tiers::READ_ONLY);
        assert_eq!(Tiers::ALL.names().len(), Tier::ALL.len());
        assert!("write".parse::<Tier>().unwrap_err().message.contains("read, input, create, kill"));
    }
}
