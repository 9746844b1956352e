//! A workspace's tabs and panes: how they are found, and their invariants.

use std::collections::BTreeSet;

use muxtap_api::{Error, ErrorCode, Result};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{
    DEPTH, PANES, PENDING_TIME, TABS,
    model::{Pane, Status, Tab},
    selector::Selector,
};

/// The tabs and panes of a device, at one revision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Layout {
    /// The device that owns the layout.
    pub device_id: String,
    /// The number of changes, from 1 on.
    pub workspace_revision: u64,
    /// The active tab; `None` only without any tab.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active_tab_id: Option<String>,
    /// The tabs, in order.
    pub tabs: Vec<Tab>,
    /// The panes of all tabs; their order has no meaning.
    pub panes: Vec<Pane>,
    /// The number of the next id.
    #[serde(default)]
    pub(super) next_id: u64,
}

impl Layout {
    /// Creates an empty layout.
    pub(super) fn new(device_id: &str) -> Self {
        Self {
            device_id: device_id.to_owned(),
            workspace_revision: 1,
            active_tab_id: None,
            tabs: Vec::new(),
            panes: Vec::new(),
            next_id: 1,
        }
    }

    /// Returns the tab with this id.
    pub fn tab(&self, id: &str) -> Option<&Tab> {
        self.tabs.iter().find(|tab| tab.id == id)
    }

    /// Returns the pane with this id.
    pub fn pane(&self, id: &str) -> Option<&Pane> {
        self.panes.iter().find(|pane| pane.id == id)
    }

    pub(super) fn tab_mut(&mut self, id: &str) -> Result<&mut Tab> {
        let gone = || Error::internal(format!("no tab {id}"));
        self.tabs.iter_mut().find(|tab| tab.id == id).ok_or_else(gone)
    }

    pub(super) fn pane_mut(&mut self, id: &str) -> Result<&mut Pane> {
        let gone = || Error::internal(format!("no pane {id}"));
        self.panes.iter_mut().find(|pane| pane.id == id).ok_or_else(gone)
    }

    /// Finds the tab that a selector names. Errors: `INVALID_TARGET`, `NOT_FOUND`,
    /// `AMBIGUOUS_TARGET`.
    pub fn find_tab(&self, selector: &str) -> Result<&Tab> {
        let absent = || Error::not_found(format!("no tab {selector}; list-tabs shows what is there"));
        match Selector::of_tab(selector)? {
            Selector::Tab(id) => self.tab(&id).ok_or_else(absent),
            Selector::TabIndex(index) => self.tabs.get(index).ok_or_else(absent),
            Selector::TabName(name) => {
                let fitting: Vec<&Tab> = self.tabs.iter().filter(|tab| tab.title == name).collect();
                match fitting.as_slice() {
                    [] => Err(absent()),
                    [one] => Ok(one),
                    several => {
                        let candidates: Vec<String> = several.iter().map(|tab| format!("tab:{}", tab.id)).collect();
                        let message = format!("ambiguous selector {selector}: matches {}", candidates.join(", "));
                        Err(Error::new(ErrorCode::AmbiguousTarget, message)
                            .with_details(json!({ "candidates": candidates })))
                    }
                }
            }
            _ => Err(absent()),
        }
    }

    /// Finds the pane that a selector names; `tab` is the tab of a `pane-index:`. Errors: as
    /// [`Self::find_tab`].
    pub fn find_pane(&self, selector: &str, tab: Option<&str>) -> Result<&Pane> {
        let absent = || Error::not_found(format!("no pane {selector}; list-panes shows what is there"));
        let parsed = Selector::of_pane(selector, tab)?;
        let tab = tab.map(|tab| self.find_tab(tab)).transpose()?;
        match parsed {
            Selector::Pane(id) => {
                let pane = self.pane(&id).ok_or_else(absent)?;
                match tab {
                    Some(tab) if tab.id != pane.tab_id => Err(absent()),
                    _ => Ok(pane),
                }
            }
            Selector::PaneIndex(index) => {
                let panes = tab.ok_or_else(absent)?.layout.panes();
                panes.get(index).and_then(|id| self.pane(id)).ok_or_else(absent)
            }
            _ => Err(absent()),
        }
    }

    /// Returns the reserved panes whose timeout has passed.
    pub(super) fn overdue(&self, now_ms: u64) -> impl Iterator<Item = &Pane> {
        self.panes.iter().filter(move |pane| pane.status == Status::Pending && released_at(pane) <= now_ms)
    }

    /// Returns when the next reserved pane's timeout passes, in milliseconds since 1970.
    pub(super) fn next_release(&self) -> Option<u64> {
        self.panes.iter().filter(|pane| pane.status == Status::Pending).map(released_at).min()
    }

    /// Checks the invariants. Error: the violated one, in words.
    pub(super) fn check(&self) -> std::result::Result<(), String> {
        let no = |why: String| Err(why);
        if self.workspace_revision == 0 {
            return no("the revision is 0".into());
        }
        if self.tabs.len() > TABS || self.panes.len() > PANES {
            return no(format!("more than {TABS} tabs or {PANES} panes"));
        }
        let ids: BTreeSet<&str> =
            self.tabs.iter().map(|tab| tab.id.as_str()).chain(self.panes.iter().map(|pane| pane.id.as_str())).collect();
        if ids.len() != self.tabs.len() + self.panes.len() || ids.contains("") {
            return no("an id is duplicate or empty".into());
        }
        let mut placed = 0;
        for tab in &self.tabs {
            let panes = tab.layout.panes();
            placed += panes.len();
            for id in &panes {
                match self.pane(id) {
                    Some(pane) if pane.tab_id == tab.id => {}
                    _ => return no(format!("the layout of {} contains {id}, which is not its pane", tab.id)),
                }
            }
            if panes.iter().collect::<BTreeSet<_>>().len() != panes.len() {
                return no(format!("the layout of {} contains a pane twice", tab.id));
            }
            if !panes.contains(&tab.active_pane_id.as_str()) {
                return no(format!("the active pane of {} is not one of its panes", tab.id));
            }
            if tab.layout.depth() > DEPTH || !tab.layout.is_shared_well() {
                return no(format!("{}: nested too deeply, or a percentage out of range", tab.id));
            }
        }
        if placed != self.panes.len() {
            return no("a pane is in no layout".into());
        }
        match &self.active_tab_id {
            Some(id) if self.tab(id).is_none() => no(format!("the active tab {id} does not exist")),
            None if !self.tabs.is_empty() => no("no tab is active".into()),
            _ => self.check_entities(),
        }
    }

    fn check_entities(&self) -> std::result::Result<(), String> {
        let owners = self.tabs.iter().map(|tab| (&tab.id, &tab.owner_device_id, tab.layout_revision));
        let owners =
            owners.chain(self.panes.iter().map(|pane| (&pane.id, &pane.owner_device_id, pane.layout_revision)));
        for (id, owner, revision) in owners {
            if *owner != self.device_id {
                return Err(format!("{id} belongs to another device: {owner}"));
            }
            if revision > self.workspace_revision {
                return Err(format!("{id} is newer than the workspace"));
            }
        }
        Ok(())
    }
}

fn released_at(pane: &Pane) -> u64 {
    pane.updated_at.saturating_add(PENDING_TIME.as_millis() as u64)
}
