//! Every case of a land, killed, failed and repeated at every point that it passes. The points are those that an
//! undisturbed run of the same case lists, so that a new step is covered by itself.

use futures_util::future::join_all;
use serde_json::json;

use super::cases::{CASES, Case, Stage};
use super::long;
use crate::support::until;

/// How many workers are disturbed side by side in one test.
const SIDE_BY_SIDE: usize = 6;

/// Plays `plans` of a case on several stages side by side.
async fn spread<F, Fut>(plans: Vec<String>, play: F)
where
    F: Fn(Vec<String>) -> Fut,
    Fut: Future<Output = ()>,
{
    let mut shares = vec![Vec::new(); SIDE_BY_SIDE];
    for (at, plan) in plans.into_iter().enumerate() {
        shares[at % SIDE_BY_SIDE].push(plan);
    }
    join_all(shares.into_iter().filter(|share| !share.is_empty()).map(play)).await;
}

/// Whether a point is passed without changing anything. What is not listed here counts as a change.
fn only_looks(point: &str) -> bool {
    let looks = [
        "status",
        "for-each-ref",
        "rev-parse",
        "rev-list",
        "merge-base",
        "cat-file",
        "config",
        "diff-tree",
        "var",
        "ls-files",
        "worktree list",
        "symbolic-ref",
        "diff",
        "check-attr",
        "log",
    ];
    let command = point.split_once(" git git ").map(|(_, command)| command);
    let effect = point.contains(" effect ") && !point.ends_with("enqueue") && !point.ends_with("tell");
    effect || command.is_some_and(|command| looks.contains(&command))
}

/// Kills the worker at every point; it comes back, and everything ends as if nothing had happened.
async fn killed_at_every_point(case: Case) {
    let (_, points) = Stage::new().await.undisturbed(case).await;
    assert!(points.len() > 15, "only {} points: {points:#?}", points.len());
    // Before a point is after the one before it, and where that one only looked, the disk is as it was.
    let first_of_its_state = |at: &usize| *at == 1 || !only_looks(&points[*at - 2]);
    let before = (1..=points.len()).filter(|at| long() || first_of_its_state(at));
    let mut plans: Vec<String> = before.map(|at| format!("kill before {at}")).collect();
    let after = (1..=points.len()).filter(|at| long() || *at == points.len());
    plans.extend(after.map(|at| format!("kill after {at}")));
    spread(plans, |plans| async move {
        let mut stage = Stage::new().await;
        let (expected, points) = stage.undisturbed(case).await;
        let mut spared = 0;
        for plan in plans {
            let play = stage.prepare(case).await;
            stage.plan(&plan);
            spared += u32::from(!stage.ask_and_be_killed(&play).await);
            let outcome = stage.outcome(&play).await;
            assert_eq!(outcome, expected, "{case:?}, {plan}\n{points:#?}\n{}", stage.stand.log());
        }
        // A process looks at a few things only once, so its first land passes a few points more.
        assert!(spared <= 3, "{spared} points were never passed");
    })
    .await;
}

macro_rules! killed {
    ($($name:ident: $case:ident,)*) => {
        $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            killed_at_every_point(Case::$case).await;
        })*
    };
}

killed! {
    killed_at_every_point_of_a_clean_land: Clean,
    killed_at_every_point_of_a_conflict: Conflict,
    killed_at_every_point_of_a_gate_that_fails: GateFails,
    killed_at_every_point_with_a_target_that_moves: TargetMoves,
    killed_at_every_point_with_the_target_checked_out: CheckedOut,
    killed_at_every_point_of_a_land_that_keeps: Keep,
    killed_at_every_point_of_a_rebase_by_git: ByGit,
    killed_at_every_point_of_an_ungated_land: Ungated,
    killed_at_every_point_of_an_ungated_land_that_keeps: UngatedKept,
}

/// Fails every point for good, once. Whatever that leads to, nothing is lost, the job ends once, and when it did not
/// land, asking again leads to where it would have led at once.
async fn failed_at_every_point(case: Case) {
    let (_, points) = Stage::new().await.undisturbed(case).await;
    let plans = (1..=points.len()).map(|at| format!("fail {at}")).collect();
    spread(plans, |plans| async move {
        let mut stage = Stage::new().await;
        stage.may_take_back = true;
        let (expected, points) = stage.undisturbed(case).await;
        for plan in plans {
            let play = stage.prepare(case).await;
            stage.plan(&plan);
            if let Err((code, message)) = stage.ask(&play).await {
                assert!(matches!(code.as_str(), "W102" | "W300" | "W400"), "{plan}: {code}: {message}");
                stage.unplan();
                stage.ask(&play).await.unwrap();
            }
            let outcome = stage.outcome(&play).await;
            if stage.is_planned() {
                stage.unplan();
            }
            if outcome == expected || outcome.event == "worktree::landed" {
                // It landed; at worst something was kept, and the event says why.
                continue;
            }
            assert!(outcome.job.contains("W"), "{plan}: no code in {}", outcome.job);
            match stage.ask(&play).await {
                Ok(_) => {
                    let again = stage.outcome(&play).await;
                    assert_eq!(again.target, expected.target, "{case:?}, {plan}\n{points:#?}");
                    assert_eq!((again.event, &again.record), (expected.event, &expected.record), "{case:?}, {plan}");
                }
                // The conflict is open all the same.
                Err((code, message)) => assert_eq!((case, code.as_str()), (Case::Conflict, "W402"), "{message}"),
            }
        }
    })
    .await;
}

/// Fails points in a way that is worth another attempt: it ends as if nothing had happened, and nobody has to help.
async fn starved_at_every_point(case: Case) {
    let (_, points) = Stage::new().await.undisturbed(case).await;
    // Each costs the pause before another attempt.
    let some = (1..=points.len()).filter(|at| long() || at % 3 == 0);
    let plans = some.map(|at| format!("starve {at}")).collect();
    spread(plans, |plans| async move {
        let mut stage = Stage::new().await;
        let (expected, points) = stage.undisturbed(case).await;
        for plan in plans {
            let play = stage.prepare(case).await;
            stage.plan(&plan);
            if let Err((code, message)) = stage.ask(&play).await {
                assert!(matches!(code.as_str(), "W101" | "W300"), "{plan}: {code}: {message}");
                stage.ask(&play).await.unwrap();
            }
            let outcome = stage.outcome(&play).await;
            stage.unplan();
            if outcome.job.contains("could not be told") {
                // It landed, and what was in the worktree could not be told just then: that keeps it.
                assert_eq!((outcome.event, outcome.target), ("worktree::landed", expected.target.clone()));
                continue;
            }
            assert_eq!(outcome, expected, "{case:?}, {plan}\n{points:#?}\n{}", stage.stand.log());
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_at_every_point_with_the_target_checked_out() {
    failed_at_every_point(Case::CheckedOut).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_at_every_point_of_a_conflict() {
    failed_at_every_point(Case::Conflict).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_at_every_point_of_an_ungated_land_that_keeps() {
    failed_at_every_point(Case::UngatedKept).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn starved_at_every_point_with_the_target_checked_out() {
    starved_at_every_point(Case::CheckedOut).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn starved_at_every_point_of_a_rebase_by_git() {
    starved_at_every_point(Case::ByGit).await;
}

/// Every effect, write and message twice: the same end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_twice_changes_nothing() {
    let mut stage = Stage::new().await;
    for case in CASES {
        let (expected, points) = stage.undisturbed(case).await;
        let play = stage.prepare(case).await;
        stage.plan("repeat all");
        stage.ask(&play).await.unwrap();
        let outcome = stage.outcome(&play).await;
        stage.unplan();
        assert_eq!(outcome, expected, "{case:?}\n{points:#?}\n{}", stage.stand.log());
    }
}

/// Somebody deletes the directory after the target has moved: the land ends, and what is left has a record, by which the
/// next sweep finds it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_directory_that_is_deleted_during_a_land_is_left_to_the_sweep() {
    let mut stage = Stage::new().await;
    let (_, points) = stage.undisturbed(Case::Clean).await;
    let rename = points.iter().position(|point| point.ends_with("effect rename into the trash")).unwrap();
    let play = stage.prepare(Case::Clean).await;
    stage.plan(&format!("kill before {}", rename + 1));
    stage.ask(&play).await.unwrap();
    until("the planned end of the worker", || async { (!stage.stand.runs()).then_some(()) }).await;
    stage.unplan();
    let (repository, worktree) = (play.repository(), play.worktree());
    std::fs::remove_dir_all(worktree.checkout.path()).unwrap();
    stage.stand.restart().await;
    let job = stage.ended(&play).await;
    assert_eq!(job["blocked_code"], json!(null), "{job:#}");
    assert_eq!(repository.sha("trunk"), job["merged_sha"].as_str().unwrap());
    assert!(job["kept_reason"].as_str().unwrap().contains("is gone"), "{job:#}");
    let id = json!({"worktree_id": worktree.id});
    assert_eq!(stage.stand.client.ok("worktree::get", id.clone()).await["lifecycle"], "orphaned");
    stage.stand.client.ok("worktree::prune", json!({})).await;
    assert_eq!(stage.stand.client.call("worktree::get", id).await.unwrap_err().0, "W200");
    assert!(!repository.path().join(".git/worktrees").join(&worktree.id).exists());
    // The sweep deletes no branch of a worktree that it cannot look at.
    assert_eq!(repository.branch("work").as_deref(), job["merged_sha"].as_str());
}
