//! Tests of every order in which output, ends, callers and a wait can meet.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use loom::{future::block_on, thread};
use muxtap_api::{Epoch, WaitMode, WaitOutcome, WaitRequest};
use muxtap_core::{protocol::ids::PaneId, stream::matcher::Hit};
use muxtap_tmux::Exit;

use super::{attach::StartState, core::Core, registry::WaitGuard, spec::Spec};

use crate::{Engine, Host, Options, PaneState, Server, sync::check};

/// Values that a wait needs and that are not under test, made once for all orders.
#[derive(Clone)]
struct Around {
    engine: Engine,
    host: Arc<Host>,
    spec: Spec,
}

/// Checks `scenario` with a wait for these patterns that fails on `f`.
fn check_wait(preemptions: usize, panes: u32, patterns: &[&str], scenario: impl Fn(&Around) + Send + Sync + 'static) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let _inside = runtime.enter();
    let engine = Engine::new(Options::default());
    let request = WaitRequest {
        panes: (0..panes).map(|pane| format!("%{pane}")).collect(),
        mode: WaitMode::All,
        patterns: patterns.iter().map(|&pattern| pattern.into()).collect(),
        fail: vec!["f".into()],
        since: Some("now".into()),
        ..WaitRequest::default()
    };
    let host = Host::new(Path::new("/nowhere"), &engine.shared);
    let around = Around { engine, host, spec: Spec::new(&request).unwrap() };
    check(preemptions, move || scenario(&around));
}

impl Around {
    fn core(&self, panes: &[Arc<PaneState>]) -> Arc<Core> {
        Core::new("w0".into(), self.host.clone(), self.spec.clone(), panes.to_vec(), None)
    }

    fn attach(&self, core: &Arc<Core>, starts: &[StartState]) {
        block_on(Server::of(self.engine.clone(), self.host.clone()).attach(core, starts)).unwrap();
    }
}

fn pane(number: u32) -> Arc<PaneState> {
    PaneState::new(PaneId(number), Epoch { server: 1, engine: 1 }, 1000)
}

fn hit(pattern: usize) -> Hit {
    let (captures, groups) = (Vec::new(), BTreeMap::new());
    Hit { pattern, start: 0, end: 1, line: String::new(), captures, groups, truncated: false }
}

fn outcome(core: &Core) -> Option<WaitOutcome> {
    core.lock().end.map(|end| end.outcome)
}

/// E2: a caller that has learned the outcome always gets the same outcome.
#[test]
fn a_wait_that_is_ended_concurrently_ends_only_once() {
    check_wait(3, 1, &["a", "b"], |around| {
        let core = around.core(&[pane(0)]);
        let matching = thread::spawn({
            let core = core.clone();
            move || {
                core.hit(0, hit(0));
                core.hit(0, hit(1));
            }
        });
        let ending = thread::spawn({
            let core = core.clone();
            move || {
                core.hit(0, hit(2));
                core.finish(WaitOutcome::Cancelled, None);
            }
        });
        block_on(core.over());
        let heard = outcome(&core);
        matching.join().unwrap();
        ending.join().unwrap();
        assert!(core.is_over() && heard.is_some() && heard == outcome(&core));
        let progress = core.lock();
        let on_pane = &progress.panes[0];
        assert_eq!(heard == Some(WaitOutcome::Failed), on_pane.failed.is_some());
        assert_eq!(heard == Some(WaitOutcome::Matched), on_pane.latches.iter().all(Option::is_some));
    });
}

/// W1: output printed after the request latches, at any stage of the wait's setup; output printed
/// before does not. The pane's end is not missed either.
#[test]
fn output_during_a_waits_setup_is_either_before_it_or_in_it() {
    check_wait(3, 1, &["DONE"], |around| {
        let pane = pane(0);
        let printing = thread::spawn({
            let pane = pane.clone();
            move || {
                let _ = pane.push(0, b"DO");
                let _ = pane.push(0, b"NE\r\n");
                pane.mark_exited(Exit::default());
            }
        });
        let core = around.core(std::slice::from_ref(&pane));
        let starts = [StartState::of(pane.clone())];
        around.attach(&core, &starts);
        block_on(core.over());
        printing.join().unwrap();
        let in_it = core.lock().panes[0].request_offset == 0;
        assert_eq!(outcome(&core), Some(if in_it { WaitOutcome::Matched } else { WaitOutcome::Ended }));
    });
}

#[test]
fn a_wait_on_all_panes_ends_with_the_last() {
    check_wait(3, 2, &["DONE"], |around| {
        let panes = [pane(0), pane(1)];
        let core = around.core(&panes);
        around.attach(&core, &panes.each_ref().map(|pane| StartState::of(pane.clone())));
        let printing = panes.map(|pane| thread::spawn(move || pane.push(0, b"DONE\r\n").is_some()));
        block_on(core.over());
        assert_eq!(outcome(&core), Some(WaitOutcome::Matched));
        assert!(core.lock().panes.iter().all(|pane| pane.complete.is_some()));
        for thread in printing {
            assert!(thread.join().unwrap());
        }
    });
}

/// A caller that leaves removes its watchers and delays no output.
#[test]
fn a_wait_dropped_while_it_matches_leaves_nothing_behind() {
    check_wait(3, 1, &["DONE"], |around| {
        let pane = pane(0);
        let panes = vec![pane.clone()];
        let guard =
            WaitGuard::new(&around.engine, |id| Core::new(id, around.host.clone(), around.spec.clone(), panes, None))
                .unwrap();
        let core = guard.core().clone();
        around.attach(&core, &[StartState::of(pane.clone())]);
        let printing = thread::spawn({
            let pane = pane.clone();
            move || {
                let _ = pane.push(0, b"DONE\r\n");
                pane.mark_exited(Exit::default());
            }
        });
        drop(guard);
        let heard = outcome(&core);
        printing.join().unwrap();
        assert!(matches!(heard, Some(WaitOutcome::Matched | WaitOutcome::Cancelled)) && heard == outcome(&core));
        assert_eq!((pane.lock().watcher_count(), around.engine.open_waits()), (0, 0));
    });
}
