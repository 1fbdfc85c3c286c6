//! `worktree::remove`: a worktree goes, after everything that could be lost has been looked at.
//!
//! The checks come in a fixed order: gate, record, live land, identity, uncommitted work, commits not landed, open
//! files. The whole judgement is made again under the lock, immediately before the rename.
//!
//! Killed here → found on the next call → done:
//! - before the rename: nothing has happened.
//! - after the rename, before the admin entry is dropped: the directory is gone, the entry is ours → dropped.
//! - after that, before the record is deleted: record without directory and entry → deleted.

use std::path::Path;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::marker::{self, Identity};
use super::repo_lock::RepoGuard;
use super::unsaved_work::{self, UnsavedWork};
use super::{Context, inspect, open_files, request, trash};
use crate::git::admin::{self, AdminEntry};
use crate::git::{Expected, RefUpdate, Repo, Sha, Tree};
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
/// `W001`, `W500`, `W501`, `W200`, `W401` while a land is live, `W202`, `W220`, `W221`, `W222`, `W300`, and what git
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
    // Judged first without the lock, so that a refusal does not keep others waiting.
    judge(ctx, &record, request.force).await?;
    let guard = ctx.registry.lock(&record.repo_key).await?;
    let record = ctx.registry.record(&request.worktree_id)?;
    let judged = judge(ctx, &record, request.force).await?;
    let branch_deleted = take_away(ctx, &guard, &record, judged, request.force, request.delete_branch).await?;
    drop(guard);
    ctx.events.emit(&Event::removed(&record, branch_deleted, request.force, ctx.now()));
    Ok(Response { removed: true, branch_deleted })
}

/// What a judgement found: the worktree with its work, or only what is left of it.
enum Judged {
    Present { tree: Tree, entry: AdminEntry, work: UnsavedWork },
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
    let (tree, entry) = match marker::identify(&ctx.git(), record)? {
        Identity::Ours(tree, entry) => (tree, entry),
        Identity::DirectoryGone(entry) => return Ok(Judged::Gone(entry)),
    };
    let work = unsaved_work::judge(record, &tree).await;
    if !force {
        work.refuse(record)?;
        require_idle(record).await?;
    }
    Ok(Judged::Present { tree, entry, work })
}

/// Refuses while a process works in the worktree.
///
/// # Errors
/// `W222` naming the processes, also when they cannot be told.
pub async fn require_idle(record: &Record) -> Result<()> {
    let root = record.path.clone();
    let found = tokio::task::spawn_blocking(move || open_files::probe(Path::new(&root)))
        .await
        .unwrap_or_else(|error| Err(error.to_string()));
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
    let (head, landed) = match judged {
        Judged::Present { tree, entry, work } => {
            discard_tree(ctx, record, &tree, &entry, force).await?;
            (work.head.clone(), work.not_landed == 0 && work.unknown.is_empty())
        }
        Judged::Gone(entry) => {
            if let Some(entry) = entry {
                drop_entry(record, &entry)?;
            }
            (None, false)
        }
    };
    let branch_deleted = delete_branch && self::delete_branch(ctx, record, head.as_ref(), landed, force).await;
    ctx.registry.set_live_job(guard, &record.worktree_id, None).await?;
    ctx.registry.delete_record(guard, &record.worktree_id).await?;
    Ok(branch_deleted)
}

/// Renames the directory of a worktree into the trash, drops its admin entry, and deletes it in the background.
///
/// # Errors
/// `W102` when neither the rename nor git's own removal works; the worktree is then as it was.
pub async fn discard_tree(
    ctx: &Arc<Context>,
    record: &Record,
    tree: &Tree,
    entry: &AdminEntry,
    force: bool,
) -> Result<()> {
    match trash::discard(&ctx.settings().root, tree.root(), &record.worktree_id, ctx.now()) {
        Ok(place) => {
            drop_entry(record, entry)?;
            ctx.background.spawn(async move {
                let deleted = tokio::task::spawn_blocking(move || (trash::delete(&place), place)).await;
                if let Ok((Err(error), place)) = deleted {
                    tracing::warn!(place = %place.display(), %error, "the trash entry stays for the next sweep");
                }
            });
            Ok(())
        }
        Err(error) => {
            tracing::warn!(worktree = record.worktree_id, %error, "no rename into the trash; git removes it in place");
            let unlock = admin::unlock(entry);
            unlock.map_err(|error| Error::new(Code::GitFailed, format!("unlocking {}: {error}", record.path)))?;
            tree.remove(force).await.map_err(Error::from)
        }
    }
}

/// Drops the admin entry of a worktree whose directory is gone.
///
/// # Errors
/// `W102` when it cannot be dropped.
pub fn drop_entry(record: &Record, entry: &AdminEntry) -> Result<()> {
    admin::drop_entry(Path::new(&record.repo_key), entry).map_err(|error| {
        Error::new(
            Code::GitFailed,
            format!(
                "the directory of {} is in the trash, but git's entry {} could not be dropped: {error}; call remove again",
                record.worktree_id,
                entry.dir.display()
            ),
        )
    })
}

/// Deletes the branch of a worktree that is gone, by compare-and-swap: the judged commit (`head`, which has `landed` or
/// not), or whatever it is at when the target contains that. With `force` also what has not landed, kept in the backup
/// ref. Failing to is an outcome, not an error: the worktree is gone already.
pub async fn delete_branch(ctx: &Context, record: &Record, head: Option<&Sha>, landed: bool, force: bool) -> bool {
    match try_delete(ctx, record, head, landed, force).await {
        Ok(deleted) => deleted,
        Err(error) => {
            tracing::warn!(worktree = record.worktree_id, branch = record.branch, %error, "the branch stays");
            false
        }
    }
}

async fn try_delete(ctx: &Context, record: &Record, head: Option<&Sha>, landed: bool, force: bool) -> Result<bool> {
    let repo = ctx.git().repo(Path::new(&record.repo_key));
    let Some(tip) = repo.branch_sha(&record.branch).await? else { return Ok(false) };
    if repo.worktrees().await?.iter().any(|other| other.branch.as_deref() == Some(&record.branch)) {
        tracing::warn!(worktree = record.worktree_id, branch = record.branch, "checked out elsewhere, so it stays");
        return Ok(false);
    }
    // The judgement was about the commit that was checked out; another tip is judged for itself.
    let safe = match head {
        Some(head) if *head == tip => landed,
        _ => tip.as_str() == record.base_sha || inspect::integration(&repo, record, &tip).await?.is_some(),
    };
    if !safe && !force {
        tracing::warn!(
            worktree = record.worktree_id,
            branch = record.branch,
            "not contained in its target, so it stays"
        );
        return Ok(false);
    }
    if !safe {
        backup(&repo, record, &tip).await?;
    }
    Ok(matches!(repo.delete_ref(&branch_ref(&record.branch), &tip).await?, RefUpdate::Done))
}

/// The full name of a branch.
#[must_use]
pub fn branch_ref(branch: &str) -> String {
    format!("refs/heads/{branch}")
}

/// Where the last tip of a worktree's branch is kept.
#[must_use]
pub fn backup_ref(worktree_id: &str) -> String {
    format!("refs/iii/wt-backup/{worktree_id}")
}

/// Points the backup ref of a worktree at `tip`, whatever it pointed at before.
///
/// # Errors
/// What git reports, also when the ref moves under this call.
pub async fn backup(repo: &Repo, record: &Record, tip: &Sha) -> Result<()> {
    let name = backup_ref(&record.worktree_id);
    let expected = match repo.resolve_commit(&name).await? {
        Some(old) if old == *tip => return Ok(()),
        Some(old) => Expected::Is(old),
        None => Expected::Absent,
    };
    match repo.update_ref(&name, tip, expected, "worktree: keep the last tip").await? {
        RefUpdate::Done => Ok(()),
        RefUpdate::Lost { .. } => Err(Error::new(
            Code::GitFailed,
            format!("the backup ref {name} moved while it was being written; repeat the call"),
        )),
    }
}
