//! Looking after the pool of a repository: one task at a time, in the background.

use std::path::Path;
use std::sync::Arc;

use serde_json::json;

use super::fill::{self, Outcome};
use super::footprint::Footprint;
use super::{Base, Context, Held, Ready};
use crate::audit::{Action, Event};
use crate::git::admin::{self, AdminEntry, Link};
use crate::git::from_text;
use crate::model::id::repo_slug;
use crate::model::{Code, Error, Result};
use crate::worktrees::discard::Judgement;
use crate::worktrees::marker::{self, Marker};
use crate::worktrees::rebuild::Marked;
use crate::worktrees::repo_lock::is_alive;
use crate::worktrees::{create, discard, remove, unsaved_work, usage};

/// Has the pool of a repository looked after, now or once more.
pub(super) fn wake(ctx: &Arc<Context>, repo_key: &str) {
    let is_off = ctx.settings().config.pool.size == 0;
    let begins = ctx.pool.shelf(repo_key, |shelf| {
        if is_off && shelf.ready.is_empty() && shelf.doubtful.is_empty() {
            return false;
        }
        let begins = !shelf.tending;
        (shelf.tending, shelf.again) = (true, true);
        begins
    });
    if !begins {
        return;
    }
    let (background, ctx, key) = (ctx.clone(), ctx.clone(), repo_key.to_owned());
    background.background.spawn(async move {
        tokio::select! {
            () = ctx.pool.stopped() => {}
            () = rounds(&ctx, &key) => {}
        }
    });
}

async fn rounds(ctx: &Arc<Context>, key: &str) {
    while ctx.pool.shelf(key, |shelf| {
        shelf.tending = shelf.again;
        std::mem::take(&mut shelf.again)
    }) {
        if let Err(error) = round(ctx, key).await {
            tracing::warn!(repo_key = key, code = %error.code, %error, "the pool is looked after again later");
        }
    }
}

/// How many worktrees should stand ready.
fn wanted(ctx: &Context, key: &str) -> usize {
    let settings = ctx.settings();
    let allowed = ctx.pool.shelf(key, |shelf| {
        settings.require_repo(&shelf.repo_path).is_ok() && shelf.root.as_ref() == Some(&settings.root)
    });
    if allowed { usize::try_from(settings.config.pool.size).unwrap_or(0) } else { 0 }
}

async fn round(ctx: &Arc<Context>, key: &str) -> Result<()> {
    ctx.pool.quiet().await;
    while let Some((doubtful, _held)) = Held::take(ctx, key, |shelf| shelf.doubtful.pop()) {
        settle(ctx, key, &doubtful, fill::repair(ctx, doubtful.clone()).await).await?;
    }
    take_away_surplus(ctx, key).await?;
    let size = wanted(ctx, key);
    let Some(base) = ctx.pool.shelf(key, |shelf| shelf.base.clone()).filter(|_| size > 0) else { return Ok(()) };
    let (name, sha) = create::resolve_base(&base.found, Some(&base.name)).await?;
    let is_old = |ready: &Ready| ready.record.base_sha != sha.as_str();
    while let Some((old, _held)) = Held::take(ctx, key, |shelf| {
        let at = shelf.ready.iter().position(is_old)?;
        Some(shelf.ready.remove(at))
    }) {
        settle(ctx, key, &old, fill::bring_up(ctx, old.clone(), (&name, &sha)).await).await?;
    }
    while lacks(ctx, key) && !is_declined(ctx, key, sha.as_str()) {
        ctx.pool.quiet().await;
        if usage::check_quota(ctx).await.is_some() {
            return Ok(());
        }
        let repo_path = ctx.pool.shelf(key, |shelf| shelf.repo_path.clone());
        match fill::make(ctx, &repo_path, key, (&name, &sha)).await? {
            Outcome::Declined(why) => {
                tracing::info!(repo_key = key, why, "no worktrees of this repository are made beforehand");
                ctx.pool.shelf(key, |shelf| shelf.declined = Some(sha.to_string()));
            }
            Outcome::Ready(ready) => ctx.pool.put_back(ready),
            Outcome::Changed(ready, what) => keep_changed(ctx, key, &ready, &what),
            Outcome::Outdated(_) => {}
        }
    }
    Ok(())
}

/// Whether a worktree is missing in the pool. One that has changed keeps its place, so that their number stays bounded.
fn lacks(ctx: &Context, key: &str) -> bool {
    let size = wanted(ctx, key);
    let place = ctx.settings().root.join(repo_slug(key));
    ctx.pool.shelf(key, |shelf| {
        shelf.changed.retain(|id| place.join(id).exists());
        shelf.ready.len() + shelf.doubtful.len() + shelf.changed.len() < size
    })
}

fn is_declined(ctx: &Context, key: &str, sha: &str) -> bool {
    ctx.pool.shelf(key, |shelf| shelf.declined.as_deref() == Some(sha))
}

/// Puts a worktree where it belongs after it was looked at. When that or the look failed, it is looked at again.
async fn settle(ctx: &Arc<Context>, key: &str, before: &Ready, looked: Result<Outcome>) -> Result<()> {
    let settled = match looked {
        Ok(Outcome::Ready(ready)) => {
            ctx.pool.put_back(ready);
            Ok(())
        }
        Ok(Outcome::Outdated(ready)) => take_away(ctx, &ready, true).await,
        Ok(Outcome::Changed(ready, what)) => {
            keep_changed(ctx, key, &ready, &what);
            Ok(())
        }
        Ok(Outcome::Declined(_)) => take_away(ctx, before, true).await,
        Err(error) => Err(error),
    };
    if settled.is_err() {
        ctx.pool.doubt(before.clone());
    }
    settled
}

fn keep_changed(ctx: &Context, key: &str, ready: &Ready, what: &str) {
    let path = &ready.record.path;
    tracing::warn!(
        path,
        what,
        "a worktree that was made for the pool was changed by somebody; it is never handed out \
        and stays: look at it, then `git worktree remove --force --force` takes it away"
    );
    ctx.pool.shelf(key, |shelf| shelf.changed.insert(ready.record.worktree_id.clone()));
}

/// Takes away what is too much, lies elsewhere than configured, or was written under other conditions.
async fn take_away_surplus(ctx: &Arc<Context>, key: &str) -> Result<()> {
    let (size, root) = (wanted(ctx, key), ctx.settings().root.clone());
    let conditions = if size > 0 && ctx.pool.shelf(key, |shelf| !shelf.ready.is_empty()) {
        Some(ctx.git().in_background().repo(&from_text(key)).conditions().await?.digest)
    } else {
        None
    };
    while let Some((surplus, _held)) = Held::take(ctx, key, |shelf| {
        let unfit = |ready: &Ready| {
            !Path::new(&ready.record.path).starts_with(&root)
                || conditions.as_ref().is_some_and(|conditions| *conditions != ready.conditions)
        };
        let too_many = (shelf.ready.len() > size).then_some(0);
        let at = shelf.ready.iter().position(unfit).or(too_many)?;
        Some(shelf.ready.remove(at))
    }) {
        let outdated = Ok(Outcome::Outdated(surplus.clone()));
        settle(ctx, key, &surplus, outdated).await?;
    }
    Ok(())
}

/// Takes a pooled worktree away, unless something in it changed. One that is not complete may lack files.
///
/// # Errors
/// `W600`, `W222`, and what git reports; it stays then, and the next sweep looks at it again.
pub(super) async fn take_away(ctx: &Arc<Context>, ready: &Ready, complete: bool) -> Result<()> {
    let Ready { record, entry, .. } = ready;
    let _guard = ctx.registry.lock(&record.repo_key).await?;
    if !is_pooled_still(entry, &record.worktree_id)? {
        return Ok(());
    }
    let tree = ctx.git().tree(Path::new(&record.path))?;
    // The checkout of a process that was killed may still be going on.
    remove::require_idle(record).await?;
    tree.index_if_missing().await?;
    match unsaved_work::judge(record, &tree).await.clear_pooled(&fill::base_of(record)?, complete) {
        Ok(cleared) => {
            let details = json!({"complete": complete});
            let why = (Action::Drain, details);
            discard::discard_tree(ctx, record, (&tree, entry), &cleared, why, Judgement::Fresh).await.map(drop)
        }
        Err(what) => {
            keep_changed(ctx, &record.repo_key, ready, &what);
            Ok(())
        }
    }
}

fn is_pooled_still(entry: &AdminEntry, worktree_id: &str) -> Result<bool> {
    let marker = marker::read(entry)?;
    Ok(marker.is_some_and(|marker| marker.pooled.is_some() && marker.record.worktree_id == worktree_id))
}

/// Takes over the pooled worktrees that a process has left which is gone: what is complete is looked at and kept while
/// the pool is wanted, what is half made is taken away.
pub(in crate::worktrees) async fn adopt(ctx: &Arc<Context>, found: &[Marked]) {
    for pooled in found.iter().filter(|one| one.marker.pooled.is_some()) {
        // Somebody may have asked for it since it was looked at.
        let Ok(Some(Marked { repo_key: key, entry, marker })) = pooled.again() else { continue };
        if marker.pooled.is_none() || is_kept(ctx, &key, &marker) {
            continue;
        }
        if let Err(error) = adopt_one(ctx, &key, entry, marker).await {
            tracing::warn!(repo_key = key, code = %error.code, %error, "a pooled worktree is left as it is");
        }
    }
    super::wake_all(ctx);
}

/// Whether this process, or another one that lives, looks after it already.
fn is_kept(ctx: &Context, key: &str, marker: &Marker) -> bool {
    let id = &marker.record.worktree_id;
    let is = |ready: &Ready| ready.record.worktree_id == *id;
    let ours = |shelf: &mut super::Shelf| {
        shelf.held.contains(id)
            || shelf.ready.iter().any(is)
            || shelf.doubtful.iter().any(is)
            || shelf.changed.contains(id)
    };
    let others = marker.creator.is_some_and(|pid| pid != std::process::id() && is_alive(pid));
    others || ctx.pool.shelf(key, ours)
}

async fn adopt_one(ctx: &Arc<Context>, key: &str, entry: AdminEntry, marker: Marker) -> Result<()> {
    let (record, pooled) = (marker.record, marker.pooled.unwrap_or_default());
    let place = ctx.settings().root.join(repo_slug(key)).join(&record.worktree_id);
    if record.repo_key != key || from_text(&record.path) != place {
        return Ok(());
    }
    let failed = |error: std::io::Error| Error::new(Code::GitFailed, format!("{}: {error}", record.path));
    match admin::verify_link(&from_text(key), &place).map_err(failed)? {
        Link::Intact(found) if found.name == entry.name => {}
        Link::DirectoryGone { entry: Some(found) } if found.name == entry.name => {
            let visible = place.parent().is_some_and(Path::is_dir);
            if visible {
                let _guard = ctx.registry.lock(key).await?;
                let details = json!({"path": record.path, "entry": entry.dir});
                ctx.audit(Event::new(Action::Drain, details).about(&record.worktree_id, key)).await?;
                discard::drop_entry(&record, &entry)?;
            }
            return Ok(());
        }
        _ => return Ok(()),
    }
    let complete = pooled.ready_at.is_some() || pooled.moving_to.is_some();
    let ready = Ready { record, entry, footprint: Footprint::default(), listener: None, conditions: pooled.conditions };
    let _held = Held::new(ctx, &ready.record);
    if !complete {
        return take_away(ctx, &ready, false).await;
    }
    let repo_path = from_text(&ready.record.repo_path);
    let base = match ctx.git().discover(&repo_path).await {
        Ok(found) => Some(Base { found, name: ready.record.base_ref.clone() }),
        Err(_) => None,
    };
    ctx.pool.shelf(key, |shelf| {
        shelf.repo_path = repo_path;
        shelf.root = Some(ctx.settings().root.clone());
        shelf.base = shelf.base.take().or(base);
        shelf.doubtful.push(ready);
    });
    Ok(())
}
