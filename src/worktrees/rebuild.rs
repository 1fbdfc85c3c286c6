//! Rebuilds the registry from the markers in git's admin entries.
//!
//! The engine acknowledges writes that it has not saved yet; after a crash of the engine, records may be missing, and
//! after somebody put back an old copy of its store, they may be old. A worktree that bears our marker gets its record
//! back, with the claim and the base it had last. Nothing else is ever taken in.
//!
//! Invariants
//! 1. Only a marker that says `ready`, in an entry whose two-way link is intact, at the place below the worktree root
//!    that this worker gives to that id, becomes a record. A worker with another root does not take it.
//! 2. A marker that is newer than the record of its worktree replaces it.
//! 3. A marker that is not `ready` belongs to a create that was cut off: with a record its worktree is complete, and the
//!    marker says so from then on; without one it is taken away when it holds nothing, and reported otherwise.

use std::collections::{BTreeSet, HashSet};
use std::path::Path;
use std::sync::Arc;

use serde_json::json;

use super::discard::Judgement;
use super::marker::{self, Marker};
use super::repo_lock::is_alive;
use super::{Context, branch, discard, intent, pool, remove, unsaved_work};
use crate::audit::Action;
use crate::git::admin::{self, AdminEntry, Link};
use crate::git::from_text;
use crate::model::Result;
use crate::model::id::{is_worktree_id, repo_slug};
use crate::model::record::{Lifecycle, Record};

/// How long a create may take before its unfinished worktree counts as cut off although a process of that id lives, in
/// milliseconds.
const UNFINISHED_AFTER_MS: i64 = 600_000;

/// Gives back the records that the store has lost, or has only in an older form. Reads a few small files per worktree,
/// starts no process. With `only`, looks at that repository alone.
pub async fn restore_lost(ctx: &Arc<Context>, only: Option<&str>) {
    restore(ctx, &marked(&repos_of(ctx, only))).await;
}

/// Takes away what creates that were cut off have left, where it holds nothing, and looks after the pools that a process
/// has left.
pub async fn clear_unfinished(ctx: &Arc<Context>, only: Option<&str>) {
    let repos = repos_of(ctx, only);
    clear(ctx, &repos, &marked(&repos)).await;
}

/// [`restore_lost`], then [`clear_unfinished`], with one look at the entries.
pub async fn settle(ctx: &Arc<Context>, only: Option<&str>) {
    let repos = repos_of(ctx, only);
    let found = marked(&repos);
    restore(ctx, &found).await;
    clear(ctx, &repos, &found).await;
}

async fn restore(ctx: &Arc<Context>, found: &[Marked]) {
    for one in found.iter().filter(|one| is_newer(ctx, &one.marker)) {
        if let Err(error) = take_back(ctx, one).await {
            tracing::warn!(entry = %one.entry.dir.display(), code = %error.code, %error, "left as it is");
        }
    }
}

async fn clear(ctx: &Arc<Context>, repos: &[String], found: &[Marked]) {
    for repo_key in repos {
        if let Err(error) = intent::take_back(ctx, repo_key).await {
            tracing::warn!(repo_key, code = %error.code, %error, "what creates have left stays for the next time");
        }
    }
    for one in found.iter().filter(|one| !one.marker.ready && one.marker.pooled.is_none()) {
        if let Err(error) = clear_one(ctx, one).await {
            tracing::warn!(entry = %one.entry.dir.display(), code = %error.code, %error, "left as it is");
        }
    }
    pool::adopt(ctx, found).await;
}

/// One of git's entries that bears a marker.
pub(super) struct Marked {
    pub(super) repo_key: String,
    pub(super) entry: AdminEntry,
    pub(super) marker: Marker,
}

/// Git's entries that bear a marker, in these repositories. One that cannot be read is reported.
pub(super) fn marked(repos: &[String]) -> Vec<Marked> {
    let read = |(repo_key, entry): (String, AdminEntry)| match marker::read(&entry) {
        Ok(marker) => Some(Marked { repo_key, entry, marker: marker? }),
        Err(error) => {
            tracing::warn!(entry = %entry.dir.display(), code = %error.code, %error, "left as it is");
            None
        }
    };
    entries(repos).into_iter().filter_map(read).collect()
}

fn entries(repos: &[String]) -> Vec<(String, AdminEntry)> {
    let mut found = Vec::new();
    for repo_key in repos {
        match admin::entries(&from_text(repo_key)) {
            Ok(entries) => found.extend(entries.into_iter().map(|entry| (repo_key.clone(), entry))),
            Err(error) => tracing::warn!(repo_key, %error, "the worktrees of a repository cannot be read"),
        }
    }
    found
}

/// The repositories that are known; with `only`, that one alone, where it is.
pub(super) fn repos_of(ctx: &Context, only: Option<&str>) -> Vec<String> {
    known_repos(ctx).into_iter().filter(|key| only.is_none_or(|only| only == key)).collect()
}

/// Common directories of the repositories that have, or had, worktrees of ours, as records and the directories below the
/// worktree root tell.
#[must_use]
pub fn known_repos(ctx: &Context) -> BTreeSet<String> {
    let records = ctx.registry.records();
    let recorded: HashSet<&Path> = records.iter().map(|record| Path::new(&record.path)).collect();
    let mut keys: BTreeSet<String> = records.iter().map(|record| record.repo_key.clone()).collect();
    for (_, worktree) in places(ctx).into_iter().filter(|(_, worktree)| !recorded.contains(worktree.as_path())) {
        if let Ok(tree) = ctx.git().tree(&worktree) {
            keys.insert(tree.repo().key());
        }
    }
    keys
}

/// The directories below the worktree root that bear a worktree id, with that id.
#[must_use]
pub fn places(ctx: &Context) -> Vec<(String, std::path::PathBuf)> {
    let below = |dir: &Path| std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    let name = |path: &Path| path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
    let slugs = below(&ctx.settings().root).filter(|slug| !name(slug).starts_with('.'));
    let worktrees = slugs.flat_map(|slug| below(&slug).collect::<Vec<_>>());
    worktrees.map(|path| (name(&path), path)).filter(|(name, _)| is_worktree_id(name)).collect()
}

impl Marked {
    /// Whether this worker made it, as far as can be told (invariant 1).
    fn is_ours(&self, ctx: &Context) -> bool {
        let record = &self.marker.record;
        let place = ctx.settings().root.join(repo_slug(&self.repo_key)).join(&record.worktree_id);
        if !is_worktree_id(&record.worktree_id) || record.repo_key != self.repo_key || Path::new(&record.path) != place
        {
            return false;
        }
        let link = admin::verify_link(&from_text(&self.repo_key), &place);
        matches!(link, Ok(Link::Intact(found)) if found.name == self.entry.name)
    }

    /// The same entry as it is now, where it still bears a marker.
    pub(super) fn again(&self) -> Result<Option<Marked>> {
        let (repo_key, entry) = (self.repo_key.clone(), self.entry.clone());
        Ok(marker::read(&entry)?.map(|marker| Marked { repo_key, entry, marker }))
    }
}

/// Whether a marker tells more of its worktree than the registry does.
fn is_newer(ctx: &Context, marker: &Marker) -> bool {
    let id = &marker.record.worktree_id;
    marker.ready
        && match ctx.registry.record(id) {
            Ok(record) => record.age() < marker.record.age(),
            // What is there and cannot be read is left alone.
            Err(_) => !ctx.registry.knows(id),
        }
}

async fn take_back(ctx: &Arc<Context>, one: &Marked) -> Result<()> {
    if !one.is_ours(ctx) {
        return Ok(());
    }
    let guard = ctx.registry.lock(&one.repo_key).await?;
    // Read again under the lock: it may be in the middle of being removed, or have got its record meanwhile.
    let again = one.again()?.filter(|one| is_newer(ctx, &one.marker) && one.is_ours(ctx));
    let Some(found) = again.map(|one| one.marker.record) else { return Ok(()) };
    tracing::warn!(worktree = found.worktree_id, path = found.path, "a record that the store had lost is back");
    // Whether it was landing is for the jobs to say: the recovery settles that right after.
    let lifecycle = match found.lifecycle {
        Lifecycle::Orphaned => Lifecycle::at_rest(found.session_id.as_deref()),
        other => other,
    };
    ctx.registry.put_record(&guard, Record { lifecycle, ..found }).await
}

async fn clear_one(ctx: &Arc<Context>, one: &Marked) -> Result<()> {
    let Marked { entry, marker, .. } = one;
    let record = &marker.record;
    let cut_off = marker.creator.is_some_and(|pid| !is_alive(pid));
    let patient = ctx.now() - record.created_at >= UNFINISHED_AFTER_MS;
    if !(cut_off || patient) || !one.is_ours(ctx) {
        return Ok(());
    }
    let _guard = ctx.registry.lock(&record.repo_key).await?;
    // Its create may have come to its end while the lock was waited for.
    if one.again()?.is_none_or(|again| again.marker != *marker) {
        return Ok(());
    }
    if ctx.registry.knows(&record.worktree_id) {
        // Killed between the record and the last word in the marker: the worktree is complete.
        return match ctx.registry.record(&record.worktree_id) {
            Ok(stored) => marker::write(entry, &stored, true),
            Err(_) => Ok(()),
        };
    }
    let tree = ctx.git().tree(Path::new(&record.path))?;
    // The checkout of a process that was killed may still be going on.
    remove::require_idle(record).await?;
    tree.index_if_missing().await?;
    match unsaved_work::judge(record, &tree).await.clear_unfinished() {
        Ok(cleared) => {
            tracing::info!(path = record.path, "an unfinished worktree is taken away");
            let why = (Action::ClearUnfinished, json!({}));
            discard::discard_tree(ctx, record, (&tree, entry), &cleared, why, Judgement::Fresh).await?;
            branch::delete_branch(ctx, record, false).await;
            intent::settled(record);
        }
        Err(work) => tracing::warn!(path = record.path, work, "an unfinished worktree holds something and stays"),
    }
    Ok(())
}
