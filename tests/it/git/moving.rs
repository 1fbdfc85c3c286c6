//! Moving the files of a worktree from commit to commit.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use proptest::prelude::*;

use super::histories::{Files, apply, change, commit, import};
use super::sealed::{Place, put, script};
use worktree::git::{MoveOutcome, Sha, Tree};

/// A repository whose primary checkout is at the first commit while `new` is ahead, built by `change`.
async fn ahead(place: &Place, change: impl Fn(&Place, &Path)) -> (Tree, Sha, Sha) {
    let root = place.repo("shop");
    put(&root, "dir/one", "1\n");
    put(&root, "kept", "k\n");
    let old = place.commit(&root, ".gitignore", "*.secret\nout/\n");
    change(place, &root);
    place.run(&root, ["add", "--all", "--force"]);
    place.run(&root, ["commit", "--quiet", "--allow-empty", "--message", "new"]);
    let new = place.head(&root);
    place.run(&root, ["reset", "--quiet", "--hard", old.as_str()]);
    let tree = place.git.tree(&root).unwrap();
    (tree, old, new)
}

fn in_the_way(files: &[&str]) -> MoveOutcome {
    MoveOutcome::InTheWay { files: files.iter().map(PathBuf::from).collect() }
}

#[tokio::test]
async fn what_is_not_in_the_way_is_kept() {
    let place = Place::new();
    let (tree, old, new) = ahead(&place, |_, root| {
        put(root, "README", "new\n");
        std::fs::remove_file(root.join("dir/one")).unwrap();
    })
    .await;
    put(tree.root(), "kept", "changed\n");
    put(tree.root(), "staged", "s\n");
    place.run(tree.root(), ["add", "staged"]);
    put(tree.root(), "unknown", "u\n");
    put(tree.root(), "out/x", "ignored\n");
    assert_eq!(tree.fast_forward(&old, &new).await.unwrap(), MoveOutcome::Moved);
    let read = |file: &str| std::fs::read_to_string(tree.root().join(file)).unwrap();
    assert_eq!(
        ["README", "kept", "staged", "unknown", "out/x"].map(read),
        ["new\n", "changed\n", "s\n", "u\n", "ignored\n"]
    );
    assert!(!tree.root().join("dir").exists());
    assert_eq!(tree.head().await.unwrap(), Some(old.clone()), "no ref moves");
    place.run(tree.root(), ["update-ref", "refs/heads/main", new.as_str()]);
    let status = tree.status().await.unwrap();
    assert_eq!((status.staged, status.unstaged, status.untracked), (1, 1, 1));
    // Moving again changes nothing.
    assert_eq!(tree.fast_forward(&old, &new).await.unwrap(), MoveOutcome::Moved);
}

#[tokio::test]
async fn c49_changed_files_in_the_way_are_named_and_untouched() {
    let place = Place::new();
    let (tree, old, new) = ahead(&place, |_, root| {
        put(root, "README", "new\n");
        put(root, "kept", "new\n");
        put(root, "added", "new\n");
    })
    .await;
    put(tree.root(), "README", "mine\n");
    put(tree.root(), "kept", "staged\n");
    place.run(tree.root(), ["add", "kept"]);
    put(tree.root(), "elsewhere", "x\n");
    assert_eq!(tree.fast_forward(&old, &new).await.unwrap(), in_the_way(&["README", "kept"]));
    let status = tree.status().await.unwrap();
    assert_eq!((status.staged, status.unstaged, status.untracked), (1, 1, 1));
    assert!(!tree.root().join("added").exists());
}

#[tokio::test]
async fn unknown_and_ignored_files_are_never_overwritten_invariant_2() {
    let place = Place::new();
    let (tree, old, new) = ahead(&place, |_, root| {
        put(root, "key.secret", "theirs\n");
        put(root, "out", "theirs\n");
        put(root, "plain/below", "theirs\n");
        put(root, "fresh", "theirs\n");
        std::fs::remove_dir_all(root.join("dir")).unwrap();
        put(root, "dir", "now a file\n");
    })
    .await;
    let mine = [
        ("key.secret", "key.secret"),
        ("out", "out/deep/x"),
        ("plain", "plain"),
        ("fresh", "fresh"),
        ("dir", "dir/x.secret"),
    ];
    for (_, file) in mine {
        put(tree.root(), file, "mine\n");
        let outcome = tree.fast_forward(&old, &new).await.unwrap();
        assert_eq!(outcome, in_the_way(&[file]), "{file}");
        assert_eq!(std::fs::read_to_string(tree.root().join(file)).unwrap(), "mine\n", "{file}");
        let path = tree.root().join(file);
        std::fs::remove_file(&path).unwrap();
    }
    std::fs::remove_dir_all(tree.root().join("out")).unwrap();
    assert_eq!(tree.fast_forward(&old, &new).await.unwrap(), MoveOutcome::Moved);
    assert_eq!(std::fs::read_to_string(tree.root().join("dir")).unwrap(), "now a file\n");
}

#[tokio::test]
async fn a_symbolic_link_in_the_way_of_a_directory_is_not_followed() {
    let place = Place::new();
    let (tree, old, new) = ahead(&place, |_, root| put(root, "sub/file", "theirs\n")).await;
    let target = place.path().join("target");
    put(&target, "file", "precious\n");
    std::os::unix::fs::symlink(&target, tree.root().join("sub")).unwrap();
    assert_eq!(tree.fast_forward(&old, &new).await.unwrap(), in_the_way(&["sub"]));
    assert_eq!(std::fs::read_to_string(target.join("file")).unwrap(), "precious\n");
}

#[tokio::test]
async fn a_held_index_lock_is_waited_for_and_then_named() {
    let place = Place::new();
    let (tree, old, new) = ahead(&place, |_, root| put(root, "README", "new\n")).await;
    let lock = tree.git_dir().join("index.lock");
    std::fs::write(&lock, "").unwrap();
    let release = lock.clone();
    let released = tokio::spawn(async move {
        tokio::time::sleep(std::time::Duration::from_millis(300)).await;
        std::fs::remove_file(release).unwrap();
    });
    assert_eq!(tree.fast_forward(&old, &new).await.unwrap(), MoveOutcome::Moved);
    released.await.unwrap();
    std::fs::write(&lock, "").unwrap();
    let short = tree.with_git(&place.git.with_limit(std::time::Duration::from_millis(400)));
    let error = short.fast_forward(&new, &old).await.unwrap_err();
    assert!(error.is_transient() && error.to_string().contains("index.lock"), "{error}");
}

#[tokio::test]
async fn names_of_any_bytes_are_moved_and_named() {
    use std::os::unix::ffi::OsStrExt as _;
    let place = Place::new();
    let odd = Path::new(std::ffi::OsStr::from_bytes(b"-a b\n\xff*"));
    let (tree, old, new) = ahead(&place, |_, root| std::fs::write(root.join(odd), "theirs").unwrap()).await;
    std::fs::write(tree.root().join(odd), "mine").unwrap();
    let outcome = tree.fast_forward(&old, &new).await.unwrap();
    assert_eq!(outcome, MoveOutcome::InTheWay { files: vec![odd.to_owned()] });
    assert_eq!(tree.status().await.unwrap().entries[0].path, odd);
}

#[tokio::test]
async fn moving_again_finishes_what_a_killed_process_left_invariant_3() {
    let place = Place::new();
    let (tree, old, new) = ahead(&place, |_, root| {
        put(root, "README", "new\n");
        put(root, "added", "new\n");
        put(root, "key.secret", "new\n");
        put(root, ".gitignore", "*.secret\n");
        script(&root.join("tool"), "exit 0");
        std::fs::remove_file(root.join("kept")).unwrap();
    })
    .await;
    // Some files are written, two are gone, one of them to be written anew; the index knows nothing of it.
    std::fs::remove_file(tree.root().join(".gitignore")).unwrap();
    for file in ["README", "added", "key.secret"] {
        put(tree.root(), file, "new\n");
    }
    script(&tree.root().join("tool"), "exit 0");
    std::fs::remove_file(tree.root().join("kept")).unwrap();
    // Other changes of the owner stay what they are.
    put(tree.root(), "dir/one", "mine\n");
    assert_eq!(tree.fast_forward(&old, &new).await.unwrap(), MoveOutcome::Moved);
    place.run(tree.root(), ["update-ref", "refs/heads/main", new.as_str()]);
    let status = tree.status().await.unwrap();
    let seen: Vec<_> = status.entries.iter().map(|entry| entry.path.to_str().unwrap()).collect();
    assert_eq!(seen, ["dir/one"]);

    // The same file with another mode, or with one byte less, is the owner's.
    place.run(tree.root(), ["checkout", "--quiet", "dir/one"]);
    place.run(tree.root(), ["reset", "--quiet", "--hard", old.as_str()]);
    put(tree.root(), "tool", std::fs::read("/dev/null").unwrap());
    put(tree.root(), "added", "new");
    let MoveOutcome::InTheWay { files } = tree.fast_forward(&old, &new).await.unwrap() else { panic!() };
    assert_eq!(files, ["added", "tool"].map(PathBuf::from));
    // What is staged stays staged, even where the file is already the new one.
    std::fs::remove_file(tree.root().join("added")).unwrap();
    std::fs::remove_file(tree.root().join("tool")).unwrap();
    put(tree.root(), "README", "staged\n");
    place.run(tree.root(), ["add", "README"]);
    put(tree.root(), "README", "new\n");
    put(tree.root(), "key.secret", "new\n");
    let index = place.run(tree.root(), ["ls-files", "--stage"]);
    assert_eq!(tree.fast_forward(&old, &new).await.unwrap(), in_the_way(&["README"]));
    assert_eq!(place.run(tree.root(), ["ls-files", "--stage"]), index);
    put(tree.root(), "added", "new");
    assert_eq!(std::fs::read_to_string(tree.root().join("added")).unwrap(), "new");
}

/// What lies in a worktree, `.git` left out: the content of every file and the target of every link.
fn on_disk(root: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut dirs = vec![root.to_owned()];
    while let Some(dir) = dirs.pop() {
        for path in std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()) {
            let relative = path.strip_prefix(root).unwrap().to_owned();
            let meta = path.symlink_metadata().unwrap();
            if relative == Path::new(".git") {
            } else if meta.is_dir() {
                dirs.push(path);
            } else if meta.is_symlink() {
                found.insert(relative, path.read_link().unwrap().into_os_string().into_encoded_bytes());
            } else {
                found.insert(relative, std::fs::read(path).unwrap());
            }
        }
    }
    found
}

/// Something the owner did since the last commit.
#[derive(Debug, Clone)]
enum Dirt {
    /// A new content that no commit has, staged or not.
    Write {
        name: usize,
        staged: bool,
    },
    /// The content that the new commit has there.
    AsNew {
        name: usize,
    },
    Remove {
        name: usize,
        staged: bool,
    },
    Link {
        name: usize,
    },
}

const PLACES: &[&str] = &[
    "a",
    "b",
    "lib/a",
    "lib/b",
    "lib/deep/c",
    "new/x",
    "a.d/z",
    "lib",
    "new",
    "a/inside",
    "x.secret",
    "lib/deep/y.secret",
    "c",
];

fn dirt() -> impl Strategy<Value = Dirt> {
    let name = 0..PLACES.len();
    prop_oneof![
        4 => (name.clone(), any::<bool>()).prop_map(|(name, staged)| Dirt::Write { name, staged }),
        2 => name.clone().prop_map(|name| Dirt::AsNew { name }),
        1 => (name.clone(), any::<bool>()).prop_map(|(name, staged)| Dirt::Remove { name, staged }),
        1 => name.prop_map(|name| Dirt::Link { name }),
    ]
}

/// Makes room for a file as somebody would who means it, then does what is asked.
fn soil(place: &Place, root: &Path, new: &Files, number: usize, dirt: &Dirt) {
    let (Dirt::Write { name, .. } | Dirt::AsNew { name } | Dirt::Remove { name, .. } | Dirt::Link { name }) = dirt;
    let path = root.join(PLACES[*name]);
    let above_is_file = path
        .ancestors()
        .skip(1)
        .take_while(|dir| *dir != root)
        .any(|dir| dir.symlink_metadata().is_ok_and(|meta| !meta.is_dir()));
    if above_is_file || path.symlink_metadata().is_ok_and(|meta| meta.is_dir()) {
        return;
    }
    let stage = |staged: bool| {
        if staged {
            place.try_run(root, ["add", "--all", "--force", "--", PLACES[*name]]);
        }
    };
    match dirt {
        Dirt::Write { staged, .. } => {
            std::fs::remove_file(&path).ok();
            put(root, PLACES[*name], format!("mine {number}\n"));
            stage(*staged);
        }
        Dirt::AsNew { .. } => {
            if let Some((lines, false)) = new.get(PLACES[*name]) {
                std::fs::remove_file(&path).ok();
                put(root, PLACES[*name], lines.iter().map(|line| format!("{line}\n")).collect::<String>());
            }
        }
        Dirt::Remove { staged, .. } => {
            std::fs::remove_file(&path).ok();
            stage(*staged);
        }
        Dirt::Link { .. } => {
            std::fs::remove_file(&path).ok();
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::os::unix::fs::symlink(format!("mine {number}"), &path).unwrap();
        }
    }
}

#[test]
fn no_move_ever_loses_a_file_invariant_2() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let cases = std::env::var("MOVE_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(40);
    let config =
        ProptestConfig { cases, failure_persistence: None, max_shrink_iters: 200, ..ProptestConfig::default() };
    let moved = std::cell::Cell::new(0u32);
    let inputs = (proptest::collection::vec(change(), 1..6), proptest::collection::vec(dirt(), 0..5));
    let outcome = proptest::test_runner::TestRunner::new(config).run(&inputs, |(changes, dirts)| {
        let place = Place::new();
        let root = place.path().join("repo");
        let mut files = Files::new();
        for name in ["a", "b", "lib/a", "lib/b", "lib/deep/c"] {
            files.insert(name.to_owned(), ((0..5).map(|n| format!("{name} {n}")).collect(), false));
        }
        files.insert(".gitignore".to_owned(), (vec!["*.secret".to_owned(), "new/".to_owned()], false));
        let mut stream = String::new();
        let author = "A <a@a> 1767319445 +0100";
        commit(&mut stream, "main", None, &files, "old\n", author);
        changes.iter().for_each(|change| apply(&mut files, change));
        commit(&mut stream, "next", Some("refs/heads/main"), &files, "new\n", author);
        import(&place, &root, &stream);
        place.run(&root, ["checkout", "--quiet", "--force", "main"]);
        dirts.iter().enumerate().for_each(|(number, dirt)| soil(&place, &root, &files, number, dirt));

        let tree = place.git.tree(&root).unwrap();
        let (old, new) = (place.sha(&root, "main"), place.sha(&root, "next"));
        let state = || (on_disk(&root), place.run(&root, ["ls-files", "--stage"]));
        let before = state();
        match runtime.block_on(tree.fast_forward(&old, &new)).unwrap() {
            MoveOutcome::InTheWay { files } => {
                assert!(!files.is_empty() && !dirts.is_empty() && old != new);
                assert_eq!(state(), before, "refused, so nothing may change");
            }
            MoveOutcome::Moved => {
                moved.set(moved.get() + 1);
                let after = on_disk(&root);
                let mine = before.0.iter().filter(|(_, content)| content.starts_with(b"mine "));
                mine.for_each(|(path, content)| assert_eq!(after.get(path), Some(content), "{}", path.display()));
                let staged = |stages: &str, blob: &str| stages.lines().any(|line| line.contains(blob));
                for line in before.1.lines() {
                    let blob = line.split(' ').nth(1).unwrap();
                    let content = place.run(&root, ["cat-file", "blob", blob]);
                    assert!(!content.starts_with("mine ") || staged(&state().1, blob), "{line}");
                }
                if dirts.is_empty() {
                    place.run(&root, ["update-ref", "refs/heads/main", new.as_str()]);
                    assert_eq!(place.run(&root, ["status", "--porcelain"]), "");
                }
            }
        }
        Ok(())
    });
    outcome.unwrap();
    assert!(moved.get() * 20 > cases, "a test that moves nothing: {} of {cases}", moved.get());
}
