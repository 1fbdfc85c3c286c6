//! Rebuilds the registry from the markers in git's admin entries.
//!
//! The engine acknowledges writes that it has not saved yet; after a crash of the engine, records may be missing. A
//! worktree that bears our marker gets its record back. Nothing else is ever taken in.
//!
//! Invariants
//! 1. Only a marker that says `ready`, in an entry whose two-way link is intact, becomes a record.
//! 2. A marker that is not `ready` belongs to a create that was cut off: its worktree is taken away when it holds
//!    nothing, and reported otherwise.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use super::marker::{self, Marker};
use super::{Context, remove, unsaved_work};
use crate::git::admin::{self, AdminEntry, Link};
use crate::model::Result;
use crate::model::record::{Lifecycle, Record};

/// How long a create may take before its unfinished worktree counts as cut off, in milliseconds.
const UNFINISHED_AFTER_MS: i64 = 600_000;

/// Looks through the repositories that are known, from records and from the directories below the worktree root.
pub async fn run(ctx: &Arc<Context>, only: Option<&str>) {
    for repo_key in known_repos(ctx).into_iter().filter(|key| only.is_none_or(|only| only == key)) {
        let entries = match admin::entries(Path::new(&repo_key)) {
            Ok(entries) => entries,
            Err(error) => {
                tracing::warn!(repo_key, %error, "the worktrees of a repository cannot be read");
                continue;
            }
        };
        for entry in entries {
            if let Err(error) = take_back(ctx, &repo_key, &entry).await {
                tracing::warn!(entry = %entry.dir.display(), code = %error.code, %error, "left as it is");
            }
        }
    }
}

/// Common directories of the repositories that have, or had, worktrees of ours.
fn known_repos(ctx: &Context) -> BTreeSet<String> {
    let mut keys: BTreeSet<String> = ctx.registry.records().into_iter().map(|record| record.repo_key).collect();
    let below = |dir: &Path| std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    for slug in below(&ctx.settings().root) {
        for worktree in below(&slug) {
            if let Ok(tree) = ctx.git().tree(&worktree) {
                keys.insert(tree.repo().key());
            }
        }
    }
    keys
}

async fn take_back(ctx: &Arc<Context>, repo_key: &str, entry: &AdminEntry) -> Result<()> {
    let Some(marker) = marker::read(entry)? else { return Ok(()) };
    let id = marker.record.worktree_id.clone();
    if ctx.registry.knows(&id) || marker.record.repo_key != repo_key {
        return Ok(());
    }
    let root = Path::new(&marker.record.path);
    let intact =
        matches!(admin::verify_link(Path::new(repo_key), root), Ok(Link::Intact(found)) if found.dir == entry.dir);
    if !intact {
        return Ok(());
    }
    if marker.ready { restore(ctx, marker.record).await } else { clear_unfinished(ctx, entry, &marker).await }
}

async fn restore(ctx: &Context, found: Record) -> Result<()> {
    let guard = ctx.registry.lock(&found.repo_key).await?;
    if ctx.registry.knows(&found.worktree_id) {
        return Ok(());
    }
    tracing::warn!(worktree = found.worktree_id, path = found.path, "a record that the store had lost is back");
    // Who held it, and whether it was landing, is lost with the record.
    let record = Record { lifecycle: Lifecycle::Active, session_id: None, updated_at: ctx.now(), ..found };
    ctx.registry.put_record(&guard, record).await
}

async fn clear_unfinished(ctx: &Arc<Context>, entry: &AdminEntry, marker: &Marker) -> Result<()> {
    let record = &marker.record;
    if ctx.now() - record.created_at < UNFINISHED_AFTER_MS {
        return Ok(());
    }
    let _guard = ctx.registry.lock(&record.repo_key).await?;
    let tree = ctx.git().tree(Path::new(&record.path))?;
    let work = unsaved_work::judge(record, &tree).await;
    // A checkout that was cut off shows its missing files as changes; only what was added counts here.
    let untouched = work.untracked == 0 && work.not_landed == 0 && work.operation.is_none() && work.unknown.is_empty();
    if !untouched {
        tracing::warn!(path = record.path, work = work.describe(), "an unfinished worktree holds something and stays");
        return Ok(());
    }
    tracing::info!(path = record.path, "an unfinished worktree is taken away");
    remove::discard_tree(ctx, record, &tree, entry, true).await?;
    remove::delete_branch(ctx, record, work.head.as_ref(), true, false).await;
    Ok(())
}
