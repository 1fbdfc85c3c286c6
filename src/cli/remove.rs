//! `worktree remove`: a worktree goes, after what it holds was shown.

use clap::Args;
use serde_json::json;

use super::holdings::Holdings;
use super::select::Which;
use super::session::{Common, Session};
use super::trouble::{Outcome, Trouble};
use super::{Exit, ask, output};

const AFTER_HELP: &str = "\
What the worktree holds is shown first, then the question is asked. Without a terminal to ask on, --yes answers it. A \
worktree with uncommitted files, commits that have not landed, or processes at work in it is refused; with --force it \
goes all the same, and the name of its branch has to be typed (or --yes given).

Its branch stays, unless --delete-branch is given.

Examples:
  worktree remove fix-login
  worktree remove wt_3f9a --delete-branch --yes
  worktree remove fix-login --force

Exit codes:
  0    removed
  1    refused, or not confirmed; it is as it was
  2    the command line is wrong, the name fits several worktrees, or nobody can be asked
  3    no engine answers
  130  interrupted; it is as it was, or gone as asked";

/// The subcommand.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Arguments {
    #[command(flatten)]
    which: Which,
    /// Remove it in spite of what would be lost (needs gates.allow_force)
    #[arg(long)]
    force: bool,
    /// Delete its branch as well; without --force only when its work has landed
    #[arg(long)]
    delete_branch: bool,
    /// Do not ask
    #[arg(long, short)]
    yes: bool,
    #[command(flatten)]
    pub(super) common: Common,
}

pub(super) async fn run(arguments: Arguments, session: &Session) -> Outcome {
    let link = session.link().await?;
    let found = arguments.which.find(link).await?;
    // Standing in it, this process would be one of those that are at work there.
    std::env::set_current_dir("/")?;
    let held = Holdings::of(link, &found.worktree_id).await?;
    if !session.json {
        output::complain(held.describe().trim_end());
    }
    if !arguments.yes && !confirmed(&held, arguments.force).await? {
        return Err(Trouble::Failed(anyhow::anyhow!("not confirmed; nothing was removed")));
    }
    let payload = json!({
        "worktree_id": found.worktree_id, "force": arguments.force, "delete_branch": arguments.delete_branch,
    });
    let removed = session.change("worktree::remove", payload).await?;
    let branch_deleted = removed["branch_deleted"] == true;
    if arguments.delete_branch && !branch_deleted && !session.json {
        output::complain(&format!("the branch {} stays: its work has not landed, or it is in use", found.branch));
    }
    let document = json!({
        "worktree_id": found.worktree_id, "branch": found.branch, "removed": true, "branch_deleted": branch_deleted,
        "forced": arguments.force, "held": held.document(),
    });
    session.print(&document, String::new)?;
    Ok(Exit::Success)
}

async fn confirmed(held: &Holdings, force: bool) -> Outcome<bool> {
    if force && held.at_stake() {
        let branch = &held.info.branch;
        return ask::typed("All of that will be lost from the directory.", branch, "--yes").await;
    }
    ask::confirm("Remove it?", "--yes").await
}
