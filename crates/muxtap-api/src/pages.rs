//! Links to the page.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Requests a link to the page.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PageCodeRequest {
    /// Whether the page may only read.
    #[serde(default)]
    pub read_only: bool,
    /// End all cookies and codes instead of creating a code.
    #[serde(default)]
    pub revoke: bool,
}

/// A link to the page, valid for one use within a minute.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct PageCode {
    /// The code; empty after `revoke`.
    pub code: String,
    /// The page's addresses: each with `#code=CODE` is a link.
    pub urls: Vec<String>,
    /// The number of pages that were logged out.
    #[serde(default)]
    pub revoked: usize,
}

/// A code to exchange for a cookie.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PageLogin {
    /// The text after `#code=` in the link.
    pub code: String,
}
