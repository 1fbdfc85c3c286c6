//! Runs land jobs to their end: observe, decide, act, record; again until the job has ended.

use std::sync::Arc;

use tokio::sync::watch;

use super::act::{Carried, act};
use super::conclude::conclude;
use super::decide::{Action, decide};
use super::observe::observe;
use super::transition::{self, Block, Event};
use crate::fault;
use crate::git::from_text;
use crate::model::event::BlockReason;
use crate::model::job::{Job, Phase};
use crate::model::record::{Lifecycle, Record};
use crate::model::{Code, Error, Result};
use crate::worktrees::Context;

/// How many failures in the surroundings a job survives between two steps that succeed.
const MAX_FAILURES: u32 = 8;

/// True once the process is stopping; looked at between two recorded states, and while a gate runs.
pub type Stop = watch::Receiver<bool>;

/// Runs `job_id`, and before it every older job of its repository that has not ended, while the caller holds the
/// lease of the repository's lands.
///
/// # Errors
/// A fault in the surroundings (`W1xx`, `W300`); the job is as it was recorded last and can be run again.
pub async fn run_in_order(ctx: &Arc<Context>, job_id: &str, stop: &Stop) -> Result<Option<Job>> {
    loop {
        let Some(job) = ctx.registry.job(job_id)? else { return Ok(None) };
        if job.ended() {
            return Ok(Some(job));
        }
        let next = ctx.registry.unfinished_jobs().into_iter().find(|other| other.repo_key == job.repo_key);
        let next = next.unwrap_or(job);
        run(ctx, next, stop).await?;
    }
}

/// Runs one job to its end.
async fn run(ctx: &Arc<Context>, mut job: Job, stop: &Stop) -> Result<Job> {
    let mut twice = false;
    let mut carried = None;
    while !job.ended() {
        if job.done {
            conclude(ctx, &job).await?;
            job = store(ctx, &job, Event::Told).await?;
            continue;
        }
        if *stop.borrow() {
            return Err(Error::new(
                Code::StateUnreachable,
                format!("this worker is stopping; {} goes on from phase {} later", job.job_id, job.phase.as_str()),
            ));
        }
        match advance(ctx, &job, stop, &mut twice, &mut carried).await {
            Ok(next) => job = next,
            Err(error) if *stop.borrow() => return Err(error),
            Err(error) => {
                carried = None;
                job = survive(ctx, job, error).await?;
            }
        }
    }
    Ok(job)
}

/// One turn of the machine; returns the job as it is stored now. `twice` says that the turn before was one whose outcome
/// was forgotten on purpose.
async fn advance(
    ctx: &Arc<Context>,
    job: &Job,
    stop: &Stop,
    twice: &mut bool,
    carried: &mut Option<Carried>,
) -> Result<Job> {
    let record = record_of(ctx, job);
    let seen = observe(ctx, job, &record).await?;
    let action = decide(job, &seen.facts, ctx.settings().config.max_land_retries);
    tracing::debug!(job = job.job_id, phase = job.phase.as_str(), ?action, "land");
    if matches!(action, Action::RunGate) && !job.gate_started {
        return store(ctx, job, Event::GateStarting).await;
    }
    let point = fault::effect(action.name())?;
    let forgotten = point.repeats() && !*twice;
    let effect = act(ctx, job, &record, &seen, action, stop, carried).await?;
    point.passed();
    *twice = forgotten;
    match effect {
        Some(event) if !forgotten => store(ctx, job, event).await,
        _ => Ok(job.clone()),
    }
}

/// The record of a job. When it is gone (the land had removed it before it was cut off), what the job knows of it.
pub(super) fn record_of(ctx: &Context, job: &Job) -> Record {
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

/// Counts a fault in the surroundings; after too many the job blocks, or, once it has landed, ends with the worktree
/// kept. A store that cannot be reached is never counted: without it nothing could be recorded.
async fn survive(ctx: &Arc<Context>, job: Job, error: Error) -> Result<Job> {
    let gate_lost = job.phase == Phase::Test && error.code == Code::StateUnreachable;
    let failures = job.failures + 1;
    if error.code.is_transient() && failures < MAX_FAILURES {
        if gate_lost {
            // Counted where the store can be reached, for a gate that takes the shell worker down each time.
            let counted = ctx.registry.put_job(Job { failures, updated_at: ctx.now(), ..job }).await;
            return Err(counted.err().unwrap_or(error));
        }
        if error.code != Code::StateUnreachable {
            ctx.registry.put_job(Job { failures, updated_at: ctx.now(), ..job }).await?;
        }
        return Err(error);
    }
    tracing::warn!(job = job.job_id, phase = job.phase.as_str(), code = %error.code, %error, "land gives up a step");
    let event = match job.phase {
        Phase::Finalize => Event::Finished { kept_reason: Some(format!("it could not be cleaned up: {error}")) },
        Phase::Merge => {
            let repo = ctx.git().repo(&from_text(&job.repo_key));
            super::act::settle_merge(&job, &repo, &error).await?
        }
        _ if gate_lost => {
            let message =
                format!("{error}; that has happened {failures} times, so look at the shell worker and land again");
            Event::Blocked(Block::new(BlockReason::GateUnavailable, Code::GateUnavailable, message))
        }
        _ => {
            if job.phase == Phase::Rebase
                && let Err(also) = super::act::settle_rebase(ctx, &job, &record_of(ctx, &job)).await
            {
                tracing::warn!(job = job.job_id, error = %also, "branch and working tree may differ");
            }
            let reason = match error.code {
                Code::Orphaned => BlockReason::WorktreePathMissing,
                Code::IdentityMismatch => BlockReason::IdentityMismatch,
                _ => BlockReason::RebaseFailed,
            };
            Event::Blocked(Block::new(reason, error.code, error.message))
        }
    };
    store(ctx, &job, event).await
}
