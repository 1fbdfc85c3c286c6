//! `worktree queue`: the lands that wait or run.

use clap::Args;
use serde_json::{Value, json};

use super::link::{Link, READ_LIMIT};
use super::scope::Scope;
use super::session::{Common, Session};
use super::table::{self, Column, column};
use super::terminal::{Style, paint};
use super::trouble::Outcome;
use super::{Exit, output, words};
use crate::bus::{SCOPE_JOBS, StateStore as _};
use crate::git::{Git, from_text};
use crate::model::clock::{Clock as _, SystemClock};
use crate::model::job::Job;

const AFTER_HELP: &str = "\
Position 1 runs; those behind it wait for their turn in the same repository.

Examples:
  worktree queue
  worktree queue --all --ended --json

Exit codes:
  0  shown, however many there are
  1  the state cannot be read
  2  the command line is wrong
  3  no engine answers";

const COLUMNS: [Column; 7] = [
    column("POSITION"),
    column("WORKTREE"),
    column("BRANCH").cut(),
    column("ONTO").optional(1).cut(),
    column("PHASE"),
    column("SINCE").optional(2),
    column("JOB").optional(3),
];

/// The subcommand.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Arguments {
    #[command(flatten)]
    scope: Scope,
    /// Show those that have ended as well, with what came of them
    #[arg(long)]
    ended: bool,
    #[command(flatten)]
    pub(super) common: Common,
}

pub(super) async fn run(arguments: Arguments, session: &Session) -> Outcome {
    let link = session.link().await?;
    let repo_key = repo_key(link, &arguments.scope).await?;
    let mut jobs = jobs(link).await?;
    jobs.retain(|job| repo_key.as_ref().is_none_or(|key| job.repo_key == *key) && (arguments.ended || !job.done));
    let placed: Vec<(Option<usize>, &Job)> = jobs.iter().map(|job| (position(&jobs, job), job)).collect();
    if session.json {
        let shown: Vec<Value> = placed.iter().map(|(position, job)| document(*position, job)).collect();
        output::json(&json!({"jobs": shown}))?;
    } else if !placed.is_empty() {
        let now = SystemClock.now_ms();
        let rows: Vec<Vec<String>> = placed.iter().map(|(position, job)| cells(*position, job, now)).collect();
        output::write(&table::render(&COLUMNS, &rows))?;
    }
    Ok(Exit::Success)
}

/// The jobs of the worker, in the order in which they were asked for.
///
/// # Errors
/// When the state or a job in it cannot be read.
pub(super) async fn jobs(link: &Link) -> Outcome<Vec<Job>> {
    let stored = link.bus().list(SCOPE_JOBS).await?;
    let mut jobs = stored.iter().map(Job::from_value).collect::<Result<Vec<Job>, _>>()?;
    jobs.sort_by_key(|job| job.created_at);
    Ok(jobs)
}

/// Which turn a job has in its repository; none when it has ended.
pub(super) fn position(jobs: &[Job], job: &Job) -> Option<usize> {
    let ahead = jobs.iter().filter(|other| !other.done && other.repo_key == job.repo_key);
    (!job.done).then(|| 1 + ahead.filter(|other| other.created_at < job.created_at).count())
}

async fn repo_key(link: &Link, scope: &Scope) -> Outcome<Option<String>> {
    let repo_path = scope.repo_path(link).await?;
    let Some(path) = repo_path.as_str() else { return Ok(None) };
    if let Ok(found) = Git::new(READ_LIMIT).discover(&from_text(path)).await {
        return Ok(Some(found.repo.key()));
    }
    // A repository of another machine: the worker tells its key with its worktrees.
    let answer = link.read("worktree::list", json!({"repo_path": repo_path})).await?;
    Ok(Some(answer["worktrees"][0]["repo_key"].as_str().unwrap_or_default().to_owned()))
}

fn document(position: Option<usize>, job: &Job) -> Value {
    json!({
        "job_id": job.job_id, "worktree_id": job.worktree_id, "repo_path": job.repo_path, "branch": job.branch,
        "target_branch": job.target_branch, "position": position, "phase": job.phase, "done": job.done,
        "blocked_code": job.blocked_code, "message": job.message, "merged_sha": job.merged_sha,
        "created_at": job.created_at, "updated_at": job.updated_at,
    })
}

fn cells(position: Option<usize>, job: &Job, now: i64) -> Vec<String> {
    let phase = match (&job.blocked_code, job.done) {
        (Some(code), _) => paint(Style::Red, &format!("blocked {code}")),
        (None, true) => paint(Style::Green, "landed"),
        (None, false) if position == Some(1) => job.phase.as_str().to_owned(),
        (None, false) => paint(Style::Dim, "waits"),
    };
    vec![
        position.map(|position| position.to_string()).unwrap_or_default(),
        job.worktree_id.clone(),
        job.branch.clone(),
        job.target_branch.clone(),
        phase,
        words::age(job.updated_at, now),
        job.job_id.clone(),
    ]
}
