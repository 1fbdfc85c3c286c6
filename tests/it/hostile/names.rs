//! Paths that are no text, or hold what a line or a command line would take for something else.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use serde_json::json;
use worktree::git::{from_text, to_text};

use super::life;
use crate::support::{Checkout, Stand};

const NAMES: [&[u8]; 7] =
    [b"with space", b"line\nbreak", b"-dash", b"quote\"'", b"100%25 \xc3\xbc", b"not\xffutf8", b"tab\tand \\"];

#[tokio::test(flavor = "multi_thread")]
async fn a_repository_may_lie_anywhere() {
    let stand = Stand::dev().await;
    let long = "x".repeat(220);
    for name in NAMES.into_iter().chain([long.as_bytes()]) {
        let path = stand.seal.path().join("repositories").join(OsStr::from_bytes(name));
        let repository = Checkout::init(&path, &stand.seal);
        repository.commit("README", "hello\n");
        life(&stand, &repository).await;
        // What an answer says of it can be asked for again, and names the very directory.
        let created = stand.create(&repository).await;
        let got = stand.client.ok("worktree::get", json!({"worktree_id": created.id})).await;
        assert_eq!(from_text(got["repo_path"].as_str().unwrap()), path, "{got}");
        let listed = stand.client.ok("worktree::list", json!({"repo_path": got["repo_path"]})).await;
        assert_eq!(listed["worktrees"][0]["worktree_id"], json!(created.id), "{listed}");
        let pruned = stand.client.ok("worktree::prune", json!({"repo_path": got["repo_path"]})).await;
        assert_eq!(pruned["skipped"][0]["id"], json!(created.id), "{pruned}");
        let plain = std::str::from_utf8(name).is_ok();
        assert_eq!(got["repo_path"].as_str() == path.to_str(), plain, "what is text is not escaped: {got}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn events_of_a_repository_are_found_by_the_text_of_its_path() {
    let stand = Stand::dev().await;
    let path = stand.seal.path().join(OsStr::from_bytes(b"not\xffutf8"));
    let repository = Checkout::init(&path, &stand.seal);
    repository.commit("README", "hello\n");
    let mut events = stand.client.hear(json!({"repo_path": to_text(&path)})).await;
    let created = stand.create(&repository).await;
    assert_eq!(events.next("worktree::created", &created.id).await["repo_path"], to_text(&path));
}

#[tokio::test(flavor = "multi_thread")]
async fn files_of_any_name_land_and_conflicts_name_them_exactly() {
    let stand = Stand::dev().await;
    let repository = stand.repository("shop");
    let mut events = stand.hear().await;
    let long = "x".repeat(220);
    let names: Vec<&OsStr> = NAMES.into_iter().chain([long.as_bytes()]).map(OsStr::from_bytes).collect();
    let write = |checkout: &Checkout, text: &str| {
        for name in &names {
            std::fs::write(checkout.path().join(name), text).unwrap();
        }
        checkout.git(&["add", "--all"]);
        checkout.git(&["commit", "--quiet", "--message", text]);
    };
    let first = stand.create(&repository).await;
    let second = stand.create(&repository).await;
    write(&first.checkout, "one\n");
    write(&second.checkout, "two\n");
    stand.land(&first, json!({})).await;
    events.landed(&first.id).await;
    for name in &names {
        assert_eq!(std::fs::read_to_string(repository.path().join(name)).unwrap(), "one\n");
    }
    stand.land(&second, json!({})).await;
    let event = events.blocked(&second.id).await;
    assert_eq!(event["code"], "W410", "{event}");
    let told = event["conflict_files"].as_array().unwrap().iter();
    let told: BTreeSet<PathBuf> = told.map(|file| from_text(file.as_str().unwrap())).collect();
    assert_eq!(told, names.iter().map(PathBuf::from).collect());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_in_the_way_and_a_worktree_of_somebody_else_are_named_exactly() {
    let stand = Stand::dev().await;
    let repository = stand.repository("shop");
    let mut events = stand.hear().await;
    let name = OsStr::from_bytes(b"in the\n\xffway");
    let created = stand.create(&repository).await;
    std::fs::write(created.checkout.path().join(name), "mine\n").unwrap();
    created.checkout.git(&["add", "--all"]);
    created.checkout.git(&["commit", "--quiet", "--message", "mine"]);
    std::fs::write(repository.path().join(name), "theirs\n").unwrap();
    stand.land(&created, json!({})).await;
    let event = events.blocked(&created.id).await;
    assert_eq!((&event["code"], &event["conflict_files"]), (&json!("W413"), &json!([to_text(name.as_ref())])));
    assert_eq!(std::fs::read_to_string(repository.path().join(name)).unwrap(), "theirs\n");

    let theirs = stand.seal.path().join(name);
    std::fs::create_dir(&theirs).unwrap();
    let other = Checkout::at(&theirs, &stand.seal);
    other.git(&["-C", &repository.text(), "worktree", "list"]);
    let link = stand.seal.path().join("link");
    std::os::unix::fs::symlink(&theirs, &link).unwrap();
    repository.git(&["worktree", "add", "--quiet", "--detach", link.join("tree").to_str().unwrap()]);
    let listed = stand.client.ok("worktree::list", json!({"repo_path": repository.text()})).await;
    let unmanaged: Vec<PathBuf> = listed["unmanaged"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| from_text(one["path"].as_str().unwrap()).canonicalize().unwrap())
        .collect();
    assert_eq!(unmanaged, [theirs.join("tree")], "{listed}");
}
