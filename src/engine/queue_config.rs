//! The settings of a queue, as `queue::define` takes them.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::fault::Fault;

/// The longest pause between two attempts.
const LONGEST_BACKOFF: Duration = Duration::from_secs(3600);

/// In which order messages are delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Kind {
    /// Any order, up to the concurrency at once.
    #[default]
    Standard,
    /// One after another within a group, groups side by side up to the concurrency.
    Fifo,
}

/// The settings of a queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct QueueConfig {
    #[serde(rename = "type")]
    pub(super) kind: Kind,
    /// The field of `data` that names the group; only for fifo.
    pub(super) message_group_field: Option<String>,
    /// Deliveries at once.
    pub(super) concurrency: u32,
    /// Attempts before a message is given up.
    pub(super) max_retries: u32,
    /// The first pause, in milliseconds; it doubles with each attempt.
    pub(super) backoff_ms: u64,
    /// Milliseconds after which a delivery counts as failed; 0 is never.
    pub(super) timeout_ms: u64,
}

impl Default for QueueConfig {
    fn default() -> Self {
        Self {
            kind: Kind::Standard,
            message_group_field: None,
            concurrency: 10,
            max_retries: 3,
            backoff_ms: 1000,
            timeout_ms: 0,
        }
    }
}

/// Settings that other queue providers know and that mean nothing here.
const IGNORED: [&str; 3] = ["poll_interval_ms", "max_priority", "priority_field"];
const KNOWN: [&str; 6] = ["type", "message_group_field", "concurrency", "max_retries", "backoff_ms", "timeout_ms"];

impl QueueConfig {
    /// Reads settings, naming the one that is wrong.
    pub(super) fn parse(value: Value) -> Result<Self, Fault> {
        let invalid = |text: String| Fault::new("INVALID_CONFIG", text);
        if let Some(key) = value
            .as_object()
            .and_then(|map| map.keys().find(|k| !KNOWN.contains(&k.as_str()) && !IGNORED.contains(&k.as_str())))
        {
            return Err(invalid(format!("a queue has no setting '{key}'; it has {}", KNOWN.join(", "))));
        }
        let config: Self = serde_json::from_value(value).map_err(|error| invalid(error.to_string()))?;
        if config.kind == Kind::Fifo && config.message_group_field.as_deref().unwrap_or_default().is_empty() {
            return Err(invalid("a fifo queue needs message_group_field".to_owned()));
        }
        if config.concurrency == 0 || config.max_retries == 0 {
            return Err(invalid("concurrency and max_retries are at least 1".to_owned()));
        }
        Ok(config)
    }

    /// The pause after the given number of attempts.
    pub(super) fn backoff(&self, attempts: u32) -> Duration {
        let factor = 1u64.checked_shl(attempts.saturating_sub(1)).unwrap_or(u64::MAX);
        Duration::from_millis(self.backoff_ms.saturating_mul(factor)).min(LONGEST_BACKOFF)
    }

    /// The lane of a message: its group, or a lane of its own.
    pub(super) fn lane(&self, queue: &str, data: &Value, number: u64) -> Result<String, Fault> {
        let (Kind::Fifo, Some(field)) = (self.kind, &self.message_group_field) else { return Ok(format!("#{number}")) };
        match data.get(field) {
            None | Some(Value::Null) => Err(Fault::new(
                "missing_group",
                format!("queue '{queue}' orders by the field '{field}', which the data does not have"),
            )),
            Some(Value::String(group)) => Ok(format!("={group}")),
            Some(other) => Ok(format!("={other}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn settings_are_read_or_refused_by_name() {
        assert_eq!(QueueConfig::parse(json!({})).unwrap(), QueueConfig::default());
        let fifo =
            QueueConfig::parse(json!({"type": "fifo", "message_group_field": "g", "poll_interval_ms": 5})).unwrap();
        assert_eq!(fifo.kind, Kind::Fifo);
        for (bad, word) in [
            (json!({"type": "fifo"}), "message_group_field"),
            (json!({"type": "lifo"}), "lifo"),
            (json!({"concurency": 1}), "concurency"),
            (json!({"concurrency": 0}), "concurrency"),
            (json!({"max_retries": 0}), "max_retries"),
            (json!({"backoff_ms": -1}), "-1"),
        ] {
            let fault = QueueConfig::parse(bad).unwrap_err();
            assert!(fault.code == "INVALID_CONFIG" && fault.message.contains(word), "{fault}");
        }
    }

    #[test]
    fn the_pause_doubles_up_to_an_hour() {
        let config = QueueConfig { backoff_ms: 100, ..QueueConfig::default() };
        let pauses: Vec<u128> = [1, 2, 3, 40, 90].map(|n| config.backoff(n).as_millis()).to_vec();
        assert_eq!(pauses, [100, 200, 400, 3_600_000, 3_600_000]);
    }
}
