//! Calls, names and sessions.

use serde_json::json;

use super::client::{Client, engine, options};
use std::time::Duration;
use worktree::engine::Engine;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_outlives_its_callee_or_its_caller_leaves_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    let engine = engine(dir.path()).await;
    let mut caller = Client::worker(&engine.url(), "caller", &[]).await;
    let mut callee = Client::worker(&engine.url(), "callee", &["w::slow"]).await;
    let pending = caller.start("w::slow", json!({})).await;
    callee.recv_type("invokefunction").await;
    drop(callee);
    assert_eq!(caller.answer(&pending).await.unwrap_err()["code"], "invocation_stopped");
    let gone = caller.call("w::slow", json!({})).await.unwrap_err();
    assert_eq!(gone["message"], "Function w::slow not found in namespace default.");

    // The other way round: the answer to a caller that left is dropped, and the callee serves on.
    let mut callee = Client::worker(&engine.url(), "callee", &["w::slow"]).await;
    let mut leaving = Client::worker(&engine.url(), "leaving", &[]).await;
    leaving.start("w::slow", json!({"n": 1})).await;
    let call = callee.recv_type("invokefunction").await;
    drop(leaving);
    let late = json!({"type": "invocationresult", "invocation_id": call["invocation_id"], "result": 1});
    callee.send(late).await;
    let pending = caller.start("w::slow", json!({"n": 2})).await;
    assert_eq!(callee.serve_one(json!("ok")).await["n"], 2);
    assert_eq!(caller.answer(&pending).await.unwrap(), "ok");
    engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_called_session_can_answer_and_equal_ids_do_not_mix() {
    let dir = tempfile::tempdir().unwrap();
    let engine = engine(dir.path()).await;
    let mut callee = Client::worker(&engine.url(), "callee", &["w::f"]).await;
    let mut one = Client::worker(&engine.url(), "one", &[]).await;
    let mut two = Client::worker(&engine.url(), "two", &[]).await;
    // Both clients count from one, so their calls have the same id.
    let first = one.start("w::f", json!("one")).await;
    let call = callee.recv_type("invokefunction").await;
    let forged = json!({"type": "invocationresult", "invocation_id": call["invocation_id"], "result": "forged"});
    two.send(forged).await;
    let second = two.start("w::f", json!("two")).await;
    assert_eq!(first, second);
    let other = callee.recv_type("invokefunction").await;
    assert_ne!(call["invocation_id"], other["invocation_id"]);
    for call in [&other, &call] {
        let (id, data) = (&call["invocation_id"], &call["data"]);
        callee.send(json!({"type": "invocationresult", "invocation_id": id, "result": data})).await;
    }
    assert_eq!(one.answer(&first).await.unwrap(), "one");
    assert_eq!(two.answer(&second).await.unwrap(), "two");
    engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn namespaces_keep_equal_functions_apart() {
    let dir = tempfile::tempdir().unwrap();
    let engine = engine(dir.path()).await;
    let mut workers = Vec::new();
    for namespace in ["blue", "green"] {
        let mut worker = Client::connect(&engine.url()).await;
        worker.send(json!({"type": "registerfunction", "id": "w::f"})).await;
        let about = json!({"name": "same", "pid": 1, "namespace": namespace});
        worker.call("engine::workers::register", about).await.unwrap();
        workers.push(worker);
    }
    let mut caller = Client::worker(&engine.url(), "same", &[]).await;
    for (worker, namespace) in workers.iter_mut().zip(["blue", "green"]) {
        caller
            .send(json!({
                "type": "invokefunction", "invocation_id": "00000000-0000-0000-0000-0000000000ff",
                "function_id": "w::f", "data": {}, "namespace": namespace
            }))
            .await;
        worker.serve_one(json!(namespace)).await;
        assert_eq!(caller.answer("00000000-0000-0000-0000-0000000000ff").await.unwrap(), namespace);
    }
    assert_eq!(caller.call("w::f", json!({})).await.unwrap_err()["code"], "function_not_found");
    let mut blank = Client::connect(&engine.url()).await;
    let refused = blank.call("engine::workers::register", json!({"name": "x", "namespace": " "})).await;
    assert_eq!(refused.unwrap_err()["code"], "INVALID_NAMESPACE");
    engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_never_announces_itself_is_served_after_the_grace() {
    let dir = tempfile::tempdir().unwrap();
    let options = worktree::engine::Options { registration_grace: Duration::from_millis(50), ..options(dir.path()) };
    let engine = Engine::start(options).await.unwrap();
    let mut silent = Client::connect(&engine.url()).await;
    let mut caller = Client::worker(&engine.url(), "caller", &[]).await;
    let about = json!({"trigger_type": "engine::functions-available", "function_id": "caller::on"});
    caller.call("engine::register_trigger", about).await.unwrap();
    caller.send(json!({"type": "registerfunction", "id": "caller::on"})).await;
    silent.send(json!({"type": "registerfunction", "id": "w::f"})).await;
    // The engine tells when the set of functions changed, so there is no need to try again and again.
    loop {
        let event = caller.serve_one(json!(null)).await;
        assert_eq!(event["event"], "functions_changed");
        if event["functions"].as_array().unwrap().iter().any(|function| function["function_id"] == "w::f") {
            break;
        }
    }
    let pending = caller.start("w::f", json!({})).await;
    silent.serve_one(json!(1)).await;
    assert_eq!(caller.answer(&pending).await.unwrap(), 1);
    engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reattaching_with_the_secret_retires_the_old_connection() {
    let dir = tempfile::tempdir().unwrap();
    let engine = engine(dir.path()).await;
    let mut old = Client::worker(&engine.url(), "w", &["w::f"]).await;
    let mut new = Client::connect(&engine.url()).await;
    let wrong = json!({"type": "reattach", "previous_worker_id": old.worker_id, "reattach_token": "guess"});
    new.send(wrong).await;
    assert_eq!(old.call("state::list", json!({"scope": "s"})).await.unwrap(), json!([]));
    let right = json!({"type": "reattach", "previous_worker_id": old.worker_id, "reattach_token": old.reattach_token});
    new.send(right).await;
    new.send(json!({"type": "registerfunction", "id": "w::f"})).await;
    new.call("engine::workers::register", json!({"name": "w", "pid": 2})).await.unwrap();
    assert_eq!(old.next().await, None, "the old connection stays");
    let mut caller = Client::worker(&engine.url(), "caller", &[]).await;
    let pending = caller.start("w::f", json!({})).await;
    new.serve_one(json!("new")).await;
    assert_eq!(caller.answer(&pending).await.unwrap(), "new");
    engine.shutdown().await;
}

#[tokio::test]
async fn a_name_is_had_by_a_worker_that_is_back_before_the_news_of_its_end() {
    let dir = tempfile::tempdir().unwrap();
    let engine = engine(dir.path()).await;
    let old = Client::worker(&engine.url(), "w", &[]).await;
    let mut new = Client::connect(&engine.url()).await;
    let announced = new.start("engine::workers::register", json!({"name": "w"})).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    drop(old);
    assert_eq!(new.answer(&announced).await.unwrap(), json!({"success": true}));
    // One whose holder lives is refused.
    let mut third = Client::connect(&engine.url()).await;
    third.start("engine::workers::register", json!({"name": "w"})).await;
    let refused = third.recv_type("registrationrejected").await;
    assert_eq!(refused["code"], "WORKER_NAMESPACE_CONFLICT");
}
