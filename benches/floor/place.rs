//! Where a run takes place: a directory of its own, a user of its own, and the repositories.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use tempfile::TempDir;

/// The directory, with a home in it. Gone at the end of the run.
pub struct Place {
    root: TempDir,
}

impl Place {
    /// A new one where temporary files go (`TMPDIR`).
    pub fn new() -> anyhow::Result<Self> {
        Self::within(&std::env::temp_dir())
    }

    /// A new one beside what cargo builds, for what must reach a disk.
    pub fn on_disk() -> anyhow::Result<Self> {
        Self::within(Path::new(env!("CARGO_TARGET_TMPDIR")))
    }

    fn within(dir: &Path) -> anyhow::Result<Self> {
        let root = tempfile::Builder::new().prefix("worktree-bench-").tempdir_in(dir)?;
        let home = root.path().join("home");
        std::fs::create_dir(&home)?;
        let config = "[user]\n\tname = Bench\n\temail = bench@bench.invalid\n[init]\n\tdefaultBranch = main\n";
        std::fs::write(home.join(".gitconfig"), config)?;
        Ok(Place { root })
    }

    /// Whether it lies in memory.
    pub fn is_in_memory(&self) -> bool {
        nix::sys::statfs::statfs(self.root.path())
            .is_ok_and(|stat| stat.filesystem_type() == nix::sys::statfs::TMPFS_MAGIC)
    }

    /// A path in it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    /// A program that sees only this place.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("HOME", self.path("home")).env("LANG", "C.UTF-8").env("GIT_CONFIG_NOSYSTEM", "1");
        command
    }

    /// What `git` prints when it does this; an error when it fails.
    pub fn git(&self, dir: &Path, arguments: &[&str]) -> anyhow::Result<String> {
        let mut command = self.command("git");
        let output = command.current_dir(dir).args(arguments).stdin(Stdio::null()).output()?;
        ensure!(
            output.status.success(),
            "git {} in {}: {}",
            arguments.join(" "),
            dir.display(),
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(String::from_utf8(output.stdout)?.trim_end().to_owned())
    }

    /// How long git takes for it.
    pub fn git_time(&self, dir: &Path, arguments: &[&str]) -> anyhow::Result<Duration> {
        let start = Instant::now();
        self.git(dir, arguments)?;
        Ok(start.elapsed())
    }

    /// What `git` prints when it is given `input`.
    pub fn feed(&self, dir: &Path, arguments: &[&str], input: &str) -> anyhow::Result<String> {
        let mut command = self.command("git");
        command.current_dir(dir).args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        child.stdin.take().context("no standard input")?.write_all(input.as_bytes())?;
        let output = child.wait_with_output()?;
        ensure!(output.status.success(), "git {} failed", arguments.join(" "));
        Ok(String::from_utf8(output.stdout)?.trim_end().to_owned())
    }

    /// A repository with this many files of 5 KiB, changed one by one in this many commits on `main`.
    pub fn repository(&self, name: &str, files: usize, commits: usize) -> anyhow::Result<PathBuf> {
        let path = self.path(name);
        std::fs::create_dir(&path)?;
        self.git(&path, &["init", "-q"])?;
        let mut import = self.command("git");
        import.current_dir(&path).args(["fast-import", "--quiet"]).stdin(Stdio::piped());
        let mut child = import.spawn()?;
        let mut to = std::io::BufWriter::new(child.stdin.take().context("no standard input")?);
        let mut noise = 0x9e37_79b9_7f4a_7c15_u64;
        for commit in 0..commits {
            let head = format!(
                "commit refs/heads/main\ncommitter Bench <bench@bench.invalid> {} +0000\ndata 7\ncommit\n\n",
                1_700_000_000 + commit
            );
            to.write_all(head.as_bytes())?;
            let range = if commit == 0 { 0..files } else { commit % files..commit % files + 1 };
            for file in range {
                let text = words(&mut noise);
                write!(to, "M 100644 inline dir{:03}/file{file:05}.txt\ndata {}\n", file / 100, text.len())?;
                to.write_all(text.as_bytes())?;
                to.write_all(b"\n")?;
            }
        }
        drop(to);
        ensure!(child.wait()?.success(), "git fast-import failed");
        self.git(&path, &["checkout", "-q", "main"])?;
        Ok(path)
    }

    /// Commits `count` changes, each in a file of its own, on what is checked out in `dir`; then makes its index as
    /// fresh as one that has lain for a while.
    pub fn commit(&self, dir: &Path, name: &str, count: usize) -> anyhow::Result<()> {
        for number in 0..count {
            let file = format!("{name}-{number}.txt");
            std::fs::write(dir.join(&file), &file)?;
            self.git(dir, &["add", "--", &file])?;
            self.git(dir, &["commit", "-q", "-m", &file])?;
        }
        Ok(())
    }
}

/// 5 KiB of text that does not compress to nothing.
fn words(noise: &mut u64) -> String {
    let mut text = String::with_capacity(5 * 1024);
    while text.len() < 5 * 1024 - 16 {
        *noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        text.push_str(&format!("{:x}\n", *noise >> 16));
    }
    text
}
