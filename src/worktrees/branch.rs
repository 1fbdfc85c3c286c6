//! The branch of a worktree that is gone, and the refs that keep what was destroyed.
//!
//! Invariants
//! 1. A branch goes by compare-and-swap from the commit that was judged, after the audit log has named that commit.
//! 2. Without force only what [`unsaved_work::branch_kept_by`] finds kept elsewhere goes.

use serde_json::json;

use super::{Context, unsaved_work};
use crate::audit::{Action, Event};
use crate::git::{Expected, RefUpdate, Repo, Sha, from_text};
use crate::model::record::Record;
use crate::model::{Code, Error, Result};

/// Where the last tips of worktrees are kept.
pub const BACKUPS: &str = "refs/iii/wt-backup/";

/// The full name of a branch.
#[must_use]
pub fn branch_ref(branch: &str) -> String {
    format!("refs/heads/{branch}")
}

/// Where the last tip of a worktree's branch is kept.
#[must_use]
pub fn backup_ref(worktree_id: &str) -> String {
    format!("{BACKUPS}{worktree_id}")
}

/// Where the commit that was checked out is kept, when that was not the tip of the branch.
#[must_use]
pub fn head_backup_ref(worktree_id: &str) -> String {
    format!("{BACKUPS}{worktree_id}.head")
}

/// Points the backup ref of a worktree at `tip`, whatever it pointed at before.
///
/// # Errors
/// What git reports, also when the ref moves under this call.
pub async fn backup(repo: &Repo, record: &Record, tip: &Sha) -> Result<()> {
    keep(repo, &backup_ref(&record.worktree_id), tip).await
}

/// Points a backup ref at `tip`.
///
/// # Errors
/// Those of [`backup`].
pub async fn keep(repo: &Repo, name: &str, tip: &Sha) -> Result<()> {
    let expected = match repo.ref_sha(name).await? {
        Some(old) if old == *tip => return Ok(()),
        Some(old) => Expected::Is(old),
        None => Expected::Absent,
    };
    match repo.update_ref(name, tip, expected, "worktree: keep the last tip").await? {
        RefUpdate::Done => Ok(()),
        RefUpdate::Lost { .. } => Err(Error::new(
            Code::GitFailed,
            format!("the backup ref {name} moved while it was being written; repeat the call"),
        )),
    }
}

/// Deletes the branch of a worktree that is gone, when its commits are kept elsewhere; with `force` also when they are
/// not, and then keeps them in the backup ref. Failing to is an outcome, not an error: the worktree is gone already.
pub async fn delete_branch(ctx: &Context, record: &Record, force: bool) -> bool {
    match try_delete(ctx, record, force).await {
        Ok(None) => true,
        Ok(Some(why)) => {
            tracing::warn!(worktree = record.worktree_id, branch = record.branch, why, "the branch stays");
            false
        }
        Err(error) => {
            tracing::warn!(worktree = record.worktree_id, branch = record.branch, %error, "the branch stays");
            false
        }
    }
}

/// Deletes the branch, or tells why it stays.
async fn try_delete(ctx: &Context, record: &Record, force: bool) -> Result<Option<&'static str>> {
    let repo = ctx.git().repo(&from_text(&record.repo_key));
    let Some(tip) = repo.branch_sha(&record.branch).await? else { return Ok(Some("there is none")) };
    if !repo.checkouts_of(&record.branch).await?.is_empty() {
        return Ok(Some("it is checked out elsewhere"));
    }
    let kept_by = unsaved_work::branch_kept_by(&repo, record, &tip).await?;
    if kept_by.is_none() {
        if !force {
            return Ok(Some("neither its target nor another ref contains it"));
        }
        backup(&repo, record, &tip).await?;
    }
    let backup_ref = kept_by.is_none().then(|| backup_ref(&record.worktree_id));
    let details = json!({
        "branch": record.branch, "head_sha": tip, "kept_by": kept_by, "backup_ref": backup_ref, "forced": force,
    });
    ctx.audit(Event::new(Action::BranchDelete, details).about(&record.worktree_id, &record.repo_key)).await?;
    match repo.delete_ref(&branch_ref(&record.branch), &tip).await? {
        RefUpdate::Done => Ok(None),
        RefUpdate::Lost { .. } => Ok(Some("it moved while it was judged")),
    }
}

/// Deletes a backup ref, told in the audit log first. Nothing happens when there is none.
///
/// # Errors
/// `W600`, and what git reports; the ref is there then.
pub async fn drop_backup(ctx: &Context, repo: &Repo, name: &str, why: &str) -> Result<()> {
    let Some(kept) = repo.ref_sha(name).await? else { return Ok(()) };
    let id = name.strip_prefix(BACKUPS).unwrap_or(name);
    let id = id.strip_suffix(".head").unwrap_or(id);
    let details = json!({"backup_ref": name, "head_sha": kept, "why": why});
    ctx.audit(Event::new(Action::BackupDelete, details).about(id, &repo.key())).await?;
    match repo.delete_ref(name, &kept).await? {
        RefUpdate::Done => Ok(()),
        RefUpdate::Lost { current } => {
            tracing::info!(name, ?current, "the backup ref moved, so it stays");
            Ok(())
        }
    }
}
