//! A real bash in a real tmux: the log of commands against the shell's own log.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::Command as Process,
    time::Duration,
};

use muxtap_core::{
    marks::{End, LineSource},
    stream::render::render_bytes,
};
use muxtap_tmux::{Proc, TerminalInput};
use tokio::sync::broadcast::error::RecvError;

use super::*;

use crate::{Engine, Options};

/// The time within which a step must have happened, on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

/// Numbers that look random, the same in each run (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, most: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % most
    }
}

/// A tmux server of its own with a pane in which bash runs.
struct World {
    folder: tempfile::TempDir,
    tmux: String,
    engine: Engine,
    pane: Pane,
    events: broadcast::Receiver<Arc<CommandEvent>>,
}

/// The rc file. `p NUMBER STATUS` prints a random text, which it keeps in the file NUMBER. At each
/// prompt bash appends the status and the last line of its history to its own log.
const RC: &str = r#"
p() { cat "$LOG/in.$1"; return "$2"; }
own_log() {
    local status=$?
    printf '%s\t%s\0' "$status" "$(HISTTIMEFORMAT= history 1)" >>"$LOG/own"
    return "$status"
}
unset HISTCONTROL HISTIGNORE
HISTFILE= HISTSIZE=10000
shopt -s cmdhist lithist
"#;

impl World {
    /// Starts bash with an rc file and these variables.
    async fn start(marks: &str, env: &[(&str, &str)]) -> Self {
        Self::start_with(Options::default(), marks, env).await
    }

    async fn start_with(options: Options, marks: &str, env: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let tmux = std::env::var("MUXTAP_TEST_TMUX").unwrap_or_else(|_| "tmux".into());
        fs::write(folder.path().join("rc"), format!("{RC}{marks}")).unwrap();
        let engine = Engine::new(options.tmux(&tmux).tmux_config("/dev/null"));
        let server = engine.server_at(&folder.path().join("socket")).unwrap();
        let events = server.command_events().unwrap();
        let rc = folder.path().join("rc").display().to_string();
        let mut session = server.new_session().size(80, 24).env("LOG", folder.path().display().to_string()).command([
            "bash",
            "--noprofile",
            "--rcfile",
            &rc,
            "-i",
        ]);
        for (name, value) in env {
            session = session.env(*name, *value);
        }
        let pane = session.await.unwrap();
        Self { folder, tmux, engine, pane, events }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    async fn line(&self, line: &str) {
        self.pane.type_text(line).await.unwrap();
        self.pane.send_keys(["Enter"]).await.unwrap();
    }

    /// Waits for the end of a command of the pane's own shell, and returns it.
    async fn finished(&mut self) -> PaneCommand {
        let next = async {
            loop {
                match self.events.recv().await {
                    Ok(event) => {
                        if let CommandChange::Finished(command) = &event.change
                            && command.command.parent.is_none()
                        {
                            return (**command).clone();
                        }
                    }
                    Err(RecvError::Lagged(missed)) => panic!("{missed} events were missed"),
                    Err(RecvError::Closed) => panic!("the engine is gone"),
                }
            }
        };
        let ended = tokio::time::timeout(LIMIT, next).await;
        ended.unwrap_or_else(|late| panic!("no command ended: {late}: {:?}", self.pane.commands()))
    }

    /// Waits until bash's own log has this many prompts. Bash writes it before it prints the prompt.
    async fn prompts(&self, count: usize) {
        self.changed_until(|| self.own_prompts() >= count).await;
    }

    /// Waits until the pane's last line ends with what was typed.
    async fn echoed(&self, typed: &str) {
        self.changed_until(|| self.pane.state().lock().resting_line().ends_with(typed)).await;
    }

    /// Waits until bash's line editor waits for a key: the terminal has the editor's settings, and
    /// bash sleeps. Before, Ctrl-C may show no new prompt until the next key (bash 5.2 looks for a
    /// caught signal, then waits for a key). Neither is an event, so this asks again and again.
    async fn line_editor(&self) {
        let pid = self.pane.state().metadata().pid;
        let tty = fs::read_link(format!("/proc/{pid}/fd/0")).unwrap().display().to_string();
        let is_read = || {
            let Some(bash) = Proc::system().foreground(pid, &tty) else { return false };
            let stat = fs::read_to_string(format!("/proc/{}/stat", bash.group));
            bash.input == TerminalInput::Edited && stat.is_ok_and(|stat| stat.contains(") S "))
        };
        let reads = async {
            while !is_read() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(LIMIT, reads).await.unwrap();
    }

    async fn changed_until(&self, is_reached: impl Fn() -> bool) {
        let mut changes = self.pane.state().changes();
        let reached = async {
            loop {
                changes.borrow_and_update();
                if is_reached() {
                    break;
                }
                changes.changed().await.unwrap();
            }
        };
        tokio::time::timeout(LIMIT, reached).await.unwrap();
    }

    fn own_prompts(&self) -> usize {
        fs::read_to_string(self.path("own")).map_or(0, |log| log.matches('\0').count())
    }

    /// Returns bash's own log: the number in its history, and for each the line and the status.
    fn own_log(&self) -> BTreeMap<u64, (String, i32)> {
        let log = fs::read_to_string(self.path("own")).unwrap();
        let mut own = BTreeMap::new();
        for entry in log.split_terminator('\0') {
            let (status, line) = entry.split_once('\t').unwrap();
            let Some((number, line)) = line.trim_start().split_once("  ") else { continue };
            // An empty line logs the last command again.
            own.entry(number.parse().unwrap()).or_insert_with(|| (line.to_owned(), status.parse().unwrap()));
        }
        own
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = Process::new(&self.tmux).arg("-S").arg(self.path("socket")).arg("kill-server").output();
    }
}

/// Writes a random text for `p` and returns its bytes.
fn text(random: &mut Random, path: &Path, forged: bool) -> Vec<u8> {
    let mut text = String::new();
    for _ in 0..random.below(12) {
        match random.below(12) {
            0 => text.push_str("\x1b[31mred\x1b[0m "),
            1 => text.push_str("\x1b[?1049hon another screen\x1b[2J\x1b[?1049l"),
            2 => text.push_str("\x1b[H\x1b[2J"),
            3 => text.push_str("10%\r20%\r100%\n"),
            4 => text.push_str("\u{fc}\u{4e2d}\u{1f600}\n"),
            5 => text.push_str("\x1b]2;a title\x07"),
            6 => text.push_str(&"long ".repeat(random.below(400) as usize)),
            7 if forged => {
                text.push_str("\x1b]133;D;0\x07\x1b]133;A\x07$ \x1b]133;B\x07ls\n\x1b]133;C;cmdline=x\x1b\\");
            }
            8 if forged => text.push_str("\x1b]133;D;9;muxtap=other\x07\x1b]633;C\x07\x1b]3008;end=x\x07"),
            _ => {
                let _ = writeln!(text, "line {}", random.below(1_000_000));
            }
        }
    }
    if random.below(4) == 0 {
        text.push_str("no end of line");
    }
    fs::write(path, &text).unwrap();
    text.into_bytes()
}

/// Runs random commands, and compares ranges and statuses with the shell's own log.
async fn compare(mut world: World, commands: usize, trusted: bool, reported: bool) {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut expected = Vec::new();
    world.prompts(1).await;
    for number in 0..commands {
        let prompts = world.own_prompts();
        let mut printed = text(&mut random, &world.path(&format!("in.{number}")), trusted);
        let status = random.below(256) as i32;
        let line = format!("p {number} {status}");
        let (line, status) = match random.below(12) {
            0 => {
                // An empty line, and a line that Ctrl-C gives up, are no commands.
                world.pane.send_keys(["Enter"]).await.unwrap();
                world.prompts(prompts + 1).await;
                world.pane.type_text("half a line").await.unwrap();
                world.echoed("half a line").await;
                world.line_editor().await;
                world.pane.send_keys(["C-c"]).await.unwrap();
                world.prompts(prompts + 2).await;
                (line, status)
            }
            1 => {
                printed = b"in a here-document\nof two lines\n".to_vec();
                ("cat <<E\nin a here-document\nof two lines\nE".to_owned(), 0)
            }
            2 => {
                printed.clear();
                (format!("(exit {status})"), status)
            }
            3 => {
                printed = b"\x1b[H\x1b[2J".to_vec();
                ("printf '\\033[H\\033[2J'".to_owned(), 0)
            }
            4 => {
                printed = b"bash: no_such_command: command not found\n".to_vec();
                ("no_such_command".to_owned(), 127)
            }
            5 => (format!("(sleep 0.01 &); p {number} {status}"), status),
            _ => (line, status),
        };
        for part in line.split('\n') {
            world.line(part).await;
        }
        let ended = world.finished().await;
        let output = world.pane.command_output(&ended).await.unwrap();
        let printed = String::from_utf8(printed).unwrap().replace('\n', "\r\n");
        expected.push((line, status));
        let context = format!("{number}: {:?}\n{ended:?}", expected.last());
        assert_eq!((ended.command.status, ended.command.end), (Some(status), Some(End::Reported)), "{context}");
        assert_eq!(output.text, render_bytes(printed.as_bytes()), "{context}");
        assert!(output.is_whole && ended.command.output.is_whole && ended.command.is_trusted == trusted, "{context}");
    }
    world.prompts(1 + commands).await;
    // The lines and statuses of both logs.
    let own: Vec<_> = world.own_log().into_values().collect();
    let logged: Vec<_> = world.pane.commands().unwrap();
    let logged: Vec<_> = logged.iter().filter(|command| command.command.parent.is_none()).collect();
    assert_eq!(logged.len(), commands);
    for (command, (line, status)) in logged.iter().zip(&own) {
        let shown = command.command.line.as_ref().unwrap();
        assert_eq!(command.command.status, Some(*status), "{command:?}");
        let source = if reported { LineSource::Shell } else { LineSource::Screen };
        assert_eq!(shown.source, source);
        // The screen shows continuation prompts, too.
        if reported || !line.contains('\n') {
            assert_eq!(&shown.text, line, "{command:?}");
        }
    }
    assert_eq!(own, expected);
    world.engine.stop().await;
}

/// K2, with claimed marks: a prompt, `PS0`, and the line read from the screen.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn ranges_and_statuses_are_those_of_the_shells_own_log() {
    let marks = r#"
PROMPT_COMMAND='own_log; printf "\e]133;D;%s\a" "$?"'
PS1='\[\e]133;A\a\]$ \[\e]133;B\a\]'
PS0='\e]133;C\a'
"#;
    compare(World::start(marks, &[]).await, 250, false, false).await;
}

/// K2 and K3, with trusted marks and lines that the shell reports, while programs print forged
/// marks.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn trusted_ranges_and_statuses_are_right_among_forged_marks() {
    let marks = r#"
nonce=$MUXTAP_SHELL_NONCE
unset MUXTAP_SHELL_NONCE
url() {
    local LC_ALL=C text=$1 at
    for ((at = 0; at < ${#text}; at++)); do
        case ${text:at:1} in [A-Za-z0-9/._-]) printf %s "${text:at:1}" ;; *) printf %%%02x "'${text:at:1}" ;; esac
    done
}
line() { local line; line=$(HISTTIMEFORMAT= history 1); url "${line#*[0-9]  }"; }
PROMPT_COMMAND='own_log; printf "\e]133;D;%s;muxtap=%s\a" "$?" "$nonce"'
PS1='\[\e]133;A;muxtap=$nonce\a\]$ \[\e]133;B;muxtap=$nonce\a\]'
PS0='\e]133;C;muxtap=$nonce;cmdline_url=$(line)\a'
"#;
    compare(World::start(marks, &[("MUXTAP_SHELL_NONCE", "0123456789abcdef")]).await, 250, true, true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn output_beyond_the_ring_is_not_whole_and_its_end_is_known() {
    let marks = r#"
PROMPT_COMMAND='own_log; printf "\e]133;D;%s\a" "$?"'
PS0='\e]133;C\a'
"#;
    let options = Options::default().ring_bytes(64 * 1024);
    let mut world = World::start_with(options, marks, &[]).await;
    world.prompts(1).await;
    world.line("seq 30000; (exit 5)").await;
    let ended = world.finished().await;
    let output = world.pane.command_output(&ended).await.unwrap();
    assert_eq!(ended.command.status, Some(5));
    assert!(!output.is_whole && output.text.ends_with("29999\n30000\n"), "{ended:?}");
    world.engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_output_of_a_command_of_another_pane_is_refused() {
    let world = World::start("PS0='\\e]133;C\\a'", &[]).await;
    let other = world.pane.split().shell_command("printf '\\033]133;C\\007x'; cat").await.unwrap();
    other.wait().pattern("x").unwrap().await.unwrap();
    let running = other.commands().unwrap().pop().unwrap();
    let output = other.command_output(&running).await.unwrap();
    assert_eq!((output.text.as_str(), output.is_whole), ("x", false));
    assert_eq!(world.pane.command_output(&running).await.unwrap_err().code, ErrorCode::InvalidArgument);
    world.engine.stop().await;
}
