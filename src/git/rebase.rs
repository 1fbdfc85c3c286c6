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
//! 4. What somebody committed in the worktree while it was rebased, on the detached HEAD or on the branch, is on no branch
//!    when that is aborted: a ref below [`BACKUPS`] keeps it.

use std::collections::BTreeSet;
use std::path::PathBuf;

use super::error::GitError;
use super::interrupted::last_move;
use super::program::Signing;
use super::sha::Sha;
use super::{Expected, Operation, RefUpdate, Tree, parse};

/// Where the last commits of worktrees are kept.
pub const BACKUPS: &str = "refs/iii/wt-backup/";

/// How a rebase ended.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum RebaseOutcome {
    /// The branch sits on the new base.
    Done {
        /// The new tip.
        head: Sha,
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
    /// Rebases the checked out branch onto a commit.
    ///
    /// # Errors
    /// W402 and W403 when an operation is open already; W101 when the process was ended, which leaves the rebase open:
    /// call [`Tree::abort_rebase`]; W503 when the repository defines a program that policy does not allow; W102.
    pub async fn rebase(&self, onto: &Sha) -> Result<RebaseOutcome, GitError> {
        if let Some(operation) = self.operation() {
            return Err(GitError::OperationOpen { path: self.root().to_owned(), operation });
        }
        self.require_allowed_drivers().await?;
        self.refuse_unsigned().await?;
        let head = self.head().await?.ok_or_else(|| GitError::RefMissing { name: "HEAD".to_owned() })?;
        let unknown = self.unknown_at(self.added_by_rebase(&head, onto).await?).await?;
        if !unknown.is_empty() {
            let error = GitError::FilesInTheWay { path: self.root().to_owned(), files: unknown };
            return Ok(RebaseOutcome::Failed { message: error.to_string() });
        }
        let output = self
            .command(["rebase", "--merge", "--no-autostash", "--no-autosquash", "--no-update-refs", "--no-fork-point"])
            .args(["--no-rebase-merges", "--no-rerere-autoupdate", "--no-verify", "--no-stat"])
            .arg(onto)
            .writes()
            .run()
            .await?;
        if output.code == Some(0) {
            let head = self.head().await?;
            return head
                .map(|head| RebaseOutcome::Done { head })
                .ok_or_else(|| GitError::RefMissing { name: "HEAD".to_owned() });
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
        for (left, why) in logs.iter().flatten().filter_map(|log| last_move(log)) {
            if why.contains("(abort)") && Some(&left) != head.as_ref() && Some(&left) != tip.as_ref() {
                self.keep_others(&left, &before, onto.as_ref()).await?;
            }
        }
        Ok(())
    }

    async fn abort(&self) -> Result<(), GitError> {
        self.command(["rebase", "--abort"]).writes().run_patiently().await?.expect(&[0])?;
        Ok(())
    }

    /// Keeps `head`, a commit on top of `onto`, when anything in it is not a copy of what `before` has there (invariant 4).
    async fn keep_others(&self, head: &Sha, before: &Sha, onto: Option<&Sha>) -> Result<(), GitError> {
        if head == before || Some(head) == onto {
            return Ok(());
        }
        let rebased = self.authored(head, [Some(before), onto]).await?;
        if rebased.is_empty() {
            return Ok(());
        }
        let own = self.authored(before, [onto, None]).await?;
        if rebased.iter().all(|commit| own.contains(commit)) {
            return Ok(());
        }
        let entry = self.git_dir().file_name().unwrap_or_default().to_string_lossy().into_owned();
        // What is kept there already stays.
        let name = format!("{BACKUPS}{entry}.head");
        let names = [name.clone(), format!("{name}.{head}")];
        for name in &names {
            match self.repo().update_ref(name, head, Expected::Absent, "worktree: made during a rebase").await? {
                RefUpdate::Lost { current } if current.as_ref() != Some(head) => {}
                RefUpdate::Done | RefUpdate::Lost { .. } => {
                    tracing::warn!(root = %self.root().display(), %head, name, "commits made during a rebase are kept");
                    return Ok(());
                }
            }
        }
        Err(GitError::Malformed { name, why: "other commits have both names of the backup ref" })
    }

    /// Author, date and subject of the commits of `tip` that none of `known` has; a rebase changes none of them.
    async fn authored(&self, tip: &Sha, known: [Option<&Sha>; 2]) -> Result<BTreeSet<Vec<u8>>, GitError> {
        let known = known.into_iter().flatten().map(Sha::as_str);
        let args = ["rev-list", "--no-commit-header", "--format=%an%x00%ae%x00%at%x00%s", tip.as_str(), "--not"];
        let output = self.command(args.into_iter().chain(known).chain(["--"])).run().await?.stdout()?;
        Ok(output.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).map(<[u8]>::to_vec).collect())
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
