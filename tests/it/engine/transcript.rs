//! The recorded exchange of two raw clients with an iii engine, replayed.
//!
//! What the recording sent is sent; what it received must come, from the same peer in the same order, equal up to
//! identifiers, times and the texts that the recording itself left open.
//!
//! Where this engine differs on purpose, and why:
//!
//! | exchange | the iii engine | this engine | reason |
//! |---|---|---|---|
//! | enqueue | `No queue provider is installed` | `queue 'q1' is not defined` | it has a queue |
//! | workers::list | version of that engine | version of this program | it is another program |

use std::collections::HashMap;

use futures_util::FutureExt as _;
use serde_json::{Map, Value};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::client::{Client, engine};

const TRANSCRIPT: &str = include_str!("transcript.jsonl");

/// What placeholders of the recording stand for in this run.
#[derive(Default)]
struct Names {
    ours: HashMap<String, String>,
}

impl Names {
    /// The recorded value with every known identifier in its place, to be sent.
    fn fill(&self, value: &Value) -> Value {
        match value {
            Value::String(text) if text.starts_with("<uuid") => {
                Value::String(self.ours.get(text).cloned().unwrap_or_else(|| invented(text)))
            }
            Value::Array(items) => items.iter().map(|item| self.fill(item)).collect(),
            Value::Object(map) => map.iter().map(|(key, item)| (key.clone(), self.fill(item))).collect(),
            other => other.clone(),
        }
    }

    /// Compares what was recorded with what came, learning identifiers on the way.
    fn same(&mut self, path: &str, recorded: &Value, came: &Value) -> Result<(), String> {
        let differs = || Err(format!("at {path}: recorded {recorded}, came {came}"));
        match (recorded, came) {
            (Value::String(text), Value::String(id)) if text.starts_with("<uuid") => {
                let known = self.ours.entry(text.clone()).or_insert_with(|| id.clone());
                if known == id { Ok(()) } else { differs() }
            }
            (Value::String(text), Value::String(came)) => match text.as_str() {
                "<text>" | "<id>" | "<traceparent>" | "<time>" if !came.is_empty() => Ok(()),
                _ if text == came => Ok(()),
                _ => differs(),
            },
            (Value::Array(recorded), Value::Array(came)) if recorded.len() == came.len() => recorded
                .iter()
                .zip(came)
                .enumerate()
                .try_for_each(|(at, (recorded, came))| self.same(&format!("{path}[{at}]"), recorded, came)),
            (Value::Object(recorded), Value::Object(came)) if recorded.keys().eq(came.keys()) => {
                recorded.iter().try_for_each(|(key, value)| self.same(&format!("{path}.{key}"), value, &came[key]))
            }
            _ if recorded == came => Ok(()),
            _ => differs(),
        }
    }
}

/// The identifier that a client of the recording chose.
fn invented(placeholder: &str) -> String {
    let number: u128 = placeholder.trim_matches(|c: char| !c.is_ascii_digit()).parse().unwrap();
    uuid::Uuid::from_u128(0xabcd_0000 + number).to_string()
}

/// The recorded frame as this engine is meant to send it.
fn intended(mut frame: Value) -> Value {
    if frame.pointer("/error/code").is_some_and(|code| code == "enqueue_error") {
        frame["error"]["message"] =
            "queue_not_defined: queue 'q1' is not defined; call queue::define before enqueueing".into();
    }
    let from_http = frame.pointer("/data/trigger/type").is_some_and(|from| from == "http");
    if let Some(data) = frame.get_mut("data").and_then(Value::as_object_mut).filter(|_| from_http) {
        data["headers"]["host"] = "<text>".into();
    }
    if let Some(workers) = frame.pointer_mut("/result/workers").and_then(Value::as_array_mut) {
        for worker in workers {
            if worker["runtime"] == "engine" {
                worker["version"] = env!("CARGO_PKG_VERSION").into();
            }
        }
    }
    frame
}

/// Times that the recording set to zero.
fn without_times(mut frame: Value) -> Value {
    if let Some(workers) = frame.pointer_mut("/result/workers").and_then(Value::as_array_mut) {
        for worker in workers {
            worker["connected_at_ms"] = 0.into();
        }
    }
    frame
}

/// A request as the recording's client made it; gives status, headers and body.
async fn request(http: &str, path: &str, body: &str) -> (u64, HashMap<String, String>, String) {
    let address = http.strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(address).await.unwrap();
    let text = format!(
        "POST {path} HTTP/1.1\r\nHost: {address}\r\nAccept-Encoding: identity\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\nUser-Agent: Python-urllib/3.11\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(text.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let mut lines = head.lines();
    let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    let headers = lines.filter_map(|line| line.split_once(": ")).map(|(k, v)| (k.to_lowercase(), v.to_owned()));
    (status, headers.collect(), body.to_owned())
}

/// The recorded lines, without notes.
fn recording() -> Vec<Value> {
    let lines = TRANSCRIPT.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.filter(|line| line.get("who").is_some()).collect()
}

/// The HTTP requests of the recording: their paths and bodies, in order.
fn requests() -> Vec<(&'static str, &'static str)> {
    vec![
        ("/t/http/42?q=2", r#"{"b":1}"#),
        ("/t/plain", r#"{"b":1}"#),
        ("/t/fail", "{}"),
        ("/t/plain", "{bad"),
        ("/t/none", "{}"),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_recorded_exchange_gets_the_same_answers() {
    let dir = tempfile::tempdir().unwrap();
    let engine = engine(dir.path()).await;
    let mut names = Names::default();
    let mut clients: HashMap<String, Client> = HashMap::new();
    let mut http = requests().into_iter();
    let mut on_the_way = None;
    let mut failures = Vec::new();
    let lines = recording();
    for (at, line) in lines.iter().enumerate() {
        let who = line["who"].as_str().unwrap();
        let frame = &line["frame"];
        match (line["what"].as_str().unwrap(), who) {
            ("response", _) => {
                let answering = on_the_way.take().unwrap_or_else(|| start(&engine.http_url(), http.next().unwrap()));
                let (status, headers, body) = answering.await.unwrap();
                let mut came = Map::new();
                for key in frame.as_object().unwrap().keys() {
                    let value = match key.as_str() {
                        "request" => frame["request"].clone(),
                        "status" => status.into(),
                        "body" => body.clone().into(),
                        header => headers.get(header).cloned().into(),
                    };
                    came.insert(key.clone(), value);
                }
                // The error id is made anew each time.
                let mut recorded = frame.clone();
                if body.contains("error_id") {
                    let mut inner: Value = serde_json::from_str(&body).unwrap();
                    inner["error"]["error_id"] = "<id>".into();
                    came.insert("body".into(), inner);
                    recorded["body"] = serde_json::from_str(frame["body"].as_str().unwrap()).unwrap();
                }
                if let Err(text) = names.same("", &recorded, &Value::Object(came)) {
                    failures.push(format!("line {at}: {text}"));
                }
            }
            ("send", _) => {
                let frame = names.fill(frame);
                for id in all_placeholders(&line["frame"]) {
                    names.ours.entry(id.clone()).or_insert_with(|| invented(&id));
                }
                clients.get_mut(who).unwrap().send(frame).await;
                settle(clients.get_mut(who).unwrap(), who).await;
            }
            ("recv", _) => {
                if frame["type"] == "workerregistered" {
                    let client = Client::connect(&engine.url()).await;
                    let came = serde_json::json!({
                        "type": "workerregistered", "worker_id": client.worker_id,
                        "reattach_token": client.reattach_token
                    });
                    names.same("", frame, &came).unwrap();
                    clients.insert(who.to_owned(), client);
                    continue;
                }
                if frame["data"]["trigger"]["type"] == "http" {
                    on_the_way = Some(start(&engine.http_url(), http.next().unwrap()));
                }
                let came = clients.get_mut(who).unwrap().recv().await;
                if let Err(text) = names.same("", &intended(frame.clone()), &without_times(came)) {
                    failures.push(format!("line {at}: {text}"));
                }
            }
            ("closed", _) => {
                // Either end may have closed: the recording's clients A and B left, D was shown out.
                let mut client = clients.remove(who).unwrap();
                if who == "D" {
                    assert_eq!(client.next().await, None, "D stays connected");
                }
            }
            (what, _) => panic!("the recording has a line of an unknown kind: {what}"),
        }
    }
    assert!(failures.is_empty(), "{} of {} lines differ:\n{}", failures.len(), lines.len(), failures.join("\n"));
    engine.shutdown().await;
}

fn start(
    http: &str,
    (path, body): (&'static str, &'static str),
) -> tokio::task::JoinHandle<(u64, HashMap<String, String>, String)> {
    let http = http.to_owned();
    tokio::spawn(async move { request(&http, path, body).await }.boxed())
}

/// Lets what was sent take effect before another client goes on, as it did when the recording was made.
async fn settle(client: &mut Client, who: &str) {
    // D is shown out for what it sends.
    if who != "D" {
        client.send(serde_json::json!({"type": "ping"})).await;
        client.recv_type("pong").await;
    }
}

fn all_placeholders(value: &Value) -> Vec<String> {
    match value {
        Value::String(text) if text.starts_with("<uuid") => vec![text.clone()],
        Value::Array(items) => items.iter().flat_map(all_placeholders).collect(),
        Value::Object(map) => map.values().flat_map(all_placeholders).collect(),
        _ => Vec::new(),
    }
}
