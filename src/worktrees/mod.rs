//! The use cases: each decides and acts through git and the registry, answers, and tells of it in events.
//!
//! | module | what it owns |
//! |---|---|
//! | [`context`] | what every use case works with: ports, settings, git |
//! | [`registry`] | records, jobs and the live-job marks: in memory for reading, written through to the state store |
//! | [`repo_lock`] | one registry writer per repository, across processes |
//! | [`marker`] | the small file in git's admin entry that ties a directory to its record |
//! | [`unsaved_work`] | the one predicate that every path that can delete asks |
//! | [`trash`] | how a directory leaves: renamed first, deleted later |
//! | the rest | one use case each, with its request and response types |
//!
//! Invariants
//! 1. A change is stored before it is answered, and answered before anybody else is told.
//! 2. Nothing is removed that [`unsaved_work`] has not judged in the same breath.
//! 3. What cannot be told keeps: a probe that fails never permits a deletion.

pub mod claim;
pub mod context;
pub mod create;
pub mod get;
pub mod inspect;
pub mod list;
pub mod marker;
pub mod open_files;
pub mod provision;
pub mod prune;
pub mod rebuild;
pub mod registry;
pub mod release;
pub mod remove;
pub mod repo_lock;
pub mod request;
pub mod status;
pub mod trash;
pub mod unsaved_work;
pub mod validate;

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
