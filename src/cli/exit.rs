//! The exit codes of the binary, a contract with scripts.

use std::process::ExitCode;

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// Ended as asked.
    Success = 0,
    /// Failed: the engine, the worker or the function called said no.
    Failure = 1,
    /// The command line or its input is wrong, or somebody alive holds what the command needs; nothing was changed.
    Usage = 2,
    /// No engine answers at the address.
    NoEngine = 3,
    /// Interrupted by a signal, as shells count it for SIGINT.
    Interrupted = 130,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(exit as u8)
    }
}
