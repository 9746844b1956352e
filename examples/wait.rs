//! Types a command into a pane, and waits until the pane's output matches a regex.
//!
//! `cargo run --example wait -- /tmp/tmux-1000/default work:build 'make test' '(\d+) passed'`

#![allow(clippy::print_stdout, reason = "an example prints")]

use std::time::Duration;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let [socket, target, command, regex] = arguments()?;
    let engine = muxtap::Engine::start(muxtap::Options::default())?;
    let pane = engine.server(&socket).await?.pane(&target).await?;

    // Nothing is missed between the two: the wait begins at the input. The terminal's echo of the
    // command does not count.
    pane.send_keys([command.as_str(), "Enter"]).await?;
    let hit = pane.wait().pattern(regex)?.fail("^error")?.timeout(Duration::from_secs(600)).await?;

    println!("{:?}", hit.outcome);
    for (number, capture) in hit.captures().iter().enumerate() {
        println!("{number}: {}", capture.as_deref().unwrap_or("(took no part)"));
    }

    engine.stop().await;
    Ok(())
}

fn arguments<const N: usize>() -> Result<[String; N], String> {
    let words: Vec<_> = std::env::args().skip(1).collect();
    words.try_into().map_err(|words: Vec<_>| format!("{} arguments; {N} are needed, see the source", words.len()))
}
