//! `worktree get`: the record of one worktree.

use clap::Args;
use serde_json::json;

use super::Exit;
use super::select::Which;
use super::session::{Common, Session};
use super::trouble::Outcome;
use super::words;
use crate::model::status::WorktreeInfo;

const AFTER_HELP: &str = "\
Examples:
  worktree get
  worktree get fix-login --path
  worktree get wt_3f9a --json

Exit codes:
  0  shown
  1  there is no such worktree
  2  the command line is wrong, or the name fits several worktrees
  3  no engine answers";

/// The subcommand.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Arguments {
    #[command(flatten)]
    which: Which,
    /// Print its directory and nothing else
    #[arg(long, conflicts_with = "json")]
    path: bool,
    #[command(flatten)]
    pub(super) common: Common,
}

pub(super) async fn run(arguments: Arguments, session: &Session) -> Outcome {
    let link = session.link().await?;
    let found = arguments.which.find(link).await?;
    if arguments.path {
        session.print(&json!(found.path), || found.path.clone())?;
        return Ok(Exit::Success);
    }
    let value = link.read("worktree::get", json!({"worktree_id": found.worktree_id})).await?;
    let info: WorktreeInfo = serde_json::from_value(value.clone())?;
    session.print(&value, || describe(&info))?;
    Ok(Exit::Success)
}

fn describe(info: &WorktreeInfo) -> String {
    let lines = [
        ("id", info.worktree_id.clone()),
        ("branch", info.branch.clone()),
        ("path", info.path.clone()),
        ("repository", info.repo_path.clone()),
        ("started from", format!("{} ({})", info.base_ref, words::short(&info.base_sha))),
        ("state", info.lifecycle.as_str().to_owned()),
        ("claimed by", info.session_id.clone().unwrap_or_else(|| "nobody".to_owned())),
        ("port", info.dev_port.to_string()),
        ("created", words::date(info.created_at)),
        ("changed", words::date(info.updated_at)),
    ];
    lines.iter().map(|(name, value)| format!("{name:<13} {value}\n")).collect()
}
