//! The post-checkout hook, the only hook that is ever run.
//!
//! The hook is started directly, not by `git hook run`: from a linked worktree git exports `GIT_DIR`, and a `git init`
//! in some other directory inside the hook then rewrites the shared configuration. `git worktree add` clears that
//! variable for the same reason, so the hook sees what it would see there.

use std::path::PathBuf;

use super::Tree;
use super::command::{self, Plan};
use super::error::GitError;
use super::parse::paths::path;
use super::program::Hooks;
use super::sha::Sha;
use super::surroundings::is_executable;

/// How much of the hook's output is kept, in bytes.
const TAIL: usize = 4096;

/// How the hook ended. None of it is a failure of the call: the worktree is complete either way.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum HookOutcome {
    /// There is no such hook.
    Missing,
    /// There may be one; policy does not let it run.
    Skipped,
    /// It exited with 0.
    Ok,
    /// It failed.
    Failed {
        /// Its exit code; `None` when a signal ended it or it could not be started.
        code: Option<i32>,
        /// The end of what it wrote.
        tail: String,
    },
    /// It ran past the limit and was ended.
    TimedOut,
}

impl Tree {
    /// Runs the repository's post-checkout hook as `git worktree add` would: in the root, for a checkout of `sha` from
    /// nothing.
    ///
    /// # Errors
    /// W100 and W102 when git cannot tell where the hook is.
    pub async fn run_post_checkout(&self, sha: &Sha) -> Result<HookOutcome, GitError> {
        if self.git.policy().hooks == Hooks::Skip {
            return Ok(HookOutcome::Skipped);
        }
        let Some(hook) = self.hook("post-checkout").await? else { return Ok(HookOutcome::Missing) };
        let mut plan = Plan {
            what: "post-checkout hook".to_owned(),
            program: hook.clone(),
            args: vec![sha.null().into(), sha.as_str().into(), "1".into()],
            cwd: Some(self.root().to_owned()),
            // No overrides: what the hook does with git is its own affair, but it must not wait for an answer.
            env: self.git.base_env().to_vec(),
            stdin: None,
            limit: self.git.limit(),
            started: self.git.started(),
        };
        plan.env.push(("GIT_TERMINAL_PROMPT".into(), "0".into()));
        let mut ended = command::run(plan.clone()).await;
        if ended.as_ref().is_err_and(has_no_interpreter) {
            // A script without a first line that names its interpreter is for the shell, as with git.
            plan.args.insert(0, hook.into());
            plan.program = PathBuf::from("/bin/sh");
            ended = command::run(plan).await;
        }
        let output = match ended {
            Ok(output) => output,
            Err(GitError::Timeout { .. }) => return Ok(HookOutcome::TimedOut),
            Err(error) => return Ok(HookOutcome::Failed { code: None, tail: error.to_string() }),
        };
        if output.code == Some(0) {
            return Ok(HookOutcome::Ok);
        }
        let all = [output.stdout, output.stderr].concat();
        let tail = String::from_utf8_lossy(&all[all.len().saturating_sub(TAIL)..]).trim().to_owned();
        Ok(HookOutcome::Failed { code: output.code, tail })
    }

    /// The hook as configured, if it is there and executable.
    async fn hook(&self, name: &str) -> Result<Option<PathBuf>, GitError> {
        let output = self.command(["rev-parse", "--git-path"]).arg(format!("hooks/{name}")).own_hooks().run().await?;
        let stdout = output.stdout()?;
        let hook = self.root().join(path(stdout.strip_suffix(b"\n").unwrap_or(&stdout)));
        Ok(is_executable(&hook).then_some(hook))
    }
}

fn has_no_interpreter(error: &GitError) -> bool {
    matches!(error, GitError::Spawn { source, .. } if source.raw_os_error() == Some(nix::libc::ENOEXEC))
}
