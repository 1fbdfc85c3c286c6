//! What a create has made so far, and how it is taken away again when it fails.
//!
//! Invariants
//! 1. Only what this call made is taken away: directories it made and that are empty again, the entry and the directory
//!    of its worktree, its branch where it still is at the commit it was made at, the ref it fetched.
//! 2. Nobody has been told of any of them, so nothing of value can be in them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::json;

use super::Context;
use super::remove::branch_ref;
use crate::audit::{Action, Event as Audit};
use crate::git::admin;
use crate::git::{Expected, GitError, RefUpdate, Repo, Sha};
use crate::model::record::Record;
use crate::model::{Code, Error, Result};

/// A pull request that was fetched.
pub struct Fetched {
    /// The ref it was fetched into.
    pub name: String,
    /// What that ref was before.
    pub before: Option<Sha>,
    /// What it is now.
    pub now: Sha,
}

impl Fetched {
    /// Puts the ref back to what it was.
    pub async fn undo(&self, repo: &Repo) {
        let undone = match &self.before {
            Some(before) if *before == self.now => return,
            Some(before) => {
                repo.update_ref(&self.name, before, Expected::Is(self.now.clone()), "worktree: create failed").await
            }
            None => repo.delete_ref(&self.name, &self.now).await,
        };
        note(&self.name, undone);
    }
}

fn note(name: &str, undone: Result<RefUpdate, GitError>) {
    match undone {
        Ok(RefUpdate::Done | RefUpdate::Lost { .. }) => {}
        Err(error) => tracing::warn!(name, %error, "a ref that a failed create has made stays"),
    }
}

/// The parents of a new worktree that did not exist before, outermost first.
#[derive(Default)]
pub struct Parents(Vec<PathBuf>);

impl Parents {
    /// Makes the directory that `place` will lie in.
    ///
    /// # Errors
    /// `W102` when it cannot be made; what was made of it is gone again.
    pub fn make(place: &Path) -> Result<Self> {
        let parent = place.parent().unwrap_or(place);
        let missing = parent.ancestors().take_while(|dir| dir.symlink_metadata().is_err());
        let mut parents = Parents(missing.map(Path::to_owned).collect());
        parents.0.reverse();
        std::fs::create_dir_all(parent).map_err(|error| {
            parents.undo();
            let why = format!("the directory {} cannot be made: {error}; see worktree_root", parent.display());
            Error::new(Code::GitFailed, why)
        })?;
        Ok(parents)
    }

    /// Removes those that are empty.
    pub fn undo(&self) {
        for dir in self.0.iter().rev() {
            // One that a sibling uses by now is not empty, and stays.
            if std::fs::remove_dir(dir).is_err() {
                return;
            }
        }
    }
}

/// Takes away what a failed create has registered and checked out: directory, admin entry, branch.
pub async fn worktree(ctx: &Context, repo: &Repo, record: &Record, base_sha: &Sha) {
    let place = Path::new(&record.path);
    let details = json!({"path": record.path, "branch": record.branch, "head_sha": base_sha});
    let event = Audit::new(Action::RollBack, details).about(&record.worktree_id, &record.repo_key);
    if let Err(error) = ctx.audit(event).await {
        // Its marker is not `ready`: the sweep takes it away once the log can be written again.
        tracing::warn!(path = record.path, %error, "what a failed create has made stays");
        return;
    }
    let dropped = match admin::entry_for(repo.common_dir(), place) {
        // Registered by this call: the directory is ours down to the last file.
        Ok(Some(entry)) => {
            if_there(std::fs::remove_dir_all(place)).and_then(|()| admin::drop_entry(repo.common_dir(), &entry))
        }
        // git takes its own directory away when it fails; what is not empty is not ours.
        Ok(None) => if_there(std::fs::remove_dir(place)),
        Err(error) => Err(error),
    };
    if let Err(error) = dropped {
        tracing::warn!(path = record.path, %error, "what a failed create has made stays");
    }
    branch(repo, record, base_sha).await;
}

/// Takes away the branch that a failed create has made, where it still is at the commit it was made at.
pub async fn branch(repo: &Repo, record: &Record, base_sha: &Sha) {
    let name = branch_ref(&record.branch);
    note(&name, repo.delete_ref(&name, base_sha).await);
}

fn if_there(removed: std::io::Result<()>) -> std::io::Result<()> {
    match removed {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// A write of the record that was answered with an error may have happened all the same: deletes it, in the background.
pub fn record(ctx: &Arc<Context>, record: &Record) {
    let (ctx, repo_key, id) = (ctx.clone(), record.repo_key.clone(), record.worktree_id.clone());
    let background = ctx.clone();
    background.background.spawn(async move {
        let deleted = async {
            let guard = ctx.registry.lock(&repo_key).await?;
            ctx.registry.delete_record(&guard, &id).await
        };
        if let Err(error) = deleted.await {
            tracing::warn!(worktree = id, %error, "whether the record of a failed create is gone cannot be told");
        }
    });
}
