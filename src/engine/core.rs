//! The engine's parts, and how a call finds its way to one of them or to a worker.
//!
//! A call from a worker is routed in the order of its connection. A function of the engine does its deciding at
//! once and its waiting (for the disk, for a command) in a task of its own, so a slow call never holds up the
//! connection it came from.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, ready};
use serde_json::{Value, json};
use tokio::sync::{Notify, OwnedSemaphorePermit, oneshot, watch};
use tokio::time::timeout;
use uuid::Uuid;

use super::bindings::Target;
use super::builtins;
use super::calls::{Awaited, Caller, Outcome, Sent, marked, not_found};
use super::channels::Channels;
use super::configuration::Configuration;
use super::fault::{Answer, Fault};
use super::ident;
use super::message::{Action, Invoke, Message};
use super::options::Options;
use super::outbox::Outbox;
use super::queue::{Delivery, Queue};
use super::router::{About, Announced, DEFAULT_NAMESPACE, Effect, Key, Owner, SharedRouter};
use super::shell::Shell;
use super::state::State;
use super::store::Store;

/// Everything the engine consists of.
pub(super) struct Core {
    pub(super) options: Options,
    pub(super) router: SharedRouter,
    pub(super) store: Arc<Store>,
    pub(super) state: State,
    pub(super) configuration: Configuration,
    pub(super) queue: Queue,
    pub(super) shell: Shell,
    pub(super) channels: Arc<Channels>,
    /// True once the engine is stopping.
    pub(super) stopping: watch::Sender<bool>,
    /// Calls to the engine that are still to be answered.
    pub(super) answering: watch::Sender<usize>,
    /// Told whenever the set of functions changed.
    pub(super) functions_changed: Notify,
}

/// The bytes of a frame, counted until its call is answered.
pub(super) type Held = Option<OwnedSemaphorePermit>;

/// How long a name is waited for whose holder may be gone already.
const NAME_PATIENCE: Duration = Duration::from_secs(1);
/// How long the condition of a binding has to answer.
const CONDITION_TIME: Duration = Duration::from_secs(30);

/// What a connection should wait for before it is read on.
pub(super) enum Wait {
    /// The client it just called does not keep up.
    Reader(Outbox),
    /// The disk does not keep up.
    Disk,
}

/// A call that starts in the engine: a trigger fired, or a message is delivered.
pub(super) struct EngineCall {
    pub(super) key: Key,
    pub(super) data: Value,
    pub(super) metadata: Option<Value>,
    pub(super) traceparent: Option<String>,
    pub(super) baggage: Option<String>,
}

impl Core {
    /// Routes a call of a worker.
    fn invoke(self: &Arc<Self>, from: Uuid, mut invoke: Invoke, held: Held) -> Option<Wait> {
        let action = invoke.action.take();
        // Without an id there is nobody to answer, whatever the action says.
        let wanted = invoke.invocation_id.filter(|_| !matches!(action, Some(Action::Void)));
        let started = match *self.stopping.borrow() {
            true => Err(Fault::new("invocation_stopped", "the engine is stopping")),
            false => self.router.start_call(from),
        };
        if let Err(fault) = started {
            self.refuse(from, wanted, &invoke.function_id, fault);
            return None;
        }
        let namespace = invoke.namespace.take().unwrap_or_else(|| DEFAULT_NAMESPACE.to_owned());
        let key = (namespace, invoke.function_id.clone());
        if key.0.trim().is_empty() {
            let fault = Fault::new("INVALID_NAMESPACE", "a namespace is not blank; leave it out for the default one");
            self.router.answer_to(from, wanted, &key.1, Err(fault));
            return None;
        }
        if let Some(Action::Enqueue { queue }) = action {
            self.enqueue(from, wanted, key, &queue, invoke, held);
            return self.disk();
        }
        match self.router.owner(&key) {
            Some(Owner::Engine(_)) => {
                let function_id = key.1;
                let answer = self.perform(Some(from), &function_id, invoke.data);
                self.answer_later(from, wanted, function_id, answer, held);
                self.disk()
            }
            Some(Owner::Worker(_)) => {
                invoke.data = marked(invoke.data, from);
                let caller = wanted.map(|invocation_id| Caller::Worker { id: from, invocation_id });
                let answered = caller.is_some();
                match self.router.send_call(&key, caller, invoke) {
                    Ok(Sent { outbox, .. }) => {
                        if !answered {
                            self.router.answer_to(from, None, &key.1, Ok(None));
                        }
                        outbox.is_congested().then_some(Wait::Reader(outbox))
                    }
                    Err(fault) => {
                        self.router.answer_to(from, wanted, &key.1, Err(fault));
                        None
                    }
                }
            }
            None => {
                self.router.answer_to(from, wanted, &key.1, Err(not_found(&key)));
                None
            }
        }
    }

    fn disk(&self) -> Option<Wait> {
        self.store.is_congested().then_some(Wait::Disk)
    }

    /// Answers a call that was never counted.
    fn refuse(&self, from: Uuid, wanted: Option<Uuid>, function_id: &str, fault: Fault) {
        let Some(invocation_id) = wanted else { return };
        let outbox = self.router.lock().sessions.get(&from).map(|session| session.outbox.clone());
        if let Some(outbox) = outbox {
            outbox.push(&super::calls::result(invocation_id, function_id, Err(fault)));
        }
    }

    fn answer_later(
        self: &Arc<Self>,
        from: Uuid,
        wanted: Option<Uuid>,
        function_id: String,
        mut answer: BoxFuture<'static, Answer>,
        held: Held,
    ) {
        if let Some(answer) = answer.as_mut().now_or_never() {
            self.router.answer_to(from, wanted, &function_id, answer);
            return;
        }
        let core = self.clone();
        core.answering.send_modify(|count| *count += 1);
        tokio::spawn(async move {
            let answer = answer.await;
            core.router.answer_to(from, wanted, &function_id, answer);
            core.answering.send_modify(|count| *count = count.saturating_sub(1));
            drop(held);
        });
    }

    fn enqueue(self: &Arc<Self>, from: Uuid, wanted: Option<Uuid>, key: Key, queue: &str, invoke: Invoke, held: Held) {
        let function_id = key.1.clone();
        let receipt = ident::fresh().to_string();
        let delivery = Delivery {
            receipt: receipt.clone(),
            namespace: key.0,
            function_id: key.1,
            data: invoke.data,
            metadata: invoke.metadata,
            traceparent: invoke.traceparent,
            baggage: invoke.baggage,
        };
        let submitted = self.queue.enqueue(queue, delivery);
        let core = self.clone();
        let answer = async move {
            let number = submitted.map_err(|fault| Fault::new("enqueue_error", fault.to_string()))?;
            core.enqueued(number).await.map_err(|fault| Fault::new("enqueue_error", fault.to_string()))?;
            Ok(Some(json!({ "messageReceiptId": receipt })))
        };
        self.answer_later(from, wanted, function_id, answer.boxed(), held);
    }

    /// Waits until an enqueued message is on the disk.
    pub(super) async fn enqueued(&self, number: u64) -> Result<(), Fault> {
        self.store.committed(number).await?;
        self.queue.wake();
        Ok(())
    }

    /// Runs a function of the engine: what it decides is decided when this returns, the rest is awaited.
    pub(super) fn perform(
        self: &Arc<Self>,
        from: Option<Uuid>,
        function_id: &str,
        data: Value,
    ) -> BoxFuture<'static, Answer> {
        builtins::perform(self, from, function_id, data)
    }

    /// Calls a function on behalf of the engine.
    pub(super) fn call(self: &Arc<Self>, call: EngineCall) -> BoxFuture<'static, Outcome> {
        let EngineCall { key, data, metadata, traceparent, baggage } = call;
        match self.router.owner(&key) {
            Some(Owner::Engine(_)) => {
                let answer = self.perform(None, &key.1, data);
                async move { Outcome::Answered(answer.await) }.boxed()
            }
            Some(Owner::Worker(_)) => {
                let (sender, receiver) = oneshot::channel();
                let invoke = Invoke {
                    invocation_id: None,
                    function_id: key.1.clone(),
                    data,
                    traceparent,
                    baggage,
                    action: None,
                    metadata,
                    namespace: None,
                };
                match self.router.send_call(&key, Some(Caller::Engine(sender)), invoke) {
                    Ok(Sent { id, .. }) => {
                        let awaited = Awaited { router: self.router.clone(), id };
                        async move {
                            let outcome = receiver.await.unwrap_or(Outcome::Stopped);
                            drop(awaited);
                            outcome
                        }
                        .boxed()
                    }
                    Err(fault) if fault.code == "function_not_found" => ready(Outcome::NotFound(fault)).boxed(),
                    Err(fault) => ready(Outcome::Answered(Err(fault))).boxed(),
                }
            }
            None => ready(Outcome::NotFound(not_found(&key))).boxed(),
        }
    }

    /// Calls what is bound to a trigger, without waiting for it.
    pub(super) fn fire(self: &Arc<Self>, targets: Vec<Target>, payload: &Value) {
        for target in targets {
            let core = self.clone();
            let payload = payload.clone();
            if target.setting("condition_function_id").is_some() {
                tokio::spawn(async move {
                    if core.condition_holds(&target, &payload).await {
                        core.fire_one(&target, payload);
                    }
                });
            } else {
                self.fire_one(&target, payload);
            }
        }
    }

    fn fire_one(self: &Arc<Self>, target: &Target, payload: Value) {
        let EngineCall { key, data, metadata, traceparent, baggage } = trigger_call(target, payload);
        if let Some(Owner::Engine(_)) = self.router.owner(&key) {
            tokio::spawn(self.perform(None, &key.1, data));
            return;
        }
        let function_id = key.1.clone();
        let invoke = Invoke {
            invocation_id: None,
            function_id: function_id.clone(),
            data,
            traceparent,
            baggage,
            action: None,
            metadata,
            namespace: None,
        };
        if let Err(fault) = self.router.send_call(&key, Some(Caller::Log), invoke) {
            tracing::warn!(function_id, %fault, "a triggered function could not be called");
        }
    }

    /// Whether the condition of a binding lets it fire: only an explicit `false` does not, and no answer at all.
    pub(super) async fn condition_holds(self: &Arc<Self>, target: &Target, payload: &Value) -> bool {
        let Some(function_id) = target.setting("condition_function_id") else { return true };
        let call = EngineCall {
            key: (target.namespace.clone(), function_id.to_owned()),
            ..trigger_call(target, payload.clone())
        };
        match timeout(CONDITION_TIME, self.call(call)).await {
            Ok(outcome) => !matches!(outcome.into_answer(), Ok(Some(Value::Bool(false)))),
            Err(_) => {
                tracing::warn!(function_id, "a condition did not answer; its trigger does not fire");
                false
            }
        }
    }

    /// Does what a change in the router brings with it.
    pub(super) fn after(self: &Arc<Self>, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::FunctionAppeared(key) => self.queue.function_appeared(&key),
                Effect::FunctionsChanged => self.functions_changed.notify_one(),
                Effect::Worker(event, id) => {
                    if event == "worker_disconnected" {
                        self.channels.drop_of(id);
                    }
                    let targets = self.router.targets("engine::workers-available", |_| true);
                    self.fire(targets, &json!({"event": event, "worker_id": id.to_string()}));
                }
            }
        }
    }

    /// Takes one message of a worker. Gives what to wait for before the next one.
    /// Taking it may go on after that: then it keeps `held`.
    pub(super) fn handle(self: &Arc<Self>, from: Uuid, message: Message, held: Held) -> Option<Wait> {
        match message {
            Message::InvokeFunction(invoke) if invoke.function_id == "engine::workers::register" => {
                self.announce(from, invoke);
                None
            }
            Message::InvokeFunction(invoke) => self.invoke(from, invoke, held),
            Message::InvocationResult(result) => {
                self.router.answer_from(from, result);
                None
            }
            Message::TriggerRegistrationResult { id, error, .. } => {
                self.router.binding_answered(from, &id, error);
                None
            }
            Message::Ping => {
                let outbox = self.router.lock().sessions.get(&from).map(|session| session.outbox.clone());
                if let Some(outbox) = outbox {
                    outbox.push(&Message::Pong);
                }
                None
            }
            Message::Reattach { previous_worker_id, reattach_token } => {
                let effects = self.router.reattach(from, previous_worker_id, reattach_token.as_deref());
                self.after(effects);
                None
            }
            message @ (Message::RegisterFunction(_)
            | Message::UnregisterFunction { .. }
            | Message::RegisterTriggerType(_)
            | Message::UnregisterTriggerType { .. }
            | Message::RegisterTrigger(_)
            | Message::UnregisterTrigger { .. }) => {
                let effects = self.router.register(from, message);
                self.after(effects);
                None
            }
            Message::RegisterService {}
            | Message::Pong
            | Message::WorkerRegistered { .. }
            | Message::RegistrationRejected { .. } => None,
        }
    }

    /// Announces a worker. One that was killed and is back at once may be earlier than the news of its end: a name that
    /// is held is asked for again for a moment, while what the worker registers waits.
    fn announce(self: &Arc<Self>, from: Uuid, invoke: Invoke) {
        let about = serde_json::from_value::<About>(invoke.data.clone());
        let Some(about) = about.ok().filter(|about| self.router.is_taken(from, about)) else {
            return self.announce_now(from, invoke);
        };
        let core = self.clone();
        tokio::spawn(async move {
            let patience = tokio::time::Instant::now() + NAME_PATIENCE;
            while core.router.is_taken(from, &about) && tokio::time::Instant::now() < patience {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            core.announce_now(from, invoke);
        });
    }

    fn announce_now(self: &Arc<Self>, from: Uuid, invoke: Invoke) {
        let wanted = invoke.invocation_id.filter(|_| !matches!(invoke.action, Some(Action::Void)));
        let answer = match serde_json::from_value::<About>(invoke.data) {
            Err(error) => Err(Fault::input(&invoke.function_id, &error)),
            Ok(about) => match self.router.announce(from, about) {
                Announced::Accepted(effects) => {
                    self.after(effects);
                    Ok(Some(json!({"success": true})))
                }
                Announced::InvalidNamespace => {
                    Err(Fault::new("INVALID_NAMESPACE", "a namespace is not blank; leave it out for the default one"))
                }
                Announced::Conflict => return,
            },
        };
        if let Err(fault) = &answer {
            tracing::warn!(%fault, "a worker could not announce itself");
        }
        if let Some(invocation_id) = wanted {
            let outbox = self.router.lock().sessions.get(&from).map(|session| session.outbox.clone());
            if let Some(outbox) = outbox {
                outbox.push(&super::calls::result(invocation_id, &invoke.function_id, answer));
            }
        }
    }
}

/// The call that a fired binding makes.
pub(super) fn trigger_call(target: &Target, data: Value) -> EngineCall {
    EngineCall {
        key: (target.namespace.clone(), target.function_id.clone()),
        data,
        metadata: target.metadata.clone(),
        traceparent: Some(ident::traceparent()),
        baggage: None,
    }
}
