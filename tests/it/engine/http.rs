//! The HTTP side: routes, parameters, envelopes, statuses.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::client::{Client, options};
use worktree::engine::{Engine, Limits, Options};

/// Sends a request and gives the status, the head and the body.
async fn request(engine: &Engine, method: &str, path: &str, kind: &str, body: &[u8]) -> (u16, String, String) {
    let mut stream = TcpStream::connect(engine.http_url().replace("http://", "")).await.unwrap();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: x\r\nX-Foo: Bar\r\nConnection: close\r\nContent-Type: {kind}\r\n\
         Content-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    // The engine may answer before it has read everything.
    drop(stream.write_all(body).await);
    let mut answer = Vec::new();
    drop(stream.read_to_end(&mut answer).await);
    let answer = String::from_utf8(answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, head.to_lowercase(), body.to_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_reach_their_function_and_envelopes_come_back() {
    let dir = tempfile::tempdir().unwrap();
    let limits = Limits { http_body_bytes: 1000, ..Limits::default() };
    let http_timeout = Duration::from_millis(300);
    let engine = Engine::start(Options { limits, http_timeout, ..options(dir.path()) }).await.unwrap();
    let mut worker = Client::worker(&engine.url(), "worker", &["w::f", "w::if"]).await;
    for (id, config) in [
        ("one", json!({"api_path": "a/:x/b"})),
        ("two", json!({"api_path": "/a/c/b", "http_method": "get"})),
        ("post", json!({"api_path": "/a/:x/b", "http_method": "POST"})),
        ("if", json!({"api_path": "/if", "condition_function_id": "w::if"})),
        ("gone", json!({"api_path": "/gone"})),
    ] {
        let function_id = if id == "gone" { "nobody::f" } else { "w::f" };
        worker
            .send(json!({"type": "registertrigger", "id": id, "trigger_type": "http", "function_id": function_id,
                         "config": config}))
            .await;
    }
    worker
        .send(json!({"type": "registertrigger", "id": "rival", "trigger_type": "http", "function_id": "w::f",
                     "config": {"api_path": "/a/:y/b"}}))
        .await;
    let refused = worker.recv_type("triggerregistrationresult").await;
    assert!(refused["error"]["message"].as_str().unwrap().contains("same shape"), "{refused}");

    let envelope = json!({"status_code": 202, "headers": ["X-A: 1", "x-b: 2"], "body": "text"});
    let path = "/a/%C3%A4%2F/b?q=1&q=2+3&e";
    let (answer, data) = tokio::join!(request(&engine, "GET", path, "text/plain", b"raw"), worker.serve_one(envelope));
    assert_eq!(data["path"], "/a/:x/b");
    assert_eq!(data["path_params"], json!({"x": "ä/"}));
    assert_eq!(data["query_params"], json!({"q": "2 3", "e": ""}));
    assert_eq!((&data["body"], &data["headers"]["x-foo"]), (&Value::Null, &json!("Bar")));
    assert_eq!(answer.0, 202);
    assert!(answer.1.contains("x-a: 1") && answer.1.contains("x-b: 2") && answer.1.contains("application/json"));
    assert_eq!(answer.2, "\"text\"");
    // A typed string goes out raw; a literal part beats a parameter; the JSON body arrives.
    let typed = json!({"headers": {"content-type": "text/plain"}, "body": "raw"});
    let (answer, data) = tokio::join!(request(&engine, "GET", "/a/c/b", "x", b""), worker.serve_one(typed));
    assert_eq!((data["path"].as_str().unwrap(), answer.0, answer.2.as_str()), ("/a/c/b", 200, "raw"));
    let (answer, data) = tokio::join!(
        request(&engine, "POST", "/a/1/b", "application/json; charset=utf-8", br#"{"n":1}"#),
        worker.serve_one(json!({"no": "envelope"}))
    );
    assert_eq!((&data["body"], answer.2.as_str()), (&json!({"n": 1}), "{}"));
    let (answer, _) = tokio::join!(request(&engine, "GET", "/if", "x", b""), worker.serve_one(json!(false)));
    assert!(answer.0 == 422 && answer.2.contains("CONDITION_NOT_MET"), "{answer:?}");

    for (method, path, body, status, word) in [
        ("GET", "/none", 0, 404, "NOT_FOUND"),
        ("DELETE", "/a/1/b", 0, 405, ""),
        ("POST", "/a/1/b", 5000, 413, "1000 bytes"),
        ("GET", "/gone", 0, 500, "function_not_found"),
        ("GET", "/a/c/b", 0, 504, "TIMEOUT"),
    ] {
        let answer = request(&engine, method, path, "application/json", &vec![b' '; body]).await;
        assert!(answer.0 == status && answer.2.contains(word), "{method} {path}: {answer:?}");
    }
    engine.shutdown().await;
}
