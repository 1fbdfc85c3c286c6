//! The six trigger types and who is bound to them.
//!
//! The engine hands bindings over one by one and names only id and type when one goes, so the map by id is kept here.
//! A repeated id is an update; after a reconnect all bindings come again.
//!
//! Invariants
//! 1. Sending an event never waits: each binding is one call of its own that nobody waits for, handed over in the order
//!    of the events.
//! 2. A binding with an unknown key is refused by the name of the key.
//! 3. A binding that the engine no longer knows after a reconnect is forgotten; until that is told, it hears every event.
//! 4. A function is called in the namespace of its binding; the engine leaves that out where it is `default`.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use iii_sdk::errors::Error as SdkError;
use iii_sdk::trigger::{TriggerConfig, TriggerHandler};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::bus::EventSink;
use crate::bus::iii::IiiBus;
use crate::git::from_text;
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
        // Events name the canonical path; a binding may name the same place through a link.
        let same = |path: &String| {
            *path == event.repo_path
                || from_text(path).canonicalize().is_ok_and(|real| real == from_text(&event.repo_path))
        };
        self.repo_path.as_ref().is_none_or(same)
            && self.worktree_id.as_ref().is_none_or(|id| *id == event.worktree_id)
            && self.session_id.as_ref().is_none_or(|id| Some(id) == event.session_id.as_ref())
    }
}

/// The namespace in which a function is called when its binding names none.
const DEFAULT_NAMESPACE: &str = "default";

#[derive(Debug, Clone)]
struct Binding {
    function_id: String,
    namespace: String,
    metadata: Option<Value>,
    filter: BindingConfig,
}

type ById = HashMap<(EventKind, String), Binding>;

/// All bindings, by trigger type and id. Cheap to clone.
#[derive(Clone, Default)]
pub struct Bindings {
    known: Arc<Mutex<ById>>,
}

impl Bindings {
    fn with<R>(&self, look: impl FnOnce(&mut ById) -> R) -> R {
        look(&mut self.known.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn put(&self, kind: EventKind, config: TriggerConfig) -> Result<(), String> {
        let raw = if config.config.is_null() { Value::Object(serde_json::Map::new()) } else { config.config };
        let filter: BindingConfig = serde_path_to_error::deserialize(raw).map_err(|error| {
            let path = error.path().to_string();
            let why = error.into_inner().to_string();
            if path == "." { why } else { format!("`{path}`: {why}") }
        })?;
        let namespace = config.namespace.unwrap_or_else(|| DEFAULT_NAMESPACE.to_owned());
        let binding = Binding { function_id: config.function_id, namespace, metadata: config.metadata, filter };
        self.with(|known| known.insert((kind, config.id), binding));
        Ok(())
    }

    fn drop_binding(&self, kind: EventKind, id: String) {
        self.with(|known| known.remove(&(kind, id)));
    }

    /// The ids of all bindings of a kind.
    #[must_use]
    pub fn ids(&self, kind: EventKind) -> BTreeSet<String> {
        self.with(|known| known.keys().filter(|(of, _)| *of == kind).map(|(_, id)| id.clone()).collect())
    }

    /// Forgets those of `ids` (see [`Bindings::ids`]) that the engine, asked after that, does not know (invariant 3).
    pub fn forget_unless(&self, kind: EventKind, ids: BTreeSet<String>, bound: &BTreeSet<String>) {
        for id in ids.into_iter().filter(|id| !bound.contains(id)) {
            tracing::info!(
                trigger_type = kind.trigger_type(),
                id,
                "a binding that the engine does not know is forgotten"
            );
            self.drop_binding(kind, id);
        }
    }

    fn matching(&self, event: &Event) -> Vec<Binding> {
        let asked: Vec<Binding> = self.with(|known| {
            let of_kind = known.iter().filter(|((kind, _), _)| *kind == event.kind);
            of_kind.map(|(_, binding)| binding.clone()).collect()
        });
        // Outside the lock: a path may have to be looked up.
        asked.into_iter().filter(|binding| binding.filter.matches(event)).collect()
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
}

impl BusEvents {
    /// Events of `bindings` go out over `bus`.
    #[must_use]
    pub fn new(bus: IiiBus, bindings: Bindings) -> Self {
        BusEvents { bus, bindings }
    }
}

impl EventSink for BusEvents {
    fn emit(&self, event: &Event) {
        for binding in self.bindings.matching(event) {
            let Binding { function_id, namespace, metadata, .. } = binding;
            if let Err(error) = self.bus.fire(&namespace, &function_id, event.payload.clone(), metadata) {
                tracing::warn!(function_id, %error, "an event was not sent");
            }
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
        for (filter, key) in [(json!({"repo": "/x"}), "`repo`"), (json!({"session_id": 7}), "`session_id`")] {
            let why = Bindings::default().put(EventKind::Landed, config("a", filter)).unwrap_err();
            assert!(why.contains(key), "{why}");
        }
    }

    #[test]
    fn what_the_engine_does_not_know_is_forgotten_invariant_3() {
        let bindings = Bindings::default();
        for id in ["stays", "goes"] {
            bindings.put(EventKind::Landed, config(id, json!({}))).unwrap();
        }
        let ids = bindings.ids(EventKind::Landed);
        // One that comes while the engine is asked is not among those that were asked about.
        bindings.put(EventKind::Landed, config("new", json!({"session_id": "s"}))).unwrap();
        bindings.forget_unless(EventKind::Created, bindings.ids(EventKind::Created), &BTreeSet::new());
        bindings.forget_unless(EventKind::Landed, ids, &BTreeSet::from(["stays".to_owned()]));
        assert_eq!(bindings.ids(EventKind::Landed), BTreeSet::from(["new".to_owned(), "stays".to_owned()]));
        let left = bindings.matching(&event("/x", None));
        assert_eq!(left.iter().map(|b| b.function_id.as_str()).collect::<Vec<_>>(), ["app::stays"]);
    }

    #[test]
    fn a_binding_without_a_namespace_is_for_the_default_one_invariant_4() {
        let bindings = Bindings::default();
        bindings.put(EventKind::Landed, config("a", json!({}))).unwrap();
        let named = TriggerConfig { namespace: Some("team".to_owned()), ..config("b", json!({})) };
        bindings.put(EventKind::Landed, named).unwrap();
        let mut places: Vec<String> = bindings.matching(&event("/x", None)).into_iter().map(|b| b.namespace).collect();
        places.sort();
        assert_eq!(places, ["default", "team"]);
    }
}
