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
    /// Where configuration places the post-checkout hook of this worktree, whether or not there is one; `None` when
    /// policy does not let it run. Rests on configuration alone, so that it can be asked while the files are still being
    /// written.
    ///
    /// # Errors
    /// W100 and W102 when git cannot tell.
    pub async fn post_checkout_hook(&self) -> Result<Option<PathBuf>, GitError> {
        if self.git.policy().hooks == Hooks::Skip {
            return Ok(None);
        }
        let ask = self.command(["rev-parse", "--git-path", "hooks/post-checkout"]);
        let stdout = ask.own_hooks().run().await?.stdout()?;
        Ok(Some(self.root().join(path(stdout.strip_suffix(b"\n").unwrap_or(&stdout)))))
    }

    /// Runs a post-checkout hook ([`Tree::post_checkout_hook`]) as `git worktree add` would: in the root, for a checkout
    /// of `sha` from nothing.
    pub async fn run_post_checkout(&self, hook: Option<PathBuf>, sha: &Sha) -> HookOutcome {
        let Some(hook) = hook else { return HookOutcome::Skipped };
        if !is_executable(&hook) {
            return HookOutcome::Missing;
        }
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
            Err(GitError::Timeout { .. }) => return HookOutcome::TimedOut,
            Err(error) => return HookOutcome::Failed { code: None, tail: error.to_string() },
        };
        if output.code == Some(0) {
            return HookOutcome::Ok;
        }
        let all = [output.stdout, output.stderr].concat();
        let tail = String::from_utf8_lossy(&all[all.len().saturating_sub(TAIL)..]).trim().to_owned();
        HookOutcome::Failed { code: output.code, tail }
    }
}

fn has_no_interpreter(error: &GitError) -> bool {
    matches!(error, GitError::Spawn { source, .. } if source.raw_os_error() == Some(nix::libc::ENOEXEC))
}
