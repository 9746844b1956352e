//! Names of devices.

use muxtap_api::{Error, Result};

/// Bytes of a device's id.
pub const ID_BYTES: usize = 64;
/// Characters of a device's label.
pub const LABEL_CHARS: usize = 128;

/// Error: `INVALID_ARGUMENT` for what is no device's id.
pub fn check_id(id: &str) -> Result<()> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'@');
    if id.is_empty() || id.len() > ID_BYTES || !id.bytes().all(fits) {
        return Err(Error::invalid(format!("deviceId: expected 1 to {ID_BYTES} letters, digits, - _ . @")));
    }
    Ok(())
}

/// Error: `INVALID_ARGUMENT` for what is no device's id, or no label.
pub fn check(id: &str, label: &str) -> Result<()> {
    check_id(id)?;
    if label.trim().is_empty() || label.chars().count() > LABEL_CHARS || label.chars().any(char::is_control) {
        return Err(Error::invalid(format!("deviceLabel: expected 1 to {LABEL_CHARS} visible characters")));
    }
    Ok(())
}
