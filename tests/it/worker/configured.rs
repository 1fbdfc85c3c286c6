//! What configuration switches on and off.

use serde_json::json;

use crate::support::{BINARY, Stand, until};

#[tokio::test(flavor = "multi_thread")]
async fn gates_deny_before_they_reveal_anything_and_name_their_key() {
    let gates = json!({"allow_remove": false, "allow_land": false, "allow_prune": false, "repos": ["/nowhere/*"]});
    let stand = Stand::dev_with(json!({"gates": gates})).await;
    let repository = stand.repository("shop");
    let missing = json!({"worktree_id": "wt_0123456789ab", "target_branch": "main"});
    for (function, request, code, key) in [
        ("remove", missing.clone(), "W500", "gates.allow_remove"),
        ("land", missing, "W500", "gates.allow_land"),
        ("prune", json!({}), "W500", "gates.allow_prune"),
        ("create", json!({"repo_path": repository.text()}), "W503", "gates.repos"),
    ] {
        let message = stand.client.refused(&format!("worktree::{function}"), request, code).await;
        assert!(message.contains(key), "{function}: the key is not named: {message}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_land_target_and_a_budget_are_enforced() {
    let gates = json!({"land_targets": ["release/*"], "max_worktrees_per_repo": 1});
    let stand = Stand::dev_with(json!({"gates": gates})).await;
    let repository = stand.repository("shop");
    let created = stand.create(&repository).await;
    let land = json!({"worktree_id": created.id, "target_branch": "main"});
    let message = stand.client.refused("worktree::land", land, "W502").await;
    assert!(message.contains("gates.land_targets"), "{message}");
    let more = json!({"repo_path": repository.text()});
    let message = stand.client.refused("worktree::create", more, "W504").await;
    assert!(message.contains("max_worktrees_per_repo") && message.contains('1'), "{message}");
    // The budget is per repository, and a removed worktree gives its place back.
    stand.create(&stand.repository("farm")).await;
    stand.client.ok("worktree::remove", json!({"worktree_id": created.id})).await;
    stand.create(&repository).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn force_takes_a_claim_and_says_from_whom() {
    let stand = Stand::dev_with(json!({"gates": {"allow_force": true}})).await;
    let repository = stand.repository("shop");
    let mut events = stand.hear().await;
    let created = stand.create_with(&repository, json!({"session_id": "ada"})).await;
    let forced = json!({"worktree_id": created.id, "session_id": "ben", "force": true});
    let claimed = stand.client.ok("worktree::claim", forced).await;
    assert_eq!(claimed["previous_session_id"], "ada");
    loop {
        let event = events.next("worktree::claimed", &created.id).await;
        if event["session_id"] == "ben" {
            assert_eq!(event["previous_session_id"], "ada");
            break;
        }
    }
    // Force overrides what protects unsaved work, and nothing else.
    created.checkout.write("loose", "x\n");
    let removed = stand.client.ok("worktree::remove", json!({"worktree_id": created.id, "force": true})).await;
    assert_eq!(removed["removed"], true);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_of_configuration_is_taken_up_without_a_restart() {
    let stand = Stand::dev_with(json!({"gates": {"allow_remove": false}})).await;
    let repository = stand.repository("shop");
    let created = stand.create(&repository).await;
    let remove = json!({"worktree_id": created.id});
    stand.client.refused("worktree::remove", remove.clone(), "W500").await;
    let stored = stand.client.ok("configuration::get", json!({"id": "worktree"})).await;
    let mut value = stored["value"].clone();
    value["gates"]["allow_remove"] = json!(true);
    // What the schema can tell is refused where it is set, and the value before it stays.
    let mut wrong = value.clone();
    wrong["no_such_key"] = json!(1);
    assert!(stand.client.call("configuration::set", json!({"id": "worktree", "value": wrong})).await.is_err());
    stand.client.ok("configuration::set", json!({"id": "worktree", "value": value})).await;
    until("the new configuration", || async { stand.client.call("worktree::remove", remove.clone()).await.ok() }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stored_configuration_wins_over_the_seed() {
    let mut stand = Stand::dev_with(json!({"branch_prefix": "first/"})).await;
    let repository = stand.repository("shop");
    assert!(stand.create(&repository).await.branch.starts_with("first/"));
    let seed = json!({"worktree_root": stand.seal.path().join("worktrees"), "branch_prefix": "second/"});
    std::fs::write(stand.seal.path().join("seed.yaml"), seed.to_string()).unwrap();
    stand.stop_and_restart().await;
    assert!(stand.create(&repository).await.branch.starts_with("first/"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_seed_that_cannot_be_applied_ends_the_worker_and_names_the_key() {
    let seal = crate::support::Seal::new();
    for (key, seed) in [
        ("prune_schedule", json!({"prune_schedule": "0 * * * *"})),
        ("worktree_root", json!({"worktree_root": "relative"})),
        ("branch_prefx", json!({"branch_prefx": "x/"})),
    ] {
        let path = seal.path().join("bad.yaml");
        std::fs::write(&path, seed.to_string()).unwrap();
        let mut command = seal.command(BINARY);
        command.args(["dev", "--port", "0", "--http-port", "0", "--state-dir"]).arg(seal.path().join("state"));
        command.arg("--config").arg(path);
        let mut process = crate::support::Process::start("worktree dev", command);
        let status = process.ended().await;
        assert_eq!(status.code(), Some(1), "{key}: {}", process.log());
        assert!(process.log().contains(key), "`{key}` is not named: {}", process.log());
        assert_eq!(process.lines(), Vec::<String>::new(), "it said that it was ready");
    }
}
