//! The trigger type `cron`.
//!
//! Invariants
//! 1. Runs of one binding never overlap: the next tick is chosen after the run before has ended.
//! 2. Ticks that passed meanwhile are skipped, not caught up.

use std::collections::HashMap;
use std::str::FromStr as _;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use chrono::{DateTime, Utc};
use cron::Schedule;
use serde_json::json;
use tokio::task::AbortHandle;

use super::bindings::{Provider, Target};
use super::core::{Core, trigger_call};
use super::ident;

/// The longest sleep, so that a clock that is set is noticed.
const LONGEST_SLEEP: Duration = Duration::from_secs(30);

/// The running jobs, by binding.
pub(super) struct Cron {
    core: Weak<Core>,
    jobs: Mutex<HashMap<String, AbortHandle>>,
}

impl Cron {
    pub(super) fn new(core: Weak<Core>) -> Self {
        Self { core, jobs: Mutex::new(HashMap::new()) }
    }
}

impl Provider for Cron {
    fn bind(&self, target: &Target) -> Result<(), String> {
        let expression = target.setting("expression").unwrap_or_default();
        if expression.is_empty() {
            return Err("Cron expression is required".to_owned());
        }
        let schedule = Schedule::from_str(expression)
            .map_err(|error| format!("Invalid cron expression '{expression}': {error}"))?;
        let job = tokio::spawn(run(self.core.clone(), schedule, target.clone())).abort_handle();
        let mut jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(old) = jobs.insert(target.id.clone(), job) {
            old.abort();
        }
        Ok(())
    }

    fn unbind(&self, id: &str) {
        if let Some(job) = self.jobs.lock().unwrap_or_else(PoisonError::into_inner).remove(id) {
            job.abort();
        }
    }
}

async fn run(core: Weak<Core>, schedule: Schedule, target: Target) {
    let mut after = ident::now();
    while let Some(tick) = schedule.after(&after).next() {
        wait_until(tick).await;
        let Some(core) = core.upgrade() else { return };
        if *core.stopping.borrow() {
            return;
        }
        tick_once(&core, &target, tick).await;
        drop(core);
        after = ident::now().max(tick);
    }
}

async fn wait_until(tick: DateTime<Utc>) {
    while let Ok(left) = (tick - ident::now()).to_std() {
        if left.is_zero() {
            return;
        }
        tokio::time::sleep(left.min(LONGEST_SLEEP)).await;
    }
}

async fn tick_once(core: &Arc<Core>, target: &Target, tick: DateTime<Utc>) {
    let payload = json!({
        "trigger": "cron",
        "job_id": target.id,
        "scheduled_time": ident::text(tick),
        "actual_time": ident::text(ident::now()),
    });
    if core.condition_holds(target, &payload).await
        && let Err(fault) = core.call(trigger_call(target, payload)).await.into_answer()
    {
        tracing::warn!(job = target.id, function = target.function_id, %fault, "a cron job failed");
    }
}
