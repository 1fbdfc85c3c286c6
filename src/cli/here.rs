//! The worker's library on this machine, for what no call on the bus tells: sizes, the audit log, what is kept of
//! removed worktrees.
//!
//! Configuration and records come from the engine; the directories that they name are looked at here, so the command
//! has to run where the worker does.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::link::Link;
use super::trouble::{Outcome, Trouble};
use crate::model::actor::Actor;
use crate::wire;
use crate::worktrees::Context;

/// What the use cases work with, filled from the engine.
///
/// # Errors
/// When the configuration or the records cannot be read.
pub(super) async fn context(link: &Link) -> Outcome<Arc<Context>> {
    Ok(wire::attach(link.client().clone()).await?)
}

/// A path seen from the directory of the command; `.` is that directory itself.
///
/// # Errors
/// A usage error when that directory is gone, as the worktree of a land that ended is.
pub(super) fn absolute(path: &Path) -> Outcome<PathBuf> {
    std::path::absolute(path).map_err(|error| match error.kind() {
        ErrorKind::NotFound => {
            Trouble::usage("the current directory is gone, maybe with its worktree; change to another one")
        }
        _ => error.into(),
    })
}

/// The person at the command line, as the audit log names them.
pub(super) fn actor() -> Actor {
    Actor::command_line(&user().unwrap_or_else(|| nix::unistd::getuid().to_string()))
}

/// The name of the person at the command line, as the environment tells it.
pub(super) fn user() -> Option<String> {
    std::env::var("USER").or_else(|_| std::env::var("LOGNAME")).ok().filter(|name| !name.is_empty())
}
