//! Commands: output, limits, scopes, groups.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::client::{Client, PATIENCE, engine, options};
use worktree::engine::{Engine, Options, ShellOptions};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_answers_with_its_code_and_output() {
    let dir = tempfile::tempdir().unwrap();
    let engine = engine(dir.path()).await;
    let mut client = Client::worker(&engine.url(), "client", &[]).await;
    let answer = client
        .call("shell::exec", json!({"command": "pwd; echo $V >&2; cat; exit 3", "cwd": dir.path(), "env": {"V": "x"}}))
        .await
        .unwrap();
    let cwd = dir.path().canonicalize().unwrap();
    assert_eq!(answer["stdout"], format!("{}\n", cwd.display()));
    assert_eq!(answer["stderr"], "x\n");
    assert_eq!((&answer["exit_code"], &answer["timed_out"]), (&json!(3), &json!(false)));
    let args = client.call("shell::exec", json!({"command": "printf", "args": ["%s", "$HOME;x"]})).await.unwrap();
    assert_eq!(args["stdout"], "$HOME;x");
    let missing = client.call("shell::exec", json!({"command": "no-such-program", "args": []})).await.unwrap_err();
    assert_eq!(missing["code"], "S216");
    let in_shell = client.call("shell::exec", json!({"command": "no-such-program"})).await.unwrap();
    assert_eq!(in_shell["exit_code"], 127);
    let signal = client.call("shell::exec", json!({"command": "kill -TERM $$"})).await.unwrap();
    assert_eq!(signal["exit_code"], 143);
    for bad in [json!({}), json!({"command": " "}), json!({"command": "true", "cwd": "relative"})] {
        assert_eq!(client.call("shell::exec", bad).await.unwrap_err()["code"], "S210");
    }
    engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_whole_group_ends_at_the_limit_and_at_the_end_of_the_command() {
    let dir = tempfile::tempdir().unwrap();
    let engine = engine(dir.path()).await;
    let mut client = Client::worker(&engine.url(), "client", &[]).await;
    let started = Instant::now();
    let command = "(sleep 1000; true) & echo $!; (exec sleep 1000) ; true";
    let answer = client.call("shell::exec", json!({"command": command, "timeout_ms": 300})).await.unwrap();
    assert_eq!((&answer["timed_out"], &answer["exit_code"]), (&json!(true), &Value::Null));
    assert_gone(&answer);
    // A background process that holds the output does not hold the answer.
    let answer = client.call("shell::exec", json!({"command": "sleep 1000 & echo $!"})).await.unwrap();
    assert_eq!(answer["exit_code"], 0);
    assert_gone(&answer);
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
    engine.shutdown().await;
}

fn assert_gone(answer: &Value) {
    let pid = answer["stdout"].as_str().unwrap().trim();
    let end = Instant::now() + PATIENCE;
    loop {
        // A killed child of a killed parent may still be there as a zombie, until init has looked.
        let status = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let state = status.rsplit(')').next().unwrap_or_default().trim().chars().next();
        if matches!(state, None | Some('Z' | 'X')) {
            return;
        }
        assert!(Instant::now() < end, "process {pid} lives: {status}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_loud_command_is_not_blocked_and_its_end_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let shell = ShellOptions { output_bytes: 4096, ..ShellOptions::default() };
    let engine = Engine::start(Options { shell, ..options(dir.path()) }).await.unwrap();
    let mut client = Client::worker(&engine.url(), "client", &[]).await;
    let command = "echo first; i=0; while [ $i -lt 20000 ]; do echo line $i; i=$((i+1)); done; echo last";
    let answer = client.call("shell::exec", json!({ "command": command })).await.unwrap();
    let stdout = answer["stdout"].as_str().unwrap();
    assert!(stdout.starts_with("first\n") && stdout.ends_with("last\n") && stdout.len() < 4200, "{}", stdout.len());
    assert_eq!((&answer["exit_code"], &answer["stdout_truncated"]), (&json!(0), &json!(true)));
    engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_run_only_inside_the_roots_and_the_scope() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("root");
    let (inside, other) = (root.join("a"), root.join("b"));
    std::fs::create_dir_all(&inside).unwrap();
    std::fs::create_dir_all(&other).unwrap();
    std::os::unix::fs::symlink("/", root.join("way-out")).unwrap();
    let shell = ShellOptions { host_roots: vec![root.clone()], ..ShellOptions::default() };
    let engine = Engine::start(Options { shell, ..options(&dir.path().join("state")) }).await.unwrap();
    let mut client = Client::worker(&engine.url(), "client", &[]).await;
    for (cwd, scope, wanted) in [
        (inside.clone(), Some(&inside), "ok"),
        (inside.clone(), None, "ok"),
        (other.clone(), Some(&inside), "S220"),
        (dir.path().to_owned(), None, "S215"),
        (root.join("way-out"), None, "S215"),
        (root.join("a/../.."), None, "S215"),
        (root.join("none"), None, "S211"),
    ] {
        let scope = scope.map(|root| json!({ "root": root }));
        for function in ["shell::exec", "shell::exec_bg"] {
            let input = json!({"command": "true", "cwd": cwd, "fs_scope": scope});
            let code = match client.call(function, input).await {
                Ok(_) => "ok".to_owned(),
                Err(error) => error["code"].as_str().unwrap().to_owned(),
            };
            assert_eq!(code, wanted, "{function} in {}", cwd.display());
        }
    }
    engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn background_jobs_are_watched_killed_and_listed() {
    let dir = tempfile::tempdir().unwrap();
    let engine = engine(dir.path()).await;
    let mut client = Client::worker(&engine.url(), "client", &[]).await;
    let long = client.call("shell::exec_bg", json!({"command": "echo here; sleep 1000"})).await.unwrap();
    loop {
        let status = client.call("shell::status", long.clone()).await.unwrap();
        assert_eq!(status["status"], "running");
        if status["stdout"] == "here\n" {
            break;
        }
    }
    assert_eq!(client.call("shell::kill", long.clone()).await.unwrap()["killed"], true);
    assert_eq!(client.call("shell::status", long.clone()).await.unwrap()["status"], "killed");
    assert_eq!(client.call("shell::kill", long.clone()).await.unwrap()["killed"], false);
    let short = client.call("shell::exec_bg", json!({"command": "exit 4"})).await.unwrap();
    loop {
        let status = client.call("shell::status", short.clone()).await.unwrap();
        if status["status"] != "running" {
            assert_eq!((&status["status"], &status["exit_code"]), (&json!("failed"), &json!(4)));
            break;
        }
    }
    let listed = client.call("shell::list", json!({})).await.unwrap();
    assert_eq!(listed["jobs"].as_array().unwrap().len(), 2);
    assert_eq!(client.call("shell::status", json!({"job_id": "x"})).await.unwrap_err()["code"], "S211");
    engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_is_clamped_and_told_and_a_stopping_engine_leaves_no_command() {
    let dir = tempfile::tempdir().unwrap();
    let shell = ShellOptions { max_timeout: Duration::from_secs(5), running: 1, ..ShellOptions::default() };
    let engine = Engine::start(Options { shell, ..options(dir.path()) }).await.unwrap();
    let mut client = Client::worker(&engine.url(), "client", &[]).await;
    let answer = client.call("shell::exec", json!({"command": "env", "timeout_ms": 9_000_000})).await.unwrap();
    assert_eq!(answer["timeout_ms"], 5000);
    let zero = client.call("shell::exec", json!({"command": "true", "timeout_ms": 0})).await.unwrap_err();
    assert_eq!(zero["code"], "S210");
    let pid_file = dir.path().join("pid");
    let pid_file = pid_file.display();
    let command = format!("echo $$ > {pid_file}.new; mv {pid_file}.new {pid_file}; sleep 1000");
    let running = client.start("shell::exec", json!({ "command": command })).await;
    while !dir.path().join("pid").exists() {
        tokio::task::yield_now().await;
    }
    let one_more = client.call("shell::exec", json!({"command": "true"})).await.unwrap_err();
    assert_eq!(one_more["code"], "S230");
    let stopping = tokio::spawn(engine.shutdown());
    assert_eq!(client.answer(&running).await.unwrap_err()["code"], "invocation_stopped");
    stopping.await.unwrap();
    assert_gone(&json!({"stdout": std::fs::read_to_string(dir.path().join("pid")).unwrap()}));
}
