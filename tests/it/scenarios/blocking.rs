//! `worktree::land`, when something is in the way: it is said, nothing moves, and nothing is lost.

use serde_json::{Value, json};

use super::assert_keys;
use crate::support::{Gate, Stand};

/// What a block event always carries.
const BLOCKED: [&str; 7] = ["worktree_id", "repo_path", "target_branch", "reason", "code", "message", "timestamp"];

fn assert_block(event: &Value, code: &str, reason: &str, more: &[&str]) {
    let always: Vec<_> = BLOCKED.iter().chain(more).copied().collect();
    // Files in the way are named in the message, and may come as data as well.
    let sometimes: &[&str] = if code == "W413" { &["session_id", "conflict_files"] } else { &["session_id"] };
    assert_keys(event, &always, sometimes);
    assert_eq!((&event["code"], &event["reason"]), (&json!(code), &json!(reason)), "{event:#}");
    assert!(event["message"].as_str().is_some_and(|message| !message.is_empty()), "{event:#}");
}

pub async fn a_conflict_stays_open_until_its_owner_resolves_it(stand: Stand) {
    let repository = stand.repository("shop");
    let mut events = stand.hear().await;
    let created = stand.create(&repository).await;
    let head = created.checkout.commit("README", "from the branch\n");
    let moved = repository.commit("README", "from main\n");
    stand.land(&created, json!({})).await;
    let event = events.blocked(&created.id).await;
    assert_block(&event, "W410", "rebase_conflict", &["conflict_files"]);
    assert_eq!(event["conflict_files"], json!(["README"]));
    assert_eq!(repository.sha("main"), moved);
    assert_eq!(stand.lifecycle(&created.id).await, "land-blocked");
    // It is a real rebase, in progress, with the conflict in the file.
    assert!(created.checkout.read("README").contains("<<<<<<<"));
    let status = stand.client.ok("worktree::status", json!({"worktree_id": created.id})).await;
    assert_eq!((&status["in_rebase"], &status["conflicted"]), (&json!(true), &json!(1)), "{status}");
    // What the owner had is still to be found.
    let backup = repository.refs();
    assert!(backup.contains(&format!("refs/iii/wt-backup/{} {head}", created.id)), "{backup}");
    // Not to be landed while it is open, nor removed.
    let again = json!({"worktree_id": created.id, "target_branch": "main"});
    stand.client.refused("worktree::land", again, "W402").await;
    assert!(stand.client.call("worktree::remove", json!({"worktree_id": created.id})).await.is_err());

    created.checkout.write("README", "from both\n");
    created.checkout.git(&["add", "README"]);
    created.checkout.git(&["rebase", "--continue"]);
    stand.land(&created, json!({})).await;
    let event = events.landed(&created.id).await;
    assert_eq!(event["merged_sha"], repository.sha("main"));
    assert_eq!(repository.sha("main~1"), moved);
    assert_eq!(repository.read("README"), "from both\n");
}

pub async fn a_failing_gate(stand: Stand) {
    let repository = stand.repository("shop");
    let mut events = stand.hear().await;
    repository.commit("gate.sh", "echo first; echo 'it is wrong' >&2; exit 3\n");
    let before = repository.sha("main");
    let created = stand.create(&repository).await;
    let head = created.checkout.commit("apples", "3\n");
    stand.land(&created, json!({"test_cmd": "sh gate.sh"})).await;
    let event = events.blocked(&created.id).await;
    assert_block(&event, "W411", "test_failed", &["exit_code", "output_tail"]);
    assert_eq!(event["exit_code"], 3);
    let tail = event["output_tail"].as_str().unwrap();
    assert!(tail.contains("first") && tail.contains("it is wrong"), "{tail}");
    assert_eq!(repository.sha("main"), before);
    assert_eq!(created.checkout.sha("HEAD"), head);
    assert_eq!(stand.lifecycle(&created.id).await, "land-blocked");
    // Once it is repaired, the same call lands.
    created.checkout.commit("gate.sh", "exit 0\n");
    stand.land(&created, json!({"test_cmd": "sh gate.sh"})).await;
    events.landed(&created.id).await;
}

pub async fn a_gate_that_cannot_run_blames_nobody(stand: Stand) {
    let repository = stand.repository("shop");
    let mut events = stand.hear().await;
    let created = stand.create(&repository).await;
    created.checkout.commit("apples", "3\n");
    created.checkout.commit("not-executable", "exit 0\n");
    for command in ["no-such-program-anywhere --check", "sh -c 'exit 127'", "./not-executable"] {
        stand.land(&created, json!({"test_cmd": command})).await;
        let event = events.blocked(&created.id).await;
        assert_eq!(
            (&event["code"], &event["reason"]),
            (&json!("W414"), &json!("gate_unavailable")),
            "{command}: {event:#}"
        );
    }
    stand.land(&created, json!({"test_cmd": "true"})).await;
    events.landed(&created.id).await;
}

pub async fn uncommitted_work_blocks(stand: Stand) {
    let repository = stand.repository("shop");
    let mut events = stand.hear().await;
    let created = stand.create(&repository).await;
    created.checkout.commit("apples", "3\n");
    created.checkout.write("pears", "4\n");
    let before = repository.sha("main");
    stand.land(&created, json!({})).await;
    let event = events.blocked(&created.id).await;
    assert_block(&event, "W220", "dirty", &[]);
    assert!(event["message"].as_str().unwrap().contains('1'), "the count is not told: {event:#}");
    assert_eq!(repository.sha("main"), before);
    assert_eq!(created.checkout.read("pears"), "4\n");
}

pub async fn a_commit_during_the_gate_blocks(stand: Stand) {
    let repository = stand.repository("shop");
    let mut events = stand.hear().await;
    let created = stand.create(&repository).await;
    created.checkout.commit("apples", "3\n");
    let before = repository.sha("main");
    let gate = Gate::new(&stand.seal, "slow");
    stand.land(&created, json!({"test_cmd": gate.command()})).await;
    gate.started().await;
    let late = created.checkout.commit("apples", "never tested\n");
    gate.end(0);
    let event = events.blocked(&created.id).await;
    assert_block(&event, "W415", "branch_moved", &[]);
    assert_eq!(repository.sha("main"), before, "something landed that was not tested");
    assert_eq!(created.checkout.sha("HEAD"), late);
}

pub async fn changes_in_the_way_of_the_target_block(stand: Stand) {
    let repository = stand.repository("shop");
    let mut events = stand.hear().await;
    let created = stand.create(&repository).await;
    created.checkout.commit("README", "new\n");
    created.checkout.commit("notes", "from the branch\n");
    let before = repository.sha("main");
    repository.write("README", "the owner is editing this\n");
    repository.write("notes", "untracked, and in the way\n");
    stand.land(&created, json!({})).await;
    let event = events.blocked(&created.id).await;
    assert_block(&event, "W413", "target_checked_out_dirty", &[]);
    let message = event["message"].as_str().unwrap();
    assert!(message.contains("README"), "the file is not named: {message}");
    assert_eq!(repository.sha("refs/heads/main"), before);
    repository.git(&["checkout", "--quiet", "README"]);
    stand.land(&created, json!({})).await;
    let event = events.blocked(&created.id).await;
    assert_block(&event, "W413", "target_checked_out_dirty", &[]);
    assert!(event["message"].as_str().unwrap().contains("notes"), "the file is not named: {event:#}");
    assert_eq!(repository.read("notes"), "untracked, and in the way\n");
    std::fs::remove_file(repository.path().join("notes")).unwrap();
    stand.land(&created, json!({})).await;
    events.landed(&created.id).await;
    assert_eq!(
        (repository.read("README"), repository.read("notes")),
        ("new\n".to_owned(), "from the branch\n".to_owned())
    );
}

pub async fn a_checkout_of_the_target_that_git_has_locked(stand: Stand) {
    let repository = stand.repository("shop");
    let mut events = stand.hear().await;
    let created = stand.create(&repository).await;
    let head = created.checkout.commit("apples", "3\n");
    let before = repository.sha("main");
    // Somebody's git is at work there, or was killed at work.
    let lock = repository.path().join(".git/index.lock");
    std::fs::write(&lock, "").unwrap();
    stand.land(&created, json!({})).await;
    let event = events.blocked(&created.id).await;
    assert_eq!(repository.sha("refs/heads/main"), before, "it moved, although it is said to be blocked: {event:#}");
    std::fs::remove_file(&lock).unwrap();
    assert_eq!(repository.git(&["status", "--porcelain"]), "");
    stand.land(&created, json!({})).await;
    assert_eq!(events.landed(&created.id).await["merged_sha"], head);
    assert_eq!(repository.git(&["status", "--porcelain"]), "");
    assert_eq!(repository.read("apples"), "3\n");
}

pub async fn an_open_operation_blocks(stand: Stand) {
    let repository = stand.repository("shop");
    let created = stand.create(&repository).await;
    created.checkout.commit("README", "from the branch\n");
    repository.commit("README", "from main\n");
    let land = json!({"worktree_id": created.id, "target_branch": "main"});

    assert!(!created.checkout.try_git(&["merge", "main"]).status.success());
    stand.client.refused("worktree::land", land.clone(), "W403").await;
    created.checkout.git(&["merge", "--abort"]);
    assert!(!created.checkout.try_git(&["cherry-pick", "main"]).status.success());
    stand.client.refused("worktree::land", land.clone(), "W403").await;
    created.checkout.git(&["cherry-pick", "--abort"]);
    assert!(!created.checkout.try_git(&["rebase", "main"]).status.success());
    stand.client.refused("worktree::land", land, "W402").await;
    assert!(created.checkout.read("README").contains("<<<<<<<"), "somebody else's rebase was touched");
    created.checkout.git(&["rebase", "--abort"]);
    assert_eq!(stand.lifecycle(&created.id).await, "active");
}
