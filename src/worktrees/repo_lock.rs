//! One registry writer per repository.
//!
//! Inside this process an asynchronous mutex keeps the order of arrival; across processes a lock of the operating
//! system on a file in the git common directory does, so that a second worker or a command line honours it. The
//! lock dies with its owner: there is nothing stale to clean up.
//!
//! Invariants
//! 1. Holding a [`RepoGuard`] means that nobody else, in any process, writes the records of this repository.
//! 2. The lock is held around registry writes and single git steps only, never across a gate or a checkout.

use std::collections::HashMap;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::sync::OwnedMutexGuard;
use tokio::time::Instant;

use super::Context;
use crate::audit::{Action, Event};
use crate::git::from_text;
use crate::model::clock::{Clock as _, SystemClock};
use crate::model::{Code, Error, Result};

/// Name of the lock file in the common directory.
pub const LOCK_FILE: &str = "iii-worktree.lock";
/// How long to wait for another process before giving up.
const WAIT: Duration = Duration::from_secs(60);
/// First pause between two attempts; it doubles up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(2);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// The in-process half of the locks, one per repository.
#[derive(Default)]
pub struct RepoLocks {
    by_key: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
}

/// The permission to write the records of one repository, until it is dropped.
pub struct RepoGuard {
    repo_key: String,
    /// Absent when the repository itself is gone: then there is nobody to race with.
    _file: Option<File>,
    _turn: OwnedMutexGuard<()>,
}

impl RepoGuard {
    /// The repository that this guard is for.
    #[must_use]
    pub fn repo_key(&self) -> &str {
        &self.repo_key
    }
}

impl RepoLocks {
    /// Waits for the turn of this caller and locks the repository.
    ///
    /// # Errors
    /// `W300` when another process holds the lock for a minute, `W102` when the lock file cannot be opened.
    pub async fn lock(&self, repo_key: &str) -> Result<RepoGuard> {
        let turn = self.turn(repo_key).lock_owned().await;
        let file = lock_file(&from_text(repo_key), LOCK_FILE, WAIT).await?;
        Ok(RepoGuard { repo_key: repo_key.to_owned(), _file: file, _turn: turn })
    }

    /// Locks the repository if that can be done without waiting.
    pub async fn try_lock(&self, repo_key: &str) -> Option<RepoGuard> {
        let turn = self.turn(repo_key).try_lock_owned().ok()?;
        let file = lock_file(&from_text(repo_key), LOCK_FILE, Duration::ZERO).await.ok()?;
        Some(RepoGuard { repo_key: repo_key.to_owned(), _file: file, _turn: turn })
    }

    fn turn(&self, repo_key: &str) -> Arc<tokio::sync::Mutex<()>> {
        let mut by_key = self.by_key.lock().unwrap_or_else(PoisonError::into_inner);
        by_key.entry(repo_key.to_owned()).or_default().clone()
    }
}

/// Locks `name` in `common_dir`, waiting up to `wait`; `None` when the directory does not exist.
///
/// # Errors
/// `W300` when the lock is held for longer than `wait`, `W102` when it cannot be opened.
pub async fn lock_file(common_dir: &Path, name: &str, wait: Duration) -> Result<Option<File>> {
    let path = common_dir.join(name);
    let refuse = |why: String| Error::new(Code::StateUnreachable, why);
    let file = match OpenOptions::new().create(true).truncate(false).write(true).read(true).open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound && !common_dir.exists() => return Ok(None),
        // Nobody holds it: the repository cannot be written to, and repeating the call does not change that.
        Err(error) => {
            let why = format!("the lock {} cannot be opened: {error}", path.display());
            return Err(Error::new(Code::GitFailed, why));
        }
    };
    let deadline = Instant::now() + wait;
    let mut pause = FIRST_PAUSE;
    loop {
        match file.try_lock() {
            Ok(()) => {
                // Only for people who look who holds it; the lock itself is the system's.
                if let Err(error) = Holder::here().note_in(&file) {
                    tracing::debug!(%error, path = %path.display(), "the holder of the lock was not noted");
                }
                return Ok(Some(file));
            }
            Err(TryLockError::Error(error)) => {
                return Err(refuse(format!("the lock {} cannot be taken: {error}", path.display())));
            }
            Err(TryLockError::WouldBlock) if Instant::now() >= deadline => {
                return Err(refuse(format!(
                    "another process{} has held the lock {} for {} s; let it end, then repeat the call",
                    Holder::noted_in(&path).map_or_else(String::new, |holder| format!(" (pid {})", holder.pid)),
                    path.display(),
                    wait.as_secs()
                )));
            }
            Err(TryLockError::WouldBlock) => {
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
    }
}

/// Who took a lock last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// The process.
    pub pid: u32,
    /// When it took the lock, in milliseconds since the epoch.
    pub since: i64,
}

impl Holder {
    fn here() -> Self {
        Holder { pid: std::process::id(), since: SystemClock.now_ms() }
    }

    fn note_in(&self, mut file: &File) -> io::Result<()> {
        file.set_len(0)?;
        file.rewind()?;
        file.write_all(&serde_json::to_vec(self)?)
    }

    fn noted_in(path: &Path) -> Option<Self> {
        let mut text = String::new();
        File::open(path).ok()?.take(1024).read_to_string(&mut text).ok()?;
        serde_json::from_str(&text).ok()
    }
}

/// What a lock looks like from outside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LockState {
    /// The file.
    pub path: PathBuf,
    /// Whether a process holds it right now.
    pub held: bool,
    /// Who took it last; that one holds it when it is held.
    pub holder: Option<Holder>,
    /// Whether that process lives.
    pub holder_alive: bool,
}

/// Looks at a lock of the repository without waiting for it.
///
/// # Errors
/// `W300` when the file cannot be opened.
pub fn look(common_dir: &Path, name: &str) -> Result<LockState> {
    let path = common_dir.join(name);
    let refuse = |error: io::Error| Error::new(Code::StateUnreachable, format!("the lock {}: {error}", path.display()));
    let held = match File::open(&path) {
        Ok(file) => match file.try_lock_shared() {
            Ok(()) => false,
            Err(TryLockError::WouldBlock) => true,
            Err(TryLockError::Error(error)) => return Err(refuse(error)),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => false,
        Err(error) => return Err(refuse(error)),
    };
    let holder = Holder::noted_in(&path);
    let holder_alive = holder.as_ref().is_some_and(|holder| is_alive(holder.pid));
    Ok(LockState { path, held, holder, holder_alive })
}

/// Takes away the note of a process that does not hold the lock any more. The lock itself needs no help: it ends with
/// its holder. `false` when somebody holds it, or nothing was noted.
///
/// # Errors
/// `W300` when the file cannot be opened or written.
pub fn clear_note(common_dir: &Path, name: &str) -> Result<bool> {
    let path = common_dir.join(name);
    let refuse = |error: io::Error| Error::new(Code::StateUnreachable, format!("the lock {}: {error}", path.display()));
    let file = match OpenOptions::new().read(true).write(true).open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(refuse(error)),
    };
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Ok(false),
        Err(TryLockError::Error(error)) => return Err(refuse(error)),
    }
    let noted = Holder::noted_in(&path).is_some();
    file.set_len(0).map_err(refuse)?;
    Ok(noted)
}

/// What [`unlock`] found and did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Unlocked {
    /// The lock as it was.
    pub before: LockState,
    /// Whether a note of a process that is gone was cleared. False when the lock is held: it is then left alone.
    pub cleared: bool,
}

/// Looks at the lock of a repository and clears what a process that is gone has noted there, told in the audit log. A
/// lock that is held is never taken away: it ends with its holder, so the holder is who has to end.
///
/// # Errors
/// `W300` when the lock cannot be looked at, `W600` when the audit log cannot tell of it.
pub async fn unlock(ctx: &Context, repo_key: &str) -> Result<Unlocked> {
    let common = &*from_text(repo_key);
    let before = look(common, LOCK_FILE)?;
    let Some(holder) = before.holder.clone().filter(|_| !before.held) else {
        return Ok(Unlocked { before, cleared: false });
    };
    let details = json!({"lock": before.path, "pid": holder.pid, "since": holder.since, "alive": before.holder_alive});
    ctx.audit(Event::new(Action::Unlock, details).in_repo(repo_key)).await?;
    let cleared = clear_note(common, LOCK_FILE)?;
    Ok(Unlocked { before, cleared })
}

/// Whether a process of this id exists; also when it is somebody else's.
#[must_use]
pub fn is_alive(pid: u32) -> bool {
    let Ok(pid) = i32::try_from(pid) else { return false };
    let asked = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), None);
    matches!(asked, Ok(()) | Err(nix::errno::Errno::EPERM))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_second_writer_waits_for_the_first_invariant_1() {
        let dir = tempfile::tempdir().unwrap();
        let key = dir.path().to_str().unwrap().to_owned();
        // Two sets of locks stand for two processes: they share nothing but the file.
        let (one, two) = (RepoLocks::default(), Arc::new(RepoLocks::default()));
        let held = one.lock(&key).await.unwrap();
        let waiting = {
            let (two, key) = (two.clone(), key.clone());
            tokio::spawn(async move { two.lock(&key).await.map(|guard| guard.repo_key().to_owned()) })
        };
        let refused = lock_file(dir.path(), LOCK_FILE, Duration::from_millis(5)).await.unwrap_err();
        assert_eq!(refused.code, Code::StateUnreachable);
        assert!(refused.message.contains(&format!("pid {}", std::process::id())), "{refused}");
        assert!(!waiting.is_finished());
        drop(held);
        assert_eq!(waiting.await.unwrap().unwrap(), key);
    }

    #[tokio::test]
    async fn who_holds_a_lock_can_be_seen_and_an_old_note_be_cleared() {
        let dir = tempfile::tempdir().unwrap();
        let locks = RepoLocks::default();
        assert_eq!(look(dir.path(), LOCK_FILE).unwrap().holder, None);
        let held = locks.lock(dir.path().to_str().unwrap()).await.unwrap();
        let seen = look(dir.path(), LOCK_FILE).unwrap();
        assert!(seen.held && seen.holder_alive);
        assert_eq!(seen.holder.unwrap().pid, std::process::id());
        assert!(!clear_note(dir.path(), LOCK_FILE).unwrap(), "it is held");
        drop(held);
        let seen = look(dir.path(), LOCK_FILE).unwrap();
        assert!(!seen.held && seen.holder.is_some());
        assert!(clear_note(dir.path(), LOCK_FILE).unwrap());
        assert_eq!(look(dir.path(), LOCK_FILE).unwrap().holder, None);
        assert!(!is_alive(u32::MAX));
    }

    #[tokio::test]
    async fn a_repository_that_is_gone_can_still_be_locked() {
        let dir = tempfile::tempdir().unwrap();
        let gone = dir.path().join("gone");
        assert!(RepoLocks::default().lock(gone.to_str().unwrap()).await.is_ok());
    }
}
