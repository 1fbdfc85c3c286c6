//! Who runs the next land job: the queue provider of the engine, or, where there is none, this process itself, in
//! order per repository.
//!
//! A job is stored before it is handed over, so a hand-over that is lost, repeated or out of order does no harm:
//! whoever runs a job first runs every older one of the same repository, under the lease of that repository.
//!
//! Invariants
//! 1. One job of a repository runs at a time: a mutex inside this process, a file lock across processes.
//! 2. A job that was accepted is run without anybody asking again: by the provider, or by this process.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use serde_json::json;
use tokio::sync::watch;

use crate::git::from_text;
use crate::land::step;
use crate::model::job::Job;
use crate::model::{Code, Error, Result};
use crate::worktrees::Context;
use crate::worktrees::repo_lock::lock_file;

/// The function that the queue calls.
pub const LAND_STEP: &str = "worktree::land-step";
/// The field by which the queue keeps its order.
pub const GROUP_FIELD: &str = "repo_key";
/// Name of the lock file that makes the lease hold across processes.
const LEASE_FILE: &str = "iii-worktree-land.lock";
/// How long to wait for the lease of another process before looking at the job again.
const LEASE_WAIT: Duration = Duration::from_secs(30);
/// How long a job may stand still before this process runs it itself, in milliseconds.
const STUCK_AFTER_MS: i64 = 30_000;
/// Pauses between two attempts of the in-process runner; doubled up to the second.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Hands land jobs to whoever runs them.
pub struct Dispatcher {
    leases: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
    /// Repositories whose jobs this process is running by itself.
    local: Mutex<HashSet<String>>,
    said_local: AtomicBool,
    stopping: watch::Sender<bool>,
    myself: Weak<Dispatcher>,
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Dispatcher {
    /// A dispatcher that runs nothing yet.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::new_cyclic(|myself| Dispatcher {
            leases: Mutex::default(),
            local: Mutex::default(),
            said_local: AtomicBool::new(false),
            stopping: watch::Sender::new(false),
            myself: myself.clone(),
        })
    }

    /// Declares the queue with the provider of the engine, where there is one.
    pub async fn declare(&self, ctx: &Context) {
        let queue = ctx.settings().config.land_queue.clone();
        match ctx.queue.define(&queue, GROUP_FIELD).await {
            Ok(()) => tracing::info!(queue, "the land queue is declared"),
            Err(refused) => tracing::debug!(queue, why = refused.why, "the land queue was not declared"),
        }
    }

    /// Hands over a stored job; returns when somebody has taken it.
    ///
    /// # Errors
    /// `W400` when no provider took it and this process is stopping.
    pub async fn dispatch(&self, ctx: &Arc<Context>, job: &Job) -> Result<()> {
        let queue = ctx.settings().config.land_queue.clone();
        let message = json!({"job_id": job.job_id, GROUP_FIELD: job.repo_key});
        let Err(refused) = ctx.queue.enqueue(&queue, LAND_STEP, message).await else { return Ok(()) };
        if !self.said_local.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                queue,
                why = refused.why,
                "no queue takes land jobs; this worker runs them itself, in order"
            );
        }
        if self.run_locally(ctx, &job.repo_key) {
            return Ok(());
        }
        Err(Error::new(
            Code::NotQueued,
            format!("the land could not be queued ({}) and this worker is stopping; call land again", refused.why),
        ))
    }

    /// Makes this process run the jobs of a repository until none is left; false when it is stopping.
    pub fn run_locally(&self, ctx: &Arc<Context>, repo_key: &str) -> bool {
        let Some(myself) = self.myself.upgrade().filter(|_| !self.is_stopping()) else { return false };
        if !locked(&self.local).insert(repo_key.to_owned()) {
            return true;
        }
        let (ctx, repo_key) = (ctx.clone(), repo_key.to_owned());
        let background = ctx.clone();
        background.background.spawn(async move { myself.drain(&ctx, &repo_key).await });
        true
    }

    /// Runs the jobs of a repository one after another.
    async fn drain(&self, ctx: &Arc<Context>, repo_key: &str) {
        let mut pause = FIRST_PAUSE;
        let mut stopping = self.stopping.subscribe();
        loop {
            let next = {
                // Leaving and being asked again must not pass each other by.
                let mut local = locked(&self.local);
                let next = ctx.registry.unfinished_jobs().into_iter().find(|job| job.repo_key == repo_key);
                if next.is_none() || *stopping.borrow() {
                    local.remove(repo_key);
                    return;
                }
                next
            };
            let Some(job) = next else { return };
            match self.run_now(ctx, &job.job_id).await {
                Ok(_) => pause = FIRST_PAUSE,
                Err(error) => {
                    tracing::warn!(job = job.job_id, code = %error.code, %error, "a land will be tried again");
                    tokio::select! {
                        () = tokio::time::sleep(pause) => pause = (pause * 2).min(LONGEST_PAUSE),
                        _ = stopping.wait_for(|stop| *stop) => {}
                    }
                }
            }
        }
    }

    /// Runs a job, and every older one of its repository, under the lease of that repository.
    ///
    /// # Errors
    /// A fault in the surroundings; the job can be run again.
    pub async fn run_now(&self, ctx: &Arc<Context>, job_id: &str) -> Result<Option<Job>> {
        let Some(job) = ctx.registry.job(job_id)? else { return Ok(None) };
        if job.ended() {
            return Ok(Some(job));
        }
        let lease = locked(&self.leases).entry(job.repo_key.clone()).or_default().clone();
        let _turn = lease.lock().await;
        // Held for as long as a gate may take, by whichever process lands first.
        let _file = loop {
            match lock_file(&from_text(&job.repo_key), LEASE_FILE, LEASE_WAIT).await {
                Ok(file) => break file,
                Err(error) if self.is_stopping() => return Err(error),
                Err(error) => tracing::info!(job = job_id, %error, "another process is landing"),
            }
        };
        step::run_in_order(ctx, job_id, &self.stopping.subscribe()).await
    }

    /// Runs here what has not ended and has not moved for a while. Harmless when somebody else is at it: jobs are run
    /// under a lease.
    pub fn redrive(&self, ctx: &Arc<Context>) {
        let stale = ctx.now() - STUCK_AFTER_MS;
        for job in ctx.registry.unfinished_jobs().into_iter().filter(|job| job.updated_at < stale) {
            self.run_locally(ctx, &job.repo_key);
        }
    }

    /// Whether no more work is taken.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        *self.stopping.borrow()
    }

    /// Takes no more work; what runs comes to its next recorded state and ends there.
    pub fn stop(&self) {
        self.stopping.send_replace(true);
    }
}
