//! What was removed by force comes back, for as long as it is kept.

use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::time::Duration;

use serde_json::json;
use worktree::audit::{Action, Filter};
use worktree::model::Code;
use worktree::model::record::{Lifecycle, Record};
use worktree::worktrees::{prune, remove, restore};

use super::bench::Bench;
use crate::support::{Checkout, Stand, until};

const DAY: Duration = Duration::from_secs(24 * 3600);

async fn bench() -> Bench {
    Bench::with(json!({"gates": {"allow_force": true}, "prune_expire_hours": 10_000})).await
}

async fn force(bench: &Bench, record: &Record, delete_branch: bool) {
    let request = remove::Request { worktree_id: record.worktree_id.clone(), force: true, delete_branch };
    let removed = remove::run(&bench.ctx, request).await.unwrap();
    assert_eq!(removed.branch_deleted, delete_branch);
    assert!(!Path::new(&record.path).exists());
}

async fn sweep(bench: &Bench) {
    prune::run(&bench.ctx, prune::Request::default()).await.unwrap();
}

fn trash(bench: &Bench) -> usize {
    std::fs::read_dir(bench.seal.path().join("worktrees/.trash")).unwrap().count()
}

/// Commits, staged, changed and untracked files, and an ignored one.
fn work(checkout: &Checkout) -> String {
    let head = checkout.commit("apples", "3\n");
    checkout.write("staged", "s\n");
    checkout.git(&["add", "staged"]);
    checkout.write("README", "changed\n");
    checkout.write("loose", "x\n");
    head
}

#[tokio::test(flavor = "multi_thread")]
async fn directory_branch_and_record_come_back_as_they_were() {
    let bench = bench().await;
    let repository = bench.repository("shop");
    let (record, checkout) = bench.create(&repository).await;
    let head = work(&checkout);
    let before = checkout.git(&["status", "--porcelain"]);
    force(&bench, &record, true).await;
    assert_eq!(repository.branch(&record.branch), None);
    assert_eq!(restore::restorable(&bench.ctx).unwrap()[0].record.worktree_id, record.worktree_id);
    let restored = restore::run(&bench.ctx, &record.worktree_id).await.unwrap();
    assert!(restored.branch_restored && restored.work.contains("3 uncommitted files"), "{restored:?}");
    assert_eq!(repository.branch(&record.branch), Some(head.clone()));
    assert_eq!(checkout.sha("HEAD"), head);
    assert_eq!(checkout.git(&["symbolic-ref", "--short", "HEAD"]), record.branch);
    assert_eq!(checkout.git(&["status", "--porcelain"]), before);
    assert_eq!((checkout.read("loose").as_str(), checkout.read("README").as_str()), ("x\n", "changed\n"));
    let back = bench.ctx.registry.record(&record.worktree_id).unwrap();
    assert_eq!((back.lifecycle, back.fence), (Lifecycle::Active, record.fence + 1));
    assert!(repository.git(&["worktree", "list", "--porcelain"]).contains("locked iii worktree"));
    assert_eq!(repository.git(&["fsck", "--connectivity-only", "--no-dangling"]), "");
    assert_eq!(trash(&bench), 0);
    // It is a worktree like any other: also for the next process, and for the next removal.
    let second = bench.second().await;
    assert_eq!(second.registry.records().len(), 1);
    force(&bench, &back, false).await;
    restore::run(&bench.ctx, &record.worktree_id).await.unwrap();
    let told = bench.log().query(&Filter { actions: vec![Action::Restore], ..Filter::default() }).unwrap();
    assert_eq!(told.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_open_rebase_and_a_detached_commit_come_back() {
    let bench = bench().await;
    let repository = bench.repository("shop");
    let (record, checkout) = bench.create(&repository).await;
    checkout.commit("README", "mine\n");
    repository.commit("README", "theirs\n");
    assert!(!checkout.try_git(&["rebase", "main"]).status.success());
    force(&bench, &record, true).await;
    restore::run(&bench.ctx, &record.worktree_id).await.unwrap();
    checkout.write("README", "both\n");
    checkout.git(&["add", "README"]);
    checkout.git(&["rebase", "--continue"]);
    assert_eq!(repository.git(&["show", &format!("{}:README", record.branch)]), "both");

    let (record, checkout) = bench.create(&repository).await;
    checkout.git(&["checkout", "--quiet", "--detach"]);
    let loose = checkout.commit("pears", "4\n");
    force(&bench, &record, false).await;
    repository.git(&["reflog", "expire", "--expire=now", "--all"]);
    repository.git(&["gc", "--quiet", "--prune=now"]);
    restore::run(&bench.ctx, &record.worktree_id).await.unwrap();
    assert_eq!(checkout.sha("HEAD"), loose);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_in_the_way_is_named_and_nothing_changes() {
    let bench = bench().await;
    let repository = bench.repository("shop");
    let (record, checkout) = bench.create(&repository).await;
    work(&checkout);
    let restore = || restore::run(&bench.ctx, &record.worktree_id);
    assert_eq!(restore().await.unwrap_err().code, Code::NoSuchWorktree, "it was not removed");
    force(&bench, &record, true).await;
    std::fs::create_dir_all(&record.path).unwrap();
    assert!(restore().await.unwrap_err().message.contains(&record.path));
    std::fs::remove_dir(&record.path).unwrap();
    repository.git(&["branch", &record.branch, "main"]);
    assert_eq!(restore().await.unwrap_err().code, Code::BranchExists);
    repository.git(&["branch", "-D", &record.branch]);
    repository.git(&["branch", &record.branch, &format!("refs/iii/wt-backup/{}", record.worktree_id)]);
    let other = bench.seal.path().join("other");
    repository.git(&["worktree", "add", "--quiet", other.to_str().unwrap(), &record.branch]);
    let error = restore().await.unwrap_err();
    assert!(error.code == Code::BranchExists && error.message.contains("other"), "{error:?}");
    repository.git(&["worktree", "remove", other.to_str().unwrap()]);
    let restored = restore().await.unwrap();
    assert!(!restored.branch_restored);
    assert_eq!(checkout.read("loose"), "x\n");
    assert_eq!(restore().await.unwrap_err().code, Code::NoSuchWorktree, "it is back already");
    assert_eq!(restore::run(&bench.ctx, "wt_000000000000").await.unwrap_err().code, Code::NoSuchWorktree);
}

#[tokio::test(flavor = "multi_thread")]
async fn it_is_kept_for_as_long_as_configured_and_then_swept() {
    let bench = bench().await;
    let repository = bench.repository("shop");
    let (forced, checkout) = bench.create(&repository).await;
    let head = work(&checkout);
    force(&bench, &forced, true).await;
    let (ordinary, _) = bench.create(&repository).await;
    let request = remove::Request { worktree_id: ordinary.worktree_id.clone(), force: false, delete_branch: true };
    remove::run(&bench.ctx, request).await.unwrap();
    bench.ctx.background.idle().await;
    assert_eq!(trash(&bench), 3, "what was removed by force, its entry and its description");
    bench.move_clock(2 * DAY);
    sweep(&bench).await;
    assert_eq!(trash(&bench), 3);
    let backup = format!("refs/iii/wt-backup/{}", forced.worktree_id);
    assert_eq!(repository.sha(&backup), head);
    bench.move_clock(DAY + Duration::from_secs(60));
    sweep(&bench).await;
    assert_eq!(trash(&bench), 0);
    assert!(!repository.refs().contains("wt-backup"), "{}", repository.refs());
    assert_eq!(restore::run(&bench.ctx, &forced.worktree_id).await.unwrap_err().code, Code::NoSuchWorktree);
    // What is gone for good can still be found: the log names the commit.
    let filter = Filter { mentions: Some(head), ..Filter::default() };
    let actions: Vec<_> = bench.log().query(&filter).unwrap().into_iter().map(|entry| entry.action).collect();
    assert_eq!(actions, ["remove", "branch-delete", "backup-delete"]);
    let swept = Filter { actions: vec![Action::TrashDelete], ..Filter::default() };
    assert_eq!(bench.log().query(&swept).unwrap().len(), 2);
    assert!(bench.log().verify().unwrap().is_intact());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_that_a_worktree_needs_is_not_swept_and_nothing_goes_without_a_log() {
    let bench = bench().await;
    let repository = bench.repository("shop");
    let (record, checkout) = bench.create(&repository).await;
    let head = checkout.commit("apples", "3\n");
    let backup = format!("refs/iii/wt-backup/{}", record.worktree_id);
    let earlier = format!("{backup}.{head}");
    repository.git(&["update-ref", "--create-reflog", &backup, &head]);
    repository.git(&["update-ref", "--create-reflog", &earlier, &head]);
    let stray = "refs/iii/wt-backup/wt_00000000dead";
    repository.git(&["update-ref", "--create-reflog", stray, &head]);
    repository.git(&["update-ref", "--create-reflog", &format!("{stray}.{head}"), &head]);
    let unknown = "refs/iii/wt-backup/wt_00000000beef";
    repository.git(&["update-ref", unknown, &head]);
    std::fs::remove_file(repository.path().join(".git/logs").join(unknown)).unwrap_or_default();
    let now = bench.ctx.now();
    bench.move_clock(10 * DAY);
    std::fs::write(bench.seal.path().join("worktrees/.audit"), "in the way").unwrap();
    sweep(&bench).await;
    assert!(repository.refs().contains(stray), "it went although nobody could write that down");
    std::fs::remove_file(bench.seal.path().join("worktrees/.audit")).unwrap();
    sweep(&bench).await;
    let refs = repository.refs();
    // The dates of commits and reflogs in these tests lie in the past: see how old the stray one looked.
    assert!(!refs.contains(stray), "{refs} at {now}");
    assert!(refs.contains(&format!("{backup} ")) && refs.contains(&earlier) && refs.contains(unknown), "{refs}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_restored_beside_a_worker_is_seen_by_it() {
    let stand = Stand::dev_with(json!({"gates": {"allow_force": true}})).await;
    let repository = stand.repository("shop");
    let created = stand.create(&repository).await;
    created.checkout.write("loose", "x\n");
    stand.client.ok("worktree::remove", json!({"worktree_id": created.id, "force": true})).await;
    let beside = worktree::wire::attach(stand.client.sdk().clone()).await.unwrap();
    let actor = worktree::model::actor::Actor::command_line("ann");
    let restored = worktree::worktrees::acting::on_behalf(actor.clone(), restore::run(&beside, &created.id)).await;
    assert_eq!(restored.unwrap().record.worktree_id, created.id);
    until("the record at the worker", || async {
        stand.client.call("worktree::get", json!({"worktree_id": created.id})).await.ok()
    })
    .await;
    assert_eq!(created.checkout.read("loose"), "x\n");
    assert_eq!(super::told(&stand, Action::Restore, &created.id)[0].actor, actor);
}

#[tokio::test(flavor = "multi_thread")]
async fn with_no_retention_nothing_is_kept() {
    let bench = Bench::with(json!({"gates": {"allow_force": true}, "retention_hours": 0})).await;
    let repository = bench.repository("shop");
    let (record, checkout) = bench.create(&repository).await;
    checkout.write("loose", "x\n");
    force(&bench, &record, false).await;
    bench.ctx.background.idle().await;
    assert_eq!(trash(&bench), 0);
    assert!(repository.branch(&record.branch).is_some());
}

/// Whoever restores may be killed anywhere: the same command again brings everything back, and nothing more. Once the
/// directory is at its place, the next prune of the worker does.
#[tokio::test(flavor = "multi_thread")]
async fn a_restore_that_was_killed_is_finished_by_another_one() {
    let stand = Stand::dev_with(json!({"gates": {"allow_force": true}})).await;
    let repository = stand.repository("shop");
    let directory = stand.seal.path().join("fault");
    std::fs::create_dir(&directory).unwrap();
    let mut points = Vec::new();
    let mut at = 0;
    while at <= points.len() {
        let plan = if at == 0 { "trace".to_owned() } else { format!("kill before {at}") };
        let created = stand.create(&repository).await;
        let head = work(&created.checkout);
        let seen = |checkout: &Checkout| (checkout.git(&["status", "--porcelain"]), checkout.sha("HEAD"));
        let before = seen(&created.checkout);
        let gone = json!({"worktree_id": created.id, "force": true, "delete_branch": true});
        stand.client.ok("worktree::remove", gone).await;
        assert_eq!(repository.branch(&created.branch), None);
        let restore = || stand.command(&["restore", &created.id, "--url", stand.url()]);
        std::fs::write(directory.join("plan"), &plan).unwrap();
        let ended = restore().env("WORKTREE_FAULT", &directory).output().unwrap();
        std::fs::remove_file(directory.join("plan")).unwrap();
        if at == 0 {
            let trace = std::fs::read_to_string(directory.join("trace")).unwrap();
            points = trace.lines().map(str::to_owned).collect();
            assert!(points.iter().any(|point| point.ends_with("add an empty .git")), "{points:#?}");
        } else {
            assert_eq!(ended.status.signal(), Some(9), "{plan}: {ended:?}");
            if points[at - 1].ends_with("state state::set worktree") {
                // It is at its place, and its marker tells the worker what it is.
                stand.client.ok("worktree::prune", json!({})).await;
            } else {
                let again = restore().output().unwrap();
                assert!(again.status.success(), "{plan}, {:?}: {again:?}", points[at - 1]);
            }
        }
        assert_eq!(seen(&created.checkout), before, "{plan}, {:?}", points.get(at.wrapping_sub(1)));
        assert_eq!(repository.branch(&created.branch), Some(head), "{plan}");
        let known = || async { stand.client.call("worktree::get", json!({"worktree_id": created.id})).await.ok() };
        until("the record at the worker", known).await;
        at += 1;
    }
}
