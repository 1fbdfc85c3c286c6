//! How processes start and end, seen through programs that stand in for git.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::sealed::{Place, add, script};
use crate::support::seal::can_replay;
use worktree::git::{Expected, Git, GitError, MoveOutcome, RebaseOutcome, RefUpdate, Replay};

/// The layer with `body` as its git.
fn instead_of_git(place: &Place, body: &str) -> Git {
    script(&place.path().join("bin/git"), body);
    place.git_with(&[("PATH", &format!("{}:/usr/bin:/bin", place.path().join("bin").display()))])
}

/// Waits until the process whose id is in the file is gone.
async fn gone(file: PathBuf) {
    let pid = std::fs::read_to_string(file).unwrap();
    let proc = PathBuf::from(format!("/proc/{}", pid.trim()));
    let dead = |proc: &Path| {
        std::fs::read_to_string(proc.join("stat"))
            .map_or(true, |stat| stat.rsplit(')').next().unwrap().starts_with(" Z"))
    };
    let until = Instant::now() + Duration::from_secs(10);
    while !dead(&proc) {
        assert!(Instant::now() < until, "{pid} lives on");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn c58_the_limit_ends_grandchildren_that_hold_the_pipe_invariant_1() {
    let place = Place::new();
    let file = place.path().join("pid");
    let body =
        format!("trap '' TERM; sh -c 'trap \"\" TERM; echo $$ >{}; while :; do sleep 1; done' & wait", file.display());
    let git = instead_of_git(&place, &body).with_limit(Duration::from_millis(400));
    let begun = Instant::now();
    let error = git.version().await.unwrap_err();
    assert!(matches!(error, GitError::Timeout { .. }), "{error}");
    assert!(error.to_string().contains("`git version` ran past its limit of 400 ms"), "{error}");
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    gone(file).await;
}

#[tokio::test]
async fn a_process_that_obeys_is_given_time_to_clean_up() {
    let place = Place::new();
    let file = place.path().join("cleaned");
    let git = instead_of_git(&place, &format!("trap 'echo x >{}; exit 1' TERM; sleep 60 & wait", file.display()));
    let begun = Instant::now();
    assert!(git.with_limit(Duration::from_millis(200)).version().await.is_err());
    assert!(file.exists() && begun.elapsed() < Duration::from_secs(2));
}

#[tokio::test]
async fn a_dropped_call_ends_its_process() {
    let place = Place::new();
    let file = place.path().join("pid");
    let git = instead_of_git(&place, &format!("echo $$ >{}; sleep 60", file.display()));
    assert!(tokio::time::timeout(Duration::from_millis(400), git.version()).await.is_err());
    gone(file).await;
}

#[tokio::test]
async fn a_grandchild_that_stays_does_not_hold_the_answer_invariant_3() {
    let place = Place::new();
    let file = place.path().join("pid");
    let git = instead_of_git(
        &place,
        &format!("sh -c 'echo $$ >{}; exec sleep 20' & echo git version 2.40.0", file.display()),
    );
    let begun = Instant::now();
    assert_eq!(git.version().await.unwrap().minor, 40);
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn output_is_drained_and_standard_input_is_empty_invariant_2() {
    let place = Place::new();
    let git = instead_of_git(&place, "cat; head -c 3000000 /dev/zero >&2; echo git version 2.41.0");
    assert_eq!(git.version().await.unwrap().minor, 41);
    let git = instead_of_git(&place, "head -c 3000000 /dev/zero | tr '\\0' x >&2; echo the end >&2; exit 7");
    let error = git.version().await.unwrap_err().to_string();
    assert!(error.contains("exit 7") && error.ends_with("the end") && error.len() < 2000, "{error}");
}

#[tokio::test]
async fn what_the_worker_was_started_with_does_not_reach_git_c09_c10() {
    let place = Place::new();
    script(&place.path().join("bin/git"), "env; echo PWD=$PWD; echo git version 2.42.0");
    let path = format!("{}:.:/usr/bin:/bin", place.path().join("bin").display());
    let listed = std::process::Command::new("git").args(["rev-parse", "--local-env-vars"]).output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    let mut env: Vec<(&str, &str)> = listed.lines().map(|name| (name, "/preset")).collect();
    env.extend([("PATH", path.as_str()), ("GIT_EDITOR", "/preset"), ("EDITOR", "/preset"), ("SSH_ASKPASS", "/preset")]);
    env.extend([("GIT_SSH", "/preset"), ("GIT_PAGER", "/preset"), ("LC_ALL", "de_DE.UTF-8"), ("LANGUAGE", "de")]);
    let git = place.git_with(&env);
    let error = git.version().await.unwrap_err().to_string();
    // The output is no version, so the error shows its beginning; the whole of it is checked through a file.
    assert!(error.contains("not understood"), "{error}");
    script(
        &place.path().join("bin/git"),
        &format!("env >{}; echo git version 2.42.0", place.path().join("env").display()),
    );
    git.version().await.unwrap();
    let seen = std::fs::read_to_string(place.path().join("env")).unwrap();
    assert!(!seen.contains("/preset") && !seen.contains("LANGUAGE") && !seen.contains("LC_ALL"), "{seen}");
    let told = ["LC_MESSAGES=C", "GIT_TERMINAL_PROMPT=0", "GCM_INTERACTIVE=never", "GIT_OPTIONAL_LOCKS=0"];
    for line in ["LC_CTYPE=de_DE.UTF-8"].into_iter().chain(told) {
        assert!(seen.lines().any(|seen| seen == line), "{line}");
    }
    assert!(!seen.contains(":.:"));
}

/// What each call costs: a process takes two to four milliseconds, and calls are made for hundreds of worktrees.
#[tokio::test]
async fn processes_are_counted_and_do_not_creep_up() {
    let place = Place::new();
    let root = place.repo("shop");
    let base = place.head(&root);
    let git = place.git_with(&[]);
    assert_eq!(git.processes_started(), 0);
    let repo = git.discover(&root).await.unwrap().repo;
    let mut counts = vec![("discover", git.processes_started())];
    git.discover(&root).await.unwrap();
    counts.push(("discover again", git.processes_started() - 1));
    let mut count = |what: &'static str| {
        let before: u64 = counts.iter().map(|(_, count)| count).sum();
        counts.push((what, git.processes_started() - before));
    };
    let path = place.path().join("w");
    repo.add_worktree(&add(&path, "feat", &base)).await.unwrap();
    count("add_worktree");
    let tree = git.tree(&path).unwrap();
    tree.checkout_fresh().await.unwrap();
    count("tree, checkout_fresh");
    tree.refresh_index().await.unwrap();
    count("refresh_index");
    assert!(tree.status().await.unwrap().is_clean());
    count("status");
    assert!(tree.hidden_changes().await.unwrap().is_empty());
    count("hidden_changes");
    assert_eq!((tree.operation(), tree.head_branch().unwrap().as_deref()), (None, Some("feat")));
    count("operation, head_branch");
    let tip = place.commit(&path, "a", "1\n");
    let onto = place.commit(&root, "b", "1\n");
    assert_eq!(repo.resolve_commit("main").await.unwrap().as_ref(), Some(&onto));
    count("resolve_commit of a branch");
    let proven = can_replay();
    let head = match repo.replay(&tip, &onto).await.unwrap() {
        Replay::Done { head } if proven => {
            count("replay of one commit");
            assert_eq!(tree.move_to(&tip, &head).await.unwrap(), MoveOutcome::Moved);
            count("move_to");
            head
        }
        Replay::NotProvable { .. } if !proven => {
            count("replay that proves nothing");
            let RebaseOutcome::Done { head } = tree.rebase(&tip, &onto).await.unwrap() else { panic!() };
            count("rebase");
            head
        }
        other => panic!("{other:?}"),
    };
    let moved = repo.update_ref("refs/heads/main", &head, Expected::Is(onto.clone()), "x").await.unwrap();
    assert_eq!(moved, RefUpdate::Done);
    count("update_ref");
    assert_eq!(repo.integration(&tip, &head).await.unwrap().unwrap().as_str(), "merge_adds_nothing");
    count("integration by merging");
    let rebasing = if proven {
        [("replay of one commit", 5), ("move_to", 2)]
    } else {
        [("replay that proves nothing", 4), ("rebase", 6)]
    };
    let mut wanted = vec![
        ("discover", 1),
        ("discover again", 0),
        ("add_worktree", 1),
        ("tree, checkout_fresh", 1),
        ("refresh_index", 1),
        ("status", 1),
        ("hidden_changes", 0),
        ("operation, head_branch", 0),
        ("resolve_commit of a branch", 0),
    ];
    wanted.extend(rebasing);
    wanted.extend([("update_ref", 1), ("integration by merging", 3)]);
    assert_eq!(counts, wanted);
    assert_eq!(place.git.processes_started(), 0, "another value counts for itself");
}
