//! What a rebase took, seen from its end: whether it was what it was given, and where the rest is kept.

use std::collections::BTreeSet;

use super::error::GitError;
use super::reflog::moves;
use super::sha::Sha;
use super::{Expected, RebaseOutcome, RefUpdate, Tree};

/// Where the last commits of worktrees are kept.
pub const BACKUPS: &str = "refs/iii/wt-backup/";

impl Tree {
    /// How a rebase of the checked out branch, which was at `tip`, onto a commit ended, when it ran to its end: git went
    /// from where the branch was when it looked (invariants 4 and 5 of the rebase).
    ///
    /// Source: git ends a rebase with two moves, `rebase (finish): <branch> onto <commit>` of the branch, in a
    /// fast-forward without comparing, and `rebase (finish): returning to <branch>` of HEAD.
    ///
    /// # Errors
    /// W102.
    pub async fn rebased(&self, tip: &Sha, onto: &Sha) -> Result<RebaseOutcome, GitError> {
        let moved = Ok(RebaseOutcome::Moved { kept: None });
        let (Some(head), Some(branch)) = (self.head().await?, self.head_branch()?) else { return moved };
        let branch = format!("refs/heads/{branch}");
        let log = moves(&self.repo().common_dir().join("logs").join(&branch));
        let finish = format!("rebase (finish): {branch} onto {onto}");
        let mut since = log.iter().take_while(|line| line.to != *tip);
        let (from, to) = match since.find(|line| line.why == finish) {
            Some(line) => (line.from.clone(), line.to.clone()),
            None if head == *tip && self.repo().is_ancestor(onto, tip).await? => {
                return Ok(RebaseOutcome::Done { head });
            }
            None if log.is_empty() => match self.resolve_commit("ORIG_HEAD").await? {
                Some(from) => (from, head),
                None => return moved,
            },
            None => return moved,
        };
        let mut kept = None;
        if from != *tip {
            kept = Some(self.keep(&from).await?);
        }
        let returned = format!("rebase (finish): returning to {branch}");
        let returned = moves(&self.git_dir().join("logs/HEAD")).into_iter().find(|line| line.why == returned);
        if let Some(left) = returned.map(|line| line.from).filter(|left| *left != to) {
            kept = Some(self.keep(&left).await?);
        }
        // On the detached HEAD, between two commits of the rebase; it is on the branch now.
        if kept.is_some() || !self.only_copies(&to, tip, Some(onto)).await? {
            return Ok(RebaseOutcome::Moved { kept });
        }
        Ok(RebaseOutcome::Done { head: to })
    }

    /// Keeps `head`, a commit on top of `onto`, when anything in it is not a copy of what `before` has there.
    pub(super) async fn keep_others(&self, head: &Sha, before: &Sha, onto: Option<&Sha>) -> Result<(), GitError> {
        if head != before && Some(head) != onto && !self.only_copies(head, before, onto).await? {
            self.keep(head).await?;
        }
        Ok(())
    }

    /// Writes a ref to a commit of which only reflogs know; its name. What is kept there already stays.
    async fn keep(&self, head: &Sha) -> Result<String, GitError> {
        let entry = self.git_dir().file_name().unwrap_or_default().to_string_lossy().into_owned();
        let name = format!("{BACKUPS}{entry}.head");
        for name in [name.clone(), format!("{name}.{head}")] {
            match self.repo().update_ref(&name, head, Expected::Absent, "worktree: made during a rebase").await? {
                RefUpdate::Lost { current } if current.as_ref() != Some(head) => {}
                RefUpdate::Done | RefUpdate::Lost { .. } => {
                    tracing::warn!(root = %self.root().display(), %head, name, "commits made during a rebase are kept");
                    return Ok(name);
                }
            }
        }
        Err(GitError::Malformed { name, why: "other commits have both names of the backup ref" })
    }

    /// Whether every commit that `head` has on top of `onto` is one of `before`, or has its author, date and subject: a
    /// rebase changes none of them.
    async fn only_copies(&self, head: &Sha, before: &Sha, onto: Option<&Sha>) -> Result<bool, GitError> {
        let command = self.command(["rev-list", "--no-commit-header", "--format=%m%an%x00%ae%x00%at%x00%s"]);
        let command = command.args(["--left-right", &format!("{head}...{before}")]);
        let command = command.args(onto.map(|onto| format!("^{onto}"))).arg("--");
        let output = command.run().await?.stdout()?;
        let of =
            |side: &'static [u8]| output.split(|byte| *byte == b'\n').filter_map(move |line| line.strip_prefix(side));
        let own: BTreeSet<&[u8]> = of(b">").collect();
        Ok(of(b"<").all(|commit| own.contains(commit)))
    }
}
