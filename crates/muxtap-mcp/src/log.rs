//! Log messages about a client's calls, if it requests them: `notifications/message`.

// Reasons: newer clients request messages for each call, older ones once; both are supported.
#![allow(deprecated)]

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use muxtap_api::{Error, ErrorCode};
use rmcp::{
    RoleServer,
    model::{LoggingLevel, LoggingMessageNotificationParam},
    service::RequestContext,
};
use serde_json::json;

/// The lowest level that is sent to a client; `None` if it requested no messages.
#[derive(Debug, Default)]
pub(super) struct LogLevel(Mutex<Option<LoggingLevel>>);

impl LogLevel {
    pub(super) fn set(&self, level: LoggingLevel) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(level);
    }

    /// Sends the client a message about a finished call: at `debug` its duration, at `warning`
    /// failures of tmux or muxtap, at `info` other errors.
    pub(super) async fn log_call(
        &self,
        context: &RequestContext<RoleServer>,
        tool: &str,
        took: Duration,
        error: Option<&Error>,
    ) {
        let from = context.meta.log_level().or(*self.0.lock().unwrap_or_else(PoisonError::into_inner));
        let level = level(error);
        if from.is_none_or(|from| (level as u8) < (from as u8)) {
            return;
        }
        let ms = took.as_secs_f64() * 1000.0;
        let data = match error {
            None => json!({"tool": tool, "ms": ms}),
            Some(error) => json!({"tool": tool, "ms": ms, "error": error}),
        };
        let message = LoggingMessageNotificationParam::new(level, data).with_logger("muxtap");
        // A client that has disconnected needs no message.
        let _ = context.peer.notify_logging_message(message).await;
    }
}

fn level(error: Option<&Error>) -> LoggingLevel {
    match error.map(|error| error.code) {
        None => LoggingLevel::Debug,
        Some(ErrorCode::TmuxUnavailable | ErrorCode::InconsistentState) => LoggingLevel::Warning,
        Some(ErrorCode::InternalError) => LoggingLevel::Error,
        Some(_) => LoggingLevel::Info,
    }
}
