//! Other hosts for tests: an sshd on loopback, and a link that can be cut.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{Shutdown, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

/// An sshd on loopback with its own keys. It ends when this value is dropped.
pub struct Sshd {
    port: u16,
    dir: PathBuf,
    daemon: std::process::Child,
}

impl Sshd {
    /// Starts it in this directory, with this environment for the programs it runs. `None`: no sshd
    /// is installed, or this user cannot run one.
    pub fn start(world: &Path, env: &[(&str, &str)]) -> Option<Self> {
        Self::start_with(world, env, "")
    }

    /// Starts it with further lines of configuration, which take precedence over its own.
    pub fn start_with(world: &Path, env: &[(&str, &str)], lines: &str) -> Option<Self> {
        let sshd = ["/usr/sbin/sshd", "/usr/local/sbin/sshd"].into_iter().find(|path| Path::new(path).is_file());
        let Some(sshd) = sshd else {
            // Like `common::is_installed`, which benchmarks do not have.
            assert!(std::env::var_os("CI").is_none_or(|ci| ci.is_empty()), "no sshd is installed, and CI is set");
            println!("skipped: no sshd is installed; scripts/setup sshd installs it");
            return None;
        };
        let dir = world.join("ssh");
        fs::create_dir(&dir).unwrap();
        for key in ["host", "other", "user", "stranger"] {
            let keygen =
                Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(dir.join(key)).status();
            assert!(keygen.unwrap().success());
        }
        fs::copy(dir.join("user.pub"), dir.join("authorized")).unwrap();
        // sshd requires this directory when run as root.
        let _ = fs::create_dir_all("/run/sshd");
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        let env: Vec<_> = env.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let config = format!(
            "{lines}ListenAddress 127.0.0.1\nPort {port}\nHostKey {0}/host\nAuthorizedKeysFile {0}/authorized\nStrictModes no\n\
             UsePAM no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\nPidFile none\nMaxStartups 100\n\
             {1}",
            dir.display(),
            // All on one line: a second one is ignored.
            if env.is_empty() { String::new() } else { format!("SetEnv {}\n", env.join(" ")) }
        );
        fs::write(dir.join("config"), config).unwrap();
        let daemon = Command::new(sshd).args(["-D", "-e", "-f"]).arg(dir.join("config")).stderr(Stdio::null()).spawn();
        let sshd = Self { port, dir, daemon: daemon.unwrap() };
        sshd.know("host");
        // Its listening is not announced.
        let started = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(started.elapsed() < Duration::from_secs(60), "sshd does not listen");
            thread::sleep(Duration::from_millis(10));
        }
        Some(sshd)
    }

    /// Makes this key the known one of the host.
    pub fn know(&self, key: &str) {
        let public = fs::read_to_string(self.dir.join(format!("{key}.pub"))).unwrap();
        let words: Vec<_> = public.split(' ').take(2).collect();
        fs::write(self.dir.join("known"), format!("[127.0.0.1]:{} {}\n", self.port, words.join(" "))).unwrap();
    }

    /// Returns the command that runs programs on the host, as the user with this key. `port`:
    /// another one than sshd's.
    pub fn via(&self, key: &str, port: Option<u16>) -> String {
        format!(
            "ssh -F none -o IdentitiesOnly=yes -o UserKnownHostsFile={0}/known -i {0}/{key} -p {1} 127.0.0.1",
            self.dir.display(),
            port.unwrap_or(self.port)
        )
    }

    /// Returns the command that runs programs on the host through a proxy.
    pub fn via_proxy(&self, key: &str, proxy: &Proxy) -> String {
        let alias = format!(" -o HostKeyAlias=[127.0.0.1]:{} 127.0.0.1", self.port);
        self.via(key, Some(proxy.port)).replace(" 127.0.0.1", &alias)
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.port
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
    }
}

/// A proxy in front of a port, whose connections can be cut.
pub struct Proxy {
    /// The proxy's own port.
    pub port: u16,
    connections: Arc<Mutex<Vec<TcpStream>>>,
    closed: Arc<AtomicBool>,
    /// Whether the latest connections pass nothing on.
    silent: Arc<Mutex<Arc<AtomicBool>>>,
}

impl Proxy {
    /// Creates a proxy in front of this port.
    pub fn before(port: u16) -> Self {
        Self::delaying(port, Duration::ZERO)
    }

    /// Creates a proxy in front of this port that delays each byte, in each direction.
    pub fn delaying(port: u16, delay: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port_of_its_own = listener.local_addr().unwrap().port();
        let proxy =
            Self { port: port_of_its_own, connections: Arc::default(), closed: Arc::default(), silent: Arc::default() };
        let (connections, closed) = (proxy.connections.clone(), proxy.closed.clone());
        let silence = proxy.silent.clone();
        thread::spawn(move || {
            for one in listener.incoming().map(Result::unwrap) {
                if closed.load(Ordering::SeqCst) {
                    continue;
                }
                let other = TcpStream::connect(("127.0.0.1", port)).unwrap();
                for stream in [&one, &other] {
                    stream.set_nodelay(true).unwrap();
                }
                let mut all = connections.lock().unwrap();
                // The proxy may have been cut while this connection was made.
                if closed.load(Ordering::SeqCst) {
                    continue;
                }
                all.extend([one.try_clone().unwrap(), other.try_clone().unwrap()]);
                drop(all);
                let silent = silence.lock().unwrap().clone();
                for (from, to) in [(one.try_clone().unwrap(), other.try_clone().unwrap()), (other, one)] {
                    pass(from, to, delay, silent.clone());
                }
            }
        });
        proxy
    }

    /// Returns the number of connections so far.
    pub fn connections(&self) -> usize {
        self.connections.lock().unwrap().len() / 2
    }

    /// Cuts all connections and accepts no new ones.
    pub fn cut(&self) {
        self.closed.store(true, Ordering::SeqCst);
        for connection in self.connections.lock().unwrap().drain(..) {
            let _ = connection.shutdown(Shutdown::Both);
        }
    }

    /// Makes the existing connections pass nothing on while they stay open. Later ones work.
    pub fn silence(&self) -> Arc<AtomicBool> {
        let silent = std::mem::take(&mut *self.silent.lock().unwrap());
        silent.store(true, Ordering::SeqCst);
        silent
    }

    /// Accepts connections again.
    pub fn mend(&self) {
        self.closed.store(false, Ordering::SeqCst);
    }
}

/// Passes on each byte after a delay.
fn pass(mut from: TcpStream, mut to: TcpStream, delay: Duration, silent: Arc<AtomicBool>) {
    let (sender, receiver) = mpsc::channel::<(Instant, Vec<u8>)>();
    thread::spawn(move || {
        let mut chunk = vec![0; 64 << 10];
        while let Ok(read @ 1..) = from.read(&mut chunk) {
            if sender.send((Instant::now() + delay, chunk[..read].to_vec())).is_err() {
                break;
            }
        }
    });
    thread::spawn(move || {
        for (due, bytes) in receiver {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            while silent.load(Ordering::SeqCst) {
                thread::sleep(Duration::from_millis(10));
            }
            if to.write_all(&bytes).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Both);
    });
}
