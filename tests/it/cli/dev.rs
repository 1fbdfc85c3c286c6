//! `worktree dev`.

use serde_json::Value;

use crate::support::{BINARY, Process, Seal, Stand};

#[tokio::test(flavor = "multi_thread")]
async fn it_prints_exactly_one_line_and_leaves_when_asked() {
    let mut stand = Stand::dev().await;
    assert!(stand.url().starts_with("ws://127.0.0.1:"), "{}", stand.url());
    assert!(stand.http().starts_with("http://127.0.0.1:"), "{}", stand.http());
    assert!(stand.stop().await.success(), "{}", stand.log());
    assert_eq!(stand.printed().len(), 1, "{:?}", stand.printed());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_in_use_is_named() {
    let stand = Stand::dev().await;
    let port = stand.url().rsplit(':').next().unwrap();
    let other = stand.seal.path().join("other-state");
    let mut command = stand.command(&["dev", "--port", port, "--http-port", "0", "--state-dir"]);
    command.arg(&other);
    let mut second = Process::start("a second dev", command);
    assert_eq!(second.ended().await.code(), Some(1));
    assert!(second.log().contains(port), "the port is not named: {}", second.log());

    let mut command = stand.command(&["dev", "--port", "0", "--http-port", "0", "--state-dir"]);
    let state = stand.seal.path().join("state");
    command.arg(&state);
    let mut third = Process::start("a third dev", command);
    assert_eq!(third.ended().await.code(), Some(1));
    assert!(third.log().contains(state.to_str().unwrap()), "the directory is not named: {}", third.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_state_directory_it_keeps_to_its_own_place_at_home() {
    let seal = Seal::new();
    let mut command = seal.command(BINARY);
    command.args(["dev", "--port", "0", "--http-port", "0"]);
    let mut process = Process::start("worktree dev", command);
    let ready: Value = serde_json::from_str(&process.first_line().await).unwrap();
    assert_eq!(ready["ready"], true);
    assert!(seal.home().join(".iii/worktree-dev").is_dir());
    assert!(process.stop().await.success(), "{}", process.log());
}
