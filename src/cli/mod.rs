//! The command line: one file per command, each of them parse → call → print. Nothing is decided here.
//!
//! Invariants
//! 1. Results go to standard output, everything else to standard error.
//! 2. The exit codes are those of [`Exit`], and the help of each command lists its own.

mod call;
mod demo;
mod dev;
mod exit;
mod output;
mod serve;
mod stop;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{Args, CommandFactory as _, Parser, Subcommand};

pub use exit::Exit;

const AFTER_HELP: &str = "\
Examples:
  worktree demo
  worktree dev
  worktree call worktree::list
  worktree --url ws://10.0.0.5:49134 --config seed.yaml

Exit codes:
  0  ended as asked
  1  failed; the reason is on standard error
  2  the command line is wrong
  3  no engine answers (`call`)";

/// The whole command line.
#[derive(Debug, Parser)]
#[command(name = "worktree", version, about, max_term_width = 100, after_help = AFTER_HELP)]
#[command(
    long_about = "Isolated git worktrees for coding agents, and a landing queue that never loses their work.\n\n\
    Without a subcommand this is `worktree serve`: the worker connects to an iii engine and serves until it is told \
    to stop. New here? Run `worktree demo`."
)]
pub struct Arguments {
    #[command(flatten)]
    engine: EngineAddress,
    #[command(flatten)]
    serve: serve::Arguments,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Connect to an iii engine and serve until told to stop (the default)
    Serve(serve::Command),
    /// Run an engine and the worker in one process, for a machine without iii
    Dev(dev::Arguments),
    /// Show what the worker does, in a temporary directory, in a few seconds
    #[command(after_help = demo::AFTER_HELP)]
    Demo,
    /// Call one function on the engine and print its result
    Call(call::Arguments),
}

/// Where the engine listens.
#[derive(Debug, Clone, Default, Args)]
#[group(skip)]
struct EngineAddress {
    /// Address of the engine [env: III_URL] [default: ws://127.0.0.1:49134]
    #[arg(long, value_name = "URL")]
    url: Option<String>,
}

impl EngineAddress {
    /// The address given after the subcommand, else the one before it, else the one of the environment.
    fn resolve(self, before: Self) -> String {
        self.url.or(before.url).unwrap_or_else(iii_sdk::engine_url_from_env)
    }
}

/// A file that seeds the configuration.
#[derive(Debug, Clone, Default, Args)]
#[group(skip)]
struct Seed {
    /// YAML file that seeds the configuration when the engine stores none yet
    #[arg(long = "config", value_name = "FILE")]
    path: Option<PathBuf>,
}

impl Arguments {
    /// What is logged when `RUST_LOG` does not say: progress of a service, only trouble of a single command.
    #[must_use]
    pub fn default_log_filter(&self) -> &'static str {
        match self.command {
            // What the SDK says of its own start is of use only to whoever asks for it.
            None | Some(Command::Serve(_) | Command::Dev(_)) => "info,opentelemetry=warn,iii_helpers=warn,iii_sdk=warn",
            Some(Command::Demo | Command::Call(_)) => "off",
        }
    }

    /// Options that stand before a subcommand which has no use for them.
    fn misplaced(&self) -> Option<&'static str> {
        let (url, config) = match self.command {
            None | Some(Command::Serve(_)) => return None,
            Some(Command::Dev(_)) => (true, false),
            Some(Command::Demo) => (true, true),
            Some(Command::Call(_)) => (false, true),
        };
        if self.serve.manifest {
            Some("--manifest")
        } else if url && self.engine.url.is_some() {
            Some("--url")
        } else if config && self.serve.seed.path.is_some() {
            Some("--config")
        } else {
            None
        }
    }
}

/// Runs the command and tells the exit code.
pub async fn run(arguments: Arguments) -> ExitCode {
    if let Some(option) = arguments.misplaced() {
        let error = Arguments::command()
            .error(ErrorKind::ArgumentConflict, format!("`{option}` has no meaning for this subcommand"));
        // Standard error that is closed leaves nobody to tell.
        error.print().unwrap_or_default();
        return Exit::Usage.into();
    }
    let Arguments { engine, serve, command } = arguments;
    let outcome = match command {
        None => serve::run(serve, engine.resolve(EngineAddress::default())).await,
        Some(Command::Serve(command)) => serve::run(command.serve.or(serve), command.engine.resolve(engine)).await,
        Some(Command::Dev(dev)) => dev::run(dev, serve.seed).await,
        Some(Command::Demo) => demo::run().await,
        Some(Command::Call(call)) => call::run(call, engine).await,
    };
    let exit = outcome.unwrap_or_else(|error| {
        output::complain(&format!("worktree: {error:#}"));
        Exit::Failure
    });
    exit.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_of_the_command_line_is_sound() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn the_address_after_the_subcommand_wins_over_the_one_before_it() {
        let parsed = Arguments::try_parse_from(["worktree", "--url", "ws://a:1", "call", "f", "--url", "ws://b:2"]);
        let Arguments { engine, command: Some(Command::Call(call)), .. } = parsed.unwrap() else {
            panic!("not a call")
        };
        assert_eq!(call.engine.resolve(engine.clone()), "ws://b:2");
        assert_eq!(EngineAddress::default().resolve(engine), "ws://a:1");
    }

    #[test]
    fn options_without_a_meaning_are_named() {
        let misplaced = |line: &[&str]| Arguments::try_parse_from(line).unwrap().misplaced();
        assert_eq!(misplaced(&["worktree", "--url", "ws://a:1", "dev"]), Some("--url"));
        assert_eq!(misplaced(&["worktree", "--config", "x", "demo"]), Some("--config"));
        assert_eq!(misplaced(&["worktree", "--manifest", "call", "f"]), Some("--manifest"));
        assert_eq!(misplaced(&["worktree", "--config", "x", "dev"]), None);
        assert_eq!(misplaced(&["worktree", "--url", "ws://a:1", "serve"]), None);
    }
}
