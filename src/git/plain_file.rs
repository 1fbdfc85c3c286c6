//! Reading a file that may be anything: a repository is hostile input.

use std::fs::OpenOptions;
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
    let Ok(meta) = file.metadata() else { return Found::Other };
    if meta.is_dir() {
        return Found::Nothing;
    }
    let mut bytes = Vec::new();
    let whole = meta.is_file() && meta.len() <= most && file.take(most + 1).read_to_end(&mut bytes).is_ok();
    if whole && bytes.len() as u64 <= most { Found::Bytes(bytes) } else { Found::Other }
}
