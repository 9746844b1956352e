//! Gaps in a pane's output, and their reasons.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Why bytes are missing between a cursor and what follows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum GapReason {
    /// The ring dropped them to stay within its limit.
    Trimmed,
    /// tmux dropped them because muxtap read too slowly (`%pause`).
    Paused,
    /// The connection to tmux was lost and made again.
    Reconnected,
    /// The tmux server ended and another one runs.
    ServerRestarted,
    /// muxtap itself was restarted.
    MuxtapRestarted,
    /// tmux dropped a pane's last output when its process ended.
    ProcessEnded,
    /// This reader was too slow for its queue.
    SlowReader,
    /// The `id` with which this reader came back is not known any more.
    ResumeExpired,
}

impl GapReason {
    /// Every reason there is.
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

    /// The reason as it stands on the wire.
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

/// Something is missing here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[non_exhaustive]
pub struct Gap {
    /// Why.
    pub reason: GapReason,
    /// How many raw bytes, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
}

impl Gap {
    /// A gap for a reason, of so many raw bytes where that is known.
    pub const fn new(reason: GapReason, bytes: Option<u64>) -> Self {
        Self { reason, bytes }
    }
}
