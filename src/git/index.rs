//! What the index of a worktree can tell without git: whether it holds anything out of the ordinary, and which file
//! looked how when git last knew it to be unchanged.
//!
//! Most indexes hold neither submodules nor files that git was told not to look at. That is seen by walking over their
//! entries here, which is about ten times as fast as a process that lists them.
//!
//! Invariant
//! 1. An answer is given only of an index that was understood to its checksum. A split or sparse one, one of an unknown
//!    version, and one that is torn are left to git.
//!
//! Source: gitformat-index(5).

use std::ffi::CStr;
use std::io::{ErrorKind, Read as _};
use std::ops::Range;
use std::path::Path;

use super::sha::Sha;
use super::text::hex;

/// What an index holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Holds {
    /// A submodule.
    pub(super) gitlinks: bool,
    /// A file that is marked assume-unchanged or skip-worktree.
    pub(super) hidden: bool,
}

/// How a file looked, as the index keeps it: seconds, nanoseconds, sizes and numbers of 32 bits each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Look {
    pub(super) changed: (u32, u32),
    pub(super) modified: (u32, u32),
    pub(super) inode: u32,
    pub(super) mode: u32,
    pub(super) owner: (u32, u32),
    pub(super) size: u32,
}

/// One file of an index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry<'a> {
    /// Where its path lies in [`Index::paths`].
    path: Range<usize>,
    pub(super) look: Look,
    /// Which side of a merge it is; 0 when there is none.
    pub(super) stage: u16,
    /// The name of its content, 20 bytes or 32.
    pub(super) object: &'a [u8],
}

/// A whole index.
#[derive(Debug, Default)]
pub(super) struct Index<'a> {
    pub(super) holds: Holds,
    pub(super) entries: Vec<Entry<'a>>,
    /// The paths of the entries, each followed by a zero.
    paths: Vec<u8>,
    /// The name of the tree that all entries together make, where the index keeps it.
    pub(super) tree: Option<Sha>,
}

impl Index<'_> {
    /// The path of an entry of this index, relative to the root of the worktree.
    pub(super) fn path(&self, entry: &Entry<'_>) -> &[u8] {
        &self.paths[entry.path.clone()]
    }

    /// The name of an entry of this index, in its directory.
    pub(super) fn name(&self, entry: &Entry<'_>) -> Option<&CStr> {
        let name = self.path(entry).iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
        CStr::from_bytes_with_nul(&self.paths[entry.path.start + name..=entry.path.end]).ok()
    }
}

/// How many bytes all paths together may have: a small file can make many long ones out of little.
const MOST_PATHS: usize = 64 * 1024 * 1024;
/// Signature, version and number of entries come before the first entry.
const HEADER: usize = 12;
const COUNT_AT: usize = 8;
/// Mode, size and name are further on; both times, device and inode come before them.
const MODE_AT: usize = 24;
/// Everything of an entry before the object name.
const BEFORE_NAME: usize = 40;
const GITLINK: u32 = 0o160_000;
const DIRECTORY: u32 = 0o040_000;
const ASSUME_UNCHANGED: u16 = 0x8000;
const EXTENDED: u16 = 0x4000;
const SKIP_WORKTREE: u16 = 0x4000;
const STAGE: u16 = 0x3000;

/// Looks through the index of this git directory; `None` when git has to be asked.
pub(super) fn scan(git_dir: &Path) -> Option<Holds> {
    match std::fs::read(git_dir.join("index")) {
        Ok(bytes) => read(&bytes, None).map(|index| index.holds),
        Err(error) if error.kind() == ErrorKind::NotFound => Some(Holds::default()),
        Err(_) => None,
    }
}

/// How many files the index of this git directory has; `None` when it cannot be read.
pub(super) fn count(git_dir: &Path) -> Option<usize> {
    let mut header = [0; HEADER];
    std::fs::File::open(git_dir.join("index")).ok()?.read_exact(&mut header).ok()?;
    header.starts_with(b"DIRC").then_some(())?;
    usize::try_from(number(&header, COUNT_AT)?).ok()
}

/// Reads an index and, when there are no more than `most`, its entries; `None` when git has to be asked, as for paths of
/// more than 64 MiB in all.
pub(super) fn entries(bytes: &[u8], most: usize) -> Option<Index<'_>> {
    let count = usize::try_from(number(bytes, COUNT_AT)?).ok()?;
    (count <= most).then(|| read(bytes, Some(count))).flatten()
}

/// Reads an index whose object names have 20 bytes or 32, with its entries when their number is given.
fn read(bytes: &[u8], keep: Option<usize>) -> Option<Index<'_>> {
    read_named(bytes, 20, keep).or_else(|| read_named(bytes, 32, keep))
}

fn read_named(bytes: &[u8], name: usize, keep: Option<usize>) -> Option<Index<'_>> {
    let mut index = Index { entries: Vec::with_capacity(keep.unwrap_or(0)), ..Index::default() };
    if bytes.get(..4)? != b"DIRC" {
        return None;
    }
    let version = number(bytes, 4)?;
    if !(2..=4).contains(&version) {
        return None;
    }
    let end = bytes.len().checked_sub(name)?;
    let mut path = Vec::new();
    let mut at = HEADER;
    for _ in 0..number(bytes, COUNT_AT)? {
        let mode = number(bytes, at + MODE_AT)?;
        if mode == DIRECTORY {
            return None;
        }
        index.holds.gitlinks |= mode == GITLINK;
        let mut next = at + BEFORE_NAME + name;
        let flags = short(bytes, next)?;
        next += 2;
        index.holds.hidden |= flags & ASSUME_UNCHANGED != 0;
        if flags & EXTENDED != 0 {
            index.holds.hidden |= short(bytes, next)? & SKIP_WORKTREE != 0;
            next += 2;
        }
        let shared = if version == 4 {
            let (dropped, length) = varint(bytes.get(next..end)?)?;
            next += length;
            path.len().checked_sub(dropped)?
        } else {
            0
        };
        let length = bytes.get(next..end)?.iter().position(|byte| *byte == 0)?;
        path.truncate(shared);
        path.extend(&bytes[next..next + length]);
        next += length + 1;
        if keep.is_some() {
            let stage = (flags & STAGE) >> 12;
            let object = &bytes[at + BEFORE_NAME..at + BEFORE_NAME + name];
            let start = index.paths.len();
            (start + path.len() < MOST_PATHS).then_some(())?;
            index.paths.extend(&path);
            let path = start..index.paths.len();
            index.paths.push(0);
            index.entries.push(Entry { path, look: look(bytes, at)?, stage, object });
        }
        if version < 4 {
            // Padded with zeros to a multiple of eight.
            next = at + (next - at).next_multiple_of(8);
        }
        at = next;
    }
    index.tree = extensions(bytes, at, end, name)?;
    Some(index)
}

fn look(bytes: &[u8], at: usize) -> Option<Look> {
    let field = |place: usize| number(bytes, at + 4 * place);
    Some(Look {
        changed: (field(0)?, field(1)?),
        modified: (field(2)?, field(3)?),
        inode: field(5)?,
        mode: field(6)?,
        owner: (field(7)?, field(8)?),
        size: field(9)?,
    })
}

/// The tree of the whole, where it is kept. `None` unless there are only extensions from `at` to `end`, and none that
/// keeps entries elsewhere.
fn extensions(bytes: &[u8], mut at: usize, end: usize, name: usize) -> Option<Option<Sha>> {
    let mut tree = None;
    while at < end {
        let signature = bytes.get(at..at + 4)?;
        // One whose name begins with a small letter must be understood.
        if !signature.iter().all(u8::is_ascii_alphanumeric) || signature[0].is_ascii_lowercase() {
            return None;
        }
        let length = usize::try_from(number(bytes, at + 4)?).ok()?;
        let content = bytes.get(at + 8..)?.get(..length)?;
        if signature == b"TREE" {
            tree = root_tree(content, name);
        }
        at += 8 + length;
    }
    (at == end).then_some(tree)
}

/// The first entry of the cached trees: an empty path, the number of files and of subtrees, a name unless the number
/// is negative.
fn root_tree(content: &[u8], name: usize) -> Option<Sha> {
    let rest = content.strip_prefix(b"\0")?;
    let end = rest.iter().position(|byte| *byte == b'\n')?;
    if rest.starts_with(b"-") {
        return None;
    }
    let sha = rest.get(end + 1..)?.get(..name)?;
    hex(sha).parse().ok()
}

/// A number of variable length, and how many bytes it takes.
fn varint(bytes: &[u8]) -> Option<(usize, usize)> {
    let mut value = 0_usize;
    for (at, byte) in bytes.iter().take(4).enumerate() {
        value = (value << 7) + usize::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            return Some((value, at + 1));
        }
        value += 1;
    }
    None
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    let four = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_be_bytes(four.try_into().ok()?))
}

fn short(bytes: &[u8], at: usize) -> Option<u16> {
    let two = bytes.get(at..at.checked_add(2)?)?;
    Some(u16::from_be_bytes(two.try_into().ok()?))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// An index of version 2 with these files, of this mode and with these flags, and something after them.
    pub(in super::super) fn index_of(paths: &[&str], mode: u32, flags: u16, rest: &[u8]) -> Vec<u8> {
        let mut bytes = b"DIRC\0\0\0\x02".to_vec();
        bytes.extend(u32::try_from(paths.len()).unwrap().to_be_bytes());
        for path in paths {
            let start = bytes.len();
            bytes.extend([0; MODE_AT]);
            bytes.extend(mode.to_be_bytes());
            bytes.extend([0; BEFORE_NAME - MODE_AT - 4 + 20]);
            bytes.extend(flags.to_be_bytes());
            bytes.extend(path.as_bytes());
            bytes.resize(start + (bytes.len() + 1 - start).next_multiple_of(8), 0);
        }
        bytes.extend(rest);
        bytes.extend([7; 20]);
        bytes
    }

    fn index(mode: u32, flags: u16, rest: &[u8]) -> Vec<u8> {
        index_of(&["a"], mode, flags, rest)
    }

    fn holds(bytes: &[u8]) -> Option<Holds> {
        read(bytes, None).map(|index| index.holds)
    }

    #[test]
    fn what_is_out_of_the_ordinary_is_seen() {
        let plain = Holds::default();
        assert_eq!(holds(&index(0o100_644, 1, b"")), Some(plain));
        assert_eq!(holds(&index(0o100_644, 0x8001, b"")), Some(Holds { hidden: true, ..plain }));
        assert_eq!(holds(&index(GITLINK, 1, b"")), Some(Holds { gitlinks: true, ..plain }));
        assert_eq!(holds(&index(0o100_644, 1, b"REUC\0\0\0\x02xx")), Some(plain));
    }

    #[test]
    fn entries_and_tree_are_read() {
        let mut tree = b"TREE\0\0\0\x19\x001 0\n".to_vec();
        tree.extend([0xab; 20]);
        let bytes = index(0o100_644, 0x1001, &tree);
        let read = entries(&bytes, 5).unwrap();
        assert_eq!(read.tree, Some("ab".repeat(20).parse().unwrap()));
        let entry = &read.entries[0];
        assert_eq!((read.path(entry), entry.stage, entry.look.mode), (b"a".as_slice(), 1, 0o100_644));
        assert_eq!(read.name(entry), Some(c"a"));
        assert!(entries(&index(0o100_644, 1, b""), 0).is_none());
        assert_eq!(entries(&index(0o100_644, 1, b"TREE\0\0\0\x06\0-1 0\n"), 5).unwrap().tree, None);
        assert_eq!(varint(&[0x05]), Some((5, 1)));
        assert_eq!(varint(&[0x80, 0x00]), Some((128, 2)));
        assert_eq!(varint(&[0x80]), None);
    }

    #[test]
    fn what_is_not_understood_is_left_to_git_invariant_1() {
        for rest in [b"link\0\0\0\0".as_slice(), b"sdir\0\0\0\0", b"TREE\0\0\0\x09xx", b"x"] {
            assert_eq!(holds(&index(0o100_644, 1, rest)), None, "{rest:?}");
        }
        let whole = index(0o100_644, 1, b"TREE\0\0\0\x02xx");
        // Cut right after the entry it is an index without extensions, as far as its form goes.
        for length in (0..whole.len()).filter(|length| *length != 12 + 64 + 20) {
            assert_eq!(holds(&whole[..length]), None, "{length}");
        }
        assert_eq!(holds(&index(DIRECTORY, 1, b"")), None);
        let mut unknown = whole;
        unknown[7] = 5;
        assert_eq!(holds(&unknown), None);
    }
}
