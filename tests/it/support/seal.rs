//! A sealed environment: what passes must not depend on whose machine it is.

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

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
        sealed(program, &self.path)
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
