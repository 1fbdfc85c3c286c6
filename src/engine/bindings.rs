//! Trigger types and the bindings to them.
//!
//! A binding is parked while nobody provides its type, offered to the provider when somebody does, then live or
//! refused. A refused or parked binding is offered again when the type is registered again.
//!
//! Invariants
//! 1. A provider hears of a binding before it hears that the binding is gone, and only while it provides the type.
//! 2. A binding sent again under its id is an update: the provider gets it again, without an unregistration.
//! 3. A binding made by message ends with the session that made it; one made by call stays until it is
//!    unregistered or the engine stops.

use std::sync::Arc;

use serde_json::Value;
use tokio::sync::oneshot;
use uuid::Uuid;

use super::fault::Fault;
use super::message::{Message, RegisterTrigger, RegisterTriggerType};
use super::router::{DEFAULT_NAMESPACE, Key, Owner, Router, Tables};

/// A trigger type that the engine provides itself. Called under the router's lock: quick, and never back into it.
pub(super) trait Provider: Send + Sync {
    /// Takes a binding, new or changed, or says why not.
    fn bind(&self, binding: &Target) -> Result<(), String>;
    /// Forgets a binding.
    fn unbind(&self, id: &str);
}

/// A trigger type and who fires it.
pub(super) struct TriggerType {
    pub(super) owner: TypeOwner,
    pub(super) description: String,
    pub(super) config_schema: Option<Value>,
    pub(super) call_schema: Option<Value>,
}

/// Who fires a trigger type.
pub(super) enum TypeOwner {
    /// A connected worker.
    Worker(Uuid),
    /// The engine, under the name of one of its own workers.
    Engine(&'static str, Arc<dyn Provider>),
}

/// What is called when a binding fires.
#[derive(Debug, Clone)]
pub(super) struct Target {
    pub(super) id: String,
    pub(super) function_id: String,
    pub(super) namespace: String,
    pub(super) config: Value,
    pub(super) metadata: Option<Value>,
}

impl Target {
    /// A text setting of the binding.
    pub(super) fn setting(&self, name: &str) -> Option<&str> {
        self.config.get(name).and_then(Value::as_str)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Status {
    Offered,
    Live,
    Refused,
}

/// A binding of a function to a trigger type.
pub(super) struct Binding {
    pub(super) target: Target,
    pub(super) trigger_type: String,
    trigger_namespace: Option<String>,
    binder: Option<Uuid>,
    binder_namespace: String,
    /// The type it is attached to, and how far that went; nothing while parked.
    attached: Option<(Key, Status)>,
    /// Who waits for the provider's answer.
    reply: Option<oneshot::Sender<Result<(), Fault>>>,
}

impl Binding {
    /// Whether it is attached to this type and not refused.
    pub(super) fn counts_for(&self, key: &Key) -> bool {
        matches!(&self.attached, Some((attached, Status::Offered | Status::Live)) if attached == key)
    }

    /// Whether it is attached to its type and not refused.
    pub(super) fn is_registered(&self) -> bool {
        matches!(self.attached, Some((_, Status::Offered | Status::Live)))
    }
}

fn refusal(binding: &Binding, error: Value) -> Message {
    Message::TriggerRegistrationResult {
        id: binding.target.id.clone(),
        trigger_type: Some(binding.trigger_type.clone()),
        function_id: Some(binding.target.function_id.clone()),
        error: Some(error),
    }
}

fn answer(binding: &mut Binding, result: Result<(), Fault>) {
    if let Some(reply) = binding.reply.take()
        && reply.send(result).is_err()
    {
        tracing::debug!("nobody waits for this binding any more");
    }
}

impl Router {
    /// Takes the provider's word on a binding.
    pub(super) fn binding_answered(&self, provider: Uuid, id: &str, error: Option<Value>) {
        let mut tables = self.lock();
        let Some(key) = tables.bindings.get(id).and_then(|binding| binding.attached.as_ref().map(|a| a.0.clone()))
        else {
            return;
        };
        let provides = matches!(tables.types.get(&key).map(|t| &t.owner), Some(TypeOwner::Worker(w)) if *w == provider);
        if provides {
            tables.settle(id, &key, error);
        }
    }

    /// Binds without a session, so that the binding outlives its caller. The receiver hears the provider's answer;
    /// there is none for a binding that is parked.
    pub(super) fn bind_by_call(
        &self,
        caller_namespace: &str,
        message: RegisterTrigger,
    ) -> Result<Option<oneshot::Receiver<Result<(), Fault>>>, Fault> {
        let (sender, receiver) = oneshot::channel();
        let mut tables = self.lock();
        let id = message.id.clone();
        tables.insert(None, caller_namespace.to_owned(), message, Some(sender))?;
        let parked = tables.bindings.get(&id).is_some_and(|binding| binding.attached.is_none());
        Ok((!parked).then_some(receiver))
    }

    /// Drops a binding whoever made it. Says whether there was one.
    pub(super) fn unbind(&self, id: &str) -> bool {
        self.lock().remove_binding(id)
    }

    /// The live bindings of one of the engine's own trigger types.
    pub(super) fn targets(&self, trigger_type: &str, wanted: impl Fn(&Target) -> bool) -> Vec<Target> {
        let key = (DEFAULT_NAMESPACE.to_owned(), trigger_type.to_owned());
        let tables = self.lock();
        let Some(ids) = tables.attached.get(&key) else { return Vec::new() };
        ids.iter()
            .filter_map(|id| tables.bindings.get(id))
            .filter(|binding| binding.counts_for(&key) && wanted(&binding.target))
            .map(|binding| binding.target.clone())
            .collect()
    }

    /// The namespace of a session.
    pub(super) fn namespace_of(&self, id: Uuid) -> String {
        self.lock().sessions.get(&id).map_or_else(|| DEFAULT_NAMESPACE.to_owned(), |s| s.namespace.clone())
    }
}

impl Tables {
    pub(super) fn register_type(&mut self, provider: Uuid, message: RegisterTriggerType) {
        let limit = self.limits.functions_per_connection;
        let Some(session) = self.sessions.get_mut(&provider) else { return };
        let namespace = message.namespace.unwrap_or_else(|| session.namespace.clone());
        let key = (namespace.clone(), message.id.clone());
        let owner = match self.types.get(&key).map(|known| &known.owner) {
            Some(TypeOwner::Worker(owner)) if *owner == provider => None,
            Some(TypeOwner::Worker(owner)) => Some(owner.to_string()),
            Some(TypeOwner::Engine(worker, _)) => Some((*worker).to_owned()),
            None if session.registrations >= limit => {
                session.outbox.close("too many trigger types on one connection");
                return;
            }
            None => {
                session.registrations += 1;
                None
            }
        };
        if let Some(owner_worker_id) = owner {
            // SDKs take any code but this one as fatal.
            session.outbox.push(&Message::RegistrationRejected {
                code: "FUNCTION_NAMESPACE_CONFLICT".into(),
                namespace,
                worker_name: None,
                function_id: Some(message.id),
                owner_worker_id,
            });
            return;
        }
        self.types.insert(
            key.clone(),
            TriggerType {
                owner: TypeOwner::Worker(provider),
                description: message.description,
                config_schema: message.trigger_request_format,
                call_schema: message.call_request_format,
            },
        );
        let mut ids: Vec<String> = self.attached.get(&key).into_iter().flatten().cloned().collect();
        let parked: Vec<String> = self.parked.get(&key.1).into_iter().flatten().cloned().collect();
        ids.extend(
            parked
                .into_iter()
                .filter(|id| self.bindings.get(id).is_some_and(|binding| self.resolve(binding).as_ref() == Some(&key))),
        );
        for id in ids {
            self.attach(&id, &key);
        }
    }

    pub(super) fn unregister_type(&mut self, provider: Uuid, id: &str) {
        let Some(namespace) = self.sessions.get(&provider).map(|session| session.namespace.clone()) else { return };
        let key = (namespace, id.to_owned());
        if matches!(self.types.get(&key).map(|t| &t.owner), Some(TypeOwner::Worker(owner)) if *owner == provider) {
            self.drop_type(&key);
            if let Some(session) = self.sessions.get_mut(&provider) {
                session.registrations = session.registrations.saturating_sub(1);
            }
        }
    }

    pub(super) fn drop_types_of(&mut self, provider: Uuid) {
        let keys: Vec<Key> = self
            .types
            .iter()
            .filter(|(_, known)| matches!(known.owner, TypeOwner::Worker(owner) if owner == provider))
            .map(|(key, _)| key.clone())
            .collect();
        for key in keys {
            self.drop_type(&key);
        }
    }

    fn drop_type(&mut self, key: &Key) {
        self.types.remove(key);
        for id in self.attached.remove(key).unwrap_or_default() {
            if let Some(binding) = self.bindings.get_mut(&id) {
                binding.attached = None;
                answer(binding, Err(Fault::new("trigger_registration_failed", "the provider went away")));
                self.parked.entry(key.1.clone()).or_default().insert(id);
            }
        }
    }

    pub(super) fn register_binding(&mut self, binder: Uuid, message: RegisterTrigger) {
        let Some(session) = self.sessions.get(&binder) else { return };
        let namespace = session.namespace.clone();
        let refused = Message::TriggerRegistrationResult {
            id: message.id.clone(),
            trigger_type: Some(message.trigger_type.clone()),
            function_id: Some(message.function_id.clone()),
            error: None,
        };
        if let Err(fault) = self.insert(Some(binder), namespace, message, None)
            && let Some(session) = self.sessions.get(&binder)
            && let Message::TriggerRegistrationResult { id, trigger_type, function_id, .. } = refused
        {
            session.outbox.push(&Message::TriggerRegistrationResult {
                id,
                trigger_type,
                function_id,
                error: Some(fault.to_value()),
            });
        }
    }

    fn insert(
        &mut self,
        binder: Option<Uuid>,
        binder_namespace: String,
        message: RegisterTrigger,
        reply: Option<oneshot::Sender<Result<(), Fault>>>,
    ) -> Result<(), Fault> {
        let id = message.id.clone();
        let before = self.bindings.get(&id).and_then(|binding| binding.attached.clone());
        if !self.bindings.contains_key(&id) && self.bindings.len() >= self.limits.bindings {
            return Err(Fault::new(
                "trigger_registration_failed",
                format!(
                    "the engine holds {} bindings, which is its limit; unregister some first",
                    self.limits.bindings
                ),
            ));
        }
        let binding = Binding {
            target: Target {
                id: message.id,
                function_id: message.function_id,
                namespace: message.namespace.unwrap_or_else(|| DEFAULT_NAMESPACE.to_owned()),
                config: message.config,
                metadata: message.metadata,
            },
            trigger_type: message.trigger_type,
            trigger_namespace: message.trigger_namespace,
            binder,
            binder_namespace,
            attached: None,
            reply,
        };
        let resolved = self.resolve(&binding);
        if let Some((key, status)) = before {
            if resolved.as_ref() != Some(&key) {
                self.detach(&id, &key, status);
            }
        } else if let Some(old) = self.bindings.get(&id)
            && let Some(ids) = self.parked.get_mut(&old.trigger_type)
        {
            ids.remove(&id);
        }
        let type_id = binding.trigger_type.clone();
        self.bindings.insert(id.clone(), binding);
        match resolved {
            Some(key) => self.attach(&id, &key),
            None => {
                self.parked.entry(type_id).or_default().insert(id);
            }
        }
        Ok(())
    }

    /// The type a binding belongs to: the named namespace only, or the binder's first and then the engine's own.
    fn resolve(&self, binding: &Binding) -> Option<Key> {
        let places: &[&str] = match &binding.trigger_namespace {
            Some(namespace) => &[namespace.as_str()],
            None => &[binding.binder_namespace.as_str(), DEFAULT_NAMESPACE],
        };
        places
            .iter()
            .map(|place| ((*place).to_owned(), binding.trigger_type.clone()))
            .find(|key| self.types.contains_key(key))
    }

    /// Offers a binding to the provider of its type.
    fn attach(&mut self, id: &str, key: &Key) {
        let Some(binding) = self.bindings.get_mut(id) else { return };
        if let Some(ids) = self.parked.get_mut(&key.1) {
            ids.remove(id);
        }
        binding.attached = Some((key.clone(), Status::Offered));
        self.attached.entry(key.clone()).or_default().insert(id.to_owned());
        let error = match self.types.get(key).map(|known| &known.owner) {
            Some(TypeOwner::Worker(provider)) => {
                if let Some(session) = self.sessions.get(provider) {
                    let target = &binding.target;
                    session.outbox.push(&Message::RegisterTrigger(RegisterTrigger {
                        id: id.to_owned(),
                        trigger_type: key.1.clone(),
                        function_id: target.function_id.clone(),
                        config: target.config.clone(),
                        metadata: target.metadata.clone(),
                        namespace: (target.namespace != DEFAULT_NAMESPACE).then(|| target.namespace.clone()),
                        trigger_namespace: None,
                    }));
                }
                return;
            }
            Some(TypeOwner::Engine(_, provider)) => provider.bind(&binding.target).err(),
            None => return,
        };
        let error = error.map(|message| Fault::new("trigger_registration_failed", message).to_value());
        self.settle(id, key, error);
    }

    /// Makes an offered binding live or refused, and tells who waits for that.
    fn settle(&mut self, id: &str, key: &Key, error: Option<Value>) {
        let Some(binding) = self.bindings.get_mut(id) else { return };
        let Some(error) = error else {
            binding.attached = Some((key.clone(), Status::Live));
            answer(binding, Ok(()));
            return;
        };
        binding.attached = Some((key.clone(), Status::Refused));
        let fault = Fault::of_worker(&error);
        let text = if fault.code == "trigger_registration_failed" { fault.message } else { fault.to_string() };
        answer(binding, Err(Fault::new("trigger_registration_failed", text)));
        match binding.binder {
            Some(binder) => {
                let message = refusal(binding, error);
                if let Some(session) = self.sessions.get(&binder) {
                    session.outbox.push(&message);
                }
            }
            // Its caller got the refusal as an error, so there is nothing to keep.
            None => {
                self.remove_binding(id);
            }
        }
    }

    pub(super) fn unregister_binding(&mut self, binder: Uuid, id: &str) {
        if self.bindings.get(id).is_some_and(|binding| binding.binder == Some(binder)) {
            self.remove_binding(id);
        }
    }

    pub(super) fn drop_bindings_of(&mut self, binder: Uuid) {
        let ids: Vec<String> = self
            .bindings
            .iter()
            .filter(|(_, binding)| binding.binder == Some(binder))
            .map(|(id, _)| id.clone())
            .collect();
        for id in ids {
            self.remove_binding(&id);
        }
    }

    fn remove_binding(&mut self, id: &str) -> bool {
        let Some(binding) = self.bindings.remove(id) else { return false };
        match binding.attached {
            Some((key, status)) => self.detach(id, &key, status),
            None => {
                if let Some(ids) = self.parked.get_mut(&binding.trigger_type) {
                    ids.remove(id);
                    if ids.is_empty() {
                        self.parked.remove(&binding.trigger_type);
                    }
                }
            }
        }
        true
    }

    /// Takes a binding off its type; a provider that took it hears of it.
    fn detach(&mut self, id: &str, key: &Key, status: Status) {
        if let Some(ids) = self.attached.get_mut(key) {
            ids.remove(id);
            if ids.is_empty() {
                self.attached.remove(key);
            }
        }
        if status == Status::Refused {
            return;
        }
        match self.types.get(key).map(|known| &known.owner) {
            Some(TypeOwner::Worker(provider)) => {
                if let Some(session) = self.sessions.get(provider) {
                    session
                        .outbox
                        .push(&Message::UnregisterTrigger { id: id.to_owned(), trigger_type: Some(key.1.clone()) });
                }
            }
            Some(TypeOwner::Engine(_, provider)) => provider.unbind(id),
            None => {}
        }
    }

    /// The name of the worker behind a trigger type.
    pub(super) fn provider_name(&self, known: &TriggerType) -> Value {
        match known.owner {
            TypeOwner::Engine(worker, _) => Value::from(worker),
            TypeOwner::Worker(id) => self.worker_name(Owner::Worker(id)),
        }
    }
}
