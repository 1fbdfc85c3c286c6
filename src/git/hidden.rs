//! Changes that git was told not to look at.
//!
//! `git update-index --assume-unchanged` and `--skip-worktree` make git report a changed file as clean. Whoever deletes
//! a worktree on the word of `git status` loses such changes, so they can be asked for.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use super::error::GitError;
use super::status::{careful, copy_as_old};
use super::{Tree, index, parse};

impl Tree {
    /// The files that differ from the index although git reports them as clean, relative to the root. A file that a
    /// sparse checkout leaves out does not count.
    ///
    /// No process where nothing is hidden. Otherwise the index is copied, told to look again, and compared; the
    /// worktree's own index is not touched.
    ///
    /// # Errors
    /// W102.
    pub async fn hidden_changes(&self) -> Result<Vec<PathBuf>, GitError> {
        if index::scan(self.git_dir()).is_some_and(|holds| !holds.hidden) {
            return Ok(Vec::new());
        }
        let listed = self.command(["ls-files", "-v", "-z"]).offline().run().await?.stdout()?;
        let mut hidden = parse::paths::hidden("git ls-files", &listed)?;
        hidden.retain(|path| self.root().join(path).symlink_metadata().is_ok());
        if hidden.is_empty() {
            return Ok(hidden);
        }
        let copy = IndexCopy::of(self)?;
        let list = parse::paths::joined(&hidden);
        for flag in ["--no-assume-unchanged", "--no-skip-worktree"] {
            let command = self.command(["update-index", flag, "-z", "--stdin"]).env_path("GIT_INDEX_FILE", &copy.0);
            command.configs(careful()).stdin(list.clone()).writes().run().await?.expect(&[0])?;
        }
        let command = self.command(["diff-files", "--name-only", "-z", "--ignore-submodules=none"]);
        let command = command.configs(self.submodule_overrides().await?).configs(careful());
        let differing = command.env_path("GIT_INDEX_FILE", &copy.0).offline().run().await?.stdout()?;
        let differing = parse::paths::list("git diff-files", &differing)?;
        hidden.retain(|path| differing.contains(path));
        Ok(hidden)
    }
}

/// A copy of an index beside it, so that the parts a split index shares are found; deleted at the end.
struct IndexCopy(PathBuf);

impl IndexCopy {
    fn of(tree: &Tree) -> Result<IndexCopy, GitError> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let copy = IndexCopy(tree.git_dir().join(format!("iii-index.{}.{count}", std::process::id())));
        let index = tree.git_dir().join("index");
        copy_as_old(&index, &copy.0).map_err(|source| GitError::reading(index, source))?;
        Ok(copy)
    }
}

impl Drop for IndexCopy {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.0) {
            tracing::warn!(%error, path = %self.0.display(), "a copy of an index is left behind");
        }
    }
}
