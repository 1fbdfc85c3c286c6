//! Registered worktrees: listing and adding.
//!
//! Invariants
//! 1. Adding is all or nothing: after a failure the branch, the directory and the entry that this call made are gone,
//!    and nothing else is touched.
//! 2. The branch is made by compare-and-swap before the worktree, so that it is known to be this call's own; it is
//!    taken back only while it still is where this call put it.
//! 3. An added worktree is verified (both links, branch): a sibling's `git worktree prune` may unregister it
//!    while it is being made, and git still exits with 0.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::PathBuf;

use tokio::sync::oneshot;

use super::admin::{self, AdminEntry, Link};
use super::error::GitError;
use super::invocation::Patience;
use super::parse::worktrees::{WorktreeEntry, parse};
use super::refs::{Expected, RefUpdate};
use super::sha::Sha;
use super::{Repo, branch_name, ref_files};

/// What the reflog of a branch says that was made with its worktree.
pub(super) const MADE: &str = "branch: Created for a worktree";

/// Files of a repository that git copies, in its own way, into a worktree that it adds.
const NOT_PLAIN_FILES: [&str; 2] = ["config.worktree", "info/sparse-checkout"];
/// What a configuration mentions that changes how git adds a worktree.
const NOT_PLAIN: [&str; 5] =
    ["sharedrepository", "worktreeconfig", "relativeworktrees", "userelativepaths", "sparsecheckout"];

/// A worktree to be added.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddWorktree {
    /// Its root; absolute, must not exist. Missing parents are made, and stay when adding fails.
    pub path: PathBuf,
    /// The new branch; with none the commit is checked out without one.
    pub branch: Option<String>,
    /// The commit that the branch starts at, or that is checked out.
    pub start: Sha,
    /// Why it is locked: locked worktrees survive a `git worktree prune` that cannot see their directory. It should name
    /// this worktree alone, because a half-made entry is known by it.
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

    /// The worktrees in which one of these branches is checked out. Starts no process where no `HEAD` names one.
    ///
    /// # Errors
    /// W102.
    pub async fn checkouts_of(&self, branches: &[&str]) -> Result<Vec<WorktreeEntry>, GitError> {
        let names = admin::names(&self.common_dir).map_err(|source| GitError::reading(&*self.common_dir, source))?;
        let linked = names.into_iter().map(|name| self.common_dir.join("worktrees").join(name));
        let mut dirs = std::iter::once(self.common_dir.to_path_buf()).chain(linked);
        // One that cannot be read is left to git.
        let meant = |named: Option<&str>| named.is_some_and(|named| branches.contains(&named));
        let elsewhere = |named: &Option<Option<String>>| named.as_ref().is_some_and(|named| !meant(named.as_deref()));
        if dirs.all(|dir| ref_files::head_branch(&dir).is_ok_and(|named| elsewhere(&named))) {
            return Ok(Vec::new());
        }
        let mut entries = self.worktrees().await?;
        entries.retain(|entry| !entry.bare && meant(entry.branch.as_deref()));
        Ok(entries)
    }

    /// Adds a locked worktree on a new branch, without files and without an upstream. Fill it with
    /// [`super::Tree::checkout_fresh`].
    ///
    /// Once begun it runs to its end, also when the caller stops waiting; it is then taken back. Returns git's entry.
    ///
    /// # Errors
    /// W111 for a bad branch name or a relative path, W120 and W121 when the branch cannot be made, W102 when the path
    /// is taken, a lock stays taken, or git fails. In every case nothing of this call remains.
    pub async fn add_worktree(&self, add: &AddWorktree) -> Result<AdminEntry, GitError> {
        add.branch.as_deref().map_or(Ok(()), branch_name::require)?;
        if !add.path.is_absolute() {
            let name = add.path.display().to_string();
            return Err(GitError::Malformed { name, why: "the path must be absolute" });
        }
        if add.path.symlink_metadata().is_ok() {
            return Err(GitError::PathTaken { path: add.path.clone() });
        }
        let (told, answer) = oneshot::channel();
        let (repo, add) = (self.clone(), add.clone());
        tokio::spawn(async move {
            let added = repo.added(add).await;
            // Nobody waits any more: what was added is dropped here, which takes it back.
            told.send(added).map_or_else(drop, |()| ());
        });
        let (added, entry) = answer.await.unwrap_or_else(|_| {
            let source = std::io::Error::other("the runtime is shutting down");
            Err(GitError::Spawn { program: "git".to_owned(), source })
        })?;
        added.keep();
        Ok(entry)
    }

    async fn added(&self, add: AddWorktree) -> Result<(Undo, AdminEntry), GitError> {
        let known = admin::names(&self.common_dir);
        let known = known.map_err(|source| GitError::reading(self.common_dir.join("worktrees"), source))?;
        if let Some(branch) = &add.branch {
            self.make_branch(branch, &add.start).await?;
        }
        let addition = Addition { repo: self.clone(), add, known };
        match self.add_on_branch(&addition).await {
            Ok(entry) => Ok((Undo(Some(addition)), entry)),
            Err(error) => {
                addition.take_back().await;
                Err(error)
            }
        }
    }

    /// Makes the branch of a worktree, marked as made for one.
    ///
    /// # Errors
    /// W111 for a bad name, W120 and W121 when it cannot be made, W102.
    pub async fn make_branch(&self, branch: &str, start: &Sha) -> Result<(), GitError> {
        branch_name::require(branch)?;
        match self.update_ref(&format!("refs/heads/{branch}"), start, Expected::Absent, MADE).await? {
            RefUpdate::Done => Ok(()),
            RefUpdate::Lost { .. } => Err(GitError::BranchExists { branch: branch.to_owned() }),
        }
    }

    async fn add_on_branch(&self, addition: &Addition) -> Result<AdminEntry, GitError> {
        let add = &addition.add;
        if self.adds_plainly(add).await? {
            let head = match &add.branch {
                Some(branch) => format!("ref: refs/heads/{branch}"),
                None => add.start.to_string(),
            };
            match admin::add(&self.common_dir, &add.path, &head, &add.lock_reason) {
                Ok(()) => return self.verify_added(add),
                Err(error) => {
                    tracing::debug!(path = %add.path.display(), %error, "git adds the worktree");
                    addition.take_back_entry();
                }
            }
        }
        // A branch with the form of an object id is taken for that object; the worktree is put on it afterwards.
        let is_like_an_object = add.branch.as_ref().is_some_and(|branch| branch.parse::<Sha>().is_ok());
        let named = add.branch.as_deref().filter(|_| !is_like_an_object);
        let mut patience = Patience::new(self.git.limit());
        loop {
            let output = self
                .command(["worktree", "add", "--no-checkout", "--no-guess-remote", "--lock", "--reason"])
                .arg(&add.lock_reason)
                .args(add.branch.is_none().then_some("--detach"))
                .arg("--")
                .arg(&add.path)
                .arg(named.unwrap_or(add.start.as_str()))
                .writes()
                .run()
                .await?;
            if output.code == Some(0) {
                if let Some(branch) = add.branch.as_deref().filter(|_| is_like_an_object) {
                    self.git.tree(&add.path)?.attach(branch).await?;
                }
                return self.verify_added(add);
            }
            let failure = output.failure();
            if !matches!(failure, GitError::LockContention { .. }) {
                return Err(failure);
            }
            addition.take_back_entry();
            if !patience.pause().await {
                return Err(failure);
            }
        }
    }

    /// Whether adding a worktree comes to no more than a few files: nothing is configured that git copies, links or
    /// shares in another way, and nobody else has the branch.
    async fn adds_plainly(&self, add: &AddWorktree) -> Result<bool, GitError> {
        let there = |file: &str| self.common_dir.join(file).symlink_metadata().is_ok();
        if ref_files::is_reftable(&self.common_dir) || NOT_PLAIN_FILES.iter().any(|file| there(file)) {
            return Ok(false);
        }
        let Some(text) = self.place().text_without_includes() else { return Ok(false) };
        let text = String::from_utf8_lossy(&text).to_ascii_lowercase();
        if NOT_PLAIN.iter().any(|word| text.contains(word)) {
            return Ok(false);
        }
        match &add.branch {
            Some(branch) => Ok(self.checkouts_of(&[branch]).await?.is_empty()),
            None => Ok(true),
        }
    }

    fn verify_added(&self, add: &AddWorktree) -> Result<AdminEntry, GitError> {
        let broken = |why: String| GitError::NotAWorktree { path: add.path.clone(), why };
        let link = admin::verify_link(&self.common_dir, &add.path);
        let entry = match link.map_err(|source| GitError::reading(&add.path, source))? {
            Link::Intact(entry) => entry,
            Link::DirectoryGone { .. } => return Err(broken("it vanished while it was being made".to_owned())),
            Link::Broken { why } => return Err(broken(why)),
        };
        let tree = self.git.tree(&add.path)?;
        if tree.head_branch()? != add.branch {
            return Err(broken(format!("it is not on {}", add.branch.as_deref().unwrap_or("a commit alone"))));
        }
        Ok(entry)
    }
}

/// A worktree that is being added, and what is needed to take it back.
struct Addition {
    repo: Repo,
    add: AddWorktree,
    /// The entries there were before.
    known: BTreeSet<OsString>,
}

impl Addition {
    async fn take_back(&self) {
        if !self.take_back_entry() {
            return;
        }
        let Some(branch) = &self.add.branch else { return };
        match self.repo.delete_ref(&format!("refs/heads/{branch}"), &self.add.start).await {
            Ok(RefUpdate::Done) => {}
            Ok(RefUpdate::Lost { .. }) => {
                tracing::warn!(branch, "the branch moved while its worktree failed; it is kept");
            }
            Err(error) => tracing::warn!(%error, branch, "the branch of a failed add is left behind"),
        }
    }

    /// Removes the entry and the directory that the failed process left. `false` when something stays.
    fn take_back_entry(&self) -> bool {
        let path = self.add.path.display();
        match admin::take_back(&self.repo.common_dir, &self.add.path, &self.add.lock_reason, &self.known) {
            Ok(true) => return true,
            Ok(false) => tracing::warn!(%path, "a worktree that was not wanted any more holds files; it is kept"),
            Err(error) => tracing::warn!(%error, %path, "the entry of a failed add is left behind"),
        }
        false
    }
}

/// Takes an addition back in the background when it is dropped instead of kept.
struct Undo(Option<Addition>);

impl Undo {
    fn keep(mut self) {
        self.0 = None;
    }
}

impl Drop for Undo {
    fn drop(&mut self) {
        let Some(addition) = self.0.take() else { return };
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { addition.take_back().await });
        }
    }
}
