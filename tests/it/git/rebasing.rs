//! Real rebases in a worktree.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::sealed::{Place, put, script};
use worktree::git::{BACKUPS, Operation, Policy, RebaseOutcome, Sha, Signing};

#[tokio::test]
async fn a_branch_is_rebased_and_a_conflict_is_left_open() {
    let place = Place::new();
    let root = place.repo("shop");
    let tree = place.worktree(&root, "feat").await;
    let tip = place.commit(tree.root(), "a", "1\n");
    let onto = place.commit(&root, "b", "2\n");
    let RebaseOutcome::Done { head } = tree.rebase(&tip, &onto).await.unwrap() else { panic!() };
    assert_eq!(tree.head().await.unwrap(), Some(head.clone()));
    assert!(tree.repo().is_ancestor(&onto, &head).await.unwrap());
    assert_eq!(tree.rebase(&head, &onto).await.unwrap(), RebaseOutcome::Done { head: head.clone() });

    let onto = place.commit(&root, "a", "other\n");
    let conflict = tree.rebase(&head, &onto).await.unwrap();
    assert_eq!(conflict, RebaseOutcome::Conflict { files: vec![PathBuf::from("a")] });
    assert_eq!(tree.operation(), Some(Operation::Rebase));
    assert_eq!(tree.status().await.unwrap().conflicted, 1);
    assert_eq!(tree.rebase(&head, &onto).await.unwrap_err().code().as_str(), "W402");
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
    let open = async || assert!(matches!(tree.rebase(&before, &onto).await.unwrap(), RebaseOutcome::Conflict { .. }));
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
    let RebaseOutcome::Failed { message } = tree.rebase(&head, &onto).await.unwrap() else { panic!() };
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
    let error = short.rebase(&head, &onto).await.unwrap_err();
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
    let head = place.commit(tree.root(), "a", "1\n");
    let onto = place.commit(&root, "b", "1\n");
    place.user_config(&format!("[gpg]\nprogram = {}", gpg.display()));
    place.run(&root, ["config", "commit.gpgSign", "true"]);
    let under = |signing| tree.with_git(&place.git.with_policy(Policy { signing, ..Policy::default() }));
    let error = under(Signing::Fail).rebase(&head, &onto).await.unwrap_err();
    assert!(error.to_string().contains("commit.gpgSign"), "{error}");
    assert!(!place.path().join("home/asked").exists());
    let RebaseOutcome::Failed { .. } = under(Signing::Keep).rebase(&head, &onto).await.unwrap() else { panic!() };
    assert!(place.path().join("home/asked").exists());
    assert_eq!((tree.head().await.unwrap(), tree.operation()), (Some(head.clone()), None));
    let RebaseOutcome::Done { .. } = under(Signing::Off).rebase(&head, &onto).await.unwrap() else { panic!() };
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
        let RebaseOutcome::Failed { message } = tree.rebase(&head, &onto).await.unwrap() else { panic!() };
        assert!(message.starts_with("1 file that git does not know") && message.contains(file), "{message}");
        assert_eq!((tree.operation(), tree.head().await.unwrap()), (None, Some(head.clone())));
        assert_eq!(std::fs::read_to_string(tree.root().join(file)).unwrap(), "mine\n");
        std::fs::remove_file(tree.root().join(file)).unwrap();
    }
    // While a conflict is open, a file of a later commit is not there, and its place may be taken.
    put(tree.root(), "later.env", "committed\n");
    place.run(tree.root(), ["add", "--force", "later.env"]);
    place.run(tree.root(), ["commit", "--quiet", "--message", "later"]);
    let head = place.head(tree.root());
    let onto = place.commit(&root, "a", "other\n");
    let RebaseOutcome::Conflict { .. } = tree.rebase(&head, &onto).await.unwrap() else { panic!() };
    put(tree.root(), "later.env", "mine\n");
    let error = tree.abort_rebase().await.unwrap_err();
    assert!(error.to_string().contains("later.env"), "{error}");
    std::fs::remove_file(tree.root().join("later.env")).unwrap();
    tree.abort_rebase().await.unwrap();
    assert_eq!(std::fs::read_to_string(tree.root().join("later.env")).unwrap(), "committed\n");
}

/// A commit on top of `parent` that changes nothing, on no branch.
fn loose(place: &Place, root: &Path, parent: &Sha) -> Sha {
    place
        .run(root, ["commit-tree", "-p", parent.as_str(), "-m", "late", &format!("{parent}^{{tree}}")])
        .parse()
        .unwrap()
}

/// A program that git runs for every file `*.odd` that it checks out does `body` once.
fn while_checking_out(place: &Place, body: &str) {
    let (filter, done) = (place.path().join("filter"), place.path().join("done"));
    script(&filter, &format!("if mkdir {} 2>/dev/null; then {body}; fi\ncat", done.display()));
    place.user_config(&format!("[filter \"odd\"]\nsmudge = {}", filter.display()));
}

/// That the rebase was told apart, and that the commit is named by the ref that the answer names.
fn assert_kept(place: &Place, root: &Path, outcome: RebaseOutcome, late: &Sha) {
    let RebaseOutcome::Moved { kept: Some(name) } = outcome else { panic!("{outcome:?}") };
    assert!(name.starts_with(BACKUPS), "{name}");
    assert_eq!(place.sha(root, &name), *late);
}

#[tokio::test]
async fn a_commit_that_comes_before_git_looks_is_told_and_kept_invariants_4_and_5() {
    let place = Place::new();
    let root = place.repo("shop");
    let tree = place.worktree(&root, "feat").await;
    let tip = place.commit(tree.root(), "a", "1\n");
    let late = loose(&place, &root, &tip);
    let onto = place.commit(&root, "b", "1\n");
    assert_eq!(tree.rebase(&late, &onto).await.unwrap(), RebaseOutcome::Moved { kept: None }, "it is not there");
    assert_eq!(tree.head().await.unwrap().as_ref(), Some(&tip));
    // Between the look of the caller and that of git.
    let bin = place.path().join("bin");
    std::fs::create_dir(&bin).unwrap();
    let path = std::env::var("PATH").unwrap();
    let move_it = format!("PATH=\"{path}\" git -C {:?} update-ref refs/heads/feat {late}", root.display());
    let word = "case \" $* \" in *' --no-fork-point '*)";
    script(&bin.join("git"), &format!("{word} {move_it};; esac\nPATH=\"{path}\"; exec git \"$@\""));
    let git = place.git_with(&[("PATH", &format!("{}:{path}", bin.display()))]);
    let outcome = tree.with_git(&git).rebase(&tip, &onto).await.unwrap();
    assert_kept(&place, &root, outcome, &late);
    let there = place.head(tree.root());
    assert_eq!(place.run(&root, ["rev-list", "--count", &format!("{onto}..{there}")]), "2", "a copy is on the branch");
    assert_eq!((tree.operation(), tree.status().await.unwrap().is_clean()), (None, true));
}

#[tokio::test]
async fn a_commit_that_comes_while_head_leaves_the_branch_stays_on_it() {
    let place = Place::new();
    let root = place.repo("shop");
    place.commit(&root, ".gitattributes", "*.odd filter=odd\n");
    let tree = place.worktree(&root, "feat").await;
    let tip = place.head(tree.root());
    let late = loose(&place, &root, &tip);
    let onto = place.commit(&root, "x.odd", "1\n");
    while_checking_out(&place, &format!("git -C {:?} update-ref refs/heads/feat {late}", root.display()));
    let RebaseOutcome::Failed { message } = tree.rebase(&tip, &onto).await.unwrap() else { panic!() };
    assert!(message.contains("HEAD"), "{message}");
    assert_eq!((place.head(tree.root()), tree.operation()), (late, None));
    assert_eq!(tree.head_branch().unwrap().as_deref(), Some("feat"));
}

#[tokio::test]
async fn a_commit_on_the_head_of_a_rebase_is_told_invariant_5() {
    let place = Place::new();
    let root = place.repo("shop");
    place.commit(&root, ".gitattributes", "*.odd filter=odd\n");
    let tree = place.worktree(&root, "feat").await;
    place.commit(tree.root(), "a", "1\n");
    let tip = place.commit(tree.root(), "x.odd", "1\n");
    let onto = place.commit(&root, "b", "1\n");
    let git = format!("git -C {:?}", tree.root().display());
    while_checking_out(
        &place,
        &format!("{git} update-ref --no-deref HEAD $({git} commit-tree -p HEAD -m late 'HEAD^{{tree}}')"),
    );
    assert_eq!(tree.rebase(&tip, &onto).await.unwrap(), RebaseOutcome::Moved { kept: None });
    assert_eq!(place.run(&root, ["log", "--format=%s", &format!("{onto}..feat")]), "change x.odd\nlate\nchange a");
}

#[tokio::test]
async fn a_rebase_whose_end_nobody_saw_is_known_by_what_it_took_invariant_5() {
    let place = Place::new();
    let root = place.repo("shop");
    let tree = place.worktree(&root, "feat").await;
    let tip = place.commit(tree.root(), "a", "1\n");
    let onto = place.commit(&root, "b", "1\n");
    let moved = RebaseOutcome::Moved { kept: None };
    assert_eq!(tree.rebased(&tip, &onto).await.unwrap(), moved, "it has not begun");
    place.run(tree.root(), ["rebase", "--quiet", onto.as_str()]);
    let head = place.head(tree.root());
    let done = RebaseOutcome::Done { head: head.clone() };
    assert_eq!(tree.rebased(&tip, &onto).await.unwrap(), done);
    assert_eq!(tree.rebased(&head, &onto).await.unwrap(), done, "nothing was left to do");
    let after = place.commit(tree.root(), "after", "1\n");
    assert_eq!(tree.rebased(&tip, &onto).await.unwrap(), done, "what came later is not of the rebase");
    assert_eq!(tree.rebased(&head, &onto).await.unwrap(), moved, "an older rebase is none of ours");
    place.run(tree.root(), ["reset", "--quiet", "--hard", tip.as_str()]);
    assert_eq!(tree.rebased(&tip, &onto).await.unwrap(), moved, "it was undone");
    assert_eq!(place.run(&root, ["for-each-ref", BACKUPS]), "", "a branch or its log has all of it");

    // Git goes back to the branch in two steps: this came between them.
    place.run(tree.root(), ["reset", "--quiet", "--hard", tip.as_str()]);
    place.run(tree.root(), ["rebase", "--quiet", onto.as_str()]);
    let head = place.head(tree.root());
    let log = tree.git_dir().join("logs/HEAD");
    let lines = std::fs::read_to_string(&log).unwrap();
    let last = format!("{head} {head} ");
    assert!(lines.lines().next_back().unwrap().starts_with(&last), "{lines}");
    let (before, line) = lines.rsplit_once(&last).unwrap();
    std::fs::write(&log, format!("{before}{after} {head} {line}")).unwrap();
    assert_kept(&place, &root, tree.rebased(&tip, &onto).await.unwrap(), &after);

    // Without reflogs.
    std::fs::remove_dir_all(tree.repo().common_dir().join("logs")).unwrap();
    std::fs::remove_dir_all(tree.git_dir().join("logs")).unwrap();
    place.run(&root, ["config", "core.logAllRefUpdates", "false"]);
    place.run(tree.root(), ["reset", "--quiet", "--hard", tip.as_str()]);
    place.run(tree.root(), ["rebase", "--quiet", onto.as_str()]);
    assert_eq!(tree.rebased(&tip, &onto).await.unwrap(), RebaseOutcome::Done { head: place.head(tree.root()) });
    place.run(tree.root(), ["reset", "--quiet", "--hard", tip.as_str()]);
    let late = place.commit(tree.root(), "late", "1\n");
    place.run(tree.root(), ["rebase", "--quiet", onto.as_str()]);
    let outcome = tree.rebased(&tip, &onto).await.unwrap();
    let RebaseOutcome::Moved { kept: Some(name) } = outcome else { panic!("{outcome:?}") };
    assert_eq!(place.sha(&root, &name), late);
    assert_eq!(
        tree.rebase(&place.head(tree.root()), &onto).await.unwrap(),
        RebaseOutcome::Done { head: place.head(tree.root()) }
    );
}
