//! `configuration::*`: entries with a schema, kept as YAML files.
//!
//! One thread owns the entries and their files. Calls reach it in order through a channel and are answered once
//! the file is on the disk; between calls it looks for edits made by others.
//!
//! Invariants
//! 1. An answered change is on the disk.
//! 2. A value that its schema refuses never becomes the value, whoever wrote it. A value with variables that have
//!    no value yet is accepted unchecked: `get` will say so.
//! 3. Schemas live as long as the engine: after a restart `set` is refused until the owner registers again.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::mpsc as blocking;
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};

use super::configuration_files::{Files, Stamp, Stored, is_id};
use super::error::EngineError;
use super::expand::expand;
use super::fault::{Answer, Fault};
use super::options::Limits;
use super::state::parse;

/// How often the files are looked at; a change is taken once it stood still for as long.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Something bindings may hear of.
#[derive(Debug)]
pub(super) struct ConfigurationEvent {
    pub(super) id: String,
    pub(super) event_type: &'static str,
    pub(super) payload: Value,
}

struct Request {
    function_id: String,
    data: Value,
    reply: oneshot::Sender<Answer>,
}

/// The way to the thread that owns the entries.
pub(super) struct Configuration {
    requests: Mutex<Option<blocking::Sender<Request>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Configuration {
    /// Reads every entry, or names the file that is none.
    pub(super) fn open(
        dir: &Path,
        events: mpsc::UnboundedSender<ConfigurationEvent>,
        limits: Limits,
    ) -> Result<Self, EngineError> {
        let failed = |action, path: &Path| {
            let path = path.to_owned();
            move |source| EngineError::Io { action, path, source }
        };
        let files = Files::open(dir.to_owned()).map_err(failed("open", dir))?;
        let mut entries = BTreeMap::new();
        for (id, stamp) in files.stamps().map_err(failed("read", dir))? {
            let stored = files.read(&id).map_err(|reason| EngineError::Store { path: files.path(&id), reason })?;
            entries.insert(id, Entry { stored, schema: None, stamp: Some(stamp) });
        }
        let (sender, receiver) = blocking::channel();
        let owner = Entries { files, entries, events, limits, changed: BTreeMap::new(), ignored: BTreeMap::new() };
        let thread = std::thread::Builder::new()
            .name("engine-configuration".to_owned())
            .spawn(move || owner.run(&receiver))
            .map_err(failed("start the owner of", dir))?;
        Ok(Self { requests: Mutex::new(Some(sender)), thread: Mutex::new(Some(thread)) })
    }

    /// Runs one of the functions. Calls take effect in the order in which this was called.
    pub(super) fn call(&self, function_id: &str, data: Value) -> oneshot::Receiver<Answer> {
        let (reply, receiver) = oneshot::channel();
        let request = Request { function_id: function_id.to_owned(), data, reply };
        let requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        if requests.as_ref().is_none_or(|requests| requests.send(request).is_err()) {
            tracing::debug!("a configuration call came after the engine stopped");
        }
        receiver
    }

    /// Ends the thread after what it has taken. Blocks.
    pub(super) fn close(&self) {
        *self.requests.lock().unwrap_or_else(PoisonError::into_inner) = None;
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if thread.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the owner of the configuration panicked");
        }
    }
}

struct Schema {
    source: Value,
    validator: jsonschema::Validator,
}

struct Entry {
    stored: Stored,
    schema: Option<Schema>,
    /// The file as it was last written or read.
    stamp: Option<Stamp>,
}

struct Entries {
    files: Files,
    entries: BTreeMap<String, Entry>,
    events: mpsc::UnboundedSender<ConfigurationEvent>,
    limits: Limits,
    /// Files that differ from what is known, as they looked last time.
    changed: BTreeMap<String, Stamp>,
    /// New files that are no entries, as they were found.
    ignored: BTreeMap<String, Stamp>,
}

#[derive(Deserialize)]
struct Register {
    id: String,
    name: String,
    description: String,
    schema: Value,
    #[serde(default, deserialize_with = "present")]
    initial_value: Option<Value>,
    #[serde(default)]
    metadata: Option<Value>,
}

#[derive(Deserialize)]
struct Set {
    id: String,
    value: Value,
}

#[derive(Deserialize)]
struct Get {
    id: String,
    #[serde(default)]
    raw: bool,
}

#[derive(Deserialize)]
struct Id {
    id: String,
}

/// Tells an explicit null from a field that is not there.
fn present<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

fn expanded(value: &Value) -> (Value, Vec<String>) {
    expand(value, &|name| std::env::var(name).ok())
}

fn not_found(id: &str) -> Fault {
    Fault::new("NOT_FOUND", format!("configuration '{id}' not found"))
}

/// Checks the value as readers will see it; one that cannot be expanded yet passes.
fn check(schema: &Schema, value: &Value) -> Result<(), Fault> {
    let (value, missing) = expanded(value);
    if !missing.is_empty() {
        return Ok(());
    }
    schema
        .validator
        .validate(&value)
        .map_err(|error| Fault::new("SCHEMA_INVALID", format!("schema validation failed: {error}")))
}

impl Entries {
    fn run(mut self, requests: &blocking::Receiver<Request>) {
        let mut looked = std::time::Instant::now();
        loop {
            let wait = LOOK_EVERY.saturating_sub(looked.elapsed());
            match requests.recv_timeout(wait) {
                Ok(Request { function_id, data, reply }) => {
                    let answer = self.answer(&function_id, data);
                    if reply.send(answer).is_err() {
                        tracing::debug!("a caller of the configuration is gone");
                    }
                }
                Err(blocking::RecvTimeoutError::Timeout) => {}
                Err(blocking::RecvTimeoutError::Disconnected) => return,
            }
            if looked.elapsed() >= LOOK_EVERY {
                self.look();
                looked = std::time::Instant::now();
            }
        }
    }

    fn answer(&mut self, function_id: &str, data: Value) -> Answer {
        match function_id {
            "configuration::register" => self.register(parse(function_id, data)?),
            "configuration::set" => self.set(parse(function_id, data)?),
            "configuration::get" => self.get(&parse(function_id, data)?),
            "configuration::schema" => {
                let Id { id } = parse(function_id, data)?;
                let entry = self.entries.get(&id).ok_or_else(|| not_found(&id))?;
                Ok(Some(view(entry, false)))
            }
            _ => {
                let all: Vec<Value> = self.entries.values().map(|entry| view(entry, false)).collect();
                Ok(Some(json!({ "configurations": all })))
            }
        }
    }

    fn register(&mut self, register: Register) -> Answer {
        let Register { id, name, description, schema, initial_value, metadata } = register;
        if !is_id(&id) {
            let text = format!("invalid configuration id '{id}': must match [a-z0-9_-]{{1,64}}");
            return Err(Fault::new("INVALID_ID", text));
        }
        let validator = jsonschema::validator_for(&schema)
            .map_err(|error| Fault::new("SCHEMA_INVALID", format!("the schema is not a JSON Schema: {error}")))?;
        let schema = Schema { source: schema, validator };
        if let Some(value) = &initial_value {
            check(&schema, value)?;
        }
        let known = self.entries.get(&id);
        if known.is_none() && self.entries.len() >= self.limits.configurations {
            let text = format!("the engine holds {} entries, which is its limit", self.limits.configurations);
            return Err(Fault::new("TOO_MANY", text));
        }
        let old = known.map(|entry| entry.stored.value.clone());
        let event_type = if known.is_some() { "configuration:updated" } else { "configuration:registered" };
        let value = initial_value.or_else(|| old.clone()).unwrap_or_default();
        let stored = Stored { id: id.clone(), name, description, value, metadata };
        let stamp = self.write(&stored)?;
        self.entries.insert(id.clone(), Entry { stored, schema: Some(schema), stamp: Some(stamp) });
        self.tell(&id, event_type, old);
        Ok(self.entries.get(&id).map(|entry| view(entry, true)))
    }

    fn set(&mut self, Set { id, value }: Set) -> Answer {
        let Some(entry) = self.entries.get(&id) else {
            let text = format!("configuration '{id}' is not registered; call configuration::register first");
            return Err(Fault::new("NOT_REGISTERED", text));
        };
        let Some(schema) = &entry.schema else {
            let text = format!("configuration '{id}' has no schema until its owner registers it again");
            return Err(Fault::new("SCHEMA_UNAVAILABLE", text));
        };
        check(schema, &value)?;
        let stored = Stored { value: value.clone(), ..entry.stored.clone() };
        let stamp = self.write(&stored)?;
        let mut old = Value::Null;
        if let Some(entry) = self.entries.get_mut(&id) {
            old = std::mem::replace(&mut entry.stored, stored).value;
            entry.stamp = Some(stamp);
        }
        self.tell(&id, "configuration:updated", Some(old.clone()));
        Ok(Some(json!({"old_value": old, "new_value": value})))
    }

    fn get(&self, Get { id, raw }: &Get) -> Answer {
        let entry = self.entries.get(id).ok_or_else(|| not_found(id))?;
        if *raw {
            return Ok(Some(json!({"id": id, "value": entry.stored.value})));
        }
        let (value, missing) = expanded(&entry.stored.value);
        if !missing.is_empty() {
            let text = format!("configuration '{id}' needs the environment variables {}", missing.join(", "));
            return Err(Fault::new("EXPAND_FAILED", text));
        }
        if let Some(schema) = &entry.schema {
            check(schema, &value)?;
        }
        Ok(Some(json!({"id": id, "value": value})))
    }

    fn write(&self, stored: &Stored) -> Result<Stamp, Fault> {
        let bytes = serde_json::to_vec(stored).map_or(usize::MAX, |json| json.len());
        if bytes > self.limits.configuration_bytes {
            let text = format!("the entry has {bytes} bytes, the limit is {}", self.limits.configuration_bytes);
            return Err(Fault::new("VALUE_TOO_LARGE", text));
        }
        self.files.write(stored).map_err(|error| {
            let path = self.files.path(&stored.id);
            Fault::new("WRITE_FAILED", format!("{} could not be written: {error}", path.display()))
        })
    }

    fn tell(&self, id: &str, event_type: &'static str, old: Option<Value>) {
        let Some(entry) = self.entries.get(id) else { return };
        let payload = json!({
            "type": "configuration",
            "event_type": event_type,
            "id": id,
            "name": entry.stored.name,
            "description": entry.stored.description,
            "schema": entry.schema.as_ref().map(|schema| &schema.source),
            "old_value": old.map(|old| expanded(&old).0),
            "new_value": expanded(&entry.stored.value).0,
        });
        if self.events.send(ConfigurationEvent { id: id.to_owned(), event_type, payload }).is_err() {
            tracing::debug!("a configuration event came after the engine stopped");
        }
    }

    /// Takes edits made by others, once they stood still between two looks.
    fn look(&mut self) {
        let stamps = match self.files.stamps() {
            Ok(stamps) => stamps,
            Err(error) => return tracing::warn!(%error, "the configuration files cannot be looked at"),
        };
        let before = std::mem::take(&mut self.changed);
        for (id, stamp) in stamps {
            if self.entries.get(&id).and_then(|entry| entry.stamp) == Some(stamp)
                || self.ignored.get(&id) == Some(&stamp)
            {
                continue;
            }
            if before.get(&id) == Some(&stamp) {
                self.take_edit(&id, stamp);
            } else {
                self.changed.insert(id, stamp);
            }
        }
    }

    fn take_edit(&mut self, id: &str, stamp: Stamp) {
        let read = self.files.read(id).and_then(|stored| {
            if let Some(schema) = self.entries.get(id).and_then(|entry| entry.schema.as_ref()) {
                check(schema, &stored.value).map_err(|fault| fault.message)?;
            }
            Ok(stored)
        });
        // Whatever the file holds, it is looked at again only after another change.
        let entry = self.entries.get_mut(id);
        match (read, entry) {
            (Err(reason), Some(entry)) => {
                tracing::warn!(id, reason, "an edit of a configuration file is not valid; it is ignored");
                entry.stamp = Some(stamp);
            }
            (Err(reason), None) => {
                tracing::warn!(id, reason, "a new configuration file is not valid; it is ignored");
                self.ignored.insert(id.to_owned(), stamp);
            }
            (Ok(stored), Some(entry)) => {
                entry.stamp = Some(stamp);
                if entry.stored != stored {
                    let old = std::mem::replace(&mut entry.stored, stored).value;
                    self.tell(id, "configuration:updated", Some(old));
                }
            }
            (Ok(stored), None) => {
                self.entries.insert(id.to_owned(), Entry { stored, schema: None, stamp: Some(stamp) });
                self.tell(id, "configuration:registered", None);
            }
        }
    }
}

fn view(entry: &Entry, with_value: bool) -> Value {
    let Stored { id, name, description, value, metadata } = &entry.stored;
    let schema = entry.schema.as_ref().map(|schema| &schema.source);
    let mut view = json!({"id": id, "name": name, "description": description, "schema": schema});
    if with_value {
        view["value"] = value.clone();
    }
    if let Some(metadata) = metadata {
        view["metadata"] = metadata.clone();
    }
    view
}
