//! The addresses of windows and panes, `W` and `W.P`.
//!
//! An address is assigned when the capability first sees a window or a pane, and stays until that
//! ends: tmux renumbers panes when one is killed, and windows if a person wants it, and may number
//! both from 1. The addresses are kept in an option of the session, so they outlive the daemon.

use std::collections::{BTreeMap, BTreeSet};

use muxtap_api::{Error, ErrorCode, Result};
use muxtap_core::protocol::{
    command::Command,
    ids::{PaneId, WindowId},
};
use muxtap_engine::{Server, ValueList, is_absent};

use super::Capability;

/// The option of the session with the addresses: `@WINDOW=W` and `%PANE=W.P`.
const PLACES: &str = "@muxtap-addresses";
const FIELDS: [&str; 6] = ["session_id", "window_id", "pane_id", "window_index", "base-index", PLACES];

/// The highest number in a stored address. Others are not muxtap's own, and leave no room for new ones.
const HIGHEST: u32 = u32::MAX / 2;

/// The address of a pane.
pub(super) type Place = (u32, u32);

/// The windows and panes of a session, by address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Places {
    windows: BTreeMap<WindowId, u32>,
    panes: BTreeMap<PaneId, Place>,
    /// The window of each pane.
    within: BTreeMap<PaneId, WindowId>,
}

/// A pane in tmux's list.
#[derive(Clone, Copy, Debug)]
struct Row {
    window: WindowId,
    pane: PaneId,
    index: u32,
}

impl Places {
    /// Returns the addresses in a session, and assigns those that are missing. `None`: the session
    /// does not exist.
    pub(super) async fn of(capability: &Capability, server: &Server, session: &str) -> Result<Option<Self>> {
        let Some(listed) = Listed::read(server, session).await? else { return Ok(None) };
        if let Some(places) = listed.known() {
            return Ok(Some(places));
        }
        let lock = capability.place_lock(server, session);
        let _assigning = lock.lock().await;
        // Another call may have assigned them meanwhile.
        let Some(listed) = Listed::read(server, session).await? else { return Ok(None) };
        if let Some(places) = listed.known() {
            return Ok(Some(places));
        }
        let places = listed.assigned();
        let set = Command::new("set-option").opt("-t", &listed.session).arg(PLACES).arg(places.text());
        super::actions::change(server, [set]).await?;
        Ok(Some(places))
    }

    /// Returns the address of a window.
    pub(super) fn window(&self, id: &str) -> Option<u32> {
        self.windows.get(&id.parse().ok()?).copied()
    }

    /// Returns the window with an address.
    pub(super) fn window_at(&self, address: u32) -> Option<WindowId> {
        self.windows.iter().find(|(_, other)| **other == address).map(|(id, _)| *id)
    }

    /// Returns the address of a pane.
    pub(super) fn place(&self, id: PaneId) -> Option<Place> {
        self.panes.get(&id).copied()
    }

    /// Returns the address of a pane, as text.
    pub(super) fn pane(&self, id: PaneId) -> Option<String> {
        self.place(id).map(|(window, pane)| format!("{window}.{pane}"))
    }

    /// Returns the pane with an address.
    pub(super) fn pane_at(&self, address: Place) -> Option<PaneId> {
        self.panes.iter().find(|(_, other)| **other == address).map(|(id, _)| *id)
    }

    /// Returns the panes in a window.
    pub(super) fn within(&self, window: WindowId) -> impl Iterator<Item = PaneId> {
        self.within.iter().filter(move |(_, other)| **other == window).map(|(pane, _)| *pane)
    }

    /// Returns the number of panes.
    pub(super) fn pane_count(&self) -> usize {
        self.panes.len()
    }

    fn text(&self) -> String {
        let windows = self.windows.iter().map(|(id, address)| format!("{id}={address}"));
        let panes = self.panes.iter().map(|(id, (window, pane))| format!("{id}={window}.{pane}"));
        windows.chain(panes).collect::<Vec<_>>().join(" ")
    }

    /// Parses the stored addresses of the listed windows and panes; a second one with the same
    /// address is left out.
    fn parse(text: &str, rows: &[Row]) -> Self {
        let mut places = Self { within: rows.iter().map(|row| (row.pane, row.window)).collect(), ..Self::default() };
        let windows: BTreeSet<_> = rows.iter().map(|row| row.window).collect();
        for (id, address) in text.split(' ').filter_map(|entry| entry.split_once('=')) {
            if let (Ok(id), Ok(address)) = (id.parse(), address.parse()) {
                if windows.contains(&id) && address <= HIGHEST && places.window_at(address).is_none() {
                    places.windows.insert(id, address);
                }
            } else if let (Ok(id), Some(address)) = (id.parse(), parse(address))
                && places.within.contains_key(&id)
                && address.0 <= HIGHEST
                && address.1 <= HIGHEST
                && places.pane_at(address).is_none()
            {
                places.panes.insert(id, address);
            }
        }
        places
    }
}

/// Parses an address `W.P`.
pub(super) fn parse(written: &str) -> Option<Place> {
    let (window, pane) = written.split_once('.')?;
    Some((window.parse().ok()?, pane.parse().ok()?))
}

/// A session as tmux lists it.
struct Listed {
    session: String,
    /// In tmux's order.
    rows: Vec<Row>,
    /// The session's `base-index`.
    base: u32,
    /// The stored addresses.
    stored: String,
}

impl Listed {
    async fn read(server: &Server, session: &str) -> Result<Option<Self>> {
        let command = Command::new("list-panes").flag("-s").opt("-t", format!("={session}:"));
        let lists = match server.values(&[ValueList { command, fields: &FIELDS }]).await {
            Ok(lists) => lists,
            Err(error) if is_absent(&error) => return Ok(None),
            Err(error) if matches!(error.code, ErrorCode::NotFound | ErrorCode::InvalidTarget) => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut listed = Self { session: String::new(), rows: Vec::new(), base: 0, stored: String::new() };
        for row in lists.into_iter().flatten() {
            let unreadable = || Error::internal("tmux's list of panes is unreadable");
            let [session, window, pane, index, base, stored] = row.as_slice() else { return Err(unreadable()) };
            let (Ok(window), Ok(pane), Ok(index)) = (window.parse(), pane.parse(), index.parse()) else {
                return Err(unreadable());
            };
            listed.rows.push(Row { window, pane, index });
            (listed.session, listed.stored) = (session.clone(), stored.clone());
            listed.base = base.parse().unwrap_or_default();
        }
        Ok(Some(listed).filter(|listed| !listed.rows.is_empty()))
    }

    /// Returns the stored addresses if all windows and panes have one.
    fn known(&self) -> Option<Places> {
        let places = Places::parse(&self.stored, &self.rows);
        let is_known = |row: &Row| places.windows.contains_key(&row.window) && places.panes.contains_key(&row.pane);
        self.rows.iter().all(is_known).then_some(places)
    }

    /// Assigns the missing addresses. A window gets its index, counted from the first one, or else
    /// the lowest free number; a pane the number after its window's highest.
    fn assigned(&self) -> Places {
        let mut places = Places::parse(&self.stored, &self.rows);
        let lowest = self.rows.iter().map(|row| row.index).min().unwrap_or_default();
        let base = lowest.min(self.base);
        for row in &self.rows {
            let free = |places: &Places, number: u32| {
                places.window_at(number).is_none() && !places.panes.values().any(|(window, _)| *window == number)
            };
            let window = places.windows.get(&row.window).copied().or_else(|| {
                let wanted = row.index - base;
                std::iter::once(wanted).chain(0..=u32::MAX).find(|number| free(&places, *number))
            });
            let Some(window) = window else { continue };
            places.windows.insert(row.window, window);
            if !places.panes.contains_key(&row.pane) {
                let others = places.panes.values().filter(|(other, _)| *other == window);
                let next = others.map(|(_, pane)| pane.saturating_add(1)).max().unwrap_or_default();
                places.panes.insert(row.pane, (window, next));
            }
        }
        places
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Assigns addresses to panes `(window, pane, window index)`; returns what is stored.
    fn assign(stored: &str, base: u32, rows: &[(u32, u32, u32)]) -> String {
        let rows: Vec<Row> = rows
            .iter()
            .map(|(window, pane, index)| Row { window: WindowId(*window), pane: PaneId(*pane), index: *index })
            .collect();
        let listed = Listed { session: "$0".into(), rows, base, stored: stored.into() };
        let places = listed.known().unwrap_or_else(|| listed.assigned());
        let again = Listed { stored: places.text(), ..listed };
        assert_eq!(again.known().as_ref(), Some(&places), "nothing is left to assign");
        places.text()
    }

    #[test]
    fn the_first_pane_is_0_0_wherever_tmux_counts_from() {
        assert_eq!(assign("", 0, &[(3, 5, 0), (3, 6, 0), (4, 7, 2)]), "@3=0 @4=2 %5=0.0 %6=0.1 %7=2.0");
        assert_eq!(assign("", 1, &[(3, 5, 1), (3, 6, 1), (4, 7, 2)]), "@3=0 @4=1 %5=0.0 %6=0.1 %7=1.0");
        // It was made before the option was set.
        assert_eq!(assign("", 1, &[(3, 5, 0), (4, 7, 2)]), "@3=0 @4=2 %5=0.0 %7=2.0");
    }

    #[test]
    fn a_stored_number_that_is_too_high_is_ignored() {
        let stored = format!("@3={0} %5=0.{0} %6={0}.0", u32::MAX);
        assert_eq!(assign(&stored, 0, &[(3, 5, 0), (3, 6, 0), (3, 7, 0)]), "@3=0 %5=0.0 %6=0.1 %7=0.2");
    }

    #[test]
    fn an_address_holds_until_its_pane_ends() {
        let stored = "@1=0 @2=1 @3=2 %1=0.0 %2=0.1 %3=0.2 %4=1.0 %5=2.0";
        // Window @2 and pane %2 have ended, and all were renumbered.
        let left = [(1, 1, 5), (1, 3, 5), (3, 5, 6)];
        assert_eq!(assign(stored, 0, &left), "@1=0 @3=2 %1=0.0 %3=0.2 %5=2.0");
        // New ones take no other's address; a pane that moved keeps its own.
        let more = [(1, 1, 1), (1, 3, 1), (1, 9, 1), (3, 5, 2), (8, 4, 3), (9, 7, 4)];
        assert_eq!(assign(stored, 1, &more), "@1=0 @3=2 @8=3 @9=4 %1=0.0 %3=0.2 %4=1.0 %5=2.0 %7=4.0 %9=0.3");
        // A stored text from elsewhere gives no address twice.
        assert_eq!(assign("@1=0 @3=0 %1=0.0 %5=0.0 x =", 0, &[(1, 1, 0), (3, 5, 1)]), "@1=0 @3=1 %1=0.0 %5=1.0");
    }
}
