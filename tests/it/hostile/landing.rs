//! Landing beside people and programs that do something else at the same time.

use std::path::Path;

use serde_json::{Value, json};

use crate::support::{Gate, Stand};

#[tokio::test(flavor = "multi_thread")]
async fn c46_a_target_that_is_checked_out_elsewhere_moves_with_its_checkout_or_not_at_all() {
    let stand = Stand::dev().await;
    let repository = stand.repository("shop");
    repository.git(&["checkout", "--quiet", "-b", "desk"]);
    let elsewhere = stand.checkout(stand.seal.path().join("elsewhere"));
    repository.git(&["worktree", "add", "--quiet", elsewhere.path().to_str().unwrap(), "main"]);
    let mut events = stand.hear().await;
    let created = stand.create(&repository).await;
    let head = created.checkout.commit("README", "new\n");
    elsewhere.write("README", "being edited\n");
    let before = repository.sha("refs/heads/main");
    stand.land(&created, json!({})).await;
    let event = events.blocked(&created.id).await;
    assert_eq!(event["code"], "W413", "{event}");
    assert_eq!(repository.sha("refs/heads/main"), before);
    assert_eq!(repository.branch(&created.branch), Some(head.clone()), "the source was deleted");
    elsewhere.git(&["checkout", "--quiet", "README"]);
    stand.land(&created, json!({})).await;
    assert_eq!(events.landed(&created.id).await["merged_sha"], head);
    assert_eq!((elsewhere.sha("HEAD"), elsewhere.read("README")), (head, "new\n".to_owned()));
    assert_eq!(elsewhere.git(&["status", "--porcelain"]), "");
    assert_eq!(repository.git(&["symbolic-ref", "--short", "HEAD"]), "desk");
}

#[tokio::test(flavor = "multi_thread")]
async fn c47_the_rebase_of_somebody_else_is_refused_and_left_alone() {
    let stand = Stand::dev().await;
    let repository = stand.repository("shop");
    let created = stand.create(&repository).await;
    created.checkout.commit("README", "mine\n");
    repository.commit("README", "theirs\n");
    assert!(!created.checkout.try_git(&["rebase", "main"]).status.success());
    created.checkout.write("README", "half resolved\n");
    let todo = created.checkout.git(&["rev-parse", "--git-path", "rebase-merge/git-rebase-todo"]);
    let state = || {
        let at = created.checkout.path().join(Path::new(&todo));
        (std::fs::read(at).unwrap(), created.checkout.read("README"), created.checkout.git(&["status", "--porcelain"]))
    };
    let (before, main) = (state(), repository.sha("main"));
    let land = json!({"worktree_id": created.id, "target_branch": "main"});
    stand.client.refused("worktree::land", land, "W402").await;
    assert_eq!((state(), repository.sha("main")), (before, main));
    // It is theirs to finish, and lands then.
    created.checkout.write("README", "resolved\n");
    created.checkout.git(&["add", "README"]);
    created.checkout.git(&["rebase", "--continue"]);
    let mut events = stand.hear().await;
    stand.land(&created, json!({})).await;
    events.landed(&created.id).await;
    assert_eq!(repository.read("README"), "resolved\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn c48_nothing_lands_over_an_operation_that_is_open_at_the_target() {
    let stand = Stand::dev().await;
    let repository = stand.repository("shop");
    repository.git(&["checkout", "--quiet", "-b", "side"]);
    repository.commit("README", "side\n");
    repository.git(&["checkout", "--quiet", "main"]);
    repository.commit("README", "main\n");
    let mut events = stand.hear().await;
    let created = stand.create(&repository).await;
    created.checkout.commit("apples", "3\n");
    let before = repository.sha("main");
    for operation in [["merge", "side"], ["cherry-pick", "side"], ["revert", "HEAD~1"]] {
        repository
            .try_git(&[operation.as_slice(), if operation[0] == "revert" { &["--no-edit"] } else { &[] }].concat());
        let open = repository.git(&["status"]);
        if !open.contains("Unmerged paths") {
            repository.git(&["reset", "--quiet", "--hard", &before]);
            continue;
        }
        stand.land(&created, json!({})).await;
        let event = events.blocked(&created.id).await;
        assert_eq!(event["code"], "W413", "{operation:?}: {event}");
        assert_eq!((repository.sha("refs/heads/main"), repository.git(&["status"])), (before.clone(), open));
        repository.git(&[operation[0], "--abort"]);
    }
    // Conflict markers that were committed by hand are the owner's; a conflict in the worktree never lands.
    repository.commit("apples", "9\n");
    stand.land(&created, json!({})).await;
    assert_eq!(events.blocked(&created.id).await["code"], "W410");
    stand.client.refused("worktree::land", json!({"worktree_id": created.id, "target_branch": "main"}), "W402").await;
    assert!(!repository.git(&["show", "main:apples"]).contains("<<<<"));
}

#[tokio::test(flavor = "multi_thread")]
async fn c50_c54_lands_of_one_file_keep_each_others_changes() {
    let stand = Stand::dev().await;
    let repository = stand.repository("shop");
    let lines = |changed: &[usize]| {
        (0..60).map(|n| format!("line {n}{}\n", if changed.contains(&n) { " changed" } else { "" })).collect::<String>()
    };
    repository.commit("list", &lines(&[]));
    let mut events = stand.hear().await;
    let gate = Gate::new(&stand.seal, "batch");
    let mut all = Vec::new();
    for n in 0..4 {
        let created = stand.create(&repository).await;
        created.checkout.commit("list", &lines(&[n * 15]));
        stand.land(&created, json!({"test_cmd": gate.command()})).await;
        all.push(created);
    }
    let early = repository.sha("main");
    gate.started().await;
    stand.client.refused("worktree::land", json!({"worktree_id": all[0].id, "target_branch": "main"}), "W401").await;
    gate.end(0);
    let mut seen = early;
    for created in &all {
        let merged = events.landed(&created.id).await["merged_sha"].as_str().unwrap().to_owned();
        // Each forward from the one before, nothing twice, nothing reverted.
        assert_eq!(repository.git(&["rev-list", "--count", &format!("{seen}..{merged}")]), "1");
        repository.git(&["merge-base", "--is-ancestor", &seen, &merged]);
        seen = merged;
    }
    assert_eq!(repository.read("list"), lines(&[0, 15, 30, 45]));
    assert_eq!(gate.runs().len(), 4, "each was gated once, on top of those before it");
}

#[tokio::test(flavor = "multi_thread")]
async fn c52_c19_a_fast_forward_is_one_whatever_else_bears_the_name_of_the_target() {
    let stand = Stand::dev().await;
    let repository = stand.repository("shop");
    let origin = stand.seal.path().join("origin.git");
    repository.git(&["clone", "--quiet", "--bare", &repository.text(), origin.to_str().unwrap()]);
    repository.git(&["remote", "add", "origin", origin.to_str().unwrap()]);
    repository.git(&["fetch", "--quiet", "origin"]);
    repository.git(&["branch", "--quiet", "--set-upstream-to=origin/main", "main"]);
    // The upstream has a commit that conflicts with what lands; the local target, which is what was named, has not.
    let first = repository.sha("main");
    repository.commit("apples", "theirs\n");
    repository.git(&["push", "--quiet", "origin", "main"]);
    repository.git(&["reset", "--quiet", "--hard", &first]);
    let mut events = stand.hear().await;
    let created = stand.create(&repository).await;
    let head = created.checkout.commit("apples", "ours\n");
    stand.land(&created, json!({})).await;
    assert_eq!(events.landed(&created.id).await["merged_sha"], head);
    assert_eq!(repository.sha("refs/heads/main"), head);
}

#[tokio::test(flavor = "multi_thread")]
async fn c59_a_land_without_a_gate_says_so_and_a_gate_that_did_not_run_is_no_pass() {
    let stand = Stand::dev().await;
    let repository = stand.repository("shop");
    let mut events = stand.hear().await;
    let created = stand.create(&repository).await;
    created.checkout.commit("apples", "3\n");
    for empty in ["", "  "] {
        let land = json!({"worktree_id": created.id, "target_branch": "main", "test_cmd": empty});
        stand.client.refused("worktree::land", land, "W001").await;
    }
    let main = repository.sha("main");
    stand.land(&created, json!({"test_cmd": "no-such-program-anywhere"})).await;
    let event = events.blocked(&created.id).await;
    assert_eq!((&event["code"], &event["reason"]), (&json!("W414"), &json!("gate_unavailable")), "{event}");
    assert_eq!(repository.sha("main"), main);
    stand.land(&created, json!({"keep": true, "test_cmd": "true"})).await;
    assert_eq!(events.landed(&created.id).await["gated"], true);
    created.checkout.commit("apples", "4\n");
    stand.land(&created, json!({})).await;
    assert_eq!(events.landed(&created.id).await["gated"], false);
}

#[tokio::test(flavor = "multi_thread")]
async fn c61_what_was_started_from_a_feature_is_measured_against_it() {
    let stand = Stand::dev().await;
    let repository = stand.repository("shop");
    repository.git(&["checkout", "--quiet", "-b", "feature"]);
    repository.commit("a", "1\n");
    let tip = repository.commit("b", "1\n");
    repository.git(&["checkout", "--quiet", "main"]);
    let created = stand.create_with(&repository, json!({"base_ref": "feature"})).await;
    created.checkout.commit("c", "1\n");
    let got = stand.client.ok("worktree::get", json!({"worktree_id": created.id})).await;
    assert_eq!((&got["base_ref"], &got["base_sha"]), (&json!("feature"), &json!(tip)), "{got}");
    let counts = |value: &Value| (value["ahead"].as_u64(), value["behind"].as_u64());
    assert_eq!(counts(&got["status"]), (Some(1), Some(0)), "{got}");
    // Merged into the feature, not into main: it is integrated where it was meant to go.
    repository.git(&["update-ref", "refs/heads/feature", &created.checkout.sha("HEAD")]);
    let status = stand.client.ok("worktree::status", json!({"worktree_id": created.id})).await;
    assert_eq!(status["integrated"], true, "{status}");
    stand.client.ok("worktree::remove", json!({"worktree_id": created.id})).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn c63_a_lock_that_is_held_for_a_moment_is_waited_for() {
    let stand = Stand::dev().await;
    let repository = stand.repository("shop");
    let mut events = stand.hear().await;
    let created = stand.create(&repository).await;
    let head = created.checkout.commit("apples", "3\n");
    let locks = ["index.lock", "packed-refs.lock", "config.lock"].map(|name| repository.path().join(".git").join(name));
    for lock in &locks {
        std::fs::write(lock, "").unwrap();
    }
    // Meanwhile somebody else holds them, and lets go.
    let release = tokio::spawn(async move {
        tokio::time::sleep(std::time::Duration::from_millis(800)).await;
        for lock in locks {
            std::fs::remove_file(lock).unwrap();
        }
    });
    let creates = (0..4).map(|_| stand.create(&repository));
    let made = futures_util::future::join_all(creates).await;
    stand.land(&created, json!({})).await;
    assert_eq!(events.landed(&created.id).await["merged_sha"], head);
    release.await.unwrap();
    assert_eq!((made.len(), repository.git(&["status", "--porcelain"])), (4, String::new()));
}
