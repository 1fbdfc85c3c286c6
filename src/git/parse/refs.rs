//! `for-each-ref --format=%(refname)%00%(objectname)` and object names on a line.

use std::collections::BTreeMap;

use super::super::error::GitError;
use super::super::sha::Sha;

const WHAT: &str = "git for-each-ref";

/// Full ref names with the objects they name. Names are text: git accepts only valid UTF-8 ones through this worker,
/// and others are passed over, since no call could name them.
pub(in super::super) fn list(output: &[u8]) -> Result<Vec<(String, Sha)>, GitError> {
    let mut refs = Vec::new();
    for (index, line) in output.split(|byte| *byte == b'\n').enumerate().filter(|(_, line)| !line.is_empty()) {
        let fail = || super::unknown(WHAT, index, line);
        let at = line.iter().position(|byte| *byte == 0).ok_or_else(fail)?;
        let sha = super::sha(&line[at + 1..]).ok_or_else(fail)?;
        if let Ok(name) = std::str::from_utf8(&line[..at]) {
            refs.push((name.to_owned(), sha));
        }
    }
    Ok(refs)
}

/// Where a ref stands next to another commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tip {
    /// The commit it names.
    pub sha: Sha,
    /// Its tree.
    pub tree: Sha,
    /// Commits that it has and the other has not.
    pub ahead: u64,
    /// Commits that the other has and it has not.
    pub behind: u64,
}

/// Full ref names with their tips, `<refname> NUL <commit> <tree> <ahead> <behind>`.
pub(in super::super) fn tips(output: &[u8]) -> Result<BTreeMap<String, Tip>, GitError> {
    let lines = output.split(|byte| *byte == b'\n').enumerate().filter(|(_, line)| !line.is_empty());
    let read = |line: &[u8]| {
        let text = String::from_utf8_lossy(line);
        let (name, rest) = text.split_once('\0')?;
        let [sha, tree, ahead, behind] = rest.split(' ').collect::<Vec<_>>().try_into().ok()?;
        let tip = Tip {
            sha: sha.parse().ok()?,
            tree: tree.parse().ok()?,
            ahead: ahead.parse().ok()?,
            behind: behind.parse().ok()?,
        };
        Some((name.to_owned(), tip))
    };
    lines.map(|(index, line)| read(line).ok_or_else(|| super::unknown(WHAT, index, line))).collect()
}

/// One object name on a line of its own.
pub(in super::super) fn one(what: &str, output: &[u8]) -> Result<Sha, GitError> {
    let line = output.strip_suffix(b"\n").unwrap_or(output);
    super::sha(line).ok_or_else(|| super::unknown(what, 0, line))
}

/// One object name per line.
pub(in super::super) fn many(what: &str, output: &[u8]) -> Result<Vec<Sha>, GitError> {
    let lines = output.split(|byte| *byte == b'\n').enumerate().filter(|(_, line)| !line.is_empty());
    lines.map(|(index, line)| super::sha(line).ok_or_else(|| super::unknown(what, index, line))).collect()
}

/// Two numbers with a tab between them.
pub(in super::super) fn pair(what: &str, output: &[u8]) -> Result<(u64, u64), GitError> {
    let text = String::from_utf8_lossy(output);
    let parsed =
        text.trim_end().split_once('\t').and_then(|(left, right)| Some((left.parse().ok()?, right.parse().ok()?)));
    parsed.ok_or_else(|| super::unknown(what, 0, output))
}

/// One number.
pub(in super::super) fn number(what: &str, output: &[u8]) -> Result<u64, GitError> {
    String::from_utf8_lossy(output).trim_end().parse().map_err(|_| super::unknown(what, 0, output))
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "0123456789abcdef0123456789abcdef01234567";

    #[test]
    fn refs_and_names_are_read() {
        let refs = list(format!("refs/heads/a\0{A}\nrefs/heads/b/c\0{A}\n").as_bytes()).unwrap();
        assert_eq!(refs[1], ("refs/heads/b/c".to_owned(), A.parse().unwrap()));
        assert!(list(b"").unwrap().is_empty());
        assert!(list(b"refs/heads/a 0123\n").is_err());
        assert_eq!(one("x", format!("{A}\n").as_bytes()).unwrap().as_str(), A);
        assert!(one("x", b"HEAD\n").is_err());
        assert_eq!(pair("x", b"3\t0\n").unwrap(), (3, 0));
        assert!(pair("x", b"3 0\n").is_err());
        let tip = &tips(format!("refs/heads/a\0{A} {A} 3 0\n").as_bytes()).unwrap()["refs/heads/a"];
        assert_eq!((tip.sha.as_str(), tip.ahead, tip.behind), (A, 3, 0));
        assert!(tips(format!("refs/heads/a\0{A} {A} 3\n").as_bytes()).is_err());
        assert_eq!(number("x", b"12\n").unwrap(), 12);
    }
}
