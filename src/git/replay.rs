//! A rebase in memory: the commits that `git rebase <onto>` would make, without touching a worktree.
//!
//! Every commit is merged onto the new base by `merge-tree`, which is the machinery a rebase uses, and written with
//! the tree of that merge, its own author and its own message. Wherever a real rebase would do anything else (leave a
//! commit out, sign, convert, ask a hook or a program), the answer is [`Replay::NotProvable`], and the caller rebases
//! for real.
//!
//! Invariants
//! 1. [`Replay::Done`] holds commit for commit what a rebase makes: tree, author with date, message bytes, no other
//!    header. The committer is the user of this worker, now.
//! 2. [`Replay::Conflict`] is reported only where the rebase stops too.
//! 3. Nothing but new objects is written; no ref and no worktree changes.
//! 4. What is in doubt is not provable: unknown headers, settings that rename detection or messages depend on.

use std::path::{Path, PathBuf};

use super::Repo;
use super::error::GitError;
use super::objects;
use super::parse;
use super::parse::commits::RawCommit;
use super::program::Signing;
use super::sha::Sha;
use super::surroundings::is_executable;

/// What a rebase in memory came to.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum Replay {
    /// The commits sit on `onto` already.
    UpToDate,
    /// This is what a rebase would make. The objects exist; no ref names them yet.
    Done {
        /// The new tip.
        head: Sha,
    },
    /// A rebase would stop at a conflict.
    Conflict {
        /// The files in conflict, at the first commit that has any.
        paths: Vec<PathBuf>,
    },
    /// A rebase might do something that cannot be foretold.
    NotProvable {
        /// What that is.
        why: String,
    },
}

/// How many commits are replayed at most.
const LONGEST: usize = 500;

/// Settings that change what a rebase makes of a commit; any value of one is a doubt. Section and name in lower case.
const DOUBTFUL: &[&str] = &[
    "merge.renames",
    "merge.renamelimit",
    "merge.directoryrenames",
    "merge.renormalize",
    "merge.default",
    "diff.renames",
    "diff.renamelimit",
    "diff.algorithm",
    "commit.cleanup",
    "i18n.commitencoding",
    "notes.rewriteref",
    // What a single worktree is told is not looked at here.
    "extensions.worktreeconfig",
];

/// Hooks that may refuse a rebase, change a message, or carry something along.
const HOOKS: &[&str] = &["pre-rebase", "prepare-commit-msg", "post-rewrite"];

/// Settings about how objects come to the disk.
const STORING: &[&str] = &["core.fsync", "core.fsyncmethod", "core.fsyncobjectfiles", "core.sharedrepository"];

/// How objects are to be stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ObjectStore {
    /// As git does where nothing is configured.
    Plain,
    /// Git knows.
    AsConfigured,
}

/// Why a replay ends before its end.
enum Stop {
    Answer(Replay),
    Failed(GitError),
}

impl From<GitError> for Stop {
    fn from(error: GitError) -> Stop {
        Stop::Failed(error)
    }
}

fn doubt<T>(why: impl Into<String>) -> Result<T, Stop> {
    Err(Stop::Answer(Replay::NotProvable { why: why.into() }))
}

impl Repo {
    /// What `git rebase <onto>` would make of the commits of `tip`.
    ///
    /// # Errors
    /// W114 when a shallow history hides where the two part; W102, also when git does not know whom to name as
    /// committer.
    pub async fn replay(&self, tip: &Sha, onto: &Sha) -> Result<Replay, GitError> {
        match self.replayed(tip, onto).await {
            Ok(answer) | Err(Stop::Answer(answer)) => Ok(answer),
            Err(Stop::Failed(error)) => Err(error),
        }
    }

    async fn replayed(&self, tip: &Sha, onto: &Sha) -> Result<Replay, Stop> {
        if tip == onto {
            return Ok(Replay::UpToDate);
        }
        let questions = async { tokio::join!(self.range(tip, onto), self.undoubtful_settings(), self.committer()) };
        let (range, settings, committer) = Box::pin(questions).await;
        let range = range?;
        if range.is_empty() {
            // A branch that the new base contains moves forward to it.
            return Ok(Replay::Done { head: onto.clone() });
        }
        let mut names = vec![onto.clone()];
        names.extend(range.iter().cloned());
        let mut commits = self.raw_commits(&names).await?;
        let base = commits.remove(0);
        require_line(&commits)?;
        if commits[0].parents[0] == *onto {
            return Ok(Replay::UpToDate);
        }
        let store = settings?;
        for commit in &commits {
            require_plain(commit)?;
        }
        let committer = committer?;
        let picking = self.picked(&commits, base, &committer, store);
        let (plain, head) = tokio::join!(self.require_plain_changes(&range), Box::pin(picking));
        plain?;
        Ok(Replay::Done { head: head? })
    }

    /// Puts the commits on top of `base`, one after the other.
    async fn picked(
        &self,
        commits: &[RawCommit],
        base: RawCommit,
        committer: &str,
        store: ObjectStore,
    ) -> Result<Sha, Stop> {
        let (mut head, mut tree) = (base.sha, base.tree);
        for commit in commits {
            let merged = self.merged(commit, &head).await?;
            if merged == tree {
                return doubt(format!("commit {} would become empty", commit.sha.short()));
            }
            tree = merged;
            head = self.write_commit(&tree, &head, commit, committer, store).await?;
        }
        Ok(head)
    }

    async fn committer(&self) -> Result<String, Stop> {
        let committer = self.command(["var", "GIT_COMMITTER_IDENT"]).run().await?.line()?;
        if committer.contains(char::REPLACEMENT_CHARACTER) {
            return doubt("the name of the committer is not UTF-8");
        }
        Ok(committer)
    }

    /// The commits that a rebase would pick, oldest first. Those that the other side has as well are a doubt.
    async fn range(&self, tip: &Sha, onto: &Sha) -> Result<Vec<Sha>, Stop> {
        let output = self
            .command(["rev-list", "--topo-order", "--reverse", "--right-only", "--cherry-mark", "--parents"])
            .arg(format!("{onto}...{tip}"))
            .arg("--")
            // A rebase judges what is a binary file by the attributes that are checked out.
            .attributes_of(tip)
            .run()
            .await?;
        if output.code == Some(129) {
            // A real rebase would take the cut for the beginning of history, and pick what is there as a whole.
            if self.is_shallow().await? && self.merge_base(tip, onto).await?.is_none() {
                return Err(GitError::Shallow { path: self.common_dir.to_path_buf() }.into());
            }
            return doubt("this git cannot take attributes from a commit");
        }
        let picks = parse::commits::marked(&output.stdout()?)?;
        if picks.iter().any(|pick| pick.duplicate) {
            return doubt("a commit makes a change that the new base has already");
        }
        if picks.len() > LONGEST {
            return doubt(format!("{} commits are too many to replay one by one", picks.len()));
        }
        if let Some(root) = picks.iter().find(|pick| pick.parents == 0) {
            // Where history is cut off, git shows a commit as if it had no parents.
            if self.is_shallow().await? {
                return Err(GitError::Shallow { path: self.common_dir.to_path_buf() }.into());
            }
            return doubt(format!("commit {} has nothing in common with the new base", root.sha.short()));
        }
        Ok(picks.into_iter().map(|pick| pick.sha).collect())
    }

    async fn raw_commits(&self, names: &[Sha]) -> Result<Vec<RawCommit>, GitError> {
        let loose = names.iter().map(|name| objects::commit(&self.common_dir, name)).collect::<Option<Vec<_>>>();
        if let Some(commits) = loose {
            return Ok(commits);
        }
        let list: String = names.iter().map(|name| format!("{name}\n")).collect();
        let output = self.command(["cat-file", "--batch"]).stdin(list.into_bytes()).run().await?.stdout()?;
        let commits = parse::commits::batch(&output)?;
        if commits.len() == names.len() && commits.iter().zip(names).all(|(commit, name)| commit.sha == *name) {
            return Ok(commits);
        }
        let text = format!("{} commits instead of {}", commits.len(), names.len());
        Err(GitError::Parse { what: "git cat-file".to_owned(), line: commits.len(), text })
    }

    /// That no setting is in doubt, and how objects are to be stored.
    async fn undoubtful_settings(&self) -> Result<ObjectStore, Stop> {
        let output = self.command(["config", "--list", "-z"]).own_hooks().own_signing().run().await?.stdout()?;
        let entries = parse::config::list(&output)?;
        let value = |key: &str| entries.iter().rev().find(|(name, _)| name == key).map(|(_, value)| value.as_str());
        if let Some(key) = DOUBTFUL.iter().find(|key| value(key).is_some()) {
            return doubt(format!("`{key}` is set"));
        }
        let driver = |key: &str| key.starts_with("merge.") && key.ends_with(".driver");
        if let Some((key, _)) = entries.iter().find(|(key, _)| driver(key) || key.starts_with("includeif.onbranch:")) {
            return doubt(format!("`{key}` is set"));
        }
        let signs = value("commit.gpgsign").is_some_and(|value| !is_false(value));
        if signs && self.git.policy().signing != Signing::Off {
            return doubt("commits are to be signed");
        }
        let hooks = match value("core.hookspath") {
            None => self.common_dir.join("hooks"),
            Some(path) if Path::new(path).is_absolute() => PathBuf::from(path),
            Some(_) => return doubt("`core.hookspath` is relative to a worktree"),
        };
        match HOOKS.iter().find(|hook| is_executable(&hooks.join(hook))) {
            Some(hook) => doubt(format!("there is a {hook} hook")),
            None if STORING.iter().any(|key| value(key).is_some()) => Ok(ObjectStore::AsConfigured),
            None => Ok(ObjectStore::Plain),
        }
    }

    /// No commit is empty, and none changes a submodule.
    async fn require_plain_changes(&self, range: &[Sha]) -> Result<(), Stop> {
        let list: String = range.iter().map(|name| format!("{name}\n")).collect();
        let output = self
            .command(["diff-tree", "--stdin", "-r", "--raw", "--no-renames", "--no-abbrev"])
            .stdin(list.into_bytes())
            .run()
            .await?
            .stdout()?;
        // A name of a commit, then its changes: `:<mode> <mode> …`. Commits without changes are left out.
        let lines = output.split(|byte| *byte == b'\n');
        let (changes, commits): (Vec<_>, Vec<_>) =
            lines.filter(|line| !line.is_empty()).partition(|line| line[0] == b':');
        if changes
            .iter()
            .any(|line| line.starts_with(b":160000") || line[1..].split(|b| *b == b' ').nth(1) == Some(b"160000"))
        {
            return doubt("a commit changes a submodule");
        }
        if commits.len() != range.len() {
            return doubt("a commit changes nothing");
        }
        Ok(())
    }

    /// The tree of the commit's change on top of `head`.
    async fn merged(&self, commit: &RawCommit, head: &Sha) -> Result<Sha, Stop> {
        let output = self
            .command(["merge-tree", "--write-tree", "-z", "--name-only", "--no-messages"])
            .arg(format!("--merge-base={}", commit.parents[0]))
            .args([head, &commit.sha])
            .attributes_of(head)
            .writes()
            .run()
            .await?;
        if output.code == Some(129) {
            return doubt("this git cannot merge with a given merge base");
        }
        let output = output.expect(&[0, 1])?;
        let mut items = output.stdout.split(|byte| *byte == 0);
        let tree = parse::refs::one("git merge-tree", items.next().unwrap_or_default())?;
        if output.code == Some(0) {
            return Ok(tree);
        }
        let mut paths: Vec<PathBuf> = items.take_while(|item| !item.is_empty()).map(parse::paths::path).collect();
        paths.dedup();
        Err(Stop::Answer(Replay::Conflict { paths }))
    }

    async fn write_commit(
        &self,
        tree: &Sha,
        parent: &Sha,
        like: &RawCommit,
        committer: &str,
        store: ObjectStore,
    ) -> Result<Sha, GitError> {
        let mut object = format!("tree {tree}\nparent {parent}\nauthor ").into_bytes();
        object.extend_from_slice(&like.author);
        object.extend_from_slice(format!("\ncommitter {committer}\n\n").as_bytes());
        object.extend_from_slice(&like.message);
        if store == ObjectStore::Plain
            && let Some(sha) = objects::write_commit(&self.common_dir, &object, parent)
        {
            return Ok(sha);
        }
        let output =
            self.command(["hash-object", "-t", "commit", "-w", "--stdin"]).stdin(object).writes().run().await?;
        parse::refs::one("git hash-object", &output.stdout()?)
    }
}

/// Each commit has one parent, the one before it.
fn require_line(commits: &[RawCommit]) -> Result<(), Stop> {
    if commits.iter().any(|commit| commit.parents.len() != 1) {
        return doubt("there is a merge among the commits");
    }
    if commits.windows(2).any(|pair| pair[1].parents[0] != pair[0].sha) {
        return doubt("the commits are no line");
    }
    Ok(())
}

fn is_false(value: &str) -> bool {
    ["false", "no", "off", "0", ""].iter().any(|word| value.eq_ignore_ascii_case(word))
}

/// A rebase takes over this author and this message byte by byte.
fn require_plain(commit: &RawCommit) -> Result<(), Stop> {
    let name = commit.sha.short();
    // A signature is dropped by a rebase that does not sign.
    if let Some(header) = commit.others.iter().find(|header| !header.starts_with("gpgsig")) {
        return doubt(format!("commit {name} has a header `{header}`"));
    }
    if !std::str::from_utf8(&commit.author).is_ok_and(is_plain_ident) {
        return doubt(format!("the author of commit {name} would be written in another way"));
    }
    if !std::str::from_utf8(&commit.message).is_ok_and(is_plain_message) {
        return doubt(format!("the message of commit {name} would be written in another way"));
    }
    Ok(())
}

/// `Name <mail> <seconds> <zone>` in the form in which git itself writes it: git drops certain characters from both
/// ends of name and mail (ident.c).
fn is_plain_ident(ident: &str) -> bool {
    let Some((name, rest)) = ident.split_once(" <") else { return false };
    let Some((mail, time)) = rest.split_once("> ") else { return false };
    let Some((seconds, zone)) = time.split_once(' ') else { return false };
    let crud = |c: char| c <= ' ' || ".,:;<>\"\\'".contains(c);
    let plain = |text: &str| {
        !text.is_empty()
            && !text.starts_with(crud)
            && !text.ends_with(crud)
            && !text.contains(|c: char| c.is_ascii_control() || c == '<' || c == '>')
            && is_kept(text)
    };
    let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    let plain_zone = zone.len() == 5
        && zone.starts_with(['+', '-'])
        && zone != "-0000"
        && digits(&zone[1..])
        && zone[1..3].parse::<u8>().is_ok_and(|hours| hours <= 14)
        && zone[3..].parse::<u8>().is_ok_and(|minutes| minutes < 60);
    plain(name)
        && plain(mail)
        && plain_zone
        && digits(seconds)
        && (9..=10).contains(&seconds.len())
        && !seconds.starts_with('0')
}

/// A message that begins with a line that is not blank: a rebase drops blank lines before the subject.
fn is_plain_message(message: &str) -> bool {
    message.lines().next().is_some_and(|line| !line.trim().is_empty()) && !message.contains('\0') && is_kept(message)
}

/// Git rewrites text with code points that stand for no character as if it were Latin-1 (utf8.c).
fn is_kept(text: &str) -> bool {
    !text.chars().any(|c| u32::from(c) & 0xfffe == 0xfffe || ('\u{fdd0}'..='\u{fdef}').contains(&c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_idents_that_git_would_write_the_same_way_are_plain() {
        for good in ["A <a@b> 1767321845 +0100", "Ann Ö. Onymous <a> 999999999 -0330"] {
            assert!(is_plain_ident(good), "{good}");
        }
        for bad in [
            "",
            "A <a@b>",
            " <a@b> 1767321845 +0100",
            "A. <a@b> 1767321845 +0100",
            "A  <a@b> 1767321845 +0100",
            "A <> 1767321845 +0100",
            "A <a@b> 1767321845 0100",
            "A <a@b> 01767321845 +0100",
            "A <a@b> 1 +0100",
            "A <a@b> 1767321845 +0175",
            "A <a@b>  1767321845 +0100",
            "A <a<b> 1767321845 +0100",
            "A <a@b> 1767321845 -0000",
            "A <a@b> 1767321845 +0100 ",
            "A\u{fffe} <a> 1767321845 +0100",
        ] {
            assert!(!is_plain_ident(bad), "{bad:?}");
        }
    }

    #[test]
    fn messages_that_would_be_cleaned_are_not_plain() {
        for good in ["a", "a\n\nb\n\n\n", "# a\n", "  a"] {
            assert!(is_plain_message(good), "{good:?}");
        }
        for bad in ["", "\na", "  \na", "a\0b", "a\u{fdd0}"] {
            assert!(!is_plain_message(bad), "{bad:?}");
        }
    }
}
