//! What a status says when somebody or something works against it.

use std::time::{Duration, Instant};

use serde_json::json;

use super::canary;
use crate::support::Stand;

#[tokio::test(flavor = "multi_thread")]
async fn c26_a_branch_that_was_switched_by_hand_is_not_landed() {
    let stand = Stand::dev().await;
    let repository = stand.repository("shop");
    let mut events = stand.hear().await;
    let created = stand.create(&repository).await;
    created.checkout.commit("apples", "3\n");
    created.checkout.git(&["checkout", "--quiet", "-b", "elsewhere"]);
    let head = created.checkout.commit("pears", "4\n");
    let main = repository.sha("main");
    let status = stand.client.ok("worktree::status", json!({"worktree_id": created.id})).await;
    assert_eq!((&status["branch"], &status["head_sha"]), (&json!(created.branch), &json!(head)), "{status}");
    let land = json!({"worktree_id": created.id, "target_branch": "main"});
    match stand.client.call("worktree::land", land).await {
        Err((code, message)) => assert!(code == "W203" && message.contains("elsewhere"), "{code}: {message}"),
        Ok(_) => {
            let event = events.blocked(&created.id).await;
            assert_eq!((&event["code"], &event["reason"]), (&json!("W203"), &json!("branch_mismatch")), "{event}");
            assert!(event["message"].as_str().unwrap().contains("elsewhere"), "{event}");
        }
    }
    assert_eq!((repository.sha("main"), created.checkout.sha("HEAD")), (main, head.clone()));
    // The commits of the other branch keep the worktree.
    stand.client.refused("worktree::remove", json!({"worktree_id": created.id}), "W221").await;
    created.checkout.git(&["checkout", "--quiet", &created.branch]);
    stand.land(&created, json!({})).await;
    events.landed(&created.id).await;
    assert_eq!(repository.branch("elsewhere"), Some(head));
}

#[tokio::test(flavor = "multi_thread")]
async fn c27_a_monitor_or_a_filter_that_hangs_costs_no_answer() {
    let stand = Stand::dev().await;
    let repository = stand.repository("shop");
    repository.commit(".gitattributes", "*.txt filter=slow\n");
    let hung = stand.create(&repository).await;
    let fine = stand.create(&stand.repository("farm")).await;
    let (program, seen) = canary(stand.seal.path(), "sleep 300");
    repository.git(&["config", "core.fsmonitor", &program]);
    let begun = Instant::now();
    let status = stand.client.ok("worktree::status", json!({"worktree_id": hung.id})).await;
    assert_eq!(status["clean"], true, "{status}");
    assert!(!seen.exists());
    repository.git(&["config", "--unset", "core.fsmonitor"]);
    // One that is allowed is bounded, and one worktree without an answer does not cost the others theirs.
    stand.configure(json!({"git": {"filters": ["slow"]}})).await;
    stand.configure(json!({"git_timeout_ms": 1_000})).await;
    repository.git(&["config", "filter.slow.clean", &program]);
    hung.checkout.write("new.txt", "x\n");
    hung.checkout.try_git(&["-c", "filter.slow.clean=cat", "add", "new.txt"]);
    hung.checkout.write("new.txt", "y\n");
    let listed = stand.client.ok("worktree::list", json!({"include_status": true})).await;
    assert!(listed["worktrees"][0]["status"].is_null(), "{listed}");
    assert_eq!(listed["worktrees"][1]["status"]["clean"], true, "{listed}");
    stand.client.refused("worktree::status", json!({"worktree_id": hung.id}), "W101").await;
    stand.client.refused("worktree::remove", json!({"worktree_id": hung.id}), "W220").await;
    assert!(begun.elapsed() < Duration::from_secs(40), "{:?}", begun.elapsed());
    stand.client.ok("worktree::remove", json!({"worktree_id": fine.id})).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn c23_files_that_nobody_knows_count_whatever_is_configured() {
    let stand = Stand::dev().await;
    let repository = stand.repository("shop");
    let created = stand.create(&repository).await;
    created.checkout.write("loose/deep/file", "x\n");
    repository.git(&["config", "status.showUntrackedFiles", "no"]);
    std::fs::write(stand.seal.home().join("ignore"), "nothing\n").unwrap();
    let status = stand.client.ok("worktree::status", json!({"worktree_id": created.id})).await;
    assert_eq!((&status["clean"], &status["untracked"]), (&json!(false), &json!(1)), "{status}");
    stand.client.refused("worktree::remove", json!({"worktree_id": created.id}), "W220").await;
}
