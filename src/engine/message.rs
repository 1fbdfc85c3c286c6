//! The messages of the wire, both directions.
//!
//! Reading is lenient (unknown fields are ignored, absent ones are null), so that older and newer SDKs can be
//! served; writing leaves out what is not there.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use uuid::Uuid;

/// One frame.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub(super) enum Message {
    RegisterFunction(RegisterFunction),
    UnregisterFunction {
        id: String,
    },
    RegisterTriggerType(RegisterTriggerType),
    UnregisterTriggerType {
        id: String,
    },
    RegisterTrigger(RegisterTrigger),
    TriggerRegistrationResult {
        id: String,
        #[serde(default)]
        trigger_type: Option<String>,
        #[serde(default)]
        function_id: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<Value>,
    },
    UnregisterTrigger {
        id: String,
        #[serde(default)]
        trigger_type: Option<String>,
    },
    InvokeFunction(Invoke),
    InvocationResult(InvocationResult),
    RegisterService {},
    Ping,
    Pong,
    Reattach {
        previous_worker_id: Uuid,
        #[serde(default)]
        reattach_token: Option<String>,
    },
    WorkerRegistered {
        worker_id: Uuid,
        reattach_token: String,
    },
    RegistrationRejected {
        code: Cow<'static, str>,
        namespace: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        worker_name: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        function_id: Option<String>,
        owner_worker_id: String,
    },
}

/// What a frame is.
#[derive(Deserialize)]
struct Kind<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
}

impl Message {
    /// Reads a frame.
    ///
    /// # Errors
    /// When it is no message.
    pub(super) fn read(bytes: &[u8]) -> serde_json::Result<Message> {
        // Calls and answers, which may be large, are read into what they are; whatever is read by its tag is first read
        // into something that could be anything.
        match serde_json::from_slice::<Kind<'_>>(bytes)?.kind.as_ref() {
            "invokefunction" => serde_json::from_slice(bytes).map(Message::InvokeFunction),
            "invocationresult" => serde_json::from_slice(bytes).map(Message::InvocationResult),
            _ => serde_json::from_slice(bytes),
        }
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct RegisterFunction {
    pub(super) id: String,
    #[serde(default)]
    pub(super) description: Option<String>,
    #[serde(default)]
    pub(super) request_format: Option<Value>,
    #[serde(default)]
    pub(super) response_format: Option<Value>,
    #[serde(default)]
    pub(super) metadata: Option<Value>,
    /// An HTTP function. Kept only to tell that it is one.
    #[serde(default)]
    pub(super) invocation: Option<Value>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct RegisterTriggerType {
    pub(super) id: String,
    #[serde(default)]
    pub(super) description: String,
    #[serde(default)]
    pub(super) trigger_request_format: Option<Value>,
    #[serde(default)]
    pub(super) call_request_format: Option<Value>,
    #[serde(default)]
    pub(super) namespace: Option<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct RegisterTrigger {
    pub(super) id: String,
    pub(super) trigger_type: String,
    pub(super) function_id: String,
    #[serde(default)]
    pub(super) config: Value,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) metadata: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) namespace: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) trigger_namespace: Option<String>,
}

/// How a call is routed.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub(super) enum Action {
    Void,
    Enqueue { queue: String },
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Invoke {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) invocation_id: Option<Uuid>,
    pub(super) function_id: String,
    #[serde(default)]
    pub(super) data: Value,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) traceparent: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) baggage: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) action: Option<Action>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) metadata: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) namespace: Option<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct InvocationResult {
    pub(super) invocation_id: Uuid,
    #[serde(default)]
    pub(super) function_id: String,
    /// As it was written: the engine takes it from one to the other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) result: Option<Box<RawValue>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) traceparent: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) baggage: Option<String>,
}
