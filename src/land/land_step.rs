//! `worktree::land-step`: runs one job to its end. Called by the queue; harmless to call at any time.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::model::Result;
use crate::model::job::Phase;
use crate::queue::Dispatcher;
use crate::worktrees::{Context, request};

/// What is said instead of a phase about a job that cannot be read.
const UNREADABLE: &str = "unreadable";

/// Which job to run.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct Request {
    /// The job that worktree::land returned.
    pub job_id: String,
    /// The repository of the job; the queue groups by it.
    #[serde(default)]
    pub repo_key: String,
}

/// How far the job is now.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Response {
    /// The job that was asked for.
    pub job_id: String,
    /// The last phase that was completed: done once the job has ended; unreadable for a stored job that this release
    /// cannot read.
    pub phase_completed: String,
    /// Whether the job has ended, by landing or by being blocked.
    pub done: bool,
}

/// Runs a job, after every older one of its repository. A job that is unknown, has ended or cannot be read is a success:
/// there is nothing that another delivery could do.
///
/// # Errors
/// `W001`; `W1xx` and `W300` for faults in the surroundings, so that the queue delivers the job again.
pub async fn run(ctx: &Arc<Context>, dispatcher: &Dispatcher, request: Request) -> Result<Response> {
    request::require_text("job_id", &request.job_id)?;
    if let Err(error) = ctx.registry.job(&request.job_id) {
        // Delivered again it would be no more readable, and would hold up those behind it.
        tracing::error!(job = request.job_id, code = %error.code, %error, "left alone");
        return Ok(Response { job_id: request.job_id, phase_completed: UNREADABLE.to_owned(), done: false });
    }
    let job = dispatcher.run_now(ctx, &request.job_id).await?;
    let phase = job.map_or(Phase::Done, |job| job.phase);
    Ok(Response { job_id: request.job_id, phase_completed: phase.as_str().to_owned(), done: phase == Phase::Done })
}
