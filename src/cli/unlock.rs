//! `worktree unlock`: who holds the lock of a repository, and what a dead holder left is cleared.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;

use super::link::READ_LIMIT;
use super::session::{Common, Session};
use super::trouble::Outcome;
use super::{Exit, here, words};
use crate::audit::{Action, Event as Audit};
use crate::git::Git;
use crate::model::Error;
use crate::model::clock::{Clock as _, SystemClock};
use crate::worktrees::acting;
use crate::worktrees::repo_lock::{self, LOCK_FILE};

const AFTER_HELP: &str = "\
The lock is one of the operating system and ends with its holder, so that there is never one to break: a live holder is \
named and left alone. What a dead one noted in the lock file is cleared, and told to the audit log first. The command \
looks at this machine.

Examples:
  worktree unlock
  worktree unlock --repo ~/src/shop --json

Exit codes:
  0  nobody holds it
  1  refused
  2  a live process holds it, or the command line is wrong
  3  no engine answers";

/// The subcommand.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Arguments {
    /// The repository: its root, a folder in it, or one of its worktrees [default: the one around this directory]
    #[arg(long, value_name = "PATH")]
    repo: Option<PathBuf>,
    #[command(flatten)]
    pub(super) common: Common,
}

pub(super) async fn run(arguments: Arguments, session: &Session) -> Outcome {
    let path = here::absolute(arguments.repo.as_deref().unwrap_or(Path::new(".")))?;
    let found = Git::new(READ_LIMIT).discover(&path).await.map_err(Error::from)?;
    let common_dir = found.repo.common_dir();
    let lock = repo_lock::look(common_dir, LOCK_FILE)?;
    let who = lock.holder.as_ref().map_or_else(
        || "a process".to_owned(),
        |holder| format!("process {} (since {})", holder.pid, words::age(holder.since, SystemClock.now_ms())),
    );
    let mut cleared = false;
    // A live process that once held it is the worker at rest: its note is true.
    if !lock.held && lock.holder.is_some() && !lock.holder_alive {
        let context = here::context(session.link().await?).await?;
        let _held = session.interrupts.change();
        let details = json!({"lock": lock.path, "holder": lock.holder});
        let told = Audit::new(Action::Unlock, details).in_repo(&found.repo.key());
        acting::on_behalf(here::actor(), context.audit(told)).await?;
        cleared = repo_lock::clear_note(common_dir, LOCK_FILE)?;
    }
    session.print(&json!({"lock": lock, "cleared": cleared}), || match (lock.held, cleared) {
        (true, _) => format!("{} is held by {who}; wait for it, or end that process", lock.path.display()),
        (false, true) => format!("cleared the note of {who}, which is gone, in {}", lock.path.display()),
        (false, false) => format!("nobody holds {}", lock.path.display()),
    })?;
    Ok(if lock.held { Exit::Usage } else { Exit::Success })
}
