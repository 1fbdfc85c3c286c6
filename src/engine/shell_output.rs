//! What a command writes: read to the end, kept within a limit.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// How long a pipe may stay open after its process group was killed. Only a process that left the group can
/// hold it; its output is no longer waited for.
const AFTER_KILL: Duration = Duration::from_millis(500);

/// Output as far as it was kept.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Captured {
    pub(super) text: String,
    pub(super) truncated: bool,
}

/// The first quarter of the limit and the last three.
#[derive(Debug)]
struct Kept {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    dropped: u64,
    head_limit: usize,
    tail_limit: usize,
}

impl Kept {
    fn new(limit: usize) -> Self {
        let head_limit = limit / 4;
        Self { head: Vec::new(), tail: VecDeque::new(), dropped: 0, head_limit, tail_limit: limit - head_limit }
    }

    fn push(&mut self, bytes: &[u8]) {
        let room = self.head_limit - self.head.len();
        let (head, rest) = bytes.split_at(room.min(bytes.len()));
        self.head.extend_from_slice(head);
        self.tail.extend(rest);
        let over = self.tail.len().saturating_sub(self.tail_limit);
        self.tail.drain(..over);
        self.dropped += u64::try_from(over).unwrap_or(u64::MAX);
    }

    fn text(&self) -> Captured {
        let mut bytes = self.head.clone();
        if self.dropped > 0 {
            bytes.extend_from_slice(format!("\n[… {} bytes left out …]\n", self.dropped).as_bytes());
        }
        bytes.extend(&self.tail);
        Captured { text: String::from_utf8_lossy(&bytes).into_owned(), truncated: self.dropped > 0 }
    }
}

/// A pipe that is being read.
pub(super) struct Capture {
    kept: Arc<Mutex<Kept>>,
    reader: Option<JoinHandle<()>>,
}

impl Capture {
    /// Reads the pipe to its end, keeping no more than `limit` bytes.
    pub(super) fn of<R: AsyncRead + Unpin + Send + 'static>(pipe: Option<R>, limit: usize) -> Self {
        let kept = Arc::new(Mutex::new(Kept::new(limit)));
        let into = kept.clone();
        let reader = pipe.map(|mut pipe| {
            tokio::spawn(async move {
                let mut buffer = vec![0; 16 << 10];
                loop {
                    match pipe.read(&mut buffer).await {
                        Ok(0) => return,
                        Ok(count) => {
                            let read = buffer.get(..count).unwrap_or_default();
                            into.lock().unwrap_or_else(PoisonError::into_inner).push(read);
                        }
                        Err(error) => return tracing::debug!(%error, "a command's output could not be read on"),
                    }
                }
            })
        });
        Self { kept, reader }
    }

    /// Waits for the end of the output.
    pub(super) async fn end(&mut self) {
        if let Some(reader) = &mut self.reader {
            if let Err(error) = reader.await {
                tracing::error!(%error, "the reader of a command's output panicked");
            }
            self.reader = None;
        }
    }

    /// What was kept so far.
    pub(super) fn so_far(&self) -> Captured {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).text()
    }

    /// What was kept, after the process group is gone.
    pub(super) async fn take(&mut self) -> Captured {
        if timeout(AFTER_KILL, self.end()).await.is_err()
            && let Some(reader) = self.reader.take()
        {
            reader.abort();
        }
        self.so_far()
    }

    /// Another view of the same output, for who looks while it grows.
    pub(super) fn view(&self) -> View {
        View { kept: self.kept.clone() }
    }
}

/// Output that may still grow.
#[derive(Clone)]
pub(super) struct View {
    kept: Arc<Mutex<Kept>>,
}

impl View {
    pub(super) fn so_far(&self) -> Captured {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).text()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_quarter_and_the_end_are_kept() {
        let mut kept = Kept::new(8);
        kept.push(b"ab");
        assert_eq!(kept.text(), Captured { text: "ab".into(), truncated: false });
        for chunk in [&b"cdef"[..], b"ghijklmnopqrstuv", b"wxyz"] {
            kept.push(chunk);
        }
        assert_eq!(kept.text(), Captured { text: "ab\n[… 18 bytes left out …]\nuvwxyz".into(), truncated: true });
    }
}
