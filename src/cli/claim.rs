//! `worktree claim`: a worktree is taken.

use clap::Args;
use serde_json::{Value, json};

use super::select::Which;
use super::session::{Common, Session};
use super::trouble::{Outcome, Trouble};
use super::{Exit, here, output};

const AFTER_HELP: &str = "\
Examples:
  worktree claim
  worktree claim fix-login --session ada

Exit codes:
  0  taken, or it was yours already
  1  refused; W210 names the session that holds it
  2  the command line is wrong, or the name fits several worktrees
  3  no engine answers";

/// Who takes or gives back.
#[derive(Debug, Clone, Args)]
#[group(skip)]
pub(super) struct Holder {
    /// The session that holds it [default: your user name]
    #[arg(long, value_name = "NAME", env = "WORKTREE_SESSION", hide_env_values = true)]
    session: Option<String>,
}

impl Holder {
    /// The session that was meant.
    ///
    /// # Errors
    /// A usage error when nothing names the person.
    pub(super) fn name(&self) -> Outcome<String> {
        self.session
            .clone()
            .or_else(here::user)
            .ok_or_else(|| Trouble::usage("nobody is named by USER; say who holds it with --session"))
    }
}

/// The subcommand.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Arguments {
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    holder: Holder,
    /// Take it from the session that holds it (needs gates.allow_force)
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    pub(super) common: Common,
}

pub(super) async fn run(arguments: Arguments, session: &Session) -> Outcome {
    let holder = arguments.holder.name()?;
    let found = arguments.which.find(session.link().await?).await?;
    let payload = json!({"worktree_id": found.worktree_id, "session_id": holder, "force": arguments.force});
    let claimed = session.change("worktree::claim", payload).await?;
    if let Value::String(previous) = &claimed["previous_session_id"]
        && !session.json
    {
        output::complain(&format!("taken from {previous}"));
    }
    session.print(&claimed, String::new)?;
    Ok(Exit::Success)
}
