//! An engine and a worker in this process, speaking through a socket as two processes would.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, bail};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::engine::{Engine, Options};
use crate::wire::{self, ServeError, ServeOptions};

/// Longest wait for the worker to answer, or to leave.
const PATIENCE: Duration = Duration::from_secs(20);

/// Both of them, running. End them with [`Host::stop`].
pub(super) struct Host {
    engine: Engine,
    worker: JoinHandle<Result<(), ServeError>>,
    stop: oneshot::Sender<()>,
}

impl Host {
    /// Starts both and waits until the functions answer.
    ///
    /// # Errors
    /// An [`EngineError`](crate::engine::EngineError) when the engine does not start; what the worker reports.
    pub(super) async fn start(options: Options, seed: Option<PathBuf>) -> anyhow::Result<Self> {
        let engine = Engine::start(options).await.context("starting the embedded engine")?;
        let (stop, stopped) = oneshot::channel::<()>();
        let (ready, mut readied) = mpsc::channel(1);
        let mut worker = tokio::spawn(wire::serve(
            ServeOptions { url: engine.url(), seed, telemetry: false },
            move || ready.try_send(()).unwrap_or_default(),
            // A sender that is dropped stops the worker just as one that sends.
            async move { stopped.await.unwrap_or_default() },
        ));
        tokio::select! {
            ended = &mut worker => {
                ended.context("the worker panicked")?.context("serving")?;
                bail!("the worker ended before it was ready");
            }
            ready = tokio::time::timeout(PATIENCE, readied.recv()) => {
                ready.context("the worker was not ready in time")?.context("the worker never got ready")?;
            }
        }
        Ok(Host { engine, worker, stop })
    }

    /// Where clients connect.
    pub(super) fn url(&self) -> String {
        self.engine.url()
    }

    /// Ends both, worker first: its last words are stored in the engine.
    ///
    /// # Errors
    /// When the worker does not leave in time, or left for a reason of its own.
    pub(super) async fn stop(self) -> anyhow::Result<()> {
        drop(self.stop);
        let served = tokio::time::timeout(PATIENCE, self.worker).await;
        self.engine.shutdown().await;
        served.context("the worker did not stop")?.context("the worker panicked")?.context("serving")
    }
}
