//! Status and ignored files under configurations that hide things.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::sealed::{Place, put};
use worktree::git::{EntryKind, Operation, Sha};

#[tokio::test]
async fn c23_nothing_is_hidden_by_configuration() {
    let place = Place::new();
    let root = place.repo("shop");
    place.user_config(
        "[status]\nshowUntrackedFiles = no\nbranch = false\nshort = true\nshowStash = true\naheadBehind = false\nrenames = false\n\
         [color]\nui = always\nstatus = always\n[core]\nquotePath = true\n[column]\nui = always\n[diff]\nignoreSubmodules = all",
    );
    put(&root, "dir/unknown", "x");
    put(&root, "README", "changed");
    place.run(&root, ["mv", "README", "LIESMICH"]);
    place.run(&root, ["stash", "list"]);
    let status = place.git.tree(&root).unwrap().status().await.unwrap();
    let seen: Vec<_> = status.entries.iter().map(|e| (e.kind, e.path.to_str().unwrap())).collect();
    assert_eq!(seen, [(EntryKind::StagedAndUnstaged, "LIESMICH"), (EntryKind::Untracked, "dir/")]);
    assert_eq!(status.branch.as_deref(), Some("main"));
    assert_eq!(status.head, Some(place.head(&root)));
}

/// Makes a file as old as all others are.
fn age(file: &Path) {
    let old = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
    std::fs::File::options().write(true).open(file).unwrap().set_modified(old).unwrap();
}

#[tokio::test]
async fn c23_a_file_is_not_taken_for_another_one_or_for_an_unchanged_one() {
    let place = Place::new();
    let root = place.repo("shop");
    place.user_config("[core]\nignoreCase = true\ncheckStat = minimal\ntrustctime = false");
    let readme = root.join("README");
    age(&readme);
    place.run(&root, ["update-index", "--refresh"]);
    // As long and as old as before. Only the second of its change tells, so one has to pass.
    let before = readme.metadata().unwrap().ctime();
    while readme.metadata().unwrap().ctime() == before {
        std::thread::sleep(Duration::from_millis(20));
        put(&root, "README", "jello\n");
        age(&readme);
    }
    // Not the one that git knows.
    put(&root, "readme", "x\n");
    assert_eq!(place.run(&root, ["status", "--porcelain"]), "", "git does not show it");
    let status = place.git.tree(&root).unwrap().status().await.unwrap();
    let seen: Vec<_> = status.entries.iter().map(|e| (e.kind, e.path.to_str().unwrap())).collect();
    assert_eq!(seen, [(EntryKind::Unstaged, "README"), (EntryKind::Untracked, "readme")]);
}

#[tokio::test]
async fn a_hidden_change_in_the_second_of_the_index_is_found() {
    let place = Place::new();
    let root = place.repo("shop");
    place.user_config("[core]\ncheckStat = minimal");
    age(&root.join("README"));
    place.run(&root, ["update-index", "--refresh"]);
    place.run(&root, ["update-index", "--assume-unchanged", "README"]);
    put(&root, "README", "jello\n");
    age(&root.join("README"));
    age(&root.join(".git/index"));
    assert_eq!(place.git.tree(&root).unwrap().hidden_changes().await.unwrap(), [PathBuf::from("README")]);
}

#[tokio::test]
async fn upstream_and_detached_heads_are_told() {
    let place = Place::new();
    let root = place.repo("shop");
    let clone = place.path().join("clone");
    place.run(&place.path(), ["clone", "--quiet", root.to_str().unwrap(), clone.to_str().unwrap()]);
    place.commit(&root, "a", "1");
    place.commit(&clone, "b", "1");
    place.run(&clone, ["fetch", "--quiet"]);
    let tree = place.git.tree(&clone).unwrap();
    let status = tree.status().await.unwrap();
    assert_eq!((status.upstream.as_deref(), status.upstream_ahead_behind), (Some("origin/main"), Some((1, 1))));
    assert_eq!(tree.repo().upstream_of("main").await.unwrap().as_deref(), Some("refs/remotes/origin/main"));
    assert_eq!(tree.repo().unpushed(&place.head(&clone), &[]).await.unwrap(), 1);
    place.run(&clone, ["checkout", "--quiet", "--detach"]);
    assert_eq!(tree.status().await.unwrap().branch, None);
    assert_eq!(tree.head_branch().unwrap(), None);
    assert_eq!(tree.repo().head_branch().await.unwrap(), None);
    tree.refresh_index().await.unwrap();
}

#[tokio::test]
async fn a_refresh_is_in_nobodys_way_and_hides_no_change() {
    let place = Place::new();
    let root = place.repo("shop");
    place.commit(&root, "a", "one");
    let tree = place.git.tree(&root).unwrap();
    let index = root.join(".git/index");
    let lock = root.join(".git/index.lock");
    // Somebody is writing the index: both stay as they are.
    let before = std::fs::read(&index).unwrap();
    put(&root, ".git/index.lock", "theirs");
    tree.refresh_index().await.unwrap();
    assert_eq!(
        (std::fs::read(&index).unwrap(), std::fs::read_to_string(&lock).unwrap()),
        (before, "theirs".to_owned())
    );
    std::fs::remove_file(&lock).unwrap();
    // Changed to the same size within the same moment: only the age of the index gives it away.
    place.commit(&root, "a", "two");
    put(&root, "a", "six");
    tree.refresh_index().await.unwrap();
    assert_eq!(tree.status().await.unwrap().unstaged, 1);
    // What differs in nothing but its age is refreshed, and no lock and no copy are left.
    put(&root, "a", "two");
    tree.refresh_index().await.unwrap();
    assert!(tree.status().await.unwrap().is_clean());
    let left = std::fs::read_dir(root.join(".git")).unwrap().flatten();
    let left: Vec<_> =
        left.map(|entry| entry.file_name()).filter(|name| name.to_string_lossy().contains("index")).collect();
    assert_eq!(left, ["index"]);
    place.run(&root, ["commit", "--quiet", "--allow-empty", "--message", "after"]);
}

#[tokio::test]
async fn ignored_files_are_listed_with_whole_directories_as_one() {
    let place = Place::new();
    let root = place.repo("shop");
    place.commit(&root, ".gitignore", "target/\n*.env\n");
    put(&root, "target/a/b", "x");
    put(&root, "sub/x.env", "x");
    put(&root, "mixed/x.env", "x");
    put(&root, "mixed/plain", "x");
    put(&root, "line\nbreak.env", "x");
    let ignored = place.git.tree(&root).unwrap().ignored_entries().await.unwrap();
    assert_eq!(ignored, ["line\nbreak.env", "mixed/x.env", "sub/x.env", "target/"].map(PathBuf::from));
    assert!(ignored[3].as_os_str().to_str().unwrap().ends_with('/'));
}

#[tokio::test]
async fn open_operations_are_recognised() {
    let place = Place::new();
    let root = place.repo("shop");
    let base = place.head(&root);
    let ours = place.commit(&root, "README", "ours\n");
    place.run(&root, ["checkout", "--quiet", "-b", "other", base.as_str()]);
    place.commit(&root, "README", "theirs\n");
    let tree = place.git.tree(&root).unwrap();
    assert_eq!(tree.operation(), None);
    for (begin, abort, operation) in [
        (vec!["merge", ours.as_str()], vec!["merge", "--abort"], Operation::Merge),
        (vec!["cherry-pick", ours.as_str()], vec!["cherry-pick", "--abort"], Operation::CherryPick),
        (vec!["revert", "--no-edit", ours.as_str()], vec!["revert", "--abort"], Operation::Revert),
        (vec!["rebase", "--merge", ours.as_str()], vec!["rebase", "--abort"], Operation::Rebase),
        (vec!["rebase", "--apply", ours.as_str()], vec!["rebase", "--abort"], Operation::Rebase),
        (vec!["bisect", "start"], vec!["bisect", "reset"], Operation::Bisect),
    ] {
        place.try_run(&root, &begin);
        assert_eq!(tree.operation(), Some(operation), "{begin:?}");
        place.run(&root, &abort);
        assert_eq!(tree.operation(), None, "{abort:?}");
    }
}

#[tokio::test]
async fn changes_git_was_told_not_to_look_at_are_found() {
    let place = Place::new();
    let root = place.repo("shop");
    for file in ["assumed", "skipped", "unchanged", "odd\nname"] {
        place.commit(&root, file, "1\n");
    }
    let tree = place.git.tree(&root).unwrap();
    assert!(tree.hidden_changes().await.unwrap().is_empty());
    place.run(&root, ["update-index", "--assume-unchanged", "assumed", "unchanged", "odd\nname"]);
    place.run(&root, ["update-index", "--skip-worktree", "skipped"]);
    assert!(tree.hidden_changes().await.unwrap().is_empty());
    for file in ["assumed", "skipped", "odd\nname"] {
        put(&root, file, "precious\n");
    }
    let index = std::fs::read(root.join(".git/index")).unwrap();
    assert!(tree.status().await.unwrap().is_clean(), "what git says");
    assert_eq!(tree.hidden_changes().await.unwrap(), ["assumed", "odd\nname", "skipped"].map(PathBuf::from));
    assert_eq!(std::fs::read(root.join(".git/index")).unwrap(), index);
    assert!(
        !std::fs::read_dir(root.join(".git")).unwrap().any(|e| e
            .unwrap()
            .file_name()
            .to_string_lossy()
            .starts_with("iii-"))
    );
    place.run(&root, ["update-index", "--split-index"]);
    assert_eq!(tree.hidden_changes().await.unwrap().len(), 3);
}

#[tokio::test]
async fn files_a_sparse_checkout_leaves_out_are_not_hidden_changes() {
    let place = Place::new();
    let root = place.repo("shop");
    put(&root, "kept/a", "1\n");
    place.commit(&root, "left/b", "1\n");
    let tree = place.git.tree(&root).unwrap();
    for extra in ["--no-sparse-index", "--sparse-index"] {
        place.run(&root, ["sparse-checkout", "set", extra, "kept"]);
        assert!(tree.hidden_changes().await.unwrap().is_empty());
        put(&root, "left/b", "changed\n");
        // Git itself looks again at a file that should not be there and is.
        let status = tree.status().await.unwrap();
        assert!(!status.is_clean() || tree.hidden_changes().await.unwrap().len() == 1);
        place.run(&root, ["sparse-checkout", "disable"]);
        place.run(&root, ["checkout", "--quiet", "--force", "main"]);
    }
}

/// A clean repository whose files are an hour older than its index, and the tree of its HEAD.
fn settled(place: &Place, root: &Path) -> Sha {
    for file in place.run(root, ["ls-files", "-z"]).split('\0').filter(|file| !file.is_empty()) {
        place.run(root, ["-c", "alias.t=!touch -h -d '1 hour ago'", "t", file]);
    }
    // A new one: git itself does not write down what has changed within the same second.
    std::fs::remove_file(root.join(".git/index")).unwrap();
    place.run(root, ["read-tree", "HEAD"]);
    place.run(root, ["update-index", "--refresh"]);
    place.sha(root, "HEAD^{tree}")
}

#[tokio::test]
async fn a_clean_worktree_is_proven_clean_and_no_other() {
    let place = Place::new();
    let root = place.repo("shop");
    put(&root, "dir/deep/file", "1\n");
    // Between the others of its directory in the order of the index, and below nothing but directories.
    put(&root, "dir/deep.down/a/b/c/file", "1\n");
    put(&root, ".gitignore", "*.log\n");
    std::os::unix::fs::symlink("README", root.join("link")).unwrap();
    place.run(&root, ["add", "."]);
    place.run(&root, ["commit", "--quiet", "-m", "more"]);
    let head_tree = settled(&place, &root);
    let tree = place.git.tree(&root).unwrap();
    assert!(tree.is_proven_clean(&head_tree).await);
    for version in ["4", "2"] {
        place.run(&root, ["update-index", "--index-version", version]);
        assert!(tree.is_proven_clean(&head_tree).await, "index version {version}");
    }
    let other = place.sha(&root, "HEAD~1^{tree}");
    assert!(!tree.is_proven_clean(&other).await);
    let file = root.join("dir/deep/file");
    let keep = std::fs::metadata(&file).unwrap().modified().unwrap();
    let changes: [(&str, &dyn Fn()); 11] = [
        ("changed, as long and as old as before", &|| {
            put(&root, "dir/deep/file", "2\n");
            std::fs::File::options().write(true).open(&file).unwrap().set_modified(keep).unwrap();
        }),
        ("unknown file", &|| put(&root, "dir/new", "x")),
        ("ignored file", &|| put(&root, "dir/a.log", "x")),
        ("empty directory", &|| std::fs::create_dir(root.join("dir/empty")).unwrap()),
        ("gone", &|| std::fs::remove_file(&file).unwrap()),
        ("one for another", &|| {
            std::fs::remove_file(&file).unwrap();
            put(&root, "dir/deep/other", "1\n");
        }),
        ("a link to a directory that holds the same", &|| {
            std::fs::rename(root.join("dir/deep"), root.join(".git/deep")).unwrap();
            std::os::unix::fs::symlink("../.git/deep", root.join("dir/deep")).unwrap();
        }),
        ("executable", &|| {
            std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        }),
        ("staged", &|| {
            put(&root, "dir/deep/file", "3\n");
            place.run(&root, ["add", "."]);
        }),
        ("assumed unchanged", &|| drop(place.run(&root, ["update-index", "--assume-unchanged", "README"]))),
        ("split", &|| drop(place.run(&root, ["update-index", "--split-index"]))),
    ];
    for (what, change) in changes {
        change();
        assert!(!tree.is_proven_clean(&head_tree).await, "{what}");
        place.run(&root, ["update-index", "--no-split-index"]);
        // For the same reason it would not undo the first change.
        std::fs::remove_dir_all(root.join("dir")).unwrap();
        place.run(&root, ["reset", "--quiet", "--hard"]);
        place.run(&root, ["clean", "--quiet", "-ffdx"]);
        settled(&place, &root);
        assert!(tree.is_proven_clean(&head_tree).await, "after {what}");
    }
}

#[tokio::test]
async fn a_file_as_late_as_the_index_is_read_before_it_is_taken_for_clean() {
    let place = Place::new();
    let root = place.repo("shop");
    std::os::unix::fs::symlink("README", root.join("link")).unwrap();
    put(&root, "README", "late\n");
    place.run(&root, ["add", "."]);
    place.run(&root, ["commit", "--quiet", "-m", "late"]);
    let head_tree = place.sha(&root, "HEAD^{tree}");
    let tree = place.git.tree(&root).unwrap();
    let index = root.join(".git/index");
    let as_late = || {
        let now = std::fs::metadata(root.join("README")).unwrap().modified().unwrap();
        std::fs::File::options().write(true).open(&index).unwrap().set_modified(now).unwrap();
    };
    as_late();
    assert!(tree.is_proven_clean(&head_tree).await);
    // As if it had been changed within one tick of the clock: the index holds how it looks now.
    put(&root, "README", "LATE\n");
    let meta = std::fs::metadata(root.join("README")).unwrap();
    let mut bytes = std::fs::read(&index).unwrap();
    let path = bytes.windows(7).position(|window| window == b"README\0").unwrap();
    let times = [meta.ctime(), meta.ctime_nsec(), meta.mtime(), meta.mtime_nsec()];
    let times: Vec<u8> = times.iter().flat_map(|time| u32::try_from(*time).unwrap().to_be_bytes()).collect();
    bytes[path - 62..path - 46].copy_from_slice(&times);
    std::fs::write(&index, bytes).unwrap();
    as_late();
    assert!(!tree.is_proven_clean(&head_tree).await);
    std::fs::remove_file(root.join("link")).unwrap();
    assert!(!tree.is_proven_clean(&head_tree).await);
}

#[tokio::test]
async fn summaries_of_many_are_those_of_each() {
    let place = Place::new();
    let root = place.repo("shop");
    let first = place.head(&root);
    put(&root, "long", (0..40).map(|n| format!("{n}\n")).collect::<String>());
    place.run(&root, ["add", "."]);
    place.run(&root, ["mv", "README", "LIESMICH"]);
    let second = place.commit(&root, "a", "1\n");
    place.run(&root, ["mv", "long", "longer"]);
    put(&root, "binary", [0, 1, 2]);
    place.run(&root, ["add", "."]);
    let third = place.commit(&root, "a", "2\n");
    let repo = place.git.discover(&root).await.unwrap().repo;
    let all = [&first, &second, &third];
    let pairs: Vec<(Sha, Sha)> = all.iter().flat_map(|a| all.map(|b| ((*a).clone(), b.clone()))).collect();
    let together = repo.shortstats(&pairs).await.unwrap();
    for ((from, to), text) in pairs.iter().zip(together) {
        assert_eq!(repo.shortstat(from, to).await.unwrap(), text);
    }
}
