//! Who asks for something, as the audit log names them.

use serde::{Deserialize, Serialize};

/// Where a request came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ActorKind {
    /// A worker that called over the bus; its name is the id that the engine gave its connection.
    Caller,
    /// A person at the command line; the name is that of the operating system's user.
    CommandLine,
    /// This worker itself: a sweep, a land, the clean-up after a crash.
    Worker,
}

/// Who asks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Actor {
    /// Where the request came from.
    pub kind: ActorKind,
    /// Who that is there.
    pub name: String,
    /// The session that the request named, if it named one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
}

impl Actor {
    /// This worker itself.
    #[must_use]
    pub fn worker() -> Self {
        Actor { kind: ActorKind::Worker, name: "worktree".to_owned(), session_id: None }
    }

    /// A user at the command line.
    #[must_use]
    pub fn command_line(user: &str) -> Self {
        Actor { kind: ActorKind::CommandLine, name: user.to_owned(), session_id: None }
    }

    /// A worker on the bus.
    #[must_use]
    pub fn caller(worker_id: &str, session_id: Option<&str>) -> Self {
        Actor { kind: ActorKind::Caller, name: worker_id.to_owned(), session_id: session_id.map(str::to_owned) }
    }
}
