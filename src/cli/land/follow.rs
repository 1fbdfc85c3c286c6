//! A land from being queued to its end, phase by phase.

use std::time::Duration;

use tokio::time::Instant;

use crate::bus::{SCOPE_JOBS, StateStore as _};
use crate::cli::link::Link;
use crate::cli::progress::Progress;
use crate::cli::queue;
use crate::cli::trouble::{Outcome, Trouble};
use crate::model::Code;
use crate::model::job::{Job, Phase};

/// How often the job is looked at.
const EVERY: Duration = Duration::from_millis(150);
/// How long the engine may be away.
const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until the job has ended, and shows where it is.
///
/// # Errors
/// When the engine stays away, or the job cannot be read.
pub(super) async fn to_the_end(link: &Link, job_id: &str, silent: bool) -> Outcome<Job> {
    let mut progress = Progress::new(silent);
    let mut heard = Instant::now();
    loop {
        match look(link, job_id).await {
            Ok((job, _)) if job.done => return Ok(job),
            Ok((job, position)) => {
                heard = Instant::now();
                progress.say(&describe(&job, position));
            }
            Err(Trouble::Refused { code, .. })
                if code == Code::StateUnreachable.as_str() && heard.elapsed() < PATIENCE => {}
            Err(Trouble::Refused { code, message }) if code == Code::StateUnreachable.as_str() => {
                return Err(Trouble::NoEngine(format!(
                    "the engine is away ({message}); the land goes on with the worker"
                )));
            }
            Err(trouble) => return Err(trouble),
        }
        tokio::time::sleep(EVERY).await;
    }
}

async fn look(link: &Link, job_id: &str) -> Outcome<(Job, Option<usize>)> {
    let stored = link.bus().get(SCOPE_JOBS, job_id).await?;
    let Some(stored) = stored else {
        return Err(Trouble::Refused {
            code: Code::RecordUnreadable.to_string(),
            message: format!("the state has no job {job_id} any more"),
        });
    };
    let job = Job::from_value(&stored)?;
    // Only who waits has a turn to wait for.
    let position = if job.phase == Phase::Preflight && !job.done {
        queue::position(&queue::jobs(link).await?, &job)
    } else {
        None
    };
    Ok((job, position))
}

fn describe(job: &Job, position: Option<usize>) -> String {
    let lands = format!("{} → {}", job.branch, job.target_branch);
    match (position, job.phase) {
        (Some(position), _) if position > 1 => format!("{lands}: waits for {} before it", position - 1),
        (_, Phase::Test) => {
            format!("{lands}: test `{}`", job.test_cmd.as_deref().unwrap_or_default())
        }
        (_, phase) => format!("{lands}: {}", phase.as_str()),
    }
}
