//! A sealed place for one test: a home of its own, no configuration of the machine, fixed identity and dates, and
//! repositories made by git itself.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use worktree::git::{AddWorktree, Git, HookOutcome, Repo, Sha, Tree};

/// A temporary directory with a home, and the git layer as it runs there.
pub struct Place {
    dir: tempfile::TempDir,
    pub git: Git,
}

impl Place {
    pub fn new() -> Place {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().join("home");
        std::fs::create_dir(&home).unwrap();
        std::fs::write(home.join(".gitconfig"), "[user]\nname = Ann\nemail = ann@example.org\n").unwrap();
        let git = Git::new(Duration::from_secs(30)).with_env(vec![
            ("HOME".into(), home.into()),
            ("XDG_CONFIG_HOME".into(), dir.path().join("home/none").into()),
        ]);
        Place { dir, git }
    }

    /// The layer as if the worker had been started with these variables.
    pub fn git_with(&self, env: &[(&str, &str)]) -> Git {
        let mut all: Vec<(OsString, OsString)> = vec![
            ("HOME".into(), self.path().join("home").into()),
            ("XDG_CONFIG_HOME".into(), self.path().join("home/none").into()),
        ];
        all.extend(env.iter().map(|(name, value)| (name.into(), value.into())));
        self.git.with_env(all)
    }

    /// The canonical path of the place.
    pub fn path(&self) -> PathBuf {
        self.dir.path().canonicalize().unwrap()
    }

    /// More lines for the user's configuration.
    pub fn user_config(&self, lines: &str) {
        let file = self.path().join("home/.gitconfig");
        let old = std::fs::read_to_string(&file).unwrap();
        std::fs::write(file, format!("{old}{lines}\n")).unwrap();
    }

    /// Runs git as a user would, in `dir`; its trimmed output. Fails the test when git fails.
    pub fn run<S: AsRef<OsStr>>(&self, dir: &Path, args: impl IntoIterator<Item = S>) -> String {
        let (ok, out) = self.try_run(dir, args);
        assert!(ok, "git failed: {out}");
        out
    }

    /// Runs git as a user would; whether it succeeded, and what it wrote, trimmed at the end.
    pub fn try_run<S: AsRef<OsStr>>(&self, dir: &Path, args: impl IntoIterator<Item = S>) -> (bool, String) {
        let (ok, bytes) = self.raw(dir, args);
        (ok, String::from_utf8_lossy(&bytes).trim_end().to_owned())
    }

    /// Runs git as a user would; whether it succeeded, and the bytes it wrote: after a failure also its complaints.
    pub fn raw<S: AsRef<OsStr>>(&self, dir: &Path, args: impl IntoIterator<Item = S>) -> (bool, Vec<u8>) {
        let args: Vec<OsString> = args.into_iter().map(|arg| arg.as_ref().to_owned()).collect();
        let mut command = Command::new("git");
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("GIT_")) {
            command.env_remove(name);
        }
        let output = command
            .args(&args)
            .current_dir(dir)
            .env("HOME", self.path().join("home"))
            .env("XDG_CONFIG_HOME", self.path().join("home/none"))
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_AUTHOR_DATE", "2026-01-02T03:04:05+0100")
            .env("GIT_COMMITTER_DATE", "2026-01-02T03:04:05+0100")
            .env("GIT_EDITOR", "true")
            .output()
            .unwrap();
        let complaints = if output.status.success() { Vec::new() } else { output.stderr };
        (output.status.success(), [output.stdout, complaints].concat())
    }

    /// A repository `name` on branch `main` with one commit, and its root.
    pub fn repo(&self, name: &str) -> PathBuf {
        let root = self.path().join(name);
        std::fs::create_dir_all(&root).unwrap();
        self.run(&root, ["init", "--quiet", "--initial-branch=main"]);
        self.commit(&root, "README", "hello\n");
        root
    }

    /// Writes a file and commits everything; the new commit.
    pub fn commit(&self, root: &Path, file: &str, content: impl AsRef<[u8]>) -> Sha {
        put(root, file, content);
        self.run(root, ["add", "--all"]);
        self.run(root, ["commit", "--quiet", "--no-verify", "--message", &format!("change {file}")]);
        self.head(root)
    }

    pub fn head(&self, root: &Path) -> Sha {
        self.sha(root, "HEAD")
    }

    pub fn sha(&self, root: &Path, rev: &str) -> Sha {
        self.run(root, ["rev-parse", "--verify", rev]).parse().unwrap()
    }

    /// The repository at `root`, as the layer finds it.
    pub async fn open(&self, root: &Path) -> Repo {
        self.git.discover(root).await.unwrap().repo
    }

    /// A filled worktree `name` on a new branch of that name, at HEAD of `root`.
    pub async fn worktree(&self, root: &Path, name: &str) -> Tree {
        let repo = self.open(root).await;
        let path = self.path().join(name.replace('/', "-"));
        repo.add_worktree(&add(&path, name, &self.head(root))).await.unwrap();
        let tree = repo.git().tree(&path).unwrap();
        tree.checkout_fresh().await.unwrap();
        tree
    }
}

/// A request for a worktree at `path` on a new branch.
pub fn add(path: &Path, branch: &str, start: &Sha) -> AddWorktree {
    AddWorktree {
        path: path.to_owned(),
        branch: Some(branch.to_owned()),
        start: start.clone(),
        lock_reason: format!("iii worktree {branch}"),
    }
}

/// Runs the post-checkout hook of a worktree.
pub async fn run_hook(tree: &Tree, sha: &Sha) -> HookOutcome {
    tree.run_post_checkout(tree.post_checkout_hook().await.unwrap(), sha).await
}

/// Writes a file, and the directories above it.
pub fn put(root: &Path, file: &str, content: impl AsRef<[u8]>) {
    let path = root.join(file);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, content).unwrap();
}

/// Writes a program for the shell.
pub fn script(path: &Path, body: &str) {
    use std::os::unix::fs::PermissionsExt as _;
    put(path.parent().unwrap(), path.file_name().unwrap().to_str().unwrap(), format!("#!/bin/sh\n{body}\n"));
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}
