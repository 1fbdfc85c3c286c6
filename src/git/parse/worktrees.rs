//! `worktree list --porcelain -z`: attributes ended by NUL, worktrees ended by an empty attribute.

use std::path::PathBuf;

use super::super::error::GitError;
use super::super::sha::Sha;

const WHAT: &str = "git worktree list";

/// A worktree as git has it registered.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WorktreeEntry {
    /// Its root; for a bare repository the repository itself.
    pub path: PathBuf,
    /// The commit checked out; `None` when bare or unborn.
    pub head: Option<Sha>,
    /// The short name of the branch checked out.
    pub branch: Option<String>,
    /// The entry stands for a bare repository.
    pub bare: bool,
    /// No branch is checked out.
    pub detached: bool,
    /// Locked, with the reason (empty when none was given).
    pub locked: Option<String>,
    /// Git would prune it, with the reason.
    pub prunable: Option<String>,
    /// The first entry: the repository's own checkout, or the bare repository.
    pub primary: bool,
}

/// Reads the whole list. Attributes of later versions of git are passed over; a missing value is an error.
pub(in super::super) fn parse(output: &[u8]) -> Result<Vec<WorktreeEntry>, GitError> {
    let mut entries: Vec<WorktreeEntry> = Vec::new();
    let mut open: Option<WorktreeEntry> = None;
    for (index, item) in super::terminated(WHAT, output)?.into_iter().enumerate() {
        let fail = || super::unknown(WHAT, index, item);
        if item.is_empty() {
            entries.push(open.take().ok_or_else(fail)?);
            continue;
        }
        let at = item.iter().position(|byte| *byte == b' ');
        let (key, value) = at.map_or((item, None), |at| (&item[..at], Some(&item[at + 1..])));
        if key == b"worktree" {
            let path = value.filter(|value| !value.is_empty()).ok_or_else(fail)?;
            let entry =
                WorktreeEntry { path: super::paths::path(path), primary: entries.is_empty(), ..Default::default() };
            if open.replace(entry).is_some() {
                return Err(fail());
            }
            continue;
        }
        let entry = open.as_mut().ok_or_else(fail)?;
        let text = || value.map(|value| String::from_utf8_lossy(value).into_owned());
        match key {
            // All zeroes stand for an unborn branch.
            b"HEAD" => entry.head = unborn_or(value.ok_or_else(fail)?).ok_or_else(fail)?,
            b"branch" => {
                let name = text().ok_or_else(fail)?;
                entry.branch = Some(name.strip_prefix("refs/heads/").unwrap_or(&name).to_owned());
            }
            b"bare" => entry.bare = true,
            b"detached" => entry.detached = true,
            b"locked" => entry.locked = Some(text().unwrap_or_default()),
            b"prunable" => entry.prunable = Some(text().unwrap_or_default()),
            _ => {}
        }
    }
    if open.is_some() {
        return Err(super::unknown(WHAT, entries.len(), b"the last worktree has no end"));
    }
    Ok(entries)
}

fn unborn_or(value: &[u8]) -> Option<Option<Sha>> {
    if value.iter().all(|byte| *byte == b'0') { Some(None) } else { super::sha(value).map(Some) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "0123456789abcdef0123456789abcdef01234567";

    #[test]
    fn every_attribute_is_read() {
        let text = format!(
            "worktree /r\0HEAD {A}\0branch refs/heads/main\0\0\
             worktree /w a\nb\0HEAD {A}\0detached\0locked two\nlines\0prunable gone\0\0\
             worktree /u\0HEAD {}\0branch refs/heads/x/y\0locked\0novel thing\0\0",
            "0".repeat(40)
        );
        let all = parse(text.as_bytes()).unwrap();
        assert!(all[0].primary && !all[1].primary);
        assert_eq!(all[0].branch.as_deref(), Some("main"));
        assert_eq!(all[1].path, PathBuf::from("/w a\nb"));
        assert!(all[1].detached);
        assert_eq!(all[1].locked.as_deref(), Some("two\nlines"));
        assert_eq!(all[1].prunable.as_deref(), Some("gone"));
        assert_eq!(
            (all[2].head.clone(), all[2].branch.as_deref(), all[2].locked.as_deref()),
            (None, Some("x/y"), Some(""))
        );
        assert!(parse(b"worktree /r\0bare\0\0").unwrap()[0].bare);
    }

    #[test]
    fn torn_lists_are_refused() {
        for bad in [
            &b"worktree /r\0bare\0"[..],
            b"bare\0\0",
            b"worktree\0\0",
            b"worktree /r\0HEAD x\0\0",
            b"worktree /r",
            b"\0",
        ] {
            assert!(parse(bad).is_err(), "{:?}", String::from_utf8_lossy(bad));
        }
    }
}
