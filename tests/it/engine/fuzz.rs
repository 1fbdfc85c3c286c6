//! Garbage, wrong types and half messages: the engine drops them and serves on.

use futures_util::SinkExt as _;
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;

use super::client::{Client, engine};

const TYPES: [&str; 16] = [
    "registerfunction",
    "unregisterfunction",
    "registertriggertype",
    "unregistertriggertype",
    "registertrigger",
    "triggerregistrationresult",
    "unregistertrigger",
    "invokefunction",
    "invocationresult",
    "registerservice",
    "ping",
    "pong",
    "reattach",
    "workerregistered",
    "registrationrejected",
    "observe",
];

const FIELDS: [&str; 14] = [
    "id",
    "function_id",
    "invocation_id",
    "data",
    "config",
    "trigger_type",
    "description",
    "metadata",
    "namespace",
    "action",
    "error",
    "result",
    "previous_worker_id",
    "trigger_namespace",
];

const FUNCTIONS: [&str; 16] = [
    "engine::workers::register",
    "engine::functions::list",
    "engine::functions::info",
    "engine::register_trigger",
    "engine::queue::enqueue",
    "queue::define",
    "state::set",
    "state::update",
    "state::list",
    "configuration::register",
    "configuration::set",
    "configuration::get",
    "shell::status",
    "shell::kill",
    "iii::queue::redrive",
    "f",
];

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "\\PC{0,12}|[a-z]|default|cron|state|http".prop_map(Value::from),
        prop::sample::select(&FUNCTIONS[..]).prop_map(Value::from),
        any::<u128>().prop_map(|n| Value::from(uuid::Uuid::from_u128(n).to_string())),
        prop::sample::select(&["void", "enqueue", "nonsense"][..])
            .prop_map(|kind| json!({"type": kind, "queue": "default"})),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        let key = prop_oneof![
            prop::sample::select(&FIELDS[..]).prop_map(str::to_owned),
            "scope|key|value|ops|schema|queue|expression|api_path|type|path|by|name|pid",
        ];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(key, inner, 0..6).prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// A frame of a known type with fields of any kind, now and then cut short; or bytes.
fn any_frame() -> impl Strategy<Value = Message> {
    let fields =
        prop::collection::btree_map(prop::sample::select(&FIELDS[..]).prop_map(str::to_owned), any_value(), 0..7);
    let message = (prop::sample::select(&TYPES[..]), fields, prop::option::weighted(0.1, any::<prop::sample::Index>()));
    let message = message
        .prop_map(|(kind, fields, cut)| {
            let mut frame: serde_json::Map<String, Value> = fields.into_iter().collect();
            frame.insert("type".to_owned(), Value::from(kind));
            let mut text = Value::Object(frame).to_string();
            if let Some(cut) = cut {
                let end = cut.index(text.len());
                text = String::from_utf8_lossy(&text.as_bytes()[..end]).into_owned();
            }
            text
        })
        .boxed();
    prop_oneof![
        8 => message.clone().prop_map(Message::text),
        1 => message.prop_map(|text| Message::binary(text.into_bytes())),
        1 => prop::collection::vec(any::<u8>(), 0..64).prop_map(Message::binary),
        1 => "\\PC{0,64}".prop_map(Message::text),
        1 => any_value().prop_map(|value| Message::text(value.to_string())),
        1 => (0..3000usize).prop_map(|depth| Message::text("[".repeat(depth))),
        1 => prop::collection::vec(any::<u8>(), 0..100).prop_map(|bytes| Message::Ping(bytes.into())),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_a_client_sends_takes_the_engine_down() {
    let dir = tempfile::tempdir().unwrap();
    let engine = engine(dir.path()).await;
    let mut witness = Client::worker(&engine.url(), "witness", &["witness::f"]).await;
    let mut runner = TestRunner::deterministic();
    for round in 0..40 {
        let mut client = Client::connect(&engine.url()).await;
        for _ in 0..100 {
            let frame = any_frame().new_tree(&mut runner).unwrap().current();
            if client.socket.send(frame.clone()).await.is_err() {
                break;
            }
        }
        drop(client);
        let pending = witness.start("witness::f", json!(round)).await;
        // Whatever the garbage called meanwhile is answered, too.
        while witness.serve_one(json!(null)).await != json!(round) {}
        witness.answer(&pending).await.unwrap();
        let key = json!({"scope": "witness", "key": "k", "value": round});
        assert_eq!(witness.call("state::set", key).await.unwrap()["new_value"], round);
    }
    engine.shutdown().await;
    // What the garbage stored can be read again.
    super::client::engine(dir.path()).await.shutdown().await;
}
