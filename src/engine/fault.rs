//! The error a caller gets: a code to branch on and a message to read.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The error object of the wire.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Fault {
    /// What a program branches on.
    pub(super) code: String,
    /// What a person reads.
    pub(super) message: String,
    /// Where it happened, when the far side said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) stacktrace: Option<String>,
}

/// What a function answers: a value, nothing, or a fault.
pub(super) type Answer = Result<Option<Value>, Fault>;

impl Fault {
    pub(super) fn new(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self { code: code.into(), message: message.into(), stacktrace: None }
    }

    /// Bad input to a function of the engine.
    pub(super) fn input(function_id: &str, error: &serde_json::Error) -> Self {
        Self::new("deserialization_error", format!("Failed to deserialize input for {function_id}: {error}"))
    }

    /// The fault in an error that a worker sent, whatever its shape.
    pub(super) fn of_worker(error: &Value) -> Self {
        match Self::deserialize(error) {
            Ok(fault) => fault,
            Err(_) => Self::new("invocation_failed", error.to_string()),
        }
    }

    /// As it goes over the wire.
    pub(super) fn to_value(&self) -> Value {
        let mut object = serde_json::json!({"code": self.code, "message": self.message});
        if let (Some(stacktrace), Some(map)) = (&self.stacktrace, object.as_object_mut()) {
            map.insert("stacktrace".to_owned(), Value::String(stacktrace.clone()));
        }
        object
    }
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.code, self.message)
    }
}
