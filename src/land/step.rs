//! Runs land jobs to their end: observe, decide, act, record; again until the job has ended.

use std::sync::Arc;

use super::act::act;
use super::decide::decide;
use super::observe::observe;
use super::transition::{self, Block, Event};
use crate::model::event::{BlockReason, Event as Told};
use crate::model::job::{Job, Phase};
use crate::model::record::{Lifecycle, Record};
use crate::model::{Code, Error, Result};
use crate::worktrees::{Context, branch};

/// How many failures in the surroundings a job survives between two steps that succeed.
const MAX_FAILURES: u32 = 8;

/// Tells whether the process is stopping; asked between two recorded states.
pub type Stop<'a> = dyn Fn() -> bool + Send + Sync + 'a;

/// Runs `job_id`, and before it every older job of its repository that has not ended, while the caller holds the
/// lease of the repository's lands.
///
/// # Errors
/// A fault in the surroundings (`W1xx`, `W300`); the job is as it was recorded last and can be run again.
pub async fn run_in_order(ctx: &Arc<Context>, job_id: &str, stop: &Stop<'_>) -> Result<Option<Job>> {
    loop {
        let Some(job) = ctx.registry.job(job_id) else { return Ok(None) };
        if job.done {
            return Ok(Some(job));
        }
        let next = ctx.registry.unfinished_jobs().into_iter().find(|other| other.repo_key == job.repo_key);
        let next = next.unwrap_or(job);
        run(ctx, next, stop).await?;
    }
}

/// Runs one job to its end.
async fn run(ctx: &Arc<Context>, mut job: Job, stop: &Stop<'_>) -> Result<Job> {
    while !job.done {
        if stop() {
            return Err(Error::new(
                Code::StateUnreachable,
                format!("this worker is stopping; {} goes on from phase {} later", job.job_id, job.phase.as_str()),
            ));
        }
        match advance(ctx, &job).await {
            Ok(next) => job = next,
            Err(error) => job = survive(ctx, job, error).await?,
        }
    }
    Ok(job)
}

/// One turn of the machine; returns the job as it is stored now.
async fn advance(ctx: &Arc<Context>, job: &Job) -> Result<Job> {
    let record = record_of(ctx, job);
    let seen = observe(ctx, job, &record).await?;
    let action = decide(job, &seen.facts, ctx.settings().config.max_land_retries);
    tracing::debug!(job = job.job_id, phase = job.phase.as_str(), ?action, "land");
    if matches!(action, super::decide::Action::RunGate) && !job.gate_started {
        return store(ctx, job, Event::GateStarting).await;
    }
    match act(ctx, job, &record, &seen, action).await? {
        Some(event) => finish_or_store(ctx, job, &record, event).await,
        None => Ok(job.clone()),
    }
}

/// The record of a job. When it is gone (the land had removed it before it was cut off), what the job knows of it.
fn record_of(ctx: &Context, job: &Job) -> Record {
    ctx.registry.record(&job.worktree_id).unwrap_or_else(|_| Record {
        format: crate::model::record::RECORD_FORMAT,
        worktree_id: job.worktree_id.clone(),
        repo_path: job.repo_path.clone(),
        repo_key: job.repo_key.clone(),
        path: job.worktree_path.clone(),
        branch: job.branch.clone(),
        base_ref: job.target_branch.clone(),
        base_sha: job.recorded_target_sha.clone().unwrap_or_default(),
        lifecycle: Lifecycle::Landing,
        session_id: job.session_id.clone(),
        dev_port: crate::model::id::dev_port(&job.worktree_id),
        created_at: job.created_at,
        updated_at: job.updated_at,
        fence: 0,
    })
}

fn applied(ctx: &Context, job: &Job, event: Event) -> Result<Job> {
    let name = event.name();
    let mut next = transition::apply(job, event, ctx.now())
        .map_err(|illegal| Error::new(Code::RecordUnreadable, format!("{}: {illegal}", job.job_id)))?;
    next.failures = 0;
    tracing::info!(job = job.job_id, event = name, phase = next.phase.as_str(), "land");
    Ok(next)
}

async fn store(ctx: &Context, job: &Job, event: Event) -> Result<Job> {
    let next = applied(ctx, job, event)?;
    ctx.registry.put_job(next.clone()).await?;
    Ok(next)
}

/// Records an event; one that ends the job also settles the record and is told to the world.
async fn finish_or_store(ctx: &Arc<Context>, job: &Job, record: &Record, event: Event) -> Result<Job> {
    match event {
        Event::Blocked(block) => end_blocked(ctx, job, record, block).await,
        Event::Finished { kept_reason } => end_landed(ctx, job, record, kept_reason).await,
        other => store(ctx, job, other).await,
    }
}

async fn end_blocked(ctx: &Context, job: &Job, record: &Record, block: Block) -> Result<Job> {
    let next = store(ctx, job, Event::Blocked(block)).await?;
    let guard = ctx.registry.lock(&job.repo_key).await?;
    if let Ok(current) = ctx.registry.record(&job.worktree_id) {
        // Where the rebase was made, what is measured from the base is measured from the new one.
        let rebased = next.rebased_sha.as_ref().and(next.recorded_target_sha.clone());
        let base_sha = rebased.unwrap_or(current.base_sha.clone());
        let record = Record { base_sha, lifecycle: Lifecycle::LandBlocked, updated_at: ctx.now(), ..current };
        ctx.registry.put_record(&guard, record).await?;
    }
    ctx.registry.set_live_job(&guard, &job.worktree_id, None).await?;
    drop(guard);
    let record = ctx.registry.record(&job.worktree_id).unwrap_or_else(|_| record.clone());
    ctx.events.emit(&Told::land_blocked(&record, &next, ctx.now()));
    Ok(next)
}

async fn end_landed(ctx: &Context, job: &Job, record: &Record, kept_reason: Option<String>) -> Result<Job> {
    let kept = job.keep || kept_reason.is_some();
    let guard = ctx.registry.lock(&job.repo_key).await?;
    let current = ctx.registry.record(&job.worktree_id);
    let told = current.as_ref().unwrap_or(record).clone();
    if let Ok(current) = current {
        if kept {
            let base_sha = job.merged_sha.clone().unwrap_or(current.base_sha.clone());
            let lifecycle = Lifecycle::at_rest(current.session_id.as_deref());
            let base_ref = job.target_branch.clone();
            let record = Record { base_ref, base_sha, lifecycle, updated_at: ctx.now(), ..current };
            ctx.registry.put_record(&guard, record).await?;
        } else {
            ctx.registry.delete_record(&guard, &job.worktree_id).await?;
        }
    }
    ctx.registry.set_live_job(&guard, &job.worktree_id, None).await?;
    let next = store(ctx, job, Event::Finished { kept_reason }).await?;
    drop(guard);
    drop_backup(ctx, &next).await;
    ctx.events.emit(&Told::landed(&told, &next, ctx.now()));
    Ok(next)
}

/// Removes the backup ref of a landed branch; one that stays is only untidy.
async fn drop_backup(ctx: &Context, job: &Job) {
    let repo = ctx.git().repo(std::path::Path::new(&job.repo_key));
    let name = branch::backup_ref(&job.worktree_id);
    if let Err(error) = branch::drop_backup(ctx, &repo, &name, "its branch has landed").await {
        tracing::warn!(job = job.job_id, name, %error, "the backup ref stays");
    }
}

/// Counts a fault in the surroundings; after too many the job blocks, or, once it has landed, ends with the worktree
/// kept.
async fn survive(ctx: &Arc<Context>, job: Job, error: Error) -> Result<Job> {
    let retryable = error.code.is_infrastructure() && error.code != Code::GitFailed;
    let failures = job.failures + 1;
    if retryable && failures < MAX_FAILURES {
        if error.code != Code::StateUnreachable {
            ctx.registry.put_job(Job { failures, updated_at: ctx.now(), ..job }).await?;
        }
        return Err(error);
    }
    tracing::warn!(job = job.job_id, phase = job.phase.as_str(), code = %error.code, %error, "land gives up a step");
    let record = record_of(ctx, &job);
    if job.phase == Phase::Finalize {
        return end_landed(ctx, &job, &record, Some(format!("it could not be cleaned up: {error}"))).await;
    }
    if job.phase == Phase::Merge {
        let repo = ctx.git().repo(std::path::Path::new(&job.repo_key));
        let event = super::act::settle_merge(&job, &repo, &error).await?;
        return finish_or_store(ctx, &job, &record, event).await;
    }
    let reason = match error.code {
        Code::Orphaned => BlockReason::WorktreePathMissing,
        Code::IdentityMismatch => BlockReason::IdentityMismatch,
        _ => BlockReason::RebaseFailed,
    };
    end_blocked(ctx, &job, &record, Block::new(reason, error.code, error.message)).await
}
