//! What tells that nothing in a worktree has changed: name, identity, size, mode and times of all that is in it.
//!
//! The time of the last change of an inode (ctime) cannot be set back, so that a file that was written and restored is
//! seen as well. Reading a file leaves no trace. Looking takes a third of what `git status` takes, because nothing is
//! compared with the index, and the cores share the directories.
//!
//! Invariants
//! 1. Everything counts: tracked, untracked and ignored files, and git's entry of the worktree with its index; only the
//!    marker, which is ours, does not.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash as _, Hasher as _};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::git::cores;

/// The footprint of a worktree. Equal footprints: nothing has changed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Footprint {
    count: u64,
    sum: u64,
    mixed: u64,
}

impl Footprint {
    fn add(&mut self, hash: u64) {
        // The order in which the cores meet the entries does not matter.
        self.count += 1;
        self.sum = self.sum.wrapping_add(hash);
        self.mixed ^= hash.rotate_left(u32::try_from(hash % 63).unwrap_or(0));
    }

    fn join(&mut self, other: Footprint) {
        self.count += other.count;
        self.sum = self.sum.wrapping_add(other.sum);
        self.mixed ^= other.mixed;
    }
}

/// Beginning of the names of files that this worker keeps in git's entry of a worktree, also while it writes them.
const OURS: [&str; 2] = ["iii-", ".iii-"];

/// Whether a name in git's entry is that of a file of ours.
pub(super) fn is_ours(name: &[u8]) -> bool {
    OURS.iter().any(|ours| name.starts_with(ours.as_bytes()))
}

/// Takes the footprint of a worktree and of git's entry for it. Blocking.
///
/// # Errors
/// When something in it cannot be looked at.
pub(super) fn of(root: &Path, entry: &Path) -> io::Result<Footprint> {
    let cores = cores().min(8);
    let open = Open { dirs: Mutex::new(vec![root.to_owned(), entry.to_owned()]), pending: AtomicUsize::new(2) };
    let parts: Vec<io::Result<Footprint>> = std::thread::scope(|scope| {
        let walkers: Vec<_> = (0..cores).map(|_| scope.spawn(|| open.walk(entry))).collect();
        let joined = walkers.into_iter().map(std::thread::ScopedJoinHandle::join);
        joined.map(|part| part.unwrap_or_else(|_| Err(io::Error::other("a walk broke off")))).collect()
    });
    let mut whole = Footprint::default();
    for part in parts {
        whole.join(part?);
    }
    Ok(whole)
}

/// The directories that have not been looked at.
struct Open {
    dirs: Mutex<Vec<PathBuf>>,
    /// Those, and the ones that are just being looked at.
    pending: AtomicUsize,
}

impl Open {
    fn walk(&self, entry: &Path) -> io::Result<Footprint> {
        let mut part = Footprint::default();
        let mut failed = None;
        while self.pending.load(Ordering::SeqCst) > 0 {
            let next = self.dirs.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let Some(dir) = next else {
                std::thread::yield_now();
                continue;
            };
            // After a failure the rest is only counted down, so that nobody waits for it.
            if failed.is_none() {
                failed = self.look_into(&dir, entry, &mut part).err();
            }
            self.pending.fetch_sub(1, Ordering::SeqCst);
        }
        failed.map_or(Ok(part), Err)
    }

    fn look_into(&self, dir: &Path, entry: &Path, part: &mut Footprint) -> io::Result<()> {
        let mut below = DefaultHasher::new();
        dir.as_os_str().as_bytes().hash(&mut below);
        let mut inside = Vec::new();
        for item in std::fs::read_dir(dir)? {
            let item = item?;
            let name = item.file_name();
            if dir == entry && is_ours(name.as_bytes()) {
                continue;
            }
            let mut hash = below.clone();
            name.as_bytes().hash(&mut hash);
            if item.file_type()?.is_dir() {
                inside.push(dir.join(&name));
            } else {
                let meta = item.metadata()?;
                let times = (meta.mtime(), meta.mtime_nsec(), meta.ctime(), meta.ctime_nsec());
                (meta.dev(), meta.ino(), meta.mode(), meta.size(), times).hash(&mut hash);
            }
            part.add(hash.finish());
        }
        self.pending.fetch_add(inside.len(), Ordering::SeqCst);
        self.dirs.lock().unwrap_or_else(PoisonError::into_inner).extend(inside);
        Ok(())
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "the test writes the files that are looked at")]
mod tests {
    use super::*;

    #[test]
    fn every_change_is_seen_and_looking_is_none_invariant_1() {
        let dir = tempfile::tempdir().unwrap();
        let (root, entry) = (dir.path().join("tree"), dir.path().join("entry"));
        for path in [root.join("deep/er"), entry.clone()] {
            std::fs::create_dir_all(path).unwrap();
        }
        std::fs::write(root.join("deep/er/file"), "1").unwrap();
        std::fs::write(entry.join("index"), "1").unwrap();
        let look = || of(&root, &entry).unwrap();
        let mut last = look();
        std::fs::read(root.join("deep/er/file")).unwrap();
        std::fs::write(entry.join("iii-worktree.json"), "ours").unwrap();
        assert_eq!(look(), last);
        let file = root.join("deep/er/file");
        let changes: [&dyn Fn(); 6] = [
            &|| std::fs::write(&file, "2").unwrap(),
            &|| std::fs::write(root.join(".ignored"), "").unwrap(),
            &|| std::fs::create_dir(root.join("empty")).unwrap(),
            &|| std::fs::rename(&file, root.join("deep/file")).unwrap(),
            &|| std::os::unix::fs::symlink("nowhere", root.join("link")).unwrap(),
            &|| std::fs::write(entry.join("HEAD"), "ref").unwrap(),
        ];
        for (number, change) in changes.iter().enumerate() {
            // Times are as coarse as the clock of the kernel ticks.
            std::thread::sleep(std::time::Duration::from_millis(20));
            change();
            let now = look();
            assert_ne!(now, last, "change {number}");
            last = now;
        }
        assert!(of(&root.join("gone"), &entry).is_err());
    }
}
