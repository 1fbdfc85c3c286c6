//! What a start, or a reconnect, sets right: jobs go on, records that say `landing` without a job are settled, and what
//! a crash left in the trash goes.

use std::sync::Arc;

use super::conclude::settled;
use crate::model::Result;
use crate::model::job::Job;
use crate::model::record::{Lifecycle, Record};
use crate::queue::Dispatcher;
use crate::worktrees::{Context, inspect, remove};

/// Settles records that say `landing` although no job of theirs is left, then hands every job that has not ended to
/// the dispatcher, oldest first.
///
/// # Errors
/// `W300` when the store cannot be reached; it can be called again.
pub async fn run(ctx: &Arc<Context>, dispatcher: &Dispatcher) -> Result<()> {
    for record in ctx.registry.records() {
        let unfinished = ctx.registry.unfinished_jobs().iter().any(|job| job.worktree_id == record.worktree_id);
        if record.lifecycle == Lifecycle::Landing && !unfinished {
            settle(ctx, &record.worktree_id, &record.repo_key).await?;
        }
    }
    for job in ctx.registry.unfinished_jobs() {
        tracing::info!(job = job.job_id, phase = job.phase.as_str(), "a land goes on");
        if !job.done {
            mark_live(ctx, &job).await?;
        }
        dispatcher.dispatch(ctx, &job).await?;
    }
    remove::empty_trash(ctx);
    Ok(())
}

/// The last job of the worktree tells what its record should say. One that cannot be read may not have ended: then
/// the record stays.
async fn settle(ctx: &Context, worktree_id: &str, repo_key: &str) -> Result<()> {
    let guard = ctx.registry.lock(repo_key).await?;
    let Ok(current) = ctx.registry.record(worktree_id) else { return Ok(()) };
    let live = ctx.registry.live_job(worktree_id).is_some();
    if current.lifecycle != Lifecycle::Landing || live || ctx.registry.require_readable_land(worktree_id).is_err() {
        return Ok(());
    }
    let at_rest = Record { lifecycle: Lifecycle::at_rest(current.session_id.as_deref()), ..current.clone() };
    let record = match ctx.registry.last_job(worktree_id) {
        Some(job) if job.done => settled(&job, current),
        _ => Some(at_rest.clone()),
    };
    // A record that came back although its worktree was cleaned up goes again; with a directory it stays.
    let gone = || inspect::lifecycle_now(&at_rest) == Lifecycle::Orphaned;
    match record {
        None if gone() => ctx.registry.delete_record(&guard, worktree_id).await?,
        record => {
            let record = Record { updated_at: ctx.now(), ..record.unwrap_or_else(|| at_rest.clone()) };
            tracing::info!(worktree = worktree_id, lifecycle = record.lifecycle.as_str(), "a land is settled");
            ctx.registry.put_record(&guard, record).await?;
        }
    }
    ctx.registry.set_live_job(&guard, worktree_id, None).await
}

/// Makes mark and record say what the job says. A land that was cut off while it was accepted may have stored only the
/// job.
async fn mark_live(ctx: &Context, job: &Job) -> Result<()> {
    let guard = ctx.registry.lock(&job.repo_key).await?;
    // It may have ended since.
    if ctx.registry.job(&job.job_id)?.is_none_or(|now| now.done) {
        return Ok(());
    }
    ctx.registry.set_live_job(&guard, &job.worktree_id, Some(&job.job_id)).await?;
    match ctx.registry.record(&job.worktree_id) {
        Ok(current) if current.lifecycle != Lifecycle::Landing => {
            let record = Record { lifecycle: Lifecycle::Landing, updated_at: ctx.now(), ..current };
            ctx.registry.put_record(&guard, record).await
        }
        Ok(_) | Err(_) => Ok(()),
    }
}
