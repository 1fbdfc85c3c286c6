//! A worker that dies, or is stopped, and comes back.

use serde_json::{Value, json};

use crate::support::{Gate, Stand};

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
