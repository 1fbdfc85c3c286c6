//! One event, and the line that tells of it.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::seal::Key;
use crate::model::actor::Actor;

/// What is about to be done, or, for the two skips, what was left undone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    /// A worktree goes because a caller asked for it.
    Remove,
    /// A worktree goes because the sweep found it finished.
    Prune,
    /// A dry run of the sweep: what it would have taken. Nothing is destroyed.
    PruneRehearsal,
    /// The sweep left a finished worktree alone because something speaks against taking it; once per cause.
    PruneSkip,
    /// A worktree goes because its branch has landed.
    Finalize,
    /// A worktree goes whose create was cut off, and in which nothing was changed.
    ClearUnfinished,
    /// A worktree of the pool goes: nobody has asked for it, and nothing in it was changed.
    Drain,
    /// What a failed create has made is taken back.
    RollBack,
    /// The record and git's entry of a worktree go whose directory is gone.
    Reconcile,
    /// A git operation that is open in a worktree is discarded, with what was done to resolve it.
    AbortOperation,
    /// A branch goes.
    BranchDelete,
    /// A backup ref goes.
    BackupDelete,
    /// A directory goes from the trash.
    TrashDelete,
    /// A removed worktree comes back. Destroys nothing; told because it undoes what is told above.
    Restore,
    /// What a dead process noted in a lock was cleared.
    Unlock,
}

impl Action {
    /// All actions.
    pub const ALL: [Action; 15] = [
        Action::Remove,
        Action::Prune,
        Action::PruneRehearsal,
        Action::PruneSkip,
        Action::Finalize,
        Action::ClearUnfinished,
        Action::Drain,
        Action::RollBack,
        Action::Reconcile,
        Action::AbortOperation,
        Action::BranchDelete,
        Action::BackupDelete,
        Action::TrashDelete,
        Action::Restore,
        Action::Unlock,
    ];

    /// Its name in the log.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Action::Remove => "remove",
            Action::Prune => "prune",
            Action::PruneRehearsal => "prune-rehearsal",
            Action::PruneSkip => "prune-skip",
            Action::Finalize => "finalize",
            Action::ClearUnfinished => "clear-unfinished",
            Action::Drain => "drain",
            Action::RollBack => "roll-back",
            Action::Reconcile => "reconcile",
            Action::AbortOperation => "abort-operation",
            Action::BranchDelete => "branch-delete",
            Action::BackupDelete => "backup-delete",
            Action::TrashDelete => "trash-delete",
            Action::Restore => "restore",
            Action::Unlock => "unlock",
        }
    }
}

/// What is to be told.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// What is about to be done.
    pub action: Action,
    /// The worktree it concerns.
    pub worktree_id: Option<String>,
    /// The repository it concerns: the canonical common directory.
    pub repo_key: Option<String>,
    /// Whether it is only rehearsed.
    pub dry_run: bool,
    /// Everything that helps to find again what goes: commits, branch, paths, backup refs, why.
    pub details: Map<String, Value>,
}

impl Event {
    /// An event with these details; `details` that is no object stands for none.
    #[must_use]
    pub fn new(action: Action, details: Value) -> Self {
        let details = match details {
            Value::Object(details) => details,
            _ => Map::new(),
        };
        Event { action, worktree_id: None, repo_key: None, dry_run: false, details }
    }

    /// The same about this worktree of this repository.
    #[must_use]
    pub fn about(self, worktree_id: &str, repo_key: &str) -> Self {
        Event { worktree_id: Some(worktree_id.to_owned()), ..self.in_repo(repo_key) }
    }

    /// The same about this repository.
    #[must_use]
    pub fn in_repo(self, repo_key: &str) -> Self {
        Event { repo_key: Some(repo_key.to_owned()), ..self }
    }
}

/// One line of the log, without its MAC.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// Counts the entries from 1, without a gap, across rotated files.
    pub seq: u64,
    /// Milliseconds since the epoch.
    pub time: i64,
    /// Who asked for it.
    pub actor: Actor,
    /// The name of an [`Action`]; text, so that an older release can read what a newer one wrote.
    pub action: String,
    /// The worktree it concerns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worktree_id: Option<String>,
    /// The repository it concerns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repo_key: Option<String>,
    /// Whether it was only rehearsed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
    /// What helps to find again what went.
    pub details: Map<String, Value>,
    /// The MAC of the entry before; 64 zeroes in the first one.
    pub prev: String,
}

/// What stands between the authenticated bytes and the MAC.
const MAC_FIELD: &str = ",\"mac\":\"";
/// Hexadecimal digits of a MAC.
const MAC_DIGITS: usize = 64;
/// What the first entry names as the MAC before it.
pub(super) const NOTHING_BEFORE: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// A line of the log, taken apart.
#[derive(Debug, Clone)]
pub(super) struct Line {
    pub(super) entry: Entry,
    pub(super) mac: String,
    /// Whether the MAC is that of the rest.
    pub(super) genuine: bool,
}

/// The line of `entry`, with its line end, and the MAC.
pub(super) fn write(entry: &Entry, key: &Key) -> serde_json::Result<(String, String)> {
    let mut line = serde_json::to_string(entry)?;
    // The closing brace moves behind the MAC.
    line.pop();
    let mac = key.mac_of_entry(line.as_bytes());
    line.push_str(MAC_FIELD);
    line.push_str(&mac);
    line.push_str("\"}\n");
    Ok((line, mac))
}

/// Takes a line (without its line end) apart; `None` when it has not the form of one.
pub(super) fn read(line: &[u8], key: Option<&Key>) -> Option<Line> {
    let entry: Entry = serde_json::from_slice(line).ok()?;
    let rest = line.strip_suffix(b"\"}")?;
    let (rest, mac) = rest.split_at_checked(rest.len().checked_sub(MAC_DIGITS)?)?;
    let authenticated = rest.strip_suffix(MAC_FIELD.as_bytes())?;
    let mac = String::from_utf8(mac.to_vec()).ok()?;
    let genuine = key.is_some_and(|key| key.mac_of_entry(authenticated) == mac);
    Some(Line { entry, mac, genuine })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_actions_are_distinct() {
        let names: std::collections::BTreeSet<_> = Action::ALL.iter().map(|action| action.as_str()).collect();
        assert_eq!(names.len(), Action::ALL.len());
    }

    #[test]
    fn every_byte_of_a_line_is_authenticated() {
        let key = Key::from_bytes([7; 32]);
        let event = Event::new(Action::Remove, serde_json::json!({"branch": "a"})).about("wt_0123456789ab", "/r/.git");
        let entry = Entry {
            seq: 1,
            time: 5,
            actor: Actor::worker(),
            action: event.action.as_str().to_owned(),
            worktree_id: event.worktree_id,
            repo_key: event.repo_key,
            dry_run: false,
            details: event.details,
            prev: NOTHING_BEFORE.to_owned(),
        };
        let (line, mac) = write(&entry, &key).unwrap();
        let line = line.trim_end().as_bytes().to_vec();
        let whole = read(&line, Some(&key)).unwrap();
        assert!(whole.genuine && whole.mac == mac && whole.entry == entry);
        for at in 0..line.len() {
            let mut changed = line.clone();
            changed[at] ^= 1;
            assert!(!read(&changed, Some(&key)).is_some_and(|line| line.genuine), "byte {at} can be changed");
        }
        let other = Key::from_bytes([8; 32]);
        assert!(!read(&line, Some(&other)).unwrap().genuine);
    }
}
