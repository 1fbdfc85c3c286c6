//! A worktree that stands by without a branch: brought to another commit, put on a branch, and taken off it again.

use std::path::PathBuf;

use super::checkout::MoveOutcome;
use super::error::GitError;
use super::sha::Sha;
use super::{Tree, branch_name, index};

/// What became of bringing a worktree to another commit.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum Advance {
    /// Files, index and HEAD are those of the commit.
    Done,
    /// A new checkout is better: rules for files differ between the commits, or most of the files do. Nothing changed.
    Unsuitable,
    /// Something is in the way; nothing changed.
    InTheWay(Vec<PathBuf>),
}

/// Files that decide about other files.
const RULES: [&str; 2] = [".gitattributes", ".gitmodules"];

impl Tree {
    /// Brings a worktree without changes, whose HEAD is the commit `old` alone, to `new`. Repeated after it was cut off,
    /// it finishes.
    ///
    /// # Errors
    /// W503 when the repository defines a program that policy does not allow; W102.
    pub async fn advance(&self, old: &Sha, new: &Sha) -> Result<Advance, GitError> {
        let changed = self.changed_paths(old, new).await?;
        let is_rule = |path: &PathBuf| path.file_name().is_some_and(|name| RULES.iter().any(|rule| name == *rule));
        let most = index::count(self.git_dir()).is_none_or(|files| changed.len() > files / 2 + 100);
        if most || changed.iter().any(is_rule) {
            return Ok(Advance::Unsuitable);
        }
        if let MoveOutcome::InTheWay { files } = self.fast_forward(old, new).await? {
            return Ok(Advance::InTheWay(files));
        }
        self.detach_at(new).await?;
        Ok(Advance::Done)
    }

    /// Makes HEAD name a commit alone. Files and index are left as they are.
    ///
    /// # Errors
    /// W102.
    pub async fn detach_at(&self, commit: &Sha) -> Result<(), GitError> {
        let command = self.command(["update-ref", "--no-deref", "-m", "worktree: stand by", "HEAD", commit.as_str()]);
        command.writes().run_patiently().await?.expect(&[0])?;
        Ok(())
    }

    /// Makes HEAD name a branch, which need not exist. Files and index are left as they are.
    ///
    /// # Errors
    /// W111 for a bad name, W102.
    pub async fn attach(&self, branch: &str) -> Result<(), GitError> {
        branch_name::require(branch)?;
        let command = self.command(["symbolic-ref", "HEAD", &format!("refs/heads/{branch}")]);
        command.writes().run_patiently().await?.expect(&[0])?;
        Ok(())
    }
}
