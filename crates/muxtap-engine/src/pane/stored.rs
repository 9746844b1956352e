//! A pane's state, stored for another process that continues its stream.
//!
//! Left out: who follows the pane (watchers, readers, uses), and work in progress (a resync, the wait
//! for a string's timeout, a run that types). They begin anew.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use muxtap_api::Epoch;
use muxtap_core::protocol::ids::PaneId;

use super::{
    LockedPane, PaneState, input::Input, metadata::PaneMetadata, output::Output, process::Process, usage::Usage,
    watchers::Watchers,
};

/// The order of the stored parts: id, epoch (server, engine), the parts of [`LockedPane`], and the
/// last matches of finished waits.
type Stored = (u32, (u64, u64), Output, Input, Process, PaneMetadata, HashMap<String, u64>);

impl PaneState {
    /// Returns the pane's state as bytes. Error: a part that cannot be stored.
    pub(crate) fn store(&self) -> postcard::Result<Vec<u8>> {
        let epoch = (self.epoch.server, self.epoch.engine);
        let locked = self.lock();
        let LockedPane { output, input, process, metadata, usage: _, watchers } = &*locked;
        // In order, so that equal states have equal bytes.
        let matches: BTreeMap<_, _> = watchers.last_matches().collect();
        // Most of it is the ring and the screen.
        let bytes = Vec::with_capacity(output.held_bytes() + 4096);
        postcard::to_extend(&(self.id.0, epoch, output, input, process, metadata, matches), bytes)
    }

    /// Returns the stored parts by their names.
    #[cfg(test)]
    pub(crate) fn stored_as_json(&self) -> serde_json::Value {
        let locked = self.lock();
        let LockedPane { output, input, process, metadata, .. } = &*locked;
        serde_json::to_value((output, input, process, metadata)).unwrap_or_default()
    }

    /// Restores a pane from [`Self::store`]. `ring_bytes`: how much output it retains from now on.
    pub(crate) fn restore(bytes: &[u8], ring_bytes: usize) -> postcard::Result<Arc<Self>> {
        let (stored, rest) = postcard::take_from_bytes::<Stored>(bytes)?;
        if !rest.is_empty() {
            return Err(postcard::Error::DeserializeBadEncoding);
        }
        let (id, (server, engine), mut output, input, process, metadata, matches) = stored;
        output.ring.set_limit(ring_bytes);
        let pane = Self::new(PaneId(id), Epoch { server, engine }, ring_bytes);
        let mut locked = pane.lock();
        *locked = LockedPane {
            output,
            input,
            process,
            metadata,
            usage: Usage::default(),
            watchers: Watchers::with_last_matches(matches),
        };
        pane.published.publish(&locked);
        drop(locked);
        Ok(pane)
    }
}
