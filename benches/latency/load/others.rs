//! Load without muxtap: a bare control client, and a program without one that polls.

use std::{collections::HashMap, thread, time::Duration};

use super::{Cost, GRACE, PRINTING, Server};
use crate::{
    actors::now,
    control::{Control, age_of},
    process,
    times::Times,
};

/// The pause of the capturing loop.
const PAUSE: Duration = Duration::from_millis(100);

/// Looks for markers in all output, by a control client.
pub fn bare(server: &mut Server, seconds: u64, cost: &mut Cost) {
    let mut control = Control::attach(&server.tmux);
    let client = control.pid();
    let (tmux, own) = (server.cpu(), process::cpu(client));
    let begin = server.print(seconds);
    let over = format!("over{}", server.marks);
    thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut ages = Times::default();
            let mut cut = HashMap::new();
            control.lines(|line| {
                if let Some(nanos) = marker(line, &mut cut) {
                    ages.push(age_of(nanos));
                }
                line.starts_with(b"%window-renamed") && line.ends_with(over.as_bytes())
            });
            (ages, process::cpu_of_this_thread())
        });
        thread::sleep((begin + Duration::from_secs(seconds) + GRACE).saturating_sub(now()));
        cost.tmux += server.cpu().saturating_sub(tmux);
        server.tmux.ask(&["rename-window", "-t", "%0", &over]);
        let (ages, read) = reader.join().expect("the reader");
        cost.own += read + process::cpu(client).saturating_sub(own);
        cost.ages.append(ages);
    });
}

/// Captures each printing pane in a loop and looks for a new marker. The waits on other panes are
/// left out.
pub fn poll(server: &mut Server, seconds: u64, cost: &mut Cost) {
    let seen_before = server.marks;
    let (tmux, children) = (server.cpu(), process::cpu_of_ended_children());
    let begin = server.print(seconds);
    let end = begin + Duration::from_secs(seconds);
    let server = &*server;
    thread::scope(|scope| {
        let loops: Vec<_> = (0..PRINTING)
            .map(|pane| {
                scope.spawn(move || {
                    // Out of step with each other.
                    thread::sleep(PAUSE / PRINTING as u32 * pane as u32);
                    let (mut ages, mut last) = (Times::default(), seen_before);
                    while now() < end + GRACE / 2 {
                        let screen = server.tmux.ask(&["capture-pane", "-p", "-t", &format!("%{pane}")]);
                        if let Some((number, nanos)) = newest(screen.as_bytes())
                            && number > last
                        {
                            ages.push(age_of(nanos));
                            last = number;
                        }
                        thread::sleep(PAUSE);
                    }
                    (ages, process::cpu_of_this_thread())
                })
            })
            .collect();
        for each in loops {
            let (ages, own) = each.join().expect("a loop");
            cost.ages.append(ages);
            cost.own += own;
        }
    });
    cost.own += process::cpu_of_ended_children().saturating_sub(children);
    cost.tmux += server.cpu().saturating_sub(tmux);
}

/// Returns the time in the marker that ends in this line of a control client. tmux cuts output at
/// any byte, so `cut` has the incomplete markers, by pane.
fn marker(line: &[u8], cut: &mut HashMap<Vec<u8>, Vec<u8>>) -> Option<u64> {
    let output = line.strip_prefix(b"%extended-output ")?;
    let (pane, text) = (&output[..memchr::memchr(b' ', output)?], &output[memchr::memchr(b':', output)? + 2..]);
    if let Some(mut open) = cut.remove(pane) {
        open.extend_from_slice(text);
        let marker = newest(&open);
        if marker.is_none() {
            cut.insert(pane.to_owned(), open);
        }
        return marker.map(|(_, nanos)| nanos);
    }
    let at = memchr::memchr(b'<', text)?;
    let marker = newest(&text[at..]);
    if marker.is_none() {
        cut.insert(pane.to_owned(), text[at..].to_owned());
    }
    marker.map(|(_, nanos)| nanos)
}

/// Returns the number and time of the last whole marker in a text.
fn newest(text: &[u8]) -> Option<(u64, u64)> {
    let end = memchr::memrchr(b'>', text)?;
    let begin = memchr::memrchr(b'<', &text[..end])?;
    let (number, nanos) = std::str::from_utf8(&text[begin + 1..end]).ok()?.split_once(' ')?;
    Some((number.parse().ok()?, nanos.parse().ok()?))
}
