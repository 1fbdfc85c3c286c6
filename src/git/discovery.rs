//! Which repository and worktree a path lies in.
//!
//! Git is asked, because it is git that checks who owns the repository. Its answer is remembered for as long as
//! everything it rests on is the same; then the next call about the same path costs no process.
//!
//! Invariants
//! 1. Remembered is only an answer about a worktree of which every part belongs to the user of this process: git trusts
//!    such a repository whatever `safe.directory` says.
//! 2. What is remembered counts only while `.git`, the git directory, the common directory and the root are the same
//!    files of the same owner, the configuration has the same bytes and includes nothing, and no repository has come to
//!    lie between the path and the root.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::Metadata;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use super::error::GitError;
use super::invocation::Invocation;
use super::own_config::Place;
use super::program::common_dir_of;
use super::{Git, Repo, Tree};

/// How many answers are remembered at a time.
const REMEMBERED: usize = 1024;

/// Where a path lies.
#[derive(Debug, Clone)]
pub struct Found {
    /// The repository.
    pub repo: Repo,
    /// The worktree around the path; `None` in a bare repository or inside a git directory.
    pub tree: Option<Tree>,
}

/// What was discovered, by the directory that was asked about.
pub(super) type Places = Mutex<HashMap<PathBuf, Known>>;

/// A remembered answer: root, git directory and common directory of a worktree, and what that rests on.
#[derive(Debug, Clone)]
pub(super) struct Known {
    root: PathBuf,
    place: Place,
    signs: Signs,
}

/// What an answer rests on.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Signs {
    /// Device and inode of the root, its `.git`, the git directory and the common directory.
    files: [(u64, u64); 4],
    /// What a `.git` file holds.
    dot_git: Vec<u8>,
    config: Vec<u8>,
}

impl Signs {
    /// The signs as they are now; `None` when an answer that rests on them is not to be remembered or believed.
    fn read(start: &Path, root: &Path, place: &Place) -> Option<Signs> {
        for dir in start.ancestors().take_while(|dir| *dir != root) {
            // `HEAD` is what a bare repository would have.
            if [".git", "HEAD"].iter().any(|name| dir.join(name).symlink_metadata().is_ok()) {
                return None;
            }
        }
        let dot_git = root.join(".git");
        let mut files = [(0, 0); 4];
        let all = [root, &dot_git, &place.git_dir, &place.common_dir];
        for (sign, path) in files.iter_mut().zip(all) {
            let meta = path.symlink_metadata().ok()?;
            *sign = ours(&meta)?;
        }
        let is_repository = place.git_dir.join("HEAD").exists() && place.common_dir.join("objects").is_dir();
        let held = if dot_git.is_file() { std::fs::read(&dot_git).ok()? } else { Vec::new() };
        (is_repository && start.starts_with(root)).then_some(())?;
        Some(Signs { files, dot_git: held, config: place.text_without_includes()? })
    }
}

/// Device and inode of something that belongs to the user of this process, and is no symbolic link.
fn ours(meta: &Metadata) -> Option<(u64, u64)> {
    let is_ours = meta.uid() == nix::unistd::geteuid().as_raw() && !meta.is_symlink();
    is_ours.then(|| (meta.dev(), meta.ino()))
}

impl Git {
    fn remembered(&self, start: &Path) -> Option<Found> {
        let known = self.places().lock().unwrap_or_else(PoisonError::into_inner).get(start).cloned()?;
        if Signs::read(start, &known.root, &known.place)? != known.signs {
            return None;
        }
        let tree = Tree::at(self, known.root, known.place.git_dir, known.place.common_dir);
        Some(Found { repo: tree.repo(), tree: Some(tree) })
    }

    fn remember(&self, start: PathBuf, tree: &Tree) {
        let (root, place) = (tree.root().to_owned(), tree.place());
        let Some(signs) = Signs::read(&start, &root, &place) else { return };
        let mut places = self.places().lock().unwrap_or_else(PoisonError::into_inner);
        if places.len() >= REMEMBERED {
            places.clear();
        }
        places.insert(start, Known { root, place, signs });
    }

    /// The repository and worktree that `path` lies in. The path is absolute and exists; it may be a file, a
    /// subdirectory, a worktree, a bare repository or the inside of a git directory.
    ///
    /// This is where git checks who owns the repository: everything after names the git directory and skips that
    /// check, so a path from outside comes through here first.
    ///
    /// # Errors
    /// W110 when there is no repository, W111 for a relative path, W113 when another user owns the repository.
    pub async fn discover(&self, path: &Path) -> Result<Found, GitError> {
        if !path.is_absolute() {
            return Err(GitError::Malformed { name: path.display().to_string(), why: "the path must be absolute" });
        }
        let nowhere = || GitError::NotARepository { path: path.to_owned() };
        let start = std::fs::canonicalize(path).map_err(|_| nowhere())?;
        let start = if start.is_dir() { start } else { start.parent().map(Path::to_owned).ok_or_else(nowhere)? };
        if let Some(found) = self.remembered(&start) {
            return Ok(found);
        }
        // The caller names the repository, so a bare one is not come across by accident.
        let output = Invocation::new(self, ["rev-parse", "--is-inside-work-tree", "--show-cdup", "--absolute-git-dir"])
            .discovering_from(&start)
            .config("safe.bareRepository", "all")
            .run()
            .await?;
        let output = match output.stdout() {
            Err(GitError::NotARepository { .. }) => return Err(nowhere()),
            other => other?,
        };
        let (up, git_dir) = located(&output).ok_or_else(|| GitError::Parse {
            what: "git rev-parse".to_owned(),
            line: 1,
            text: String::from_utf8_lossy(&output).into_owned(),
        })?;
        // A configuration can place the worktree anywhere (`core.worktree`); only one that leads back here is believed.
        let elsewhere = || GitError::NotAWorktree {
            path: start.clone(),
            why: "the configuration of its repository places its files elsewhere (`core.worktree`)".to_owned(),
        };
        let git_dir = std::fs::canonicalize(&git_dir).map_err(|_| elsewhere())?;
        let common_dir = common_dir_of(&git_dir)?;
        let repo = self.repo(&common_dir);
        let tree = match up {
            Some(up) => {
                let tree = self.tree(&start.join(up)).map_err(|_| elsewhere())?;
                Some(tree).filter(|tree| tree.git_dir() == git_dir).ok_or_else(elsewhere).map(Some)?
            }
            None => None,
        };
        if let Some(tree) = &tree {
            self.remember(start, tree);
        }
        Ok(Found { repo, tree })
    }
}

/// The answers to the three questions of `discover`: the way up to the root of the worktree, which is missing where
/// there is none, and the git directory. The way only climbs, so that no line break of a path is taken for one of the
/// output.
fn located(output: &[u8]) -> Option<(Option<PathBuf>, PathBuf)> {
    let path = |bytes: &[u8]| PathBuf::from(OsString::from_vec(bytes.to_vec()));
    let rest = output.strip_suffix(b"\n")?;
    if let Some(git_dir) = rest.strip_prefix(b"false\n") {
        return Some((None, path(git_dir)));
    }
    let rest = rest.strip_prefix(b"true\n")?;
    let end = rest.iter().position(|byte| *byte == b'\n')?;
    Some((Some(path(&rest[..end])), path(&rest[end + 1..])))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answers_of_git_are_told_apart() {
        let there = located(b"true\n../\n/r/.git\n").unwrap();
        assert_eq!(there, (Some(PathBuf::from("../")), PathBuf::from("/r/.git")));
        assert_eq!(located(b"false\n/r.git\n").unwrap(), (None, PathBuf::from("/r.git")));
        assert_eq!(located(b"maybe\n"), None);
    }
}
