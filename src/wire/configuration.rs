//! The configuration entry of the worker: seeded once, checked, swapped as a whole when it changes.
//!
//! Invariants
//! 1. A stored value is never overwritten: an initial value is passed only when nothing is stored.
//! 2. A value that cannot be applied changes nothing: at start the worker does not serve, later the previous one holds.
//! 3. Changes are applied one after the other, so that an older value never takes the place of a newer one.
//! 4. Configuration lives in the namespace `default`, wherever the worker runs.

use std::path::PathBuf;
use std::time::Duration;

use iii_sdk::errors::Error as SdkError;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::catalog::{self, Worker};
use crate::bus::iii::IiiBus;
use crate::model::config::{Settings, WorktreeConfig};
use crate::model::{Code, Error, Result};
use crate::worktrees::pool;

/// How often, and with which pause, a changed value is read when the engine does not answer.
const READS: u32 = 20;
const PAUSE: Duration = Duration::from_millis(500);

/// What the engine sends when the configuration changed; it is read again, whatever this says.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(rename = "OnConfigChangeEvent")]
pub struct OnConfigChangeEvent {
    /// The entry that changed.
    #[serde(default)]
    pub id: Option<String>,
}

/// That the change was looked at.
#[derive(Debug, Serialize, JsonSchema)]
pub struct OnConfigChangeResponse {
    /// Whether the stored configuration is in force now.
    pub ok: bool,
}

/// The entry with which this worker is configured.
pub struct ConfigEntry {
    bus: IiiBus,
    id: String,
    home: Option<PathBuf>,
    /// Held from reading a value to applying it (invariant 3).
    turn: tokio::sync::Mutex<()>,
}

/// What the engine holds under the id of the entry.
enum Stored {
    Value(Value),
    Nothing,
}

fn refused(id: &str, why: impl std::fmt::Display) -> Error {
    Error::new(Code::InvalidConfig, format!("the configuration entry `{id}` cannot be applied: {why}"))
}

fn unreachable(error: &SdkError) -> Error {
    Error::new(Code::StateUnreachable, format!("the configuration cannot be reached: {error}"))
}

impl ConfigEntry {
    /// The entry `id` on the engine behind `bus`; `home` takes the place of `~` in paths.
    #[must_use]
    pub fn new(bus: IiiBus, id: String, home: Option<PathBuf>) -> Self {
        ConfigEntry { bus, id, home, turn: tokio::sync::Mutex::default() }
    }

    /// The id of the entry.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Checks a value as it would be applied.
    ///
    /// # Errors
    /// `W010` naming the key.
    pub fn check(&self, value: &Value) -> Result<Settings> {
        Settings::from_value(value, self.home.as_deref()).map_err(|error| refused(&self.id, error))
    }

    async fn stored(&self) -> Result<Stored> {
        match self.bus.builtin("configuration::get", json!({"id": self.id})).await {
            Ok(answer) => match answer.get("value") {
                Some(value) if !value.is_null() => Ok(Stored::Value(value.clone())),
                _ => Ok(Stored::Nothing),
            },
            Err(SdkError::Remote { code, .. }) if code == "NOT_FOUND" => Ok(Stored::Nothing),
            Err(SdkError::Remote { code, message, .. }) if code == "SCHEMA_INVALID" || code == "EXPAND_FAILED" => {
                let raw = self.bus.builtin("configuration::get", json!({"id": self.id, "raw": true})).await;
                match raw.map_err(|error| unreachable(&error))?.get("value") {
                    // An entry that was registered without a value holds null, which no schema of ours allows.
                    None | Some(Value::Null) => Ok(Stored::Nothing),
                    // Its own words name the variable that is missing; of a schema only ours name the key.
                    Some(value) if code == "SCHEMA_INVALID" => Err(match self.check(value) {
                        Err(ours) => ours,
                        Ok(_) => refused(&self.id, message),
                    }),
                    Some(_) => Err(refused(&self.id, message)),
                }
            }
            Err(error) => Err(unreachable(&error)),
        }
    }

    /// Registers the schema, seeding the entry with `seed` when nothing is stored yet, and reads what is in force.
    ///
    /// # Errors
    /// `W010` when what is stored (or the seed) cannot be applied, `W300` when the engine cannot be reached.
    pub async fn establish(&self, seed: &Value) -> Result<Settings> {
        let stored = self.stored().await?;
        let initial = match &stored {
            Stored::Nothing => {
                self.check(seed)?;
                Some(seed)
            }
            Stored::Value(value) => {
                self.check(value)?;
                None
            }
        };
        self.register(initial).await?;
        match self.stored().await? {
            Stored::Value(value) => self.check(&value),
            Stored::Nothing => self.check(seed),
        }
    }

    async fn register(&self, initial: Option<&Value>) -> Result<()> {
        let mut schema = catalog::schema::<WorktreeConfig>();
        schema["examples"] = json!([WorktreeConfig::default()]);
        let mut entry = json!({
            "id": self.id, "name": "Worktree",
            "description": "Where worktrees lie, how branches are named, how lands are gated, and what callers may do",
            "schema": schema,
        });
        if let Some(initial) = initial {
            entry["initial_value"] = initial.clone();
        }
        match self.bus.builtin("configuration::register", entry).await {
            Ok(_) => Ok(()),
            Err(SdkError::Remote { code, message, .. }) if code != "function_not_found" => {
                Err(refused(&self.id, format!("{message} ({code})")))
            }
            Err(error) => Err(unreachable(&error)),
        }
    }

    /// Reads what is stored now.
    ///
    /// # Errors
    /// `W010` when it cannot be applied, `W300` when the engine cannot be reached.
    pub async fn read(&self) -> Result<Settings> {
        match self.stored().await? {
            Stored::Value(value) => self.check(&value),
            Stored::Nothing => Err(refused(&self.id, "nothing is stored")),
        }
    }
}

/// Puts settings in force: the snapshot, and the schedule and the queue where they changed.
pub fn apply(worker: &Worker, settings: Settings) {
    if let Err(error) = worker.schedule.apply(&settings.config.prune_schedule) {
        tracing::warn!(%error, "the sweep keeps its previous schedule");
    }
    let same_queue = worker.ctx.settings().config.land_queue == settings.config.land_queue;
    worker.ctx.swap_settings(settings);
    pool::wake_all(&worker.ctx);
    if !same_queue {
        let (ctx, dispatcher) = (worker.ctx.clone(), worker.dispatcher.clone());
        worker.ctx.background.spawn(async move { dispatcher.declare(&ctx).await });
    }
}

/// After a reconnect: registers the entry again and applies what is stored now.
///
/// # Errors
/// See [`ConfigEntry::establish`].
pub async fn catch_up(worker: &Worker, seed: &Value) -> Result<()> {
    let _turn = worker.config.turn.lock().await;
    apply(worker, worker.config.establish(seed).await?);
    Ok(())
}

/// `worktree::on-config-change`: reads the entry again and applies it.
///
/// # Errors
/// None: what cannot be applied is logged, and the previous settings stay in force.
pub async fn on_change(worker: &Worker, _event: OnConfigChangeEvent) -> Result<OnConfigChangeResponse> {
    let _turn = worker.config.turn.lock().await;
    for attempt in 1.. {
        match worker.config.read().await {
            Ok(settings) => {
                tracing::info!(entry = worker.config.id(), "the configuration was applied");
                apply(worker, settings);
                break;
            }
            // Nobody tells of this change again.
            Err(error) if error.code == Code::StateUnreachable && attempt < READS => tokio::time::sleep(PAUSE).await,
            Err(error) => {
                let (entry, code) = (worker.config.id(), error.code);
                tracing::error!(entry, %code, %error, "the previous configuration stays");
                return Ok(OnConfigChangeResponse { ok: false });
            }
        }
    }
    Ok(OnConfigChangeResponse { ok: true })
}
