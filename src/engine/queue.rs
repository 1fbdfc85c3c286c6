//! The queue: messages that are kept until a function has taken them.
//!
//! Messages of one queue stand in lanes: a lane is a group of a fifo queue, or a single message of a standard one.
//! Only the first message of a lane is ever on its way. This file owns the messages; `queue_delivery` calls the
//! functions, and serves the functions of the queue.
//!
//! Invariants
//! 1. A message is answered for, delivered and removed only when the step before is on the disk; so a crash at any
//!    point loses none, and delivers at least once.
//! 2. Messages of one lane are delivered in the order in which they were enqueued, retries included.
//! 3. A message whose function is not there waits, uses up no attempt and no place, and blocks only its lane.
//! 4. A message is given up, into the dead letters of its queue, after `max_retries` failed attempts, or after
//!    its worker went away in the middle [`MAX_LOSSES`] times.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::fault::Fault;
use super::options::Limits;
use super::queue_config::QueueConfig;
use super::router::Key;
use super::store::{Change, Rows, Store, Table};

/// How often a worker may go away in the middle of one message before that is the message's fault.
pub(super) const MAX_LOSSES: u32 = 10;
/// The queue that is always there.
const DEFAULT_QUEUE: &str = "default";

/// What is to be delivered, and where.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Delivery {
    pub(super) receipt: String,
    pub(super) namespace: String,
    pub(super) function_id: String,
    pub(super) data: Value,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) metadata: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) traceparent: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) baggage: Option<String>,
}

impl Delivery {
    pub(super) fn key(&self) -> Key {
        (self.namespace.clone(), self.function_id.clone())
    }
}

/// A message as stored.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Stored {
    pub(super) delivery: Delivery,
    #[serde(default)]
    pub(super) attempts: u32,
    #[serde(default)]
    pub(super) losses: u32,
}

/// A message that was given up.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Dead {
    pub(super) message: Stored,
    pub(super) error: Fault,
    pub(super) failed_at_ms: i64,
}

pub(super) struct Message {
    pub(super) stored: Arc<Stored>,
    lane: String,
    bytes: usize,
    /// The number of the commit that made it durable.
    committed_by: u64,
    pub(super) in_flight: bool,
    /// The end of its pause.
    not_before: Option<Instant>,
}

#[derive(Default)]
pub(super) struct QueueState {
    pub(super) config: QueueConfig,
    pub(super) messages: BTreeMap<u64, Message>,
    lanes: HashMap<String, VecDeque<u64>>,
    /// Lanes whose first message can be tried now.
    ready: VecDeque<String>,
    /// The lanes in `ready`, so that none is in it twice.
    listed: HashSet<String>,
    /// Lanes that pause, by when they go on.
    paused: BTreeMap<(Instant, u64), String>,
    /// Lanes whose function is not there.
    waiting: HashMap<Key, HashSet<String>>,
    in_flight: u32,
    pub(super) dead: BTreeMap<u64, Dead>,
}

pub(super) struct Tables {
    pub(super) queues: BTreeMap<String, QueueState>,
    next: u64,
    count: usize,
    bytes: usize,
}

/// All queues.
pub(super) struct Queue {
    tables: Mutex<Tables>,
    pub(super) store: Arc<Store>,
    limits: Limits,
    /// Told when something may be deliverable.
    pub(super) work: Notify,
}

/// A message that is due, marked as on its way.
pub(super) struct Due {
    pub(super) queue: String,
    pub(super) number: u64,
    pub(super) stored: Arc<Stored>,
    pub(super) timeout_ms: u64,
}

/// The row of a message: the queue, a zero byte, the number.
pub(super) fn row(queue: &str, number: u64) -> Vec<u8> {
    [queue.as_bytes(), &[0], &number.to_be_bytes()].concat()
}

fn split_row(row: &[u8]) -> Option<(String, u64)> {
    let (rest, number) = row.split_last_chunk::<8>()?;
    let (zero, queue) = rest.split_last()?;
    (*zero == 0).then_some((String::from_utf8(queue.to_vec()).ok()?, u64::from_be_bytes(*number)))
}

/// A value as it is stored. The types here always have a JSON form.
pub(super) fn json_bytes(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).unwrap_or_default()
}

fn unknown(queue: &str) -> Fault {
    let text = format!("queue '{queue}' is not defined; call queue::define before enqueueing");
    Fault::new("queue_not_defined", text)
}

impl QueueState {
    /// Puts a message at the end of its lane.
    fn append(&mut self, number: u64, message: Message) {
        let lane = message.lane.clone();
        self.messages.insert(number, message);
        self.lanes.entry(lane.clone()).or_default().push_back(number);
        self.list(lane);
    }

    fn list(&mut self, lane: String) {
        if self.listed.insert(lane.clone()) {
            self.ready.push_back(lane);
        }
    }

    /// Takes a message out. Its lane goes on.
    fn remove(&mut self, number: u64) -> Option<Message> {
        let message = self.messages.remove(&number)?;
        if message.in_flight {
            self.in_flight = self.in_flight.saturating_sub(1);
        }
        if let Some(lane) = self.lanes.get_mut(&message.lane) {
            lane.retain(|other| *other != number);
            if lane.is_empty() {
                self.lanes.remove(&message.lane);
            } else {
                self.list(message.lane.clone());
            }
        }
        Some(message)
    }

    /// Sorts the messages into lanes anew, after the settings changed.
    fn sort(&mut self, queue: &str) {
        self.lanes.clear();
        self.ready.clear();
        self.listed.clear();
        self.paused.clear();
        self.waiting.clear();
        let mut lanes = Vec::new();
        for (number, message) in &mut self.messages {
            // A message from before the queue had groups gets a lane of its own.
            let lane = self.config.lane(queue, &message.stored.delivery.data, *number);
            message.lane = lane.unwrap_or_else(|_| format!("#{number}"));
            message.not_before = None;
            lanes.push((!message.in_flight, *number, message.lane.clone()));
        }
        // What is on its way goes first, so that it holds up its new lane as it should.
        lanes.sort();
        for (_, number, lane) in lanes {
            self.lanes.entry(lane.clone()).or_default().push_back(number);
            self.list(lane);
        }
    }
}

impl Queue {
    /// The queues as stored, or the row that cannot be read.
    pub(super) fn load(rows: &mut Rows, store: Arc<Store>, limits: Limits) -> Result<Self, String> {
        let unreadable =
            |row: &[u8]| format!("the queue row {} cannot be read", String::from_utf8_lossy(row).escape_debug());
        let mut tables = Tables { queues: BTreeMap::new(), next: 1, count: 0, bytes: 0 };
        for (row, stored) in rows.remove(&Table::Queues).unwrap_or_default() {
            let config = serde_json::from_slice(&stored).map_err(|_| unreadable(&row))?;
            let name = String::from_utf8(row.clone()).map_err(|_| unreadable(&row))?;
            tables.queues.insert(name, QueueState { config, ..QueueState::default() });
        }
        tables.queues.entry(DEFAULT_QUEUE.to_owned()).or_default();
        for (row, bytes) in rows.remove(&Table::Messages).unwrap_or_default() {
            let ((queue, number), stored): (_, Stored) =
                split_row(&row).zip(serde_json::from_slice(&bytes).ok()).ok_or_else(|| unreadable(&row))?;
            tables.count += 1;
            tables.bytes += bytes.len();
            tables.next = tables.next.max(number + 1);
            let state = tables.queues.entry(queue).or_default();
            let message = Message {
                stored: Arc::new(stored),
                lane: String::new(),
                bytes: bytes.len(),
                committed_by: 0,
                in_flight: false,
                not_before: None,
            };
            state.messages.insert(number, message);
        }
        for (row, bytes) in rows.remove(&Table::Dead).unwrap_or_default() {
            let ((queue, number), dead): (_, Dead) =
                split_row(&row).zip(serde_json::from_slice(&bytes).ok()).ok_or_else(|| unreadable(&row))?;
            tables.count += 1;
            tables.bytes += bytes.len();
            tables.next = tables.next.max(number + 1);
            tables.queues.entry(queue).or_default().dead.insert(number, dead);
        }
        for (name, state) in &mut tables.queues {
            state.sort(name);
        }
        Ok(Self { tables: Mutex::new(tables), store, limits, work: Notify::new() })
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says that something may be deliverable.
    pub(super) fn wake(&self) {
        self.work.notify_one();
    }

    /// Makes a queue or changes its settings. Gives whether that changed anything, and the number to wait for.
    pub(super) fn define(&self, name: &str, config: QueueConfig) -> (bool, u64) {
        let mut tables = self.lock();
        let state = tables.queues.get(name);
        if state.is_some_and(|state| state.config == config) {
            return (false, 0);
        }
        let state = tables.queues.entry(name.to_owned()).or_default();
        let change = Change { table: Table::Queues, key: name.as_bytes().to_vec(), value: Some(json_bytes(&config)) };
        state.config = config;
        state.sort(name);
        let number = self.store.submit(vec![change]);
        drop(tables);
        self.wake();
        (true, number)
    }

    /// Takes a message. It is delivered once the number is committed, and only then may it be answered for.
    pub(super) fn enqueue(&self, queue: &str, delivery: Delivery) -> Result<u64, Fault> {
        let mut tables = self.lock();
        let number = tables.next;
        let state = tables.queues.get(queue).ok_or_else(|| unknown(queue))?;
        let lane = state.config.lane(queue, &delivery.data, number)?;
        let stored = Stored { delivery, attempts: 0, losses: 0 };
        let bytes = json_bytes(&stored);
        if tables.count >= self.limits.queue_messages || tables.bytes + bytes.len() > self.limits.queue_bytes {
            let text = format!(
                "the queues hold {} messages in {} bytes, the limits are {} and {}",
                tables.count, tables.bytes, self.limits.queue_messages, self.limits.queue_bytes
            );
            return Err(Fault::new("queue_full", text));
        }
        tables.next += 1;
        tables.count += 1;
        tables.bytes += bytes.len();
        let size = bytes.len();
        let change = Change { table: Table::Messages, key: row(queue, number), value: Some(bytes) };
        let committed_by = self.store.submit(vec![change]);
        let message =
            Message { stored: Arc::new(stored), lane, bytes: size, committed_by, in_flight: false, not_before: None };
        if let Some(state) = tables.queues.get_mut(queue) {
            state.append(number, message);
        }
        Ok(committed_by)
    }

    /// Everything that can be delivered now, marked as on its way. `exists` tells whether a function is there.
    pub(super) fn due(&self, now: Instant, exists: &dyn Fn(&Key) -> bool) -> Vec<Due> {
        let mut due = Vec::new();
        let mut tables = self.lock();
        for (name, state) in &mut tables.queues {
            while let Some(entry) = state.paused.first_entry().filter(|entry| entry.key().0 <= now) {
                let lane = entry.remove();
                state.list(lane);
            }
            let mut uncommitted = Vec::new();
            while state.in_flight < state.config.concurrency {
                let Some(lane) = state.ready.pop_front() else { break };
                state.listed.remove(&lane);
                let Some(number) = state.lanes.get(&lane).and_then(|lane| lane.front().copied()) else { continue };
                let Some(message) = state.messages.get_mut(&number) else { continue };
                // A lane whose first message is on its way, or pauses, is listed again when that has ended.
                if message.in_flight || message.not_before.is_some_and(|end| end > now) {
                    continue;
                }
                if !self.store.is_committed(message.committed_by) {
                    uncommitted.push(lane);
                    continue;
                }
                let key = message.stored.delivery.key();
                if !exists(&key) {
                    state.waiting.entry(key).or_default().insert(lane);
                    continue;
                }
                message.in_flight = true;
                state.in_flight += 1;
                due.push(Due {
                    queue: name.clone(),
                    number,
                    stored: message.stored.clone(),
                    timeout_ms: state.config.timeout_ms,
                });
            }
            for lane in uncommitted {
                state.list(lane);
            }
        }
        due
    }

    /// When the next pause is over.
    pub(super) fn next_pause(&self) -> Option<Instant> {
        self.lock().queues.values().filter_map(|state| state.paused.keys().next()).map(|key| key.0).min()
    }

    /// Lets the messages go on that waited for this function.
    pub(super) fn function_appeared(&self, key: &Key) {
        let mut found = false;
        for state in self.lock().queues.values_mut() {
            for lane in state.waiting.remove(key).unwrap_or_default() {
                state.list(lane);
                found = true;
            }
        }
        if found {
            self.wake();
        }
    }

    /// Removes a delivered message from the disk. Gives the number to wait for before [`Self::forget`].
    pub(super) fn delivered(&self, due: &Due) -> u64 {
        self.store.submit(vec![Change { table: Table::Messages, key: row(&due.queue, due.number), value: None }])
    }

    /// Takes a message out of its lane, so that the next one can go.
    pub(super) fn forget(&self, queue: &str, number: u64) {
        let mut tables = self.lock();
        let removed = tables.queues.get_mut(queue).and_then(|state| state.remove(number));
        if let Some(message) = removed {
            tables.count = tables.count.saturating_sub(1);
            tables.bytes = tables.bytes.saturating_sub(message.bytes);
        }
        drop(tables);
        self.wake();
    }

    /// Puts a message back that could not be handed to its function.
    pub(super) fn put_back(&self, due: &Due) {
        let mut tables = self.lock();
        if let Some(state) = tables.queues.get_mut(&due.queue)
            && let Some(message) = state.messages.get_mut(&due.number)
        {
            message.in_flight = false;
            let lane = message.lane.clone();
            state.in_flight = state.in_flight.saturating_sub(1);
            state.list(lane);
        }
        drop(tables);
        self.wake();
    }

    /// Notes a failed attempt: the message pauses, or is given up. Gives the number to wait for; the pause begins
    /// now, so that nothing is stuck should the disk fail.
    pub(super) fn failed(&self, due: &Due, lost: bool, error: Fault, now: Instant, now_ms: i64) -> u64 {
        let mut tables = self.lock();
        let Some(state) = tables.queues.get_mut(&due.queue) else { return 0 };
        let Some(message) = state.messages.get_mut(&due.number) else { return 0 };
        let mut stored = Stored::clone(&message.stored);
        if lost {
            stored.losses += 1;
        } else {
            stored.attempts += 1;
        }
        let given_up = stored.attempts >= state.config.max_retries || stored.losses >= MAX_LOSSES;
        let key = row(&due.queue, due.number);
        if given_up {
            let dead = Dead { message: stored, error, failed_at_ms: now_ms };
            let bytes = json_bytes(&dead);
            let removed = state.remove(due.number).map_or(0, |message| message.bytes);
            state.dead.insert(due.number, dead);
            tables.bytes = (tables.bytes + bytes.len()).saturating_sub(removed);
            let changes = vec![
                Change { table: Table::Messages, key: key.clone(), value: None },
                Change { table: Table::Dead, key, value: Some(bytes) },
            ];
            let number = self.store.submit(changes);
            drop(tables);
            self.wake();
            return number;
        }
        let pause = state.config.backoff(stored.attempts.max(stored.losses));
        let bytes = json_bytes(&stored);
        message.stored = Arc::new(stored);
        message.in_flight = false;
        message.not_before = Some(now + pause);
        let lane = message.lane.clone();
        state.in_flight = state.in_flight.saturating_sub(1);
        state.paused.insert((now + pause, due.number), lane);
        let number = self.store.submit(vec![Change { table: Table::Messages, key, value: Some(bytes) }]);
        drop(tables);
        self.wake();
        number
    }

    /// Puts dead letters at the end of their queue again. Gives how many, and the number to wait for.
    pub(super) fn redrive(&self, queue: &str, only: Option<&str>) -> Result<(usize, u64), Fault> {
        let mut tables = self.lock();
        let mut next = tables.next;
        let state = tables.queues.get_mut(queue).ok_or_else(|| unknown(queue))?;
        let numbers = matching(state, only);
        let mut changes = Vec::new();
        let (mut freed, mut used) = (0, 0);
        for number in &numbers {
            let Some(dead) = state.dead.remove(number) else { continue };
            freed += json_bytes(&dead).len();
            let stored = Stored { attempts: 0, losses: 0, ..dead.message };
            let bytes = json_bytes(&stored);
            used += bytes.len();
            changes.push(Change { table: Table::Dead, key: row(queue, *number), value: None });
            let lane = state.config.lane(queue, &stored.delivery.data, next).unwrap_or_else(|_| format!("#{next}"));
            let message = Message {
                stored: Arc::new(stored),
                lane,
                bytes: bytes.len(),
                committed_by: u64::MAX,
                in_flight: false,
                not_before: None,
            };
            changes.push(Change { table: Table::Messages, key: row(queue, next), value: Some(bytes) });
            state.append(next, message);
            next += 1;
        }
        let committed_by = self.store.submit(changes);
        for message in state.messages.values_mut().filter(|message| message.committed_by == u64::MAX) {
            message.committed_by = committed_by;
        }
        tables.next = next;
        tables.bytes = (tables.bytes + used).saturating_sub(freed);
        Ok((numbers.len(), committed_by))
    }

    /// Drops a dead letter. Gives how many that were, and the number to wait for.
    pub(super) fn discard(&self, queue: &str, receipt: &str) -> Result<(usize, u64), Fault> {
        let mut tables = self.lock();
        let state = tables.queues.get_mut(queue).ok_or_else(|| unknown(queue))?;
        let numbers = matching(state, Some(receipt));
        let mut freed = 0;
        for number in &numbers {
            freed += state.dead.remove(number).map_or(0, |dead| json_bytes(&dead).len());
        }
        tables.count = tables.count.saturating_sub(numbers.len());
        tables.bytes = tables.bytes.saturating_sub(freed);
        let changes = numbers.iter().map(|n| Change { table: Table::Dead, key: row(queue, *n), value: None }).collect();
        Ok((numbers.len(), self.store.submit(changes)))
    }

    /// The queues and how full they are.
    pub(super) fn stats(&self, only: Option<&str>) -> Vec<Value> {
        let tables = self.lock();
        let named = tables.queues.iter().filter(|(name, _)| only.is_none_or(|only| only == *name));
        named
            .map(|(name, state)| {
                json!({
                    "topic": name,
                    "broker_type": "builtin",
                    "config": state.config,
                    "depth": state.messages.len(),
                    "in_flight": state.in_flight,
                    "dlq_depth": state.dead.len(),
                })
            })
            .collect()
    }

    /// The dead letters of a queue, oldest first.
    pub(super) fn dead(&self, queue: &str) -> Result<Vec<Value>, Fault> {
        let tables = self.lock();
        let state = tables.queues.get(queue).ok_or_else(|| unknown(queue))?;
        Ok(state.dead.values().map(dead_letter).collect())
    }
}

fn matching(state: &QueueState, receipt: Option<&str>) -> Vec<u64> {
    let wanted = |dead: &Dead| receipt.is_none_or(|receipt| dead.message.delivery.receipt == receipt);
    state.dead.iter().filter(|(_, dead)| wanted(dead)).map(|(number, _)| *number).collect()
}

fn dead_letter(dead: &Dead) -> Value {
    let Dead { message, error, failed_at_ms } = dead;
    json!({
        "message_id": message.delivery.receipt,
        "namespace": message.delivery.namespace,
        "function_id": message.delivery.function_id,
        "data": message.delivery.data,
        "attempts": message.attempts,
        "lost_workers": message.losses,
        "error": error.to_value(),
        "failed_at_ms": failed_at_ms,
    })
}
