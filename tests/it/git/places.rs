//! Where a path lies, and what a name resolves to.

use super::sealed::{Place, put};
use worktree::git::{Expected, RefUpdate, Room};

#[tokio::test]
async fn a_path_anywhere_inside_finds_repository_and_worktree() {
    let place = Place::new();
    let root = place.repo("shop");
    put(&root, "a/b/file", "x");
    for path in [root.clone(), root.join("a/b"), root.join("a/b/file")] {
        let found = place.git.discover(&path).await.unwrap();
        assert_eq!(found.repo.common_dir(), root.join(".git"));
        let tree = found.tree.unwrap();
        assert_eq!(tree.root(), root);
        assert!(tree.is_primary());
    }
    assert!(place.git.discover(&root.join(".git/refs")).await.unwrap().tree.is_none());

    let tree = place.worktree(&root, "feat/x").await;
    let found = place.git.discover(&tree.root().join(".")).await.unwrap();
    assert_eq!(found.repo.key(), root.join(".git").to_str().unwrap());
    assert_eq!(found.tree.unwrap().root(), tree.root());
    assert!(!tree.is_primary());
}

#[tokio::test]
async fn bare_and_odd_places_are_found() {
    let place = Place::new();
    let root = place.repo("with\nline break");
    assert_eq!(place.git.discover(&root).await.unwrap().tree.unwrap().root(), root);
    let bare = place.path().join("bare.git");
    place.run(&place.path(), ["clone", "--quiet", "--bare", root.to_str().unwrap(), bare.to_str().unwrap()]);
    place.user_config("[safe]\nbareRepository = explicit");
    let found = place.git.discover(&bare).await.unwrap();
    assert!(found.tree.is_none());
    assert_eq!(found.repo.common_dir(), bare);
    assert!(found.repo.is_bare().await.unwrap());

    let link = place.path().join("link");
    std::os::unix::fs::symlink(&root, &link).unwrap();
    assert_eq!(place.git.discover(&link).await.unwrap().repo.common_dir(), root.join(".git"));
}

#[tokio::test]
async fn what_is_no_repository_is_refused_by_name() {
    let place = Place::new();
    let error = place.git.discover(&place.path()).await.unwrap_err();
    assert_eq!(error.code().as_str(), "W110");
    assert!(error.to_string().contains(place.path().to_str().unwrap()), "{error}");
    assert_eq!(place.git.discover(&place.path().join("none")).await.unwrap_err().code().as_str(), "W110");
    assert_eq!(place.git.discover("relative".as_ref()).await.unwrap_err().code().as_str(), "W111");
    assert_eq!(place.git.tree(&place.path()).unwrap_err().code().as_str(), "W110");
}

#[tokio::test]
async fn c07_a_branch_comes_before_a_tag_of_its_name() {
    let place = Place::new();
    let root = place.repo("shop");
    let first = place.head(&root);
    let second = place.commit(&root, "a", "1");
    place.run(&root, ["tag", "main", first.as_str()]);
    place.run(&root, ["branch", "stash", first.as_str()]);
    place.run(&root, ["branch", "origin/x", first.as_str()]);
    place.run(&root, ["update-ref", &format!("refs/heads/{second}"), first.as_str()]);
    place.run(&root, ["update-ref", "refs/heads/HEAD", first.as_str()]);
    place.run(&root, ["update-ref", "refs/heads/@x", first.as_str()]);
    place.run(&root, ["tag", "@x", second.as_str()]);
    let repo = place.open(&root).await;
    for (rev, sha) in [
        ("main", &second),
        ("main~1", &first),
        ("refs/tags/main", &first),
        ("stash", &first),
        ("origin/x", &first),
        (second.as_str(), &first),
        ("HEAD", &second),
        ("@", &second),
        ("@~1", &first),
        ("@x", &first),
        ("HEAD~1", &first),
        (first.short(), &first),
    ] {
        assert_eq!(repo.resolve_commit(rev).await.unwrap().as_ref(), Some(sha), "{rev}");
    }
    for rev in
        ["nope", "HEAD~9", "HEAD:README", "main@{9}", ":/nothing like it", "a..b", "{", "main^{tree}", "^main", "\u{1}"]
    {
        assert_eq!(repo.resolve_commit(rev).await.unwrap(), None, "{rev}");
    }
    for rev in ["", "-x", "--all", "a\0b"] {
        assert_eq!(repo.resolve_commit(rev).await.unwrap_err().code().as_str(), "W111", "{rev}");
    }
    assert_eq!(repo.branch_sha("main").await.unwrap(), Some(second));
    assert_eq!(repo.branch_sha("nope").await.unwrap(), None);
    assert_eq!(repo.head_branch().await.unwrap().as_deref(), Some("main"));
}

#[tokio::test]
async fn c06_names_that_exclude_each_other_are_found_both_ways() {
    let place = Place::new();
    let root = place.repo("shop");
    let head = place.head(&root);
    place.run(&root, ["branch", "feat"]);
    place.run(&root, ["branch", "release/2026.4"]);
    let repo = place.open(&root).await;
    let collides = |name: &str| Room::Collides(name.to_owned());
    let in_the_way = [
        ("feat/x/y", collides("refs/heads/feat")),
        ("release", collides("refs/heads/release/2026.4")),
        ("feat", Room::Taken),
        ("feature", Room::Free),
        ("release/2026.5", Room::Free),
    ];
    // Loose, packed, loose again beside what is packed.
    for change in [None, Some(["pack-refs", "--all"]), Some(["update-ref", "refs/heads/feat"])] {
        if let Some(args) = change {
            let head = (args[0] == "update-ref").then_some(head.as_str());
            place.run(&root, args.into_iter().chain(head));
        }
        let before = repo.git().processes_started();
        for (name, room) in &in_the_way {
            assert_eq!(repo.room_for(name).await.unwrap(), *room, "{name} after {change:?}");
        }
        assert_eq!(repo.git().processes_started(), before, "the files tell it");
    }
    // An empty folder is in nobody's way; what is no plain ref is left to git.
    std::fs::create_dir_all(root.join(".git/refs/heads/empty/deep")).unwrap();
    assert_eq!(repo.room_for("empty").await.unwrap(), Room::Free);
    place.run(&root, ["symbolic-ref", "refs/heads/sym", "refs/heads/feat"]);
    let before = repo.git().processes_started();
    assert_eq!(repo.room_for("sym").await.unwrap(), Room::Taken);
    assert_eq!(repo.room_for("sym/x").await.unwrap(), collides("refs/heads/sym"));
    assert_eq!(repo.git().processes_started(), before + 2);
    let error = repo.update_ref("refs/heads/feat/x", &head, Expected::Absent, "m").await.unwrap_err();
    assert_eq!(error.code().as_str(), "W121");
}

#[tokio::test]
async fn refs_move_only_from_where_they_are_expected_invariant_4() {
    let place = Place::new();
    let root = place.repo("shop");
    let first = place.head(&root);
    let second = place.commit(&root, "a", "1");
    let repo = place.open(&root).await;
    let name = "refs/iii/wt-backup/wt_0123456789ab";
    assert_eq!(repo.update_ref(name, &first, Expected::Absent, "one").await.unwrap(), RefUpdate::Done);
    let lost = RefUpdate::Lost { current: Some(first.clone()) };
    assert_eq!(repo.update_ref(name, &second, Expected::Absent, "two").await.unwrap(), lost);
    assert_eq!(repo.update_ref(name, &first, Expected::Is(second.clone()), "two").await.unwrap(), lost);
    assert_eq!(repo.update_ref(name, &second, Expected::Is(first.clone()), "job_1").await.unwrap(), RefUpdate::Done);
    assert!(place.run(&root, ["reflog", "show", name]).contains("job_1"));
    assert_eq!(repo.refs_under("refs/iii").await.unwrap(), [(name.to_owned(), second.clone())]);
    assert_eq!(repo.delete_ref(name, &first).await.unwrap(), RefUpdate::Lost { current: Some(second.clone()) });
    assert_eq!(repo.delete_ref(name, &second).await.unwrap(), RefUpdate::Done);
    assert_eq!(repo.delete_ref(name, &second).await.unwrap(), RefUpdate::Lost { current: None });
    let gone = repo.update_ref(name, &second, Expected::Is(first), "x").await.unwrap();
    assert_eq!(gone, RefUpdate::Lost { current: None });
    assert_eq!(repo.update_ref("main", &second, Expected::Absent, "x").await.unwrap_err().code().as_str(), "W111");
}

#[tokio::test]
async fn c16_a_repository_without_commits_answers() {
    let place = Place::new();
    let root = place.path().join("empty");
    std::fs::create_dir(&root).unwrap();
    place.run(&root, ["init", "--quiet", "--initial-branch=trunk"]);
    let found = place.git.discover(&root).await.unwrap();
    let (repo, tree) = (found.repo, found.tree.unwrap());
    assert!(!repo.has_commits().await.unwrap());
    assert_eq!(repo.resolve_commit("HEAD").await.unwrap(), None);
    assert_eq!(repo.head_branch().await.unwrap().as_deref(), Some("trunk"));
    assert_eq!(tree.head().await.unwrap(), None);
    assert_eq!(tree.head_branch().unwrap().as_deref(), Some("trunk"));
    let status = tree.status().await.unwrap();
    assert!(status.is_clean() && status.head.is_none());
    assert_eq!(repo.worktrees().await.unwrap()[0].head, None);
    place.commit(&root, "a", "1");
    assert!(repo.has_commits().await.unwrap());
}

#[tokio::test]
async fn branch_names_are_judged_as_git_judges_them() {
    let place = Place::new();
    for name in [
        "main",
        "feat/x",
        "é",
        "a@b",
        "@x",
        "x@",
        "HEAD/x",
        "a.",
        "a..b",
        ".a",
        "a/.b",
        "x.lock",
        "x.lock/y",
        "a b",
        "a~",
        "a^",
        "a:",
        "a?",
        "a*",
        "a[b",
        "a\\b",
        "/a",
        "a/",
        "a//b",
        "a@{b",
        "-x",
        "HEAD",
        "a\tb",
        "a\u{7f}",
        "x.locks",
        "..",
        "refs/heads/x",
        "a{b}",
    ] {
        let (git, _) = place.try_run(&place.path(), ["check-ref-format", "--branch", name]);
        assert_eq!(place.git.valid_branch_name(name).await.unwrap(), git, "{name:?}");
    }
    // Accepted by git and read as something else than a branch of that name.
    for name in ["@", "@{-1}", ""] {
        assert!(!place.git.valid_branch_name(name).await.unwrap(), "{name:?}");
    }
}

#[tokio::test]
async fn c40_a_directory_that_vanished_is_not_a_missing_git() {
    let place = Place::new();
    let root = place.repo("shop");
    let tree = place.worktree(&root, "one").await;
    std::fs::remove_dir_all(tree.root()).unwrap();
    let error = tree.status().await.unwrap_err();
    assert_eq!(error.code().as_str(), "W110");
    assert!(error.to_string().contains("/one"), "{error}");
}

#[tokio::test]
async fn the_version_is_read() {
    let place = Place::new();
    assert!(place.git.require_version().await.unwrap().major >= 2);
    let missing = place.git_with(&[("PATH", "/nonexistent")]);
    assert_eq!(missing.version().await.unwrap_err().code().as_str(), "W100");
}

#[tokio::test]
async fn a_ref_is_read_as_git_reads_it_wherever_it_is_kept() {
    let place = Place::new();
    let root = place.repo("shop");
    let first = place.head(&root);
    for name in ["packed", "both", "gone", "feat/x"] {
        place.run(&root, ["branch", name]);
    }
    place.run(&root, ["tag", "-m", "t", "v1"]);
    place.run(&root, ["update-ref", "refs/iii/wt-backup/x", first.as_str()]);
    place.run(&root, ["pack-refs", "--all", "--prune"]);
    let second = place.commit(&root, "a", "1");
    place.run(&root, ["branch", "--force", "both"]);
    place.run(&root, ["branch", "-D", "gone"]);
    place.run(&root, ["symbolic-ref", "refs/heads/alias", "refs/heads/packed"]);
    let repo = place.git.discover(&root).await.unwrap().repo;
    let names = ["packed", "both", "gone", "feat/x", "feat", "alias", "main", "none", "none/at/all", "packed/x"];
    let branches = names.map(|name| format!("refs/heads/{name}"));
    let before = place.git.processes_started();
    for name in branches.iter().map(String::as_str).chain(["refs/tags/v1", "refs/iii/wt-backup/x", "refs/iii/none"]) {
        let listed = place.run(&root, ["for-each-ref", "--format=%(refname) %(objectname)", name]);
        let line = listed.lines().find_map(|line| line.strip_prefix(&format!("{name} ")).map(str::to_owned));
        let seen = repo.ref_sha(name).await.unwrap().map(String::from);
        assert_eq!(seen, line, "{name}");
    }
    assert_eq!(repo.branch_sha("both").await.unwrap(), Some(second));
    // Only the symbolic one is left to git.
    assert_eq!(place.git.processes_started() - before, 1);
}

#[tokio::test]
async fn what_was_discovered_is_believed_only_while_it_holds() {
    let place = Place::new();
    let root = place.repo("shop");
    let deep = root.join("deep/er");
    std::fs::create_dir_all(&deep).unwrap();
    let git = &place.git;
    let found = git.discover(&deep).await.unwrap().tree.unwrap();
    assert_eq!(found.root(), root);
    let asked = git.processes_started();
    assert_eq!(git.discover(&deep).await.unwrap().tree.unwrap().root(), root);
    assert_eq!(git.processes_started(), asked, "nothing has changed");
    // Another repository between the path and the root, and no more.
    place.run(&deep.join(".."), ["init", "--quiet"]);
    assert_eq!(git.discover(&deep).await.unwrap().tree.unwrap().root(), root.join("deep"));
    std::fs::remove_dir_all(root.join("deep/.git")).unwrap();
    assert_eq!(git.discover(&deep).await.unwrap().tree.unwrap().root(), root);
    // A configuration that places the files elsewhere is refused as the first time.
    place.run(&root, ["config", "core.worktree", place.path().to_str().unwrap()]);
    assert_eq!(git.discover(&deep).await.unwrap_err().code().as_str(), "W110");
    place.run(&root, ["config", "--unset", "core.worktree"]);
    assert_eq!(git.discover(&deep).await.unwrap().tree.unwrap().root(), root);
    // Another repository in the same place.
    std::fs::rename(root.join(".git"), place.path().join("old")).unwrap();
    assert_eq!(git.discover(&deep).await.unwrap_err().code().as_str(), "W110");
    place.run(&root, ["init", "--quiet", "--bare", "."]);
    assert!(git.discover(&root).await.unwrap().tree.is_none(), "a bare one is asked about every time");
}
