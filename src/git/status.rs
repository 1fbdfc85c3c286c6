//! What a worktree looks like next to its HEAD.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Duration;

use super::Tree;
use super::error::GitError;
use super::parse::status::{TreeStatus, parse};
use super::surroundings::Variable;

/// For how long a refresh in the background lets others write their files first.
const PATIENCE: Duration = Duration::from_secs(30);

impl Tree {
    /// The status, whatever the configuration says should be shown: files git does not know always count, and so do
    /// changes inside submodules. Takes no lock and reaches for no remote.
    ///
    /// # Errors
    /// W102.
    pub async fn status(&self) -> Result<TreeStatus, GitError> {
        let inside = self.submodule_overrides().await?;
        let output = self
            .command(["status", "--porcelain=v2", "--branch", "--ahead-behind", "-z"])
            .args(["--untracked-files=normal", "--ignore-submodules=none", "--renames"])
            .configs(inside)
            .configs(careful())
            .offline()
            .run()
            .await?;
        parse(&output.stdout()?)
    }

    /// Writes what `status` would learn about unchanged files into the index.
    ///
    /// Right after a checkout all files are as old as the index, so every lock-free status reads them again; one
    /// refresh makes the following ones about eight times as fast. It is made in a copy, and put in place only when
    /// nobody else has written the index meanwhile: an agent that commits at this moment never meets a taken lock for
    /// longer than a rename. A refresh that finds changed files, a taken lock or another index is no failure.
    ///
    /// It reads all files of a fresh checkout, as long as a checkout takes: in the background it waits for its turn.
    ///
    /// # Errors
    /// W100, W101, W102 when the copy cannot be made.
    pub async fn refresh_index(&self) -> Result<(), GitError> {
        let _turn = match self.git.is_in_background() {
            true => Some(self.git.later(self.repo().common_dir(), PATIENCE).await),
            false => None,
        };
        let draft = self.git_dir().join(format!("iii-index.{}", std::process::id()));
        let refreshed = self.refresh_draft(&draft).await;
        match std::fs::remove_file(&draft) {
            Err(source) if source.kind() != std::io::ErrorKind::NotFound => Err(GitError::reading(&draft, source)),
            _ => refreshed,
        }
    }

    async fn refresh_draft(&self, draft: &Path) -> Result<(), GitError> {
        let index = self.git_dir().join("index");
        let failed = |source| GitError::reading(&index, source);
        let before = std::fs::metadata(&index).map_err(failed)?;
        copy_as_old(&index, draft).map_err(failed)?;
        let file = draft.display().to_string();
        let output =
            self.command(["update-index", "-q", "--refresh"]).env("GIT_INDEX_FILE", &file).writes().run().await?;
        if output.code != Some(0) {
            tracing::debug!(root = %self.root().display(), "some files of the index were not refreshed");
        }
        // A link is made only where nothing is: it takes git's own lock, and holds the new index at once.
        let lock = self.git_dir().join("index.lock");
        if std::fs::hard_link(draft, &lock).is_err() {
            return Ok(());
        }
        let unchanged = std::fs::metadata(&index).is_ok_and(|now| {
            (now.ino(), now.size(), now.mtime(), now.mtime_nsec())
                == (before.ino(), before.size(), before.mtime(), before.mtime_nsec())
        });
        let settled = if unchanged { std::fs::rename(&lock, &index) } else { std::fs::remove_file(&lock) };
        settled.map_err(failed)
    }
}

/// What makes git look at a file again when anything about it differs, not only its size and the second of its change.
pub(super) fn careful() -> Vec<Variable> {
    vec![("core.checkStat".into(), "default".into()), ("core.trustctime".into(), "true".into())]
}

/// Copies an index. What git holds for possibly changed depends on how old an index is, so the copy is as old.
pub(super) fn copy_as_old(index: &Path, copy: &Path) -> std::io::Result<()> {
    let before = std::fs::metadata(index)?;
    std::fs::copy(index, copy)?;
    std::fs::File::options().write(true).open(copy)?.set_modified(before.modified()?)
}
