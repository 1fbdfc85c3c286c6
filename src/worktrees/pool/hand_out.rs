//! Giving a pooled worktree to a create.
//!
//! What takes time is done before the lock of the repository is taken: whether anything in it changed, whether a
//! checkout would give the same files, and bringing it to the base. Under the lock the create becomes what an ordinary
//! one is after its checkout: a note, the branch, HEAD on the branch, and a marker with the record of the caller.

use std::path::Path;
use std::sync::Arc;

use super::fill;
use super::{Context, Ready, Reserved};
use crate::git::{Advance, Repo, Sha, Tree, from_text};
use crate::model::config::Settings;
use crate::model::record::Record;
use crate::model::{Error, Result};
use crate::worktrees::{intent, making, marker, roll_back};

/// Makes the worktree of `record` out of a reserved one of the same id. `false` when that will not do; nothing of the
/// record was made then.
///
/// # Errors
/// `W120`, `W121`, `W300`, `W504`, and what git reports; nothing of the record is left then.
pub async fn hand_out(
    ctx: &Arc<Context>,
    settings: &Settings,
    repo: &Repo,
    (record, base_sha): (&Record, &Sha),
    mut reserved: Reserved,
) -> Result<bool> {
    let Some(mut ready) = reserved.ready.take() else { return Ok(false) };
    let Ok(tree) = ctx.git().tree(Path::new(&ready.record.path)) else {
        ctx.pool.doubt(ready);
        return Ok(false);
    };
    let (unchanged, conditions, hook) =
        tokio::join!(fill::is_unchanged(&ready), repo.conditions(), tree.post_checkout_hook());
    let fits = unchanged && conditions.is_ok_and(|now| now.incomparable.is_none() && now.digest == ready.conditions);
    let is_there = ready.record.base_sha == base_sha.as_str();
    if !fits || (!is_there && !matches!(bring(ctx, &mut ready, record, base_sha).await, Ok(true))) {
        tracing::debug!(worktree = ready.record.worktree_id, "a pooled worktree will not do, and is looked at");
        ctx.pool.doubt(ready);
        return Ok(false);
    }
    match take(ctx, settings, (repo, &tree), record, &ready, base_sha).await {
        Ok(true) => {}
        other => {
            ctx.pool.doubt(ready);
            return other;
        }
    }
    // The system takes its time to end a listener.
    let (entry, listener) = (ready.entry, ready.listener);
    tokio::task::spawn_blocking(move || drop(listener));
    let finished = making::finish(ctx, record, (&tree, &entry), hook, base_sha).await;
    making::settle(ctx, repo, record, base_sha, &roll_back::Parents::default(), finished.is_ok()).await;
    finished?;
    if !is_there {
        making::refresh_later(ctx, record);
    }
    Ok(true)
}

async fn bring(ctx: &Context, ready: &mut Ready, record: &Record, base_sha: &Sha) -> Result<bool> {
    Ok(fill::advance(ctx, ready, (&record.base_ref, base_sha)).await? == Advance::Done)
}

/// Makes the worktree the caller's, under the lock of the repository. `false` when somebody else has it.
async fn take(
    ctx: &Context,
    settings: &Settings,
    (repo, tree): (&Repo, &Tree),
    record: &Record,
    ready: &Ready,
    base_sha: &Sha,
) -> Result<bool> {
    let guard = ctx.registry.lock(&record.repo_key).await?;
    making::require_budget(ctx, settings, &record.repo_key, &from_text(&record.repo_path))?;
    let marker = marker::read(&ready.entry)?;
    let ours = marker.is_some_and(|marker| {
        marker.pooled.is_some()
            && marker.record.worktree_id == record.worktree_id
            && marker.creator == Some(std::process::id())
    });
    if !ours {
        return Ok(false);
    }
    intent::note(&guard, record)?;
    if let Err(error) = repo.make_branch(&record.branch, base_sha).await {
        intent::settled(record);
        return Err(error.into());
    }
    let attached = tree.attach(&record.branch).await.map_err(Error::from);
    if let Err(error) = attached.and_then(|()| marker::write_unfinished(&ready.entry, record)) {
        // Its marker still says that it is in the pool: only the branch goes, and HEAD leaves it. Where that fails, the
        // note stays, and the next sweep does it.
        if tree.detach_at(base_sha).await.is_ok() {
            roll_back::branch(repo, record, base_sha).await;
            intent::settled(record);
        }
        return Err(error);
    }
    Ok(true)
}
