//! Those who have something to tell at the same time share a write: two waits for the disk instead of two each.

use std::sync::{Mutex, PoisonError};

use tokio::sync::oneshot;

use super::Log;
use super::store::Told;
use crate::model::{Code, Error, Result};

/// What waits to be written. One for all who write in this process.
#[derive(Default)]
pub struct Together {
    waiting: Mutex<Vec<Waiting>>,
    /// Whose turn it is to write what waits.
    turn: tokio::sync::Mutex<()>,
}

struct Waiting {
    log: Log,
    told: Told,
    answer: oneshot::Sender<Result<()>>,
}

impl Together {
    /// Appends an entry to `log`; on return it is on the disk.
    ///
    /// # Errors
    /// `W600` when it cannot be written.
    pub async fn append(&self, log: Log, told: Told) -> Result<()> {
        let (answer, answered) = oneshot::channel();
        self.waiting().push(Waiting { log, told, answer });
        let _turn = self.turn.lock().await;
        while answered.is_empty() && !answered.is_terminated() {
            let Some((log, batch)) = self.next_batch() else { break };
            // Goes on when nobody waits for it any more: others' entries may be among them.
            if let Err(error) = tokio::task::spawn_blocking(move || write(&log, batch)).await {
                tracing::error!(%error, "entries of the audit log were given up");
            }
        }
        answered.await.unwrap_or_else(|_| {
            let why = "the audit log could not be written, so nothing was destroyed; repeat the call";
            Err(Error::new(Code::AuditFailed, why))
        })
    }

    /// Everything that waits for the same log as the first.
    fn next_batch(&self) -> Option<(Log, Vec<Waiting>)> {
        let mut waiting = self.waiting();
        let log = waiting.first()?.log.clone();
        let batch = waiting.extract_if(.., |one| one.log == log).collect();
        Some((log, batch))
    }

    fn waiting(&self) -> std::sync::MutexGuard<'_, Vec<Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn write(log: &Log, batch: Vec<Waiting>) {
    let (all, answers): (Vec<Told>, Vec<_>) = batch.into_iter().map(|one| (one.told, one.answer)).unzip();
    let written = log.append_all(&all).map(drop);
    for answer in answers {
        // Whoever has gone does not hear it.
        drop(answer.send(written.clone()));
    }
}
