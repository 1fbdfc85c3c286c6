//! Ctrl-C: what is being changed is finished or taken back first.
//!
//! Invariants
//! 1. While a change is [`Held`], the first signal does not end the command: whoever holds it brings the change to an
//!    end, and looks at [`Interrupts::asked`] to take it back.
//! 2. A command that waits for the signal itself, and says so by [`Interrupts::own_end`], is not ended by the first one.
//! 3. A second signal ends the command at once, and says that the worker goes on with what it was asked.

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use super::output;

/// The signals that ask a command to stop, counted from the moment this is made.
#[derive(Clone)]
pub(super) struct Interrupts {
    asked: watch::Receiver<u32>,
    changes: watch::Sender<usize>,
    own_ends: watch::Sender<usize>,
}

/// Something is being changed, or waits for the signal itself, until this is dropped.
pub(super) struct Held(watch::Sender<usize>);

impl Drop for Held {
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
        Ok(Interrupts::counted_by(asked))
    }

    fn counted_by(asked: watch::Receiver<u32>) -> Self {
        Interrupts { asked, changes: watch::Sender::new(0), own_ends: watch::Sender::new(0) }
    }

    /// Says that a change begins.
    pub(super) fn change(&self) -> Held {
        self.changes.send_modify(|count| *count += 1);
        Held(self.changes.clone())
    }

    /// Says that the command waits for the signal itself from now on.
    pub(super) fn own_end(&self) -> Held {
        self.own_ends.send_modify(|count| *count += 1);
        Held(self.own_ends.clone())
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
        tokio::select! {
            done = &mut work => return Some(done),
            () = self.received() => {}
        }
        let mut changes = self.changes.subscribe();
        if *changes.borrow_and_update() == 0 {
            if *self.own_ends.borrow() == 0 {
                return None;
            }
            return tokio::select! {
                done = &mut work => Some(done),
                () = self.count_reaches(2) => None,
            };
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn who_waits_for_the_signal_itself_ends_in_its_own_way_invariant_2() {
        for _ in 0..200 {
            let (sender, asked) = watch::channel(0);
            let interrupts = Interrupts::counted_by(asked);
            let work = async {
                let _held = interrupts.own_end();
                interrupts.received().await;
                "its own"
            };
            let signal = async { sender.send_modify(|count| *count += 1) };
            let (ended, ()) = tokio::join!(interrupts.watch_over(work), signal);
            assert_eq!(ended, Some("its own"));
            let silent = std::future::pending::<()>();
            assert_eq!(interrupts.watch_over(silent).await, None);
        }
    }

    #[tokio::test]
    async fn a_change_is_brought_to_its_end_and_a_second_signal_ends_it_invariants_1_3() {
        let (sender, asked) = watch::channel(0);
        let interrupts = Interrupts::counted_by(asked);
        let signal = || sender.send_modify(|count| *count += 1);
        let change = async {
            let _held = interrupts.change();
            signal();
            tokio::task::yield_now().await;
            interrupts.asked()
        };
        assert_eq!(interrupts.watch_over(change).await, Some(true));

        let (sender, asked) = watch::channel(0);
        let interrupts = Interrupts::counted_by(asked);
        let stuck = async {
            let _held = interrupts.change();
            sender.send_modify(|count| *count += 1);
            tokio::task::yield_now().await;
            sender.send_modify(|count| *count += 1);
            std::future::pending::<()>().await;
        };
        assert_eq!(interrupts.watch_over(stuck).await, None);
    }
}
