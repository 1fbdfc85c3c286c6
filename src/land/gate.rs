//! The test gate: the project's own command, run by the shell worker at exactly the rebased commit.
//!
//! A gate that ran and failed blames the branch (`W411`); one that could not run blames nobody (`W414`).

use super::step::Stop;
use super::transition::{Block, Event};
use crate::bus::{ShellCommand, ShellExit, ShellFault};
use crate::model::event::BlockReason;
use crate::model::job::Job;
use crate::model::{Code, Error, Result};
use crate::worktrees::Context;

/// Exit codes by which a shell says that a command could not be run, or was not found.
const CANNOT_RUN: [i64; 2] = [126, 127];

/// Words by which programs say that there is no room: nobody's change is to blame for that.
const NO_ROOM: [&str; 3] = ["No space left on device", "ENOSPC", "Disk quota exceeded"];

/// Runs the gate of `job` and says what came of it.
///
/// # Errors
/// `W300` when the link broke while the gate ran: it has to be run again.
pub async fn run(ctx: &Context, job: &Job, test_cmd: &str, stop: &Stop) -> Result<Event> {
    let limit_ms = ctx.settings().config.test_timeout_ms;
    let command = ShellCommand { command: test_cmd.to_owned(), cwd: job.worktree_path.clone(), timeout_ms: limit_ms };
    match ctx.shell.exec(&command, stop.clone()).await {
        Ok(exit) => Ok(judge(job, test_cmd, limit_ms, &exit)),
        Err(ShellFault::Interrupted(why)) => Err(Error::new(
            Code::StateUnreachable,
            format!("the link broke while the gate `{test_cmd}` ran ({why}); it will be run again"),
        )),
        Err(ShellFault::NoProvider) => Ok(Event::Blocked(unavailable(
            test_cmd,
            "no worker on the engine serves shell::exec; connect the shell worker and land again",
        ))),
        Err(ShellFault::Refused { code, message }) => Ok(Event::Blocked(refused(job, test_cmd, &code, &message))),
    }
}

fn unavailable(test_cmd: &str, why: &str) -> Block {
    let message = format!("the gate `{test_cmd}` could not run: {why}");
    Block::new(BlockReason::GateUnavailable, Code::GateUnavailable, message)
}

fn refused(job: &Job, test_cmd: &str, code: &str, message: &str) -> Block {
    let hint = match code {
        "S215" => format!(
            "the shell worker may not work in {}; add the worktree root to its fs.host_roots",
            job.worktree_path
        ),
        "S220" => format!("the command left its scope {}; keep the gate inside the worktree", job.worktree_path),
        _ => return unavailable(test_cmd, &format!("the shell worker refused it: {message} ({code})")),
    };
    let message = format!("the gate `{test_cmd}` was refused by the shell worker: {message} ({code}); {hint}");
    Block::new(BlockReason::TestFailed, Code::GateFailed, message)
}

fn judge(job: &Job, test_cmd: &str, limit_ms: u64, exit: &ShellExit) -> Event {
    let tail = Some(exit.output_tail.clone()).filter(|tail| !tail.is_empty());
    let failed = |message: String| {
        let block = Block::new(BlockReason::TestFailed, Code::GateFailed, message);
        Event::Blocked(Block { exit_code: exit.exit_code, output_tail: tail.clone(), ..block })
    };
    if exit.timed_out {
        let clamped = match exit.duration_ms {
            Some(ran) if ran.saturating_mul(10) < limit_ms.saturating_mul(9) => format!(
                " (the shell worker ended it after {ran} ms: its own limit is shorter than test_timeout_ms, raise that one)"
            ),
            _ => String::new(),
        };
        return failed(format!(
            "the gate `{test_cmd}` ran past {limit_ms} ms{clamped}; make it faster or raise test_timeout_ms"
        ));
    }
    let unavailable = |why: &str| {
        Event::Blocked(Block { exit_code: exit.exit_code, output_tail: tail.clone(), ..unavailable(test_cmd, why) })
    };
    if exit.killed {
        return unavailable("it was ended from outside; land again");
    }
    match exit.exit_code {
        Some(0) => Event::GatePassed { output_tail: tail },
        Some(code) if CANNOT_RUN.contains(&code) => {
            unavailable(&format!("it ended with {code}, which says that a command was not found or cannot be run"))
        }
        Some(code) if NO_ROOM.iter().any(|words| exit.output_tail.contains(words)) => unavailable(&format!(
            "it ended with {code} and its output says that the disk is full; make room and land again"
        )),
        Some(code) => failed(format!(
            "the gate `{test_cmd}` failed with exit code {code}; see output_tail, fix it in {} and land again",
            job.worktree_path
        )),
        None => failed(format!("the gate `{test_cmd}` was ended by a signal; see output_tail and land again")),
    }
}
