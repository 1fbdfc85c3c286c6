//! `state::*`: values by scope and key, in memory and on the disk.
//!
//! A change is applied and submitted to the store in one step under the lock, so memory and disk agree on the
//! order; its caller is answered once it is committed, and so is a reader of a value that is not committed yet.
//!
//! Invariants
//! 1. What an answer shows is on the disk: nobody sees a value that a crash can take back.
//! 2. Each operation is atomic against every other.
//! 3. `list` gives the values in the order in which their keys were first set.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::fault::Fault;
use super::options::Limits;
use super::state_ops::{Op, apply};
use super::store::{Change, Rows, Store, Table};

/// A change that bindings may hear of, once it is committed.
#[derive(Debug)]
pub(super) struct StateEvent {
    /// The number to wait for.
    pub(super) number: u64,
    pub(super) scope: String,
    pub(super) key: String,
    pub(super) payload: Value,
}

/// An answer that may be given once a number is committed.
pub(super) struct Pending {
    pub(super) answer: Option<Value>,
    pub(super) number: u64,
}

struct Entry {
    /// Place in the order of the scope.
    order: u64,
    value: Value,
    bytes: usize,
}

#[derive(Default)]
struct Scope {
    entries: HashMap<String, Entry>,
    order: BTreeMap<u64, String>,
}

struct Tables {
    scopes: BTreeMap<String, Scope>,
    next_order: u64,
    bytes: usize,
    /// The last number submitted.
    last: u64,
}

/// The state.
pub(super) struct State {
    tables: Mutex<Tables>,
    store: Arc<Store>,
    events: mpsc::UnboundedSender<StateEvent>,
    limits: Limits,
}

#[derive(Deserialize)]
struct Set {
    scope: String,
    key: String,
    #[serde(alias = "data")]
    value: Value,
}

#[derive(Deserialize)]
struct At {
    scope: String,
    key: String,
}

#[derive(Deserialize)]
struct Update {
    scope: String,
    key: String,
    ops: Vec<Op>,
}

#[derive(Deserialize)]
struct List {
    scope: String,
}

/// The input of a function, or the fault that says what is wrong with it.
pub(super) fn parse<T: DeserializeOwned>(function_id: &str, data: Value) -> Result<T, Fault> {
    serde_json::from_value(data).map_err(|error| Fault::input(function_id, &error))
}

/// The row of a value: both names, the first with its length in front, so that no two pairs share a row.
fn row(scope: &str, key: &str) -> Vec<u8> {
    let length = u32::try_from(scope.len()).unwrap_or(u32::MAX).to_be_bytes();
    [&length, scope.as_bytes(), key.as_bytes()].concat()
}

fn split_row(row: &[u8]) -> Option<(String, String)> {
    let (length, rest) = row.split_first_chunk::<4>()?;
    let (scope, key) = rest.split_at_checked(usize::try_from(u32::from_be_bytes(*length)).ok()?)?;
    Some((String::from_utf8(scope.to_vec()).ok()?, String::from_utf8(key.to_vec()).ok()?))
}

fn split_stored(bytes: &[u8]) -> Option<(u64, Value)> {
    let (order, json) = bytes.split_first_chunk::<8>()?;
    Some((u64::from_be_bytes(*order), serde_json::from_slice(json).ok()?))
}

impl State {
    /// The state as stored, or the row that cannot be read.
    pub(super) fn load(
        rows: &mut Rows,
        store: Arc<Store>,
        events: mpsc::UnboundedSender<StateEvent>,
        limits: Limits,
    ) -> Result<Self, String> {
        let mut tables = Tables { scopes: BTreeMap::new(), next_order: 0, bytes: 0, last: 0 };
        for (row, stored) in rows.remove(&Table::State).unwrap_or_default() {
            let (Some((scope, key)), Some((order, value))) = (split_row(&row), split_stored(&stored)) else {
                return Err(format!("the state row {} cannot be read", String::from_utf8_lossy(&row).escape_debug()));
            };
            tables.next_order = tables.next_order.max(order + 1);
            let bytes = scope.len() + key.len() + stored.len();
            tables.bytes += bytes;
            let into = tables.scopes.entry(scope).or_default();
            into.order.insert(order, key.clone());
            into.entries.insert(key, Entry { order, value, bytes });
        }
        Ok(Self { tables: Mutex::new(tables), store, events, limits })
    }

    fn lock(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs one of the functions. The answer holds once its number is committed.
    pub(super) fn call(&self, function_id: &str, data: Value) -> Result<Pending, Fault> {
        match function_id {
            "state::set" => {
                let Set { scope, key, value } = parse(function_id, data)?;
                let mut tables = self.lock();
                let old = self.put(&mut tables, &scope, &key, &value)?;
                Ok(pending(&tables, Some(json!({"old_value": old, "new_value": value}))))
            }
            "state::update" => {
                let Update { scope, key, ops } = parse(function_id, data)?;
                let mut tables = self.lock();
                let current = tables.scopes.get(&scope).and_then(|s| s.entries.get(&key)).map(|e| e.value.clone());
                let (value, errors) = apply(current, ops);
                let old = self.put(&mut tables, &scope, &key, &value)?;
                let mut answer = json!({"old_value": old, "new_value": value});
                if !errors.is_empty() {
                    answer["errors"] = Value::Array(errors);
                }
                Ok(pending(&tables, Some(answer)))
            }
            "state::delete" => {
                let At { scope, key } = parse(function_id, data)?;
                let mut tables = self.lock();
                let old = self.remove(&mut tables, &scope, &key);
                Ok(pending(&tables, old))
            }
            "state::get" => {
                let At { scope, key } = parse(function_id, data)?;
                let tables = self.lock();
                let value = tables.scopes.get(&scope).and_then(|s| s.entries.get(&key)).map(|e| e.value.clone());
                Ok(pending(&tables, value))
            }
            "state::list" => {
                let List { scope } = parse(function_id, data)?;
                let tables = self.lock();
                let values = tables.scopes.get(&scope).map(|scope| {
                    scope.order.values().filter_map(|key| scope.entries.get(key)).map(|e| e.value.clone()).collect()
                });
                Ok(pending(&tables, Some(Value::Array(values.unwrap_or_default()))))
            }
            _ => {
                let tables = self.lock();
                let groups: Vec<&String> = tables.scopes.keys().collect();
                Ok(pending(&tables, Some(json!({ "groups": groups }))))
            }
        }
    }

    fn put(&self, tables: &mut Tables, scope: &str, key: &str, value: &Value) -> Result<Option<Value>, Fault> {
        let json = serde_json::to_vec(value).map_err(|error| Fault::new("SET_ERROR", error.to_string()))?;
        if json.len() > self.limits.state_value_bytes {
            return Err(Fault::new(
                "VALUE_TOO_LARGE",
                format!("the value has {} bytes, the limit is {}", json.len(), self.limits.state_value_bytes),
            ));
        }
        let known = tables.scopes.get(scope).and_then(|scope| scope.entries.get(key));
        let order = known.map_or(tables.next_order, |entry| entry.order);
        let stored = [&order.to_be_bytes()[..], &json].concat();
        let bytes = scope.len() + key.len() + stored.len();
        let total = tables.bytes - known.map_or(0, |entry| entry.bytes) + bytes;
        if total > self.limits.state_bytes {
            return Err(Fault::new(
                "STATE_FULL",
                format!(
                    "the state would have {total} bytes, the limit is {}; delete some keys",
                    self.limits.state_bytes
                ),
            ));
        }
        let created = known.is_none();
        tables.bytes = total;
        tables.next_order = tables.next_order.max(order + 1);
        let into = tables.scopes.entry(scope.to_owned()).or_default();
        into.order.insert(order, key.to_owned());
        let old = into.entries.insert(key.to_owned(), Entry { order, value: value.clone(), bytes }).map(|e| e.value);
        tables.last =
            self.store.submit(vec![Change { table: Table::State, key: row(scope, key), value: Some(stored) }]);
        let event_type = if created { "state:created" } else { "state:updated" };
        self.tell(tables.last, event_type, scope, key, old.as_ref(), Some(value));
        Ok(old)
    }

    fn remove(&self, tables: &mut Tables, scope: &str, key: &str) -> Option<Value> {
        let mut old = None;
        if let Some(from) = tables.scopes.get_mut(scope) {
            if let Some(entry) = from.entries.remove(key) {
                from.order.remove(&entry.order);
                tables.bytes -= entry.bytes;
                old = Some(entry.value);
                tables.last =
                    self.store.submit(vec![Change { table: Table::State, key: row(scope, key), value: None }]);
            }
            if from.entries.is_empty() {
                tables.scopes.remove(scope);
            }
        }
        // The iii engine tells of deleting what was not there, too.
        self.tell(tables.last, "state:deleted", scope, key, old.as_ref(), None);
        old
    }

    fn tell(&self, number: u64, event: &str, scope: &str, key: &str, old: Option<&Value>, new: Option<&Value>) {
        let payload = json!({
            "type": "state", "event_type": event, "scope": scope, "key": key, "old_value": old, "new_value": new,
        });
        let event = StateEvent { number, scope: scope.to_owned(), key: key.to_owned(), payload };
        if self.events.send(event).is_err() {
            tracing::debug!("a state event came after the engine stopped");
        }
    }
}

/// A reader waits for everything submitted so far: what it saw may be among it.
fn pending(tables: &Tables, answer: Option<Value>) -> Pending {
    Pending { answer, number: tables.last }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_keep_scope_and_key_apart() {
        assert_ne!(row("a", "bc"), row("ab", "c"));
        assert_eq!(split_row(&row("a\0b", "")), Some(("a\0b".to_owned(), String::new())));
        assert_eq!(split_row(&[0, 0, 0, 9, b'x']), None);
    }
}
