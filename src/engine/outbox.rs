//! What waits to be written to one connection.
//!
//! Pushing never blocks and never waits: it either takes the frame or condemns the connection. So the router can
//! push while it holds its lock, and frames leave in the order in which the router decided.
//!
//! Invariants
//! 1. Bytes and frames that wait never exceed the hard limits by more than one frame.
//! 2. A connection whose peer does not read is dropped; nobody else waits for it longer than the patience.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{Notify, mpsc};
use tokio_tungstenite::tungstenite::Utf8Bytes;

use super::message::Message;
use super::options::Limits;

/// One thing to write.
pub(super) enum Item {
    /// A text frame.
    Frame(Utf8Bytes),
    /// Close with this reason, once everything before it is written.
    Close(&'static str),
}

struct Shared {
    bytes: AtomicUsize,
    frames: AtomicUsize,
    condemned: AtomicBool,
    /// Told when the connection is condemned.
    end: Notify,
    /// Told when something was written.
    room: Notify,
    soft_bytes: usize,
    hard_bytes: usize,
    hard_frames: usize,
    patience: Duration,
}

/// The sending side; cheap to clone.
#[derive(Clone)]
pub(super) struct Outbox {
    items: mpsc::UnboundedSender<Item>,
    shared: Arc<Shared>,
}

/// The writing side, owned by the connection.
pub(super) struct Drain {
    items: mpsc::UnboundedReceiver<Item>,
    shared: Arc<Shared>,
}

/// A new outbox with nothing in it.
pub(super) fn channel(limits: &Limits) -> (Outbox, Drain) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let shared = Arc::new(Shared {
        bytes: AtomicUsize::new(0),
        frames: AtomicUsize::new(0),
        condemned: AtomicBool::new(false),
        end: Notify::new(),
        room: Notify::new(),
        soft_bytes: limits.outbound_soft_bytes,
        hard_bytes: limits.outbound_hard_bytes,
        hard_frames: limits.outbound_messages,
        patience: limits.reader_patience,
    });
    (Outbox { items: sender, shared: shared.clone() }, Drain { items: receiver, shared })
}

/// A message as text. Every message has a JSON form.
pub(super) fn encode(message: &Message) -> String {
    serde_json::to_string(message).unwrap_or_else(|error| {
        tracing::error!(%error, "a frame could not be written as JSON");
        String::from("{}")
    })
}

impl Outbox {
    /// Takes a message, or condemns the connection when its peer has not read for too long.
    pub(super) fn push(&self, message: &Message) {
        self.push_text(encode(message));
    }

    /// As [`Self::push`], for a message that is encoded already.
    pub(super) fn push_text(&self, text: String) {
        let shared = &self.shared;
        if shared.condemned.load(Ordering::Acquire) {
            return;
        }
        let waiting = shared.bytes.load(Ordering::Acquire);
        let frames = shared.frames.load(Ordering::Acquire);
        // A single frame is always taken: whatever could be received can be sent.
        if frames > 0 && (waiting + text.len() > shared.hard_bytes || frames >= shared.hard_frames) {
            tracing::warn!(waiting, frames, "a client does not read what it is sent; dropping its connection");
            self.condemn();
            return;
        }
        shared.bytes.fetch_add(text.len(), Ordering::AcqRel);
        shared.frames.fetch_add(1, Ordering::AcqRel);
        if self.items.send(Item::Frame(text.into())).is_err() {
            // The connection is gone already.
            self.condemn();
        }
    }

    /// Closes the connection after everything before this call is written.
    pub(super) fn close(&self, reason: &'static str) {
        if self.items.send(Item::Close(reason)).is_err() {
            self.condemn();
        }
    }

    /// Ends the connection now; what waits is dropped.
    pub(super) fn condemn(&self) {
        self.shared.condemned.store(true, Ordering::Release);
        self.shared.end.notify_waiters();
        self.shared.room.notify_waiters();
    }

    /// Returns when the connection is condemned.
    pub(super) async fn ended(&self) {
        loop {
            let told = self.shared.end.notified();
            tokio::pin!(told);
            told.as_mut().enable();
            if self.shared.condemned.load(Ordering::Acquire) {
                return;
            }
            told.await;
        }
    }

    /// Whether more waits than a healthy reader leaves.
    pub(super) fn is_congested(&self) -> bool {
        self.shared.bytes.load(Ordering::Acquire) > self.shared.soft_bytes
            && !self.shared.condemned.load(Ordering::Acquire)
    }

    /// Returns when the peer has read enough, or the connection is condemned.
    pub(super) async fn relieved(&self) {
        loop {
            let told = self.shared.room.notified();
            tokio::pin!(told);
            told.as_mut().enable();
            if !self.is_congested() {
                return;
            }
            told.await;
        }
    }

    /// Waits until the peer has read enough, and condemns the connection when it does not within the patience.
    pub(super) async fn wait_for_room(&self) {
        if tokio::time::timeout(self.shared.patience, self.relieved()).await.is_err() {
            tracing::warn!("a client does not read what it is sent; dropping its connection");
            self.condemn();
        }
    }
}

impl Drain {
    /// The next thing to write, or nothing once every outbox is gone.
    pub(super) async fn next(&mut self) -> Option<Item> {
        self.items.recv().await
    }

    /// The next thing to write, if there is one already.
    pub(super) fn ready(&mut self) -> Option<Item> {
        self.items.try_recv().ok()
    }

    /// Says that a frame of this size has left.
    pub(super) fn written(&self, bytes: usize) {
        self.shared.bytes.fetch_sub(bytes, Ordering::AcqRel);
        self.shared.frames.fetch_sub(1, Ordering::AcqRel);
        self.shared.room.notify_waiters();
    }

    /// How long one write may stand still.
    pub(super) fn patience(&self) -> Duration {
        self.shared.patience
    }
}
