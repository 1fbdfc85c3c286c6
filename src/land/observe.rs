//! The facts a decision needs, gathered once, before anything is done.

use std::path::PathBuf;

use crate::git::admin::AdminEntry;
use crate::git::{EntryKind, Operation, Repo, Sha, Tree, TreeStatus, from_text, to_text};
use crate::model::job::{Job, Phase};
use crate::model::record::Record;
use crate::model::{Code, Error, Result};
use crate::worktrees::Context;
use crate::worktrees::marker::{self, Identity};

/// What is checked out in the worktree that lands.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TreeFacts {
    /// The branch that is checked out; none when HEAD is detached, as it is in a rebase.
    pub branch: Option<String>,
    /// The commit that is checked out.
    pub head: Option<String>,
    /// Staged and unstaged changes of tracked files.
    pub changed: u64,
    /// Untracked files that are not ignored.
    pub untracked: u64,
    /// Changed files that git was told not to look at; looked for before a gate.
    pub hidden: Vec<String>,
    /// Paths with an unresolved conflict.
    pub conflicted: Vec<String>,
    /// A git operation that is open.
    pub operation: Option<Operation>,
    /// Whether an open rebase has stopped for its owner, rather than having been cut off.
    pub rebase_stopped: bool,
}

/// Where the worktree is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// It is there, and it is ours.
    Ours(TreeFacts),
    /// Its directory is gone.
    Gone,
    /// Something else lies there.
    NotOurs(String),
}

/// A directory in which the target is checked out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkout {
    /// The directory.
    pub path: String,
    /// A git operation that is open there.
    pub operation: Option<String>,
}

/// Everything that [`super::decide::decide`] looks at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// The worktree.
    pub place: Place,
    /// The tip of the branch that lands.
    pub tip: Option<String>,
    /// The tip of the target.
    pub target: Option<String>,
    /// Whether it is known that the recorded target is contained in the tip of the branch.
    pub on_top: bool,
    /// Whether the target contains the gated commit.
    pub merged: bool,
    /// Where the target is checked out; looked up before the target is moved.
    pub checkouts: Vec<Checkout>,
}

/// The same facts with the handles that acting on them needs.
pub struct Observed {
    /// What was seen.
    pub facts: Facts,
    /// The repository.
    pub repo: Repo,
    /// The worktree, when it is ours.
    pub tree: Option<(Tree, AdminEntry)>,
    /// What git still keeps of the worktree when its directory is gone.
    pub left_entry: Option<AdminEntry>,
}

fn sha(text: &str) -> Result<Sha> {
    text.parse().map_err(|_| Error::new(Code::RecordUnreadable, format!("a land job holds `{text}`, no commit id")))
}

/// The commit in a field of the job that must be set in its phase.
///
/// # Errors
/// `W301` when it is missing or no commit id.
pub fn required(field: &str, value: Option<&String>) -> Result<Sha> {
    match value {
        Some(text) => sha(text),
        None => Err(Error::new(Code::RecordUnreadable, format!("a land job lacks its {field}"))),
    }
}

/// Gathers the facts for the phase that `job` is in.
///
/// # Errors
/// What git reports when something cannot be told.
pub async fn observe(ctx: &Context, job: &Job, record: &Record) -> Result<Observed> {
    let git = ctx.git();
    let repo = git.repo(&from_text(&job.repo_key));
    let mut left_entry = None;
    let (place, tree) = match marker::identify(&git, record) {
        Ok(Identity::Ours(tree, entry)) => (Place::Ours(look(&tree, job).await?), Some((tree, entry))),
        Ok(Identity::DirectoryGone(entry)) => {
            left_entry = entry;
            (Place::Gone, None)
        }
        Err(error) if error.code == Code::IdentityMismatch => (Place::NotOurs(error.message), None),
        Err(error) => return Err(error),
    };
    let tip = repo.branch_sha(&job.branch).await?;
    let target = repo.branch_sha(&job.target_branch).await?;
    let mut facts = Facts {
        place,
        tip: tip.as_ref().map(Sha::to_string),
        target: target.as_ref().map(Sha::to_string),
        on_top: false,
        merged: false,
        checkouts: Vec::new(),
    };
    match job.phase {
        Phase::Rebase => {
            // Once the rebase is worked out, only where the branch is matters.
            if let (Some(tip), Some(onto), None) = (&tip, &job.recorded_target_sha, &job.rebased_sha) {
                let onto = sha(onto)?;
                // Working the rebase out finds the same; only before git rebases has it to be certain.
                facts.on_top =
                    repo.is_known_ancestor(&onto, tip) || (job.rebase_started && repo.is_ancestor(&onto, tip).await?);
            }
        }
        Phase::Merge => {
            let gated = required("rebased_sha", job.rebased_sha.as_ref())?;
            if let Some(target) = &target {
                // Where the target has not moved, it can contain only what it is itself.
                let moved = facts.target != job.recorded_target_sha;
                facts.merged = *target == gated || (moved && repo.is_ancestor(&gated, target).await?);
            }
            facts.checkouts = checkouts(ctx, &repo, &job.target_branch).await?;
        }
        Phase::Preflight | Phase::Test | Phase::Finalize | Phase::Done => {}
    }
    Ok(Observed { facts, repo, tree, left_entry })
}

/// Whether the decision of this job depends on what lies in the working tree. Where the land needs no files it does only
/// when git has to rebase there: the one look at them comes in the same breath as the swap.
fn needs_status(job: &Job) -> bool {
    match job.phase {
        Phase::Preflight => !job.needs_no_files(),
        Phase::Rebase => job.rebase_started && job.rebased_sha.is_none(),
        Phase::Test => job.test_cmd.is_some(),
        // There will be no swap.
        Phase::Merge => job.needs_no_files() && job.lands_nothing(),
        Phase::Finalize | Phase::Done => false,
    }
}

async fn look(tree: &Tree, job: &Job) -> Result<TreeFacts> {
    let operation = tree.operation();
    if operation.is_none() && !needs_status(job) {
        let (head, branch) = (tree.head().await?, tree.head_branch()?);
        return Ok(TreeFacts { head: head.map(|head| head.to_string()), branch, ..TreeFacts::default() });
    }
    let (status, hidden) = match tree.proven_clean().await {
        Some(clean) => (clean, Vec::new()),
        // Before the gate even those changes count that git was told not to look at: they would be tested, and not landed.
        None if job.phase == Phase::Test => (tree.status().await?, texts(&tree.hidden_changes().await?)),
        None => (tree.status().await?, Vec::new()),
    };
    Ok(TreeFacts {
        head: status.head.as_ref().map(Sha::to_string),
        changed: status.staged + status.unstaged + status.conflicted,
        untracked: status.untracked,
        hidden,
        conflicted: conflicted(&status),
        branch: status.branch,
        rebase_stopped: operation.is_some_and(Operation::is_rebase) && tree.rebase_stopped(),
        operation,
    })
}

/// Paths as they are shown and stored.
#[must_use]
pub fn texts(paths: &[PathBuf]) -> Vec<String> {
    paths.iter().map(|path| to_text(path)).collect()
}

fn conflicted(status: &TreeStatus) -> Vec<String> {
    let torn = status.entries.iter().filter(|entry| entry.kind == EntryKind::Conflicted);
    torn.map(|entry| to_text(&entry.path)).collect()
}

async fn checkouts(ctx: &Context, repo: &Repo, branch: &str) -> Result<Vec<Checkout>> {
    let mut found = Vec::new();
    for entry in repo.checkouts_of(&[branch]).await? {
        if !entry.path.exists() {
            continue;
        }
        let tree = ctx.git().tree(&entry.path)?;
        found.push(Checkout {
            path: to_text(&entry.path),
            operation: tree.operation().map(|operation| operation.to_string()),
        });
    }
    Ok(found)
}
