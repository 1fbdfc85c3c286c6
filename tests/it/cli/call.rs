//! `worktree call`.

use std::io::Write as _;
use std::process::{Output, Stdio};

use serde_json::{Value, json};

use super::{err, out};
use crate::support::{BINARY, Seal, Stand};

async fn run(mut command: std::process::Command) -> Output {
    tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn results_go_to_standard_output_and_refusals_to_standard_error() {
    let stand = Stand::dev().await;
    let repository = stand.repository("shop");
    let request = json!({"repo_path": repository.text(), "session_id": "ada"}).to_string();

    // The address before or after the word, or in the environment.
    let created = run(stand.command(&["call", "worktree::create", &request, "--url", stand.url()])).await;
    assert!(created.status.success(), "{}", err(&created));
    assert_eq!(out(&created).lines().count(), 1, "not on one line: {}", out(&created));
    let created: Value = serde_json::from_str(&out(&created)).unwrap();
    let id = created["worktree_id"].as_str().unwrap();
    let listed = run(stand.command(&["--url", stand.url(), "call", "worktree::list"])).await;
    let listed: Value = serde_json::from_str(&out(&listed)).unwrap();
    assert_eq!(listed["worktrees"][0]["worktree_id"], id);
    let mut command = stand.command(&["call", "worktree::get", &json!({"worktree_id": id}).to_string()]);
    command.env("III_URL", stand.url());
    let got = run(command).await;
    assert_eq!(serde_json::from_str::<Value>(&out(&got)).unwrap()["session_id"], "ada");

    let missing = json!({"worktree_id": "wt_0123456789ab"}).to_string();
    let refused = run(stand.command(&["--url", stand.url(), "call", "worktree::get", &missing])).await;
    assert_eq!(refused.status.code(), Some(1));
    assert_eq!(out(&refused), "");
    let object: Value = serde_json::from_str(&err(&refused)).unwrap_or_else(|_| panic!("not JSON: {}", err(&refused)));
    assert_eq!(object.as_object().unwrap().keys().collect::<Vec<_>>(), ["code", "message"]);
    assert_eq!(object["code"], "W200");
    // What the engine itself refuses comes the same way.
    let unknown = run(stand.command(&["--url", stand.url(), "call", "no::such-function"])).await;
    assert_eq!(unknown.status.code(), Some(1));
    assert_eq!(serde_json::from_str::<Value>(&err(&unknown)).unwrap()["code"], "function_not_found");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_input_may_come_from_standard_input() {
    let stand = Stand::dev().await;
    let mut child = stand
        .command(&["call", "--url", stand.url(), "worktree::validate", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(br#"{"path": "/"}"#).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    assert_eq!(serde_json::from_str::<Value>(&out(&output)).unwrap()["valid"], false);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_does_not_come_in_time_is_a_failure() {
    let stand = Stand::dev().await;
    let hanging =
        iii_sdk::RegisterFunction::new_async(|_: Value| std::future::pending::<Result<Value, iii_sdk::Error>>());
    stand.client.sdk().register_function("test::hangs", hanging);
    crate::support::until("the function", || async {
        stand.client.call("engine::functions::info", json!({"function_id": "test::hangs"})).await.ok()
    })
    .await;
    let output = run(stand.command(&["call", "test::hangs", "--timeout-ms", "200", "--url", stand.url()])).await;
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(serde_json::from_str::<Value>(&err(&output)).unwrap()["code"], "TIMEOUT");
}

#[test]
fn what_is_wrong_before_the_call_has_its_own_exit_codes() {
    let seal = Seal::new();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let nobody = format!("ws://127.0.0.1:{port}");
    for (arguments, code) in [
        (&["call", "worktree::list", "{", "--url", &nobody][..], 2),
        (&["call", "worktree::list", "", "--url", &nobody], 2),
        (&["call", "", "--url", &nobody], 2),
        (&["call", "worktree::list", "--timeout-ms", "soon"], 2),
        (&["call", "worktree::list", "--url", "http://127.0.0.1:1"], 2),
        (&["call", "worktree::list", "--url", &nobody], 3),
    ] {
        let output = seal.command(BINARY).args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", err(&output));
        assert!(out(&output).is_empty() && !err(&output).is_empty(), "{arguments:?}");
    }
}
