//! Paths in the stored state.

use std::{ffi::OsString, os::unix::ffi::OsStringExt as _, path::PathBuf};

use serde::{Deserialize, Serialize};

/// A path as bytes: as JSON, one that is not UTF-8 has no other form.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct StoredPath(Vec<u8>);

impl From<PathBuf> for StoredPath {
    fn from(path: PathBuf) -> Self {
        Self(path.into_os_string().into_vec())
    }
}

impl From<StoredPath> for PathBuf {
    fn from(StoredPath(bytes): StoredPath) -> Self {
        OsString::from_vec(bytes).into()
    }
}
