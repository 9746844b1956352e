//! Files for a page's editors: only those below the folders that the user allows.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use muxtap_api::{Error, ErrorCode, Result};
use muxtap_base::below::Below;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use utoipa::ToSchema;

/// A file that an editor opens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PageFile {
    /// The absolute path.
    pub path: String,
    /// The text: UTF-8, at most 4 MiB.
    pub text: String,
    /// The state of the text; pass it back to save the file.
    pub version: String,
    /// Whether it can be saved.
    pub writable: bool,
}

/// A text to save.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PageFileRequest {
    /// An absolute path below an allowed folder.
    pub path: String,
    /// The whole new text, at most 4 MiB.
    pub text: String,
    /// The version that was opened; empty if the file did not exist. If the file now has another
    /// version, it stays unchanged (`CONFLICT`). Without a version the file is created, or
    /// overwritten.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

/// A saved file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PageFileSaved {
    /// The absolute path.
    pub path: String,
    /// The new version.
    pub version: String,
}

/// The folders below which pages open files; clones share them.
#[derive(Clone, Debug, Default)]
pub struct Files {
    folders: Arc<[PathBuf]>,
    /// Held while a file is compared and saved: of two concurrent saves, the second finds the
    /// first.
    saving: Arc<Mutex<()>>,
}

impl Files {
    /// Allows these folders; `~` is the user's home.
    pub fn below(folders: &[PathBuf]) -> Self {
        let home = std::env::home_dir();
        let at_home = |folder: &PathBuf| match (folder.strip_prefix("~"), &home) {
            (Ok(rest), Some(home)) => Some(home.join(rest)),
            (Ok(_), None) => None,
            (Err(_), _) => Some(folder.clone()),
        };
        Self { folders: folders.iter().filter_map(at_home).collect(), saving: Arc::default() }
    }

    /// Reads a file.
    ///
    /// Errors: `NOT_FOUND`; `INVALID_ARGUMENT` if it is not below an allowed folder, too long, not
    /// a regular file, or not UTF-8.
    pub fn read(&self, path: &str) -> Result<PageFile> {
        let folder = self.folder(path)?;
        if !folder.has(path) {
            return Err(Error::not_found(format!("{path}: no such file")));
        }
        let text = folder.read(path, None, None).map_err(Error::invalid)?;
        let version = version_of(&text);
        Ok(PageFile { path: path.to_owned(), version, writable: folder.is_writable(path), text })
    }

    /// Saves a file: readers find the old text or the new one.
    ///
    /// Errors: as for reading, and `CONFLICT` if the file has changed since it was opened.
    pub fn save(&self, PageFileRequest { path, text, version }: PageFileRequest) -> Result<PageFileSaved> {
        let folder = self.folder(&path)?;
        let _saving = self.saving.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(version) = version {
            let is_as_opened = if version.is_empty() {
                !folder.has(&path)
            } else {
                folder.read(&path, None, None).is_ok_and(|text| version_of(&text) == version)
            };
            if !is_as_opened {
                let why = "changed since it was opened; reopen the file, or save without `version` to overwrite it";
                return Err(Error::new(ErrorCode::Conflict, format!("{path}: {why}")));
            }
        }
        folder.write(&path, &text).map_err(Error::invalid)?;
        Ok(PageFileSaved { path, version: version_of(&text) })
    }

    /// Opens the allowed folder that contains a path.
    fn folder(&self, path: &str) -> Result<Below> {
        let found = self.folders.iter().filter_map(|folder| Below::open(folder).ok()).find(|below| below.holds(path));
        found.ok_or_else(|| {
            let folders: Vec<_> = self.folders.iter().map(|folder| Path::display(folder).to_string()).collect();
            Error::invalid(format!(
                "{path}: not below an allowed folder: {}; `page_folders` in config.toml sets them",
                if folders.is_empty() { "none is allowed".to_owned() } else { folders.join(", ") }
            ))
        })
    }
}

fn version_of(text: &str) -> String {
    URL_SAFE_NO_PAD.encode(Sha256::digest(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(path: &str, text: &str, version: Option<&str>) -> PageFileRequest {
        PageFileRequest { path: path.into(), text: text.into(), version: version.map(str::to_owned) }
    }

    #[test]
    fn a_changed_file_is_not_overwritten_without_confirmation() {
        let dir = tempfile::tempdir().unwrap();
        let files = Files::below(&[dir.path().to_owned()]);
        let path = dir.path().join("a.txt").display().to_string();
        assert_eq!(files.read(&path).unwrap_err().code, ErrorCode::NotFound);
        let made = files.save(request(&path, "one\n", Some(""))).unwrap();
        assert_eq!(files.save(request(&path, "one\n", Some(""))).unwrap_err().code, ErrorCode::Conflict);
        let opened = files.read(&path).unwrap();
        assert_eq!((opened.text.as_str(), &opened.version, opened.writable), ("one\n", &made.version, true));
        std::fs::write(&path, "another\n").unwrap();
        let refused = files.save(request(&path, "two\n", Some(&opened.version))).unwrap_err();
        assert_eq!(refused.code, ErrorCode::Conflict);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "another\n");
        let saved = files.save(request(&path, "two\n", None)).unwrap();
        files.save(request(&path, "three\n", Some(&saved.version))).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(files.save(request(&path, "x", Some(&saved.version))).unwrap_err().code, ErrorCode::Conflict);
    }

    #[test]
    fn only_files_below_an_allowed_folder_are_opened() {
        let dir = tempfile::tempdir().unwrap();
        let (own, other) = (dir.path().join("own"), dir.path().join("other"));
        for folder in [&own, &other] {
            std::fs::create_dir(folder).unwrap();
            std::fs::write(folder.join("f"), "text").unwrap();
        }
        std::os::unix::fs::symlink(other.join("f"), own.join("link")).unwrap();
        let at = |path: &Path| path.display().to_string();
        let files = Files::below(std::slice::from_ref(&own));
        assert!(files.read(&at(&own.join("f"))).is_ok());
        for path in [other.join("f"), own.join("../other/f"), own.join("link")] {
            assert!(files.read(&at(&path)).is_err(), "{path:?}");
            assert!(files.save(request(&at(&path), "x", None)).is_err(), "{path:?}");
        }
        assert_eq!(std::fs::read_to_string(other.join("f")).unwrap(), "text");
        let none = Files::below(&[]).read(&at(&own.join("f"))).unwrap_err();
        assert!(none.message.contains("page_folders"), "{none:?}");
    }
}
