//! The cron binding of the sweep.
//!
//! Invariants
//! 1. It is renewed only when the schedule changes: the new binding first, then the old one out, so that there is no
//!    moment without one.

use std::sync::{Mutex, PoisonError};

use iii_sdk::IIIClient;
use iii_sdk::errors::Error as SdkError;
use iii_sdk::protocol::RegisterTriggerInput;
use iii_sdk::trigger::Trigger;
use serde_json::json;

/// The function that sweeps.
const PRUNE: &str = "worktree::prune";

/// The binding that is in force.
pub struct PruneSchedule {
    client: IIIClient,
    bound: Mutex<Option<(String, Trigger)>>,
}

impl PruneSchedule {
    /// Nothing is bound yet.
    #[must_use]
    pub fn new(client: IIIClient) -> Self {
        PruneSchedule { client, bound: Mutex::new(None) }
    }

    /// Makes `expression` (six fields, UTC) the schedule in force.
    ///
    /// # Errors
    /// What the SDK reports when the binding could not be handed over; the previous one then stays.
    pub fn apply(&self, expression: &str) -> Result<(), SdkError> {
        let mut bound = self.bound.lock().unwrap_or_else(PoisonError::into_inner);
        if bound.as_ref().is_some_and(|(current, _)| current == expression) {
            return Ok(());
        }
        let input = RegisterTriggerInput::new("cron", PRUNE, json!({"expression": expression}));
        let fresh = self.client.register_trigger(input)?;
        if let Some((_, old)) = bound.replace((expression.to_owned(), fresh)) {
            old.unregister();
        }
        Ok(())
    }
}
