//! A directory with files under git, and what a test does in it. Always the real git.

use std::path::{Path, PathBuf};
use std::process::Output;

use super::hostile;
use super::seal::{Seal, sealed};

/// A repository's main checkout, or one of its worktrees.
#[derive(Debug, Clone)]
pub struct Checkout {
    directory: PathBuf,
    seal: PathBuf,
}

impl Checkout {
    /// The checkout at `directory`.
    pub fn at(directory: impl Into<PathBuf>, seal: &Seal) -> Self {
        Self { directory: directory.into(), seal: seal.path().to_owned() }
    }

    /// A new repository without commits, its branch called `main`.
    pub fn init(directory: impl Into<PathBuf>, seal: &Seal) -> Self {
        let checkout = Self::at(directory, seal);
        std::fs::create_dir_all(&checkout.directory).unwrap();
        checkout.git(&["init", "--quiet", "--initial-branch=main"]);
        checkout
    }

    pub fn path(&self) -> &Path {
        &self.directory
    }

    /// The path as the text that goes into a request.
    pub fn text(&self) -> String {
        worktree::git::to_text(&self.directory)
    }

    pub fn write(&self, file: &str, text: &str) {
        let path = self.directory.join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    pub fn read(&self, file: &str) -> String {
        std::fs::read_to_string(self.directory.join(file)).unwrap()
    }

    /// Writes a file, commits it and returns the commit.
    pub fn commit(&self, file: &str, text: &str) -> String {
        self.write(file, text);
        self.git(&["add", "--", file]);
        self.git(&["commit", "--quiet", "--message", &format!("Write {file}")]);
        self.sha("HEAD")
    }

    /// The commit that `revision` names.
    pub fn sha(&self, revision: &str) -> String {
        self.git(&["rev-parse", "--verify", &format!("{revision}^{{commit}}")])
    }

    /// The commit of a branch, if there is one.
    pub fn branch(&self, name: &str) -> Option<String> {
        let output = self.try_git(&["rev-parse", "--verify", "--quiet", &format!("refs/heads/{name}^{{commit}}")]);
        output.status.success().then(|| text(&output.stdout))
    }

    /// Every ref with its object, for "nothing else was touched".
    pub fn refs(&self) -> String {
        self.git(&["for-each-ref", "--format=%(refname) %(objectname)"])
    }

    /// The directories that git knows as worktrees of this repository.
    pub fn worktrees(&self) -> Vec<PathBuf> {
        let listed = self.git(&["worktree", "list", "--porcelain"]);
        listed.lines().filter_map(|line| line.strip_prefix("worktree ")).map(PathBuf::from).collect()
    }

    /// Writes an executable hook.
    pub fn hook(&self, name: &str, script: &str) {
        use std::os::unix::fs::PermissionsExt as _;
        let directory =
            PathBuf::from(self.git(&["rev-parse", "--path-format=absolute", "--git-common-dir"])).join("hooks");
        std::fs::create_dir_all(&directory).unwrap();
        let path = directory.join(name);
        std::fs::write(&path, script).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        if hostile::is_armed(&self.seal) {
            // A hostile user has hooks in another place for all repositories; this one insists on its own.
            self.git(&["config", "core.hooksPath", directory.to_str().unwrap()]);
        }
    }

    /// Runs git, which is to succeed, and returns what it printed.
    pub fn git(&self, arguments: &[&str]) -> String {
        let output = self.try_git(arguments);
        assert!(output.status.success(), "git {arguments:?} in {}: {}", self.directory.display(), text(&output.stderr));
        text(&output.stdout)
    }

    /// The words with which a gate runs git here for this test. A gate is in the environment of the worker, whose user may
    /// be a hostile one.
    pub fn words(&self, arguments: &str) -> String {
        format!("GIT_CONFIG_GLOBAL={} git -C {} {arguments}", self.user_config().display(), self.directory.display())
    }

    /// The configuration of everybody but the worker.
    fn user_config(&self) -> PathBuf {
        if hostile::is_armed(&self.seal) { hostile::calm(&self.seal) } else { self.seal.join("home/.gitconfig") }
    }

    pub fn try_git(&self, arguments: &[&str]) -> Output {
        let mut command = sealed("git", &self.seal);
        command.current_dir(&self.directory).args(arguments).env("GIT_EDITOR", "true");
        command.env("GIT_CONFIG_GLOBAL", self.user_config());
        for role in ["AUTHOR", "COMMITTER"] {
            command.env(format!("GIT_{role}_DATE"), "2026-01-02T03:04:05+00:00");
        }
        command.output().unwrap()
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim_end().to_owned()
}
