//! Reading what a process writes, to a bound, to the end.
//!
//! Invariants
//! 1. A pipe is read until it is closed, also beyond the bound.
//! 2. What the process itself wrote before it ended is never missing, however slow the reader is: the end of reading
//!    is told by an empty pipe, not by a clock. A clock only decides when to stop waiting for others who hold the pipe.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// How long a pipe must stay silent to count as empty: more than one turn of the driver that tells what is readable.
const SILENCE: Duration = Duration::from_millis(20);
/// How much is read at most from a pipe that others keep filling: more than a pipe holds (pipe(7): 1 MiB at most).
const BACKLOG: usize = 4 * 1024 * 1024;

/// Which part is kept when there is more than the bound.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Keep {
    Head,
    Tail,
}

#[derive(Default)]
struct Captured {
    bytes: Vec<u8>,
    cut: bool,
}

/// A pipe that is read to its end by a task of its own, which ends with this value.
pub(super) struct Capture {
    captured: Arc<Mutex<Captured>>,
    reader: JoinHandle<()>,
    stop: Option<oneshot::Sender<()>>,
}

impl Capture {
    /// Begins to read, keeping at most `cap` bytes.
    pub(super) fn start(pipe: Option<impl AsyncRead + Unpin + Send + 'static>, cap: usize, keep: Keep) -> Capture {
        let captured = Arc::new(Mutex::new(Captured::default()));
        let into = Arc::clone(&captured);
        let (stop, stopped) = oneshot::channel();
        let reader = tokio::spawn(async move {
            if let Some(pipe) = pipe {
                read(pipe, stopped, |chunk| lock(&into).take(chunk, cap, keep)).await;
            }
        });
        Capture { captured, reader, stop: Some(stop) }
    }

    /// Whether nobody holds the other end any more.
    pub(super) fn is_closed(&self) -> bool {
        self.reader.is_finished()
    }

    /// What was written, and whether that is everything. To be called after the process has ended; others who hold the
    /// pipe are waited for until `until`.
    pub(super) async fn finish(mut self, until: tokio::time::Instant) -> (Vec<u8>, bool) {
        if tokio::time::timeout_at(until, &mut self.reader).await.is_err() {
            self.stop = None;
            // Only the end of reading is waited for; a reader that panicked has ended too.
            (&mut self.reader).await.ok();
        }
        let captured = std::mem::take(&mut *lock(&self.captured));
        (captured.bytes, !captured.cut)
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

fn lock(captured: &Mutex<Captured>) -> std::sync::MutexGuard<'_, Captured> {
    captured.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn read(mut pipe: impl AsyncRead + Unpin, mut stopped: oneshot::Receiver<()>, mut take: impl FnMut(&[u8])) {
    let mut chunk = vec![0u8; 64 * 1024];
    loop {
        tokio::select! {
            biased;
            count = pipe.read(&mut chunk) => match count {
                Ok(count @ 1..) => take(&chunk[..count]),
                // The end. A pipe has no other errors than that nothing more will come.
                _ => return,
            },
            _ = &mut stopped => break,
        }
    }
    let mut left = BACKLOG;
    while let Ok(Ok(count @ 1..)) = tokio::time::timeout(SILENCE, pipe.read(&mut chunk)).await {
        take(&chunk[..count]);
        left = left.saturating_sub(count);
        if left == 0 {
            return;
        }
    }
}

impl Captured {
    fn take(&mut self, chunk: &[u8], cap: usize, keep: Keep) {
        match keep {
            Keep::Head => {
                let room = cap.saturating_sub(self.bytes.len()).min(chunk.len());
                self.bytes.extend_from_slice(&chunk[..room]);
                self.cut |= room < chunk.len();
            }
            Keep::Tail => {
                self.bytes.extend_from_slice(chunk);
                if self.bytes.len() > cap {
                    self.bytes.drain(..self.bytes.len() - cap);
                    self.cut = true;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt as _;

    use super::*;

    async fn captured(bytes: &[u8], cap: usize, keep: Keep) -> (Vec<u8>, bool) {
        let (mut writer, reader) = tokio::io::duplex(1024);
        let capture = Capture::start(Some(reader), cap, keep);
        writer.write_all(bytes).await.unwrap();
        drop(writer);
        capture.finish(tokio::time::Instant::now() + Duration::from_secs(5)).await
    }

    #[tokio::test]
    async fn the_bound_keeps_the_head_or_the_tail_invariant_1() {
        let bytes: Vec<u8> = (0..100_000u32).map(|n| (n % 251) as u8).collect();
        assert_eq!(captured(&bytes, 1 << 20, Keep::Head).await, (bytes.clone(), true));
        assert_eq!(captured(&bytes, 10, Keep::Head).await, (bytes[..10].to_vec(), false));
        assert_eq!(captured(&bytes, 10, Keep::Tail).await, (bytes[bytes.len() - 10..].to_vec(), false));
    }

    #[tokio::test]
    async fn what_was_written_is_all_there_while_another_holds_the_pipe_invariant_2() {
        let (mut writer, reader) = tokio::io::duplex(1 << 20);
        let capture = Capture::start(Some(reader), 1 << 20, Keep::Head);
        writer.write_all(&[7; 500_000]).await.unwrap();
        // No time at all to wait for whoever holds the other end.
        let (bytes, whole) = capture.finish(tokio::time::Instant::now()).await;
        assert!(whole && bytes.len() == 500_000, "{}", bytes.len());
        drop(writer);
    }

    #[tokio::test]
    async fn a_pipe_that_others_keep_filling_is_left_at_last() {
        let (mut writer, reader) = tokio::io::duplex(1 << 16);
        let capture = Capture::start(Some(reader), 1 << 30, Keep::Tail);
        let filling = tokio::spawn(async move { while writer.write_all(&[7; 1024]).await.is_ok() {} });
        let (bytes, _) = capture.finish(tokio::time::Instant::now()).await;
        assert!(bytes.len() >= BACKLOG);
        filling.await.unwrap();
    }
}
