//! `worktree::get`: one record with its status.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::git::from_text;
use crate::model::Result;
use crate::model::record::Lifecycle;
use crate::model::status::WorktreeInfo;
use crate::worktrees::inspect::RepoView;
use crate::worktrees::{Context, inspect, request};

/// Which worktree to read.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct Request {
    /// The id that worktree::create returned.
    pub worktree_id: String,
}

/// Reads a record and, where its directory is there, its status.
///
/// # Errors
/// `W001`, `W200`, `W301`. A status that cannot be told is `null`, not an error.
pub async fn run(ctx: &Context, request: Request) -> Result<WorktreeInfo> {
    let record = ctx.registry.record(request::require_text("worktree_id", &request.worktree_id)?)?;
    let lifecycle = inspect::lifecycle_now(&record);
    let view = RepoView::new(ctx.git().repo(&from_text(&record.repo_key)));
    let status =
        if lifecycle == Lifecycle::Orphaned { None } else { inspect::status_or_null(ctx, &view, &record).await };
    Ok(WorktreeInfo::new(&record, lifecycle, status))
}
