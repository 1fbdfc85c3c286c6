//! `worktree::status`: what git says about one worktree.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::model::Result;
use crate::model::record::Lifecycle;
use crate::worktrees::{Context, inspect, request};

/// Which worktree to look at.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct Request {
    /// The id that worktree::create returned.
    pub worktree_id: String,
}

/// The status of a worktree.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Response {
    /// The worktree that was looked at.
    pub worktree_id: String,
    /// The recorded branch, without refs/heads/.
    pub branch: String,
    /// Where it is in its life.
    pub lifecycle: Lifecycle,
    /// A port from 10000 to 19999 for a development server; derived from the id, not reserved.
    pub dev_port: u16,
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

/// Looks at one worktree.
///
/// # Errors
/// `W001`, `W200`, `W201` when the directory is gone, `W202` when it is something else, `W301`, and what git reports.
pub async fn run(ctx: &Context, request: Request) -> Result<Response> {
    let record = ctx.registry.record(request::require_text("worktree_id", &request.worktree_id)?)?;
    let status = inspect::status_of(ctx, &record).await?;
    let lifecycle = inspect::lifecycle_now(&record);
    Ok(Response {
        worktree_id: record.worktree_id,
        branch: record.branch,
        lifecycle,
        dev_port: record.dev_port,
        clean: status.clean,
        ahead: status.ahead,
        behind: status.behind,
        staged: status.staged,
        unstaged: status.unstaged,
        untracked: status.untracked,
        conflicted: status.conflicted,
        diffstat: status.diffstat,
        unpushed: status.unpushed,
        in_rebase: status.in_rebase,
        head_sha: status.head_sha,
        integrated: status.integrated,
        integration_reason: status.integration_reason,
    })
}
