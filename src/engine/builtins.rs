//! The functions and trigger types that the engine serves itself.
//!
//! Invariants
//! 1. Every function in the catalog is answered, and nothing is answered that is not in it.

use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, ready};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::bindings::{Provider, Target, TriggerType, TypeOwner};
use super::core::Core;
use super::fault::{Answer, Fault};
use super::listing;
use super::log;
use super::queue_delivery;
use super::router::Router;
use super::shell_jobs;
use super::trigger_calls;

/// A function: the worker it is listed under, its id, what it does, and the fields it needs and takes.
struct Entry(&'static str, &'static str, &'static str, &'static [&'static str], &'static [&'static str]);

const CATALOG: &[Entry] = &[
    Entry(
        "iii-engine-functions",
        "engine::workers::register",
        "Tells who a connection is.",
        &["name"],
        &["runtime", "version", "os", "pid", "description", "namespace", "isolation"],
    ),
    Entry(
        "iii-engine-functions",
        "engine::functions::list",
        "Lists functions.",
        &[],
        &["search", "prefix", "worker", "workers", "namespace", "include_internal"],
    ),
    Entry(
        "iii-engine-functions",
        "engine::functions::info",
        "Describes one function, or up to 32.",
        &[],
        &["function_id", "function_ids", "namespace"],
    ),
    Entry("iii-engine-functions", "engine::workers::list", "Lists workers.", &[], &["search", "runtime", "status"]),
    Entry("iii-engine-functions", "engine::workers::info", "Describes one worker.", &["name"], &["namespace"]),
    Entry(
        "iii-engine-functions",
        "engine::triggers::list",
        "Lists trigger types.",
        &[],
        &["search", "prefix", "worker", "include_internal"],
    ),
    Entry("iii-engine-functions", "engine::triggers::info", "Describes one trigger type.", &["id"], &["namespace"]),
    Entry(
        "iii-engine-functions",
        "engine::registered-triggers::list",
        "Lists bindings.",
        &[],
        &["search", "trigger_type", "function_id", "worker", "include_internal"],
    ),
    Entry("iii-engine-functions", "engine::registered-triggers::info", "Describes one binding.", &["id"], &[]),
    Entry(
        "iii-engine-functions",
        "engine::channels::create",
        "Makes a channel and gives both ends.",
        &[],
        &["buffer_size"],
    ),
    Entry(
        "iii-engine-functions",
        "engine::register_trigger",
        "Binds a function to a trigger type until the engine stops.",
        &["trigger_type", "function_id"],
        &["config", "metadata", "namespace", "trigger_namespace"],
    ),
    Entry("iii-engine-functions", "engine::unregister_trigger", "Drops a binding.", &["id"], &[]),
    Entry(
        "iii-observability",
        "engine::log::info",
        "Logs a line.",
        &["message"],
        &["data", "service_name", "trace_id", "span_id"],
    ),
    Entry(
        "iii-observability",
        "engine::log::warn",
        "Logs a warning.",
        &["message"],
        &["data", "service_name", "trace_id", "span_id"],
    ),
    Entry(
        "iii-observability",
        "engine::log::error",
        "Logs an error.",
        &["message"],
        &["data", "service_name", "trace_id", "span_id"],
    ),
    Entry(
        "iii-observability",
        "engine::log::debug",
        "Logs a line for developers.",
        &["message"],
        &["data", "service_name", "trace_id", "span_id"],
    ),
    Entry(
        "iii-observability",
        "engine::log::trace",
        "Logs a line of detail.",
        &["message"],
        &["data", "service_name", "trace_id", "span_id"],
    ),
    Entry("iii-state", "state::set", "Stores a value.", &["scope", "key", "value"], &[]),
    Entry("iii-state", "state::get", "Gives a value, or nothing.", &["scope", "key"], &[]),
    Entry("iii-state", "state::delete", "Deletes a value and gives it.", &["scope", "key"], &[]),
    Entry("iii-state", "state::update", "Applies operations to a value in one step.", &["scope", "key", "ops"], &[]),
    Entry("iii-state", "state::list", "Gives the values of a scope.", &["scope"], &[]),
    Entry("iii-state", "state::list_groups", "Gives the scopes.", &[], &[]),
    Entry(
        "configuration",
        "configuration::register",
        "Makes an entry with its schema, or renews it.",
        &["id", "name", "description", "schema"],
        &["initial_value", "metadata"],
    ),
    Entry("configuration", "configuration::set", "Replaces the value of an entry.", &["id", "value"], &[]),
    Entry(
        "configuration",
        "configuration::get",
        "Gives the value of an entry, its variables expanded.",
        &["id"],
        &["raw"],
    ),
    Entry("configuration", "configuration::list", "Lists the entries.", &[], &[]),
    Entry("configuration", "configuration::schema", "Describes one entry.", &["id"], &[]),
    Entry(
        "iii-queue",
        "engine::queue::enqueue",
        "Keeps a message until a function has taken it.",
        &["queue", "function_id"],
        &["data", "messageReceiptId", "namespace", "traceparent", "baggage"],
    ),
    Entry("iii-queue", "queue::define", "Makes a queue, or changes its settings.", &["queue"], &["config"]),
    Entry("iii-queue", "iii::queue::redrive", "Delivers all dead letters of a queue again.", &["queue"], &[]),
    Entry("iii-queue", "iii::queue::redrive_message", "Delivers one dead letter again.", &["queue", "message_id"], &[]),
    Entry("iii-queue", "iii::queue::discard_message", "Drops one dead letter.", &["queue", "message_id"], &[]),
    Entry("iii-queue", "engine::queue::list_topics", "Lists the queues.", &[], &[]),
    Entry("iii-queue", "engine::queue::topic_stats", "Tells how full a queue is.", &["topic"], &[]),
    Entry("iii-queue", "engine::queue::dlq_topics", "Lists the queues that have dead letters.", &[], &[]),
    Entry("iii-queue", "engine::queue::dlq_messages", "Lists the dead letters of a queue.", &["topic"], &[]),
    Entry(
        "shell",
        "shell::exec",
        "Runs a command to its end.",
        &["command"],
        &["args", "cwd", "timeout_ms", "env", "fs_scope"],
    ),
    Entry(
        "shell",
        "shell::exec_bg",
        "Starts a command.",
        &["command"],
        &["args", "cwd", "timeout_ms", "env", "fs_scope"],
    ),
    Entry("shell", "shell::status", "Tells how a started command is doing.", &["job_id"], &[]),
    Entry("shell", "shell::kill", "Kills a started command.", &["job_id"], &[]),
    Entry("shell", "shell::list", "Lists the started commands.", &[], &[]),
];

/// The engine's own workers, as they are listed.
pub(super) const WORKERS: &[(&str, &str)] = &[
    ("configuration", "Configuration entries with schemas, as files."),
    ("iii-cron", "Calls functions by the clock."),
    ("iii-engine-functions", "Tells of workers, functions and triggers."),
    ("iii-http", "Calls functions for HTTP requests."),
    ("iii-observability", "Takes log lines."),
    ("iii-queue", "Keeps messages until a function has taken them."),
    ("iii-state", "Values by scope and key."),
    ("iii-worker-manager", "Listens for workers."),
    ("shell", "Runs commands."),
];

fn schema(required: &[&str], optional: &[&str]) -> Value {
    let properties: Map<String, Value> =
        required.iter().chain(optional).map(|field| ((*field).to_owned(), json!({}))).collect();
    json!({"type": "object", "properties": properties, "required": required})
}

/// Puts the functions into the router.
pub(super) fn serve_functions(router: &Router) {
    for Entry(worker, id, description, required, optional) in CATALOG {
        router.serve(worker, id, description, (schema(required, optional), json!({})));
    }
}

/// A trigger type that needs no state of its own: its bindings are looked up when it fires.
struct Looked {
    /// Says what is wrong with a binding.
    check: fn(&Target) -> Result<(), String>,
}

impl Provider for Looked {
    fn bind(&self, target: &Target) -> Result<(), String> {
        (self.check)(target)
    }

    fn unbind(&self, _id: &str) {}
}

fn texts(target: &Target, names: &[&str]) -> Result<(), String> {
    let wrong = names.iter().find(|name| target.config.get(**name).is_some_and(|v| !v.is_string() && !v.is_null()));
    wrong.map_or(Ok(()), |name| Err(format!("{name} must be a string")))
}

fn check_configuration(target: &Target) -> Result<(), String> {
    texts(target, &["configuration_id", "condition_function_id"])?;
    match target.config.get("event_types") {
        None | Some(Value::Null) => Ok(()),
        Some(Value::Array(types)) if types.iter().all(Value::is_string) => Ok(()),
        Some(_) => Err("event_types must be an array of strings".to_owned()),
    }
}

/// Puts the trigger types into the router.
pub(super) fn provide_triggers(router: &Router, cron: Arc<dyn Provider>, http: Arc<dyn Provider>) {
    let looked = |check: fn(&Target) -> Result<(), String>| -> Arc<dyn Provider> { Arc::new(Looked { check }) };
    let types: [(Entry, Arc<dyn Provider>); 7] = [
        (
            Entry("iii-state", "state", "A state value changed.", &[], &["scope", "key", "condition_function_id"]),
            looked(|target| texts(target, &["scope", "key", "condition_function_id"])),
        ),
        (
            Entry(
                "configuration",
                "configuration",
                "A configuration entry changed.",
                &[],
                &["configuration_id", "event_types", "condition_function_id"],
            ),
            looked(check_configuration),
        ),
        (Entry("iii-cron", "cron", "The clock reached a tick.", &["expression"], &["condition_function_id"]), cron),
        (
            Entry(
                "iii-http",
                "http",
                "An HTTP request came.",
                &["api_path"],
                &["http_method", "condition_function_id"],
            ),
            http,
        ),
        (Entry("iii-observability", "log", "A line was logged.", &[], &["level"]), looked(log::check)),
        (
            Entry("iii-engine-functions", "engine::functions-available", "The set of functions changed.", &[], &[]),
            looked(|_| Ok(())),
        ),
        (
            Entry(
                "iii-engine-functions",
                "engine::workers-available",
                "A worker came, went or told who it is.",
                &[],
                &[],
            ),
            looked(|_| Ok(())),
        ),
    ];
    for (Entry(worker, id, description, required, optional), provider) in types {
        router.provide(
            id,
            TriggerType {
                owner: TypeOwner::Engine(worker, provider),
                description: description.to_owned(),
                config_schema: Some(schema(required, optional)),
                call_schema: None,
            },
        );
    }
}

/// Runs a function of the engine: what it decides is decided when this returns, the rest is awaited.
pub(super) fn perform(core: &Arc<Core>, from: Option<Uuid>, id: &str, data: Value) -> BoxFuture<'static, Answer> {
    let family = id.split("::").next().unwrap_or_default();
    match (family, id) {
        ("state", _) => match core.state.call(id, data) {
            Err(fault) => ready(Err(fault)).boxed(),
            Ok(pending) if core.store.is_committed(pending.number) => ready(Ok(pending.answer)).boxed(),
            Ok(pending) => {
                let core = core.clone();
                async move {
                    core.store.committed(pending.number).await?;
                    Ok(pending.answer)
                }
                .boxed()
            }
        },
        ("configuration", _) => {
            let answer = core.configuration.call(id, data);
            async move { answer.await.unwrap_or_else(|_| Err(stopping())) }.boxed()
        }
        ("queue" | "iii", _) => queue(core, id, data),
        (_, id) if id.starts_with("engine::queue::") => queue(core, id, data),
        ("shell", _) => shell_jobs::perform(core.clone(), id.to_owned(), data).boxed(),
        (_, "engine::register_trigger" | "engine::unregister_trigger") => trigger_calls::perform(core, from, id, data),
        (_, "engine::channels::create") => ready(core.channels.create(from, id, data)).boxed(),
        (_, id) if id.starts_with("engine::log::") => ready(log::perform(core, id, data)).boxed(),
        _ => ready(listing::perform(core, id, data)).boxed(),
    }
}

fn queue(core: &Arc<Core>, id: &str, data: Value) -> BoxFuture<'static, Answer> {
    let result = queue_delivery::perform(core, id, data);
    queue_delivery::settled(core.clone(), result).boxed()
}

fn stopping() -> Fault {
    Fault::new("invocation_stopped", "the engine is stopping")
}
