//! What a start, or a reconnect, sets right: jobs go on, and records of lands that were cut off between the end of the
//! job and the end of its bookkeeping are settled.

use std::sync::Arc;

use crate::model::Result;
use crate::model::record::{Lifecycle, Record};
use crate::queue::Dispatcher;
use crate::worktrees::Context;

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
        mark_live(ctx, &job.worktree_id, &job.repo_key, &job.job_id).await?;
        dispatcher.dispatch(ctx, &job).await?;
    }
    Ok(())
}

/// The last job of the worktree tells what its record should say.
async fn settle(ctx: &Context, worktree_id: &str, repo_key: &str) -> Result<()> {
    let guard = ctx.registry.lock(repo_key).await?;
    let Ok(current) = ctx.registry.record(worktree_id) else { return Ok(()) };
    if current.lifecycle != Lifecycle::Landing || ctx.registry.live_job(worktree_id).is_some() {
        return Ok(());
    }
    let lifecycle = match ctx.registry.last_job(worktree_id) {
        Some(job) if job.blocked_code.is_some() => Lifecycle::LandBlocked,
        _ => Lifecycle::at_rest(current.session_id.as_deref()),
    };
    tracing::info!(worktree = worktree_id, lifecycle = lifecycle.as_str(), "a land that was cut off is settled");
    let record = Record { lifecycle, updated_at: ctx.now(), ..current };
    ctx.registry.put_record(&guard, record).await?;
    ctx.registry.set_live_job(&guard, worktree_id, None).await
}

async fn mark_live(ctx: &Context, worktree_id: &str, repo_key: &str, job_id: &str) -> Result<()> {
    if ctx.registry.live_job(worktree_id).is_some() {
        return Ok(());
    }
    let guard = ctx.registry.lock(repo_key).await?;
    ctx.registry.set_live_job(&guard, worktree_id, Some(job_id)).await
}
