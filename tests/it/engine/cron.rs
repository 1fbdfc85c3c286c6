//! Cron over a real clock: a second is the shortest tick there is.

use std::time::Duration;

use serde_json::json;
use tokio::time::timeout;

use super::client::{Client, engine};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runs_do_not_overlap_and_missed_ticks_are_skipped() {
    let dir = tempfile::tempdir().unwrap();
    let engine = engine(dir.path()).await;
    let mut client = Client::worker(&engine.url(), "client", &["c::on"]).await;
    client
        .send(json!({"type": "registertrigger", "id": "job", "trigger_type": "cron", "function_id": "c::on",
                     "config": {"expression": "* * * * * * *"}}))
        .await;
    let first = client.recv_type("invokefunction").await;
    assert_eq!((&first["data"]["trigger"], &first["data"]["job_id"]), (&json!("cron"), &json!("job")));
    // While it runs, no other run starts: two ticks and a half pass.
    let early = timeout(Duration::from_millis(2500), client.recv_type("invokefunction")).await;
    assert!(early.is_err(), "{early:?}");
    let answer = json!({"type": "invocationresult", "invocation_id": first["invocation_id"], "function_id": "c::on"});
    client.send(answer).await;
    let second = client.serve_one(json!(null)).await;
    let seconds = |data: &serde_json::Value| {
        chrono::DateTime::parse_from_rfc3339(data["scheduled_time"].as_str().unwrap()).unwrap().timestamp()
    };
    assert!(seconds(&second) - seconds(&first["data"]) >= 3, "{second} after {first}");
    client.send(json!({"type": "unregistertrigger", "id": "job", "trigger_type": "cron"})).await;
    client.send(json!({"type": "ping"})).await;
    client.recv_type("pong").await;
    engine.shutdown().await;
}
