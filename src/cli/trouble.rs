//! How a command fails: what is said on standard error, and the exit code that goes with it.

use std::io;

use iii_sdk::Error as SdkError;
use serde_json::{Value, json};

use super::{Exit, hints, output};
use crate::model::Error;

/// Why a command did not end as asked.
#[derive(Debug)]
pub(super) enum Trouble {
    /// The worker or the engine refused, or the command itself did in their terms.
    Refused { code: String, message: String },
    /// The command line is wrong, or somebody alive holds what the command needs.
    Usage(String),
    /// Nobody answers at the address.
    NoEngine(String),
    /// A signal ended it.
    Interrupted,
    /// Nobody reads the output any more, so that nothing more is to be said.
    Unread,
    /// Something of this machine failed.
    Failed(anyhow::Error),
}

/// What a command comes to.
pub(super) type Outcome<T = Exit> = Result<T, Trouble>;

impl Trouble {
    /// A usage error.
    pub(super) fn usage(message: impl Into<String>) -> Self {
        Trouble::Usage(message.into())
    }

    /// A refusal of the engine or the worker, as the SDK reports it.
    pub(super) fn of_call(error: SdkError, function_id: &str) -> Self {
        match error {
            SdkError::Remote { code, message, .. } => Trouble::Refused { code, message },
            SdkError::Timeout => Trouble::Refused {
                code: "TIMEOUT".to_owned(),
                message: format!("{function_id} did not answer in time; it may still be running"),
            },
            SdkError::NotConnected => {
                Trouble::NoEngine(format!("the connection to the engine was lost during {function_id}"))
            }
            other => Trouble::Refused { code: "client_error".to_owned(), message: other.to_string() },
        }
    }

    /// The code of a refusal.
    pub(super) fn code(&self) -> Option<&str> {
        if let Trouble::Refused { code, .. } = self { Some(code) } else { None }
    }

    /// The exit code that goes with it.
    pub(super) fn exit(&self) -> Exit {
        match self {
            Trouble::Refused { .. } | Trouble::Failed(_) => Exit::Failure,
            Trouble::Usage(_) => Exit::Usage,
            Trouble::NoEngine(_) => Exit::NoEngine,
            Trouble::Interrupted => Exit::Interrupted,
            Trouble::Unread => Exit::Success,
        }
    }

    fn parts(&self) -> (&str, String) {
        match self {
            Trouble::Refused { code, message } => (code, message.clone()),
            Trouble::Usage(message) => ("USAGE", message.clone()),
            Trouble::NoEngine(message) => ("NO_ENGINE", message.clone()),
            Trouble::Interrupted => ("INTERRUPTED", "interrupted".to_owned()),
            Trouble::Unread => ("UNREAD", "nobody reads the output".to_owned()),
            Trouble::Failed(error) => ("FAILED", format!("{error:#}")),
        }
    }

    /// As a value for programs.
    pub(super) fn object(&self) -> Value {
        let (code, message) = self.parts();
        json!({"code": code, "message": message})
    }

    /// Says it on standard error: as one JSON object for programs, else in words with the next step.
    pub(super) fn tell(&self, command: &str, as_json: bool) {
        if matches!(self, Trouble::Unread) {
            return;
        }
        if as_json {
            output::complain(&self.object().to_string());
            return;
        }
        let (code, message) = self.parts();
        let code = if self.code().is_some() { format!("{code}: ") } else { String::new() };
        output::complain(&format!("worktree {command}: {code}{message}"));
        if let Some(hint) = hints::for_refusal(command, code.trim_end_matches(": "), &message) {
            output::complain(&format!("  hint: {hint}"));
        }
    }
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Trouble::Refused { code: error.code.to_string(), message: error.message }
    }
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe { Trouble::Unread } else { Trouble::Failed(error.into()) }
    }
}

impl From<anyhow::Error> for Trouble {
    fn from(error: anyhow::Error) -> Self {
        Trouble::Failed(error)
    }
}

impl From<serde_json::Error> for Trouble {
    fn from(error: serde_json::Error) -> Self {
        Trouble::Failed(anyhow::Error::new(error).context("an answer of the worker is not understood"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_trouble_has_its_exit_code() {
        let refused = Trouble::Refused { code: "W200".to_owned(), message: "no".to_owned() };
        assert_eq!((refused.exit(), refused.code()), (Exit::Failure, Some("W200")));
        assert_eq!(refused.object(), json!({"code": "W200", "message": "no"}));
        assert_eq!(Trouble::usage("x").exit(), Exit::Usage);
        assert_eq!(Trouble::NoEngine("x".to_owned()).exit(), Exit::NoEngine);
        assert_eq!(Trouble::from(io::Error::from(io::ErrorKind::BrokenPipe)).exit(), Exit::Success);
        assert_eq!(Trouble::of_call(SdkError::NotConnected, "f").exit(), Exit::NoEngine);
    }
}
