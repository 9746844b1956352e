//! What a rule changes in a pane: it types, and it labels.

use std::{
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use muxtap_api::{Epoch, Error, InputRequest, PatchRequest};
use muxtap_core::protocol::ids::PaneId;
use muxtap_engine::{Caller, Engine, Principal};
use tokio::sync::broadcast;

use crate::{limits::TYPE_LATE, matcher::Fired, rule::Rule, watch::on_engine};

/// The interface of rules in the audit log.
const FACE: &str = "when";

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
    let find = async move {
        let server = engine.server_named(Some(&socket))?;
        let pane = server.pane(target).await?;
        Ok((server, pane))
    };
    let (server, pane) = on_engine(own.clone(), find).await.map_err(message)?;
    check_place(fired, typing.into.is_some(), (pane.id(), pane.cursor().epoch))
        .map_err(|why| format!("not typed: {why}"))?;
    check_time(fired.at.elapsed())?;
    let request = if typing.text.is_empty() {
        InputRequest { keys: Some(vec!["Enter".into()]), ..InputRequest::default() }
    } else {
        InputRequest { text: Some(typing.text.clone()), submit: typing.enter, ..InputRequest::default() }
    };
    let pane = pane.id();
    // Before the first byte is typed, so that no rule sees the echo as someone else's. It moves into the
    // task that types: when that is aborted, the note of the end comes after it.
    let noted = Noted::begin(sender.clone(), server.socket().into(), pane, &typing.text);
    let typed = on_engine(own.clone(), async move {
        let _noted = noted;
        server.input(&pane.to_string(), &request).await
    });
    typed.await.map(|_| format!("typed into {pane}")).map_err(message)
}

/// Sets a rule's labels of the event's pane, with the permission and the record of any change.
pub(super) async fn label(own: &Engine, fired: &Fired) -> Result<String, String> {
    let Fired { rule, facts, .. } = fired;
    let engine = as_rule(own, rule);
    let message = |error: Error| error.message;
    let (socket, target) = (facts.server.clone(), facts.pane.clone());
    let find = async move {
        let server = engine.server_named(Some(&socket))?;
        let pane = server.pane(target).await?;
        Ok((server, pane))
    };
    let (server, pane) = on_engine(own.clone(), find).await.map_err(message)?;
    check_place(fired, false, (pane.id(), pane.cursor().epoch)).map_err(|why| format!("not labeled: {why}"))?;
    let patch = PatchRequest { labels: Some(rule.given.label.clone()), ..PatchRequest::default() };
    let pane = pane.id().to_string();
    let labeled = on_engine(own.clone(), async move { server.patch_pane(&pane, &patch).await });
    labeled.await.map(|()| "set".to_owned()).map_err(message)
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
    Err(format!("not typed: the event was {ms} ms ago; expected at most {most} s"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::Facts;

    #[test]
    fn a_text_is_not_typed_long_after_its_event() {
        assert_eq!(check_time(TYPE_LATE), Ok(()));
        let late = check_time(TYPE_LATE + Duration::from_millis(1)).unwrap_err();
        assert_eq!(late, "not typed: the event was 5001 ms ago; expected at most 5 s");
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
