//! The embedded engine alone, as a process of its own: for clients in other languages, and for tests that kill it.
//!
//! `cargo run --example engine -- STATE_DIR [PORT]` prints one JSON line when it is ready and stops at SIGTERM or
//! SIGINT.

use std::io::Write as _;

use anyhow::Context as _;
use tokio::signal::unix::{SignalKind, signal};
use worktree::engine::{Engine, Options};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_max_level(tracing::Level::WARN).init();
    let mut arguments = std::env::args().skip(1);
    let state_dir = arguments.next().context("usage: engine STATE_DIR [PORT]")?.into();
    let port = arguments.next().map_or(Ok(0), |port| port.parse()).context("PORT is a number")?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let engine = Engine::start(Options { port, http_port: 0, state_dir, ..Options::default() }).await?;
    let ready = serde_json::json!({"ready": true, "url": engine.url(), "http": engine.http_url()});
    let mut out = std::io::stdout();
    writeln!(out, "{ready}")?;
    out.flush()?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    engine.shutdown().await;
    Ok(())
}
