//! Names of branches that mean something else as well, and refs that lie.

use serde_json::json;

use crate::support::Stand;

#[tokio::test(flavor = "multi_thread")]
async fn c07_a_name_always_means_the_branch() {
    let stand = Stand::dev().await;
    let repository = stand.repository("shop");
    let first = repository.sha("main");
    let second = repository.commit("a", "1\n");
    // A tag of the same name, at another commit.
    repository.git(&["tag", "main", &first]);
    let mut events = stand.hear().await;
    let hex = "0123456789abcdef0123456789abcdef01234567";
    for target in ["main", "stash", "origin/x", hex, "refs/heads/odd"] {
        if target != "main" {
            repository.git(&["update-ref", &format!("refs/heads/{target}"), &second]);
            repository.git(&["update-ref", &format!("refs/tags/{target}"), &first]);
        }
        let base = repository.sha(&format!("refs/heads/{target}"));
        let created = stand.create_with(&repository, json!({"base_ref": format!("refs/heads/{target}")})).await;
        assert_eq!(created.base_sha, base, "{target}");
        if target != "refs/heads/odd" {
            let short = stand.create_with(&repository, json!({"base_ref": target})).await;
            assert_eq!(short.base_sha, base, "{target}");
            stand.client.ok("worktree::remove", json!({"worktree_id": short.id})).await;
        }
        let head = created.checkout.commit(&format!("file-{}", target.replace('/', "-")), "3\n");
        stand.land(&created, json!({"target_branch": target})).await;
        assert_eq!(events.landed(&created.id).await["merged_sha"], head, "{target}");
        assert_eq!(repository.sha(&format!("refs/heads/{target}")), head, "{target}");
        assert_eq!(repository.sha(&format!("refs/tags/{target}")), first, "{target}");
    }
    for (name, code) in [("HEAD", "W111"), ("-x", "W111"), ("@", "W111")] {
        let create = json!({"repo_path": repository.text(), "branch": name});
        stand.client.refused("worktree::create", create, code).await;
    }
    let created = stand.create_with(&repository, json!({"branch": "f".repeat(40)})).await;
    let head = created.checkout.commit("by-hex", "1\n");
    stand.land(&created, json!({})).await;
    events.landed(&created.id).await;
    assert!(repository.git(&["log", "--format=%s", "refs/heads/main"]).contains("by-hex"), "{head} is missing");
}

#[tokio::test(flavor = "multi_thread")]
async fn c06_a_branch_beside_its_own_folder_is_refused_before_anything_is_made() {
    let stand = Stand::dev_with(json!({"branch_prefix": "release/"})).await;
    let repository = stand.repository("shop");
    repository.git(&["branch", "feat"]);
    let before = repository.refs();
    let create = json!({"repo_path": repository.text(), "branch": "feat/x"});
    let message = stand.client.refused("worktree::create", create, "W121").await;
    assert!(message.contains("refs/heads/feat"), "{message}");
    assert_eq!((repository.refs(), repository.worktrees().len()), (before, 1));
    // A generated name has no room beside a branch `release`, and another one is found.
    repository.git(&["branch", "release"]);
    assert!(stand.create(&repository).await.branch.starts_with("release-"));
    // Names that differ in nothing but case are different names here.
    for branch in ["feature", "Feature"] {
        assert_eq!(stand.create_with(&repository, json!({"branch": branch})).await.branch, branch);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_packed_branches_change_nothing() {
    let stand = Stand::dev().await;
    let repository = stand.repository("shop");
    let head = repository.sha("main");
    let lines: String = (0..10_000).map(|n| format!("{head} refs/heads/b/{n:05}\n")).collect();
    let file = repository.path().join(".git/packed-refs");
    std::fs::write(file, format!("# pack-refs with: peeled fully-peeled sorted \n{lines}")).unwrap();
    super::life(&stand, &repository).await;
    let create = json!({"repo_path": repository.text(), "branch": "b/00001/deeper"});
    stand.client.refused("worktree::create", create, "W121").await;
    let created = stand.create_with(&repository, json!({"base_ref": "b/09999"})).await;
    stand.client.ok("worktree::remove", json!({"worktree_id": created.id, "delete_branch": true})).await;
    assert_eq!(repository.git(&["for-each-ref", "--format=x", "refs/heads/b"]).lines().count(), 10_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn c29_a_history_that_lies_permits_no_deletion() {
    let stand = Stand::dev().await;
    let repository = stand.repository("shop");
    let main = repository.commit("a", "1\n");
    let refused = async |made_up: &str| {
        let created = stand.create(&repository).await;
        let head = created.checkout.commit("apples", made_up);
        match made_up {
            // The tip of the target seems to be the work itself.
            "replaced" => drop(repository.git(&["replace", "--force", &main, &head])),
            // The tip of the target seems to have the work as a parent.
            _ => {
                let grafts = repository.path().join(".git/info/grafts");
                std::fs::write(grafts, format!("{main} {head}\n")).unwrap();
            }
        }
        let remove = json!({"worktree_id": created.id, "delete_branch": true});
        stand.client.refused("worktree::remove", remove, "W221").await;
        let status = stand.client.ok("worktree::status", json!({"worktree_id": created.id})).await;
        assert_eq!((&status["integrated"], &status["ahead"]), (&json!(false), &json!(1)), "{made_up}: {status}");
        assert!(created.checkout.path().exists());
    };
    refused("replaced").await;
    repository.git(&["replace", "--delete", &main]);
    refused("grafted").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn c29_a_target_whose_objects_are_broken_permits_no_deletion() {
    let stand = Stand::dev().await;
    let repository = stand.repository("shop");
    let created = stand.create(&repository).await;
    created.checkout.commit("apples", "3\n");
    let tip = repository.commit("apples", "4\n");
    let tree = repository.git(&["rev-parse", &format!("{tip}^{{tree}}")]);
    for object in [tip, tree] {
        let file = repository.path().join(".git/objects").join(&object[..2]).join(&object[2..]);
        let mut permissions = file.metadata().unwrap().permissions();
        std::os::unix::fs::PermissionsExt::set_mode(&mut permissions, 0o644);
        std::fs::set_permissions(&file, permissions).unwrap();
        std::fs::write(&file, "torn").unwrap();
    }
    let remove = json!({"worktree_id": created.id, "delete_branch": true});
    let (code, message) = stand.client.call("worktree::remove", remove).await.unwrap_err();
    assert!(matches!(code.as_str(), "W220" | "W221"), "{code}: {message}");
    assert_eq!(created.checkout.read("apples"), "3\n");
    let listed = stand.client.ok("worktree::list", json!({"include_status": true})).await;
    let status = &listed["worktrees"][0]["status"];
    assert!(status.is_null() || status["integrated"] == false, "{status}");
}
