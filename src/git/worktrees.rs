//! Registered worktrees: listing and adding.
//!
//! Invariants
//! 1. Adding is all or nothing: after a failure the branch, the directory and the entry that this call made are gone,
//!    and nothing else is touched.
//! 2. The branch is made by compare-and-swap before the worktree, so that it is known to be this call's own; it is
//!    taken back only while it still is where this call put it.
//! 3. An added worktree is verified (both links, branch, commit): a sibling's `git worktree prune` may unregister it
//!    while it is being made, and git still exits with 0.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::PathBuf;

use super::admin::{self, Link};
use super::error::GitError;
use super::invocation::Patience;
use super::parse::worktrees::{WorktreeEntry, parse};
use super::refs::{Expected, RefUpdate};
use super::sha::Sha;
use super::{Repo, branch_name};

/// A worktree to be added.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddWorktree {
    /// Its root; absolute, must not exist, its parent must.
    pub path: PathBuf,
    /// The new branch.
    pub branch: String,
    /// The commit that the branch starts at.
    pub start: Sha,
    /// Why it is locked: locked worktrees survive a `git worktree prune` that cannot see their directory.
    pub lock_reason: String,
}

impl Repo {
    /// All registered worktrees, the primary one first.
    ///
    /// # Errors
    /// W102.
    pub async fn worktrees(&self) -> Result<Vec<WorktreeEntry>, GitError> {
        let output = self.command(["worktree", "list", "--porcelain", "-z"]).offline().run_patiently().await?;
        parse(&output.stdout()?)
    }

    /// Adds a locked worktree on a new branch, without files and without an upstream. Fill it with
    /// [`super::Tree::checkout_fresh`].
    ///
    /// # Errors
    /// W111 for a bad branch name or a relative path, W120 and W121 when the branch cannot be made, W102 when the path
    /// is taken, a lock stays taken, or git fails. In every case nothing of this call remains.
    pub async fn add_worktree(&self, add: &AddWorktree) -> Result<(), GitError> {
        branch_name::require(&add.branch)?;
        if !add.path.is_absolute() {
            let name = add.path.display().to_string();
            return Err(GitError::Malformed { name, why: "the path must be absolute" });
        }
        if add.path.symlink_metadata().is_ok() {
            return Err(GitError::PathTaken { path: add.path.clone() });
        }
        let full = format!("refs/heads/{}", add.branch);
        match self.update_ref(&full, &add.start, Expected::Absent, "branch: Created for a worktree").await? {
            RefUpdate::Done => {}
            RefUpdate::Lost { .. } => return Err(GitError::BranchExists { branch: add.branch.clone() }),
        }
        let mut undo = Undo { repo: self.clone(), add: add.clone(), known: self.entry_names()?, armed: true };
        let added = self.add_on_branch(add, &undo).await;
        undo.armed = false;
        if added.is_err() {
            undo.now().await;
        }
        added
    }

    async fn add_on_branch(&self, add: &AddWorktree, undo: &Undo) -> Result<(), GitError> {
        let mut patience = Patience::new(self.git.limit());
        loop {
            let output = self
                .command(["worktree", "add", "--no-checkout", "--no-guess-remote", "--lock", "--reason"])
                .args([add.lock_reason.as_str(), "--"])
                .arg(&add.path)
                .arg(&add.branch)
                .writes()
                .run()
                .await?;
            if output.code == Some(0) {
                return self.verify_added(add).await;
            }
            let failure = output.failure();
            if !matches!(failure, GitError::LockContention { .. }) {
                return Err(failure);
            }
            undo.take_back_entry();
            if !patience.pause().await {
                return Err(failure);
            }
        }
    }

    async fn verify_added(&self, add: &AddWorktree) -> Result<(), GitError> {
        let broken = |why: String| GitError::NotAWorktree { path: add.path.clone(), why };
        let link = admin::verify_link(&self.common_dir, &add.path);
        match link.map_err(|source| GitError::reading(&add.path, source))? {
            Link::Intact(_) => {}
            Link::DirectoryGone { .. } => return Err(broken("it vanished while it was being made".to_owned())),
            Link::Broken { why } => return Err(broken(why)),
        }
        let tree = self.git.tree(&add.path)?;
        if tree.head_branch()?.as_deref() != Some(add.branch.as_str()) {
            return Err(broken(format!("it is not on branch `{}`", add.branch)));
        }
        if tree.head().await?.as_ref() != Some(&add.start) {
            return Err(broken(format!("its branch is not at {}", add.start.short())));
        }
        Ok(())
    }

    fn entry_names(&self) -> Result<BTreeSet<OsString>, GitError> {
        admin::names(&self.common_dir).map_err(|source| GitError::reading(self.common_dir.join("worktrees"), source))
    }
}

/// What takes an unfinished addition back. Dropped armed (the caller stopped waiting), it does so in the background.
struct Undo {
    repo: Repo,
    add: AddWorktree,
    /// The entries there were before.
    known: BTreeSet<OsString>,
    armed: bool,
}

impl Undo {
    async fn now(&self) {
        self.take_back_entry();
        let full = format!("refs/heads/{}", self.add.branch);
        match self.repo.delete_ref(&full, &self.add.start).await {
            Ok(RefUpdate::Done) => {}
            Ok(RefUpdate::Lost { .. }) => {
                tracing::warn!(branch = %self.add.branch, "the branch moved while its worktree failed; it is kept");
            }
            Err(error) => {
                tracing::warn!(%error, branch = %self.add.branch, "the branch of a failed add is left behind");
            }
        }
    }

    /// Removes the entry and the directory that the failed process left: an entry that names our path, or a half
    /// written one of our name that was not there before.
    fn take_back_entry(&self) {
        if let Err(error) = admin::take_back(&self.repo.common_dir, &self.add.path, &self.known) {
            tracing::warn!(%error, path = %self.add.path.display(), "the entry of a failed add is left behind");
        }
    }
}

impl Drop for Undo {
    fn drop(&mut self) {
        if !self.armed {
            return;
        }
        let (repo, add, known) = (self.repo.clone(), self.add.clone(), std::mem::take(&mut self.known));
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                // The process that was ended may take a moment to be gone.
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                Undo { repo, add, known, armed: false }.now().await;
            });
        }
    }
}
