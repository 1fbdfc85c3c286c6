//! What there is: functions, workers, trigger types, bindings.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Value, json};

use super::bindings::Binding;
use super::builtins::WORKERS;
use super::core::Core;
use super::fault::{Answer, Fault};
use super::router::{DEFAULT_NAMESPACE, Function, Key, Owner, Session, Tables};
use super::state::parse;

/// How many functions one call describes.
const MAX_INFOS: usize = 32;

#[derive(Deserialize, Default)]
#[serde(default)]
struct Filter {
    search: Option<String>,
    prefix: Option<String>,
    worker: Option<String>,
    workers: Option<Vec<String>>,
    namespace: Option<String>,
    runtime: Option<String>,
    status: Option<String>,
    trigger_type: Option<String>,
    function_id: Option<String>,
    include_internal: bool,
}

impl Filter {
    fn finds(&self, texts: &[&str]) -> bool {
        let Some(search) = self.search.as_deref().filter(|search| !search.is_empty()) else { return true };
        let search = search.to_lowercase();
        texts.iter().any(|text| text.to_lowercase().contains(&search))
    }

    fn wants_worker(&self, name: &Value) -> bool {
        let name = name.as_str().unwrap_or_default();
        self.worker.as_deref().is_none_or(|worker| worker == name)
            && self.workers.as_ref().is_none_or(|workers| workers.iter().any(|worker| worker == name))
    }
}

#[derive(Deserialize)]
struct FunctionInfo {
    #[serde(default)]
    function_id: Option<String>,
    #[serde(default)]
    function_ids: Option<Vec<String>>,
    #[serde(default)]
    namespace: Option<String>,
}

#[derive(Deserialize)]
struct Named {
    name: String,
    #[serde(default)]
    namespace: Option<String>,
}

#[derive(Deserialize)]
struct Id {
    id: String,
    #[serde(default)]
    namespace: Option<String>,
}

/// Runs one of the functions.
pub(super) fn perform(core: &Arc<Core>, function_id: &str, data: Value) -> Answer {
    let tables = core.router.lock();
    // No input is an empty filter.
    let filter = |data: Value| -> Result<Filter, Fault> {
        if data.is_null() { Ok(Filter::default()) } else { parse(function_id, data) }
    };
    let answer = match function_id {
        "engine::functions::list" => json!({"functions": functions(&tables, &filter(data)?)}),
        "engine::functions::info" => function_info(&tables, parse(function_id, data)?)?,
        "engine::workers::list" => json!({"workers": workers(&tables, &filter(data)?)}),
        "engine::workers::info" => worker_info(&tables, &parse(function_id, data)?)?,
        "engine::triggers::list" => json!({"triggers": trigger_types(&tables, &filter(data)?)}),
        "engine::triggers::info" => trigger_info(&tables, parse(function_id, data)?)?,
        "engine::registered-triggers::list" => json!({"registered_triggers": bindings(&tables, &filter(data)?)}),
        "engine::registered-triggers::info" => {
            let Id { id, .. } = parse(function_id, data)?;
            let found = tables.bindings.get(&id).filter(|binding| binding.is_registered());
            let missing = || Fault::new("NOT_FOUND", format!("Trigger '{id}' is not registered."));
            binding_view(&tables, found.ok_or_else(missing)?)
        }
        _ => return Err(Fault::new("function_not_found", format!("Function {function_id} is not served here."))),
    };
    Ok(Some(answer))
}

/// Puts a field in when there is something to put.
fn put(map: &mut Value, field: &str, value: Option<Value>) {
    if let Some(value) = value {
        map[field] = value;
    }
}

fn is_internal(key: &Key, function: &Function) -> bool {
    let marked = function.metadata.as_ref().and_then(|metadata| metadata.get("internal")) == Some(&Value::Bool(true));
    marked || (key.1.starts_with("engine::") && !key.1.starts_with("engine::queue::"))
}

fn function_view(tables: &Tables, key: &Key, function: &Function) -> Value {
    let mut view = json!({
        "function_id": key.1,
        "namespace": key.0,
        "worker_name": tables.worker_name(function.owner),
    });
    put(&mut view, "description", function.description.clone().map(Value::String));
    put(&mut view, "metadata", function.metadata.clone());
    view
}

/// The functions a filter lets through, best matches first.
fn functions(tables: &Tables, filter: &Filter) -> Vec<Value> {
    let search = filter.search.as_deref().unwrap_or_default().to_lowercase();
    let mut found: Vec<(bool, &str, Value)> = tables
        .functions
        .iter()
        .filter(|(key, function)| {
            (filter.include_internal || !is_internal(key, function))
                && filter.prefix.as_deref().is_none_or(|prefix| key.1.starts_with(prefix))
                && filter.namespace.as_deref().is_none_or(|namespace| namespace == key.0)
                && filter.wants_worker(&tables.worker_name(function.owner))
                && filter.finds(&[&key.1, function.description.as_deref().unwrap_or_default()])
        })
        .map(|(key, function)| {
            let weaker = !key.1.to_lowercase().contains(&search);
            (weaker, key.1.as_str(), function_view(tables, key, function))
        })
        .collect();
    found.sort_by(|a, b| (a.0, a.1).cmp(&(b.0, b.1)));
    found.into_iter().map(|(_, _, view)| view).collect()
}

fn describe(tables: &Tables, key: &Key) -> Option<Value> {
    let function = tables.functions.get(key)?;
    let mut view = function_view(tables, key, function);
    put(&mut view, "request_schema", function.request_schema.clone());
    put(&mut view, "response_schema", function.response_schema.clone());
    let bound: Vec<Value> = tables
        .bindings
        .values()
        .filter(|binding| binding.is_registered())
        .filter(|binding| binding.target.function_id == key.1 && binding.target.namespace == key.0)
        .map(|binding| {
            let target = &binding.target;
            json!({"id": target.id, "trigger_type": binding.trigger_type, "config": target.config})
        })
        .collect();
    view["registered_triggers"] = Value::Array(bound);
    Some(view)
}

fn function_info(tables: &Tables, info: FunctionInfo) -> Result<Value, Fault> {
    let namespace = info.namespace.unwrap_or_else(|| DEFAULT_NAMESPACE.to_owned());
    if let Some(ids) = info.function_ids {
        if ids.len() > MAX_INFOS {
            return Err(Fault::new("INVALID_ARGUMENTS", format!("at most {MAX_INFOS} functions at once")));
        }
        let all: Vec<Value> = ids
            .into_iter()
            .map(|id| {
                let key = (namespace.clone(), id);
                describe(tables, &key).unwrap_or_else(|| json!({"function_id": key.1, "error": "not_found"}))
            })
            .collect();
        return Ok(json!({ "functions": all }));
    }
    let id =
        info.function_id.ok_or_else(|| Fault::new("INVALID_ARGUMENTS", "function_id or function_ids is needed"))?;
    let key = (namespace, id);
    describe(tables, &key).ok_or_else(|| Fault::new("NOT_FOUND", format!("Function '{}' is not registered.", key.1)))
}

fn engine_worker(tables: &Tables, name: &str, description: &str) -> Value {
    let served = tables.functions.values().filter(|f| matches!(f.owner, Owner::Engine(worker) if worker == name));
    json!({
        "active_invocations": 0, "connected_at_ms": 0, "description": description, "function_count": served.count(),
        "id": name, "ip_address": null, "isolation": "in-process", "name": name, "namespace": DEFAULT_NAMESPACE,
        "os": null, "runtime": "engine", "status": "available", "version": env!("CARGO_PKG_VERSION"),
    })
}

fn session_view(tables: &Tables, id: uuid::Uuid, session: &Session) -> Value {
    let about = &session.about;
    let served = tables.functions.values().filter(|function| function.owner == Owner::Worker(id)).count();
    json!({
        "active_invocations": session.active, "connected_at_ms": session.connected_at_ms,
        "description": about.description, "function_count": served, "id": id.to_string(),
        "ip_address": session.address.to_string(), "isolation": about.isolation, "name": about.name,
        "namespace": session.namespace, "os": about.os, "runtime": about.runtime, "status": "connected",
        "version": about.version,
    })
}

fn workers(tables: &Tables, filter: &Filter) -> Vec<Value> {
    let mut sessions: Vec<_> = tables.sessions.iter().filter(|(_, session)| session.about.pid.is_some()).collect();
    sessions.sort_by_key(|(_, session)| session.order);
    let own = WORKERS.iter().map(|(name, description)| engine_worker(tables, name, description));
    let connected = sessions.into_iter().map(|(id, session)| session_view(tables, *id, session));
    own.chain(connected)
        .filter(|view| {
            let text = |field: &str| view[field].as_str().unwrap_or_default();
            filter.finds(&[text("name"), text("description"), text("id")])
                && filter.runtime.as_deref().is_none_or(|runtime| runtime == text("runtime"))
                && filter.status.as_deref().is_none_or(|status| status == text("status"))
                && filter.namespace.as_deref().is_none_or(|namespace| namespace == text("namespace"))
        })
        .collect()
}

fn worker_info(tables: &Tables, named: &Named) -> Result<Value, Fault> {
    let namespace = named.namespace.as_deref().unwrap_or(DEFAULT_NAMESPACE);
    let session =
        tables.sessions.iter().find(|(_, session)| session.about.name == named.name && session.namespace == namespace);
    let own = WORKERS.iter().find(|(name, _)| *name == named.name && namespace == DEFAULT_NAMESPACE);
    let (worker, owner) = match (session, own) {
        (Some((id, session)), _) => (session_view(tables, *id, session), Owner::Worker(*id)),
        (None, Some((name, description))) => (engine_worker(tables, name, description), Owner::Engine(name)),
        (None, None) => {
            let text = format!("Worker '{}' is not connected to namespace {namespace}.", named.name);
            return Err(Fault::new("NOT_FOUND", text));
        }
    };
    let functions: Vec<Value> = tables
        .functions
        .iter()
        .filter(|(_, function)| function.owner == owner)
        .map(|(key, function)| function_view(tables, key, function))
        .collect();
    let name = Value::from(named.name.as_str());
    let types: Vec<Value> = tables
        .types
        .iter()
        .filter(|(_, known)| tables.provider_name(known) == name)
        .map(|(key, known)| json!({"id": key.1, "namespace": key.0, "description": known.description}))
        .collect();
    let bound: Vec<Value> = tables
        .bindings
        .values()
        .filter(|binding| binding.is_registered())
        .map(|binding| binding_view(tables, binding))
        .filter(|view| view["worker_name"] == name)
        .collect();
    Ok(json!({"worker": worker, "functions": functions, "trigger_types": types, "registered_triggers": bound}))
}

fn trigger_types(tables: &Tables, filter: &Filter) -> Vec<Value> {
    tables
        .types
        .iter()
        .filter(|(key, known)| {
            filter.prefix.as_deref().is_none_or(|prefix| key.1.starts_with(prefix))
                && filter.namespace.as_deref().is_none_or(|namespace| namespace == key.0)
                && filter.wants_worker(&tables.provider_name(known))
                && filter.finds(&[&key.1, &known.description])
        })
        .map(|(key, known)| {
            json!({
                "id": key.1, "namespace": key.0, "worker_name": tables.provider_name(known),
                "description": known.description,
            })
        })
        .collect()
}

fn trigger_info(tables: &Tables, Id { id, namespace }: Id) -> Result<Value, Fault> {
    let key = (namespace.unwrap_or_else(|| DEFAULT_NAMESPACE.to_owned()), id);
    let missing = || Fault::new("NOT_FOUND", format!("Trigger type '{}' is not registered.", key.1));
    let known = tables.types.get(&key).ok_or_else(missing)?;
    let ids = tables.attached.get(&key).into_iter().flatten();
    let instances = ids.filter_map(|id| tables.bindings.get(id)).filter(|binding| binding.counts_for(&key)).count();
    let mut view = json!({
        "id": key.1, "namespace": key.0, "worker_name": tables.provider_name(known),
        "description": known.description, "instance_count": instances,
    });
    put(&mut view, "configuration_schema", known.config_schema.clone());
    put(&mut view, "request_schema", known.call_schema.clone());
    Ok(view)
}

fn binding_view(tables: &Tables, binding: &Binding) -> Value {
    let target = &binding.target;
    let owner = tables.functions.get(&(target.namespace.clone(), target.function_id.clone())).map(|f| f.owner);
    // A function that is not there yet is listed under the worker its id suggests.
    let suggested = || Value::from(target.function_id.split("::").next().unwrap_or_default());
    json!({
        "id": target.id,
        "trigger_type": binding.trigger_type,
        "function_id": target.function_id,
        "worker_name": owner.map_or_else(suggested, |owner| tables.worker_name(owner)),
        "config": target.config,
        "config_summary": summary(&target.config),
    })
}

fn summary(config: &Value) -> String {
    const MAX: usize = 200;
    let text = config.to_string();
    if text.chars().count() <= MAX { text } else { text.chars().take(MAX).chain(['…']).collect() }
}

fn bindings(tables: &Tables, filter: &Filter) -> Vec<Value> {
    tables
        .bindings
        .values()
        .filter(|binding| {
            binding.is_registered()
                && filter.trigger_type.as_deref().is_none_or(|wanted| wanted == binding.trigger_type)
                && filter.function_id.as_deref().is_none_or(|wanted| wanted == binding.target.function_id)
                && filter.finds(&[&binding.target.id, &binding.trigger_type, &binding.target.function_id])
                && (filter.include_internal || !is_hidden(tables, binding))
        })
        .map(|binding| binding_view(tables, binding))
        .filter(|view| filter.wants_worker(&view["worker_name"]))
        .collect()
}

/// A binding is as hidden as the function it calls.
fn is_hidden(tables: &Tables, binding: &Binding) -> bool {
    let key = (binding.target.namespace.clone(), binding.target.function_id.clone());
    tables.functions.get(&key).is_some_and(|function| is_internal(&key, function))
}

/// What bindings to `engine::functions-available` hear.
pub(super) fn functions_changed(tables: &Tables) -> Value {
    json!({"event": "functions_changed", "functions": functions(tables, &Filter::default())})
}
