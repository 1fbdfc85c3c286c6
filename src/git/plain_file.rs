//! Reading a file that may be anything: a repository is hostile input.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// What lies at a path.
pub(super) enum Found {
    /// A plain file with this content.
    Bytes(Vec<u8>),
    /// Nothing, or a directory.
    Nothing,
    /// A link, a pipe, a file that is too large or cannot be read.
    Other,
}

impl Found {
    /// The content of a plain file.
    pub(super) fn bytes(self) -> Option<Vec<u8>> {
        match self {
            Found::Bytes(bytes) => Some(bytes),
            Found::Nothing | Found::Other => None,
        }
    }
}

/// Reads a plain file of no more than `most` bytes. Follows no link at the end of the path, and waits for nobody.
pub(super) fn read(path: &Path, most: u64) -> Found {
    let flags = nix::libc::O_NONBLOCK | nix::libc::O_NOFOLLOW;
    let file = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Ok(file) => file,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Found::Nothing,
        Err(_) => return Found::Other,
    };
    if file.metadata().is_ok_and(|meta| meta.is_dir()) {
        return Found::Nothing;
    }
    content(file, most).map_or(Found::Other, Found::Bytes)
}

/// What an open file holds; `None` unless it is a plain one of no more than `most` bytes.
pub(super) fn content(file: File, most: u64) -> Option<Vec<u8>> {
    let meta = file.metadata().ok()?;
    (meta.is_file() && meta.len() <= most).then_some(())?;
    let mut bytes = Vec::new();
    // It may have grown since.
    file.take(most + 1).read_to_end(&mut bytes).ok()?;
    (bytes.len() as u64 <= most).then_some(bytes)
}
