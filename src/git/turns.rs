//! Whose turn it is to write files.
//!
//! Many checkouts at once only keep each other waiting, for the cores and for the disk, until the slowest runs into its
//! limit. So those of one repository take turns. Other repositories are not kept waiting: theirs may be small.
//!
//! Invariants
//! 1. Of one repository, as many processes write files as there are cores. A checkout that is alone gets all of them.
//! 2. Waiting does not count into the limit of the process, and ends after as long as that limit: a checkout that hangs
//!    keeps nobody from going on.
//! 3. What can as well be done later waits while somebody writes files in its repository, for a time at most, and is one
//!    at a time.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedMutexGuard, OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::Git;

/// The turns of those who write files, and of what waits for them.
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// By common directory.
    writing: Mutex<HashMap<PathBuf, Arc<Semaphore>>>,
    later: Arc<tokio::sync::Mutex<()>>,
}

/// How long between two looks.
const PAUSE: Duration = Duration::from_millis(200);
/// How many repositories are remembered without a reason.
const REMEMBERED: usize = 256;

/// A turn, until it is dropped.
pub(super) struct Turn {
    _cores: Vec<OwnedSemaphorePermit>,
    /// How many processes may write files.
    pub(super) workers: usize,
}

impl Git {
    /// Waits for a turn in the repository. What is done in the background has one process at once, beside the others.
    pub(super) async fn turn(&self, common_dir: &Path) -> Turn {
        if self.is_in_background() {
            return Turn { _cores: Vec::new(), workers: 1 };
        }
        let cores = cores();
        let turns = self.turns_of(common_dir, cores);
        let mut got = Vec::new();
        // Nobody closes it, so that only the time can run out.
        got.extend(tokio::time::timeout(self.limit(), turns.clone().acquire_owned()).await.ok().and_then(Result::ok));
        let more = (1..cores).rev().filter_map(|count| u32::try_from(count).ok());
        got.extend(more.filter(|_| !got.is_empty()).find_map(|count| turns.clone().try_acquire_many_owned(count).ok()));
        let workers = got.iter().map(OwnedSemaphorePermit::num_permits).sum::<usize>().max(1);
        Turn { _cores: got, workers }
    }

    /// Waits for the turn of something that can as well be done later (invariant 3). Those who write files are waited for
    /// until `patience` has passed since this call.
    pub(super) async fn later(&self, common_dir: &Path, patience: Duration) -> OwnedMutexGuard<()> {
        let begun = Instant::now();
        let turn = self.turns().later.clone().lock_owned().await;
        while self.is_written_to(common_dir) && begun.elapsed() < patience {
            tokio::time::sleep(PAUSE).await;
        }
        turn
    }

    fn is_written_to(&self, common_dir: &Path) -> bool {
        let cores = cores();
        self.turns_of(common_dir, cores).available_permits() < cores
    }

    fn turns_of(&self, common_dir: &Path, cores: usize) -> Arc<Semaphore> {
        let mut all = self.turns().writing.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= REMEMBERED {
            all.retain(|_, turns| Arc::strong_count(turns) > 1);
        }
        all.entry(common_dir.to_owned()).or_insert_with(|| Arc::new(Semaphore::new(cores))).clone()
    }
}

/// How many cores this process may use.
#[must_use]
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_alone_gets_all_cores_and_others_wait_for_their_own_repository_only() {
        let git = Git::new(Duration::from_secs(30));
        let (one, other) = (Path::new("/one"), Path::new("/other"));
        let cores = std::thread::available_parallelism().unwrap().get();
        let alone = git.turn(one).await;
        assert_eq!(alone.workers, cores);
        assert_eq!(git.turn(other).await.workers, cores);
        assert_eq!(git.in_background().turn(one).await.workers, 1);
        let next = git.turn(one);
        tokio::pin!(next);
        assert!(tokio::time::timeout(Duration::from_millis(50), &mut next).await.is_err());
        drop(alone);
        assert_eq!(next.await.workers, cores);
        // A turn that does not come is not waited for for ever.
        let _held = git.turn(one).await;
        assert_eq!(git.with_limit(Duration::from_millis(20)).turn(one).await.workers, 1);
    }

    #[tokio::test]
    async fn what_can_be_done_later_waits_for_those_who_write_files_and_is_one_at_a_time_invariant_3() {
        let git = Git::new(Duration::from_secs(300));
        let (one, other) = (Path::new("/one"), Path::new("/other"));
        let (short, long) = (Duration::from_millis(50), Duration::from_secs(60));
        let writing = git.turn(one).await;
        drop(tokio::time::timeout(long, git.later(other, long)).await.expect("others write nothing there"));
        let waiting = git.later(one, long);
        tokio::pin!(waiting);
        assert!(tokio::time::timeout(short, &mut waiting).await.is_err());
        drop(writing);
        let first = tokio::time::timeout(long, waiting).await.expect("nobody writes any more");
        assert!(tokio::time::timeout(short, git.later(other, short)).await.is_err(), "the first is not over");
        drop(first);
        let _for_long = git.turn(one).await;
        drop(tokio::time::timeout(long, git.later(one, short)).await.expect("not for ever"));
    }
}
