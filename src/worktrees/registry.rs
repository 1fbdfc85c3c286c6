//! Records, jobs and the marks of live jobs.
//!
//! The state store of the engine is the truth. The registry holds a copy in memory, loaded when the worker starts
//! and after every reconnect, so that a read needs no call over the bus; every write goes to the store first. The
//! marker of a worktree follows its record, so that a store that lost records can be filled again (`rebuild`).
//!
//! Invariants
//! 1. A write is in the store before it is in memory; a write that the store refused is in neither.
//! 2. Writing needs the guard of the repository (see `repo_lock`); reading needs nothing.
//! 3. What cannot be read is kept in the store as it is, and named (`W301`) when it is asked for. A worktree whose land
//!    job cannot be read is left alone as a whole: the job may belong to a newer release and may not have ended.
//! 4. After a reconnect the newer of store and memory wins, so that writes the engine had acknowledged but not yet
//!    saved come back; what this process deleted stays deleted.
//! 5. A record that somebody else wrote into the store is taken over; the echo of a write of ours changes nothing.

use std::collections::hash_map::{DefaultHasher, Entry};
use std::collections::{HashMap, VecDeque};
use std::hash::{Hash as _, Hasher as _};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use serde::Serialize;
use serde_json::Value;

use super::repo_lock::{RepoGuard, RepoLocks};
use super::{inspect, marker};
use crate::bus::{SCOPE_ACTIVE, SCOPE_JOBS, SCOPE_RECORDS, StateStore};
use crate::model::job::Job;
use crate::model::record::{Lifecycle, Record};
use crate::model::{Code, Error, Result};

mod lands;

/// How many writes are remembered to know their echoes by.
const ECHOES: usize = 1024;
/// How many deleted records are remembered.
const DELETED: usize = 4096;

#[derive(Default, Clone)]
struct Memory {
    records: HashMap<String, Arc<Record>>,
    jobs: HashMap<String, Job>,
    /// Worktree id → job id.
    active: HashMap<String, String>,
    /// Id → why its stored value cannot be used.
    unreadable: HashMap<String, Error>,
    /// Worktree id → why its land job cannot be used.
    unreadable_lands: HashMap<String, Error>,
    /// Records that this process deleted, oldest first, as they were.
    deleted: VecDeque<Arc<Record>>,
}

/// The registry of one worker.
pub struct Registry {
    store: Arc<dyn StateStore>,
    memory: RwLock<Memory>,
    locks: RepoLocks,
    /// Writers share it; loading takes it alone, so that it never overwrites a write in flight.
    loading: tokio::sync::RwLock<()>,
    /// Fingerprints of the last writes.
    echoes: Mutex<VecDeque<u64>>,
}

/// What became of a change in the store that this process may not have made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outside {
    /// It was the echo of a write of ours, or changed nothing.
    Known,
    /// It was taken over.
    TakenOver,
    /// A record is gone from the store.
    RecordGone,
}

fn fingerprint(scope: &str, key: &str, value: &Value) -> u64 {
    let mut hasher = DefaultHasher::new();
    (scope, key, value.to_string()).hash(&mut hasher);
    hasher.finish()
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
            echoes: Mutex::default(),
        }
    }

    fn read<R>(&self, look: impl FnOnce(&Memory) -> R) -> R {
        look(&self.memory.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn write<R>(&self, change: impl FnOnce(&mut Memory) -> R) -> R {
        change(&mut self.memory.write().unwrap_or_else(PoisonError::into_inner))
    }

    /// Stores a value, and remembers it to know its echo by.
    async fn set(&self, scope: &str, key: &str, value: Value) -> Result<()> {
        self.expect_echo(scope, key, &value);
        self.store.set(scope, key, value).await
    }

    fn expect_echo(&self, scope: &str, key: &str, value: &Value) {
        let mut echoes = self.echoes.lock().unwrap_or_else(PoisonError::into_inner);
        if echoes.len() == ECHOES {
            echoes.pop_front();
        }
        echoes.push_back(fingerprint(scope, key, value));
    }

    /// Whether this is the news of a write of ours; each write has one echo.
    fn is_echo(&self, scope: &str, key: &str, value: &Value) -> bool {
        let fingerprint = fingerprint(scope, key, value);
        let mut echoes = self.echoes.lock().unwrap_or_else(PoisonError::into_inner);
        let at = echoes.iter().position(|echo| *echo == fingerprint);
        at.and_then(|at| echoes.remove(at)).is_some()
    }

    /// Reads the whole registry from the store and writes back what only memory still knows (invariant 4).
    ///
    /// # Errors
    /// `W300` when the store cannot be reached; it can be called again.
    pub async fn load(&self) -> Result<()> {
        let (newer, stale) = {
            let _alone = self.loading.write().await;
            let mut fresh = self.read_store().await?;
            let ours = self.read(Memory::clone);
            let newer = fresh.merge(ours);
            let stale = fresh.take_deleted();
            self.write(|memory| *memory = fresh);
            (newer, stale)
        };
        self.write_back(newer, stale).await
    }

    async fn read_store(&self) -> Result<Memory> {
        let records = self.store.list(SCOPE_RECORDS).await?;
        let jobs = self.store.list(SCOPE_JOBS).await?;
        let active = self.store.list(SCOPE_ACTIVE).await?;
        let mut fresh = Memory::default();
        for value in &records {
            match Record::from_value(value) {
                Ok(record) => drop(fresh.records.insert(record.worktree_id.clone(), Arc::new(record))),
                Err(error) => fresh.note_unreadable(value, "worktree_id", error),
            }
        }
        for value in &jobs {
            match Job::from_value(value) {
                Ok(job) => drop(fresh.jobs.insert(job.job_id.clone(), job)),
                Err(error) => {
                    if let Some(worktree_id) = value.get("worktree_id").and_then(Value::as_str)
                        && value.get("done") != Some(&Value::Bool(true))
                    {
                        fresh.unreadable_lands.insert(worktree_id.to_owned(), error.clone());
                    }
                    fresh.note_unreadable(value, "job_id", error);
                }
            }
        }
        self.find_torn_jobs(&mut fresh).await?;
        // The store lists values without their keys: the worktree of a live job is found through the job. A job that was
        // cut off before its mark was stored is live all the same.
        for job_id in active.iter().filter_map(Value::as_str) {
            if let Some(job) = fresh.jobs.get(job_id) {
                fresh.active.insert(job.worktree_id.clone(), job_id.to_owned());
            }
        }
        for job in fresh.jobs.values().filter(|job| !job.done) {
            fresh.active.insert(job.worktree_id.clone(), job.job_id.clone());
        }
        Ok(fresh)
    }

    /// Stores again what memory had newer than the store, and deletes what this process had deleted.
    async fn write_back(&self, newer: Memory, stale: Vec<Arc<Record>>) -> Result<()> {
        for record in newer.records.into_values() {
            let guard = self.lock(&record.repo_key).await?;
            // Somebody may have written it meanwhile; memory then has what counts.
            if let Ok(current) = self.record(&record.worktree_id) {
                self.put_record(&guard, current).await?;
            }
        }
        for job in newer.jobs.into_values() {
            if let Ok(Some(current)) = self.job(&job.job_id) {
                self.put_job(current).await?;
            }
        }
        for (worktree_id, job_id) in newer.active {
            let Ok(Some(job)) = self.job(&job_id) else { continue };
            let guard = self.lock(&job.repo_key).await?;
            if self.live_job(&worktree_id).is_some_and(|live| live.job_id == job_id) {
                self.set_live_job(&guard, &worktree_id, Some(&job_id)).await?;
            }
        }
        for record in stale {
            let guard = self.lock(&record.repo_key).await?;
            if !self.knows(&record.worktree_id) {
                self.delete_record(&guard, &record.worktree_id).await?;
            }
        }
        Ok(())
    }

    /// Looks at a change in the store that this process may not have made: `value` is what the store says is under
    /// `key` now. What is stored at this moment is read again before it is taken over, since news of older writes may
    /// arrive late.
    ///
    /// # Errors
    /// `W300` when the store cannot be reached.
    pub async fn changed_outside(&self, scope: &str, key: &str, value: &Value) -> Result<Outside> {
        if self.is_echo(scope, key, value) || self.holds(scope, key, value) {
            return Ok(Outside::Known);
        }
        let _alone = self.loading.write().await;
        let stored = self.store.get(scope, key).await?.unwrap_or(Value::Null);
        if self.holds(scope, key, &stored) {
            return Ok(Outside::Known);
        }
        tracing::warn!(scope, key, "somebody else wrote to the registry; it was taken over");
        Ok(self.write(|memory| memory.take_over(scope, key, &stored)))
    }

    /// Whether memory has exactly this value (null: nothing) under the key.
    fn holds(&self, scope: &str, key: &str, value: &Value) -> bool {
        let ours = self.read(|memory| match scope {
            SCOPE_RECORDS => memory.records.get(key).map(|record| stored(&**record)),
            SCOPE_JOBS => memory.jobs.get(key).map(stored),
            _ => memory.active.get(key).map(stored),
        });
        match ours {
            Some(Ok(ours)) => ours == *value,
            Some(Err(_)) => false,
            // The mark of a live job has the id of its worktree, whose record may well be there.
            None => value.is_null() && (scope == SCOPE_ACTIVE || !self.knows(key)),
        }
    }

    /// Waits for the turn of this caller and takes the right to write the records of a repository.
    ///
    /// # Errors
    /// `W300`; see [`RepoLocks::lock`].
    pub async fn lock(&self, repo_key: &str) -> Result<RepoGuard> {
        self.locks.lock(repo_key).await
    }

    /// The same if nobody has it right now.
    pub async fn try_lock(&self, repo_key: &str) -> Option<RepoGuard> {
        self.locks.try_lock(repo_key).await
    }

    /// The record of a worktree.
    ///
    /// # Errors
    /// `W200` when there is none, `W301` when it cannot be read.
    pub fn record(&self, worktree_id: &str) -> Result<Record> {
        self.read(|memory| match (memory.records.get(worktree_id), memory.unreadable.get(worktree_id)) {
            (Some(record), _) => Ok(Record::clone(record)),
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
    pub fn records(&self) -> Vec<Arc<Record>> {
        let mut records: Vec<Arc<Record>> = self.read(|memory| memory.records.values().cloned().collect());
        records.sort_by(|a, b| (a.created_at, &a.worktree_id).cmp(&(b.created_at, &b.worktree_id)));
        records
    }

    /// Why values in the store cannot be used, by id.
    #[must_use]
    pub fn unreadable(&self) -> Vec<Error> {
        self.read(|memory| memory.unreadable.values().cloned().collect())
    }

    /// Stores a record; the marker of its worktree follows, where there is one.
    ///
    /// # Errors
    /// `W300` when the store refuses; nothing has changed then.
    pub async fn put_record(&self, _permit: &RepoGuard, record: Record) -> Result<()> {
        let _shared = self.loading.read().await;
        self.set(SCOPE_RECORDS, &record.worktree_id, stored(&record)?).await?;
        self.write(|memory| {
            memory.deleted.retain(|deleted| deleted.worktree_id != record.worktree_id);
            memory.records.insert(record.worktree_id.clone(), Arc::new(record.clone()))
        });
        // The store is the truth: a marker that cannot follow is only older than it could be.
        let followed = tokio::task::spawn_blocking(move || marker::follow(&record)).await;
        match followed {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(code = %error.code, %error, "a marker did not follow its record"),
            Err(error) => tracing::warn!(%error, "a marker did not follow its record"),
        }
        Ok(())
    }

    /// Takes the next fencing number of a record and returns it. When the store holds something else than memory
    /// (another writer was there), memory takes it over and the caller must judge again: `None`.
    ///
    /// # Errors
    /// `W300`, `W301`, or `W200` when the record is gone from the store.
    pub async fn advance_fence(&self, _permit: &RepoGuard, worktree_id: &str) -> Result<Option<u64>> {
        let _shared = self.loading.read().await;
        self.next_fence(&self.record(worktree_id)?).await
    }

    /// [`Registry::advance_fence`] by who keeps the registry from being loaded, when memory had `before`.
    async fn next_fence(&self, before: &Record) -> Result<Option<u64>> {
        let worktree_id = &before.worktree_id;
        let value = self.store.increment(SCOPE_RECORDS, worktree_id, "fence").await?;
        self.expect_echo(SCOPE_RECORDS, worktree_id, &value);
        if value.get("worktree_id").is_none() {
            // The increment made an object out of nothing: the store has lost the record, or it was deleted behind our
            // back. A worktree that is there keeps its record.
            if inspect::lifecycle_now(before) != Lifecycle::Orphaned {
                self.set(SCOPE_RECORDS, worktree_id, stored(before)?).await?;
                return Ok(None);
            }
            self.store.delete(SCOPE_RECORDS, worktree_id).await?;
            self.write(|memory| memory.records.remove(worktree_id));
            return Err(self.record(worktree_id).err().unwrap_or_else(|| {
                Error::new(Code::NoSuchWorktree, format!("the worktree `{worktree_id}` was removed meanwhile"))
            }));
        }
        let after = Record::from_value(&value)?;
        let undisturbed = Record { fence: before.fence + 1, ..before.clone() } == after;
        let fence = after.fence;
        self.write(|memory| memory.records.insert(worktree_id.clone(), Arc::new(after)));
        Ok(undisturbed.then_some(fence))
    }

    /// Removes a record.
    ///
    /// # Errors
    /// `W300` when the store refuses; nothing has changed then.
    pub async fn delete_record(&self, _permit: &RepoGuard, worktree_id: &str) -> Result<()> {
        let _shared = self.loading.read().await;
        self.store.delete(SCOPE_RECORDS, worktree_id).await?;
        self.write(|memory| {
            if let Some(record) = memory.records.remove(worktree_id) {
                memory.remember_deleted(record);
            }
        });
        Ok(())
    }
}

impl Memory {
    /// Takes from `ours` what is newer than what is here, or not here at all; tells what that was.
    fn merge(&mut self, ours: Memory) -> Memory {
        let mut newer = Memory::default();
        for (id, record) in ours.records {
            let theirs = self.records.get(&id);
            if theirs.is_none_or(|theirs| theirs.age() < record.age()) && !self.unreadable.contains_key(&id) {
                newer.records.insert(id.clone(), record.clone());
                self.records.insert(id, record);
            }
        }
        for (id, job) in ours.jobs {
            let theirs = self.jobs.get(&id);
            if theirs.is_none_or(|theirs| theirs.updated_at < job.updated_at) && !self.unreadable.contains_key(&id) {
                newer.jobs.insert(id.clone(), job.clone());
                self.jobs.insert(id, job);
            }
        }
        for (worktree_id, job_id) in ours.active {
            if let Entry::Vacant(vacant) = self.active.entry(worktree_id) {
                newer.active.insert(vacant.key().clone(), job_id.clone());
                vacant.insert(job_id);
            }
        }
        self.deleted = ours.deleted;
        newer
    }

    /// Takes out the records that this process had deleted and that the store has again, unchanged.
    fn take_deleted(&mut self) -> Vec<Arc<Record>> {
        let back = |record: &Record| self.records.get(&record.worktree_id).is_some_and(|now| now.age() <= record.age());
        let stale: Vec<Arc<Record>> = self.deleted.iter().filter(|record| back(record)).cloned().collect();
        for record in &stale {
            self.records.remove(&record.worktree_id);
        }
        stale
    }

    fn remember_deleted(&mut self, record: Arc<Record>) {
        if self.deleted.len() == DELETED {
            self.deleted.pop_front();
        }
        self.deleted.push_back(record);
    }

    /// Puts what somebody else stored in the place of what is here.
    fn take_over(&mut self, scope: &str, key: &str, value: &Value) -> Outside {
        self.unreadable.remove(key);
        match scope {
            SCOPE_RECORDS if value.is_null() => {
                self.records.remove(key);
                return Outside::RecordGone;
            }
            SCOPE_RECORDS => match Record::from_value(value) {
                Ok(record) if record.worktree_id == key => drop(self.records.insert(key.to_owned(), Arc::new(record))),
                Ok(record) => {
                    let why = format!("under the key {key} lies the record of {}", record.worktree_id);
                    self.records.remove(key);
                    self.unreadable.insert(key.to_owned(), Error::new(Code::RecordUnreadable, why));
                }
                Err(error) => {
                    self.records.remove(key);
                    self.unreadable.insert(key.to_owned(), error);
                }
            },
            SCOPE_JOBS => match Job::from_value(value) {
                Ok(job) if job.job_id == key => {
                    self.unreadable_lands.remove(&job.worktree_id);
                    self.jobs.insert(key.to_owned(), job);
                }
                Err(error) if !value.is_null() => {
                    if let Some(job) = self.jobs.remove(key) {
                        self.unreadable_lands.insert(job.worktree_id, error.clone());
                    }
                    self.unreadable.insert(key.to_owned(), error);
                }
                _ => drop(self.jobs.remove(key)),
            },
            _ => match value.as_str() {
                Some(job_id) => drop(self.active.insert(key.to_owned(), job_id.to_owned())),
                None => drop(self.active.remove(key)),
            },
        }
        Outside::TakenOver
    }

    fn note_unreadable(&mut self, value: &Value, id_field: &str, error: Error) {
        tracing::warn!(%error, "a stored value was left alone");
        let id = value.get(id_field).and_then(Value::as_str).unwrap_or("?").to_owned();
        self.unreadable.insert(id, error);
    }
}
