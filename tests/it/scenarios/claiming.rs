//! `worktree::claim` and `worktree::release`.

use serde_json::json;

use super::assert_keys;
use crate::support::Stand;

pub async fn a_claim_is_exclusive_and_given_back(stand: Stand) {
    let repository = stand.repository("shop");
    let created = stand.create(&repository).await;
    let mut events = stand.hear().await;
    let by = |session: &str| json!({"worktree_id": created.id, "session_id": session});

    let claimed = stand.client.ok("worktree::claim", by("ada")).await;
    assert_keys(&claimed, &["claimed", "session_id", "worktree_id"], &["previous_session_id"]);
    assert_eq!((&claimed["claimed"], &claimed["session_id"]), (&json!(true), &json!("ada")));
    assert!(claimed["previous_session_id"].is_null(), "{claimed}");
    let event = events.next("worktree::claimed", &created.id).await;
    assert_keys(&event, &["worktree_id", "repo_path", "session_id", "timestamp"], &[]);
    assert_eq!(event["session_id"], "ada");
    assert_eq!(stand.lifecycle(&created.id).await, "claimed");

    // Again by the holder: a success, and nothing to do.
    assert_eq!(stand.client.ok("worktree::claim", by("ada")).await["claimed"], true);
    let message = stand.client.refused("worktree::claim", by("ben"), "W210").await;
    assert!(message.contains("ada"), "the holder is not named: {message}");
    let message = stand.client.refused("worktree::release", by("ben"), "W211").await;
    assert!(message.contains("ada"), "the holder is not named: {message}");

    let released = stand.client.ok("worktree::release", by("ada")).await;
    assert_eq!(released, json!({"released": true, "worktree_id": created.id}));
    let event = events.next("worktree::released", &created.id).await;
    assert_keys(&event, &["worktree_id", "repo_path", "session_id", "timestamp"], &[]);
    assert_eq!(event["session_id"], "ada");
    assert_eq!(stand.lifecycle(&created.id).await, "active");
    assert_eq!(stand.client.ok("worktree::claim", by("ben")).await["session_id"], "ben");
}

pub async fn force_is_switched_off_by_default(stand: Stand) {
    let repository = stand.repository("shop");
    let created = stand.create_with(&repository, json!({"session_id": "ada"})).await;
    let forced = json!({"worktree_id": created.id, "session_id": "ben", "force": true});
    for function in ["worktree::claim", "worktree::release"] {
        let message = stand.client.refused(function, forced.clone(), "W501").await;
        assert!(message.contains("gates.allow_force"), "the key is not named: {message}");
    }
    let remove = json!({"worktree_id": created.id, "force": true});
    assert!(stand.client.refused("worktree::remove", remove, "W501").await.contains("gates.allow_force"));
    let land = json!({"worktree_id": created.id, "target_branch": "main", "force_restart": true});
    assert!(stand.client.refused("worktree::land", land, "W501").await.contains("gates.allow_force"));
    let got = stand.client.ok("worktree::get", json!({"worktree_id": created.id})).await;
    assert_eq!(got["session_id"], "ada");
}
