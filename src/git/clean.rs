//! A proof, without git, that nothing differs between HEAD, index and files.
//!
//! Most worktrees that are looked at are clean, and that can be seen in a fraction of the time that a process takes: a
//! small one in a tenth, one of 20,000 files in half. Whatever is not proven is left to git.
//!
//! Invariants
//! 1. Only "clean" is ever said, and only where `git status` would say so, too, with every file shown and every check of
//!    stat data switched on. Not proven is: a file that looks other than the index says, a file or directory that the
//!    index does not have (it may be ignored), a conflict, a submodule, a hidden or sparse entry.
//! 2. The index makes the tree of HEAD: it keeps the name of that tree itself, and forgets it with the first change.
//! 3. A file that was written in the second of the index or later may have been changed without looking so. It is read,
//!    and must hold, byte for byte, what the index names. Git draws the line at the same second.
//!
//! Source: the racy-git and index-format notes of git.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs::{DirEntry, Metadata};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use super::index::{self, Entry, Look};
use super::sha::Sha;
use super::{objects, plain_file};

/// With more files the index alone takes too much memory.
const MOST: usize = 200_000;
/// How many bytes are read of files that may have been changed without looking so.
const MOST_READ: u64 = 32 * 1024 * 1024;
/// From how many files on several threads look.
const MANY: usize = 1000;

/// The tree that index and files of the worktree with this root and git directory are proven to be. Blocks.
pub(super) fn proven_tree(root: &Path, git_dir: &Path) -> Option<Sha> {
    let path = git_dir.join("index");
    let written = path.symlink_metadata().ok()?.mtime();
    let bytes = std::fs::read(&path).ok()?;
    let index = index::entries(&bytes, MOST)?;
    let tree = index.tree.clone()?;
    (!index.holds.gitlinks && !index.holds.hidden).then_some(())?;
    let mut files = HashMap::with_capacity(index.entries.len());
    let mut known: HashSet<&[u8]> = HashSet::from([b"".as_slice()]);
    for entry in &index.entries {
        (entry.stage == 0).then_some(())?;
        files.insert(entry.path.as_slice(), entry);
        // Where a directory is known, so are those above it.
        let mut path = entry.path.as_slice();
        while let Some(slash) = path.iter().rposition(|byte| *byte == b'/') {
            path = &path[..slash];
            if !known.insert(path) {
                break;
            }
        }
    }
    let mut dirs: Vec<&[u8]> = known.iter().copied().collect();
    // From the top, where most of what git is told to ignore lies: one such file ends the search.
    dirs.sort_unstable_by_key(|dir| dir.len());
    let search = Search {
        root,
        written,
        files,
        known,
        dirs,
        next: AtomicUsize::new(0),
        seen: AtomicUsize::new(0),
        read: AtomicU64::new(0),
        differs: AtomicBool::new(false),
    };
    search.agrees().then_some(tree)
}

/// A walk through the directories of the index.
struct Search<'a> {
    root: &'a Path,
    /// When the index was written, in seconds.
    written: i64,
    files: HashMap<&'a [u8], &'a Entry>,
    known: HashSet<&'a [u8]>,
    dirs: Vec<&'a [u8]>,
    /// The next directory that nobody looks at yet.
    next: AtomicUsize,
    seen: AtomicUsize,
    read: AtomicU64,
    differs: AtomicBool,
}

impl Search<'_> {
    /// Whether the directories hold the files of the index, unchanged, and nothing else.
    fn agrees(&self) -> bool {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let helpers = if self.files.len() < MANY { 0 } else { cores.min(8) - 1 };
        std::thread::scope(|scope| {
            for _ in 0..helpers {
                scope.spawn(|| self.walk());
            }
            self.walk();
        });
        !self.differs.load(Ordering::Relaxed) && self.seen.load(Ordering::Relaxed) == self.files.len()
    }

    fn walk(&self) {
        while let Some(dir) = self.dirs.get(self.next.fetch_add(1, Ordering::Relaxed)) {
            if self.differs.load(Ordering::Relaxed) || self.holds_only_known(dir).is_none() {
                self.differs.store(true, Ordering::Relaxed);
                return;
            }
        }
    }

    fn holds_only_known(&self, dir: &[u8]) -> Option<()> {
        let mut path = dir.to_vec();
        if !path.is_empty() {
            path.push(b'/');
        }
        let length = path.len();
        for found in std::fs::read_dir(self.root.join(OsStr::from_bytes(dir))).ok()? {
            let found = found.ok()?;
            let name = found.file_name();
            if dir.is_empty() && name == ".git" {
                continue;
            }
            path.truncate(length);
            path.extend(name.as_bytes());
            if found.file_type().ok()?.is_dir() {
                self.known.contains(path.as_slice()).then_some(())?;
            } else {
                let entry = self.files.get(path.as_slice())?;
                self.is_unchanged(&found, entry)?;
                self.seen.fetch_add(1, Ordering::Relaxed);
            }
        }
        Some(())
    }

    fn is_unchanged(&self, found: &DirEntry, entry: &Entry) -> Option<()> {
        // Of the entry itself; a link is not followed.
        let meta = found.metadata().ok()?;
        (look(&meta) == entry.look).then_some(())?;
        if meta.mtime() < self.written {
            return Some(());
        }
        let before = self.read.fetch_add(meta.size(), Ordering::Relaxed);
        (before + meta.size() <= MOST_READ).then_some(())?;
        let content = if meta.is_symlink() {
            std::fs::read_link(found.path()).ok()?.into_os_string().into_encoded_bytes()
        } else {
            plain_file::read(&found.path(), MOST_READ).bytes()?
        };
        (objects::name("blob", &content, entry.object.len()) == entry.object).then_some(())
    }
}

/// How a file looks, in the terms of the index.
fn look(meta: &Metadata) -> Look {
    Look {
        changed: (low(meta.ctime()), low(meta.ctime_nsec())),
        modified: (low(meta.mtime()), low(meta.mtime_nsec())),
        inode: low_u(meta.ino()),
        mode: mode(meta),
        owner: (meta.uid(), meta.gid()),
        size: low_u(meta.size()),
    }
}

/// The mode that git keeps of a file: its kind, and whether its owner may run it.
fn mode(meta: &Metadata) -> u32 {
    match meta.file_type() {
        kind if kind.is_symlink() => 0o120_000,
        kind if kind.is_file() && meta.permissions().mode() & 0o100 != 0 => 0o100_755,
        kind if kind.is_file() => 0o100_644,
        _ => 0,
    }
}

/// The lower 32 bits, which are what the index keeps.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the index keeps no more")]
fn low(value: i64) -> u32 {
    value as u32
}

#[expect(clippy::cast_possible_truncation, reason = "the index keeps no more")]
fn low_u(value: u64) -> u32 {
    value as u32
}
