//! Serves muxtap's routes inside another axum application, under `/tmux`.
//!
//! `cargo run --example serve -- 127.0.0.1:7000`, then
//! `curl 'http://127.0.0.1:7000/tmux/v1/panes?socket=default'`
//!
//! Callers reach the servers in the user's tmux directory by their names. Further arguments are the
//! sockets of other servers.

#![allow(clippy::print_stdout, reason = "an example prints")]

use axum::{Router, routing::get};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args().nth(1).ok_or("where to listen? give an address of this machine, 127.0.0.1:7000")?;
    let engine = muxtap::Engine::start(muxtap::Options::default().allow(muxtap::api::Tiers::READ_ONLY))?;
    for socket in std::env::args().skip(2) {
        engine.server(socket).await?;
    }

    let app = Router::new()
        .route("/", get(async || "an application that also knows what terminals do\n"))
        // Access control is this application's task; here every caller has read access only.
        .nest("/tmux", muxtap::http::router(&engine));
    let listener = tokio::net::TcpListener::bind(&address).await?;
    println!("http://{}", listener.local_addr()?);
    axum::serve(listener, app)
        .with_graceful_shutdown(async {
            let _ = tokio::signal::ctrl_c().await;
        })
        .await?;

    engine.stop().await;
    Ok(())
}
