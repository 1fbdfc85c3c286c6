//! `worktree::remove`.

use serde_json::json;

use super::assert_keys;
use crate::support::{Stand, until};

pub async fn a_clean_worktree_is_removed(stand: Stand) {
    let repository = stand.repository("shop");
    let mut events = stand.hear().await;
    let created = stand.create_with(&repository, json!({"session_id": "ada"})).await;
    let request = json!({"worktree_id": created.id});
    let removed = stand.client.ok("worktree::remove", request.clone()).await;
    assert_eq!(removed, json!({"removed": true, "branch_deleted": false}));
    assert!(!created.checkout.path().exists());
    assert_eq!(repository.worktrees(), [repository.path()]);
    assert!(repository.branch(&created.branch).is_some(), "the branch was not asked for");
    let event = events.next("worktree::removed", &created.id).await;
    assert_keys(
        &event,
        &["worktree_id", "repo_path", "path", "branch", "branch_deleted", "timestamp"],
        &["session_id", "forced"],
    );
    assert_eq!(event["branch_deleted"], false);
    stand.client.refused("worktree::get", request.clone(), "W200").await;
    stand.client.refused("worktree::remove", request, "W200").await;
    // What was moved out of the way is deleted in the background.
    let trash = stand.seal.path().join("worktrees/.trash");
    until("an empty trash", || async {
        std::fs::read_dir(&trash).map_or(true, |mut entries| entries.next().is_none()).then_some(())
    })
    .await;
}

pub async fn uncommitted_work_is_never_removed(stand: Stand) {
    let repository = stand.repository("shop");
    let created = stand.create(&repository).await;
    created.checkout.write("README", "edited\n");
    created.checkout.write("one", "1\n");
    created.checkout.write("two", "2\n");
    let message = stand.client.refused("worktree::remove", json!({"worktree_id": created.id}), "W220").await;
    assert!(message.contains("3 uncommitted") && message.contains("2 untracked"), "the counts are not told: {message}");
    assert_eq!(created.checkout.read("two"), "2\n");
    // Ignored files are nobody's work.
    created.checkout.git(&["checkout", "--quiet", "README"]);
    created.checkout.git(&["clean", "--quiet", "--force"]);
    std::fs::write(repository.path().join(".git/info/exclude"), "*.log\n").unwrap();
    created.checkout.write("debug.log", "x\n");
    assert_eq!(stand.client.ok("worktree::remove", json!({"worktree_id": created.id})).await["removed"], true);
}

pub async fn commits_that_have_not_landed_are_never_removed(stand: Stand) {
    let repository = stand.repository("shop");
    let created = stand.create(&repository).await;
    created.checkout.commit("a", "1\n");
    let head = created.checkout.commit("a", "2\n");
    for delete_branch in [false, true] {
        let request = json!({"worktree_id": created.id, "delete_branch": delete_branch});
        let message = stand.client.refused("worktree::remove", request, "W221").await;
        assert!(message.contains('2'), "the count is not told: {message}");
    }
    assert_eq!(repository.branch(&created.branch), Some(head.clone()));
    assert_eq!(created.checkout.sha("HEAD"), head);
    repository.git(&["merge", "--quiet", "--ff-only", &created.branch]);
    assert_eq!(stand.client.ok("worktree::remove", json!({"worktree_id": created.id})).await["removed"], true);
}

pub async fn a_branch_is_deleted_only_when_asked(stand: Stand) {
    let repository = stand.repository("shop");
    let created = stand.create(&repository).await;
    let request = json!({"worktree_id": created.id, "delete_branch": true});
    let removed = stand.client.ok("worktree::remove", request).await;
    assert_eq!(removed, json!({"removed": true, "branch_deleted": true}));
    assert_eq!(repository.branch(&created.branch), None);
}

pub async fn what_is_half_removed_can_be_removed_again(stand: Stand) {
    let repository = stand.repository("shop");
    // The directory is gone, git still knows of it.
    let one = stand.create(&repository).await;
    std::fs::remove_dir_all(one.checkout.path()).unwrap();
    assert_eq!(stand.client.ok("worktree::remove", json!({"worktree_id": one.id})).await["removed"], true);
    assert_eq!(repository.worktrees(), [repository.path()]);
    // Neither the directory nor git's entry is left.
    let two = stand.create(&repository).await;
    repository.git(&["worktree", "unlock", &two.checkout.text()]);
    repository.git(&["worktree", "remove", &two.checkout.text()]);
    assert_eq!(stand.client.ok("worktree::remove", json!({"worktree_id": two.id})).await["removed"], true);
    let listed = stand.client.ok("worktree::list", json!({})).await;
    assert_eq!(listed["worktrees"], json!([]));
    assert!(repository.branch(&one.branch).is_some() && repository.branch(&two.branch).is_some());
}

pub async fn another_directory_in_its_place_is_not_removed(stand: Stand) {
    let repository = stand.repository("shop");
    let created = stand.create(&repository).await;
    // Somebody moved ours away and put a clone there.
    let aside = stand.seal.path().join("aside");
    std::fs::rename(created.checkout.path(), &aside).unwrap();
    repository.git(&["clone", "--quiet", &repository.text(), &created.checkout.text()]);
    stand.client.refused("worktree::remove", json!({"worktree_id": created.id}), "W202").await;
    assert_eq!(created.checkout.read("README"), "hello\n");
    assert!(aside.join("README").exists());
}
