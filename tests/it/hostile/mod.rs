//! Repositories that are hostile, or only odd, through the bus.

mod boot;
mod cases;
mod corpus;
mod disks;
mod landing;
mod names;
mod policy;
mod refs;
mod repositories;
mod status;
mod under_fire;

use std::path::Path;

use serde_json::{Value, json};

use crate::support::{Checkout, Stand, until};

/// The life of two worktrees of a repository that has a branch `main`: one is created, committed to, landed and cleaned
/// up; one is created and removed.
async fn life(stand: &Stand, repository: &Checkout) {
    let mut events = stand.hear().await;
    let created = stand.create_with(repository, json!({"base_ref": "main"})).await;
    assert_eq!(created.checkout.git(&["status", "--porcelain"]), "");
    let status = stand.client.ok("worktree::status", json!({"worktree_id": created.id})).await;
    assert_eq!((&status["clean"], &status["ahead"]), (&json!(true), &json!(0)), "{status}");
    let head = created.checkout.commit("apples", "3\n");
    stand.land(&created, json!({"test_cmd": "true"})).await;
    let landed = events.landed(&created.id).await;
    assert_eq!(landed["merged_sha"], head, "{landed}");
    assert_eq!(repository.branch("main"), Some(head));
    assert_eq!((&landed["kept_reason"], created.checkout.path().exists()), (&Value::Null, false));
    assert_eq!(repository.branch(&created.branch), None);

    let idle = stand.create_with(repository, json!({"base_ref": "main"})).await;
    assert_eq!(idle.checkout.read("apples"), "3\n");
    let removed = json!({"worktree_id": idle.id, "delete_branch": true});
    assert_eq!(stand.client.ok("worktree::remove", removed).await, json!({"removed": true, "branch_deleted": true}));
    assert!(!idle.checkout.path().exists());
    assert_eq!(repository.branch(&idle.branch), None);
}

/// A program for the shell that leaves a line in the file beside it, then does what `body` says.
fn canary(directory: &Path, body: &str) -> (String, std::path::PathBuf) {
    use std::os::unix::fs::PermissionsExt as _;
    let (program, seen) = (directory.join("canary"), directory.join("canary-seen"));
    std::fs::write(&program, format!("#!/bin/sh\necho \"$0 $*\" >>{}\n{body}\n", seen.display())).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    (program.to_str().unwrap().to_owned(), seen)
}

/// Waits for a file to appear.
async fn appears(path: &Path) {
    until(&format!("{}", path.display()), || async { path.exists().then_some(()) }).await;
}
