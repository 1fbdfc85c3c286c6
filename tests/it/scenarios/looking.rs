//! `worktree::list`, `get`, `status` and `validate`: they look and change nothing.

use serde_json::{Value, json};

use super::assert_keys;
use crate::support::Stand;

fn ids(listed: &Value) -> Vec<&str> {
    listed["worktrees"].as_array().unwrap().iter().map(|one| one["worktree_id"].as_str().unwrap()).collect()
}

const INFO: [&str; 11] = [
    "worktree_id",
    "repo_path",
    "repo_key",
    "path",
    "branch",
    "base_ref",
    "base_sha",
    "lifecycle",
    "dev_port",
    "created_at",
    "updated_at",
];

pub async fn a_list_is_ordered_and_filtered(stand: Stand) {
    let (shop, farm) = (stand.repository("shop"), stand.repository("farm"));
    let one = stand.create_with(&shop, json!({"session_id": "ada"})).await;
    let two = stand.create(&farm).await;
    let three = stand.create_with(&shop, json!({"session_id": "ben"})).await;

    let all = stand.client.ok("worktree::list", json!({})).await;
    assert_keys(&all, &["worktrees", "unmanaged"], &[]);
    assert_eq!(ids(&all), [&one.id, &two.id, &three.id], "oldest first");
    for info in all["worktrees"].as_array().unwrap() {
        assert_keys(info, &INFO, &["session_id", "status"]);
    }
    // A directory inside, and a link to it: paths are compared as what they are.
    let link = stand.seal.path().join("link");
    std::os::unix::fs::symlink(shop.path(), &link).unwrap();
    for path in [shop.path().to_owned(), link, one.checkout.path().to_owned()] {
        let listed = stand.client.ok("worktree::list", json!({"repo_path": path})).await;
        assert_eq!(ids(&listed), [&one.id, &three.id], "{}", path.display());
        assert_eq!(listed["unmanaged"], json!([]));
    }
    let bens = stand.client.ok("worktree::list", json!({"session_id": "ben"})).await;
    assert_eq!(ids(&bens), [&three.id]);
    let nobodys = stand.client.ok("worktree::list", json!({"repo_path": farm.path(), "session_id": "ben"})).await;
    assert!(ids(&nobodys).is_empty());
}

pub async fn a_list_tells_status_only_when_asked(stand: Stand) {
    let repository = stand.repository("shop");
    let well = stand.create(&repository).await;
    let broken = stand.create(&repository).await;
    std::fs::remove_dir_all(broken.checkout.path()).unwrap();
    let plain = stand.client.ok("worktree::list", json!({})).await;
    assert!(plain["worktrees"][0]["status"].is_null(), "{plain}");
    let full = stand.client.ok("worktree::list", json!({"include_status": true})).await;
    assert_eq!(ids(&full), [&well.id, &broken.id]);
    assert_eq!(full["worktrees"][0]["status"]["clean"], true, "{full}");
    assert!(full["worktrees"][1]["status"].is_null(), "a broken worktree is no error: {full}");
    assert_eq!(full["worktrees"][1]["lifecycle"], "orphaned");
}

pub async fn a_worktree_of_somebody_else_is_reported_and_left_alone(stand: Stand) {
    let repository = stand.repository("shop");
    let ours = stand.create(&repository).await;
    let theirs = stand.seal.path().join("theirs");
    repository.git(&["worktree", "add", "--quiet", "-b", "theirs", theirs.to_str().unwrap()]);
    let listed = stand.client.ok("worktree::list", json!({"repo_path": repository.path()})).await;
    assert_eq!(ids(&listed), [&ours.id]);
    let unmanaged = listed["unmanaged"].as_array().unwrap();
    assert_eq!(unmanaged.len(), 1, "{listed}");
    assert_eq!(unmanaged[0]["path"], theirs.to_str().unwrap());
    let validated = stand.client.ok("worktree::validate", json!({"path": theirs})).await;
    assert_eq!((&validated["valid"], &validated["managed"]), (&json!(true), &json!(false)));
    assert!(theirs.join("README").exists());
}

pub async fn a_status_counts_what_there_is(stand: Stand) {
    let repository = stand.repository("shop");
    repository.commit("edited", "1\n");
    // Whatever the user likes to see, everything is counted.
    repository.git(&["config", "status.showUntrackedFiles", "no"]);
    let created = stand.create(&repository).await;
    let status = |id: String| {
        let client = &stand.client;
        async move { client.ok("worktree::status", json!({"worktree_id": id})).await }
    };
    let clean = status(created.id.clone()).await;
    assert_keys(
        &clean,
        &[
            "worktree_id",
            "branch",
            "lifecycle",
            "dev_port",
            "clean",
            "ahead",
            "behind",
            "staged",
            "unstaged",
            "untracked",
            "conflicted",
            "diffstat",
            "unpushed",
            "in_rebase",
            "head_sha",
            "integrated",
        ],
        &["integration_reason"],
    );
    assert_eq!((&clean["clean"], &clean["ahead"], &clean["behind"]), (&json!(true), &json!(0), &json!(0)));
    assert_eq!(clean["head_sha"], repository.sha("main"));

    let head = created.checkout.commit("new", "a\nb\n");
    created.checkout.write("edited", "2\n");
    created.checkout.write("staged", "x\n");
    created.checkout.git(&["add", "staged"]);
    created.checkout.write("loose/one", "x\n");
    created.checkout.write("two", "x\n");
    let busy = status(created.id.clone()).await;
    let count = |key: &str| busy[key].as_u64().unwrap();
    assert_eq!(busy["clean"], false);
    assert_eq!((count("staged"), count("unstaged"), count("untracked"), count("conflicted")), (1, 1, 2, 0), "{busy}");
    assert_eq!((count("ahead"), count("behind")), (1, 0), "{busy}");
    assert!(count("unpushed") >= 1, "{busy}");
    assert_eq!(busy["head_sha"], head);
    assert!(busy["diffstat"].as_str().unwrap().contains("1 file changed"), "{busy}");
    assert_eq!(busy["integrated"], false);

    // `get` tells the same.
    let got = stand.client.ok("worktree::get", json!({"worktree_id": created.id})).await;
    assert_keys(&got, &INFO, &["session_id", "status"]);
    assert_eq!(got["status"]["untracked"], 2);
}

pub async fn a_status_knows_what_is_integrated(stand: Stand) {
    let repository = stand.repository("shop");
    let same = stand.create(&repository).await;
    let merged = stand.create(&repository).await;
    merged.checkout.commit("merged", "1\n");
    let squashed = stand.create(&repository).await;
    squashed.checkout.commit("squashed", "1\n");
    squashed.checkout.commit("squashed", "2\n");
    let open = stand.create(&repository).await;
    open.checkout.commit("open", "1\n");
    repository.git(&["merge", "--quiet", "--no-ff", "--message", "merge", &merged.branch]);
    repository.git(&["merge", "--quiet", "--squash", &squashed.branch]);
    repository.git(&["commit", "--quiet", "--message", "squash"]);
    for (worktree, integrated) in [(&same, true), (&merged, true), (&squashed, true), (&open, false)] {
        let status = stand.client.ok("worktree::status", json!({"worktree_id": worktree.id})).await;
        assert_eq!(status["integrated"], integrated, "{status}");
        assert_eq!(status["integration_reason"].is_string(), integrated, "{status}");
    }
}

pub async fn validate_tells_what_a_path_is(stand: Stand) {
    let repository = stand.repository("shop");
    let created = stand.create(&repository).await;
    let validated = stand.client.ok("worktree::validate", json!({"path": created.checkout.text()})).await;
    assert_keys(&validated, &["valid", "managed"], &["reason", "worktree_id"]);
    assert_eq!((&validated["valid"], &validated["managed"]), (&json!(true), &json!(true)));
    assert_eq!(validated["worktree_id"], created.id);
    for path in [stand.seal.path().to_owned(), stand.seal.path().join("missing")] {
        let validated = stand.client.ok("worktree::validate", json!({"path": path})).await;
        assert_eq!((&validated["valid"], &validated["managed"]), (&json!(false), &json!(false)), "{}", path.display());
        assert!(validated["reason"].as_str().is_some_and(|reason| !reason.is_empty()), "{validated}");
    }
}

pub async fn a_directory_that_is_gone_makes_an_orphan(stand: Stand) {
    let repository = stand.repository("shop");
    let created = stand.create(&repository).await;
    std::fs::remove_dir_all(created.checkout.path()).unwrap();
    assert_eq!(stand.lifecycle(&created.id).await, "orphaned");
    stand.client.refused("worktree::status", json!({"worktree_id": created.id}), "W201").await;
    let validated = stand.client.ok("worktree::validate", json!({"path": created.checkout.text()})).await;
    assert_eq!((&validated["valid"], &validated["managed"]), (&json!(false), &json!(true)), "{validated}");
    assert_eq!(validated["worktree_id"], created.id);
}
