//! The marker: a small file in git's admin entry of a worktree that holds its id and its record.
//!
//! Invariants
//! 1. A directory is ours only when its `.git` names the admin entry, the entry names the directory, and the marker
//!    in the entry names the id.
//! 2. A marker that does not say `ready` belongs to a create that has not answered, or to the pool: nobody works there
//!    yet.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::git::admin::{self, AdminEntry, Link};
use crate::git::{Tree, from_text};
use crate::model::record::Record;
use crate::model::{Code, Error, Result};

/// What stands in the marker file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Marker {
    /// Version of this layout.
    pub format: u32,
    /// Whether the create that made the worktree has answered.
    pub ready: bool,
    /// The record as it was when the marker was written.
    pub record: Record,
    /// The process whose create has not answered yet, or whose pool the worktree stands in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub creator: Option<u32>,
    /// That nobody has asked for the worktree yet ([`super::pool`]). The record then has no branch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pooled: Option<Pooled>,
}

/// How far a worktree is that nobody has asked for yet.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pooled {
    /// When all its files were there and had been looked at, in milliseconds since the epoch.
    #[serde(default)]
    pub ready_at: Option<i64>,
    /// Under which conditions its files were written ([`crate::git::Conditions::digest`]).
    #[serde(default)]
    pub conditions: String,
    /// The commit that it is being brought to; the one of the record until then.
    #[serde(default)]
    pub moving_to: Option<String>,
}

/// The format that this release writes.
const FORMAT: u32 = 1;

fn io_error(what: &str, path: &Path, error: &std::io::Error) -> Error {
    Error::new(Code::GitFailed, format!("{what} of {} failed: {error}", path.display()))
}

/// Writes the marker of a worktree.
///
/// # Errors
/// `W102` when the file cannot be written.
pub fn write(entry: &AdminEntry, record: &Record, ready: bool) -> Result<()> {
    let creator = (!ready).then(std::process::id);
    let marker = Marker { format: FORMAT, ready, record: record.clone(), creator, pooled: None };
    let written = admin::write_marker(entry, &json(&marker)?);
    written.map_err(|error| io_error("writing the marker", &entry.dir, &error))
}

/// Writes the marker of a worktree that is being made for a caller. It need not be on the disk on return: it is for
/// whoever comes after a process that was killed, and [`write()`] puts the last word there before anybody is answered.
///
/// # Errors
/// `W102` when the file cannot be written.
pub fn write_unfinished(entry: &AdminEntry, record: &Record) -> Result<()> {
    let written = admin::write_marker_unsynced(entry, &json(&unfinished(record, None))?);
    written.map_err(|error| io_error("writing the marker", &entry.dir, &error))
}

/// Writes the marker of a worktree that nobody has asked for yet.
///
/// # Errors
/// `W102` when the file cannot be written.
pub fn write_pooled(entry: &AdminEntry, record: &Record, pooled: &Pooled) -> Result<()> {
    let written = admin::write_marker(entry, &json(&unfinished(record, Some(pooled.clone())))?);
    written.map_err(|error| io_error("writing the marker", &entry.dir, &error))
}

fn unfinished(record: &Record, pooled: Option<Pooled>) -> Marker {
    Marker { format: FORMAT, ready: false, record: record.clone(), creator: Some(std::process::id()), pooled }
}

fn json(marker: &Marker) -> Result<Vec<u8>> {
    serde_json::to_vec_pretty(marker)
        .map_err(|error| Error::new(Code::RecordUnreadable, format!("the marker cannot be written as JSON: {error}")))
}

/// Brings the marker of a worktree up to its record, so that a registry that is rebuilt has the latest. A worktree
/// without a marker, one that is not there, and one whose create has not answered are left alone.
///
/// # Errors
/// `W102` when it cannot be read or written, `W301` when it is of a newer format.
pub fn follow(record: &Record) -> Result<()> {
    let root = Path::new(&record.path);
    let Ok(Link::Intact(entry)) = admin::verify_link(&from_text(&record.repo_key), root) else { return Ok(()) };
    match read(&entry)? {
        Some(marker) if marker.ready && marker.record.worktree_id == record.worktree_id && marker.record != *record => {
            write(&entry, record, true)
        }
        _ => Ok(()),
    }
}

/// Reads the marker of an admin entry; `None` when there is none, or when it is not one of ours.
///
/// # Errors
/// `W301` when it is of a newer format, `W102` when the file cannot be read.
pub fn read(entry: &AdminEntry) -> Result<Option<Marker>> {
    let Some(bytes) = admin::read_marker(entry).map_err(|error| io_error("reading the marker", &entry.dir, &error))?
    else {
        return Ok(None);
    };
    let Ok(value) = serde_json::from_slice::<serde_json::Value>(&bytes) else { return Ok(None) };
    crate::model::record::check_format(&value, FORMAT, &format!("the marker in {}", entry.dir.display()))?;
    Ok(serde_json::from_value(value).ok())
}

/// What the identity check found.
#[derive(Debug)]
pub enum Identity {
    /// The directory is the worktree of the record.
    Ours(Tree, AdminEntry),
    /// The directory is gone; the admin entry may be left.
    DirectoryGone(Option<AdminEntry>),
}

/// Checks both ways that the directory of `record` is still the worktree that was created.
///
/// # Errors
/// `W202` when it is something else, `W102` when it cannot be told.
pub fn identify(git: &crate::git::Git, record: &Record) -> Result<Identity> {
    let root = Path::new(&record.path);
    let mismatch = |why: String| {
        Error::new(
            Code::IdentityMismatch,
            format!(
                "{} is not the worktree {} any more: {why}; nothing was touched, look at it before you decide",
                record.path, record.worktree_id
            ),
        )
    };
    let link = admin::verify_link(&from_text(&record.repo_key), root)
        .map_err(|error| io_error("the identity check", root, &error))?;
    let entry = match link {
        Link::Intact(entry) => entry,
        Link::DirectoryGone { entry } => {
            return Ok(Identity::DirectoryGone(entry.filter(|entry| names(entry, record))));
        }
        Link::Broken { why } => return Err(mismatch(why)),
    };
    match read(&entry)? {
        Some(marker) if marker.record.worktree_id != record.worktree_id => {
            return Err(mismatch(format!("its marker names {}", marker.record.worktree_id)));
        }
        Some(_) => {}
        None if is_named_after(record) => {}
        None => return Err(mismatch("it has no marker, and its directory is not named after its id".to_owned())),
    }
    let tree = git.tree(root).map_err(Error::from)?;
    Ok(Identity::Ours(tree, entry))
}

/// Whether the directory bears the id, as every worktree of ours does. The 0.2.x worker wrote no marker: for its
/// worktrees the two-way link and this have to do, so that a record that was tampered with leads to nobody's checkout.
fn is_named_after(record: &Record) -> bool {
    Path::new(&record.path).file_name().is_some_and(|name| *name == *record.worktree_id)
}

/// Whether an admin entry without a directory belongs to `record`.
#[must_use]
pub fn names(entry: &AdminEntry, record: &Record) -> bool {
    match read(entry) {
        Ok(Some(marker)) => marker.record.worktree_id == record.worktree_id,
        Ok(None) => is_named_after(record) && entry.gitdir == Path::new(&record.path).join(".git"),
        Err(_) => false,
    }
}

/// The tree of a record whose directory must be there.
///
/// # Errors
/// `W201` when the directory is gone, and what [`identify`] reports.
pub fn require_tree(git: &crate::git::Git, record: &Record) -> Result<(Tree, AdminEntry)> {
    match identify(git, record)? {
        Identity::Ours(tree, entry) => Ok((tree, entry)),
        Identity::DirectoryGone(_) => Err(gone(record)),
    }
}

/// The refusal for a directory that is gone.
#[must_use]
pub fn gone(record: &Record) -> Error {
    Error::new(
        Code::Orphaned,
        format!(
            "the directory {} of {} is gone; its branch {} is still there: worktree::remove clears the record",
            record.path, record.worktree_id, record.branch
        ),
    )
}
