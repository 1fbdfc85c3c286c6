//! Lists of paths (`-z`).

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
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

/// The paths of `ls-files -v -z` that git does not look at: assumed unchanged (a lower-case mark) or to be skipped (S).
pub(in super::super) fn hidden(what: &str, output: &[u8]) -> Result<Vec<PathBuf>, GitError> {
    let mut paths = Vec::new();
    for (index, item) in super::terminated(what, output)?.into_iter().enumerate() {
        match item {
            [mark, b' ', name @ ..] if mark.is_ascii_alphabetic() && !name.is_empty() => {
                if *mark == b'S' || mark.is_ascii_lowercase() {
                    paths.push(path(name));
                }
            }
            _ => return Err(super::unknown(what, index, item)),
        }
    }
    Ok(paths)
}

/// The paths as git takes them with `-z --stdin`.
pub(in super::super) fn joined(paths: &[PathBuf]) -> Vec<u8> {
    paths.iter().flat_map(|path| [path.as_os_str().as_bytes(), b"\0"].concat()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_survive() {
        let paths = list("x", b"a b\nc\0\xff/d/\0").unwrap();
        assert_eq!(paths[0].as_os_str().as_bytes(), b"a b\nc");
        assert_eq!(paths[1].as_os_str().as_bytes(), b"\xff/d/");
        assert!(list("x", b"").unwrap().is_empty());
        assert!(list("x", b"a").is_err());
        assert!(list("x", b"a\0\0").is_err());
        assert_eq!(joined(&paths), b"a b\nc\0\xff/d/\0");
    }

    #[test]
    fn marks_tell_what_is_hidden() {
        let paths = hidden("x", b"H seen\0h assumed\0S skipped\0s both\0M torn\0").unwrap();
        assert_eq!(paths, ["assumed", "skipped", "both"].map(PathBuf::from));
        for bad in [&b"H \0"[..], b"Hx\0", b"? \0", b"\0"] {
            assert!(hidden("x", bad).is_err());
        }
    }
}
