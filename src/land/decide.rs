//! What to do next, from the job and the facts alone. Pure: no git, no store, no clock.

use super::observe::{Facts, Place, TreeFacts};
use super::transition::{Block, Event};
use crate::model::Code;
use crate::model::event::BlockReason;
use crate::model::job::{Job, Phase};

/// The one thing to do now. Each is harmless when it has been done already.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Nothing to do: this has happened.
    Record(Event),
    /// Discard the operation that is open in the worktree; the owner asked for it with `force_restart`.
    AbortOperation,
    /// Discard a rebase of ours that was cut off before it stopped for its owner.
    AbortInterruptedRebase,
    /// Keep the tip in the backup ref, then go on from these commits.
    Freeze {
        /// Tip of the branch.
        head: String,
        /// Tip of the target.
        target: String,
    },
    /// Work out the rebase without touching the worktree, if that gives what git would.
    ComputeRebase,
    /// Move branch and working tree to the computed result.
    ApplyRebase,
    /// Let git rebase in the worktree.
    RebaseInTree,
    /// Go on from a rebase of ours that nobody saw the end of, if it is one.
    TakeRebase,
    /// Run the gate.
    RunGate,
    /// Move the target and its checkouts.
    Swap,
    /// Bring checkouts of the target, which the swap left behind, to the landed commit.
    CatchUpCheckouts,
    /// Clean up, or keep, the worktree.
    CleanUp,
}

impl Action {
    /// Its name in traces.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Action::Record(_) => "record",
            Action::AbortOperation => "abort operation",
            Action::AbortInterruptedRebase => "abort interrupted rebase",
            Action::Freeze { .. } => "freeze",
            Action::ComputeRebase => "compute rebase",
            Action::ApplyRebase => "apply rebase",
            Action::RebaseInTree => "rebase in tree",
            Action::TakeRebase => "take rebase",
            Action::RunGate => "run gate",
            Action::Swap => "swap",
            Action::CatchUpCheckouts => "catch up checkouts",
            Action::CleanUp => "clean up",
        }
    }
}

fn block(reason: BlockReason, code: Code, message: String) -> Action {
    Action::Record(Event::Blocked(Block::new(reason, code, message)))
}

/// What to do next for `job`, given what was seen.
#[must_use]
pub fn decide(job: &Job, facts: &Facts, max_land_retries: u32) -> Action {
    match job.phase {
        Phase::Preflight => preflight(job, facts),
        Phase::Rebase => rebase(job, facts),
        Phase::Test => test(job, facts),
        Phase::Merge => merge(job, facts, max_land_retries),
        Phase::Finalize | Phase::Done => Action::CleanUp,
    }
}

/// The worktree, or the block that says why it cannot be used.
fn ours<'a>(job: &Job, facts: &'a Facts) -> Result<&'a TreeFacts, Action> {
    match &facts.place {
        Place::Ours(tree) => Ok(tree),
        Place::Gone => Err(block(
            BlockReason::WorktreePathMissing,
            Code::Orphaned,
            format!(
                "the directory {} is gone; the branch {} is still there: create a worktree from it, or remove the record",
                job.worktree_path, job.branch
            ),
        )),
        Place::NotOurs(why) => Err(block(BlockReason::IdentityMismatch, Code::IdentityMismatch, why.clone())),
    }
}

fn branch_mismatch(job: &Job, tree: &TreeFacts) -> Action {
    let now = tree.branch.as_deref().map_or_else(|| "no branch (HEAD is detached)".to_owned(), |b| format!("`{b}`"));
    block(
        BlockReason::BranchMismatch,
        Code::BranchMismatch,
        format!(
            "{now} is checked out in {}, not `{}`; switch back to it and land again",
            job.worktree_path, job.branch
        ),
    )
}

fn dirty(job: &Job, tree: &TreeFacts) -> Action {
    Action::Record(Event::Blocked(uncommitted(job, tree.changed, tree.untracked)))
}

/// The block for files that are not committed.
#[must_use]
pub fn uncommitted(job: &Job, changed: u64, untracked: u64) -> Block {
    let message = format!(
        "{} holds {changed} changed and {untracked} untracked files; commit or remove them and land again",
        job.worktree_path
    );
    Block::new(BlockReason::Dirty, Code::Uncommitted, message)
}

fn hidden(job: &Job, tree: &TreeFacts) -> Action {
    let message = format!(
        "{} holds changes that git was told not to look at (assume-unchanged or skip-worktree): {}; they would be tested but not landed: undo the flag and commit them, or restore the files, and land again",
        job.worktree_path,
        tree.hidden.join(", ")
    );
    Action::Record(Event::Blocked(
        Block::new(BlockReason::Dirty, Code::Uncommitted, message).with_files(tree.hidden.clone()),
    ))
}

fn branch_moved(job: &Job, facts: &Facts) -> Action {
    let now = facts.tip.as_deref().unwrap_or("nothing");
    block(
        BlockReason::BranchMoved,
        Code::BranchMoved,
        format!(
            "the branch `{}` moved while it was landing (it is at {now} now); nothing was landed, land again",
            job.branch
        ),
    )
}

fn target_gone(job: &Job) -> Action {
    block(
        BlockReason::TargetRefNotFound,
        Code::RefNotFound,
        format!("the target branch `{}` does not exist; create it, or land on another one", job.target_branch),
    )
}

/// The block for an operation that somebody else left open.
fn operation_open(job: &Job, tree: &TreeFacts) -> Option<Action> {
    let operation = tree.operation.as_ref()?;
    let (reason, code) = if operation.is_rebase() {
        (BlockReason::RebaseInProgress, Code::RebaseOpen)
    } else {
        (BlockReason::OperationInProgress, Code::OperationOpen)
    };
    let message = format!(
        "{operation} is open in {}; finish or abort it and land again (force_restart: true discards it)",
        job.worktree_path
    );
    Some(Action::Record(Event::Blocked(Block::new(reason, code, message).with_files(tree.conflicted.clone()))))
}

fn preflight(job: &Job, facts: &Facts) -> Action {
    let tree = match ours(job, facts) {
        Ok(tree) => tree,
        Err(blocked) => return blocked,
    };
    if let Some(blocked) = operation_open(job, tree) {
        return if job.force_restart { Action::AbortOperation } else { blocked };
    }
    if tree.branch.as_deref() != Some(&job.branch) {
        return branch_mismatch(job, tree);
    }
    if tree.changed + tree.untracked > 0 {
        return dirty(job, tree);
    }
    match (&facts.tip, &facts.target) {
        (Some(head), Some(target)) => Action::Freeze { head: head.clone(), target: target.clone() },
        (None, _) => branch_mismatch(job, tree),
        (Some(_), None) => target_gone(job),
    }
}

fn rebase(job: &Job, facts: &Facts) -> Action {
    let tree = match ours(job, facts) {
        Ok(tree) => tree,
        Err(blocked) => return blocked,
    };
    if let Some(operation) = &tree.operation {
        return match (operation.is_rebase() && job.rebase_started, tree.rebase_stopped || !tree.conflicted.is_empty()) {
            // Ours, and its owner may already be at work on it: it stays as it is.
            (true, true) => Action::Record(Event::Blocked(conflict(job, tree.conflicted.clone()))),
            (true, false) => Action::AbortInterruptedRebase,
            (false, _) => operation_open(job, tree).unwrap_or(Action::ComputeRebase),
        };
    }
    if tree.branch.as_deref() != Some(&job.branch) {
        return branch_mismatch(job, tree);
    }
    if job.rebased_sha.is_some() {
        let known = facts.tip.is_some() && (facts.tip == job.rebased_sha || facts.tip == job.head_sha);
        return if known { Action::ApplyRebase } else { branch_moved(job, facts) };
    }
    if facts.tip != job.head_sha {
        // Only a rebase that this job started, and that ran to its end, may have moved the branch.
        let may = job.rebase_started && facts.on_top && facts.tip.is_some();
        return if may { Action::TakeRebase } else { branch_moved(job, facts) };
    }
    if tree.changed + tree.untracked > 0 {
        return dirty(job, tree);
    }
    match &facts.tip {
        Some(tip) if facts.on_top => Action::Record(Event::Rebased { head: tip.clone() }),
        _ if job.rebase_started => Action::RebaseInTree,
        _ => Action::ComputeRebase,
    }
}

/// The block for a conflict that is left open in the worktree.
#[must_use]
pub fn conflict(job: &Job, files: Vec<String>) -> Block {
    let message = format!(
        "rebasing `{}` onto `{}` met a conflict in {}; it is left open in {}: resolve it, run git rebase --continue, and land again",
        job.branch,
        job.target_branch,
        if files.is_empty() { "no file that is still marked".to_owned() } else { files.join(", ") },
        job.worktree_path
    );
    Block::new(BlockReason::RebaseConflict, Code::RebaseConflict, message).with_files(files)
}

/// What must hold from the end of the rebase to the swap: branch and HEAD are where the rebase has put or left them.
fn still_rebased(job: &Job, facts: &Facts) -> Option<Action> {
    let tree = match ours(job, facts) {
        Ok(tree) => tree,
        Err(blocked) => return Some(blocked),
    };
    if let Some(blocked) = operation_open(job, tree) {
        return Some(blocked);
    }
    if facts.tip.as_ref() != job.expected_tip() {
        return Some(branch_moved(job, facts));
    }
    if tree.branch.as_deref() != Some(&job.branch) {
        return Some(branch_mismatch(job, tree));
    }
    None
}

fn test(job: &Job, facts: &Facts) -> Action {
    if let Some(blocked) = still_rebased(job, facts) {
        return blocked;
    }
    if let Place::Ours(tree) = &facts.place {
        // Untracked files may be the work of a gate that was cut off; changed ones make another tree than the one
        // that would land.
        let foreign = if job.gate_started { 0 } else { tree.untracked };
        if tree.changed + foreign > 0 {
            return dirty(job, tree);
        }
        if !tree.hidden.is_empty() {
            return hidden(job, tree);
        }
    }
    if job.test_cmd.is_some() { Action::RunGate } else { Action::Record(Event::GatePassed { output_tail: None }) }
}

fn merge(job: &Job, facts: &Facts, max_land_retries: u32) -> Action {
    if let Place::Ours(tree) = &facts.place
        && job.needs_no_files()
        && job.lands_nothing()
        && tree.changed + tree.untracked > 0
    {
        return dirty(job, tree);
    }
    if facts.merged {
        // A swap that was cut off may have left checkouts of the target behind.
        return if job.target_checkouts.is_empty() { Action::Record(Event::Swapped) } else { Action::CatchUpCheckouts };
    }
    if let Some(blocked) = still_rebased(job, facts) {
        return blocked;
    }
    match &facts.target {
        None => target_gone(job),
        Some(target) if Some(target) == job.recorded_target_sha.as_ref() => swap(job, facts),
        Some(_) if job.cas_attempts >= max_land_retries => block(
            BlockReason::TargetMovedExhausted,
            Code::TargetMoved,
            format!(
                "`{}` moved {} times while this was landing, as often as max_land_retries allows; land again",
                job.target_branch,
                job.cas_attempts + 1
            ),
        ),
        Some(target) => Action::Record(Event::TargetMoved { target: target.clone() }),
    }
}

fn swap(job: &Job, facts: &Facts) -> Action {
    if let Some(busy) = facts.checkouts.iter().find(|checkout| checkout.operation.is_some()) {
        return block(
            BlockReason::TargetCheckedOutDirty,
            Code::TargetCheckedOut,
            format!(
                "`{}` is checked out in {}, where {} is open; finish it and land again",
                job.target_branch,
                busy.path,
                busy.operation.as_deref().unwrap_or_default()
            ),
        );
    }
    let wanted: Vec<String> = facts.checkouts.iter().map(|checkout| checkout.path.clone()).collect();
    if wanted == job.target_checkouts {
        Action::Swap
    } else {
        Action::Record(Event::SwapStarting { checkouts: wanted })
    }
}
