//! The bus surface of the worker.

use std::future::Future;
use std::path::PathBuf;

/// How to serve.
#[derive(Debug, Clone)]
pub struct ServeOptions {
    /// Address of the engine, `ws://host:port`.
    pub url: String,
    /// A YAML file that seeds the configuration when the engine stores none yet.
    pub seed: Option<PathBuf>,
}

/// Why serving ended other than by being asked to.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Another worker holds the name on this engine.
    #[error(
        "another worker named `{name}` is connected to {url}; stop it, or run this one in another namespace (III_NAMESPACE)"
    )]
    NameTaken {
        /// The name that is taken.
        name: String,
        /// The engine that refused.
        url: String,
    },
    /// The stored configuration, or the seed file, cannot be applied.
    #[error("{0}")]
    Configuration(String),
}

/// Serves until `shutdown` completes, then brings running work to a recorded state and leaves.
///
/// `ready` is called once, when the functions answer on the engine.
///
/// # Errors
/// [`ServeError`] when the name is taken or the configuration cannot be applied. An engine that cannot be reached
/// is not an error: it is waited for.
pub async fn serve<S, R>(options: ServeOptions, ready: R, shutdown: S) -> Result<(), ServeError>
where
    S: Future<Output = ()> + Send,
    R: FnOnce() + Send,
{
    tracing::info!(url = %options.url, "serving");
    ready();
    shutdown.await;
    Ok(())
}
