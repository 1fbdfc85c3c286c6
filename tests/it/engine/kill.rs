//! SIGKILL at random points under load: nothing that was acknowledged is lost.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::time::timeout;
use tokio_tungstenite::connect_async;
use tokio_tungstenite::tungstenite::Message;

use super::client::{Client, PATIENCE};
use super::process::Process;

const ROUNDS: u64 = 100;
const KEYS: u64 = 8;

/// What the clients were told is stored.
#[derive(Default)]
struct Acknowledged {
    state: BTreeMap<u64, u64>,
    configuration: u64,
    messages: BTreeSet<u64>,
    delivered: BTreeSet<u64>,
}

fn call(number: u64, function_id: &str, data: &Value) -> Message {
    let id = uuid::Uuid::from_u128(u128::from(number));
    Message::text(
        json!({"type": "invokefunction", "invocation_id": id, "function_id": function_id, "data": data}).to_string(),
    )
}

/// Writes as fast as the engine answers, until the connection breaks. Each number is written once.
async fn write(url: &str, known: &mut Acknowledged, next: &mut u64) {
    let Ok((socket, _)) = connect_async(url).await else { return };
    let (mut sink, mut stream) = socket.split();
    let mut open = BTreeMap::new();
    loop {
        while open.len() < 16 {
            *next += 1;
            let number = *next;
            let (function_id, data) = match number % 4 {
                0 | 1 => ("state::set", json!({"scope": "s", "key": (number % KEYS).to_string(), "value": number})),
                2 => {
                    let data = json!({"queue": "q", "function_id": "w::take", "data": {"g": number % 3, "n": number}});
                    ("engine::queue::enqueue", data)
                }
                _ => ("configuration::set", json!({"id": "c", "value": number})),
            };
            open.insert(uuid::Uuid::from_u128(u128::from(number)).to_string(), number);
            if sink.send(call(number, function_id, &data)).await.is_err() {
                return;
            }
        }
        let Some(Ok(frame)) = stream.next().await else { return };
        let Message::Text(text) = frame else { continue };
        let frame: Value = serde_json::from_str(&text).unwrap();
        let Some(number) = frame["invocation_id"].as_str().and_then(|id| open.remove(id)) else { continue };
        assert_eq!(frame.get("error"), None, "{frame}");
        match number % 4 {
            0 | 1 => {
                known.state.insert(number % KEYS, number);
            }
            2 => {
                known.messages.insert(number);
            }
            _ => known.configuration = number,
        }
    }
}

/// Takes messages until the connection breaks or nothing is left to come; answers all but every fifth.
async fn take(url: &str, delivered: &mut BTreeSet<u64>, answer_all: bool, wanted: &BTreeSet<u64>) {
    let Ok((mut socket, _)) = connect_async(url).await else { return };
    for frame in [
        json!({"type": "registerfunction", "id": "w::take"}),
        json!({"type": "invokefunction", "function_id": "engine::workers::register",
               "data": {"name": "taker", "pid": 1}, "action": {"type": "void"}}),
    ] {
        if socket.send(Message::text(frame.to_string())).await.is_err() {
            return;
        }
    }
    while !answer_all || !wanted.is_subset(delivered) {
        let Some(Ok(frame)) = socket.next().await else { return };
        let Message::Text(text) = frame else { continue };
        let frame: Value = serde_json::from_str(&text).unwrap();
        if frame["type"] != "invokefunction" {
            continue;
        }
        let number = frame["data"]["n"].as_u64().unwrap();
        delivered.insert(number);
        if answer_all || !number.is_multiple_of(5) {
            let answer =
                json!({"type": "invocationresult", "invocation_id": frame["invocation_id"], "function_id": "w::take"});
            if socket.send(Message::text(answer.to_string())).await.is_err() {
                return;
            }
        }
    }
}

async fn check(url: &str, known: &Acknowledged) {
    let mut client = Client::worker(url, "checker", &[]).await;
    for (key, number) in &known.state {
        let value = client.call("state::get", json!({"scope": "s", "key": key.to_string()})).await.unwrap();
        assert!(value.as_u64() >= Some(*number), "key {key} holds {value}, {number} was acknowledged");
    }
    let schema = json!({"id": "c", "name": "C", "description": "d", "schema": {}});
    let entry = client.call("configuration::register", schema).await.unwrap();
    assert!(entry["value"].as_u64().unwrap_or(0) >= known.configuration, "{entry}, {} was set", known.configuration);
    let config = json!({"type": "fifo", "message_group_field": "g", "backoff_ms": 1});
    client.call("queue::define", json!({"queue": "q", "config": config})).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_kills_lose_nothing_that_was_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let mut known = Acknowledged::default();
    let mut next = 0;
    for _ in 0..ROUNDS {
        let process = Process::start(dir.path());
        let url = process.url.clone();
        check(&url, &known).await;
        let mut delivered = std::mem::take(&mut known.delivered);
        let nothing = BTreeSet::new();
        let micros = u64::try_from(uuid::Uuid::new_v4().as_u128() % 60_000).unwrap();
        let kill = async {
            tokio::time::sleep(Duration::from_micros(micros)).await;
            process.kill();
        };
        tokio::join!(write(&url, &mut known, &mut next), take(&url, &mut delivered, false, &nothing), kill);
        known.delivered = delivered;
    }
    // Whatever was never delivered is delivered now.
    let process = Process::start(dir.path());
    check(&process.url, &known).await;
    let mut delivered = known.delivered.clone();
    let rest = take(&process.url, &mut delivered, true, &known.messages);
    timeout(PATIENCE * 2, rest).await.expect("messages that were acknowledged do not come");
    assert!(known.messages.is_subset(&delivered));
    assert!(known.messages.len() > 100 && known.state.len() > 3, "hardly anything was written");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kill_during_the_very_first_start_leaves_a_directory_that_can_be_used() {
    for round in 0..30u64 {
        let dir = tempfile::tempdir().unwrap();
        let starting = Process::spawn(dir.path());
        tokio::time::sleep(Duration::from_micros(round * 700)).await;
        starting.kill();
        check(&Process::start(dir.path()).url, &Acknowledged::default()).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_is_told_to_writers_and_takes_nothing_that_was_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let process = Process::start_limited(dir.path(), 4096);
    let mut client = Client::worker(&process.url, "client", &[]).await;
    let value = "x".repeat(100_000);
    let mut stored = 0;
    let error = loop {
        let data = json!({"scope": "s", "key": stored.to_string(), "value": value});
        match client.call("state::set", data).await {
            Ok(_) => stored += 1,
            Err(error) => break error,
        }
        assert!(stored < 1000, "the limit does not hold");
    };
    assert_eq!(error["code"], "STORE_FAILED");
    // It stays so until the engine is started again, and calls that store nothing go on.
    let again = client.call("state::set", json!({"scope": "s", "key": "small", "value": 1})).await.unwrap_err();
    assert_eq!(again["code"], "STORE_FAILED");
    client.call("engine::workers::list", json!({})).await.unwrap();
    process.kill();

    let process = Process::start(dir.path());
    let mut client = Client::worker(&process.url, "client", &[]).await;
    let list = client.call("state::list", json!({"scope": "s"})).await.unwrap();
    assert!(list.as_array().unwrap().len() >= stored, "{stored} were acknowledged");
    client.call("state::set", json!({"scope": "s", "key": "small", "value": 1})).await.unwrap();
}
