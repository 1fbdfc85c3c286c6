//! `worktree::create`.

use std::path::Path;

use serde_json::json;

use super::{assert_keys, now_ms};
use crate::support::Stand;

pub async fn a_worktree_on_a_branch_of_its_own(stand: Stand) {
    let repository = stand.repository("shop");
    let mut events = stand.hear().await;
    let before = now_ms();
    let created = stand.client.ok("worktree::create", json!({"repo_path": repository.text()})).await;
    assert_keys(
        &created,
        &["worktree_id", "repo_key", "path", "branch", "base_ref", "base_sha", "dev_port", "created_at"],
        &[],
    );
    let id = created["worktree_id"].as_str().unwrap();
    assert!(worktree::model::id::is_worktree_id(id), "{id}");
    assert_eq!(created["branch"], format!("iii/{id}"));
    assert_eq!(created["base_sha"], repository.sha("main"));
    assert_eq!(created["dev_port"], worktree::model::id::dev_port(id));
    let key = created["repo_key"].as_str().unwrap();
    assert_eq!(Path::new(key), repository.path().join(".git"));
    let slug = worktree::model::id::repo_slug(key);
    let path = created["path"].as_str().unwrap();
    assert_eq!(Path::new(path), stand.seal.path().join("worktrees").join(slug).join(id));
    let at = created["created_at"].as_i64().unwrap();
    assert!((before..=now_ms()).contains(&at), "{at}");

    let place = stand.checkout(path);
    assert_eq!(place.git(&["symbolic-ref", "HEAD"]), format!("refs/heads/iii/{id}"));
    assert_eq!(place.sha("HEAD"), repository.sha("main"));
    assert_eq!(place.git(&["status", "--porcelain"]), "");
    let listed = repository.git(&["worktree", "list", "--porcelain"]);
    let reason = listed.lines().find_map(|line| line.strip_prefix("locked ")).unwrap_or_else(|| panic!("{listed}"));
    assert!(reason.contains(id), "{reason}");
    assert!(!place.try_git(&["rev-parse", "--abbrev-ref", "@{upstream}"]).status.success(), "it tracks something");

    let event = events.next("worktree::created", id).await;
    assert_keys(&event, &["worktree_id", "repo_path", "path", "branch", "base_ref", "base_sha", "timestamp"], &[]);
    assert_eq!(
        (&event["path"], &event["branch"], &event["base_sha"]),
        (&created["path"], &created["branch"], &created["base_sha"])
    );
    assert_eq!(event["repo_path"], repository.text());
    assert_eq!(stand.lifecycle(id).await, "active");
}

pub async fn a_base_is_anything_that_resolves_to_a_commit(stand: Stand) {
    let repository = stand.repository("shop");
    let first = repository.sha("main");
    repository.git(&["tag", "v1"]);
    repository.git(&["tag", "--annotate", "--message", "notes", "v1-annotated"]);
    let second = repository.commit("a", "1\n");
    repository.git(&["branch", "topic"]);
    let third = repository.commit("b", "1\n");
    // A tag that bears the name of a branch: the branch is meant.
    repository.git(&["tag", "topic", &first]);
    repository.git(&["update-ref", "refs/remotes/origin/main", &second]);

    for (base, expected) in [
        ("HEAD", &third),
        ("main", &third),
        ("v1", &first),
        ("v1-annotated", &first),
        ("topic", &second),
        ("refs/tags/topic", &first),
        ("HEAD~2", &first),
        ("origin/main", &second),
        (second.as_str(), &second),
        (&second[..10], &second),
    ] {
        let created = stand.create_with(&repository, json!({"base_ref": base})).await;
        assert_eq!(&created.base_sha, expected, "{base}");
        assert_eq!(&created.checkout.sha("HEAD"), expected, "{base}");
    }
}

pub async fn a_branch_that_the_caller_names(stand: Stand) {
    let repository = stand.repository("shop");
    let created = stand.create_with(&repository, json!({"branch": "feature/ärger-1"})).await;
    assert_eq!(created.branch, "feature/ärger-1");
    assert_eq!(created.checkout.git(&["symbolic-ref", "--short", "HEAD"]), "feature/ärger-1");

    let again = json!({"repo_path": repository.text(), "branch": "feature/ärger-1"});
    stand.client.refused("worktree::create", again, "W120").await;
    for colliding in ["feature", "feature/ärger-1/more"] {
        let request = json!({"repo_path": repository.text(), "branch": colliding});
        let message = stand.client.refused("worktree::create", request, "W121").await;
        assert!(message.contains("feature/ärger-1"), "the ref in the way is not named: {message}");
    }
}

pub async fn a_session_claims_what_it_creates(stand: Stand) {
    let repository = stand.repository("shop");
    let mut events = stand.hear().await;
    let created = stand.create_with(&repository, json!({"session_id": "ada"})).await;
    let got = stand.client.ok("worktree::get", json!({"worktree_id": created.id})).await;
    assert_eq!((got["lifecycle"].as_str(), got["session_id"].as_str()), (Some("claimed"), Some("ada")));
    assert_eq!(events.next("worktree::created", &created.id).await["session_id"], "ada");
}

pub async fn any_directory_of_the_repository_will_do(stand: Stand) {
    let repository = stand.repository("shop");
    repository.commit("deep/down/file", "x\n");
    let from_below = json!({"repo_path": repository.path().join("deep/down")});
    let one = stand.client.ok("worktree::create", from_below).await;
    let from_worktree = json!({"repo_path": one["path"]});
    let two = stand.client.ok("worktree::create", from_worktree).await;
    assert_eq!(one["repo_key"], two["repo_key"]);
    let parent =
        |created: &serde_json::Value| Path::new(created["path"].as_str().unwrap()).parent().map(Path::to_owned);
    assert_eq!(parent(&one), parent(&two), "the place depends on where the request came from");
}

pub async fn a_failing_checkout_hook_does_not_fail_a_complete_tree(stand: Stand) {
    let repository = stand.repository("shop");
    repository.hook("post-checkout", "#!/bin/sh\necho broken >&2\nexit 1\n");
    let created = stand.create(&repository).await;
    assert_eq!(created.checkout.read("README"), "hello\n");
    assert_eq!(created.checkout.git(&["status", "--porcelain"]), "");
}

pub async fn a_refused_create_leaves_nothing(stand: Stand) {
    let repository = stand.repository("shop");
    repository.git(&["branch", "taken"]);
    let empty = crate::support::Checkout::init(stand.seal.path().join("empty"), &stand.seal);
    let (refs, worktrees) = (repository.refs(), repository.worktrees());
    let root = stand.seal.path().join("worktrees");

    let repo = repository.text();
    for (request, code) in [
        (json!({"repo_path": stand.seal.path()}), "W110"),
        (json!({"repo_path": stand.seal.path().join("missing")}), "W110"),
        (json!({"repo_path": "shop"}), "W111"),
        (json!({"repo_path": repo, "base_ref": "no-such-branch"}), "W112"),
        (json!({"repo_path": repo, "base_ref": "HEAD:README"}), "W112"),
        (json!({"repo_path": repo, "base_ref": "--upload-pack=x"}), "W111"),
        (json!({"repo_path": repo, "branch": "-x"}), "W111"),
        (json!({"repo_path": repo, "branch": "a..b"}), "W111"),
        (json!({"repo_path": repo, "branch": "a b"}), "W111"),
        (json!({"repo_path": empty.text()}), "W115"),
        (json!({"repo_path": repo, "branch": "taken"}), "W120"),
        (json!({"repo_path": repo, "branch": "taken/deeper"}), "W121"),
        (json!({"repo_path": repo, "pr": 7, "branch": "x"}), "W001"),
    ] {
        stand.client.refused("worktree::create", request, code).await;
    }
    assert_eq!(repository.refs(), refs);
    assert_eq!(repository.worktrees(), worktrees);
    let listed = stand.client.ok("worktree::list", json!({})).await;
    assert_eq!(listed["worktrees"], json!([]));
    let left: Vec<_> = walk(&root);
    assert!(left.is_empty(), "{left:?}");
}

pub async fn a_pull_request_gets_one_worktree(stand: Stand) {
    let repository = stand.repository("shop");
    let origin = stand.seal.path().join("origin.git");
    repository.git(&["clone", "--quiet", "--bare", &repository.text(), origin.to_str().unwrap()]);
    repository.git(&["remote", "add", "origin", origin.to_str().unwrap()]);
    let proposed = repository.commit("proposal", "x\n");
    repository.git(&["push", "--quiet", "origin", "HEAD:refs/pull/7/head"]);
    repository.git(&["reset", "--quiet", "--hard", "HEAD~1"]);

    let created = stand.create_with(&repository, json!({"pr": 7})).await;
    assert_eq!((created.branch.as_str(), &created.base_sha), ("iii/pr-7", &proposed));
    assert_eq!(created.checkout.read("proposal"), "x\n");
    let again = json!({"repo_path": repository.text(), "pr": 7});
    let message = stand.client.refused("worktree::create", again, "W120").await;
    assert!(message.contains(&created.id), "the worktree that has it is not named: {message}");
    let missing = json!({"repo_path": repository.text(), "pr": 8});
    stand.client.refused("worktree::create", missing, "W112").await;
}

pub async fn many_at_once_all_succeed(stand: Stand) {
    let repository = stand.repository("shop");
    let creates = (0..8).map(|_| stand.create(&repository));
    let created = futures_util::future::join_all(creates).await;
    let worktrees = repository.worktrees();
    assert_eq!(worktrees.len(), 9, "{worktrees:?}");
    for one in created {
        assert!(worktrees.contains(&one.checkout.path().to_owned()));
        assert_eq!(one.checkout.git(&["status", "--porcelain"]), "");
    }
}

/// Every file below a directory that may not exist, except what begins with a dot.
fn walk(directory: &Path) -> Vec<std::path::PathBuf> {
    let Ok(entries) = std::fs::read_dir(directory) else { return Vec::new() };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry.unwrap();
        if entry.file_name().to_string_lossy().starts_with('.') {
            continue;
        }
        if entry.file_type().unwrap().is_dir() { found.extend(walk(&entry.path())) } else { found.push(entry.path()) }
    }
    found
}
