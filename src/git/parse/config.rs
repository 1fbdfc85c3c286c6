//! `config --list -z`: `key`, a line break and the value, each entry ended by NUL.

use super::super::error::GitError;

const WHAT: &str = "git config";

/// The entries in the order of git, so that the last of a key is the one in force. Keys are as git writes them:
/// section and name in lower case. An entry without a value stands for true.
pub(in super::super) fn list(output: &[u8]) -> Result<Vec<(String, String)>, GitError> {
    let items = super::terminated(WHAT, output)?;
    let entries = items.into_iter().enumerate().map(|(index, item)| {
        let text = String::from_utf8_lossy(item);
        let (key, value) = text.split_once('\n').unwrap_or((&text, "true"));
        if key.contains('.') { Ok((key.to_owned(), value.to_owned())) } else { Err(super::unknown(WHAT, index, item)) }
    });
    entries.collect()
}

/// An entry with where it comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in super::super) struct Scoped {
    /// `system`, `global`, `local`, `worktree` or `command`.
    pub(in super::super) scope: String,
    /// Section and variable in lower case; the name between them may be any bytes.
    pub(in super::super) key: Vec<u8>,
    pub(in super::super) value: Vec<u8>,
}

/// `config --list --show-scope -z`: the scope is an item of its own before each entry.
pub(in super::super) fn scoped(output: &[u8]) -> Result<Vec<Scoped>, GitError> {
    let items = super::terminated(WHAT, output)?;
    let pairs = items.chunks(2).enumerate().map(|(index, pair)| {
        let fail = || super::unknown(WHAT, 2 * index, pair[0]);
        let [scope, entry] = pair else { return Err(fail()) };
        let scope = String::from_utf8_lossy(scope).into_owned();
        let end = entry.iter().position(|byte| *byte == b'\n');
        let (key, value) = end.map_or((*entry, &b"true"[..]), |end| (&entry[..end], &entry[end + 1..]));
        let known = matches!(scope.as_str(), "system" | "global" | "local" | "worktree" | "command" | "submodule");
        if !known || !key.contains(&b'.') {
            return Err(fail());
        }
        Ok(Scoped { scope, key: key.to_vec(), value: value.to_vec() })
    });
    pairs.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes_stand_before_their_entries() {
        let entries = scoped(b"global\0user.name\nA\0local\0filter.x.clean\nrun\0").unwrap();
        assert_eq!((entries[1].scope.as_str(), entries[1].key.as_slice()), ("local", &b"filter.x.clean"[..]));
        for bad in [&b"local\0"[..], b"user.name\nA\0local\0", b"local\0nodot\0"] {
            assert!(scoped(bad).is_err());
        }
    }

    #[test]
    fn values_may_hold_anything_or_be_missing() {
        let entries = list(b"user.name\nA\nB\0core.bare\0a.B=c.d\n=\0").unwrap();
        let wanted = [("user.name", "A\nB"), ("core.bare", "true"), ("a.B=c.d", "=")];
        assert_eq!(entries, wanted.map(|(key, value)| (key.to_owned(), value.to_owned())));
        assert!(list(b"nodot\nx\0").is_err());
        assert!(list(b"a.b\nx").is_err());
    }
}
