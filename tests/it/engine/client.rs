//! A client that speaks frames and nothing else, and an engine to speak to.

use std::collections::VecDeque;
use std::path::Path;
use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};
use worktree::engine::{Engine, Options};

/// Longer than anything here takes on a loaded machine.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Options for an engine of one test.
pub fn options(dir: &Path) -> Options {
    Options { port: 0, http_port: 0, state_dir: dir.to_owned(), ..Options::default() }
}

/// An engine on ports of its own.
pub async fn engine(dir: &Path) -> Engine {
    Engine::start(options(dir)).await.unwrap()
}

/// One connection.
pub struct Client {
    pub socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
    /// Frames that came while something else was awaited.
    early: VecDeque<Value>,
    pub worker_id: String,
    pub reattach_token: String,
    next: u64,
}

impl Client {
    /// Connects and takes the greeting.
    pub async fn connect(url: &str) -> Client {
        let (socket, _) = connect_async(url).await.unwrap();
        Client::greeted(socket).await
    }

    /// Takes the greeting on a connection made otherwise.
    pub async fn greeted(socket: WebSocketStream<MaybeTlsStream<TcpStream>>) -> Client {
        let mut client =
            Client { socket, early: VecDeque::new(), worker_id: String::new(), reattach_token: String::new(), next: 0 };
        let greeting = client.recv().await;
        assert_eq!(greeting["type"], "workerregistered", "{greeting}");
        client.worker_id = greeting["worker_id"].as_str().unwrap().to_owned();
        client.reattach_token = greeting["reattach_token"].as_str().unwrap().to_owned();
        client
    }

    /// Connects, registers these functions and announces itself; returns once they can be called.
    pub async fn worker(url: &str, name: &str, functions: &[&str]) -> Client {
        let mut client = Client::connect(url).await;
        for id in functions {
            client.send(json!({"type": "registerfunction", "id": id})).await;
        }
        let about = json!({"name": name, "runtime": "test", "version": "1", "os": "linux", "pid": 1});
        let answer = client.call("engine::workers::register", about).await;
        assert_eq!(answer.unwrap(), json!({"success": true}));
        client
    }

    pub async fn send(&mut self, frame: Value) {
        self.socket.send(Message::text(frame.to_string())).await.unwrap();
    }

    /// The next frame, or nothing when the connection has ended.
    pub async fn next(&mut self) -> Option<Value> {
        if let Some(frame) = self.early.pop_front() {
            return Some(frame);
        }
        self.read().await
    }

    async fn read(&mut self) -> Option<Value> {
        loop {
            match timeout(PATIENCE, self.socket.next()).await.expect("no frame came") {
                Some(Ok(Message::Text(text))) => return Some(serde_json::from_str(&text).unwrap()),
                Some(Ok(Message::Close(_)) | Err(_)) | None => return None,
                Some(Ok(_)) => {}
            }
        }
    }

    /// The next frame.
    pub async fn recv(&mut self) -> Value {
        self.next().await.expect("the connection ended")
    }

    /// The next frame of this type; others are kept.
    pub async fn recv_type(&mut self, wanted: &str) -> Value {
        self.recv_where(|frame| frame["type"] == wanted).await
    }

    /// The next frame that fits; others are kept.
    pub async fn recv_where(&mut self, fits: impl Fn(&Value) -> bool) -> Value {
        if let Some(at) = self.early.iter().position(&fits) {
            return self.early.remove(at).unwrap();
        }
        loop {
            let frame = self.read().await.expect("the connection ended");
            if fits(&frame) {
                return frame;
            }
            self.early.push_back(frame);
        }
    }

    /// Sends a call and gives its id.
    pub async fn start(&mut self, function_id: &str, data: Value) -> String {
        self.next += 1;
        let id = uuid::Uuid::from_u128(u128::from(self.next)).to_string();
        let frame = json!({"type": "invokefunction", "invocation_id": id, "function_id": function_id, "data": data});
        self.send(frame).await;
        id
    }

    /// The answer to a call: its result, null when there is none, or its error object.
    pub async fn answer(&mut self, id: &str) -> Result<Value, Value> {
        let frame = self.recv_where(|frame| frame["type"] == "invocationresult" && frame["invocation_id"] == id).await;
        match frame.get("error") {
            Some(error) => Err(error.clone()),
            None => Ok(frame.get("result").cloned().unwrap_or_default()),
        }
    }

    /// Calls a function and waits for its answer.
    pub async fn call(&mut self, function_id: &str, data: Value) -> Result<Value, Value> {
        let id = self.start(function_id, data).await;
        self.answer(&id).await
    }

    /// Answers the next call that comes in, and gives its data.
    pub async fn serve_one(&mut self, result: Value) -> Value {
        let call = self.recv_type("invokefunction").await;
        let (id, function_id) = (&call["invocation_id"], &call["function_id"]);
        let frame =
            json!({"type": "invocationresult", "invocation_id": id, "function_id": function_id, "result": result});
        self.send(frame).await;
        call["data"].clone()
    }

    /// Fails the next call that comes in.
    pub async fn fail_one(&mut self, code: &str) -> Value {
        let call = self.recv_type("invokefunction").await;
        let (id, function_id) = (&call["invocation_id"], &call["function_id"]);
        let error = json!({"code": code, "message": "no"});
        let frame =
            json!({"type": "invocationresult", "invocation_id": id, "function_id": function_id, "error": error});
        self.send(frame).await;
        call["data"].clone()
    }
}
