//! Repositories that are not the usual kind, each through the whole life of a worktree.

use std::path::Path;

use super::sealed::{Place, add, put};
use crate::support::stranger::Stranger;
use worktree::git::{Expected, Git, MoveOutcome, RebaseOutcome, RefUpdate, Replay, Room, admin};

/// Adds, fills, changes, rebases, lands and removes, and checks what can be seen on the way.
async fn life(place: &Place, git: &Git, root: &Path) {
    let found = git.discover(root).await.unwrap();
    let repo = found.repo;
    let base = repo.branch_sha("main").await.unwrap().unwrap();
    let path = place.path().join("life");
    repo.add_worktree(&add(&path, "iii/wt_life", &base)).await.unwrap();
    let tree = git.tree(&path).unwrap();
    tree.checkout_fresh().await.unwrap();
    assert!(tree.status().await.unwrap().is_clean(), "{:?}", tree.status().await.unwrap());
    assert_eq!(tree.head_branch().unwrap().as_deref(), Some("iii/wt_life"));
    assert_eq!(tree.operation(), None);
    let work = place.commit(&path, "work", "1\n");

    // The target moves on meanwhile, in a worktree of its own.
    let other = place.path().join("other");
    repo.add_worktree(&add(&other, "iii/wt_other", &base)).await.unwrap();
    let other = git.tree(&other).unwrap();
    other.checkout_fresh().await.unwrap();
    let onto = place.commit(other.root(), "meanwhile", "1\n");
    assert_eq!(
        repo.update_ref("refs/heads/main", &onto, Expected::Is(base.clone()), "x").await.unwrap(),
        RefUpdate::Done
    );
    if let Some(primary) = &found.tree {
        assert_eq!(primary.fast_forward(&base, &onto).await.unwrap(), MoveOutcome::Moved);
        assert!(primary.status().await.unwrap().is_clean());
    }
    let replay = repo.replay(&work, &onto).await.unwrap();
    let RebaseOutcome::Done { head } = tree.rebase(&work, &onto).await.unwrap() else { panic!() };
    if let Replay::Done { head: replayed } = replay {
        assert_eq!(repo.tree_of(&replayed).await.unwrap(), repo.tree_of(&head).await.unwrap());
    }
    assert_eq!(
        repo.update_ref("refs/heads/main", &head, Expected::Is(onto.clone()), "land").await.unwrap(),
        RefUpdate::Done
    );
    if let Some(primary) = &found.tree {
        assert_eq!(primary.fast_forward(&onto, &head).await.unwrap(), MoveOutcome::Moved);
        assert!(primary.status().await.unwrap().is_clean());
    }
    assert_eq!(repo.integration(&head, &head).await.unwrap().unwrap().as_str(), "same_commit");
    for tree in [tree, other] {
        let entry = admin::entry_for(repo.common_dir(), tree.root()).unwrap().unwrap();
        admin::unlock(&entry).unwrap();
        tree.remove(false).await.unwrap();
    }
    assert_eq!(repo.delete_ref("refs/heads/iii/wt_life", &head).await.unwrap(), RefUpdate::Done);
    assert!(admin::entries(repo.common_dir()).unwrap().is_empty());
}

#[tokio::test]
async fn other_object_formats_and_ref_formats_work() {
    let place = Place::new();
    for (name, option) in [("sha256", "--object-format=sha256"), ("reftable", "--ref-format=reftable")] {
        let root = place.path().join(name);
        std::fs::create_dir(&root).unwrap();
        // Older versions of git lack one or both.
        if !place.try_run(&root, ["init", "--quiet", "--initial-branch=main", option]).0 {
            continue;
        }
        place.commit(&root, "README", "hello\n");
        life(&place, &place.git, &root).await;
        let tree = place.git.tree(&root).unwrap();
        assert_eq!(tree.head_branch().unwrap().as_deref(), Some("main"));
        place.run(&root, ["checkout", "--quiet", "--detach"]);
        assert_eq!(tree.head_branch().unwrap(), None);
    }
}

#[tokio::test]
async fn an_operation_is_seen_where_refs_are_out_of_sight() {
    let place = Place::new();
    let root = place.path().join("reftable");
    std::fs::create_dir(&root).unwrap();
    if !place.try_run(&root, ["init", "--quiet", "--initial-branch=main", "--ref-format=reftable"]).0 {
        // A git that does not know the format refuses it, and so it is told.
        place.run(&root, ["init", "--quiet"]);
        place.run(&root, ["config", "core.repositoryFormatVersion", "1"]);
        place.run(&root, ["config", "extensions.refStorage", "reftable"]);
        let error = place.git.discover(&root).await.unwrap_err();
        assert!(error.code().as_str() == "W102" && error.to_string().contains("refstorage"), "{error}");
        return;
    }
    let base = place.commit(&root, "README", "hello\n");
    let ours = place.commit(&root, "README", "ours\n");
    place.run(&root, ["checkout", "--quiet", "-b", "other", base.as_str()]);
    place.commit(&root, "README", "theirs\n");
    let tree = place.git.tree(&root).unwrap();
    for begin in ["cherry-pick", "merge", "rebase"] {
        place.try_run(&root, [begin, ours.as_str()]);
        assert!(tree.operation().is_some(), "{begin}");
        place.run(&root, [begin, "--abort"]);
        assert_eq!(tree.operation(), None, "{begin}");
    }
}

#[tokio::test]
async fn bare_repositories_work_also_inside_a_folder_of_worktrees() {
    let place = Place::new();
    let origin = place.repo("origin");
    let bare = place.path().join("bare.git");
    place.run(&place.path(), ["clone", "--quiet", "--bare", origin.to_str().unwrap(), bare.to_str().unwrap()]);
    life(&place, &place.git, &bare).await;
    let folder = place.path().join("folder");
    std::fs::create_dir(&folder).unwrap();
    place.run(&folder, ["clone", "--quiet", "--bare", origin.to_str().unwrap(), ".git"]);
    let found = place.git.discover(&folder).await.unwrap();
    assert!(found.tree.is_none());
    assert_eq!(found.repo.common_dir(), folder.join(".git"));
    life(&place, &place.git, &folder).await;
}

#[tokio::test]
async fn partial_single_branch_and_borrowing_clones_work() {
    let place = Place::new();
    let origin = place.repo("origin");
    place.commit(&origin, "big", "x".repeat(10_000));
    place.run(&origin, ["config", "uploadpack.allowFilter", "true"]);
    let url = format!("file://{}", origin.display());
    for (name, option) in [("partial", "--filter=blob:none"), ("single", "--single-branch"), ("shallow", "--depth=1")] {
        let clone = place.path().join(name);
        place.run(&place.path(), ["clone", "--quiet", option, &url, clone.to_str().unwrap()]);
        life(&place, &place.git, &clone).await;
    }
    let clone = place.path().join("borrowing");
    place.run(&place.path(), ["clone", "--quiet", "--shared", origin.to_str().unwrap(), clone.to_str().unwrap()]);
    life(&place, &place.git, &clone).await;
}

#[tokio::test]
async fn sparse_checkouts_and_settings_of_one_worktree_work() {
    let place = Place::new();
    let root = place.repo("shop");
    put(&root, "kept/a", "1\n");
    place.commit(&root, "left/b", "1\n");
    place.run(&root, ["sparse-checkout", "set", "kept"]);
    assert!(!root.join("left").exists());
    life(&place, &place.git, &root).await;
    assert!(!root.join("left").exists());
}

#[tokio::test]
async fn c24_line_endings_are_the_users() {
    let place = Place::new();
    place.user_config("[core]\nautocrlf = true");
    let root = place.repo("shop");
    place.commit(&root, "text.txt", "a\r\nb\r\n");
    put(&root, ".gitattributes", "*.bat text eol=crlf\n*.png binary\n");
    place.commit(&root, "run.bat", "a\r\n");
    life(&place, &place.git, &root).await;
    let tree = place.worktree(&root, "crlf").await;
    assert_eq!(std::fs::read(tree.root().join("text.txt")).unwrap(), b"a\r\nb\r\n");
    assert!(tree.status().await.unwrap().is_clean());
}

#[tokio::test]
async fn paths_of_any_kind_work() {
    let place = Place::new();
    for name in ["with space", "line\nbreak", "-dash", "quote\"'", "ü", &"x".repeat(220)] {
        let root = place.path().join(name);
        std::fs::create_dir(&root).unwrap();
        place.run(&root, ["init", "--quiet", "--initial-branch=main"]);
        place.commit(&root, "-a file\n", "1\n");
        life(&place, &place.git, &root).await;
        std::fs::remove_dir_all(&root).unwrap();
    }
    use std::os::unix::ffi::OsStrExt as _;
    let root = place.path().join(std::ffi::OsStr::from_bytes(b"not\xffutf8"));
    std::fs::create_dir(&root).unwrap();
    place.run(&root, ["init", "--quiet", "--initial-branch=main"]);
    place.commit(&root, "a", "1\n");
    life(&place, &place.git, &root).await;
    let repo = place.open(&root).await;
    assert!(repo.key().ends_with("not\u{fffd}FFutf8/.git"), "{}", repo.key());
    let tree = place.worktree(&root, "w").await;
    assert_eq!(place.git.discover(tree.root()).await.unwrap().repo.key(), repo.key());
}

/// Whether the installed git counts for many branches at once (2.41 does).
fn can_count(place: &Place, root: &Path) -> bool {
    place.try_run(root, ["for-each-ref", "--format=%(ahead-behind:HEAD)", "refs/heads/main"]).0
}

#[tokio::test]
async fn ten_thousand_packed_branches_do_not_slow_a_lookup() {
    let place = Place::new();
    let root = place.repo("shop");
    let head = place.head(&root);
    let packed: String = (0..10_000).map(|n| format!("{head} refs/heads/b/{n:05}\n")).collect();
    std::fs::write(root.join(".git/packed-refs"), format!("# pack-refs with: peeled fully-peeled sorted \n{packed}"))
        .unwrap();
    let repo = place.open(&root).await;
    let begun = std::time::Instant::now();
    assert_eq!(repo.branch_sha("b/09999").await.unwrap(), Some(head.clone()));
    assert_eq!(repo.room_for("b/00001/x").await.unwrap(), Room::Collides("refs/heads/b/00001".to_owned()));
    assert_eq!(repo.refs_under("refs/heads/b").await.unwrap().len(), 10_000);
    if can_count(&place, &root) {
        let tips = repo.tips_against(&["refs/heads/b".to_owned()], &head).await.unwrap();
        let last = &tips["refs/heads/b/09999"];
        assert_eq!((tips.len(), last.ahead, last.behind, &last.sha), (10_000, 0, 0, &head));
    }
    assert!(begun.elapsed() < std::time::Duration::from_secs(3), "{:?}", begun.elapsed());
    life(&place, &place.git, &root).await;
}

#[tokio::test]
async fn c39_a_submodule_is_no_dirt_and_its_changes_are() {
    let place = Place::new();
    place.user_config(
        "[protocol \"file\"]\nallow = always\n[submodule]\nrecurse = true\n[diff]\nignoreSubmodules = all",
    );
    let inner = place.repo("inner");
    let root = place.repo("shop");
    place.run(&root, ["submodule", "--quiet", "add", inner.to_str().unwrap(), "sub"]);
    place.run(&root, ["commit", "--quiet", "--message", "sub"]);
    life(&place, &place.git, &root).await;
    let tree = place.worktree(&root, "w").await;
    assert!(tree.status().await.unwrap().is_clean());
    place.run(tree.root(), ["submodule", "--quiet", "update", "--init"]);
    assert!(tree.status().await.unwrap().is_clean());
    put(tree.root(), "sub/new", "x");
    let status = tree.status().await.unwrap();
    assert!(status.entries.len() == 1 && status.entries[0].submodule, "{status:?}");
}

#[tokio::test]
async fn another_owner_is_its_own_refusal() {
    let place = Place::new();
    let root = place.repo("shop");
    let stranger = Stranger::new(&place.path().join("bin"));
    let owner = stranger.takes(&root);
    let error = place.git_with(&[("PATH", stranger.path())]).discover(&root).await.unwrap_err();
    assert_eq!(error.code().as_str(), "W113");
    assert!(error.to_string().contains(&owner) && error.to_string().contains(root.to_str().unwrap()), "{error}");
}

#[tokio::test]
async fn many_branches_are_counted_at_once() {
    let place = Place::new();
    let root = place.repo("shop");
    place.run(&root, ["branch", "iii/one"]);
    let base = place.commit(&root, "a", "1\n");
    place.run(&root, ["branch", "iii/two"]);
    place.run(&root, ["checkout", "--quiet", "-b", "iii/three", "iii/one"]);
    place.commit(&root, "b", "1\n");
    let tips = place.open(&root).await.tips_against(&["refs/heads/iii".to_owned()], &base).await;
    if !can_count(&place, &root) {
        assert_eq!(tips.unwrap_err().code().as_str(), "W102");
        return;
    }
    let wanted = [("one", (0, 1)), ("three", (1, 1)), ("two", (0, 0))];
    let wanted = wanted.map(|(name, counts)| (format!("refs/heads/iii/{name}"), counts));
    let counts = tips.unwrap().into_iter().map(|(name, tip)| (name, (tip.ahead, tip.behind)));
    assert_eq!(Vec::from_iter(counts), wanted);
}
