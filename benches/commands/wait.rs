//! From the end of a command to the result of a wait for it, beside a wait for a pattern.

use std::{
    fs::File,
    io::{BufRead as _, BufReader, Write as _, stdout},
    path::Path,
    process::Command,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use muxtap::{Engine, Options, Since};

use super::{
    EndServer,
    table::{Goal, figure, part},
    times::Times,
};

/// The argument by which this program is the one in the pane.
pub const ACTOR: &str = "__commands";
const ROUNDS: usize = 40;
const SAMPLES: usize = 25;
/// The delay of a command's end after its request: by then the wait has begun.
const DELAY: Duration = Duration::from_millis(4);

fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap()
}

/// For each line of the FIFO, prints a command that has ended, by one write; its line is the time.
pub fn print_commands(fifo: &Path) {
    // Opened for writing too, so that it never ends.
    let file = File::options().read(true).write(true).open(fifo).unwrap();
    for _ in BufReader::new(file).lines().map_while(Result::ok) {
        std::thread::sleep(DELAY);
        let time = now().as_nanos();
        let text = format!("\x1b]133;C;cmdline_url={time}\x07<{time}>\n\x1b]133;D;0\x07");
        stdout().write_all(text.as_bytes()).unwrap();
        stdout().flush().unwrap();
    }
}

pub async fn run() {
    part("A command's end to the result of a wait, in the process; both waits in turns");
    let folder = tempfile::tempdir().unwrap();
    let fifo = folder.path().join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let engine = Engine::start(Options::default().tmux_config("/dev/null")).unwrap();
    let socket = folder.path().join("socket");
    let _end = EndServer(socket.clone());
    let server = engine.server_at(&socket).unwrap();
    let program = std::env::current_exe().unwrap().display().to_string();
    let words = [program.as_str(), ACTOR, fifo.to_str().unwrap()];
    let pane = server.new_session().size(80, 24).command(words).await.unwrap();
    let mut fifo = File::options().read(true).write(true).open(&fifo).unwrap();
    let (mut by_pattern, mut by_command) = (Times::default(), Times::default());
    for round in 0..ROUNDS * 2 {
        for _ in 0..SAMPLES {
            fifo.write_all(b"go\n").unwrap();
            let limit = Duration::from_secs(30);
            let wait = pane.wait().since(Since::Now).timeout(limit);
            let (answer, times) = if round % 2 == 0 {
                (wait.pattern(r"<(\d+)>").unwrap().await, &mut by_pattern)
            } else {
                (wait.command().await, &mut by_command)
            };
            let seen = now();
            let predicate = answer.unwrap().predicates.remove(0);
            let time = match &predicate.command {
                Some(command) => command.line.clone().unwrap(),
                None => predicate.captures[1].clone().unwrap(),
            };
            times.push(seen.saturating_sub(Duration::from_nanos(time.parse().unwrap())));
        }
    }
    figure(&format!("pattern p50 ({} samples)", by_pattern.len()), by_pattern.p50(), "us", Goal::None);
    figure("command p50", by_command.p50(), "us", Goal::None);
    figure("command / pattern, p50", by_command.p50() / by_pattern.p50(), "x", Goal::AtMost(1.2));
    figure("command / pattern, p99", by_command.p99() / by_pattern.p99(), "x", Goal::None);
    engine.stop().await;
}
