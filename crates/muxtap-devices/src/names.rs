//! Validation of device ids and labels.

use muxtap_api::{Error, Result};

/// The maximum length of a device's id, in bytes.
pub const ID_BYTES: usize = 64;
/// The maximum length of a device's label, in characters.
pub const LABEL_CHARS: usize = 128;

/// Checks a device's id. Error: `INVALID_ARGUMENT`.
pub fn check_id(id: &str) -> Result<()> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'@');
    if id.is_empty() || id.len() > ID_BYTES || !id.bytes().all(fits) {
        return Err(Error::invalid(format!("deviceId: expected 1 to {ID_BYTES} letters, digits, - _ . @")));
    }
    Ok(())
}

/// Checks a device's id and label. Error: `INVALID_ARGUMENT`.
pub fn check(id: &str, label: &str) -> Result<()> {
    check_id(id)?;
    if label.trim().is_empty() || label.chars().count() > LABEL_CHARS || label.chars().any(char::is_control) {
        return Err(Error::invalid(format!("deviceLabel: expected 1 to {LABEL_CHARS} visible characters")));
    }
    Ok(())
}
