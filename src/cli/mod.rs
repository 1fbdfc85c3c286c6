//! The command line: one file per command, each of them parse → call → print. Nothing is decided here.
//!
//! Invariants
//! 1. Results go to standard output, everything else to standard error.
//! 2. The exit codes are those of [`Exit`], and the help of each command lists its own.
//! 3. Everything about worktrees goes over the bus. What has to look at the machine says so in its help.
//!
//! | modules | what they own |
//! |---|---|
//! | `serve`, `dev`, `demo`, `call` | the program as a service, and as a bare client |
//! | `operator` and the files it names | one command each |
//! | `session`, `place`, `link`, `host`, `note` | from the words to a connection, and its end |
//! | `trouble`, `hints`, `exit`, `interrupt` | how commands fail and stop |
//! | `here` | the worker's library on this machine |
//! | `select`, `scope`, `holdings`, `complete` | which worktrees are meant, and what they hold |
//! | `output`, `terminal`, `table`, `words`, `progress`, `ask` | what is said, and how |

mod ask;
mod audit;
mod call;
mod claim;
mod complete;
mod completions;
mod config;
mod create;
mod demo;
mod dev;
mod doctor;
mod du;
mod exit;
mod get;
mod here;
mod hints;
mod holdings;
mod host;
mod interrupt;
mod land;
mod link;
mod list;
mod note;
mod operator;
mod output;
mod place;
mod progress;
mod prune;
mod queue;
mod release;
mod remove;
mod restore;
mod scope;
mod select;
mod serve;
mod session;
mod status;
mod stop;
mod table;
mod terminal;
mod trouble;
mod unlock;
mod validate;
mod watch;
mod words;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{Args, CommandFactory as _, Parser, Subcommand};

use self::place::Reach;

pub use completions::VARIABLE as COMPLETION_VARIABLE;
pub use exit::Exit;

const AFTER_HELP: &str = "\
A worktree is named by its id, the beginning of it, its branch, a path in it, or by standing in it.

A day with it, in a repository of your own, with `worktree dev` running in another terminal (or --local on each line):
  worktree create fix-login                        a place to work in; commit there
  worktree list                                    who works where, on what, how far
  worktree land fix-login --test 'make test' --wait
  worktree status fix-login                        when it did not land: what is in the way is told
  worktree config gates.allow_force true           what can lose work is off until you switch it on
  worktree remove fix-login --force                shows what would be lost, and asks
  worktree restore fix-login                       brings it back, as long as it is kept
  worktree audit verify                            whether the log of all that went is as it was written
  worktree prune                                   removes what is finished
  worktree doctor                                  when something is odd

Exit codes:
  0    ended as asked
  1    refused or failed; the reason, with its code, is on standard error
  2    the command line is wrong, a name fits several worktrees, or a live process is in the way
  3    no engine answers
  130  interrupted";

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
    reach: Reach,
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
    #[command(flatten)]
    Operator(operator::Command),
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
    fn resolve(self, before: Option<String>) -> String {
        self.url.or(before).unwrap_or_else(iii_sdk::engine_url_from_env)
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
            Some(Command::Demo | Command::Call(_) | Command::Operator(_)) => "off",
        }
    }

    /// Options that stand before a subcommand which has no use for them.
    fn misplaced(&self) -> Option<&'static str> {
        let serves = matches!(self.command, None | Some(Command::Serve(_)));
        let speaks = matches!(self.command, Some(Command::Operator(_) | Command::Call(_)));
        let dev = matches!(self.command, Some(Command::Dev(_)));
        let given = [
            ("--manifest", self.serve.manifest && !serves),
            ("--url", self.reach.url.is_some() && !serves && !speaks),
            ("--config", self.serve.seed.path.is_some() && !serves && !dev),
            ("--local", self.reach.local && !speaks),
            ("--state-dir", self.reach.state_dir.is_some() && !speaks && !dev),
        ];
        given.into_iter().find_map(|(option, misplaced)| misplaced.then_some(option))
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
    let Arguments { reach, serve, command } = arguments;
    let outcome = match command {
        None => serve::run(serve, EngineAddress::default().resolve(reach.url)).await,
        Some(Command::Serve(command)) => serve::run(command.serve.or(serve), command.engine.resolve(reach.url)).await,
        Some(Command::Dev(dev)) => dev::run(dev, serve.seed, reach.state_dir).await,
        Some(Command::Demo) => demo::run().await,
        Some(Command::Call(call)) => call::run(call, reach).await,
        Some(Command::Operator(command)) => Ok(command.run(reach).await),
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
    fn options_without_a_meaning_are_named() {
        let misplaced = |line: &[&str]| Arguments::try_parse_from(line).unwrap().misplaced();
        assert_eq!(misplaced(&["worktree", "--url", "ws://a:1", "dev"]), Some("--url"));
        assert_eq!(misplaced(&["worktree", "--config", "x", "demo"]), Some("--config"));
        assert_eq!(misplaced(&["worktree", "--manifest", "call", "f"]), Some("--manifest"));
        assert_eq!(misplaced(&["worktree", "--config", "x", "dev"]), None);
        assert_eq!(misplaced(&["worktree", "--url", "ws://a:1", "serve"]), None);
        assert_eq!(misplaced(&["worktree", "--local"]), Some("--local"));
        assert_eq!(misplaced(&["worktree", "--local", "list"]), None);
        assert_eq!(misplaced(&["worktree", "--state-dir", "x", "dev"]), None);
    }
}
