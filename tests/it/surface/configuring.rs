//! Configuration: every key has an effect that can be seen; what is stored is never overwritten; what cannot be applied
//! changes nothing.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use worktree::model::config::WorktreeConfig;

use super::schemas::keys_of_the_configuration;
use crate::support::{Checkout, Gate, Stand, until};

#[tokio::test(flavor = "multi_thread")]
async fn every_key_has_an_effect() {
    let stand = Stand::dev().await;
    for (key, _) in keys_of_the_configuration() {
        effect(&stand, &key).await;
        stand.configure(whole(&stand)).await;
    }
}

/// Sets a key to something else than its default, and sees what that does.
async fn effect(stand: &Stand, key: &str) {
    let repository = stand.repository(&key.replace('.', "-"));
    let client = &stand.client;
    let create = json!({"repo_path": repository.text()});
    match key {
        "worktree_root" => {
            let root = stand.seal.path().join("elsewhere");
            stand.configure(json!({"worktree_root": root})).await;
            assert!(stand.create(&repository).await.checkout.path().starts_with(root));
        }
        "branch_prefix" => {
            stand.configure(json!({"branch_prefix": "agents/x-"})).await;
            let created = stand.create(&repository).await;
            assert_eq!(created.branch, format!("agents/x-{}", created.id));
        }
        "branch_naming" => {
            stand.configure(json!({"branch_naming": "codename"})).await;
            let created = stand.create(&repository).await;
            assert_eq!(created.branch, format!("iii/{}", worktree::model::id::codename(&created.id)));
        }
        "prune_schedule" => {
            let created = stand.create(&repository).await;
            stand.configure(json!({"prune_schedule": "* * * * * *", "prune_expire_hours": 0})).await;
            until("the sweep that nobody asked for", || async { (!created.checkout.path().exists()).then_some(()) })
                .await;
        }
        "prune_expire_hours" => {
            let created = stand.create(&repository).await;
            let ask = || client.ok("worktree::prune", json!({"repo_path": repository.text(), "dry_run": true}));
            assert!(ask().await["skipped"][0]["reason"].as_str().unwrap().contains("of 72 hours"));
            stand.configure(json!({"prune_expire_hours": 0})).await;
            assert_eq!(ask().await["pruned"], json!([created.id]));
        }
        "land_queue" => {
            let put =
                || client.enqueue("other-lands", "worktree::land-step", json!({"job_id": "job_x", "repo_key": "r"}));
            assert_eq!(put().await.unwrap_err().0, "enqueue_error");
            stand.configure(json!({"land_queue": "other-lands"})).await;
            until("the declaration of the queue", || async { put().await.ok() }).await;
        }
        "max_land_retries" => {
            stand.configure(json!({"max_land_retries": 0})).await;
            let (created, mut events) = (stand.create(&repository).await, stand.hear().await);
            created.checkout.commit("a", "1\n");
            let busy = repository.words("commit --quiet --allow-empty --message busy");
            stand.land(&created, json!({"test_cmd": busy})).await;
            assert_eq!(events.blocked(&created.id).await["code"], "W412");
            assert_eq!(repository.git(&["rev-list", "--count", "main"]), "2", "the gate ran again");
        }
        "git_timeout_ms" => {
            repository.hook("post-checkout", "#!/bin/sh\nsleep 50\n");
            stand.configure(json!({"git_timeout_ms": 500})).await;
            let asked = Instant::now();
            stand.create(&repository).await;
            assert!(asked.elapsed() < Duration::from_secs(30), "the hook was waited for: {:?}", asked.elapsed());
        }
        "test_timeout_ms" => {
            stand.configure(json!({"test_timeout_ms": 300})).await;
            let (created, mut events) = (stand.create(&repository).await, stand.hear().await);
            created.checkout.commit("a", "1\n");
            stand.land(&created, json!({"test_cmd": "sleep 50"})).await;
            let event = events.blocked(&created.id).await;
            assert!(event["message"].as_str().unwrap().contains("test_timeout_ms"), "{event}");
        }
        "provision.copy_ignored" | "provision.include" | "provision.exclude" | "provision.max_copy_bytes" => {
            provisioned(stand, key).await;
        }
        "git.hooks" | "git.filters" | "git.merge_drivers" | "git.signing" | "git.skip_lfs_smudge" => {
            allowed_to_run(stand, &repository, key).await;
        }
        "gates.allow_remove" => {
            stand.configure(json!({"gates": {"allow_remove": false}})).await;
            client.refused("worktree::remove", json!({"worktree_id": "wt_0"}), "W500").await;
        }
        "gates.allow_force" => {
            let created = stand.create_with(&repository, json!({"session_id": "ada"})).await;
            stand.configure(json!({"gates": {"allow_force": true}})).await;
            let claim = json!({"worktree_id": created.id, "session_id": "ben", "force": true});
            assert_eq!(client.ok("worktree::claim", claim).await["previous_session_id"], "ada");
        }
        "gates.allow_branch_delete" => {
            stand.configure(json!({"gates": {"allow_branch_delete": false}})).await;
            let (created, mut events) = (stand.create(&repository).await, stand.hear().await);
            let head = created.checkout.commit("a", "1\n");
            stand.land(&created, json!({})).await;
            events.landed(&created.id).await;
            assert_eq!(repository.branch(&created.branch), Some(head));
        }
        "gates.allow_land" => {
            stand.configure(json!({"gates": {"allow_land": false}})).await;
            client.refused("worktree::land", json!({"worktree_id": "wt_0", "target_branch": "main"}), "W500").await;
        }
        "gates.allow_prune" => {
            stand.configure(json!({"gates": {"allow_prune": false}})).await;
            client.refused("worktree::prune", json!({}), "W500").await;
        }
        "gates.land_targets" => {
            stand.configure(json!({"gates": {"land_targets": ["x"]}})).await;
            client.refused("worktree::land", json!({"worktree_id": "wt_0", "target_branch": "main"}), "W502").await;
        }
        "gates.repos" => {
            stand.configure(json!({"gates": {"repos": ["/x"]}})).await;
            client.refused("worktree::create", create, "W503").await;
        }
        "gates.max_worktrees_per_repo" => {
            stand.configure(json!({"gates": {"max_worktrees_per_repo": 1}})).await;
            stand.create(&repository).await;
            client.refused("worktree::create", create, "W504").await;
        }
        "retention_hours" => {
            let (created, mut events) = (stand.create(&repository).await, stand.hear().await);
            created.checkout.commit("a", "1\n");
            let job = stand.land(&created, json!({})).await;
            events.landed(&created.id).await;
            let remembered = || async {
                client.ok("worktree::prune", json!({})).await;
                client.ok("state::get", json!({"scope": "worktree_land_job", "key": job})).await
            };
            assert_eq!(remembered().await["job_id"], job);
            stand.configure(json!({"retention_hours": 0})).await;
            assert_eq!(remembered().await, Value::Null);
        }
        "quota.disk_soft_bytes" => {
            stand.configure(json!({"quota": {"disk_soft_bytes": 1}})).await;
            stand.create(&repository).await;
            let pruned = client.ok("worktree::prune", json!({"repo_path": repository.text()})).await;
            let reason = pruned["skipped"][0]["reason"].as_str().unwrap();
            assert!(reason.contains("quota.disk_soft_bytes"), "{pruned}");
        }
        "pool.size" => {
            stand.create(&repository).await;
            assert_eq!(repository.worktrees().len(), 2);
            stand.configure(json!({"pool": {"size": 1}})).await;
            let entries = || std::fs::read_dir(repository.path().join(".git/worktrees")).unwrap().count();
            until("a worktree that nobody has asked for", || async { (entries() == 2).then_some(()) }).await;
        }
        "audit.enabled" | "audit.directory" | "audit.max_bytes" => audited(stand, key).await,
        other => panic!("no effect of `{other}` is known"),
    }
}

/// What a repository may make git run.
async fn allowed_to_run(stand: &Stand, repository: &Checkout, key: &str) {
    let create = json!({"repo_path": repository.text()});
    match key {
        "git.hooks" => {
            let seen = stand.seal.path().join("hook-seen");
            repository.hook("post-checkout", &format!("#!/bin/sh\ntouch {}\n", seen.display()));
            stand.configure(json!({"git": {"hooks": "skip"}})).await;
            stand.create(repository).await;
            assert!(!seen.exists());
        }
        "git.filters" | "git.merge_drivers" => {
            let name = if key == "git.filters" { "filter.mine.clean" } else { "merge.mine.driver" };
            repository.git(&["config", name, "true"]);
            let message = stand.client.refused("worktree::create", create, "W503").await;
            assert!(message.contains(key), "{message}");
            let keys = json!({key.trim_start_matches("git."): ["mine"]});
            stand.configure(json!({"git": keys})).await;
            stand.create(repository).await;
        }
        "git.signing" => {
            stand.configure(json!({"git": {"signing": "fail"}})).await;
            let (created, mut events) = (stand.create(repository).await, stand.hear().await);
            created.checkout.commit("a", "1\n");
            repository.commit("b", "1\n");
            repository.git(&["config", "commit.gpgSign", "true"]);
            stand.land(&created, json!({})).await;
            let event = events.blocked(&created.id).await;
            assert!(event["message"].as_str().unwrap().contains("git.signing"), "{event}");
        }
        _ => {
            // A filter that could only fail; what git-lfs writes for itself need not be allowed.
            repository.commit(".gitattributes", "*.bin filter=lfs\n");
            repository.commit("large.bin", "pointer\n");
            repository.git(&["config", "filter.lfs.smudge", "git-lfs no-such-command"]);
            stand.client.refused("worktree::create", create, "W503").await;
            repository.git(&["config", "filter.lfs.smudge", "git-lfs smudge --skip -- %f"]);
            stand.configure(json!({"git": {"skip_lfs_smudge": true}})).await;
            assert_eq!(stand.create(repository).await.checkout.read("large.bin"), "pointer\n");
        }
    }
}

/// The files of the audit log below a directory.
fn logs(directory: &std::path::Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(directory) else { return Vec::new() };
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.starts_with("audit.") && name.ends_with(".jsonl")).collect()
}

async fn audited(stand: &Stand, key: &str) {
    let repository = stand.repository(&format!("{}-source", key.replace('.', "-")));
    let directory = stand.seal.path().join(key);
    let mut audit = json!({"directory": directory});
    match key {
        "audit.enabled" => audit["enabled"] = json!(false),
        "audit.max_bytes" => audit["max_bytes"] = json!(4096),
        _ => {}
    }
    stand.configure(json!({"audit": audit})).await;
    // Ten removals are more than four kilobytes of log.
    for _ in 0..10 {
        let created = stand.create(&repository).await;
        stand.client.ok("worktree::remove", json!({"worktree_id": created.id})).await;
    }
    let files = logs(&directory).len();
    match key {
        "audit.enabled" => assert_eq!(files, 0),
        "audit.max_bytes" => assert!(files > 1, "{files}"),
        _ => assert_eq!(files, 1),
    }
}

async fn provisioned(stand: &Stand, key: &str) {
    let repository = stand.repository(&format!("{}-source", key.replace('.', "-")));
    repository.commit(".gitignore", "*.tmp\n");
    repository.write("one.tmp", "1\n");
    repository.write("two.tmp", &"2".repeat(5000));
    let mut provision = json!({"copy_ignored": true});
    let expected: &[&str] = match key {
        "provision.include" => {
            provision["include"] = json!(["one*"]);
            &["one.tmp"]
        }
        "provision.exclude" => {
            provision["exclude"] = json!(["one*"]);
            &["two.tmp"]
        }
        "provision.max_copy_bytes" => {
            provision["max_copy_bytes"] = json!(100);
            &["one.tmp"]
        }
        _ => &["one.tmp", "two.tmp"],
    };
    stand.configure(json!({"provision": provision})).await;
    let created = stand.create(&repository).await;
    let copied = format!("target={}", created.checkout.path().display());
    until("the end of the copying", || async {
        stand.log().lines().any(|line| line.contains(&copied) && line.contains("ignored files copied")).then_some(())
    })
    .await;
    let there: Vec<&str> =
        ["one.tmp", "two.tmp"].into_iter().filter(|file| created.checkout.path().join(file).exists()).collect();
    assert_eq!(there, expected, "{key}");
}

/// The whole configuration, every key named, with its worktrees inside the seal.
fn whole(stand: &Stand) -> Value {
    let mut value = json!(WorktreeConfig::default());
    value["worktree_root"] = json!(stand.seal.path().join("worktrees"));
    value
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_schema_can_tell_is_refused_where_it_is_set() {
    let stand = Stand::dev().await;
    stand.configure(whole(&stand)).await;
    let before = stand.client.ok("configuration::get", json!({"id": "worktree"})).await;
    for (path, value) in [
        ("/prune_schedule", json!("*/5 * * * *")),
        ("/prune_schedule", json!("0 0 0 1 1 * 2030")),
        ("/prune_schedule", json!("")),
        ("/branch_prefix", json!("")),
        ("/branch_prefix", json!("-x/")),
        ("/branch_prefix", json!("a b/")),
        ("/branch_naming", json!("random")),
        ("/worktree_root", json!("relative/place")),
        ("/land_queue", json!("")),
        ("/git_timeout_ms", json!(0)),
        ("/git_timeout_ms", json!(-1)),
        ("/test_timeout_ms", json!("soon")),
        ("/max_land_retries", json!(1.5)),
        ("/gates/allow_land", json!("yes")),
        ("/gates/repos", json!("*")),
        ("/gates/max_worktrees_per_repo", json!(-1)),
        ("/gates", json!([])),
        ("/provision/max_copy_bytes", json!(null)),
    ] {
        let mut wrong = before["value"].clone();
        *wrong.pointer_mut(path).unwrap() = value.clone();
        let set = json!({"id": "worktree", "value": wrong});
        stand.client.refused("configuration::set", set, "SCHEMA_INVALID").await;
    }
    for unknown in ["/x", "/gates/x", "/provision/x"] {
        let mut wrong = before["value"].clone();
        let (place, key) = unknown.rsplit_once('/').unwrap();
        wrong.pointer_mut(place).unwrap()[key] = json!(1);
        let set = json!({"id": "worktree", "value": wrong});
        let message = stand.client.refused("configuration::set", set, "SCHEMA_INVALID").await;
        assert!(message.contains('x'), "{message}");
    }
    assert_eq!(stand.client.ok("configuration::get", json!({"id": "worktree"})).await, before);
    // Part of a configuration is one: the rest are defaults.
    for part in [json!({}), json!({"gates": {"allow_land": false}})] {
        stand.client.ok("configuration::set", json!({"id": "worktree", "value": part})).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_value_that_only_the_worker_can_judge_leaves_the_one_before_it() {
    let stand = Stand::dev().await;
    let repository = stand.repository("shop");
    let mut kept = whole(&stand);
    kept["branch_prefix"] = json!("kept/");
    stand.configure(kept).await;
    let before = stand.client.ok("configuration::get", json!({"id": "worktree"})).await["value"].clone();
    for (key, path, value) in [
        ("prune_schedule", "/prune_schedule", json!("99 0 * * * *")),
        ("branch_prefix", "/branch_prefix", json!("a..b/")),
        ("gates.repos", "/gates/repos", json!(["["])),
        ("gates.land_targets", "/gates/land_targets", json!(["{a"])),
        ("provision.exclude", "/provision/exclude", json!(["["])),
        ("worktree_root", "/worktree_root", json!("/")),
        ("WT_NOWHERE", "/worktree_root", json!("${WT_NOWHERE}/x")),
    ] {
        let mut wrong = before.clone();
        // What else changed with it is not applied either.
        wrong["gates"]["allow_remove"] = json!(false);
        *wrong.pointer_mut(path).unwrap() = value;
        stand.client.ok("configuration::set", json!({"id": "worktree", "value": wrong})).await;
        let said = || {
            let log = stand.log();
            log.lines().any(|line| line.contains("ERROR") && line.contains("W010") && line.contains(key))
        };
        until("a word about the value", || async { said().then_some(()) }).await;
        assert_eq!(stand.client.ok("worktree::on-config-change", json!({})).await, json!({"ok": false}));
        let created = stand.create(&repository).await;
        assert!(created.branch.starts_with("kept/"), "{}", created.branch);
        stand.client.ok("worktree::remove", json!({"worktree_id": created.id})).await;
    }
    stand.client.ok("configuration::set", json!({"id": "worktree", "value": before})).await;
    assert_eq!(stand.client.ok("worktree::on-config-change", json!({"id": "x"})).await, json!({"ok": true}));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_stored_is_never_overwritten() {
    let mut stand = Stand::apart().await;
    let value = json!({
        "worktree_root": stand.seal.path().join("worktrees"), "branch_prefix": "${WT_PREFIX:mine/}",
        "gates": {"allow_remove": false},
    });
    stand.client.ok("configuration::set", json!({"id": "worktree", "value": value})).await;
    let stored = |stand: &Stand| {
        let asked = stand.client.sdk().clone();
        async move {
            let request = iii_sdk::protocol::TriggerRequest {
                function_id: "configuration::get".to_owned(),
                payload: json!({"id": "worktree", "raw": true}),
                action: None,
                timeout_ms: None,
            };
            asked.trigger(request).await.unwrap()["value"].clone()
        }
    };
    // The engine restarts and has forgotten the schema; the worker restarts with another seed; it is killed.
    stand.restart_engine().await;
    until("the schema is registered again", || async {
        let set = json!({"id": "worktree", "value": value});
        stand.client.call("configuration::set", set).await.ok()
    })
    .await;
    assert_eq!(stored(&stand).await, value);
    std::fs::write(stand.seal.path().join("seed.yaml"), "branch_prefix: other/\n").unwrap();
    assert!(stand.stop_and_restart().await.success());
    assert_eq!(stored(&stand).await, value);
    stand.kill_and_restart().await;
    assert_eq!(stored(&stand).await, value);
    assert!(stand.create(&stand.repository("shop")).await.branch.starts_with("mine/"));
    stand.client.refused("worktree::remove", json!({"worktree_id": "wt_0"}), "W500").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_schedule_is_bound_anew_only_when_it_changes_and_never_missing() {
    let stand = Stand::dev().await;
    let bound = || async {
        let query = json!({"trigger_type": "cron", "function_id": "worktree::prune", "include_internal": true});
        let listed = stand.client.ok("engine::registered-triggers::list", query).await;
        let triggers = listed["registered_triggers"].as_array().unwrap();
        let pair = |one: &Value| {
            (one["id"].as_str().unwrap().to_owned(), one["config"]["expression"].as_str().unwrap().to_owned())
        };
        triggers.iter().map(pair).collect::<Vec<_>>()
    };
    let first = bound().await;
    assert_eq!(first.len(), 1, "{first:?}");
    stand.configure(json!({"prune_expire_hours": 5})).await;
    stand.configure(json!({"gates": {"allow_land": false}})).await;
    assert_eq!(bound().await, first, "nothing about the schedule changed");
    // Looked at without pause while it changes, there is always one, and in the end one alone.
    let changing = stand.configure(json!({"prune_schedule": "0 30 * * * *"}));
    tokio::pin!(changing);
    loop {
        tokio::select! {
            () = &mut changing => break,
            seen = bound() => assert!(!seen.is_empty(), "there was no schedule"),
        }
    }
    let second = until("the new schedule alone", || async {
        let seen = bound().await;
        assert!(!seen.is_empty(), "there was no schedule");
        (seen.len() == 1 && seen[0].1 == "0 30 * * * *").then_some(seen)
    })
    .await;
    assert_ne!(second[0].0, first[0].0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_is_taken_up_while_a_gate_runs() {
    let stand = Stand::dev().await;
    let repository = stand.repository("shop");
    let mut events = stand.hear().await;
    let created = stand.create(&repository).await;
    created.checkout.commit("a", "1\n");
    let gate = Gate::new(&stand.seal, "slow");
    stand.land(&created, json!({"test_cmd": gate.command()})).await;
    gate.started().await;
    stand.configure(json!({"branch_prefix": "new/", "gates": {"allow_land": false}})).await;
    assert!(stand.create(&repository).await.branch.starts_with("new/"));
    gate.end(0);
    // What was accepted before is landed.
    events.landed(&created.id).await;
}
