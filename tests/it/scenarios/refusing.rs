//! Requests that are wrong, and the codes they get.

use serde_json::{Value, json};

use crate::support::Stand;

const MISSING: &str = "wt_0123456789ab";

pub async fn a_request_that_is_wrong_is_refused_by_field(stand: Stand) {
    for (function, request, field) in [
        ("create", json!({}), "repo_path"),
        ("create", json!({"repo_path": ""}), "repo_path"),
        ("create", json!({"repo_path": 7}), "repo_path"),
        ("create", json!({"repo_path": "/x", "base_ref": ""}), "base_ref"),
        ("create", json!({"repo_path": "/x", "branch": ""}), "branch"),
        ("create", json!({"repo_path": "/x", "branch": ["a"]}), "branch"),
        ("create", json!({"repo_path": "/x", "session_id": ""}), "session_id"),
        ("create", json!({"repo_path": "/x", "pr": "seven"}), "pr"),
        ("create", json!({"repo_path": "/x", "pr": -7}), "pr"),
        ("create", json!({"repo_path": "/x", "pr": 7, "base_ref": "main"}), "base_ref"),
        ("list", json!({"include_status": "yes"}), "include_status"),
        ("get", json!({}), "worktree_id"),
        ("get", json!({"worktree_id": ""}), "worktree_id"),
        ("status", json!({"worktree_id": null}), "worktree_id"),
        ("validate", json!({}), "path"),
        ("validate", json!({"path": ""}), "path"),
        ("claim", json!({"worktree_id": MISSING}), "session_id"),
        ("claim", json!({"worktree_id": MISSING, "session_id": ""}), "session_id"),
        ("claim", json!({"worktree_id": MISSING, "session_id": "a", "force": 1}), "force"),
        ("release", json!({"session_id": "a"}), "worktree_id"),
        ("remove", json!({"worktree_id": MISSING, "delete_branch": "no"}), "delete_branch"),
        ("prune", json!({"dry_run": "maybe"}), "dry_run"),
        ("land", json!({"worktree_id": MISSING}), "target_branch"),
        ("land", json!({"worktree_id": MISSING, "target_branch": ""}), "target_branch"),
        ("land", json!({"worktree_id": MISSING, "target_branch": "main", "keep": "x"}), "keep"),
        ("land", json!({"worktree_id": MISSING, "target_branch": "main", "test_cmd": 5}), "test_cmd"),
        ("land-step", json!({}), "job_id"),
    ] {
        let message = stand.client.refused(&format!("worktree::{function}"), request, "W001").await;
        assert!(message.contains(field), "{function}: `{field}` is not named: {message}");
    }
    for not_an_object in [json!(null), json!([]), json!("x"), json!(7)] {
        stand.client.refused("worktree::get", not_an_object, "W001").await;
    }
    stand.client.refused("worktree::validate", json!({"path": "relative"}), "W111").await;
}

pub async fn a_worktree_that_does_not_exist(stand: Stand) {
    for (function, more) in [
        ("get", json!({})),
        ("status", json!({})),
        ("claim", json!({"session_id": "ada"})),
        ("release", json!({"session_id": "ada"})),
        ("remove", json!({})),
        ("land", json!({"target_branch": "main"})),
    ] {
        for id in [MISSING, "not an id", "../../etc"] {
            let mut request = more.clone();
            request["worktree_id"] = Value::from(id);
            stand.client.refused(&format!("worktree::{function}"), request, "W200").await;
        }
    }
    // A job that is unknown is as good as done: the queue may deliver it again.
    let step = stand.client.ok("worktree::land-step", json!({"job_id": "job_0123456789ab"})).await;
    assert_eq!((&step["job_id"], &step["done"]), (&json!("job_0123456789ab"), &json!(true)));
}

pub async fn land_refuses_what_cannot_land(stand: Stand) {
    let repository = stand.repository("shop");
    let created = stand.create(&repository).await;
    created.checkout.commit("a", "1\n");
    let onto = |target: &str| json!({"worktree_id": created.id, "target_branch": target});
    stand.client.refused("worktree::land", onto("no-such-branch"), "W112").await;
    stand.client.refused("worktree::land", onto("-main"), "W111").await;
    let message = stand.client.refused("worktree::land", onto(&created.branch), "W001").await;
    assert!(message.contains("target_branch"), "{message}");
    // A tag of that name is not a branch.
    repository.git(&["tag", "v1"]);
    stand.client.refused("worktree::land", onto("v1"), "W112").await;
    assert_eq!(stand.lifecycle(&created.id).await, "active");
}

pub async fn unknown_fields_are_ignored(stand: Stand) {
    let listed = stand.client.ok("worktree::list", json!({"_caller_worker_id": "x", "colour": "red"})).await;
    assert_eq!(listed["worktrees"], json!([]));
}
