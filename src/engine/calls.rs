//! Invocations on their way: who called, who was called.
//!
//! Invariants
//! 1. A call is answered at most once, and only by the session it was sent to.
//! 2. When the called session ends first, its caller gets `invocation_stopped`; when the caller ends first, the
//!    answer is dropped. The engine never times a call out.
//! 3. Large frames are written as JSON outside the router's lock.

use serde_json::Value;
use tokio::sync::oneshot;
use uuid::Uuid;

use super::fault::{Answer, Fault};
use super::ident;
use super::message::{InvocationResult, Invoke, Message};
use super::outbox::{Outbox, encode};
use super::router::{Key, Owner, Router, SharedRouter, Tables};

/// Who gets the answer.
pub(super) enum Caller {
    /// A worker, under the id it chose.
    Worker { id: Uuid, invocation_id: Uuid },
    /// The engine itself.
    Engine(oneshot::Sender<Outcome>),
    /// Nobody but the log, which hears of failures.
    Log,
}

/// Calls whose end only the log would hear of, beyond which they are not followed.
const MAX_LOGGED: usize = 10_000;

/// How a call made by the engine ended.
#[derive(Debug)]
pub(super) enum Outcome {
    /// The function answered.
    Answered(Answer),
    /// There is no such function.
    NotFound(Fault),
    /// The worker that served it went away.
    Stopped,
}

impl Outcome {
    /// The outcome as a caller of the function would see it.
    pub(super) fn into_answer(self) -> Answer {
        match self {
            Outcome::Answered(answer) => answer,
            Outcome::NotFound(fault) => Err(fault),
            Outcome::Stopped => Err(stopped()),
        }
    }
}

/// A call that was sent.
pub(super) struct Sent {
    /// The id it was sent under.
    pub(super) id: Uuid,
    /// What took it.
    pub(super) outbox: Outbox,
}

/// Gives a call of the engine up when its waiting ends, however that ends.
pub(super) struct Awaited {
    pub(super) router: SharedRouter,
    pub(super) id: Uuid,
}

impl Drop for Awaited {
    fn drop(&mut self) {
        self.router.give_up(self.id);
    }
}

/// A call that is not answered yet.
pub(super) struct Call {
    caller: Caller,
    callee: Uuid,
    function_id: String,
}

fn stopped() -> Fault {
    Fault::new("invocation_stopped", "Invocation stopped")
}

fn too_large(bytes: usize, limit: usize) -> Fault {
    Fault::new("payload_too_large", format!("the message has {bytes} bytes, the limit is {limit}"))
}

/// The fault for a function that nobody serves.
pub(super) fn not_found(key: &Key) -> Fault {
    Fault::new("function_not_found", format!("Function {} not found in namespace {}.", key.1, key.0))
}

impl Router {
    /// Counts a new call of this worker, unless it has too many open ones.
    pub(super) fn start_call(&self, id: Uuid) -> Result<(), Fault> {
        let mut tables = self.lock();
        let limit = tables.limits.calls_per_connection;
        let Some(session) = tables.sessions.get_mut(&id) else { return Ok(()) };
        if session.active >= limit {
            return Err(Fault::new(
                "too_many_calls",
                format!("this connection has {limit} open calls; wait for answers before calling again"),
            ));
        }
        session.active += 1;
        Ok(())
    }

    /// Who serves a function.
    pub(super) fn owner(&self, key: &Key) -> Option<Owner> {
        self.lock().functions.get(key).map(|function| function.owner)
    }

    /// Sends a call to the worker that serves it. Without a caller nobody hears of its end. Gives the outbox that
    /// took it, or why it was not sent.
    pub(super) fn send_call(&self, key: &Key, caller: Option<Caller>, mut invoke: Invoke) -> Result<Sent, Fault> {
        let mut id = match &caller {
            Some(Caller::Worker { invocation_id, .. }) => *invocation_id,
            _ => ident::fresh(),
        };
        invoke.action = None;
        invoke.namespace = None;
        let mut message = Message::InvokeFunction(invoke);
        let (text, outbox) = loop {
            if let Message::InvokeFunction(invoke) = &mut message {
                invoke.invocation_id = Some(id);
            }
            let text = encode(&message);
            if text.len() > self.message_bytes {
                return Err(too_large(text.len(), self.message_bytes));
            }
            let mut tables = self.lock();
            let Some(Owner::Worker(callee)) = tables.functions.get(key).map(|function| function.owner) else {
                return Err(not_found(key));
            };
            let Some(outbox) = tables.sessions.get(&callee).map(|session| session.outbox.clone()) else {
                return Err(not_found(key));
            };
            // An id that is in use belongs to somebody else's call; the answer is mapped back.
            if tables.calls.contains_key(&id) {
                id = ident::fresh();
                continue;
            }
            let caller = caller.filter(|caller| !matches!(caller, Caller::Log) || tables.logged < MAX_LOGGED);
            if let Some(caller) = caller {
                tables.logged += usize::from(matches!(caller, Caller::Log));
                tables.calls.insert(id, Call { caller, callee, function_id: key.1.clone() });
            }
            break (text, outbox);
        };
        outbox.push_text(text);
        Ok(Sent { id, outbox })
    }

    /// Gives a call up: its answer is dropped when it comes.
    pub(super) fn give_up(&self, id: Uuid) {
        self.lock().calls.remove(&id);
    }

    /// Takes the answer of a worker to its caller.
    pub(super) fn answer_from(&self, callee: Uuid, mut result: InvocationResult) {
        let call = {
            let mut tables = self.lock();
            match tables.calls.get(&result.invocation_id) {
                Some(call) if call.callee == callee => {}
                // A late answer, a void call's answer, or somebody else's call.
                _ => return,
            }
            let Some(call) = tables.calls.remove(&result.invocation_id) else { return };
            match &call.caller {
                Caller::Worker { id, invocation_id } => {
                    let Some(session) = tables.sessions.get_mut(id) else { return };
                    session.active = session.active.saturating_sub(1);
                    result.invocation_id = *invocation_id;
                    result.function_id = call.function_id;
                    let outbox = session.outbox.clone();
                    drop(tables);
                    outbox.push(&Message::InvocationResult(result));
                    return;
                }
                Caller::Engine(_) => call,
                Caller::Log => {
                    tables.logged = tables.logged.saturating_sub(1);
                    drop(tables);
                    if let Some(error) = &result.error {
                        tracing::warn!(function = call.function_id, %error, "a triggered function failed");
                    }
                    return;
                }
            }
        };
        if let Caller::Engine(sender) = call.caller {
            let answer = match (result.error, result.result.map(|raw| serde_json::from_str(raw.get())).transpose()) {
                (Some(error), _) => Err(Fault::of_worker(&error)),
                (None, Ok(result)) => Ok(result),
                (None, Err(error)) => Err(Fault::new("serialization_error", error.to_string())),
            };
            tell(sender, Outcome::Answered(answer));
        }
    }

    /// Answers a call that a worker made to the engine.
    pub(super) fn answer_to(&self, caller: Uuid, invocation_id: Option<Uuid>, function_id: &str, answer: Answer) {
        let outbox = {
            let mut tables = self.lock();
            let Some(session) = tables.sessions.get_mut(&caller) else { return };
            session.active = session.active.saturating_sub(1);
            session.outbox.clone()
        };
        if let Some(invocation_id) = invocation_id {
            let mut text = encode(&result(invocation_id, function_id, answer));
            if text.len() > self.message_bytes {
                let fault = too_large(text.len(), self.message_bytes);
                text = encode(&result(invocation_id, function_id, Err(fault)));
            }
            outbox.push_text(text);
        }
    }
}

/// The frame that answers a call.
pub(super) fn result(invocation_id: Uuid, function_id: &str, answer: Answer) -> Message {
    let written = answer.and_then(|result| {
        let written = result.as_ref().map(serde_json::value::to_raw_value).transpose();
        written.map_err(|error| Fault::new("serialization_error", error.to_string()))
    });
    let (result, error) = match written {
        Ok(result) => (result, None),
        Err(fault) => (None, Some(fault.to_value())),
    };
    Message::InvocationResult(InvocationResult {
        invocation_id,
        function_id: function_id.to_owned(),
        result,
        error,
        traceparent: None,
        baggage: None,
    })
}

fn tell(sender: oneshot::Sender<Outcome>, outcome: Outcome) {
    if sender.send(outcome).is_err() {
        tracing::debug!("the engine no longer waits for this answer");
    }
}

impl Tables {
    /// Ends the calls that a session had made or had taken.
    pub(super) fn end_calls_of(&mut self, id: Uuid) {
        let ended: Vec<Uuid> = self
            .calls
            .iter()
            .filter(|(_, call)| {
                call.callee == id || matches!(call.caller, Caller::Worker { id: caller, .. } if caller == id)
            })
            .map(|(key, _)| *key)
            .collect();
        for key in ended {
            let Some(call) = self.calls.remove(&key) else { continue };
            match call.caller {
                Caller::Worker { id: caller, invocation_id } if caller != id => {
                    if let Some(session) = self.sessions.get_mut(&caller) {
                        session.active = session.active.saturating_sub(1);
                        session.outbox.push(&result(invocation_id, &call.function_id, Err(stopped())));
                    }
                }
                Caller::Worker { .. } => {}
                Caller::Log => self.logged = self.logged.saturating_sub(1),
                Caller::Engine(sender) => tell(sender, Outcome::Stopped),
            }
        }
    }
}

/// The data of a call with the mark of its caller, when it is an object.
pub(super) fn marked(mut data: Value, caller: Uuid) -> Value {
    if let Some(map) = data.as_object_mut() {
        map.insert("_caller_worker_id".to_owned(), Value::String(caller.to_string()));
    }
    data
}
