//! The only code that starts git.
//!
//! Three handles: [`Git`] is the program with its limit and policy, [`Repo`] a repository named by its common
//! directory, [`Tree`] one worktree named by its root. [`admin`] looks at git's entries for linked worktrees without
//! starting a process.
//!
//! A repository is written by agents: its configuration, hooks, attributes, refs and file names are hostile input,
//! and git runs as the user. So:
//!
//! Invariants
//! 1. Every process starts in `command`, with the environment and configuration of `surroundings`; a repository that
//!    is known is always named by `--git-dir`, a worktree also by `--work-tree`.
//! 2. No program that the repository names is run, except the filters and merge drivers that policy allows
//!    (`own_config`), and the post-checkout hook by [`Tree::run_post_checkout`] alone, unless policy skips it.
//! 3. A process ends within its limit together with everything it started; when the future that waits for it is
//!    dropped, it is ended as well.
//! 4. A ref moves by compare-and-swap from an expected value, never otherwise.
//! 5. No call overwrites or deletes a file that git does not know or is told to ignore. The exceptions say so by name:
//!    [`Tree::remove`] deletes ignored files, with force all, and [`Tree::checkout_fresh`] is for a new worktree only.
//! 6. What git says is data only in its machine forms (porcelain, `-z`, exit codes). An expected "no" is a value; an
//!    unknown answer is an error or `None`, never a guess.
//! 7. Paths are bytes from git to the caller, and have one reversible form as text ([`to_text`]).
//! 8. History is judged on the true objects: replacement refs and grafts are not followed, so that they cannot make
//!    a commit look contained that is not.

pub mod admin;
#[cfg(feature = "testing")]
pub mod fuzz;

mod branch_name;
mod capture;
mod checkout;
mod clean;
mod command;
mod conditions;
mod discovery;
mod error;
mod fetch;
mod hidden;
mod history;
mod hook;
mod index;
mod integration;
mod interrupted;
mod invocation;
mod objects;
mod operation;
mod own_config;
mod parse;
mod person;
mod plain_file;
mod program;
mod rebase;
mod rebased;
mod ref_files;
mod reflog;
mod refs;
mod replay;
mod repo;
mod room;
mod settle;
mod sha;
mod standby;
mod status;
mod submodules;
mod surroundings;
mod text;
mod tree;
mod turns;
mod worktrees;

pub use checkout::MoveOutcome;
pub use conditions::Conditions;
pub use discovery::Found;
pub use error::GitError;
pub use hook::HookOutcome;
pub use integration::Integration;
pub use operation::Operation;
pub use own_config::{Driver, DriverKind};
pub use parse::refs::Tip;
pub use parse::status::{EntryKind, StatusEntry, TreeStatus};
pub use parse::version::Version;
pub use parse::worktrees::WorktreeEntry;
pub use program::{Git, Hooks, Policy, Signing};
pub use rebase::RebaseOutcome;
pub use rebased::BACKUPS;
pub use refs::{Expected, RefUpdate};
pub use replay::Replay;
pub use repo::Repo;
pub use room::Room;
pub use sha::Sha;
pub use standby::Advance;
pub use text::{from_text, to_text};
pub use tree::Tree;
pub use turns::cores;
pub use worktrees::AddWorktree;
