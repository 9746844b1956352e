//! A NATS server of the test's own.

#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test; each one uses a part of it"
)]

use std::{
    fs,
    net::TcpStream,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use tempfile::TempDir;

/// How long a server may take to start.
const START_LIMIT: Duration = Duration::from_secs(60);

/// A running server on a loopback port, killed when it is dropped.
pub struct Nats {
    folder: TempDir,
    child: Option<Child>,
    port: u16,
}

impl Nats {
    /// Starts a server. `config`: lines for its configuration file.
    pub fn start(config: &str) -> Self {
        let folder = tempfile::Builder::new().prefix("muxtap-nats").tempdir().unwrap();
        fs::write(folder.path().join("nats.conf"), config).unwrap();
        let mut server = Self { folder, child: None, port: 0 };
        server.run("-1");
        server
    }

    /// Returns its URL.
    pub fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    /// Returns its port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns its folder.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Kills it.
    pub fn stop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Starts it again, on the same port.
    pub fn restart(&mut self) {
        self.stop();
        self.run(&self.port.to_string());
    }

    fn run(&mut self, port: &str) {
        let folder = self.folder.path();
        let log = fs::File::create(folder.join("nats.log")).unwrap();
        let mut child = Command::new("nats-server")
            .args(["-a", "127.0.0.1", "-p", port, "-c"])
            .arg(folder.join("nats.conf"))
            .arg("--ports_file_dir")
            .arg(folder)
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap_or_else(|error| {
                panic!("nats-server: {error}; install the package nats-server (scripts/setup does)")
            });
        let ports = folder.join(format!("nats-server_{}.ports", child.id()));
        let until = Instant::now() + START_LIMIT;
        // No event announces the file.
        let port = loop {
            let port = fs::read_to_string(&ports).ok().and_then(|text| {
                let ports: serde_json::Value = serde_json::from_str(&text).ok()?;
                ports["nats"][0].as_str()?.rsplit_once(':')?.1.parse::<u16>().ok()
            });
            match port {
                Some(port) if TcpStream::connect(("127.0.0.1", port)).is_ok() => break port,
                _ => {}
            }
            let log = || fs::read_to_string(folder.join("nats.log")).unwrap_or_default();
            assert!(child.try_wait().unwrap().is_none(), "nats-server ended: {}", log());
            assert!(Instant::now() < until, "nats-server did not start: {}", log());
            thread::sleep(Duration::from_millis(5));
        };
        self.port = port;
        self.child = Some(child);
    }
}

impl Drop for Nats {
    fn drop(&mut self) {
        self.stop();
    }
}
