//! `worktree release`: a worktree is given back.

use clap::Args;
use serde_json::json;

use super::Exit;
use super::claim::Holder;
use super::select::Which;
use super::session::{Common, Session};
use super::trouble::Outcome;

const AFTER_HELP: &str = "\
Files and branch stay as they are.

Examples:
  worktree release
  worktree release fix-login --session ada

Exit codes:
  0  given back
  1  refused; W211 says who holds it
  2  the command line is wrong, or the name fits several worktrees
  3  no engine answers";

/// The subcommand.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Arguments {
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    holder: Holder,
    /// Release it although another session holds it (needs gates.allow_force)
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    pub(super) common: Common,
}

pub(super) async fn run(arguments: Arguments, session: &Session) -> Outcome {
    let holder = arguments.holder.name()?;
    let found = arguments.which.find(session.link().await?).await?;
    let payload = json!({"worktree_id": found.worktree_id, "session_id": holder, "force": arguments.force});
    let released = session.change("worktree::release", payload).await?;
    session.print(&released, String::new)?;
    Ok(Exit::Success)
}
