//! `worktree create`: a worktree on a new branch, and its path on standard output.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use clap::Args;
use clap_complete::engine::ArgValueCompleter;
use serde_json::{Value, json};

use super::session::{Common, Session};
use super::trouble::{Outcome, Trouble};
use super::{Exit, complete, here, output};

const AFTER_HELP: &str = "\
The path is all that is printed. To stand in the new worktree at once, put `eval \"$(worktree completions --init bash)\"` \
into the startup file of your shell: `worktree create` then enters it, and `wt NAME` enters any other.

Interrupted by Ctrl-C, it takes back what was created.

Examples:
  worktree create
  worktree create fix-login --base main --session ada
  worktree create --repo ~/src/shop --pr 42
  cd \"$(worktree create)\"

Exit codes:
  0    created
  1    refused; nothing is left behind
  2    the command line is wrong
  3    no engine answers
  130  interrupted; nothing is left behind";

/// The subcommand.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Arguments {
    /// Name of the new branch [default: a generated one]
    #[arg(value_name = "BRANCH")]
    branch: Option<String>,
    /// The repository: its root, a folder in it, or one of its worktrees [default: the one around this directory]
    #[arg(long, value_name = "PATH")]
    repo: Option<PathBuf>,
    /// Branch, tag or commit to start from [default: HEAD]
    #[arg(long, value_name = "REF", add = ArgValueCompleter::new(complete::branches))]
    base: Option<String>,
    /// Start from this pull request of `origin`
    #[arg(long, value_name = "NUMBER", conflicts_with_all = ["branch", "base"])]
    pr: Option<u64>,
    /// Claim it at once for this session
    #[arg(long, value_name = "NAME")]
    session: Option<String>,
    /// Write the path into this file as well, for a shell function that enters it
    #[arg(long, value_name = "FILE")]
    cd_file: Option<PathBuf>,
    #[command(flatten)]
    pub(super) common: Common,
}

pub(super) async fn run(arguments: Arguments, session: &Session) -> Outcome {
    let repo = absolute(arguments.repo.as_deref().unwrap_or(Path::new(".")))?;
    let payload = json!({
        "repo_path": repo, "branch": arguments.branch, "base_ref": arguments.base, "pr": arguments.pr,
        "session_id": arguments.session,
    });
    // Held beyond the call: what was created for somebody who does not want it any more is taken back.
    let held = session.interrupts.change();
    let created = session.change("worktree::create", payload).await?;
    if session.interrupts.asked() {
        take_back(session, &created).await?;
        return Err(Trouble::Interrupted);
    }
    drop(held);
    let path = created["path"].as_str().unwrap_or_default().to_owned();
    if let Some(file) = &arguments.cd_file {
        File::create(file)?.write_all(path.as_bytes())?;
    }
    session.print(&created, || path)?;
    Ok(Exit::Success)
}

async fn take_back(session: &Session, created: &Value) -> Outcome<()> {
    let id = &created["worktree_id"];
    let removed = session.change("worktree::remove", json!({"worktree_id": id, "delete_branch": true})).await;
    match removed {
        Ok(_) => output::complain("interrupted; the new worktree was taken back"),
        // With branch deletion switched off, the worktree goes all the same.
        Err(error) if error.code() == Some("W500") => {
            session.change("worktree::remove", json!({"worktree_id": id})).await?;
        }
        Err(error) => return Err(error),
    }
    Ok(())
}

/// The path as callers on the bus need it. The worker judges whether anything is there.
pub(super) fn absolute(path: &Path) -> Outcome<String> {
    let path = here::absolute(path)?;
    let path = path.canonicalize().unwrap_or(path);
    match path.to_str() {
        Some(text) => Ok(text.to_owned()),
        None => Err(Trouble::usage(format!("{} is not UTF-8, and cannot be named on the bus", path.display()))),
    }
}
