//! The cases of removal and prune, by their numbers.

use std::path::Path;

use serde_json::json;

use super::{eager, pruned, skipped, told};
use crate::support::{Checkout, Stand, until};

async fn eager_stand() -> (Stand, Checkout) {
    let stand = Stand::dev_with(eager()).await;
    let repository = stand.repository("shop");
    (stand, repository)
}

#[tokio::test(flavor = "multi_thread")]
async fn c30_the_main_checkout_is_no_target_whatever_the_registry_says() {
    let (stand, repository) = eager_stand().await;
    let created = stand.create(&repository).await;
    let at = json!({"scope": "worktree", "key": created.id});
    let mut forged = stand.client.ok("state::get", at).await;
    forged["path"] = json!(repository.text());
    stand.client.ok("state::set", json!({"scope": "worktree", "key": created.id, "value": forged})).await;
    until("the forged record", || async {
        let got = stand.client.ok("worktree::get", json!({"worktree_id": created.id})).await;
        (got["path"] == repository.text()).then_some(())
    })
    .await;
    repository.write("loose", "x\n");
    for force in [false, true] {
        let request = json!({"worktree_id": created.id, "force": force, "delete_branch": true});
        stand.client.refused("worktree::remove", request, "W202").await;
    }
    let answer = stand.client.ok("worktree::prune", json!({})).await;
    assert!(skipped(&answer, &created.id).contains("repository of its own"), "{answer}");
    assert_eq!(repository.read("loose"), "x\n");
    assert!(repository.path().join(".git/HEAD").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn c31_commits_that_are_nowhere_else_are_counted_and_kept() {
    let (stand, repository) = eager_stand().await;
    let created = stand.create(&repository).await;
    created.checkout.commit("a", "1\n");
    let head = created.checkout.commit("a", "2\n");
    let request = json!({"worktree_id": created.id, "delete_branch": true});
    let message = stand.client.refused("worktree::remove", request, "W221").await;
    assert!(message.contains("2 commits not landed (2 on no remote)"), "{message}");
    let answer = stand.client.ok("worktree::prune", json!({})).await;
    assert!(skipped(&answer, &created.id).contains("2 commits not landed"), "{answer}");
    assert_eq!(repository.branch(&created.branch), Some(head));
    assert!(created.checkout.path().exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn c32_nothing_stronger_follows_a_check_that_failed() {
    let (stand, repository) = eager_stand().await;
    let busy = stand.create(&repository).await;
    let mut sleeper = stand.seal.command("sleep");
    let mut sleeper = sleeper.arg("300").current_dir(busy.checkout.path()).spawn().unwrap();
    let dirty = stand.create(&repository).await;
    dirty.checkout.write("code.rs", "fn main() {}\n");
    let detached = stand.create(&repository).await;
    detached.checkout.git(&["checkout", "--quiet", "--detach"]);
    let loose = detached.checkout.commit("pears", "4\n");
    let theirs = stand.seal.path().join("theirs");
    repository.git(&["worktree", "add", "--quiet", theirs.to_str().unwrap()]);
    for (one, code) in [(&busy, "W222"), (&dirty, "W220"), (&detached, "W221")] {
        let message = stand.client.refused("worktree::remove", json!({"worktree_id": one.id}), code).await;
        assert!(code != "W222" || message.contains("sleep"), "{message}");
    }
    let answer = stand.client.ok("worktree::prune", json!({})).await;
    assert_eq!(answer["pruned"], json!([]));
    for (one, cause) in [(&busy, "busy"), (&dirty, "dirty"), (&detached, "unmerged work")] {
        assert!(skipped(&answer, &one.id).starts_with(cause), "{answer}");
        assert!(one.checkout.path().join("README").exists());
    }
    assert_eq!((detached.checkout.sha("HEAD"), theirs.join("README").exists()), (loose, true));
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
    let answer = stand.client.ok("worktree::prune", json!({})).await;
    assert!(pruned(&answer, &busy.id), "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn c33_links_are_unlinked_and_never_followed() {
    let (stand, repository) = eager_stand().await;
    repository.commit(".gitignore", "node_modules\n");
    let other = stand.repository("other");
    for (number, force) in [false, true].into_iter().enumerate() {
        let created = stand.create(&repository).await;
        let modules = created.checkout.path().join("node_modules");
        std::fs::create_dir(&modules).unwrap();
        std::os::unix::fs::symlink(other.path(), modules.join("linked")).unwrap();
        std::os::unix::fs::symlink(repository.path(), modules.join("main")).unwrap();
        stand.client.ok("worktree::remove", json!({"worktree_id": created.id, "force": force})).await;
        if number == 0 {
            until("the end of the trash", || async {
                told(&stand, worktree::audit::Action::TrashDelete, &created.id).pop()
            })
            .await;
        }
    }
    let trash = stand.seal.path().join("worktrees/.trash");
    until("an empty trash but for what is kept", || async {
        (std::fs::read_dir(&trash).unwrap().count() == 3).then_some(())
    })
    .await;
    assert_eq!((other.read("README").as_str(), repository.read("README").as_str()), ("hello\n", "hello\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn c35_what_is_half_removed_is_finished_by_the_same_call_and_blocks_no_create() {
    let (stand, repository) = eager_stand().await;
    // The process died after the rename: the directory lies in the trash, git's entry is there.
    let renamed = stand.create(&repository).await;
    let trash = stand.seal.path().join("worktrees/.trash");
    std::fs::create_dir_all(&trash).unwrap();
    std::fs::rename(renamed.checkout.path(), trash.join(format!("{}-1", renamed.id))).unwrap();
    // It died after the entry was dropped.
    let dropped = stand.create(&repository).await;
    let entry = dropped.checkout.git(&["rev-parse", "--path-format=absolute", "--git-dir"]);
    std::fs::remove_dir_all(dropped.checkout.path()).unwrap();
    std::fs::remove_dir_all(entry).unwrap();
    // Somebody else's tool dropped the entry and left the directory: what it holds cannot be told, so it stays.
    let unregistered = stand.create(&repository).await;
    let entry = unregistered.checkout.git(&["rev-parse", "--path-format=absolute", "--git-dir"]);
    std::fs::remove_dir_all(entry).unwrap();
    for one in [&renamed, &dropped] {
        let request = json!({"worktree_id": one.id, "delete_branch": true});
        let removed = stand.client.ok("worktree::remove", request.clone()).await;
        assert_eq!(removed, json!({"removed": true, "branch_deleted": true}));
        stand.client.refused("worktree::remove", request, "W200").await;
    }
    stand.client.refused("worktree::remove", json!({"worktree_id": unregistered.id}), "W202").await;
    assert_eq!(unregistered.checkout.read("README"), "hello\n");
    assert_eq!(repository.worktrees(), [repository.path()]);
    stand.create(&repository).await;
    // The disk is freed by the sweep: the name in the trash is older than a day.
    stand.client.ok("worktree::prune", json!({})).await;
    assert!(!trash.join(format!("{}-1", renamed.id)).exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn c36_worktrees_that_cannot_be_seen_stay_registered() {
    let (stand, repository) = eager_stand().await;
    let created = stand.create(&repository).await;
    let head = created.checkout.sha("HEAD");
    let root = stand.seal.path().join("worktrees");
    let slug = created.checkout.path().parent().unwrap().to_owned();
    std::fs::rename(&slug, root.join(".elsewhere")).unwrap();
    let answer = stand.client.ok("worktree::prune", json!({})).await;
    assert!(skipped(&answer, &created.id).starts_with("unreachable"), "{answer}");
    repository.git(&["worktree", "prune", "--expire=now"]);
    std::fs::rename(root.join(".elsewhere"), &slug).unwrap();
    assert_eq!(created.checkout.sha("HEAD"), head);
    assert_eq!(stand.lifecycle(&created.id).await, "active");
    let status = stand.client.ok("worktree::status", json!({"worktree_id": created.id})).await;
    assert_eq!(status["clean"], true);
}

#[tokio::test(flavor = "multi_thread")]
async fn c37_a_lock_is_honoured_and_only_our_own_entries_are_dropped() {
    let (stand, repository) = eager_stand().await;
    let ours = stand.create(&repository).await;
    let theirs = stand.seal.path().join("theirs");
    repository.git(&["worktree", "add", "--quiet", "--lock", theirs.to_str().unwrap()]);
    let unlocked = stand.seal.path().join("unlocked");
    repository.git(&["worktree", "add", "--quiet", unlocked.to_str().unwrap()]);
    for path in [ours.checkout.path(), &theirs, &unlocked] {
        std::fs::remove_dir_all(path).unwrap();
    }
    let answer = stand.client.ok("worktree::prune", json!({})).await;
    assert!(pruned(&answer, &ours.id), "{answer}");
    assert_eq!(repository.worktrees(), [repository.path().to_owned(), theirs, unlocked]);
    assert!(repository.branch(&ours.branch).is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn c39_submodules_go_when_they_are_clean_and_pushed_and_keep_when_not() {
    let (stand, repository) = eager_stand().await;
    let library = stand.repository("library");
    let url = library.text();
    repository.git(&["-c", "protocol.file.allow=always", "submodule", "--quiet", "add", &url, "lib"]);
    repository.git(&["commit", "--quiet", "--message", "Add lib"]);
    let update = ["-c", "protocol.file.allow=always", "submodule", "--quiet", "update", "--init"];
    let clean = stand.create(&repository).await;
    clean.checkout.git(&update);
    assert_eq!(clean.checkout.read("lib/README"), "hello\n");
    // Committed in the submodule, recorded in the superproject, landed there, and never pushed.
    let unpushed = stand.create(&repository).await;
    unpushed.checkout.git(&update);
    let inner = stand.checkout(unpushed.checkout.path().join("lib"));
    let head = inner.commit("apples", "3\n");
    unpushed.checkout.git(&["commit", "--quiet", "--all", "--message", "Move lib"]);
    repository.git(&["merge", "--quiet", "--ff-only", &unpushed.branch]);
    // And one that was taken out of use again.
    let parked = stand.create(&repository).await;
    parked.checkout.git(&["submodule", "--quiet", "deinit", "--all", "--force"]);
    let message = stand.client.refused("worktree::remove", json!({"worktree_id": unpushed.id}), "W220").await;
    assert!(message.contains("1 commit in submodules"), "{message}");
    assert_eq!(inner.sha("HEAD"), head);
    for one in [&clean, &parked] {
        stand.client.ok("worktree::remove", json!({"worktree_id": one.id, "delete_branch": true})).await;
        assert!(!one.checkout.path().exists());
    }
    inner.git(&["push", "--quiet", "origin", "HEAD:refs/heads/topic"]);
    stand.client.ok("worktree::remove", json!({"worktree_id": unpushed.id})).await;
    assert_eq!(library.branch("topic"), Some(head));
}

#[tokio::test(flavor = "multi_thread")]
async fn c40_a_directory_that_was_deleted_by_hand_is_told_and_set_right() {
    let (stand, repository) = eager_stand().await;
    let (swept, removed) = (stand.create(&repository).await, stand.create(&repository).await);
    let head = swept.checkout.commit("apples", "3\n");
    for one in [&swept, &removed] {
        std::fs::remove_dir_all(one.checkout.path()).unwrap();
        assert_eq!(stand.lifecycle(&one.id).await, "orphaned");
        stand.client.refused("worktree::status", json!({"worktree_id": one.id}), "W201").await;
    }
    stand.client.ok("worktree::remove", json!({"worktree_id": removed.id})).await;
    let answer = stand.client.ok("worktree::prune", json!({})).await;
    assert!(pruned(&answer, &swept.id), "{answer}");
    assert_eq!(repository.worktrees(), [repository.path()]);
    assert_eq!(repository.branch(&swept.branch), Some(head), "its commits are nowhere else");
    // A commit without a branch is named by git's entry alone, which goes: a backup ref keeps it.
    let detached = stand.create(&repository).await;
    detached.checkout.git(&["checkout", "--quiet", "--detach"]);
    let loose = detached.checkout.commit("pears", "4\n");
    std::fs::remove_dir_all(detached.checkout.path()).unwrap();
    let answer = stand.client.ok("worktree::prune", json!({})).await;
    assert!(pruned(&answer, &detached.id), "{answer}");
    assert_eq!(repository.sha(&format!("refs/iii/wt-backup/{}.head", detached.id)), loose);
    let told = told(&stand, worktree::audit::Action::Reconcile, &detached.id);
    assert_eq!(told[0].details["detached_sha"], loose);
}

#[tokio::test(flavor = "multi_thread")]
async fn c40_a_blocked_land_whose_directory_was_deleted_is_set_right_too() {
    let (stand, repository) = eager_stand().await;
    let mut events = stand.hear().await;
    let blocked = stand.create(&repository).await;
    let head = blocked.checkout.commit("README", "mine\n");
    repository.commit("README", "theirs\n");
    stand.land(&blocked, json!({})).await;
    events.blocked(&blocked.id).await;
    let answer = stand.client.ok("worktree::prune", json!({})).await;
    assert_eq!(skipped(&answer, &blocked.id), "land-blocked");
    std::fs::remove_dir_all(blocked.checkout.path()).unwrap();
    let answer = stand.client.ok("worktree::prune", json!({})).await;
    assert!(pruned(&answer, &blocked.id), "{answer}");
    assert_eq!(repository.branch(&blocked.branch), Some(head));
    assert_eq!(repository.worktrees(), [repository.path()]);
}

#[tokio::test(flavor = "multi_thread")]
async fn c42_worktrees_lie_outside_the_repository_and_are_copied_nowhere() {
    let default = worktree::model::config::WorktreeConfig::default();
    assert_eq!(default.worktree_root, "~/.iii/worktrees");
    // Whoever puts the root inside all the same gets no copies of copies.
    let seal = crate::support::Seal::new();
    let root = seal.path().join("shop/.worktrees");
    let keys = json!({"worktree_root": root, "provision": {"copy_ignored": true}});
    let stand = Stand::dev_in(seal, keys, &[]).await;
    let repository = stand.repository("shop");
    repository.commit(".gitignore", ".worktrees/\ncache/\n");
    repository.write("cache/object", "x\n");
    let first = stand.create(&repository).await;
    let second = stand.create(&repository).await;
    for one in [&first, &second] {
        until("the copy", || async { one.checkout.path().join("cache/object").exists().then_some(()) }).await;
        assert!(!one.checkout.path().join(".worktrees").exists());
    }
    assert_eq!(repository.git(&["status", "--porcelain"]), "");
}

#[tokio::test(flavor = "multi_thread")]
async fn c43_a_worktree_outlives_the_session_that_worked_in_it() {
    let mut stand = Stand::dev_with(eager()).await;
    let repository = stand.repository("shop");
    let created = stand.create_with(&repository, json!({"session_id": "ada"})).await;
    created.checkout.write("loose", "x\n");
    // Its owner leaves without a word, and the worker goes and comes back.
    let another = crate::support::Client::connect(stand.url()).await;
    drop(std::mem::replace(&mut stand.client, another));
    stand.stop_and_restart().await;
    stand.client.ok("worktree::prune", json!({})).await;
    assert_eq!(created.checkout.read("loose"), "x\n");
    let release = json!({"worktree_id": created.id, "session_id": "ada"});
    stand.client.ok("worktree::release", release).await;
    let answer = stand.client.ok("worktree::prune", json!({})).await;
    assert!(skipped(&answer, &created.id).starts_with("dirty"), "{answer}");
    assert_eq!(created.checkout.read("loose"), "x\n");
    assert!(repository.worktrees().contains(&created.checkout.path().to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn c45_the_stash_which_all_worktrees_share_is_never_used() {
    let (stand, repository) = eager_stand().await;
    let mut events = stand.hear().await;
    let (mine, landing) = (stand.create(&repository).await, stand.create(&repository).await);
    mine.checkout.write("README", "mine\n");
    mine.checkout.git(&["stash", "push", "--quiet", "--message", "of mine"]);
    let before = repository.git(&["stash", "list", "--format=%H %gs"]);
    let head = landing.checkout.commit("apples", "3\n");
    stand.land(&landing, json!({})).await;
    assert_eq!(events.landed(&landing.id).await["merged_sha"], head);
    let idle = stand.create(&repository).await;
    stand.client.ok("worktree::remove", json!({"worktree_id": idle.id})).await;
    stand.client.ok("worktree::prune", json!({})).await;
    assert_eq!(repository.git(&["stash", "list", "--format=%H %gs"]), before);
    for entry in ["src/git", "src/land", "src/worktrees"] {
        for file in std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(entry)).unwrap() {
            let path = file.unwrap().path();
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            let asked = ["[\"stash\"", "(\"stash\""].iter().any(|call| text.contains(call));
            assert!(!asked, "{} uses the stash", path.display());
        }
    }
}
