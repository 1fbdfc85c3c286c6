//! `worktree::land`, when it lands.

use serde_json::json;

use super::assert_keys;
use crate::support::{Gate, Stand, until};

/// What a landed event always carries.
const LANDED: [&str; 6] = ["worktree_id", "repo_path", "branch", "target_branch", "merged_sha", "timestamp"];

pub async fn a_branch_lands_and_is_cleaned_up(stand: Stand) {
    let repository = stand.repository("shop");
    let mut events = stand.hear().await;
    let created = stand.create_with(&repository, json!({"session_id": "ada"})).await;
    let head = created.checkout.commit("apples", "3\n");
    let job = stand.land(&created, json!({"test_cmd": "true"})).await;
    assert!(worktree::model::id::is_job_id(&job), "{job}");

    let event = events.landed(&created.id).await;
    assert_keys(&event, &LANDED, &["session_id", "gated"]);
    assert_eq!((&event["branch"], &event["target_branch"]), (&json!(created.branch), &json!("main")));
    assert_eq!((&event["session_id"], &event["repo_path"]), (&json!("ada"), &json!(repository.text())));
    // On top of its base already, so it is the very same commit.
    assert_eq!(event["merged_sha"], head);
    assert_eq!(repository.sha("refs/heads/main"), head);
    assert!(!created.checkout.path().exists(), "the worktree is still there");
    assert_eq!(repository.worktrees(), [repository.path()]);
    assert_eq!(repository.branch(&created.branch), None);
    // The last thing to go.
    until("the end of the backup ref", || async { (!repository.refs().contains("refs/iii/")).then_some(()) }).await;
    let reflog = repository.git(&["reflog", "show", "--format=%gs", "refs/heads/main"]);
    assert!(reflog.lines().next().unwrap().contains(&job), "the reflog does not name the job: {reflog}");
    stand.client.refused("worktree::get", json!({"worktree_id": created.id}), "W200").await;
    // The queue may deliver the job once more; that changes nothing.
    let again = stand.client.ok("worktree::land-step", json!({"job_id": job})).await;
    assert_eq!((&again["job_id"], &again["done"]), (&json!(job), &json!(true)));
    assert_eq!(repository.sha("refs/heads/main"), head);
}

pub async fn a_kept_worktree_goes_on_from_its_new_base(stand: Stand) {
    let repository = stand.repository("shop");
    let mut events = stand.hear().await;
    let created = stand.create_with(&repository, json!({"session_id": "ada"})).await;
    created.checkout.commit("apples", "3\n");
    repository.commit("pears", "4\n");
    stand.land(&created, json!({"keep": true})).await;
    let event = events.landed(&created.id).await;
    let merged = repository.sha("main");
    assert_eq!(event["merged_sha"], merged);
    let got = stand.client.ok("worktree::get", json!({"worktree_id": created.id})).await;
    assert_eq!((&got["lifecycle"], &got["session_id"]), (&json!("claimed"), &json!("ada")));
    assert_eq!(got["base_sha"], merged);
    assert_eq!(got["status"]["ahead"], 0, "{got}");
    assert_eq!(created.checkout.sha("HEAD"), merged);
    assert_eq!(created.checkout.git(&["symbolic-ref", "--short", "HEAD"]), created.branch);
    assert_eq!(created.checkout.git(&["status", "--porcelain"]), "");
    // And it can land again.
    let head = created.checkout.commit("apples", "5\n");
    stand.land(&created, json!({})).await;
    assert_eq!(events.landed(&created.id).await["merged_sha"], head);
}

pub async fn a_branch_is_rebased_onto_a_target_that_moved_before(stand: Stand) {
    let repository = stand.repository("shop");
    let mut events = stand.hear().await;
    let created = stand.create(&repository).await;
    created.checkout.commit("apples", "1\n");
    created.checkout.commit("apples", "2\n");
    let moved = repository.commit("pears", "4\n");
    // What a rebase by hand makes of it, dates of the committer aside.
    repository.git(&["branch", "by-hand", &created.branch]);
    repository.git(&["worktree", "add", "--quiet", "../by-hand", "by-hand"]);
    let by_hand = stand.checkout(stand.seal.path().join("by-hand"));
    by_hand.git(&["rebase", "--quiet", "main"]);

    let gate = Gate::new(&stand.seal, "look");
    gate.end(0);
    stand.land(&created, json!({"test_cmd": gate.command()})).await;
    let event = events.landed(&created.id).await;
    let merged = repository.sha("main");
    assert_eq!(event["merged_sha"], merged);
    // What landed is what was tested, where it was tested.
    assert_eq!(gate.runs(), [(created.checkout.path().to_owned(), merged)]);
    let described = |range: &str| repository.git(&["log", "--format=%T %an %ae %aI %s", range]);
    assert_eq!(described(&format!("{moved}..main")), described(&format!("{moved}..by-hand")));
    assert_eq!(repository.git(&["rev-list", "--merges", "main"]), "");
}

pub async fn a_target_that_moves_during_the_gate_is_rebased_onto(stand: Stand) {
    let repository = stand.repository("shop");
    let mut events = stand.hear().await;
    let created = stand.create(&repository).await;
    created.checkout.commit("apples", "3\n");
    let gate = Gate::new(&stand.seal, "slow");
    stand.land(&created, json!({"test_cmd": gate.command()})).await;
    let (_, tested_first) = gate.started().await;
    let moved = repository.commit("pears", "4\n");
    gate.end(0);
    let event = events.landed(&created.id).await;
    let merged = repository.sha("main");
    assert_eq!(event["merged_sha"], merged);
    assert_ne!(merged, tested_first, "what landed was not tested on the new target");
    assert_eq!(repository.sha("main~1"), moved);
    assert_eq!(gate.runs().last().map(|(_, commit)| commit.clone()), Some(merged));
    assert_eq!((repository.read("apples"), repository.read("pears")), ("3\n".to_owned(), "4\n".to_owned()));
}

pub async fn a_target_that_nobody_has_checked_out(stand: Stand) {
    let repository = stand.repository("shop");
    let mut events = stand.hear().await;
    repository.git(&["branch", "release/1.0"]);
    repository.git(&["tag", "release/1.0", "main"]);
    let before = repository.sha("main");
    let created = stand.create(&repository).await;
    let head = created.checkout.commit("apples", "3\n");
    let request = json!({"worktree_id": created.id, "target_branch": "release/1.0"});
    stand.client.ok("worktree::land", request).await;
    assert_eq!(events.landed(&created.id).await["target_branch"], "release/1.0");
    assert_eq!(repository.branch("release/1.0"), Some(head));
    assert_eq!(repository.sha("refs/heads/main"), before);
    assert!(!repository.path().join("apples").exists());
}

pub async fn a_clean_checkout_of_the_target_moves_along(stand: Stand) {
    let repository = stand.repository("shop");
    let mut events = stand.hear().await;
    repository.commit("old", "x\n");
    let created = stand.create(&repository).await;
    created.checkout.commit("apples", "3\n");
    created.checkout.git(&["rm", "--quiet", "old"]);
    created.checkout.git(&["commit", "--quiet", "--message", "Remove old"]);
    // A file that is in nobody's way stays where it is.
    repository.write("notes", "mine\n");
    stand.land(&created, json!({})).await;
    events.landed(&created.id).await;
    assert_eq!(repository.read("apples"), "3\n");
    assert!(!repository.path().join("old").exists());
    assert_eq!(repository.git(&["status", "--porcelain"]), "?? notes");
    assert_eq!(repository.git(&["symbolic-ref", "--short", "HEAD"]), "main");
}

pub async fn work_that_appears_during_the_gate_keeps_the_worktree(stand: Stand) {
    let repository = stand.repository("shop");
    let mut events = stand.hear().await;
    let created = stand.create(&repository).await;
    let head = created.checkout.commit("apples", "3\n");
    let gate = Gate::new(&stand.seal, "slow");
    stand.land(&created, json!({"test_cmd": gate.command()})).await;
    gate.started().await;
    created.checkout.write("more", "not to be lost\n");
    gate.end(0);
    let event = events.landed(&created.id).await;
    assert_keys(&event, &LANDED, &["session_id", "gated", "kept_reason"]);
    assert_eq!(event["merged_sha"], head);
    assert!(event["kept_reason"].as_str().is_some_and(|reason| !reason.is_empty()), "{event}");
    assert_eq!(repository.sha("main"), head);
    assert_eq!(created.checkout.read("more"), "not to be lost\n");
    assert_eq!(repository.branch(&created.branch), Some(head));
    assert_eq!(stand.lifecycle(&created.id).await, "active");
}

pub async fn many_lands_of_one_repository_go_one_after_the_other(stand: Stand) {
    let repository = stand.repository("shop");
    let mut events = stand.hear().await;
    let mut worktrees = Vec::new();
    for number in 0..5 {
        let created = stand.create(&repository).await;
        created.checkout.commit(&format!("file-{number}"), "x\n");
        worktrees.push(created);
    }
    for created in &worktrees {
        stand.land(created, json!({"test_cmd": "true"})).await;
    }
    for created in &worktrees {
        events.landed(&created.id).await;
    }
    assert_eq!(repository.git(&["rev-list", "--count", "main"]), "6");
    assert_eq!(repository.git(&["rev-list", "--merges", "main"]), "");
    // First come, first served.
    let subjects = repository.git(&["log", "--reverse", "--format=%s", "main~5..main"]);
    let expected: Vec<_> = (0..5).map(|number| format!("Write file-{number}")).collect();
    assert_eq!(subjects.lines().collect::<Vec<_>>(), expected);
    assert_eq!(repository.git(&["status", "--porcelain"]), "");
}

pub async fn nothing_waits_for_a_gate(stand: Stand) {
    let repository = stand.repository("shop");
    let mut events = stand.hear().await;
    let landing = stand.create(&repository).await;
    landing.checkout.commit("apples", "3\n");
    let gate = Gate::new(&stand.seal, "slow");
    stand.land(&landing, json!({"test_cmd": gate.command()})).await;
    gate.started().await;
    assert_eq!(stand.lifecycle(&landing.id).await, "landing");

    let meanwhile = async {
        let other = stand.create(&repository).await;
        let claim = json!({"worktree_id": other.id, "session_id": "ada"});
        stand.client.ok("worktree::claim", claim.clone()).await;
        stand.client.ok("worktree::release", claim).await;
        stand.client.ok("worktree::list", json!({"include_status": true})).await;
        stand.client.ok("worktree::prune", json!({"dry_run": true})).await;
        stand.client.ok("worktree::remove", json!({"worktree_id": other.id})).await;
        // The one that lands is spoken for.
        let again = json!({"worktree_id": landing.id, "target_branch": "main"});
        stand.client.refused("worktree::land", again, "W401").await;
        stand.client.refused("worktree::remove", json!({"worktree_id": landing.id}), "W401").await;
        // A claim changes hands without disturbing the land.
        stand.client.ok("worktree::claim", json!({"worktree_id": landing.id, "session_id": "ben"})).await;
        assert_eq!(stand.lifecycle(&landing.id).await, "landing");
        // Another land is queued behind it, and the answer does not wait.
        let next = stand.create(&repository).await;
        next.checkout.commit("pears", "4\n");
        stand.land(&next, json!({})).await;
        next
    };
    let limit = std::time::Duration::from_secs(20);
    let next = tokio::time::timeout(limit, meanwhile).await.expect("something waits for the gate");
    assert_eq!(gate.runs().len(), 1);
    gate.end(0);
    assert_eq!(events.landed(&landing.id).await["session_id"], "ben");
    events.landed(&next.id).await;
}
