//! The reads over HTTP: statuses a web client understands, and the code in the body.

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::support::Stand;

/// One POST; its status and its body.
async fn post(stand: &Stand, path: &str, body: &str) -> (u16, Value) {
    let address = stand.http().strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!(
        "POST /{path} HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    let body = answer.split_once("\r\n\r\n").unwrap().1;
    let json = &body[body.find('{').unwrap_or(0)..body.rfind('}').map_or(body.len(), |at| at + 1)];
    (status, serde_json::from_str(json).unwrap_or_else(|_| panic!("{answer}")))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_reads_answer_over_http_as_they_do_on_the_bus() {
    let stand = Stand::dev().await;
    let repository = stand.repository("shop");
    let created = stand.create(&repository).await;
    let id = json!({"worktree_id": created.id});
    for (path, request) in [
        ("list", json!({})),
        ("get", id.clone()),
        ("status", id),
        ("validate", json!({"path": created.checkout.text()})),
    ] {
        let (status, body) = post(&stand, &format!("worktree/{path}"), &request.to_string()).await;
        assert_eq!(status, 200, "{path}: {body}");
        assert_eq!(body, stand.client.ok(&format!("worktree::{path}"), request).await, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_over_http_have_a_status_and_their_code() {
    let stand = Stand::dev().await;
    for (path, request, status, code) in [
        ("get", "{}", 400, "W001"),
        ("get", "{", 400, "W001"),
        ("get", r#"{"worktree_id":"wt_0123456789ab"}"#, 404, "W200"),
        ("status", r#"{"worktree_id":"wt_0123456789ab"}"#, 404, "W200"),
        ("validate", r#"{"path":"relative"}"#, 400, "W111"),
    ] {
        let (seen, body) = post(&stand, &format!("worktree/{path}"), request).await;
        assert_eq!((seen, body["error"]["code"].as_str()), (status, Some(code)), "{path} {request}: {body}");
        assert!(body["error"]["message"].is_string() && body["error"]["stacktrace"].is_null(), "{body}");
    }
}
