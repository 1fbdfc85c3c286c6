//! The bus surface of the worker.
//!
//! | module | what it owns |
//! |---|---|
//! | [`mod@attach`] | the use cases for a command of the command line, beside a worker that serves |
//! | [`catalog`] | the single list of functions, with descriptions and schemas |
//! | [`handler`] | the one wrapper around every function: envelope, deserialization, runtime, errors |
//! | [`bindings`] | the six trigger types and who is bound to them |
//! | [`configuration`] | the configuration entry: seed, schema, hot reload |
//! | [`seed`] | the file from which an engine without a configuration gets one |
//! | [`schedule`] | the cron binding of the sweep |
//! | [`store_watch`] | the binding that tells of writes to the registry by somebody else |
//! | [`mod@serve`] | start, watch, stop |
//! | [`mod@manifest`] | what `--manifest` prints |

pub mod attach;
pub mod bindings;
pub mod catalog;
pub mod configuration;
pub mod handler;
pub mod manifest;
pub mod schedule;
pub mod seed;
pub mod serve;
pub mod store_watch;

pub use attach::attach;
pub use manifest::manifest;
pub use serve::{ServeError, ServeOptions, serve};

/// The name under which the worker registers.
pub const WORKER_NAME: &str = "worktree";
/// One line that says what the worker is for.
pub const WORKER_DESCRIPTION: &str =
    "Gives every coding agent its own git worktree and lands its branch: rebased, tested, fast-forwarded, cleaned up";
