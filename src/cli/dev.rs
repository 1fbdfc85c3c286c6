//! `worktree dev`: the embedded engine and the worker in one process.
//!
//! They talk through a socket, as a worker and an engine in two processes do.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;
use serde::Serialize;

use super::note::{self, Note};
use super::place::default_state_dir;
use super::stop::StopSignal;
use super::{Exit, Seed, output};
use crate::engine::{Engine, Options};
use crate::wire::{self, ServeOptions};

const AFTER_HELP: &str = "\
When the functions answer, one line of JSON is printed on standard output:
  {\"ready\":true,\"url\":\"ws://127.0.0.1:49134\",\"http\":\"http://127.0.0.1:3111\"}


Commands with --local find it by the file dev.json in its state directory.

Examples:
  worktree dev
  worktree dev --port 0 --http-port 0 --state-dir /var/tmp/wt

Exit codes:
  0  stopped as asked (SIGTERM or SIGINT)
  1  a port or the state directory is in use, or the configuration cannot be applied
  2  the command line is wrong";

/// The subcommand.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Arguments {
    /// Port for workers and clients on 127.0.0.1; 0 picks a free one
    #[arg(long, value_name = "PORT", default_value_t = 49134)]
    port: u16,
    /// Port for HTTP callers on 127.0.0.1; 0 picks a free one
    #[arg(long, value_name = "PORT", default_value_t = 3111)]
    http_port: u16,
    /// Where the engine keeps its state [default: ~/.iii/worktree-dev]
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,
    #[command(flatten)]
    seed: Seed,
}

/// The line that says that the functions answer.
#[derive(Debug, Serialize)]
struct Ready {
    ready: bool,
    url: String,
    http: String,
}

pub(super) async fn run(arguments: Arguments, before: Seed, state_dir: Option<PathBuf>) -> anyhow::Result<Exit> {
    let state_dir = arguments.state_dir.or(state_dir).map_or_else(default_state_dir, Ok)?;
    let stop = StopSignal::listen()?;
    let engine = Engine::start(Options {
        host: IpAddr::V4(Ipv4Addr::LOCALHOST),
        port: arguments.port,
        http_port: arguments.http_port,
        state_dir: state_dir.clone(),
        ..Options::default()
    })
    .await
    .context("starting the embedded engine")?;

    let ready = serde_json::to_string(&Ready { ready: true, url: engine.url(), http: engine.http_url() })?;
    note::remove(&state_dir).context("removing the note of the previous one")?;
    let note = Note { url: engine.url(), http: engine.http_url(), pid: std::process::id() };
    let place = state_dir.clone();
    let announce = move || {
        if let Err(error) = note.leave(&place) {
            tracing::warn!(%error, "no note could be left; commands with --local will not find this engine");
        }
        if let Err(error) = output::line(&ready) {
            tracing::warn!(%error, "standard output is closed; serving all the same");
        }
    };
    let seed = arguments.seed.path.or(before.path);
    let options = ServeOptions { url: engine.url(), seed, telemetry: false };
    let served = wire::serve(options, announce, stop.received()).await;
    if let Err(error) = note::remove(&state_dir) {
        tracing::warn!(%error, "the note for commands with --local stays behind");
    }
    // The engine goes last: the worker's final words are stored in it.
    engine.shutdown().await;
    served?;
    Ok(Exit::Success)
}
