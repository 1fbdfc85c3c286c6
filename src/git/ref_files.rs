//! Single refs, read from the files that git keeps them in: a process costs milliseconds, a file microseconds.
//!
//! Invariants
//! 1. An answer is the one git would give: a loose file comes before `packed-refs`, and is looked at first, because
//!    `git pack-refs` takes a loose file away only after the packed one is in place.
//! 2. Whatever is not plain is left to git: symbolic refs, symbolic links, refs of a single worktree, another format
//!    (reftable), anything malformed or unreadable.

use std::io::ErrorKind;
use std::path::Path;

use super::branch_name;
use super::error::GitError;
use super::plain_file::{Found, read};
use super::refs::short_branch;
use super::sha::Sha;
use super::text::digest;

/// The longest loose ref that is read, in bytes: an object name with room to spare.
const LONGEST: u64 = 256;
/// The largest `packed-refs` that is searched here, in bytes.
const LARGEST: u64 = 64 * 1024 * 1024;
/// How many loose refs are read one by one.
const MOST: usize = 2000;
/// What each worktree has for itself.
const OF_ONE_WORKTREE: [&str; 3] = ["refs/bisect/", "refs/worktree/", "refs/rewritten/"];

/// What the files tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Told {
    /// The ref names this object.
    Is(Sha),
    /// There is no such ref.
    Absent,
    /// Git has to be asked.
    AskGit,
}

/// Whether refs are kept in another format than files.
pub(super) fn is_reftable(common_dir: &Path) -> bool {
    common_dir.join("reftable").symlink_metadata().is_ok()
}

/// Looks for the ref of this full, valid name. Does not block on what is no plain file.
pub(super) fn look(common_dir: &Path, full_name: &str) -> Told {
    if OF_ONE_WORKTREE.iter().any(|start| full_name.starts_with(start)) || is_reftable(common_dir) {
        return Told::AskGit;
    }
    match read(&common_dir.join(full_name), LONGEST) {
        Found::Bytes(bytes) => loose(&bytes),
        Found::Nothing => match read(&common_dir.join("packed-refs"), LARGEST) {
            Found::Bytes(bytes) => packed(&bytes, full_name),
            Found::Nothing => Told::Absent,
            Found::Other => Told::AskGit,
        },
        Found::Other => Told::AskGit,
    }
}

/// The full name of a packed ref below the folder that the ref `dir` would be. `None`: git has to be asked.
pub(super) fn packed_below(common_dir: &Path, dir: &str) -> Option<Option<String>> {
    let bytes = match read(&common_dir.join("packed-refs"), LARGEST) {
        Found::Bytes(bytes) => bytes,
        Found::Nothing => return Some(None),
        Found::Other => return None,
    };
    let folder = format!("{dir}/");
    let mut below = packed_refs(&bytes).filter(|(_, name)| name.starts_with(folder.as_bytes()));
    Some(below.next().map(|(_, name)| String::from_utf8_lossy(name).into_owned()))
}

/// What `HEAD` holds.
enum Head {
    /// It names this ref.
    Ref(Vec<u8>),
    /// It is detached.
    Detached(Vec<u8>),
    /// Refs are kept in another format.
    AskGit,
}

fn read_head(git_dir: &Path) -> Result<Head, GitError> {
    let file = git_dir.join("HEAD");
    // An old way to write a symbolic ref: a symbolic link.
    let linked = std::fs::read_link(&file).ok();
    let bytes = match &linked {
        Some(target) => [b"ref: ".as_slice(), target.as_os_str().as_encoded_bytes()].concat(),
        None => std::fs::read(&file).map_err(|source| GitError::reading(&file, source))?,
    };
    Ok(match bytes.strip_prefix(b"ref:") {
        // What the reftable format leaves in HEAD so that older versions of git fail.
        Some(target) if target.trim_ascii() == b"refs/heads/.invalid" => Head::AskGit,
        Some(target) => Head::Ref(target.trim_ascii().to_vec()),
        None => Head::Detached(bytes),
    })
}

/// The branch that `HEAD` of this git directory names, which need not exist; `Some(None)` when it is detached. `None`:
/// git has to be asked.
///
/// # Errors
/// W102 when it cannot be read.
pub(super) fn head_branch(git_dir: &Path) -> Result<Option<Option<String>>, GitError> {
    Ok(match read_head(git_dir)? {
        Head::Ref(target) => Some(short_branch(&target)),
        Head::Detached(_) => Some(None),
        Head::AskGit => None,
    })
}

/// The commit that `HEAD` of this git directory is at; `Absent` where its branch is unborn.
///
/// # Errors
/// W102 when it cannot be read.
pub(super) fn head(git_dir: &Path, common_dir: &Path) -> Result<Told, GitError> {
    Ok(match read_head(git_dir)? {
        Head::Ref(target) => match std::str::from_utf8(&target) {
            Ok(name) if branch_name::require_full(name).is_ok() => look(common_dir, name),
            _ => Told::AskGit,
        },
        Head::Detached(bytes) => loose(&bytes),
        Head::AskGit => Told::AskGit,
    })
}

/// A text that differs whenever a remote-tracking ref does; empty when there is none. `None`: git has to be asked.
pub(super) fn remotes_digest(common_dir: &Path) -> Option<String> {
    if is_reftable(common_dir) {
        return None;
    }
    let mut all = Vec::new();
    collect(&common_dir.join("refs/remotes"), &mut all, &mut 0)?;
    // After the loose ones, for the reason of invariant 1.
    match read(&common_dir.join("packed-refs"), LARGEST) {
        Found::Bytes(bytes) => {
            for (sha, name) in packed_refs(&bytes).filter(|(_, name)| name.starts_with(b"refs/remotes/")) {
                all.extend([sha, b" ", name, b"\n"].concat());
            }
        }
        Found::Nothing => {}
        Found::Other => return None,
    }
    Some(if all.is_empty() { String::new() } else { digest(&all) })
}

/// Appends path and content of every file below `dir`; `None` for anything that is neither file nor directory, and when
/// there are more than [`MOST`].
fn collect(dir: &Path, all: &mut Vec<u8>, count: &mut usize) -> Option<()> {
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Some(()),
        Err(_) => return None,
    };
    let mut paths: Vec<_> = entries.map(|entry| entry.ok().map(|entry| entry.path())).collect::<Option<_>>()?;
    paths.sort();
    for path in paths {
        *count += 1;
        if *count > MOST {
            return None;
        }
        if path.symlink_metadata().ok()?.is_dir() {
            collect(&path, all, count)?;
            continue;
        }
        // Gone since it was listed: packed, or deleted.
        if let Found::Bytes(bytes) = read(&path, LONGEST) {
            all.extend(path.as_os_str().as_encoded_bytes());
            all.push(b' ');
            all.extend(bytes);
        } else {
            return None;
        }
    }
    Some(())
}

fn loose(bytes: &[u8]) -> Told {
    match std::str::from_utf8(bytes).map(str::trim_end).map(str::parse) {
        Ok(Ok(sha)) => Told::Is(sha),
        _ => Told::AskGit,
    }
}

fn packed(bytes: &[u8], full_name: &str) -> Told {
    match packed_refs(bytes).find(|(_, name)| *name == full_name.as_bytes()) {
        None => Told::Absent,
        Some((sha, _)) => match std::str::from_utf8(sha).map(str::parse) {
            Ok(Ok(sha)) => Told::Is(sha),
            _ => Told::AskGit,
        },
    }
}

/// Objects and names of packed refs: lines of `<object> <name>`. A line that begins with `#` is the head, one that begins
/// with `^` is about the tag before it.
fn packed_refs(bytes: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let lines = bytes.split(|byte| *byte == b'\n').filter(|line| !line.starts_with(b"#") && !line.starts_with(b"^"));
    lines.filter_map(|line| {
        let at = line.iter().position(|byte| *byte == b' ')?;
        Some((&line[..at], &line[at + 1..]))
    })
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "what a test writes need survive no crash")]
mod tests {
    use super::*;

    const A: &str = "0123456789abcdef0123456789abcdef01234567";
    const B: &str = "abcdef0123456789abcdef0123456789abcdef01";

    fn is(sha: &str) -> Told {
        Told::Is(sha.parse().unwrap())
    }

    #[test]
    fn a_loose_file_comes_first_invariant_1() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(look(dir.path(), "refs/heads/a"), Told::Absent);
        let packed = format!("# pack-refs with: peeled fully-peeled sorted \n{A} refs/heads/a\n{B} refs/heads/a/b\n");
        std::fs::write(dir.path().join("packed-refs"), packed).unwrap();
        assert_eq!(look(dir.path(), "refs/heads/a"), is(A));
        assert_eq!(look(dir.path(), "refs/heads/a/b"), is(B));
        assert_eq!(look(dir.path(), "heads/a"), Told::Absent);
        std::fs::create_dir_all(dir.path().join("refs/heads")).unwrap();
        std::fs::write(dir.path().join("refs/heads/a"), format!("{B}\n")).unwrap();
        assert_eq!(look(dir.path(), "refs/heads/a"), is(B));
    }

    #[test]
    fn what_is_not_plain_is_left_to_git_invariant_2() {
        let dir = tempfile::tempdir().unwrap();
        let heads = dir.path().join("refs/heads");
        std::fs::create_dir_all(heads.join("folder")).unwrap();
        std::fs::write(heads.join("symbolic"), "ref: refs/heads/main\n").unwrap();
        std::fs::write(heads.join("torn"), &A[..20]).unwrap();
        std::fs::write(heads.join("long"), "x".repeat(1000)).unwrap();
        std::os::unix::fs::symlink("symbolic", heads.join("link")).unwrap();
        nix::unistd::mkfifo(&heads.join("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        for name in ["symbolic", "torn", "long", "link", "fifo"] {
            assert_eq!(look(dir.path(), &format!("refs/heads/{name}")), Told::AskGit, "{name}");
        }
        assert_eq!(look(dir.path(), "refs/heads/folder"), Told::Absent);
        assert_eq!(look(dir.path(), "refs/bisect/bad"), Told::AskGit);
        std::fs::write(dir.path().join("packed-refs"), "nonsense-that-is-as-long-as-an-object-name-x refs/heads/p\n")
            .unwrap();
        assert_eq!(look(dir.path(), "refs/heads/p"), Told::AskGit);
        std::fs::create_dir(dir.path().join("reftable")).unwrap();
        assert_eq!(look(dir.path(), "refs/heads/none"), Told::AskGit);
    }
}
