//! Commands that run in the background: `shell::exec_bg`, `status`, `kill`, `list`.
//!
//! A job that has ended stays known until so many others ended after it that it is forgotten; one that runs is
//! never forgotten.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::{Notify, watch};

use super::core::Core;
use super::fault::{Answer, Fault};
use super::ident;
use super::shell::{End, Exec, Finished, millis};
use super::shell_output::View;
use super::state::parse;

struct Job {
    command: String,
    args: Option<Vec<String>>,
    limit: Duration,
    started_at_ms: i64,
    finished_at_ms: Option<i64>,
    finished: Option<Arc<Finished>>,
    stdout: View,
    stderr: View,
    kill: Arc<Notify>,
    /// True once the job has ended.
    ended: watch::Sender<bool>,
}

#[derive(Default)]
struct Table {
    jobs: HashMap<String, Job>,
    ended: VecDeque<String>,
}

/// The jobs.
pub(super) struct Jobs {
    table: Mutex<Table>,
    kept: usize,
}

#[derive(Deserialize)]
struct JobId {
    job_id: String,
}

impl Jobs {
    pub(super) fn new(kept: usize) -> Self {
        Self { table: Mutex::new(Table::default()), kept }
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self, id: &str, finished: Finished) {
        let mut table = self.lock();
        if let Some(job) = table.jobs.get_mut(id) {
            job.finished_at_ms = Some(ident::now_ms());
            job.finished = Some(Arc::new(finished));
            job.ended.send_replace(true);
        }
        table.ended.push_back(id.to_owned());
        while table.ended.len() > self.kept {
            if let Some(oldest) = table.ended.pop_front() {
                table.jobs.remove(&oldest);
            }
        }
    }
}

fn status_of(job: &Job) -> &'static str {
    match job.finished.as_ref().map(|finished| finished.end) {
        None => "running",
        Some(End::Exited(0)) => "finished",
        Some(End::Exited(_)) => "failed",
        Some(End::TimedOut) => "timed_out",
        Some(End::Killed) => "killed",
    }
}

fn record(id: &str, job: &Job, with_output: bool) -> Value {
    let mut record = json!({
        "job_id": id,
        "command": job.command,
        "args": job.args,
        "status": status_of(job),
        "exit_code": job.finished.as_ref().and_then(|finished| finished.exit_code()),
        "timed_out": job.finished.as_ref().is_some_and(|finished| finished.end == End::TimedOut),
        "timeout_ms": millis(job.limit),
        "started_at_ms": job.started_at_ms,
        "finished_at_ms": job.finished_at_ms,
    });
    if with_output {
        let (stdout, stderr) = match &job.finished {
            Some(finished) => (finished.stdout.clone(), finished.stderr.clone()),
            None => (job.stdout.so_far(), job.stderr.so_far()),
        };
        record["stdout"] = Value::String(stdout.text);
        record["stderr"] = Value::String(stderr.text);
        record["stdout_truncated"] = Value::Bool(stdout.truncated);
        record["stderr_truncated"] = Value::Bool(stderr.truncated);
    }
    record
}

fn unknown(id: &str) -> Fault {
    Fault::new("S211", format!("there is no job '{id}'; finished jobs are forgotten after a while"))
}

/// Runs one of the functions.
pub(super) async fn perform(core: Arc<Core>, function_id: String, data: Value) -> Answer {
    match function_id.as_str() {
        "shell::exec" => core.shell.exec(parse_exec(data)?).await,
        "shell::exec_bg" => {
            let exec = parse_exec(data)?;
            let id = start(&core, exec)?;
            Ok(Some(json!({ "job_id": id })))
        }
        "shell::status" => {
            let JobId { job_id } = parse(&function_id, data)?;
            let table = core.shell.jobs.lock();
            let job = table.jobs.get(&job_id).ok_or_else(|| unknown(&job_id))?;
            Ok(Some(record(&job_id, job, true)))
        }
        "shell::kill" => {
            let JobId { job_id } = parse(&function_id, data)?;
            kill(&core, &job_id).await
        }
        _ => {
            let table = core.shell.jobs.lock();
            let mut jobs: Vec<(&String, &Job)> = table.jobs.iter().collect();
            jobs.sort_by_key(|(id, job)| (job.started_at_ms, *id));
            let jobs: Vec<Value> = jobs.into_iter().map(|(id, job)| record(id, job, false)).collect();
            Ok(Some(json!({ "jobs": jobs })))
        }
    }
}

/// A bad request has the shell's own code, not the engine's.
fn parse_exec(data: Value) -> Result<Exec, Fault> {
    serde_json::from_value(data).map_err(|error| Fault::new("S210", error.to_string()))
}

fn start(core: &Arc<Core>, exec: Exec) -> Result<String, Fault> {
    let running = core.shell.start(&exec)?;
    let id = ident::fresh().to_string();
    let kill = Arc::new(Notify::new());
    let (stdout, stderr) = running.views();
    let job = Job {
        command: exec.command,
        args: exec.args,
        limit: running.limit,
        started_at_ms: ident::now_ms(),
        finished_at_ms: None,
        finished: None,
        stdout,
        stderr,
        kill: kill.clone(),
        ended: watch::Sender::new(false),
    };
    core.shell.jobs.lock().jobs.insert(id.clone(), job);
    let (core, job_id) = (core.clone(), id.clone());
    let stop = core.shell.stop.subscribe();
    tokio::spawn(async move {
        let finished = running.finish(stop, async move { kill.notified().await }).await;
        core.shell.jobs.end(&job_id, finished);
    });
    Ok(id)
}

async fn kill(core: &Core, id: &str) -> Answer {
    let (mut ended, running) = {
        let table = core.shell.jobs.lock();
        let job = table.jobs.get(id).ok_or_else(|| unknown(id))?;
        job.kill.notify_one();
        (job.ended.subscribe(), job.finished.is_none())
    };
    // The answer means that the job is over, or that its record is gone and so is it.
    let over = ended.wait_for(|ended| *ended).await.is_ok();
    Ok(Some(json!({"job_id": id, "killed": running && over})))
}
