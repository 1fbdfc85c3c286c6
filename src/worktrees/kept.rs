//! What is kept of a worktree that was removed by force, beside its directory in the trash: what
//! [`super::restore`] needs to bring it back.
//!
//! | file | holds |
//! |---|---|
//! | `.trash/<id>-<second>` | the directory as it was |
//! | `.trash/<id>-<second>.entry` | a copy of git's entry: index, HEAD, reflog, an operation that was open |
//! | `.trash/<id>-<second>.json` | the record, the commits, until when all of it is kept |
//!
//! Invariants
//! 1. The JSON file comes last when something is kept, and goes last when it is deleted: without it the rest is trash
//!    like any other.

use std::ffi::OsString;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::trash;
use crate::git::admin::{self, AdminEntry};
use crate::model::record::{Record, check_format};
use crate::model::{Code, Error, Result};

/// The format that this release writes.
const FORMAT: u32 = 1;

/// What is known of a removed worktree that can be restored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// Version of this layout.
    pub format: u32,
    /// The record as it was.
    pub record: Record,
    /// The commit that was checked out.
    pub head_sha: Option<String>,
    /// The tip of the recorded branch.
    pub branch_sha: Option<String>,
    /// The refs that keep those commits.
    pub backup_refs: Vec<String>,
    /// The name that git's entry had.
    pub entry_name: String,
    /// What the worktree held that was saved nowhere else, in words.
    pub work: String,
    /// When it was removed, in milliseconds since the epoch.
    pub removed_at: i64,
    /// Until when it is kept, in milliseconds since the epoch.
    pub keep_until: i64,
}

fn beside(place: &Path, suffix: &str) -> PathBuf {
    let mut name = place.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// Where the copy of git's entry lies.
#[must_use]
pub fn entry_copy(place: &Path) -> PathBuf {
    beside(place, ".entry")
}

fn description(place: &Path) -> PathBuf {
    beside(place, ".json")
}

fn failed(place: &Path, error: impl std::fmt::Display) -> Error {
    Error::new(
        Code::GitFailed,
        format!("what restores a worktree cannot be kept in {}: {error}; nothing was removed", place.display()),
    )
}

/// Keeps what restores the worktree whose directory will lie at `place`.
///
/// # Errors
/// `W102` when it cannot be written; nothing is left behind then.
pub fn keep(place: &Path, entry: &AdminEntry, kept: &Kept) -> Result<()> {
    let written = (|| {
        // A removal that was cut off may have left something of this name.
        forget(place)?;
        admin::copy_entry(entry, &entry_copy(place))?;
        let draft = beside(place, ".draft");
        let mut file = std::fs::File::create(&draft)?;
        file.write_all(&serde_json::to_vec_pretty(kept)?)?;
        file.sync_all()?;
        std::fs::rename(&draft, description(place))
    })();
    written.map_err(|error| {
        forget(place).unwrap_or_else(|error| tracing::warn!(%error, place = %place.display(), "left in the trash"));
        failed(place, error)
    })
}

/// Takes away what was kept beside `place`, not the directory itself.
///
/// # Errors
/// The first thing that could not be deleted.
pub fn forget(place: &Path) -> std::io::Result<()> {
    let gone = |result: std::io::Result<()>| match result {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        other => other,
    };
    gone(std::fs::remove_dir_all(entry_copy(place)))?;
    gone(std::fs::remove_file(beside(place, ".draft")))?;
    gone(std::fs::remove_file(description(place)))
}

/// What is kept for the directory at `place`; `None` when nothing is.
///
/// # Errors
/// `W301` when it is of a newer format or cannot be read; it must be left alone then.
pub fn read(place: &Path) -> Result<Option<Kept>> {
    let file = description(place);
    let unreadable = |error: &dyn std::fmt::Display| {
        Error::new(Code::RecordUnreadable, format!("{} cannot be read: {error}; it was left alone", file.display()))
    };
    let bytes = match std::fs::read(&file) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unreadable(&error)),
    };
    let value: serde_json::Value = serde_json::from_slice(&bytes).map_err(|error| unreadable(&error))?;
    check_format(&value, FORMAT, &file.display().to_string())?;
    serde_json::from_value(value).map(Some).map_err(|error| unreadable(&error))
}

/// Everything that is kept below `root`, with where its directory lies, newest first.
///
/// # Errors
/// `W301` when one of them cannot be read.
pub fn all(root: &Path) -> Result<Vec<(PathBuf, Kept)>> {
    let mut found = Vec::new();
    let Ok(entries) = std::fs::read_dir(root.join(trash::TRASH)) else { return Ok(found) };
    for path in entries.flatten().map(|entry| entry.path()) {
        let Some(stem) = path.file_name().and_then(|name| name.to_str()?.strip_suffix(".json")) else { continue };
        let place = path.with_file_name(OsString::from(stem));
        if trash::parse_name(stem.as_ref()).is_some()
            && place.is_dir()
            && let Some(kept) = read(&place)?
        {
            found.push((place, kept));
        }
    }
    found.sort_by_key(|(_, kept)| std::cmp::Reverse(kept.removed_at));
    Ok(found)
}

impl Kept {
    /// What is to be kept of `record` from now on.
    #[must_use]
    pub fn new(record: &Record, entry: &AdminEntry, work: String, now_ms: i64, hours: u64) -> Self {
        const HOUR_MS: i64 = 3_600_000;
        let hours = i64::try_from(hours).unwrap_or(i64::MAX);
        Kept {
            format: FORMAT,
            record: record.clone(),
            head_sha: None,
            branch_sha: None,
            backup_refs: Vec::new(),
            entry_name: entry.name.to_string_lossy().into_owned(),
            work,
            removed_at: now_ms,
            keep_until: now_ms.saturating_add(hours.saturating_mul(HOUR_MS)),
        }
    }
}
