//! What configuration switches on and off.

use serde_json::json;

use crate::support::{BINARY, Stand, until};

#[tokio::test(flavor = "multi_thread")]
async fn gates_deny_before_they_reveal_anything_and_name_their_key() {
    let gates = json!({"allow_remove": false, "allow_land": false, "allow_prune": false, "repos": ["/nowhere/*"]});
    let stand = Stand::dev_with(json!({"gates": gates})).await;
    let repository = stand.repository("shop");
    let missing = json!({"worktree_id": "wt_0123456789ab", "target_branch": "main"});
    for (function, request, code, key) in [
        ("remove", missing.clone(), "W500", "gates.allow_remove"),
        ("land", missing, "W500", "gates.allow_land"),
        ("prune", json!({}), "W500", "gates.allow_prune"),
        ("create", json!({"repo_path": repository.text()}), "W503", "gates.repos"),
    ] {
        let message = stand.client.refused(&format!("worktree::{function}"), request, code).await;
        assert!(message.contains(key), "{function}: the key is not named: {message}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_land_target_and_a_budget_are_enforced() {
    let gates = json!({"land_targets": ["release/*"], "max_worktrees_per_repo": 1});
    let stand = Stand::dev_with(json!({"gates": gates})).await;
    let repository = stand.repository("shop");
    let created = stand.create(&repository).await;
    let land = json!({"worktree_id": created.id, "target_branch": "main"});
    let message = stand.client.refused("worktree::land", land, "W502").await;
    assert!(message.contains("gates.land_targets"), "{message}");
    let more = json!({"repo_path": repository.text()});
    let message = stand.client.refused("worktree::create", more, "W504").await;
    assert!(message.contains("max_worktrees_per_repo") && message.contains('1'), "{message}");
    // The budget is per repository, and a removed worktree gives its place back.
    stand.create(&stand.repository("farm")).await;
    stand.client.ok("worktree::remove", json!({"worktree_id": created.id})).await;
    stand.create(&repository).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn force_takes_a_claim_and_says_from_whom() {
    let stand = Stand::dev_with(json!({"gates": {"allow_force": true}})).await;
    let repository = stand.repository("shop");
    let mut events = stand.hear().await;
    let created = stand.create_with(&repository, json!({"session_id": "ada"})).await;
    let forced = json!({"worktree_id": created.id, "session_id": "ben", "force": true});
    let claimed = stand.client.ok("worktree::claim", forced).await;
    assert_eq!(claimed["previous_session_id"], "ada");
    loop {
        let event = events.next("worktree::claimed", &created.id).await;
        if event["session_id"] == "ben" {
            assert_eq!(event["previous_session_id"], "ada");
            break;
        }
    }
    // Force overrides what protects unsaved work, and nothing else.
    created.checkout.write("loose", "x\n");
    let removed = stand.client.ok("worktree::remove", json!({"worktree_id": created.id, "force": true})).await;
    assert_eq!(removed["removed"], true);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_of_configuration_is_taken_up_without_a_restart() {
    let stand = Stand::dev_with(json!({"gates": {"allow_remove": false}})).await;
    let repository = stand.repository("shop");
    let created = stand.create(&repository).await;
    let remove = json!({"worktree_id": created.id});
    stand.client.refused("worktree::remove", remove.clone(), "W500").await;
    let stored = stand.client.ok("configuration::get", json!({"id": "worktree"})).await;
    let mut value = stored["value"].clone();
    value["gates"]["allow_remove"] = json!(true);
    // What the schema can tell is refused where it is set, and the value before it stays.
    let mut wrong = value.clone();
    wrong["no_such_key"] = json!(1);
    assert!(stand.client.call("configuration::set", json!({"id": "worktree", "value": wrong})).await.is_err());
    stand.client.ok("configuration::set", json!({"id": "worktree", "value": value})).await;
    until("the new configuration", || async { stand.client.call("worktree::remove", remove.clone()).await.ok() }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stored_configuration_wins_over_the_seed() {
    let mut stand = Stand::dev_with(json!({"branch_prefix": "first/"})).await;
    let repository = stand.repository("shop");
    assert!(stand.create(&repository).await.branch.starts_with("first/"));
    let seed = json!({"worktree_root": stand.seal.path().join("worktrees"), "branch_prefix": "second/"});
    std::fs::write(stand.seal.path().join("seed.yaml"), seed.to_string()).unwrap();
    stand.stop_and_restart().await;
    assert!(stand.create(&repository).await.branch.starts_with("first/"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_seed_that_cannot_be_applied_ends_the_worker_and_names_the_key() {
    let seal = crate::support::Seal::new();
    for (key, seed) in [
        ("prune_schedule", json!({"prune_schedule": "0 * * * *"})),
        ("worktree_root", json!({"worktree_root": "relative"})),
        ("branch_prefx", json!({"branch_prefx": "x/"})),
    ] {
        let path = seal.path().join("bad.yaml");
        std::fs::write(&path, seed.to_string()).unwrap();
        let mut command = seal.command(BINARY);
        command.args(["dev", "--port", "0", "--http-port", "0", "--state-dir"]).arg(seal.path().join("state"));
        command.arg("--config").arg(path);
        let mut process = crate::support::Process::start("worktree dev", command);
        let status = process.ended().await;
        assert_eq!(status.code(), Some(1), "{key}: {}", process.log());
        assert!(process.log().contains(key), "`{key}` is not named: {}", process.log());
        assert_eq!(process.lines(), Vec::<String>::new(), "it said that it was ready");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_that_keeps_moving_is_given_up() {
    let stand = Stand::dev_with(json!({"max_land_retries": 1})).await;
    let repository = stand.repository("shop");
    let mut events = stand.hear().await;
    let created = stand.create(&repository).await;
    let head = created.checkout.commit("apples", "3\n");
    // Each run of the gate moves the target.
    let gate = repository.words("commit --quiet --allow-empty --message busy");
    stand.land(&created, json!({"test_cmd": gate})).await;
    let event = events.blocked(&created.id).await;
    assert_eq!((&event["code"], &event["reason"]), (&json!("W412"), &json!("target_moved_exhausted")), "{event:#}");
    assert_eq!(repository.git(&["rev-list", "--count", "main"]), "3", "the gate ran twice, and nothing landed");
    assert_eq!(created.checkout.git(&["show", &format!("{}:apples", created.branch)]), "3");
    assert_ne!(created.checkout.sha("HEAD"), head, "it was rebased onto the target it met");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gate_that_takes_too_long_is_ended_with_all_it_started() {
    let stand = Stand::dev_with(json!({"test_timeout_ms": 700})).await;
    let repository = stand.repository("shop");
    let mut events = stand.hear().await;
    let created = stand.create(&repository).await;
    created.checkout.commit("apples", "3\n");
    let pid = stand.seal.path().join("pid");
    created.checkout.commit("gate.sh", &format!("sleep 300 & echo $! > {}; wait\n", pid.display()));
    stand.land(&created, json!({"test_cmd": "sh gate.sh"})).await;
    let event = events.blocked(&created.id).await;
    assert_eq!((&event["code"], &event["reason"]), (&json!("W411"), &json!("test_failed")), "{event:#}");
    assert!(event["message"].as_str().unwrap().contains("test_timeout_ms"), "{event:#}");
    let pid = std::fs::read_to_string(pid).unwrap();
    until("the end of what the gate started", || async {
        (!std::path::Path::new("/proc").join(pid.trim()).exists()).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn branches_are_named_and_kept_as_configured() {
    let keys = json!({
        "branch_naming": "codename", "branch_prefix": "agents/", "gates": {"allow_branch_delete": false},
    });
    let stand = Stand::dev_with(keys).await;
    let repository = stand.repository("shop");
    let mut events = stand.hear().await;
    let created = stand.create(&repository).await;
    assert_eq!(created.branch, format!("agents/{}", worktree::model::id::codename(&created.id)));
    let head = created.checkout.commit("apples", "3\n");
    stand.land(&created, json!({})).await;
    events.landed(&created.id).await;
    assert_eq!(repository.branch(&created.branch), Some(head));
    let other = stand.create(&repository).await;
    let request = json!({"worktree_id": other.id, "delete_branch": true});
    let message = stand.client.refused("worktree::remove", request, "W500").await;
    assert!(message.contains("gates.allow_branch_delete"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_idle_and_holds_nothing_is_pruned() {
    let stand = Stand::dev_with(json!({"prune_expire_hours": 0})).await;
    let repository = stand.repository("shop");
    let mut events = stand.hear().await;
    let idle = stand.create(&repository).await;
    let ahead = stand.create(&repository).await;
    let head = ahead.checkout.commit("apples", "3\n");
    let gone = stand.create(&repository).await;
    std::fs::remove_dir_all(gone.checkout.path()).unwrap();
    let rehearsed = stand.client.ok("worktree::prune", json!({"dry_run": true})).await;
    assert!(idle.checkout.path().exists(), "a rehearsal removed it");
    let pruned = stand.client.ok("worktree::prune", json!({})).await;
    assert_eq!(rehearsed["pruned"], pruned["pruned"]);
    assert!(pruned["pruned"].as_array().unwrap().contains(&json!(idle.id)), "{pruned}");
    events.next("worktree::removed", &idle.id).await;
    assert!(!idle.checkout.path().exists());
    assert!(repository.branch(&gone.branch).is_some(), "nobody has looked at what is on it");
    assert_eq!(ahead.checkout.sha("HEAD"), head);
    let listed = stand.client.ok("worktree::list", json!({})).await;
    let left: Vec<_> = listed["worktrees"].as_array().unwrap().iter().map(|one| &one["worktree_id"]).collect();
    assert_eq!(left, [&json!(ahead.id)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn ignored_files_are_copied_when_asked() {
    let provision = json!({"copy_ignored": true, "exclude": ["*.log"]});
    let stand = Stand::dev_with(json!({"provision": provision})).await;
    let repository = stand.repository("shop");
    repository.commit(".gitignore", "cache/\n.env\n*.log\n");
    repository.write("cache/deep/object", "built\n");
    repository.write(".env", "KEY=1\n");
    repository.write("debug.log", "x\n");
    repository.write("loose", "not ignored\n");
    let created = stand.create(&repository).await;
    until("the copies", || async {
        let there = |file: &str| created.checkout.path().join(file).exists();
        (there("cache/deep/object") && there(".env")).then_some(())
    })
    .await;
    assert_eq!(created.checkout.read(".env"), "KEY=1\n");
    assert!(!created.checkout.path().join("debug.log").exists() && !created.checkout.path().join("loose").exists());
    assert_eq!(created.checkout.git(&["status", "--porcelain"]), "");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_engine_forgot_is_found_again_and_nothing_else_is_adopted() {
    let mut stand = Stand::dev().await;
    let repository = stand.repository("shop");
    let created = stand.create(&repository).await;
    let head = created.checkout.commit("apples", "3\n");
    let theirs = stand.seal.path().join("worktrees/theirs");
    repository.git(&["worktree", "add", "--quiet", "-b", "theirs", theirs.to_str().unwrap()]);
    let before = stand.client.ok("worktree::get", json!({"worktree_id": created.id})).await;
    stand.forget_and_restart().await;
    let after = until("the worktree", || async {
        stand.client.call("worktree::get", json!({"worktree_id": created.id})).await.ok()
    })
    .await;
    for field in
        ["path", "branch", "base_ref", "base_sha", "repo_key", "repo_path", "created_at", "dev_port", "lifecycle"]
    {
        assert_eq!(after[field], before[field], "{field}");
    }
    let listed = stand.client.ok("worktree::list", json!({"repo_path": repository.text()})).await;
    assert_eq!(listed["worktrees"].as_array().unwrap().len(), 1, "{listed}");
    assert_eq!(listed["unmanaged"].as_array().unwrap().len(), 1, "{listed}");
    let mut events = stand.hear().await;
    stand.land(&created, json!({})).await;
    assert_eq!(events.landed(&created.id).await["merged_sha"], head);
}

#[tokio::test(flavor = "multi_thread")]
async fn variables_of_git_in_the_environment_change_nothing() {
    let seal = crate::support::Seal::new();
    let trap = crate::support::Checkout::init(seal.path().join("trap"), &seal);
    trap.commit("bait", "x\n");
    let (refs, index) = (trap.refs(), std::fs::read(trap.path().join(".git/index")).unwrap());
    let git_dir = trap.path().join(".git").to_str().unwrap().to_owned();
    let git_index = trap.path().join(".git/index").to_str().unwrap().to_owned();
    let variables = [
        ("GIT_DIR", git_dir.as_str()),
        ("GIT_WORK_TREE", trap.path().to_str().unwrap()),
        ("GIT_INDEX_FILE", &git_index),
    ];
    let variables = variables.map(|(name, value)| (name, value.to_owned()));
    let variables: Vec<_> = variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let stand = Stand::dev_in(seal, json!({}), &variables).await;
    let repository = stand.repository("shop");
    let mut events = stand.hear().await;
    let created = stand.create(&repository).await;
    let head = created.checkout.commit("apples", "3\n");
    stand.land(&created, json!({"test_cmd": "git rev-parse --show-toplevel"})).await;
    assert_eq!(events.landed(&created.id).await["merged_sha"], head);
    assert_eq!((trap.refs(), std::fs::read(trap.path().join(".git/index")).unwrap()), (refs, index));
}
