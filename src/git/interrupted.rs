//! What is left of an operation: whether a rebase waits for its owner or was cut off, and how to discard it.

use std::path::Path;

use super::error::GitError;
use super::sha::Sha;
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

    /// Whether the last thing that moved HEAD was the end of a rebase, as far as the reflog tells. False where there is
    /// no reflog to read.
    #[must_use]
    pub fn last_move_was_rebase(&self) -> bool {
        last_move(&self.git_dir().join("logs/HEAD"))
            .is_some_and(|(_, message)| message.starts_with("rebase") && message.contains("(finish)"))
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

/// The last line of a reflog: the commit that the ref was at before, and why it moved.
pub(super) fn last_move(log: &Path) -> Option<(Sha, String)> {
    let log = std::fs::read(log).ok()?;
    let last = String::from_utf8_lossy(log.trim_ascii_end().rsplit(|byte| *byte == b'\n').next()?).into_owned();
    let (moved, message) = last.split_once('\t')?;
    Some((moved.split(' ').next()?.parse().ok()?, message.to_owned()))
}
