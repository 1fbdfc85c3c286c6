//! Rebases in memory, held against real ones.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use proptest::prelude::*;

use super::histories::{Change, Files, apply, change, commit, import};
use super::sealed::{Place, put, script};
use crate::support::seal::can_replay;
use worktree::git::{Policy, RebaseOutcome, Replay, Repo, Sha, Signing};

/// A commit: what it changes, and what it says.
#[derive(Debug, Clone)]
struct Step {
    changes: Vec<Change>,
    message: String,
    author: usize,
}

#[derive(Debug, Clone)]
struct History {
    main: Vec<Step>,
    feat: Vec<Step>,
    /// The branch begins with a copy of this many steps of main, as after a cherry-pick.
    shared: usize,
    attributes: Option<&'static str>,
}

const AUTHORS: &[&str] = &[
    "Ann <ann@example.org> 1767319445 +0100",
    "Bö B <b@b> 1767319446 -0330",
    "Dr. C <c@c> 1767319447 +0000",
    "Trailing. <d@d> 1767319448 +0000",
];

fn step() -> impl Strategy<Value = Step> {
    let message = prop_oneof![
        6 => "[a-z]{1,8}( [a-z]{1,8}){0,2}\n",
        2 => "[a-z]{1,8}\n\n# no comment\n\n[a-zé]{1,20}\n\n\n",
        1 => "[a-z]{1,8}",
        1 => "\n\n [a-z]{1,8}\n",
        1 => "fixup! [a-z]{1,3}\n",
    ];
    (proptest::collection::vec(change(), 1..3), message, prop_oneof![9 => 0..1usize, 2 => 1..AUTHORS.len()])
        .prop_map(|(changes, message, author)| Step { changes, message, author })
}

fn history() -> impl Strategy<Value = History> {
    let steps = |most| proptest::collection::vec(step(), 1..most);
    let attributes = prop_oneof![
        4 => Just(None),
        1 => Just(Some("* merge=union\n")),
        1 => Just(Some("* -merge\n")),
        1 => Just(Some("a binary\nlib/** text eol=crlf\n")),
    ];
    (steps(5), steps(5), prop_oneof![4 => Just(0usize), 1 => 1..2usize], attributes)
        .prop_map(|(main, feat, shared, attributes)| History { main, feat, shared, attributes })
}

/// The history as a stream for `fast-import`: branches `base`, `main` and `feat`.
fn stream(history: &History) -> String {
    let mut files = Files::new();
    for name in ["a", "b", "lib/a", "lib/b", "lib/deep/c"] {
        files.insert(name.to_owned(), ((0..25).map(|n| format!("{name} {n}")).collect(), false));
    }
    if let Some(text) = history.attributes {
        files.insert(".gitattributes".to_owned(), (text.lines().map(str::to_owned).collect(), false));
    }
    let mut out = String::new();
    commit(&mut out, "base", None, &files, "base\n", AUTHORS[0]);
    let base = files.clone();
    let mut write = |branch: &str, steps: &[Step]| {
        let mut files = base.clone();
        writeln!(out, "reset refs/heads/{branch}\nfrom refs/heads/base\n").unwrap();
        for step in steps {
            step.changes.iter().for_each(|change| apply(&mut files, change));
            commit(&mut out, branch, None, &files, &step.message, AUTHORS[step.author]);
        }
    };
    write("main", &history.main);
    let shared = history.main.iter().take(history.shared);
    write("feat", &shared.chain(&history.feat).cloned().collect::<Vec<_>>());
    out
}

/// The commits between, oldest first, without their own names, parents and committers.
fn contents(place: &Place, root: &Path, from: &str, to: &str) -> Vec<Vec<u8>> {
    let list = place.run(root, ["rev-list", "--reverse", "--first-parent", &format!("{from}..{to}")]);
    let texts = list.lines().map(|name| {
        let (found, object) = place.raw(root, ["cat-file", "commit", name]);
        assert!(found);
        let keep = |line: &&[u8]| !line.starts_with(b"parent ") && !line.starts_with(b"committer ");
        object.split_inclusive(|byte| *byte == b'\n').filter(keep).flatten().copied().collect()
    });
    texts.collect()
}

/// What a git says of every replay that cannot take attributes from a commit, as those before 2.41.
const UNABLE: &str = "this git cannot take attributes from a commit";

/// A replay. `None` with a git that proves nothing, and says so.
async fn replayed(repo: &Repo, tip: &Sha, onto: &Sha) -> Option<Replay> {
    let replay = repo.replay(tip, onto).await.unwrap();
    if can_replay() {
        return Some(replay);
    }
    assert_eq!(replay, Replay::NotProvable { why: UNABLE.to_owned() });
    None
}

/// The replay is done, wherever it can be.
async fn is_done(repo: &Repo, tip: &Sha, onto: &Sha) {
    match replayed(repo, tip, onto).await {
        Some(Replay::Done { .. }) | None => {}
        Some(other) => panic!("{other:?}"),
    }
}

/// The replay is not provable, for a reason with these words.
async fn is_doubtful(repo: &Repo, tip: &Sha, onto: &Sha, words: &str) {
    match replayed(repo, tip, onto).await {
        Some(Replay::NotProvable { why }) => assert!(why.to_lowercase().contains(&words.to_lowercase()), "{why}"),
        None => {}
        Some(other) => panic!("{words}: {other:?}"),
    }
}

/// The files in conflict.
fn in_conflict(place: &Place, root: &Path) -> Vec<PathBuf> {
    let listed = place.run(root, ["diff", "--name-only", "--diff-filter=U"]);
    let mut open: Vec<_> = listed.lines().map(unquoted).collect();
    open.dedup();
    open
}

/// Rebases as a land does where nothing is proven, and holds that against a plain rebase.
async fn compare_real(place: &Place, root: &Path, tip: &Sha, onto: &Sha) {
    let tree = place.git.tree(root).unwrap();
    let outcome = tree.rebase(tip, onto).await.unwrap();
    let made = contents(place, root, "main", "HEAD");
    tree.abort_rebase().await.unwrap();
    place.run(root, ["reset", "--quiet", "--hard", tip.as_str()]);
    let (rebased, words) = place.try_run(root, ["rebase", "--quiet", "main"]);
    match outcome {
        RebaseOutcome::Done { .. } => {
            assert!(rebased, "the rebase stopped: {words}");
            assert_eq!(made, contents(place, root, "main", "HEAD"));
        }
        RebaseOutcome::Conflict { files } => {
            assert!(!rebased, "the rebase went through, that of the layer stopped at {files:?}");
            assert_eq!(files, in_conflict(place, root));
        }
        RebaseOutcome::Failed { message } => assert!(!rebased, "{message}"),
        RebaseOutcome::Moved { kept } => panic!("nobody else is at work, and yet: {kept:?}"),
    }
}

/// Replays and rebases; whether the replay was provable.
async fn compare(place: &Place, root: &Path) -> Replay {
    let repo = place.open(root).await;
    let (tip, onto) = (place.sha(root, "feat"), place.sha(root, "main"));
    let refs = repo.refs_under("refs").await.unwrap();
    let replay = repo.replay(&tip, &onto).await.unwrap();
    assert_eq!(repo.refs_under("refs").await.unwrap(), refs, "no ref moves (invariant 3)");
    assert_eq!(place.run(root, ["status", "--porcelain"]), "");
    if let Replay::NotProvable { .. } = replay {
        compare_real(place, root, &tip, &onto).await;
        return replay;
    }
    let (rebased, words) = place.try_run(root, ["rebase", "--quiet", "main"]);
    match &replay {
        Replay::UpToDate => assert_eq!(place.head(root), tip),
        Replay::Done { head } => {
            assert!(rebased, "the rebase stopped: {words}");
            let (ours, theirs) = (contents(place, root, "main", head.as_str()), contents(place, root, "main", "HEAD"));
            assert_eq!(ours, theirs);
            assert!(repo.is_ancestor(&onto, head).await.unwrap());
            place.run(root, ["fsck", "--no-dangling", "--strict", head.as_str()]);
        }
        Replay::Conflict { paths } => {
            assert!(!rebased, "the rebase went through, the replay stopped at {paths:?}");
            assert_eq!(*paths, in_conflict(place, root));
        }
        Replay::NotProvable { why } => panic!("{why}"),
    }
    replay
}

fn unquoted(line: &str) -> PathBuf {
    PathBuf::from(line.trim_matches('"'))
}

#[test]
fn a_replay_makes_what_a_rebase_makes_invariant_1_and_2() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let mut counts = BTreeMap::<&str, u32>::new();
    let cases = std::env::var("REPLAY_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(32);
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        cases,
        failure_persistence: None,
        max_shrink_iters: 200,
        ..ProptestConfig::default()
    });
    let counted = std::cell::RefCell::new(&mut counts);
    let outcome = runner.run(&history(), |history| {
        let place = Place::new();
        let root = place.path().join("repo");
        import(&place, &root, &stream(&history));
        place.run(&root, ["checkout", "--quiet", "--force", "feat"]);
        let replay = runtime.block_on(compare(&place, &root));
        let kind = match replay {
            Replay::UpToDate => "up to date",
            Replay::Done { .. } => "done",
            Replay::Conflict { .. } => "conflict",
            Replay::NotProvable { .. } => "not provable",
        };
        *counted.borrow_mut().entry(kind).or_default() += 1;
        Ok(())
    });
    outcome.unwrap();
    if can_replay() {
        let compared = counts.get("done").unwrap_or(&0) + counts.get("conflict").unwrap_or(&0);
        assert!(compared * 10 > cases, "a test that compares nothing: {counts:?}");
    } else {
        assert_eq!(counts, BTreeMap::from([("not provable", cases)]));
    }
}

/// A repository where `feat` has one commit beside one of `main`.
async fn apart(place: &Place) -> (PathBuf, Repo, Sha, Sha) {
    let root = place.repo("shop");
    place.run(&root, ["checkout", "--quiet", "-b", "feat"]);
    let tip = place.commit(&root, "a", "1\n");
    place.run(&root, ["checkout", "--quiet", "main"]);
    let onto = place.commit(&root, "b", "1\n");
    let repo = place.open(&root).await;
    (root, repo, tip, onto)
}

#[tokio::test]
async fn what_a_setting_could_change_is_not_provable_invariant_4() {
    let place = Place::new();
    let (root, repo, tip, onto) = apart(&place).await;
    is_done(&repo, &tip, &onto).await;
    for (key, value) in [
        ("merge.renames", "false"),
        ("diff.renames", "copies"),
        ("merge.directoryRenames", "true"),
        ("diff.algorithm", "patience"),
        ("merge.renormalize", "true"),
        ("merge.mine.driver", "false"),
        ("commit.cleanup", "strip"),
        ("i18n.commitEncoding", "latin1"),
        ("notes.rewriteRef", "refs/notes/commits"),
        ("core.hooksPath", ".husky/_"),
        ("merge.default", "union"),
        ("includeIf.onbranch:main.path", "x"),
        ("extensions.worktreeConfig", "true"),
    ] {
        place.run(&root, ["config", key, value]);
        is_doubtful(&repo, &tip, &onto, key).await;
        place.run(&root, ["config", "--unset", key]);
    }
    place.run(&root, ["config", "commit.gpgSign", "true"]);
    is_done(&repo, &tip, &onto).await;
    for signing in [Signing::Keep, Signing::Fail] {
        let signed = repo.with_git(&place.git.with_policy(Policy { signing, ..Policy::default() }));
        is_doubtful(&signed, &tip, &onto, "signed").await;
    }
    for hook in ["pre-rebase", "prepare-commit-msg", "post-rewrite"] {
        let path = root.join(".git/hooks").join(hook);
        script(&path, "exit 0");
        is_doubtful(&repo, &tip, &onto, hook).await;
        std::fs::remove_file(path).unwrap();
    }
    is_done(&repo, &tip, &onto).await;
}

#[tokio::test]
async fn what_a_rebase_would_leave_out_or_change_is_not_provable() {
    let place = Place::new();
    let (root, repo, tip, onto) = apart(&place).await;
    let on = |name: &str| place.run(&root, ["checkout", "--quiet", "-B", name, tip.as_str()]);
    on("empty");
    place.run(&root, ["commit", "--quiet", "--allow-empty", "--message", "nothing"]);
    is_doubtful(&repo, &place.head(&root), &onto, "changes nothing").await;
    on("merge");
    place.run(&root, ["merge", "--quiet", "--no-ff", "--message", "m", onto.as_str()]);
    let merged = place.commit(&root, "c", "1\n");
    let onto_more = {
        place.run(&root, ["checkout", "--quiet", "main"]);
        place.commit(&root, "d", "1\n")
    };
    is_doubtful(&repo, &merged, &onto_more, "merge").await;
    // A change that the new base has already, as its own commit and as part of another.
    place.run(&root, ["cherry-pick", tip.as_str()]);
    is_doubtful(&repo, &tip, &place.head(&root), "already").await;
    place.run(&root, ["reset", "--quiet", "--hard", onto.as_str()]);
    put(&root, "more", "x\n");
    let both = place.commit(&root, "a", "1\n");
    is_doubtful(&repo, &tip, &both, "become empty").await;
    // A header of another encoding.
    on("latin");
    put(&root, "l", "1\n");
    place.run(&root, ["add", "l"]);
    place.run(&root, ["-c", "i18n.commitEncoding=ISO-8859-1", "commit", "--quiet", "--message", "x"]);
    is_doubtful(&repo, &place.head(&root), &onto, "encoding").await;
    // A submodule.
    on("sub");
    place.run(&root, ["update-index", "--add", "--cacheinfo", &format!("160000,{onto},sub")]);
    place.run(&root, ["commit", "--quiet", "--message", "sub"]);
    is_doubtful(&repo, &place.head(&root), &onto, "submodule").await;
    place.run(&root, ["checkout", "--quiet", "--force", "--orphan", "alone"]);
    let alone = place.commit(&root, "z", "1\n");
    is_doubtful(&repo, &alone, &onto, "nothing in common").await;
}

#[tokio::test]
async fn nothing_to_do_and_moving_forward_are_told() {
    let place = Place::new();
    let root = place.repo("shop");
    let base = place.head(&root);
    let tip = place.commit(&root, "a", "1\n");
    let repo = place.open(&root).await;
    assert_eq!(repo.replay(&tip, &tip).await.unwrap(), Replay::UpToDate);
    if let Some(replay) = replayed(&repo, &tip, &base).await {
        assert_eq!(replay, Replay::UpToDate);
    }
    if let Some(replay) = replayed(&repo, &base, &tip).await {
        assert_eq!(replay, Replay::Done { head: tip.clone() });
    }
    // The same from a real rebase.
    let tree = place.git.tree(&root).unwrap();
    assert_eq!(tree.rebase(&tip, &base).await.unwrap(), RebaseOutcome::Done { head: tip.clone() });
    place.run(&root, ["checkout", "--quiet", "-b", "behind", base.as_str()]);
    assert_eq!(tree.rebase(&base, &tip).await.unwrap(), RebaseOutcome::Done { head: tip });
}

#[tokio::test]
async fn without_a_committer_nothing_is_made() {
    let place = Place::new();
    let (_, _, tip, onto) = apart(&place).await;
    std::fs::write(place.path().join("home/.gitconfig"), "[user]\nuseConfigOnly = true\n").unwrap();
    let repo = place.open(&place.path().join("shop")).await;
    if can_replay() {
        let error = repo.replay(&tip, &onto).await.unwrap_err();
        assert!(error.to_string().contains("user.name"), "{error}");
    }
    let tree = place.git.tree(&place.path().join("shop")).unwrap();
    place.run(tree.root(), ["checkout", "--quiet", "feat"]);
    let error = tree.rebase(&tip, &onto).await.unwrap_err();
    assert!(error.to_string().contains("user.name"), "{error}");
    assert_eq!(tree.operation(), None);
    assert_eq!(tree.head().await.unwrap(), Some(tip));
}

#[tokio::test]
async fn a_shallow_history_that_hides_the_fork_is_its_own_refusal() {
    let place = Place::new();
    let (root, _, _, _) = apart(&place).await;
    let clone = place.path().join("shallow");
    let url = format!("file://{}", root.display());
    place.run(&place.path(), ["clone", "--quiet", "--depth=1", "--no-single-branch", &url, clone.to_str().unwrap()]);
    let repo = place.open(&clone).await;
    let error = repo.replay(&place.sha(&clone, "origin/feat"), &place.sha(&clone, "main")).await.unwrap_err();
    assert_eq!(error.code().as_str(), "W114");
}
