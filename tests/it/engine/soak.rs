//! Many SDK clients at once, for a while: no errors, flat memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use iii_sdk::protocol::TriggerRequest;
use iii_sdk::{Error, RegisterFunction, TriggerAction};
use serde_json::{Value, json};
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::process::Process;
use super::sdk::{call_when_there, client, request};

const CLIENTS: u64 = 20;
const CALLS_PER_SECOND: u64 = 200;
const SECONDS: u64 = 30;
/// The process may grow by this much after it has warmed up.
const SLACK: u64 = 8 << 20;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_clients_make_two_hundred_mixed_calls_a_second_without_errors() {
    let dir = tempfile::tempdir().unwrap();
    let process = Process::start(dir.path());
    let url = process.url.clone();
    let taken = Arc::new(AtomicU64::new(0));
    let mut clients = Vec::new();
    for n in 0..CLIENTS {
        let client = client(&url, &format!("client-{n}"));
        let count = taken.clone();
        client.register_function(
            format!("c{n}::take"),
            RegisterFunction::new(move |data: Value| {
                count.fetch_add(1, Ordering::Relaxed);
                Ok::<Value, Error>(data)
            }),
        );
        call_when_there(&client, &format!("c{n}::take"), json!({})).await;
        clients.push(client);
    }
    let end = Instant::now() + Duration::from_secs(SECONDS);
    let mut tasks = Vec::new();
    for (n, client) in clients.iter().cloned().enumerate() {
        tasks.push(tokio::spawn(async move {
            let mut tick = interval(Duration::from_millis(1000 * CLIENTS / CALLS_PER_SECOND));
            tick.set_missed_tick_behavior(MissedTickBehavior::Burst);
            let mut calls = 0u64;
            let mut enqueued = 0u64;
            while Instant::now() < end {
                tick.tick().await;
                let other = format!("c{}::take", (n + 7) % 20);
                let key = json!({"scope": format!("s{n}"), "key": format!("k{}", calls % 5), "value": "x".repeat(500)});
                let call = match calls % 5 {
                    0 => request("state::set", key),
                    1 => request("state::list", json!({"scope": format!("s{n}")})),
                    2 => {
                        enqueued += 1;
                        let action = Some(TriggerAction::Enqueue { queue: "default".to_owned() });
                        TriggerRequest { action, ..request(&other, json!({"n": calls})) }
                    }
                    3 => request("engine::functions::list", json!({"prefix": "c"})),
                    _ => request(&other, json!({"n": calls})),
                };
                client.trigger(call).await.unwrap();
                calls += 1;
            }
            (calls, enqueued)
        }));
    }
    tokio::time::sleep(Duration::from_secs(SECONDS / 3)).await;
    let warm = process.memory();
    let mut calls = 0;
    for task in tasks {
        calls += task.await.unwrap().0;
    }
    let after = process.memory();
    assert!(calls >= CALLS_PER_SECOND * SECONDS * 9 / 10, "only {calls} calls were made");
    assert!(after < warm + SLACK, "memory went from {warm} to {after} bytes");
    let drained = async {
        loop {
            let stats = clients[0].trigger(request("engine::queue::topic_stats", json!({"topic": "default"}))).await;
            let stats = stats.unwrap();
            assert_eq!(stats["dlq_depth"], 0);
            if stats["depth"] == 0 {
                return;
            }
        }
    };
    tokio::time::timeout(super::client::PATIENCE, drained).await.expect("the queue does not empty");
    for client in clients {
        client.shutdown_async().await;
    }
}
