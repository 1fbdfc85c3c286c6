//! The branch of a worktree that is gone, and the refs that keep what was destroyed.
//!
//! Invariants
//! 1. A branch goes by compare-and-swap from the commit that was judged, after the audit log has named that commit.
//! 2. Without force only what [`unsaved_work::branch_kept_by`] finds kept elsewhere goes; what is deleted at the same time
//!    keeps nothing.
//! 3. A backup ref that moves leaves no commit without a ref.

use futures_util::future::join_all;
use serde_json::json;

use super::{Context, unsaved_work};
use crate::audit::{Action, Event};
use crate::git::{Expected, RefUpdate, Repo, Sha, WorktreeEntry, from_text};
use crate::model::record::Record;
use crate::model::{Code, Error, Result};

pub use crate::git::BACKUPS;

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

/// The worktree whose commits a backup ref keeps.
#[must_use]
pub fn owner_of(name: &str) -> &str {
    let id = name.strip_prefix(BACKUPS).unwrap_or(name);
    id.split_once('.').map_or(id, |(id, _)| id)
}

/// Points the backup ref of a worktree at `tip`. What it pointed at before, and `tip` does not contain, is kept beside it.
///
/// # Errors
/// What git reports, also when the ref moves under this call.
pub async fn backup(repo: &Repo, record: &Record, tip: &Sha) -> Result<()> {
    keep(repo, &backup_ref(&record.worktree_id), tip).await
}

/// Points a backup ref at `tip`. A commit that only it may still name gets a ref of its own first, `<name>.<commit>`.
///
/// # Errors
/// Those of [`backup`].
pub async fn keep(repo: &Repo, name: &str, tip: &Sha) -> Result<()> {
    let expected = match repo.ref_sha(name).await? {
        Some(old) if old == *tip => return Ok(()),
        Some(old) => {
            if !repo.is_ancestor(&old, tip).await? {
                point(repo, &format!("{name}.{old}"), &old, Expected::Absent).await?;
            }
            Expected::Is(old)
        }
        None => Expected::Absent,
    };
    point(repo, name, tip, expected).await
}

async fn point(repo: &Repo, name: &str, tip: &Sha, expected: Expected) -> Result<()> {
    match repo.update_ref(name, tip, expected, "worktree: keep the last tip").await? {
        RefUpdate::Lost { current } if current.as_ref() != Some(tip) => Err(Error::new(
            Code::GitFailed,
            format!("the backup ref {name} moved while it was being written; repeat the call"),
        )),
        RefUpdate::Done | RefUpdate::Lost { .. } => Ok(()),
    }
}

/// Deletes the branch of a worktree that is gone, when its commits are kept elsewhere; with `force` also when they are
/// not, and then keeps them in the backup ref. Failing to is an outcome, not an error: the worktree is gone already.
pub async fn delete_branch(ctx: &Context, record: &Record, force: bool) -> bool {
    let deleted = try_delete(ctx, &record.repo_key, &[record], force).await;
    matches!(deleted.as_slice(), [fate] if told(record, fate))
}

/// [`delete_branch`], without force, of several worktrees of one repository; an answer for each. Takes no more processes
/// than one, where the branches do not keep each other.
pub async fn delete_branches(ctx: &Context, repo_key: &str, records: &[&Record]) -> Vec<bool> {
    let fates = try_delete(ctx, repo_key, records, false).await;
    let mut deleted = Vec::new();
    for (record, fate) in records.iter().zip(fates) {
        deleted.push(match fate {
            Fate::KeptByAnother => delete_branch(ctx, record, false).await,
            fate => told(record, &fate),
        });
    }
    deleted
}

/// What becomes of a branch.
enum Fate {
    Deleted,
    /// It stays, for this reason.
    Stays(String),
    /// Nothing but the branches that are deleted with it keeps it.
    KeptByAnother,
}

impl From<Error> for Fate {
    fn from(error: Error) -> Self {
        Fate::Stays(error.to_string())
    }
}

/// Whether the branch is deleted; the log says why when it is not.
fn told(record: &Record, fate: &Fate) -> bool {
    let why = match fate {
        Fate::Deleted => return true,
        Fate::Stays(why) => why,
        Fate::KeptByAnother => "only another branch that was to be deleted keeps it",
    };
    tracing::warn!(worktree = record.worktree_id, branch = record.branch, why, "the branch stays");
    false
}

async fn try_delete(ctx: &Context, repo_key: &str, records: &[&Record], force: bool) -> Vec<Fate> {
    let repo = ctx.git().repo(&from_text(repo_key));
    let names: Vec<&str> = records.iter().map(|record| record.branch.as_str()).collect();
    let checkouts = repo.checkouts_of(&names).await.map_err(Error::from);
    let judged = join_all(records.iter().map(|record| judge(ctx, &repo, record, &names, &checkouts, force))).await;
    let may_go: Vec<(String, Sha)> = judged.iter().flatten().cloned().collect();
    let mut answers = repo.delete_refs(&may_go).await.into_iter();
    let fate = |judged| match judged {
        Err(fate) => fate,
        Ok(_) => match answers.next() {
            Some(Ok(RefUpdate::Done)) => Fate::Deleted,
            Some(Err(error)) => Error::from(error).into(),
            _ => Fate::Stays("it moved while it was judged".to_owned()),
        },
    };
    judged.into_iter().map(fate).collect()
}

/// The ref of a branch that may go together with those called `names`, and its commit; the audit log has been told then.
async fn judge(
    ctx: &Context,
    repo: &Repo,
    record: &Record,
    names: &[&str],
    checkouts: &Result<Vec<WorktreeEntry>>,
    force: bool,
) -> Result<(String, Sha), Fate> {
    let stays = |why: &str| Fate::Stays(why.to_owned());
    let tip = repo.branch_sha(&record.branch).await.map_err(Error::from)?;
    let Some(tip) = tip else { return Err(stays("there is none")) };
    if checkouts.as_ref().map_err(Clone::clone)?.iter().any(|other| other.branch.as_ref() == Some(&record.branch)) {
        return Err(stays("it is checked out elsewhere"));
    }
    let kept_by = unsaved_work::branch_kept_by(repo, record, &tip, names).await?;
    if kept_by.is_none() {
        if names.len() > 1 {
            return Err(Fate::KeptByAnother);
        }
        if !force {
            return Err(stays("neither its target nor another ref contains it"));
        }
        backup(repo, record, &tip).await?;
    }
    let backup_ref = kept_by.is_none().then(|| backup_ref(&record.worktree_id));
    let details = json!({
        "branch": record.branch, "head_sha": tip, "kept_by": kept_by, "backup_ref": backup_ref, "forced": force,
    });
    ctx.audit(Event::new(Action::BranchDelete, details).about(&record.worktree_id, &record.repo_key)).await?;
    Ok((branch_ref(&record.branch), tip))
}

/// Deletes a backup ref, told in the audit log first. Nothing happens when there is none.
///
/// # Errors
/// `W600`, and what git reports; the ref is there then.
pub async fn drop_backup(ctx: &Context, repo: &Repo, name: &str, why: &str) -> Result<()> {
    let Some(kept) = repo.ref_sha(name).await? else { return Ok(()) };
    let details = json!({"backup_ref": name, "head_sha": kept, "why": why});
    ctx.audit(Event::new(Action::BackupDelete, details).about(owner_of(name), &repo.key())).await?;
    match repo.delete_ref(name, &kept).await? {
        RefUpdate::Done => Ok(()),
        RefUpdate::Lost { current } => {
            tracing::info!(name, ?current, "the backup ref moved, so it stays");
            Ok(())
        }
    }
}
