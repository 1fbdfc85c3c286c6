//! Every destructive step is in the log, with what is needed to find again what went; without a log nothing goes.

use serde_json::{Value, json};
use worktree::audit::{Action, Entry, Filter};
use worktree::model::actor::ActorKind;

use super::{eager, log_of, pruned, skipped, told};
use crate::support::{Stand, until};

fn detail<'a>(entry: &'a Entry, key: &str) -> &'a Value {
    entry.details.get(key).unwrap_or_else(|| panic!("no `{key}` in {entry:?}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removal_tells_who_and_what_before_it_happens() {
    let stand = Stand::dev_with(eager()).await;
    let repository = stand.repository("shop");
    let created = stand.create(&repository).await;
    created.checkout.commit("apples", "3\n");
    created.checkout.write("loose", "x\n");
    let head = created.checkout.sha("HEAD");
    let request = json!({"worktree_id": created.id, "force": true, "delete_branch": true, "session_id": "ada"});
    stand.client.ok("worktree::remove", request).await;
    let removed = told(&stand, Action::Remove, &created.id);
    let [entry] = &removed[..] else { panic!("{removed:?}") };
    assert_eq!(entry.actor.kind, ActorKind::Caller);
    assert_eq!(entry.actor.session_id.as_deref(), Some("ada"));
    assert_eq!(entry.repo_key.as_deref(), repository.path().join(".git").to_str());
    assert_eq!(detail(entry, "head_sha"), &json!(head));
    assert_eq!(detail(entry, "branch"), &json!(created.branch));
    assert_eq!((detail(entry, "forced"), detail(entry, "dirty")), (&json!(true), &json!(true)));
    let trash = std::path::PathBuf::from(detail(entry, "trash").as_str().unwrap());
    assert_eq!(std::fs::read_to_string(trash.join("loose")).unwrap(), "x\n");
    let backup = detail(entry, "backup_refs")[0].as_str().unwrap();
    assert_eq!(repository.sha(backup), head);
    let branch = told(&stand, Action::BranchDelete, &created.id);
    assert_eq!(detail(&branch[0], "head_sha"), &json!(head));
    assert!(branch[0].seq > entry.seq);
    assert!(log_of(&stand).verify().unwrap().is_intact());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sweep_a_land_and_the_trash_are_told() {
    let stand = Stand::dev_with(eager()).await;
    let repository = stand.repository("shop");
    let mut events = stand.hear().await;
    let landing = stand.create(&repository).await;
    let head = landing.checkout.commit("apples", "3\n");
    stand.land(&landing, json!({})).await;
    events.landed(&landing.id).await;
    let finalized = told(&stand, Action::Finalize, &landing.id);
    assert_eq!(detail(&finalized[0], "merged_sha"), &json!(head));
    assert_eq!(finalized[0].actor.kind, ActorKind::Worker);
    until("the backup ref in the log", || async { told(&stand, Action::BackupDelete, &landing.id).pop() }).await;
    assert_eq!(told(&stand, Action::BranchDelete, &landing.id).len(), 1);

    let idle = stand.create(&repository).await;
    let rehearsed = stand.client.ok("worktree::prune", json!({"dry_run": true})).await;
    assert!(pruned(&rehearsed, &idle.id));
    let rehearsal = log_of(&stand).query(&Filter { dry_run: Some(true), ..Filter::default() }).unwrap();
    assert_eq!(detail(&rehearsal[0], "would_prune"), &json!([idle.id]));
    assert!(told(&stand, Action::Prune, &idle.id).is_empty());
    stand.client.ok("worktree::prune", json!({})).await;
    assert_eq!(told(&stand, Action::Prune, &idle.id).len(), 1);
    assert_eq!(told(&stand, Action::BranchDelete, &idle.id).len(), 1);
    until("the trash in the log", || async { told(&stand, Action::TrashDelete, &idle.id).pop() }).await;
    let gone = stand.create(&repository).await;
    std::fs::remove_dir_all(gone.checkout.path()).unwrap();
    stand.client.ok("worktree::prune", json!({})).await;
    assert_eq!(told(&stand, Action::Reconcile, &gone.id).len(), 1);
    assert!(log_of(&stand).verify().unwrap().is_intact());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reason_to_leave_a_finished_worktree_alone_is_told_once_per_cause() {
    let mut stand = Stand::dev_with(eager()).await;
    let repository = stand.repository("shop");
    let created = stand.create(&repository).await;
    created.checkout.write("loose", "x\n");
    for _ in 0..3 {
        let answer = stand.client.ok("worktree::prune", json!({})).await;
        assert!(skipped(&answer, &created.id).starts_with("dirty"), "{answer}");
    }
    assert_eq!(told(&stand, Action::PruneSkip, &created.id).len(), 1);
    // Also by a worker that has been restarted.
    stand.kill_and_restart().await;
    stand.client.ok("worktree::prune", json!({})).await;
    assert_eq!(told(&stand, Action::PruneSkip, &created.id).len(), 1);
    created.checkout.commit("loose", "x\n");
    stand.client.ok("worktree::prune", json!({})).await;
    let skips = told(&stand, Action::PruneSkip, &created.id);
    assert_eq!(skips.len(), 2);
    assert_eq!(detail(&skips[1], "cause"), "unmerged work");
    // Waiting is no safety skip.
    let claimed = stand.create_with(&repository, json!({"session_id": "ada"})).await;
    stand.client.ok("worktree::prune", json!({})).await;
    assert!(told(&stand, Action::PruneSkip, &claimed.id).is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_log_nothing_goes() {
    let stand = Stand::dev_with(eager()).await;
    let repository = stand.repository("shop");
    let mut events = stand.hear().await;
    let created = stand.create(&repository).await;
    let landing = stand.create(&repository).await;
    landing.checkout.commit("apples", "3\n");
    // Something lies where the log would be.
    std::fs::write(stand.seal.path().join("worktrees/.audit"), "in the way").unwrap();
    for force in [false, true] {
        let request = json!({"worktree_id": created.id, "force": force, "delete_branch": true});
        let message = stand.client.refused("worktree::remove", request, "W600").await;
        assert!(message.contains("nothing was destroyed"), "{message}");
    }
    let answer = stand.client.ok("worktree::prune", json!({})).await;
    assert!(skipped(&answer, &created.id).contains("audit"), "{answer}");
    stand.land(&landing, json!({})).await;
    let landed = events.landed(&landing.id).await;
    assert!(landed["kept_reason"].as_str().unwrap().contains("audit"), "{landed}");
    for one in [&created, &landing] {
        assert!(one.checkout.path().join("README").exists());
        assert!(repository.branch(&one.branch).is_some());
    }
    // The log can be written again, or is switched off: it goes.
    std::fs::remove_file(stand.seal.path().join("worktrees/.audit")).unwrap();
    stand.client.ok("worktree::remove", json!({"worktree_id": created.id})).await;
    assert!(!created.checkout.path().exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operation_that_is_discarded_is_told_and_nobody_writes_where_it_is_switched_off() {
    let stand = Stand::dev_with(eager()).await;
    let repository = stand.repository("shop");
    let mut events = stand.hear().await;
    let created = stand.create(&repository).await;
    created.checkout.commit("README", "mine\n");
    repository.commit("README", "theirs\n");
    assert!(!created.checkout.try_git(&["merge", "main"]).status.success());
    stand.land(&created, json!({"force_restart": true})).await;
    events.blocked(&created.id).await;
    let aborted = told(&stand, Action::AbortOperation, &created.id);
    assert_eq!(detail(&aborted[0], "operation"), "a merge");
    assert_eq!(detail(&aborted[0], "forced"), &json!(true));

    let off = Stand::dev_with(json!({"audit": {"enabled": false}})).await;
    let repository = off.repository("shop");
    let created = off.create(&repository).await;
    off.client.ok("worktree::remove", json!({"worktree_id": created.id})).await;
    assert!(!off.seal.path().join("worktrees/.audit").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_directory_is_configured_and_its_files_rotate() {
    let seal = crate::support::Seal::new();
    let directory = seal.path().join("elsewhere/log");
    let keys = json!({"prune_expire_hours": 0, "audit": {"directory": directory, "max_bytes": 4096}});
    let stand = Stand::dev_in(seal, keys, &[]).await;
    let repository = stand.repository("shop");
    for _ in 0..6 {
        let created = stand.create(&repository).await;
        let request = json!({"worktree_id": created.id, "delete_branch": true});
        stand.client.ok("worktree::remove", request).await;
    }
    let found = worktree::audit::Log::new(directory, 4096).verify().unwrap();
    assert!(found.files > 1 && found.is_intact(), "{found:?}");
    assert!(!stand.seal.path().join("worktrees/.audit").exists());
}
