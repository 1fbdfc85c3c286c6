//! `worktree::release`: a session gives a worktree back.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::model::event::Event;
use crate::model::record::{Lifecycle, Record};
use crate::model::{Code, Error, Result};
use crate::worktrees::{Context, request};

/// Who gives which worktree back.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct Request {
    /// The worktree to give back.
    pub worktree_id: String,
    /// The session that holds it.
    pub session_id: String,
    /// Release it although another session holds it. Needs gates.allow_force.
    #[serde(default)]
    pub force: bool,
}

/// That the claim is gone.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Response {
    /// Always true; a refusal is an error.
    pub released: bool,
    /// The worktree that was given back.
    pub worktree_id: String,
}

/// Gives a worktree back. Its files and its branch stay as they are.
///
/// # Errors
/// `W001`, `W200`, `W211` when the caller does not hold the claim, `W300`, `W501` when force is shut.
pub async fn run(ctx: &Context, request: Request) -> Result<Response> {
    request::require_text("worktree_id", &request.worktree_id)?;
    request::require_text("session_id", &request.session_id)?;
    if request.force {
        ctx.settings().require_gate("allow_force", "release with force")?;
    }
    let repo_key = ctx.registry.record(&request.worktree_id)?.repo_key;
    let guard = ctx.registry.lock(&repo_key).await?;
    loop {
        let record = ctx.registry.record(&request.worktree_id)?;
        let holder = record.session_id.clone();
        if holder.as_deref() != Some(&request.session_id) && !(request.force && holder.is_some()) {
            return Err(not_holder(&request, holder.as_deref()));
        }
        let Some(fence) = ctx.registry.advance_fence(&guard, &record.worktree_id).await? else { continue };
        let lifecycle = match record.lifecycle {
            Lifecycle::Claimed => Lifecycle::Active,
            other => other,
        };
        let record = Record { session_id: None, lifecycle, fence, updated_at: ctx.now(), ..record };
        ctx.registry.put_record(&guard, record.clone()).await?;
        drop(guard);
        let previous = holder.filter(|holder| *holder != request.session_id);
        ctx.events.emit(&Event::released(&record, &request.session_id, previous.as_deref(), ctx.now()));
        return Ok(Response { released: true, worktree_id: record.worktree_id });
    }
}

/// The refusal that names who holds the claim, if anybody does.
fn not_holder(request: &Request, holder: Option<&str>) -> Error {
    let now = match holder {
        Some(holder) => format!("session `{holder}` holds it"),
        None => "nobody holds it".to_owned(),
    };
    Error::new(
        Code::NotHolder,
        format!(
            "session `{}` does not hold {}: {now}; there is nothing to release",
            request.session_id, request.worktree_id
        ),
    )
}
