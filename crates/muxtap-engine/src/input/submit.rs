//! Submitting a text so that programs take it as one message (F29): the text, a check that it
//! arrived, Enter alone, a check that something happened.

use std::{sync::Arc, time::Duration};

use muxtap_api::{Cursor, Result, SubmitSeen};
use muxtap_core::stream::render;
use tokio::time::Instant;

use crate::{
    PaneState, Server,
    input::{self, PreparedInput},
};

/// Terminal programs take characters at shorter intervals than this as a paste, and an Enter among
/// them as part of it.
const BURST: Duration = Duration::from_millis(150);
/// How long the program prints nothing after it has processed the text.
const QUIET: Duration = Duration::from_millis(40);
/// How long to wait for a program that never becomes quiet before Enter is pressed all the same.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long the program may take to show that Enter arrived.
const REACTION: Duration = Duration::from_secs(2);

impl Server {
    pub(crate) async fn submit(
        &self,
        pane: &Arc<PaneState>,
        typed: PreparedInput,
        text: &str,
    ) -> Result<(Cursor, SubmitSeen)> {
        // The program's reaction is searched for in the output.
        self.host.server_of(pane).let_flow(pane.id()).await?;
        let cursor = self.send(pane, typed).await?;
        let sent = Instant::now();
        let echoed = if text.is_empty() {
            false
        } else {
            let _ = tokio::time::timeout(PATIENCE, until_burst_over(pane, sent)).await;
            is_echoed(pane, cursor.offset, text)
        };
        let entered = self.send(pane, input::prepare_enter(pane)).await?;
        let changed = tokio::time::timeout(REACTION, pane.until_output(entered.offset)).await.is_ok();
        Ok((cursor, SubmitSeen { echoed, changed }))
    }
}

/// Waits until the burst is over and the stream is quiet.
async fn until_burst_over(pane: &PaneState, sent: Instant) {
    let mut changes = pane.changes();
    loop {
        changes.borrow_and_update();
        let due = (pane.lock().last_output() + QUIET).max(sent + BURST);
        if Instant::now() >= due {
            return;
        }
        tokio::select! {
            () = tokio::time::sleep_until(due) => {}
            _ = changes.changed() => {}
        }
    }
}

/// Returns whether the output since an offset contains the end of the text, in any wrapping and
/// color.
fn is_echoed(pane: &PaneState, since: u64, text: &str) -> bool {
    let dense = |text: &str| text.chars().filter(|c| !c.is_whitespace() && !c.is_control()).collect::<Vec<_>>();
    let locked = pane.lock();
    let end = locked.ring().end();
    let printed = dense(&render::render_text(locked.ring(), since.max(locked.ring().start()), end));
    let wanted = dense(text);
    let tail = wanted.get(wanted.len().saturating_sub(16)..).unwrap_or_default();
    !tail.is_empty() && printed.windows(tail.len()).any(|window| window == tail)
}
