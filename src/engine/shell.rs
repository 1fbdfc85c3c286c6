//! `shell::exec`: a command on this machine.
//!
//! Invariants
//! 1. A command and whatever it started in its process group are killed before its answer is given: at the time
//!    limit, and at the end of the command for what it left behind.
//! 2. Output beyond the limit is read and dropped, never left in the pipe: a loud command is not blocked.
//! 3. A command runs only in a directory that the engine's roots (`S215`) and the caller's scope (`S220`) allow,
//!    both followed through symbolic links.
//! 4. No `GIT_*` variable of the engine reaches a command: it would see another repository than its directory's.

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::process::{Child, Command};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{Instant, timeout};

use super::fault::{Answer, Fault};
use super::options::ShellOptions;
use super::shell_jobs::Jobs;
use super::shell_output::{Capture, Captured, View};

/// How long the pipes may stay open after the end of a command, before what holds them is killed.
const LEFTOVER_GRACE: Duration = Duration::from_millis(500);

/// How long the killed may take to be gone before the answer is given all the same.
const AFTER_KILL: Duration = Duration::from_millis(500);

/// What `shell::*` runs with.
pub(super) struct Shell {
    pub(super) options: ShellOptions,
    places: Arc<Semaphore>,
    /// True once every command is to be killed.
    pub(super) stop: watch::Sender<bool>,
    pub(super) jobs: Jobs,
}

#[derive(Debug, Deserialize)]
struct Scope {
    root: PathBuf,
}

/// The input of `shell::exec` and `shell::exec_bg`.
#[derive(Debug, Deserialize)]
pub(super) struct Exec {
    pub(super) command: String,
    #[serde(default)]
    pub(super) args: Option<Vec<String>>,
    #[serde(default)]
    cwd: Option<PathBuf>,
    #[serde(default)]
    timeout_ms: Option<u64>,
    #[serde(default)]
    env: Option<BTreeMap<String, String>>,
    #[serde(default)]
    fs_scope: Option<Scope>,
}

/// A command that runs, in its own process group.
pub(super) struct Running {
    child: Child,
    group: Option<Pid>,
    stdout: Capture,
    stderr: Capture,
    started: Instant,
    /// The time it has, after clamping.
    pub(super) limit: Duration,
    _place: OwnedSemaphorePermit,
}

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Exited(i32),
    TimedOut,
    Killed,
}

/// A command that has ended.
pub(super) struct Finished {
    pub(super) end: End,
    pub(super) stdout: Captured,
    pub(super) stderr: Captured,
    pub(super) duration: Duration,
}

impl Shell {
    pub(super) fn new(options: ShellOptions) -> Self {
        let places = Arc::new(Semaphore::new(options.running));
        let jobs = Jobs::new(options.kept_jobs);
        Self { options, places, stop: watch::Sender::new(false), jobs }
    }

    /// Starts a command.
    pub(super) fn start(&self, exec: &Exec) -> Result<Running, Fault> {
        if exec.command.trim().is_empty() {
            return Err(Fault::new("S210", "the command is empty"));
        }
        if exec.timeout_ms == Some(0) {
            return Err(Fault::new("S210", "timeout_ms is at least 1"));
        }
        let cwd = self.allowed_cwd(exec)?;
        let Ok(place) = self.places.clone().try_acquire_owned() else {
            let text = format!("{} commands are running, which is the limit; try again later", self.options.running);
            return Err(Fault::new("S230", text));
        };
        if *self.stop.borrow() {
            return Err(Fault::new("S216", "the engine is stopping"));
        }
        let asked = exec.timeout_ms.map_or(self.options.default_timeout, Duration::from_millis);
        let mut command = build(exec);
        if let Some(cwd) = cwd {
            command.current_dir(cwd);
        }
        let mut child = command
            .spawn()
            .map_err(|error| Fault::new("S216", format!("'{}' could not be started: {error}", exec.command)))?;
        let group = child.id().and_then(|id| i32::try_from(id).ok()).map(Pid::from_raw);
        let stdout = Capture::of(child.stdout.take(), self.options.output_bytes);
        let stderr = Capture::of(child.stderr.take(), self.options.output_bytes);
        let limit = asked.min(self.options.max_timeout);
        Ok(Running { child, group, stdout, stderr, started: Instant::now(), limit, _place: place })
    }

    fn allowed_cwd(&self, exec: &Exec) -> Result<Option<PathBuf>, Fault> {
        let scope = exec.fs_scope.as_ref().map(|scope| canonical(&scope.root)).transpose()?;
        let cwd = match (&exec.cwd, &scope) {
            (Some(cwd), _) => Some(canonical(cwd)?),
            (None, Some(root)) => Some(root.clone()),
            // Without roots and without a scope the engine's own directory will do.
            (None, None) if self.options.host_roots.is_empty() => None,
            (None, None) => return Err(Fault::new("S210", "cwd is needed where fs.host_roots is set")),
        };
        let Some(cwd) = cwd else { return Ok(None) };
        if !cwd.is_dir() {
            return Err(Fault::new("S212", format!("{} is not a directory", cwd.display())));
        }
        let roots = &self.options.host_roots;
        let inside = |root: &PathBuf| root.canonicalize().is_ok_and(|root| cwd.starts_with(root));
        if !roots.is_empty() && !roots.iter().any(inside) {
            return Err(Fault::new("S215", format!("{} lies outside fs.host_roots", cwd.display())));
        }
        if let Some(root) = scope.filter(|root| !cwd.starts_with(root)) {
            let text = format!("{} lies outside the scope {}", cwd.display(), root.display());
            return Err(Fault::new("S220", text));
        }
        Ok(Some(cwd))
    }

    /// Runs a command to its end.
    pub(super) async fn exec(&self, exec: Exec) -> Answer {
        let running = self.start(&exec)?;
        let limit = running.limit;
        let finished = running.finish(self.stop.subscribe(), std::future::pending()).await;
        if finished.end == End::Killed {
            // Nobody should take the engine's end for the command's.
            return Err(Fault::new("invocation_stopped", "the engine stopped before the command ended"));
        }
        Ok(Some(finished.to_value(limit)))
    }

    /// Kills every command. Those waiting for one get their answer.
    pub(super) fn stop_all(&self) {
        self.stop.send_replace(true);
    }
}

fn canonical(path: &Path) -> Result<PathBuf, Fault> {
    if !path.is_absolute() {
        return Err(Fault::new("S210", format!("{} is not an absolute path", path.display())));
    }
    path.canonicalize().map_err(|error| Fault::new("S211", format!("{}: {error}", path.display())))
}

#[expect(clippy::disallowed_methods, reason = "this is engine::shell, where programs other than git start")]
fn build(exec: &Exec) -> Command {
    let mut command = match &exec.args {
        Some(args) => {
            let mut command = Command::new(&exec.command);
            command.args(args);
            command
        }
        None => {
            let mut command = Command::new("sh");
            command.arg("-c").arg(&exec.command);
            command
        }
    };
    for (name, _) in std::env::vars_os() {
        if name.as_encoded_bytes().starts_with(b"GIT_") {
            command.env_remove(name);
        }
    }
    command
        .envs(exec.env.iter().flatten())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true);
    command
}

impl Running {
    /// Waits for the end: the command's own, the time limit, the engine's stop, or `killed`.
    pub(super) async fn finish(
        mut self,
        mut stop: watch::Receiver<bool>,
        killed: impl Future<Output = ()>,
    ) -> Finished {
        let end = tokio::select! {
            status = self.child.wait() => match status {
                Ok(status) => End::Exited(code(status)),
                Err(error) => {
                    tracing::error!(%error, "a command could not be waited for");
                    End::Killed
                }
            },
            () = tokio::time::sleep(self.limit) => End::TimedOut,
            _ = stop.wait_for(|stop| *stop) => End::Killed,
            () = killed => End::Killed,
        };
        let duration = self.started.elapsed();
        if matches!(end, End::Exited(_)) {
            // Output that is still in the pipes arrives at once; whoever keeps them open longer was left behind.
            let both = async { tokio::join!(self.stdout.end(), self.stderr.end()) };
            if timeout(LEFTOVER_GRACE, both).await.is_err() {
                tracing::debug!("a command left processes behind that hold its output; they are killed");
            }
        }
        // A group id is not given out again while a process of the group lives, and ids go round the whole
        // range before one comes again: this cannot hit a stranger right after the leader was reaped.
        let somebody = self.kill_group();
        if !matches!(end, End::Exited(_))
            && let Err(error) = self.child.wait().await
        {
            tracing::error!(%error, "a killed command could not be waited for");
        }
        if somebody {
            self.see_group_gone().await;
        }
        let stdout = self.stdout.take().await;
        let stderr = self.stderr.take().await;
        Finished { end, stdout, stderr, duration }
    }

    /// Its output, to look at while it runs.
    pub(super) fn views(&self) -> (View, View) {
        (self.stdout.view(), self.stderr.view())
    }

    /// Kills the group. Says whether there was anybody to kill, which there is not after most commands.
    fn kill_group(&self) -> bool {
        let Some(group) = self.group else { return false };
        match killpg(group, Signal::SIGKILL) {
            Ok(()) => true,
            Err(nix::errno::Errno::ESRCH) => false,
            Err(error) => {
                tracing::warn!(%error, group = group.as_raw(), "a process group could not be killed");
                false
            }
        }
    }

    /// Waits a moment for the killed to be gone: on a busy machine that takes them a while.
    async fn see_group_gone(&self) {
        let Some(group) = self.group else { return };
        let end = Instant::now() + AFTER_KILL;
        while killpg(group, None).is_ok() && Instant::now() < end {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Dropped before its end: the runtime is going down, or the caller's task was.
        if self.child.id().is_some() {
            self.kill_group();
        }
    }
}

impl Finished {
    /// The exit code, when the command ended by itself.
    pub(super) fn exit_code(&self) -> Option<i32> {
        match self.end {
            End::Exited(code) => Some(code),
            End::TimedOut | End::Killed => None,
        }
    }

    /// As `shell::exec` answers.
    fn to_value(&self, limit: Duration) -> Value {
        json!({
            "exit_code": self.exit_code(),
            "stdout": self.stdout.text,
            "stderr": self.stderr.text,
            "timed_out": self.end == End::TimedOut,
            "timeout_ms": millis(limit),
            "duration_ms": millis(self.duration),
            "stdout_truncated": self.stdout.truncated,
            "stderr_truncated": self.stderr.truncated,
        })
    }
}

/// A time as it is written in answers.
pub(super) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// The exit code as a shell gives it: 128 and the signal's number for a command that a signal ended.
fn code(status: ExitStatus) -> i32 {
    status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(-1)
}
