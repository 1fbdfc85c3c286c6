//! The published SDKs of other languages against this engine.
//!
//! `.ci/tools` installs them below `target/sdk-clients`, where the tests look for them.

use std::path::PathBuf;
use std::process::Stdio;

use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::timeout;

use serde_json::json;

use super::client::{Client, PATIENCE, engine, options};
use worktree::engine::{Engine, Options};

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Where the published SDKs are installed.
fn installed(proof: &str) -> PathBuf {
    let place = root().join("target/sdk-clients");
    assert!(place.join(proof).exists(), "the published SDKs are not installed; run .ci/tools once");
    place
}

/// Waits for a line; the SDK writes lines of its own in between.
async fn line(lines: &mut Lines<BufReader<ChildStdout>>, wanted: &str) {
    loop {
        let line = timeout(PATIENCE * 2, lines.next_line()).await.expect("the client says nothing").unwrap();
        let line = line.unwrap_or_else(|| panic!("the client ended before it said: {wanted}"));
        if line == wanted {
            return;
        }
    }
}

/// The client's own checks: before a restart of the engine, and after it.
async fn run(mut command: Command) {
    let dir = tempfile::tempdir().unwrap();
    let first = engine(dir.path()).await;
    let url = first.url();
    let port = url.rsplit(':').next().unwrap().parse().unwrap();
    let mut refuser = Client::worker(&url, "refuser", &["it::refuse"]).await;
    let refusing = tokio::spawn(async move {
        refuser.fail_one("W210").await;
    });
    let mut child: Child = command
        .env("III_URL", &url)
        .env("OTEL_ENABLED", "false")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    line(&mut lines, "before the restart: ok").await;
    refusing.await.unwrap();
    // The other way round: a call from outside into the client.
    let mut caller = Client::worker(&url, "caller", &[]).await;
    assert_eq!(caller.call("client::double", json!({"n": 21})).await.unwrap(), json!({"n": 42}));
    let failed = caller.call("client::fail", json!({})).await.unwrap_err();
    assert!(failed["message"].as_str().unwrap().contains("out of luck"), "{failed}");
    first.shutdown().await;
    let second = Engine::start(Options { port, ..options(dir.path()) }).await.unwrap();
    child.stdin.take().unwrap().write_all(b"restarted\n").await.unwrap();
    line(&mut lines, "after the restart: ok").await;
    let status = timeout(PATIENCE, child.wait()).await.expect("the client does not end").unwrap();
    assert!(status.success(), "{status}");
    second.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_node_sdk_registers_calls_listens_and_comes_back() {
    let place = installed("node/node_modules/iii-sdk");
    // Modules are looked up from where the script lies.
    let script = place.join("node/engine-client.mjs");
    std::fs::copy(root().join("tests/it/engine/clients/client.mjs"), &script).unwrap();
    let mut command = Command::new("node");
    command.arg(script);
    run(command).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_python_sdk_registers_calls_listens_and_comes_back() {
    let mut command = Command::new(installed("python/bin/python").join("python/bin/python"));
    command.arg(root().join("tests/it/engine/clients/client.py"));
    run(command).await;
}
