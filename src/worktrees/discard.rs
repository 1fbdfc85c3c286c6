//! How the directory of a worktree goes: told in the audit log, kept where it was forced, renamed into the trash, its
//! entry dropped, deleted.
//!
//! Invariants
//! 1. Nothing goes without a [`Cleared`], and nothing before the audit log has it on the disk (`W600` otherwise).
//! 2. What goes by force is kept for `retention_hours`: its commits in backup refs, the rest beside its directory in
//!    the trash ([`kept`]). That is written before anything moves.
//! 3. Where the directory cannot be renamed, git's own removal is all that is tried, no stronger than what the caller
//!    asked for.
//! 4. What was judged some time ago ([`Judgement::Old`]) is judged again in the trash, where nobody can add anything by its
//!    path any more; when something was added meanwhile, it goes back to its place.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Value, json};

use super::kept::{self, Kept};
use super::unsaved_work::{self, Cleared};
use super::{Context, branch, trash};
use crate::audit::{Action, Event};
use crate::fault;
use crate::git::admin::{self, AdminEntry};
use crate::git::{Tree, from_text};
use crate::model::record::Record;
use crate::model::{Code, Error, Result};

/// For how long something is kept at least that cannot go back to its place.
const LEAST_HOURS: u64 = 24;

/// How old the judgement is on which a worktree goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Judgement {
    /// Made right before.
    Fresh,
    /// Made some time ago: the worktree is judged once more (invariant 4).
    Old,
}

/// Takes the directory and the entry of a worktree away. `action` says why; `details` go into the audit log beside
/// what is known here. Returns what was added since an old judgement; the worktree is then as it was, with that in it.
///
/// # Errors
/// `W600` when the audit log cannot tell of it, `W102` when what restores it cannot be kept, or when neither the rename
/// nor git's own removal works; the worktree is then as it was. `W102` also when it could not be put back: it is kept in
/// the trash then.
pub async fn discard_tree(
    ctx: &Arc<Context>,
    record: &Record,
    (tree, entry): (&Tree, &AdminEntry),
    cleared: &Cleared,
    (action, details): (Action, Value),
    judgement: Judgement,
) -> Result<Option<String>> {
    let settings = ctx.settings();
    let place = trash::place(&settings.root, &record.worktree_id, ctx.now())
        .map_err(|error| Error::new(Code::GitFailed, format!("the trash cannot be used: {error}")))?;
    let hours = settings.config.retention_hours;
    let kept = if cleared.forced() && hours > 0 {
        Some(what_is_kept(record, tree, entry, cleared, ctx.now(), hours).await?)
    } else {
        None
    };
    let event = told(ctx, record, cleared, action, details, &place, kept.as_ref());
    ctx.audit(event.clone()).await?;
    if let Some(kept) = &kept {
        keep_commits(record, tree, kept).await?;
        kept::keep(&place, entry, kept)?;
    }
    let point = fault::effect("rename into the trash")?;
    let renamed = trash::discard(tree.root(), &place);
    point.passed();
    match renamed {
        Ok(()) => {
            if judgement == Judgement::Old
                && let Some(head) = &cleared.work().head
            {
                let again = unsaved_work::judge_landed(&tree.renamed_to(&place)).await;
                if let Err(added) = again.clear_landed(head) {
                    return put_back(ctx, record, (tree, entry), cleared, &place, added).await.map(Some);
                }
            }
            finish_discard(ctx, record, Some(entry))?;
        }
        Err(error) => {
            tracing::warn!(worktree = record.worktree_id, %error, "no rename into the trash; git removes it in place");
            kept::forget(&place).map_err(|error| Error::new(Code::GitFailed, error.to_string()))?;
            remove_in_place(ctx, record, tree, entry, cleared.forced(), event).await?;
        }
    }
    Ok(None)
}

/// Renames a directory from the trash back to its place, because of what was `added`. Where something else has taken that,
/// it is kept for its owner, as what goes by force is.
///
/// # Errors
/// `W102` when it is not in its place; its entry is there then.
async fn put_back(
    ctx: &Context,
    record: &Record,
    (tree, entry): (&Tree, &AdminEntry),
    cleared: &Cleared,
    place: &Path,
    added: String,
) -> Result<String> {
    let Err(error) = trash::put_back(place, tree.root()) else { return Ok(added) };
    let hours = ctx.settings().config.retention_hours.max(LEAST_HOURS);
    let kept = what_is_kept(record, tree, entry, cleared, ctx.now(), hours).await?;
    keep_commits(record, tree, &kept).await?;
    kept::keep(place, entry, &kept)?;
    Err(Error::new(
        Code::GitFailed,
        format!(
            "{} holds {added} and could not be put back from the trash ({error}): it is kept there for {hours} hours; move \
             what is in its place aside, then remove the record and run `worktree restore {}`",
            record.path, record.worktree_id
        ),
    ))
}

async fn what_is_kept(
    record: &Record,
    tree: &Tree,
    entry: &AdminEntry,
    cleared: &Cleared,
    now_ms: i64,
    hours: u64,
) -> Result<Kept> {
    let mut kept = Kept::new(record, entry, cleared.work().describe(), now_ms, hours);
    kept.head_sha = cleared.work().head.as_ref().map(ToString::to_string);
    kept.branch_sha = tree.repo().branch_sha(&record.branch).await?.map(|tip| tip.to_string());
    if kept.branch_sha.is_some() {
        kept.backup_refs.push(branch::backup_ref(&record.worktree_id));
    }
    if kept.head_sha.is_some() && kept.head_sha != kept.branch_sha {
        kept.backup_refs.push(branch::head_backup_ref(&record.worktree_id));
    }
    Ok(kept)
}

/// Points the backup refs at the commits that the worktree had.
async fn keep_commits(record: &Record, tree: &Tree, kept: &Kept) -> Result<()> {
    let repo = tree.repo();
    let sha = |text: &String| {
        text.parse().map_err(|_| Error::new(Code::RecordUnreadable, format!("`{text}` is no commit id")))
    };
    if let Some(tip) = &kept.branch_sha {
        branch::backup(&repo, record, &sha(tip)?).await?;
    }
    match &kept.head_sha {
        Some(head) if kept.head_sha != kept.branch_sha => {
            branch::keep(&repo, &branch::head_backup_ref(&record.worktree_id), &sha(head)?).await
        }
        _ => Ok(()),
    }
}

/// What the audit log says: everything that helps to find it again.
fn told(
    ctx: &Context,
    record: &Record,
    cleared: &Cleared,
    action: Action,
    details: Value,
    place: &Path,
    kept: Option<&Kept>,
) -> Event {
    let work = cleared.work();
    let mut told = json!({
        "path": record.path, "branch": record.branch, "base_sha": record.base_sha, "base_ref": record.base_ref,
        "head_sha": work.head, "checked_out": work.branch, "session_id": record.session_id, "trash": place,
        "dirty": !work.is_tidy(), "work": work.describe(), "not_landed": work.not_landed, "forced": cleared.forced(),
        "age_ms": ctx.now() - record.created_at, "disk_bytes": ctx.usage.bytes_of(&record.worktree_id),
        "backup_refs": kept.map(|kept| &kept.backup_refs), "kept_until": kept.map(|kept| kept.keep_until),
    });
    if let (Value::Object(told), Value::Object(more)) = (&mut told, details) {
        told.extend(more);
    }
    Event::new(action, told).about(&record.worktree_id, &record.repo_key)
}

async fn remove_in_place(
    ctx: &Context,
    record: &Record,
    tree: &Tree,
    entry: &AdminEntry,
    forced: bool,
    mut event: Event,
) -> Result<()> {
    event.details.insert("in_place".to_owned(), json!(true));
    ctx.audit(event).await?;
    let reason = admin::lock_reason(entry).unwrap_or_default();
    let unlock = admin::unlock(entry);
    unlock.map_err(|error| Error::new(Code::GitFailed, format!("unlocking {}: {error}", record.path)))?;
    let removed = tree.remove(forced).await.map_err(Error::from);
    if let (Err(_), Some(reason)) = (&removed, reason)
        && entry.dir.exists()
    {
        // It stays, so it stays locked.
        admin::lock(entry, &reason)
            .unwrap_or_else(|error| tracing::warn!(%error, path = record.path, "it is not locked any more"));
    }
    removed
}

/// Drops the admin entry of a worktree whose directory is gone.
///
/// # Errors
/// `W102` when it cannot be dropped.
pub fn drop_entry(record: &Record, entry: &AdminEntry) -> Result<()> {
    admin::drop_entry(&from_text(&record.repo_key), entry).map_err(|error| {
        Error::new(
            Code::GitFailed,
            format!(
                "the directory of {} is gone, but git's entry {} could not be dropped: {error}; call remove again",
                record.worktree_id,
                entry.dir.display()
            ),
        )
    })
}

/// The rest of [`discard_tree`] after the rename: drops the admin entry and deletes, in the background, what is not kept.
///
/// # Errors
/// `W102` when the entry cannot be dropped.
pub fn finish_discard(ctx: &Arc<Context>, record: &Record, entry: Option<&AdminEntry>) -> Result<()> {
    if let Some(entry) = entry {
        let point = fault::effect("drop the admin entry")?;
        drop_entry(record, entry)?;
        point.passed();
    }
    for place in unkept(ctx, |id| id == record.worktree_id) {
        delete_later(ctx, Some(record.clone()), place, "nothing in it was unsaved");
    }
    Ok(())
}

/// Where something lies in the trash that is not kept, of these worktree ids. What cannot be told is kept.
fn unkept(ctx: &Context, of: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let found = trash::entries(&ctx.settings().root).into_iter();
    let places = found.filter(|(id, _)| of(id)).map(|(_, place)| place);
    places.filter(|place| matches!(kept::read(place), Ok(None))).collect()
}

/// Whether the directory of a worktree lies in the trash with nothing kept of it: its rename has happened.
#[must_use]
pub fn is_left_in_trash(ctx: &Context, worktree_id: &str) -> bool {
    !unkept(ctx, |id| id == worktree_id).is_empty()
}

/// Deletes, in the background, what a crash left in the trash: what is not kept and has no record any more.
pub fn empty_trash(ctx: &Arc<Context>) {
    for place in unkept(ctx, |id| !ctx.registry.knows(id)) {
        delete_later(ctx, None, place, "a crash left it");
    }
}

/// Deletes what lies in the trash, in the background.
fn delete_later(ctx: &Arc<Context>, record: Option<Record>, place: PathBuf, why: &'static str) {
    if !ctx.trash_turns.ask(&place) {
        return;
    }
    let (background, ctx) = (ctx.clone(), ctx.clone());
    background.background.spawn(async move {
        let deletion = delete_trash(&ctx, &place, record.as_ref(), why);
        if let Err(error) = ctx.trash_turns.take(&place, || ctx.registry.is_landing(), deletion).await {
            tracing::warn!(place = %place.display(), %error, "the trash entry stays for the next sweep");
        }
    });
}

/// Deletes one entry of the trash with what was kept beside it, told in the audit log first.
///
/// # Errors
/// `W600` when the audit log cannot tell of it, `W102` when something cannot be deleted.
pub async fn delete_trash(ctx: &Context, place: &Path, record: Option<&Record>, why: &str) -> Result<()> {
    let mut event = Event::new(Action::TrashDelete, json!({"trash": place, "why": why}));
    if let Some(record) = record {
        event = event.about(&record.worktree_id, &record.repo_key);
    } else if let Some((id, _)) = place.file_name().and_then(trash::parse_name) {
        event.worktree_id = Some(id.to_owned());
    }
    ctx.audit(event).await?;
    let owned = place.to_owned();
    let deleted = tokio::task::spawn_blocking(move || trash::delete(&owned).and_then(|()| kept::forget(&owned)));
    let deleted = deleted.await.unwrap_or_else(|error| Err(std::io::Error::other(error)));
    deleted.map_err(|error| Error::new(Code::GitFailed, format!("{} cannot be deleted: {error}", place.display())))
}
