//! `worktree::land`: asks for a branch to be landed. Answers at once; the work is done by `land-step`.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::git::from_text;
use crate::model::config::is_branch_name;
use crate::model::job::{JOB_FORMAT, Job, Phase};
use crate::model::record::Record;
use crate::model::{Code, Error, Result};
use crate::queue::Dispatcher;
use crate::worktrees::{Context, marker, request};

/// What lands where.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct Request {
    /// The worktree whose branch lands.
    pub worktree_id: String,
    /// The branch to land on, without refs/heads/. It must exist and be allowed by gates.land_targets.
    pub target_branch: String,
    /// The project's tests: a shell command, run in the worktree at the rebased commit. Without one it lands ungated.
    #[serde(default)]
    pub test_cmd: Option<String>,
    /// Discard a rebase, merge, cherry-pick, revert or bisect that is open in the worktree. Needs gates.allow_force.
    #[serde(default)]
    pub force_restart: bool,
    /// Keep the worktree and its branch after landing.
    #[serde(default)]
    pub keep: bool,
}

/// The job that lands it.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Response {
    /// The job; worktree::landed or worktree::land-blocked tells how it ended.
    pub job_id: String,
    /// Always true; a refusal is an error.
    pub queued: bool,
}

/// Queues a land.
///
/// # Errors
/// `W001`, `W500`–`W503`, `W111`, `W112`, `W200`, `W201`, `W202`, `W401`, `W402`, `W403`, `W300`, `W400`.
/// Nothing has been queued then.
pub async fn run(ctx: &Arc<Context>, dispatcher: &Dispatcher, request: Request) -> Result<Response> {
    check(ctx, &request)?;
    let record = ctx.registry.record(&request.worktree_id)?;
    refuse_live(ctx, &record)?;
    ctx.registry.require_readable_land(&record.worktree_id)?;
    require_landable(ctx, &record, &request).await?;
    let guard = ctx.registry.lock(&record.repo_key).await?;
    let job = loop {
        let record = ctx.registry.record(&request.worktree_id)?;
        refuse_live(ctx, &record)?;
        let job = new_job(ctx, &record, &request);
        if ctx.registry.begin_land(&guard, &job, &record, dispatcher.dispatch(ctx, &job)).await? {
            break job;
        }
    };
    drop(guard);
    Ok(Response { job_id: job.job_id, queued: true })
}

fn check(ctx: &Context, request: &Request) -> Result<()> {
    let settings = ctx.settings();
    settings.require_gate("allow_land", "worktree::land")?;
    if request.force_restart {
        settings.require_gate("allow_force", "land with force_restart")?;
    }
    request::require_text("worktree_id", &request.worktree_id)?;
    request::require_text("target_branch", &request.target_branch)?;
    request::optional_text("test_cmd", request.test_cmd.as_deref())?;
    if !is_branch_name(&request.target_branch) {
        return Err(Error::new(
            Code::Malformed,
            format!("`target_branch`: git takes no branch named `{}`", request.target_branch.escape_debug()),
        ));
    }
    settings.require_land_target(&request.target_branch)
}

fn refuse_live(ctx: &Context, record: &Record) -> Result<()> {
    match ctx.registry.live_job(&record.worktree_id) {
        Some(job) => Err(Error::new(
            Code::LandLive,
            format!(
                "{} is already being landed by {} ({}); wait for worktree::landed or worktree::land-blocked",
                record.worktree_id,
                job.job_id,
                job.phase.as_str()
            ),
        )),
        None => Ok(()),
    }
}

/// What can be told at once about whether this can land.
async fn require_landable(ctx: &Context, record: &Record, request: &Request) -> Result<()> {
    if request.target_branch == record.branch {
        return Err(Error::new(
            Code::InvalidRequest,
            format!("`target_branch` is the worktree's own branch `{}`; name the branch to land on", record.branch),
        ));
    }
    let (tree, _) = marker::require_tree(&ctx.git(), record)?;
    tree.require_allowed_drivers().await?;
    if let Some(operation) = tree.operation().filter(|_| !request.force_restart) {
        let code = if operation.is_rebase() { Code::RebaseOpen } else { Code::OperationOpen };
        return Err(Error::new(
            code,
            format!(
                "{operation} is open in {}; finish or abort it, or pass force_restart: true to discard it",
                record.path
            ),
        ));
    }
    let repo = ctx.git().repo(&from_text(&record.repo_key));
    if repo.branch_sha(&request.target_branch).await?.is_none() {
        return Err(Error::new(
            Code::RefNotFound,
            format!(
                "there is no branch `{}` in {}; create it, or land on another one",
                request.target_branch, record.repo_path
            ),
        ));
    }
    Ok(())
}

fn new_job(ctx: &Context, record: &Record, request: &Request) -> Job {
    let now = ctx.now();
    // Jobs of one repository land in the order in which they were asked for, also within one millisecond.
    // Neither is a job older than the one before it of the same worktree, whatever the clock does.
    let queued = ctx.registry.unfinished_jobs().into_iter().filter(|job| job.repo_key == record.repo_key);
    let last = queued.chain(ctx.registry.last_job(&record.worktree_id)).map(|job| job.created_at).max();
    Job {
        format: JOB_FORMAT,
        job_id: format!("job_{}", ctx.ids.next_hex12()),
        worktree_id: record.worktree_id.clone(),
        repo_key: record.repo_key.clone(),
        repo_path: record.repo_path.clone(),
        worktree_path: record.path.clone(),
        branch: record.branch.clone(),
        target_branch: request.target_branch.clone(),
        test_cmd: request.test_cmd.clone(),
        force_restart: request.force_restart,
        keep: request.keep,
        phase: Phase::Preflight,
        cas_attempts: 0,
        recorded_target_sha: None,
        rebased_sha: None,
        test_passed_sha: None,
        merged_sha: None,
        done: false,
        blocked_code: None,
        created_at: last.map_or(now, |last| now.max(last + 1)),
        updated_at: now,
        head_sha: None,
        rebase_started: false,
        tree_behind: false,
        gate_started: false,
        target_checkouts: Vec::new(),
        session_id: record.session_id.clone(),
        failures: 0,
        blocked_reason: None,
        message: None,
        conflict_files: None,
        exit_code: None,
        output_tail: None,
        kept_reason: None,
        untold: false,
    }
}
