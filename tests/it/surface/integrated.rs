//! Whether work has reached its target: each reason on a repository that has exactly that state, each near miss told as
//! not integrated (C29, C61).

use serde_json::{Value, json};

use crate::support::stand::Worktree;
use crate::support::{Checkout, Stand};

async fn status(stand: &Stand, worktree: &Worktree) -> Value {
    stand.client.ok("worktree::status", json!({"worktree_id": worktree.id})).await
}

/// What the three reads say, which is the same.
async fn reason(stand: &Stand, worktree: &Worktree) -> Value {
    let status = status(stand, worktree).await;
    assert_eq!(status["integrated"], status["integration_reason"].is_string(), "{status}");
    let got = stand.client.ok("worktree::get", json!({"worktree_id": worktree.id})).await;
    assert_eq!(got["status"]["integration_reason"], status["integration_reason"]);
    let listed = stand.client.ok("worktree::list", json!({"include_status": true})).await;
    let infos = listed["worktrees"].as_array().unwrap();
    let info = infos.iter().find(|info| info["worktree_id"] == worktree.id).unwrap();
    assert_eq!(info["status"]["integration_reason"], status["integration_reason"]);
    status["integration_reason"].clone()
}

async fn is(stand: &Stand, worktree: &Worktree, expected: &str) {
    assert_eq!(reason(stand, worktree).await, expected);
}

async fn is_not(stand: &Stand, worktree: &Worktree) {
    assert_eq!(reason(stand, worktree).await, Value::Null);
}

/// Thirty lines, of which the fifteenth is this.
fn lines(middle: &str) -> String {
    (1..=30).map(|n| if n == 15 { format!("{middle}\n") } else { format!("{n}\n") }).collect()
}

fn squash(repository: &Checkout, branch: &str) {
    repository.git(&["merge", "--quiet", "--squash", branch]);
    repository.git(&["commit", "--quiet", "--message", "squashed"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn c29_same_commit_and_ancestor() {
    let stand = Stand::dev().await;
    let repository = stand.repository("shop");
    let one = stand.create(&repository).await;
    is(&stand, &one, "same_commit").await;
    repository.commit("a", "1\n");
    is(&stand, &one, "ancestor").await;
    let two = stand.create(&repository).await;
    two.checkout.commit("b", "1\n");
    is_not(&stand, &two).await;
    repository.git(&["merge", "--quiet", "--no-ff", "--message", "merged", &two.branch]);
    is(&stand, &two, "ancestor").await;
    // One commit more, and it is not.
    two.checkout.commit("b", "2\n");
    is_not(&stand, &two).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn c29_no_added_changes() {
    let stand = Stand::dev().await;
    let repository = stand.repository("shop");
    let one = stand.create(&repository).await;
    one.checkout.commit("README", "changed\n");
    repository.commit("a", "1\n");
    is_not(&stand, &one).await;
    // Taken back: there are commits, and they change nothing.
    one.checkout.commit("README", "hello\n");
    is(&stand, &one, "no_added_changes").await;
    // An empty commit says nothing either; a mode of a file does.
    one.checkout.git(&["commit", "--quiet", "--allow-empty", "--message", "nothing"]);
    is(&stand, &one, "no_added_changes").await;
    one.checkout.git(&["update-index", "--chmod=+x", "README"]);
    one.checkout.git(&["commit", "--quiet", "--message", "executable"]);
    is_not(&stand, &one).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn c29_trees_match() {
    let stand = Stand::dev().await;
    let repository = stand.repository("shop");
    let one = stand.create(&repository).await;
    one.checkout.commit("a", "1\n");
    one.checkout.commit("b", "1\n");
    repository.commit("b", "1\n");
    is_not(&stand, &one).await;
    repository.commit("a", "1\n");
    is(&stand, &one, "trees_match").await;
    // White space is a difference.
    one.checkout.commit("b", "1 \n");
    is_not(&stand, &one).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn c29_merge_adds_nothing() {
    let stand = Stand::dev().await;
    let repository = stand.repository("shop");
    let one = stand.create(&repository).await;
    one.checkout.commit("a", "1\n");
    one.checkout.commit("b", "1\n");
    repository.commit("other", "x\n");
    squash(&repository, &one.branch);
    is(&stand, &one, "merge_adds_nothing").await;
    // The target took one of two files only.
    let two = stand.create(&repository).await;
    two.checkout.commit("c", "1\n");
    two.checkout.commit("d", "1\n");
    repository.commit("c", "1\n");
    is_not(&stand, &two).await;
    // What the target took is in its history, also when it was taken back later.
    repository.git(&["revert", "--no-edit", "HEAD~1"]);
    is(&stand, &one, "patch_id_match").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn c29_patch_id_match() {
    let stand = Stand::dev().await;
    let repository = stand.repository("shop");
    repository.commit("file", &lines("fifteen"));
    let one = stand.create(&repository).await;
    one.checkout.commit("file", &lines("half"));
    one.checkout.commit("file", &lines("whole"));
    squash(&repository, &one.branch);
    // The target edits the same line again: a merge conflicts, the squashed commit is there all the same.
    repository.commit("file", &lines("and on"));
    is(&stand, &one, "patch_id_match").await;
    // A change that nearly is the same.
    let two = stand.create(&repository).await;
    two.checkout.commit("file", &lines("twice"));
    repository.commit("file", &lines("twice "));
    repository.commit("file", &lines("once"));
    is_not(&stand, &two).await;
    // A change spread over two commits of the target is no squash of this one.
    let three = stand.create(&repository).await;
    three.checkout.write("left", "1\n");
    three.checkout.write("right", "1\n");
    three.checkout.git(&["add", "--all"]);
    three.checkout.git(&["commit", "--quiet", "--message", "both"]);
    for (file, text) in [("left", "1\n"), ("right", "1\n"), ("left", "2\n"), ("right", "2\n")] {
        repository.commit(file, text);
    }
    is_not(&stand, &three).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn c61_the_recorded_base_is_what_counts_and_its_upstream_too() {
    let stand = Stand::dev().await;
    let repository = stand.repository("shop");
    repository.git(&["branch", "feature"]);
    let one = stand.create_with(&repository, json!({"base_ref": "feature"})).await;
    one.checkout.commit("a", "1\n");
    // What main has does not make it part of feature.
    repository.git(&["merge", "--quiet", "--ff-only", &one.branch]);
    is_not(&stand, &one).await;
    repository.git(&["branch", "--force", "feature", &one.branch]);
    is(&stand, &one, "same_commit").await;
    let measured = status(&stand, &one).await;
    assert_eq!((&measured["ahead"], &measured["behind"]), (&json!(1), &json!(0)), "{measured}");

    // A base that is no branch is meant for the branch of the primary checkout.
    let two = stand.create_with(&repository, json!({"base_ref": "main~1"})).await;
    is(&stand, &two, "ancestor").await;
    two.checkout.commit("b", "1\n");
    is_not(&stand, &two).await;
    // Merged on the server, fetched, and not yet pulled: the upstream's tip counts.
    repository.git(&["remote", "add", "origin", &repository.text()]);
    repository.git(&["update-ref", "refs/remotes/origin/main", &two.branch]);
    is_not(&stand, &two).await;
    repository.git(&["config", "branch.main.remote", "origin"]);
    repository.git(&["config", "branch.main.merge", "refs/heads/main"]);
    repository.git(&["config", "remote.origin.fetch", "+refs/heads/*:refs/remotes/origin/*"]);
    is(&stand, &two, "same_commit").await;
    assert_eq!(status(&stand, &two).await["unpushed"], 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn c29_what_cannot_be_told_is_not_integrated() {
    let stand = Stand::dev().await;
    let repository = stand.repository("shop");
    let one = stand.create(&repository).await;
    let head = one.checkout.commit("a", "1\n");
    repository.commit("b", "1\n");
    // Binary files are in no patch, unrelated histories have no common ground.
    let two = stand.create(&repository).await;
    two.checkout.write("image", "\0one");
    two.checkout.git(&["add", "image"]);
    two.checkout.git(&["commit", "--quiet", "--message", "image"]);
    repository.commit("image", "\0one");
    repository.commit("image", "\0two");
    is_not(&stand, &two).await;
    let three = stand.create(&repository).await;
    three.checkout.git(&["checkout", "--quiet", "--orphan", "lost"]);
    three.checkout.git(&["commit", "--quiet", "--message", "lost"]);
    three.checkout.commit("c", "1\n");
    is_not(&stand, &three).await;
    // A tree that is gone from the store.
    let tree = one.checkout.git(&["rev-parse", &format!("{head}^{{tree}}")]);
    let (dir, file) = tree.split_at(2);
    std::fs::remove_file(repository.path().join(".git/objects").join(dir).join(file)).unwrap();
    let listed = stand.client.ok("worktree::list", json!({"include_status": true})).await;
    for info in listed["worktrees"].as_array().unwrap() {
        assert!(info["status"].is_null() || info["status"]["integrated"] == false, "{info}");
    }
    let removal = stand.client.call("worktree::remove", json!({"worktree_id": one.id})).await;
    assert!(matches!(removal, Err((code, _)) if code == "W220" || code == "W221"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_memory_of_the_past_does_not_tell_of_the_present() {
    let stand = Stand::dev().await;
    let repository = stand.repository("shop");
    let one = stand.create(&repository).await;
    one.checkout.commit("a", "1\n");
    for _ in 0..2 {
        is_not(&stand, &one).await;
        let measured = status(&stand, &one).await;
        assert_eq!((&measured["ahead"], &measured["unpushed"]), (&json!(1), &json!(1)), "{measured}");
    }
    repository.git(&["merge", "--quiet", "--ff-only", &one.branch]);
    is(&stand, &one, "same_commit").await;
    repository.git(&["update-ref", "refs/remotes/origin/x", &one.branch]);
    assert_eq!(status(&stand, &one).await["unpushed"], 0);
    repository.git(&["update-ref", "-d", "refs/remotes/origin/x"]);
    assert_eq!(status(&stand, &one).await["unpushed"], 1);
    repository.git(&["reset", "--quiet", "--hard", "HEAD~1"]);
    is_not(&stand, &one).await;
}
