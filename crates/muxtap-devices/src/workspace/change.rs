//! How the commands change a layout.

use muxtap_api::{Error, ErrorCode, Result};

use super::{
    Command, ContentRef, DEPTH, Direction, Layout, PANES, Pane, PaneKind, Status, TABS, Tab,
    model::Node,
    selector::{Selector, check_terminal, invalid},
};

/// The maximum length of a title, in characters.
pub const TITLE_CHARS: usize = 256;
/// The maximum length of a web page's URL, in bytes.
pub const URL_BYTES: usize = 8192;
/// The maximum length of a file's path, in bytes.
pub const FILE_BYTES: usize = 4096;

/// The ids of what a command made or changed.
#[derive(Default)]
pub(super) struct Made {
    pub(super) tab: Option<String>,
    pub(super) pane: Option<String>,
}

/// A pane's content.
#[derive(Clone, Debug)]
enum Content {
    Picker,
    Pending,
    Browser(String),
    Editor(String),
    Ref(ContentRef),
}

impl Command {
    /// Checks everything that does not depend on a workspace: selectors, URLs, titles, paths and
    /// numbers. A command that fails here fails for every owner, so no owner is asked.
    ///
    /// Errors: `INVALID_TARGET`, `INVALID_ARGUMENT`.
    pub fn check(&self) -> Result<()> {
        let pane = |target: &str, tab: &Option<String>| Selector::of_pane(target, tab.as_deref()).map(drop);
        match self {
            Self::NewTab { title, browser, editor } => {
                title.as_deref().map_or(Ok(()), check_title)?;
                shown(browser.as_deref(), editor.as_deref()).map(drop)
            }
            Self::SelectTab { target } | Self::KillTab { target } => Selector::of_tab(target).map(drop),
            Self::RenameTab { target, title } => {
                Selector::of_tab(target)?;
                check_title(title)
            }
            Self::SplitPane { target, tab, browser, editor, .. } => {
                pane(target, tab)?;
                shown(browser.as_deref(), editor.as_deref()).map(drop)
            }
            Self::SelectPane { target, tab }
            | Self::KillPane { target, tab }
            | Self::Reserve { target: Some(target), tab, title: None, .. } => pane(target, tab),
            Self::ResizePane { target, tab, x, y } => {
                pane(target, tab)?;
                check_percent(*x, *y)
            }
            Self::SwapPane { source, target, tab } => {
                pane(source, tab)?;
                pane(target, tab)
            }
            Self::OpenBrowser { target, tab, url } | Self::Navigate { target, tab, url } => {
                pane(target, tab)?;
                check_url(url)
            }
            Self::OpenEditor { target, tab, file } => {
                pane(target, tab)?;
                check_file(file)
            }
            Self::AttachTerminal { target, to, tab } => {
                Selector::of_terminal(target)?;
                pane(to, tab)
            }
            Self::Bind { target, tab, content_ref } => {
                pane(target, tab)?;
                check_ref(content_ref)
            }
            Self::Reserve { target: None, tab: None, direction: None, title, .. } => {
                title.as_deref().map_or(Ok(()), check_title)
            }
            Self::Reserve { .. } => {
                Err(Error::invalid("reserve: either a pane to split (target, direction) or a new tab's title"))
            }
            Self::Finalize { pane, content_ref } => {
                Selector::of_pane(pane, None)?;
                check_ref(content_ref)
            }
            Self::Release { pane } => Selector::of_pane(pane, None).map(drop),
        }
    }
}

impl Layout {
    /// Carries out a command; the caller has counted the revision, and discards the layout on an
    /// error.
    pub(super) fn change(&mut self, command: &Command, now: u64) -> Result<Made> {
        match command {
            Command::NewTab { title, browser, editor } => {
                let content = shown(browser.as_deref(), editor.as_deref())?;
                self.new_tab(title.as_deref(), content, now)
            }
            Command::Reserve { target: None, tab: None, direction: None, title, .. } => {
                self.new_tab(title.as_deref(), Content::Pending, now)
            }
            Command::Reserve { target: Some(target), tab, direction, title: None, .. } => {
                let direction = direction.unwrap_or(Direction::Horizontal);
                self.split(target, tab.as_deref(), direction, Content::Pending, now)
            }
            Command::Reserve { .. } => {
                Err(Error::invalid("reserve: either a pane to split (target, direction) or a new tab's title"))
            }
            Command::SplitPane { target, tab, direction, browser, editor } => {
                let content = shown(browser.as_deref(), editor.as_deref())?;
                self.split(target, tab.as_deref(), *direction, content, now)
            }
            Command::SelectTab { target } => {
                let id = self.find_tab(target)?.id.clone();
                self.active_tab_id = Some(id.clone());
                self.touch_tab(&id, now)?;
                Ok(Made { tab: Some(id), pane: None })
            }
            Command::RenameTab { target, title } => {
                check_title(title)?;
                let id = self.find_tab(target)?.id.clone();
                self.tab_mut(&id)?.title.clone_from(title);
                self.touch_tab(&id, now)?;
                Ok(Made { tab: Some(id), pane: None })
            }
            Command::KillTab { target } => {
                let id = self.find_tab(target)?.id.clone();
                self.remove_tab(&id);
                Ok(Made::default())
            }
            Command::SelectPane { target, tab } => {
                let (id, tab) = self.place(target, tab.as_deref())?;
                self.tab_mut(&tab)?.active_pane_id.clone_from(&id);
                self.active_tab_id = Some(tab.clone());
                self.touch_tab(&tab, now)?;
                self.touch_pane(&id, now)?;
                Ok(Made { tab: Some(tab), pane: Some(id) })
            }
            Command::KillPane { target, tab } => {
                let (id, tab) = self.place(target, tab.as_deref())?;
                self.remove_pane(&id, &tab, now)
            }
            Command::Release { pane } => {
                let (id, tab) = self.reserved(pane)?;
                self.remove_pane(&id, &tab, now)
            }
            Command::ResizePane { target, tab, x, y } => self.resize(target, tab.as_deref(), *x, *y, now),
            Command::SwapPane { source, target, tab } => self.swap(source, target, tab.as_deref(), now),
            Command::OpenBrowser { target, tab, url } => {
                check_url(url)?;
                self.show(target, tab.as_deref(), Content::Browser(url.clone()), now)
            }
            Command::Navigate { target, tab, url } => {
                check_url(url)?;
                if self.find_pane(target, tab.as_deref())?.kind != PaneKind::Browser {
                    return Err(invalid(format!("{target} shows no web page; use open-browser")));
                }
                self.show(target, tab.as_deref(), Content::Browser(url.clone()), now)
            }
            Command::OpenEditor { target, tab, file } => {
                check_file(file)?;
                self.show(target, tab.as_deref(), Content::Editor(file.clone()), now)
            }
            Command::AttachTerminal { target, to, tab } => {
                let id = Selector::of_terminal(target)?;
                self.show(to, tab.as_deref(), Content::Ref(ContentRef::TerminalId(id)), now)
            }
            Command::Bind { target, tab, content_ref } => {
                check_ref(content_ref)?;
                self.show(target, tab.as_deref(), Content::Ref(content_ref.clone()), now)
            }
            Command::Finalize { pane, content_ref } => {
                check_ref(content_ref)?;
                let (id, _) = self.reserved(pane)?;
                self.fill(&id, Content::Ref(content_ref.clone()), now)
            }
        }
    }

    fn fresh_id(&mut self, letter: char) -> String {
        let id = format!("{letter}{}", self.next_id);
        self.next_id += 1;
        id
    }

    fn new_tab(&mut self, title: Option<&str>, content: Content, now: u64) -> Result<Made> {
        if self.tabs.len() >= TABS {
            return Err(limit("tabs", TABS));
        }
        if let Some(title) = title {
            check_title(title)?;
        }
        let id = self.fresh_id('t');
        let pane = self.new_pane(&id, content, now)?;
        self.tabs.push(Tab {
            title: title.map_or_else(|| id.clone(), str::to_owned),
            owner_device_id: self.device_id.clone(),
            status: Status::Ready,
            created_at: now,
            updated_at: now,
            layout_revision: self.workspace_revision,
            active_pane_id: pane.clone(),
            layout: Node::Pane(pane.clone()),
            id: id.clone(),
        });
        self.active_tab_id = Some(id.clone());
        self.touch_tab(&id, now)?;
        Ok(Made { tab: Some(id), pane: Some(pane) })
    }

    fn new_pane(&mut self, tab: &str, content: Content, now: u64) -> Result<String> {
        if self.panes.len() >= PANES {
            return Err(limit("panes", PANES));
        }
        let id = self.fresh_id('p');
        self.panes.push(Pane {
            id: id.clone(),
            tab_id: tab.to_owned(),
            owner_device_id: self.device_id.clone(),
            kind: PaneKind::Picker,
            status: Status::Ready,
            content_ref: None,
            url: None,
            file: None,
            updated_at: now,
            layout_revision: self.workspace_revision,
            reserver: None,
        });
        self.set_content(&id, content, now)?;
        Ok(id)
    }

    fn split(
        &mut self,
        target: &str,
        tab: Option<&str>,
        direction: Direction,
        content: Content,
        now: u64,
    ) -> Result<Made> {
        let (at, tab) = self.place(target, tab)?;
        let new = self.new_pane(&tab, content, now)?;
        let place = self.tab_mut(&tab)?;
        place.layout.split(&at, direction, &new);
        if place.layout.depth() > DEPTH {
            return Err(limit("splits above a pane", DEPTH));
        }
        place.active_pane_id.clone_from(&new);
        self.touch_tab(&tab, now)?;
        Ok(Made { tab: Some(tab), pane: Some(new) })
    }

    fn resize(&mut self, target: &str, tab: Option<&str>, x: Option<u8>, y: Option<u8>, now: u64) -> Result<Made> {
        let (id, tab) = self.place(target, tab)?;
        check_percent(x, y)?;
        for (name, percent, direction) in [("x", x, Direction::Horizontal), ("y", y, Direction::Vertical)] {
            let Some(percent) = percent else { continue };
            if self.tab_mut(&tab)?.layout.resize(&id, direction, percent) != Some(true) {
                return Err(Error::invalid(format!("{name}: {target} has no neighbor in that direction")));
            }
        }
        self.touch_tab(&tab, now)?;
        self.touch_pane(&id, now)?;
        Ok(Made { tab: Some(tab), pane: Some(id) })
    }

    fn swap(&mut self, source: &str, target: &str, tab: Option<&str>, now: u64) -> Result<Made> {
        let (one, one_tab) = self.place(source, tab)?;
        let (other, other_tab) = self.place(target, tab)?;
        if one == other {
            return Err(invalid("source and target are the same pane"));
        }
        let exchanged = |id: &str| match id {
            id if id == one => Some(other.clone()),
            id if id == other => Some(one.clone()),
            _ => None,
        };
        for tab in [Some(&one_tab), Some(&other_tab).filter(|tab| **tab != one_tab)].into_iter().flatten() {
            let place = self.tab_mut(tab)?;
            place.layout.rename(&exchanged);
            // Within one tab the active pane stays active at its new place; in two tabs each keeps
            // its active place.
            if one_tab != other_tab
                && let Some(id) = exchanged(&place.active_pane_id)
            {
                place.active_pane_id = id;
            }
        }
        self.pane_mut(&one)?.tab_id.clone_from(&other_tab);
        self.pane_mut(&other)?.tab_id.clone_from(&one_tab);
        for pane in [&one, &other] {
            self.touch_pane(pane, now)?;
        }
        for tab in [&one_tab, &other_tab] {
            self.touch_tab(tab, now)?;
        }
        Ok(Made { tab: Some(other_tab), pane: Some(one) })
    }

    /// Changes a pane's content. A reserved pane belongs to its reserver.
    fn show(&mut self, target: &str, tab: Option<&str>, content: Content, now: u64) -> Result<Made> {
        let pane = self.find_pane(target, tab)?;
        if pane.status == Status::Pending {
            return Err(Error::new(ErrorCode::Conflict, format!("{target} is reserved by a pending command")));
        }
        let id = pane.id.clone();
        self.fill(&id, content, now)
    }

    fn fill(&mut self, id: &str, content: Content, now: u64) -> Result<Made> {
        self.set_content(id, content, now)?;
        let tab = self.pane_mut(id)?.tab_id.clone();
        self.touch_tab(&tab, now)?;
        Ok(Made { tab: Some(tab), pane: Some(id.to_owned()) })
    }

    fn set_content(&mut self, id: &str, content: Content, now: u64) -> Result<()> {
        let pane = self.pane_mut(id)?;
        (pane.content_ref, pane.url, pane.file, pane.reserver) = (None, None, None, None);
        pane.status = if matches!(content, Content::Pending) { Status::Pending } else { Status::Ready };
        pane.kind = match content {
            Content::Picker | Content::Pending => PaneKind::Picker,
            Content::Browser(url) => {
                pane.url = Some(url);
                PaneKind::Browser
            }
            Content::Editor(file) => {
                pane.file = Some(file);
                PaneKind::Editor
            }
            Content::Ref(content) => {
                let kind = match content {
                    ContentRef::TerminalId(_) => PaneKind::Terminal,
                    ContentRef::SessionRef(_) => PaneKind::ClaudeChat,
                };
                pane.content_ref = Some(content);
                kind
            }
        };
        self.touch_pane(id, now)
    }

    /// Removes a pane, and with the last one its tab.
    fn remove_pane(&mut self, id: &str, tab: &str, now: u64) -> Result<Made> {
        self.panes.retain(|pane| pane.id != id);
        let place = self.tab_mut(tab)?;
        let layout = std::mem::replace(&mut place.layout, Node::Pane(String::new()));
        let Some(left) = layout.without(id) else {
            self.remove_tab(tab);
            return Ok(Made::default());
        };
        place.layout = left;
        if place.active_pane_id == id {
            place.active_pane_id = place.layout.panes().first().map(|&first| first.to_owned()).unwrap_or_default();
        }
        self.touch_tab(tab, now)?;
        Ok(Made { tab: Some(tab.to_owned()), pane: None })
    }

    fn remove_tab(&mut self, id: &str) {
        let at = self.tabs.iter().position(|tab| tab.id == id).unwrap_or_default();
        self.tabs.retain(|tab| tab.id != id);
        self.panes.retain(|pane| pane.tab_id != id);
        if self.active_tab_id.as_deref() == Some(id) {
            // The tab that takes its position, or else the last one.
            let next = self.tabs.get(at).or_else(|| self.tabs.last());
            self.active_tab_id = next.map(|tab| tab.id.clone());
        }
    }

    /// Returns the ids of a pane and its tab.
    fn place(&self, selector: &str, tab: Option<&str>) -> Result<(String, String)> {
        let pane = self.find_pane(selector, tab)?;
        Ok((pane.id.clone(), pane.tab_id.clone()))
    }

    fn reserved(&self, selector: &str) -> Result<(String, String)> {
        let pane = self.find_pane(selector, None)?;
        if pane.status != Status::Pending {
            return Err(Error::new(ErrorCode::Conflict, format!("{selector} is not reserved, or no longer reserved")));
        }
        Ok((pane.id.clone(), pane.tab_id.clone()))
    }

    fn touch_tab(&mut self, id: &str, now: u64) -> Result<()> {
        let pending = |pane: &Pane| pane.tab_id == id && pane.status == Status::Pending;
        let waiting = self.panes.iter().filter(|pane| pending(pane)).count();
        let revision = self.workspace_revision;
        let tab = self.tab_mut(id)?;
        tab.status = if waiting == tab.layout.panes().len() { Status::Pending } else { Status::Ready };
        (tab.updated_at, tab.layout_revision) = (now, revision);
        Ok(())
    }

    fn touch_pane(&mut self, id: &str, now: u64) -> Result<()> {
        let revision = self.workspace_revision;
        let pane = self.pane_mut(id)?;
        // A reserved pane's timeout continues from when it was reserved.
        if pane.status == Status::Ready || pane.layout_revision == revision {
            pane.updated_at = now;
        }
        pane.layout_revision = revision;
        Ok(())
    }
}

fn shown(browser: Option<&str>, editor: Option<&str>) -> Result<Content> {
    match (browser, editor) {
        (None, None) => Ok(Content::Picker),
        (Some(url), None) => check_url(url).map(|()| Content::Browser(url.to_owned())),
        (None, Some(file)) => check_file(file).map(|()| Content::Editor(file.to_owned())),
        _ => Err(Error::invalid("browser, editor: expected at most one")),
    }
}

fn limit(what: &str, most: usize) -> Error {
    Error::new(ErrorCode::ResourceLimit, format!("a workspace has at most {most} {what}"))
}

fn check_percent(x: Option<u8>, y: Option<u8>) -> Result<()> {
    if x.is_none() && y.is_none() {
        return Err(Error::invalid("x, y: expected at least one, in percent"));
    }
    for (name, percent) in [("x", x), ("y", y)] {
        if let Some(percent) = percent.filter(|percent| !(1..=99).contains(percent)) {
            return Err(Error::invalid(format!("{name}: expected 1 to 99 percent, got {percent}")));
        }
    }
    Ok(())
}

fn check_title(title: &str) -> Result<()> {
    if title.trim().is_empty() || title.chars().count() > TITLE_CHARS || title.chars().any(char::is_control) {
        return Err(Error::invalid(format!("title: expected 1 to {TITLE_CHARS} visible characters")));
    }
    Ok(())
}

/// Checks the URL of a web page. Error: `INVALID_ARGUMENT`.
fn check_url(url: &str) -> Result<()> {
    let host = ["http://", "https://"].iter().find_map(|scheme| url.strip_prefix(scheme));
    let host = host.map(|rest| rest.split(['/', '?', '#']).next().unwrap_or_default());
    // A browser would silently drop spaces, tabs and line ends within a URL.
    let clean = url.len() <= URL_BYTES && !url.chars().any(|letter| letter.is_control() || letter.is_whitespace());
    let named = host.is_some_and(|host| {
        let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
        !host.is_empty() && !host.starts_with(':') && !host.contains(['\\', '<', '>', '"'])
    });
    if clean && named {
        return Ok(());
    }
    Err(Error::invalid(format!("url: expected http:// or https:// and a host, at most {URL_BYTES} bytes")))
}

fn check_file(file: &str) -> Result<()> {
    if file.is_empty() || file.len() > FILE_BYTES || file.chars().any(char::is_control) {
        return Err(Error::invalid(format!("file: expected a path of at most {FILE_BYTES} bytes")));
    }
    Ok(())
}

fn check_ref(content: &ContentRef) -> Result<()> {
    match content {
        ContentRef::TerminalId(id) => check_terminal(id),
        ContentRef::SessionRef(session) => match Selector::parse(&format!("session:{session}")) {
            Ok(Selector::Session { .. }) => Ok(()),
            _ => Err(invalid(format!("invalid session {session:?}; expected PROVIDER:ID"))),
        },
    }
}
