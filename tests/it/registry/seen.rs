//! What operators see: states, locks, the use of the disk.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use worktree::model::record::{Lifecycle, Record};
use worktree::worktrees::states::{self, State};
use worktree::worktrees::{inspect, prune, remove, repo_lock, usage};

use super::bench::Bench;

#[tokio::test(flavor = "multi_thread")]
async fn each_state_is_seen_where_it_is() {
    let bench = Bench::new().await;
    let repository = bench.repository("shop");
    let (idle, _) = bench.create(&repository).await;
    let (broken, checkout) = bench.create(&repository).await;
    std::fs::remove_file(checkout.path().join(".git")).unwrap();
    let (gone, checkout) = bench.create(&repository).await;
    std::fs::remove_dir_all(checkout.path()).unwrap();
    let (lost, _) = bench.create(&repository).await;
    {
        let guard = bench.ctx.registry.lock(&lost.repo_key).await.unwrap();
        bench.ctx.registry.delete_record(&guard, &lost.worktree_id).await.unwrap();
    }
    let empty = Path::new(&lost.path).with_file_name("wt_00000000feed");
    std::fs::create_dir(&empty).unwrap();
    let seen = |ctx: &worktree::worktrees::Context| {
        let mut seen: Vec<_> = states::survey(ctx).into_iter().map(|one| (one.worktree_id, one.state)).collect();
        seen.sort();
        seen
    };
    let mut expected = vec![
        (idle.worktree_id.clone(), State::Active),
        (broken.worktree_id.clone(), State::Corrupt),
        (gone.worktree_id.clone(), State::Orphan),
        (lost.worktree_id.clone(), State::Orphan),
        ("wt_00000000feed".to_owned(), State::Corrupt),
    ];
    expected.sort();
    assert_eq!(seen(&bench.ctx), expected);
    bench.move_clock(Duration::from_secs(80 * 3600));
    let idle_now = states::look(&bench.ctx, &idle);
    assert_eq!((idle_now.state, idle_now.why.contains("80 hours")), (State::Stale, true), "{idle_now:?}");
    // Held ones are not stale, however old.
    let claim = worktree::worktrees::claim::Request {
        worktree_id: idle.worktree_id.clone(),
        session_id: "ada".to_owned(),
        force: false,
    };
    worktree::worktrees::claim::run(&bench.ctx, claim).await.unwrap();
    bench.move_clock(Duration::from_secs(800 * 3600));
    let held = states::look(&bench.ctx, &bench.ctx.registry.record(&idle.worktree_id).unwrap());
    assert_eq!((held.state, held.session_id.as_deref()), (State::Active, Some("ada")));
    let root = bench.seal.path().join("worktrees");
    std::fs::rename(&root, root.with_file_name("unmounted")).unwrap();
    let states: Vec<_> = states::survey(&bench.ctx).into_iter().map(|one| one.state).collect();
    assert_eq!(states, [State::Unreachable; 3]);
}

#[tokio::test(flavor = "multi_thread")]
async fn c45_a_stash_that_moved_is_told() {
    let bench = Bench::new().await;
    let repository = bench.repository("shop");
    let (record, _) = bench.create(&repository).await;
    assert!(!states::look(&bench.ctx, &record).stash_moved);
    repository.write("README", "mine\n");
    repository.git(&["stash", "push", "--quiet"]);
    assert!(states::look(&bench.ctx, &record).stash_moved);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_corrupt_directory_goes_only_when_it_holds_no_file() {
    let bench = Bench::with(json!({"prune_expire_hours": 0})).await;
    let repository = bench.repository("shop");
    let (hollow, checkout) = bench.create(&repository).await;
    std::fs::remove_dir_all(checkout.path()).unwrap();
    std::fs::create_dir_all(checkout.path().join("src/deep")).unwrap();
    let (holding, checkout) = bench.create(&repository).await;
    std::fs::remove_file(checkout.path().join(".git")).unwrap();
    let swept = prune::run(&bench.ctx, prune::Request::default()).await.unwrap();
    assert_eq!(swept.pruned, std::slice::from_ref(&hollow.worktree_id));
    assert!(!Path::new(&hollow.path).exists());
    assert_eq!(checkout.read("README"), "hello\n");
    assert_eq!(swept.skipped[0].id, holding.worktree_id);
    assert_eq!(repository.worktrees().len(), 2, "git's entry of the one that holds files stays");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_of_0_2_without_a_marker_is_pruned_and_removed() {
    let bench = Bench::with(json!({"prune_expire_hours": 0})).await;
    let repository = bench.repository("shop");
    let mut records = Vec::new();
    for _ in 0..4 {
        let (record, checkout) = bench.create(&repository).await;
        let entry = checkout.git(&["rev-parse", "--path-format=absolute", "--git-dir"]);
        std::fs::remove_file(Path::new(&entry).join("iii-worktree.json")).unwrap();
        records.push((record, checkout));
    }
    let [present, gone, removed, removed_gone] = &records[..] else { panic!() };
    for (_, checkout) in [gone, removed_gone] {
        std::fs::remove_dir_all(checkout.path()).unwrap();
    }
    for (record, _) in [removed, removed_gone] {
        let request = remove::Request { worktree_id: record.worktree_id.clone(), force: false, delete_branch: false };
        remove::run(&bench.ctx, request).await.unwrap();
    }
    let mut swept = prune::run(&bench.ctx, prune::Request::default()).await.unwrap().pruned;
    swept.sort();
    let mut expected = [present.0.worktree_id.clone(), gone.0.worktree_id.clone()];
    expected.sort();
    assert_eq!(swept, expected);
    assert_eq!(repository.worktrees(), [repository.path()]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_use_of_the_disk_is_measured_and_a_quota_only_warns() {
    let bench = Bench::with(json!({"prune_expire_hours": 10_000, "quota": {"disk_soft_bytes": 1 << 20}})).await;
    let repository = bench.repository("shop");
    repository.commit(".gitignore", "cache/\n");
    let (small, _) = bench.create(&repository).await;
    let (big, checkout) = bench.create(&repository).await;
    assert!(bench.ctx.usage.last().is_none(), "a create measures nothing");
    checkout.write("cache/object", &"x".repeat(3 << 20));
    std::fs::hard_link(checkout.path().join("cache/object"), checkout.path().join("cache/again")).unwrap();
    let report = usage::measure(&bench.ctx).await;
    let (one, other) = (&report.worktrees[&small.worktree_id], &report.worktrees[&big.worktree_id]);
    assert!(one.bytes < 1 << 20 && one.ignored_bytes == Some(0), "{one:?}");
    assert!((3 << 20..4 << 20).contains(&other.bytes), "{other:?}");
    assert!(other.ignored_bytes.unwrap() >= 3 << 20 && other.ignored_bytes.unwrap() < other.bytes, "{other:?}");
    assert_eq!(report.total_bytes, one.bytes + other.bytes);
    let swept = prune::run(&bench.ctx, prune::Request::default()).await.unwrap();
    assert!(swept.pruned.is_empty());
    for skip in &swept.skipped {
        assert!(
            skip.reason.contains("not expired") && skip.reason.contains("quota.disk_soft_bytes"),
            "{}",
            skip.reason
        );
    }
    assert!(Path::new(&big.path).exists());
    bench.configure(json!({"prune_expire_hours": 10_000}));
    let swept = prune::run(&bench.ctx, prune::Request::default()).await.unwrap();
    assert!(swept.skipped.iter().all(|skip| !skip.reason.contains("quota")));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_holder_of_the_lock_of_a_repository_is_seen() {
    let bench = Bench::new().await;
    let repository = bench.repository("shop");
    let (record, _) = bench.create(&repository).await;
    let common = Path::new(&record.repo_key);
    let guard = bench.ctx.registry.lock(&record.repo_key).await.unwrap();
    let seen = repo_lock::look(common, repo_lock::LOCK_FILE).unwrap();
    assert!(seen.held && seen.holder_alive && seen.holder.unwrap().pid == std::process::id());
    assert!(!repo_lock::unlock(&bench.ctx, &record.repo_key).await.unwrap().cleared);
    drop(guard);
    let unlocked = repo_lock::unlock(&bench.ctx, &record.repo_key).await.unwrap();
    assert!(unlocked.cleared && !unlocked.before.held);
    let told = bench.log().tail(&worktree::audit::Filter::default(), 1).unwrap();
    assert_eq!((told[0].action.as_str(), &told[0].details["pid"]), ("unlock", &json!(std::process::id())));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_lifecycles_of_many_are_those_of_each() {
    let bench = Bench::new().await;
    let (record, _) = bench.create(&bench.repository("shop")).await;
    let gone = |number| Record { path: format!("{}-{number}", record.path), ..record.clone() };
    let many = (0..2501).map(|n| Arc::new(if n % 7 == 0 { gone(n) } else { record.clone() }));
    let many: Vec<Arc<Record>> = many.collect();
    let found = inspect::lifecycles_now(&many);
    assert_eq!(found, many.iter().map(|record| inspect::lifecycle_now(record)).collect::<Vec<_>>());
    assert_eq!(found.iter().filter(|one| **one == Lifecycle::Orphaned).count(), 358);
    assert_eq!(inspect::lifecycles_now(&[]), []);
}
