//! What a worktree looks like from outside, as the reads answer it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::record::{Lifecycle, Record};

/// What git says about a worktree right now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WorktreeStatus {
    /// Whether nothing is staged, unstaged, untracked or conflicted. Ignored files do not count.
    pub clean: bool,
    /// Commits of the branch that its upstream (or, without one, the base commit) does not have.
    pub ahead: u64,
    /// Commits of the upstream (or of the base) that the branch does not have.
    pub behind: u64,
    /// Changed paths in the index.
    pub staged: u64,
    /// Changed paths in the working tree.
    pub unstaged: u64,
    /// Untracked paths; a directory that is untracked as a whole counts once.
    pub untracked: u64,
    /// Paths with an unresolved conflict.
    pub conflicted: u64,
    /// What changed from the base commit to HEAD, in the words of `git diff --shortstat`; empty when nothing did.
    pub diffstat: String,
    /// Commits since the base that are on no remote-tracking branch.
    pub unpushed: u64,
    /// Whether a rebase is open. Resolve it and run `git rebase --continue`, or abort it, before landing.
    pub in_rebase: bool,
    /// The commit that is checked out.
    pub head_sha: String,
    /// Whether the target already contains this work. What cannot be told is never reported as integrated.
    #[serde(default)]
    pub integrated: bool,
    /// How that is known: same_commit, ancestor, no_added_changes, trees_match, merge_adds_nothing, patch_id_match.
    pub integration_reason: Option<String>,
}

/// One worktree, with its status where it was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WorktreeInfo {
    /// The id that every other call takes.
    pub worktree_id: String,
    /// The primary checkout of the repository (the repository itself when it is bare).
    pub repo_path: String,
    /// The canonical git common directory, the identity of the repository.
    pub repo_key: String,
    /// The directory to work in.
    pub path: String,
    /// The branch, without refs/heads/.
    pub branch: String,
    /// What the worktree was started from, as it was named.
    pub base_ref: String,
    /// The commit it was started from.
    pub base_sha: String,
    /// Where it is in its life.
    pub lifecycle: Lifecycle,
    /// The session that holds the claim, if any.
    pub session_id: Option<String>,
    /// A port from 10000 to 19999 for a development server; derived from the id, not reserved.
    pub dev_port: u16,
    /// Creation time in milliseconds since the epoch.
    pub created_at: i64,
    /// Time of the last change of the record in milliseconds since the epoch.
    pub updated_at: i64,
    /// What git says, or null when it was not asked for or cannot be told.
    pub status: Option<WorktreeStatus>,
}

impl WorktreeInfo {
    /// The record as the reads answer it, with the lifecycle that holds right now.
    #[must_use]
    pub fn new(record: &Record, lifecycle: Lifecycle, status: Option<WorktreeStatus>) -> Self {
        WorktreeInfo {
            worktree_id: record.worktree_id.clone(),
            repo_path: record.repo_path.clone(),
            repo_key: record.repo_key.clone(),
            path: record.path.clone(),
            branch: record.branch.clone(),
            base_ref: record.base_ref.clone(),
            base_sha: record.base_sha.clone(),
            lifecycle,
            session_id: record.session_id.clone(),
            dev_port: record.dev_port,
            created_at: record.created_at,
            updated_at: record.updated_at,
            status,
        }
    }
}
