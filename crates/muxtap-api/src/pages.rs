//! Links to the page.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Asks for a link to the page.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PageCodeRequest {
    /// The page may only look.
    #[serde(default)]
    pub read_only: bool,
    /// Ends all cookies and codes in place of making a code.
    #[serde(default)]
    pub revoke: bool,
}

/// A link to the page, good for one use within a minute.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct PageCode {
    /// The code; empty where all were revoked.
    pub code: String,
    /// The addresses at which the page is: each with `#code=CODE` is a link.
    pub urls: Vec<String>,
    /// How many pages were logged out.
    #[serde(default)]
    pub revoked: usize,
}

/// A code, to be traded for a cookie.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct PageLogin {
    /// The text behind `#code=` in the link.
    pub code: String,
}
