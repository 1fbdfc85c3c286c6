//! Reading the log. Reading never judges: see [`mod@super::verify`].

use super::entry::{self, Entry};
use super::{Action, Log};
use crate::model::{Code, Error, Result};

/// Which entries are asked for; what is left out matches all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// Not before this time (ms since the epoch).
    pub since: Option<i64>,
    /// Not after this time (ms since the epoch).
    pub until: Option<i64>,
    /// Only behind this sequence number: what follows what one has seen.
    pub after_seq: Option<u64>,
    /// Only these actions; empty means all.
    pub actions: Vec<Action>,
    /// Only about this worktree.
    pub worktree_id: Option<String>,
    /// Only about this repository.
    pub repo_key: Option<String>,
    /// Only by actors of this name or session.
    pub actor: Option<String>,
    /// Only rehearsals, or only what was meant.
    pub dry_run: Option<bool>,
    /// Only entries that hold this text somewhere in their details (a commit, a branch, a path).
    pub mentions: Option<String>,
}

impl Filter {
    /// Whether `entry` is asked for.
    #[must_use]
    pub fn matches(&self, entry: &Entry) -> bool {
        let actor = |wanted: &String| {
            entry.actor.name == *wanted || entry.actor.session_id.as_ref().is_some_and(|session| session == wanted)
        };
        let mentions =
            |wanted: &String| entry.details.values().any(|value| value.to_string().contains(wanted.as_str()));
        self.since.is_none_or(|since| entry.time >= since)
            && self.until.is_none_or(|until| entry.time <= until)
            && self.after_seq.is_none_or(|seq| entry.seq > seq)
            && (self.actions.is_empty() || self.actions.iter().any(|action| action.as_str() == entry.action))
            && self.worktree_id.as_ref().is_none_or(|id| entry.worktree_id.as_ref() == Some(id))
            && self.repo_key.as_ref().is_none_or(|key| entry.repo_key.as_ref() == Some(key))
            && self.actor.as_ref().is_none_or(actor)
            && self.dry_run.is_none_or(|dry_run| entry.dry_run == dry_run)
            && self.mentions.as_ref().is_none_or(mentions)
    }
}

impl Log {
    /// The entries that `filter` asks for, oldest first. Lines that cannot be read are left out. Blocking.
    ///
    /// # Errors
    /// `W600` when a file cannot be read.
    pub fn query(&self, filter: &Filter) -> Result<Vec<Entry>> {
        let refuse = |why: String| Error::new(Code::AuditFailed, format!("the audit log cannot be read: {why}"));
        let mut entries = Vec::new();
        for file in self.files().map_err(|error| refuse(error.to_string()))? {
            let bytes = match std::fs::read(&file) {
                Ok(bytes) => bytes,
                // Rotated between looking and reading: its entries come under the other name at the next look.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                Err(error) => return Err(refuse(format!("{}: {error}", file.display()))),
            };
            let lines = bytes.split(|byte| *byte == b'\n');
            let read = lines.filter_map(|line| entry::read(line, None)).map(|line| line.entry);
            entries.extend(read.filter(|entry| filter.matches(entry)));
        }
        Ok(entries)
    }

    /// The last `count` entries that `filter` asks for, oldest first. Blocking.
    ///
    /// # Errors
    /// Those of [`Log::query`].
    pub fn tail(&self, filter: &Filter, count: usize) -> Result<Vec<Entry>> {
        let mut entries = self.query(filter)?;
        entries.drain(..entries.len().saturating_sub(count));
        Ok(entries)
    }
}
