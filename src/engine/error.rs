//! Why an engine did not start.

use std::net::SocketAddr;
use std::path::PathBuf;

/// Why [`Engine::start`](super::Engine::start) failed, and what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// Another live engine owns the state directory.
    #[error(
        "the state directory {} is in use by {owner}; stop that engine or name another directory", dir.display()
    )]
    Owned {
        /// The contested directory.
        dir: PathBuf,
        /// Who holds it: `process 4242`, or `another process` when it left no note.
        owner: String,
    },
    /// A file or directory of the engine could not be read or written.
    #[error("cannot {action} {}; check that it exists and may be written", path.display())]
    Io {
        /// What was tried: `create`, `open`, …
        action: &'static str,
        /// On which path.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// The store is not one of ours, or it is damaged.
    #[error("cannot use the store {}: {reason}; move it away to start empty", path.display())]
    Store {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The store was written by a newer release.
    #[error(
        "the store {} has format {found}, this release reads up to {supported}; use the release that wrote it",
        path.display()
    )]
    NewerStore {
        /// The file.
        path: PathBuf,
        /// The format found in it.
        found: u64,
        /// The newest format this release reads.
        supported: u64,
    },
    /// A listener could not be opened.
    #[error("cannot listen on {address}; choose another port, or 0 to have one picked")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
}
