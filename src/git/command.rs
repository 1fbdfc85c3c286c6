//! The one place where a process starts.
//!
//! A task of its own supervises each process, so that ending it does not depend on whoever waits for the answer.
//!
//! Invariants
//! 1. The process leads its own group; the limit and a dropped future end the whole group: first politely, so that
//!    git removes its lock files, then for good while the leader is still unreaped, so that its id cannot belong to
//!    anybody else.
//! 2. Output is drained beyond its cap, so that no process is stopped by a full pipe; output that was cut is never
//!    handed out as if it were whole.
//! 3. After the leader has ended, a grandchild that still holds the pipes delays the answer by [`LINGER`] at most. It
//!    is not ended: a hook may start a server on purpose.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::io::AsyncWriteExt as _;
use tokio::process::{Child, Command};
use tokio::sync::oneshot;

use super::capture::{Capture, Keep};
use super::error::{GitError, classify};
use super::surroundings::Variable;
use crate::fault::{self, Injected};

/// How long a process may take to clean up after it was asked to end.
const POLITE: Duration = Duration::from_secs(2);
/// How long the pipes are still read after the leader has ended.
const LINGER: Duration = Duration::from_millis(500);
/// How much standard output is taken by default, in bytes.
const STDOUT_CAP: usize = 256 * 1024 * 1024;
/// How much of the end of standard error is kept, in bytes.
const STDERR_CAP: usize = 64 * 1024;

/// A process to be, complete: program, arguments, environment, bounds.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    /// How messages and traces name it: `git worktree add`.
    pub(super) what: String,
    pub(super) program: PathBuf,
    pub(super) args: Vec<OsString>,
    pub(super) cwd: Option<PathBuf>,
    /// The whole environment; nothing is inherited.
    pub(super) env: Vec<Variable>,
    pub(super) stdin: Option<Vec<u8>>,
    pub(super) limit: Duration,
    /// Where started processes are counted.
    pub(super) started: Arc<AtomicU64>,
}

/// What a process left behind. Any exit code: which ones are answers is the caller's knowledge.
#[derive(Debug)]
pub(super) struct Output {
    pub(super) what: String,
    pub(super) code: Option<i32>,
    pub(super) signal: Option<i32>,
    pub(super) stdout: Vec<u8>,
    /// The end of what it wrote.
    pub(super) stderr: Vec<u8>,
}

impl Output {
    /// The failure that this output describes.
    pub(super) fn failure(&self) -> GitError {
        classify(&self.what, self.code, self.signal, &self.stderr)
    }

    /// This output if the process ended with one of `codes`.
    pub(super) fn expect(self, codes: &[i32]) -> Result<Output, GitError> {
        if self.code.is_some_and(|code| codes.contains(&code)) { Ok(self) } else { Err(self.failure()) }
    }

    /// Standard output if the process ended with 0.
    pub(super) fn stdout(self) -> Result<Vec<u8>, GitError> {
        self.expect(&[0]).map(|output| output.stdout)
    }

    /// Standard output as one trimmed line of text if the process ended with 0.
    pub(super) fn line(self) -> Result<String, GitError> {
        let output = self.expect(&[0])?;
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    /// Whether standard error holds these words.
    pub(super) fn says(&self, words: &str) -> bool {
        String::from_utf8_lossy(&self.stderr).contains(words)
    }
}

/// Runs the process to its end. Dropping the future ends the process.
pub(super) async fn run(plan: Plan) -> Result<Output, GitError> {
    let point = fault::point("git", || plan.what.clone()).map_err(|injected| disturbed(&plan, injected))?;
    let (waiting, abandoned) = oneshot::channel::<()>();
    let answer = tokio::spawn(supervise(plan, abandoned)).await;
    drop(waiting);
    point.passed();
    match answer {
        Ok(answer) => answer,
        Err(broken) if broken.is_panic() => std::panic::resume_unwind(broken.into_panic()),
        Err(_) => {
            Err(GitError::Spawn { program: "git".to_owned(), source: io::Error::other("the runtime is shutting down") })
        }
    }
}

/// The failure that a test has planned.
fn disturbed(plan: &Plan, injected: Injected) -> GitError {
    let what = plan.what.clone();
    match injected {
        Injected::Refused => {
            GitError::Failed { what, code: Some(128), signal: None, stderr: "fatal: injected".to_owned() }
        }
        Injected::Transient => GitError::Timeout { what, limit: plan.limit },
    }
}

#[expect(clippy::disallowed_methods, reason = "this is the place where processes start")]
fn command(plan: &Plan) -> Command {
    let mut command = Command::new(&plan.program);
    command.args(&plan.args).env_clear().envs(plan.env.iter().map(|(name, value)| (name, value)));
    if let Some(cwd) = &plan.cwd {
        command.current_dir(cwd);
    }
    command
        .stdin(if plan.stdin.is_some() { Stdio::piped() } else { Stdio::null() })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true);
    command
}

async fn supervise(mut plan: Plan, abandoned: oneshot::Receiver<()>) -> Result<Output, GitError> {
    let begun = Instant::now();
    let mut child = command(&plan).spawn().map_err(|source| not_started(&plan, source))?;
    plan.started.fetch_add(1, Ordering::Relaxed);
    let mut group = Group::of(&child);
    let stdout = Capture::start(child.stdout.take(), STDOUT_CAP, Keep::Head);
    let stderr = Capture::start(child.stderr.take(), STDERR_CAP, Keep::Tail);
    let feed = plan.stdin.take().zip(child.stdin.take()).map(|(bytes, mut pipe)| {
        tokio::spawn(async move {
            // A process that does not want its input closes the pipe; its exit code tells whether that matters.
            pipe.write_all(&bytes).await.ok();
        })
    });

    let status = tokio::select! {
        biased;
        status = child.wait() => Some(status),
        () = tokio::time::sleep(plan.limit) => None,
        _ = abandoned => None,
    };
    let Some(status) = status else {
        end(&group, &mut child, &stdout, &stderr).await;
        group.ended();
        trace(&plan, begun, "ended at its limit");
        return Err(GitError::Timeout { what: plan.what, limit: plan.limit });
    };
    group.ended();
    let status = status.map_err(|source| not_started(&plan, source))?;
    let linger = tokio::time::Instant::now() + LINGER;
    let (stdout, whole) = stdout.finish(linger).await;
    let (stderr, _) = stderr.finish(linger).await;
    if let Some(feed) = feed {
        feed.abort();
    }
    trace(&plan, begun, &status.to_string());
    if !whole {
        return Err(GitError::TooMuchOutput { what: plan.what, cap: STDOUT_CAP });
    }
    Ok(Output { what: plan.what, code: status.code(), signal: signal_of(status), stdout, stderr })
}

/// Ends the group: asks, waits until nobody holds the pipes any more or the patience is over, then kills.
async fn end(group: &Group, child: &mut Child, stdout: &Capture, stderr: &Capture) {
    group.send(Signal::SIGTERM);
    let patience = tokio::time::Instant::now() + POLITE;
    while !(stdout.is_closed() && stderr.is_closed()) && tokio::time::Instant::now() < patience {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    group.send(Signal::SIGKILL);
    // Only now is the leader reaped, so that its id was its own until here.
    if let Err(error) = child.wait().await {
        tracing::warn!(%error, "a process that was ended could not be reaped");
    }
}

fn not_started(plan: &Plan, source: io::Error) -> GitError {
    // The system has one error for a missing program and a missing directory to run it in.
    match &plan.cwd {
        Some(cwd) if source.kind() == io::ErrorKind::NotFound && !cwd.is_dir() => {
            GitError::NotARepository { path: cwd.clone() }
        }
        _ => GitError::Spawn { program: plan.program.display().to_string(), source },
    }
}

fn trace(plan: &Plan, begun: Instant, end: &str) {
    let ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
    tracing::debug!(target: "worktree::git", what = %plan.what, args = ?plan.args, ms, end, "process");
}

fn signal_of(status: ExitStatus) -> Option<i32> {
    std::os::unix::process::ExitStatusExt::signal(&status)
}

/// The process group of a child that is not reaped yet. Dropped armed (the runtime shuts down), it kills.
struct Group {
    id: Option<Pid>,
}

impl Group {
    fn of(child: &Child) -> Group {
        let id = child.id().and_then(|id| i32::try_from(id).ok()).map(Pid::from_raw);
        Group { id }
    }

    fn send(&self, signal: Signal) {
        if let Some(id) = self.id {
            // The only failure is that nobody is left.
            killpg(id, signal).ok();
        }
    }

    /// From here on the id may belong to somebody else.
    fn ended(&mut self) {
        self.id = None;
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.send(Signal::SIGKILL);
    }
}
