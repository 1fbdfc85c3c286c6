//! Commit objects as `cat-file --batch` writes them.

use super::super::error::GitError;
use super::super::sha::Sha;

const WHAT: &str = "git cat-file";

/// A commit, its parts as they stand in the object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in super::super) struct RawCommit {
    pub(in super::super) sha: Sha,
    pub(in super::super) tree: Sha,
    pub(in super::super) parents: Vec<Sha>,
    /// Name, mail, time and zone.
    pub(in super::super) author: Vec<u8>,
    /// The names of all headers beside tree, parent, author and committer.
    pub(in super::super) others: Vec<String>,
    pub(in super::super) message: Vec<u8>,
}

/// Reads the objects one after the other. Anything that is no commit, or missing, is an error.
pub(in super::super) fn batch(output: &[u8]) -> Result<Vec<RawCommit>, GitError> {
    let mut commits = Vec::new();
    let mut rest = output;
    while !rest.is_empty() {
        let fail = || super::unknown(WHAT, commits.len(), rest);
        let (commit, after) = one(rest).ok_or_else(fail)?;
        commits.push(commit);
        rest = after;
    }
    Ok(commits)
}

/// `<name> commit <size>`, the object, a line end; and what follows.
fn one(bytes: &[u8]) -> Option<(RawCommit, &[u8])> {
    let (head, rest) = split(bytes, b'\n')?;
    let mut words = std::str::from_utf8(head).ok()?.split(' ');
    let sha = words.next()?.parse().ok()?;
    let (Some("commit"), Some(size), None) = (words.next(), words.next(), words.next()) else { return None };
    let (object, after) = rest.split_at_checked(size.parse().ok()?)?;
    Some((commit(sha, object)?, after.strip_prefix(b"\n")?))
}

fn commit(sha: Sha, object: &[u8]) -> Option<RawCommit> {
    let (mut tree, mut author, mut committer) = (None, None, false);
    let (mut parents, mut others) = (Vec::new(), Vec::new());
    let mut rest = object;
    loop {
        let (line, after) = split(rest, b'\n')?;
        rest = after;
        if line.is_empty() {
            break;
        }
        // A line that begins with a space continues the header before it.
        if line.starts_with(b" ") {
            others.last()?;
            continue;
        }
        let (key, value) = split(line, b' ')?;
        match key {
            b"tree" if tree.is_none() => tree = Some(super::sha(value)?),
            b"parent" => parents.push(super::sha(value)?),
            b"author" if author.is_none() => author = Some(value.to_vec()),
            b"committer" if !committer => committer = true,
            _ => others.push(String::from_utf8_lossy(key).into_owned()),
        }
    }
    committer.then_some(())?;
    Some(RawCommit { sha, tree: tree?, parents, author: author?, others, message: rest.to_vec() })
}

fn split(bytes: &[u8], at: u8) -> Option<(&[u8], &[u8])> {
    let end = bytes.iter().position(|byte| *byte == at)?;
    Some((&bytes[..end], &bytes[end + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "0123456789abcdef0123456789abcdef01234567";

    fn object(text: &str) -> Vec<u8> {
        format!("{A} commit {}\n{text}\n", text.len()).into_bytes()
    }

    #[test]
    fn headers_and_message_are_told_apart() {
        let text = format!(
            "tree {A}\nparent {A}\nauthor A U <a@b> 1 +0100\ncommitter C <c@d> 2 +0000\ngpgsig -----BEGIN\n x\n \n y\n\nsubject\n\nparent body\n"
        );
        let two = [object(&text), object(&text)].concat();
        let commits = batch(&two).unwrap();
        assert_eq!(commits.len(), 2);
        assert_eq!(commits[0].author, b"A U <a@b> 1 +0100");
        assert_eq!(commits[0].parents.len(), 1);
        assert_eq!(commits[0].others, ["gpgsig"]);
        assert_eq!(commits[0].message, b"subject\n\nparent body\n");
    }

    #[test]
    fn anything_else_is_refused() {
        let whole = object(&format!("tree {A}\nauthor a <b> 1 +0000\ncommitter a <b> 1 +0000\n\nm"));
        assert!(batch(&whole).is_ok());
        for cut in 1..whole.len() {
            assert!(batch(&whole[..cut]).is_err(), "{cut}");
        }
        assert!(batch(format!("{A} missing\n").as_bytes()).is_err());
        assert!(batch(format!("{A} tree 0\n\n").as_bytes()).is_err());
        assert!(batch(&object(&format!("tree {A}\n continued\nauthor a\ncommitter a\n\n"))).is_err());
    }
}
