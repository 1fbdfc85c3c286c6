//! `status --porcelain=v2 --branch -z` (git-status(1), "Porcelain Format Version 2").

use std::path::PathBuf;

use super::super::error::GitError;
use super::super::sha::Sha;

const WHAT: &str = "git status";

/// How a path differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EntryKind {
    /// The index differs from HEAD; the file is as in the index.
    Staged,
    /// The file differs from the index; the index is as in HEAD.
    Unstaged,
    /// Both differ.
    StagedAndUnstaged,
    /// Git does not know the file, or nothing in the directory (the path then ends with a slash).
    Untracked,
    /// A merge left several versions in the index.
    Conflicted,
}

/// One path that differs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatusEntry {
    /// How it differs.
    pub kind: EntryKind,
    /// Where, relative to the root of the worktree. For a renamed file its new name.
    pub path: PathBuf,
    /// It is a submodule.
    pub submodule: bool,
}

/// What a worktree looks like next to its HEAD.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TreeStatus {
    /// The commit checked out; `None` on an unborn branch.
    pub head: Option<Sha>,
    /// The short name of the branch checked out; `None` when detached.
    pub branch: Option<String>,
    /// The short name of its upstream, set or not existing any more.
    pub upstream: Option<String>,
    /// Commits ahead of and behind the upstream; `None` without one, or when it is gone.
    pub upstream_ahead_behind: Option<(u64, u64)>,
    /// Paths staged, among them those that also have unstaged changes.
    pub staged: u64,
    /// Paths changed and not staged, among them those that also have staged changes.
    pub unstaged: u64,
    /// Paths git does not know; a directory that holds nothing else counts as one.
    pub untracked: u64,
    /// Paths in conflict.
    pub conflicted: u64,
    /// Every such path, in the order of git.
    pub entries: Vec<StatusEntry>,
}

impl TreeStatus {
    /// Whether nothing is staged, unstaged, untracked or in conflict.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.entries.is_empty()
    }

    /// How many paths are not clean, each counted once.
    #[must_use]
    pub fn changed(&self) -> u64 {
        u64::try_from(self.entries.len()).unwrap_or(u64::MAX)
    }

    fn note(&mut self, kind: EntryKind, path: &[u8], submodule: bool) {
        match kind {
            EntryKind::Staged => self.staged += 1,
            EntryKind::Unstaged => self.unstaged += 1,
            EntryKind::StagedAndUnstaged => {
                self.staged += 1;
                self.unstaged += 1;
            }
            EntryKind::Untracked => self.untracked += 1,
            EntryKind::Conflicted => self.conflicted += 1,
        }
        self.entries.push(StatusEntry { kind, path: super::paths::path(path), submodule });
    }
}

/// Reads the whole status.
pub(in super::super) fn parse(output: &[u8]) -> Result<TreeStatus, GitError> {
    let mut status = TreeStatus::default();
    let mut items = super::terminated(WHAT, output)?.into_iter().enumerate();
    while let Some((index, item)) = items.next() {
        let fail = || super::unknown(WHAT, index, item);
        let (mark, rest) = item.split_at_checked(2).ok_or_else(fail)?;
        match mark {
            b"# " => header(&mut status, rest).ok_or_else(fail)?,
            b"1 " => {
                let (xy, submodule, path) = changed(rest, 6).ok_or_else(fail)?;
                status.note(kind(xy).ok_or_else(fail)?, path, submodule);
            }
            b"2 " => {
                let (xy, submodule, path) = changed(rest, 7).ok_or_else(fail)?;
                status.note(kind(xy).ok_or_else(fail)?, path, submodule);
                // The old name follows as an item of its own.
                items.next().filter(|(_, old)| !old.is_empty()).ok_or_else(fail)?;
            }
            b"u " => {
                let (_, submodule, path) = changed(rest, 8).ok_or_else(fail)?;
                status.note(EntryKind::Conflicted, path, submodule);
            }
            b"? " if !rest.is_empty() => status.note(EntryKind::Untracked, rest, false),
            _ => return Err(fail()),
        }
    }
    Ok(status)
}

/// Reads only the ignored paths, of a status with `--ignored`.
pub(in super::super) fn ignored(output: &[u8]) -> Result<Vec<PathBuf>, GitError> {
    let mut paths = Vec::new();
    let mut items = super::terminated(WHAT, output)?.into_iter().enumerate();
    while let Some((index, item)) = items.next() {
        match item.split_at_checked(2) {
            Some((b"! ", path)) if !path.is_empty() => paths.push(super::paths::path(path)),
            Some((b"2 ", _)) => drop(items.next()),
            Some((b"1 " | b"u " | b"? " | b"# ", _)) => {}
            _ => return Err(super::unknown(WHAT, index, item)),
        }
    }
    Ok(paths)
}

/// Headers of later versions of git are passed over; known ones must be understood.
fn header(status: &mut TreeStatus, rest: &[u8]) -> Option<()> {
    let text = String::from_utf8_lossy(rest);
    let (key, value) = text.split_once(' ').unwrap_or((&text, ""));
    match key {
        "branch.oid" if value == "(initial)" => {}
        "branch.oid" => status.head = Some(value.parse().ok()?),
        "branch.head" if value == "(detached)" => {}
        "branch.head" => status.branch = Some(value.to_owned()),
        "branch.upstream" => status.upstream = Some(value.to_owned()),
        "branch.ab" => {
            let (ahead, behind) = value.split_once(' ')?;
            let ahead = ahead.strip_prefix('+')?.parse().ok()?;
            status.upstream_ahead_behind = Some((ahead, behind.strip_prefix('-')?.parse().ok()?));
        }
        _ => {}
    }
    Some(())
}

/// The state, whether it is a submodule, and the path of a line that has `fields` fields between state and path.
fn changed(rest: &[u8], fields: usize) -> Option<([u8; 2], bool, &[u8])> {
    let mut parts = rest.splitn(fields + 2, |byte| *byte == b' ');
    let xy: [u8; 2] = parts.next()?.try_into().ok()?;
    let submodule = *parts.next()?.first()? == b'S';
    let path = parts.nth(fields - 1)?;
    (!path.is_empty()).then_some((xy, submodule, path))
}

fn kind([staged, unstaged]: [u8; 2]) -> Option<EntryKind> {
    let known = |letter: u8| matches!(letter, b'.' | b'M' | b'T' | b'A' | b'D' | b'R' | b'C');
    match (staged, unstaged) {
        (b'.', b'.') => None,
        (x, y) if !known(x) || !known(y) => None,
        (_, b'.') => Some(EntryKind::Staged),
        (b'.', _) => Some(EntryKind::Unstaged),
        _ => Some(EntryKind::StagedAndUnstaged),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "0123456789abcdef0123456789abcdef01234567";

    #[test]
    fn every_kind_of_line_is_read() {
        let m = "100644 100644 100644";
        let text = format!(
            "# branch.oid {A}\0# branch.head feat/x\0# branch.upstream origin/feat/x\0# branch.ab +2 -1\0# stash 3\0\
             1 M. N... {m} {A} {A} a b\nc\0\
             1 .M SC.. 160000 160000 160000 {A} {A} sub\0\
             1 AM N... {m} {A} {A} both\0\
             2 R. N... {m} {A} {A} R100 new\0old name\0\
             u UU N... {m} 100644 {A} {A} {A} torn\0\
             ? un tracked/\0"
        );
        let status = parse(text.as_bytes()).unwrap();
        assert_eq!(status.head.as_ref().unwrap().as_str(), A);
        assert_eq!(status.branch.as_deref(), Some("feat/x"));
        assert_eq!(status.upstream.as_deref(), Some("origin/feat/x"));
        assert_eq!(status.upstream_ahead_behind, Some((2, 1)));
        assert_eq!((status.staged, status.unstaged, status.untracked, status.conflicted), (3, 2, 1, 1));
        let paths: Vec<_> = status.entries.iter().map(|entry| entry.path.to_str().unwrap()).collect();
        assert_eq!(paths, ["a b\nc", "sub", "both", "new", "torn", "un tracked/"]);
        assert!(status.entries[1].submodule);
        assert_eq!(status.changed(), 6);
    }

    #[test]
    fn unborn_and_detached_are_absences() {
        let status = parse(b"# branch.oid (initial)\0# branch.head (detached)\0").unwrap();
        assert_eq!((status.head.clone(), status.branch.clone()), (None, None));
        assert!(status.is_clean());
    }

    #[test]
    fn ignored_paths_are_picked_out() {
        let output = b"1 M. N... m m m a b path\0! target/\x002 R. N... m m m a b R100 ! new\0! old\0? x\0! a b\n\0";
        assert_eq!(ignored(output).unwrap(), ["target/", "a b\n"].map(PathBuf::from));
        assert!(ignored(b"! \0").is_err());
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        for bad in [
            &b"1 M. N... short\0"[..],
            b"1 X. N... 1 1 1 a b path\0",
            b"1 .. N... 1 1 1 a b path\0",
            b"2 R. N... 1 1 1 a b R100 new\0",
            b"! ignored\0",
            b"? \0",
            b"# branch.oid x\0",
            b"# branch.ab 1 2\0",
            b"? unterminated",
            b"\0",
        ] {
            assert!(parse(bad).is_err(), "{:?}", String::from_utf8_lossy(bad));
        }
    }
}
