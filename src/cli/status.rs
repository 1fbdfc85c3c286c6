//! `worktree status`: what git says about one worktree.

use clap::Args;
use serde_json::{Value, json};

use super::link::Link;
use super::select::Which;
use super::session::{Common, Session};
use super::terminal::{Style, paint};
use super::trouble::Outcome;
use super::{Exit, queue, words};
use crate::model::job::Job;
use crate::model::record::Lifecycle;
use crate::model::status::WorktreeStatus;

const AFTER_HELP: &str = "\
Where the last land was stopped, the reason comes first.

Examples:
  worktree status
  worktree status fix-login --json

Exit codes:
  0  shown, whatever it is
  1  there is no such worktree, or its directory is gone or is something else
  2  the command line is wrong, or the name fits several worktrees
  3  no engine answers";

/// The subcommand.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Arguments {
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    pub(super) common: Common,
}

pub(super) async fn run(arguments: Arguments, session: &Session) -> Outcome {
    let link = session.link().await?;
    let found = arguments.which.find(link).await?;
    let mut value = link.read("worktree::status", json!({"worktree_id": found.worktree_id})).await?;
    let status: WorktreeStatus = serde_json::from_value(value.clone())?;
    let blocked = match found.lifecycle {
        Lifecycle::LandBlocked => last_stop(link, &found.worktree_id).await?,
        _ => None,
    };
    value["blocked"] = blocked.as_ref().map_or(Value::Null, |job| {
        json!({
            "job_id": job.job_id, "code": job.blocked_code, "reason": job.blocked_reason, "message": job.message,
            "conflict_files": job.conflict_files, "exit_code": job.exit_code, "output_tail": job.output_tail,
        })
    });
    session.print(&value, || {
        let head = words::short(&status.head_sha);
        let claim = found.session_id.as_ref().map(|session| format!(", claimed by {session}")).unwrap_or_default();
        let title = format!("{} on {} at {head}", found.worktree_id, found.branch);
        let state = found.lifecycle.as_str();
        let why = blocked.as_ref().map(describe_stop).unwrap_or_default();
        format!("{}\n{state}{claim}\n{why}{}", paint(Style::Bold, &title), describe(&status))
    })?;
    Ok(Exit::Success)
}

/// The last land of a worktree, when it was stopped.
async fn last_stop(link: &Link, worktree_id: &str) -> Outcome<Option<Job>> {
    let last = queue::jobs(link).await?.into_iter().rfind(|job| job.worktree_id == worktree_id && job.done);
    Ok(last.filter(|job| job.blocked_code.is_some()))
}

fn describe_stop(job: &Job) -> String {
    let code = job.blocked_code.as_deref().unwrap_or_default();
    let message = job.message.as_deref().unwrap_or("the land was stopped");
    let mut text = format!("  {}\n", paint(Style::Red, &format!("the last land was stopped, {code}: {message}")));
    let tail = job.output_tail.as_deref().unwrap_or_default();
    for line in job.conflict_files.iter().flatten().map(String::as_str).chain(tail.lines()) {
        text.push_str(&format!("  | {line}\n"));
    }
    text
}

/// What a worktree holds, one line for each kind of thing.
pub(super) fn describe(status: &WorktreeStatus) -> String {
    let mut lines = Vec::new();
    if status.in_rebase {
        lines.push(paint(Style::Red, "a rebase is open: resolve it and run `git rebase --continue`, or abort it"));
    }
    let kinds = [
        (status.conflicted, "in conflict"),
        (status.staged, "staged"),
        (status.unstaged, "changed"),
        (status.untracked, "untracked"),
    ];
    let counts: Vec<String> =
        kinds.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")).collect();
    if counts.is_empty() {
        lines.push("nothing uncommitted".to_owned());
    } else {
        lines.push(paint(Style::Yellow, &format!("uncommitted files: {}", counts.join(", "))));
    }
    if status.integrated && status.ahead == 0 {
        lines.push("no commits of its own".to_owned());
    } else if status.integrated {
        let reason = status.integration_reason.as_deref().unwrap_or("known").replace('_', " ");
        lines.push(format!("every commit has landed ({reason})"));
    } else {
        let ahead = words::counted(status.ahead, "commit", "commits");
        let unpushed = format!("{} on no remote", status.unpushed);
        lines.push(paint(Style::Yellow, &format!("{ahead} not landed ({unpushed})")));
    }
    if status.behind > 0 {
        lines.push(format!("{} behind", words::counted(status.behind, "commit", "commits")));
    }
    if !status.diffstat.is_empty() {
        lines.push(status.diffstat.trim().to_owned());
    }
    lines.iter().map(|line| format!("  {line}\n")).collect()
}
