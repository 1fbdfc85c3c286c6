//! `worktree land`: a branch is landed, and with `--wait` watched to the end.

mod follow;

use std::path::Path;

use clap::Args;
use clap_complete::engine::ArgValueCompleter;
use serde_json::json;

use super::link::READ_LIMIT;
use super::select::Which;
use super::session::{Common, Session};
use super::trouble::{Outcome, Trouble};
use super::{Exit, complete, output, words};
use crate::git::Git;
use crate::model::job::Job;
use crate::model::status::WorktreeInfo;

const AFTER_HELP: &str = "\
Commit everything first. Without --onto the branch lands where the worktree was started from: the branch given with \
`create --base`, else the one that is checked out in the repository.

With --wait the phases are shown as they come. A land that is stopped leaves the target where it was; the reason and \
the last lines of the tests are on standard error. Ctrl-C ends the waiting, not the land. With --local and no \
`worktree dev` running, the command always waits, for the land runs in it.

Examples:
  worktree land --test 'make test' --wait
  worktree land fix-login --onto main --keep
  worktree land wt_3f9a --test 'npm test' --wait --json

Exit codes:
  0    landed; without --wait: queued
  1    refused, or stopped: the W-code tells by what
  2    the command line is wrong, or the name fits several worktrees
  3    no engine answers
  130  interrupted; the land goes on";

/// The subcommand.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Arguments {
    #[command(flatten)]
    which: Which,
    /// The branch to land on
    #[arg(long, value_name = "BRANCH", add = ArgValueCompleter::new(complete::branches))]
    onto: Option<String>,
    /// The tests: a shell command, run in the worktree at the commit that would land
    #[arg(long, value_name = "COMMAND")]
    test: Option<String>,
    /// Keep worktree and branch
    #[arg(long)]
    keep: bool,
    /// Discard a rebase, merge, cherry-pick, revert or bisect that is open there (needs gates.allow_force)
    #[arg(long)]
    force_restart: bool,
    /// Wait for the end
    #[arg(long)]
    wait: bool,
    #[command(flatten)]
    pub(super) common: Common,
}

pub(super) async fn run(arguments: Arguments, session: &Session) -> Outcome {
    let link = session.link().await?;
    let found = arguments.which.find(link).await?;
    let onto = match arguments.onto {
        Some(onto) => onto,
        None => target_of(&found).await?,
    };
    let payload = json!({
        "worktree_id": found.worktree_id, "target_branch": onto, "test_cmd": arguments.test, "keep": arguments.keep,
        "force_restart": arguments.force_restart,
    });
    let queued = session.change("worktree::land", payload).await?;
    let job_id = queued["job_id"].as_str().unwrap_or_default().to_owned();
    if !arguments.wait && !link.is_hosted() {
        let document = json!({
            "worktree_id": found.worktree_id, "job_id": job_id, "target_branch": onto, "outcome": "queued",
        });
        session.print(&document, || format!("{job_id} lands {} on {onto}", found.branch))?;
        return Ok(Exit::Success);
    }
    let _held = session.interrupts.own_end();
    let job = tokio::select! {
        biased;
        () = session.interrupts.received() => {
            if !session.json {
                output::complain(&format!("the land of {} goes on; `worktree queue` shows it", found.branch));
            }
            return Err(Trouble::Interrupted);
        }
        job = follow::to_the_end(link, &job_id, session.json) => job?,
    };
    report(session, &job)
}

/// The branch a worktree lands on when none is named.
async fn target_of(info: &WorktreeInfo) -> Outcome<String> {
    if info.base_ref != "HEAD" {
        return Ok(info.base_ref.strip_prefix("refs/heads/").unwrap_or(&info.base_ref).to_owned());
    }
    let repo = Git::new(READ_LIMIT).repo(Path::new(&info.repo_key));
    match repo.head_branch().await {
        Ok(Some(branch)) if branch != info.branch => Ok(branch),
        _ => Err(Trouble::usage(format!("{} has no branch to land on by itself; name one with --onto", info.branch))),
    }
}

/// Says how a land ended.
fn report(session: &Session, job: &Job) -> Outcome {
    let outcome = if job.landed() { "landed" } else { "blocked" };
    let document = json!({
        "worktree_id": job.worktree_id, "job_id": job.job_id, "branch": job.branch,
        "target_branch": job.target_branch, "outcome": outcome, "merged_sha": job.merged_sha,
        "gated": job.test_cmd.is_some(), "kept_reason": job.kept_reason, "code": job.blocked_code,
        "reason": job.blocked_reason, "message": job.message, "conflict_files": job.conflict_files,
        "exit_code": job.exit_code, "output_tail": job.output_tail,
    });
    if job.landed() {
        let sha = job.merged_sha.as_deref().map(words::short).unwrap_or_default();
        let ungated = if job.test_cmd.is_none() { ", untested" } else { "" };
        session.print(&document, || format!("landed {} on {} as {sha}{ungated}", job.branch, job.target_branch))?;
        if let Some(why) = job.kept_reason.as_ref().filter(|_| !session.json) {
            output::complain(&format!("the worktree was kept: {why}"));
        }
        return Ok(Exit::Success);
    }
    if session.json {
        output::json(&document)?;
        return Ok(Exit::Failure);
    }
    for file in job.conflict_files.iter().flatten() {
        output::complain(&format!("  {file}"));
    }
    if let Some(tail) = &job.output_tail {
        for line in tail.lines() {
            output::complain(&format!("  | {line}"));
        }
    }
    let code = job.blocked_code.clone().unwrap_or_default();
    Err(Trouble::Refused { code, message: job.message.clone().unwrap_or_else(|| "the land was stopped".to_owned()) })
}
