//! `shell::exec`, provided by a client, for an engine that has no shell worker.

use std::process::Stdio;
use std::time::{Duration, Instant};

use iii_sdk::{Error, IIIClient, RegisterFunction};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::process::Command;

#[derive(Deserialize)]
struct Request {
    command: String,
    cwd: String,
    timeout_ms: Option<u64>,
}

/// Registers the function.
pub fn provide_shell(sdk: &IIIClient) {
    let exec = |request: Value| async move { exec(serde_json::from_value(request)?).await };
    sdk.register_function("shell::exec", RegisterFunction::new_async(exec));
}

async fn exec(request: Request) -> Result<Value, Error> {
    let mut command = Command::new("sh");
    command.args(["-c", &request.command]).current_dir(&request.cwd).stdin(Stdio::null()).kill_on_drop(true);
    let limit = Duration::from_millis(request.timeout_ms.unwrap_or(120_000));
    let started = Instant::now();
    let ended = tokio::time::timeout(limit, command.output()).await;
    let duration_ms = u64::try_from(started.elapsed().as_millis()).unwrap();
    match ended {
        Ok(Ok(output)) => Ok(json!({
            "exit_code": output.status.code(),
            "stdout": String::from_utf8_lossy(&output.stdout),
            "stderr": String::from_utf8_lossy(&output.stderr),
            "timed_out": false,
            "duration_ms": duration_ms,
        })),
        Ok(Err(error)) => Err(Error::Remote { code: "S216".to_owned(), message: error.to_string(), stacktrace: None }),
        Err(_) => {
            Ok(json!({"exit_code": null, "stdout": "", "stderr": "", "timed_out": true, "duration_ms": duration_ms}))
        }
    }
}
