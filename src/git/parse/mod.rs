//! What git writes, read strictly.
//!
//! Pure functions over bytes: no process, no file. Machine formats only, `-z` wherever git offers it; anything
//! unknown is an error that names the item and shows it.

pub(super) mod paths;
pub(super) mod refs;
pub(super) mod status;
pub(super) mod version;
pub(super) mod worktrees;

use super::error::GitError;
use super::sha::Sha;

/// How much of a line is shown in an error.
const SHOWN: usize = 200;

/// An item that is not understood.
fn unknown(what: &str, index: usize, item: &[u8]) -> GitError {
    let text = String::from_utf8_lossy(&item[..item.len().min(SHOWN)]).into_owned();
    GitError::Parse { what: what.to_owned(), line: index + 1, text }
}

/// An object name.
fn sha(bytes: &[u8]) -> Option<Sha> {
    std::str::from_utf8(bytes).ok()?.parse().ok()
}

/// The items of NUL-terminated output. The last item must be terminated too.
fn terminated<'a>(what: &str, output: &'a [u8]) -> Result<Vec<&'a [u8]>, GitError> {
    if output.is_empty() {
        return Ok(Vec::new());
    }
    let Some(body) = output.strip_suffix(b"\0") else {
        let tail = output.rsplit(|byte| *byte == 0).next().unwrap_or_default();
        return Err(unknown(what, output.iter().filter(|byte| **byte == 0).count(), tail));
    };
    Ok(body.split(|byte| *byte == 0).collect())
}
