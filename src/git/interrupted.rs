//! What is left of an operation: whether a rebase waits for its owner or was cut off, and how to discard it.

use super::error::GitError;
use super::{Operation, Tree};

impl Tree {
    /// Whether an open rebase has stopped for its owner (a conflict, a failed command, an `edit`), as opposed to having
    /// been killed in the middle. Starts no process.
    ///
    /// Source: git keeps `stopped-sha`, and `patch` for the am backend, exactly while it waits.
    #[must_use]
    pub fn rebase_stopped(&self) -> bool {
        ["rebase-merge/stopped-sha", "rebase-merge/message", "rebase-merge/amend", "rebase-apply/patch"]
            .iter()
            .any(|file| self.git_dir().join(file).symlink_metadata().is_ok())
    }

    /// Discards the operation that is open, with whatever was done to resolve it. Nothing happens when none is open.
    ///
    /// # Errors
    /// W102.
    pub async fn abort_operation(&self) -> Result<(), GitError> {
        let args: &[&str] = match self.operation() {
            None => return Ok(()),
            Some(Operation::Rebase) => return self.abort_rebase().await,
            Some(Operation::Am) => &["am", "--abort"],
            Some(Operation::Merge) => &["merge", "--abort"],
            Some(Operation::CherryPick) => &["cherry-pick", "--abort"],
            Some(Operation::Revert) => &["revert", "--abort"],
            Some(Operation::Bisect) => &["bisect", "reset"],
        };
        self.require_allowed_drivers().await?;
        self.command(args).writes().run_patiently().await?.expect(&[0])?;
        Ok(())
    }
}
