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

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use nix::dir::{Dir, Type};
use nix::fcntl::{AtFlags, OFlag};
use nix::sys::stat::{FileStat, Mode, SFlag, fstatat};

use super::index::{self, Entry, Index, Look};
use super::sha::Sha;
use super::turns::cores;
use super::{objects, plain_file};

/// With more files or directories the index alone takes too much memory.
const MOST: usize = 200_000;
/// The kernel knows no longer path, in bytes.
const LONGEST: usize = nix::libc::PATH_MAX as usize;
/// How many bytes are read of files that may have been changed without looking so.
const MOST_READ: u64 = 32 * 1024 * 1024;
/// From how many files on several threads look.
const MANY: usize = 1000;

/// The tree that index and files of the worktree with this root and git directory are proven to be. Blocks.
pub(super) fn proven_tree(root: &Path, git_dir: &Path) -> Option<Sha> {
    let path = git_dir.join("index");
    let written = nix::sys::stat::lstat(&path).ok()?.st_mtime;
    let bytes = std::fs::read(&path).ok()?;
    let index = index::entries(&bytes, MOST)?;
    let tree = index.tree.clone()?;
    (!index.holds.gitlinks && !index.holds.hidden).then_some(())?;
    let search = Search {
        root,
        written,
        folders: folders(&index)?,
        index: &index,
        next: AtomicUsize::new(0),
        read: AtomicU64::new(0),
        differs: AtomicBool::new(false),
    };
    search.agrees().then_some(tree)
}

/// What the index says is in a directory: its files, and how many directories.
#[derive(Default)]
struct Folder<'a> {
    path: &'a [u8],
    files: Vec<&'a Entry<'a>>,
    folders: usize,
}

/// The directories of the index, those near the root first: most of what git is told to ignore lies there, and one such
/// file ends the search. `None` where there is a conflict, where a file is named twice, and where no file can be.
fn folders<'a>(index: &'a Index<'a>) -> Option<Vec<Folder<'a>>> {
    let mut places: HashMap<&[u8], usize> = HashMap::from([(b"".as_slice(), 0)]);
    let mut folders = vec![Folder::default()];
    // Those of one directory mostly follow each other.
    let mut last = (b"".as_slice(), 0);
    let mut before = b"".as_slice();
    for entry in &index.entries {
        let file = index.path(entry);
        // They are in order, so one that is named twice follows itself; its second would stand for an unknown file.
        (entry.stage == 0 && before < file && file.len() <= LONGEST && folders.len() <= MOST).then_some(())?;
        before = file;
        let path = above(file);
        if last.0 != path {
            last = (path, place_of(path, &mut places, &mut folders));
        }
        folders[last.1].files.push(entry);
    }
    folders.sort_by_key(|folder| folder.path.len());
    Some(folders)
}

/// Where a directory is among `folders`; it is put there, with those above it, when it is not.
fn place_of<'a>(path: &'a [u8], places: &mut HashMap<&'a [u8], usize>, folders: &mut Vec<Folder<'a>>) -> usize {
    if let Some(place) = places.get(path) {
        return *place;
    }
    let place = folders.len();
    let mut path = path;
    // Up to one that is known, as the root is.
    loop {
        places.insert(path, folders.len());
        // One that is not known holds the one below it.
        let held = usize::from(folders.len() > place);
        folders.push(Folder { path, folders: held, ..Folder::default() });
        path = above(path);
        if let Some(known) = places.get(path) {
            folders[*known].folders += 1;
            return place;
        }
    }
}

/// The directory that a path is in; empty for the root.
fn above(path: &[u8]) -> &[u8] {
    path.iter().rposition(|byte| *byte == b'/').map_or(b"", |slash| &path[..slash])
}

/// A walk through the directories of the index.
struct Search<'a> {
    root: &'a Path,
    /// When the index was written, in seconds.
    written: i64,
    index: &'a Index<'a>,
    folders: Vec<Folder<'a>>,
    /// The next directory that nobody looks at yet.
    next: AtomicUsize,
    read: AtomicU64,
    differs: AtomicBool,
}

impl Search<'_> {
    /// Whether the directories hold the files of the index, unchanged, and nothing else.
    fn agrees(&self) -> bool {
        let helpers = if self.index.entries.len() < MANY { 0 } else { cores().min(8) - 1 };
        std::thread::scope(|scope| {
            for _ in 0..helpers {
                scope.spawn(|| self.walk());
            }
            self.walk();
        });
        !self.differs.load(Ordering::Relaxed)
    }

    fn walk(&self) {
        while let Some(folder) = self.folders.get(self.next.fetch_add(1, Ordering::Relaxed)) {
            if self.differs.load(Ordering::Relaxed) || self.holds_only_known(folder).is_none() {
                self.differs.store(true, Ordering::Relaxed);
                return;
            }
        }
    }

    /// All files of the index are there, and there are as many files and directories as it has, so there are no others.
    fn holds_only_known(&self, folder: &Folder<'_>) -> Option<()> {
        let path = self.root.join(OsStr::from_bytes(folder.path));
        // A link in the place of a directory counts as a file in the one above.
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let mut dir = Dir::open(&path, flags, Mode::empty()).ok()?;
        let (mut files, mut folders) = (0, 0);
        for found in dir.iter() {
            let found = found.ok()?;
            let name = found.file_name().to_bytes();
            if name == b"." || name == b".." || (name == b".git" && folder.path.is_empty()) {
                continue;
            }
            // A file system that does not tell leaves it to git.
            match found.file_type()? {
                Type::Directory => folders += 1,
                _ => files += 1,
            }
            (files <= folder.files.len() && folders <= folder.folders).then_some(())?;
        }
        (files == folder.files.len() && folders == folder.folders).then_some(())?;
        folder.files.iter().try_for_each(|entry| self.is_unchanged(&dir, &path, entry))
    }

    fn is_unchanged(&self, dir: &Dir, above: &Path, entry: &Entry<'_>) -> Option<()> {
        let name = self.index.name(entry)?;
        // Of the entry itself; a link is not followed.
        let meta = fstatat(dir.as_fd(), name, AtFlags::AT_SYMLINK_NOFOLLOW).ok()?;
        (look(&meta) == entry.look).then_some(())?;
        if meta.st_mtime < self.written {
            return Some(());
        }
        let size = u64::try_from(meta.st_size).ok()?;
        let before = self.read.fetch_add(size, Ordering::Relaxed);
        (before + size <= MOST_READ).then_some(())?;
        let path = above.join(OsStr::from_bytes(name.to_bytes()));
        let content = if kind(&meta) == SFlag::S_IFLNK {
            std::fs::read_link(&path).ok()?.into_os_string().into_encoded_bytes()
        } else {
            plain_file::read(&path, MOST_READ).bytes()?
        };
        (objects::name("blob", &content, entry.object.len()) == entry.object).then_some(())
    }
}

/// How a file looks, in the terms of the index.
fn look(meta: &FileStat) -> Look {
    Look {
        changed: (low(meta.st_ctime), low(meta.st_ctime_nsec)),
        modified: (low(meta.st_mtime), low(meta.st_mtime_nsec)),
        inode: low_u(meta.st_ino),
        mode: mode(meta),
        owner: (meta.st_uid, meta.st_gid),
        size: low(meta.st_size),
    }
}

fn kind(meta: &FileStat) -> SFlag {
    SFlag::from_bits_truncate(meta.st_mode) & SFlag::S_IFMT
}

/// The mode that git keeps of a file: its kind, and whether its owner may run it.
fn mode(meta: &FileStat) -> u32 {
    match kind(meta) {
        SFlag::S_IFLNK => 0o120_000,
        SFlag::S_IFREG if meta.st_mode & 0o100 != 0 => 0o100_755,
        SFlag::S_IFREG => 0o100_644,
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Each directory of an index with these files: its path, how many files it has and how many directories.
    fn folders_of(paths: &[&str]) -> Option<Vec<(String, usize, usize)>> {
        let bytes = index::tests::index_of(paths, 0o100_644, 0, b"");
        let index = index::entries(&bytes, paths.len()).unwrap();
        let shown = |folder: &Folder<'_>| {
            (String::from_utf8(folder.path.to_vec()).unwrap(), folder.files.len(), folder.folders)
        };
        folders(&index).map(|folders| folders.iter().map(shown).collect())
    }

    #[test]
    fn every_directory_knows_what_it_holds() {
        let found = folders_of(&["a/b/c/d", "a/b.c", "a/b/e", "f"]);
        assert_eq!(found, None, "out of order");
        let mut found = folders_of(&["a/b.c", "a/b/c/d", "a/b/e", "f"]).unwrap();
        found.sort();
        let expected = [("", 1, 1), ("a", 1, 1), ("a/b", 1, 1), ("a/b/c", 1, 0)];
        assert_eq!(found, expected.map(|(path, files, folders)| (path.to_owned(), files, folders)));
        assert_eq!(folders_of(&[]), Some(vec![(String::new(), 0, 0)]));
    }

    /// The second would be counted for a file that the index does not have.
    #[test]
    fn a_file_that_is_named_twice_proves_nothing_invariant_1() {
        assert!(folders_of(&["a/b", "a/c"]).is_some());
        assert_eq!(folders_of(&["a/b", "a/b"]), None);
    }

    #[test]
    fn a_path_that_no_file_can_have_is_not_taken_apart() {
        assert!(folders_of(&[&"d/".repeat(LONGEST / 2)]).is_some());
        assert_eq!(folders_of(&[&"d/".repeat(LONGEST / 2 + 1)]), None);
    }
}
