//! A pane's state, stored for another process that continues its stream.
//!
//! Left out: who follows the pane (watchers, readers, uses), and work in progress (a resync, the wait
//! for a string's timeout, a run that types). They begin anew.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use muxtap_api::Epoch;
use muxtap_core::{
    protocol::ids::PaneId,
    stream::ring::{Copied, Ring, Sealed, SealedSegments},
};

use super::{
    LockedPane, PaneState, input::Input, metadata::PaneMetadata, output::Output, process::Process, usage::Usage,
    watchers::Watchers,
};

/// About how much output is copied at once: nothing else is done meanwhile.
const COPIED_AT_ONCE: usize = 1 << 20;

/// The order of the stored parts: id, epoch (server, engine), the ring, the parts of [`LockedPane`], and the
/// last matches of finished waits.
type Stored = (u32, (u64, u64), Ring, Output, Input, Process, PaneMetadata, HashMap<String, u64>);

/// The part of a pane that was copied while it was followed.
#[derive(Debug, Default)]
pub(crate) struct CopiedPane {
    ring: Copied,
    /// Where the output begins that was not copied.
    next: u64,
    /// How often the pane may have changed before all of it was copied; `None`: it has not been.
    writes: Option<u64>,
}

/// A pane that was stored, before it is one.
pub(crate) struct PaneParts(Stored);

impl PaneState {
    /// Returns the pane's state as bytes. Error: a part that cannot be stored.
    pub(crate) fn store(&self) -> postcard::Result<Vec<u8>> {
        Ok(self.store_after(&CopiedPane::default())?.unwrap_or_default())
    }

    /// Returns the pane's state as bytes, without the output that was copied; `None`: the pane has not
    /// changed since all of it was copied.
    pub(crate) fn store_after(&self, copied: &CopiedPane) -> postcard::Result<Option<Vec<u8>>> {
        let locked = self.lock();
        if copied.writes == Some(locked.writes()) { Ok(None) } else { self.store_locked(&locked, copied).map(Some) }
    }

    fn store_locked(&self, locked: &LockedPane, copied: &CopiedPane) -> postcard::Result<Vec<u8>> {
        let epoch = (self.epoch.server, self.epoch.engine);
        let LockedPane { output, input, process, metadata, usage: _, watchers } = locked;
        // In order, so that equal states have equal bytes.
        let matches: BTreeMap<_, _> = watchers.last_matches().collect();
        let ring = output.ring.without(&copied.ring);
        postcard::to_allocvec(&(self.id.0, epoch, ring, output, input, process, metadata, matches))
    }

    /// Copies some more output, which begins before an offset. `None`: the rest is stored with the pane.
    pub(crate) fn copy_output(&self, to: u64, copied: &mut CopiedPane) -> Option<SealedSegments> {
        let (some, next) = self.lock().output.ring.copy_sealed(copied.next, to, COPIED_AT_ONCE, &mut copied.ring)?;
        copied.next = next;
        Some(some)
    }

    /// Returns whether the pane may have changed since all of it was copied.
    pub(crate) fn has_changed_since(&self, copied: &CopiedPane) -> bool {
        copied.writes != Some(self.lock().writes())
    }

    /// Returns how many bytes of output another copy would have.
    pub(crate) fn uncopied(&self, copied: &CopiedPane) -> u64 {
        let locked = self.lock();
        if copied.writes == Some(locked.writes()) {
            return 0;
        }
        let ring = &locked.output.ring;
        // The last segment is not copied.
        ring.sealed_end().saturating_sub(copied.next.max(ring.start()))
    }

    /// Copies the pane without the output that was copied before.
    pub(crate) fn copy_rest(&self, copied: &mut CopiedPane) -> postcard::Result<Vec<u8>> {
        let locked = self.lock();
        let bytes = self.store_locked(&locked, copied)?;
        copied.writes = Some(locked.writes());
        Ok(bytes)
    }

    /// Returns the stored parts by their names.
    #[cfg(test)]
    pub(crate) fn stored_as_json(&self) -> serde_json::Value {
        let locked = self.lock();
        let LockedPane { output, input, process, metadata, .. } = &*locked;
        serde_json::to_value((&output.ring, output, input, process, metadata)).unwrap_or_default()
    }

    /// Restores a pane from [`Self::store`]. `ring_bytes`: how much output it retains from now on.
    #[cfg(test)]
    pub(crate) fn restore(bytes: &[u8], ring_bytes: usize) -> Result<Arc<Self>, String> {
        Ok(PaneParts::read(bytes, &mut Sealed::default())?.into_pane(ring_bytes))
    }
}

impl PaneParts {
    /// Reads a pane, with the output that was copied before. Error: the bytes are not a pane's, or output is
    /// missing.
    pub(crate) fn read(bytes: &[u8], copied: &mut Sealed) -> Result<Self, String> {
        let (mut stored, rest) = postcard::take_from_bytes::<Stored>(bytes).map_err(|error| error.to_string())?;
        if !rest.is_empty() {
            return Err("bytes are left over in a pane".to_owned());
        }
        stored.2.complete(copied)?;
        Ok(Self(stored))
    }

    /// Takes the pane's output, to complete the same pane in a later state.
    pub(crate) fn into_output(mut self) -> Sealed {
        self.0.2.take_sealed()
    }

    /// Makes the pane. `ring_bytes`: how much output it retains from now on.
    pub(crate) fn into_pane(self, ring_bytes: usize) -> Arc<PaneState> {
        let (id, (server, engine), ring, mut output, input, process, metadata, matches) = self.0;
        output.ring = ring;
        output.ring.set_limit(ring_bytes);
        let pane = PaneState::new(PaneId(id), Epoch { server, engine }, ring_bytes);
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
        pane
    }
}
