//! How a worktree is made: registered with git, filled, recorded.
//!
//! All or nothing: what a failed create has made, it takes away again. Only the registration with git happens under
//! the lock of the repository; the checkout, which takes the time, runs side by side with others.
//!
//! Killed here → found at the next start → done:
//! - before there is a marker: a note of what was to be made (`intent`) → that is taken back.
//! - after the registration, before the record: an entry whose marker is not `ready` and whose process is gone → nobody
//!   was told of it, so it is taken away when nothing was changed in it.
//! - after the record: a complete worktree.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::repo_lock::RepoGuard;
use super::roll_back::{self, Parents};
use super::{Context, intent, marker};
use crate::git::admin::{self, AdminEntry};
use crate::git::{AddWorktree, GitError, HookOutcome, Repo, Sha, Tree, from_text};
use crate::model::config::Settings;
use crate::model::record::{Lifecycle, Record};
use crate::model::{Code, Error, Result};

/// Makes the worktree; after a failure nothing of it is left.
///
/// # Errors
/// `W102`, `W120`, `W121`, `W300`, `W504`, and what git reports.
pub async fn make(ctx: &Arc<Context>, settings: &Settings, repo: &Repo, record: &Record, base_sha: &Sha) -> Result<()> {
    let (entry, parents) = register(ctx, settings, repo, record, base_sha).await?;
    let completed = complete(ctx, record, &entry, base_sha).await;
    settle(ctx, repo, record, base_sha, &parents, completed.is_ok()).await;
    completed
}

/// The end of a create that has come as far as its marker: what a failed one has made is taken back, and the note goes
/// with it.
pub(super) async fn settle(
    ctx: &Arc<Context>,
    repo: &Repo,
    record: &Record,
    base_sha: &Sha,
    parents: &Parents,
    completed: bool,
) {
    if !completed {
        roll_back::worktree(ctx, repo, record, base_sha).await;
        parents.undo();
        if Path::new(&record.path).exists() {
            // It could not be taken back: the note stays with it.
            return;
        }
    }
    intent::settled(record);
}

/// Registers the worktree with git and marks it as ours, under the lock of the repository.
async fn register(
    ctx: &Context,
    settings: &Settings,
    repo: &Repo,
    record: &Record,
    base_sha: &Sha,
) -> Result<(AdminEntry, Parents)> {
    let guard = ctx.registry.lock(&record.repo_key).await?;
    // Again, now that nobody else can add one.
    require_budget(ctx, settings, &record.repo_key, &from_text(&record.repo_path))?;
    let (entry, parents) = add(&guard, repo, record, Some(&record.branch), base_sha).await?;
    match marker::write_unfinished(&entry, record) {
        Ok(()) => Ok((entry, parents)),
        Err(error) => {
            roll_back::worktree(ctx, repo, record, base_sha).await;
            parents.undo();
            intent::settled(record);
            Err(error)
        }
    }
}

/// Notes what is about to be made, and has git make it, without files. Nothing of it is left after a failure.
///
/// # Errors
/// `W102`, and what git reports.
pub(super) async fn add(
    guard: &RepoGuard,
    repo: &Repo,
    record: &Record,
    branch: Option<&str>,
    start: &Sha,
) -> Result<(AdminEntry, Parents)> {
    let place = Path::new(&record.path);
    if place.symlink_metadata().is_ok() {
        return Err(Error::new(
            Code::GitFailed,
            format!("{} is taken by something else; call create again", record.path),
        ));
    }
    let parents = Parents::make(place)?;
    if let Err(error) = intent::note(guard, record) {
        parents.undo();
        return Err(error);
    }
    let add = AddWorktree {
        path: place.to_owned(),
        branch: branch.map(str::to_owned),
        start: start.clone(),
        lock_reason: format!("iii worktree {}", record.worktree_id),
    };
    match repo.add_worktree(&add).await {
        Ok(entry) => Ok((entry, parents)),
        Err(error) => {
            parents.undo();
            intent::settled(record);
            Err(error.into())
        }
    }
}

/// Refuses when the repository has as many live worktrees as it may. Markers count those that are still being made; those
/// that nobody has asked for yet do not count.
///
/// # Errors
/// `W504`, `W102`.
pub(super) fn require_budget(ctx: &Context, settings: &Settings, repo_key: &str, repo_path: &Path) -> Result<()> {
    let most = settings.config.gates.max_worktrees_per_repo;
    if most == 0 {
        return Ok(());
    }
    let mut live: std::collections::BTreeSet<String> = ctx
        .registry
        .records()
        .into_iter()
        .filter(|r| r.repo_key == repo_key && super::inspect::lifecycle_now(r) != Lifecycle::Orphaned)
        .map(|r| r.worktree_id.clone())
        .collect();
    let entries = admin::entries(&from_text(repo_key)).map_err(|error| {
        Error::new(Code::GitFailed, format!("the worktrees of {repo_key} cannot be counted: {error}"))
    })?;
    for entry in entries.iter().filter(|entry| entry.gitdir.exists()) {
        let marker = marker::read(entry)?.filter(|marker| marker.pooled.is_none());
        live.extend(marker.map(|marker| marker.record.worktree_id));
    }
    let count = u64::try_from(live.len()).unwrap_or(u64::MAX);
    if count < most {
        return Ok(());
    }
    Err(Error::new(
        Code::BudgetReached,
        format!(
            "{} already has {count} of {most} worktrees (gates.max_worktrees_per_repo); land, remove or prune one first",
            repo_path.display()
        ),
    ))
}

/// Checks the files out, and does the rest.
async fn complete(ctx: &Arc<Context>, record: &Record, entry: &AdminEntry, base_sha: &Sha) -> Result<()> {
    let tree = ctx.git().tree(Path::new(&record.path))?;
    let (filled, hook) = tokio::join!(tree.checkout_fresh(), tree.post_checkout_hook());
    filled?;
    finish(ctx, record, (&tree, entry), hook, base_sha).await?;
    refresh_later(ctx, record);
    Ok(())
}

/// What comes after the files: runs the hook, stores the record, and says in the marker that the worktree is complete.
///
/// # Errors
/// `W102`, `W300`; there is no record then.
pub(super) async fn finish(
    ctx: &Arc<Context>,
    record: &Record,
    (tree, entry): (&Tree, &AdminEntry),
    hook: Result<Option<PathBuf>, GitError>,
    base_sha: &Sha,
) -> Result<()> {
    run_hook(tree, record, hook, base_sha).await;
    require_whole(ctx, record)?;
    let guard = ctx.registry.lock(&record.repo_key).await?;
    // Side by side, since each waits for the disk. Killed in between, the worktree is complete: a marker that is ready
    // gives it its record back, and a record makes its marker ready.
    let (entry, ours) = (entry.clone(), record.clone());
    let marked = tokio::task::spawn_blocking(move || marker::write(&entry, &ours, true));
    let (stored, marked) = tokio::join!(ctx.registry.put_record(&guard, record.clone()), marked);
    if let Err(error) = stored {
        roll_back::record(ctx, record);
        return Err(error);
    }
    let marked = marked.unwrap_or_else(|error| Err(Error::new(Code::GitFailed, error.to_string())));
    if let Err(error) = marked {
        ctx.registry.delete_record(&guard, &record.worktree_id).await?;
        return Err(error);
    }
    Ok(())
}

/// Refuses a worktree that is not what it was made as, whatever the hook said of itself.
fn require_whole(ctx: &Context, record: &Record) -> Result<()> {
    let (tree, _) = marker::require_tree(&ctx.git(), record)?;
    match tree.head_branch()? {
        Some(branch) if branch == record.branch => Ok(()),
        other => Err(Error::new(
            Code::GitFailed,
            format!(
                "the post-checkout hook left {} on {} instead of `{}`; repair the hook, then call create again",
                record.path,
                other.map_or_else(|| "no branch".to_owned(), |branch| format!("`{branch}`")),
                record.branch
            ),
        )),
    }
}

/// A hook that fails, or hangs until its limit, does not fail a create whose tree is complete.
async fn run_hook(tree: &Tree, record: &Record, hook: Result<Option<PathBuf>, GitError>, base_sha: &Sha) {
    let hook = match hook {
        Ok(hook) => hook,
        Err(error) => {
            tracing::warn!(worktree = record.worktree_id, %error, "the post-checkout hook could not be run");
            return;
        }
    };
    match tree.run_post_checkout(hook, base_sha).await {
        HookOutcome::Ok | HookOutcome::Missing | HookOutcome::Skipped => {}
        outcome => tracing::warn!(worktree = record.worktree_id, ?outcome, "the post-checkout hook did not succeed"),
    }
}

/// Right after a checkout every file is as old as the index, and git hashes all of them again at every status until
/// the index is written once more. Doing that a second later makes every later status several times faster.
pub(super) fn refresh_later(ctx: &Context, record: &Record) {
    const UNTIL_NOT_RACY: std::time::Duration = std::time::Duration::from_millis(1_100);
    let (git, root) = (ctx.git().in_background(), PathBuf::from(&record.path));
    tokio::spawn(async move {
        tokio::time::sleep(UNTIL_NOT_RACY).await;
        let refreshed = match git.tree(&root) {
            Ok(tree) => tree.refresh_index().await,
            Err(error) => Err(error),
        };
        if let Err(error) = refreshed {
            tracing::debug!(tree = %root.display(), %error, "the index was not refreshed");
        }
    });
}
