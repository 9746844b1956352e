//! State of a pane in which muxtap started a program: the exit policy, and the exit wrapper that
//! keeps the pane until all output has arrived (`engine/spawn/managed.rs`).

use std::collections::BTreeMap;

use muxtap_api::SpawnRequest;

use serde::{Deserialize, Serialize};

use super::{LockedPane, PaneState};

/// State of a pane in which muxtap started a program.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ManagedPane {
    pub(crate) on_exit: OnExit,
    /// The options that the pane had before, until they are restored.
    pub(crate) before: Option<PaneOptions>,
    /// The exit wrapper of the pane's command.
    pub(crate) wrapper: Option<ExitWrapper>,
    /// The command, which allows it to be started again.
    pub(crate) launch: Option<Launch>,
    /// The nonce of a shell that was started without a command, for when it is started again.
    pub(crate) shell_nonce: Option<String>,
}

/// The action on a pane when its process has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum OnExit {
    /// Keep the pane.
    Keep,
    /// Restore the pane's options, and do what tmux would do with them and the user's options.
    Restore,
}

/// The exit wrapper of a pane's command.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ExitWrapper {
    /// The nonce of the mark that the wrapper prints when its command ends.
    pub(crate) nonce: String,
    /// Whether the mark is still awaited.
    pub(crate) is_awaited: bool,
}

impl ExitWrapper {
    pub(crate) fn of(nonce: String) -> Self {
        Self { nonce, is_awaited: true }
    }
}

/// A command with the directory and environment in which it is started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Launch {
    pub(crate) command: Vec<String>,
    pub(crate) cwd: Option<String>,
    pub(crate) env: BTreeMap<String, String>,
}

impl Launch {
    /// Returns the command of a request; `None` if the request has none.
    pub(crate) fn of(spawn: &SpawnRequest) -> Option<Self> {
        Some(Self { command: spawn.command.clone()?, cwd: spawn.cwd.clone(), env: spawn.env.clone() })
    }

    /// Returns this command for another start, with the request's directory and variables in place
    /// of its own.
    pub(crate) fn with_changes(&self, spawn: &SpawnRequest) -> Self {
        let mut env = self.env.clone();
        env.extend(spawn.env.clone());
        Self { command: self.command.clone(), cwd: spawn.cwd.clone().or_else(|| self.cwd.clone()), env }
    }
}

/// The pane options that muxtap changes; `None` where the pane has no value of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PaneOptions {
    pub(crate) remain_on_exit: Option<String>,
    pub(crate) format: Option<String>,
}

impl PaneState {
    /// Returns the exit policy and wrapper of a pane in which muxtap started a program.
    pub(crate) fn managed(&self) -> Option<ManagedPane> {
        self.lock().process.managed.clone()
    }

    /// Sets the exit policy and wrapper of the pane. The nonce of the wrapper must be registered
    /// already. Returns the exit status if the wrapper's mark has come.
    pub(crate) fn set_managed(&self, managed: ManagedPane) -> Option<i32> {
        let mut locked = self.lock();
        let nonce = managed.wrapper.as_ref().map(|wrapper| wrapper.nonce.clone());
        let before = locked.process.managed.replace(managed).and_then(|managed| managed.wrapper);
        if let Some(before) = before.filter(|before| Some(&before.nonce) != nonce.as_ref()) {
            locked.output.shell_marks.unregister_nonce(&before.nonce);
        }
        locked.take_wrapper_exit()
    }

    /// Takes the options that the pane had before muxtap changed them, so they are restored only
    /// once.
    pub(crate) fn take_original_options(&self) -> Option<PaneOptions> {
        self.lock().process.managed.as_mut().and_then(|managed| managed.before.take())
    }

    /// Keeps a pane's original options for a later attempt after restoring them failed. Options of
    /// a program that was started meanwhile take precedence.
    pub(crate) fn restore_options_later(&self, options: Option<PaneOptions>) {
        if let Some(managed) = self.lock().process.managed.as_mut().filter(|managed| managed.on_exit == OnExit::Restore)
        {
            managed.before = managed.before.take().or(options);
        }
    }

    /// Registers the nonce of an exit wrapper that is about to start in the pane.
    pub(crate) fn register_nonce(&self, nonce: &str) {
        self.lock().output.shell_marks.register_nonce(nonce);
    }

    /// Returns whether a `run` awaits its marks, which only the output contains. (An exit wrapper's
    /// mark does not count, since tmux also reports the end of a wrapped command.)
    pub(crate) fn awaits_marks(&self) -> bool {
        let locked = self.lock();
        let wrapper = locked.process.managed.as_ref().and_then(|managed| managed.wrapper.as_ref());
        locked.output.shell_marks.awaits_others_than(wrapper.map(|wrapper| wrapper.nonce.as_str()))
    }

    /// Unregisters a nonce whose wrapper was not started.
    pub(crate) fn unregister_nonce(&self, nonce: &str) {
        self.lock().output.shell_marks.unregister_nonce(nonce);
    }
}

impl LockedPane {
    /// Returns the exit status that the pane's exit wrapper reported; only once.
    pub(super) fn take_wrapper_exit(&mut self) -> Option<i32> {
        let wrapper = self.process.managed.as_mut()?.wrapper.as_mut().filter(|wrapper| wrapper.is_awaited)?;
        let (_, status) = self.output.shell_marks.marks(&wrapper.nonce)?.end?;
        let status = status?;
        wrapper.is_awaited = false;
        self.output.shell_marks.unregister_nonce(&wrapper.nonce);
        Some(status)
    }
}
