//! The effects of a land on git, one function each. Each asks first whether it has been done already.

use std::path::PathBuf;
use std::sync::Arc;

use serde_json::json;

use super::decide::{self, Action};
use super::gate;
use super::observe::{Observed, Place, required, texts};
use super::step::Stop;
use super::transition::{Block, Event};
use crate::audit::{Action as AuditAction, Event as Audit};
use crate::git::{Expected, MoveOutcome, Operation, RebaseOutcome, RefUpdate, Replay, Repo, Sha, Tree, from_text};
use crate::model::event::BlockReason;
use crate::model::job::Job;
use crate::model::record::Record;
use crate::model::{Code, Error, Result};
use crate::worktrees::marker::{self, Identity};
use crate::worktrees::remove::{self, Judgement, branch_ref};
use crate::worktrees::repo_lock::RepoGuard;
use crate::worktrees::unsaved_work::Cleared;
use crate::worktrees::{Context, unsaved_work};

/// What an effect led to: an event to be recorded, or nothing but changed surroundings to be looked at again.
pub type Effect = Option<Event>;

/// What a swap hands on to the clean-up that follows it at once: the worktree was found to hold nothing unsaved, and
/// nobody else has had the repository since.
pub struct Carried {
    guard: RepoGuard,
    cleared: Cleared,
}

/// Does what was decided. `carried` is what the action before has handed on; what this one hands on takes its place.
///
/// # Errors
/// What git, the store or the shell report when it could not be done; the same decision can be taken again.
pub async fn act(
    ctx: &Arc<Context>,
    job: &Job,
    record: &Record,
    seen: &Observed,
    action: Action,
    stop: &Stop,
    carried: &mut Option<Carried>,
) -> Result<Effect> {
    let before = carried.take();
    match action {
        Action::Record(event) => Ok(Some(event)),
        Action::AbortOperation => {
            let tree = the_tree(seen)?;
            tell_abort(ctx, job, tree).await?;
            Box::pin(tree.abort_operation()).await?;
            Ok(None)
        }
        Action::AbortInterruptedRebase => {
            let tree = the_tree(seen)?;
            tell_abort(ctx, job, tree).await?;
            Box::pin(tree.abort_rebase()).await?;
            Ok(None)
        }
        Action::Freeze { head, target } => {
            let tip = required("head", Some(&head))?;
            remove::backup(&seen.repo, record, &tip).await?;
            Ok(Some(Event::Ready { head, target }))
        }
        Action::ComputeRebase => compute_rebase(job, &seen.repo).await.map(Some),
        Action::ApplyRebase => apply_rebase(ctx, job, seen).await.map(Some),
        Action::RebaseInTree => {
            let (tip, onto) = rebase_ends(job)?;
            Ok(Some(after_rebase(job, the_tree(seen)?.rebase(&tip, &onto).await?)))
        }
        Action::TakeRebase => {
            let (tip, onto) = rebase_ends(job)?;
            Ok(Some(after_rebase(job, the_tree(seen)?.rebased(&tip, &onto).await?)))
        }
        Action::RunGate => {
            let test_cmd = job.test_cmd.as_deref().unwrap_or_default();
            gate::run(ctx, job, test_cmd, stop).await.map(Some)
        }
        Action::Swap => swap(ctx, job, seen, carried).await,
        Action::CatchUpCheckouts => catch_up(ctx, job, &seen.repo).await.map(Some),
        Action::CleanUp => clean_up(ctx, job, record, seen, before).await,
    }
}

fn the_tree(seen: &Observed) -> Result<&Tree> {
    match &seen.tree {
        Some((tree, _)) => Ok(tree),
        None => Err(Error::new(Code::Orphaned, "the worktree went away while it was landing")),
    }
}

/// Writes down that an open operation is discarded, with what was done to resolve it.
async fn tell_abort(ctx: &Context, job: &Job, tree: &Tree) -> Result<()> {
    let details = json!({
        "job_id": job.job_id, "path": job.worktree_path, "branch": job.branch, "head_sha": tree.head().await?,
        "operation": tree.operation().map(Operation::name), "forced": job.force_restart,
    });
    ctx.audit(Audit::new(AuditAction::AbortOperation, details).about(&job.worktree_id, &job.repo_key)).await
}

fn failed(message: String) -> Event {
    Event::Blocked(Block::new(BlockReason::RebaseFailed, Code::GitFailed, message))
}

/// Works the rebase out in memory; leaves it to git in the worktree when that cannot be proven to give the same.
async fn compute_rebase(job: &Job, repo: &Repo) -> Result<Event> {
    let (tip, onto) = rebase_ends(job)?;
    Ok(match repo.replay(&tip, &onto).await? {
        Replay::Done { head } if job.needs_no_files() => Event::RebaseKeptAside { head: head.to_string() },
        Replay::Done { head } => Event::RebaseComputed { head: head.to_string() },
        Replay::UpToDate => Event::Rebased { head: tip.to_string() },
        Replay::Conflict { .. } => Event::RebaseStarting,
        Replay::NotProvable { why } => {
            tracing::debug!(job = job.job_id, why, "the rebase is left to git");
            Event::RebaseStarting
        }
    })
}

/// Moves branch and working tree from the frozen tip to the computed one.
async fn apply_rebase(ctx: &Context, job: &Job, seen: &Observed) -> Result<Event> {
    let _guard = ctx.registry.lock(&job.repo_key).await?;
    Ok(match bring_along(job, &seen.repo, the_tree(seen)?).await? {
        Brought::Along { head } => Event::Rebased { head: head.to_string() },
        Brought::MovedAway => Event::Blocked(moved_away(job)),
        Brought::InTheWay { files } => {
            let message = format!(
                "{} got changes while it was landing ({}); commit or remove them and land again",
                job.worktree_path,
                files.join(", ")
            );
            Event::Blocked(Block::new(BlockReason::Dirty, Code::Uncommitted, message).with_files(files))
        }
    })
}

/// What became of moving branch and files to the rebased commit.
enum Brought {
    Along {
        head: Sha,
    },
    /// The branch was moved by somebody else.
    MovedAway,
    /// Files of the worktree are in the way; nothing has moved.
    InTheWay {
        files: Vec<String>,
    },
}

/// Moves branch and working tree from the frozen tip to the rebased one; takes the branch back when the tree refuses.
/// Repeated after it was cut off, it finishes. The caller holds the lock of the repository.
async fn bring_along(job: &Job, repo: &Repo, tree: &Tree) -> Result<Brought> {
    let from = required("head_sha", job.head_sha.as_ref())?;
    let to = required("rebased_sha", job.rebased_sha.as_ref())?;
    let name = branch_ref(&job.branch);
    let message = format!("worktree: {} rebased onto {}", job.job_id, job.target_branch);
    match repo.update_ref(&name, &to, Expected::Is(from.clone()), &message).await? {
        RefUpdate::Done => {}
        RefUpdate::Lost { current } if current.as_ref() == Some(&to) => {}
        RefUpdate::Lost { .. } => return Ok(Brought::MovedAway),
    }
    match tree.move_to(&from, &to).await? {
        MoveOutcome::Moved => Ok(Brought::Along { head: to }),
        MoveOutcome::InTheWay { files } => {
            let back = format!("worktree: {} taken back, files in the way", job.job_id);
            match repo.update_ref(&name, &from, Expected::Is(to), &back).await? {
                RefUpdate::Done => Ok(Brought::InTheWay { files: texts(&files) }),
                RefUpdate::Lost { .. } => Ok(Brought::MovedAway),
            }
        }
    }
}

/// Makes branch and working tree agree again after a rebase step was given up: a branch that was moved ahead of its tree
/// goes back, a rebase of ours that was cut off is discarded.
///
/// # Errors
/// What git reports when it cannot be done.
pub async fn settle_rebase(ctx: &Context, job: &Job, record: &Record) -> Result<()> {
    if let Identity::Ours(tree, _) = marker::identify(&ctx.git(), record)? {
        let open = tree.operation().is_some_and(Operation::is_rebase);
        if job.rebase_started && open && !tree.rebase_stopped() {
            Box::pin(tree.abort_rebase()).await?;
        }
    }
    if let (Some(_), Some(_)) = (&job.head_sha, &job.rebased_sha) {
        let from = required("head_sha", job.head_sha.as_ref())?;
        let to = required("rebased_sha", job.rebased_sha.as_ref())?;
        let back = format!("worktree: {} taken back, the rebase was given up", job.job_id);
        let repo = ctx.git().repo(&from_text(&job.repo_key));
        let _guard = ctx.registry.lock(&job.repo_key).await?;
        if let RefUpdate::Lost { .. } =
            repo.update_ref(&branch_ref(&job.branch), &from, Expected::Is(to), &back).await?
        {
            tracing::debug!(job = job.job_id, "the branch had not been moved");
        }
    }
    Ok(())
}

fn moved_away(job: &Job) -> Block {
    let message = format!("the branch `{}` moved while it was landing; nothing was landed, land again", job.branch);
    Block::new(BlockReason::BranchMoved, Code::BranchMoved, message)
}

/// The frozen tip, and the commit that it is rebased onto.
fn rebase_ends(job: &Job) -> Result<(Sha, Sha)> {
    Ok((
        required("head_sha", job.head_sha.as_ref())?,
        required("recorded_target_sha", job.recorded_target_sha.as_ref())?,
    ))
}

fn after_rebase(job: &Job, outcome: RebaseOutcome) -> Event {
    match outcome {
        RebaseOutcome::Done { head } => Event::Rebased { head: head.to_string() },
        RebaseOutcome::Moved { kept } => {
            let mut block = moved_away(job);
            if let Some(kept) = kept {
                block.message.push_str(&format!("; what was committed meanwhile is also kept in {kept}"));
            }
            Event::Blocked(block)
        }
        RebaseOutcome::Conflict { files } => Event::Blocked(decide::conflict(job, texts(&files))),
        RebaseOutcome::Failed { message } => failed(format!(
            "git could not rebase `{}` onto `{}`: {message}; settle it in {} and land again",
            job.branch, job.target_branch, job.worktree_path
        )),
    }
}

/// Moves the target by compare-and-swap, then the checkouts of it; takes the target back when one of them refuses.
async fn swap(ctx: &Context, job: &Job, seen: &Observed, carried: &mut Option<Carried>) -> Result<Effect> {
    let repo = &seen.repo;
    let from = required("recorded_target_sha", job.recorded_target_sha.as_ref())?;
    let to = required("rebased_sha", job.rebased_sha.as_ref())?;
    if job.test_cmd.is_some() && job.test_passed_sha != job.rebased_sha {
        return Err(Error::new(
            Code::RecordUnreadable,
            format!("{} would land a commit that was not gated; nothing was landed", job.job_id),
        ));
    }
    if !repo.is_ancestor(&from, &to).await? {
        return Err(Error::new(
            Code::RecordUnreadable,
            format!("{} would move `{}` backwards; nothing was landed", job.job_id, job.target_branch),
        ));
    }
    let guard = ctx.registry.lock(&job.repo_key).await?;
    let cleared = match &seen.tree {
        Some((tree, _)) if job.needs_no_files() => {
            let work = unsaved_work::judge_landed(tree).await;
            if work.changed + work.untracked > 0 {
                return Ok(Some(Event::Blocked(decide::uncommitted(job, work.changed, work.untracked))));
            }
            // Anything else keeps the worktree, and is told when it is judged again.
            work.clear_landed(&landed_tip(job, seen)?).ok()
        }
        _ => None,
    };
    for path in &job.target_checkouts {
        // Seen beforehand, so that the target is not moved only to be taken back.
        if let Ok(tree) = ctx.git().tree(&from_text(path))
            && let MoveOutcome::InTheWay { files } = tree.would_fast_forward(&from, &to).await?
        {
            return Ok(Some(Event::Blocked(Refusal::in_the_way(job, path, &files).into_block())));
        }
    }
    let name = branch_ref(&job.target_branch);
    let message = format!("worktree: {} landed {}", job.job_id, job.branch);
    match repo.update_ref(&name, &to, Expected::Is(from.clone()), &message).await? {
        RefUpdate::Done => {}
        // Looked at again: whoever moved it may have moved it to the gated commit.
        RefUpdate::Lost { .. } => return Ok(None),
    }
    let followed = follow(ctx, job, repo, &from, &to).await?;
    if followed == Event::Swapped {
        *carried = cleared.map(|cleared| Carried { guard, cleared });
    }
    Ok(Some(followed))
}

async fn catch_up(ctx: &Context, job: &Job, repo: &Repo) -> Result<Event> {
    let from = required("recorded_target_sha", job.recorded_target_sha.as_ref())?;
    let to = required("rebased_sha", job.rebased_sha.as_ref())?;
    let _guard = ctx.registry.lock(&job.repo_key).await?;
    if repo.branch_sha(&job.target_branch).await?.as_ref() != Some(&to) {
        // Somebody built on the landed commit already, and with it moved the checkouts.
        return Ok(Event::Swapped);
    }
    follow(ctx, job, repo, &from, &to).await
}

/// Brings every recorded checkout of the target from `from` to `to`; takes the target back when one of them refuses.
///
/// # Errors
/// git ran past its limit or could not be started: half of the files may be those of `to`, and doing it again repairs
/// that.
async fn follow(ctx: &Context, job: &Job, repo: &Repo, from: &Sha, to: &Sha) -> Result<Event> {
    let mut moved: Vec<Tree> = Vec::new();
    for path in &job.target_checkouts {
        let followed = match ctx.git().tree(&from_text(path)) {
            Ok(tree) => tree.fast_forward(from, to).await.map(|outcome| (tree, outcome)),
            Err(error) => Err(error),
        };
        let refused = match followed {
            Ok((tree, MoveOutcome::Moved)) => {
                moved.push(tree);
                continue;
            }
            Ok((_, MoveOutcome::InTheWay { files })) => Refusal::in_the_way(job, path, &files),
            Err(error) => {
                let error = Error::from(error);
                if matches!(error.code, Code::GitTimeout | Code::GitSpawn) {
                    return Err(error);
                }
                Refusal::fault(job, path, &error)
            }
        };
        for tree in moved {
            if let MoveOutcome::InTheWay { files } = tree.fast_forward(to, from).await? {
                tracing::warn!(root = %tree.root().display(), ?files, "a checkout of the target stays ahead");
            }
        }
        return take_back(job, repo, from, to, refused).await;
    }
    Ok(Event::Swapped)
}

/// Why a checkout of the target did not follow.
struct Refusal {
    message: String,
    files: Vec<String>,
}

impl Refusal {
    fn in_the_way(job: &Job, path: &str, files: &[PathBuf]) -> Self {
        let files = texts(files);
        let message = format!(
            "`{}` is checked out in {path} with changes in the way: {}; commit or move them there and land again",
            job.target_branch,
            files.join(", ")
        );
        Refusal { message, files }
    }

    fn fault(job: &Job, path: &str, error: &Error) -> Self {
        let message = format!(
            "`{}` is checked out in {path}, which could not be brought along: {error}; settle that and land again",
            job.target_branch
        );
        Refusal { message, files: Vec::new() }
    }

    fn into_block(self) -> Block {
        Block::new(BlockReason::TargetCheckedOutDirty, Code::TargetCheckedOut, self.message).with_files(self.files)
    }
}

/// Moves the target back to where it was. When somebody has moved it on meanwhile, it has landed.
async fn take_back(job: &Job, repo: &Repo, from: &Sha, to: &Sha, refused: Refusal) -> Result<Event> {
    let back = format!("worktree: {} taken back, a checkout did not follow", job.job_id);
    let name = branch_ref(&job.target_branch);
    if let RefUpdate::Lost { .. } = repo.update_ref(&name, from, Expected::Is(to.clone()), &back).await? {
        tracing::warn!(job = job.job_id, why = refused.message, "landed, but a checkout of the target was left behind");
        return Ok(Event::Swapped);
    }
    Ok(Event::Blocked(refused.into_block()))
}

/// What is true after a merge step was given up: nothing has landed, or the target is taken back, or it has landed.
///
/// # Errors
/// What git reports when even that cannot be told.
pub async fn settle_merge(job: &Job, repo: &Repo, error: &Error) -> Result<Event> {
    let from = required("recorded_target_sha", job.recorded_target_sha.as_ref())?;
    let to = required("rebased_sha", job.rebased_sha.as_ref())?;
    let given_up =
        || Refusal { message: format!("the target could not be moved: {error}; land again"), files: Vec::new() };
    match repo.branch_sha(&job.target_branch).await? {
        Some(target) if target == to => take_back(job, repo, &from, &to, given_up()).await,
        Some(target) if repo.is_ancestor(&to, &target).await? => Ok(Event::Swapped),
        _ => Ok(failed(given_up().message)),
    }
}

/// Removes the landed worktree and its branch, or says why it is kept.
async fn clean_up(
    ctx: &Arc<Context>,
    job: &Job,
    record: &Record,
    seen: &Observed,
    carried: Option<Carried>,
) -> Result<Effect> {
    if job.keep {
        return Ok(Some(Event::Finished { kept_reason: None }));
    }
    let merged = required("merged_sha", job.merged_sha.as_ref())?;
    if let Some((tree, entry)) = &seen.tree {
        let (_guard, cleared, judgement) = match carried {
            // Judged before the target moved.
            Some(Carried { guard, cleared }) => (guard, Ok(cleared), Judgement::Old),
            None => {
                let guard = ctx.registry.lock(&job.repo_key).await?;
                let landed = landed_tip(job, seen)?;
                if job.tree_behind && landed == merged {
                    // The branch has followed, so the files are to follow, too.
                    settle_files(job, seen, tree).await?;
                }
                // Judged in the same breath as the rename.
                (guard, unsaved_work::judge_landed(tree).await.clear_landed(&landed), Judgement::Fresh)
            }
        };
        let cleared = match cleared {
            Ok(cleared) => cleared,
            Err(kept) => return keep(job, seen, tree, kept).await.map(Some),
        };
        let details = json!({
            "job_id": job.job_id, "target_branch": job.target_branch, "merged_sha": merged,
            "backup_ref": remove::backup_ref(&job.worktree_id),
        });
        let why = (AuditAction::Finalize, details);
        let discarded = Box::pin(remove::discard_tree(ctx, record, (tree, entry), &cleared, why, judgement)).await;
        if let Ok(Some(added)) = discarded {
            return keep(job, seen, tree, added).await.map(Some);
        }
        if let Err(error) = discarded {
            if error.code.is_transient() {
                return Err(error);
            }
            if remove::is_left_in_trash(ctx, &record.worktree_id) {
                // Renamed, but not done with: looked at again, as after a crash there.
                return Ok(None);
            }
            let kept_reason = Some(format!("it could not be removed: {error}"));
            return Ok(Some(Event::Finished { kept_reason }));
        }
    } else if let Place::NotOurs(why) = &seen.facts.place {
        return Ok(Some(Event::Finished { kept_reason: Some(why.clone()) }));
    } else if remove::is_left_in_trash(ctx, &record.worktree_id) {
        // Cut off after its own rename.
        let _guard = ctx.registry.lock(&job.repo_key).await?;
        remove::finish_discard(ctx, record, seen.left_entry.as_ref())?;
    } else if seen.left_entry.is_some() {
        // It may come back, so its entry stays; without the record no sweep would look at that again.
        let kept_reason = format!("{} is gone; a prune takes away what git still knows of it", record.path);
        return Ok(Some(Event::Finished { kept_reason: Some(kept_reason) }));
    }
    delete_branch(ctx, job, seen, &merged).await?;
    Ok(Some(Event::Finished { kept_reason: None }))
}

/// The commit at which the branch holds nothing but what has landed: the landed one, or the one that was rebased.
fn landed_tip(job: &Job, seen: &Observed) -> Result<Sha> {
    let at_merged = seen.facts.tip.is_some() && seen.facts.tip == job.merged_sha;
    required("branch tip", if at_merged { job.merged_sha.as_ref() } else { job.expected_tip() })
}

/// Leaves the worktree to its owner. Where branch and files were left behind, they follow to the landed commit first, with
/// all changes kept.
async fn keep(job: &Job, seen: &Observed, tree: &Tree, why: String) -> Result<Event> {
    let mut kept_reason = why;
    if job.tree_behind
        && let Some(files) = settle_files(job, seen, tree).await?
    {
        kept_reason = format!(
            "{kept_reason}; the branch stays at the commits that were rebased, because {} would be overwritten: run git rebase {} there",
            files.join(", "),
            job.target_branch
        );
    }
    Ok(Event::Finished { kept_reason: Some(kept_reason) })
}

/// Has branch and files of a worktree, which were left behind, follow to the landed commit, unless its owner has gone
/// another way. Returns the files that are in the way.
async fn settle_files(job: &Job, seen: &Observed, tree: &Tree) -> Result<Option<Vec<String>>> {
    if tree.operation().is_some() || tree.head_branch()?.as_ref() != Some(&job.branch) {
        return Ok(None);
    }
    match bring_along(job, &seen.repo, tree).await? {
        Brought::Along { .. } | Brought::MovedAway => Ok(None),
        Brought::InTheWay { files } => Ok(Some(files)),
    }
}

/// Deletes the landed branch when it still is where the land has put or left it and nobody has it checked out.
async fn delete_branch(ctx: &Context, job: &Job, seen: &Observed, merged: &Sha) -> Result<()> {
    let repo = &seen.repo;
    if !ctx.settings().config.gates.allow_branch_delete {
        return Ok(());
    }
    if !repo.checkouts_of(&[&job.branch]).await?.is_empty() {
        return Ok(());
    }
    let Some(target) = repo.branch_sha(&job.target_branch).await? else { return Ok(()) };
    if target != *merged && !repo.is_ancestor(merged, &target).await? {
        return Ok(());
    }
    let tip = landed_tip(job, seen)?;
    let details = json!({
        "job_id": job.job_id, "branch": job.branch, "head_sha": tip, "merged_sha": merged,
        "kept_by": branch_ref(&job.target_branch),
    });
    let event = Audit::new(AuditAction::BranchDelete, details).about(&job.worktree_id, &job.repo_key);
    if let Err(error) = ctx.audit(event).await {
        tracing::warn!(job = job.job_id, branch = job.branch, %error, "the branch stays");
        return Ok(());
    }
    if let RefUpdate::Lost { current: Some(current) } = repo.delete_ref(&branch_ref(&job.branch), &tip).await? {
        tracing::warn!(job = job.job_id, branch = job.branch, %current, "the branch moved on, so it stays");
    }
    Ok(())
}
