//! The cases of creation, by their numbers, at the worker. What only the git layer can show is tested there.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::join_all;
use serde_json::{Value, json};
use worktree::worktrees::create;

use super::bench::Bench;
use super::{eager, pruned};
use crate::support::{Checkout, Seal, Stand};

fn request(repository: &Checkout, fields: Value) -> Value {
    let mut request = json!({"repo_path": repository.text()});
    let Value::Object(fields) = fields else { panic!("the fields of a request are an object") };
    request.as_object_mut().unwrap().extend(fields);
    request
}

/// Refs, git's worktrees, and directories below the worktree root, for "nothing is left behind".
fn traces(stand: &Stand, repository: &Checkout) -> (String, Vec<PathBuf>, Vec<PathBuf>) {
    let slugs = std::fs::read_dir(stand.seal.path().join("worktrees")).into_iter().flatten().flatten();
    let slugs =
        slugs.map(|slug| slug.path()).filter(|slug| !slug.file_name().unwrap().to_str().unwrap().starts_with('.'));
    let below = |slug: PathBuf| std::fs::read_dir(slug).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>();
    let mut directories: Vec<_> = slugs.flat_map(below).collect();
    directories.sort();
    (repository.refs(), repository.worktrees(), directories)
}

#[tokio::test(flavor = "multi_thread")]
async fn c01_parallel_creates_succeed_while_the_configuration_is_locked() {
    let stand = Stand::dev().await;
    let repository = stand.repository("shop");
    repository.git(&["update-ref", "refs/remotes/origin/main", "main"]);
    let lock = repository.path().join(".git/config.lock");
    std::fs::write(&lock, "").unwrap();
    let creates = (0..8).map(|number| {
        let fields = json!({"branch": format!("task-{number}"), "base_ref": "origin/main"});
        stand.client.ok("worktree::create", request(&repository, fields))
    });
    assert_eq!(join_all(creates).await.len(), 8);
    assert_eq!(repository.worktrees().len(), 9);
    std::fs::remove_file(lock).unwrap();
    assert!(!repository.git(&["config", "--list", "--local"]).contains("branch."), "it tracks something");
}

#[tokio::test(flavor = "multi_thread")]
async fn c02_the_loser_of_a_race_for_a_name_leaves_nothing() {
    let stand = Stand::dev().await;
    let repository = stand.repository("shop");
    let both = (0..4).map(|_| stand.client.call("worktree::create", request(&repository, json!({"branch": "task"}))));
    let (won, lost): (Vec<_>, Vec<_>) = join_all(both).await.into_iter().partition(Result::is_ok);
    assert_eq!((won.len(), lost.len()), (1, 3));
    assert!(lost.iter().all(|refusal| refusal.as_ref().is_err_and(|(code, _)| code == "W120")), "{lost:?}");
    let (refs, worktrees, directories) = traces(&stand, &repository);
    assert_eq!((refs.lines().count(), worktrees.len(), directories.len()), (2, 2, 1), "{refs}");
    // The retry of a loser under another name is not blocked by anything.
    stand.client.ok("worktree::create", request(&repository, json!({"branch": "task-2"}))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn c03_a_repository_wide_prune_of_somebody_else_unregisters_nothing_that_was_answered() {
    let stand = Stand::dev().await;
    let repository = stand.repository("shop");
    let stop = Arc::new(AtomicBool::new(false));
    let pruning = {
        let (stop, repository) = (stop.clone(), repository.clone());
        std::thread::spawn(move || {
            let mut rounds = 0;
            while !stop.load(Ordering::SeqCst) {
                repository.git(&["worktree", "prune", "--expire=now"]);
                rounds += 1;
            }
            rounds
        })
    };
    let creates = (0..10).map(|_| stand.client.call("worktree::create", request(&repository, json!({}))));
    let answers = join_all(creates).await;
    stop.store(true, Ordering::SeqCst);
    assert!(pruning.join().unwrap() > 0);
    let created: Vec<_> = answers.into_iter().filter_map(Result::ok).collect();
    assert!(!created.is_empty());
    let worktrees = repository.worktrees();
    assert_eq!(worktrees.len(), created.len() + 1, "what was refused left something, or what was answered is gone");
    for one in &created {
        let path = PathBuf::from(one["path"].as_str().unwrap());
        assert!(worktrees.contains(&path));
        assert_eq!(stand.checkout(&path).git(&["symbolic-ref", "--short", "HEAD"]), one["branch"]);
    }
    let (refs, ..) = traces(&stand, &repository);
    assert_eq!(refs.lines().count(), created.len() + 1, "{refs}");
}

#[tokio::test(flavor = "multi_thread")]
async fn c04_creates_beside_adds_of_somebody_else_all_succeed() {
    let stand = Stand::dev().await;
    let repository = stand.repository("shop");
    let adding = {
        let (repository, at) = (repository.clone(), stand.seal.path().to_owned());
        std::thread::spawn(move || {
            (0..6).all(|number| {
                let path = at.join(format!("theirs-{number}"));
                let branch = format!("theirs-{number}");
                repository.try_git(&["worktree", "add", "-b", &branch, path.to_str().unwrap()]).status.success()
            })
        })
    };
    let creates = (0..6).map(|_| stand.create(&repository));
    assert_eq!(join_all(creates).await.len(), 6);
    assert!(adding.join().unwrap());
    assert_eq!(repository.worktrees().len(), 13);
}

#[tokio::test(flavor = "multi_thread")]
async fn c06_names_that_exclude_each_other_are_refused_before_anything_and_generated_ones_move_on() {
    let stand = Stand::dev().await;
    let repository = stand.repository("shop");
    repository.git(&["branch", "release/2026.4"]);
    repository.git(&["branch", "feat"]);
    let before = traces(&stand, &repository);
    for (branch, in_the_way) in [("release", "release/2026.4"), ("feat/x", "feat")] {
        let asked = request(&repository, json!({"branch": branch}));
        let message = stand.client.refused("worktree::create", asked, "W121").await;
        assert!(message.contains(in_the_way), "{message}");
    }
    assert_eq!(traces(&stand, &repository), before);

    let bench = Bench::new().await;
    let repository = bench.repository("shop");
    repository.git(&["branch", "iii/wt_aaaaaaaaaaaa/deeper"]);
    repository.git(&["branch", "iii/wt_bbbbbbbbbbbb"]);
    for id in ["aaaaaaaaaaaa", "bbbbbbbbbbbb", "cccccccccccc"] {
        bench.give_id(id);
    }
    let (record, _) = bench.create(&repository).await;
    // A prefix that is in the way is written with dashes; the next id would do as well.
    assert_eq!(record.branch, "iii-wt_bbbbbbbbbbbb");
}

#[tokio::test(flavor = "multi_thread")]
async fn c07_a_name_means_the_branch_whatever_else_bears_it() {
    let stand = Stand::dev().await;
    let repository = stand.repository("shop");
    let first = repository.sha("main");
    let second = repository.commit("a", "1\n");
    for name in ["main", "stash", "origin/x"] {
        repository.git(&["tag", name, &first]);
    }
    let digits = "0123456789abcdef0123456789abcdef01234567";
    for name in ["stash", "origin/x", digits] {
        repository.git(&["update-ref", &format!("refs/heads/{name}"), &second]);
    }
    repository.git(&["update-ref", "refs/stash", &first]);
    repository.git(&["update-ref", "refs/remotes/origin/x", &first]);
    for base in ["main", "stash", "origin/x", digits] {
        let created = stand.create_with(&repository, json!({"base_ref": base})).await;
        assert_eq!(created.base_sha, second, "{base}");
    }
    for branch in ["stash-2", "origin/y", "0123456789abcdef0123456789abcdef01234568"] {
        assert_eq!(stand.create_with(&repository, json!({"branch": branch})).await.branch, branch);
    }
    stand.client.refused("worktree::create", request(&repository, json!({"branch": "HEAD"})), "W111").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn c08_a_create_that_fails_never_falls_back_to_another_directory() {
    let stand = Stand::dev().await;
    let repository = stand.repository("shop");
    repository.git(&["branch", "taken"]);
    let head = repository.git(&["symbolic-ref", "HEAD"]);
    let before = traces(&stand, &repository);
    stand.client.refused("worktree::create", request(&repository, json!({"branch": "taken"})), "W120").await;
    assert_eq!((traces(&stand, &repository), repository.git(&["symbolic-ref", "HEAD"])), (before, head));

    let bench = Bench::new().await;
    let repository = bench.repository("shop");
    let (record, _) = bench.create(&repository).await;
    let place = Path::new(&record.path).with_file_name("wt_dddddddddddd");
    std::fs::create_dir(&place).unwrap();
    std::fs::write(place.join("precious"), "x\n").unwrap();
    bench.give_id("dddddddddddd");
    let asked = create::Request { repo_path: repository.text(), ..create::Request::default() };
    let error = create::run(&bench.ctx, asked).await.unwrap_err();
    assert!(error.message.contains("wt_dddddddddddd"), "{error}");
    assert_eq!(std::fs::read_to_string(place.join("precious")).unwrap(), "x\n");
    assert_eq!((repository.worktrees().len(), repository.branch("iii/wt_dddddddddddd")), (2, None));
}

#[tokio::test(flavor = "multi_thread")]
async fn c09_what_a_hook_does_with_git_stays_where_it_does_it() {
    let stand = Stand::dev().await;
    let repository = stand.repository("shop");
    let inner = stand.seal.path().join("inner");
    let seen = stand.seal.path().join("seen");
    let init = repository.words(&format!("init --quiet {}", inner.display()));
    let script = format!("#!/bin/sh\nenv > {}\n{init}\n", seen.display());
    repository.hook("post-checkout", &script);
    stand.create(&repository).await;
    let seen = std::fs::read_to_string(seen).unwrap();
    for variable in ["GIT_DIR=", "GIT_WORK_TREE=", "GIT_INDEX_FILE="] {
        assert!(!seen.lines().any(|line| line.starts_with(variable)), "{variable}");
    }
    assert!(inner.join(".git/HEAD").exists());
    assert_eq!(repository.git(&["config", "core.bare"]), "false");
    assert_eq!(repository.git(&["status", "--porcelain"]), "");
}

#[tokio::test(flavor = "multi_thread")]
async fn c10_creating_and_removing_are_the_same_with_variables_of_git_preset() {
    let seal = Seal::new();
    let trap = Checkout::init(seal.path().join("trap"), &seal);
    trap.commit("bait", "x\n");
    let before = (trap.refs(), std::fs::read(trap.path().join(".git/index")).unwrap());
    let (git_dir, index) = (trap.path().join(".git"), trap.path().join(".git/index"));
    let variables = [
        ("GIT_DIR", git_dir.to_str().unwrap().to_owned()),
        ("GIT_INDEX_FILE", index.to_str().unwrap().to_owned()),
        ("GIT_COMMON_DIR", git_dir.to_str().unwrap().to_owned()),
        ("GIT_OBJECT_DIRECTORY", git_dir.join("objects").to_str().unwrap().to_owned()),
    ];
    let variables: Vec<_> = variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let stand = Stand::dev_in(seal, eager(), &variables).await;
    let repository = stand.repository("shop");
    let created = stand.create(&repository).await;
    created.checkout.write("loose", "x\n");
    stand.client.refused("worktree::remove", json!({"worktree_id": created.id}), "W220").await;
    std::fs::remove_file(created.checkout.path().join("loose")).unwrap();
    let answer = stand.client.ok("worktree::prune", json!({})).await;
    assert!(pruned(&answer, &created.id), "{answer}");
    assert_eq!((trap.refs(), std::fs::read(index).unwrap()), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn c13_a_hook_that_fails_or_hangs_costs_no_complete_worktree() {
    let stand = Stand::dev_with(json!({"git_timeout_ms": 1500})).await;
    let repository = stand.repository("shop");
    repository.hook("post-checkout", "#!/bin/sh\necho overcommit is missing >&2\nexit 127\n");
    let failed = stand.create(&repository).await;
    let pid = stand.seal.path().join("pid");
    repository.hook("post-checkout", &format!("#!/bin/sh\nsleep 600 &\necho $! > {}\nwait\n", pid.display()));
    let hung = stand.create(&repository).await;
    for one in [&failed, &hung] {
        assert_eq!(one.checkout.git(&["status", "--porcelain"]), "");
        assert_eq!(one.checkout.git(&["symbolic-ref", "--short", "HEAD"]), one.branch);
        assert_eq!(stand.lifecycle(&one.id).await, "active");
    }
    assert!(stand.log().contains("the post-checkout hook did not succeed"), "nobody was told");
    let pid = std::fs::read_to_string(pid).unwrap();
    crate::support::until("the end of the hook's child", || async {
        let state = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
        (state.is_empty() || state.contains(") Z ")).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn c15_a_filter_that_is_missing_fails_the_create_and_leaves_nothing() {
    let stand = Stand::dev_with(json!({"git": {"filters": ["lfs"]}})).await;
    let repository = stand.repository("shop");
    repository.commit("model.bin", "version https://git-lfs.github.com/spec/v1\n");
    repository.commit(".gitattributes", "*.bin filter=lfs\n");
    repository.git(&["config", "filter.lfs.smudge", "git-lfs-is-not-installed smudge -- %f"]);
    repository.git(&["config", "filter.lfs.required", "true"]);
    let before = traces(&stand, &repository);
    let message = stand.client.refused("worktree::create", request(&repository, json!({})), "W102").await;
    assert!(message.contains("lfs"), "the filter is not named: {message}");
    assert_eq!(traces(&stand, &repository), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn c16_a_repository_without_commits_is_refused_and_spoils_nothing_for_others() {
    let stand = Stand::dev_with(eager()).await;
    let empty = Checkout::init(stand.seal.path().join("empty"), &stand.seal);
    stand.client.refused("worktree::create", request(&empty, json!({})), "W115").await;
    let repository = stand.repository("shop");
    let orphan = stand.seal.path().join("orphan");
    // As `worktree add --orphan` does where git has it.
    repository.git(&["worktree", "add", "--quiet", "--detach", "--no-checkout", orphan.to_str().unwrap()]);
    stand.checkout(&orphan).git(&["symbolic-ref", "HEAD", "refs/heads/unborn"]);
    let created = stand.create(&repository).await;
    created.checkout.git(&["checkout", "--quiet", "--orphan", "nothing-yet"]);
    created.checkout.git(&["rm", "-r", "--quiet", "--force", "."]);
    let other = stand.create(&repository).await;
    let listed =
        stand.client.ok("worktree::list", json!({"repo_path": repository.text(), "include_status": true})).await;
    assert_eq!(listed["worktrees"].as_array().unwrap().len(), 2, "{listed}");
    let answer = stand.client.ok("worktree::prune", json!({})).await;
    assert!(pruned(&answer, &other.id), "{answer}");
    super::skipped(&answer, &created.id);
    assert!(orphan.exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn c18_the_default_branch_bears_any_name() {
    let stand = Stand::dev_with(eager()).await;
    let repository = stand.repository("shop");
    repository.git(&["branch", "--move", "main", "trunk"]);
    let created = stand.create(&repository).await;
    created.checkout.commit("apples", "3\n");
    stand.client.refused("worktree::remove", json!({"worktree_id": created.id}), "W221").await;
    repository.git(&["merge", "--quiet", "--no-ff", "--no-edit", &created.branch]);
    let status = stand.client.ok("worktree::status", json!({"worktree_id": created.id})).await;
    assert_eq!((&status["integrated"], &status["integration_reason"]), (&json!(true), &json!("ancestor")));
    let request = json!({"worktree_id": created.id, "delete_branch": true});
    assert_eq!(stand.client.ok("worktree::remove", request).await["branch_deleted"], true);
}

#[tokio::test(flavor = "multi_thread")]
async fn c19_the_base_is_recorded_and_what_is_upstream_has_landed() {
    let stand = Stand::dev().await;
    let repository = stand.repository("shop");
    let origin = stand.seal.path().join("origin.git");
    repository.git(&["clone", "--quiet", "--bare", &repository.text(), origin.to_str().unwrap()]);
    repository.git(&["remote", "add", "origin", origin.to_str().unwrap()]);
    repository.git(&["fetch", "--quiet"]);
    repository.git(&["branch", "--quiet", "--set-upstream-to=origin/main", "main"]);
    let local = repository.sha("main");
    let created = stand.create_with(&repository, json!({"base_ref": "main"})).await;
    let got = stand.client.ok("worktree::get", json!({"worktree_id": created.id})).await;
    assert_eq!((&got["base_ref"], &got["base_sha"]), (&json!("main"), &json!(local)));
    // Merged upstream, while the local branch is behind.
    let head = created.checkout.commit("apples", "3\n");
    created.checkout.git(&["push", "--quiet", "origin", "HEAD:main"]);
    repository.git(&["fetch", "--quiet"]);
    assert_eq!(repository.sha("main"), local);
    assert_eq!(repository.sha("origin/main"), head);
    let status = stand.client.ok("worktree::status", json!({"worktree_id": created.id})).await;
    assert_eq!(status["integrated"], true, "{status}");
    stand.client.ok("worktree::remove", json!({"worktree_id": created.id})).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn c21_two_repositories_of_one_name_stay_apart() {
    let stand = Stand::dev().await;
    let (one, other) = (stand.repository("a/shop"), stand.repository("b/shop"));
    let (first, second) = (stand.create(&one).await, stand.create(&other).await);
    assert_ne!(first.checkout.path().parent(), second.checkout.path().parent());
    for (repository, created) in [(&one, &first), (&other, &second)] {
        let listed = stand.client.ok("worktree::list", json!({"repo_path": repository.text()})).await;
        let ids: Vec<_> = listed["worktrees"].as_array().unwrap().iter().map(|one| &one["worktree_id"]).collect();
        assert_eq!(ids, [&json!(created.id)]);
    }
}
