//! What one client sends, or does not read, does not hurt the others.

use std::time::{Duration, Instant};

use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_tungstenite::connect_async_with_config;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::protocol::frame::Frame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{Data, OpCode};
use tokio_tungstenite::tungstenite::{Bytes, Message};

use super::client::{Client, PATIENCE, engine, options};
use worktree::engine::{Engine, Limits, Options};

/// How long callers of a client that does not read are held back here.
const PAUSE: Duration = Duration::from_secs(3);

async fn limited(dir: &std::path::Path, limits: Limits) -> Engine {
    Engine::start(Options { limits, ..options(dir) }).await.unwrap()
}

/// As the SDK connects: one frame may be as large as a message.
async fn wide(url: &str) -> Client {
    let config = WebSocketConfig::default().max_frame_size(Some(64 << 20));
    let (socket, response) = connect_async_with_config(url, Some(config), false).await.unwrap();
    assert_eq!(response.headers()["x-iii-capabilities"], "tcp-nodelay");
    Client::greeted(socket).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fragmented_binary_and_huge_messages_are_taken_and_larger_ones_close() {
    let dir = tempfile::tempdir().unwrap();
    let engine = engine(dir.path()).await;
    let mut worker = wide(&engine.url()).await;
    worker.send(json!({"type": "registerfunction", "id": "w::length"})).await;
    worker.call("engine::workers::register", json!({"name": "w", "pid": 1})).await.unwrap();
    let mut caller = Client::worker(&engine.url(), "caller", &[]).await;

    let id = "00000000-0000-0000-0000-0000000000aa";
    let text = |length: usize| {
        let data = "x".repeat(length);
        json!({"type": "invokefunction", "invocation_id": id, "function_id": "w::length", "data": data}).to_string()
    };
    // 60 MiB in 1 MiB fragments, as the SDK sends what is over 16 MiB.
    let whole = Bytes::from(text(60 << 20));
    let chunks = whole.len().div_ceil(1 << 20);
    for at in 0..chunks {
        let chunk = whole.slice(at << 20..whole.len().min((at + 1) << 20));
        let code = if at == 0 { Data::Text } else { Data::Continue };
        let frame = Frame::message(chunk, OpCode::Data(code), at + 1 == chunks);
        caller.socket.send(Message::Frame(frame)).await.unwrap();
    }
    assert_eq!(worker.serve_one(json!(1)).await.as_str().unwrap().len(), 60 << 20);
    assert_eq!(caller.answer(id).await.unwrap(), 1);
    // A binary frame is read as JSON, unless it is telemetry.
    caller.socket.send(Message::binary(b"OTLP{}".to_vec())).await.unwrap();
    caller.socket.send(Message::binary(text(3).into_bytes())).await.unwrap();
    assert_eq!(worker.serve_one(json!(2)).await, "xxx");
    assert_eq!(caller.answer(id).await.unwrap(), 2);
    // The mark of the caller would make this one larger than the callee has to take.
    let data = json!({"x": "x".repeat((64 << 20) - 150)});
    let refused = caller.call("w::length", data).await.unwrap_err();
    assert_eq!(refused["code"], "payload_too_large");
    // Over the limit the connection ends, and only that one.
    let over = caller.socket.send(Message::text("x".repeat((64 << 20) + 1))).await;
    assert!(over.is_err() || caller.next().await.is_none());
    assert_eq!(worker.call("state::list", json!({"scope": "s"})).await.unwrap(), json!([]));
    engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_does_not_read_is_dropped_and_nobody_else_waits() {
    let dir = tempfile::tempdir().unwrap();
    let limits = Limits {
        outbound_soft_bytes: 1 << 20,
        outbound_hard_bytes: 8 << 20,
        reader_patience: PAUSE,
        ..Limits::default()
    };
    let engine = limited(dir.path(), limits).await;
    // It serves a function and is bound to the state, and never reads again.
    let mut deaf = Client::worker(&engine.url(), "deaf", &["deaf::f"]).await;
    deaf.send(json!({"type": "registertrigger", "id": "t", "trigger_type": "state", "function_id": "deaf::f",
                     "config": {"scope": "s"}}))
        .await;
    deaf.send(json!({"type": "ping"})).await;
    deaf.recv_type("pong").await;
    let mut worker = Client::worker(&engine.url(), "worker", &["w::f"]).await;
    let mut other = Client::worker(&engine.url(), "other", &[]).await;
    let mut flooder = Client::worker(&engine.url(), "flooder", &[]).await;
    let flood = tokio::spawn(async move {
        let data = json!({"x": "x".repeat(256 << 10)});
        // Far more than every buffer on the way holds; held back, then told that the client is gone.
        let calls: Vec<String> = {
            let mut calls = Vec::new();
            for _ in 0..200 {
                calls.push(flooder.start("deaf::f", data.clone()).await);
            }
            calls
        };
        let mut codes = Vec::new();
        for call in calls {
            codes.push(flooder.answer(&call).await.unwrap_err()["code"].as_str().unwrap().to_owned());
        }
        codes
    });
    let mut slowest = Duration::ZERO;
    while !flood.is_finished() {
        let started = Instant::now();
        let call = other.start("w::f", json!({})).await;
        worker.serve_one(json!(1)).await;
        other.answer(&call).await.unwrap();
        slowest = slowest.max(started.elapsed());
    }
    assert!(slowest < PAUSE / 2, "somebody else waited {slowest:?}");
    let codes = flood.await.unwrap();
    assert!(codes.iter().all(|code| code == "invocation_stopped" || code == "function_not_found"), "{codes:?}");
    engine.shutdown().await;
    drop(deaf);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_for_a_client_that_does_not_read_end_at_the_hard_limit() {
    let dir = tempfile::tempdir().unwrap();
    let limits = Limits { outbound_hard_bytes: 4 << 20, ..Limits::default() };
    let engine = limited(dir.path(), limits).await;
    let mut deaf = Client::worker(&engine.url(), "deaf", &["deaf::f"]).await;
    deaf.send(json!({"type": "registertrigger", "id": "t", "trigger_type": "state", "function_id": "deaf::f"})).await;
    deaf.send(json!({"type": "ping"})).await;
    deaf.recv_type("pong").await;
    let mut writer = Client::worker(&engine.url(), "writer", &[]).await;
    let value = "x".repeat(1 << 20);
    let gone = async {
        loop {
            writer.call("state::set", json!({"scope": "s", "key": "k", "value": value})).await.unwrap();
            let workers = writer.call("engine::workers::list", json!({"search": "deaf"})).await.unwrap();
            if workers["workers"].as_array().unwrap().is_empty() {
                break;
            }
        }
    };
    timeout(PATIENCE, gone).await.expect("the client that does not read stays");
    engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn half_open_sockets_and_too_many_connections_are_turned_away() {
    let dir = tempfile::tempdir().unwrap();
    let limits = Limits { connections: 3, handshake: Duration::from_millis(200), ..Limits::default() };
    let engine = limited(dir.path(), limits).await;
    let address = engine.url().replace("ws://", "");
    // Nothing, half a request, and something that is no request.
    let mut sockets = Vec::new();
    for start in ["", "GET / HTTP/1.1\r\nHost: x\r\nUpg", "\0\u{1}\u{2}garbage\r\n\r\n"] {
        let mut socket = TcpStream::connect(&address).await.unwrap();
        socket.write_all(start.as_bytes()).await.unwrap();
        sockets.push(socket);
    }
    for mut socket in sockets {
        let mut rest = Vec::new();
        // The end of the stream, or a reset: either way the place is free again.
        drop(timeout(PATIENCE, socket.read_to_end(&mut rest)).await.expect("a half-open socket stays"));
    }
    let mut clients = Vec::new();
    for _ in 0..3 {
        clients.push(Client::connect(&engine.url()).await);
    }
    let refused = tokio_tungstenite::connect_async(engine.url()).await.unwrap_err();
    assert!(refused.to_string().contains("503"), "{refused}");
    clients.pop();
    let again = async {
        while tokio_tungstenite::connect_async(engine.url()).await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, again).await.expect("a place that was given up is not free");
    let nowhere = tokio_tungstenite::connect_async(format!("{}/elsewhere", engine.url())).await.unwrap_err();
    assert!(nowhere.to_string().contains("404") || nowhere.to_string().contains("503"), "{nowhere}");
    engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_limit_has_a_clear_answer() {
    let dir = tempfile::tempdir().unwrap();
    let limits = Limits {
        calls_per_connection: 2,
        bindings: 1,
        functions_per_connection: 2,
        state_value_bytes: 100,
        state_bytes: 300,
        queue_messages: 1,
        configuration_bytes: 200,
        configurations: 1,
        ..Limits::default()
    };
    let engine = limited(dir.path(), limits).await;
    let mut worker = Client::worker(&engine.url(), "worker", &["w::a"]).await;
    let mut client = Client::worker(&engine.url(), "client", &[]).await;
    async fn code(client: &mut Client, function_id: &str, data: Value) -> String {
        client.call(function_id, data).await.unwrap_err()["code"].as_str().unwrap().to_owned()
    }
    let set = |key: &str, length: usize| json!({"scope": "s", "key": key, "value": "x".repeat(length)});
    assert_eq!(code(&mut client, "state::set", set("a", 200)).await, "VALUE_TOO_LARGE");
    client.call("state::set", set("a", 90)).await.unwrap();
    client.call("state::set", set("b", 90)).await.unwrap();
    assert_eq!(code(&mut client, "state::set", set("c", 90)).await, "STATE_FULL");
    client.call("state::delete", json!({"scope": "s", "key": "a"})).await.unwrap();
    client.call("state::set", set("c", 90)).await.unwrap();

    let message = json!({"queue": "default", "function_id": "nobody::f"});
    client.call("engine::queue::enqueue", message.clone()).await.unwrap();
    assert_eq!(code(&mut client, "engine::queue::enqueue", message).await, "queue_full");

    let entry = |id: &str, text: usize| json!({"id": id, "name": "n", "description": "x".repeat(text), "schema": {}});
    assert_eq!(code(&mut client, "configuration::register", entry("a", 300)).await, "VALUE_TOO_LARGE");
    client.call("configuration::register", entry("a", 1)).await.unwrap();
    assert_eq!(code(&mut client, "configuration::register", entry("b", 1)).await, "TOO_MANY");

    let bind = json!({"trigger_type": "state", "function_id": "w::a"});
    client.call("engine::register_trigger", bind.clone()).await.unwrap();
    assert_eq!(code(&mut client, "engine::register_trigger", bind).await, "trigger_registration_failed");
    client.send(json!({"type": "registertrigger", "id": "x", "trigger_type": "state", "function_id": "w::a"})).await;
    let refused = client.recv_type("triggerregistrationresult").await;
    assert!(refused["error"]["message"].as_str().unwrap().contains("limit"), "{refused}");

    client.start("w::a", json!({})).await;
    client.start("w::a", json!({})).await;
    assert_eq!(code(&mut client, "w::a", json!({})).await, "too_many_calls");
    worker.serve_one(json!(1)).await;
    client.recv_type("invocationresult").await;
    client.call("state::list", json!({"scope": "s"})).await.unwrap();

    for id in ["w::b", "w::c"] {
        worker.send(json!({"type": "registerfunction", "id": id})).await;
    }
    while worker.next().await.is_some() {}
    engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn telemetry_is_taken_and_dropped() {
    let dir = tempfile::tempdir().unwrap();
    let engine = engine(dir.path()).await;
    let (mut telemetry, _) = tokio_tungstenite::connect_async(format!("{}/otel", engine.url())).await.unwrap();
    for prefix in ["OTLP", "MTRC", "LOGS"] {
        telemetry.send(Message::binary(format!("{prefix}{{}}").into_bytes())).await.unwrap();
    }
    telemetry.send(Message::Ping(Bytes::from_static(b"there?"))).await.unwrap();
    let answer = timeout(PATIENCE, telemetry.next()).await.unwrap().unwrap().unwrap();
    assert_eq!(answer, Message::Pong(Bytes::from_static(b"there?")));
    engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_of_other_machines_may_not_connect() {
    let dir = tempfile::tempdir().unwrap();
    let engine = engine(dir.path()).await;
    let connect = |origin: &'static str| {
        let mut request = engine.url().into_client_request().unwrap();
        request.headers_mut().insert("origin", origin.parse().unwrap());
        tokio_tungstenite::connect_async(request)
    };
    for foreign in
        ["https://example.com", "http://localhost.example.com:3113", "http://10.0.0.1", "null", "file://", ""]
    {
        let refused = connect(foreign).await.unwrap_err();
        assert!(refused.to_string().contains("403"), "{foreign}: {refused}");
    }
    for local in ["http://localhost:3113", "http://127.0.0.1", "https://[::1]:8080"] {
        connect(local).await.unwrap();
    }
    engine.shutdown().await;
}
