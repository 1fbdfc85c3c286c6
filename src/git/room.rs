//! Whether there is room for a branch in the ref store.
//!
//! Asked before something is done; git decides again when it makes the branch. What the files of the ref store do not
//! tell plainly, git is asked.

use std::fs;
use std::path::Path;

use super::error::GitError;
use super::ref_files::{self, Told};
use super::{Repo, branch_name};

/// What stands at the place of a branch that is to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum Room {
    /// Nothing.
    Free,
    /// A branch of this name.
    Taken,
    /// A ref, by its full name, that makes it impossible: `feat` beside `feat/x`, both ways.
    Collides(String),
}

impl Repo {
    /// What stands at the place of a branch.
    ///
    /// # Errors
    /// W111 when no branch can have this name, W102.
    pub async fn room_for(&self, branch: &str) -> Result<Room, GitError> {
        branch_name::require(branch)?;
        let wanted = format!("refs/heads/{branch}");
        if let Some(room) = in_files(&self.common_dir, &wanted) {
            return Ok(room);
        }
        let first = branch.split('/').next().unwrap_or(branch);
        let refs = self.refs_under(&format!("refs/heads/{first}")).await?;
        let names = || refs.iter().map(|(name, _)| name.as_str());
        if names().any(|name| name == wanted) {
            return Ok(Room::Taken);
        }
        let in_the_way = names().find(|name| is_inside(name, &wanted) || is_inside(&wanted, name));
        Ok(in_the_way.map_or(Room::Free, |name| Room::Collides(name.to_owned())))
    }
}

/// What the files tell; `None` when git has to be asked.
fn in_files(common_dir: &Path, wanted: &str) -> Option<Room> {
    let folders = wanted.match_indices('/').skip(2).map(|(at, _)| &wanted[..at]);
    for name in std::iter::once(wanted).chain(folders) {
        match ref_files::look(common_dir, name) {
            Told::Is(_) if name == wanted => return Some(Room::Taken),
            Told::Is(_) => return Some(Room::Collides(name.to_owned())),
            Told::Absent => {}
            Told::AskGit => return None,
        }
    }
    let dir = common_dir.join(wanted);
    let loose = if dir.is_dir() { first_file(&dir, wanted)? } else { None };
    let below = match loose {
        Some(name) => Some(name),
        None => ref_files::packed_below(common_dir, wanted)?,
    };
    Some(below.map_or(Room::Free, Room::Collides))
}

/// Whether the ref `name` lies in the folder that the ref `dir` would be.
fn is_inside(name: &str, dir: &str) -> bool {
    name.strip_prefix(dir).is_some_and(|rest| rest.starts_with('/'))
}

/// The full name of a ref somewhere below a directory. `Some(None)` when it holds only directories and locks, which are
/// in nobody's way; `None` when it cannot be read.
fn first_file(dir: &Path, name: &str) -> Option<Option<String>> {
    for entry in fs::read_dir(dir).ok()? {
        let entry = entry.ok()?;
        let below = format!("{name}/{}", entry.file_name().to_str()?);
        let kind = entry.file_type().ok()?;
        if kind.is_dir() {
            if let Some(found) = first_file(&entry.path(), &below)? {
                return Some(Some(found));
            }
        } else if !below.ends_with(".lock") {
            return Some(Some(below));
        }
    }
    Some(None)
}
