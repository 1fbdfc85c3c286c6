//! `worktree::claim`: a session takes a worktree for itself.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::model::event::Event;
use crate::model::record::{Lifecycle, Record};
use crate::model::{Code, Error, Result};
use crate::worktrees::{Context, request};

/// Who takes which worktree.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct Request {
    /// The worktree to take.
    pub worktree_id: String,
    /// The session that takes it; any text that names the caller.
    pub session_id: String,
    /// Take it even though another session holds it. Needs gates.allow_force.
    #[serde(default)]
    pub force: bool,
}

/// The claim that holds now.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Response {
    /// Always true; a refusal is an error.
    pub claimed: bool,
    /// The worktree that was taken.
    pub worktree_id: String,
    /// The session that holds it now.
    pub session_id: String,
    /// The session it was taken from by force.
    pub previous_session_id: Option<String>,
}

/// Takes a worktree. Taking what one already holds changes nothing and succeeds.
///
/// # Errors
/// `W001`, `W200`, `W201` when the directory is gone, `W210` naming the holder, `W300`, `W501` when force is shut.
pub async fn run(ctx: &Context, request: Request) -> Result<Response> {
    request::require_text("worktree_id", &request.worktree_id)?;
    request::require_text("session_id", &request.session_id)?;
    if request.force {
        ctx.settings().require_gate("allow_force", "claim with force")?;
    }
    let record = ctx.registry.record(&request.worktree_id)?;
    let answer = |previous: Option<String>| Response {
        claimed: true,
        worktree_id: request.worktree_id.clone(),
        session_id: request.session_id.clone(),
        previous_session_id: previous,
    };
    if record.session_id.as_deref() == Some(&request.session_id) {
        return Ok(answer(None));
    }
    let guard = ctx.registry.lock(&record.repo_key).await?;
    loop {
        let record = ctx.registry.record(&request.worktree_id)?;
        super::require_directory(&record)?;
        let previous = record.session_id.clone().filter(|holder| *holder != request.session_id);
        if let Some(holder) = &previous
            && !request.force
        {
            return Err(held(&record.worktree_id, holder));
        }
        let Some(fence) = ctx.registry.advance_fence(&guard, &record.worktree_id).await? else { continue };
        let lifecycle = match record.lifecycle {
            Lifecycle::Landing | Lifecycle::LandBlocked => record.lifecycle,
            _ => Lifecycle::Claimed,
        };
        let record =
            Record { session_id: Some(request.session_id.clone()), lifecycle, fence, updated_at: ctx.now(), ..record };
        ctx.registry.put_record(&guard, record.clone()).await?;
        drop(guard);
        ctx.events.emit(&Event::claimed(&record, previous.as_deref(), ctx.now()));
        return Ok(answer(previous));
    }
}

/// The refusal that names who holds the claim.
fn held(worktree_id: &str, holder: &str) -> Error {
    Error::new(
        Code::ClaimHeld,
        format!(
            "{worktree_id} is claimed by session `{holder}`; ask it to call worktree::release, or create another worktree"
        ),
    )
}
