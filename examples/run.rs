//! Creates a session, runs commands in its shell one after the other, and ends it.
//!
//! `cargo run --example run -- /tmp/tmux-1000/default 'cd /tmp' 'ls -l'`

#![allow(clippy::print_stdout, reason = "an example prints")]

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let socket = arguments.next().ok_or("which tmux server? give its socket, then commands")?;
    let engine = muxtap::Engine::start(muxtap::Options::default())?;
    let server = engine.server(&socket).await?;

    let pane = server.new_session().size(120, 40).await?;
    // A shell that has just started prints its prompt first.
    pane.wait().prompt().await?;
    for command in arguments {
        let done = pane.run(command).await?;
        print!("{}", done.output);
        println!(
            "[exit status {}]",
            done.exit_status.map_or_else(|| "unknown".to_owned(), |status| status.to_string())
        );
    }
    pane.kill().await?;

    engine.stop().await;
    Ok(())
}
