//! Gaps in a pane's output, and their reasons.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The reason for which bytes are missing between a cursor and the output after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum GapReason {
    /// The ring dropped the bytes to stay within its limit.
    Trimmed,
    /// tmux dropped the bytes because muxtap read too slowly (`%pause`).
    Paused,
    /// muxtap lost the connection to tmux and reconnected.
    Reconnected,
    /// The tmux server ended and another one runs now.
    ServerRestarted,
    /// muxtap itself was restarted.
    MuxtapRestarted,
    /// tmux dropped a pane's last output when its process ended.
    ProcessEnded,
    /// This reader was too slow for its queue.
    SlowReader,
    /// The `id` with which this reader resumed is no longer known.
    ResumeExpired,
}

impl GapReason {
    /// All reasons.
    pub const ALL: [Self; 8] = [
        Self::Trimmed,
        Self::Paused,
        Self::Reconnected,
        Self::ServerRestarted,
        Self::MuxtapRestarted,
        Self::ProcessEnded,
        Self::SlowReader,
        Self::ResumeExpired,
    ];

    /// Returns the reason as written on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Trimmed => "trimmed",
            Self::Paused => "paused",
            Self::Reconnected => "reconnected",
            Self::ServerRestarted => "server-restarted",
            Self::MuxtapRestarted => "muxtap-restarted",
            Self::ProcessEnded => "process-ended",
            Self::SlowReader => "slow-reader",
            Self::ResumeExpired => "resume-expired",
        }
    }
}

/// A place in a pane's output where bytes are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[non_exhaustive]
pub struct Gap {
    /// The reason.
    pub reason: GapReason,
    /// The number of missing raw bytes, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
}

impl Gap {
    /// Makes a gap from its reason and, where known, its number of raw bytes.
    pub const fn new(reason: GapReason, bytes: Option<u64>) -> Self {
        Self { reason, bytes }
    }
}
