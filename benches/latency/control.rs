//! The baseline: a bare control client that reads lines and looks for a marker, nothing else.

use std::{
    io::Read,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::Duration,
};

use super::{actors, stage::Tmux};

/// `tmux -C attach` and a blocking reader.
pub struct Control {
    child: Child,
    /// The client stays while its input is open.
    _stdin: ChildStdin,
    stdout: ChildStdout,
    read: Vec<u8>,
    begin: usize,
    end: usize,
}

impl Control {
    pub fn attach(tmux: &Tmux) -> Self {
        let mut command: Command = tmux.command();
        command.args(["-C", "attach-session", "-f", "ignore-size,pause-after=60"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("tmux runs");
        let stdin = child.stdin.take().expect("piped");
        let stdout = child.stdout.take().expect("piped");
        // The same pipe size as for muxtap's own reader.
        let _ = rustix::pipe::fcntl_setpipe_size(&stdout, 1 << 20);
        let mut control = Self { child, _stdin: stdin, stdout, read: vec![0; 256 * 1024], begin: 0, end: 0 };
        control.lines(|line| line.starts_with(b"%session-changed"));
        control
    }

    /// Returns the client's process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Reads lines until `stop` returns true.
    pub fn lines(&mut self, mut stop: impl FnMut(&[u8]) -> bool) {
        loop {
            let unread = &self.read[self.begin..self.end];
            if let Some(length) = memchr::memchr(b'\n', unread) {
                let line = self.begin..self.begin + length;
                self.begin += length + 1;
                if stop(&self.read[line]) {
                    return;
                }
                continue;
            }
            self.read.copy_within(self.begin..self.end, 0);
            self.end -= self.begin;
            self.begin = 0;
            let read = self.stdout.read(&mut self.read[self.end..]).expect("a pipe");
            assert!(read > 0, "the control client ended");
            self.end += read;
        }
    }

    /// Waits for the marker with this id; returns its age.
    pub fn marker(&mut self, id: &str) -> Duration {
        let mut age = None;
        self.lines(|line| {
            age = stamp(line, id).map(age_of);
            age.is_some()
        });
        age.unwrap_or_default()
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the nanoseconds in the marker with this id, if the text has it.
pub fn stamp(text: &[u8], id: &str) -> Option<u64> {
    let marker = format!("<{id} ");
    let at = memchr::memmem::find(text, marker.as_bytes())? + marker.len();
    let length = memchr::memchr(b'>', &text[at..])?;
    std::str::from_utf8(&text[at..at + length]).ok()?.parse().ok()
}

/// Returns the time since then.
pub fn age_of(nanos: u64) -> Duration {
    actors::now().saturating_sub(Duration::from_nanos(nanos))
}
