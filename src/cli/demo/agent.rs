//! What an agent does in its worktree: edit files and run git, as a person at a keyboard would.
//!
//! The worker never sees any of this. It is the one place of the command line that starts programs.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use tokio::process::Command;

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

    /// Runs git and returns what it printed. Nothing of the caller's environment or configuration reaches it.
    #[expect(clippy::disallowed_methods, reason = "the demo plays an agent, and an agent has a git of its own")]
    pub(super) async fn git<I, S>(&self, arguments: I) -> anyhow::Result<String>
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        let mut command = Command::new("git");
        command.args(arguments).current_dir(&self.directory).env_clear();
        command.envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
        command
            .env("HOME", &self.home)
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_EDITOR", "true")
            .env("LANG", "C.UTF-8");
        for role in ["AUTHOR", "COMMITTER"] {
            command.env(format!("GIT_{role}_NAME"), self.name);
            command.env(format!("GIT_{role}_EMAIL"), format!("{}@demo.invalid", self.name));
        }
        command.stdin(std::process::Stdio::null()).kill_on_drop(true);
        let output = command.output().await.context("starting git")?;
        let text = String::from_utf8_lossy(&output.stdout).trim_end().to_owned();
        if !output.status.success() {
            bail!("git of {}: {}", self.name, String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(text)
    }
}
