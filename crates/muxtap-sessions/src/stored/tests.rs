use std::{collections::BTreeMap, ffi::OsString, os::unix::ffi::OsStringExt as _};

use muxtap_api::{AgentSessionPatch, AgentSessionRequest, ErrorCode, PromptRequest};
use muxtap_base::nonce;
use muxtap_engine::Options;

use super::*;
use crate::{Inner, Provider};

/// Opens a session, and replies to nothing else.
const AGENT: &str = r#"read -r line; echo '{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":1}}'
read -r line; echo '{"jsonrpc":"2.0","id":2,"result":{"sessionId":"s"}}'
while read -r line; do :; done"#;

/// Sessions without a guard: the running program is not muxtap.
fn sessions() -> AgentSessions {
    let command = ["sh", "-c", AGENT].map(str::to_owned).to_vec();
    let providers = vec![Provider { name: "sh".into(), command, is_default: true }];
    AgentSessions { inner: Arc::new(Inner { providers, ..Inner::default() }) }
}

fn engine() -> Engine {
    Engine::new(Options::default())
}

/// Opens a session; returns its name and the agent's process.
async fn open(sessions: &AgentSessions, engine: &Engine) -> (String, u32) {
    open_in(sessions, engine, "/").await
}

async fn open_in(sessions: &AgentSessions, engine: &Engine, cwd: &str) -> (String, u32) {
    let socket = std::env::temp_dir().join(format!("muxtap-none-{}", nonce::hex64()));
    let request = AgentSessionRequest {
        provider: "sdk".into(),
        cwd: cwd.into(),
        env: BTreeMap::new(),
        ..AgentSessionRequest::default()
    };
    let info = sessions.create(&engine.server_at(&socket).unwrap(), request, None).await.unwrap();
    (info.session.to_string(), info.pid.unwrap())
}

fn prompt(text: &str) -> PromptRequest {
    PromptRequest { text: text.into(), ..PromptRequest::default() }
}

#[tokio::test]
async fn a_session_is_as_it_was_wherever_it_goes_on() {
    let (old, engine) = (sessions(), engine());
    let (name, pid) = open(&old, &engine).await;
    assert_eq!(old.prompt(&engine, &name, prompt("one")).await.unwrap().prompt, Some(1));
    let before = old.get(&engine, &name).unwrap();
    // It goes on here if nothing takes over, also repeatedly.
    for _ in 0..3 {
        let (held, ..) = old.hold(false).await.unwrap();
        let refused = old.prompt(&engine, &name, prompt("no")).await.unwrap_err();
        assert_eq!(refused.code, ErrorCode::TmuxUnavailable);
        assert_eq!(old.interrupt(&engine, &name).unwrap_err().code, ErrorCode::TmuxUnavailable);
        assert_eq!(old.kill(&engine, &name).await.unwrap_err().code, ErrorCode::TmuxUnavailable);
        drop(held);
        assert_eq!(old.get(&engine, &name).unwrap(), before);
    }
    assert_eq!(old.prompt(&engine, &name, prompt("two")).await.unwrap().prompt, Some(2));
    let before = old.get(&engine, &name).unwrap();
    let (held, bytes, descriptors) = old.hold(false).await.unwrap();
    let prepared = PreparedSessions::read(&bytes, descriptors, false).unwrap();
    held.leave();
    assert!(old.list(&engine, None).unwrap().is_empty() && old.is_idle());
    old.stop().await;
    let (new, next) = (sessions(), self::engine());
    new.restore(&next, prepared);
    assert_eq!(new.get(&next, &name).unwrap(), before);
    assert!(process::began(pid).is_some(), "the agent runs");
    assert_eq!(new.prompt(&next, &name, prompt("three")).await.unwrap().prompt, Some(3));
    let ended = new.kill(&next, &name).await.unwrap();
    assert_eq!((ended.exit_status, ended.exit_signal, ended.pid), (None, None, None));
    assert_eq!(process::began(pid), None);
    // Its entry is handed over, too.
    let (held, bytes, descriptors) = new.hold(false).await.unwrap();
    let (last, prepared) = (sessions(), PreparedSessions::read(&bytes, descriptors, false).unwrap());
    held.leave();
    last.restore(&next, prepared);
    assert_eq!(last.get(&next, &name).unwrap(), ended);
    assert!(last.is_idle());
}

/// T57.
#[tokio::test]
async fn a_state_of_another_version_is_refused_before_anything_is_let_go() {
    let (sessions, engine) = (sessions(), engine());
    let (name, pid) = open(&sessions, &engine).await;
    let (held, bytes, descriptors) = sessions.hold(false).await.unwrap();
    let copies = || descriptors.iter().map(|descriptor| descriptor.try_clone().unwrap()).collect::<Vec<_>>();
    let refused = |bytes: &[u8], descriptors: Vec<OwnedFd>| {
        let error = PreparedSessions::read(bytes, descriptors, false).err().unwrap();
        assert_eq!(error.code, ErrorCode::Conflict);
        error.message
    };
    let other = [&[VERSION as u8 + 1], &bytes[1..]].concat();
    let message = refused(&other, copies());
    assert!(message.contains("version 3") && message.contains("reads 2"), "{message}");
    assert!(PreparedSessions::read(&other, copies(), true).unwrap().all.is_empty(), "it ends if the caller forces it");
    for end in 0..bytes.len() {
        refused(&bytes[..end], copies());
    }
    refused(&[&bytes[..], b"x"].concat(), copies());
    refused(&bytes, copies().split_off(1));
    let mut more = copies();
    more.extend(copies());
    refused(&bytes, more);
    let text = bytes.windows(5).position(|part| part == b"\"cwd\"").unwrap();
    let mut unknown = bytes.clone();
    unknown[text + 1] = b'x';
    let message = refused(&unknown, copies());
    assert!(message.contains(&name), "{message}");
    let forced = PreparedSessions::read(&unknown, copies(), true).unwrap();
    assert!(forced.all.is_empty() && forced.lost.len() == 1);
    drop(held);
    assert_eq!(sessions.prompt(&engine, &name, prompt("one")).await.unwrap().prompt, Some(1));
    // The next daemon ends the agent of a session that it cannot continue.
    let next = self::sessions();
    next.restore(&engine, forced);
    assert!(next.list(&engine, None).unwrap().is_empty());
    let gone = sessions.all()[0].gone.clone();
    gone.cancelled().await;
    assert_eq!(process::began(pid), None);
}

/// T57.
#[tokio::test]
async fn a_session_that_does_not_come_to_rest_is_named_or_left_out() {
    let (sessions, engine) = (sessions(), engine());
    let (name, _) = open(&sessions, &engine).await;
    let patch = AgentSessionPatch { mode: Some("other".into()), ..AgentSessionPatch::default() };
    let (setting, caller) = (sessions.clone(), engine.clone());
    let of = name.clone();
    let set = tokio::spawn(async move { setting.set(&caller, &of, &patch, None).await });
    let session = sessions.all()[0].clone();
    while !session.is_being_set() {
        tokio::task::yield_now().await;
    }
    let error = sessions.hold(false).await.err().unwrap();
    assert!(error.code == ErrorCode::Conflict && error.message.contains(&name), "{error}");
    assert!(error.message.contains("mode or options") && error.message.contains("--force"), "{error}");
    // It goes on.
    assert_eq!(sessions.prompt(&engine, &name, prompt("one")).await.unwrap().prompt, Some(1));
    let (held, bytes, descriptors) = sessions.hold(true).await.unwrap();
    assert!(descriptors.is_empty() && PreparedSessions::read(&bytes, descriptors, true).unwrap().all.is_empty());
    held.leave();
    assert_eq!(sessions.list(&engine, None).unwrap().len(), 1);
    sessions.stop().await;
    assert_eq!(set.await.unwrap().unwrap_err().code, ErrorCode::Conflict);
    assert!(sessions.is_idle());
}

/// T57.
#[tokio::test]
async fn a_session_that_is_not_handed_over_ends_with_this_daemon() {
    let (sessions, engine) = (sessions(), engine());
    let (_, pid) = open(&sessions, &engine).await;
    let session = sessions.all()[0].clone();
    // A request without a response: the agent is read no more, and the session does not come to rest.
    let request = serde_json::value::RawValue::from_string("7".into()).unwrap();
    session.serving(&request, None);
    let (held, _, descriptors) = sessions.hold(true).await.unwrap();
    assert!(descriptors.is_empty());
    held.leave();
    sessions.stop().await;
    session.gone.cancelled().await;
    assert_eq!(process::began(pid), None);
}

/// T55.
#[tokio::test]
async fn an_agent_ends_also_while_another_daemon_takes_over() {
    let (sessions, engine) = (sessions(), engine());
    let (_, pid) = open(&sessions, &engine).await;
    let session = sessions.all()[0].clone();
    let (held, ..) = sessions.hold(false).await.unwrap();
    session.fail("the agent does not read its input");
    session.gone.cancelled().await;
    assert_eq!(process::began(pid), None);
    // It has ended: its entry is handed over.
    let (again, bytes, descriptors) = sessions.hold(false).await.unwrap();
    assert!(PreparedSessions::read(&bytes, descriptors, false).unwrap().all[0].agent.is_none());
    drop((held, again));
}

#[tokio::test]
async fn a_session_in_a_directory_that_is_not_utf_8_is_handed_over() {
    let folder = std::env::temp_dir().join(format!("muxtap-odd-{}", nonce::hex64()));
    let (odd, link) = (folder.join(OsString::from_vec(b"\xff".to_vec())), folder.join("link"));
    std::fs::create_dir_all(&odd).unwrap();
    std::os::unix::fs::symlink(&odd, &link).unwrap();
    let (sessions, engine) = (sessions(), engine());
    let (name, _) = open_in(&sessions, &engine, link.to_str().unwrap()).await;
    let before = sessions.get(&engine, &name).unwrap();
    let (held, bytes, descriptors) = sessions.hold(false).await.unwrap();
    let prepared = PreparedSessions::read(&bytes, descriptors, false).unwrap();
    held.leave();
    let next = self::sessions();
    next.restore(&engine, prepared);
    assert_eq!(next.get(&engine, &name).unwrap(), before);
    next.stop().await;
    std::fs::remove_dir_all(&folder).unwrap();
}

/// T51.
#[tokio::test]
async fn a_caller_whose_prompt_was_accepted_is_not_told_to_send_it_again() {
    let (sessions, engine) = (sessions(), engine());
    let (name, _) = open(&sessions, &engine).await;
    let (sending, caller) = (sessions.clone(), engine.clone());
    let (accepted, is_accepted) = oneshot::channel();
    let waits = PromptRequest { wait: true, ..prompt("one") };
    let sent = tokio::spawn(async move {
        let accepted = |answer: &muxtap_api::PromptAnswer| accepted.send(answer.cursor).unwrap();
        sending.prompt_accepted(&caller, &name, waits, accepted).await
    });
    let cursor = is_accepted.await.unwrap();
    let (held, bytes, descriptors) = sessions.hold(false).await.unwrap();
    let prepared = PreparedSessions::read(&bytes, descriptors, false).unwrap();
    held.leave();
    let error = sent.await.unwrap().unwrap_err();
    assert!(error.message.contains("prompt 1 was accepted") && error.message.contains(&cursor.to_string()), "{error}");
    assert!(!error.message.contains("again"), "{error}");
    let next = self::sessions();
    next.restore(&engine, prepared);
    next.stop().await;
}
