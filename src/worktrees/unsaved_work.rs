//! The one predicate that every path that can delete a worktree asks: what would be lost?
//!
//! Ignored files never count: they can be made again. Everything that cannot be told counts as work.
//!
//! Invariants
//! 1. There is no second judgement of this kind: remove, prune and the end of a land all call [`judge`].
//! 2. A probe that fails adds to `unknown`, and `unknown` keeps.

use crate::git::{Operation, Repo, Sha, Tree};
use crate::model::record::Record;
use crate::model::{Code, Error, Result};
use crate::worktrees::inspect;

/// What a worktree holds that is saved nowhere else.
#[derive(Debug, Clone, Default)]
pub struct UnsavedWork {
    /// Changed, staged or conflicted tracked files.
    pub changed: u64,
    /// Untracked files that are not ignored.
    pub untracked: u64,
    /// Commits since the base that the target does not contain.
    pub not_landed: u64,
    /// Commits that are on no remote-tracking branch.
    pub on_no_remote: u64,
    /// A git operation that is open.
    pub operation: Option<Operation>,
    /// The commit that was judged.
    pub head: Option<Sha>,
    /// Probes that failed, in words.
    pub unknown: Vec<String>,
}

/// Judges a worktree.
pub async fn judge(record: &Record, tree: &Tree) -> UnsavedWork {
    let mut work = UnsavedWork { operation: tree.operation(), ..UnsavedWork::default() };
    match tree.status().await {
        Ok(status) => {
            work.changed = status.staged + status.unstaged + status.conflicted;
            work.untracked = status.untracked;
            work.head = status.head;
        }
        Err(error) => work.unknown.push(format!("git status: {error}")),
    }
    let Some(head) = work.head.clone() else { return work };
    judge_commits(record, tree, &head, &mut work).await;
    work
}

async fn judge_commits(record: &Record, tree: &Tree, head: &Sha, work: &mut UnsavedWork) {
    let repo = tree.repo();
    match record.base_sha.parse::<Sha>() {
        Ok(base) => match repo.ahead_behind(head, &base).await {
            Ok((0, _)) => {}
            Ok((ahead, _)) => match inspect::integration(&repo, record, head).await {
                Ok(Some(_)) => {}
                Ok(None) => count_commits(record, &repo, head, &base, work).await,
                Err(error) => {
                    work.not_landed = ahead;
                    work.unknown.push(format!("whether the commits have landed: {error}"));
                }
            },
            Err(error) => work.unknown.push(format!("commits since the base: {error}")),
        },
        Err(error) => work.unknown.push(format!("the recorded base: {error}")),
    }
}

/// Counts the commits of `head` that neither the base nor the target has.
async fn count_commits(record: &Record, repo: &Repo, head: &Sha, base: &Sha, work: &mut UnsavedWork) {
    let mut known = inspect::target_tips(repo, record).await.unwrap_or_default();
    known.push(base.clone());
    match repo.commits_beyond(head, &known).await {
        // Not integrated, and yet nothing beyond: the target was looked at twice and moved in between.
        Ok(count) => work.not_landed = count.max(1),
        Err(error) => {
            work.not_landed = 1;
            work.unknown.push(format!("commits beyond the target: {error}"));
        }
    }
    match repo.unpushed(head, &known).await {
        Ok(count) => work.on_no_remote = count,
        Err(error) => work.unknown.push(format!("commits on remotes: {error}")),
    }
}

fn counted(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

impl UnsavedWork {
    /// Whether nothing would be lost.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.is_tidy() && self.not_landed == 0
    }

    /// Whether the working tree holds nothing that is not committed.
    #[must_use]
    pub fn is_tidy(&self) -> bool {
        self.changed == 0 && self.untracked == 0 && self.operation.is_none() && self.unknown.is_empty()
    }

    /// What there is, in words: `3 uncommitted files, 2 commits not landed`.
    #[must_use]
    pub fn describe(&self) -> String {
        let mut parts = Vec::new();
        if self.changed + self.untracked > 0 {
            let all = counted(self.changed + self.untracked, "uncommitted file", "uncommitted files");
            let untracked = if self.untracked > 0 { format!(" ({} untracked)", self.untracked) } else { String::new() };
            parts.push(format!("{all}{untracked}"));
        }
        if let Some(operation) = &self.operation {
            parts.push(format!("{operation} that is open"));
        }
        if self.not_landed > 0 {
            let landed = counted(self.not_landed, "commit not landed", "commits not landed");
            parts.push(format!("{landed} ({} on no remote)", self.on_no_remote));
        }
        parts.extend(self.unknown.iter().map(|what| format!("could not be told: {what}")));
        parts.join(", ")
    }

    /// Refuses when something would be lost.
    ///
    /// # Errors
    /// `W220` for uncommitted work, an open operation or anything unknown; `W221` for commits that have not landed.
    pub fn refuse(&self, record: &Record) -> Result<()> {
        if !self.is_tidy() {
            return Err(Error::new(
                Code::Uncommitted,
                format!(
                    "{} has {}; commit it, or pass force: true to lose it (needs gates.allow_force)",
                    record.worktree_id,
                    self.describe()
                ),
            ));
        }
        if self.not_landed > 0 {
            return Err(Error::new(
                Code::NotLanded,
                format!(
                    "{} has {}; land the branch {} first, or pass force: true (needs gates.allow_force): the branch stays",
                    record.worktree_id,
                    self.describe(),
                    record.branch
                ),
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_description_counts_and_what_is_unknown_keeps_invariant_2() {
        let work = UnsavedWork { changed: 1, untracked: 2, not_landed: 2, on_no_remote: 1, ..UnsavedWork::default() };
        assert_eq!(work.describe(), "3 uncommitted files (2 untracked), 2 commits not landed (1 on no remote)");
        assert!(UnsavedWork::default().is_none());
        let unknown = UnsavedWork { unknown: vec!["git status: no".to_owned()], ..UnsavedWork::default() };
        assert!(!unknown.is_none() && !unknown.is_tidy());
    }
}
