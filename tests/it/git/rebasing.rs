//! Real rebases in a worktree.

use std::path::PathBuf;
use std::time::Duration;

use super::sealed::{Place, put, script};
use worktree::git::{Operation, Policy, RebaseOutcome, Signing};

#[tokio::test]
async fn a_branch_is_rebased_and_a_conflict_is_left_open() {
    let place = Place::new();
    let root = place.repo("shop");
    let tree = place.worktree(&root, "feat").await;
    place.commit(tree.root(), "a", "1\n");
    let onto = place.commit(&root, "b", "2\n");
    let RebaseOutcome::Done { head } = tree.rebase(&onto).await.unwrap() else { panic!() };
    assert_eq!(tree.head().await.unwrap(), Some(head.clone()));
    assert!(tree.repo().is_ancestor(&onto, &head).await.unwrap());
    assert_eq!(tree.rebase(&onto).await.unwrap(), RebaseOutcome::Done { head: head.clone() });

    let onto = place.commit(&root, "a", "other\n");
    let conflict = tree.rebase(&onto).await.unwrap();
    assert_eq!(conflict, RebaseOutcome::Conflict { files: vec![PathBuf::from("a")] });
    assert_eq!(tree.operation(), Some(Operation::Rebase));
    assert_eq!(tree.status().await.unwrap().conflicted, 1);
    assert_eq!(tree.rebase(&onto).await.unwrap_err().code().as_str(), "W402");
    tree.abort_rebase().await.unwrap();
    tree.abort_rebase().await.unwrap();
    assert_eq!(tree.head().await.unwrap(), Some(head));
    assert!(tree.status().await.unwrap().is_clean());
}

/// HEAD is on no branch while a rebase is open: what is committed then would be gone with the abort.
#[tokio::test]
async fn a_commit_that_somebody_makes_during_a_rebase_is_kept_invariant_4() {
    let place = Place::new();
    let root = place.repo("shop");
    let tree = place.worktree(&root, "feat").await;
    place.commit(tree.root(), "own", "1\n");
    let before = place.commit(tree.root(), "a", "1\n");
    let onto = place.commit(&root, "a", "other\n");
    let backups = || place.run(&root, ["for-each-ref", "--format=%(objectname)", "refs/iii"]);
    let open = async || assert!(matches!(tree.rebase(&onto).await.unwrap(), RebaseOutcome::Conflict { .. }));
    open().await;
    tree.abort_rebase().await.unwrap();
    assert_eq!(backups(), "", "the copy of a commit is nobody's work");
    let mut kept = Vec::new();
    for number in 0..2 {
        open().await;
        let late = format!("late-{number}");
        place.run(tree.root(), ["checkout", "--quiet", "--ours", "a"]);
        place.run(tree.root(), ["add", "a"]);
        kept.push(place.commit(tree.root(), &late, "x\n").to_string());
        tree.abort_rebase().await.unwrap();
        assert_eq!(tree.head().await.unwrap().as_ref(), Some(&before));
        kept.sort();
        let mut found: Vec<String> = backups().lines().map(str::to_owned).collect();
        found.sort();
        assert_eq!(found, kept);
    }
    // On the branch, as one that was begun before HEAD left it.
    open().await;
    let late = place.run(&root, ["commit-tree", "-p", before.as_str(), "-m", "late", &format!("{before}^{{tree}}")]);
    place.run(&root, ["update-ref", "refs/heads/feat", late.trim()]);
    tree.abort_rebase().await.unwrap();
    assert_eq!(place.sha(&root, "refs/heads/feat"), before, "git puts it back");
    assert!(backups().contains(late.trim()));
    let name = tree.root().file_name().unwrap().to_str().unwrap();
    let refs = place.run(&root, ["for-each-ref", "--format=%(refname)", "refs/iii"]);
    assert!(refs.starts_with(&format!("refs/iii/wt-backup/{name}.head\n")), "{refs}");
}

#[tokio::test]
async fn a_rebase_that_stops_for_another_reason_is_undone_invariant_2() {
    let place = Place::new();
    let root = place.repo("shop");
    let tree = place.worktree(&root, "feat").await;
    let head = place.commit(tree.root(), "a", "1\n");
    let onto = place.commit(&root, "b", "2\n");
    put(tree.root(), "b", "mine\n");
    let RebaseOutcome::Failed { message } = tree.rebase(&onto).await.unwrap() else { panic!() };
    assert!(message.contains('b'), "{message}");
    assert_eq!(tree.operation(), None);
    assert_eq!(tree.head().await.unwrap(), Some(head));
    assert_eq!(std::fs::read_to_string(tree.root().join("b")).unwrap(), "mine\n");
}

#[tokio::test]
async fn a_rebase_that_was_ended_is_no_conflict_and_can_be_undone_invariant_1() {
    let place = Place::new();
    let root = place.repo("shop");
    place.user_config("[filter \"slow\"]\nsmudge = \"sleep 30; cat\"");
    place.commit(&root, ".gitattributes", "*.slow filter=slow\n");
    let tree = place.worktree(&root, "feat").await;
    let head = place.commit(tree.root(), "a", "1\n");
    place.commit(&root, "early", "1\n");
    let onto = place.commit(&root, "x.slow", "1\n");
    let short = tree.with_git(&place.git.with_limit(Duration::from_millis(500)));
    let error = short.rebase(&onto).await.unwrap_err();
    assert_eq!(error.code().as_str(), "W101", "{error}");
    tree.abort_rebase().await.unwrap();
    assert_eq!(tree.operation(), None);
    assert_eq!(tree.head().await.unwrap(), Some(head));
    assert_eq!(tree.head_branch().unwrap().as_deref(), Some("feat"));
    assert!(!tree.git_dir().join("index.lock").exists());
    let status = tree.status().await.unwrap();
    assert_eq!(status.staged + status.unstaged + status.conflicted, 0, "{status:?}");
}

#[tokio::test]
async fn c55_signing_is_off_kept_or_refused_and_never_hangs() {
    let place = Place::new();
    let root = place.repo("shop");
    let gpg = place.path().join("gpg");
    script(&gpg, "echo asked >>\"$HOME/asked\"; exit 1");
    let tree = place.worktree(&root, "feat").await;
    place.commit(tree.root(), "a", "1\n");
    let onto = place.commit(&root, "b", "1\n");
    place.user_config(&format!("[gpg]\nprogram = {}", gpg.display()));
    place.run(&root, ["config", "commit.gpgSign", "true"]);
    let head = tree.head().await.unwrap();
    let under = |signing| tree.with_git(&place.git.with_policy(Policy { signing, ..Policy::default() }));
    let error = under(Signing::Fail).rebase(&onto).await.unwrap_err();
    assert!(error.to_string().contains("commit.gpgSign"), "{error}");
    assert!(!place.path().join("home/asked").exists());
    let RebaseOutcome::Failed { .. } = under(Signing::Keep).rebase(&onto).await.unwrap() else { panic!() };
    assert!(place.path().join("home/asked").exists());
    assert_eq!((tree.head().await.unwrap(), tree.operation()), (head, None));
    let RebaseOutcome::Done { .. } = under(Signing::Off).rebase(&onto).await.unwrap() else { panic!() };
}

#[tokio::test]
async fn a_rebase_and_its_abort_overwrite_no_ignored_file_invariant_3() {
    let place = Place::new();
    let root = place.repo("shop");
    place.commit(&root, ".gitignore", "*.env\n");
    let tree = place.worktree(&root, "feat").await;
    place.commit(tree.root(), "a", "1\n");
    // One commit adds a file that the next one removes.
    put(tree.root(), "passing.env", "committed\n");
    place.run(tree.root(), ["add", "--force", "passing.env"]);
    place.run(tree.root(), ["commit", "--quiet", "--message", "add"]);
    place.run(tree.root(), ["rm", "--quiet", "passing.env"]);
    place.run(tree.root(), ["commit", "--quiet", "--message", "remove"]);
    let head = place.head(tree.root());
    put(&root, "base.env", "theirs\n");
    place.run(&root, ["add", "--force", "base.env"]);
    let onto = place.commit(&root, "b", "1\n");
    for file in ["passing.env", "base.env"] {
        put(tree.root(), file, "mine\n");
        let RebaseOutcome::Failed { message } = tree.rebase(&onto).await.unwrap() else { panic!() };
        assert!(message.starts_with("1 file that git does not know") && message.contains(file), "{message}");
        assert_eq!((tree.operation(), tree.head().await.unwrap()), (None, Some(head.clone())));
        assert_eq!(std::fs::read_to_string(tree.root().join(file)).unwrap(), "mine\n");
        std::fs::remove_file(tree.root().join(file)).unwrap();
    }
    // While a conflict is open, a file of a later commit is not there, and its place may be taken.
    put(tree.root(), "later.env", "committed\n");
    place.run(tree.root(), ["add", "--force", "later.env"]);
    place.run(tree.root(), ["commit", "--quiet", "--message", "later"]);
    let onto = place.commit(&root, "a", "other\n");
    let RebaseOutcome::Conflict { .. } = tree.rebase(&onto).await.unwrap() else { panic!() };
    put(tree.root(), "later.env", "mine\n");
    let error = tree.abort_rebase().await.unwrap_err();
    assert!(error.to_string().contains("later.env"), "{error}");
    std::fs::remove_file(tree.root().join("later.env")).unwrap();
    tree.abort_rebase().await.unwrap();
    assert_eq!(std::fs::read_to_string(tree.root().join("later.env")).unwrap(), "committed\n");
}
