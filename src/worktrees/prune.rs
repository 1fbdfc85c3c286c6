//! `worktree::prune`: takes away what is finished, and sets right what was left half done.
//!
//! A worktree goes only when it is unclaimed, idle, clean, quiet and holds no commits that its target lacks. Everything
//! else is skipped with its reason, and one record that cannot be judged never stops the sweep.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::marker::{self, Identity};
use super::{Context, inspect, rebuild, remove, request, trash, unsaved_work};
use crate::git::admin::{self, AdminEntry};
use crate::git::{Sha, Tree};
use crate::model::event::Event;
use crate::model::record::{Lifecycle, Record};
use crate::model::{Error, Result};

/// One hour in milliseconds.
const HOUR_MS: i64 = 3_600_000;
/// Age in seconds from which on an entry of the trash is swept.
const TRASH_AGE_S: i64 = 24 * 3600;

/// What to sweep.
#[derive(Debug, Default, Deserialize, JsonSchema)]
pub struct Request {
    /// Only the worktrees of this repository; all when left out.
    #[serde(default)]
    pub repo_path: Option<String>,
    /// Only say what would be done.
    #[serde(default)]
    pub dry_run: bool,
}

/// A worktree that stays.
#[derive(Debug, Serialize, JsonSchema)]
pub struct PruneSkip {
    /// Its id.
    pub id: String,
    /// Why it stays.
    pub reason: String,
}

/// What the sweep did, or would do.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Response {
    /// The ids of the worktrees that went, or whose record did because the directory was gone.
    pub pruned: Vec<String>,
    /// The worktrees that stay.
    pub skipped: Vec<PruneSkip>,
}

/// Sweeps.
///
/// # Errors
/// `W001`, `W500` when pruning is switched off (the trash is swept all the same), `W110` for a `repo_path` outside any
/// repository.
pub async fn run(ctx: &Arc<Context>, request: Request) -> Result<Response> {
    if !request.dry_run {
        sweep_trash(ctx).await;
    }
    ctx.settings().require_gate("allow_prune", "worktree::prune")?;
    let key = match &request.repo_path {
        Some(path) => {
            let path = request::absolute_path("repo_path", path)?;
            Some(ctx.git().discover(&path).await.map_err(Error::from)?.repo.key())
        }
        None => None,
    };
    if !request.dry_run {
        rebuild::run(ctx, key.as_deref()).await;
    }
    let mut response = Response { pruned: Vec::new(), skipped: Vec::new() };
    let records = ctx.registry.records().into_iter();
    for record in records.filter(|record| key.as_ref().is_none_or(|key| record.repo_key == *key)) {
        let id = record.worktree_id.clone();
        match sweep_one(ctx, record, request.dry_run).await {
            Ok(()) => response.pruned.push(id),
            Err(reason) => response.skipped.push(PruneSkip { id, reason }),
        }
    }
    for error in ctx.registry.unreadable() {
        tracing::warn!(%error, "left alone by the sweep");
    }
    Ok(response)
}

/// What the sweep may do with a worktree.
enum Verdict {
    /// Take it away: everything it holds is elsewhere.
    Remove(Tree, AdminEntry, Sha),
    /// Its directory is gone: only bookkeeping is left.
    Reconcile(Option<AdminEntry>),
}

async fn sweep_one(ctx: &Arc<Context>, record: Record, dry_run: bool) -> Result<(), String> {
    // Judged first without the lock, so that a sweep keeps nobody waiting.
    let verdict = judge(ctx, &record).await?;
    if dry_run {
        return Ok(());
    }
    let guard = ctx.registry.lock(&record.repo_key).await.map_err(|error| error.message)?;
    let record = ctx.registry.record(&record.worktree_id).map_err(|error| error.message)?;
    let verdict = match verdict {
        Verdict::Remove(..) => judge(ctx, &record).await?,
        reconcile @ Verdict::Reconcile(_) => reconcile,
    };
    let branch_deleted = take(ctx, &record, verdict).await.map_err(|error| error.message)?;
    ctx.registry.delete_record(&guard, &record.worktree_id).await.map_err(|error| error.message)?;
    drop(guard);
    ctx.events.emit(&Event::removed(&record, branch_deleted, false, ctx.now()));
    Ok(())
}

async fn take(ctx: &Arc<Context>, record: &Record, verdict: Verdict) -> Result<bool> {
    match verdict {
        Verdict::Remove(tree, entry, head) => {
            remove::discard_tree(ctx, record, &tree, &entry, false).await?;
            let may_delete = ctx.settings().config.gates.allow_branch_delete;
            Ok(may_delete && remove::delete_branch(ctx, record, Some(&head), true, false).await)
        }
        Verdict::Reconcile(entry) => {
            if let Some(entry) = entry {
                remove::drop_entry(record, &entry)?;
            }
            Ok(false)
        }
    }
}

/// Whether a worktree may go; the reason when it may not.
async fn judge(ctx: &Context, record: &Record) -> Result<Verdict, String> {
    if let Some(job) = ctx.registry.live_job(&record.worktree_id) {
        return Err(format!("landing ({})", job.job_id));
    }
    match record.lifecycle {
        Lifecycle::Landing => return Err("landing".to_owned()),
        Lifecycle::LandBlocked => return Err("land-blocked".to_owned()),
        Lifecycle::Active | Lifecycle::Claimed | Lifecycle::Orphaned => {}
    }
    if inspect::lifecycle_now(record) == Lifecycle::Orphaned {
        return reconcile(record);
    }
    if let Some(session) = &record.session_id {
        return Err(format!("claimed by session `{session}`"));
    }
    let expire_hours = i64::try_from(ctx.settings().config.prune_expire_hours).unwrap_or(i64::MAX);
    let idle_ms = ctx.now() - record.updated_at.max(last_touched(record));
    if idle_ms < expire_hours.saturating_mul(HOUR_MS) {
        return Err(format!("not expired: idle for {} of {expire_hours} hours", idle_ms.max(0) / HOUR_MS));
    }
    let (tree, entry) = match marker::identify(&ctx.git(), record) {
        Ok(Identity::Ours(tree, entry)) => (tree, entry),
        Ok(Identity::DirectoryGone(_)) => return reconcile(record),
        Err(error) => return Err(error.message),
    };
    let work = unsaved_work::judge(record, &tree).await;
    if !work.is_tidy() {
        return Err(format!("dirty: {}", work.describe()));
    }
    if !work.is_none() {
        return Err(format!("unmerged work: {}", work.describe()));
    }
    remove::require_idle(record).await.map_err(|error| format!("busy: {}", error.message))?;
    match work.head {
        Some(head) => Ok(Verdict::Remove(tree, entry, head)),
        None => Err("no commit is checked out".to_owned()),
    }
}

/// A record whose directory is gone, unless the place where it lay cannot be seen at all.
fn reconcile(record: &Record) -> Result<Verdict, String> {
    let parent = Path::new(&record.path).parent();
    if !parent.is_some_and(Path::is_dir) {
        return Err(format!("unreachable: {} is not there (not mounted?)", parent.unwrap_or(Path::new("/")).display()));
    }
    let entry = admin::entry_for(Path::new(&record.repo_key), Path::new(&record.path));
    let entry = entry.map_err(|error| format!("its entry in git cannot be read: {error}"))?;
    // Dropped only when it is ours: another worktree may have been registered at the same path.
    let ours = |entry: &AdminEntry| match marker::read(entry) {
        Ok(Some(marker)) => marker.record.worktree_id == record.worktree_id,
        Ok(None) | Err(_) => false,
    };
    Ok(Verdict::Reconcile(entry.filter(ours)))
}

/// When somebody last did something in the worktree, as far as git's own files tell: milliseconds since the epoch.
fn last_touched(record: &Record) -> i64 {
    let entry = admin::entry_for(Path::new(&record.repo_key), Path::new(&record.path)).ok().flatten();
    let Some(entry) = entry else { return 0 };
    let touched = ["index", "HEAD", "logs/HEAD"].iter().filter_map(|file| modified_ms(&entry.dir.join(file)));
    touched.max().unwrap_or(0)
}

fn modified_ms(path: &Path) -> Option<i64> {
    let modified = path.metadata().ok()?.modified().ok()?;
    let since = modified.duration_since(std::time::UNIX_EPOCH).ok()?;
    i64::try_from(since.as_millis()).ok()
}

/// Deletes entries of the trash that are older than a day: those that could not be deleted when they were made, and
/// those that a crash left.
async fn sweep_trash(ctx: &Arc<Context>) {
    let trash = ctx.settings().root.join(trash::TRASH);
    let now_s = ctx.now() / 1000;
    let old = |path: &PathBuf| {
        let name = path.file_name().and_then(trash::parse_name);
        name.is_some_and(|(_, second)| now_s - second >= TRASH_AGE_S)
    };
    let found: Vec<PathBuf> = match std::fs::read_dir(&trash) {
        Ok(entries) => entries.flatten().map(|entry| entry.path()).filter(old).collect(),
        Err(_) => return,
    };
    let swept = tokio::task::spawn_blocking(move || {
        for place in found {
            if let Err(error) = trash::delete(&place) {
                tracing::warn!(place = %place.display(), %error, "the trash entry stays for the next sweep");
            }
        }
    });
    if let Err(error) = swept.await {
        tracing::warn!(%error, "the trash was not swept");
    }
}
