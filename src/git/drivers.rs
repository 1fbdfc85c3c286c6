//! Programs that a repository's own configuration makes git run on file contents: filters and merge drivers.
//!
//! They cannot be switched off for everybody, because some are the point (git-lfs). So they are listed, and whoever
//! works on a repository refuses those the operator has not allowed.

use std::collections::BTreeSet;

use super::Tree;
use super::error::GitError;
use super::parse;

/// What a driver is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DriverKind {
    /// `filter.<name>`: runs when files are checked out or added.
    Filter,
    /// `merge.<name>`: runs when both sides of a merge changed a file.
    Merge,
}

/// A program that the repository itself configures.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Driver {
    /// What it is for.
    pub kind: DriverKind,
    /// Its name in attributes, for instance `lfs`.
    pub name: String,
    /// The command that would run.
    pub command: String,
}

impl Tree {
    /// The filters and merge drivers that the configuration of the repository and of this worktree define, with files
    /// they include. What the user or the system defines is not among them: they are not written by agents.
    ///
    /// # Errors
    /// W102.
    pub async fn own_drivers(&self) -> Result<BTreeSet<Driver>, GitError> {
        let output = self.command(["config", "--list", "--show-scope", "--includes", "-z"]).run().await?.stdout()?;
        let entries = parse::config::scoped(&output)?;
        let own = entries.into_iter().filter(|entry| matches!(entry.scope.as_str(), "local" | "worktree"));
        Ok(own.filter_map(|entry| driver(&entry.key, entry.value)).collect())
    }
}

fn driver(key: &str, command: String) -> Option<Driver> {
    let (section, rest) = key.split_once('.')?;
    let (name, variable) = rest.rsplit_once('.')?;
    let kind = match (section, variable) {
        ("filter", "clean" | "smudge" | "process") => DriverKind::Filter,
        ("merge", "driver") => DriverKind::Merge,
        _ => return None,
    };
    // An empty command runs nothing.
    (!command.is_empty()).then(|| Driver { kind, name: name.to_owned(), command })
}
