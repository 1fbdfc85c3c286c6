//! Which worktrees a command is about: those of the repository one stands in, of another one, or all.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value, json};

use super::create::absolute;
use super::link::Link;
use super::trouble::{Outcome, Trouble};

/// The choice on the command line.
#[derive(Debug, Clone, Args)]
#[group(skip)]
pub(super) struct Scope {
    /// Those of this repository: its root, a folder in it, or one of its worktrees
    #[arg(long, value_name = "PATH")]
    repo: Option<PathBuf>,
    /// Those of all repositories [default: of the one around this directory, of all when there is none]
    #[arg(long, conflicts_with = "repo")]
    all: bool,
}

impl Scope {
    /// The `repo_path` for the worker; null for all.
    ///
    /// # Errors
    /// What the worker says of a repository that was named.
    pub(super) async fn repo_path(&self, link: &Link) -> Outcome<Value> {
        if self.all {
            return Ok(Value::Null);
        }
        let path = absolute(self.repo.as_deref().unwrap_or(Path::new(".")))?;
        let probe = link.read("worktree::list", json!({"repo_path": path})).await;
        match probe {
            Ok(_) => Ok(json!(path)),
            Err(Trouble::Refused { code, .. }) if self.repo.is_none() && (code == "W110" || code == "W111") => {
                Ok(Value::Null)
            }
            Err(trouble) => Err(trouble),
        }
    }
}
