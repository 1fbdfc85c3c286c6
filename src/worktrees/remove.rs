//! `worktree::remove`: a worktree goes, after everything that could be lost has been looked at.
//!
//! The checks come in a fixed order: gate, record, live land, identity, uncommitted work, commits not landed, open
//! files. The whole judgement is made again under the lock, immediately before the rename.
//!
//! Killed here → found on the next call → done:
//! - before the rename: nothing has happened.
//! - after the rename, before the admin entry is dropped: the directory is gone, the entry is ours → dropped.
//! - after that, before the record is deleted: record without directory and entry → deleted.

use std::path::PathBuf;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

pub use super::branch::{backup, backup_ref, branch_ref, delete_branch};
pub use super::discard::{Judgement, discard_tree, drop_entry, empty_trash, finish_discard, is_left_in_trash};
use super::marker::{self, Identity};
use super::open_files::{self, Holder};
use super::repo_lock::RepoGuard;
use super::unsaved_work::{self, Cleared};
use super::{Context, branch, request};
use crate::audit::{Action, Event as Audit};
use crate::git::admin::{self, AdminEntry};
use crate::git::{Sha, Tree, from_text};
use crate::model::event::Event;
use crate::model::record::Record;
use crate::model::{Code, Error, Result};

/// Which worktree goes, and how far.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct Request {
    /// The worktree to remove.
    pub worktree_id: String,
    /// Remove it in spite of uncommitted work, commits not landed and open files, which are lost from the directory;
    /// the branch and its commits stay. Needs gates.allow_force.
    #[serde(default)]
    pub force: bool,
    /// Delete the branch as well; without force only when the target contains its work. Needs
    /// gates.allow_branch_delete.
    #[serde(default)]
    pub delete_branch: bool,
}

/// What was removed.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Response {
    /// Always true; a refusal is an error.
    pub removed: bool,
    /// Whether the branch was deleted as well.
    pub branch_deleted: bool,
}

/// Removes a worktree.
///
/// # Errors
/// `W001`, `W500`, `W501`, `W200`, `W401` while a land is live, `W202`, `W220`, `W221`, `W222`, `W300`, `W600`, and what git
/// reports. After any of them the worktree is as it was, or the same call finishes the job.
pub async fn run(ctx: &Arc<Context>, request: Request) -> Result<Response> {
    request::require_text("worktree_id", &request.worktree_id)?;
    let settings = ctx.settings();
    settings.require_gate("allow_remove", "worktree::remove")?;
    if request.force {
        settings.require_gate("allow_force", "remove with force")?;
    }
    if request.delete_branch {
        settings.require_gate("allow_branch_delete", "remove with delete_branch")?;
    }
    let record = ctx.registry.record(&request.worktree_id)?;
    let guard = match ctx.registry.try_lock(&record.repo_key).await {
        Some(guard) => guard,
        None => {
            // Others are waiting: a refusal must not make that longer.
            judge(ctx, &record, request.force).await?;
            ctx.registry.lock(&record.repo_key).await?
        }
    };
    let record = ctx.registry.record(&request.worktree_id)?;
    let judged = judge(ctx, &record, request.force).await?;
    let branch_deleted = take_away(ctx, &guard, &record, judged, request.force, request.delete_branch).await?;
    drop(guard);
    ctx.events.emit(&Event::removed(&record, branch_deleted, request.force, ctx.now()));
    Ok(Response { removed: true, branch_deleted })
}

/// What a judgement found: the worktree with its work, or only what is left of it.
enum Judged {
    Present { tree: Tree, entry: AdminEntry, cleared: Cleared },
    Gone(Option<AdminEntry>),
}

async fn judge(ctx: &Context, record: &Record, force: bool) -> Result<Judged> {
    if let Some(job) = ctx.registry.live_job(&record.worktree_id) {
        return Err(Error::new(
            Code::LandLive,
            format!(
                "{} is being landed by {} ({}); wait until it has ended",
                record.worktree_id,
                job.job_id,
                job.phase.as_str()
            ),
        ));
    }
    ctx.registry.require_readable_land(&record.worktree_id)?;
    let (tree, entry) = match marker::identify(&ctx.git(), record)? {
        Identity::Ours(tree, entry) => (tree, entry),
        Identity::DirectoryGone(entry) => return Ok(Judged::Gone(entry)),
    };
    let work = unsaved_work::judge(record, &tree).await;
    if force {
        return Ok(Judged::Present { tree, entry, cleared: work.clear_forced() });
    }
    let cleared = work.clear(record)?;
    require_idle(record).await?;
    Ok(Judged::Present { tree, entry, cleared })
}

/// Refuses while a process works in the worktree.
///
/// # Errors
/// `W222` naming the processes, also when they cannot be told.
pub async fn require_idle(record: &Record) -> Result<()> {
    require_all_idle(&[record]).await.pop().unwrap_or(Ok(()))
}

/// [`require_idle`] of several worktrees at once.
pub async fn require_all_idle(records: &[&Record]) -> Vec<Result<()>> {
    let roots: Vec<PathBuf> = records.iter().map(|record| PathBuf::from(&record.path)).collect();
    let found = tokio::task::spawn_blocking(move || open_files::probe_all(&roots)).await;
    let found = found.unwrap_or_else(|error| records.iter().map(|_| Err(error.to_string())).collect());
    records.iter().zip(found).map(|(record, found)| refuse_busy(record, found)).collect()
}

fn refuse_busy(record: &Record, found: Result<Vec<Holder>, String>) -> Result<()> {
    let who = match found {
        Ok(holders) if holders.is_empty() => return Ok(()),
        Ok(holders) => format!("files of {} are open in {}", record.worktree_id, open_files::describe(&holders)),
        Err(why) => format!("whether files of {} are open cannot be told ({why})", record.worktree_id),
    };
    Err(Error::new(
        Code::FilesOpen,
        format!("{who}; end those processes, or pass force: true (needs gates.allow_force)"),
    ))
}

/// Removes what was judged: rename, admin entry, record, then the branch where it was asked for.
async fn take_away(
    ctx: &Arc<Context>,
    guard: &RepoGuard,
    record: &Record,
    judged: Judged,
    force: bool,
    delete_branch: bool,
) -> Result<bool> {
    match judged {
        Judged::Present { tree, entry, cleared } => {
            let details = json!({"delete_branch": delete_branch});
            discard_tree(ctx, record, (&tree, &entry), &cleared, (Action::Remove, details), Judgement::Fresh).await?;
        }
        Judged::Gone(entry) => {
            reconcile(ctx, record, entry.as_ref()).await?;
            finish_discard(ctx, record, None)?;
        }
    }
    let branch_deleted = delete_branch && self::delete_branch(ctx, record, force).await;
    ctx.registry.set_live_job(guard, &record.worktree_id, None).await?;
    ctx.registry.delete_record(guard, &record.worktree_id).await?;
    Ok(branch_deleted)
}

/// Drops what is left of a worktree whose directory is gone: git's entry. A commit that was checked out there without a
/// branch, and that no other ref contains, is kept in a backup ref. The record is the caller's to delete.
///
/// # Errors
/// `W600` when the audit log cannot tell of it, `W102` when the entry cannot be dropped or the commit not be kept.
pub async fn reconcile(ctx: &Context, record: &Record, entry: Option<&AdminEntry>) -> Result<()> {
    let repo = ctx.git().repo(&from_text(&record.repo_key));
    let tip = repo.branch_sha(&record.branch).await.ok().flatten();
    let detached = entry.and_then(|entry| admin::detached_head(entry)?.parse::<Sha>().ok());
    let lonely = match &detached {
        Some(head) => repo.refs_containing(head).await?.is_empty(),
        None => false,
    };
    let details = json!({
        "path": record.path, "branch": record.branch, "head_sha": tip, "detached_sha": detached, "entry": entry.map(|entry| &entry.dir),
        "session_id": record.session_id,
    });
    ctx.audit(Audit::new(Action::Reconcile, details).about(&record.worktree_id, &record.repo_key)).await?;
    if let Some(head) = detached.filter(|_| lonely) {
        branch::keep(&repo, &branch::head_backup_ref(&record.worktree_id), &head).await?;
    }
    entry.map_or(Ok(()), |entry| drop_entry(record, entry))
}
