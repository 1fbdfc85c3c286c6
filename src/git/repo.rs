//! A repository, named by its common directory.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;

use super::Git;
use super::error::GitError;
use super::invocation::Invocation;
use super::own_config::Place;
use super::parse;
use super::parse::config::Scoped;
use super::sha::Sha;
use super::text::{bytes_to_text, digest, to_text};

/// A repository. Runs `git --git-dir=<common dir>`. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Repo {
    pub(super) git: Git,
    pub(super) common_dir: Arc<Path>,
}

impl Repo {
    pub(super) fn at(git: &Git, common_dir: &Path) -> Repo {
        Repo { git: git.clone(), common_dir: common_dir.into() }
    }

    pub(super) fn command(&self, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Invocation {
        Invocation::new(&self.git, args).in_repo(&self.common_dir)
    }

    pub(super) fn place(&self) -> Place {
        let common_dir = self.common_dir.to_path_buf();
        Place { git_dir: common_dir.clone(), common_dir, root: None }
    }

    /// The git program this repository is used through.
    #[must_use]
    pub fn git(&self) -> &Git {
        &self.git
    }

    /// The same repository through another limit or policy.
    #[must_use]
    pub fn with_git(&self, git: &Git) -> Repo {
        Repo { git: git.clone(), common_dir: Arc::clone(&self.common_dir) }
    }

    /// The directory that all its worktrees share.
    #[must_use]
    pub fn common_dir(&self) -> &Path {
        &self.common_dir
    }

    /// The common directory as text ([`to_text`]), the same for every way to reach the repository.
    #[must_use]
    pub fn key(&self) -> String {
        to_text(&self.common_dir)
    }

    /// Whether history is cut off somewhere.
    ///
    /// # Errors
    /// W102.
    pub async fn is_shallow(&self) -> Result<bool, GitError> {
        let answer = self.command(["rev-parse", "--is-shallow-repository"]).run().await?.line()?;
        truth("git rev-parse", &answer)
    }

    /// Whether any commit is reachable from HEAD or a ref.
    ///
    /// # Errors
    /// W102.
    pub async fn has_commits(&self) -> Result<bool, GitError> {
        let output = self.command(["rev-list", "-n", "1", "--all", "HEAD", "--"]).offline().run().await?;
        // On an unborn branch git calls HEAD a bad revision; then only the refs can tell.
        if output.code == Some(0) {
            return Ok(!output.stdout.is_empty());
        }
        let output = self.command(["rev-list", "-n", "1", "--all", "--"]).offline().run().await?;
        Ok(!output.stdout()?.is_empty())
    }

    /// The settings in force for the repository, by key (section and name in lower case), those of the user and the
    /// system included.
    ///
    /// # Errors
    /// W102.
    pub async fn settings(&self) -> Result<BTreeMap<String, String>, GitError> {
        let entries = self.configured().await?.into_iter();
        Ok(entries.map(|entry| (bytes_to_text(&entry.key), bytes_to_text(&entry.value))).collect())
    }

    /// The configuration in force, entry by entry, without what this worker passes on its own command lines.
    pub(super) async fn configured(&self) -> Result<Vec<Scoped>, GitError> {
        let output = self.command(["config", "--list", "--show-scope", "--includes", "-z"]).run().await?.stdout()?;
        let mut entries = parse::config::scoped(&output)?;
        entries.retain(|entry| entry.scope != "command");
        Ok(entries)
    }

    /// A text that differs whenever the repository's own configuration does; `None` when that is no plain file. What it
    /// includes is not looked at.
    #[must_use]
    pub fn config_digest(&self) -> Option<String> {
        self.place().text().map(|text| digest(&text))
    }

    /// Whether it has no checkout of its own.
    ///
    /// # Errors
    /// W102.
    pub async fn is_bare(&self) -> Result<bool, GitError> {
        let answer = self.command(["rev-parse", "--is-bare-repository"]).run().await?.line()?;
        truth("git rev-parse", &answer)
    }

    /// Whether the commit is here. A partial clone is not asked to fetch it.
    ///
    /// # Errors
    /// W102.
    pub async fn commit_exists(&self, sha: &Sha) -> Result<bool, GitError> {
        Ok(self.peel(sha.as_str(), "commit").await?.is_some())
    }
}

fn truth(what: &str, answer: &str) -> Result<bool, GitError> {
    match answer {
        "true" => Ok(true),
        "false" => Ok(false),
        other => Err(GitError::Parse { what: what.to_owned(), line: 1, text: other.to_owned() }),
    }
}
