//! The use cases: each decides and acts through git and the registry, answers, and tells of it in events.
//!
//! | module | what it owns |
//! |---|---|
//! | [`context`] | what every use case works with: ports, settings, git |
//! | [`registry`] | records, jobs and the live-job marks: in memory for reading, written through to the state store |
//! | [`repo_lock`] | one registry writer per repository, across processes |
//! | [`marker`] | the small file in git's admin entry that ties a directory to its record |
//! | [`intent`] | what a create is about to make, so that one that is killed leaves nothing |
//! | [`rebuild`], [`watch`] | the registry after the store lost records, and after somebody else wrote to it |
//! | [`unsaved_work`] | the one predicate that every path that can delete asks |
//! | [`discard`] | how the directory of a worktree goes: audit log, trash, entry |
//! | [`making`] | how a worktree is made |
//! | [`pool`] | worktrees that are made before anybody asks |
//! | [`branch`] | how its branch goes, and the refs that keep what was destroyed |
//! | [`trash`], [`kept`] | the trash, and what restores a worktree that was removed by force |
//! | [`retention`], [`restore`] | how long that is kept, and how it comes back |
//! | [`states`], [`usage`] | what operators see: five states, and the use of the disk |
//! | [`acting`] | on whose behalf a call acts |
//! | [`memo`] | answers of git that the reads need again and again |
//! | [`roll_back`] | how a create that fails leaves nothing |
//! | the rest | one use case each, with its request and response types |
//!
//! Invariants
//! 1. A change is stored before it is answered, and answered before anybody else is told.
//! 2. Nothing is removed that [`unsaved_work`] has not judged in the same breath.
//! 3. What cannot be told keeps: a probe that fails never permits a deletion.
//! 4. Nothing is destroyed before the audit log has it on the disk.

pub mod acting;
pub mod branch;
pub mod claim;
pub mod context;
pub mod create;
pub mod discard;
pub mod get;
pub mod inspect;
pub mod intent;
pub mod kept;
pub mod list;
pub mod making;
pub mod marker;
pub mod memo;
pub mod open_files;
pub mod pool;
pub mod provision;
pub mod prune;
pub mod rebuild;
pub mod registry;
pub mod release;
pub mod remove;
pub mod repo_lock;
pub mod request;
pub mod restore;
pub mod retention;
pub mod roll_back;
pub mod side_by_side;
pub mod states;
pub mod status;
pub mod trash;
pub mod unsaved_work;
pub mod usage;
pub mod validate;
pub mod watch;

pub use context::Context;

/// Refuses a record whose directory is gone.
///
/// # Errors
/// `W201`.
pub fn require_directory(record: &crate::model::record::Record) -> crate::model::Result<()> {
    if inspect::lifecycle_now(record) == crate::model::record::Lifecycle::Orphaned {
        return Err(marker::gone(record));
    }
    Ok(())
}
