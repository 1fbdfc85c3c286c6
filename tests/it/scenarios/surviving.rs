//! A worker that dies, or is stopped, and comes back.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{Gate, Stand, until};

fn ids(listed: &Value) -> Vec<&str> {
    listed["worktrees"].as_array().unwrap().iter().map(|one| one["worktree_id"].as_str().unwrap()).collect()
}

pub async fn a_killed_worker_finishes_its_land_without_help(mut stand: Stand) {
    let repository = stand.repository("shop");
    let bystander = stand.create_with(&repository, json!({"session_id": "ben"})).await;
    let unlanded = bystander.checkout.commit("pears", "4\n");
    let landing = stand.create(&repository).await;
    let head = landing.checkout.commit("apples", "3\n");
    let behind = stand.create(&repository).await;
    behind.checkout.commit("plums", "2\n");
    let gate = Gate::new(&stand.seal, "slow");
    stand.land(&landing, json!({"test_cmd": gate.command()})).await;
    stand.land(&behind, json!({})).await;
    gate.started().await;

    stand.kill_and_restart().await;
    let mut events = stand.hear().await;
    gate.end(0);
    assert_eq!(events.landed(&landing.id).await["merged_sha"], head);
    events.landed(&behind.id).await;
    assert_eq!(repository.sha("main~1"), head, "landed once, in order");
    assert_eq!(repository.git(&["rev-list", "--count", "main"]), "3");

    let listed = stand.client.ok("worktree::list", json!({})).await;
    assert_eq!(ids(&listed), [&bystander.id]);
    assert_eq!(listed["worktrees"][0]["session_id"], "ben");
    assert_eq!(bystander.checkout.sha("HEAD"), unlanded);
    assert_eq!(events.rest(&landing.id).await, [], "it was reported more than once");
}

pub async fn a_stopped_worker_loses_nothing(mut stand: Stand) {
    let repository = stand.repository("shop");
    let one = stand.create_with(&repository, json!({"session_id": "ada"})).await;
    let two = stand.create(&repository).await;
    let before = stand.client.ok("worktree::list", json!({})).await;
    let status = stand.stop_and_restart().await;
    assert!(status.success(), "SIGTERM is a request to leave, not a failure: {status}");
    let after = stand.client.ok("worktree::list", json!({})).await;
    assert_eq!(ids(&after), [&one.id, &two.id]);
    assert_eq!(before, after);
}

pub async fn a_worker_that_is_stopped_during_a_gate_goes_on_later(mut stand: Stand) {
    let repository = stand.repository("shop");
    let landing = stand.create(&repository).await;
    let head = landing.checkout.commit("apples", "3\n");
    let before = repository.sha("main");
    let gate = Gate::new(&stand.seal, "slow");
    stand.land(&landing, json!({"test_cmd": gate.command()})).await;
    gate.started().await;
    let status = stand.stop_and_restart().await;
    assert!(status.success(), "{status}");
    assert_eq!(repository.sha("main"), before);
    let mut events = stand.hear().await;
    gate.end(0);
    assert_eq!(events.landed(&landing.id).await["merged_sha"], head);
}

pub async fn a_worker_that_is_killed_at_any_moment_lands_once(mut stand: Stand) {
    let repository = stand.repository("shop");
    for (turn, delay_ms) in [0_u64, 10, 25, 50, 80, 120, 180, 260].into_iter().enumerate() {
        let landing = stand.create(&repository).await;
        landing.checkout.commit(&format!("file-{turn}"), "x\n");
        // So that there is something to rebase.
        repository.commit(&format!("main-{turn}"), "x\n");
        stand.land(&landing, json!({"test_cmd": "true"})).await;
        tokio::time::sleep(Duration::from_millis(delay_ms)).await;
        stand.kill_and_restart().await;
        until("the end of the land", || async {
            let listed = stand.client.ok("worktree::list", json!({})).await;
            assert!(
                !listed.to_string().contains("land-blocked"),
                "killed after {delay_ms} ms: {listed:#}\n{}",
                stand.log()
            );
            listed["worktrees"].as_array().unwrap().is_empty().then_some(())
        })
        .await;
        let subject = format!("Write file-{turn}");
        let landed = repository.git(&["log", "--format=%s", "main"]).lines().filter(|line| *line == subject).count();
        assert_eq!(landed, 1, "killed after {delay_ms} ms");
        assert_eq!(repository.git(&["status", "--porcelain"]), "", "killed after {delay_ms} ms");
        assert_eq!(repository.branch(&landing.branch), None, "killed after {delay_ms} ms");
        assert!(!landing.checkout.path().exists(), "killed after {delay_ms} ms");
    }
    assert_eq!(repository.worktrees(), [repository.path()]);
    assert_eq!(repository.git(&["rev-list", "--merges", "main"]), "");
}
