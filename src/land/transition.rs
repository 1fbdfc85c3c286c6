//! The total function of the land machine: (job, event) → the next job, or a typed refusal.
//!
//! Both the live run and recovery go through [`apply`]. It touches nothing but the job.

use crate::model::Code;
use crate::model::event::BlockReason;
use crate::model::job::{Job, Phase};

/// Why a land stops without landing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// The word for programs.
    pub reason: BlockReason,
    /// The code for programs.
    pub code: Code,
    /// The sentence for people: what happened and what to do.
    pub message: String,
    /// Paths in conflict, or in the way.
    pub files: Option<Vec<String>>,
    /// Exit code of the gate.
    pub exit_code: Option<i64>,
    /// The gate's last lines.
    pub output_tail: Option<String>,
}

impl Block {
    /// A block without files and gate output.
    #[must_use]
    pub fn new(reason: BlockReason, code: Code, message: impl Into<String>) -> Self {
        Block { reason, code, message: message.into(), files: None, exit_code: None, output_tail: None }
    }

    /// The same block, naming these files.
    #[must_use]
    pub fn with_files(self, files: Vec<String>) -> Self {
        Block { files: Some(files), ..self }
    }
}

/// What has happened to a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The worktree is in order; its tip is frozen and backed up, the target resolved.
    Ready {
        /// The tip that the owner asked to land.
        head: String,
        /// The target's commit.
        target: String,
    },
    /// A rebase is about to be started in the worktree.
    RebaseStarting,
    /// The result of the rebase is known; the branch is about to be moved to it.
    RebaseComputed {
        /// The commit that the branch will be moved to.
        head: String,
    },
    /// The result of the rebase is known; branch and files stay where they are.
    RebaseKeptAside {
        /// The commit that lands.
        head: String,
    },
    /// The branch is on top of the target.
    Rebased {
        /// Its tip.
        head: String,
    },
    /// The gate is about to be started.
    GateStarting,
    /// The gate passed, or there is none.
    GatePassed {
        /// What it printed last.
        output_tail: Option<String>,
    },
    /// The target is about to be moved, together with these checkouts of it.
    SwapStarting {
        /// Directories in which the target is checked out.
        checkouts: Vec<String>,
    },
    /// The target is at the gated commit.
    Swapped,
    /// The target was moved by somebody else.
    TargetMoved {
        /// Where it is now.
        target: String,
    },
    /// The worktree has been cleaned up or kept.
    Finished {
        /// Why it was kept although nobody asked for it.
        kept_reason: Option<String>,
    },
    /// The land stops here.
    Blocked(Block),
    /// The record is settled and the event is out.
    Told,
}

/// The name of every event, in the order of the table.
pub const EVENTS: [&str; 13] = [
    "ready",
    "rebase_starting",
    "rebase_computed",
    "rebase_kept_aside",
    "rebased",
    "gate_starting",
    "gate_passed",
    "swap_starting",
    "swapped",
    "target_moved",
    "finished",
    "blocked",
    "told",
];

impl Event {
    /// Its name in tables and logs.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Event::Ready { .. } => "ready",
            Event::RebaseStarting => "rebase_starting",
            Event::RebaseComputed { .. } => "rebase_computed",
            Event::RebaseKeptAside { .. } => "rebase_kept_aside",
            Event::Rebased { .. } => "rebased",
            Event::GateStarting => "gate_starting",
            Event::GatePassed { .. } => "gate_passed",
            Event::SwapStarting { .. } => "swap_starting",
            Event::Swapped => "swapped",
            Event::TargetMoved { .. } => "target_moved",
            Event::Finished { .. } => "finished",
            Event::Blocked(_) => "blocked",
            Event::Told => "told",
        }
    }
}

/// An event that cannot happen in this phase: the job or the program is wrong, and nothing may be done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a land job in phase {} cannot take the event {event}", phase.as_str())]
pub struct IllegalTransition {
    /// Where the job is.
    pub phase: Phase,
    /// What was said to have happened.
    pub event: &'static str,
}

/// The phase that follows, or the refusal. This is the table.
fn next_phase(phase: Phase, event: &Event) -> Option<Phase> {
    Some(match (phase, event) {
        (Phase::Preflight, Event::Ready { .. })
        | (Phase::Rebase, Event::RebaseStarting | Event::RebaseComputed { .. })
        | (Phase::Merge, Event::TargetMoved { .. }) => Phase::Rebase,
        (Phase::Rebase, Event::RebaseKeptAside { .. } | Event::Rebased { .. }) | (Phase::Test, Event::GateStarting) => {
            Phase::Test
        }
        (Phase::Test, Event::GatePassed { .. }) | (Phase::Merge, Event::SwapStarting { .. }) => Phase::Merge,
        (Phase::Merge, Event::Swapped) => Phase::Finalize,
        (Phase::Finalize, Event::Finished { .. })
        | (Phase::Preflight | Phase::Rebase | Phase::Test | Phase::Merge, Event::Blocked(_))
        | (Phase::Done, Event::Told) => Phase::Done,
        _ => return None,
    })
}

/// The job after `event`.
///
/// # Errors
/// [`IllegalTransition`] when the event cannot happen in the phase of the job.
pub fn apply(job: &Job, event: Event, now_ms: i64) -> Result<Job, IllegalTransition> {
    let illegal = IllegalTransition { phase: job.phase, event: event.name() };
    let phase = next_phase(job.phase, &event).ok_or(illegal)?;
    let kept_aside = matches!(event, Event::RebaseKeptAside { .. });
    let mut next = Job { phase, done: phase == Phase::Done, updated_at: now_ms, ..job.clone() };
    match event {
        Event::Ready { head, target } => {
            next.head_sha = Some(head);
            next.recorded_target_sha = Some(target);
        }
        Event::RebaseStarting => next.rebase_started = true,
        Event::RebaseComputed { head } => next.rebased_sha = Some(head),
        Event::RebaseKeptAside { head } | Event::Rebased { head } => {
            next.rebased_sha = Some(head);
            next.tree_behind = kept_aside;
            next.rebase_started = false;
            next.gate_started = false;
        }
        Event::GateStarting => next.gate_started = true,
        Event::GatePassed { output_tail } => {
            next.test_passed_sha = job.rebased_sha.clone();
            next.output_tail = output_tail;
        }
        Event::SwapStarting { checkouts } => next.target_checkouts = checkouts,
        Event::Swapped => next.merged_sha = job.rebased_sha.clone(),
        Event::TargetMoved { target } => {
            // What has to be rebased next is the branch, wherever it stands.
            next.head_sha = job.expected_tip().cloned();
            next.tree_behind = false;
            next.rebased_sha = None;
            next.test_passed_sha = None;
            next.target_checkouts = Vec::new();
            next.recorded_target_sha = Some(target);
            next.cas_attempts += 1;
        }
        Event::Finished { kept_reason } => {
            next.kept_reason = kept_reason;
            next.untold = true;
        }
        Event::Told => next.untold = false,
        Event::Blocked(block) => {
            next.untold = true;
            next.blocked_code = Some(block.code.as_str().to_owned());
            next.blocked_reason = Some(block.reason.as_str().to_owned());
            next.message = Some(block.message);
            next.conflict_files = block.files;
            next.exit_code = block.exit_code;
            next.output_tail = block.output_tail.or(next.output_tail);
        }
    }
    Ok(next)
}
