//! A real rebase, in the worktree.
//!
//! It is what `git rebase <onto>` does in the user's configuration, less what runs programs or touches anything else:
//! no hooks, no stash, no other branches, no reordering.
//!
//! Invariants
//! 1. A conflict is reported only when git stopped with files in conflict; a process that was ended is an error.
//! 2. A rebase that stopped for any other reason is aborted here, because it was begun here; one that was open before
//!    is refused and left alone.
//! 3. No file that git does not know is overwritten. Git would overwrite ignored ones, so they are looked for first: at
//!    everything the new base adds, and at everything any of the commits adds, also where a later one removes it.
//! 4. What somebody committed in the worktree while it was rebased, on the detached HEAD or on the branch, may be on no
//!    branch when that is aborted or has ended: a ref below [`BACKUPS`] keeps it.
//! 5. A rebase is done only when it took the commit that it was given and nothing else. Git looks at HEAD itself, later
//!    than the caller did, and tells of no difference.

use std::path::PathBuf;

use super::error::GitError;
use super::program::Signing;
use super::reflog::{Move, moves};
use super::sha::Sha;
use super::{Operation, Tree, parse};

/// What a rebase did is read from the reflogs afterwards, whatever the user has configured.
const WRITE_REFLOGS: (&str, &str) = ("core.logAllRefUpdates", "true");

/// How a rebase ended.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum RebaseOutcome {
    /// The branch, as it was given, sits on the new base.
    Done {
        /// The new tip.
        head: Sha,
    },
    /// Somebody else moved the branch before or during the rebase, which may have taken along what came.
    Moved {
        /// The ref that keeps what is on no branch now.
        kept: Option<String>,
    },
    /// Git stopped at a conflict, which is left open in the worktree.
    Conflict {
        /// The files in conflict.
        files: Vec<PathBuf>,
    },
    /// Git could not rebase; the worktree is as before.
    Failed {
        /// Git's words.
        message: String,
    },
}

impl Tree {
    /// Rebases the checked out branch, which is at `tip`, onto a commit.
    ///
    /// # Errors
    /// W402 and W403 when an operation is open already; W101 when the process was ended, which leaves the rebase open:
    /// call [`Tree::abort_rebase`]; W503 when the repository defines a program that policy does not allow; W102.
    pub async fn rebase(&self, tip: &Sha, onto: &Sha) -> Result<RebaseOutcome, GitError> {
        if let Some(operation) = self.operation() {
            return Err(GitError::OperationOpen { path: self.root().to_owned(), operation });
        }
        self.require_allowed_drivers().await?;
        self.refuse_unsigned().await?;
        if self.head().await?.as_ref() != Some(tip) {
            return Ok(RebaseOutcome::Moved { kept: None });
        }
        let unknown = self.unknown_at(self.added_by_rebase(tip, onto).await?).await?;
        if !unknown.is_empty() {
            let error = GitError::FilesInTheWay { path: self.root().to_owned(), files: unknown };
            return Ok(RebaseOutcome::Failed { message: error.to_string() });
        }
        let output = self
            .command(["rebase", "--merge", "--no-autostash", "--no-autosquash", "--no-update-refs", "--no-fork-point"])
            .args(["--no-rebase-merges", "--no-rerere-autoupdate", "--no-verify", "--no-stat"])
            .arg(onto)
            .config(WRITE_REFLOGS.0, WRITE_REFLOGS.1)
            .writes()
            .run()
            .await?;
        if output.code == Some(0) {
            return self.rebased(tip, onto).await;
        }
        if output.signal.is_some() {
            return Err(output.failure());
        }
        let open = self.operation() == Some(Operation::Rebase);
        let files = if open { self.conflicted_files().await? } else { Vec::new() };
        if !files.is_empty() {
            return Ok(RebaseOutcome::Conflict { files });
        }
        if open {
            Box::pin(self.abort_rebase()).await?;
        }
        match output.failure() {
            GitError::Failed { stderr, .. } => Ok(RebaseOutcome::Failed { message: stderr.trim().to_owned() }),
            other => Err(other),
        }
    }

    /// Every path that is added on the way from `head` to its rebased commits.
    async fn added_by_rebase(&self, head: &Sha, onto: &Sha) -> Result<Vec<PathBuf>, GitError> {
        let mut added = self.differing(head, onto, "--diff-filter=AT").await?;
        let list =
            self.command(["rev-list", "--no-merges"]).arg(format!("{onto}..{head}")).arg("--").run().await?.stdout()?;
        let command =
            self.command(["diff-tree", "--stdin", "--no-commit-id", "-r", "-z", "--name-only", "--no-renames"]);
        let output = command.args(["--root", "--diff-filter=AT"]).stdin(list).run().await?.stdout()?;
        added.extend(parse::paths::list("git diff-tree", &output)?);
        Ok(added)
    }

    /// Puts branch, index and files back to where they were before the rebase. Nothing happens when none is open.
    ///
    /// # Errors
    /// W102, also when that would overwrite a file that git does not know.
    pub async fn abort_rebase(&self) -> Result<(), GitError> {
        if self.operation() != Some(Operation::Rebase) {
            return Ok(());
        }
        self.require_allowed_drivers().await?;
        let (head, branch) = (self.head().await?, self.noted("head-name"));
        let branch = branch.filter(|name| name.starts_with("refs/heads/"));
        let (before, onto) = (self.noted_commit("orig-head"), self.noted_commit("onto"));
        let Some(before) = before else { return self.abort().await };
        if let Some(head) = &head {
            let files = self.unknown_in_the_way(head, &before).await?;
            if !files.is_empty() {
                return Err(GitError::FilesInTheWay { path: self.root().to_owned(), files });
            }
        }
        // The abort also puts the branch back, whatever it is at.
        let tip = match &branch {
            Some(branch) => self.repo().ref_sha(branch).await?,
            None => None,
        };
        for made in head.iter().chain(&tip) {
            self.keep_others(made, &before, onto.as_ref()).await?;
        }
        self.abort().await?;
        // What came right before it.
        let logs = [
            Some(self.git_dir().join("logs/HEAD")),
            branch.map(|name| self.repo().common_dir().join("logs").join(name)),
        ];
        for Move { from: left, why, .. } in logs.iter().flatten().filter_map(|log| moves(log).into_iter().next()) {
            if why.contains("(abort)") && Some(&left) != head.as_ref() && Some(&left) != tip.as_ref() {
                self.keep_others(&left, &before, onto.as_ref()).await?;
            }
        }
        Ok(())
    }

    async fn abort(&self) -> Result<(), GitError> {
        let abort = self.command(["rebase", "--abort"]).config(WRITE_REFLOGS.0, WRITE_REFLOGS.1);
        abort.writes().run_patiently().await?.expect(&[0])?;
        Ok(())
    }

    /// A commit that git has written down of the rebase that is open: where the branch was, and where it goes.
    fn noted_commit(&self, file: &str) -> Option<Sha> {
        self.noted(file)?.parse().ok()
    }

    fn noted(&self, file: &str) -> Option<String> {
        let read = |dir: &str| std::fs::read_to_string(self.git_dir().join(dir).join(file)).ok();
        Some(read("rebase-merge").or_else(|| read("rebase-apply"))?.trim().to_owned())
    }

    /// The files of which the index holds several versions.
    ///
    /// # Errors
    /// W102.
    pub async fn conflicted_files(&self) -> Result<Vec<PathBuf>, GitError> {
        let output = self
            .command(["diff", "--name-only", "--diff-filter=U", "--no-ext-diff", "--no-textconv", "-z"])
            .run()
            .await?;
        let mut files = parse::paths::list("git diff", &output.stdout()?)?;
        files.dedup();
        Ok(files)
    }

    async fn refuse_unsigned(&self) -> Result<(), GitError> {
        if self.git.policy().signing == Signing::Fail && self.repo().wants_signatures().await? {
            return Err(GitError::SigningRequired { path: self.root().to_owned() });
        }
        Ok(())
    }
}
