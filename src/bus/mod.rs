//! What is needed of the engine, as narrow traits ([`StateStore`], [`LandQueue`], [`Shell`], [`EventSink`]), and
//! their implementation over `iii-sdk` ([`iii`]).
//!
//! Invariants
//! 1. Nothing but [`iii`] names the SDK here; use cases see only the traits.
//! 2. Functions of neighbours are looked up in the worker's own namespace first, then in `default`.

use std::future::Future;
use std::pin::Pin;

use serde_json::Value;
use tokio::sync::watch;

use crate::model::Result;
use crate::model::event::Event;

pub mod iii;

/// A future that a port hands out.
pub type Fut<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Scope of the worktree records; key: the worktree id.
pub const SCOPE_RECORDS: &str = "worktree";
/// Scope of the land jobs; key: the job id.
pub const SCOPE_JOBS: &str = "worktree_land_job";
/// Scope that says which job is live for a worktree; key: the worktree id, value: the job id.
pub const SCOPE_ACTIVE: &str = "worktree_land_active";

/// The key-value store of the engine. Every method fails with `W300` when the store cannot be reached.
pub trait StateStore: Send + Sync {
    /// The value under `key`, if there is one.
    fn get<'a>(&'a self, scope: &'a str, key: &'a str) -> Fut<'a, Result<Option<Value>>>;
    /// Stores `value` under `key`; returns when the store has acknowledged it.
    fn set<'a>(&'a self, scope: &'a str, key: &'a str, value: Value) -> Fut<'a, Result<()>>;
    /// Removes `key`; a missing key is no error.
    fn delete<'a>(&'a self, scope: &'a str, key: &'a str) -> Fut<'a, Result<()>>;
    /// All values of a scope, without their keys.
    fn list<'a>(&'a self, scope: &'a str) -> Fut<'a, Result<Vec<Value>>>;
    /// Adds one to the number `field` of the object under `key` in one atomic step and returns the new object.
    fn increment<'a>(&'a self, scope: &'a str, key: &'a str, field: &'a str) -> Fut<'a, Result<Value>>;
}

/// Why a job was not taken by a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotQueued {
    /// What the engine or the provider said.
    pub why: String,
}

/// The queue of the engine, when it has a provider.
pub trait LandQueue: Send + Sync {
    /// Declares `queue` as first-in-first-out per `group_field`. Without a provider this changes nothing.
    fn define<'a>(&'a self, queue: &'a str, group_field: &'a str) -> Fut<'a, Result<(), NotQueued>>;
    /// Puts a call of `function_id` with `data` into `queue`; returns when the provider has accepted it.
    fn enqueue<'a>(&'a self, queue: &'a str, function_id: &'a str, data: Value) -> Fut<'a, Result<(), NotQueued>>;
}

/// A command to be run by the shell worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShellCommand {
    /// The command line.
    pub command: String,
    /// Where it runs; also the root of what it may touch.
    pub cwd: String,
    /// Time limit in milliseconds.
    pub timeout_ms: u64,
}

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShellExit {
    /// The exit code; absent when a signal or the time limit ended it.
    pub exit_code: Option<i64>,
    /// Whether the shell worker ended it at its time limit.
    pub timed_out: bool,
    /// Whether somebody else ended it.
    pub killed: bool,
    /// How long it ran in milliseconds, as far as the shell worker tells.
    pub duration_ms: Option<u64>,
    /// The end of what it printed, standard output first.
    pub output_tail: String,
}

/// Why a command did not run to an end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ShellFault {
    /// No shell worker is connected.
    NoProvider,
    /// The shell worker refused, with its own code and words.
    Refused {
        /// Code of the shell worker, such as `S215`.
        code: String,
        /// Its words.
        message: String,
    },
    /// The link to the engine or to the shell worker broke while the command ran; it may or may not have ended.
    Interrupted(String),
}

/// The shell worker.
pub trait Shell: Send + Sync {
    /// Runs `command` to its end. Once `stop` is true it is ended where that can be done, and counts as interrupted.
    fn exec<'a>(
        &'a self,
        command: &'a ShellCommand,
        stop: watch::Receiver<bool>,
    ) -> Fut<'a, Result<ShellExit, ShellFault>>;
}

/// Where events go after the state they report is stored. Never waits, never fails.
pub trait EventSink: Send + Sync {
    /// Sends `event` to every binding that asks for it.
    fn emit(&self, event: &Event);
}
