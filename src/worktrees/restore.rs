//! Brings back a worktree that was removed by force: directory, branch and record.
//!
//! Nothing is overwritten: what is in the way is named, and nothing changes then.
//!
//! Killed here → found by the next call → done
//! - after the branch: it is at the commit it had → goes on.
//! - after git's entry: an entry of the id whose directory is in the trash → taken for this one.
//! - after the directory was renamed: a worktree of ours without a record → the registry is rebuilt from its marker.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Serialize;
use serde_json::json;

use super::kept::{self, Kept};
use super::{Context, branch, marker, request};
use crate::audit::{Action, Event as Audit};
use crate::git::admin::{self, AdminEntry};
use crate::git::{Expected, RefUpdate, Repo, Room, from_text};
use crate::model::event::Event;
use crate::model::record::{Lifecycle, Record};
use crate::model::{Code, Error, Result};

/// A worktree that came back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Restored {
    /// Its record. Nobody holds it.
    pub record: Record,
    /// Whether the branch had to be made again.
    pub branch_restored: bool,
    /// What it held when it was removed, in words.
    pub work: String,
}

/// The worktrees that can be restored, newest first.
///
/// # Errors
/// `W301` when what was kept of one cannot be read.
pub fn restorable(ctx: &Context) -> Result<Vec<Kept>> {
    Ok(kept::all(&ctx.settings().root)?.into_iter().map(|(_, kept)| kept).collect())
}

/// Brings a worktree back.
///
/// # Errors
/// `W001`; `W200` when nothing of that id is kept; `W120` when its branch is somewhere else by now, or checked out
/// elsewhere; `W102` when something lies at its place, or git or the file system refuse; `W600`; `W300`. What is kept
/// stays kept then, and the same call can be made again.
pub async fn run(ctx: &Arc<Context>, worktree_id: &str) -> Result<Restored> {
    request::require_text("worktree_id", worktree_id)?;
    let (place, kept) = find(ctx, worktree_id)?;
    let repo = ctx.git().repo(&from_text(&kept.record.repo_key));
    let guard = ctx.registry.lock(&kept.record.repo_key).await?;
    require_room(ctx, &kept)?;
    let branch_missing = judge_branch(&repo, &kept).await?;
    let details = json!({
        "path": kept.record.path, "branch": kept.record.branch, "head_sha": kept.head_sha, "trash": place,
        "branch_sha": kept.branch_sha, "removed_at": kept.removed_at,
    });
    ctx.audit(Audit::new(Action::Restore, details).about(worktree_id, &kept.record.repo_key)).await?;
    if branch_missing {
        make_branch(&repo, &kept).await?;
    }
    let record = Record {
        lifecycle: Lifecycle::Active,
        session_id: None,
        updated_at: ctx.now(),
        fence: kept.record.fence + 1,
        ..kept.record.clone()
    };
    put_back(&place, &kept, &record)?;
    marker::require_tree(&ctx.git(), &record)?;
    ctx.registry.put_record(&guard, record.clone()).await?;
    kept::forget(&place).unwrap_or_else(|error| tracing::warn!(%error, place = %place.display(), "left in the trash"));
    drop(guard);
    ctx.events.emit(&Event::created(&record, ctx.now()));
    Ok(Restored { record, branch_restored: branch_missing, work: kept.work })
}

fn find(ctx: &Context, worktree_id: &str) -> Result<(PathBuf, Kept)> {
    let all = kept::all(&ctx.settings().root)?;
    all.into_iter().find(|(_, kept)| kept.record.worktree_id == worktree_id).ok_or_else(|| {
        Error::new(
            Code::NoSuchWorktree,
            format!(
                "nothing of `{worktree_id}` is kept: only what was removed by force can be restored, for \
                 retention_hours; its commits may be named in the audit log"
            ),
        )
    })
}

/// Refuses when its record or something at its place is there.
fn require_room(ctx: &Context, kept: &Kept) -> Result<()> {
    let record = &kept.record;
    if ctx.registry.knows(&record.worktree_id) {
        return Err(Error::new(
            Code::GitFailed,
            format!("{} is in use: it has a record, so it was not removed, or is back already", record.worktree_id),
        ));
    }
    if Path::new(&record.path).symlink_metadata().is_ok() {
        return Err(Error::new(
            Code::GitFailed,
            format!("something lies at {}; move it away and restore again", record.path),
        ));
    }
    if !from_text(&record.repo_key).is_dir() {
        return Err(Error::new(
            Code::NotARepository,
            format!("the repository {} is not there; bring it back first", record.repo_key),
        ));
    }
    Ok(())
}

/// Whether the branch has to be made again. Refuses when it is not where it was.
async fn judge_branch(repo: &Repo, kept: &Kept) -> Result<bool> {
    let name = &kept.record.branch;
    let tip = repo.branch_sha(name).await?.map(|tip| tip.to_string());
    let Some(tip) = tip else {
        if let Room::Collides(other) = repo.room_for(name).await? {
            return Err(Error::new(
                Code::BranchCollision,
                format!("the branch `{name}` cannot stand beside `{other}`; rename that one and restore again"),
            ));
        }
        return Ok(kept.branch_sha.is_some());
    };
    if kept.branch_sha.as_ref() != Some(&tip) {
        return Err(Error::new(
            Code::BranchExists,
            format!(
                "the branch `{name}` is at {tip} now, not at {}; rename it and restore again",
                kept.branch_sha.as_deref().unwrap_or("no commit")
            ),
        ));
    }
    let checkouts = repo.checkouts_of(&[name]).await?;
    let elsewhere = checkouts.into_iter().find(|other| other.path != Path::new(&kept.record.path));
    match elsewhere {
        Some(other) => Err(Error::new(
            Code::BranchExists,
            format!("the branch `{name}` is checked out in {}; switch that to another one", other.path.display()),
        )),
        None => Ok(false),
    }
}

async fn make_branch(repo: &Repo, kept: &Kept) -> Result<()> {
    let Some(tip) = &kept.branch_sha else { return Ok(()) };
    let tip = tip.parse().map_err(|_| Error::new(Code::RecordUnreadable, format!("`{tip}` is no commit id")))?;
    let name = branch::branch_ref(&kept.record.branch);
    match repo.update_ref(&name, &tip, Expected::Absent, "worktree: restored").await? {
        RefUpdate::Done => Ok(()),
        RefUpdate::Lost { current } if current.as_ref() == Some(&tip) => Ok(()),
        RefUpdate::Lost { .. } => Err(Error::new(
            Code::BranchExists,
            format!("the branch `{}` was made by somebody else meanwhile; rename it", kept.record.branch),
        )),
    }
}

/// Puts git's entry and the directory back to where they were.
fn put_back(place: &Path, kept: &Kept, record: &Record) -> Result<()> {
    let failed = |what: &str, error: std::io::Error| {
        Error::new(Code::GitFailed, format!("{what} of {} cannot be put back: {error}", record.worktree_id))
    };
    let (common, root) = (&*from_text(&record.repo_key), Path::new(&record.path));
    let entry = match admin::entry_for(common, root).map_err(|error| failed("git's entry", error))? {
        // Put back by a call that was cut off.
        Some(entry) if marker::names(&entry, record) => entry,
        Some(entry) => {
            return Err(Error::new(
                Code::GitFailed,
                format!("git's entry {} names {} for another worktree", entry.dir.display(), record.path),
            ));
        }
        None => new_entry(common, kept, place, root).map_err(|error| failed("git's entry", error))?,
    };
    marker::write(&entry, record, true)?;
    if let Some(parent) = root.parent() {
        std::fs::create_dir_all(parent).map_err(|error| failed("the directory", error))?;
    }
    admin::point_to(&entry, place).map_err(|error| failed("the link", error))?;
    std::fs::rename(place, root).map_err(|error| failed("the directory", error))
}

/// Puts the copied entry back, under its name or one like it.
fn new_entry(common: &Path, kept: &Kept, place: &Path, root: &Path) -> std::io::Result<AdminEntry> {
    let copy = kept::entry_copy(place);
    let mut name = OsString::from(&kept.entry_name);
    for number in 1.. {
        match admin::put_back(common, &name, &copy, root) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists && number < 100 => {
                name = OsString::from(format!("{}{number}", kept.entry_name));
            }
            other => return other,
        }
    }
    Err(std::io::Error::other("no name is free"))
}
