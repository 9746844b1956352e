//! Prints a pane's output as it arrives, until its program ends.
//!
//! `cargo run --example follow -- /tmp/tmux-1000/default work:build`

use std::io::Write as _;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let [socket, target] = arguments()?;
    let engine = muxtap::Engine::start(muxtap::Options::default())?;
    let pane = engine.server(&socket).await?.pane(&target).await?;

    let mut follow = pane.follow().since(muxtap::Since::Start);
    while let Some(output) = follow.next().await? {
        if let Some(gap) = output.gap {
            eprintln!("something is missing here: {}", gap.reason.as_str());
        }
        std::io::stdout().write_all(output.text().as_bytes())?;
        if let Some(exit) = output.exit {
            eprintln!("its program ended with {:?}", exit.status);
        }
    }

    // Leaves tmux as it was found.
    engine.stop().await;
    Ok(())
}

fn arguments<const N: usize>() -> Result<[String; N], String> {
    let words: Vec<_> = std::env::args().skip(1).collect();
    words.try_into().map_err(|words: Vec<_>| format!("{} arguments; {N} are needed, see the source", words.len()))
}
