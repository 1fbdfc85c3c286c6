//! The worker in a process of its own, and an engine in another: what happens between the two.

use std::time::Duration;

use serde_json::json;

use crate::support::{Gate, Process, Seal, Stand, until};

#[tokio::test(flavor = "multi_thread")]
async fn the_worker_outlives_its_engine() {
    let mut stand = Stand::apart().await;
    let repository = stand.repository("shop");
    let created = stand.create_with(&repository, json!({"session_id": "ada"})).await;
    let head = created.checkout.commit("apples", "3\n");
    stand.restart_engine().await;
    let listed = stand.client.ok("worktree::list", json!({})).await;
    assert_eq!(listed["worktrees"][0]["worktree_id"], created.id);
    assert_eq!(listed["worktrees"][0]["session_id"], "ada");
    // Everything is registered again: functions, trigger types, the way a land takes.
    let mut events = stand.hear().await;
    stand.land(&created, json!({"test_cmd": "true"})).await;
    assert_eq!(events.landed(&created.id).await["merged_sha"], head);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_worker_waits_for_an_engine_that_is_not_there_yet() {
    let seal = crate::support::Seal::new();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let mut command = seal.command(crate::support::BINARY);
    command.args(["--url", &format!("ws://127.0.0.1:{port}")]);
    let mut process = Process::start("worktree", command);
    until("a word about the engine that is missing", || {
        let log = process.log();
        async move { log.contains(&format!("127.0.0.1:{port}")).then_some(()) }
    })
    .await;
    assert!(process.stop().await.success(), "{}", process.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_worker_is_turned_away_by_name() {
    let stand = Stand::apart().await;
    let mut second = Process::start("a second worktree", stand.command(&["--url", stand.url()]));
    let status = second.ended().await;
    assert_eq!(status.code(), Some(1), "{}", second.log());
    assert!(second.log().contains("`worktree`"), "the name is not told: {}", second.log());
    // The first one is not disturbed.
    stand.client.ok("worktree::list", json!({})).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_calls_leave_the_heartbeat_alone() {
    const CALLS: usize = 20;
    let (stand, heartbeat) = Stand::apart_behind_relay(&[]).await;
    let go = stand.seal.path().join("go");
    let hook = format!(
        "#!/bin/sh\ntouch {go}.$$\nturns=0\nwhile [ ! -e {go} ] && [ $turns -lt 600 ]; do turns=$((turns + 1)); sleep 0.05; done\n",
        go = go.display()
    );
    let mut calls = tokio::task::JoinSet::new();
    for number in 0..CALLS {
        let repository = stand.repository(&format!("shop-{number}"));
        repository.hook("post-checkout", &hook);
        let sdk = stand.client.sdk().clone();
        calls.spawn(async move {
            let request = iii_sdk::protocol::TriggerRequest {
                function_id: "worktree::create".to_owned(),
                payload: json!({"repo_path": repository.text()}),
                action: None,
                timeout_ms: Some(60_000),
            };
            sdk.trigger(request).await
        });
    }
    // All of them are inside the worker, and stay there.
    let begun = || {
        let entries = std::fs::read_dir(stand.seal.path()).unwrap();
        entries.filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().starts_with("go.")).count()
    };
    until("twenty calls that are held", || async { (begun() == CALLS).then_some(()) }).await;
    heartbeat.reset();
    for _ in 0..20 {
        let asked = std::time::Instant::now();
        stand.client.ok("worktree::validate", json!({"path": "/"})).await;
        assert!(asked.elapsed() < Duration::from_secs(5), "a call waited {:?}", asked.elapsed());
    }
    let slowest = until("thirty beats", || {
        let (answered, slowest) = heartbeat.seen();
        async move { (answered >= 30).then_some(slowest) }
    })
    .await;
    assert!(slowest < Duration::from_secs(1), "the heartbeat stood still for {slowest:?}");
    assert!(calls.try_join_next().is_none(), "the calls were not held");
    std::fs::write(&go, "").unwrap();
    while let Some(created) = calls.join_next().await {
        created.unwrap().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_queue_provider_the_worker_keeps_the_order_itself() {
    let (mut stand, _relay) = Stand::apart_behind_relay(&["queue::"]).await;
    let repository = stand.repository("shop");
    let mut worktrees = Vec::new();
    for number in 0..3 {
        let created = stand.create(&repository).await;
        created.checkout.commit(&format!("file-{number}"), "x\n");
        worktrees.push(created);
    }
    let gate = Gate::new(&stand.seal, "slow");
    for created in &worktrees {
        stand.land(created, json!({"test_cmd": gate.command()})).await;
    }
    gate.started().await;
    let told = |log: String| log.lines().filter(|line| line.contains("queue") && line.contains("WARN")).count();
    assert!(told(stand.log()) <= 1, "it is told more than once: {}", stand.log());
    // Nobody but the worker knows of the jobs, and it is killed.
    stand.kill_and_restart().await;
    let mut events = stand.hear().await;
    gate.end(0);
    for created in &worktrees {
        events.landed(&created.id).await;
    }
    let subjects = repository.git(&["log", "--reverse", "--format=%s", "main~3..main"]);
    assert_eq!(subjects, "Write file-0\nWrite file-1\nWrite file-2");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_shell_worker_a_gate_cannot_run_and_nobody_is_blamed() {
    let (stand, _relay) = Stand::apart_behind_relay(&["shell::"]).await;
    let repository = stand.repository("shop");
    let mut events = stand.hear().await;
    let created = stand.create(&repository).await;
    created.checkout.commit("apples", "3\n");
    stand.land(&created, json!({"test_cmd": "true"})).await;
    let event = events.blocked(&created.id).await;
    assert_eq!((&event["code"], &event["reason"]), (&json!("W414"), &json!("gate_unavailable")), "{event:#}");
    assert!(event["message"].as_str().unwrap().contains("shell"), "{event:#}");
    stand.land(&created, json!({})).await;
    assert_eq!(events.landed(&created.id).await["gated"], false);
}

/// A span of a refusal holds a stack trace, which must not leave the process unless somebody asks for spans. The embedded
/// engine drops them, so the worker beside it sends none even then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn telemetry_goes_only_where_it_is_asked_for_and_wanted() {
    let starts = "OpenTelemetry initialized";
    let (dev, apart) = (Stand::dev().await, Stand::apart().await);
    assert!(!dev.log().contains(starts), "{}", dev.log());
    assert!(!apart.log().contains(starts), "{}", apart.log());
    let asked = Stand::apart_in(Seal::new(), json!({}), &[("OTEL_ENABLED", "true")]).await;
    assert!(asked.log().contains(starts), "{}", asked.log());
    let refused = Stand::apart_in(Seal::new(), json!({}), &[("OTEL_ENABLED", "false")]).await;
    assert!(!refused.log().contains(starts), "{}", refused.log());
}
