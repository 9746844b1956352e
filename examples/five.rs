//! Five things that a program does with muxtap: what `docs/for-rust.md` shows.
//!
//! `cargo run --example five -- /tmp/muxtap-five`

#![allow(clippy::print_stdout, reason = "an example prints")]

use std::{path::PathBuf, time::Duration};

use muxtap::{Engine, Options, Result, Since};

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let socket: PathBuf =
        std::env::args().nth(1).ok_or("on which socket is the tmux server, or may one begin?")?.into();
    let engine = Engine::start(Options::default())?;
    five(&engine, socket).await?;
    // Leaves tmux as it is, without muxtap's clients.
    engine.stop().await;
    Ok(())
}

async fn five(engine: &Engine, socket: PathBuf) -> Result<()> {
    // 1. A pane: an existing one (`server.pane("work:build")`), or a new one.
    let server = engine.server_at(&socket)?;
    let shell = server.new_session().name("five").await?;

    // 2. A command in its shell: its own output, and its status.
    shell.wait().prompt().await?;
    let done = shell.run("seq 3; (exit 4)").await?;
    println!("{:?} {:?}", done.output, done.exit_status);

    // 3. A program that starts and keeps running: returns as soon as it prints the awaited line.
    let job = server.new_window("five").shell_command("sleep 0.2; echo Listening on :8080; exec cat").await?;
    let up = job.wait().pattern(r"Listening on :(\d+)")?.fail("in use")?.timeout(Duration::from_secs(30)).await?;
    println!("{:?} {:?}", up.outcome, up.captures());

    // 4. Its output since its input, and only that: from a cursor, which stays valid.
    let sent = job.submit("hello").await?;
    let said = job.wait().pattern("^hello$")?.await?;
    let output = job.read().since(sent.cursor).await?;
    println!("{:?} {:?}", said.outcome, output.text());

    // 5. A pane's output as it arrives, to its end.
    let count = server.new_window("five").shell_command("seq 2; exit 3").keep().await?;
    let mut follow = count.follow().since(Since::Start);
    let mut text = String::new();
    while let Some(output) = follow.next().await? {
        text += &output.text();
        if let Some(exit) = output.exit {
            println!("{text:?} {:?}", exit.status);
        }
    }

    for pane in [shell, job, count] {
        pane.kill().await?;
    }
    Ok(())
}
