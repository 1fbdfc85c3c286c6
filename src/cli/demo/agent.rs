//! What an agent does in its worktree: edit files and run git, as a person at a keyboard would.
//!
//! The worker never sees any of this.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use super::stage::PATIENCE;
use crate::git::Git;

/// An agent at work in one directory.
#[derive(Debug, Clone)]
pub(super) struct Agent {
    name: &'static str,
    directory: PathBuf,
    home: PathBuf,
}

impl Agent {
    pub(super) fn new(name: &'static str, directory: impl Into<PathBuf>, home: impl Into<PathBuf>) -> Self {
        Self { name, directory: directory.into(), home: home.into() }
    }

    pub(super) fn name(&self) -> &'static str {
        self.name
    }

    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Writes a file of the worktree.
    #[expect(clippy::disallowed_methods, reason = "an agent's editor; a half-written file of the demo harms nobody")]
    pub(super) fn write(&self, file: &str, text: &str) -> anyhow::Result<()> {
        std::fs::write(self.directory.join(file), text).with_context(|| format!("writing {file}"))
    }

    /// Commits everything that changed, and returns the commit.
    pub(super) async fn commit(&self, message: &str) -> anyhow::Result<String> {
        self.git(["add", "--all"]).await?;
        self.git(["commit", "--quiet", "--message", message]).await?;
        self.git(["rev-parse", "HEAD"]).await
    }

    /// Runs git and returns what it printed. Nothing of the caller's configuration reaches it.
    pub(super) async fn git<I, S>(&self, arguments: I) -> anyhow::Result<String>
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        let printed = Git::new(PATIENCE).as_person((self.name, &self.home), &self.directory, arguments).await;
        printed.with_context(|| format!("git of {}", self.name))
    }
}
