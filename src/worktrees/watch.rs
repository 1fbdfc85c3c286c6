//! News from the state store: somebody else may have written to the registry.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;

use super::registry::Outside;
use super::{Context, rebuild};
use crate::bus::{SCOPE_ACTIVE, SCOPE_JOBS, SCOPE_RECORDS};
use crate::model::Result;

/// The scopes that belong to the registry.
pub const SCOPES: [&str; 3] = [SCOPE_RECORDS, SCOPE_JOBS, SCOPE_ACTIVE];

/// What the engine tells of a change of its store. Nothing but these fields is looked at.
#[derive(Debug, Deserialize)]
pub struct StoreChange {
    /// The scope that was written to.
    #[serde(default)]
    pub scope: String,
    /// The key in it.
    #[serde(default)]
    pub key: String,
    /// What lies there now; null when it was deleted.
    #[serde(default)]
    pub new_value: Value,
}

/// Takes a change of the store over, when it was not made here. A record that is gone although its worktree is there
/// comes back from the marker.
///
/// # Errors
/// `W300` when the store cannot be reached.
pub async fn changed(ctx: &Arc<Context>, change: &StoreChange) -> Result<()> {
    if !SCOPES.contains(&change.scope.as_str()) || change.key.is_empty() {
        return Ok(());
    }
    let before = ctx.registry.record(&change.key);
    let outside = ctx.registry.changed_outside(&change.scope, &change.key, &change.new_value).await?;
    if let (Outside::RecordGone, Ok(before)) = (outside, before) {
        rebuild::restore_lost(ctx, Some(&before.repo_key)).await;
    }
    Ok(())
}
