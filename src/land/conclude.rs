//! The end of a job, told: the record is settled, the mark of the live job goes, the event leaves.
//!
//! The job says `untold` until all of it is done, so that a crash in between tells the end again rather than never.
//! Once a newer job of the same worktree exists, record, mark and backup ref belong to that one.

use std::sync::Arc;

use super::step::record_of;
use crate::fault;
use crate::git::from_text;
use crate::model::Result;
use crate::model::event::Event;
use crate::model::job::Job;
use crate::model::record::{Lifecycle, Record};
use crate::worktrees::{Context, branch, remove};

/// Settles and tells the end of `job`, which is done. Doing it twice sends the event twice and changes nothing else.
///
/// # Errors
/// `W300`, `W100`, `W101`; it can be called again.
pub async fn conclude(ctx: &Arc<Context>, job: &Job) -> Result<()> {
    let guard = ctx.registry.lock(&job.repo_key).await?;
    let current = ctx.registry.record(&job.worktree_id).ok();
    let newest = ctx.registry.last_job(&job.worktree_id).is_none_or(|last| last.job_id == job.job_id);
    let mut told = current.clone().unwrap_or_else(|| record_of(ctx, job));
    if newest {
        let settle = async {
            match current.map(|current| settled(job, current)) {
                Some(Some(record)) => {
                    let record = Record { updated_at: ctx.now(), ..record };
                    ctx.registry.put_record(&guard, record).await
                }
                Some(None) => {
                    ctx.registry.delete_record(&guard, &job.worktree_id).await?;
                    // What a crash has left there: at the start the record still stood for it.
                    remove::finish_discard(ctx, &told, None)
                }
                None => Ok(()),
            }
        };
        // Either may come first: the job, which is stored as done, tells what is missing.
        let (record, mark) = tokio::join!(settle, ctx.registry.set_live_job(&guard, &job.worktree_id, None));
        record?;
        mark?;
        if let Ok(record) = ctx.registry.record(&job.worktree_id) {
            told = record;
        }
    }
    drop(guard);
    if newest && job.landed() {
        drop_backup(ctx, job).await?;
    }
    let event =
        if job.landed() { Event::landed(&told, job, ctx.now()) } else { Event::land_blocked(&told, job, ctx.now()) };
    let point = fault::effect("tell")?;
    if point.repeats() {
        ctx.events.emit(&event);
    }
    ctx.events.emit(&event);
    point.passed();
    Ok(())
}

/// What the record becomes; nothing when its worktree was cleaned up.
#[must_use]
pub fn settled(job: &Job, current: Record) -> Option<Record> {
    if !job.landed() {
        // Where the rebase was made, what is measured from the base is measured from the new one.
        let rebased = job.rebased_sha.as_ref().filter(|_| !job.tree_behind).and(job.recorded_target_sha.clone());
        let base_sha = rebased.unwrap_or_else(|| current.base_sha.clone());
        return Some(Record { base_sha, lifecycle: Lifecycle::LandBlocked, ..current });
    }
    if !job.keep && job.kept_reason.is_none() {
        return None;
    }
    let base_sha = job.merged_sha.clone().unwrap_or_else(|| current.base_sha.clone());
    let lifecycle = Lifecycle::at_rest(current.session_id.as_deref());
    Some(Record { base_ref: job.target_branch.clone(), base_sha, lifecycle, ..current })
}

/// Removes the backup ref of a landed branch; where that is refused it stays, which is only untidy.
async fn drop_backup(ctx: &Context, job: &Job) -> Result<()> {
    let repo = ctx.git().repo(&from_text(&job.repo_key));
    let name = branch::backup_ref(&job.worktree_id);
    match branch::drop_backup(ctx, &repo, &name, "its branch has landed").await {
        Err(error) if error.code.is_transient() => Err(error),
        Err(error) => {
            tracing::warn!(job = job.job_id, name, %error, "the backup ref stays");
            Ok(())
        }
        Ok(()) => Ok(()),
    }
}
