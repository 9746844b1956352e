//! Programs of rules: without a shell, with the facts in their environment, and with a time limit.

use std::{path::PathBuf, process::Stdio, time::Duration};

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _},
    process::{Child, Command},
};

use crate::{facts::Facts, limits::RUN_OUTPUT};

/// How long output is awaited after the program's end: a process that it left behind may hold the pipe.
const OUTPUT_LIMIT: Duration = Duration::from_millis(200);

/// A program with its process group, which is killed when this is dropped.
struct Group {
    child: Child,
    id: Option<Pid>,
}

impl Drop for Group {
    fn drop(&mut self) {
        // Not after its end: the number may be another group's by then.
        if let Some(id) = self.id {
            let _ = kill_process_group(id, Signal::KILL);
        }
    }
}

/// Runs a program. Error: it cannot be started, ended with another status than 0, or took too long.
pub(crate) async fn run(words: &[String], facts: &Facts, limit: Duration) -> Result<String, String> {
    let Some((program, arguments)) = words.split_first() else { return Err("no program".into()) };
    let mut command = Command::new(program);
    command.args(arguments).envs(variables(facts)).current_dir(home());
    // These name the pane from which the daemon was started.
    command.env_remove("TMUX").env_remove("TMUX_PANE");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0).kill_on_drop(true);
    let mut child = command.spawn().map_err(|error| format!("cannot start: {error}"))?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let id = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
    let mut group = Group { child, id };
    let mut kept = (Vec::new(), Vec::new());
    let ended = {
        let reads = async { tokio::join!(keep(stdout, &mut kept.0), keep(stderr, &mut kept.1)) };
        let mut reads = std::pin::pin!(reads);
        let wait = async {
            tokio::select! {
                status = group.child.wait() => {
                    let _ = tokio::time::timeout(OUTPUT_LIMIT, &mut reads).await;
                    status
                }
                _ = &mut reads => group.child.wait().await,
            }
        };
        tokio::time::timeout(limit, wait).await
    };
    if let Ok(Ok(_)) = &ended {
        group.id = None;
    }
    for (name, output) in [("stdout", &kept.0), ("stderr", &kept.1)] {
        if !output.is_empty() {
            let text = String::from_utf8_lossy(output);
            tracing::debug!("rule {}: {name} of {program}: {}", facts.rule, muxtap_base::plain::text(text.trim_end()));
        }
    }
    match ended {
        Err(_) => Err(format!("killed after {} ms", limit.as_millis())),
        Ok(Err(error)) => Err(error.to_string()),
        Ok(Ok(status)) if status.success() => Ok("status 0".into()),
        Ok(Ok(status)) => Err(match status.code() {
            Some(code) => format!("status {code}"),
            None => status.to_string(),
        }),
    }
}

/// Reads to the end and keeps the beginning, so that the program never waits for a reader.
async fn keep(pipe: Option<impl AsyncRead + Unpin>, kept: &mut Vec<u8>) {
    let Some(mut pipe) = pipe else { return };
    let mut buffer = [0; 4096];
    while let Ok(read) = pipe.read(&mut buffer).await
        && read > 0
    {
        let free = RUN_OUTPUT.saturating_sub(kept.len()).min(read);
        kept.extend_from_slice(buffer.get(..free).unwrap_or_default());
    }
}

/// Returns the facts as variables. A variable cannot contain NUL.
fn variables(facts: &Facts) -> impl Iterator<Item = (String, String)> {
    let all = facts.all().into_iter();
    all.map(|(name, text)| (format!("MUXTAP_WHEN_{}", name.to_ascii_uppercase()), text.replace('\0', "")))
}

/// Returns the user's home, else `/`.
fn home() -> PathBuf {
    let home = std::env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_dir());
    home.unwrap_or_else(|| "/".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn sh(script: &str) -> Vec<String> {
        ["sh", "-c", script].map(String::from).into()
    }

    /// WN3.
    #[tokio::test]
    async fn a_panes_text_is_a_variable_and_never_code() {
        let dir = tempfile::tempdir().unwrap();
        let touched = dir.path().join("touched");
        let nasty = format!("$(touch {0}) `touch {0}` '\"; touch {0}\n--flag \0 {{text}}", touched.display());
        let facts = Facts { text: nasty.clone(), ..Facts::default() };
        let out = dir.path().join("out");
        let script =
            format!("printf %s \"$MUXTAP_WHEN_TEXT\" > {}; test $# = 1 && test \"$1\" = '{{text}}'", out.display());
        let mut words = sh(&script);
        words.extend(["name".into(), "{text}".into()]);
        assert_eq!(run(&words, &facts, LONG).await, Ok("status 0".into()));
        assert_eq!(std::fs::read_to_string(&out).unwrap(), nasty.replace('\0', ""));
        assert!(!touched.exists());
    }

    #[tokio::test]
    async fn a_program_that_fails_hangs_or_floods_ends_with_its_reason() {
        let facts = Facts::default();
        assert_eq!(run(&sh("exit 3"), &facts, LONG).await, Err("status 3".into()));
        assert!(run(&["/no/such/program".into()], &facts, LONG).await.unwrap_err().starts_with("cannot start"));
        // A megabyte is more than a pipe holds.
        assert_eq!(
            run(&sh("head -c 1000000 /dev/zero; head -c 1000000 /dev/zero >&2"), &facts, LONG).await,
            Ok("status 0".into())
        );
        // A process that it leaves behind holds its output open, and no one waits for that.
        assert_eq!(run(&sh("sleep 5 & exit 0"), &facts, LONG).await, Ok("status 0".into()));
    }

    #[tokio::test]
    async fn a_program_that_takes_too_long_is_killed_with_its_children() {
        let limit = Duration::from_millis(50);
        let late = run(&sh("sleep 1000 & wait"), &Facts::default(), limit).await;
        assert_eq!(late, Err("killed after 50 ms".into()));

        let dir = tempfile::tempdir().unwrap();
        let pid = dir.path().join("pid");
        let words = sh(&format!("sleep 1000 & echo $! > {0}.new; mv {0}.new {0}; wait", pid.display()));
        let started = async {
            while !pid.exists() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        // Dropping it is what the limit does, once the child is there.
        let facts = Facts::default();
        tokio::select! {
            ended = run(&words, &facts, LONG) => panic!("{ended:?}"),
            () = started => {}
        }
        let child: u32 = std::fs::read_to_string(&pid).unwrap().trim().parse().unwrap();
        let is_alive = || {
            let stat = std::fs::read_to_string(format!("/proc/{child}/stat"));
            stat.is_ok_and(|stat| !stat.contains(") Z"))
        };
        let gone = async {
            while is_alive() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(LONG, gone).await.unwrap();
    }
}
