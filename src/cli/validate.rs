//! `worktree validate`: is this path in a usable worktree?

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;

use super::Exit;
use super::create::absolute;
use super::session::{Common, Session};
use super::trouble::Outcome;

const AFTER_HELP: &str = "\
The worker looks at the path where it runs.

Examples:
  worktree validate
  worktree validate /src/shop --json

Exit codes:
  0  it is, managed by the worker or not
  1  it is not; the reason is told
  2  the command line is wrong
  3  no engine answers";

/// The subcommand.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Arguments {
    /// The path [default: this directory]
    #[arg(value_name = "PATH")]
    path: Option<PathBuf>,
    #[command(flatten)]
    pub(super) common: Common,
}

pub(super) async fn run(arguments: Arguments, session: &Session) -> Outcome {
    let path = absolute(arguments.path.as_deref().unwrap_or(Path::new(".")))?;
    let answer = session.link().await?.read("worktree::validate", json!({"path": path})).await?;
    let valid = answer["valid"] == true;
    session.print(&answer, || {
        let id = answer["worktree_id"].as_str();
        match (valid, id) {
            (true, Some(id)) => format!("{path} is in worktree {id}"),
            (true, None) => format!("{path} is in a git worktree that is not managed"),
            (false, _) => {
                let id = id.map(|id| format!(" ({id})")).unwrap_or_default();
                format!("{path}{id}: {}", answer["reason"].as_str().unwrap_or("not valid"))
            }
        }
    })?;
    Ok(if valid { Exit::Success } else { Exit::Failure })
}
