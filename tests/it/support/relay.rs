//! A relay between a worker and its engine, for what cannot be seen or had at either end.
//!
//! It takes the worker's pulse: it sends WebSocket pings of its own and measures how long the answers take. They are
//! given by the thread that also carries calls and results, so an answer that is late means that something blocks
//! that thread. And it can make an engine poorer than it is, by refusing calls of the worker the way an engine
//! without a provider does.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{accept_async, connect_async};

/// How often a ping goes out.
const EVERY: Duration = Duration::from_millis(50);

/// What the engine is made to lack: beginnings of function ids, each with the code of the refusal.
type Missing = Arc<Mutex<Vec<(String, String)>>>;

pub struct Relay {
    url: String,
    pulse: Arc<Pulse>,
    missing: Missing,
    accepting: JoinHandle<()>,
}

#[derive(Default)]
struct Pulse {
    answered: AtomicU64,
    slowest_us: AtomicU64,
}

impl Relay {
    /// Relays connections to the engine at `engine_url`. Functions whose ids begin with one of `missing` are not
    /// there; nor is a queue when `queue::` is among them.
    pub async fn to(engine_url: &str, missing: &[&str]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("ws://{}", listener.local_addr().unwrap());
        let pulse = Arc::new(Pulse::default());
        let absent = missing.iter().map(|id| ((*id).to_owned(), "function_not_found".to_owned())).collect();
        let missing = Arc::new(Mutex::new(absent));
        let (engine_url, shared, lacking) = (engine_url.to_owned(), Arc::clone(&pulse), Arc::clone(&missing));
        let accepting = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(carry(stream, engine_url.clone(), Arc::clone(&shared), Arc::clone(&lacking)));
            }
        });
        Self { url, pulse, missing, accepting }
    }

    /// Where the worker is to connect.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// From now on, calls of functions that begin so are refused with this code.
    pub fn refuse(&self, function: &str, code: &str) {
        self.missing.lock().unwrap().push((function.to_owned(), code.to_owned()));
    }

    /// Lets everything through again.
    pub fn allow_all(&self) {
        self.missing.lock().unwrap().clear();
    }

    /// Starts counting anew.
    pub fn reset(&self) {
        self.pulse.slowest_us.store(0, Ordering::SeqCst);
        self.pulse.answered.store(0, Ordering::SeqCst);
    }

    /// How many pings were answered since [`Relay::reset`], and how long the slowest answer took.
    pub fn seen(&self) -> (u64, Duration) {
        let slowest = self.pulse.slowest_us.load(Ordering::SeqCst);
        (self.pulse.answered.load(Ordering::SeqCst), Duration::from_micros(slowest))
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// Carries one connection. It ends when either side does.
async fn carry(stream: TcpStream, engine_url: String, pulse: Arc<Pulse>, missing: Missing) {
    let Ok(mut worker) = accept_async(stream).await else { return };
    let Ok((mut engine, _)) = connect_async(&engine_url).await else { return };
    let start = Instant::now();
    let now = || u64::try_from(start.elapsed().as_micros()).unwrap();
    let mut ticks = tokio::time::interval(EVERY);
    loop {
        let sent = tokio::select! {
            _ = ticks.tick() => worker.send(Message::Ping(now().to_be_bytes().to_vec().into())).await,
            from_worker = worker.next() => match from_worker {
                Some(Ok(Message::Pong(payload))) => {
                    if let Ok(stamp) = <[u8; 8]>::try_from(payload.as_ref()) {
                        pulse.slowest_us.fetch_max(now() - u64::from_be_bytes(stamp), Ordering::SeqCst);
                        pulse.answered.fetch_add(1, Ordering::SeqCst);
                    }
                    Ok(())
                }
                // Answered where they arrive.
                Some(Ok(Message::Ping(_))) => Ok(()),
                Some(Ok(message)) => match refusal(&message, &missing) {
                    Some(answer) => worker.send(answer).await,
                    None => engine.send(message).await,
                },
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

/// What an engine without these functions answers to a call of one of them.
fn refusal(message: &Message, missing: &Missing) -> Option<Message> {
    let Message::Text(text) = message else { return None };
    let call: Value = serde_json::from_str(text).ok()?;
    let (id, function) = (call["invocation_id"].as_str()?, call["function_id"].as_str()?);
    if call["type"] != "invokefunction" {
        return None;
    }
    let missing = missing.lock().unwrap();
    let error = if call["action"]["type"] == "enqueue" {
        missing.iter().find(|(id, _)| id == "queue::")?;
        json!({"code": "enqueue_error", "message": "No queue provider is installed."})
    } else {
        let (_, code) = missing.iter().find(|(prefix, _)| function.starts_with(prefix))?;
        json!({"code": code, "message": format!("Function {function} not found in namespace default.")})
    };
    let answer = json!({"type": "invocationresult", "invocation_id": id, "function_id": function, "error": error});
    Some(Message::text(answer.to_string()))
}
