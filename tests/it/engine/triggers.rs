//! Trigger types, bindings and listings.

use serde_json::{Value, json};

use super::client::{Client, engine};

async fn provide(client: &mut Client, id: &str) {
    client.send(json!({"type": "registertriggertype", "id": id, "description": "d"})).await;
}

async fn accept(client: &mut Client) -> Value {
    let offer = client.recv_type("registertrigger").await;
    let answer = json!({"type": "triggerregistrationresult", "id": offer["id"], "trigger_type": offer["trigger_type"],
                        "function_id": offer["function_id"]});
    client.send(answer).await;
    offer
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bindings_follow_their_binder_and_their_provider() {
    let dir = tempfile::tempdir().unwrap();
    let engine = engine(dir.path()).await;
    let mut provider = Client::worker(&engine.url(), "provider", &[]).await;
    let mut binder = Client::worker(&engine.url(), "binder", &[]).await;
    provide(&mut provider, "p::ev").await;
    let bind = |config: Value| {
        json!({"type": "registertrigger", "id": "t1", "trigger_type": "p::ev", "function_id": "b::on",
               "config": config})
    };
    binder.send(bind(json!({"n": 1}))).await;
    assert_eq!(accept(&mut provider).await["config"], json!({"n": 1}));
    // By call it outlives its caller.
    let by_call =
        binder.start("engine::register_trigger", json!({"trigger_type": "p::ev", "function_id": "b::on"})).await;
    let offered = accept(&mut provider).await;
    assert_eq!(binder.answer(&by_call).await.unwrap()["id"], offered["id"]);
    drop(binder);
    let gone = provider.recv_type("unregistertrigger").await;
    assert_eq!((&gone["id"], &gone["trigger_type"]), (&json!("t1"), &json!("p::ev")));
    // The provider comes back and gets what is left.
    drop(provider);
    let mut provider = Client::worker(&engine.url(), "provider", &[]).await;
    provide(&mut provider, "p::ev").await;
    assert_eq!(accept(&mut provider).await["id"], offered["id"]);
    let mut client = Client::worker(&engine.url(), "client", &[]).await;
    let info = client.call("engine::registered-triggers::info", json!({"id": offered["id"]})).await.unwrap();
    assert_eq!((&info["trigger_type"], &info["worker_name"]), (&json!("p::ev"), &json!("b")));
    let removed = client.call("engine::unregister_trigger", json!({"id": offered["id"]})).await.unwrap();
    assert_eq!(removed, json!({"removed": true}));
    assert_eq!(provider.recv_type("unregistertrigger").await["id"], offered["id"]);
    let removed = client.call("engine::unregister_trigger", json!({"id": offered["id"]})).await.unwrap();
    assert_eq!(removed, json!({"removed": false}));
    // Bound by call to a type that nobody provides, it waits.
    let waits = client.call("engine::register_trigger", json!({"trigger_type": "q::ev", "function_id": "b::on"})).await;
    provide(&mut provider, "q::ev").await;
    assert_eq!(accept(&mut provider).await["id"], waits.unwrap()["id"]);
    engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_type_is_found_in_the_namespace_of_its_binder_first() {
    let dir = tempfile::tempdir().unwrap();
    let engine = engine(dir.path()).await;
    let mut providers = Vec::new();
    for namespace in ["team", "default"] {
        let mut provider = Client::connect(&engine.url()).await;
        let about = json!({"name": "p", "pid": 1, "namespace": namespace});
        provider.call("engine::workers::register", about).await.unwrap();
        provide(&mut provider, "p::ev").await;
        providers.push(provider);
    }
    let mut binder = Client::connect(&engine.url()).await;
    let about = json!({"name": "b", "pid": 1, "namespace": "team"});
    binder.call("engine::workers::register", about).await.unwrap();
    let bind = |id: &str, place: Value| {
        json!({"type": "registertrigger", "id": id, "trigger_type": "p::ev", "function_id": "b::on", "config": {},
               "namespace": "team", "trigger_namespace": place})
    };
    binder.send(bind("own", Value::Null)).await;
    let own = accept(&mut providers[0]).await;
    assert_eq!((&own["id"], &own["namespace"]), (&json!("own"), &json!("team")));
    binder.send(bind("far", json!("default"))).await;
    assert_eq!(accept(&mut providers[1]).await["id"], "far");
    // A named namespace is strict: this one waits, although the type is there elsewhere.
    binder.send(bind("none", json!("elsewhere"))).await;
    let listed = binder.call("engine::registered-triggers::list", json!({"trigger_type": "p::ev"})).await.unwrap();
    assert_eq!(listed["registered_triggers"].as_array().unwrap().len(), 2);
    engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_engines_own_types_refuse_bad_bindings_and_cannot_be_taken() {
    let dir = tempfile::tempdir().unwrap();
    let engine = engine(dir.path()).await;
    let mut client = Client::worker(&engine.url(), "client", &["c::on"]).await;
    for (kind, config, word) in [
        ("cron", json!({}), "Cron expression is required"),
        ("cron", json!({"expression": "* * * * *"}), "Invalid cron expression"),
        ("state", json!({"scope": 1}), "scope must be a string"),
        ("configuration", json!({"event_types": "all"}), "event_types"),
        ("http", json!({}), "api_path is required"),
        ("http", json!({"api_path": "/x", "http_method": "BREW"}), "BREW"),
        ("log", json!({"level": "loud"}), "level"),
    ] {
        let input = json!({"trigger_type": kind, "function_id": "c::on", "config": config});
        let error = client.call("engine::register_trigger", input).await.unwrap_err();
        assert_eq!(error["code"], "trigger_registration_failed");
        assert!(error["message"].as_str().unwrap().contains(word), "{kind}: {error}");
    }
    provide(&mut client, "state").await;
    assert_eq!(client.recv_type("registrationrejected").await["owner_worker_id"], "iii-state");
    let types = client.call("engine::triggers::list", json!({})).await.unwrap();
    assert_eq!(types["triggers"].as_array().unwrap().len(), 7);
    engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn state_bindings_hear_in_order_with_their_metadata_unless_the_condition_says_no() {
    let dir = tempfile::tempdir().unwrap();
    let engine = engine(dir.path()).await;
    let mut watcher = Client::worker(&engine.url(), "watcher", &["c::on", "c::if"]).await;
    watcher
        .send(json!({"type": "registertrigger", "id": "t", "trigger_type": "state", "function_id": "c::on",
                     "config": {"scope": "s"}, "metadata": {"m": 1}}))
        .await;
    watcher
        .send(json!({"type": "registertrigger", "id": "u", "trigger_type": "state", "function_id": "c::on",
                     "config": {"scope": "only", "key": "if", "condition_function_id": "c::if"}}))
        .await;
    let mut client = Client::worker(&engine.url(), "client", &[]).await;
    let pending: Vec<String> = {
        let mut pending = Vec::new();
        for n in 0..50 {
            pending.push(client.start("state::set", json!({"scope": "s", "key": "k", "value": n})).await);
        }
        pending
    };
    for n in 0..50 {
        let event = watcher.recv_type("invokefunction").await;
        assert_eq!((&event["data"]["new_value"], &event["metadata"]), (&json!(n), &json!({"m": 1})));
        assert!(event["traceparent"].is_string() && event["data"].get("_caller_worker_id").is_none());
    }
    for call in pending {
        client.answer(&call).await.unwrap();
    }
    let set = |value: Value| json!({"scope": "only", "key": "if", "value": value});
    for (verdict, heard) in [(json!(false), false), (json!(null), true), (json!(true), true)] {
        client.call("state::set", set(verdict.clone())).await.unwrap();
        assert_eq!(watcher.serve_one(verdict.clone()).await["new_value"], verdict);
        if heard {
            assert_eq!(watcher.recv_type("invokefunction").await["function_id"], "c::on");
        }
    }
    engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_bindings_come_and_go() {
    const MANY: usize = 10_000;
    let dir = tempfile::tempdir().unwrap();
    let engine = engine(dir.path()).await;
    let mut binder = Client::worker(&engine.url(), "binder", &["b::on"]).await;
    for n in 0..MANY {
        let kind = if n % 2 == 0 { "state" } else { "p::ev" };
        let frame = json!({"type": "registertrigger", "id": format!("t{n}"), "trigger_type": kind,
                           "function_id": "b::on", "config": {"scope": format!("s{n}")}});
        binder.send(frame).await;
    }
    let mut client = Client::worker(&engine.url(), "client", &[]).await;
    binder.call("state::set", json!({"scope": "s42", "key": "k", "value": 1})).await.unwrap();
    assert_eq!(binder.serve_one(json!(null)).await["scope"], "s42");
    // A provider that appears gets every one that waited.
    let mut provider = Client::worker(&engine.url(), "provider", &[]).await;
    provide(&mut provider, "p::ev").await;
    for _ in 0..MANY / 2 {
        accept(&mut provider).await;
    }
    provider.call("state::list", json!({"scope": "s"})).await.unwrap();
    let info = client.call("engine::triggers::info", json!({"id": "p::ev"})).await.unwrap();
    assert_eq!(info["instance_count"], MANY / 2);
    drop(binder);
    for _ in 0..MANY / 2 {
        provider.recv_type("unregistertrigger").await;
    }
    let info = client.call("engine::triggers::info", json!({"id": "state"})).await.unwrap();
    assert_eq!(info["instance_count"], 0);
    engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_functions_and_log_lines_are_told_of() {
    let dir = tempfile::tempdir().unwrap();
    let engine = engine(dir.path()).await;
    let mut watcher = Client::worker(&engine.url(), "watcher", &["c::on"]).await;
    for (kind, config) in [("engine::workers-available", json!({})), ("log", json!({"level": "warn"}))] {
        let input = json!({"trigger_type": kind, "function_id": "c::on", "config": config});
        watcher.call("engine::register_trigger", input).await.unwrap();
    }
    let worker = Client::worker(&engine.url(), "worker", &["w::f"]).await;
    for wanted in ["worker_connected", "worker_metadata_updated"] {
        let event = watcher.serve_one(json!(null)).await;
        assert_eq!((&event["event"], &event["worker_id"]), (&json!(wanted), &json!(worker.worker_id)));
    }
    let info = watcher.call("engine::workers::info", json!({"name": "worker"})).await.unwrap();
    assert_eq!(info["functions"][0]["function_id"], "w::f");
    assert_eq!(info["worker"]["function_count"], 1);
    let missing = watcher.call("engine::workers::info", json!({"name": "nobody"})).await.unwrap_err();
    assert_eq!(missing["code"], "NOT_FOUND");
    drop(worker);
    assert_eq!(watcher.serve_one(json!(null)).await["event"], "worker_disconnected");
    watcher.call("engine::log::info", json!({"message": "quiet"})).await.unwrap();
    watcher.call("engine::log::error", json!({"message": "loud", "data": {"n": 1}})).await.unwrap();
    let line = watcher.serve_one(json!(null)).await;
    assert_eq!((&line["body"], &line["severity_text"]), (&json!("loud"), &json!("ERROR")));
    assert_eq!(line["attributes"], json!({"log.data": {"n": 1}}));
    // Everything that is listed is described, and everything the engine serves can be called.
    let all = watcher.call("engine::functions::list", json!({"include_internal": true})).await.unwrap();
    for function in all["functions"].as_array().unwrap() {
        let id = function["function_id"].as_str().unwrap();
        let info = watcher.call("engine::functions::info", json!({ "function_id": id })).await.unwrap();
        assert_eq!(info["function_id"], id);
        if function["worker_name"] != "watcher" {
            let error = watcher.call(id, json!(7)).await.err();
            assert!(error.as_ref().is_none_or(|error| error["code"] != "function_not_found"), "{id}: {error:?}");
        }
    }
    engine.shutdown().await;
}
