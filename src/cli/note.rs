//! Where `worktree dev` can be reached: a file in its state directory, for commands with `--local`.
//!
//! It is a hint, not a claim. Who owns the directory is told by the engine's lock alone; whoever gets that lock
//! removes the note of its predecessor.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use serde::{Deserialize, Serialize};

const NAME: &str = "dev.json";

/// What stands in the note.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Note {
    /// Where clients connect.
    pub(super) url: String,
    /// Where HTTP callers connect.
    pub(super) http: String,
    /// The process that serves.
    pub(super) pid: u32,
}

impl Note {
    /// Leaves the note, whole or not at all.
    ///
    /// # Errors
    /// When the directory cannot be written.
    pub(super) fn leave(&self, state_dir: &Path) -> io::Result<()> {
        let draft = state_dir.join(format!("{NAME}.{}", self.pid));
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
        file.write_all(&serde_json::to_vec(self)?)?;
        drop(file);
        std::fs::rename(draft, state_dir.join(NAME))
    }

    /// The note that lies there, if any can be read.
    pub(super) fn read(state_dir: &Path) -> Option<Self> {
        let text = std::fs::read(state_dir.join(NAME)).ok()?;
        serde_json::from_slice(&text).ok()
    }
}

/// Takes a note away; only the owner of the directory does.
///
/// # Errors
/// When there is one and it stays.
pub(super) fn remove(state_dir: &Path) -> io::Result<()> {
    match std::fs::remove_file(state_dir.join(NAME)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_found_until_it_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Note::read(dir.path()), None);
        let note = Note { url: "ws://x".to_owned(), http: "http://x".to_owned(), pid: 1 };
        note.leave(dir.path()).unwrap();
        assert_eq!(Note::read(dir.path()), Some(note));
        remove(dir.path()).unwrap();
        remove(dir.path()).unwrap();
        assert_eq!(Note::read(dir.path()), None);
    }
}
