//! A control client of the played tmux, with its unread requests and unsent output.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    io::{self, Read as _, Write as _},
};

/// A control client.
pub(super) struct Client {
    pub(super) session: u32,
    stdin: io::PipeReader,
    stdout: io::PipeWriter,
    input: Vec<u8>,
    queue: VecDeque<Item>,
    /// What is being written.
    begun: VecDeque<u8>,
    /// Panes that are paused.
    paused: BTreeSet<u32>,
    /// How much of each pane's output was queued. What a pane prints in another client's session is
    /// queued when it prints here again (N60).
    queued: BTreeMap<u32, usize>,
    blocks: u64,
    /// tmux does not read this client's requests until this time.
    pub(super) deaf_until: u64,
    /// tmux does not write to this client until this time.
    pub(super) mute_until: u64,
}

/// What tmux sends.
enum Item {
    Text(Vec<u8>),
    Output(u32, Vec<u8>),
}

impl Client {
    pub(super) fn new(session: u32, stdin: io::PipeReader, stdout: io::PipeWriter) -> Self {
        rustix::io::ioctl_fionbio(&stdin, true).unwrap();
        rustix::io::ioctl_fionbio(&stdout, true).unwrap();
        Self {
            session,
            stdin,
            stdout,
            input: Vec::new(),
            queue: VecDeque::new(),
            begun: VecDeque::new(),
            paused: BTreeSet::new(),
            queued: BTreeMap::new(),
            blocks: 0,
            deaf_until: 0,
            mute_until: 0,
        }
    }

    /// Returns the lines that have arrived, and whether the client is still connected.
    pub(super) fn lines(&mut self) -> (Vec<String>, bool) {
        let mut buffer = [0; 4096];
        let goes_on = loop {
            match self.stdin.read(&mut buffer) {
                Ok(0) => break false,
                Ok(read) => self.input.extend_from_slice(&buffer[..read]),
                Err(_) => break true,
            }
        };
        let mut lines = Vec::new();
        while let Some(end) = self.input.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.input.drain(..=end).collect();
            lines.push(String::from_utf8_lossy(&line[..end]).into_owned());
        }
        (lines, goes_on)
    }

    /// Queues lines.
    pub(super) fn say(&mut self, lines: &str) {
        self.queue.push_back(Item::Text(format!("{lines}\n").into_bytes()));
    }

    /// Queues a block. `body` ends with a line end, or is empty. `flag`: 1 for a reply.
    pub(super) fn block(&mut self, body: &str, end: &str, flag: u8) {
        let guard = format!("1700000000 {} {flag}", self.blocks);
        self.blocks += 1;
        self.say(&format!("%begin {guard}\n{body}%{end} {guard}"));
    }

    /// Queues a pane's output, unless the pane is paused. `log`: all that it has printed, of which
    /// what is behind `before` is new.
    pub(super) fn output(&mut self, pane: u32, before: usize, log: &[u8]) {
        if !self.paused.contains(&pane) {
            let from = self.queued.insert(pane, log.len()).unwrap_or(before);
            self.queue.push_back(Item::Output(pane, log[from..].to_vec()));
        }
    }

    /// Pauses a pane: what was not sent is dropped. Returns whether that is new.
    pub(super) fn pause(&mut self, pane: u32) -> bool {
        self.queue.retain(|item| !matches!(item, Item::Output(of, _) if *of == pane));
        self.paused.insert(pane)
    }

    /// Ends a pause; what the pane printed meanwhile is dropped. Returns whether it was paused.
    pub(super) fn resume(&mut self, pane: u32, printed: usize) -> bool {
        let was_paused = self.paused.remove(&pane);
        if was_paused {
            self.queued.insert(pane, printed);
        }
        was_paused
    }

    /// Sends what the pipe takes. Returns whether anything was sent, and whether the client lives.
    pub(super) fn flush(&mut self) -> (bool, bool) {
        let mut has_sent = false;
        loop {
            if self.begun.is_empty() {
                match self.queue.pop_front() {
                    Some(item) => self.begun.extend(item.bytes()),
                    None => return (has_sent, true),
                }
            }
            match self.stdout.write(self.begun.make_contiguous()) {
                Ok(written) => {
                    self.begun.drain(..written);
                    has_sent = true;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return (has_sent, true),
                Err(_) => return (has_sent, false),
            }
        }
    }

    /// Sends a part of the next line, with which the connection ends.
    pub(super) fn cut(mut self) {
        if self.begun.is_empty()
            && let Some(item) = self.queue.pop_front()
        {
            self.begun.extend(item.bytes());
        }
        let half = self.begun.len() / 2;
        // A full pipe ends in the middle of a line as well.
        let _ = self.stdout.write(&self.begun.make_contiguous()[..half]);
    }
}

impl Item {
    fn bytes(self) -> Vec<u8> {
        match self {
            Self::Text(text) => text,
            Self::Output(pane, data) => {
                let mut line = format!("%extended-output %{pane} 0 : ").into_bytes();
                for byte in data {
                    match byte {
                        0..0x20 | b'\\' => line.extend_from_slice(format!("\\{byte:03o}").as_bytes()),
                        _ => line.push(byte),
                    }
                }
                line.push(b'\n');
                line
            }
        }
    }
}
