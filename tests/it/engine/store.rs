//! State and configuration across restarts, and whose they are.

use std::os::unix::fs::PermissionsExt as _;

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
async fn a_port_that_is_taken_is_named_and_the_directory_is_its_owners() {
    let dir = tempfile::tempdir().unwrap();
    let first = engine(&dir.path().join("a")).await;
    let mode = std::fs::metadata(dir.path().join("a")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700, "others may read the state directory");
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

/// A state directory with some values in it; gives how many.
async fn filled(dir: &std::path::Path) -> usize {
    let engine = engine(dir).await;
    let mut client = Client::worker(&engine.url(), "client", &[]).await;
    for n in 0..40 {
        let value = json!({"scope": "s", "key": n.to_string(), "value": "x".repeat(3000)});
        client.call("state::set", value).await.unwrap();
    }
    engine.shutdown().await;
    40
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_store_is_refused_by_name_or_read_whole() {
    let dir = tempfile::tempdir().unwrap();
    let count = filled(dir.path()).await;
    let path = dir.path().join("engine.redb");
    let whole = std::fs::read(&path).unwrap();
    let mut damaged: Vec<Vec<u8>> = Vec::new();
    for part in 1..8 {
        damaged.push(whole[..whole.len() * part / 8].to_vec());
    }
    for at in (0..whole.len()).step_by(whole.len() / 60) {
        let mut bytes = whole.clone();
        bytes[at..(at + 16).min(whole.len())].fill(0xa5);
        damaged.push(bytes);
    }
    let mut refused = 0;
    for bytes in damaged {
        std::fs::write(&path, &bytes).unwrap();
        match Engine::start(options(dir.path())).await {
            Err(error) => {
                assert!(error.to_string().contains("engine.redb"), "{error}");
                assert_eq!(std::fs::read(&path).unwrap().len(), bytes.len(), "a refused file was touched: {error}");
                refused += 1;
            }
            Ok(engine) => {
                let mut client = Client::worker(&engine.url(), "client", &[]).await;
                let list = client.call("state::list", json!({"scope": "s"})).await.unwrap();
                assert_eq!(list.as_array().unwrap().len(), count);
                assert!(list.as_array().unwrap().iter().all(|value| *value == "x".repeat(3000)));
                engine.shutdown().await;
            }
        }
    }
    assert!(refused > 7, "only {refused} damaged files were refused");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn foreign_and_newer_stores_are_refused_by_name_and_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("engine.redb");
    std::fs::write(&path, "these are my notes, not a store").unwrap();
    let error = Engine::start(options(dir.path())).await.unwrap_err();
    assert!(error.to_string().contains("engine.redb"), "{error}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "these are my notes, not a store");

    std::fs::remove_file(&path).unwrap();
    let table = redb::TableDefinition::<&str, u64>::new("theirs");
    let database = redb::Database::create(&path).unwrap();
    let writing = database.begin_write().unwrap();
    writing.open_table(table).unwrap().insert("n", 1).unwrap();
    writing.commit().unwrap();
    drop(database);
    let error = Engine::start(options(dir.path())).await.unwrap_err();
    assert!(error.to_string().contains("another program made it"), "{error}");

    std::fs::remove_file(&path).unwrap();
    engine(dir.path()).await.shutdown().await;
    let meta = redb::TableDefinition::<&[u8], &[u8]>::new("meta");
    let database = redb::Database::create(&path).unwrap();
    let writing = database.begin_write().unwrap();
    writing.open_table(meta).unwrap().insert(&b"format"[..], &2u64.to_le_bytes()[..]).unwrap();
    writing.commit().unwrap();
    drop(database);
    let error = Engine::start(options(dir.path())).await.unwrap_err();
    assert!(matches!(error, EngineError::NewerStore { found: 2, .. }), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_is_mostly_free_space_is_compacted_at_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let first = engine(dir.path()).await;
    let mut client = Client::worker(&first.url(), "client", &[]).await;
    for n in 0..12 {
        let value = json!({"scope": "s", "key": n.to_string(), "value": "x".repeat(4 << 20)});
        client.call("state::set", value).await.unwrap();
    }
    for n in 0..11 {
        client.call("state::delete", json!({"scope": "s", "key": n.to_string()})).await.unwrap();
    }
    first.shutdown().await;
    let size = || std::fs::metadata(dir.path().join("engine.redb")).unwrap().len();
    let before = size();
    let second = engine(dir.path()).await;
    assert!(size() < before / 2, "{before} bytes became {}", size());
    let mut client = Client::worker(&second.url(), "client", &[]).await;
    let left = client.call("state::list", json!({"scope": "s"})).await.unwrap();
    assert_eq!(left.as_array().unwrap().len(), 1);
    second.shutdown().await;
}
