//! Devices, their tabs and panes, and terminals as words of `workspace`.

use muxtap_devices::local::Home;
use serde_json::Value;

use super::{
    Candidate,
    targets::{Part, get},
};

use crate::{
    api::{DeviceList, PaneInfo, WorkspaceAnswer},
    cli::{
        caller::Caller,
        client::Client,
        commands::workspace::{folder, id_of},
        output, url,
    },
};

/// Returns the parts of this command line's own workspace. Only reads its files.
pub(super) fn own(caller: &Caller, freshell: bool, part: Part) -> Vec<Candidate> {
    let Ok(folder) = folder(caller, freshell) else { return Vec::new() };
    Home::new(folder).look().map_or_else(Vec::new, |workspace| parts(part, &workspace))
}

/// Returns devices, or the parts of the named device's workspace: from the device, or as published.
pub(super) async fn of_daemon(client: &mut Client, part: Part, device: Option<&str>) -> Option<Vec<Candidate>> {
    if part == Part::Devices {
        let list: DeviceList = get(client, "/v1/devices").await?;
        let about = |online: bool, label: String| if online { label } else { format!("{label}, offline") };
        let devices = list.devices.into_iter();
        return Some(devices.map(|one| Candidate::new(one.device_id, about(one.online, one.device_label))).collect());
    }
    let path = format!("/v1/devices/{}/workspace?allow_stale=true", url::encode(device?));
    let answer: WorkspaceAnswer = get(client, &path).await?;
    Some(parts(part, &serde_json::to_value(answer).ok()?))
}

/// Returns terminals: the panes of the server that the line names.
pub(super) fn terminals(caller: &Caller, panes: &[PaneInfo]) -> Vec<Candidate> {
    let about =
        |pane: &PaneInfo| format!("{}  {}", output::place(&pane.session, pane.window_index, pane.index), pane.command);
    let live = panes.iter().filter(|pane| !pane.dead && !pane.window_id.is_empty());
    let named = live.filter_map(|pane| Some((id_of(caller, pane)?, pane)));
    named.map(|(id, pane)| Candidate::new(format!("terminal:{id}"), about(pane))).collect()
}

/// Returns the parts of a published workspace.
fn parts(part: Part, workspace: &Value) -> Vec<Candidate> {
    let list = |name: &str| workspace.get(name).and_then(Value::as_array).cloned().unwrap_or_default();
    let text = |entity: &Value, name: &str| entity.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let terminal = |pane: &Value| pane.pointer("/contentRef/terminalId").and_then(Value::as_str).map(str::to_owned);
    match part {
        Part::Devices => Vec::new(),
        Part::Tabs => {
            let tabs = list("tabs");
            tabs.iter().map(|tab| Candidate::new(format!("tab:{}", text(tab, "id")), text(tab, "title"))).collect()
        }
        Part::Panes | Part::Terminals => {
            let panes = list("panes");
            let shown = panes.iter().filter(|pane| part == Part::Panes || terminal(pane).is_some());
            let about = |pane: &Value| {
                let shows = terminal(pane).map(|id| format!("terminal:{id}"));
                let others = [text(pane, "url"), text(pane, "file")];
                let shows = shows.or_else(|| others.into_iter().find(|other| !other.is_empty())).unwrap_or_default();
                format!("{} {shows}", text(pane, "kind")).trim_end().to_owned()
            };
            shown.map(|pane| Candidate::new(format!("pane:{}", text(pane, "id")), about(pane))).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn tabs_and_panes_are_offered_by_their_ids_and_say_what_they_show() {
        let workspace = json!({
            "tabs": [{"id": "t1", "title": "build"}],
            "panes": [
                {"id": "p2", "kind": "terminal", "contentRef": {"terminalId": "%3"}},
                {"id": "p3", "kind": "browser", "url": "http://a/"},
                {"id": "p4", "kind": "picker"},
            ],
        });
        let words = |part| -> Vec<(String, String)> {
            parts(part, &workspace).into_iter().map(|one| (one.value, one.description)).collect()
        };
        let word = |value: &str, about: &str| (value.to_owned(), about.to_owned());
        assert_eq!(words(Part::Tabs), [word("tab:t1", "build")]);
        assert_eq!(words(Part::Terminals), [word("pane:p2", "terminal terminal:%3")]);
        assert_eq!(
            words(Part::Panes),
            [word("pane:p2", "terminal terminal:%3"), word("pane:p3", "browser http://a/"), word("pane:p4", "picker")]
        );
    }
}
