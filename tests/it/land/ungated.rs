//! Lands without a gate: nothing needs the files of the worktree, so they are left alone until it is kept.

use serde_json::json;

use crate::support::seal::can_replay;
use crate::support::{Seal, Stand, until};

/// What is kept of a worktree whose branch has landed follows the target, with every change in it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worktree_that_has_to_stay_follows_with_its_changes() {
    let stand = Stand::dev().await;
    let repository = stand.repository("shop");
    let mut events = stand.hear().await;
    let created = stand.create(&repository).await;
    created.checkout.commit("apples", "3\n");
    created.checkout.git(&["update-index", "--assume-unchanged", "README"]);
    created.checkout.write("README", "only here\n");
    repository.commit("pears", "4\n");
    stand.land(&created, json!({})).await;
    let event = events.landed(&created.id).await;
    let merged = event["merged_sha"].as_str().unwrap();
    let reason = event["kept_reason"].as_str().unwrap();
    assert!(reason.contains("told not to look at") && !reason.contains("stays at"), "{event:#}");
    assert_eq!(repository.sha("main"), merged);
    assert_eq!(created.checkout.sha("HEAD"), merged);
    assert_eq!(repository.sha(&created.branch), merged);
    assert_eq!(created.checkout.read("README"), "only here\n");
    assert_eq!(created.checkout.read("pears"), "4\n");
    assert_eq!(created.checkout.git(&["status", "--porcelain"]), "");
}

/// Where that would overwrite something, it stays as it is, and the event says so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worktree_that_cannot_follow_stays_as_it_is() {
    let stand = Stand::dev_in(Seal::calm(), json!({}), &[]).await;
    let repository = stand.repository("shop");
    let mut events = stand.hear().await;
    std::fs::write(repository.path().join(".git/info/exclude"), "pears\n").unwrap();
    let created = stand.create(&repository).await;
    let head = created.checkout.commit("apples", "3\n");
    created.checkout.git(&["update-index", "--assume-unchanged", "README"]);
    created.checkout.write("README", "only here\n");
    created.checkout.write("pears", "ignored, and precious\n");
    repository.write("pears", "4\n");
    repository.git(&["add", "--force", "pears"]);
    repository.git(&["commit", "--quiet", "--message", "Add pears"]);
    let before = repository.sha("main");
    stand.land(&created, json!({})).await;
    if can_replay() {
        let event = events.landed(&created.id).await;
        let reason = event["kept_reason"].as_str().unwrap();
        let told = ["stays at", "pears", "git rebase main"];
        assert!(told.iter().all(|words| reason.contains(words)), "{event:#}");
        assert_eq!(repository.sha("main"), event["merged_sha"].as_str().unwrap());
    } else {
        // The worktree would have to follow before the land.
        let event = events.blocked(&created.id).await;
        assert_eq!((&event["code"], &event["reason"]), (&json!("W102"), &json!("rebase_failed")), "{event:#}");
        assert!(event["message"].as_str().unwrap().contains("pears"), "{event:#}");
        assert_eq!(repository.sha("main"), before);
    }
    assert_eq!((created.checkout.sha("HEAD"), repository.sha(&created.branch)), (head.clone(), head));
    assert_eq!(created.checkout.read("pears"), "ignored, and precious\n");
    assert_eq!(created.checkout.read("README"), "only here\n");
}

/// A land that is blocked has moved nothing, not even its own branch, unless git had to rebase that to know.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_land_that_is_blocked_leaves_its_worktree_where_it_was() {
    let stand = Stand::dev_in(Seal::calm(), json!({}), &[]).await;
    let repository = stand.repository("shop");
    let mut events = stand.hear().await;
    let created = stand.create(&repository).await;
    let head = created.checkout.commit("apples", "3\n");
    repository.commit("pears", "4\n");
    repository.write("apples", "mine\n");
    let base = stand.client.ok("worktree::get", json!({"worktree_id": created.id})).await["base_sha"].clone();
    stand.land(&created, json!({})).await;
    let event = events.blocked(&created.id).await;
    assert_eq!(event["code"], "W413", "{event:#}");
    let at = created.checkout.sha("HEAD");
    assert_eq!(at, repository.sha(&created.branch));
    assert_eq!(created.checkout.git(&["status", "--porcelain"]), "");
    let record = stand.client.ok("worktree::get", json!({"worktree_id": created.id})).await;
    let stands_on = if can_replay() {
        assert_eq!(at, head);
        base
    } else {
        assert_eq!(created.checkout.read("apples"), "3\n");
        json!(repository.sha("main"))
    };
    assert_eq!(record["base_sha"], stands_on, "it is measured from where it stands");
    assert_eq!(created.checkout.sha("HEAD^"), stands_on.as_str().unwrap());
    // The same with what is not committed: found right before the target would move.
    std::fs::remove_file(repository.path().join("apples")).unwrap();
    created.checkout.write("loose", "x\n");
    let before = repository.sha("main");
    stand.land(&created, json!({})).await;
    let event = events.blocked(&created.id).await;
    assert_eq!((&event["code"], &event["reason"]), (&json!("W220"), &json!("dirty")), "{event:#}");
    assert_eq!(repository.sha("main"), before);
    std::fs::remove_file(created.checkout.path().join("loose")).unwrap();
    stand.land(&created, json!({})).await;
    assert_eq!(events.landed(&created.id).await["kept_reason"], json!(null));
    // Also where there is nothing to land.
    let empty = stand.create(&repository).await;
    empty.checkout.write("loose", "x\n");
    stand.land(&empty, json!({})).await;
    assert_eq!(events.blocked(&empty.id).await["code"], "W220");
    assert_eq!(empty.checkout.read("loose"), "x\n");
    until("the end of the worktree", || async { (!created.checkout.path().exists()).then_some(()) }).await;
}

/// The worktree was looked at before the target moved. What somebody writes there after that comes back with it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_written_right_after_the_target_has_moved_is_not_lost() {
    let stand = Stand::dev_in(Seal::calm(), json!({}), &[]).await;
    let repository = stand.repository("shop");
    let mut events = stand.hear().await;
    let mut kept = 0;
    for number in 0..12 {
        let created = stand.create(&repository).await;
        created.checkout.commit(&format!("apples-{number}"), "3\n");
        let (main, before) = (repository.path().join(".git/refs/heads/main"), repository.sha("main"));
        let loose = created.checkout.path().join("loose");
        let writer = std::thread::spawn(move || {
            while std::fs::read_to_string(&main).map_or(true, |now| now.trim() == before) {
                std::thread::sleep(std::time::Duration::from_micros(100));
            }
            std::fs::write(loose, "x\n").is_ok()
        });
        stand.land(&created, json!({})).await;
        let event = events.landed(&created.id).await;
        let written = tokio::task::spawn_blocking(move || writer.join().unwrap()).await.unwrap();
        if written {
            assert_eq!(created.checkout.read("loose"), "x\n", "{event:#}");
            assert!(event["kept_reason"].as_str().is_some_and(|why| why.contains("1 uncommitted file")), "{event:#}");
            kept += 1;
        }
    }
    assert!(kept > 0, "each directory was gone before anything could be written");
}
