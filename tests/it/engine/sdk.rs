//! The published Rust SDK against this engine.

use std::time::Duration;

use iii_sdk::channel::{ChannelReader, ChannelWriter};
use iii_sdk::helpers::create_channel;
use iii_sdk::protocol::{RegisterTriggerInput, TriggerRequest};
use iii_sdk::runtime::WorkerMetadata;
use iii_sdk::{Error, IIIClient, InitOptions, RegisterFunction, TriggerAction, WorkerIdentityMode, register_worker};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::client::{PATIENCE, engine, options};
use worktree::engine::{Engine, Options};

/// A client of the SDK under a name of its own.
pub fn client(url: &str, name: &str) -> IIIClient {
    let metadata = WorkerMetadata { name: name.to_owned(), ..WorkerMetadata::default() };
    let identity = WorkerIdentityMode::Explicit;
    register_worker(url, InitOptions { metadata: Some(metadata), identity, ..InitOptions::default() })
}

pub fn request(function_id: &str, payload: Value) -> TriggerRequest {
    TriggerRequest { function_id: function_id.to_owned(), payload, action: None, timeout_ms: None }
}

/// Calls until the function is there: an SDK client does not say when its functions are.
pub async fn call_when_there(client: &IIIClient, function_id: &str, payload: Value) -> Value {
    let calling = async {
        loop {
            match client.trigger(request(function_id, payload.clone())).await {
                Ok(answer) => return answer,
                Err(Error::Remote { code, .. }) if code == "function_not_found" => {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                Err(error) => panic!("{function_id}: {error}"),
            }
        }
    };
    timeout(PATIENCE, calling).await.expect("the function does not come")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn functions_errors_triggers_and_the_queue_work_through_the_sdk() {
    let dir = tempfile::tempdir().unwrap();
    let engine = engine(dir.path()).await;
    let worker = client(&engine.url(), "worker");
    let (heard, mut events) = mpsc::unbounded_channel();
    worker.register_function("w::double", RegisterFunction::new(|n: i64| Ok::<i64, Error>(n * 2)));
    worker.register_function(
        "w::refuse",
        RegisterFunction::new(|_: Value| {
            let error = Error::Remote { code: "W210".to_owned(), message: "held".to_owned(), stacktrace: None };
            Err::<Value, Error>(error)
        }),
    );
    worker.register_function(
        "w::on",
        RegisterFunction::new(move |event: Value| {
            heard.send(event).map_err(|error| Error::Handler(error.to_string()))?;
            Ok::<Value, Error>(Value::Null)
        }),
    );
    worker.register_trigger(RegisterTriggerInput::new("state", "w::on", json!({"scope": "watched"}))).unwrap();

    let caller = client(&engine.url(), "caller");
    assert_eq!(call_when_there(&caller, "w::double", json!(21)).await, json!(42));
    let refused = caller.trigger(request("w::refuse", json!({}))).await.unwrap_err();
    assert!(matches!(refused, Error::Remote { ref code, ref message, .. } if code == "W210" && message == "held"));
    caller.trigger(request("state::set", json!({"scope": "watched", "key": "k", "value": 1}))).await.unwrap();
    let event = timeout(PATIENCE, events.recv()).await.unwrap().unwrap();
    assert_eq!((&event["event_type"], &event["new_value"]), (&json!("state:created"), &json!(1)));
    let action = Some(TriggerAction::Enqueue { queue: "default".to_owned() });
    let receipt = caller.trigger(TriggerRequest { action, ..request("w::on", json!({"n": 1})) }).await.unwrap();
    assert!(receipt["messageReceiptId"].is_string());
    assert_eq!(timeout(PATIENCE, events.recv()).await.unwrap().unwrap(), json!({"n": 1}));
    let second = client(&engine.url(), "worker");
    timeout(PATIENCE, async {
        while second.fatal_error().is_none() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
    .expect("a second worker of one name is not refused");
    for client in [worker, caller, second] {
        client.shutdown_async().await;
    }
    engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_come_back_after_the_engine_was_restarted() {
    let dir = tempfile::tempdir().unwrap();
    let first = engine(dir.path()).await;
    let url = first.url();
    let port = url.rsplit(':').next().unwrap().parse().unwrap();
    let (heard, mut events) = mpsc::unbounded_channel();
    let worker = client(&url, "worker");
    worker.register_function(
        "w::on",
        RegisterFunction::new(move |event: Value| {
            heard.send(event).map_err(|error| Error::Handler(error.to_string()))?;
            Ok::<Value, Error>(Value::Null)
        }),
    );
    worker.register_trigger(RegisterTriggerInput::new("state", "w::on", json!({"scope": "s"}))).unwrap();
    let caller = client(&url, "caller");
    call_when_there(&caller, "w::on", json!("before")).await;
    assert_eq!(timeout(PATIENCE, events.recv()).await.unwrap().unwrap(), json!("before"));
    first.shutdown().await;

    let second = Engine::start(Options { port, ..options(dir.path()) }).await.unwrap();
    call_when_there(&caller, "w::on", json!("after")).await;
    assert_eq!(timeout(PATIENCE, events.recv()).await.unwrap().unwrap(), json!("after"));
    // The binding is there again, too: registrations of one connection take effect in order.
    caller.trigger(request("state::set", json!({"scope": "s", "key": "k", "value": 1}))).await.unwrap();
    let event = timeout(PATIENCE, events.recv()).await.unwrap().unwrap();
    assert_eq!(event["event_type"], "state:created");
    for client in [worker, caller] {
        client.shutdown_async().await;
    }
    second.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_nested_call_is_not_slowed_down_by_small_packets() {
    let dir = tempfile::tempdir().unwrap();
    let engine = engine(dir.path()).await;
    let worker = client(&engine.url(), "worker");
    let inner = worker.clone();
    worker.register_function(
        "w::nested",
        RegisterFunction::new_async(move |_: Value| {
            let inner = inner.clone();
            async move { inner.trigger(request("state::get", json!({"scope": "s", "key": "k"}))).await }
        }),
    );
    let caller = client(&engine.url(), "caller");
    call_when_there(&caller, "w::nested", json!({})).await;
    let mut times = Vec::new();
    for _ in 0..100 {
        let started = std::time::Instant::now();
        caller.trigger(request("w::nested", json!({}))).await.unwrap();
        times.push(started.elapsed());
    }
    times.sort();
    // Nagle's algorithm against delayed acknowledgements costs 25 ms and more each time.
    assert!(times[50] < Duration::from_millis(20), "the median is {:?}", times[50]);
    for client in [worker, caller] {
        client.shutdown_async().await;
    }
    engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn channels_carry_streams_between_workers_and_to_http_callers() {
    let dir = tempfile::tempdir().unwrap();
    let engine = engine(dir.path()).await;
    let worker = client(&engine.url(), "worker");
    let url = engine.url();
    let address = url.clone();
    worker.register_function(
        "w::count",
        RegisterFunction::new_async(move |input: Value| {
            let address = address.clone();
            async move {
                let reference =
                    serde_json::from_value(input["reader"].clone()).map_err(|e| Error::Serde(e.to_string()))?;
                Ok::<Value, Error>(json!(ChannelReader::new(&address, &reference).read_all().await?.len()))
            }
        }),
    );
    worker.register_function(
        "w::upper",
        RegisterFunction::new_async(move |input: Value| {
            let url = url.clone();
            async move {
                let reference =
                    |field: &str| serde_json::from_value(input[field].clone()).map_err(|e| Error::Serde(e.to_string()));
                let body = ChannelReader::new(&url, &reference("request_body")?).read_all().await?;
                let writer = ChannelWriter::new(&url, &reference("response")?);
                writer.send_message(&json!({"type": "set_status", "status_code": 206}).to_string()).await?;
                let headers = json!({"type": "set_headers", "headers": {"x-a": "1"}});
                writer.send_message(&headers.to_string()).await?;
                writer.write(&body.to_ascii_uppercase()).await?;
                writer.close().await?;
                Ok::<Value, Error>(Value::Null)
            }
        }),
    );
    let caller = client(&engine.url(), "caller");
    let channel = create_channel(&caller, Some(2)).await.unwrap();
    let input = json!({ "reader": channel.reader_ref });
    let data = vec![7u8; 1 << 20];
    // Far more than the channel holds: the writer waits for the reader.
    let (counted, written) = tokio::join!(call_when_there(&caller, "w::count", input), async {
        channel.writer.write(&data).await.unwrap();
        channel.writer.close().await.unwrap();
    });
    assert_eq!((counted, written), (json!(data.len()), ()));
    // Each end can be taken once.
    assert!(ChannelReader::new(&engine.url(), &channel.reader_ref).read_all().await.is_err());

    let config = json!({"api_path": "/upper", "http_method": "POST"});
    let bind = json!({"trigger_type": "http", "function_id": "w::upper", "config": config});
    caller.trigger(request("engine::register_trigger", bind)).await.unwrap();
    let mut stream = TcpStream::connect(engine.http_url().replace("http://", "")).await.unwrap();
    let body = "a".repeat(200_000);
    let head =
        format!("POST /upper HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", body.len());
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(body.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 206") && answer.contains("x-a: 1"), "{}", &answer[..200]);
    assert_eq!(answer.matches('A').count(), body.len());
    for client in [worker, caller] {
        client.shutdown_async().await;
    }
    engine.shutdown().await;
}
