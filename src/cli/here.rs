//! The worker's library on this machine, for what no call on the bus tells: sizes, the audit log, what is kept of
//! removed worktrees.
//!
//! Configuration and records come from the engine; the directories that they name are looked at here, so the command
//! has to run where the worker does.

use std::sync::Arc;

use super::link::{Link, READ_LIMIT};
use super::trouble::Outcome;
use crate::bus::EventSink;
use crate::git::Git;
use crate::model::actor::Actor;
use crate::model::clock::SystemClock;
use crate::model::config::Settings;
use crate::model::event::Event;
use crate::model::id::RandomIds;
use crate::wire::WORKER_NAME;
use crate::wire::configuration::ConfigEntry;
use crate::worktrees::Context;
use crate::worktrees::context::Ports;

/// Nobody has bound anything to this process: its events are those of the worker, or none.
struct Unheard;

impl EventSink for Unheard {
    fn emit(&self, event: &Event) {
        tracing::debug!(kind = event.kind.trigger_type(), "not sent: the worker's bindings are not known here");
    }
}

/// The id of the worker's configuration.
pub(super) fn config_id() -> String {
    std::env::var("III_CONFIG_NAME").ok().filter(|id| !id.is_empty()).unwrap_or_else(|| WORKER_NAME.to_owned())
}

/// The configuration that the worker has in force.
///
/// # Errors
/// When it cannot be read or applied.
pub(super) async fn settings(link: &Link) -> Outcome<Settings> {
    Ok(ConfigEntry::new(link.bus(), config_id(), std::env::home_dir()).read().await?)
}

/// What the use cases work with, filled from the engine.
///
/// # Errors
/// When the configuration or the records cannot be read.
pub(super) async fn context(link: &Link) -> Outcome<Arc<Context>> {
    let settings = settings(link).await?;
    let bus = Arc::new(link.bus());
    let ports = Ports {
        store: bus.clone(),
        queue: bus.clone(),
        shell: bus,
        events: Arc::new(Unheard),
        clock: Arc::new(SystemClock),
        ids: Arc::new(RandomIds),
    };
    let context = Context::new(ports, Git::new(READ_LIMIT), settings);
    context.registry.load().await?;
    Ok(context)
}

/// The person at the command line, as the audit log names them.
pub(super) fn actor() -> Actor {
    let user = std::env::var("USER").or_else(|_| std::env::var("LOGNAME")).ok().filter(|name| !name.is_empty());
    Actor::command_line(&user.unwrap_or_else(|| nix::unistd::getuid().to_string()))
}
