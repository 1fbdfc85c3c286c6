//! A relay between a worker and its engine that takes the worker's pulse: it sends WebSocket pings of its own and
//! measures how long the answers take. They are given by the thread that also carries calls and results, so an
//! answer that is late means that something blocks that thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures_util::{SinkExt as _, StreamExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{accept_async, connect_async};

/// How often a ping goes out.
const EVERY: Duration = Duration::from_millis(50);

pub struct Heartbeat {
    url: String,
    answered: Arc<AtomicU64>,
    slowest_us: Arc<AtomicU64>,
    relay: JoinHandle<()>,
}

impl Heartbeat {
    /// Relays connections to the engine at `engine_url`.
    pub async fn relay(engine_url: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("ws://{}", listener.local_addr().unwrap());
        let (answered, slowest_us) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let (engine_url, pulse) = (engine_url.to_owned(), (Arc::clone(&answered), Arc::clone(&slowest_us)));
        let relay = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(carry(stream, engine_url.clone(), pulse.clone()));
            }
        });
        Self { url, answered, slowest_us, relay }
    }

    /// Where the worker is to connect.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Starts counting anew.
    pub fn reset(&self) {
        self.slowest_us.store(0, Ordering::SeqCst);
        self.answered.store(0, Ordering::SeqCst);
    }

    /// How many pings were answered since [`Heartbeat::reset`], and how long the slowest answer took.
    pub fn seen(&self) -> (u64, Duration) {
        let slowest = self.slowest_us.load(Ordering::SeqCst);
        (self.answered.load(Ordering::SeqCst), Duration::from_micros(slowest))
    }
}

impl Drop for Heartbeat {
    fn drop(&mut self) {
        self.relay.abort();
    }
}

/// Carries one connection. It ends when either side does.
async fn carry(stream: TcpStream, engine_url: String, (answered, slowest): (Arc<AtomicU64>, Arc<AtomicU64>)) {
    let Ok(mut worker) = accept_async(stream).await else { return };
    let Ok((mut engine, _)) = connect_async(&engine_url).await else { return };
    let start = Instant::now();
    let mut ticks = tokio::time::interval(EVERY);
    loop {
        let sent = tokio::select! {
            _ = ticks.tick() => {
                let now = u64::try_from(start.elapsed().as_micros()).unwrap();
                worker.send(Message::Ping(now.to_be_bytes().to_vec().into())).await
            }
            from_worker = worker.next() => match from_worker {
                Some(Ok(Message::Pong(payload))) => {
                    if let Ok(stamp) = <[u8; 8]>::try_from(payload.as_ref()) {
                        let now = u64::try_from(start.elapsed().as_micros()).unwrap();
                        slowest.fetch_max(now - u64::from_be_bytes(stamp), Ordering::SeqCst);
                        answered.fetch_add(1, Ordering::SeqCst);
                    }
                    Ok(())
                }
                // Answered where they arrive.
                Some(Ok(Message::Ping(_))) => Ok(()),
                Some(Ok(message)) => engine.send(message).await,
                Some(Err(_)) | None => return,
            },
            from_engine = engine.next() => match from_engine {
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => Ok(()),
                Some(Ok(message)) => worker.send(message).await,
                Some(Err(_)) | None => return,
            },
        };
        if sent.is_err() {
            return;
        }
    }
}
