//! The queue: order, retries, dead letters, restarts.

use serde_json::{Value, json};

use super::client::{Client, engine};

async fn define(client: &mut Client, queue: &str, config: Value) {
    let answer = client.call("queue::define", json!({"queue": queue, "config": config})).await.unwrap();
    assert_eq!(answer["queue"], queue);
}

async fn enqueue(client: &mut Client, queue: &str, data: Value) -> String {
    let id = uuid::Uuid::new_v4().to_string();
    client
        .send(json!({
            "type": "invokefunction", "invocation_id": id, "function_id": "w::step", "data": data,
            "action": {"type": "enqueue", "queue": queue}
        }))
        .await;
    client.answer(&id).await.unwrap()["messageReceiptId"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_is_delivered_in_order_and_groups_do_not_wait_for_each_other() {
    let dir = tempfile::tempdir().unwrap();
    let engine = engine(dir.path()).await;
    let mut client = Client::worker(&engine.url(), "client", &[]).await;
    define(&mut client, "q", json!({"type": "fifo", "message_group_field": "repo", "concurrency": 4})).await;
    for n in 0..3 {
        for repo in ["a", "b"] {
            enqueue(&mut client, "q", json!({"repo": repo, "n": n})).await;
        }
    }
    // Messages wait for the function without using up attempts.
    let mut worker = Client::worker(&engine.url(), "worker", &["w::step"]).await;
    let held = worker.recv_where(|call| call["data"]["repo"] == "a").await;
    for n in 0..3 {
        assert_eq!(worker.serve_one(json!(null)).await, json!({"repo": "b", "n": n}));
    }
    worker
        .send(json!({"type": "invocationresult", "invocation_id": held["invocation_id"], "function_id": "w::step"}))
        .await;
    assert_eq!(held["data"]["n"], 0);
    for n in 1..3 {
        assert_eq!(worker.serve_one(json!(null)).await, json!({"repo": "a", "n": n}));
    }
    engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failing_message_is_retried_in_its_place_then_given_up_then_redriven() {
    let dir = tempfile::tempdir().unwrap();
    let engine = engine(dir.path()).await;
    let mut client = Client::worker(&engine.url(), "client", &[]).await;
    let mut worker = Client::worker(&engine.url(), "worker", &["w::step"]).await;
    let config = json!({"type": "fifo", "message_group_field": "g", "max_retries": 2, "backoff_ms": 10});
    define(&mut client, "q", config).await;
    let bad = enqueue(&mut client, "q", json!({"g": 1, "n": "bad"})).await;
    enqueue(&mut client, "q", json!({"g": 1, "n": "good"})).await;
    assert_eq!(worker.fail_one("W300").await["n"], "bad");
    assert_eq!(worker.fail_one("W300").await["n"], "bad");
    assert_eq!(worker.serve_one(json!(null)).await["n"], "good");
    let topics = client.call("engine::queue::dlq_topics", json!({})).await.unwrap();
    assert_eq!(topics, json!({"topics": [{"topic": "q", "broker_type": "builtin", "message_count": 1}]}));
    let dead = client.call("engine::queue::dlq_messages", json!({"topic": "q"})).await.unwrap();
    assert_eq!(dead["messages"][0]["message_id"], json!(bad));
    assert_eq!(dead["messages"][0]["attempts"], 2);
    assert_eq!(dead["messages"][0]["error"]["code"], "W300");
    client.call("iii::queue::redrive", json!({"queue": "q"})).await.unwrap();
    assert_eq!(worker.fail_one("W300").await["n"], "bad");
    assert_eq!(worker.fail_one("W300").await["n"], "bad");
    // Dead again: once more by name, and then away with it.
    loop {
        let stats = client.call("engine::queue::topic_stats", json!({"topic": "q"})).await.unwrap();
        if stats["dlq_depth"] == 1 {
            break;
        }
    }
    let by_name = json!({"queue": "q", "message_id": bad});
    client.call("iii::queue::redrive_message", by_name.clone()).await.unwrap();
    assert_eq!(worker.fail_one("W300").await["n"], "bad");
    assert_eq!(worker.fail_one("W300").await["n"], "bad");
    loop {
        match client.call("iii::queue::discard_message", by_name.clone()).await {
            Ok(answer) => break assert_eq!(answer["discarded"], 1),
            Err(error) => assert_eq!(error["code"], "NOT_FOUND"),
        }
    }
    let stats = client.call("engine::queue::topic_stats", json!({"topic": "q"})).await.unwrap();
    assert_eq!((&stats["depth"], &stats["dlq_depth"], &stats["in_flight"]), (&json!(0), &json!(0), &json!(0)));
    engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_on_its_way_when_the_engine_stopped_is_delivered_again() {
    let dir = tempfile::tempdir().unwrap();
    let first = engine(dir.path()).await;
    let mut client = Client::worker(&first.url(), "client", &[]).await;
    let mut worker = Client::worker(&first.url(), "worker", &["w::step"]).await;
    define(&mut client, "q", json!({"type": "fifo", "message_group_field": "g", "max_retries": 1})).await;
    for n in 0..3 {
        enqueue(&mut client, "q", json!({"g": "x", "n": n})).await;
    }
    assert_eq!(worker.serve_one(json!(null)).await["n"], 0);
    assert_eq!(worker.recv_type("invokefunction").await["data"]["n"], 1);
    first.shutdown().await;

    let second = engine(dir.path()).await;
    let mut worker = Client::worker(&second.url(), "worker", &["w::step"]).await;
    assert_eq!(worker.serve_one(json!(null)).await["n"], 1);
    assert_eq!(worker.serve_one(json!(null)).await["n"], 2);
    let mut client = Client::worker(&second.url(), "client", &[]).await;
    let again = client
        .call(
            "queue::define",
            json!({"queue": "q", "config": {"type": "fifo", "message_group_field": "g", "max_retries": 1}}),
        )
        .await;
    assert_eq!(again.unwrap()["changed"], false, "settings are kept");
    second.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_queued_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let engine = engine(dir.path()).await;
    let mut client = Client::worker(&engine.url(), "client", &[]).await;
    define(&mut client, "q", json!({"type": "fifo", "message_group_field": "g"})).await;
    for (queue, data, word) in [("none", json!({}), "not defined"), ("q", json!({}), "field 'g'")] {
        let error = client
            .call("engine::queue::enqueue", json!({"queue": queue, "function_id": "w::f", "data": data}))
            .await
            .unwrap_err();
        assert!(error["message"].as_str().unwrap().contains(word), "{error}");
    }
    let bad = client.call("queue::define", json!({"queue": "q", "config": {"type": "fifo"}})).await.unwrap_err();
    assert_eq!(bad["code"], "INVALID_CONFIG");
    // A worker cannot take the engine's place.
    client.send(json!({"type": "registerfunction", "id": "engine::queue::enqueue"})).await;
    let refused = client.recv_type("registrationrejected").await;
    assert_eq!(
        (&refused["code"], &refused["owner_worker_id"]),
        (&json!("FUNCTION_NAMESPACE_CONFLICT"), &json!("iii-queue"))
    );
    engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_goes_away_uses_up_no_attempt_until_it_does_so_too_often() {
    let dir = tempfile::tempdir().unwrap();
    let engine = engine(dir.path()).await;
    let mut client = Client::worker(&engine.url(), "client", &[]).await;
    let config = json!({"max_retries": 1, "backoff_ms": 1});
    define(&mut client, "q", config).await;
    enqueue(&mut client, "q", json!({"n": 1})).await;
    for loss in 0..10 {
        let mut worker = Client::worker(&engine.url(), &format!("worker-{loss}"), &["w::step"]).await;
        worker.recv_type("invokefunction").await;
        drop(worker);
    }
    loop {
        let dead = client.call("engine::queue::dlq_messages", json!({"topic": "q"})).await.unwrap();
        if let Some(message) = dead["messages"].as_array().unwrap().first() {
            assert_eq!((&message["attempts"], &message["lost_workers"]), (&json!(0), &json!(10)));
            break;
        }
    }
    engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn new_settings_apply_to_what_waits_pauses_or_is_on_its_way() {
    let dir = tempfile::tempdir().unwrap();
    let engine = engine(dir.path()).await;
    let mut client = Client::worker(&engine.url(), "client", &[]).await;
    let mut worker = Client::worker(&engine.url(), "worker", &["w::step"]).await;
    define(&mut client, "q", json!({"backoff_ms": 3_600_000})).await;
    for n in 0..3 {
        enqueue(&mut client, "q", json!({"g": 1, "n": n})).await;
    }
    let mut calls = Vec::new();
    for _ in 0..3 {
        calls.push(worker.recv_type("invokefunction").await);
    }
    calls.sort_by_key(|call| call["data"]["n"].as_u64());
    let answer = |call: &Value, error: Value| {
        let mut frame =
            json!({"type": "invocationresult", "invocation_id": call["invocation_id"], "function_id": "w::step"});
        if !error.is_null() {
            frame["error"] = error;
        }
        frame
    };
    // The first pauses for an hour, the second stays on its way, the third is done.
    worker.send(answer(&calls[0], json!({"code": "x", "message": "x"}))).await;
    worker.send(answer(&calls[2], Value::Null)).await;
    loop {
        let stats = client.call("engine::queue::topic_stats", json!({"topic": "q"})).await.unwrap();
        if (&stats["depth"], &stats["in_flight"]) == (&json!(2), &json!(1)) {
            break;
        }
    }
    define(&mut client, "q", json!({"type": "fifo", "message_group_field": "g", "timeout_ms": 200, "backoff_ms": 1}))
        .await;
    // One group now: the one on its way comes first, then the one that paused, which must answer in time.
    worker.send(answer(&calls[1], Value::Null)).await;
    assert_eq!(worker.recv_type("invokefunction").await["data"]["n"], 0);
    assert_eq!(worker.serve_one(json!(null)).await["n"], 0);
    loop {
        let stats = client.call("engine::queue::topic_stats", json!({"topic": "q"})).await.unwrap();
        if (&stats["depth"], &stats["dlq_depth"]) == (&json!(0), &json!(0)) {
            break;
        }
    }
    engine.shutdown().await;
}
