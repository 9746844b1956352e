//! What a client is told of the calls it makes, where it asks for that: `notifications/message`.

// Reasons: newer clients ask for it call by call, older ones once; both are served.
#![allow(deprecated)]

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use rmcp::{
    RoleServer,
    model::{LoggingLevel, LoggingMessageNotificationParam},
    service::RequestContext,
};
use serde_json::json;

use crate::api::{Error, ErrorCode};

/// From which level on a client hears something; `None`: it asked for nothing.
#[derive(Debug, Default)]
pub(super) struct LogLevel(Mutex<Option<LoggingLevel>>);

impl LogLevel {
    pub(super) fn set(&self, level: LoggingLevel) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(level);
    }

    /// Tells what became of a call: at `debug` what it took, at `warning` what tmux or muxtap failed at, at `info` other errors.
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
        // Whoever has gone hears nothing.
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
