//! What git says about a worktree: the status of the reads, and whether its work has already landed.
//!
//! Invariants
//! 1. Untracked files count whatever the user's git configuration says.
//! 2. Work is called integrated only when one of the six reasons is proven; a probe that fails proves nothing.

use crate::git::{GitError, Integration, Operation, Repo, Sha, Tree};
use crate::model::record::{Lifecycle, Record};
use crate::model::status::WorktreeStatus;
use crate::model::{Code, Error, Result};
use crate::worktrees::Context;
use crate::worktrees::marker;

/// The branch that the work of `record` is meant for: the recorded base when that is a branch, else the branch of
/// the primary checkout. Its local tip and its upstream's tip, whichever exist.
///
/// # Errors
/// What git reports when it cannot be found out.
pub async fn target_tips(repo: &Repo, record: &Record) -> Result<Vec<Sha>, GitError> {
    let mut branch = None;
    if record.base_ref != "HEAD" {
        let short = record.base_ref.strip_prefix("refs/heads/").unwrap_or(&record.base_ref);
        if repo.branch_sha(short).await?.is_some() {
            branch = Some(short.to_owned());
        }
    }
    let branch = match branch {
        Some(branch) => Some(branch),
        None => repo.head_branch().await?,
    };
    // A branch is no target for itself: everything is contained in it.
    let Some(branch) = branch.filter(|branch| *branch != record.branch) else { return Ok(Vec::new()) };
    let mut tips = Vec::new();
    tips.extend(repo.branch_sha(&branch).await?);
    if let Some(upstream) = repo.upstream_of(&branch).await?
        && let Some(tip) = repo.resolve_commit(&upstream).await?
    {
        tips.push(tip);
    }
    tips.dedup();
    Ok(tips)
}

/// Whether, and how, the target already contains the work at `head`.
///
/// # Errors
/// What git reports when the target cannot be found out; the caller must then assume that nothing is contained.
pub async fn integration(repo: &Repo, record: &Record, head: &Sha) -> Result<Option<Integration>> {
    for tip in target_tips(repo, record).await? {
        if let Some(reason) = repo.integration(head, &tip).await? {
            return Ok(Some(reason));
        }
    }
    Ok(None)
}

/// The status of one worktree.
///
/// # Errors
/// `W115` when nothing is committed on its branch, and what git reports.
pub async fn status(record: &Record, tree: &Tree) -> Result<WorktreeStatus> {
    let seen = tree.status().await?;
    let Some(head) = seen.head.clone() else {
        return Err(Error::new(Code::NoCommits, format!("{} has no commit checked out", record.worktree_id)));
    };
    let repo = tree.repo();
    let base: Sha = record.base_sha.parse().map_err(|_| {
        Error::new(Code::RecordUnreadable, format!("the recorded base of {} is no commit id", record.worktree_id))
    })?;
    let (ahead, behind) = match seen.upstream_ahead_behind {
        Some(counts) => counts,
        None => repo.ahead_behind(&head, &base).await?,
    };
    let reason = integration(&repo, record, &head).await.unwrap_or_else(|error| {
        tracing::debug!(worktree = record.worktree_id, %error, "whether it is integrated cannot be told");
        None
    });
    Ok(WorktreeStatus {
        clean: seen.is_clean(),
        ahead,
        behind,
        staged: seen.staged,
        unstaged: seen.unstaged,
        untracked: seen.untracked,
        conflicted: seen.conflicted,
        diffstat: repo.shortstat(&base, &head).await?,
        unpushed: repo.unpushed(&head, std::slice::from_ref(&base)).await?,
        in_rebase: tree.operation().is_some_and(Operation::is_rebase),
        head_sha: head.to_string(),
        integrated: reason.is_some(),
        integration_reason: reason.map(|reason| reason.as_str().to_owned()),
    })
}

/// The lifecycle that holds right now: a record whose directory is gone is orphaned, whatever is stored.
#[must_use]
pub fn lifecycle_now(record: &Record) -> Lifecycle {
    match std::fs::symlink_metadata(&record.path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Lifecycle::Orphaned,
        _ if record.lifecycle == Lifecycle::Orphaned => Lifecycle::at_rest(record.session_id.as_deref()),
        _ => record.lifecycle,
    }
}

/// The status of the worktree of `record`, checked for identity first.
///
/// # Errors
/// `W201`, `W202`, and what [`status`] reports.
pub async fn status_of(ctx: &Context, record: &Record) -> Result<WorktreeStatus> {
    let (tree, _) = marker::require_tree(&ctx.git(), record)?;
    status(record, &tree).await
}

/// Like [`status_of`], for answers in which one broken worktree must not spoil the rest.
pub async fn status_or_null(ctx: &Context, record: &Record) -> Option<WorktreeStatus> {
    match status_of(ctx, record).await {
        Ok(status) => Some(status),
        Err(error) => {
            tracing::warn!(worktree = record.worktree_id, code = %error.code, %error, "no status");
            None
        }
    }
}
