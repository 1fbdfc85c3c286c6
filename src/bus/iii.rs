//! The ports over `iii-sdk`: every call of the worker to the engine goes through here.
//!
//! The SDK never times a call out on the engine's side, so each call here carries its own limit. A call that ran
//! into it, or that met a broken link, may or may not have happened: callers retry only what is idempotent.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use iii_sdk::errors::Error as SdkError;
use iii_sdk::protocol::TriggerRequest;
use iii_sdk::{IIIClient, TriggerAction};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::{Fut, LandQueue, NotQueued, StateStore};
use crate::fault;
use crate::model::{Code, Error, Result};

mod shell;

/// How long a call of the state store, the configuration or the queue may take.
const CALL_LIMIT: Duration = Duration::from_secs(15);
/// The code that the engine answers with when nobody serves a function.
const NOT_FOUND: &str = "function_not_found";

/// The engine as this worker uses it. Cheap to clone.
#[derive(Clone)]
pub struct IiiBus {
    client: IIIClient,
    /// How often the link to the engine was lost: a command that ran meanwhile is not heard of again.
    losses: Arc<watch::Sender<u64>>,
}

fn millis(limit: Duration) -> u64 {
    u64::try_from(limit.as_millis()).unwrap_or(u64::MAX)
}

fn is_missing_function(error: &SdkError) -> bool {
    matches!(error, SdkError::Remote { code, .. } if code == NOT_FOUND)
}

impl IiiBus {
    /// The bus behind `client`.
    #[must_use]
    pub fn new(client: IIIClient) -> Self {
        IiiBus { client, losses: Arc::new(watch::Sender::new(0)) }
    }

    /// The namespace of the worker, when it is not the engine's default.
    #[must_use]
    pub fn namespace(&self) -> Option<String> {
        self.client.namespace()
    }

    /// Says that the link to the engine was lost.
    pub fn link_lost(&self) {
        self.losses.send_modify(|count| *count += 1);
    }

    /// One call in the given namespace (the worker's own when it is `None`).
    async fn call_in(
        &self,
        namespace: Option<&str>,
        function_id: &str,
        payload: Value,
        action: Option<TriggerAction>,
        limit: Duration,
    ) -> Result<Value, SdkError> {
        let request =
            TriggerRequest { function_id: function_id.to_owned(), payload, action, timeout_ms: Some(millis(limit)) };
        match namespace {
            Some(namespace) => self.client.trigger(request.namespace(namespace)).await,
            None => self.client.trigger(request).await,
        }
    }

    /// One call of a neighbour: in the worker's own namespace, and when nobody serves it there, in `default`.
    async fn call(
        &self,
        function_id: &str,
        payload: Value,
        action: Option<TriggerAction>,
        limit: Duration,
    ) -> Result<Value, SdkError> {
        let own = self.client.namespace().filter(|own| own != "default");
        if own.is_none() {
            return self.call_in(None, function_id, payload, action, limit).await;
        }
        match self.call_in(None, function_id, payload.clone(), action.clone(), limit).await {
            Err(error) if is_missing_function(&error) => {
                self.call_in(Some("default"), function_id, payload, action, limit).await
            }
            answer => answer,
        }
    }

    /// A call that changes the store.
    async fn write(&self, function_id: &str, scope: &str, key: &str, mut payload: Value) -> Result<Value> {
        let point = fault::point("state", || format!("{function_id} {scope}")).map_err(|injected| {
            Error::new(Code::StateUnreachable, format!("{function_id} failed: injected ({injected:?})"))
        })?;
        payload["scope"] = json!(scope);
        payload["key"] = json!(key);
        // An increment counts; done twice it is another one.
        if point.repeats() && function_id != "state::update" {
            self.state(function_id, payload.clone()).await?;
        }
        let answer = self.state(function_id, payload).await?;
        point.passed();
        Ok(answer)
    }

    async fn state(&self, function_id: &str, payload: Value) -> Result<Value> {
        self.call(function_id, payload, None, CALL_LIMIT).await.map_err(|error| {
            let why = match error {
                SdkError::Remote { code, .. } if code == NOT_FOUND => {
                    "no worker on the engine provides state (add iii-state to its configuration)".to_owned()
                }
                SdkError::Remote { code, message, .. } => format!("{message} ({code})"),
                other => other.to_string(),
            };
            Error::new(Code::StateUnreachable, format!("{function_id} failed: {why}; the call can be repeated"))
        })
    }

    /// Calls a function of `default`, such as those of the configuration.
    ///
    /// # Errors
    /// What the SDK reports.
    pub async fn builtin(&self, function_id: &str, payload: Value) -> Result<Value, SdkError> {
        self.call_in(Some("default"), function_id, payload, None, CALL_LIMIT).await
    }

    /// Calls a function without waiting for, or hearing of, its result. The message is handed to the SDK's own queue at
    /// once, so that messages leave in the order of the calls.
    ///
    /// # Errors
    /// What the SDK reports when the message could not be handed over.
    pub fn fire(
        &self,
        namespace: &str,
        function_id: &str,
        payload: Value,
        metadata: Option<Value>,
    ) -> Result<(), SdkError> {
        let request = TriggerRequest {
            function_id: function_id.to_owned(),
            payload,
            action: Some(TriggerAction::Void),
            timeout_ms: None,
        };
        let mut request = request.namespace(namespace);
        if let Some(metadata) = metadata {
            request = request.metadata(metadata);
        }
        // A call without an answer has nothing to wait for.
        self.client.trigger(request).now_or_never().unwrap_or(Err(SdkError::NotConnected)).map(drop)
    }
}

impl StateStore for IiiBus {
    fn get<'a>(&'a self, scope: &'a str, key: &'a str) -> Fut<'a, Result<Option<Value>>> {
        Box::pin(async move {
            let value = self.state("state::get", json!({"scope": scope, "key": key})).await?;
            Ok(if value.is_null() { None } else { Some(value) })
        })
    }

    fn set<'a>(&'a self, scope: &'a str, key: &'a str, value: Value) -> Fut<'a, Result<()>> {
        Box::pin(async move { self.write("state::set", scope, key, json!({"value": value})).await.map(drop) })
    }

    fn delete<'a>(&'a self, scope: &'a str, key: &'a str) -> Fut<'a, Result<()>> {
        Box::pin(async move { self.write("state::delete", scope, key, json!({})).await.map(drop) })
    }

    fn list<'a>(&'a self, scope: &'a str) -> Fut<'a, Result<Vec<Value>>> {
        Box::pin(async move {
            match self.state("state::list", json!({"scope": scope})).await? {
                Value::Array(values) => Ok(values),
                Value::Null => Ok(Vec::new()),
                other => Err(Error::new(
                    Code::StateUnreachable,
                    format!("state::list answered {other} where an array was expected"),
                )),
            }
        })
    }

    fn increment<'a>(&'a self, scope: &'a str, key: &'a str, field: &'a str) -> Fut<'a, Result<Value>> {
        Box::pin(async move {
            let ops = json!([{"type": "increment", "path": field, "by": 1}]);
            let answer = self.write("state::update", scope, key, json!({"ops": ops})).await?;
            if let Some(errors) = answer.get("errors").filter(|e| e.as_array().is_some_and(|list| !list.is_empty())) {
                return Err(Error::new(Code::RecordUnreadable, format!("{scope}/{key} cannot be updated: {errors}")));
            }
            Ok(answer.get("new_value").cloned().unwrap_or(Value::Null))
        })
    }
}

impl LandQueue for IiiBus {
    fn define<'a>(&'a self, queue: &'a str, group_field: &'a str) -> Fut<'a, Result<(), NotQueued>> {
        Box::pin(async move {
            // A land that failed for an infrastructure reason is worth many attempts: the machine converges.
            let config = json!({
                "type": "fifo", "message_group_field": group_field, "concurrency": 8, "max_retries": 10,
                "backoff_ms": 1000, "timeout_ms": 86_400_000_u64,
            });
            let payload = json!({"queue": queue, "config": config});
            self.call("queue::define", payload, None, CALL_LIMIT)
                .await
                .map(drop)
                .map_err(|error| NotQueued { why: error.to_string() })
        })
    }

    fn enqueue<'a>(&'a self, queue: &'a str, function_id: &'a str, data: Value) -> Fut<'a, Result<(), NotQueued>> {
        Box::pin(async move {
            let point = fault::effect("enqueue").map_err(|error| NotQueued { why: error.to_string() })?;
            for _ in 0..=i32::from(point.repeats()) {
                let action = Some(TriggerAction::Enqueue { queue: queue.to_owned() });
                let queued = self.call_in(None, function_id, data.clone(), action, CALL_LIMIT).await;
                queued.map_err(|error| NotQueued { why: error.to_string() })?;
            }
            point.passed();
            Ok(())
        })
    }
}
