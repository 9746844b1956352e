//! A real container, or a stand-in for one. Benches use it too.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// A container with busybox and tmux, removed when this value is dropped.
pub struct Container {
    /// Its name.
    pub name: String,
    /// A program with docker's command line that runs podman.
    docker: PathBuf,
    root: PathBuf,
    /// Whether the container engine could not run here, so that a directory and an environment
    /// stand in for the container.
    stands_in: bool,
}

/// Busybox's commands in the sandbox.
const APPLETS: [&str; 24] = [
    "sh", "ls", "cat", "echo", "sleep", "env", "sed", "grep", "stty", "tail", "head", "seq", "printf", "ps", "id",
    "true", "false", "mkdir", "touch", "yes", "test", "tr", "kill", "pwd",
];

impl Container {
    /// Starts a container in this directory. `tmux`: the container's tmux program.
    pub fn start(dir: &Path, tmux: Option<&str>) -> Self {
        // Unique, since several run at once, and hosts are known by names.
        let unique = dir.file_name().unwrap().to_string_lossy().to_lowercase();
        let name = format!("box-{}", unique.replace(|c: char| !c.is_ascii_alphanumeric(), ""));
        let root = dir.join("root");
        make_root(&root, tmux);
        let bin = dir.join("bin");
        fs::create_dir_all(&bin).unwrap();
        let docker = bin.join("docker");
        // Separate storage, removed with the directory.
        let podman = format!(
            "exec podman --root {0}/storage --runroot {0}/run --storage-driver vfs --runtime runc \
             --cgroup-manager cgroupfs \"$@\"",
            dir.display()
        );
        script(&docker, &podman);
        let mut container = Self { name, docker, root, stands_in: false };
        if !container.run() {
            println!("stand-in: no container engine runs here; a directory and an environment are the container");
            container.stands_in = true;
            script(&container.docker, &stand_in(&container.root, dir));
        }
        container
    }

    fn run(&self) -> bool {
        let limits = ["--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024", "--network=none"];
        let mut run = Command::new(&self.docker);
        run.args(["run", "-d", "--name", &self.name]).args(limits).arg("--rootfs").arg(&self.root);
        quiet(run.args(["sleep", "600"]))
    }

    /// Returns the directory of `docker`, for the daemon's `PATH`.
    pub fn path(&self) -> String {
        format!("{}:{}", self.docker.parent().unwrap().display(), std::env::var("PATH").unwrap())
    }

    /// Returns the command that runs programs in a container, without its name.
    pub fn program(&self) -> String {
        format!("{} exec -i", self.docker.display())
    }

    /// Returns the command that runs programs in the container.
    pub fn via(&self) -> String {
        format!("{} {}", self.program(), self.name)
    }

    /// Stops the container and everything that runs in it.
    pub fn stop(&self) {
        if self.stands_in {
            self.exec(&["tmux", "kill-server"]);
            fs::write(self.root.parent().unwrap().join("stopped"), "").unwrap();
            return;
        }
        assert!(quiet(Command::new(&self.docker).args(["stop", "-t", "0", &self.name])));
    }

    /// Returns whether a container engine runs it, so that a pause stops its programs.
    pub fn is_real(&self) -> bool {
        !self.stands_in
    }

    /// Pauses the container: its programs stand still.
    pub fn pause(&self) {
        if self.stands_in {
            fs::write(self.root.parent().unwrap().join("paused"), "").unwrap();
            return;
        }
        assert!(quiet(Command::new(&self.docker).args(["pause", &self.name])));
    }

    /// Lets a paused container go on.
    pub fn unpause(&self) {
        if self.stands_in {
            fs::remove_file(self.root.parent().unwrap().join("paused")).unwrap();
            return;
        }
        assert!(quiet(Command::new(&self.docker).args(["unpause", &self.name])));
    }

    /// Runs a command in the container; returns its output.
    pub fn exec(&self, line: &[&str]) -> String {
        let output = Command::new(&self.docker).args(["exec", &self.name]).args(line).output().unwrap();
        String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        if self.stands_in {
            self.exec(&["tmux", "kill-server"]);
        } else {
            quiet(Command::new(&self.docker).args(["rm", "-f", "-t", "0", &self.name]));
        }
    }
}

fn quiet(command: &mut Command) -> bool {
    let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

fn script(path: &Path, line: &str) {
    fs::write(path, format!("#!/bin/sh\n{line}\n")).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Reports, like docker, that a stopped or paused container runs nothing.
fn stand_in(root: &Path, dir: &Path) -> String {
    format!(
        "[ -e {dir}/stopped ] && {{ echo 'Error response from daemon: container is not running' >&2; exit 1; }}\n\
         [ -e {dir}/paused ] && {{ echo 'Error response from daemon: Container is paused' >&2; exit 1; }}\n\
         shift; [ \"$1\" = -i ] && shift; shift; cd {root}/workspace && exec env -u TMUX TMUX_TMPDIR={root}/tmp \"$@\"",
        dir = dir.display(),
        root = root.display(),
    )
}

fn make_root(root: &Path, tmux: Option<&str>) {
    for dir in ["bin", "tmp", "etc", "root", "workspace", "proc", "dev", "var/log", "usr/share/terminfo"] {
        fs::create_dir_all(root.join(dir)).unwrap();
    }
    fs::set_permissions(root.join("tmp"), fs::Permissions::from_mode(0o1777)).unwrap();
    fs::write(root.join("etc/passwd"), "root:x:0:0:root:/root:/bin/sh\n").unwrap();
    install(root, &program_file("busybox"), "busybox");
    for applet in APPLETS {
        std::os::unix::fs::symlink("busybox", root.join("bin").join(applet)).unwrap();
    }
    for terminal in ["s/screen", "s/screen-256color", "t/tmux", "t/tmux-256color", "x/xterm", "d/dumb"] {
        for folder in ["/lib/terminfo", "/usr/share/terminfo"] {
            let from = Path::new(folder).join(terminal);
            if from.is_file() {
                copy(&from, &root.join("usr/share/terminfo").join(terminal));
            }
        }
    }
    let locale = Path::new("/usr/lib/locale/C.utf8");
    if locale.is_dir() {
        let to = root.join("usr/lib/locale/C.utf8");
        fs::create_dir_all(&to).unwrap();
        assert!(quiet(Command::new("cp").arg("-r").arg(format!("{}/.", locale.display())).arg(&to)));
    }
    if let Some(tmux) = tmux {
        install(root, &program_file(tmux), "tmux");
    }
}

/// Copies a program and its libraries.
fn install(root: &Path, program: &Path, name: &str) {
    copy(program, &root.join("bin").join(name));
    let needed = Command::new("ldd").arg(program).output().unwrap();
    for word in String::from_utf8_lossy(&needed.stdout).split_whitespace().filter(|word| word.starts_with('/')) {
        copy(Path::new(word), &root.join(word.trim_start_matches('/')));
    }
}

fn program_file(name: &str) -> PathBuf {
    if name.contains('/') {
        return name.into();
    }
    let path = std::env::var_os("PATH").unwrap();
    std::env::split_paths(&path).map(|dir| dir.join(name)).find(|file| file.is_file()).unwrap()
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to.parent().unwrap()).unwrap();
    fs::copy(from, to).unwrap_or_else(|error| panic!("{}: {error}", from.display()));
}
