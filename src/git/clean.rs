//! A proof, without git, that nothing differs between HEAD, index and files.
//!
//! For the reads that look at hundreds of worktrees: most of them are clean, and that a small one is clean can be seen
//! in a tenth of the time a process takes to start. Whatever decides about a deletion asks git itself.
//!
//! Invariants
//! 1. Only "clean" is ever said. Whatever is not proven is left to git: a file that looks other than the index says, a
//!    file or directory that the index does not have (it may be ignored), an entry that was written as late as the
//!    index itself, a conflict, a submodule, a hidden or sparse entry.
//! 2. The index makes the tree of HEAD: it keeps the name of that tree itself, and forgets it with the first change.
//! 3. A file that was changed twice within one tick of the clock of the file system, and staged in between, looks
//!    unchanged. Git has the same limit, with ticks of a second.
//!
//! Source: the racy-git and index-format notes of git.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use super::index::{self, Look};
use super::sha::Sha;

/// With more files a process that looks at them side by side is faster.
const MOST: usize = 2000;
/// How much older than the index a file must be, in nanoseconds: longer than any tick.
const MARGIN: i128 = 20_000_000;

/// Whether the worktree with this root and git directory is proven to be as the tree `head_tree`. Blocks.
pub(super) fn is_proven(root: &Path, git_dir: &Path, head_tree: &Sha) -> bool {
    proven(root, git_dir, head_tree).is_some()
}

fn proven(root: &Path, git_dir: &Path, head_tree: &Sha) -> Option<()> {
    let path = git_dir.join("index");
    let written = path.symlink_metadata().ok()?;
    let bytes = std::fs::read(&path).ok()?;
    let index = index::entries(&bytes, MOST)?;
    let plain = !index.holds.gitlinks && !index.holds.hidden && index.tree.as_deref() == Some(head_tree.as_str());
    plain.then_some(())?;
    let written = nanos(written.mtime(), written.mtime_nsec());
    let mut files: HashSet<&[u8]> = HashSet::with_capacity(index.entries.len());
    let mut dirs: HashSet<&[u8]> = HashSet::from([b"".as_slice()]);
    for entry in &index.entries {
        let on_disk = root.join(OsStr::from_bytes(&entry.path)).symlink_metadata().ok()?;
        let seen = Look {
            changed: (low(on_disk.ctime()), low(on_disk.ctime_nsec())),
            modified: (low(on_disk.mtime()), low(on_disk.mtime_nsec())),
            inode: low_u(on_disk.ino()),
            mode: mode(&on_disk),
            owner: (on_disk.uid(), on_disk.gid()),
            size: low_u(on_disk.size()),
        };
        let settled = nanos(on_disk.mtime(), on_disk.mtime_nsec()) + MARGIN < written;
        (entry.stage == 0 && seen == entry.look && settled).then_some(())?;
        files.insert(&entry.path);
        let slashes = entry.path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
        dirs.extend(slashes.map(|(at, _)| &entry.path[..at]));
    }
    dirs.iter().all(|dir| holds_only(root, dir, &files, &dirs)).then_some(())
}

/// Whether a directory holds nothing but these files and directories.
fn holds_only(root: &Path, dir: &[u8], files: &HashSet<&[u8]>, dirs: &HashSet<&[u8]>) -> bool {
    let Ok(entries) = std::fs::read_dir(root.join(OsStr::from_bytes(dir))) else { return false };
    entries.into_iter().all(|entry| {
        let Ok(entry) = entry else { return false };
        let name = entry.file_name();
        if dir.is_empty() && name == ".git" {
            return true;
        }
        let mut path = dir.to_vec();
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend(name.as_bytes());
        let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if is_dir { dirs.contains(path.as_slice()) } else { files.contains(path.as_slice()) }
    })
}

/// The mode that git keeps of a file: its kind, and whether its owner may run it.
fn mode(meta: &std::fs::Metadata) -> u32 {
    match meta.file_type() {
        kind if kind.is_symlink() => 0o120_000,
        kind if kind.is_file() && meta.permissions().mode() & 0o100 != 0 => 0o100_755,
        kind if kind.is_file() => 0o100_644,
        _ => 0,
    }
}

fn nanos(seconds: i64, nanoseconds: i64) -> i128 {
    i128::from(seconds) * 1_000_000_000 + i128::from(nanoseconds)
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
