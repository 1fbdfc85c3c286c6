//! Another user's repository, whoever runs the tests.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::Path;

/// A user who is not the one of the worker.
const UID: u32 = 4711;

/// Root can give a repository away. Everybody else has git believe it, by the switch that git has for its own tests; a
/// worker with [`Stranger::path`] as its PATH starts such a git.
pub struct Stranger {
    path: String,
}

impl Stranger {
    /// Puts the git for others into `directory`, which it makes.
    pub fn new(directory: &Path) -> Self {
        let path = std::env::var_os("PATH").unwrap();
        let git = std::env::split_paths(&path).map(|dir| dir.join("git")).find(|file| file.is_file()).unwrap();
        let switch = if is_root() { "" } else { "GIT_TEST_ASSUME_DIFFERENT_OWNER=1 " };
        std::fs::create_dir(directory).unwrap();
        let program = directory.join("git");
        std::fs::write(&program, format!("#!/bin/sh\n{switch}exec {} \"$@\"\n", git.display())).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        Self { path: format!("{}:{}", directory.display(), path.to_str().unwrap()) }
    }

    /// What a worker has as its PATH.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Makes the repository at `root` another user's; who that is, as a refusal names it.
    pub fn takes(&self, root: &Path) -> String {
        for place in [root.to_owned(), root.join(".git")] {
            if is_root() {
                chown(&place, Some(UID), None).unwrap();
            }
        }
        format!("uid {}", root.metadata().unwrap().uid())
    }
}

fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}
