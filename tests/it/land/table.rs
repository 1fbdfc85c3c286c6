//! The two pure halves of the machine, over everything they can be asked: the transition function, whose table is a
//! golden, and the decision.

use worktree::git::Operation;
use worktree::land::decide::{Action, decide};
use worktree::land::observe::{Checkout, Facts, Place, TreeFacts};
use worktree::land::transition::{Block, EVENTS, Event, apply};
use worktree::model::Code;
use worktree::model::event::BlockReason;
use worktree::model::job::{Job, Phase};

use crate::support::golden::Goldens;

const PHASES: [Phase; 6] = [Phase::Preflight, Phase::Rebase, Phase::Test, Phase::Merge, Phase::Finalize, Phase::Done];

const HEAD: &str = "1111111111111111111111111111111111111111";
const ONTO: &str = "2222222222222222222222222222222222222222";
const REBASED: &str = "3333333333333333333333333333333333333333";
const OTHER: &str = "4444444444444444444444444444444444444444";

fn events() -> Vec<Event> {
    vec![
        Event::Ready { head: HEAD.into(), target: ONTO.into() },
        Event::RebaseStarting,
        Event::RebaseComputed { head: REBASED.into() },
        Event::RebaseKeptAside { head: REBASED.into() },
        Event::Rebased { head: REBASED.into() },
        Event::GateStarting,
        Event::GatePassed { output_tail: None },
        Event::SwapStarting { checkouts: vec!["/w".into()] },
        Event::Swapped,
        Event::TargetMoved { target: OTHER.into() },
        Event::Finished { kept_reason: None },
        Event::Blocked(Block::new(BlockReason::TestFailed, Code::GateFailed, "no")),
        Event::Told,
    ]
}

/// A job as it is in `phase`.
fn job(phase: Phase) -> Job {
    let text = |value: &str| Some(value.to_owned());
    let value = serde_json::json!({
        "format": 1, "job_id": "job_0123456789ab", "worktree_id": "wt_0123456789ab", "repo_key": "/r/.git",
        "repo_path": "/r", "worktree_path": "/w", "branch": "work", "target_branch": "main", "test_cmd": "true",
        "phase": phase.as_str(), "created_at": 1, "updated_at": 1,
    });
    let mut job = Job::from_value(&value).unwrap();
    if phase >= Phase::Rebase {
        job.head_sha = text(HEAD);
        job.recorded_target_sha = text(ONTO);
    }
    if phase >= Phase::Test {
        job.rebased_sha = text(REBASED);
    }
    if phase >= Phase::Merge {
        job.test_passed_sha = text(REBASED);
    }
    if phase >= Phase::Finalize {
        job.merged_sha = text(REBASED);
    }
    job.done = phase == Phase::Done;
    job
}

#[test]
fn the_transition_function_is_total_and_its_table_is_known() {
    let events = events();
    assert_eq!(events.iter().map(Event::name).collect::<Vec<_>>(), EVENTS, "an event is missing here");
    let mut table = format!("{:<18}", "");
    for phase in PHASES {
        table.push_str(&format!("{:<11}", phase.as_str()));
    }
    for event in events {
        table.push_str(&format!("\n{:<18}", event.name()));
        for phase in PHASES {
            let before = job(phase);
            let cell = match apply(&before, event.clone(), 2) {
                Ok(after) => {
                    assert_eq!(after.done, after.phase == Phase::Done);
                    assert_eq!(after.untold, after.done && phase != Phase::Done, "an end that nobody will be told");
                    assert_eq!(after.updated_at, 2);
                    after.phase.as_str()
                }
                Err(illegal) => {
                    assert_eq!((illegal.phase, illegal.event), (phase, event.name()));
                    "-"
                }
            };
            table.push_str(&format!("{cell:<11}"));
        }
    }
    let table: String = table.lines().map(|line| format!("{}\n", line.trim_end())).collect();
    let mut goldens = Goldens::at("land");
    goldens.check("transitions.txt", &table);
    goldens.finish();
}

#[test]
fn a_target_that_moved_forgets_what_was_gated() {
    let moved = apply(&job(Phase::Merge), Event::TargetMoved { target: OTHER.into() }, 2).unwrap();
    assert_eq!((moved.rebased_sha, moved.test_passed_sha, moved.cas_attempts), (None, None, 1));
    // What has to be rebased next is where the branch stands.
    assert_eq!((moved.head_sha.as_deref(), moved.recorded_target_sha.as_deref()), (Some(REBASED), Some(OTHER)));
    let behind = Job { tree_behind: true, ..job(Phase::Merge) };
    let moved = apply(&behind, Event::TargetMoved { target: OTHER.into() }, 2).unwrap();
    assert_eq!((moved.head_sha.as_deref(), moved.tree_behind), (Some(HEAD), false));
}

/// Every combination of what can be seen that makes a difference.
fn all_facts() -> Vec<Facts> {
    let mut places = vec![Place::Gone, Place::NotOurs("it is something else".into())];
    for branch in [Some("work"), Some("else"), None] {
        for (changed, untracked) in [(0, 0), (1, 0), (0, 1)] {
            for hidden in [vec![], vec!["config".to_owned()]] {
                for operation in [None, Some(Operation::Rebase), Some(Operation::Merge)] {
                    for rebase_stopped in [false, true] {
                        places.push(Place::Ours(TreeFacts {
                            branch: branch.map(str::to_owned),
                            head: Some(HEAD.into()),
                            changed,
                            untracked,
                            hidden: hidden.clone(),
                            conflicted: Vec::new(),
                            operation,
                            rebase_stopped,
                        }));
                    }
                }
            }
        }
    }
    let free = Checkout { path: "/w".into(), operation: None };
    let busy = Checkout { operation: Some("a merge".into()), ..free.clone() };
    let mut all = Vec::new();
    for place in places {
        for tip in [None, Some(HEAD), Some(REBASED), Some(OTHER)] {
            for target in [None, Some(ONTO), Some(OTHER)] {
                for (on_top, merged) in [(false, false), (true, false), (false, true)] {
                    for checkouts in [vec![], vec![free.clone()], vec![busy.clone()]] {
                        all.push(Facts {
                            place: place.clone(),
                            tip: tip.map(str::to_owned),
                            target: target.map(str::to_owned),
                            on_top,
                            merged,
                            checkouts,
                        });
                    }
                }
            }
        }
    }
    all
}

/// The jobs that a phase can hold.
fn jobs(phase: Phase) -> Vec<Job> {
    let plain = job(phase);
    let mut all =
        vec![plain.clone(), Job { force_restart: true, ..plain.clone() }, Job { test_cmd: None, ..plain.clone() }];
    match phase {
        Phase::Rebase => {
            all.push(Job { rebase_started: true, ..plain.clone() });
            all.push(Job { rebased_sha: Some(REBASED.into()), ..plain });
        }
        Phase::Test => all.push(Job { gate_started: true, ..plain }),
        Phase::Merge => {
            all.push(Job { target_checkouts: vec!["/w".into()], ..plain.clone() });
            all.push(Job { cas_attempts: 3, ..plain });
        }
        Phase::Preflight | Phase::Finalize | Phase::Done => {}
    }
    all
}

/// The tree that an action may only be taken in.
fn tree(facts: &Facts) -> &TreeFacts {
    match &facts.place {
        Place::Ours(tree) => tree,
        other => panic!("something is done in a worktree that is not there: {other:?}"),
    }
}

#[test]
fn every_decision_is_allowed_and_none_is_reckless() {
    let all = all_facts();
    let mut counted = 0_u32;
    for phase in &PHASES[..5] {
        for job in jobs(*phase) {
            for facts in &all {
                counted += 1;
                let action = decide(&job, facts, 3);
                let context = || format!("{action:?} in {} of {facts:#?}", phase.as_str());
                match &action {
                    Action::Record(event) => {
                        apply(&job, event.clone(), 2).unwrap_or_else(|illegal| panic!("{illegal}: {}", context()));
                        if let Event::Swapped = event {
                            assert!(facts.merged, "said to have landed: {}", context());
                        }
                        if let Event::GatePassed { .. } = event {
                            assert_eq!(job.test_cmd, None, "said to have passed: {}", context());
                        }
                    }
                    Action::AbortOperation => {
                        assert!(*phase == Phase::Preflight && job.force_restart, "{}", context());
                        assert!(tree(facts).operation.is_some(), "{}", context());
                    }
                    Action::AbortInterruptedRebase => {
                        let tree = tree(facts);
                        let ours = job.rebase_started && tree.operation == Some(Operation::Rebase);
                        assert!(*phase == Phase::Rebase && ours && !tree.rebase_stopped, "{}", context());
                    }
                    Action::Freeze { head, target } => {
                        assert_eq!((Some(head), Some(target)), (facts.tip.as_ref(), facts.target.as_ref()));
                        let tree = tree(facts);
                        assert_eq!((tree.changed, tree.untracked, tree.operation), (0, 0, None), "{}", context());
                    }
                    Action::ComputeRebase | Action::RebaseInTree => {
                        assert_eq!((*phase, facts.tip.as_deref()), (Phase::Rebase, Some(HEAD)), "{}", context());
                        assert_eq!(tree(facts).changed + tree(facts).untracked, 0, "{}", context());
                    }
                    Action::TakeRebase => {
                        let moved = matches!(facts.tip.as_deref(), Some(REBASED | OTHER)) && facts.on_top;
                        let ours = *phase == Phase::Rebase && job.rebase_started && job.rebased_sha.is_none();
                        assert!(ours && moved && tree(facts).operation.is_none(), "{}", context());
                        assert_eq!(tree(facts).branch.as_deref(), Some("work"), "{}", context());
                    }
                    Action::ApplyRebase => {
                        assert!(matches!(facts.tip.as_deref(), Some(HEAD | REBASED)), "{}", context());
                        assert_eq!(tree(facts).branch.as_deref(), Some("work"), "{}", context());
                    }
                    Action::RunGate => {
                        let tree = tree(facts);
                        assert_eq!(facts.tip.as_deref(), Some(REBASED), "{}", context());
                        assert!(tree.changed == 0 && tree.hidden.is_empty(), "another tree is gated: {}", context());
                    }
                    Action::Swap => {
                        assert_eq!(facts.tip.as_deref(), Some(REBASED), "{}", context());
                        assert_eq!(facts.target.as_deref(), Some(ONTO), "{}", context());
                        assert!(facts.checkouts.iter().all(|checkout| checkout.operation.is_none()), "{}", context());
                        let named: Vec<_> = facts.checkouts.iter().map(|checkout| checkout.path.clone()).collect();
                        assert_eq!(named, job.target_checkouts, "the intent was not recorded: {}", context());
                        assert_eq!(tree(facts).branch.as_deref(), Some("work"), "{}", context());
                    }
                    Action::CatchUpCheckouts => assert!(facts.merged, "{}", context()),
                    Action::CleanUp => assert_eq!(*phase, Phase::Finalize, "{}", context()),
                }
            }
        }
    }
    assert!(counted > 100_000, "only {counted} combinations");
}
