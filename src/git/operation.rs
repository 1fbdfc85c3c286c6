//! Operations that git keeps open in a worktree until somebody finishes or aborts them.

use super::Tree;

/// An operation that is open in a worktree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    /// A rebase.
    Rebase,
    /// Patches being applied (`git am`).
    Am,
    /// A merge.
    Merge,
    /// One or more commits being picked.
    CherryPick,
    /// One or more commits being reverted.
    Revert,
    /// A bisection.
    Bisect,
}

impl Operation {
    /// How messages name it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Operation::Rebase => "a rebase",
            Operation::Am => "`git am`",
            Operation::Merge => "a merge",
            Operation::CherryPick => "a cherry-pick",
            Operation::Revert => "a revert",
            Operation::Bisect => "a bisection",
        }
    }

    /// Whether it is a rebase.
    #[must_use]
    pub fn is_rebase(self) -> bool {
        self == Operation::Rebase
    }
}

impl std::fmt::Display for Operation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl Tree {
    /// The operation that is open, from the files git keeps for it. Starts no process. Of several, the one that has to
    /// be finished first.
    #[must_use]
    pub fn operation(&self) -> Option<Operation> {
        let has = |name: &str| self.git_dir().join(name).symlink_metadata().is_ok();
        if has("rebase-merge") {
            return Some(Operation::Rebase);
        }
        if has("rebase-apply") {
            return Some(if has("rebase-apply/applying") { Operation::Am } else { Operation::Rebase });
        }
        if has("MERGE_HEAD") {
            return Some(Operation::Merge);
        }
        if has("CHERRY_PICK_HEAD") {
            return Some(Operation::CherryPick);
        }
        if has("REVERT_HEAD") {
            return Some(Operation::Revert);
        }
        if has("sequencer") {
            let todo = std::fs::read(self.git_dir().join("sequencer/todo")).unwrap_or_default();
            return Some(if todo.starts_with(b"revert") { Operation::Revert } else { Operation::CherryPick });
        }
        // The reftable format keeps CHERRY_PICK_HEAD and REVERT_HEAD out of sight; the message waits in a file.
        if has("MERGE_MSG") && self.repo().common_dir().join("reftable").is_dir() {
            return Some(Operation::CherryPick);
        }
        has("BISECT_LOG").then_some(Operation::Bisect)
    }
}
