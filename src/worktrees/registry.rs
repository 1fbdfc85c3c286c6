//! Records, jobs and the marks of live jobs.
//!
//! The state store of the engine is the truth. The registry holds a copy in memory, loaded when the worker starts
//! and after every reconnect, so that a read needs no call over the bus; every write goes to the store first.
//!
//! Invariants
//! 1. A write is in the store before it is in memory; a write that the store refused is in neither.
//! 2. Writing needs the guard of the repository (see `repo_lock`); reading needs nothing.
//! 3. What cannot be read is kept in the store as it is, and named (`W301`) when it is asked for.
//! 4. After a reconnect the newer of store and memory wins, so that writes the engine had acknowledged but not yet
//!    saved come back.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, PoisonError, RwLock};

use serde::Serialize;
use serde_json::Value;

use super::repo_lock::{RepoGuard, RepoLocks};
use crate::bus::{SCOPE_ACTIVE, SCOPE_JOBS, SCOPE_RECORDS, StateStore};
use crate::model::job::Job;
use crate::model::record::Record;
use crate::model::{Code, Error, Result};

#[derive(Default)]
struct Memory {
    records: HashMap<String, Record>,
    jobs: HashMap<String, Job>,
    /// Worktree id → job id.
    active: HashMap<String, String>,
    /// Id → why its stored value cannot be used.
    unreadable: HashMap<String, Error>,
}

/// The registry of one worker.
pub struct Registry {
    store: Arc<dyn StateStore>,
    memory: RwLock<Memory>,
    locks: RepoLocks,
    /// Writers share it; loading takes it alone, so that it never overwrites a write in flight.
    loading: tokio::sync::RwLock<()>,
}

fn stored(value: &impl Serialize) -> Result<Value> {
    serde_json::to_value(value)
        .map_err(|error| Error::new(Code::RecordUnreadable, format!("a record cannot be written as JSON: {error}")))
}

impl Registry {
    /// An empty registry over `store`; see [`Registry::load`].
    #[must_use]
    pub fn new(store: Arc<dyn StateStore>) -> Self {
        Registry {
            store,
            memory: RwLock::default(),
            locks: RepoLocks::default(),
            loading: tokio::sync::RwLock::default(),
        }
    }

    fn read<R>(&self, look: impl FnOnce(&Memory) -> R) -> R {
        look(&self.memory.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn write<R>(&self, change: impl FnOnce(&mut Memory) -> R) -> R {
        change(&mut self.memory.write().unwrap_or_else(PoisonError::into_inner))
    }

    /// Reads the whole registry from the store and writes back what only memory still knows (invariant 4).
    ///
    /// # Errors
    /// `W300` when the store cannot be reached; memory is then as it was.
    pub async fn load(&self) -> Result<()> {
        let _alone = self.loading.write().await;
        let records = self.store.list(SCOPE_RECORDS).await?;
        let jobs = self.store.list(SCOPE_JOBS).await?;
        let active = self.store.list(SCOPE_ACTIVE).await?;
        let mut fresh = Memory::default();
        for value in &records {
            match Record::from_value(value) {
                Ok(record) => drop(fresh.records.insert(record.worktree_id.clone(), record)),
                Err(error) => fresh.note_unreadable(value, "worktree_id", error),
            }
        }
        for value in &jobs {
            match Job::from_value(value) {
                Ok(job) => drop(fresh.jobs.insert(job.job_id.clone(), job)),
                Err(error) => fresh.note_unreadable(value, "job_id", error),
            }
        }
        // The store lists values without their keys: the worktree of a live job is found through the job.
        for job_id in active.iter().filter_map(Value::as_str) {
            if let Some(job) = fresh.jobs.get(job_id) {
                fresh.active.insert(job.worktree_id.clone(), job_id.to_owned());
            }
        }
        self.write_back(&mut fresh).await?;
        self.write(|memory| *memory = fresh);
        Ok(())
    }

    /// Stores again what memory has newer than `fresh`, and puts it into `fresh`.
    async fn write_back(&self, fresh: &mut Memory) -> Result<()> {
        let (records, jobs, active) = self.read(|memory| {
            let records: Vec<Record> = memory
                .records
                .values()
                .filter(|ours| {
                    let theirs = fresh.records.get(&ours.worktree_id);
                    theirs.is_none_or(|theirs| (theirs.fence, theirs.updated_at) < (ours.fence, ours.updated_at))
                })
                .cloned()
                .collect();
            let jobs: Vec<Job> = memory
                .jobs
                .values()
                .filter(|ours| fresh.jobs.get(&ours.job_id).is_none_or(|theirs| theirs.updated_at < ours.updated_at))
                .cloned()
                .collect();
            (records, jobs, memory.active.clone())
        });
        for record in records {
            self.store.set(SCOPE_RECORDS, &record.worktree_id, stored(&record)?).await?;
            fresh.records.insert(record.worktree_id.clone(), record);
        }
        for job in jobs {
            self.store.set(SCOPE_JOBS, &job.job_id, stored(&job)?).await?;
            fresh.jobs.insert(job.job_id.clone(), job);
        }
        for (worktree_id, job_id) in active {
            if let Entry::Vacant(vacant) = fresh.active.entry(worktree_id) {
                self.store.set(SCOPE_ACTIVE, vacant.key(), Value::String(job_id.clone())).await?;
                vacant.insert(job_id);
            }
        }
        Ok(())
    }

    /// Waits for the turn of this caller and takes the right to write the records of a repository.
    ///
    /// # Errors
    /// `W300`; see [`RepoLocks::lock`].
    pub async fn lock(&self, repo_key: &str) -> Result<RepoGuard> {
        self.locks.lock(repo_key).await
    }

    /// The record of a worktree.
    ///
    /// # Errors
    /// `W200` when there is none, `W301` when it cannot be read.
    pub fn record(&self, worktree_id: &str) -> Result<Record> {
        self.read(|memory| match (memory.records.get(worktree_id), memory.unreadable.get(worktree_id)) {
            (Some(record), _) => Ok(record.clone()),
            (None, Some(error)) => Err(error.clone()),
            (None, None) => Err(Error::new(
                Code::NoSuchWorktree,
                format!("there is no worktree `{worktree_id}`; worktree::list shows those that exist"),
            )),
        })
    }

    /// Whether the store holds something under this worktree id, readable or not.
    #[must_use]
    pub fn knows(&self, worktree_id: &str) -> bool {
        self.read(|memory| memory.records.contains_key(worktree_id) || memory.unreadable.contains_key(worktree_id))
    }

    /// All records, oldest first.
    #[must_use]
    pub fn records(&self) -> Vec<Record> {
        let mut records: Vec<Record> = self.read(|memory| memory.records.values().cloned().collect());
        records.sort_by(|a, b| (a.created_at, &a.worktree_id).cmp(&(b.created_at, &b.worktree_id)));
        records
    }

    /// A land job.
    #[must_use]
    pub fn job(&self, job_id: &str) -> Option<Job> {
        self.read(|memory| memory.jobs.get(job_id).cloned())
    }

    /// The jobs that have not ended, oldest first.
    #[must_use]
    pub fn unfinished_jobs(&self) -> Vec<Job> {
        let mut jobs: Vec<Job> = self.read(|memory| memory.jobs.values().filter(|job| !job.done).cloned().collect());
        jobs.sort_by(|a, b| (a.created_at, &a.job_id).cmp(&(b.created_at, &b.job_id)));
        jobs
    }

    /// The job that is queued or running for a worktree.
    #[must_use]
    pub fn live_job(&self, worktree_id: &str) -> Option<Job> {
        self.read(|memory| {
            let job_id = memory.active.get(worktree_id)?;
            memory.jobs.get(job_id).filter(|job| !job.done).cloned()
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

    /// Why values in the store cannot be used, by id.
    #[must_use]
    pub fn unreadable(&self) -> Vec<Error> {
        self.read(|memory| memory.unreadable.values().cloned().collect())
    }

    /// Stores a record.
    ///
    /// # Errors
    /// `W300` when the store refuses; nothing has changed then.
    pub async fn put_record(&self, _permit: &RepoGuard, record: Record) -> Result<()> {
        let _shared = self.loading.read().await;
        self.store.set(SCOPE_RECORDS, &record.worktree_id, stored(&record)?).await?;
        self.write(|memory| memory.records.insert(record.worktree_id.clone(), record));
        Ok(())
    }

    /// Takes the next fencing number of a record and returns it. When the store holds something else than memory
    /// (another writer was there), memory takes it over and the caller must judge again: `None`.
    ///
    /// # Errors
    /// `W300`, `W301`, or `W200` when the record is gone from the store.
    pub async fn advance_fence(&self, _permit: &RepoGuard, worktree_id: &str) -> Result<Option<u64>> {
        let _shared = self.loading.read().await;
        let before = self.record(worktree_id)?;
        let value = self.store.increment(SCOPE_RECORDS, worktree_id, "fence").await?;
        if value.get("worktree_id").is_none() {
            // The increment made an object out of nothing: the record was deleted behind our back.
            self.store.delete(SCOPE_RECORDS, worktree_id).await?;
            self.write(|memory| memory.records.remove(worktree_id));
            return Err(self.record(worktree_id).err().unwrap_or_else(|| {
                Error::new(Code::NoSuchWorktree, format!("the worktree `{worktree_id}` was removed meanwhile"))
            }));
        }
        let after = Record::from_value(&value)?;
        let undisturbed = Record { fence: before.fence + 1, ..before } == after;
        let fence = after.fence;
        self.write(|memory| memory.records.insert(worktree_id.to_owned(), after));
        Ok(undisturbed.then_some(fence))
    }

    /// Removes a record.
    ///
    /// # Errors
    /// `W300` when the store refuses; nothing has changed then.
    pub async fn delete_record(&self, _permit: &RepoGuard, worktree_id: &str) -> Result<()> {
        let _shared = self.loading.read().await;
        self.store.delete(SCOPE_RECORDS, worktree_id).await?;
        self.write(|memory| memory.records.remove(worktree_id));
        Ok(())
    }

    /// Stores a job. The land machine is the only caller after the first time, so no guard is needed: it holds the
    /// lease of the repository's lands.
    ///
    /// # Errors
    /// `W300` when the store refuses; nothing has changed then.
    pub async fn put_job(&self, job: Job) -> Result<()> {
        let _shared = self.loading.read().await;
        self.store.set(SCOPE_JOBS, &job.job_id, stored(&job)?).await?;
        self.write(|memory| memory.jobs.insert(job.job_id.clone(), job));
        Ok(())
    }

    /// Forgets a job that was never queued.
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
                self.store.set(SCOPE_ACTIVE, worktree_id, Value::String(job_id.to_owned())).await?;
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

impl Memory {
    fn note_unreadable(&mut self, value: &Value, id_field: &str, error: Error) {
        tracing::warn!(%error, "a stored value was left alone");
        let id = value.get(id_field).and_then(Value::as_str).unwrap_or("?").to_owned();
        self.unreadable.insert(id, error);
    }
}
