//! The backend of the endpoints: tmux, or sessions in memory.

use super::{action::ActionOutput, live::Live, request::Request, response::HttpError, stub::Stub};

/// A backend, one for each mode.
pub enum Backend {
    /// `TMUX_BRIDGE_MODE=tmux`.
    Live(Box<Live>),
    /// `TMUX_BRIDGE_MODE=stub`.
    Stub(Stub),
}

impl Backend {
    /// Returns the body of `/health`.
    pub async fn health(&self) -> Result<String, HttpError> {
        match self {
            Self::Live(live) => live.health().await,
            Self::Stub(stub) => Ok(stub.health()),
        }
    }

    /// Carries out a request of the page `origin`.
    pub async fn execute(&self, request: &Request, origin: &str) -> Result<ActionOutput, HttpError> {
        match self {
            Self::Live(live) => live.execute(request, origin).await,
            Self::Stub(stub) => stub.execute(request).await,
        }
    }

    /// Releases everything. Sessions of tmux live on.
    pub async fn stop(&self) {
        match self {
            Self::Live(live) => live.stop().await,
            Self::Stub(stub) => stub.stop(),
        }
    }
}
