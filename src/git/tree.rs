//! A worktree, named by its root.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::clean;
use super::error::GitError;
use super::invocation::Invocation;
use super::own_config::Place;
use super::parse::status::TreeStatus;
use super::ref_files::{self, Told};
use super::refs::short_branch;
use super::sha::Sha;
use super::{Git, Repo, index};

/// From how many files on a look at them takes longer than a process.
const MANY: usize = 500;

/// A worktree: the primary checkout of a repository or a linked one. Runs
/// `git --git-dir=<git dir> --work-tree=<root>` in its root. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Tree {
    pub(super) git: Git,
    root: Arc<Path>,
    git_dir: Arc<Path>,
    common_dir: Arc<Path>,
}

impl Tree {
    /// All paths canonical.
    pub(super) fn at(git: &Git, root: PathBuf, git_dir: PathBuf, common_dir: PathBuf) -> Tree {
        Tree { git: git.clone(), root: root.into(), git_dir: git_dir.into(), common_dir: common_dir.into() }
    }

    pub(super) fn command(&self, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Invocation {
        Invocation::new(&self.git, args).in_tree(&self.common_dir, &self.git_dir, &self.root)
    }

    pub(super) fn place(&self) -> Place {
        Place {
            common_dir: self.common_dir.to_path_buf(),
            git_dir: self.git_dir.to_path_buf(),
            root: Some(self.root.to_path_buf()),
        }
    }

    /// The same worktree through another limit or policy.
    #[must_use]
    pub fn with_git(&self, git: &Git) -> Tree {
        Tree { git: git.clone(), ..self.clone() }
    }

    /// The same worktree after its directory was renamed to `root`, while its git directory is still there.
    #[must_use]
    pub fn renamed_to(&self, root: &Path) -> Tree {
        Tree { root: root.into(), ..self.clone() }
    }

    /// Its root directory, canonical.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Its own git directory: the common directory, or its entry below `worktrees`.
    #[must_use]
    pub fn git_dir(&self) -> &Path {
        &self.git_dir
    }

    /// The repository it belongs to.
    #[must_use]
    pub fn repo(&self) -> Repo {
        Repo::at(&self.git, &self.common_dir)
    }

    /// Whether it is the repository's own checkout, which is never created or removed here.
    #[must_use]
    pub fn is_primary(&self) -> bool {
        self.git_dir == self.common_dir
    }

    /// The commit checked out; `None` on an unborn branch.
    ///
    /// # Errors
    /// W102.
    pub async fn head(&self) -> Result<Option<Sha>, GitError> {
        if let Told::Is(sha) = ref_files::head(&self.git_dir, &self.common_dir)? {
            return Ok(Some(sha));
        }
        let output = self
            .command(["rev-parse", "--quiet", "--verify", "--end-of-options", "HEAD^{commit}"])
            .offline()
            .run()
            .await?
            .expect(&[0, 1])?;
        if output.code == Some(1) {
            return Ok(None);
        }
        super::parse::refs::one("git rev-parse", &output.stdout).map(Some)
    }

    /// The branch checked out, which need not have commits; `None` when detached. Reads `HEAD` itself and starts a
    /// process only where refs are kept in another format (reftable), blocking the caller for that time.
    ///
    /// # Errors
    /// W102.
    pub fn head_branch(&self) -> Result<Option<String>, GitError> {
        match ref_files::head_branch(&self.git_dir)? {
            Some(named) => Ok(named),
            None => self.head_branch_by_git(),
        }
    }

    fn head_branch_by_git(&self) -> Result<Option<String>, GitError> {
        let command = self.command(["symbolic-ref", "--quiet", "HEAD"]);
        let blocking = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .map_err(|source| GitError::Spawn { program: "git".to_owned(), source })?;
            runtime.block_on(command.run())
        });
        let output = match blocking.join() {
            Ok(output) => output?.expect(&[0, 1])?,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        Ok(short_branch(&output.stdout))
    }

    /// Removes the worktree the plain way, `git worktree remove`. It must not be locked.
    ///
    /// Without force, git refuses when it holds changes or files git does not know, or submodules. Ignored files go with
    /// it, and so do the changes of [`Tree::hidden_changes`].
    ///
    /// # Errors
    /// W102 with git's reason.
    pub async fn remove(&self, force: bool) -> Result<(), GitError> {
        let mut command = self.repo().command(["worktree", "remove"]);
        if force {
            command = command.arg("--force");
        }
        command.arg("--").arg(self.root.as_os_str()).writes().run().await?.expect(&[0])?;
        Ok(())
    }

    /// The status where it can be told without git that there is nothing to tell: index and files are those of HEAD, there
    /// are no others, not even ignored ones, no submodules, and no files that git was told not to look at. Without what
    /// is known of an upstream. `None` says nothing: ask [`Tree::status`].
    pub async fn proven_clean(&self) -> Option<TreeStatus> {
        let (head, branch) = (self.head().await.ok()??, self.head_branch().ok()?);
        let repo = self.repo();
        let tree = async { repo.tree_of(&head).await.ok() };
        // To ask for the tree may take a process: beside a long look, else only after one that has found nothing.
        let (proven, tree) = if index::count(&self.git_dir)? < MANY {
            (Some(self.proven_tree().await?), tree.await)
        } else {
            tokio::join!(self.proven_tree(), tree)
        };
        let clean = proven? == tree? && self.head().await.ok()?.as_ref() == Some(&head);
        clean.then(|| TreeStatus { head: Some(head), branch, ..TreeStatus::default() })
    }

    /// Whether it can be told without git that index and files are those of the tree `head_tree`, and that there are no
    /// others. `false` says nothing: ask [`Tree::status`].
    pub async fn is_proven_clean(&self, head_tree: &Sha) -> bool {
        self.proven_tree().await.as_ref() == Some(head_tree)
    }

    async fn proven_tree(&self) -> Option<Sha> {
        let (root, git_dir) = (Arc::clone(&self.root), Arc::clone(&self.git_dir));
        tokio::task::spawn_blocking(move || clean::proven_tree(&root, &git_dir)).await.ok()?
    }

    /// Whether git ignores this path of the worktree; nothing need be there.
    ///
    /// # Errors
    /// W102, also for a path outside.
    pub async fn ignores(&self, path: &Path) -> Result<bool, GitError> {
        let command = self.command(["check-ignore", "--quiet", "--"]).arg(path.as_os_str());
        Ok(command.offline().run().await?.expect(&[0, 1])?.code == Some(0))
    }

    /// What git ignores here, relative to the root. A directory that a pattern ignores is one entry and ends with a
    /// slash; of a directory that merely holds ignored files, the files are listed. Nothing inside a nested repository.
    ///
    /// `ls-files --ignored --directory` would name both a directory and the ignored files in it.
    ///
    /// # Errors
    /// W102.
    pub async fn ignored_entries(&self) -> Result<Vec<PathBuf>, GitError> {
        let output = self
            .command(["status", "--porcelain=v2", "-z", "--ignored=matching", "--untracked-files=normal"])
            .args(["--ignore-submodules=all", "--no-renames"])
            .offline()
            .run()
            .await?;
        super::parse::status::ignored(&output.stdout()?)
    }
}
