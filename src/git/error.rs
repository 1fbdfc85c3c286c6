//! What can go wrong with git, and which code it has on the wire.
//!
//! Git's own words are kept: they are the best description of a failure nobody foresaw. They are classified only
//! where a caller must act differently, and the classes are tested against real failures.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use super::own_config::Driver;
use super::text::to_text;
use crate::model::{Code, Error};

/// A failed git call. The code on the wire is named with each variant.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GitError {
    /// The program could not be started (W100).
    #[error("git could not be started ({program}); install git or put it on the PATH of the worker")]
    Spawn {
        /// The program that was tried.
        program: String,
        /// Why the system refused.
        #[source]
        source: io::Error,
    },
    /// The installed git is older than the oldest one that works here (W100).
    #[error("git {found} is too old: at least {needed} is needed ({why}); upgrade git")]
    TooOld {
        /// The version found.
        found: String,
        /// The oldest that will do.
        needed: String,
        /// What the older ones lack.
        why: &'static str,
    },
    /// The process ran past its limit and was ended with everything it had started (W101).
    #[error("`{what}` ran past its limit of {} ms and was ended; retry, or raise `git_timeout_ms`", limit.as_millis())]
    Timeout {
        /// The command.
        what: String,
        /// The limit.
        limit: Duration,
    },
    /// Git failed in a way that has no class of its own (W102).
    #[error("`{what}` failed ({}): {}", ending(*code, *signal), words(stderr))]
    Failed {
        /// The command.
        what: String,
        /// The exit code; `None` when a signal ended the process.
        code: Option<i32>,
        /// The signal that ended the process.
        signal: Option<i32>,
        /// The end of what it wrote to standard error.
        stderr: String,
    },
    /// The path is not inside a git repository (W110).
    #[error("{} is not inside a git repository; pass a path inside one", to_text(path))]
    NotARepository {
        /// The path asked for.
        path: PathBuf,
    },
    /// The directory is not the root of a worktree, or its link to the repository is unreadable (W110).
    #[error("{} is not a git worktree: {why}", to_text(path))]
    NotAWorktree {
        /// The directory.
        path: PathBuf,
        /// What is missing.
        why: String,
    },
    /// Git refuses a repository that belongs to another user (W113).
    #[error("git refuses {}: it belongs to {}, not to the user of this worker; change its owner, or add it to `safe.directory` in the git configuration of this user", to_text(path), uid(*owner))]
    DubiousOwnership {
        /// The repository git named.
        path: PathBuf,
        /// The user who owns it, where that could be read.
        owner: Option<u32>,
    },
    /// A path or ref that git must not even be shown (W111).
    #[error("`{name}` cannot be used: {why}")]
    Malformed {
        /// What was passed.
        name: String,
        /// The rule it breaks.
        why: &'static str,
    },
    /// The ref or revision does not resolve to a commit (W112).
    #[error("`{name}` does not resolve to a commit; name a branch, tag or commit that exists")]
    RefMissing {
        /// What was asked for.
        name: String,
    },
    /// The repository has no commits (W115).
    #[error("{} has no commits yet; make a first commit", to_text(path))]
    NoCommits {
        /// The repository.
        path: PathBuf,
    },
    /// A shallow history hides what two commits have in common (W114).
    #[error("the history of {} is shallow and hides the merge base; run `git fetch --unshallow`", to_text(path))]
    Shallow {
        /// The repository.
        path: PathBuf,
    },
    /// The branch exists already (W120).
    #[error("branch `{branch}` already exists; choose another name")]
    BranchExists {
        /// The branch.
        branch: String,
    },
    /// Another ref makes the branch name impossible (W121).
    #[error("branch `{branch}` cannot be created while `{existing}` exists; choose another name")]
    BranchCollision {
        /// The branch that was wanted.
        branch: String,
        /// The full name of the ref in the way.
        existing: String,
    },
    /// Something exists where a worktree should be created (W102).
    #[error("{} already exists and is left alone", to_text(path))]
    PathTaken {
        /// The path.
        path: PathBuf,
    },
    /// A lock file of git stayed taken for the whole time it was waited for (W102).
    #[error(
        "`{what}` could not take a lock of git: {lock}; another git process is at work, or one died and left the file"
    )]
    LockContention {
        /// The command.
        what: String,
        /// Git's words, which name the lock.
        lock: String,
    },
    /// Git does not know whom to name as committer (W102).
    #[error(
        "git does not know whom to name as committer: set `user.name` and `user.email` in the git configuration of the user who runs this worker"
    )]
    NoIdentity,
    /// The repository asks for signed commits and policy forbids to go on without (W102).
    #[error(
        "{} sets `commit.gpgSign`, and this worker is told to fail rather than to write unsigned commits (`git.signing`)",
        to_text(path)
    )]
    SigningRequired {
        /// The repository.
        path: PathBuf,
    },
    /// The repository's own configuration defines a program that policy does not allow (W503).
    #[error("the configuration of {} defines the {} `{}` (`{}`), which git would run; if you trust it, {}, or define it in the git configuration of the user who runs this worker", to_text(path), driver.kind.words().0, driver.name, driver.command, driver.kind.words().1)]
    DriverNotAllowed {
        /// The repository.
        path: PathBuf,
        /// The program.
        driver: Driver,
    },
    /// A filter that the attributes of a file ask for could not be run (W102).
    #[error("the filter `{filter}` could not be run; install what it needs for the user who runs this worker{}: `{what}` failed ({}): {}", lfs_hint(filter), ending(*code, None), words(stderr))]
    FilterFailed {
        /// The command.
        what: String,
        /// The name of the filter in attributes.
        filter: String,
        /// The exit code.
        code: Option<i32>,
        /// Git's words.
        stderr: String,
    },
    /// An operation is open in the worktree, so that another one cannot begin (W402, W403).
    #[error("{} is open in {}; finish or abort it first", operation.name(), to_text(path))]
    OperationOpen {
        /// The worktree.
        path: PathBuf,
        /// What is open.
        operation: super::Operation,
    },
    /// Files that git does not know would be overwritten (W102).
    #[error(
        "{} that git does not know would be overwritten in {}: {}; move them away",
        count(files),
        to_text(path),
        listed(files)
    )]
    FilesInTheWay {
        /// The worktree.
        path: PathBuf,
        /// The files, relative to it.
        files: Vec<PathBuf>,
    },
    /// Git wrote more than can be held; the output is not used at all (W102).
    #[error("`{what}` wrote more than {cap} bytes, which is more than can be handled")]
    TooMuchOutput {
        /// The command.
        what: String,
        /// The bound, in bytes.
        cap: usize,
    },
    /// Git wrote something this worker does not understand (W102).
    #[error("the output of `{what}` is not understood at item {line}: {text}")]
    Parse {
        /// The command.
        what: String,
        /// Which line or item, from 1.
        line: usize,
        /// The line itself, shortened.
        text: String,
    },
    /// A file of the repository could not be read or written (W102).
    #[error("{what} {}", to_text(path))]
    Io {
        /// What was being done: `reading`, `writing`.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// Why the system refused.
        #[source]
        source: io::Error,
    },
}

/// How many characters of git's words go into a message.
const SHOWN: usize = 800;

fn ending(code: Option<i32>, signal: Option<i32>) -> String {
    match (code, signal) {
        (Some(code), _) => format!("exit {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "no exit code".to_owned(),
    }
}

fn words(stderr: &str) -> String {
    let text = stderr.trim();
    if text.is_empty() {
        return "it said nothing".to_owned();
    }
    // The end says why; the beginning is progress.
    let skip = text.chars().count().saturating_sub(SHOWN);
    text.chars().skip(skip).collect()
}

/// How many files are named in a message.
const NAMED: usize = 10;

fn count(files: &[PathBuf]) -> String {
    if files.len() == 1 { "1 file".to_owned() } else { format!("{} files", files.len()) }
}

fn listed(files: &[PathBuf]) -> String {
    let names: Vec<_> = files.iter().take(NAMED).map(|file| to_text(file)).collect();
    let more = if files.len() > NAMED { ", …" } else { "" };
    format!("{}{more}", names.join(", "))
}

fn lfs_hint(filter: &str) -> &'static str {
    if filter == "lfs" { ", or set git.skip_lfs_smudge: true to get the pointer files" } else { "" }
}

fn uid(owner: Option<u32>) -> String {
    owner.map_or_else(|| "another user".to_owned(), |uid| format!("uid {uid}"))
}

impl GitError {
    /// The code of this failure on the wire.
    #[must_use]
    pub fn code(&self) -> Code {
        match self {
            GitError::Spawn { .. } | GitError::TooOld { .. } => Code::GitSpawn,
            GitError::Timeout { .. } => Code::GitTimeout,
            GitError::NotARepository { .. } | GitError::NotAWorktree { .. } => Code::NotARepository,
            GitError::DubiousOwnership { .. } => Code::DubiousOwnership,
            GitError::Malformed { .. } => Code::Malformed,
            GitError::RefMissing { .. } => Code::RefNotFound,
            GitError::NoCommits { .. } => Code::NoCommits,
            GitError::Shallow { .. } => Code::ShallowHistory,
            GitError::BranchExists { .. } => Code::BranchExists,
            GitError::BranchCollision { .. } => Code::BranchCollision,
            GitError::DriverNotAllowed { .. } => Code::RepoNotAllowed,
            GitError::OperationOpen { operation, .. } if operation.is_rebase() => Code::RebaseOpen,
            GitError::OperationOpen { .. } => Code::OperationOpen,
            GitError::Failed { .. }
            | GitError::PathTaken { .. }
            | GitError::LockContention { .. }
            | GitError::NoIdentity
            | GitError::SigningRequired { .. }
            | GitError::FilesInTheWay { .. }
            | GitError::FilterFailed { .. }
            | GitError::TooMuchOutput { .. }
            | GitError::Parse { .. }
            | GitError::Io { .. } => Code::GitFailed,
        }
    }

    /// Whether the same call may succeed later without anybody changing anything.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(self, GitError::Timeout { .. } | GitError::LockContention { .. } | GitError::Spawn { .. })
    }

    /// A failure to read `path`.
    pub(super) fn reading(path: impl Into<PathBuf>, source: io::Error) -> Self {
        GitError::Io { what: "reading", path: path.into(), source }
    }
}

impl From<GitError> for Error {
    fn from(error: GitError) -> Error {
        let source = std::error::Error::source(&error).map(|source| format!(": {source}")).unwrap_or_default();
        Error::new(error.code(), format!("{error}{source}"))
    }
}

/// Gives a failed command its class, from what it wrote to standard error in English.
pub(super) fn classify(what: &str, code: Option<i32>, signal: Option<i32>, stderr: &[u8]) -> GitError {
    let text = String::from_utf8_lossy(stderr).into_owned();
    let what = what.to_owned();
    if text.contains("detected dubious ownership") {
        let path = PathBuf::from(between(&text, "repository at '", "'").unwrap_or_default());
        return GitError::DubiousOwnership { owner: owner_of(&path), path };
    }
    if text.contains("not a git repository") {
        let path = between(&text, "not a git repository: '", "'").unwrap_or_default();
        return GitError::NotARepository { path: PathBuf::from(path) };
    }
    if let Some(lock) = text.lines().find(|line| is_lock(line)) {
        return GitError::LockContention { what, lock: lock.trim_start_matches("fatal: ").to_owned() };
    }
    if ["Please tell me who you are", "empty ident name", "unable to auto-detect email address", "no email was given"]
        .iter()
        .any(|words| text.contains(words))
    {
        return GitError::NoIdentity;
    }
    if let Some(filter) = failed_filter(&text) {
        return GitError::FilterFailed { what, filter, code, stderr: text };
    }
    GitError::Failed { what, code, signal, stderr: text }
}

/// The filter of `fatal: a.bin: smudge filter lfs failed` and `fatal: a.bin: clean filter 'lfs' failed`.
fn failed_filter(text: &str) -> Option<String> {
    let last = text.lines().rev().find(|line| line.starts_with("fatal: ") && line.ends_with(" failed"));
    if let Some((_, rest)) = last.and_then(|last| last.strip_suffix(" failed")?.rsplit_once(" filter ")) {
        return Some(rest.trim_matches('\'').to_owned());
    }
    // One that goes on between files and ends early is only told of by whoever could not start it.
    let ended = text.contains("the remote end hung up unexpectedly") && text.contains("git-lfs");
    ended.then(|| "lfs".to_owned())
}

/// Whether git says in this line that a file another git process holds was in its way.
fn is_lock(line: &str) -> bool {
    (line.contains("Unable to create '") && line.contains(".lock': File exists"))
        || line.contains("could not lock config file")
        // The entry of a sibling that another process is just writing.
        || (line.contains("failed to read ") && line.contains("/worktrees/") && line.contains("commondir"))
}

fn between<'a>(text: &'a str, before: &str, after: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(before)?;
    rest.split_once(after).map(|(inner, _)| inner)
}

#[cfg(unix)]
fn owner_of(path: &std::path::Path) -> Option<u32> {
    use std::os::unix::fs::MetadataExt as _;
    std::fs::symlink_metadata(path).ok().map(|meta| meta.uid())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(stderr: &str) -> GitError {
        classify("git x", Some(128), None, stderr.as_bytes())
    }

    #[test]
    fn words_of_git_get_their_class() {
        assert_eq!(class("fatal: detected dubious ownership in repository at '/r'\nTo add").code().as_str(), "W113");
        assert_eq!(
            class("fatal: not a git repository (or any of the parent directories): .git").code().as_str(),
            "W110"
        );
        assert!(matches!(
            class("fatal: Unable to create '/r/.git/index.lock': File exists.\n\nAnother git process"),
            GitError::LockContention { lock, .. } if lock.contains("index.lock")
        ));
        assert!(class("error: could not lock config file .git/config: File exists").is_transient());
        assert!(matches!(class("*** Please tell me who you are.\n\nRun"), GitError::NoIdentity));
        assert_eq!(class("fatal: bad object").code().as_str(), "W102");
        for words in [
            "fatal: a b.bin: smudge filter lfs failed",
            "x\nfatal: a: clean filter 'lfs' failed\n",
            "sh: 1: git-lfs: not found\nfatal: the remote end hung up unexpectedly",
        ] {
            assert!(matches!(class(words), GitError::FilterFailed { filter, .. } if filter == "lfs"), "{words}");
        }
    }

    #[test]
    fn the_message_on_the_wire_holds_the_cause_and_no_code() {
        let error: Error = GitError::reading("/r/HEAD", io::Error::other("torn")).into();
        assert_eq!(error.message, "reading /r/HEAD: torn");
        let error: Error = class("fatal: bad object").into();
        assert_eq!(error.message, "`git x` failed (exit 128): fatal: bad object");
    }
}
