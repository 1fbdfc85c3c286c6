//! The one predicate that every path that can delete asks: what would be lost?
//!
//! Ignored files never count: they can be made again. Everything that cannot be told counts as work.
//!
//! Invariants
//! 1. There is no second judgement of this kind: only this module makes a [`Cleared`], and nothing takes a directory
//!    away without one.
//! 2. A probe that fails adds to `unknown`, and `unknown` keeps.
//! 3. A branch goes only when its tip is integrated in its target, or contained in another branch, tag or
//!    remote-tracking ref ([`branch_kept_by`]).

use crate::git::{GitError, Operation, Repo, Sha, Tree};
use crate::model::record::Record;
use crate::model::{Code, Error, Result};
use crate::worktrees::Context;
use crate::worktrees::branch::branch_ref;
use crate::worktrees::inspect::{self, RepoView};

/// What a worktree holds that is saved nowhere else.
#[derive(Debug, Clone, Default)]
pub struct UnsavedWork {
    /// Changed, staged or conflicted tracked files.
    pub changed: u64,
    /// Untracked files that are not ignored.
    pub untracked: u64,
    /// Changed files that git was told to take for unchanged (assume-unchanged, skip-worktree, submodules to be ignored).
    pub hidden: u64,
    /// Commits since the base that the target does not contain.
    pub not_landed: u64,
    /// Those of them that are on no remote-tracking branch.
    pub on_no_remote: u64,
    /// Commits in repositories of submodules that are on no remote of theirs.
    pub in_submodules: u64,
    /// A git operation that is open.
    pub operation: Option<Operation>,
    /// The commit that was judged.
    pub head: Option<Sha>,
    /// The branch that is checked out; none when HEAD is detached.
    pub branch: Option<String>,
    /// Probes that failed, in words.
    pub unknown: Vec<String>,
}

/// The permission to take a worktree away. Only a judgement makes one.
#[derive(Debug)]
pub struct Cleared {
    work: Box<UnsavedWork>,
    forced: bool,
}

impl Cleared {
    /// What was judged.
    #[must_use]
    pub fn work(&self) -> &UnsavedWork {
        &self.work
    }

    /// Whether the caller decided to lose what there is.
    #[must_use]
    pub fn forced(&self) -> bool {
        self.forced
    }
}

/// Judges a worktree.
pub async fn judge(record: &Record, tree: &Tree) -> UnsavedWork {
    let mut work = judge_landed(tree).await;
    let Some(head) = work.head.clone() else { return work };
    judge_commits(record, tree, &head, &mut work).await;
    work
}

/// What speaks for letting a worktree stay, where that takes no judgement of its own: it is clean, and has commits that
/// its target lacks, as `view` has seen. `None` says nothing: ask [`judge`].
pub async fn foresee(ctx: &Context, view: &RepoView, record: &Record, tree: &Tree) -> Option<UnsavedWork> {
    if tree.operation().is_some() || !matches!(tree.kept_submodule_repos(), Ok(repos) if repos.is_empty()) {
        return None;
    }
    let (not_landed, on_no_remote) = view.not_landed(ctx, record, tree).await?;
    let head = tree.head().await.ok()?;
    Some(UnsavedWork { head, not_landed, on_no_remote, ..UnsavedWork::default() })
}

/// Judges a worktree of which it is known that its commits have landed: everything but those. For
/// [`UnsavedWork::clear_landed`], which compares the commit.
pub async fn judge_landed(tree: &Tree) -> UnsavedWork {
    let mut work = UnsavedWork { operation: tree.operation(), ..UnsavedWork::default() };
    let repos = match tree.proven_clean().await {
        Some(clean) => {
            (work.head, work.branch) = (clean.head, clean.branch);
            tree.kept_submodule_repos()
        }
        None => {
            judge_files(tree, &mut work).await;
            tree.submodule_repos().await
        }
    };
    judge_submodules(repos, &mut work).await;
    work
}

/// Counts what git shows, and what it was told not to show.
async fn judge_files(tree: &Tree, work: &mut UnsavedWork) {
    match tree.status().await {
        Ok(status) => {
            work.changed = status.staged + status.unstaged + status.conflicted;
            work.untracked = status.untracked;
            work.head = status.head;
            work.branch = status.branch;
        }
        Err(error) => work.unknown.push(format!("git status: {error}")),
    }
    match tree.hidden_changes().await {
        Ok(hidden) => work.hidden = u64::try_from(hidden.len()).unwrap_or(u64::MAX),
        Err(error) => work.unknown.push(format!("changes that git was told not to look at: {error}")),
    }
    match tree.unseen_in_submodules().await {
        Ok(unseen) => work.hidden += unseen,
        Err(error) => work.unknown.push(format!("files in submodules: {error}")),
    }
}

/// Counts what was committed in submodules and never pushed, because their repositories go with the worktree.
async fn judge_submodules(repos: Result<Vec<Repo>, GitError>, work: &mut UnsavedWork) {
    let repos = match repos {
        Ok(repos) => repos,
        Err(error) => return work.unknown.push(format!("the repositories of submodules: {error}")),
    };
    for repo in repos {
        match repo.commits_on_no_remote().await {
            Ok(count) => work.in_submodules += count,
            Err(error) => work.unknown.push(format!("commits in {}: {error}", repo.common_dir().display())),
        }
    }
}

async fn judge_commits(record: &Record, tree: &Tree, head: &Sha, work: &mut UnsavedWork) {
    let repo = tree.repo();
    match record.base_sha.parse::<Sha>() {
        Ok(base) if base == *head => judge_detached(&repo, head, work).await,
        Ok(base) => match inspect::integration(&repo, record, head).await {
            Ok(Some(_)) => {}
            integrated => match (repo.ahead_behind(head, &base).await, integrated) {
                (Ok((0, _)), _) => judge_detached(&repo, head, work).await,
                (Ok(_), Ok(_)) => count_commits(record, &repo, head, &base, work).await,
                (Ok((ahead, _)), Err(error)) => {
                    work.not_landed = ahead;
                    work.unknown.push(format!("whether the commits have landed: {error}"));
                }
                (Err(error), _) => work.unknown.push(format!("commits since the base: {error}")),
            },
        },
        Err(error) => work.unknown.push(format!("the recorded base: {error}")),
    }
}

/// A commit that is checked out without a branch, and that no ref contains (its base may have been deleted), would be
/// lost with the worktree even though it is not ahead of anything.
async fn judge_detached(repo: &Repo, head: &Sha, work: &mut UnsavedWork) {
    if work.branch.is_some() {
        return;
    }
    match repo.refs_containing(head).await {
        Ok(refs) if refs.is_empty() => {
            work.not_landed = 1;
            work.on_no_remote = 1;
        }
        Ok(_) => {}
        Err(error) => work.unknown.push(format!("which refs contain the commit: {error}")),
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

/// What keeps the commits of a branch when the branch goes: how its tip `tip` is integrated in the target, or the ref
/// that contains it. `None`: nothing does, so the branch must stay.
///
/// Backup refs do not count: they expire. Nor do the branches called `going`, which are to be deleted.
///
/// # Errors
/// What git reports when it cannot be told; the branch must stay then, too.
pub async fn branch_kept_by(repo: &Repo, record: &Record, tip: &Sha, going: &[&str]) -> Result<Option<String>> {
    let target = inspect::target_branch(repo, record).await?;
    if target.is_some_and(|target| !going.contains(&target.as_str()))
        && let Some(reason) = inspect::integration(repo, record, tip).await?
    {
        return Ok(Some(reason.as_str().to_owned()));
    }
    let stays = |name: &String| !going.iter().any(|branch| branch_ref(branch) == *name);
    Ok(repo.refs_containing(tip).await?.into_iter().find(stays))
}

/// A count with its noun: `1 file`, `2 files`.
#[must_use]
pub fn counted(count: u64, one: &str, many: &str) -> String {
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
        self.changed == 0
            && self.untracked == 0
            && self.hidden == 0
            && self.in_submodules == 0
            && self.operation.is_none()
            && self.unknown.is_empty()
    }

    /// Clears a worktree that holds nothing unsaved.
    ///
    /// # Errors
    /// `W220` for uncommitted work, an open operation or anything unknown; `W221` for commits that have not landed.
    pub fn clear(self, record: &Record) -> Result<Cleared> {
        self.refuse(record)?;
        Ok(Cleared { work: Box::new(self), forced: false })
    }

    /// Clears a worktree of which the commit `landed` has landed, as it is or rebased, when nothing came after that.
    ///
    /// # Errors
    /// What came after it, in words.
    pub fn clear_landed(self, landed: &Sha) -> Result<Cleared, String> {
        if !self.is_tidy() {
            return Err(self.describe());
        }
        if self.head.as_ref() != Some(landed) {
            return Err("new commits since the gate".to_owned());
        }
        Ok(Cleared { work: Box::new(self), forced: false })
    }

    /// Clears a worktree whose create was cut off, when nobody has added anything. A checkout that was cut off shows its
    /// missing files as changes; those do not count.
    ///
    /// # Errors
    /// What it holds, in words.
    pub fn clear_unfinished(self) -> Result<Cleared, String> {
        let added = self.untracked + self.hidden + self.not_landed + self.in_submodules;
        if added > 0 || self.operation.is_some() || !self.unknown.is_empty() {
            return Err(self.describe());
        }
        Ok(Cleared { work: Box::new(self), forced: false })
    }

    /// Clears a worktree of the pool, at the commit where the pool has put it, when nobody has changed anything. One that
    /// is not complete may lack files. That its commit is on no ref any more is nobody's loss: it was never worked on
    /// here.
    ///
    /// # Errors
    /// What it holds, in words.
    pub fn clear_pooled(self, at: &Sha, complete: bool) -> Result<Cleared, String> {
        let added = self.untracked + self.hidden + self.in_submodules + if complete { self.changed } else { 0 };
        if added > 0 || self.operation.is_some() || !self.unknown.is_empty() {
            return Err(self.describe());
        }
        match (&self.head, &self.branch) {
            (Some(head), None) if head == at => Ok(Cleared { work: Box::new(self), forced: false }),
            (_, Some(branch)) => Err(format!("the branch {branch} is checked out")),
            (head, None) => Err(format!("another commit is checked out: {head:?}")),
        }
    }

    /// Clears a worktree whatever it holds, because the caller decided so.
    #[must_use]
    pub fn clear_forced(self) -> Cleared {
        Cleared { work: Box::new(self), forced: true }
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
        if self.hidden > 0 {
            let hidden = counted(self.hidden, "changed file", "changed files");
            parts.push(format!("{hidden} that git was told not to look at"));
        }
        if self.in_submodules > 0 {
            let commits = counted(self.in_submodules, "commit", "commits");
            parts.push(format!("{commits} in submodules on no remote"));
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
        let out_of_sight = UnsavedWork { hidden: 1, in_submodules: 2, ..UnsavedWork::default() };
        assert!(!out_of_sight.is_tidy());
        assert_eq!(
            out_of_sight.describe(),
            "1 changed file that git was told not to look at, 2 commits in submodules on no remote"
        );
        let unknown = UnsavedWork { unknown: vec!["git status: no".to_owned()], ..UnsavedWork::default() };
        assert!(!unknown.is_none() && !unknown.is_tidy());
    }
}
