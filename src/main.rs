//! The `worktree` binary: tracing, arguments, dispatch, exit code.

use std::io::IsTerminal as _;
use std::process::ExitCode;

use clap::{CommandFactory as _, Parser as _};
use clap_complete::CompleteEnv;
use tracing_subscriber::EnvFilter;
use worktree::cli::{Arguments, COMPLETION_VARIABLE};

#[tokio::main]
async fn main() -> ExitCode {
    // A shell that asks for completions gets them, and nothing else happens.
    CompleteEnv::with_factory(Arguments::command).var(COMPLETION_VARIABLE).complete();
    let arguments = Arguments::parse();
    // Results go to standard output; everything that is said about them goes to standard error.
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none())
        .with_env_filter(
            EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(arguments.default_log_filter())),
        )
        .init();
    // Not here: whatever wakes the main thread has woken another one before.
    match tokio::spawn(worktree::cli::run(arguments)).await {
        Ok(exit) => exit,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}
