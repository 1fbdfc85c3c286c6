//! Two workers on one repository, and a worker that sleeps through what happens.

use nix::sys::signal::Signal;
use serde_json::json;

use super::cases::{Case, Stage};
use crate::support::{Stand, until};

/// Two engines with a worker each, as two namespaces or two machines on one file system would be: each knows only its
/// own worktrees, and the repository is all that they share.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_workers_never_run_two_steps_of_one_repository_at_once() {
    let (one, two) = tokio::join!(Stand::apart(), Stand::apart());
    let repository = one.repository("shop");
    let inside = one.seal.path().join("inside");
    let overlaps = one.seal.path().join("overlaps");
    let gate = format!(
        "mkdir {} || echo overlap >> {}; sleep 0.1; rmdir {}",
        inside.display(),
        overlaps.display(),
        inside.display()
    );
    let (mut heard_one, mut heard_two) = (one.hear().await, two.hear().await);
    let mut landing = Vec::new();
    for number in 0..4 {
        for (name, stand) in [("one", &one), ("two", &two)] {
            let created = stand.create(&repository).await;
            created.checkout.commit(&format!("{name}-{number}"), "x\n");
            landing.push((name, created));
        }
    }
    for (name, created) in &landing {
        let stand = if *name == "one" { &one } else { &two };
        stand.land(created, json!({"test_cmd": gate})).await;
    }
    for (name, created) in &landing {
        if *name == "one" {
            heard_one.landed(&created.id).await
        } else {
            heard_two.landed(&created.id).await
        };
    }
    assert!(!overlaps.exists(), "two gates ran at once");
    assert_eq!(repository.git(&["rev-list", "--count", "main"]), "9");
    assert_eq!(repository.git(&["rev-list", "--merges", "main"]), "");
    assert_eq!(repository.git(&["status", "--porcelain"]), "");
}

/// Stops the worker of `stage` before a point, waits until it stands, and takes its locks away as if they were lost.
async fn pause_without_locks(stage: &Stage, play: &super::cases::Play) {
    until("the worker to stand still", || async { stage.stand.stands_still().then_some(()) }).await;
    for lock in ["iii-worktree.lock", "iii-worktree-land.lock"] {
        std::fs::remove_file(play.repository().path().join(".git").join(lock)).unwrap();
    }
}

/// The numbers of the points from the effect `name` up to and including its first `command`.
fn up_to(points: &[String], name: &str, command: &str) -> Vec<usize> {
    let from = points.iter().position(|point| point.ends_with(&format!("effect {name}"))).unwrap();
    let rest = points[from..].iter();
    let to = from + rest.clone().position(|point| point.ends_with(&format!("git git {command}"))).unwrap();
    (from + 1..=to + 1).collect()
}

/// A process that is paused anywhere between its decision and its swap, and wakes up when another worker has landed in
/// its place, cannot move the target: its swap names the old commit. It lands on top.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_wakes_up_late_cannot_move_the_target() {
    let (mut stage, other) = tokio::join!(Stage::new(), Stand::apart());
    stage.undisturbed(Case::Clean).await;
    let (_, points) = stage.undisturbed(Case::Clean).await;
    for at in up_to(&points, "swap", "update-ref") {
        let play = stage.prepare(Case::Clean).await;
        stage.plan(&format!("pause before {at}"));
        stage.ask(&play).await.unwrap();
        pause_without_locks(&stage, &play).await;

        let mut heard = other.hear().await;
        let created = other.create_with(play.repository(), json!({"base_ref": "trunk"})).await;
        created.checkout.commit("cherries", "9\n");
        let request = json!({"worktree_id": created.id, "target_branch": "trunk"});
        other.client.ok("worktree::land", request).await;
        let between = heard.landed(&created.id).await["merged_sha"].as_str().unwrap().to_owned();

        stage.unplan();
        stage.stand.signal(Signal::SIGCONT);
        let outcome = stage.outcome(&play).await;
        assert_eq!(outcome.event, "worktree::landed", "point {at}: {}", points[at - 1]);
        let subjects = play.repository().git(&["log", "--format=%s", "trunk"]);
        assert_eq!(
            subjects.lines().collect::<Vec<_>>(),
            ["Write apples", "Write cherries", "Write pears", "Write README"],
            "point {at}: {}",
            points[at - 1]
        );
        assert_eq!(play.repository().sha("trunk~1"), between);
    }
}

/// The same for the branch: its owner commits while the worker sleeps, and the commit stays.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_wakes_up_late_cannot_move_the_branch() {
    let mut stage = Stage::new().await;
    for case in [Case::Clean, Case::ByGit] {
        // The first of a kind passes other points than those that follow.
        stage.undisturbed(case).await;
        let (_, points) = stage.undisturbed(case).await;
        // Where git or the configuration of the user leaves no proof, every rebase is a real one.
        let proven = points.iter().any(|point| point.ends_with("effect apply rebase"));
        let (name, command) = if proven { ("apply rebase", "update-ref") } else { ("rebase in tree", "rebase") };
        for at in up_to(&points, name, command) {
            let play = stage.prepare(case).await;
            stage.plan(&format!("pause before {at}"));
            stage.ask(&play).await.unwrap();
            until("the worker to stand still", || async { stage.stand.stands_still().then_some(()) }).await;
            let late = play.worktree().checkout.commit("late", "1\n");
            // Work that goes on beside the land may have shifted the count.
            let looked = !stage.unplan().contains(&format!("{at} effect {name}"));
            stage.stand.signal(Signal::SIGCONT);
            let outcome = stage.outcome(&play).await;
            let landed = play.repository().git(&["log", "--format=%s", "trunk"]);
            assert!(outcome.job.contains("W415"), "{case:?}, point {at}: {}", outcome.job);
            assert!(!landed.contains("apples"), "{case:?}, point {at}: {landed}");
            if play.repository().branch("work").as_ref() != Some(&late) {
                // After the look, which is before any process, git takes along what came.
                assert!(!proven && looked, "{case:?}, point {at}: {}", outcome.job);
                let branch = play.repository().git(&["log", "--format=%s", "work"]);
                assert!(branch.starts_with("Write late\n"), "{case:?}, point {at}: {branch}");
                let kept =
                    play.repository().git(&["for-each-ref", "--format=%(objectname)", "refs/iii/wt-backup/*.head"]);
                assert_eq!(kept.trim(), late, "{case:?}, point {at}");
            }
        }
    }
}
