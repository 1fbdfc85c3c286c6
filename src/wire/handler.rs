//! The one wrapper around every function.
//!
//! The SDK runs handlers on its own single-threaded runtime, which also answers heartbeats: the work hops to the
//! worker's runtime and the handler only waits. Input is deserialized here, because the SDK would answer bad input
//! with a code of its own and a stack trace. A call that came over HTTP arrives in an envelope and must be answered
//! in one, or its answer is lost.
//!
//! Invariants
//! 1. Every refusal leaves with a code of `model::Code`, and without a stack trace.
//! 2. No work is done on the SDK's thread but to write the answer as JSON, which happens once.

use std::future::Future;

use iii_sdk::errors::Error as SdkError;
use schemars::JsonSchema;
use schemars::r#gen::SchemaGenerator;
use schemars::schema::Schema;
use serde::de::DeserializeOwned;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value, json};
use tokio::runtime::Handle;

use crate::model::actor::Actor;
use crate::model::{Code, Error, Result};

/// Reads a request.
///
/// # Errors
/// `W001` naming the field.
pub fn request<T: DeserializeOwned>(input: Value) -> Result<T> {
    // A call without a payload is a call with an empty one.
    let input = if input.is_null() { Value::Object(Map::new()) } else { input };
    // A list would be read as the values of the first fields, in order.
    if !input.is_object() {
        return Err(Error::new(Code::InvalidRequest, "the request is not valid: it must be an object with fields"));
    }
    serde_path_to_error::deserialize(input).map_err(|error| {
        let path = error.path().to_string();
        let why = error.into_inner().to_string();
        let message = if path == "." { why } else { format!("`{path}`: {why}") };
        Error::new(Code::InvalidRequest, format!("the request is not valid: {message}"))
    })
}

/// Who calls: the engine adds the id of the caller's connection to every request that is an object. What comes without
/// one (a schedule, the queue) is the worker's own doing.
#[must_use]
pub fn actor(input: &Value) -> Actor {
    let text = |key: &str| input.get(key).and_then(Value::as_str);
    text("_caller_worker_id").map_or_else(Actor::worker, |id| Actor::caller(id, text("session_id")))
}

/// What a function answers. The SDK makes JSON of whatever it is given; given JSON, it would make it a second time.
pub struct Answer(Box<dyn erased_serde::Serialize + Send>);

impl Answer {
    /// An answer of any type.
    pub fn new(answer: impl Serialize + Send + 'static) -> Self {
        Answer(Box::new(answer))
    }
}

impl Serialize for Answer {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

/// Any: the schema that is registered is that of the type within.
impl JsonSchema for Answer {
    fn schema_name() -> String {
        Value::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        Value::json_schema(generator)
    }
}

/// The HTTP status of a refusal.
#[must_use]
pub fn http_status(code: Code) -> u16 {
    match code {
        Code::InvalidRequest | Code::Malformed => 400,
        Code::OperationDisabled
        | Code::ForceDisabled
        | Code::TargetNotAllowed
        | Code::RepoNotAllowed
        | Code::BudgetReached => 403,
        Code::NoSuchWorktree => 404,
        Code::ClaimHeld
        | Code::NotHolder
        | Code::Uncommitted
        | Code::NotLanded
        | Code::FilesOpen
        | Code::NotQueued
        | Code::LandLive
        | Code::RebaseOpen
        | Code::OperationOpen
        | Code::RebaseConflict
        | Code::GateFailed
        | Code::TargetMoved
        | Code::TargetCheckedOut
        | Code::GateUnavailable
        | Code::BranchMoved => 409,
        Code::GitTimeout | Code::StateUnreachable => 503,
        _ => 500,
    }
}

/// The body of a call that came over HTTP; `None` when the input is a plain one.
fn http_body(input: &Value) -> Option<Value> {
    let is_http = input.get("trigger")?.get("type")?.as_str()? == "http";
    if !is_http || input.get("method").is_none() || input.get("headers").is_none() {
        return None;
    }
    Some(input.get("body").cloned().unwrap_or(Value::Null))
}

/// The envelope of an answer over HTTP.
#[derive(Serialize)]
struct HttpAnswer<T> {
    status_code: u16,
    /// Without a content type of its own the engine sends the body as JSON.
    headers: Map<String, Value>,
    body: T,
}

fn http_answer(answer: Result<Answer>) -> Answer {
    match answer {
        Ok(body) => Answer::new(HttpAnswer { status_code: 200, headers: Map::new(), body }),
        Err(error) => {
            let body = json!({"error": {"code": error.code.as_str(), "message": error.message}});
            Answer::new(HttpAnswer { status_code: http_status(error.code), headers: Map::new(), body })
        }
    }
}

fn sdk_error(error: Error) -> SdkError {
    SdkError::Remote { code: error.code.as_str().to_owned(), message: error.message, stacktrace: None }
}

/// Answers one call: takes it out of its envelope, runs `work` on `runtime`, and wraps the answer up again.
///
/// # Errors
/// The refusal, in the form that carries its code over the wire.
pub async fn answer<F, Fut>(runtime: Handle, input: Value, work: F) -> std::result::Result<Answer, SdkError>
where
    F: FnOnce(Value) -> Fut,
    Fut: Future<Output = Result<Answer>> + Send + 'static,
{
    let body = http_body(&input);
    let over_http = body.is_some();
    let running = runtime.spawn(work(body.unwrap_or(input)));
    let answer = running.await.unwrap_or_else(|error| {
        tracing::error!(%error, "a handler did not end");
        Err(Error::new(
            Code::StateUnreachable,
            "the call was cut off inside the worker; see its log, then repeat the call",
        ))
    });
    if over_http { Ok(http_answer(answer)) } else { answer.map_err(sdk_error) }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    struct Sample {
        name: String,
        #[serde(default)]
        count: Option<u64>,
    }

    fn json(answer: &Answer) -> Value {
        serde_json::to_value(answer).unwrap()
    }

    #[test]
    fn bad_input_names_the_field() {
        for (input, field) in [
            (json!({}), "name"),
            (Value::Null, "name"),
            (json!({"name": 5}), "`name`"),
            (json!({"name": "x", "count": -1}), "`count`"),
            (json!(["x", 1]), "object"),
            (json!("x"), "object"),
        ] {
            let error = request::<Sample>(input.clone()).unwrap_err();
            assert_eq!(error.code, Code::InvalidRequest);
            assert!(error.message.contains(field), "{input}: {error}");
        }
        let sample: Sample = request(json!({"name": "x", "_caller_worker_id": "y"})).unwrap();
        assert_eq!((sample.name.as_str(), sample.count), ("x", None));
        assert_eq!(actor(&json!({"_caller_worker_id": "y", "session_id": "s"})), Actor::caller("y", Some("s")));
        assert_eq!(actor(&json!(null)), Actor::worker());
    }

    #[tokio::test]
    async fn a_call_over_http_is_answered_in_an_envelope() {
        let envelope = json!({
            "method": "POST", "path": "/worktree/get", "headers": {}, "body": {"a": 1},
            "trigger": {"type": "http", "path": "/worktree/get", "method": "POST"}
        });
        let echo = |body| async move { Ok(Answer::new(body)) };
        let echoed = json(&answer(Handle::current(), envelope.clone(), echo).await.unwrap());
        assert_eq!(echoed["status_code"], 200);
        assert_eq!(echoed["body"], json!({"a": 1}));
        let refuse = |_| async { Err(Error::new(Code::NoSuchWorktree, "none")) };
        let refused = json(&answer(Handle::current(), envelope, refuse).await.unwrap());
        assert_eq!(refused["status_code"], 404);
        assert_eq!(refused["body"], json!({"error": {"code": "W200", "message": "none"}}));
    }

    #[tokio::test]
    async fn a_panic_is_answered_without_a_stack_trace_invariant_1() {
        let panicking = |_| async { panic!("boom") };
        let error = answer(Handle::current(), json!({}), panicking).await.err().unwrap();
        let SdkError::Remote { code, stacktrace, message } = error else { panic!("{error}") };
        assert_eq!((code.as_str(), stacktrace), ("W300", None));
        assert!(!message.contains("boom"));
    }
}
