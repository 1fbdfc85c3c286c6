//! What a worktree looks like next to its HEAD.

use super::Tree;
use super::error::GitError;
use super::parse::status::{TreeStatus, parse};

impl Tree {
    /// The status, whatever the configuration says should be shown: files git does not know always count, and so do
    /// changes inside submodules. Takes no lock and reaches for no remote.
    ///
    /// # Errors
    /// W102.
    pub async fn status(&self) -> Result<TreeStatus, GitError> {
        let output = self
            .command(["status", "--porcelain=v2", "--branch", "--ahead-behind", "-z"])
            .args(["--untracked-files=normal", "--ignore-submodules=none", "--renames"])
            .offline()
            .run()
            .await?;
        parse(&output.stdout()?)
    }

    /// Writes what `status` would learn about unchanged files into the index.
    ///
    /// Right after a checkout all files are as old as the index, so every lock-free status reads them again; one
    /// refresh makes the following ones about eight times as fast. A refresh that finds changed files or a taken lock
    /// is no failure.
    ///
    /// # Errors
    /// W100 and W101.
    pub async fn refresh_index(&self) -> Result<(), GitError> {
        let output = self.command(["update-index", "-q", "--refresh"]).writes().run().await?;
        if output.code != Some(0) {
            tracing::debug!(root = %self.root().display(), "the index was not refreshed");
        }
        Ok(())
    }
}
