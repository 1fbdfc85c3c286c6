//! Ctrl-C: what is being changed is finished or taken back first.
//!
//! Invariants
//! 1. While a [`Change`] is held, the first signal does not end the command: whoever holds it brings the change to an
//!    end, and looks at [`Interrupts::asked`] to take it back.
//! 2. A second signal ends the command at once, and says that the worker goes on with what it was asked.

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use super::output;

/// The signals that ask a command to stop, counted from the moment this is made.
#[derive(Clone)]
pub(super) struct Interrupts {
    asked: watch::Receiver<u32>,
    changes: watch::Sender<usize>,
}

/// Something is being changed, until this is dropped.
pub(super) struct Change(watch::Sender<usize>);

impl Drop for Change {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

impl Interrupts {
    /// Starts to listen.
    ///
    /// # Errors
    /// When the system does not let signals be handled.
    pub(super) fn listen() -> std::io::Result<Self> {
        let (sender, asked) = watch::channel(0);
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                }
                sender.send_modify(|count| *count += 1);
            }
        });
        Ok(Interrupts { asked, changes: watch::Sender::new(0) })
    }

    /// Says that a change begins.
    pub(super) fn change(&self) -> Change {
        self.changes.send_modify(|count| *count += 1);
        Change(self.changes.clone())
    }

    /// Whether a signal has come.
    pub(super) fn asked(&self) -> bool {
        *self.asked.borrow() > 0
    }

    /// Waits for a signal.
    pub(super) async fn received(&self) {
        self.count_reaches(1).await;
    }

    async fn count_reaches(&self, count: u32) {
        let mut asked = self.asked.clone();
        if asked.wait_for(|seen| *seen >= count).await.is_err() {
            // Nobody listens any more: no signal will ever come.
            std::future::pending::<()>().await;
        }
    }

    /// Runs `work` until it ends or a signal ends it; `None` when a signal did.
    pub(super) async fn watch_over<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        tokio::pin!(work);
        // The work goes first: a command that waits for the signal itself ends in its own way.
        tokio::select! {
            biased;
            done = &mut work => return Some(done),
            () = self.received() => {}
        }
        let mut changes = self.changes.subscribe();
        if *changes.borrow_and_update() == 0 {
            return None;
        }
        output::complain("finishing what was begun; once more to leave at once");
        tokio::select! {
            done = &mut work => Some(done),
            _ = changes.wait_for(|count| *count == 0) => None,
            () = self.count_reaches(2) => {
                output::complain("left; the worker goes on with what it was asked, see `worktree list`");
                None
            }
        }
    }
}
