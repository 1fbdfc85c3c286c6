//! Filling a new worktree, and moving the files of one from commit to commit.
//!
//! Invariants
//! 1. Moving changes no ref. Whoever moves a branch does that by compare-and-swap, and the files before or after.
//! 2. Moving overwrites no file that HEAD does not have. Git itself protects changed and untracked files; files it is
//!    told to ignore it would overwrite, so they are looked for first.
//! 3. Moving again finishes what a killed process left: files that are already those of the new commit are not in the
//!    way. A file that was cut in the middle of a write is, and is named.

use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use super::Tree;
use super::error::GitError;
use super::parse;
use super::parse::status::EntryKind;
use super::sha::Sha;

/// What became of a move.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum MoveOutcome {
    /// Index and files are those of the new commit, with all other changes kept.
    Moved,
    /// Something is in the way; neither files nor index were changed.
    InTheWay {
        /// The files, relative to the root.
        files: Vec<PathBuf>,
    },
}

/// How many paths are handed to one process.
const CHUNK: usize = 500;

impl Tree {
    /// Writes all files of HEAD into a worktree that was added without any. Not for any other: what is there is
    /// overwritten.
    ///
    /// # Errors
    /// W503 when the repository defines a program that policy does not allow; W102, for instance when a required filter
    /// is missing.
    pub async fn checkout_fresh(&self) -> Result<(), GitError> {
        self.require_allowed_drivers().await?;
        let turn = self.git.turn(self.repo().common_dir()).await;
        self.command(["reset", "--hard", "--quiet", "--no-recurse-submodules"])
            // Git stays serial for small trees.
            .config("checkout.workers", &turn.workers.to_string())
            .writes()
            .run_patiently()
            .await?
            .expect(&[0])?;
        drop(turn);
        Ok(())
    }

    /// Makes the index that of HEAD where a first checkout was cut off before it wrote one, so that what lies there can be
    /// judged: without an index every file would count as one that git does not know. No file is touched. Only when
    /// nobody works there any more: a lock that is left is taken away.
    ///
    /// # Errors
    /// W102.
    pub async fn index_if_missing(&self) -> Result<(), GitError> {
        if self.git_dir().join("index").symlink_metadata().is_ok() {
            return Ok(());
        }
        let lock = self.git_dir().join("index.lock");
        match std::fs::remove_file(&lock) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(GitError::reading(lock, error)),
            _ => {}
        }
        self.command(["read-tree", "HEAD"]).writes().run_patiently().await?.expect(&[0])?;
        Ok(())
    }

    /// Brings index and files from `old`, which they are at, to `new`, and keeps every change that is not in the way.
    /// The branch is moved separately.
    ///
    /// # Errors
    /// W503 when the repository defines a program that policy does not allow; W102.
    pub async fn fast_forward(&self, old: &Sha, new: &Sha) -> Result<MoveOutcome, GitError> {
        if old == new {
            return Ok(MoveOutcome::Moved);
        }
        self.require_allowed_drivers().await?;
        let is_there = |path: &PathBuf| self.root().join(path).symlink_metadata().is_ok();
        let unknown = self.unknown_in_the_way(old, new).await?;
        if let Some(files) = self.different_in_the_way(&unknown, old, new).await? {
            return Ok(MoveOutcome::InTheWay { files });
        }
        if self.read_tree(old, new, &[]).await? {
            return Ok(MoveOutcome::Moved);
        }
        let (changed, staged) = self.changed_in_the_way(old, new).await?;
        let candidates: BTreeSet<PathBuf> = changed.into_iter().chain(unknown).filter(is_there).collect();
        let candidates = Vec::from_iter(candidates);
        let mut files = self.unlike(&candidates, new).await?;
        files.extend(staged);
        files.sort();
        if files.is_empty() && !candidates.is_empty() {
            self.point_index(&candidates, new).await?;
            if self.read_tree(old, new, &[]).await? {
                return Ok(MoveOutcome::Moved);
            }
            self.point_index(&candidates, old).await?;
        }
        // Where git refuses for something that status does not show, all that differs is named.
        let named =
            [files, candidates, self.changed_paths(old, new).await?].into_iter().find(|files| !files.is_empty());
        Ok(MoveOutcome::InTheWay { files: named.unwrap_or_default() })
    }

    /// What [`Tree::fast_forward`] would refuse; nothing is changed. Whether files that are as `new` has them already can
    /// be taken over is left to it.
    ///
    /// # Errors
    /// W503 when the repository defines a program that policy does not allow; W102.
    pub async fn would_fast_forward(&self, old: &Sha, new: &Sha) -> Result<MoveOutcome, GitError> {
        if old == new {
            return Ok(MoveOutcome::Moved);
        }
        self.require_allowed_drivers().await?;
        let unknown = self.unknown_in_the_way(old, new).await?;
        if let Some(files) = self.different_in_the_way(&unknown, old, new).await? {
            return Ok(MoveOutcome::InTheWay { files });
        }
        if self.read_tree(old, new, &["--dry-run"]).await? {
            return Ok(MoveOutcome::Moved);
        }
        let files = self.changed_and_different(old, new).await?;
        Ok(if files.is_empty() { MoveOutcome::Moved } else { MoveOutcome::InTheWay { files } })
    }

    /// Everything in the way, when one of the `unknown` files differs from what `new` would put there.
    async fn different_in_the_way(
        &self,
        unknown: &[PathBuf],
        old: &Sha,
        new: &Sha,
    ) -> Result<Option<Vec<PathBuf>>, GitError> {
        let mut different = self.unlike(unknown, new).await?;
        if different.is_empty() {
            return Ok(None);
        }
        // All of them are named at once, so that one look at the checkout is enough.
        different.extend(self.changed_and_different(old, new).await?);
        different.sort();
        different.dedup();
        Ok(Some(different))
    }

    /// Changed files in the way that are not as `new` has them, and staged ones.
    async fn changed_and_different(&self, old: &Sha, new: &Sha) -> Result<Vec<PathBuf>, GitError> {
        let (mut changed, staged) = self.changed_in_the_way(old, new).await?;
        // A file that is missing is written by git, so it is never in the way.
        changed.retain(|path| self.root().join(path).symlink_metadata().is_ok());
        let mut files = self.unlike(&Vec::from_iter(changed), new).await?;
        files.extend(staged);
        files.sort();
        Ok(files)
    }

    /// A two-tree merge of index and files, `how` added; `false` when something is in the way.
    async fn read_tree(&self, old: &Sha, new: &Sha, how: &[&str]) -> Result<bool, GitError> {
        let output = self
            .command(["read-tree", "-m", "-u", "--no-recurse-submodules"])
            .args(how)
            .args([old, new])
            .config("checkout.workers", "0")
            .writes()
            .run_patiently()
            .await?;
        if output.code == Some(0) {
            return Ok(true);
        }
        let refused = ["not uptodate", "would be overwritten", "would be removed", "would lose", "would be lost"];
        match output.failure() {
            GitError::Failed { stderr, .. } if refused.iter().any(|words| stderr.contains(words)) => Ok(false),
            failure => Err(failure),
        }
    }

    /// [`Tree::fast_forward`] for any two commits: what brings a clean worktree to a rebased commit.
    ///
    /// # Errors
    /// W102.
    pub async fn move_to(&self, old: &Sha, new: &Sha) -> Result<MoveOutcome, GitError> {
        self.fast_forward(old, new).await
    }

    /// The paths that differ between two commits.
    ///
    /// # Errors
    /// W102.
    pub async fn changed_paths(&self, old: &Sha, new: &Sha) -> Result<Vec<PathBuf>, GitError> {
        self.differing(old, new, "--diff-filter=ACDMRTUXB").await
    }

    /// The paths that differ between two commits, in one of the ways of the filter.
    pub(super) async fn differing(&self, old: &Sha, new: &Sha, filter: &str) -> Result<Vec<PathBuf>, GitError> {
        let output = self
            .command(["diff-tree", "-r", "-z", "--name-only", "--no-renames", "--no-ext-diff", "--no-textconv", filter])
            .args([old, new])
            .arg("--")
            .run()
            .await?;
        parse::paths::list("git diff-tree", &output.stdout()?)
    }

    /// Files that are there, that the index does not have, and that `new` would put something over. Also those below
    /// a directory that becomes a file, and those where a directory must come.
    pub(super) async fn unknown_in_the_way(&self, old: &Sha, new: &Sha) -> Result<Vec<PathBuf>, GitError> {
        let added = self.differing(old, new, "--diff-filter=AT").await?;
        self.unknown_at(added).await
    }

    /// Files that are there, that the index does not have, at, below or above `paths`.
    pub(super) async fn unknown_at(&self, paths: Vec<PathBuf>) -> Result<Vec<PathBuf>, GitError> {
        let mut suspects = BTreeSet::new();
        for path in paths {
            if self.root().join(&path).symlink_metadata().is_ok() {
                suspects.insert(path);
            } else if let Some(file) = self.file_above(&path) {
                suspects.insert(file);
            }
        }
        let suspects: Vec<PathBuf> = suspects.into_iter().collect();
        let mut unknown = BTreeSet::new();
        for chunk in suspects.chunks(CHUNK) {
            let output = self
                .command(["ls-files", "--others", "-z", "--"])
                .args(chunk)
                .env("GIT_LITERAL_PATHSPECS", "1")
                .run()
                .await?;
            unknown.extend(parse::paths::list("git ls-files", &output.stdout()?)?);
        }
        Ok(unknown.into_iter().collect())
    }

    /// The nearest parent of a path that exists and is no directory. A symbolic link is none.
    fn file_above(&self, path: &Path) -> Option<PathBuf> {
        let mut above = path.ancestors().skip(1).filter(|parent| !parent.as_os_str().is_empty());
        above
            .find(|parent| self.root().join(parent).symlink_metadata().is_ok_and(|meta| !meta.is_dir()))
            .map(Path::to_owned)
    }

    /// Changed files among those that differ between the commits, also where one is a directory of the other: those of
    /// which nothing is staged, and those of which something is.
    async fn changed_in_the_way(&self, old: &Sha, new: &Sha) -> Result<(Vec<PathBuf>, Vec<PathBuf>), GitError> {
        let moving: BTreeSet<PathBuf> = self.changed_paths(old, new).await?.into_iter().collect();
        let touches = |path: &Path| {
            let below = moving.range(path.to_owned()..).next().is_some_and(|next| next.starts_with(path));
            below || path.ancestors().any(|parent| moving.contains(parent))
        };
        let (mut plainly, mut staged) = (BTreeSet::new(), BTreeSet::new());
        for entry in self.status().await?.entries {
            let path = plain(&entry.path);
            if touches(&path) {
                let into = if matches!(entry.kind, EntryKind::Unstaged | EntryKind::Untracked) {
                    &mut plainly
                } else {
                    &mut staged
                };
                into.insert(path);
            }
        }
        Ok((plainly.difference(&staged).cloned().collect(), staged.into_iter().collect()))
    }
}

/// The path without the slash that marks a directory.
fn plain(path: &Path) -> PathBuf {
    let bytes = path.as_os_str().as_bytes();
    parse::paths::path(bytes.strip_suffix(b"/").unwrap_or(bytes))
}
