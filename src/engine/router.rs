//! Who is connected, what they registered, and who waits for whom.
//!
//! One mutex guards all of it and is held briefly: nothing awaits, reads a file or writes a large frame under it.
//! This file owns the tables and the life of a session; `calls` owns invocations, `bindings` owns triggers,
//! `listing` reads. The router is the inner lock: code that holds it may take only the locks of trigger providers.
//!
//! Invariants
//! 1. A worker name has one live owner per namespace, and so has a function id.
//! 2. When a session ends, its functions, bindings, trigger types and calls end with it, in one step.
//! 3. Registrations of a session take effect in the order in which they were sent, and not before its namespace
//!    is known or the grace is over.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Deserialize;
use serde_json::Value;
use uuid::Uuid;

use super::bindings::{Binding, TriggerType};
use super::calls::Call;
use super::ident;
use super::message::{Message, RegisterFunction};
use super::options::Limits;
use super::outbox::Outbox;

/// The namespace of everything that names none.
pub(super) const DEFAULT_NAMESPACE: &str = "default";
/// How many registrations may wait for the namespace of their session.
const MAX_WAITING: usize = 200_000;

/// A function id or trigger type in its namespace.
pub(super) type Key = (String, String);

/// What a worker tells of itself.
#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct About {
    #[serde(default)]
    pub(super) name: String,
    #[serde(default)]
    pub(super) runtime: Option<String>,
    #[serde(default)]
    pub(super) version: Option<String>,
    #[serde(default)]
    pub(super) os: Option<String>,
    #[serde(default)]
    pub(super) pid: Option<u64>,
    #[serde(default)]
    pub(super) description: Option<String>,
    #[serde(default)]
    pub(super) isolation: Option<String>,
    #[serde(default)]
    pub(super) namespace: Option<String>,
}

/// One connection of a worker.
pub(super) struct Session {
    pub(super) outbox: Outbox,
    token: String,
    pub(super) address: IpAddr,
    pub(super) connected_at_ms: i64,
    /// Registrations that wait for the namespace; nothing once it is known.
    waiting: Option<Vec<Message>>,
    pub(super) about: About,
    pub(super) namespace: String,
    /// Calls this worker has made that are not answered yet.
    pub(super) active: usize,
    /// Place in the order of connection.
    pub(super) order: u64,
    /// Functions and trigger types it has registered.
    pub(super) registrations: usize,
}

/// A function and who serves it.
pub(super) struct Function {
    pub(super) owner: Owner,
    pub(super) description: Option<String>,
    pub(super) request_schema: Option<Value>,
    pub(super) response_schema: Option<Value>,
    pub(super) metadata: Option<Value>,
}

/// Who serves a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Owner {
    /// A connected worker.
    Worker(Uuid),
    /// The engine, under the name of one of its own workers.
    Engine(&'static str),
}

/// What is left to do after the lock is released.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// A function can be called now.
    FunctionAppeared(Key),
    /// The set of functions changed.
    FunctionsChanged,
    /// Something happened to a worker.
    Worker(&'static str, Uuid),
}

/// What became of an announcement.
pub(super) enum Announced {
    /// The worker has its name.
    Accepted(Vec<Effect>),
    /// Another worker has it; the connection is being closed.
    Conflict,
    /// The namespace is blank.
    InvalidNamespace,
}

pub(super) struct Tables {
    pub(super) limits: Limits,
    pub(super) sessions: HashMap<Uuid, Session>,
    names: HashMap<Key, Uuid>,
    pub(super) functions: BTreeMap<Key, Function>,
    pub(super) calls: HashMap<Uuid, Call>,
    pub(super) types: BTreeMap<Key, TriggerType>,
    pub(super) bindings: BTreeMap<String, Binding>,
    /// Bindings by the trigger type they are attached to.
    pub(super) attached: HashMap<Key, BTreeSet<String>>,
    /// Bindings whose trigger type is not there, by its id.
    pub(super) parked: HashMap<String, BTreeSet<String>>,
    next_order: u64,
    /// Calls whose end only the log hears of.
    pub(super) logged: usize,
}

/// The tables behind their lock.
pub(super) struct Router {
    tables: Mutex<Tables>,
    /// Bytes of the largest message that any client has to take.
    pub(super) message_bytes: usize,
}

impl Router {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            message_bytes: limits.message_bytes,
            tables: Mutex::new(Tables {
                limits,
                sessions: HashMap::new(),
                names: HashMap::new(),
                functions: BTreeMap::new(),
                calls: HashMap::new(),
                types: BTreeMap::new(),
                bindings: BTreeMap::new(),
                attached: HashMap::new(),
                parked: HashMap::new(),
                next_order: 0,
                logged: 0,
            }),
        }
    }

    /// The tables. Hold them briefly.
    pub(super) fn lock(&self) -> MutexGuard<'_, Tables> {
        // A panic under the lock is a bug; the tables are still the best there is.
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Admits a connection and greets it.
    pub(super) fn open(&self, address: IpAddr, outbox: Outbox) -> Uuid {
        let id = ident::fresh();
        let token = ident::fresh().to_string();
        let mut tables = self.lock();
        tables.next_order += 1;
        outbox.push(&Message::WorkerRegistered { worker_id: id, reattach_token: token.clone() });
        let session = Session {
            outbox,
            token,
            address,
            connected_at_ms: ident::now_ms(),
            waiting: Some(Vec::new()),
            about: About::default(),
            namespace: DEFAULT_NAMESPACE.to_owned(),
            active: 0,
            order: tables.next_order,
            registrations: 0,
        };
        tables.sessions.insert(id, session);
        id
    }

    /// Ends a session and everything that lived with it. Ending it twice does nothing.
    pub(super) fn close(&self, id: Uuid) -> Vec<Effect> {
        self.lock().close(id)
    }

    /// Ends the previous connection of a worker that came back, if it knows that connection's secret.
    pub(super) fn reattach(&self, id: Uuid, previous: Uuid, token: Option<&str>) -> Vec<Effect> {
        let mut tables = self.lock();
        let matches = previous != id
            && tables.sessions.get(&previous).is_some_and(|session| Some(session.token.as_str()) == token);
        if !matches {
            return Vec::new();
        }
        if let Some(session) = tables.sessions.get(&previous) {
            session.outbox.condemn();
        }
        tables.close(previous)
    }

    /// Takes a registration message: now, or once the namespace is known.
    pub(super) fn register(&self, id: Uuid, message: Message) -> Vec<Effect> {
        let mut tables = self.lock();
        let Some(session) = tables.sessions.get_mut(&id) else { return Vec::new() };
        match &mut session.waiting {
            Some(waiting) if waiting.len() >= MAX_WAITING => {
                session.outbox.close("too many registrations before engine::workers::register");
                Vec::new()
            }
            Some(waiting) => {
                waiting.push(message);
                Vec::new()
            }
            None => {
                let mut effects = Vec::new();
                tables.apply(id, message, &mut effects);
                effects
            }
        }
    }

    /// Lets waiting registrations take effect although the worker never announced itself.
    pub(super) fn release(&self, id: Uuid) -> Vec<Effect> {
        self.lock().release(id)
    }

    /// Whether another connection holds the name that a worker is about to take.
    pub(super) fn is_taken(&self, id: Uuid, about: &About) -> bool {
        let tables = self.lock();
        let Some(session) = tables.sessions.get(&id) else { return false };
        let namespace = match about.namespace.as_deref() {
            Some(text) if session.waiting.is_some() => text.to_owned(),
            _ => session.namespace.clone(),
        };
        let owner = tables.names.get(&(namespace, about.name.clone()));
        !about.name.is_empty() && owner.is_some_and(|owner| *owner != id)
    }

    /// Gives a worker its name and namespace, and lets its registrations take effect.
    pub(super) fn announce(&self, id: Uuid, about: About) -> Announced {
        let mut tables = self.lock();
        let Some(session) = tables.sessions.get(&id) else { return Announced::Accepted(Vec::new()) };
        let known = session.waiting.is_none();
        // The namespace is settled once: what is registered already lives in it.
        let namespace = match about.namespace.as_deref() {
            Some(text) if text.trim().is_empty() => return Announced::InvalidNamespace,
            Some(text) if !known => text.to_owned(),
            _ => session.namespace.clone(),
        };
        let key = (namespace.clone(), about.name.clone());
        if !about.name.is_empty() {
            if let Some(owner) = tables.names.get(&key).filter(|owner| **owner != id) {
                session.outbox.push(&Message::RegistrationRejected {
                    code: "WORKER_NAMESPACE_CONFLICT".into(),
                    namespace,
                    worker_name: Some(about.name),
                    function_id: None,
                    owner_worker_id: owner.to_string(),
                });
                session.outbox.close("another worker holds this name");
                return Announced::Conflict;
            }
            let old = (session.namespace.clone(), session.about.name.clone());
            tables.names.retain(|name, owner| *owner != id || *name != old);
            tables.names.insert(key, id);
        }
        if let Some(session) = tables.sessions.get_mut(&id) {
            session.about = About { description: about.description.as_deref().map(clean), ..about };
            session.namespace = namespace;
        }
        let mut effects = tables.release(id);
        effects.push(Effect::Worker("worker_metadata_updated", id));
        Announced::Accepted(effects)
    }

    /// Serves a function from the engine itself. For the start only.
    pub(super) fn serve(&self, worker: &'static str, id: &str, description: &str, schemas: (Value, Value)) {
        self.lock().functions.insert(
            (DEFAULT_NAMESPACE.to_owned(), id.to_owned()),
            Function {
                owner: Owner::Engine(worker),
                description: Some(description.to_owned()),
                request_schema: Some(schemas.0),
                response_schema: Some(schemas.1),
                metadata: None,
            },
        );
    }

    /// Serves a trigger type from the engine itself. For the start only.
    pub(super) fn provide(&self, id: &str, trigger_type: TriggerType) {
        self.lock().types.insert((DEFAULT_NAMESPACE.to_owned(), id.to_owned()), trigger_type);
    }

    /// Every live connection's outbox, to close them all.
    pub(super) fn outboxes(&self) -> Vec<Outbox> {
        self.lock().sessions.values().map(|session| session.outbox.clone()).collect()
    }
}

/// One line of at most 280 characters.
fn clean(description: &str) -> String {
    description.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(280).collect()
}

impl Tables {
    fn close(&mut self, id: Uuid) -> Vec<Effect> {
        let Some(session) = self.sessions.remove(&id) else { return Vec::new() };
        self.names.retain(|_, owner| *owner != id);
        let before = self.functions.len();
        self.functions.retain(|_, function| function.owner != Owner::Worker(id));
        self.end_calls_of(id);
        self.drop_bindings_of(id);
        self.drop_types_of(id);
        session.outbox.close("the session ended");
        let mut effects = vec![Effect::Worker("worker_disconnected", id)];
        if self.functions.len() != before {
            effects.push(Effect::FunctionsChanged);
        }
        effects
    }

    fn release(&mut self, id: Uuid) -> Vec<Effect> {
        let mut effects = Vec::new();
        let waiting = self.sessions.get_mut(&id).and_then(|session| session.waiting.take());
        for message in waiting.unwrap_or_default() {
            self.apply(id, message, &mut effects);
        }
        effects
    }

    fn apply(&mut self, id: Uuid, message: Message, effects: &mut Vec<Effect>) {
        match message {
            Message::RegisterFunction(function) => self.register_function(id, function, effects),
            Message::UnregisterFunction { id: function } => {
                let Some(namespace) = self.sessions.get(&id).map(|session| session.namespace.clone()) else { return };
                let key = (namespace, function);
                if self.functions.get(&key).is_some_and(|function| function.owner == Owner::Worker(id)) {
                    self.functions.remove(&key);
                    effects.push(Effect::FunctionsChanged);
                    if let Some(session) = self.sessions.get_mut(&id) {
                        session.registrations = session.registrations.saturating_sub(1);
                    }
                }
            }
            Message::RegisterTriggerType(message) => self.register_type(id, message),
            Message::UnregisterTriggerType { id: type_id } => self.unregister_type(id, &type_id),
            Message::RegisterTrigger(message) => self.register_binding(id, message),
            Message::UnregisterTrigger { id: binding, .. } => self.unregister_binding(id, &binding),
            _ => {}
        }
    }

    fn register_function(&mut self, id: Uuid, function: RegisterFunction, effects: &mut Vec<Effect>) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        if function.invocation.is_some() {
            tracing::warn!(id = function.id, "a function served over HTTP is not supported; it is not registered");
            return;
        }
        let namespace = session.namespace.clone();
        let key = (namespace.clone(), function.id.clone());
        let owner = match self.functions.get(&key).map(|known| known.owner) {
            Some(Owner::Worker(owner)) if owner == id => None,
            Some(Owner::Worker(owner)) => Some(owner.to_string()),
            Some(Owner::Engine(worker)) => Some(worker.to_owned()),
            // The ids of the engine exist in its own namespace only.
            None if function.id.starts_with("engine::") && namespace != DEFAULT_NAMESPACE => Some(String::new()),
            None => {
                if session.registrations >= self.limits.functions_per_connection {
                    session.outbox.close("too many functions on one connection");
                    return;
                }
                session.registrations += 1;
                None
            }
        };
        if let Some(owner_worker_id) = owner {
            session.outbox.push(&Message::RegistrationRejected {
                code: "FUNCTION_NAMESPACE_CONFLICT".into(),
                namespace,
                worker_name: None,
                function_id: Some(function.id),
                owner_worker_id,
            });
            return;
        }
        self.functions.insert(
            key.clone(),
            Function {
                owner: Owner::Worker(id),
                description: function.description,
                request_schema: function.request_format,
                response_schema: function.response_format,
                metadata: function.metadata,
            },
        );
        effects.push(Effect::FunctionAppeared(key));
        effects.push(Effect::FunctionsChanged);
    }

    /// The name under which a function's owner is listed.
    pub(super) fn worker_name(&self, owner: Owner) -> Value {
        match owner {
            Owner::Engine(worker) => Value::from(worker),
            Owner::Worker(id) => match self.sessions.get(&id) {
                Some(session) if !session.about.name.is_empty() => Value::from(session.about.name.as_str()),
                _ => Value::Null,
            },
        }
    }
}

/// The shared router.
pub(super) type SharedRouter = Arc<Router>;
