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

/// A line of `rev-list --cherry-mark --parents`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in super::super) struct Marked {
    pub(in super::super) sha: Sha,
    /// The other side has a commit that makes the same change.
    pub(in super::super) duplicate: bool,
    /// How many parents git shows.
    pub(in super::super) parents: usize,
}

/// Reads the output of `diff-tree --stdin --always --shortstat`: the name of each of the `asked` commits, in their order,
/// followed by a summary where something differs. Returns the summaries, empty where nothing does.
pub(in super::super) fn summaries<'a>(
    output: &[u8],
    asked: impl Iterator<Item = &'a Sha>,
) -> Result<Vec<String>, GitError> {
    const WHAT: &str = "git diff-tree";
    let text = String::from_utf8_lossy(output);
    let mut lines = text.lines().enumerate().peekable();
    let mut found = Vec::new();
    for commit in asked {
        match lines.next() {
            Some((_, line)) if line == commit.as_str() => {}
            other => {
                let (at, line) = other.unwrap_or_default();
                return Err(super::unknown(WHAT, at, line.as_bytes()));
            }
        }
        let summary = lines.next_if(|(_, line)| line.starts_with(' '));
        found.push(summary.map(|(_, line)| line.trim().to_owned()).unwrap_or_default());
    }
    match lines.next() {
        None => Ok(found),
        Some((at, line)) => Err(super::unknown(WHAT, at, line.as_bytes())),
    }
}

/// Reads the marked commits in the order of git.
pub(in super::super) fn marked(output: &[u8]) -> Result<Vec<Marked>, GitError> {
    let lines = output.split(|byte| *byte == b'\n').enumerate().filter(|(_, line)| !line.is_empty());
    let read = |line: &[u8]| {
        let (duplicate, rest) = match line {
            [b'=', rest @ ..] => (true, rest),
            [b'+', rest @ ..] => (false, rest),
            _ => return None,
        };
        let names: Vec<Sha> = rest.split(|byte| *byte == b' ').map(super::sha).collect::<Option<_>>()?;
        let parents = names.len() - 1;
        Some(Marked { sha: names.into_iter().next()?, duplicate, parents })
    };
    lines.map(|(index, line)| read(line).ok_or_else(|| super::unknown("git rev-list", index, line))).collect()
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

/// Reads a commit as a loose object holds it: `commit <size>`, a zero byte, the object.
pub(in super::super) fn loose(sha: Sha, bytes: &[u8]) -> Option<RawCommit> {
    let (head, object) = split(bytes, 0)?;
    let size = std::str::from_utf8(head).ok()?.strip_prefix("commit ")?.parse::<usize>().ok()?;
    (object.len() == size).then(|| commit(sha, object))?
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
    fn a_loose_object_is_read_as_a_whole_or_not_at_all() {
        let text = format!("tree {A}\nauthor a <b> 1 +0000\ncommitter a <b> 1 +0000\n\nm");
        let sha = || A.parse::<Sha>().unwrap();
        let object = |kind: &str, size: usize| format!("{kind} {size}\0{text}").into_bytes();
        assert_eq!(loose(sha(), &object("commit", text.len())).unwrap().message, b"m");
        for bad in [object("commit", text.len() + 1), object("tag", text.len()), b"commit 0\0".to_vec(), Vec::new()] {
            assert!(loose(sha(), &bad).is_none(), "{bad:?}");
        }
    }

    #[test]
    fn marks_and_parents_are_read() {
        let picks = marked(format!("+{A} {A}\n={A}\n+{A} {A} {A}\n").as_bytes()).unwrap();
        let seen: Vec<_> = picks.iter().map(|pick| (pick.duplicate, pick.parents)).collect();
        assert_eq!(seen, [(false, 1), (true, 0), (false, 2)]);
        for bad in [format!("{A}\n"), format!("+{A} \n"), format!(">{A}\n"), "+\n".to_owned()] {
            assert!(marked(bad.as_bytes()).is_err(), "{bad:?}");
        }
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
