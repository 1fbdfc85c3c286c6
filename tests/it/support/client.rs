//! A client on the real SDK, under a name of its own.

use std::sync::atomic::{AtomicU32, Ordering};

use iii_sdk::protocol::TriggerRequest;
use iii_sdk::runtime::WorkerMetadata;
use iii_sdk::{Error, IIIClient, InitOptions, RegisterFunction, TriggerAction, WorkerIdentityMode, register_worker};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::{PATIENCE, WINDOW};

static CLIENTS: AtomicU32 = AtomicU32::new(0);

/// The six kinds of events.
const KINDS: [&str; 6] = [
    "worktree::created",
    "worktree::claimed",
    "worktree::released",
    "worktree::removed",
    "worktree::landed",
    "worktree::land-blocked",
];

/// The code and the message of a call that failed.
pub type Refusal = (String, String);

pub struct Client {
    sdk: IIIClient,
}

impl Client {
    pub async fn connect(url: &str) -> Self {
        Self::connect_in(url, None).await
    }

    /// A client whose functions are in this namespace.
    pub async fn connect_in(url: &str, namespace: Option<&str>) -> Self {
        let number = CLIENTS.fetch_add(1, Ordering::Relaxed);
        let mut options = InitOptions { identity: WorkerIdentityMode::Explicit, ..InitOptions::default() };
        options.otel.get_or_insert_default().enabled = Some(false);
        let name = format!("test-{}-{number}", std::process::id());
        options.namespace = namespace.map(str::to_owned);
        options.metadata = Some(WorkerMetadata { name, ..WorkerMetadata::default() });
        let sdk = register_worker(url, options);
        sdk.wait_until_registered(PATIENCE).await.unwrap();
        Self { sdk }
    }

    pub fn sdk(&self) -> &IIIClient {
        &self.sdk
    }

    /// Calls a function and waits up to [`PATIENCE`] for its answer.
    pub async fn call(&self, function_id: &str, payload: Value) -> Result<Value, Refusal> {
        self.trigger(function_id, payload, None, None).await
    }

    /// Calls a function of another namespace.
    pub async fn call_in(&self, namespace: &str, function_id: &str, payload: Value) -> Result<Value, Refusal> {
        self.trigger(function_id, payload, None, Some(namespace)).await
    }

    /// Puts a call into a queue.
    pub async fn enqueue(&self, queue: &str, function_id: &str, payload: Value) -> Result<Value, Refusal> {
        self.trigger(function_id, payload, Some(TriggerAction::Enqueue { queue: queue.to_owned() }), None).await
    }

    async fn trigger(
        &self,
        function_id: &str,
        payload: Value,
        action: Option<TriggerAction>,
        namespace: Option<&str>,
    ) -> Result<Value, Refusal> {
        let timeout_ms = Some(u64::try_from(PATIENCE.as_millis()).unwrap());
        let request = TriggerRequest { function_id: function_id.to_owned(), payload, action, timeout_ms };
        let request = match namespace {
            Some(namespace) => request.namespace(namespace),
            None => request.into(),
        };
        self.sdk.trigger(request).await.map_err(|error| match error {
            Error::Remote { code, message, stacktrace } => {
                assert!(
                    !code.starts_with('W') || stacktrace.is_none(),
                    "a stack trace left the process: {stacktrace:?}"
                );
                assert!(!code.starts_with('W') || !message.contains(&code), "the message repeats the code: {message}");
                (code, message)
            }
            other => ("CLIENT".to_owned(), other.to_string()),
        })
    }

    /// Calls a function that is to succeed.
    pub async fn ok(&self, function_id: &str, payload: Value) -> Value {
        let asked = payload.to_string();
        self.call(function_id, payload)
            .await
            .unwrap_or_else(|(code, message)| panic!("{function_id} {asked}: {code}: {message}"))
    }

    /// Calls a function that is to be refused with `code`, and returns the message.
    pub async fn refused(&self, function_id: &str, payload: Value, code: &str) -> String {
        let asked = payload.to_string();
        match self.call(function_id, payload).await {
            Ok(answer) => panic!("{function_id} {asked}: expected {code}, got {answer}"),
            Err((seen, message)) => {
                assert_eq!(seen, code, "{function_id} {asked}: {message}");
                message
            }
        }
    }

    /// Subscribes to all six kinds of events, with this filter.
    pub async fn hear(&self, filter: Value) -> Events {
        let (sender, receiver) = mpsc::unbounded_channel();
        let number = CLIENTS.fetch_add(1, Ordering::Relaxed);
        for kind in KINDS {
            let function_id = format!("test-{}-{number}::{}", std::process::id(), &kind["worktree::".len()..]);
            self.on_event(&function_id, kind, sender.clone());
            // By a call, which answers when the provider has the binding.
            let binding = json!({"trigger_type": kind, "function_id": function_id, "config": filter});
            self.ok("engine::register_trigger", binding).await;
        }
        Events { receiver, seen: Vec::new() }
    }

    /// Registers a function that puts what it receives into `sender`.
    pub fn on_event(
        &self,
        function_id: &str,
        kind: &'static str,
        sender: mpsc::UnboundedSender<(&'static str, Value)>,
    ) {
        let heard = move |event: Value| {
            // The test may have ended its interest already.
            sender.send((kind, event)).unwrap_or_default();
            std::future::ready(Ok::<_, Error>(Value::Null))
        };
        self.sdk.register_function(function_id, RegisterFunction::new_async(heard));
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.sdk.shutdown();
    }
}

/// The events that arrived.
pub struct Events {
    receiver: mpsc::UnboundedReceiver<(&'static str, Value)>,
    seen: Vec<(&'static str, Value)>,
}

impl Events {
    /// The next event of this kind about this worktree, without what the engine adds to it. Others are kept.
    pub async fn next(&mut self, kind: &str, worktree_id: &str) -> Value {
        self.next_of(&[kind], worktree_id).await.1
    }

    /// The next event of one of these kinds about this worktree, without what the engine adds to it.
    pub async fn next_of(&mut self, kinds: &[&str], worktree_id: &str) -> (&'static str, Value) {
        let matches =
            |(kind, event): &(&'static str, Value)| kinds.contains(kind) && event["worktree_id"] == worktree_id;
        let found = async {
            loop {
                if let Some(at) = self.seen.iter().position(matches) {
                    return self.seen.remove(at);
                }
                self.seen.push(self.receiver.recv().await.expect("the client lives as long as its events"));
            }
        };
        let found = tokio::time::timeout(PATIENCE, found).await;
        let (kind, mut event) =
            found.unwrap_or_else(|_| panic!("no {kinds:?} about {worktree_id}; others: {:#?}", self.seen));
        if let Some(fields) = event.as_object_mut() {
            fields.remove("_caller_worker_id");
        }
        (kind, event)
    }

    /// The land of this worktree, to its end: it is to succeed.
    pub async fn landed(&mut self, worktree_id: &str) -> Value {
        match self.next_of(&["worktree::landed", "worktree::land-blocked"], worktree_id).await {
            ("worktree::landed", event) => event,
            (_, event) => panic!("the land was blocked: {event:#}"),
        }
    }

    /// The land of this worktree, to its end: it is to be blocked.
    pub async fn blocked(&mut self, worktree_id: &str) -> Value {
        match self.next_of(&["worktree::landed", "worktree::land-blocked"], worktree_id).await {
            ("worktree::land-blocked", event) => event,
            (_, event) => panic!("it landed: {event:#}"),
        }
    }

    /// Everything about this worktree that arrives within the window for absence.
    pub async fn rest(&mut self, worktree_id: &str) -> Vec<(&'static str, Value)> {
        let all = self.everything().await.iter();
        all.filter(|(_, event)| event["worktree_id"] == worktree_id).cloned().collect()
    }

    /// Everything that was not asked for yet and arrives within the window for absence.
    pub async fn everything(&mut self) -> &[(&'static str, Value)] {
        let deadline = tokio::time::Instant::now() + WINDOW;
        while let Ok(Some(event)) = tokio::time::timeout_at(deadline, self.receiver.recv()).await {
            self.seen.push(event);
        }
        &self.seen
    }
}
