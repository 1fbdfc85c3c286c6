//! `ls-tree -r -z`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::super::error::GitError;
use super::super::sha::Sha;

const WHAT: &str = "git ls-tree";

/// What a commit has at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in super::super) struct TreeEntry {
    /// Type and permission, for instance 0o100644.
    pub(in super::super) mode: u32,
    pub(in super::super) object: Sha,
}

/// `<mode> SP <type> SP <object> TAB <path>`, each ended by NUL.
pub(in super::super) fn tree(output: &[u8]) -> Result<BTreeMap<PathBuf, TreeEntry>, GitError> {
    let items = super::terminated(WHAT, output)?;
    items
        .into_iter()
        .enumerate()
        .map(|(index, item)| one(item).ok_or_else(|| super::unknown(WHAT, index, item)))
        .collect()
}

fn one(item: &[u8]) -> Option<(PathBuf, TreeEntry)> {
    let at = item.iter().position(|byte| *byte == b'\t')?;
    let mut words = std::str::from_utf8(&item[..at]).ok()?.split(' ');
    let mode = u32::from_str_radix(words.next()?, 8).ok()?;
    let (Some("blob" | "commit" | "tree"), Some(object), None) = (words.next(), words.next(), words.next()) else {
        return None;
    };
    let path = &item[at + 1..];
    (!path.is_empty()).then_some((super::paths::path(path), TreeEntry { mode, object: object.parse().ok()? }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_read() {
        let a = "0123456789abcdef0123456789abcdef01234567";
        let entries = tree(format!("100755 blob {a}\ta\tb\n\0160000 commit {a}\tsub\0").as_bytes()).unwrap();
        assert_eq!(entries[&PathBuf::from("a\tb\n")].mode, 0o100_755);
        assert_eq!(entries[&PathBuf::from("sub")].mode, 0o160_000);
        for bad in [
            format!("100644 blob {a}\t\0"),
            format!("100644 blob {a} path\0"),
            format!("1008 blob {a}\tx\0"),
            format!("100644 {a}\tx\0"),
        ] {
            assert!(tree(bad.as_bytes()).is_err(), "{bad:?}");
        }
    }
}
