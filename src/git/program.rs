//! The git program: where it is, which version, under which limit and policy it runs, and what is where.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::discovery::Places;
use super::error::GitError;
use super::history::Trees;
use super::invocation::Invocation;
use super::own_config::Memory;
use super::parse::version::{self, Version};
use super::surroundings::{self, Variable};
use super::turns::Turns;
use super::{Repo, Tree, branch_name};

/// The oldest git that works here.
const MINIMUM: Version = Version::new(2, 38, 0);
/// What the older ones lack.
const MINIMUM_WHY: &str = "`merge-tree --write-tree` and `rebase --no-update-refs` came with it";

/// What makes the filter of git-lfs do nothing.
const LFS_OFF: &[(&str, &str)] = &[
    ("filter.lfs.clean", ""),
    ("filter.lfs.smudge", ""),
    ("filter.lfs.process", ""),
    ("filter.lfs.required", "false"),
];

/// What a repository may make git do, as the operator decided.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Policy {
    /// Whether the post-checkout hook runs.
    pub hooks: Hooks,
    /// Names of the filters that a repository's own configuration may define, `*` for all. What git-lfs writes for
    /// itself is known and need not be named.
    pub filters: Vec<String>,
    /// Names of the merge drivers that a repository's own configuration may define, `*` for all.
    pub merge_drivers: Vec<String>,
    /// What happens to a wish for signed commits.
    pub signing: Signing,
    /// Leave LFS pointer files as they are on checkout, instead of downloading their contents. Where git-lfs is not
    /// installed, they are then plain files.
    pub skip_lfs_smudge: bool,
}

/// What happens to the post-checkout hook of a repository, after a worktree was filled. No other hook ever runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Hooks {
    /// It runs.
    #[default]
    Run,
    /// It does not.
    Skip,
}

/// What happens to a wish for signed commits (`commit.gpgSign`) when this worker makes commits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Signing {
    /// Commits are not signed. No signing program is started, so nothing can wait for a passphrase.
    #[default]
    Off,
    /// The user's and the repository's configuration decides.
    Keep,
    /// A rebase is refused where configuration asks for signatures.
    Fail,
}

impl Policy {
    /// The configuration that carries out what it says about signing.
    pub(super) fn signing_config(&self) -> Vec<Variable> {
        match self.signing {
            Signing::Keep => Vec::new(),
            Signing::Off | Signing::Fail => vec![("commit.gpgSign".into(), "false".into())],
        }
    }
}

/// The git program with its limit and policy. Cheap to clone; clones share the process counter.
#[derive(Debug, Clone)]
pub struct Git {
    shared: Arc<Shared>,
    limit: Duration,
    policy: Arc<Policy>,
    in_background: bool,
}

#[derive(Debug)]
struct Shared {
    env: Vec<Variable>,
    program: OnceLock<PathBuf>,
    started: Arc<AtomicU64>,
    memory: Memory,
    trees: Trees,
    places: Places,
    turns: Turns,
}

impl Shared {
    fn new(inherited: impl IntoIterator<Item = Variable>) -> Arc<Shared> {
        let env = surroundings::scrub(inherited);
        Arc::new(Shared {
            env,
            program: OnceLock::new(),
            started: Arc::default(),
            memory: Memory::default(),
            trees: Trees::default(),
            places: Places::default(),
            turns: Turns::default(),
        })
    }
}

impl Git {
    /// The git on the PATH of this process, each of whose processes may run for `limit`. Nothing is started yet.
    #[must_use]
    pub fn new(limit: Duration) -> Git {
        Git { shared: Shared::new(std::env::vars_os()), limit, policy: Arc::default(), in_background: false }
    }

    /// The same, as if this process had been started with these variables on top of its own. They are scrubbed like
    /// all others. The process counter begins anew.
    #[must_use]
    pub fn with_env(&self, env: Vec<(OsString, OsString)>) -> Git {
        let mut inherited: Vec<Variable> = std::env::vars_os().collect();
        inherited.retain(|(name, _)| env.iter().all(|(other, _)| other != name));
        inherited.extend(env);
        Git { shared: Shared::new(inherited), ..self.clone() }
    }

    /// The same with another limit.
    #[must_use]
    pub fn with_limit(&self, limit: Duration) -> Git {
        Git { limit, ..self.clone() }
    }

    /// The same under another policy.
    #[must_use]
    pub fn with_policy(&self, policy: Policy) -> Git {
        Git { policy: Arc::new(policy), ..self.clone() }
    }

    /// The same for work that nobody waits for: its processes are nice to all others, and a checkout writes its files
    /// with one of them.
    #[must_use]
    pub fn in_background(&self) -> Git {
        Git { in_background: true, ..self.clone() }
    }

    /// Whether nobody waits for what is done through this value.
    pub(super) fn is_in_background(&self) -> bool {
        self.in_background
    }

    /// The program that lowers the priority of another one, with its arguments; none where there is no such program.
    pub(super) fn nice(&self) -> Option<PathBuf> {
        self.in_background.then(|| surroundings::find_program("nice", &self.shared.env)).flatten()
    }

    /// How many processes were started through this value and its clones.
    #[must_use]
    pub fn processes_started(&self) -> u64 {
        self.shared.started.load(Ordering::Relaxed)
    }

    /// How long one process may run.
    #[must_use]
    pub fn limit(&self) -> Duration {
        self.limit
    }

    /// The policy in force.
    #[must_use]
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Configuration and environment that leave LFS pointer files as they are, where policy asks for it.
    pub(super) fn lfs(&self) -> (Vec<Variable>, Option<Variable>) {
        if !self.policy.skip_lfs_smudge {
            return (Vec::new(), None);
        }
        let missing = surroundings::find_program("git-lfs", &self.shared.env).is_none();
        let off: &[(&str, &str)] = if missing { LFS_OFF } else { &[] };
        let config = off.iter().map(|(key, value)| (key.into(), value.into())).collect();
        (config, Some(("GIT_LFS_SKIP_SMUDGE".into(), "1".into())))
    }

    /// What was found in the configuration of repositories.
    pub(super) fn memory(&self) -> &Memory {
        &self.shared.memory
    }

    /// Which tree each commit has, as far as that was asked.
    pub(super) fn trees(&self) -> &Trees {
        &self.shared.trees
    }

    /// What was discovered before.
    pub(super) fn places(&self) -> &Places {
        &self.shared.places
    }

    /// Whose turn it is to write files.
    pub(super) fn turns(&self) -> &Turns {
        &self.shared.turns
    }

    pub(super) fn base_env(&self) -> &[Variable] {
        &self.shared.env
    }

    pub(super) fn started(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.shared.started)
    }

    pub(super) fn program(&self) -> Result<PathBuf, GitError> {
        if let Some(program) = self.shared.program.get() {
            return Ok(program.clone());
        }
        // A failure is not remembered: git may be installed while the worker runs.
        let found = surroundings::find_program("git", &self.shared.env).ok_or_else(|| GitError::Spawn {
            program: "git".to_owned(),
            source: std::io::Error::new(std::io::ErrorKind::NotFound, "not found in any directory of PATH"),
        })?;
        Ok(self.shared.program.get_or_init(|| found).clone())
    }

    /// Which version is installed.
    ///
    /// # Errors
    /// W100 when git cannot be started, W102 when its answer is not understood.
    pub async fn version(&self) -> Result<Version, GitError> {
        let output = Invocation::new(self, ["version"]).run().await?.stdout()?;
        version::parse(&output)
    }

    /// Like [`Git::version`], refusing what is too old to work with.
    ///
    /// # Errors
    /// W100 as well when it is too old.
    pub async fn require_version(&self) -> Result<Version, GitError> {
        let found = self.version().await?;
        if found < MINIMUM {
            return Err(GitError::TooOld { found: found.to_string(), needed: MINIMUM.to_string(), why: MINIMUM_WHY });
        }
        Ok(found)
    }

    /// The repository with this common directory. Starts nothing and checks nothing.
    #[must_use]
    pub fn repo(&self, common_dir: &Path) -> Repo {
        Repo::at(self, common_dir)
    }

    /// The worktree with this root, from its `.git` alone. Starts no process.
    ///
    /// # Errors
    /// W110 when `.git` is missing, unreadable or names nothing that exists.
    pub fn tree(&self, root: &Path) -> Result<Tree, GitError> {
        let refuse = |why: String| GitError::NotAWorktree { path: root.to_owned(), why };
        let root = std::fs::canonicalize(root).map_err(|error| refuse(error.to_string()))?;
        let dot_git = root.join(".git");
        let meta = std::fs::metadata(&dot_git).map_err(|error| refuse(format!("reading .git: {error}")))?;
        let git_dir = if meta.is_dir() {
            dot_git
        } else {
            let bytes = std::fs::read(&dot_git).map_err(|error| refuse(format!("reading .git: {error}")))?;
            let named =
                super::admin::named_git_dir(&bytes).ok_or_else(|| refuse("its .git file names nothing".into()))?;
            root.join(named)
        };
        let git_dir = std::fs::canonicalize(&git_dir)
            .map_err(|error| refuse(format!("{} which .git names: {error}", git_dir.display())))?;
        let common_dir = common_dir_of(&git_dir)?;
        if !common_dir.join("objects").is_dir() {
            return Err(refuse(format!("{} is not a git directory", common_dir.display())));
        }
        Ok(Tree::at(self, root, git_dir, common_dir))
    }

    /// Whether a branch may have this name: what `git check-ref-format --branch` accepts, without expanding `@{-1}`.
    ///
    /// # Errors
    /// None today; the signature leaves room to ask git.
    #[expect(clippy::unused_async, reason = "the rules are exact without asking git")]
    pub async fn valid_branch_name(&self, name: &str) -> Result<bool, GitError> {
        Ok(branch_name::is_valid(name))
    }
}

fn canonical(path: &Path) -> Result<PathBuf, GitError> {
    std::fs::canonicalize(path).map_err(|source| GitError::reading(path, source))
}

/// The common directory of a git directory: what its `commondir` file names, else itself.
pub(super) fn common_dir_of(git_dir: &Path) -> Result<PathBuf, GitError> {
    let file = git_dir.join("commondir");
    match std::fs::read(&file) {
        Ok(bytes) => canonical(&git_dir.join(super::admin::path_in(&bytes))),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => canonical(git_dir),
        Err(source) => Err(GitError::reading(file, source)),
    }
}
