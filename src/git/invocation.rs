//! Building a git command: place, arguments, configuration, whether it may write, and how often it is tried.

use std::ffi::{OsStr, OsString};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::Git;
use super::command::{self, Output, Plan};
use super::error::GitError;
use super::own_config::{self, Place};
use super::sha::Sha;
use super::surroundings::{self, Variable};

/// One git command on its way to a [`Plan`].
#[derive(Debug, Clone)]
pub(super) struct Invocation {
    git: Git,
    /// `--git-dir`, and `--work-tree` with the directory to run in.
    place: Option<Place>,
    attributes_of: Option<Sha>,
    cwd: Option<PathBuf>,
    args: Vec<OsString>,
    config: Vec<Variable>,
    env: Vec<Variable>,
    stdin: Option<Vec<u8>>,
    writes: bool,
    offline: bool,
    network: bool,
    own_hooks: bool,
    own_signing: bool,
}

impl Invocation {
    /// A command outside any known repository.
    pub(super) fn new(git: &Git, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Invocation {
        Invocation {
            git: git.clone(),
            place: None,
            attributes_of: None,
            cwd: None,
            args: args.into_iter().map(|arg| arg.as_ref().to_owned()).collect(),
            config: Vec::new(),
            env: Vec::new(),
            stdin: None,
            writes: false,
            offline: false,
            network: false,
            own_hooks: false,
            own_signing: false,
        }
    }

    /// In this repository, without a worktree.
    pub(super) fn in_repo(mut self, common_dir: &Path) -> Self {
        self.place = Some(Place { common_dir: common_dir.to_owned(), git_dir: common_dir.to_owned(), root: None });
        self.cwd = Some(common_dir.to_owned());
        self
    }

    /// In this worktree.
    pub(super) fn in_tree(mut self, common_dir: &Path, git_dir: &Path, root: &Path) -> Self {
        self.place =
            Some(Place { common_dir: common_dir.to_owned(), git_dir: git_dir.to_owned(), root: Some(root.to_owned()) });
        self.cwd = Some(root.to_owned());
        self
    }

    /// In this directory, where git looks for the repository itself.
    pub(super) fn discovering_from(mut self, dir: &Path) -> Self {
        self.cwd = Some(dir.to_owned());
        self
    }

    /// Attributes are read from this commit instead of from files. Versions of git without that option exit with 129.
    pub(super) fn attributes_of(mut self, commit: &Sha) -> Self {
        self.attributes_of = Some(commit.clone());
        self
    }

    /// One more argument.
    pub(super) fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.args.push(arg.as_ref().to_owned());
        self
    }

    /// More arguments.
    pub(super) fn args(mut self, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        self.args.extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    /// One more configuration entry, over all others.
    pub(super) fn config(mut self, key: &str, value: &str) -> Self {
        self.config.push((key.into(), value.into()));
        self
    }

    /// More configuration entries, over all others.
    pub(super) fn configs(mut self, entries: Vec<Variable>) -> Self {
        self.config.extend(entries);
        self
    }

    /// One more variable.
    pub(super) fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    /// One more variable that holds a path.
    pub(super) fn env_path(mut self, name: &str, path: &Path) -> Self {
        self.env.push((name.into(), path.into()));
        self
    }

    /// Bytes for its standard input.
    pub(super) fn stdin(mut self, bytes: Vec<u8>) -> Self {
        self.stdin = Some(bytes);
        self
    }

    /// It changes something, so it may take locks.
    pub(super) fn writes(mut self) -> Self {
        self.writes = true;
        self
    }

    /// It must not reach for objects that a partial clone has left on its remote.
    pub(super) fn offline(mut self) -> Self {
        self.offline = true;
        self
    }

    /// It talks to a remote, so the user's credential helpers may be asked.
    pub(super) fn network(mut self) -> Self {
        self.network = true;
        self
    }

    /// The configured place of hooks stays in force, for a command that only asks for it.
    pub(super) fn own_hooks(mut self) -> Self {
        self.own_hooks = true;
        self
    }

    /// What configuration says about signing stays in force, for a command that only asks for it.
    pub(super) fn own_signing(mut self) -> Self {
        self.own_signing = true;
        self
    }

    /// The words a person would use for it: `git` and the arguments up to the first option.
    fn what(&self) -> String {
        let mut what = String::from("git");
        for word in self.args.iter().map(|arg| arg.to_string_lossy()).take(2) {
            if !word.bytes().all(|b| b.is_ascii_lowercase() || b == b'-') || word.starts_with('-') {
                break;
            }
            what.push(' ');
            what.push_str(&word);
        }
        what
    }

    fn plan(self) -> Result<Plan, GitError> {
        let what = self.what();
        let mut args = Vec::with_capacity(self.args.len() + 3);
        args.push(OsString::from("--no-pager"));
        let dirs = self.place.iter().flat_map(|place| {
            let root = place.root.as_ref().map(|root| ("--work-tree=", root));
            std::iter::once(("--git-dir=", &place.git_dir)).chain(root)
        });
        for (option, path) in dirs {
            let mut arg = OsString::from(option);
            arg.push(path);
            args.push(arg);
        }
        if let Some(commit) = &self.attributes_of {
            args.push(format!("--attr-source={commit}").into());
        }
        args.extend(self.args);
        let mut config = if self.own_signing { Vec::new() } else { self.git.policy().signing_config() };
        if !self.network {
            config.push(("credential.helper".into(), OsString::new()));
        }
        let (lfs_config, lfs_env) = self.git.lfs();
        config.extend(lfs_config);
        if self.place.as_ref().and_then(|place| place.root.as_deref()).is_some_and(tells_case_apart) {
            config.push(("core.ignoreCase".into(), "false".into()));
        }
        config.extend(self.config);
        let mut own_env: Vec<Variable> = lfs_env.into_iter().collect();
        if self.offline {
            own_env.extend(surroundings::OFFLINE.iter().map(|(name, value)| (name.into(), value.into())));
        }
        own_env.extend(self.env);
        let mut env = self.git.base_env().to_vec();
        env.extend(surroundings::for_process(&config, &own_env, self.writes, self.own_hooks));
        let mut program = self.git.program()?;
        if let Some(nice) = self.git.nice() {
            let of_git = ["-n".into(), "10".into(), std::mem::replace(&mut program, nice).into()];
            args.splice(0..0, of_git);
        }
        Ok(Plan {
            what,
            program,
            args,
            cwd: self.cwd,
            env,
            stdin: self.stdin,
            limit: self.git.limit(),
            started: self.git.started(),
        })
    }

    /// Runs it once, with what the repository's own configuration must not run overridden.
    pub(super) async fn run(mut self) -> Result<Output, GitError> {
        if let Some(place) = &self.place {
            let entries = own_config::entries(&self.git, place, self.network).await?;
            let mut guard = own_config::overrides(&entries, self.git.policy());
            if self.network {
                guard.extend(own_config::helpers_of_the_user(&entries));
            }
            self.config.splice(0..0, guard);
            if own_config::names_other_end(&entries) && !self.offline {
                let (name, value) =
                    if self.network { surroundings::OFFLINE[0] } else { surroundings::NO_LOCAL_TRANSPORT };
                self.env.push((name.into(), value.into()));
            }
        }
        self.run_as_it_is().await
    }

    /// Runs it once, for a command that only asks what the configuration is.
    pub(super) async fn run_as_it_is(self) -> Result<Output, GitError> {
        command::run(self.plan()?).await
    }

    /// Runs it again while a lock of git is in its way, within the bound of [`Patience`].
    ///
    /// For commands that have changed nothing when they fail on a lock.
    pub(super) async fn run_patiently(self) -> Result<Output, GitError> {
        let mut patience = Patience::new(self.git.limit());
        loop {
            let output = self.clone().run().await?;
            let contended = output.code != Some(0) && matches!(output.failure(), GitError::LockContention { .. });
            if !contended || !patience.pause().await {
                return Ok(output);
            }
        }
    }
}

/// Whether `.git` in the root of a worktree goes by this name alone. Where it does, a configuration that ignores case
/// (of a repository that was made on another system, say) would hide files whose name differs from a tracked one in
/// case only.
fn tells_case_apart(root: &Path) -> bool {
    let id = |name: &str| root.join(name).symlink_metadata().map(|meta| (meta.dev(), meta.ino())).ok();
    id(".GIT") != id(".git")
}

/// A bounded number of pauses that grow and differ between waiters.
pub(super) struct Patience {
    pause: Duration,
    until: Instant,
}

impl Patience {
    /// Never longer than five seconds in all, and not beyond the limit of the call.
    pub(super) fn new(limit: Duration) -> Patience {
        Patience { pause: Duration::from_millis(10), until: Instant::now() + limit.min(Duration::from_secs(5)) }
    }

    /// Waits a little; `false` when the patience is over.
    pub(super) async fn pause(&mut self) -> bool {
        use std::hash::{BuildHasher as _, Hasher as _};
        if Instant::now() >= self.until {
            return false;
        }
        // Every RandomState is seeded differently, which is all the chance that is needed here.
        let chance = std::hash::RandomState::new().build_hasher().finish() % 100;
        let jitter = self.pause.mul_f64(f64::from(u32::try_from(chance).unwrap_or(0)) / 100.0);
        tokio::time::sleep(self.pause / 2 + jitter).await;
        self.pause = (self.pause * 2).min(Duration::from_millis(400));
        true
    }
}
