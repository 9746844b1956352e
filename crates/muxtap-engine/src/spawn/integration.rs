//! Starting shells in panes with the shell integration.

use muxtap_api::{Error, Result, SpawnRequest};
use muxtap_base::nonce;
use muxtap_core::marks::NONCE_VARIABLE;

use crate::{
    Server,
    shell_integration::{StartupFiles, default_directory, shell_words},
};

/// A shell that is started with the integration.
#[derive(Clone, Debug)]
pub(super) struct ShellStart {
    pub(super) files: StartupFiles,
    nonce: String,
}

impl ShellStart {
    /// Returns the request with the integration: its command, and the nonce for the program alone.
    /// (A variable of `new-session` would be one of all later panes of the session.)
    pub(super) fn changes(&self, spawn: &SpawnRequest) -> SpawnRequest {
        let mut spawn = spawn.clone();
        spawn.command = spawn.command.map(|words| self.files.of_command(&words).unwrap_or(words));
        spawn.env.entry(NONCE_VARIABLE.to_owned()).or_insert_with(|| self.nonce.clone());
        spawn
    }
}

impl Server {
    /// Returns how to start the shell of a request with the integration. `None`: it is started
    /// without. Error: the request demands the integration, and it is not possible.
    pub(super) async fn shell_start(&self, spawn: &SpawnRequest) -> Result<Option<ShellStart>> {
        let options = &self.engine.shared.options;
        if !spawn.shell_integration.unwrap_or(options.shell_integration) {
            return Ok(None);
        }
        let started = async {
            if !self.host.server().spec().is_local() {
                return Err(Error::invalid(
                    "shell_integration: only for panes on this host, or on a host that runs muxtap too",
                ));
            }
            if let Some(command) = &spawn.command
                && shell_words(command).is_none()
            {
                return Err(Error::invalid(format!(
                    "shell_integration: expected no command or an interactive bash, zsh, fish, sh, dash, ash, mksh or \
                     ksh, got {:?}",
                    command.join(" ")
                )));
            }
            let folder = options.shell_folder.clone().or_else(default_directory);
            let folder = folder.ok_or_else(|| Error::invalid("shell_integration: set XDG_RUNTIME_DIR"))?;
            let written = tokio::task::spawn_blocking(move || StartupFiles::write(&folder)).await;
            let written = written.map_err(|_| Error::internal("writing the startup files failed halfway"))?;
            let files = written
                .map_err(|error| Error::internal(format!("shell_integration: cannot write its files: {error}")))?;
            Ok(ShellStart { files, nonce: nonce::hex64() + &nonce::hex64() })
        }
        .await;
        match started {
            Ok(start) => Ok(Some(start)),
            Err(error) if spawn.shell_integration == Some(true) => Err(error),
            // The setting applies where it can.
            Err(_) => Ok(None),
        }
    }
}
