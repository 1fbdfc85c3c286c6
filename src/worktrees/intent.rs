//! What a create is about to make, noted before it makes anything, so that a create that was killed leaves nothing.
//!
//! The note lies in the common directory until the create has answered. It is written, and the worktree gets its marker,
//! under one lock of the repository: whoever holds that lock and finds a note without a marker knows that the create was
//! cut off, or is being taken back.
//!
//! Invariants
//! 1. Only what the note names is taken back: a directory that holds nothing but its `.git` file, git's entry for it,
//!    and a branch that has not moved since this worker made it.
//! 2. A worktree of the pool whose marker still says so was not handed out: only the branch goes, and HEAD leaves it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::branch::branch_ref;
use super::repo_lock::RepoGuard;
use super::{Context, marker};
use crate::audit::{Action, Event};
use crate::git::admin;
use crate::git::{RefUpdate, Repo, Sha, from_text};
use crate::model::id::is_worktree_id;
use crate::model::record::Record;
use crate::model::{Code, Error, Result};

/// Beginning of the name of a note.
const NOTE: &str = "iii-worktree-creating.";

/// A note.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Intent {
    worktree_id: String,
    path: String,
    branch: String,
    start: String,
}

fn failed(path: &Path, error: impl std::fmt::Display) -> Error {
    Error::new(Code::GitFailed, format!("the note {} of a create: {error}", path.display()))
}

fn path_of(record: &Record) -> PathBuf {
    from_text(&record.repo_key).join(format!("{NOTE}{}", record.worktree_id))
}

/// Notes what a create is about to make.
///
/// # Errors
/// `W102` when it cannot be written; nothing may be made then.
pub fn note(_permit: &RepoGuard, record: &Record) -> Result<()> {
    let intent = Intent {
        worktree_id: record.worktree_id.clone(),
        path: record.path.clone(),
        branch: record.branch.clone(),
        start: record.base_sha.clone(),
    };
    let path = path_of(record);
    let written = serde_json::to_vec(&intent).map_err(std::io::Error::from).and_then(|bytes| {
        // A process that is killed leaves the file whole or empty; an empty one was written before anything was made.
        use std::io::Write as _;
        std::fs::File::create(&path)?.write_all(&bytes)
    });
    written.map_err(|error| failed(&path, error))
}

/// Takes the note away: the worktree is complete, or taken back to the last ref. One that stays is looked at by the next
/// sweep.
pub fn settled(record: &Record) {
    let path = path_of(record);
    if let Err(error) = std::fs::remove_file(&path)
        && error.kind() != std::io::ErrorKind::NotFound
    {
        tracing::warn!(%error, path = %path.display(), "the note of a create stays");
    }
}

/// Takes back what creates have left in a repository that were cut off before there was a marker.
///
/// # Errors
/// `W300` when the repository cannot be locked, `W600`, and what git reports; the rest stays for the next time.
pub async fn take_back(ctx: &Arc<Context>, repo_key: &str) -> Result<()> {
    if notes(repo_key).is_empty() {
        return Ok(());
    }
    let _guard = ctx.registry.lock(repo_key).await?;
    let repo = ctx.git().repo(&from_text(repo_key));
    for path in notes(repo_key) {
        let over = match read(&path) {
            Some(intent) => take_back_one(ctx, &repo, &intent).await?,
            None => true,
        };
        if over {
            std::fs::remove_file(&path).map_err(|error| failed(&path, error))?;
        }
    }
    Ok(())
}

fn notes(repo_key: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(repo_key).into_iter().flatten().flatten();
    let is_note = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()?.strip_prefix(NOTE));
        name.is_some_and(is_worktree_id)
    };
    entries.map(|entry| entry.path()).filter(is_note).collect()
}

fn read(path: &Path) -> Option<Intent> {
    serde_json::from_slice(&std::fs::read(path).ok()?).ok()
}

/// Takes back what one create has left; `false` when its marker says that it may still be going on.
async fn take_back_one(ctx: &Context, repo: &Repo, intent: &Intent) -> Result<bool> {
    let root = Path::new(&intent.path);
    let entry = admin::entry_for(repo.common_dir(), root).map_err(|error| failed(root, error))?;
    if let Some(entry) = &entry
        && let Some(marker) = marker::read(entry)?
    {
        if marker.pooled.is_some() {
            return take_back_into_pool(ctx, repo, intent).await;
        }
        // From here on the marker tells how far the create came; the note is for what is left after the entry.
        return Ok(marker.ready);
    }
    if !holds_at_most_dot_git(root) {
        tracing::warn!(path = intent.path, "a create that was cut off left something that holds files; it stays");
        return Ok(true);
    }
    let start = intent.start.parse().map_err(|error| failed(root, error))?;
    let details = json!({"path": intent.path, "branch": intent.branch, "head_sha": intent.start, "cut_off": true});
    let event = Event::new(Action::RollBack, details).about(&intent.worktree_id, &repo.key());
    ctx.audit(event).await?;
    admin::remove_husk(root).map_err(|error| failed(root, error))?;
    // The name is the id that the note gives, so that what bears it and names nothing is what this create had begun.
    let entry = entry.map_or_else(|| admin::half_made(repo.common_dir(), root), |entry| Ok(Some(entry)));
    if let Some(entry) = entry.map_err(|error| failed(root, error))? {
        admin::drop_entry(repo.common_dir(), &entry).map_err(|error| failed(root, error))?;
    }
    take_back_branch(repo, intent, &start).await?;
    Ok(true)
}

/// Takes back the branch, where this worker made it. A note of a worktree for the pool names none.
async fn take_back_branch(repo: &Repo, intent: &Intent, start: &Sha) -> Result<()> {
    if intent.branch.is_empty() {
        return Ok(());
    }
    let name = branch_ref(&intent.branch);
    if repo.made_for_worktree(&name).await?
        && let RefUpdate::Lost { current: Some(current) } = repo.delete_ref(&name, start).await?
    {
        tracing::warn!(branch = intent.branch, %current, "the branch of a create that was cut off has moved; it stays");
    }
    Ok(())
}

/// Takes back what was done to a worktree of the pool that was about to be handed out, or to be made.
async fn take_back_into_pool(ctx: &Context, repo: &Repo, intent: &Intent) -> Result<bool> {
    if intent.branch.is_empty() {
        return Ok(true);
    }
    let tree = ctx.git().tree(Path::new(&intent.path))?;
    let start = intent.start.parse().map_err(|error| failed(Path::new(&intent.path), error))?;
    let details = json!({"path": intent.path, "branch": intent.branch, "head_sha": intent.start, "cut_off": true});
    ctx.audit(Event::new(Action::RollBack, details).about(&intent.worktree_id, &repo.key())).await?;
    if tree.head_branch()?.as_deref() == Some(intent.branch.as_str()) {
        tree.detach_at(&start).await?;
    }
    take_back_branch(repo, intent, &start).await?;
    Ok(true)
}

/// Whether there is no directory, or one with nothing in it but a `.git` file.
fn holds_at_most_dot_git(root: &Path) -> bool {
    match std::fs::read_dir(root) {
        Ok(entries) => entries.into_iter().all(|entry| entry.is_ok_and(|entry| entry.file_name() == ".git")),
        Err(error) => error.kind() == std::io::ErrorKind::NotFound,
    }
}
