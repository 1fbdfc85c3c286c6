//! The shell worker over `iii-sdk`.
//!
//! A shell worker ends a command of `shell::exec` at a limit of its own, 120 s unless somebody raised it. A command that
//! may take longer is run in the background and asked after, where the shell worker can do that. Answers are read with
//! tolerance: workers in use differ in where they put what they say of a job.

use std::sync::OnceLock;
use std::time::Duration;

use iii_sdk::errors::Error as SdkError;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::Instant;

use super::{CALL_LIMIT, IiiBus, NOT_FOUND};
use crate::bus::{Fut, Shell, ShellCommand, ShellExit, ShellFault};

/// The limit of `shell::exec` that shell workers come with, in milliseconds.
const USUAL_CLAMP_MS: u64 = 120_000;
/// What the shell worker gets on top of the command's own limit before the call counts as lost.
const GRACE: Duration = Duration::from_secs(15);
/// How much of a command's output is kept, in bytes.
const TAIL_BYTES: usize = 8 * 1024;
/// Pauses between two questions after a background job; each is half as long again as the one before.
const FIRST_PAUSE: Duration = Duration::from_millis(30);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// How long after a killed command the link may break before the kill counts as meant.
const KILL_DOUBT: Duration = Duration::from_secs(3);

impl Shell for IiiBus {
    fn exec<'a>(
        &'a self,
        command: &'a ShellCommand,
        mut stop: watch::Receiver<bool>,
    ) -> Fut<'a, Result<ShellExit, ShellFault>> {
        Box::pin(async move {
            let mut losses = self.losses.subscribe();
            let background = OnceLock::new();
            let stopped = async { stop.wait_for(|stop| *stop).await.map(drop) };
            let ended = tokio::select! {
                ended = self.run(command, &background) => ended,
                _ = losses.changed() => Err(ShellFault::Interrupted("the link to the engine broke".to_owned())),
                _ = stopped => Err(ShellFault::Interrupted("this worker is stopping".to_owned())),
            };
            if *stop.borrow()
                && let Some(job) = background.get()
            {
                self.kill(job).await;
            }
            match ended {
                // An engine that stops kills its commands before it closes its links.
                Ok(exit) if exit.killed && tokio::time::timeout(KILL_DOUBT, losses.changed()).await.is_ok() => {
                    Err(ShellFault::Interrupted("the engine stopped".to_owned()))
                }
                ended => ended,
            }
        })
    }
}

impl IiiBus {
    async fn run(&self, command: &ShellCommand, background: &OnceLock<String>) -> Result<ShellExit, ShellFault> {
        let payload = json!({
            "command": command.command, "cwd": command.cwd, "timeout_ms": command.timeout_ms,
            "fs_scope": {"root": command.cwd},
        });
        let limit = Duration::from_millis(command.timeout_ms);
        if command.timeout_ms > USUAL_CLAMP_MS {
            match self.call("shell::exec_bg", payload.clone(), None, CALL_LIMIT).await {
                Ok(answer) => {
                    let Some(job) = job_id(&answer) else {
                        return Err(unreadable("shell::exec_bg", &answer));
                    };
                    return self.follow(background.get_or_init(|| job), limit).await;
                }
                Err(SdkError::Remote { code, .. }) if code == NOT_FOUND => {}
                Err(error) => return Err(fault(error)),
            }
        }
        self.call("shell::exec", payload, None, limit + GRACE).await.map(|answer| exit(&answer)).map_err(fault)
    }

    /// Asks after a background job until it has ended, or ends it at its limit.
    async fn follow(&self, job: &str, limit: Duration) -> Result<ShellExit, ShellFault> {
        let begun = Instant::now();
        let mut pause = FIRST_PAUSE;
        loop {
            tokio::time::sleep(pause).await;
            pause = (pause * 3 / 2).min(LONGEST_PAUSE);
            let answer = match self.call("shell::status", json!({"job_id": job}), None, CALL_LIMIT).await {
                Ok(answer) => answer,
                // A shell worker that started anew knows nothing of the job.
                Err(SdkError::Remote { code, message, .. }) if code != NOT_FOUND => {
                    return Err(ShellFault::Interrupted(format!("{message} ({code})")));
                }
                Err(error) => return Err(fault(error)),
            };
            let Some(state) = job_of(&answer).get("status").and_then(Value::as_str) else {
                return Err(unreadable("shell::status", &answer));
            };
            if !matches!(state, "running" | "pending" | "queued" | "starting") {
                return Ok(job_exit(&answer, begun.elapsed()));
            }
            if begun.elapsed() > limit + GRACE {
                self.kill(job).await;
                return Ok(ShellExit { timed_out: true, exit_code: None, ..job_exit(&answer, begun.elapsed()) });
            }
        }
    }

    /// Ends a background job, if it still can be reached.
    async fn kill(&self, job: &str) {
        if let Err(error) = self.call("shell::kill", json!({"job_id": job}), None, CALL_LIMIT).await {
            tracing::warn!(job, %error, "a gate may still be running");
        }
    }
}

fn fault(error: SdkError) -> ShellFault {
    match error {
        SdkError::Remote { code, .. } if code == NOT_FOUND => ShellFault::NoProvider,
        SdkError::Remote { code, message, .. } if code == "invocation_stopped" => ShellFault::Interrupted(message),
        SdkError::Remote { code, message, .. } => ShellFault::Refused { code, message },
        other => ShellFault::Interrupted(other.to_string()),
    }
}

fn unreadable(function_id: &str, answer: &Value) -> ShellFault {
    ShellFault::Refused { code: "unreadable".to_owned(), message: format!("{function_id} answered {answer}") }
}

/// What an answer says of a job: in itself, or under `job`.
fn job_of(answer: &Value) -> &Value {
    answer.get("job").filter(|job| job.is_object()).unwrap_or(answer)
}

fn job_id(answer: &Value) -> Option<String> {
    let job = job_of(answer);
    let id = ["job_id", "id"].iter().find_map(|key| job.get(key))?;
    id.as_str().map(str::to_owned).filter(|id| !id.is_empty())
}

/// The last `limit` bytes of `text`, cut at a character, with a mark when something was cut.
fn tail(text: &str, limit: usize) -> String {
    if text.len() <= limit {
        return text.to_owned();
    }
    let start = (text.len() - limit..text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len());
    format!("…{}", &text[start..])
}

/// Reads what the shell worker says of a command that ended.
fn exit(answer: &Value) -> ShellExit {
    let text = |key: &str| answer.get(key).and_then(Value::as_str).unwrap_or_default().trim_end();
    let (out, err) = (text("stdout"), text("stderr"));
    let both = if out.is_empty() || err.is_empty() { format!("{out}{err}") } else { format!("{out}\n{err}") };
    let is = |key: &str| answer.get(key).and_then(Value::as_bool).unwrap_or(false);
    ShellExit {
        exit_code: answer.get("exit_code").and_then(Value::as_i64),
        timed_out: is("timed_out"),
        killed: is("killed"),
        duration_ms: answer.get("duration_ms").and_then(Value::as_u64),
        output_tail: tail(&both, TAIL_BYTES),
    }
}

/// Reads what the shell worker says of a background job.
fn job_exit(answer: &Value, ran: Duration) -> ShellExit {
    let job = job_of(answer);
    let state = job.get("status").and_then(Value::as_str).unwrap_or_default();
    let exit = exit(job);
    ShellExit {
        timed_out: exit.timed_out || state == "timed_out",
        killed: exit.killed || state == "killed",
        duration_ms: exit.duration_ms.or(u64::try_from(ran.as_millis()).ok()),
        ..exit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tail_keeps_the_end_and_whole_characters() {
        assert_eq!(tail("abc", 3), "abc");
        assert_eq!(tail("äbc", 3), "…bc");
    }

    #[test]
    fn output_of_both_streams_is_kept_in_order() {
        let exit = exit(&json!({"exit_code": 3, "stdout": "one\n", "stderr": "two\n", "duration_ms": 5}));
        assert_eq!(exit.output_tail, "one\ntwo");
        assert_eq!((exit.exit_code, exit.timed_out, exit.killed, exit.duration_ms), (Some(3), false, false, Some(5)));
    }

    #[test]
    fn a_job_is_read_wherever_it_lies() {
        let ran = Duration::from_millis(7);
        let flat = json!({"job_id": "a", "status": "timed_out", "exit_code": null});
        let nested = json!({"job": {"id": "a", "status": "killed", "exit_code": null, "stdout": "x"}});
        assert_eq!((job_id(&flat), job_id(&nested), job_id(&json!({}))), (Some("a".into()), Some("a".into()), None));
        assert!(job_exit(&flat, ran).timed_out && !job_exit(&flat, ran).killed);
        let killed = job_exit(&nested, ran);
        assert!(killed.killed && !killed.timed_out);
        assert_eq!((killed.output_tail.as_str(), killed.duration_ms), ("x", Some(7)));
    }
}
