//! Lists of paths (`-z`).

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;

use super::super::error::GitError;

/// A path as git wrote it.
pub(in super::super) fn path(bytes: &[u8]) -> PathBuf {
    PathBuf::from(OsString::from_vec(bytes.to_vec()))
}

/// NUL-terminated paths, in the order of git.
pub(in super::super) fn list(what: &str, output: &[u8]) -> Result<Vec<PathBuf>, GitError> {
    let items = super::terminated(what, output)?;
    items
        .iter()
        .enumerate()
        .map(|(index, item)| if item.is_empty() { Err(super::unknown(what, index, item)) } else { Ok(path(item)) })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt as _;

    use super::*;

    #[test]
    fn bytes_survive() {
        let paths = list("x", b"a b\nc\0\xff/d/\0").unwrap();
        assert_eq!(paths[0].as_os_str().as_bytes(), b"a b\nc");
        assert_eq!(paths[1].as_os_str().as_bytes(), b"\xff/d/");
        assert!(list("x", b"").unwrap().is_empty());
        assert!(list("x", b"a").is_err());
        assert!(list("x", b"a\0\0").is_err());
    }
}
