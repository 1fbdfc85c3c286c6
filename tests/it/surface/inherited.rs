//! A registry that the worker of the 0.2.x series has written: its worktrees are listed, claimed, landed and removed.

use serde_json::{Value, json};

use crate::support::stand::Worktree;
use crate::support::{Checkout, Stand};

/// A worktree as the old worker made it, with a record of exactly its fields and no marker.
async fn inherit(stand: &Stand, repository: &Checkout, number: u32, lifecycle: &str, session_id: Value) -> Worktree {
    let id = format!("wt_00000000000{number:x}");
    let branch = format!("iii/{id}");
    let path = stand.seal.path().join("worktrees/old").join(&id);
    repository.git(&["worktree", "add", "--quiet", "--lock", "-b", &branch, path.to_str().unwrap(), "main"]);
    let record = json!({
        "worktree_id": id, "repo_path": repository.text(), "repo_key": format!("{}/.git", repository.text()),
        "path": path, "branch": branch, "base_ref": "main", "base_sha": repository.sha("main"),
        "lifecycle": lifecycle, "session_id": session_id, "dev_port": worktree::model::id::dev_port(&id),
        "created_at": 1_700_000_000_000_u64 + u64::from(number), "updated_at": 1_700_000_000_000_u64,
    });
    stand.client.ok("state::set", json!({"scope": "worktree", "key": id, "value": record})).await;
    let base_sha = repository.sha("main");
    Worktree { id, branch, base_sha, checkout: stand.checkout(path) }
}

/// A job with exactly the fields of the old worker.
async fn inherit_job(stand: &Stand, repository: &Checkout, worktree: &Worktree, job_id: &str, fields: Value) {
    let mut job = json!({
        "job_id": job_id, "worktree_id": worktree.id, "repo_key": format!("{}/.git", repository.text()),
        "repo_path": repository.text(), "worktree_path": worktree.checkout.text(), "branch": worktree.branch,
        "target_branch": "main", "test_cmd": null, "force_restart": false, "keep": false, "phase": "preflight",
        "cas_attempts": 0, "recorded_target_sha": null, "rebased_sha": null, "test_passed_sha": null,
        "merged_sha": null, "done": false, "blocked_code": null, "created_at": 1_700_000_000_000_u64,
        "updated_at": 1_700_000_000_000_u64,
    });
    job.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    stand.client.ok("state::set", json!({"scope": "worktree_land_job", "key": job_id, "value": job})).await;
    let active = json!({"scope": "worktree_land_active", "key": worktree.id, "value": job_id});
    stand.client.ok("state::set", active).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registry_of_the_0_2_worker_is_taken_over() {
    let mut stand = Stand::dev().await;
    let repository = stand.repository("shop");
    let idle = inherit(&stand, &repository, 1, "active", Value::Null).await;
    let held = inherit(&stand, &repository, 2, "claimed", json!("ada")).await;
    let blocked = inherit(&stand, &repository, 3, "land-blocked", Value::Null).await;
    let landing = inherit(&stand, &repository, 4, "landing", json!("ben")).await;
    let gone = inherit(&stand, &repository, 5, "orphaned", Value::Null).await;
    std::fs::remove_dir_all(gone.checkout.path()).unwrap();
    let waiting = landing.checkout.commit("landing", "1\n");
    inherit_job(&stand, &repository, &landing, "job_0000000000a1", json!({})).await;
    let ended = json!({"phase": "done", "done": true, "blocked_code": "W410"});
    inherit_job(&stand, &repository, &blocked, "job_0000000000a2", ended).await;
    stand.stop_and_restart().await;

    // The land that was queued goes on by itself.
    crate::support::until("the land that was queued", || async { (repository.sha("main") == waiting).then_some(()) })
        .await;
    crate::support::until("the end of its bookkeeping", || async {
        stand.client.call("worktree::get", json!({"worktree_id": landing.id})).await.err()
    })
    .await;
    let listed =
        stand.client.ok("worktree::list", json!({"repo_path": repository.text(), "include_status": true})).await;
    let seen: Vec<(&str, &str)> = listed["worktrees"]
        .as_array()
        .unwrap()
        .iter()
        .map(|info| (info["worktree_id"].as_str().unwrap(), info["lifecycle"].as_str().unwrap()))
        .collect();
    let expected = [(&idle, "active"), (&held, "claimed"), (&blocked, "land-blocked"), (&gone, "orphaned")];
    assert_eq!(seen, expected.map(|(worktree, lifecycle)| (worktree.id.as_str(), lifecycle)));
    assert_eq!(listed["unmanaged"], json!([]), "they are ours: {listed}");
    assert_eq!(listed["worktrees"][0]["status"]["clean"], true, "{listed}");

    let by = |worktree: &Worktree, session: &str| json!({"worktree_id": worktree.id, "session_id": session});
    stand.client.refused("worktree::claim", by(&held, "eve"), "W210").await;
    stand.client.ok("worktree::release", by(&held, "ada")).await;
    stand.client.ok("worktree::claim", by(&idle, "eve")).await;
    // Written anew, it keeps what it had.
    let stored = stand.client.ok("state::get", json!({"scope": "worktree", "key": idle.id})).await;
    assert_eq!((&stored["created_at"], &stored["session_id"]), (&json!(1_700_000_000_001_u64), &json!("eve")));

    let mut events = stand.hear().await;
    for worktree in [&idle, &blocked] {
        let head = worktree.checkout.commit(&worktree.id, "1\n");
        let subject = worktree.checkout.git(&["log", "-1", "--format=%s"]);
        stand.land(worktree, json!({"test_cmd": "true"})).await;
        let landed = events.landed(&worktree.id).await;
        assert_eq!(repository.git(&["log", "-1", "--format=%s", landed["merged_sha"].as_str().unwrap()]), subject);
        assert_ne!(landed["merged_sha"], head, "it was rebased onto what landed before");
        assert!(!worktree.checkout.path().exists());
    }
    // Work in them is as safe as in any other.
    held.checkout.write("loose", "x\n");
    stand.client.refused("worktree::remove", json!({"worktree_id": held.id}), "W220").await;
    std::fs::remove_file(held.checkout.path().join("loose")).unwrap();
    held.checkout.commit("unlanded", "1\n");
    stand.client.refused("worktree::remove", json!({"worktree_id": held.id}), "W221").await;
    held.checkout.git(&["reset", "--quiet", "--hard", "HEAD~1"]);
    for worktree in [&held, &gone] {
        assert_eq!(stand.client.ok("worktree::remove", json!({"worktree_id": worktree.id})).await["removed"], true);
    }
    assert_eq!(repository.worktrees(), [repository.path()]);
    assert_eq!(stand.client.ok("state::list", json!({"scope": "worktree"})).await, json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_inherited_directory_that_is_another_one_by_now_is_left_alone() {
    let mut stand = Stand::dev().await;
    let repository = stand.repository("shop");
    let moved = inherit(&stand, &repository, 1, "active", Value::Null).await;
    let aside = stand.seal.path().join("aside");
    std::fs::rename(moved.checkout.path(), &aside).unwrap();
    repository.git(&["clone", "--quiet", &repository.text(), &moved.checkout.text()]);
    stand.stop_and_restart().await;
    for (function, more) in [("remove", json!({})), ("status", json!({})), ("land", json!({"target_branch": "main"}))] {
        let mut request = json!({"worktree_id": moved.id});
        request.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        stand.client.refused(&format!("worktree::{function}"), request, "W202").await;
    }
    assert!(aside.join("README").exists() && moved.checkout.path().join("README").exists());
}
