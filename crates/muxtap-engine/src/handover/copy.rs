//! The panes of an engine, copied while they are followed, so that little is left to send while nothing is.
//!
//! The copy of a pane is its state at one moment. Afterwards only panes that changed since are sent, and
//! their output only from where the copy ends: what a pane has printed never changes.

use std::{
    collections::HashSet,
    fs::File,
    io::{BufRead, Read as _, Write as _},
    sync::Arc,
};

use muxtap_api::{Error, Result};
use muxtap_core::stream::ring::{Sealed, SealedSegments};
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use super::{Blob, cannot_store, failed, unreadable};
use crate::{
    Engine, PaneState,
    pane::{CopiedPane, PaneParts},
    wait::{CompiledPatterns, StoredPatterns},
};

/// What was copied.
#[derive(Default)]
pub(super) struct CopiedPanes {
    /// In the order of their first copy, which is their number.
    panes: Vec<(Arc<PaneState>, CopiedPane)>,
    /// The waits whose patterns were copied.
    waits: HashSet<String>,
}

/// A part of a copy, preceded by its length. Those of one pane follow each other.
#[derive(Debug, Serialize, Deserialize)]
enum Part {
    /// More output of the pane that follows.
    Output(SealedSegments),
    /// The pane with this number, without output that was copied. It is new, or has changed since it was
    /// copied before.
    Pane(u32, Blob),
    /// The patterns of open waits: to compile them takes long.
    Patterns(Vec<StoredPatterns>),
}

/// A pane of a state that follows a copy.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum StoredPane {
    /// The pane with this number in the copy, unchanged.
    Unchanged(u32),
    /// A pane; its copied output is that of the pane with this number in the copy.
    Changed(Option<u32>, Blob),
}

impl StoredPane {
    /// Returns how many bytes the pane itself has.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Unchanged(_) => 0,
            Self::Changed(_, Blob(bytes)) => bytes.len(),
        }
    }
}

/// What all copies so far contain.
#[derive(Default)]
pub(super) struct Copy {
    /// By number; a later copy replaces a pane.
    panes: Vec<Option<PaneParts>>,
    pub(super) patterns: CompiledPatterns,
}

/// A pane's output is copied in this many rounds at most: what it prints meanwhile is copied in the next one.
const ROUNDS: usize = 8;
/// With fewer bytes than this to copy there is no further round, nor a further copy.
pub(super) const LITTLE: u64 = 256 * 1024;

impl Engine {
    /// Copies all panes into a file, without what was copied before. They are followed meanwhile: a
    /// thread of its own copies, and holds a pane's lock for a part of its output at a time. When this is
    /// dropped, it ends after its pane.
    pub(super) async fn copy_panes(&self, file: File, mut copied: CopiedPanes) -> Result<(CopiedPanes, File)> {
        let mut panes = self.panes_to_copy();
        // Panes that print are copied last: less of their output follows.
        panes.sort_by_cached_key(|pane| pane.lock().last_output());
        let mut patterns = self.shared.waits.store_patterns();
        patterns.retain(|of_wait| copied.waits.insert(of_wait.id().to_owned()));
        let stop = CancellationToken::new();
        let _stops = stop.clone().drop_guard();
        let panes = panes.into_iter().take_while(move |_| !stop.is_cancelled());
        let copied = tokio::task::spawn_blocking(move || copy(copied, panes, patterns, file)).await;
        copied.map_err(|error| Error::internal(format!("cannot copy the panes: {error}")))?
    }

    /// Returns how many bytes of output another copy would have.
    pub(super) fn uncopied(&self, copied: &CopiedPanes) -> u64 {
        copied.uncopied(&self.panes_to_copy())
    }

    /// Returns the panes that hosts and open waits have now.
    fn panes_to_copy(&self) -> Vec<Arc<PaneState>> {
        let hosts: Vec<_> = self.hosts().values().cloned().collect();
        let mut panes: Vec<_> = hosts.iter().flat_map(|host| [host.panes(), host.ended_panes()].concat()).collect();
        for host in &hosts {
            let of_waits = self.shared.waits.panes_of(host);
            let others: Vec<_> = of_waits.filter(|pane| !panes.iter().any(|known| Arc::ptr_eq(known, pane))).collect();
            panes.extend(others);
        }
        panes
    }
}

/// Copies panes that are new, or that may have changed since they were copied.
pub(super) fn copy(
    mut copied_panes: CopiedPanes,
    panes: impl IntoIterator<Item = Arc<PaneState>>,
    patterns: Vec<StoredPatterns>,
    mut file: File,
) -> Result<(CopiedPanes, File)> {
    let mut write = |part: &Part| -> Result<()> {
        let bytes = postcard::to_allocvec(part).map_err(|error| cannot_store("the panes", &error))?;
        let length = (bytes.len() as u64).to_le_bytes();
        let written = file.write_all(&length).and_then(|()| file.write_all(&bytes));
        written.map_err(|error| failed("the panes cannot be copied", &error))
    };
    if !patterns.is_empty() {
        write(&Part::Patterns(patterns))?;
    }
    for pane in panes {
        let Some((number, copied)) = copied_panes.of(&pane) else { continue };
        if !pane.has_changed_since(copied) {
            continue;
        }
        for _ in 0..ROUNDS {
            let to = pane.end_offset();
            while let Some(output) = pane.copy_output(to, copied) {
                write(&Part::Output(output))?;
            }
            if pane.end_offset().saturating_sub(to) < LITTLE {
                break;
            }
        }
        let rest = pane.copy_rest(copied);
        let rest = rest.map_err(|error| cannot_store(&format!("pane {}", pane.id()), &error))?;
        write(&Part::Pane(number, Blob(rest)))?;
    }
    Ok((copied_panes, file))
}

impl CopiedPanes {
    /// Returns a pane's number, and what was copied of it; a pane without a number gets the next one.
    fn of(&mut self, pane: &Arc<PaneState>) -> Option<(u32, &mut CopiedPane)> {
        let number = self.panes.iter().position(|(known, _)| Arc::ptr_eq(known, pane)).unwrap_or_else(|| {
            self.panes.push((pane.clone(), CopiedPane::default()));
            self.panes.len() - 1
        });
        Some((u32::try_from(number).ok()?, &mut self.panes.get_mut(number)?.1))
    }

    /// Returns a pane's number, and what was copied of it.
    fn get(&self, pane: &Arc<PaneState>) -> Option<(u32, &CopiedPane)> {
        let number = self.panes.iter().position(|(known, _)| Arc::ptr_eq(known, pane))?;
        Some((u32::try_from(number).ok()?, &self.panes.get(number)?.1))
    }

    /// Returns how many bytes of these panes' output another copy would have.
    pub(super) fn uncopied(&self, panes: &[Arc<PaneState>]) -> u64 {
        let nothing = CopiedPane::default();
        panes.iter().map(|pane| pane.uncopied(self.get(pane).map_or(&nothing, |(_, copied)| copied))).sum()
    }

    /// Stores a pane without what was copied of it.
    pub(super) fn store(&self, pane: &Arc<PaneState>) -> postcard::Result<StoredPane> {
        let Some((number, copied)) = self.get(pane) else { return Ok(StoredPane::Changed(None, Blob(pane.store()?))) };
        Ok(match pane.store_after(copied)? {
            Some(bytes) => StoredPane::Changed(Some(number), Blob(bytes)),
            None => StoredPane::Unchanged(number),
        })
    }
}

impl Copy {
    /// Reads a copy that follows those before, one part at a time: together they may be large. Error:
    /// `CONFLICT` if this program does not read it; then none can be used.
    pub(super) fn add(&mut self, mut file: impl BufRead) -> Result<()> {
        let mut output = Sealed::default();
        let cut = |error: std::io::Error| unreadable(&error.to_string());
        while !file.fill_buf().map_err(cut)?.is_empty() {
            let mut length = [0; 8];
            file.read_exact(&mut length).map_err(cut)?;
            let (length, mut bytes) = (u64::from_le_bytes(length), Vec::new());
            let read = file.by_ref().take(length).read_to_end(&mut bytes).map_err(cut)?;
            if read as u64 != length {
                return Err(unreadable("a part of the copy is cut off"));
            }
            match postcard::from_bytes::<Part>(&bytes).map_err(|error| unreadable(&error.to_string()))? {
                Part::Output(segments) => output.add(segments),
                Part::Pane(number, Blob(pane)) => {
                    let more = std::mem::take(&mut output);
                    let mut output = if number as usize == self.panes.len() {
                        self.panes.push(None);
                        Sealed::default()
                    } else {
                        self.take(number)?.into_output()
                    };
                    output.extend(more);
                    let pane = PaneParts::read(&pane, &mut output).map_err(|error| unreadable(&error))?;
                    if let Some(place) = self.panes.get_mut(number as usize) {
                        *place = Some(pane);
                    }
                }
                Part::Patterns(patterns) => patterns.into_iter().for_each(|one| self.patterns.compile(one)),
            }
        }
        Ok(())
    }

    fn take(&mut self, number: u32) -> Result<PaneParts> {
        let pane = self.panes.get_mut(number as usize).and_then(Option::take);
        pane.ok_or_else(|| unreadable("a pane was not copied, or is there twice"))
    }

    /// Restores a pane of the state that follows the copy.
    pub(super) fn restore(&mut self, pane: StoredPane, ring_bytes: usize) -> Result<Arc<PaneState>> {
        let parts = match pane {
            StoredPane::Unchanged(number) => self.take(number)?,
            StoredPane::Changed(number, Blob(bytes)) => {
                let mut output = match number {
                    Some(number) => self.take(number)?.into_output(),
                    None => Sealed::default(),
                };
                PaneParts::read(&bytes, &mut output).map_err(|error| unreadable(&error))?
            }
        };
        Ok(parts.into_pane(ring_bytes))
    }
}
