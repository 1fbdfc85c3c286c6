//! The six trigger types and who is bound to them.
//!
//! The engine hands bindings over one by one and names only id and type when one goes, so the map by id is kept here.
//! A repeated id is an update; after a reconnect all bindings come again.
//!
//! Invariants
//! 1. Sending an event never waits: each binding is one call of its own that nobody waits for.
//! 2. A binding with an unknown key is refused by the name of the key.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use iii_sdk::errors::Error as SdkError;
use iii_sdk::trigger::{TriggerConfig, TriggerHandler};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::runtime::Handle;

use crate::bus::EventSink;
use crate::bus::iii::IiiBus;
use crate::model::event::{Event, EventKind};

/// Which events a binding asks for; a key that is left out matches all.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BindingConfig {
    /// Only events of the repository with this primary checkout (or of this bare repository).
    pub repo_path: Option<String>,
    /// Only events of this worktree.
    pub worktree_id: Option<String>,
    /// Only events of worktrees that this session holds.
    pub session_id: Option<String>,
}

impl BindingConfig {
    /// Whether the binding asks for `event`.
    #[must_use]
    pub fn matches(&self, event: &Event) -> bool {
        self.repo_path.as_ref().is_none_or(|path| *path == event.repo_path)
            && self.worktree_id.as_ref().is_none_or(|id| *id == event.worktree_id)
            && self.session_id.as_ref().is_none_or(|id| Some(id) == event.session_id.as_ref())
    }
}

#[derive(Debug, Clone)]
struct Binding {
    function_id: String,
    namespace: Option<String>,
    metadata: Option<Value>,
    filter: BindingConfig,
}

/// All bindings, by trigger type and id. Cheap to clone.
#[derive(Clone, Default)]
pub struct Bindings {
    by_id: Arc<Mutex<HashMap<(EventKind, String), Binding>>>,
}

impl Bindings {
    fn with<R>(&self, look: impl FnOnce(&mut HashMap<(EventKind, String), Binding>) -> R) -> R {
        look(&mut self.by_id.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn put(&self, kind: EventKind, config: TriggerConfig) -> Result<(), String> {
        let raw = if config.config.is_null() { Value::Object(serde_json::Map::new()) } else { config.config };
        let mut filter: BindingConfig = serde_json::from_value(raw).map_err(|error| error.to_string())?;
        // Events name the canonical path; a binding may name the same place through a link.
        if let Some(path) = &filter.repo_path
            && let Ok(canonical) = Path::new(path).canonicalize()
        {
            filter.repo_path = Some(canonical.to_string_lossy().into_owned());
        }
        let binding =
            Binding { function_id: config.function_id, namespace: config.namespace, metadata: config.metadata, filter };
        self.with(|by_id| by_id.insert((kind, config.id), binding));
        Ok(())
    }

    fn drop_binding(&self, kind: EventKind, id: String) {
        self.with(|by_id| by_id.remove(&(kind, id)));
    }

    fn matching(&self, event: &Event) -> Vec<Binding> {
        self.with(|by_id| {
            let asked = by_id.iter().filter(|((kind, _), b)| *kind == event.kind && b.filter.matches(event));
            asked.map(|(_, binding)| binding.clone()).collect()
        })
    }
}

/// The provider of one trigger type.
pub struct Provider {
    kind: EventKind,
    bindings: Bindings,
}

impl Provider {
    /// A provider that keeps its bindings in `bindings`.
    #[must_use]
    pub fn new(kind: EventKind, bindings: Bindings) -> Self {
        Provider { kind, bindings }
    }
}

#[async_trait]
impl TriggerHandler for Provider {
    async fn register_trigger(&self, config: TriggerConfig) -> Result<(), SdkError> {
        self.bindings.put(self.kind, config).map_err(|why| SdkError::Remote {
            code: "W001".to_owned(),
            message: format!("the binding of {} is refused: {why}", self.kind.trigger_type()),
            stacktrace: None,
        })
    }

    async fn unregister_trigger(&self, config: TriggerConfig) -> Result<(), SdkError> {
        self.bindings.drop_binding(self.kind, config.id);
        Ok(())
    }
}

/// Sends events to their bindings over the bus.
pub struct BusEvents {
    bus: IiiBus,
    bindings: Bindings,
    runtime: Handle,
}

impl BusEvents {
    /// Events of `bindings` go out over `bus` from tasks on `runtime`.
    #[must_use]
    pub fn new(bus: IiiBus, bindings: Bindings, runtime: Handle) -> Self {
        BusEvents { bus, bindings, runtime }
    }
}

impl EventSink for BusEvents {
    fn emit(&self, event: &Event) {
        for binding in self.bindings.matching(event) {
            let (bus, payload) = (self.bus.clone(), event.payload.clone());
            self.runtime.spawn(async move {
                let Binding { function_id, namespace, metadata, .. } = binding;
                if let Err(error) = bus.fire(namespace.as_deref(), &function_id, payload, metadata).await {
                    tracing::warn!(function_id, %error, "an event was not sent");
                }
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn config(id: &str, config: Value) -> TriggerConfig {
        TriggerConfig { id: id.to_owned(), function_id: format!("app::{id}"), config, metadata: None, namespace: None }
    }

    fn event(repo_path: &str, session_id: Option<&str>) -> Event {
        Event {
            kind: EventKind::Landed,
            repo_path: repo_path.to_owned(),
            worktree_id: "wt_0123456789ab".to_owned(),
            session_id: session_id.map(str::to_owned),
            payload: json!({}),
        }
    }

    #[test]
    fn filters_are_equalities_and_a_repeated_id_is_an_update() {
        let bindings = Bindings::default();
        bindings.put(EventKind::Landed, config("a", json!({"repo_path": "/no/such/repo"}))).unwrap();
        bindings.put(EventKind::Landed, config("b", json!({"session_id": "s"}))).unwrap();
        bindings.put(EventKind::Created, config("c", Value::Null)).unwrap();
        let asked = |event: &Event| {
            let mut ids: Vec<String> = bindings.matching(event).into_iter().map(|b| b.function_id).collect();
            ids.sort();
            ids
        };
        assert_eq!(asked(&event("/no/such/repo", None)), ["app::a"]);
        assert_eq!(asked(&event("/no/such/repo/x", Some("s"))), ["app::b"]);
        bindings.put(EventKind::Landed, config("a", json!({}))).unwrap();
        assert_eq!(asked(&event("/elsewhere", None)), ["app::a"]);
        bindings.drop_binding(EventKind::Landed, "a".to_owned());
        assert!(asked(&event("/elsewhere", None)).is_empty());
    }

    #[test]
    fn an_unknown_key_is_refused_by_name_invariant_2() {
        let why = Bindings::default().put(EventKind::Landed, config("a", json!({"repo": "/x"}))).unwrap_err();
        assert!(why.contains("`repo`"), "{why}");
    }
}
