//! How a directory leaves: renamed into `<worktree_root>/.trash` in one step, deleted later in the background.
//!
//! Invariants
//! 1. A rename is the only thing that happens to a directory before its admin entry is dropped: a crash between the
//!    two leaves everything that was in it.
//! 2. Only what bears the name that this module gives, and lies directly in the trash, is ever deleted.
//! 3. Links are unlinked, never followed.
//! 4. Of all that is to be deleted, one tree is at a time, and while branches land it waits, though not for long: nobody
//!    is kept waiting by what nobody waits for.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;

use crate::model::id::is_worktree_id;

/// Name of the trash below the worktree root.
pub const TRASH: &str = ".trash";

/// How long a deletion waits, so that the answer to whoever has asked for it is not slowed down by it.
const ANSWER: Duration = Duration::from_millis(100);
/// How long a deletion waits for lands to end.
const PATIENCE: Duration = Duration::from_secs(10);
/// The share of a file system, in percent, that must be free for that: what waits holds space.
const FREE: u64 = 20;
/// How long it is waited between two looks.
const PAUSE: Duration = Duration::from_millis(20);

/// What waits for its deletion, and whose turn it is.
pub struct Turns {
    one: Semaphore,
    waiting: Mutex<HashSet<PathBuf>>,
    hurry: AtomicBool,
}

impl Default for Turns {
    fn default() -> Self {
        Turns { one: Semaphore::new(1), waiting: Mutex::default(), hurry: AtomicBool::new(false) }
    }
}

impl Turns {
    /// Whether this entry was not waiting already; it is now, until its turn is over.
    pub fn ask(&self, place: &Path) -> bool {
        self.waiting().insert(place.to_owned())
    }

    /// Runs the deletion of an entry that has asked, when its turn has come and there is nothing `better` to do.
    pub async fn take<T>(&self, place: &Path, better: impl Fn() -> bool, deletion: impl Future<Output = T>) -> T {
        let begun = Instant::now();
        // Nobody closes it.
        let _turn = self.one.acquire().await;
        let hurries = || self.hurry.load(Ordering::Relaxed);
        while begun.elapsed() < ANSWER && !hurries() {
            tokio::time::sleep(PAUSE).await;
        }
        while better() && begun.elapsed() < PATIENCE && has_room(place) && !hurries() {
            tokio::time::sleep(PAUSE).await;
        }
        let deleted = deletion.await;
        self.waiting().remove(place);
        deleted
    }

    /// From now on nothing waits for anything better: the process is stopping.
    pub fn hurry(&self) {
        self.hurry.store(true, Ordering::Relaxed);
    }

    fn waiting(&self) -> MutexGuard<'_, HashSet<PathBuf>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether there is so much room that what lies at `place` may stay for a while.
fn has_room(place: &Path) -> bool {
    let room = nix::sys::statvfs::statvfs(place);
    room.is_ok_and(|room| room.blocks_available() * 100 >= room.blocks() * FREE)
}

/// The worktree id and the second of the epoch in the name of a trash entry, when it is one of ours.
#[must_use]
pub fn parse_name(name: &OsStr) -> Option<(&str, i64)> {
    let (id, seconds) = name.to_str()?.rsplit_once('-')?;
    if is_worktree_id(id) { Some((id, seconds.parse().ok()?)) } else { None }
}

/// Where the directory of a worktree will lie in the trash: a name that is free. A name that is taken gets the next
/// second.
///
/// # Errors
/// When the trash cannot be made, or `worktree_id` has not the form of one.
pub fn place(root: &Path, worktree_id: &str, now_ms: i64) -> io::Result<PathBuf> {
    if !is_worktree_id(worktree_id) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("`{worktree_id}` is no worktree id")));
    }
    let trash = root.join(TRASH);
    std::fs::create_dir_all(&trash)?;
    let mut second = now_ms / 1000;
    loop {
        let place = trash.join(format!("{worktree_id}-{second}"));
        if place.symlink_metadata().is_err() {
            return Ok(place);
        }
        second += 1;
    }
}

/// What lies in the trash of `root` under a name that this module gives: worktree id and place.
#[must_use]
pub fn entries(root: &Path) -> Vec<(String, PathBuf)> {
    let found = std::fs::read_dir(root.join(TRASH)).into_iter().flatten().flatten().map(|entry| entry.path());
    found
        .filter_map(|place| {
            let (id, _) = place.file_name().and_then(parse_name)?;
            Some((id.to_owned(), place.clone()))
        })
        .collect()
}

/// Renames `path` to its place in the trash.
///
/// # Errors
/// The error of the rename; the directory is then where it was.
pub fn discard(path: &Path, place: &Path) -> io::Result<()> {
    std::fs::rename(path, place)
}

/// Renames what lies at a place in the trash back to `path`.
///
/// # Errors
/// When something is there by now, and the error of the rename.
pub fn put_back(place: &Path, path: &Path) -> io::Result<()> {
    // A rename would replace an empty directory.
    if path.symlink_metadata().is_ok() {
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, format!("there is another {} now", path.display())));
    }
    std::fs::rename(place, path)
}

/// Deletes one entry of the trash. Blocking; a link in the place of the entry is unlinked, not followed.
///
/// # Errors
/// The first thing that could not be deleted; the rest stays for the next sweep. What is gone already is no error.
pub fn delete(place: &Path) -> io::Result<()> {
    let in_trash = place.parent().and_then(Path::file_name) == Some(OsStr::new(TRASH));
    if !in_trash || place.file_name().and_then(parse_name).is_none() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{} is no trash of ours", place.display())));
    }
    let found = match place.symlink_metadata() {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    if !found.is_dir() {
        return std::fs::remove_file(place);
    }
    match std::fs::remove_dir_all(place) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            // Caches of packages are often read-only, directories included.
            make_writable(place)?;
            std::fs::remove_dir_all(place)
        }
        other => other,
    }
}

/// Lets the owner write to every directory at and below `dir`. Links are left alone.
fn make_writable(dir: &Path) -> io::Result<()> {
    let mut permissions = dir.symlink_metadata()?.permissions();
    permissions.set_mode(permissions.mode() | 0o700);
    std::fs::set_permissions(dir, permissions)?;
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            make_writable(&entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "wt_0123456789ab";

    #[tokio::test]
    async fn deletions_come_one_after_the_other_when_there_is_nothing_better_to_do_invariant_4() {
        let root = tempfile::tempdir().unwrap();
        let (turns, place) = (Turns::default(), root.path());
        assert!(turns.ask(place));
        assert!(!turns.ask(place), "it waits already");
        let better = AtomicBool::new(true);
        let deleted = AtomicBool::new(false);
        let deletion = turns.take(place, || better.load(Ordering::Relaxed), async {
            deleted.store(true, Ordering::Relaxed);
        });
        tokio::pin!(deletion);
        assert!(tokio::time::timeout(ANSWER * 2, &mut deletion).await.is_err());
        assert!(!deleted.load(Ordering::Relaxed));
        better.store(false, Ordering::Relaxed);
        deletion.await;
        assert!(deleted.load(Ordering::Relaxed) && turns.ask(place));
        // Whoever stops waits for nothing.
        turns.hurry();
        let stopping = turns.take(place, || true, async {});
        assert!(tokio::time::timeout(PATIENCE / 2, stopping).await.is_ok());
    }

    #[test]
    fn only_our_names_in_the_trash_are_deleted_invariant_2() {
        let root = tempfile::tempdir().unwrap();
        let foreign = root.path().join(TRASH).join("somebody-else");
        std::fs::create_dir_all(&foreign).unwrap();
        assert!(delete(&foreign).is_err());
        let outside = root.path().join(format!("{ID}-1"));
        std::fs::create_dir_all(&outside).unwrap();
        assert!(delete(&outside).is_err());
        assert!(place(root.path(), "../x", 0).is_err());
        assert!(foreign.exists() && outside.exists());
    }

    #[test]
    fn a_taken_name_gets_the_next_one_and_links_are_not_followed_invariant_3() {
        let root = tempfile::tempdir().unwrap();
        let precious = root.path().join("precious");
        std::fs::create_dir(&precious).unwrap();
        for (at, expected) in [(7_000, "7"), (7_500, "8")] {
            let path = root.path().join("tree");
            std::fs::create_dir(&path).unwrap();
            std::os::unix::fs::symlink(&precious, path.join("link")).unwrap();
            let place = place(root.path(), ID, at).unwrap();
            discard(&path, &place).unwrap();
            assert!(place.ends_with(format!("{ID}-{expected}")), "{}", place.display());
            if expected == "8" {
                delete(&place).unwrap();
            }
        }
        assert!(precious.exists());
    }
}
