//! What a rule changes in a pane: it types, and it labels.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use muxtap_api::{Epoch, Error, PaneInfo};
use muxtap_core::protocol::ids::PaneId;
use muxtap_engine::{Caller, Engine, Principal, is_absent};
use tokio::sync::broadcast;

use crate::{limits::TYPE_LATE, matcher::Fired, rule::Rule, watch::on_engine};

/// The interface of rules in the audit log.
const FACE: &str = "when";

/// The labels that a firing itself has replaced, by key; empty values were missing.
pub(super) type Replaced = BTreeMap<String, String>;

/// A rule types into a pane of a server, or has typed.
#[derive(Clone, Debug)]
pub(crate) struct Typing {
    pub(crate) server: Arc<Path>,
    pub(crate) pane: PaneId,
    pub(crate) at: Instant,
    /// The text; `None` once it was typed.
    pub(crate) text: Option<String>,
}

/// Notes the end of a rule's typing when it is dropped, however the typing ended.
struct Noted {
    sender: broadcast::Sender<Typing>,
    server: Arc<Path>,
    pane: PaneId,
}

impl Noted {
    /// Notes that a rule types. Without a receiver no rule sees it.
    fn begin(sender: broadcast::Sender<Typing>, server: Arc<Path>, pane: PaneId, text: &str) -> Self {
        let noted = Self { sender, server, pane };
        noted.send(Some(text.to_owned()));
        noted
    }

    fn send(&self, text: Option<String>) {
        let typing = Typing { server: self.server.clone(), pane: self.pane, at: Instant::now(), text };
        let _ = self.sender.send(typing);
    }
}

impl Drop for Noted {
    fn drop(&mut self) {
        self.send(None);
    }
}

/// Returns the engine as a rule uses it: the audit log names the rule.
fn as_rule(own: &Engine, rule: &Rule) -> Engine {
    own.with_caller(Caller { face: FACE, who: format!("rule {}", rule.name()), principal: Principal::Engine })
}

/// Types a rule's text, with the permission and the record of any input.
pub(super) async fn type_text(
    sender: &broadcast::Sender<Typing>,
    own: &Engine,
    fired: &Fired,
) -> Result<String, String> {
    let Fired { rule, facts, .. } = fired;
    let Some(typing) = &rule.typing else { return Err("no text".into()) };
    let engine = as_rule(own, rule);
    let message = |error: Error| error.message;
    let (socket, target) = (facts.server.clone(), typing.into.clone().unwrap_or_else(|| facts.pane.clone()));
    let find = async move { engine.server_named(Some(&socket))?.pane(target).await };
    let pane = on_engine(own.clone(), find).await.map_err(message)?;
    check_place(fired, typing.into.is_some(), (pane.id(), pane.cursor().epoch))
        .map_err(|why| format!("not typed: {why}"))?;
    check_labels(own, fired, &Replaced::new()).await.map_err(|why| format!("not typed: {why}"))?;
    check_time(fired.at.elapsed()).map_err(|why| format!("not typed: {why}"))?;
    let (id, text, enter) = (pane.id(), typing.text.clone(), typing.enter);
    // Before the first byte is typed, so that no rule sees the echo as someone else's. It moves into the
    // task that types: when that is aborted, the note of the end comes after it.
    let noted = Noted::begin(sender.clone(), pane.server().socket().into(), id, &typing.text);
    let typed = on_engine(own.clone(), async move {
        let _noted = noted;
        match text.as_str() {
            "" => pane.send_keys(["Enter"]).await,
            text if enter => pane.submit(text).await,
            text => pane.type_text(text).await,
        }
    });
    typed.await.map(|_| format!("typed into {id}")).map_err(message)
}

/// Sets a rule's labels of the event's pane, with the permission and the record of any change. Adds to
/// `replaced` what was there before, if the rule selects by labels. What the pane has from its session
/// alone cannot be removed in the pane: the rule's other labels are set all the same.
pub(super) async fn label(own: &Engine, fired: &Fired, replaced: &mut Replaced) -> Result<String, String> {
    let Fired { rule, facts, .. } = fired;
    let engine = as_rule(own, rule);
    let message = |error: Error| error.message;
    let (socket, target) = (facts.server.clone(), facts.pane.clone());
    let find = async move { engine.server_named(Some(&socket))?.pane(target).await };
    let pane = on_engine(own.clone(), find).await.map_err(message)?;
    let unlabeled = |why: String| format!("not labeled: {why}");
    check_place(fired, false, (pane.id(), pane.cursor().epoch)).map_err(unlabeled)?;
    let before = check_labels(own, fired, replaced).await.map_err(unlabeled)?;
    check_time(fired.at.elapsed()).map_err(unlabeled)?;
    let changes = rule.given.label.clone();
    if let Some(before) = before {
        let value = |key: &String| before.labels.get(key).unwrap_or_default().to_owned();
        *replaced = changes.keys().map(|key| (key.clone(), value(key))).collect();
    }
    let labeled = on_engine(own.clone(), async move { pane.label_own(&changes).await });
    labeled.await.map(|()| "set".to_owned()).map_err(message)
}

/// Checks on a new listing that the event's pane still has the labels that the rule selects, apart from
/// those that this firing itself has set. Returns the pane; `None` if the rule selects by none, or the pane
/// has ended: the last labels of an ended pane are those of the event.
pub(super) async fn check_labels(own: &Engine, fired: &Fired, replaced: &Replaced) -> Result<Option<PaneInfo>, String> {
    let Fired { rule, facts, .. } = fired;
    if !rule.selects() {
        return Ok(None);
    }
    let (engine, socket, id) = (as_rule(own, rule), facts.server.clone(), fired.pane);
    let look = async move {
        let server = engine.server_named(Some(&socket))?;
        let listed = server.panes().await?;
        let epoch = server.live_pane(id).map(|pane| pane.cursor().epoch);
        Ok((epoch, listed.into_iter().find(|info| info.id == id && !info.window_id.is_empty())))
    };
    let (epoch, info) = match on_engine(own.clone(), look).await {
        Ok(seen) => seen,
        // The tmux server has ended, and its panes.
        Err(error) if is_absent(&error) => return Ok(None),
        Err(error) => return Err(format!("the pane's labels are not known: {}", error.message)),
    };
    // The next server has panes with the same ids.
    let Some(mut info) = info.filter(|_| fired.epoch.is_none() || epoch.is_none() || fired.epoch == epoch) else {
        return Ok(None);
    };
    if !replaced.is_empty() {
        info.labels = info.labels.replaced(replaced);
    }
    if rule.is_in_pane(&info) { Ok(Some(info)) } else { Err("the pane's labels no longer match".into()) }
}

/// Checks that a pane belongs to the tmux server of the event, and is the event's unless the rule names
/// another one: after a server's end, the next one has panes with the same ids.
fn check_place(fired: &Fired, is_other: bool, (pane, epoch): (PaneId, Epoch)) -> Result<(), String> {
    // Of a pane that has ended, the epoch is not known.
    let is_same = fired.epoch.map_or(is_other, |of_event| epoch == of_event);
    if is_same && (is_other || pane == fired.pane) {
        return Ok(());
    }
    Err(format!("pane {} of the event has ended", fired.facts.pane))
}

/// Checks that an event is not too long ago: the pane may show something else by now.
fn check_time(since: Duration) -> Result<(), String> {
    if since <= TYPE_LATE {
        return Ok(());
    }
    let (ms, most) = (since.as_millis(), TYPE_LATE.as_secs());
    Err(format!("the event was {ms} ms ago; expected at most {most} s"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::Facts;

    #[test]
    fn a_text_is_not_typed_long_after_its_event() {
        assert_eq!(check_time(TYPE_LATE), Ok(()));
        let late = check_time(TYPE_LATE + Duration::from_millis(1)).unwrap_err();
        assert_eq!(late, "the event was 5001 ms ago; expected at most 5 s");
    }

    #[test]
    fn a_text_is_not_typed_into_a_pane_of_another_server() {
        let set = crate::rule::tests::rules("[[when]]\nname='a'\noutput='x'\ntype='y'\n").unwrap();
        let (this, next) = (Epoch { server: 1, engine: 1 }, Epoch { server: 2, engine: 1 });
        let fired = |epoch| Fired {
            rule: set.rules[0].clone(),
            facts: Facts::default(),
            pane: PaneId(1),
            at: Instant::now(),
            epoch,
        };
        let allows = |epoch, is_other, pane| check_place(&fired(epoch), is_other, pane).is_ok();
        assert!(allows(Some(this), false, (PaneId(1), this)));
        assert!(!allows(Some(this), false, (PaneId(1), next)));
        assert!(!allows(Some(this), false, (PaneId(2), this)));
        assert!(!allows(None, false, (PaneId(1), this)));
        // `into`: another pane, of the same server.
        assert!(allows(Some(this), true, (PaneId(2), this)));
        assert!(!allows(Some(this), true, (PaneId(2), next)));
        assert!(allows(None, true, (PaneId(2), this)));
    }

    #[test]
    fn the_end_of_typing_is_noted_however_it_ends() {
        let sender = broadcast::Sender::new(8);
        let mut receiver = sender.subscribe();
        let noted = Noted::begin(sender, Path::new("/s").into(), PaneId(1), "x");
        assert_eq!(receiver.try_recv().unwrap().text.as_deref(), Some("x"));
        assert!(receiver.try_recv().is_err());
        drop(noted);
        assert_eq!(receiver.try_recv().unwrap().text, None);
    }
}
