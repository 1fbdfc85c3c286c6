//! What a worktree holds, shown before it goes. The worker judges for itself; this is for the person who decides.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use super::link::Link;
use super::status::describe;
use super::terminal::{Style, paint};
use super::trouble::Outcome;
use crate::git::{Git, to_text};
use crate::model::status::{WorktreeInfo, WorktreeStatus};
use crate::worktrees::open_files::{self, Holder};

/// How many files are named.
const NAMED: usize = 10;
/// How long git may take to name them.
const GIT_LIMIT: Duration = Duration::from_secs(10);

/// A worktree with everything in it that could be lost.
pub(super) struct Holdings {
    pub(super) info: WorktreeInfo,
    /// Uncommitted files by name, where the worktree lies on this machine.
    files: Vec<String>,
    /// Processes of this machine that work in it.
    processes: Vec<Holder>,
}

impl Holdings {
    /// Looks at a worktree.
    ///
    /// # Errors
    /// What the worker refuses.
    pub(super) async fn of(link: &Link, worktree_id: &str) -> Outcome<Self> {
        let value = link.read("worktree::get", json!({"worktree_id": worktree_id})).await?;
        let info: WorktreeInfo = serde_json::from_value(value)?;
        let files = match &info.status {
            Some(status) => files(&info, status).await,
            None => Vec::new(),
        };
        let path = info.path.clone();
        let probed = tokio::task::spawn_blocking(move || open_files::probe(Path::new(&path))).await;
        let mut processes = probed.ok().and_then(Result::ok).unwrap_or_default();
        processes.retain(|holder| holder.pid != std::process::id());
        Ok(Holdings { info, files, processes })
    }

    /// Whether something would be lost, or whether that cannot be told.
    pub(super) fn at_stake(&self) -> bool {
        let Some(status) = &self.info.status else { return self.info.lifecycle.as_str() != "orphaned" };
        !status.clean || status.in_rebase || (!status.integrated && status.ahead > 0) || !self.processes.is_empty()
    }

    /// For people, one line for each kind of thing.
    pub(super) fn describe(&self) -> String {
        let info = &self.info;
        let claim = info.session_id.as_ref().map(|session| format!(", claimed by {session}")).unwrap_or_default();
        let title = format!("{} on {}{claim}", info.worktree_id, info.branch);
        let mut text = format!("{}\n  {}\n", paint(Style::Bold, &title), info.path);
        match &info.status {
            Some(status) => text.push_str(&describe(status)),
            None if info.lifecycle.as_str() == "orphaned" => text.push_str("  its directory is gone\n"),
            None => text.push_str("  what it holds cannot be told\n"),
        }
        for file in self.files.iter().take(NAMED) {
            text.push_str(&format!("    {file}\n"));
        }
        if self.files.len() > NAMED {
            text.push_str(&format!("    and {} more\n", self.files.len() - NAMED));
        }
        if !self.processes.is_empty() {
            text.push_str(&format!("  at work in it: {}\n", open_files::describe(&self.processes)));
        }
        text
    }

    /// For programs.
    pub(super) fn document(&self) -> Value {
        let processes: Value =
            self.processes.iter().map(|holder| json!({"pid": holder.pid, "name": holder.name})).collect();
        json!({"status": self.info.status, "files": self.files, "processes": processes, "at_stake": self.at_stake()})
    }
}

/// The uncommitted files by name, when the worktree of that commit lies on this machine.
async fn files(info: &WorktreeInfo, told: &WorktreeStatus) -> Vec<String> {
    let Ok(tree) = Git::new(GIT_LIMIT).tree(Path::new(&info.path)) else { return Vec::new() };
    match tree.status().await {
        Ok(seen) if seen.head.as_ref().is_some_and(|head| head.as_str() == told.head_sha) => {
            seen.entries.iter().map(|entry| to_text(&entry.path)).collect()
        }
        _ => Vec::new(),
    }
}
