//! State and configuration across restarts, and whose they are.

use serde_json::{Value, json};

use super::client::{Client, engine, options};
use worktree::engine::{Engine, EngineError, Options};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn state_and_configuration_survive_a_restart_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let first = engine(dir.path()).await;
    let mut client = Client::worker(&first.url(), "client", &[]).await;
    for key in ["z", "a", "m"] {
        client.call("state::set", json!({"scope": "s", "key": key, "value": key})).await.unwrap();
    }
    client.call("state::delete", json!({"scope": "s", "key": "a"})).await.unwrap();
    client.call("state::set", json!({"scope": "s", "key": "a", "value": "again"})).await.unwrap();
    client.call("state::set", json!({"scope": "s", "key": "z", "value": "still first"})).await.unwrap();
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}});
    let entry = json!({"id": "c", "name": "C", "description": "d", "schema": schema, "initial_value": {"n": 1}});
    client.call("configuration::register", entry.clone()).await.unwrap();
    client.call("configuration::set", json!({"id": "c", "value": {"n": 2}})).await.unwrap();
    first.shutdown().await;

    let second = engine(dir.path()).await;
    let mut client = Client::worker(&second.url(), "client", &[]).await;
    let list = client.call("state::list", json!({"scope": "s"})).await.unwrap();
    assert_eq!(list, json!(["still first", "m", "again"]));
    assert_eq!(client.call("configuration::get", json!({"id": "c"})).await.unwrap()["value"], json!({"n": 2}));
    let early = client.call("configuration::set", json!({"id": "c", "value": {"n": 3}})).await.unwrap_err();
    assert_eq!(early["code"], "SCHEMA_UNAVAILABLE");
    let without_value = json!({"id": "c", "name": "C", "description": "d", "schema": schema});
    assert_eq!(client.call("configuration::register", without_value).await.unwrap()["value"], json!({"n": 2}));
    client.call("configuration::set", json!({"id": "c", "value": {"n": 3}})).await.unwrap();
    second.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_engine_on_the_directory_is_refused_and_names_the_first() {
    let dir = tempfile::tempdir().unwrap();
    let first = engine(dir.path()).await;
    let refused = Engine::start(options(dir.path())).await.unwrap_err();
    assert!(matches!(refused, EngineError::Owned { .. }));
    assert!(refused.to_string().contains(&format!("process {}", std::process::id())), "{refused}");
    first.shutdown().await;
    engine(dir.path()).await.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_port_that_is_taken_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let first = engine(&dir.path().join("a")).await;
    let port = first.url().rsplit(':').next().unwrap().parse().unwrap();
    let refused = Engine::start(Options { port, ..options(&dir.path().join("b")) }).await.unwrap_err();
    assert!(refused.to_string().contains(&port.to_string()), "{refused}");
    first.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_updates_of_one_key_all_count() {
    let dir = tempfile::tempdir().unwrap();
    let engine = engine(dir.path()).await;
    let mut tasks = Vec::new();
    for n in 0..8 {
        let url = engine.url();
        tasks.push(tokio::spawn(async move {
            let mut client = Client::worker(&url, &format!("c{n}"), &[]).await;
            for _ in 0..25 {
                let ops = json!([{"type": "increment", "path": "n", "by": 1}]);
                client.call("state::update", json!({"scope": "s", "key": "k", "ops": ops})).await.unwrap();
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    let mut client = Client::worker(&engine.url(), "reader", &[]).await;
    assert_eq!(client.call("state::get", json!({"scope": "s", "key": "k"})).await.unwrap(), json!({"n": 200}));
    let nothing = client.call("state::get", json!({"scope": "s", "key": "none"})).await.unwrap();
    assert_eq!(nothing, Value::Null);
    engine.shutdown().await;
}
