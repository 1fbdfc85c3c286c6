//! A sealed environment: what passes must not depend on whose machine it is.
//!
//! With `WORKTREE_TEST_HOSTILE=1` every seal is a hostile one: its user's git configuration, and the environment of the
//! binary under test, do their worst (`hostile`), and a test fails when a canary was run.

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use super::{BINARY, hostile};

const GITCONFIG: &str = "\
[user]
\tname = Test
\temail = test@test.invalid
[init]
\tdefaultBranch = main
[commit]
\tgpgSign = false
[gc]
\tauto = 0
";

/// A temporary directory that holds a home, a place for temporary files, and whatever the test puts there.
pub struct Seal {
    root: TempDir,
    path: PathBuf,
}

impl Seal {
    pub fn new() -> Self {
        let seal = Self::calm();
        if std::env::var_os("WORKTREE_TEST_HOSTILE").is_some_and(|value| value == "1") {
            hostile::arm(&seal.path);
        }
        seal
    }

    /// A hostile one, whatever the switch says.
    pub fn hostile() -> Self {
        let seal = Self::calm();
        hostile::arm(&seal.path);
        seal
    }

    /// An ordinary one, whatever the switch says: for what is so only where the user has configured nothing, such as a
    /// rebase without a working tree.
    pub fn calm() -> Self {
        let root = tempfile::Builder::new().prefix("worktree-test-").tempdir().unwrap();
        // Canonical, so that paths compare equal to those the worker reports.
        let path = root.path().canonicalize().unwrap();
        let seal = Self { root, path };
        std::fs::create_dir(seal.home()).unwrap();
        std::fs::create_dir(seal.path.join("tmp")).unwrap();
        std::fs::write(seal.home().join(".gitconfig"), GITCONFIG).unwrap();
        seal
    }

    pub fn path(&self) -> &Path {
        debug_assert!(self.root.path().exists());
        &self.path
    }

    pub fn home(&self) -> PathBuf {
        self.path.join("home")
    }

    /// A command that sees nothing of this process's environment but the program path.
    pub fn command(&self, program: &str) -> Command {
        let mut command = sealed(program, &self.path);
        if program == BINARY && hostile::is_armed(&self.path) {
            command.envs(hostile::variables(&self.path));
        }
        command
    }
}

impl Drop for Seal {
    fn drop(&mut self) {
        let armed = hostile::is_armed(&self.path) && !std::thread::panicking();
        if armed && let Some(found) = hostile::found(&self.path) {
            panic!("{found}");
        }
    }
}

/// A command in the sealed environment whose root is `seal`.
pub fn sealed(program: &str, seal: &Path) -> Command {
    let mut command = Command::new(program);
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command.env("HOME", seal.join("home")).env("TMPDIR", seal.join("tmp"));
    command.env("LANG", "C.UTF-8").env("TZ", "UTC");
    command.env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_ALLOW_PROTOCOL", "file");
    command.env("RUST_BACKTRACE", "1").env("NO_COLOR", "1");
    command
}

/// Whether this git can tell what a rebase makes before there is one: before 2.41 it cannot take attributes from a
/// commit, and the rebase is done in the worktree at once.
pub fn can_replay() -> bool {
    sealed("git", Path::new("/")).args(["--attr-source=HEAD", "version"]).output().unwrap().status.success()
}
