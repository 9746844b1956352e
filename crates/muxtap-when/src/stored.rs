//! The file of added rules.

use std::{io, path::PathBuf};

use muxtap_api::{Error, ErrorCode, Result, WhenRule};
use muxtap_base::files::{Existing, SecretError, read_secret, write_secret};

use crate::limits::ADDED_BYTES;

/// The file of the rules that were added: a JSON array, mode 0600.
#[derive(Debug)]
pub(crate) struct Stored(pub(crate) PathBuf);

impl Stored {
    /// Reads the rules. Error: `CONFLICT`; the file stays as it is.
    pub(crate) fn read(&self) -> Result<Vec<WhenRule>> {
        let wrong = |why: String| Error::new(ErrorCode::Conflict, format!("{} {why}", self.0.display()));
        if let Err(error) = std::fs::symlink_metadata(&self.0)
            && error.kind() == io::ErrorKind::NotFound
        {
            return Ok(Vec::new());
        }
        let read = read_secret(&self.0, ADDED_BYTES);
        let (text, _) = read.map_err(|error| match error {
            SecretError::Open(why) | SecretError::Foreign(why) | SecretError::Unreadable(why) => wrong(why),
        })?;
        // The error's text may show a part of the file, so only its place is named.
        serde_json::from_str(&text)
            .map_err(|error| wrong(format!("is not valid at line {}, column {}", error.line(), error.column())))
    }

    /// Writes the rules. Error: `CONFLICT`; the file stays as it is.
    pub(crate) fn write<'a>(&self, rules: impl Iterator<Item = &'a WhenRule>) -> Result<()> {
        let wrong = |why: &dyn std::fmt::Display| {
            Error::new(ErrorCode::Conflict, format!("the rule cannot be stored in {}: {why}", self.0.display()))
        };
        let rules: Vec<_> = rules.collect();
        let text = serde_json::to_string_pretty(&rules).map_err(|error| wrong(&error))?;
        if text.len() as u64 >= ADDED_BYTES {
            return Err(wrong(&format!("the added rules are {} bytes; at most {ADDED_BYTES} are allowed", text.len())));
        }
        // A file that is not valid is not overwritten: it may have rules that a newer muxtap reads.
        self.read()?;
        write_secret(&self.0, &text, Existing::Replace).map_err(|error| wrong(&error))
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _};

    use super::*;

    #[test]
    fn added_rules_are_kept_in_a_private_file_and_a_wrong_file_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let stored = Stored(dir.path().join("state/when.json"));
        assert!(stored.read().unwrap().is_empty());
        let rule = WhenRule { name: "a".into(), ended: true, notify: true, ..WhenRule::default() };
        stored.write([&rule].into_iter()).unwrap();
        assert_eq!(stored.read().unwrap(), std::slice::from_ref(&rule));
        assert_eq!(fs::metadata(&stored.0).unwrap().permissions().mode() & 0o777, 0o600);
        fs::write(&stored.0, "[{\"name\": \"s3cret\", \"new\": 1}]").unwrap();
        let refused = stored.read().unwrap_err().message;
        assert!(refused.contains("line 1") && !refused.contains("s3cret"), "{refused}");
        assert!(stored.write([&rule].into_iter()).is_err());
        assert!(fs::read_to_string(&stored.0).unwrap().contains("s3cret"));
    }
}
