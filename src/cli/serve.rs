//! `worktree serve`: the worker on an iii engine.

use clap::Args;

use super::stop::StopSignal;
use super::{EngineAddress, Exit, Seed, output};
use crate::wire::{self, ServeOptions};

const AFTER_HELP: &str = "\
Examples:
  worktree serve
  worktree serve --url ws://10.0.0.5:49134 --config seed.yaml
  worktree serve --manifest

The worker waits for an engine that is not there yet, and registers again with one that restarts. On \
SIGTERM or SIGINT it takes no new work, brings the running step to a recorded state, and leaves.

With OTEL_ENABLED=true in its environment the worker sends spans and metrics to the engine; the span of a refusal \
holds a stack trace of the worker.

Exit codes:
  0  stopped as asked
  1  another worker holds the name on this engine, or the configuration cannot be applied
  2  the command line is wrong";

/// What serving can be told, with or without the word `serve`.
#[derive(Debug, Clone, Default, Args)]
#[group(skip)]
pub(super) struct Arguments {
    #[command(flatten)]
    pub(super) seed: Seed,
    /// Print what this worker is, as JSON, and leave without connecting
    #[arg(long)]
    pub(super) manifest: bool,
}

impl Arguments {
    /// These arguments, completed by those that stood before the subcommand.
    pub(super) fn or(self, before: Self) -> Self {
        let seed = Seed { path: self.seed.path.or(before.seed.path) };
        Self { seed, manifest: self.manifest || before.manifest }
    }
}

/// The subcommand.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Command {
    #[command(flatten)]
    pub(super) engine: EngineAddress,
    #[command(flatten)]
    pub(super) serve: Arguments,
}

pub(super) async fn run(arguments: Arguments, url: String) -> anyhow::Result<Exit> {
    if arguments.manifest {
        output::line(&format!("{:#}", wire::manifest()))?;
        return Ok(Exit::Success);
    }
    let stop = StopSignal::listen()?;
    let options = ServeOptions { url, seed: arguments.seed.path, telemetry: true };
    wire::serve(options, || tracing::info!("ready"), stop.received()).await?;
    Ok(Exit::Success)
}
