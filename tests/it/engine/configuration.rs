//! Configuration: schemas, variables, edits by others, events.

use serde_json::{Value, json};

use super::client::{Client, engine, options};
use worktree::engine::{Engine, EngineError};

fn entry(value: &Value) -> Value {
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
    json!({"id": "c", "name": "C", "description": "d", "schema": schema, "initial_value": value})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn variables_are_expanded_for_readers_and_checked_then() {
    let dir = tempfile::tempdir().unwrap();
    let engine = engine(dir.path()).await;
    let mut client = Client::worker(&engine.url(), "client", &[]).await;
    client.call("configuration::register", entry(&json!({"n": "${NO_SUCH_VARIABLE:7}"}))).await.unwrap();
    let get = json!({"id": "c"});
    assert_eq!(client.call("configuration::get", get.clone()).await.unwrap()["value"], json!({"n": 7}));
    let raw = client.call("configuration::get", json!({"id": "c", "raw": true})).await.unwrap();
    assert_eq!(raw["value"], json!({"n": "${NO_SUCH_VARIABLE:7}"}));
    // Nobody can tell yet whether this is right, so it is taken, and reading it says what is missing.
    client.call("configuration::set", json!({"id": "c", "value": {"n": "${NO_SUCH_VARIABLE}"}})).await.unwrap();
    let error = client.call("configuration::get", get).await.unwrap_err();
    assert_eq!(error["code"], "EXPAND_FAILED");
    assert!(error["message"].as_str().unwrap().contains("NO_SUCH_VARIABLE"));
    let bad = client.call("configuration::set", json!({"id": "c", "value": {"n": "${NO_SUCH_VARIABLE:x}"}})).await;
    assert_eq!(bad.unwrap_err()["code"], "SCHEMA_INVALID");
    let bad = json!({"id": "d", "name": "D", "description": "d", "schema": {"type": 7}});
    assert_eq!(client.call("configuration::register", bad).await.unwrap_err()["code"], "SCHEMA_INVALID");
    let listed = client.call("configuration::list", json!({})).await.unwrap();
    assert_eq!(listed["configurations"].as_array().unwrap().len(), 1);
    // An entry of an object schema without a value can be made, but not read.
    let empty = json!({"id": "e", "name": "E", "description": "d", "schema": {"type": "object"}});
    assert_eq!(client.call("configuration::register", empty).await.unwrap()["value"], Value::Null);
    let unread = client.call("configuration::get", json!({"id": "e"})).await.unwrap_err();
    assert_eq!(unread["code"], "SCHEMA_INVALID");
    engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn edits_by_others_are_taken_when_they_are_valid() {
    let dir = tempfile::tempdir().unwrap();
    let engine = engine(dir.path()).await;
    let mut client = Client::worker(&engine.url(), "client", &["c::on"]).await;
    client.call("configuration::register", entry(&json!({"n": 1}))).await.unwrap();
    client
        .send(json!({"type": "registertrigger", "id": "t", "trigger_type": "configuration", "function_id": "c::on",
                     "config": {"event_types": ["configuration:updated", "configuration:registered"]}}))
        .await;
    let file = dir.path().join("config/c.yaml");
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.contains("n: 1"), "{text}");
    // Not YAML, then against the schema, then right: only the last is heard of.
    for (content, wait) in
        [("{", true), (&text.replace("n: 1", "n: no"), true), (&text.replace("n: 1", "n: 22"), false)]
    {
        std::fs::write(&file, content).unwrap();
        if wait {
            // Long enough for two looks; were it taken, the event below would be another.
            tokio::time::sleep(std::time::Duration::from_millis(1600)).await;
        }
    }
    let mut event = client.serve_one(json!(null)).await;
    if event["event_type"] == "configuration:registered" {
        // The event of the register above, which is sent beside its answer, may meet the binding.
        assert_eq!((&event["id"], &event["new_value"]), (&json!("c"), &json!({"n": 1})));
        event = client.serve_one(json!(null)).await;
    }
    assert_eq!((&event["old_value"], &event["new_value"]), (&json!({"n": 1}), &json!({"n": 22})));
    assert_eq!(client.call("configuration::get", json!({"id": "c"})).await.unwrap()["value"], json!({"n": 22}));
    // A new file is a new entry.
    std::fs::write(dir.path().join("config/new.yaml"), "id: new\nvalue: [1]\n").unwrap();
    let event = client.serve_one(json!(null)).await;
    assert_eq!((&event["id"], &event["event_type"]), (&json!("new"), &json!("configuration:registered")));
    engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_is_no_entry_stops_the_start_by_name() {
    for (name, content) in [("torn.yaml", "id: torn\nvalue: {"), ("other.yaml", "id: another\n"), ("bin.yaml", "\u{0}")]
    {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("config")).unwrap();
        std::fs::write(dir.path().join("config").join(name), content).unwrap();
        let refused = Engine::start(options(dir.path())).await.unwrap_err();
        assert!(matches!(refused, EngineError::Store { .. }) && refused.to_string().contains(name), "{refused}");
    }
    // What a crash left of a replacement is not in the way.
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("config")).unwrap();
    std::fs::write(dir.path().join("config/.c.new"), "half").unwrap();
    engine(dir.path()).await.shutdown().await;
    assert!(!dir.path().join("config/.c.new").exists());
}
