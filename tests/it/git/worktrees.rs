//! Adding, listing and removing worktrees, and git's entries for them.

use std::path::Path;
use std::time::{Duration, Instant};

use super::sealed::{Place, add, put, script};
use worktree::git::admin::{self, Link};
use worktree::git::{AddWorktree, Expected, RefUpdate};

#[tokio::test]
async fn an_added_worktree_is_registered_locked_and_on_its_branch() {
    let place = Place::new();
    let root = place.repo("shop");
    let tree = place.worktree(&root, "iii/wt_1").await;
    let repo = tree.repo();
    let all = repo.worktrees().await.unwrap();
    assert_eq!(all.len(), 2);
    assert!(all[0].primary);
    assert_eq!(all[1].branch.as_deref(), Some("iii/wt_1"));
    assert_eq!(all[1].locked.as_deref(), Some("iii worktree iii/wt_1"));
    assert_eq!(tree.head_branch().unwrap().as_deref(), Some("iii/wt_1"));
    assert!(tree.status().await.unwrap().is_clean());
    assert!(tree.root().join("README").exists());
    assert_eq!(repo.upstream_of("iii/wt_1").await.unwrap(), None);
    let Link::Intact(entry) = admin::verify_link(repo.common_dir(), tree.root()).unwrap() else { panic!() };
    assert_eq!(admin::lock_reason(&entry).unwrap().as_deref(), Some("iii worktree iii/wt_1"));
    assert_eq!(admin::read_marker(&entry).unwrap(), None);
    admin::write_marker(&entry, b"{}").unwrap();
    admin::write_marker(&entry, b"{1}").unwrap();
    assert_eq!(admin::read_marker(&entry).unwrap().as_deref(), Some(&b"{1}"[..]));
    assert_eq!(
        std::fs::read_dir(&entry.dir)
            .unwrap()
            .filter(|e| e.as_ref().unwrap().path().extension().is_some_and(|x| x == "tmp"))
            .count(),
        0
    );

    assert!(tree.remove(false).await.is_err(), "a locked worktree stays");
    admin::unlock(&entry).unwrap();
    admin::unlock(&entry).unwrap();
    put(tree.root(), "new", "x");
    assert!(tree.remove(false).await.is_err(), "unknown files stay");
    tree.remove(true).await.unwrap();
    assert!(!tree.root().exists());
    assert_eq!(repo.worktrees().await.unwrap().len(), 1);
}

#[tokio::test]
async fn c01_parallel_adds_all_succeed() {
    let place = Place::new();
    let root = place.repo("shop");
    let bare = place.path().join("origin.git");
    place.run(&place.path(), ["clone", "--quiet", "--bare", root.to_str().unwrap(), bare.to_str().unwrap()]);
    place.run(&root, ["remote", "add", "origin", bare.to_str().unwrap()]);
    place.run(&root, ["fetch", "--quiet", "origin"]);
    place.user_config("[branch]\nautoSetupMerge = always");
    let repo = place.open(&root).await;
    let start = repo.resolve_commit("origin/main").await.unwrap().unwrap();
    let adds = (0..16).map(|n| {
        let (repo, add) = (repo.clone(), add(&place.path().join(format!("w{n}")), &format!("b{n}"), &start));
        tokio::spawn(async move { repo.add_worktree(&add).await })
    });
    for added in adds.collect::<Vec<_>>() {
        added.await.unwrap().unwrap();
    }
    assert_eq!(repo.worktrees().await.unwrap().len(), 17);
}

#[tokio::test]
async fn c02_a_failed_add_leaves_nothing() {
    let place = Place::new();
    let root = place.repo("shop");
    let repo = place.open(&root).await;
    let head = place.head(&root);
    let before = repo.refs_under("refs").await.unwrap();
    // The parent is a file, so git fails after the branch was made.
    put(&place.path(), "file", "x");
    let error = repo.add_worktree(&add(&place.path().join("file/w"), "b", &head)).await.unwrap_err();
    assert_eq!(error.code().as_str(), "W102", "{error}");
    // A taken path is never used, not even an empty directory.
    std::fs::create_dir(place.path().join("taken")).unwrap();
    let error = repo.add_worktree(&add(&place.path().join("taken"), "b", &head)).await.unwrap_err();
    assert!(error.to_string().contains("already exists"), "{error}");
    assert_eq!(repo.refs_under("refs").await.unwrap(), before);
    assert!(admin::entries(repo.common_dir()).unwrap().is_empty());
    assert!(place.path().join("taken").exists());
    let error = repo.add_worktree(&add(&place.path().join("w"), "main", &head)).await.unwrap_err();
    assert_eq!(error.code().as_str(), "W120");
    let error = repo.add_worktree(&add(&place.path().join("w"), "main/x", &head)).await.unwrap_err();
    assert_eq!(error.code().as_str(), "W121");
    assert_eq!(repo.branch_sha("main").await.unwrap(), Some(head));
}

#[tokio::test]
async fn links_are_verified_both_ways_invariant_1() {
    let place = Place::new();
    let root = place.repo("shop");
    let one = place.worktree(&root, "one").await;
    let two = place.worktree(&root, "two").await;
    let common = one.repo().common_dir().to_owned();
    let why = |path: &std::path::Path| match admin::verify_link(&common, path).unwrap() {
        Link::Broken { why } => why,
        other => panic!("{other:?}"),
    };
    // The primary checkout and a symbolic link are no worktrees of ours.
    assert!(why(&root).contains("repository of its own"));
    std::os::unix::fs::symlink(one.root(), place.path().join("link")).unwrap();
    assert!(why(&place.path().join("link")).contains("not a directory"));
    // Through a symbolic link above it, it is.
    std::os::unix::fs::symlink(place.path(), place.path().join("up")).unwrap();
    assert!(
        matches!(admin::verify_link(&common, &place.path().join("up/one")).unwrap(), Link::Intact(e) if e.name == "one")
    );
    assert_eq!(admin::entry_for(&common, &place.path().join("up/one")).unwrap().unwrap().name, "one");
    // A directory that names the entry of another.
    std::fs::copy(two.root().join(".git"), one.root().join(".git")).unwrap();
    assert!(why(one.root()).contains("another directory"));
    std::fs::remove_file(one.root().join(".git")).unwrap();
    assert!(why(one.root()).contains("no .git"));
    std::fs::remove_dir_all(one.root()).unwrap();
    let gone = admin::verify_link(&common, one.root()).unwrap();
    let Link::DirectoryGone { entry: Some(entry) } = gone else { panic!("{gone:?}") };
    admin::drop_entry(&common, &entry).unwrap();
    admin::drop_entry(&common, &entry).unwrap();
    assert_eq!(admin::verify_link(&common, one.root()).unwrap(), Link::DirectoryGone { entry: None });
    assert_eq!(admin::entries(&common).unwrap().len(), 1);
    assert!(two.status().await.unwrap().is_clean());
    assert!(!std::fs::read_dir(&common).unwrap().any(|e| e.unwrap().file_name().to_string_lossy().contains("dropped")));
}

#[tokio::test]
async fn only_a_direct_entry_is_ever_dropped_invariant_2() {
    let place = Place::new();
    let root = place.repo("shop");
    let tree = place.worktree(&root, "one").await;
    let common = tree.repo().common_dir().to_owned();
    let entry = admin::entries(&common).unwrap().remove(0);
    for name in ["..", ".", "", "one/../../objects"] {
        let forged = admin::AdminEntry { name: name.into(), ..entry.clone() };
        assert!(admin::drop_entry(&common, &forged).is_err(), "{name:?}");
    }
    let elsewhere = admin::AdminEntry { dir: place.path().join("one"), ..entry.clone() };
    assert!(admin::drop_entry(&common, &elsewhere).is_err());
    let target = place.path().join("target");
    std::fs::create_dir(&target).unwrap();
    std::os::unix::fs::symlink(&target, common.join("worktrees/link")).unwrap();
    let link = admin::AdminEntry { name: "link".into(), dir: common.join("worktrees/link"), gitdir: "/x".into() };
    assert!(admin::drop_entry(&common, &link).is_err());
    assert!(target.exists() && entry.dir.exists());
    assert_eq!(admin::entries(&common).unwrap().len(), 1);
}

#[tokio::test]
async fn c01_locks_of_others_are_waited_for_and_then_named() {
    let place = Place::new();
    let root = place.repo("shop");
    let repo = place.open(&root).await;
    let head = place.head(&root);
    let git_dir = root.join(".git");
    // Nothing of ours writes the configuration, so its lock is in nobody's way.
    put(&git_dir, "config.lock", "");
    repo.add_worktree(&add(&place.path().join("w"), "feat/w", &head)).await.unwrap();
    std::fs::remove_file(git_dir.join("config.lock")).unwrap();

    for lock in ["packed-refs.lock", "refs/heads/feat/w.lock"] {
        place.run(&root, ["pack-refs", "--all"]);
        put(&git_dir, lock, "");
        let short = repo.with_git(&place.git.with_limit(Duration::from_millis(1500)));
        let error = short.delete_ref("refs/heads/feat/w", &head).await.unwrap_err();
        assert!(error.is_transient() && error.to_string().contains(lock), "{lock}: {error}");
        assert_eq!(repo.branch_sha("feat/w").await.unwrap(), Some(head.clone()));
        let release = git_dir.join(lock);
        let released = tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(400)).await;
            std::fs::remove_file(release).unwrap();
        });
        assert_eq!(repo.delete_ref("refs/heads/feat/w", &head).await.unwrap(), RefUpdate::Done);
        released.await.unwrap();
        let again = repo.update_ref("refs/heads/feat/w", &head, Expected::Absent, "again").await.unwrap();
        assert_eq!(again, RefUpdate::Done);
    }
}

#[tokio::test]
async fn an_add_nobody_waits_for_leaves_nothing_invariant_1() {
    let place = Place::new();
    let root = place.repo("shop");
    let repo = place.open(&root).await;
    let head = place.head(&root);
    let before = repo.refs_under("refs").await.unwrap();
    for ms in [0, 2, 4, 6, 8, 10, 12, 15, 20, 30] {
        let add = add(&place.path().join(format!("w{ms}")), &format!("b{ms}"), &head);
        let outcome = tokio::time::timeout(Duration::from_millis(ms), repo.add_worktree(&add)).await;
        if outcome.is_ok() {
            let entry = admin::entry_for(repo.common_dir(), &add.path).unwrap().unwrap();
            admin::unlock(&entry).unwrap();
            repo.git().tree(&add.path).unwrap().remove(true).await.unwrap();
            repo.delete_ref(&format!("refs/heads/{}", add.branch.as_ref().unwrap()), &head).await.map(drop).unwrap();
        }
    }
    let until = Instant::now() + Duration::from_secs(5);
    let leftovers = async || {
        let refs = repo.refs_under("refs").await.unwrap();
        let dirs = std::fs::read_dir(place.path())
            .unwrap()
            .filter(|e| e.as_ref().unwrap().file_name().to_string_lossy().starts_with('w'));
        (refs, dirs.count(), admin::entries(repo.common_dir()).unwrap().len())
    };
    while leftovers().await != (before.clone(), 0, 0) {
        assert!(Instant::now() < until, "{:?}", leftovers().await);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// The files of the entry, with what they hold; only what adding itself makes.
fn entry_of(root: &Path, name: &str) -> Vec<(String, String)> {
    let dir = root.join(".git/worktrees").join(name);
    let files = ["HEAD", "commondir", "gitdir", "locked"];
    let of = |file: &str| std::fs::read_to_string(dir.join(file)).unwrap().replace(name, "<name>");
    files.map(|file| (file.to_owned(), of(file))).to_vec()
}

#[tokio::test]
async fn what_is_added_is_what_git_would_add() {
    let place = Place::new();
    let root = place.repo("shop");
    let head = place.head(&root);
    let beside = place.path().join("beside");
    std::fs::create_dir(&beside).unwrap();
    std::os::unix::fs::symlink(&beside, place.path().join("linked")).unwrap();
    let git = place.git_with(&[]);
    let repo = git.discover(&root).await.unwrap().repo;
    for (at, branch) in [Some("feat"), None, Some("0123456789012345678901234567890123456789")].into_iter().enumerate() {
        let (ours, theirs) = (format!("ours{at}"), format!("theirs{at}"));
        let request = AddWorktree {
            branch: branch.map(str::to_owned),
            ..add(&place.path().join("linked").join(&ours), "", &head)
        };
        let before = git.processes_started();
        repo.add_worktree(&request).await.unwrap();
        assert_eq!(
            git.processes_started() - before,
            u64::from(branch.is_some()),
            "{branch:?}: only its branch is made by git"
        );
        let path = place.path().join("linked").join(&theirs);
        let path = path.to_str().unwrap();
        let reason = request.lock_reason.as_str();
        let plain = ["worktree", "add", "--quiet", "--no-checkout", "--lock", "--reason", reason, "--detach", path];
        place.run(&root, plain);
        let mut wanted = entry_of(&root, &theirs);
        if let Some(branch) = branch {
            wanted[0].1 = format!("ref: refs/heads/{branch}\n");
        }
        assert_eq!(entry_of(&root, &ours), wanted, "{branch:?}");
        // Git makes it since 2.45; the ref backend of an older one makes it when it needs it.
        assert!(root.join(".git/worktrees").join(&ours).join("refs").is_dir());
        let link =
            |name: &str| std::fs::read_to_string(beside.join(name).join(".git")).unwrap().replace(name, "<name>");
        assert_eq!(link(&ours), link(&theirs));
        let tree = git.tree(&beside.join(&ours)).unwrap();
        tree.checkout_fresh().await.unwrap();
        assert_eq!(place.run(&beside.join(&ours), ["status", "--porcelain"]), "");
        assert_eq!(place.head(&beside.join(&ours)), head);
    }
    place.run(&root, ["worktree", "prune", "--expire=now"]);
    place.run(&root, ["fsck", "--strict"]);
    assert_eq!(repo.worktrees().await.unwrap().len(), 7);
    // The branch that a checkout names without having it, a taken name, a shared repository: git decides.
    place.run(&beside.join("theirs0"), ["checkout", "--quiet", "--orphan", "unborn"]);
    let error = repo.add_worktree(&add(&place.path().join("w"), "unborn", &head)).await.unwrap_err();
    assert!(error.to_string().contains("unborn"), "{error}");
    assert_eq!(repo.branch_sha("unborn").await.unwrap(), None);
    let taken = repo.add_worktree(&add(&place.path().join("ours0"), "taken", &head)).await.unwrap();
    assert_eq!(taken.name, "ours01");
    place.run(&root, ["config", "core.sharedRepository", "umask"]);
    let before = git.processes_started();
    repo.add_worktree(&add(&place.path().join("x"), "shared", &head)).await.unwrap();
    assert_eq!(git.processes_started() - before, 2);
}

#[tokio::test]
async fn c03_a_worktree_that_was_unregistered_meanwhile_is_a_failure() {
    let place = Place::new();
    let root = place.repo("shop");
    let bin = place.path().join("bin");
    // So that git adds it.
    place.run(&root, ["config", "core.sharedRepository", "umask"]);
    // Stands in for git: the real one, after which the new entry is gone.
    let real = place.run(&root, ["--exec-path"]);
    let body = format!(
        "PATH=\"$PATH\"; '{real}/git' \"$@\"; code=$?; case \"$*\" in *'worktree add'*) rm -rf '{}/worktrees';; esac; exit $code",
        root.join(".git").display()
    );
    script(&bin.join("git"), &body);
    let git = place.git_with(&[("PATH", &format!("{}:/usr/bin:/bin", bin.display()))]);
    let repo = git.discover(&root).await.unwrap().repo;
    let error = repo.add_worktree(&add(&place.path().join("w"), "b", &place.head(&root))).await.unwrap_err();
    assert!(error.to_string().contains("entry"), "{error}");
    assert_eq!(repo.branch_sha("b").await.unwrap(), None);
    assert!(!place.path().join("w").exists());
}

#[tokio::test]
async fn c04_a_half_made_entry_is_taken_back_only_by_its_owner() {
    let place = Place::new();
    let root = place.repo("shop");
    let bin = place.path().join("bin");
    let entries = root.join(".git/worktrees");
    place.run(&root, ["config", "core.sharedRepository", "umask"]);
    // Stands in for a git that dies while two entries are half made: its own, and one of a sibling called alike.
    let body = format!(
        "case \"$*\" in *'worktree add'*) mkdir -p '{0}/w' '{0}/w1'; printf 'iii worktree b' >'{0}/w/locked'; \
         printf 'iii worktree c' >'{0}/w1/locked'; exit 128;; esac; exec '{1}/git' \"$@\"",
        entries.display(),
        place.run(&root, ["--exec-path"]),
    );
    script(&bin.join("git"), &body);
    let git = place.git_with(&[("PATH", &format!("{}:/usr/bin:/bin", bin.display()))]);
    let repo = git.discover(&root).await.unwrap().repo;
    repo.add_worktree(&add(&place.path().join("w"), "b", &place.head(&root))).await.unwrap_err();
    let left: Vec<_> = std::fs::read_dir(entries).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left, ["w1"]);
}
