//! The part of the registry that is about lands: jobs, and the marks that say which one is live.

use std::sync::Arc;

use serde_json::Value;

use super::{Memory, Registry, stored};
use crate::bus::{SCOPE_ACTIVE, SCOPE_JOBS, SCOPE_RECORDS};
use crate::model::job::Job;
use crate::model::record::{Lifecycle, Record};
use crate::model::{Error, Result};
use crate::worktrees::repo_lock::RepoGuard;

impl Registry {
    /// A job of which not even its ids can be read is found through the mark of the worktree that says it is landing.
    pub(super) async fn find_torn_jobs(&self, fresh: &mut Memory) -> Result<()> {
        let landing = fresh.records.values().filter(|record| record.lifecycle == Lifecycle::Landing);
        let without: Vec<String> = landing
            .map(|record| record.worktree_id.clone())
            .filter(|id| !fresh.jobs.values().any(|job| job.worktree_id == *id && !job.ended()))
            .collect();
        for worktree_id in without {
            let Some(Value::String(job_id)) = self.store.get(SCOPE_ACTIVE, &worktree_id).await? else { continue };
            if fresh.jobs.contains_key(&job_id) {
                continue;
            }
            if let Some(value) = self.store.get(SCOPE_JOBS, &job_id).await?
                && let Err(error) = Job::from_value(&value)
            {
                fresh.unreadable.insert(job_id.clone(), error.clone());
                fresh.unreadable_lands.insert(worktree_id, error);
            }
        }
        Ok(())
    }

    /// A land job, if there is one.
    ///
    /// # Errors
    /// `W301` when it cannot be read.
    pub fn job(&self, job_id: &str) -> Result<Option<Job>> {
        self.read(|memory| match (memory.jobs.get(job_id), memory.unreadable.get(job_id)) {
            (Some(job), _) => Ok(Some(job.clone())),
            (None, Some(error)) => Err(error.clone()),
            (None, None) => Ok(None),
        })
    }

    /// Refuses when the land of a worktree is described by a job that cannot be read.
    ///
    /// # Errors
    /// `W301`.
    pub fn require_readable_land(&self, worktree_id: &str) -> Result<()> {
        match self.read(|memory| memory.unreadable_lands.get(worktree_id).cloned()) {
            Some(error) => Err(Error::new(
                error.code,
                format!(
                    "{}; {worktree_id} stays as it is until a release that can read the job has ended it, or its keys in {SCOPE_JOBS} and {SCOPE_ACTIVE} are deleted and the worker is restarted",
                    error.message
                ),
            )),
            None => Ok(()),
        }
    }

    /// The jobs that have not ended, oldest first; also those whose end is still to be told.
    #[must_use]
    pub fn unfinished_jobs(&self) -> Vec<Job> {
        let mut jobs: Vec<Job> = self.read(|memory| memory.jobs.values().filter(|job| !job.ended()).cloned().collect());
        jobs.sort_by(|a, b| (a.created_at, &a.job_id).cmp(&(b.created_at, &b.job_id)));
        jobs
    }

    /// Whether a job has not ended.
    #[must_use]
    pub fn is_landing(&self) -> bool {
        self.read(|memory| memory.jobs.values().any(|job| !job.ended()))
    }

    /// The jobs that ended before `before_ms`, but for the last one of a worktree that still has a record.
    #[must_use]
    pub fn forgettable_jobs(&self, before_ms: i64) -> Vec<Job> {
        let mut jobs: Vec<Job> = self.read(|memory| {
            let old = memory.jobs.values().filter(|job| job.ended() && job.updated_at < before_ms);
            old.cloned().collect()
        });
        jobs.retain(|job| {
            !self.knows(&job.worktree_id)
                || self.last_job(&job.worktree_id).is_some_and(|last| last.job_id != job.job_id)
        });
        jobs
    }

    /// The job that is queued or running for a worktree.
    #[must_use]
    pub fn live_job(&self, worktree_id: &str) -> Option<Job> {
        self.read(|memory| {
            let job_id = memory.active.get(worktree_id)?;
            memory.jobs.get(job_id).filter(|job| !job.ended()).cloned()
        })
    }

    /// The newest job of a worktree, ended or not.
    #[must_use]
    pub fn last_job(&self, worktree_id: &str) -> Option<Job> {
        self.read(|memory| {
            let jobs = memory.jobs.values().filter(|job| job.worktree_id == worktree_id);
            jobs.max_by(|a, b| (a.created_at, &a.job_id).cmp(&(b.created_at, &b.job_id))).cloned()
        })
    }

    /// Stores a job. The land machine is the only caller after the first time, so no guard is needed: it holds the
    /// lease of the repository's lands.
    ///
    /// # Errors
    /// `W300` when the store refuses; nothing has changed then.
    pub async fn put_job(&self, job: Job) -> Result<()> {
        let _shared = self.loading.read().await;
        if let Some(error) = self.read(|memory| memory.unreadable.get(&job.job_id).cloned()) {
            // Somebody put what we cannot read in its place; that stays (invariant 3).
            return Err(error);
        }
        self.set(SCOPE_JOBS, &job.job_id, stored(&job)?).await?;
        self.write(|memory| memory.jobs.insert(job.job_id.clone(), job));
        Ok(())
    }

    /// Stores what makes a land of the worktree of `record` exist, and has it queued. `record` is what the caller has
    /// judged.
    ///
    /// First the job, beside the next fencing number of the record; nobody hears of the job before both are stored. Then,
    /// side by side, mark, record and queue: the job tells what mark and record should say, so that a land which is queued
    /// goes on where one of them could not be stored. `false` when the store held something else than `record`: memory has
    /// taken that over, nothing of the land is left, and the caller must judge again.
    ///
    /// # Errors
    /// Those of [`Registry::advance_fence`] and of `queue`; what was stored is taken back as far as the store can be
    /// reached.
    pub async fn begin_land(
        &self,
        permit: &RepoGuard,
        job: &Job,
        record: &Record,
        queue: impl Future<Output = Result<()>>,
    ) -> Result<bool> {
        let shared = self.loading.read().await;
        let id = &record.worktree_id;
        let (fenced, kept) = tokio::join!(self.next_fence(record), self.set(SCOPE_JOBS, &job.job_id, stored(job)?));
        let fence = match kept.and(fenced) {
            Ok(Some(fence)) => fence,
            refused => {
                let gone = self.store.delete(SCOPE_JOBS, &job.job_id).await;
                if let Err(error) = &gone {
                    tracing::warn!(job = job.job_id, %error, "a land that was refused may be found at the next start");
                }
                return refused.and(gone).map(|()| false);
            }
        };
        let before = Record { fence, updated_at: job.updated_at, ..record.clone() };
        let landing = Record { lifecycle: Lifecycle::Landing, ..before.clone() };
        let landing_value = stored(&landing)?;
        self.write(|memory| {
            memory.active.insert(id.clone(), job.job_id.clone());
            memory.records.insert(id.clone(), Arc::new(landing));
            memory.jobs.insert(job.job_id.clone(), job.clone());
        });
        let (marked, told, queued) = tokio::join!(
            self.set(SCOPE_ACTIVE, id, Value::String(job.job_id.clone())),
            self.set(SCOPE_RECORDS, id, landing_value),
            queue,
        );
        drop(shared);
        if let Err(error) = queued {
            self.cancel_land(permit, &job.job_id, &before).await?;
            return Err(error);
        }
        if let Err(error) = marked.and(told) {
            tracing::warn!(job = job.job_id, %error, "a land is queued, and so far only its job says so");
        }
        Ok(true)
    }

    /// Takes back what [`Registry::begin_land`] stored; the record becomes `before` again.
    ///
    /// # Errors
    /// `W300` when the store refuses; the job is the last to go, so what is left is still understood.
    async fn cancel_land(&self, permit: &RepoGuard, job_id: &str, before: &Record) -> Result<()> {
        self.put_record(permit, before.clone()).await?;
        self.set_live_job(permit, &before.worktree_id, None).await?;
        self.delete_job(permit, job_id).await
    }

    /// Forgets a job that ended long ago.
    ///
    /// # Errors
    /// `W300` when the store refuses; nothing has changed then.
    pub async fn delete_job(&self, _permit: &RepoGuard, job_id: &str) -> Result<()> {
        let _shared = self.loading.read().await;
        self.store.delete(SCOPE_JOBS, job_id).await?;
        self.write(|memory| memory.jobs.remove(job_id));
        Ok(())
    }

    /// Marks `job_id` as the live job of a worktree, or (with `None`) that it has none.
    ///
    /// # Errors
    /// `W300` when the store refuses; nothing has changed then.
    pub async fn set_live_job(&self, _permit: &RepoGuard, worktree_id: &str, job_id: Option<&str>) -> Result<()> {
        let _shared = self.loading.read().await;
        match job_id {
            Some(job_id) => {
                self.set(SCOPE_ACTIVE, worktree_id, Value::String(job_id.to_owned())).await?;
                self.write(|memory| memory.active.insert(worktree_id.to_owned(), job_id.to_owned()));
            }
            None => {
                self.store.delete(SCOPE_ACTIVE, worktree_id).await?;
                self.write(|memory| memory.active.remove(worktree_id));
            }
        }
        Ok(())
    }
}
