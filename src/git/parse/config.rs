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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_may_hold_anything_or_be_missing() {
        let entries = list(b"user.name\nA\nB\0core.bare\0a.B=c.d\n=\0").unwrap();
        let wanted = [("user.name", "A\nB"), ("core.bare", "true"), ("a.B=c.d", "=")];
        assert_eq!(entries, wanted.map(|(key, value)| (key.to_owned(), value.to_owned())));
        assert!(list(b"nodot\nx\0").is_err());
        assert!(list(b"a.b\nx").is_err());
    }
}
