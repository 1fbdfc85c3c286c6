//! What counts as unsaved work, on every path that deletes.

use serde_json::json;
use worktree::worktrees::{marker, prune, remove, unsaved_work};

use super::bench::Bench;
use crate::support::Checkout;

async fn bench() -> Bench {
    Bench::with(json!({"prune_expire_hours": 0})).await
}

/// Refused by remove with this code and these words, and skipped by the sweep.
async fn stays(bench: &Bench, id: &str, code: &str, words: &str) {
    let request = remove::Request { worktree_id: id.to_owned(), force: false, delete_branch: true };
    let error = remove::run(&bench.ctx, request).await.unwrap_err();
    assert_eq!(error.code.as_str(), code, "{error}");
    assert!(error.message.contains(words), "{error}");
    let swept = prune::run(&bench.ctx, prune::Request::default()).await.unwrap();
    let skip = swept.skipped.iter().find(|skip| skip.id == id).unwrap();
    assert!(skip.reason.contains(words), "{}", skip.reason);
    assert!(std::path::Path::new(&bench.ctx.registry.record(id).unwrap().path).exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_that_git_was_told_not_to_look_at_count() {
    for flag in ["--assume-unchanged", "--skip-worktree"] {
        let bench = bench().await;
        let repository = bench.repository("shop");
        let (record, checkout) = bench.create(&repository).await;
        checkout.git(&["update-index", flag, "README"]);
        checkout.write("README", "local\n");
        assert_eq!(checkout.git(&["status", "--porcelain"]), "", "git does not show it");
        stays(&bench, &record.worktree_id, "W220", "1 changed file that git was told not to look at").await;
        assert_eq!(checkout.read("README"), "local\n");
    }
}

/// A repository `outer` with a submodule `middle`, which has a submodule `inner`; a worktree with all of them.
async fn nested(bench: &Bench) -> (String, Checkout, Checkout, Checkout) {
    let add = |around: &Checkout, inside: &Checkout, name: &str| {
        around.git(&["-c", FILES, "submodule", "--quiet", "add", &inside.text(), name]);
        around.git(&["config", "--file", ".gitmodules", &format!("submodule.{name}.ignore"), "all"]);
        around.git(&["commit", "--quiet", "--all", "--message", name]);
    };
    let [inner, middle, outer] = ["inner", "middle", "outer"].map(|name| bench.repository(name));
    add(&middle, &inner, "inner");
    add(&outer, &middle, "middle");
    let (record, checkout) = bench.create(&outer).await;
    checkout.git(&["-c", FILES, "submodule", "--quiet", "update", "--init", "--recursive"]);
    let middle = Checkout::at(checkout.path().join("middle"), &bench.seal);
    let inner = Checkout::at(middle.path().join("inner"), &bench.seal);
    (record.worktree_id, checkout, middle, inner)
}

const FILES: &str = "protocol.file.allow=always";

#[tokio::test(flavor = "multi_thread")]
async fn c39_what_lies_in_submodules_counts_whatever_git_was_told_about_them() {
    let bench = bench().await;
    let (id, checkout, middle, inner) = nested(&bench).await;
    // A user, and a repository, that want to see no file that git does not know.
    middle.git(&["config", "status.showUntrackedFiles", "no"]);
    middle.write("loose", "x\n");
    assert_eq!(checkout.git(&["status", "--porcelain"]), "", "git does not show it");
    stays(&bench, &id, "W220", "1 uncommitted file").await;
    std::fs::remove_file(middle.path().join("loose")).unwrap();
    // One that is ignored where it is, in one that is not.
    inner.write("loose", "x\n");
    assert_eq!(middle.git(&["status", "--porcelain"]), "", "git does not show it");
    stays(&bench, &id, "W220", "1 ").await;
    std::fs::remove_file(inner.path().join("loose")).unwrap();
    for checkout in [&middle, &inner] {
        checkout.git(&["update-index", "--assume-unchanged", "README"]);
        checkout.write("README", "local\n");
        stays(&bench, &id, "W220", "1 changed file that git was told not to look at").await;
        checkout.write("README", "hello\n");
        checkout.git(&["update-index", "--no-assume-unchanged", "README"]);
    }
    let request = remove::Request { worktree_id: id, force: false, delete_branch: true };
    remove::run(&bench.ctx, request).await.unwrap();
    assert!(!checkout.path().exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_open_operation_counts_also_when_the_tree_is_clean() {
    let bench = bench().await;
    let repository = bench.repository("shop");
    let (record, checkout) = bench.create(&repository).await;
    checkout.git(&["bisect", "start"]);
    stays(&bench, &record.worktree_id, "W220", "a bisection").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_told_counts() {
    let bench = bench().await;
    let repository = bench.repository("shop");
    let (record, checkout) = bench.create(&repository).await;
    let index = std::path::PathBuf::from(checkout.git(&["rev-parse", "--path-format=absolute", "--git-path", "index"]));
    std::fs::write(&index, "no index").unwrap();
    stays(&bench, &record.worktree_id, "W220", "could not be told").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_detached_commit_that_nothing_contains_counts_even_when_it_is_the_base() {
    let bench = bench().await;
    let repository = bench.repository("shop");
    repository.git(&["checkout", "--quiet", "-b", "short-lived"]);
    let lonely = repository.commit("pears", "4\n");
    repository.git(&["checkout", "--quiet", "main"]);
    let request = worktree::worktrees::create::Request {
        repo_path: repository.text(),
        base_ref: Some("short-lived".to_owned()),
        ..worktree::worktrees::create::Request::default()
    };
    let created = worktree::worktrees::create::run(&bench.ctx, request).await.unwrap();
    let checkout = Checkout::at(&created.path, &bench.seal);
    checkout.git(&["checkout", "--quiet", "--detach"]);
    repository.git(&["branch", "-D", "short-lived", &created.branch]);
    stays(&bench, &created.worktree_id, "W221", "1 commit not landed").await;
    assert_eq!(checkout.sha("HEAD"), lonely);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_branch_whose_base_is_gone_is_not_deleted() {
    let bench = bench().await;
    for by_sweep in [false, true] {
        let repository = bench.repository(if by_sweep { "farm" } else { "shop" });
        repository.git(&["checkout", "--quiet", "-b", "short-lived"]);
        let lonely = repository.commit("pears", "4\n");
        repository.git(&["checkout", "--quiet", "main"]);
        let mut created = Vec::new();
        for _ in 0..2 {
            let request = worktree::worktrees::create::Request {
                repo_path: repository.text(),
                base_ref: Some("short-lived".to_owned()),
                ..worktree::worktrees::create::Request::default()
            };
            created.push(worktree::worktrees::create::run(&bench.ctx, request).await.unwrap());
        }
        repository.git(&["branch", "-D", "short-lived"]);
        if by_sweep {
            let swept = prune::run(&bench.ctx, prune::Request::default()).await.unwrap();
            for one in &created {
                assert!(swept.pruned.contains(&one.worktree_id), "{:?}", swept.skipped);
            }
        } else {
            for one in &created {
                let id = one.worktree_id.clone();
                let request = remove::Request { worktree_id: id, force: false, delete_branch: true };
                remove::run(&bench.ctx, request).await.unwrap();
            }
        }
        // The first may go, since the second contains the commit; then that one is the last that does.
        let left: Vec<_> = created.iter().filter_map(|one| repository.branch(&one.branch)).collect();
        assert_eq!(left, std::slice::from_ref(&lonely));
        // With a tag on it, it goes.
        repository.git(&["tag", "kept", &lonely]);
        let record = bench.ctx.registry.records();
        assert!(record.iter().all(|record| record.repo_key != created[0].repo_key));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_branch_goes_when_a_tag_or_a_remote_contains_it() {
    let bench = bench().await;
    for keeper in ["refs/tags/v1", "refs/remotes/origin/topic"] {
        let repository = bench.repository(&keeper.replace('/', "-"));
        let (record, checkout) = bench.create(&repository).await;
        let head = checkout.commit("apples", "3\n");
        let repo = bench.ctx.git().repo(record.repo_key.as_ref());
        let tip = head.parse().unwrap();
        let own = [record.branch.as_str()];
        assert_eq!(unsaved_work::branch_kept_by(&repo, &record, &tip, &own).await.unwrap(), None);
        repository.git(&["update-ref", "refs/iii/wt-backup/wt_000000000000", &head]);
        assert_eq!(unsaved_work::branch_kept_by(&repo, &record, &tip, &own).await.unwrap(), None, "backups expire");
        repository.git(&["update-ref", keeper, &head]);
        assert_eq!(unsaved_work::branch_kept_by(&repo, &record, &tip, &own).await.unwrap().as_deref(), Some(keeper));
        repository.git(&["update-ref", "-d", keeper]);
        // The target counts, unless it goes with the branch.
        repository.git(&["merge", "--quiet", "--ff-only", &record.branch]);
        let going = [own[0], "main"];
        assert!(unsaved_work::branch_kept_by(&repo, &record, &tip, &own).await.unwrap().is_some());
        assert_eq!(unsaved_work::branch_kept_by(&repo, &record, &tip, &going).await.unwrap(), None);
    }
}

/// Those that stay are not judged one by one; what is said about them is the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_sweep_of_many_says_of_each_what_a_judgement_of_that_one_says() {
    for (moves, pushes) in [(false, false), (true, false), (true, true)] {
        let bench = bench().await;
        let repository = bench.repository("shop");
        let mut made = Vec::new();
        for number in 0..7 {
            made.push(bench.create(&repository).await);
            let checkout = &made[number].1;
            checkout.commit(&format!("work-{number}"), "1\n");
            checkout.commit(&format!("more-{number}"), "1\n");
        }
        let (landed, squashed, dirty, detached) = (&made[0], &made[1], &made[2], &made[3]);
        dirty.1.write("loose", "x\n");
        detached.1.git(&["checkout", "--quiet", "--detach"]);
        if moves {
            repository.git(&["merge", "--quiet", "--no-edit", &landed.0.branch]);
            repository.git(&["merge", "--quiet", "--squash", &squashed.0.branch]);
            repository.git(&["commit", "--quiet", "--message", "Squashed"]);
        }
        if pushes {
            let remote = bench.seal.path().join("remote.git");
            repository.git(&["init", "--quiet", "--bare", remote.to_str().unwrap()]);
            repository.git(&["remote", "add", "origin", remote.to_str().unwrap()]);
            repository.git(&["push", "--quiet", "origin", &format!("{}~1:refs/heads/half", made[4].0.branch)]);
            repository.git(&["fetch", "--quiet", "origin"]);
        }
        let mut expected = Vec::new();
        for (record, _) in &made {
            let (tree, _) = marker::require_tree(&bench.ctx.git(), record).unwrap();
            let work = unsaved_work::judge(record, &tree).await;
            let cause = if work.is_tidy() { "unmerged work" } else { "dirty" };
            if !work.is_none() {
                expected.push((record.worktree_id.clone(), format!("{cause}: {}", work.describe())));
            }
        }
        let rehearsal = prune::Request { dry_run: true, ..prune::Request::default() };
        for request in [rehearsal, prune::Request::default()] {
            let swept = prune::run(&bench.ctx, request).await.unwrap();
            let said: Vec<_> = swept.skipped.into_iter().map(|skip| (skip.id, skip.reason)).collect();
            assert_eq!(said, expected);
            assert_eq!(swept.pruned.len(), if moves { 2 } else { 0 }, "{:?}", swept.pruned);
        }
        if pushes {
            assert!(expected.iter().any(|(_, reason)| reason.ends_with("2 commits not landed (1 on no remote)")));
        }
    }
}

/// Many are judged before the first of them goes. What is written into one of the others meanwhile is not lost.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_written_while_others_are_swept_is_not_lost() {
    let bench = bench().await;
    let mut written = 0;
    for round in 0..8 {
        let repository = bench.repository(&format!("shop-{round}"));
        let mut paths = Vec::new();
        for _ in 0..20 {
            paths.push(bench.create(&repository).await.1.path().to_owned());
        }
        let writer = std::thread::spawn(move || {
            while paths[0].exists() {
                std::thread::sleep(std::time::Duration::from_micros(50));
            }
            let write = |path: &std::path::PathBuf| std::fs::write(path.join("loose"), "x\n").is_ok();
            paths.into_iter().rev().filter(write).collect::<Vec<_>>()
        });
        let swept = prune::run(&bench.ctx, prune::Request::default()).await.unwrap();
        let wrote = tokio::task::spawn_blocking(move || writer.join().unwrap()).await.unwrap();
        for path in &wrote {
            assert_eq!(std::fs::read_to_string(path.join("loose")).unwrap(), "x\n");
            let id = path.file_name().unwrap().to_str().unwrap();
            let skip = swept.skipped.iter().find(|skip| skip.id == id).unwrap();
            assert_eq!(skip.reason, "dirty: 1 uncommitted file (1 untracked)");
        }
        written += wrote.len();
    }
    assert!(written > 0, "all were gone before anything could be written");
}
