//! How long what was destroyed is kept: trash, backup refs, ended lands.
//!
//! Invariants
//! 1. What was removed by force is not swept before `retention_hours` have passed.
//! 2. A backup ref is swept only when no worktree, no kept directory and no land that has not ended needs it, and when
//!    it has not moved for `retention_hours`. What cannot be told keeps.
//! 3. Every deletion is in the audit log first.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::kept::{self, Kept};
use super::{Context, branch, discard, rebuild, trash};
use crate::git::{Repo, from_text};
use crate::model::Result;

/// Age in seconds from which on an entry of the trash is swept that nothing keeps.
const TRASH_AGE_S: i64 = 24 * 3600;
/// One hour in milliseconds.
const HOUR_MS: i64 = 3_600_000;

fn retention_ms(ctx: &Context) -> i64 {
    i64::try_from(ctx.settings().config.retention_hours).unwrap_or(i64::MAX).saturating_mul(HOUR_MS)
}

/// Deletes entries of the trash: those that were kept long enough, and those older than a day that could not be deleted
/// when they were made, or that a crash left.
pub async fn sweep_trash(ctx: &Context) {
    for place in trash_entries(&ctx.settings().root.join(trash::TRASH)) {
        let swept = match kept::read(&place) {
            Ok(Some(kept)) if place.exists() => {
                if ctx.now() < kept.keep_until {
                    continue;
                }
                delete_kept(ctx, &place, &kept).await
            }
            Ok(_) if is_old(ctx, &place) => discard::delete_trash(ctx, &place, None, "older than a day").await,
            Ok(_) => continue,
            Err(error) => Err(error),
        };
        if let Err(error) = swept {
            tracing::warn!(place = %place.display(), %error, "the trash entry stays for the next sweep");
        }
    }
}

/// Deletes what was kept of a worktree, and the refs that kept its commits.
async fn delete_kept(ctx: &Context, place: &Path, kept: &Kept) -> Result<()> {
    discard::delete_trash(ctx, place, Some(&kept.record), "kept for retention_hours").await?;
    let record = &kept.record;
    if !from_text(&record.repo_key).is_dir() || is_needed(ctx, &record.worktree_id)? {
        return Ok(());
    }
    let _guard = ctx.registry.lock(&record.repo_key).await?;
    let repo = ctx.git().repo(&from_text(&record.repo_key));
    for name in &kept.backup_refs {
        branch::drop_backup(ctx, &repo, name, "kept for retention_hours").await?;
    }
    Ok(())
}

/// Whether a worktree, something else that is kept of it, or a land that has not ended needs its backup refs.
fn is_needed(ctx: &Context, worktree_id: &str) -> Result<bool> {
    let kept = kept::all(&ctx.settings().root)?;
    Ok(ctx.registry.knows(worktree_id)
        || kept.iter().any(|(_, kept)| kept.record.worktree_id == worktree_id)
        || ctx.registry.unfinished_jobs().iter().any(|job| job.worktree_id == worktree_id))
}

fn is_old(ctx: &Context, place: &Path) -> bool {
    let second = place.file_name().and_then(trash::parse_name).map(|(_, second)| second);
    second.is_some_and(|second| ctx.now() / 1000 - second >= TRASH_AGE_S)
}

/// Where directories lie, or lay: also places of which only what was kept beside the directory is left.
fn trash_entries(trash: &Path) -> BTreeSet<PathBuf> {
    let Ok(entries) = std::fs::read_dir(trash) else { return BTreeSet::new() };
    let place = |path: PathBuf| {
        let name = path.file_name()?.to_str()?.to_owned();
        let stem = [".json", ".entry", ".draft"].iter().find_map(|suffix| name.strip_suffix(suffix)).unwrap_or(&name);
        trash::parse_name(stem.as_ref()).map(|_| path.with_file_name(stem))
    };
    entries.flatten().filter_map(|entry| place(entry.path())).collect()
}

/// Sweeps backup refs that nothing needs any more, and lands that ended long ago.
pub async fn sweep_rest(ctx: &Context, only: Option<&str>) {
    if let Err(error) = forget_jobs(ctx).await {
        tracing::warn!(code = %error.code, %error, "ended lands stay for the next sweep");
    }
    for repo_key in rebuild::repos_of(ctx, only) {
        if let Err(error) = sweep_backups(ctx, &repo_key).await {
            tracing::warn!(repo_key, code = %error.code, %error, "backup refs stay for the next sweep");
        }
    }
}

async fn forget_jobs(ctx: &Context) -> Result<()> {
    for job in ctx.registry.forgettable_jobs(ctx.now().saturating_sub(retention_ms(ctx))) {
        let guard = ctx.registry.lock(&job.repo_key).await?;
        ctx.registry.delete_job(&guard, &job.job_id).await?;
    }
    Ok(())
}

async fn sweep_backups(ctx: &Context, repo_key: &str) -> Result<()> {
    let repo = ctx.git().repo(&from_text(repo_key));
    let backups = repo.refs_under(branch::BACKUPS.trim_end_matches('/')).await?;
    if backups.is_empty() {
        return Ok(());
    }
    let _guard = ctx.registry.lock(repo_key).await?;
    for (name, _) in backups {
        if !is_needed(ctx, branch::owner_of(&name))? && is_expired(ctx, &repo, &name).await? {
            branch::drop_backup(ctx, &repo, &name, "kept for retention_hours").await?;
        }
    }
    Ok(())
}

async fn is_expired(ctx: &Context, repo: &Repo, name: &str) -> Result<bool> {
    let moved = repo.last_moved(name).await?;
    Ok(moved.is_some_and(|second| ctx.now() - second.saturating_mul(1000) >= retention_ms(ctx)))
}
