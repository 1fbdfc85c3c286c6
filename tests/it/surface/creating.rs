//! `worktree::create`: bases, names, places, budgets.

use std::path::Path;

use serde_json::{Value, json};

use super::untouched;
use crate::support::{Checkout, Stand};

#[tokio::test(flavor = "multi_thread")]
async fn c07_a_base_of_every_kind_is_the_commit_it_names() {
    let stand = Stand::dev().await;
    let repository = stand.repository("shop");
    let first = repository.sha("main");
    repository.git(&["tag", "v1"]);
    repository.git(&["tag", "--annotate", "--message", "notes", "v2"]);
    let second = repository.commit("a", "1\n");
    for branch in ["stash", "origin/x", "heads/odd", "topic"] {
        repository.git(&["branch", branch]);
    }
    repository.git(&["tag", "topic", &first]);
    repository.git(&["update-ref", "refs/remotes/origin/main", &first]);
    repository.git(&["update-ref", "refs/iii/own", &first]);
    repository.git(&["update-ref", "refs/heads/HEAD", &first]);
    let third = repository.commit("b", "1\n");
    // A branch that looks like a commit is a branch.
    repository.git(&["update-ref", &format!("refs/heads/{}", "ab".repeat(20)), &second]);
    for (base, expected) in [
        ("HEAD", &third),
        ("@", &third),
        ("HEAD~1", &second),
        ("HEAD^^", &first),
        ("main", &third),
        ("main~2", &first),
        ("refs/heads/main", &third),
        ("topic", &second),
        ("refs/tags/topic", &first),
        ("tags/topic", &first),
        ("stash", &second),
        ("origin/x", &second),
        ("origin/main", &first),
        ("refs/remotes/origin/main", &first),
        ("heads/odd", &second),
        ("refs/iii/own", &first),
        ("v1", &first),
        ("v2", &first),
        ("v2^{commit}", &first),
        (&"ab".repeat(20), &second),
        (second.as_str(), &second),
        (&second[..8], &second),
    ] {
        let created = stand.create_with(&repository, json!({"base_ref": base})).await;
        assert_eq!((&created.base_sha, &created.checkout.sha("HEAD")), (expected, expected), "{base}");
        // Whatever it was made from, nothing stands in the way of its end.
        let removed = stand.client.ok("worktree::remove", json!({"worktree_id": created.id})).await;
        assert_eq!(removed["removed"], true, "{base}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn head_is_that_of_the_checkout_the_caller_named() {
    let stand = Stand::dev().await;
    let repository = stand.repository("shop");
    let one = stand.create(&repository).await;
    let below = one.checkout.commit("a", "1\n");
    let tip = one.checkout.commit("a", "2\n");
    for (base, expected) in [("HEAD", &tip), ("HEAD~1", &below), ("@~1", &below), ("main", &one.base_sha)] {
        let request = json!({"repo_path": one.checkout.text(), "base_ref": base});
        let created = stand.client.ok("worktree::create", request).await;
        assert_eq!(&created["base_sha"].as_str().unwrap(), expected, "{base}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_branch_does_not_follow_its_base() {
    let stand = Stand::dev().await;
    let repository = stand.repository("shop");
    repository.git(&["update-ref", "refs/remotes/origin/main", "HEAD"]);
    repository.git(&["remote", "add", "origin", &repository.text()]);
    repository.git(&["config", "branch.autoSetupMerge", "always"]);
    repository.git(&["config", "branch.autoSetupRebase", "always"]);
    for base in ["main", "origin/main", "HEAD"] {
        let created = stand.create_with(&repository, json!({"base_ref": base})).await;
        let configured = repository.try_git(&["config", "--get-regexp", "^branch\\.iii/"]);
        assert_eq!(String::from_utf8_lossy(&configured.stdout), "", "{base}");
        assert!(!created.checkout.try_git(&["rev-parse", "@{upstream}"]).status.success(), "{base}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn c06_a_name_in_the_way_is_told_before_anything_is_made() {
    let stand = Stand::dev().await;
    let repository = stand.repository("shop");
    for branch in ["release/2026.4", "feat"] {
        repository.git(&["branch", branch]);
    }
    let owned = stand.create_with(&repository, json!({"branch": "owned"})).await;
    let before = untouched(&stand, &repository).await;
    for (branch, code, named) in [
        ("release", "W121", "release/2026.4"),
        ("release/2026.4/x", "W121", "release/2026.4"),
        ("feat/x", "W121", "feat"),
        ("feat", "W120", "feat"),
        ("owned", "W120", owned.id.as_str()),
        ("HEAD", "W111", "HEAD"),
        ("refs/heads/../x", "W111", "refs/heads"),
        ("a.lock", "W111", "a.lock"),
        ("@{-1}", "W111", "@{-1}"),
        ("-d", "W111", "-d"),
    ] {
        let request = json!({"repo_path": repository.text(), "branch": branch});
        let message = stand.client.refused("worktree::create", request, code).await;
        assert!(message.contains(named), "{branch}: {message}");
    }
    assert_eq!(untouched(&stand, &repository).await, before);
    for branch in ["stash", "origin/y", &"cd".repeat(20), "HEAD/x", "ümlaut/ß", "a@b"] {
        let created = stand.create_with(&repository, json!({"branch": branch})).await;
        assert_eq!(created.checkout.git(&["symbolic-ref", "HEAD"]), format!("refs/heads/{branch}"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn c06_a_generated_name_that_is_impossible_is_replaced() {
    let stand = Stand::dev().await;
    let repository = stand.repository("shop");
    repository.git(&["branch", "iii"]);
    let created = stand.create(&repository).await;
    assert_eq!(created.branch, format!("iii-{}", created.id));
    stand.configure(json!({"branch_naming": "codename"})).await;
    let created = stand.create(&repository).await;
    assert_eq!(created.branch, format!("iii-{}", worktree::model::id::codename(&created.id)));
    // What the caller would look for by name is not renamed.
    repository.git(&["remote", "add", "origin", &repository.text()]);
    let request = json!({"repo_path": repository.text(), "pr": 7});
    stand.client.refused("worktree::create", request, "W121").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pull_request_is_fetched_once_and_by_its_own_name() {
    let stand = Stand::dev().await;
    let repository = stand.repository("shop");
    let request = json!({"repo_path": repository.text(), "pr": 7});
    let message = stand.client.refused("worktree::create", request.clone(), "W112").await;
    assert!(message.contains("`origin`") && message.contains("git remote add"), "{message}");

    let origin = stand.seal.path().join("origin.git");
    repository.git(&["clone", "--quiet", "--bare", &repository.text(), origin.to_str().unwrap()]);
    repository.git(&["remote", "add", "origin", origin.to_str().unwrap()]);
    // What the remote is configured to fetch does not matter, and nothing else is fetched.
    repository.git(&["config", "--unset-all", "remote.origin.fetch"]);
    repository.commit("proposal", "1\n");
    repository.git(&[
        "push",
        "--quiet",
        "origin",
        "HEAD:refs/pull/7/head",
        "HEAD:refs/heads/noise",
        "HEAD:refs/tags/noise",
    ]);
    let proposed = repository.sha("HEAD");
    repository.git(&["reset", "--quiet", "--hard", "HEAD~1"]);
    let created = stand.create_with(&repository, json!({"pr": 7, "session_id": "ada"})).await;
    assert_eq!((created.branch.as_str(), &created.base_sha), ("iii/pr-7", &proposed));
    assert_eq!(repository.git(&["for-each-ref", "--format=%(refname)", "refs/iii/pr"]), "refs/iii/pr/7");
    assert!(!repository.refs().contains("noise"), "{}", repository.refs());

    // Asked for again, it is only named: not even fetched.
    repository.git(&["push", "--quiet", "--force", "origin", "main:refs/pull/7/head"]);
    let before = untouched(&stand, &repository).await;
    let message = stand.client.refused("worktree::create", request, "W120").await;
    assert!(message.contains(&created.id) && message.contains(&created.checkout.text()), "{message}");
    for (fields, code) in [
        (json!({"pr": 8}), "W112"),
        (json!({"pr": 9, "base_ref": "main"}), "W001"),
        (json!({"pr": 9, "branch": "x"}), "W001"),
    ] {
        let mut request = json!({"repo_path": repository.text()});
        request.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        stand.client.refused("worktree::create", request, code).await;
    }
    assert_eq!(untouched(&stand, &repository).await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn c01_twenty_at_once_all_succeed_also_beside_a_held_lock() {
    let stand = Stand::dev().await;
    let repository = stand.repository("shop");
    repository.git(&["update-ref", "refs/remotes/origin/main", "HEAD"]);
    // Somebody's git is writing the configuration, and lets go after a while.
    let lock = repository.path().join(".git/config.lock");
    std::fs::write(&lock, "").unwrap();
    let release = async {
        // Not asked of git, which fails when it meets an entry that is just being made.
        let entries = || std::fs::read_dir(repository.path().join(".git/worktrees")).map_or(0, Iterator::count);
        crate::support::until("the first worktrees", || async { (entries() > 1).then_some(()) }).await;
        std::fs::remove_file(&lock).unwrap();
    };
    let creates = futures_util::future::join_all((0..20).map(|n| {
        let fields = json!({"base_ref": "origin/main", "branch": format!("task/{n}")});
        stand.create_with(&repository, fields)
    }));
    let ((), created) = tokio::join!(release, creates);
    assert_eq!(repository.worktrees().len(), 21);
    for one in &created {
        assert_eq!(one.checkout.git(&["status", "--porcelain"]), "");
        assert!(std::fs::read_dir(one.checkout.path()).unwrap().count() > 1);
    }
    let listed = stand.client.ok("worktree::list", json!({"repo_path": repository.text()})).await;
    assert_eq!((listed["worktrees"].as_array().unwrap().len(), &listed["unmanaged"]), (20, &json!([])));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_budget_holds_however_many_ask_at_once() {
    let stand = Stand::dev_with(json!({"gates": {"max_worktrees_per_repo": 3}})).await;
    let repository = stand.repository("shop");
    let ask = || stand.client.call("worktree::create", json!({"repo_path": repository.text()}));
    let answers = futures_util::future::join_all((0..12).map(|_| ask())).await;
    let (made, refused): (Vec<_>, Vec<_>) = answers.into_iter().partition(Result::is_ok);
    assert_eq!((made.len(), repository.worktrees().len()), (3, 4));
    for refusal in refused {
        let (code, message) = refusal.unwrap_err();
        assert_eq!(code, "W504", "{message}");
        assert!(message.contains("gates.max_worktrees_per_repo") && message.contains("3 of 3"), "{message}");
    }
    // Only those that live count.
    let gone = made[0].as_ref().unwrap()["path"].as_str().unwrap();
    std::fs::remove_dir_all(gone).unwrap();
    stand.create(&repository).await;
    assert_eq!(ask().await.unwrap_err().0, "W504");
}

#[tokio::test(flavor = "multi_thread")]
async fn c42_a_root_inside_the_repository_is_refused_unless_it_is_ignored() {
    let stand = Stand::dev().await;
    let repository = stand.repository("shop");
    let linked = stand.create(&repository).await;
    for inside in [
        repository.path().to_owned(),
        repository.path().join("trees"),
        repository.path().join(".git/trees"),
        linked.checkout.path().join("trees"),
    ] {
        stand.configure(json!({"worktree_root": inside})).await;
        let before = untouched(&stand, &repository).await;
        let from = if inside.starts_with(linked.checkout.path()) { &linked.checkout } else { &repository };
        let request = json!({"repo_path": from.text()});
        let message = stand.client.refused("worktree::create", request, "W010").await;
        assert!(message.contains("worktree_root"), "{message}");
        assert_eq!(untouched(&stand, &repository).await, before);
        assert_eq!(repository.git(&["status", "--porcelain"]), "");
    }
    // Ignored there, neither `git add` nor `git clean` takes it for part of the checkout.
    let root = repository.path().join("trees");
    std::fs::write(repository.path().join(".git/info/exclude"), "/trees/\n").unwrap();
    stand.configure(json!({"worktree_root": root})).await;
    let created = stand.create(&repository).await;
    assert!(created.checkout.path().starts_with(&root));
    repository.git(&["clean", "--quiet", "-ffd"]);
    assert_eq!(created.checkout.read("README"), "hello\n");
    // A root above the repository holds it beside the worktrees, and is none of its files.
    stand.configure(json!({"worktree_root": stand.seal.path()})).await;
    let created = stand.create(&repository).await;
    assert!(!created.checkout.path().starts_with(repository.path()));
    stand.client.ok("worktree::remove", json!({"worktree_id": created.id})).await;
    assert_eq!(repository.read("README"), "hello\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn c16_repositories_that_are_not_the_usual_kind() {
    let stand = Stand::dev().await;
    let repository = stand.repository("shop");
    let head = repository.commit("a", "1\n");
    // Nothing is checked out on a branch.
    repository.git(&["checkout", "--quiet", "--detach", "HEAD~1"]);
    let created = stand.create(&repository).await;
    assert_eq!(created.base_sha, repository.sha("HEAD"));
    assert_eq!(stand.create_with(&repository, json!({"base_ref": "main"})).await.base_sha, head);

    // No checkout at all.
    let bare = stand.seal.path().join("bare.git");
    repository.git(&["clone", "--quiet", "--bare", &repository.text(), bare.to_str().unwrap()]);
    let bare = Checkout::at(&bare, &stand.seal);
    bare.git(&["symbolic-ref", "HEAD", "refs/heads/main"]);
    let created = stand.create(&bare).await;
    assert_eq!((&created.base_sha, created.checkout.read("a").as_str()), (&head, "1\n"));
    let got = stand.client.ok("worktree::get", json!({"worktree_id": created.id})).await;
    assert_eq!((&got["repo_path"], &got["repo_key"]), (&json!(bare.text()), &json!(bare.text())));
    assert_eq!(got["status"]["integration_reason"], "same_commit");

    // An unborn HEAD beside a branch that has commits, and none at all.
    let unborn = Checkout::init(stand.seal.path().join("unborn"), &stand.seal);
    let request = json!({"repo_path": unborn.text()});
    stand.client.refused("worktree::create", request.clone(), "W115").await;
    unborn.git(&["fetch", "--quiet", &repository.text(), "main:refs/heads/other"]);
    let message = stand.client.refused("worktree::create", request, "W112").await;
    assert!(message.contains("HEAD"), "{message}");
    assert_eq!(stand.create_with(&unborn, json!({"base_ref": "other"})).await.base_sha, head);
}

#[tokio::test(flavor = "multi_thread")]
async fn c21_repositories_of_one_name_stay_apart() {
    let stand = Stand::dev().await;
    let (one, two) = (stand.repository("a/shop"), stand.repository("b/shop"));
    let (first, second) = (stand.create(&one).await, stand.create(&two).await);
    let parent = |checkout: &Checkout| checkout.path().parent().map(Path::to_owned).unwrap();
    assert_ne!(parent(&first.checkout), parent(&second.checkout));
    let listed = stand.client.ok("worktree::list", json!({"repo_path": one.text()})).await;
    let ids: Vec<&Value> = listed["worktrees"].as_array().unwrap().iter().map(|info| &info["worktree_id"]).collect();
    assert_eq!(ids, [&json!(first.id)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_root_that_is_a_link_is_followed() {
    let stand = Stand::dev().await;
    let repository = stand.repository("shop");
    let (real, link) = (stand.seal.path().join("elsewhere"), stand.seal.path().join("link"));
    std::fs::create_dir(&real).unwrap();
    std::os::unix::fs::symlink(&real, &link).unwrap();
    stand.configure(json!({"worktree_root": link})).await;
    let created = stand.create(&repository).await;
    let place = created.checkout.path();
    assert!(place.starts_with(&link), "{}", place.display());
    for path in [place.to_owned(), place.canonicalize().unwrap(), place.join("README")] {
        let validated = stand.client.ok("worktree::validate", json!({"path": path})).await;
        assert_eq!(validated["worktree_id"], created.id, "{}: {validated}", path.display());
        assert_eq!(validated["valid"], true);
    }
    let listed = stand.client.ok("worktree::list", json!({"repo_path": place, "include_status": true})).await;
    assert_eq!((&listed["worktrees"][0]["status"]["clean"], &listed["unmanaged"]), (&json!(true), &json!([])));
    assert_eq!(stand.client.ok("worktree::remove", json!({"worktree_id": created.id})).await["removed"], true);
}
