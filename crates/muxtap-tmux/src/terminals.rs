//! The command lines of all processes on terminals, in the foreground or not (this machine's
//! terminals only).

use std::collections::{BTreeSet, HashMap};

use super::probe::Proc;

#[cfg(target_os = "linux")]
impl Proc {
    /// Returns the command lines of the processes whose controlling terminal is one of `ttys`
    /// (paths such as `/dev/pts/3`), by terminal. Arguments are joined by single spaces, as in
    /// `ps`.
    pub fn on_terminals(&self, ttys: &BTreeSet<String>) -> HashMap<String, Vec<String>> {
        use std::os::unix::fs::MetadataExt as _;
        let devices: HashMap<u64, &String> = ttys
            .iter()
            .filter_map(|tty| {
                let device = std::fs::metadata(tty).ok()?.rdev();
                Some((kernel_device(rustix::fs::major(device), rustix::fs::minor(device)), tty))
            })
            .collect();
        let mut found: HashMap<String, Vec<String>> = HashMap::new();
        let Ok(processes) = std::fs::read_dir(self.root()) else { return found };
        for process in processes.flatten() {
            let is_process = process.file_name().as_encoded_bytes().iter().all(u8::is_ascii_digit);
            if !is_process {
                continue;
            }
            // A process that ended meanwhile is on no terminal.
            let Ok(stat) = std::fs::read(process.path().join("stat")) else { continue };
            let Some(tty) = terminal_in(&stat).and_then(|device| devices.get(&device)) else { continue };
            let Ok(line) = std::fs::read(process.path().join("cmdline")) else { continue };
            let words = line.split(|byte| *byte == 0).filter(|word| !word.is_empty());
            let words: Vec<_> = words.map(String::from_utf8_lossy).collect();
            if !words.is_empty() {
                found.entry((*tty).clone()).or_default().push(words.join(" "));
            }
        }
        found
    }
}

/// Returns the device number of a terminal as the kernel writes it to `stat` (`new_encode_dev`).
#[cfg(target_os = "linux")]
fn kernel_device(major: u32, minor: u32) -> u64 {
    u64::from((minor & 0xff) | (major << 8) | ((minor & !0xff) << 12))
}

/// Returns `tty_nr` in `/proc/PID/stat` (proc(5)); `None` if the process has no terminal.
#[cfg(target_os = "linux")]
fn terminal_in(stat: &[u8]) -> Option<u64> {
    let stat = String::from_utf8_lossy(stat);
    // The command's name is in parentheses and may contain anything. After it: state, ppid, pgrp,
    // session, tty_nr.
    let (_, numbers) = stat.rsplit_once(')')?;
    let device: i32 = numbers.split_whitespace().nth(4)?.parse().ok()?;
    (device != 0).then_some(u64::from(device.cast_unsigned()))
}

#[cfg(not(target_os = "linux"))]
impl Proc {
    /// Returns the same by `ps`, which every other system has.
    pub fn on_terminals(&self, ttys: &BTreeSet<String>) -> HashMap<String, Vec<String>> {
        let listed = std::process::Command::new("ps").args(["-axww", "-o", "tty=,command="]).output();
        listed.map(|listed| in_listing(&String::from_utf8_lossy(&listed.stdout), ttys)).unwrap_or_default()
    }
}

/// Reads `ps -o tty=,command=`.
#[cfg(any(test, not(target_os = "linux")))]
fn in_listing(listing: &str, ttys: &BTreeSet<String>) -> HashMap<String, Vec<String>> {
    let mut found: HashMap<String, Vec<String>> = HashMap::new();
    for line in listing.lines() {
        let Some((tty, command)) = line.trim_start().split_once(char::is_whitespace) else { continue };
        let tty = format!("/dev/{tty}");
        if ttys.contains(&tty) {
            found.entry(tty).or_default().push(command.trim_start().to_owned());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn the_terminal_is_read_behind_any_name() {
        assert_eq!(terminal_in(b"12 (a) (b c) S 1 12 12 34816 12 0"), Some(34816));
        assert_eq!(terminal_in(b"12 (x) S 1 12 12 0 -1 0"), None);
        assert_eq!(kernel_device(136, 0), 34816);
        assert_eq!(kernel_device(0x88, 0x12c), 0x10_882c);
    }

    #[test]
    fn a_listing_of_ps_is_read() {
        let ttys = BTreeSet::from(["/dev/ttys003".to_owned()]);
        let found = in_listing("ttys003  node /x/claude -p\n??       launchd\nttys004  vi\n", &ttys);
        assert_eq!(found, HashMap::from([("/dev/ttys003".to_owned(), vec!["node /x/claude -p".to_owned()])]));
    }
}
