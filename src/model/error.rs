//! The refusals a caller can get, each with a code that never changes its meaning.
//!
//! A code is the contract; the message is advice: it says what happened, why, and which call to make next.
//! The message never repeats the code, and never holds a stack trace.
//!
//! Invariants
//! 1. Every [`Code`] has its own text (`W210`), and the text parses back to the same code.
//! 2. An [`Error`] that crossed the bus has the same code on both ends.

use std::fmt;

macro_rules! codes {
    ($($(#[doc = $doc:literal])+ $name:ident = $text:literal,)+) => {
        /// A stable refusal code. Callers branch on it; see the table in the README.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Code { $($(#[doc = $doc])+ $name,)+ }

        impl Code {
            /// Every code, in the order of the table in the README.
            pub const ALL: &'static [Code] = &[$(Code::$name,)+];

            /// The text on the wire, for instance `W210`.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(Code::$name => $text,)+ }
            }

            /// One line that tells what the code means.
            #[must_use]
            pub fn meaning(self) -> &'static str {
                match self { $(Code::$name => concat!($($doc),+).trim_ascii(),)+ }
            }
        }
    };
}

codes! {
    /// The request is invalid: a field is missing, empty, of the wrong type, or excludes another one.
    InvalidRequest = "W001",
    /// The stored configuration cannot be applied.
    InvalidConfig = "W010",
    /// git could not be started.
    GitSpawn = "W100",
    /// git ran past its time limit.
    GitTimeout = "W101",
    /// git failed; its own words follow.
    GitFailed = "W102",
    /// The path is not inside a git repository.
    NotARepository = "W110",
    /// A path or ref is malformed: relative, a leading dash, bad characters.
    Malformed = "W111",
    /// The ref does not resolve to a commit.
    RefNotFound = "W112",
    /// git refuses the repository because another user owns it.
    DubiousOwnership = "W113",
    /// A shallow history hides the merge base.
    ShallowHistory = "W114",
    /// The repository has no commits yet.
    NoCommits = "W115",
    /// The branch already exists.
    BranchExists = "W120",
    /// The branch name collides with an existing ref, such as `feat` with `feat/x`.
    BranchCollision = "W121",
    /// There is no such worktree.
    NoSuchWorktree = "W200",
    /// The record exists, but its directory is gone.
    Orphaned = "W201",
    /// The directory is no longer the worktree that was created.
    IdentityMismatch = "W202",
    /// Another branch than the recorded one is checked out.
    BranchMismatch = "W203",
    /// Another session holds the claim.
    ClaimHeld = "W210",
    /// The caller does not hold the claim.
    NotHolder = "W211",
    /// There is uncommitted work.
    Uncommitted = "W220",
    /// There are commits that have not landed.
    NotLanded = "W221",
    /// Running processes hold files of the worktree open.
    FilesOpen = "W222",
    /// The state store cannot be reached; the call can be retried.
    StateUnreachable = "W300",
    /// A stored record or job cannot be read.
    RecordUnreadable = "W301",
    /// The land job could not be queued anywhere.
    NotQueued = "W400",
    /// A land job is already queued or running for this worktree.
    LandLive = "W401",
    /// An unresolved rebase is open in the worktree.
    RebaseOpen = "W402",
    /// Another git operation is open: a merge, cherry-pick, revert or bisect.
    OperationOpen = "W403",
    /// The rebase met a conflict, which is left open for the owner.
    RebaseConflict = "W410",
    /// The test gate failed.
    GateFailed = "W411",
    /// The target kept moving past `max_land_retries`.
    TargetMoved = "W412",
    /// The target is checked out somewhere with changes in the way.
    TargetCheckedOut = "W413",
    /// The test gate could not run; nobody is blamed.
    GateUnavailable = "W414",
    /// The branch moved while it was landing; nothing was landed.
    BranchMoved = "W415",
    /// The operation is switched off by configuration.
    OperationDisabled = "W500",
    /// Force paths are switched off by configuration.
    ForceDisabled = "W501",
    /// Configuration does not allow this land target.
    TargetNotAllowed = "W502",
    /// Configuration does not allow this repository.
    RepoNotAllowed = "W503",
    /// The worktree budget of the repository is used up.
    BudgetReached = "W504",
    /// The audit record could not be written, so nothing was destroyed.
    AuditFailed = "W600",
}

impl Code {
    /// The code with this text, if there is one.
    #[must_use]
    pub fn parse(text: &str) -> Option<Code> {
        Code::ALL.iter().copied().find(|code| code.as_str() == text)
    }

    /// Whether the fault lies in the surroundings (git, the state store) and the same call may succeed later.
    #[must_use]
    pub fn is_infrastructure(self) -> bool {
        matches!(self, Code::GitSpawn | Code::GitTimeout | Code::GitFailed | Code::StateUnreachable)
    }

    /// Whether another attempt at the same step is worth making: the store or git did not answer, rather than refused.
    #[must_use]
    pub fn is_transient(self) -> bool {
        self.is_infrastructure() && self != Code::GitFailed
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A refusal: a code and the sentence that goes with it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    /// What a program branches on.
    pub code: Code,
    /// What a person reads: what happened, why, and the next call to make.
    pub message: String,
}

/// The result of everything that can be refused.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// A refusal with this code and message.
    #[must_use]
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    /// The same refusal, its message led by what was being done: `reading the record: …`.
    #[must_use]
    pub fn during(self, what: impl fmt::Display) -> Self {
        Self { code: self.code, message: format!("{what}: {}", self.message) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_its_own_text_that_parses_back_invariant_1() {
        let mut seen = std::collections::BTreeSet::new();
        for code in Code::ALL {
            assert!(seen.insert(code.as_str()), "{code} occurs twice");
            assert_eq!(Code::parse(code.as_str()), Some(*code));
            assert!(code.meaning().ends_with('.'), "{code}: {}", code.meaning());
        }
        assert_eq!(seen.len(), 40);
        assert_eq!(Code::parse("W999"), None);
    }
}
