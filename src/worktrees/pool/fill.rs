//! Making a worktree for the pool, bringing it up to date, and looking whether it is as it was made.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::footprint::{self, Footprint};
use super::listen::Listener;
use super::{Context, Held, Ready, tend};
use crate::git::{Advance, Sha, Tree, from_text, to_text};
use crate::model::id::{dev_port, repo_slug};
use crate::model::record::{Lifecycle, RECORD_FORMAT, Record};
use crate::model::{Code, Error, Result};
use crate::worktrees::marker::{self, Pooled};
use crate::worktrees::{intent, making, unsaved_work};

/// After this time the index is younger than all files, and git need not read them to know that they are unchanged.
const UNTIL_NOT_RACY: Duration = Duration::from_millis(1_100);

/// What came of looking after one worktree.
pub(super) enum Outcome {
    /// It may be handed out.
    Ready(Ready),
    /// It is as it was made, and not what is wanted any more: a new one is better.
    Outdated(Ready),
    /// Something in it changed: what, in words.
    Changed(Ready, String),
    /// Worktrees of this repository cannot be made beforehand: why.
    Declined(String),
}

/// The tree of a pooled worktree, for work that nobody waits for.
fn tree_of(ctx: &Context, record: &Record) -> Result<Tree> {
    Ok(ctx.git().in_background().tree(Path::new(&record.path))?)
}

pub(super) fn base_of(record: &Record) -> Result<Sha> {
    let unreadable = |_| {
        let why = format!("the marker of {} names no commit: `{}`", record.worktree_id, record.base_sha);
        Error::new(Code::RecordUnreadable, why)
    };
    record.base_sha.parse().map_err(unreadable)
}

/// Makes a worktree of `base`, which was named `name`.
///
/// # Errors
/// `W102`, `W300`, `W503`, and what git reports; what was made is taken away again.
pub(super) async fn make(
    ctx: &Arc<Context>,
    repo_path: &Path,
    repo_key: &str,
    (name, base): (&str, &Sha),
) -> Result<Outcome> {
    // Not in the background: what is done under the lock must not be slow.
    let repo = ctx.git().repo(&from_text(repo_key));
    let conditions = repo.conditions().await?;
    if let Some(why) = conditions.incomparable {
        return Ok(Outcome::Declined(why));
    }
    let worktree_id = format!("wt_{}", ctx.ids.next_hex12());
    let now = ctx.now();
    let record = Record {
        format: RECORD_FORMAT,
        repo_path: to_text(repo_path),
        repo_key: repo_key.to_owned(),
        path: to_text(&ctx.settings().root.join(repo_slug(repo_key)).join(&worktree_id)),
        branch: String::new(),
        base_ref: name.to_owned(),
        base_sha: base.to_string(),
        lifecycle: Lifecycle::Active,
        session_id: None,
        dev_port: dev_port(&worktree_id),
        created_at: now,
        updated_at: now,
        fence: 0,
        worktree_id,
    };
    let _held = Held::new(ctx, &record);
    let pooled = Pooled { conditions: conditions.digest.clone(), ..Pooled::default() };
    let entry = {
        let guard = ctx.registry.lock(repo_key).await?;
        let (entry, _) = making::add(&guard, &repo, &record, None, base).await?;
        marker::write_pooled(&entry, &record, &pooled)?;
        intent::settled(&record);
        entry
    };
    let ready = Ready { record, entry, footprint: Footprint::default(), listener: None, conditions: conditions.digest };
    let filled = fill(ctx, &ready).await;
    if !matches!(filled, Ok(Outcome::Ready(_) | Outcome::Changed(..))) {
        tend::take_away(ctx, &ready, false).await?;
    }
    filled
}

async fn fill(ctx: &Context, ready: &Ready) -> Result<Outcome> {
    let tree = tree_of(ctx, &ready.record)?;
    tree.checkout_fresh().await?;
    if tree.has_submodules().await? {
        return Ok(Outcome::Declined("it has submodules".to_owned()));
    }
    settle(ctx, ready.clone()).await
}

/// After files were written: has the index be younger than they are, and looks at all of it.
async fn settle(ctx: &Context, ready: Ready) -> Result<Outcome> {
    tokio::time::sleep(UNTIL_NOT_RACY).await;
    tree_of(ctx, &ready.record)?.refresh_index().await?;
    look(ctx, ready).await
}

/// Looks at a worktree whose files should be those of its commit.
async fn look(ctx: &Context, ready: Ready) -> Result<Outcome> {
    let tree = tree_of(ctx, &ready.record)?;
    // First, so that what changes while git looks is seen later.
    let footprint = footprint_of(&ready).await?;
    let base = base_of(&ready.record)?;
    if let Err(what) = unsaved_work::judge(&ready.record, &tree).await.clear_pooled(&base, true) {
        return Ok(Outcome::Changed(ready, what));
    }
    let pooled = Pooled { ready_at: Some(ctx.now()), conditions: ready.conditions.clone(), moving_to: None };
    marker::write_pooled(&ready.entry, &ready.record, &pooled)?;
    if tree.repo().conditions().await?.digest != ready.conditions {
        return Ok(Outcome::Outdated(ready));
    }
    let (root, entry) = (from_text(&ready.record.path), ready.entry.dir.clone());
    let listener = tokio::task::spawn_blocking(move || Listener::begin(&root, &entry)).await.ok().flatten();
    // What changed before the listener began is not heard.
    let since_then = if listener.is_some() { footprint_of(&ready).await.ok() } else { None };
    let listener = listener.filter(|_| since_then == Some(footprint)).map(Arc::new);
    Ok(Outcome::Ready(Ready { footprint, listener, ..ready }))
}

/// Whether nothing in a worktree has changed since it was looked at.
pub(super) async fn is_unchanged(ready: &Ready) -> bool {
    if ready.listener.as_ref().is_some_and(|listener| listener.is_quiet()) {
        return true;
    }
    footprint_of(ready).await.is_ok_and(|now| now == ready.footprint)
}

/// The footprint of a worktree at this moment.
///
/// # Errors
/// `W102` when something in it cannot be looked at.
async fn footprint_of(ready: &Ready) -> Result<Footprint> {
    let (root, entry) = (ready.record.path.clone(), ready.entry.dir.clone());
    let taken = tokio::task::spawn_blocking(move || footprint::of(&from_text(&root), &entry)).await;
    taken.unwrap_or_else(|error| Err(std::io::Error::other(error))).map_err(|error| {
        Error::new(Code::GitFailed, format!("{} cannot be looked through: {error}", ready.record.path))
    })
}

/// Brings a worktree in which nothing has changed to another commit.
///
/// # Errors
/// What git reports; [`repair`] finishes it.
pub(super) async fn advance(ctx: &Context, ready: &mut Ready, (name, new): (&str, &Sha)) -> Result<Advance> {
    let old = base_of(&ready.record)?;
    let tree = ctx.git().tree(Path::new(&ready.record.path))?;
    let moving_to = Some(new.to_string());
    let moving = Pooled { ready_at: None, conditions: ready.conditions.clone(), moving_to };
    marker::write_pooled(&ready.entry, &ready.record, &moving)?;
    let advanced = tree.advance(&old, new).await?;
    if advanced == Advance::Done {
        name.clone_into(&mut ready.record.base_ref);
        ready.record.base_sha = new.to_string();
    }
    Ok(advanced)
}

/// [`advance`], and looks at it afterwards.
///
/// # Errors
/// What git reports; [`repair`] finishes it.
pub(super) async fn bring_up(ctx: &Context, mut ready: Ready, base: (&str, &Sha)) -> Result<Outcome> {
    match advance(ctx, &mut ready, base).await? {
        Advance::Done => settle(ctx, ready).await,
        Advance::Unsuitable => Ok(Outcome::Outdated(ready)),
        Advance::InTheWay(files) => Ok(Outcome::Changed(ready, format!("{} files in the way", files.len()))),
    }
}

/// Looks at a worktree of which nothing is known but its marker, and finishes what was cut off.
///
/// # Errors
/// What git reports.
pub(super) async fn repair(ctx: &Context, ready: Ready) -> Result<Outcome> {
    let pooled = marker::read(&ready.entry)?.and_then(|marker| marker.pooled);
    match pooled.and_then(|pooled| pooled.moving_to) {
        Some(new) => {
            let name = ready.record.base_ref.clone();
            let new = base_of(&Record { base_sha: new, ..ready.record.clone() })?;
            bring_up(ctx, ready, (&name, &new)).await
        }
        None => look(ctx, ready).await,
    }
}
