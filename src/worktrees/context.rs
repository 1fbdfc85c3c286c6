//! What every use case works with.
//!
//! Owner of the settings snapshot is the configuration entry in `wire`: it swaps the whole snapshot, so that a use
//! case that took one keeps a consistent view to its end.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use tokio::sync::watch;

use super::memo::Memo;
use super::pool::Pool;
use super::registry::Registry;
use super::usage::Usage;
use super::{acting, trash};
use crate::audit;
use crate::bus::{EventSink, LandQueue, Shell, StateStore};
use crate::git::{Git, Hooks, Policy, Signing};
use crate::model::Result;
use crate::model::clock::Clock;
use crate::model::config::{GitPolicy, HookPolicy, Settings, SigningPolicy};
use crate::model::id::IdSource;

/// The ports that a [`Context`] is built from.
pub struct Ports {
    /// Where records and jobs are stored.
    pub store: Arc<dyn StateStore>,
    /// Where lands are queued.
    pub queue: Arc<dyn LandQueue>,
    /// Where test gates run.
    pub shell: Arc<dyn Shell>,
    /// Where events go.
    pub events: Arc<dyn EventSink>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// New identifiers.
    pub ids: Arc<dyn IdSource>,
}

/// Ports, registry, settings and git, shared by all use cases.
pub struct Context {
    /// Records and jobs.
    pub registry: Registry,
    /// Where lands are queued.
    pub queue: Arc<dyn LandQueue>,
    /// Where test gates run.
    pub shell: Arc<dyn Shell>,
    /// Where events go.
    pub events: Arc<dyn EventSink>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// New identifiers.
    pub ids: Arc<dyn IdSource>,
    /// Work that goes on after an answer.
    pub background: Background,
    /// What the worktrees used of the disk when that was measured last.
    pub usage: Usage,
    /// The cause for which the sweep left a worktree alone, where that is in the audit log already.
    pub told_skips: Mutex<HashMap<String, String>>,
    /// Answers of git that the reads need again and again.
    pub memo: Memo,
    /// Whose turn it is to be deleted from the trash.
    pub trash_turns: trash::Turns,
    /// Worktrees that are made before anybody asks for them.
    pub pool: Pool,
    auditing: audit::Together,
    git: Git,
    settings: RwLock<Arc<Settings>>,
}

impl Context {
    /// A context over `ports` with these settings.
    #[must_use]
    pub fn new(ports: Ports, git: Git, settings: Settings) -> Arc<Self> {
        Arc::new(Context {
            registry: Registry::new(ports.store),
            queue: ports.queue,
            shell: ports.shell,
            events: ports.events,
            clock: ports.clock,
            ids: ports.ids,
            background: Background::new(),
            usage: Usage::default(),
            told_skips: Mutex::default(),
            memo: Memo::default(),
            trash_turns: trash::Turns::default(),
            pool: Pool::default(),
            auditing: audit::Together::default(),
            git,
            settings: RwLock::new(Arc::new(settings)),
        })
    }

    /// The settings that hold now.
    #[must_use]
    pub fn settings(&self) -> Arc<Settings> {
        self.settings.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the settings as a whole.
    pub fn swap_settings(&self, settings: Settings) {
        *self.settings.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(settings);
    }

    /// git with the configured time limit and policy.
    #[must_use]
    pub fn git(&self) -> Git {
        let settings = self.settings();
        self.git.with_limit(settings.git_timeout()).with_policy(policy(&settings.config.git))
    }

    /// The audit log; `None` when it is switched off.
    #[must_use]
    pub fn audit_log(&self) -> Option<audit::Log> {
        let settings = self.settings();
        let audit = &settings.config.audit;
        audit.enabled.then(|| audit::Log::new(settings.audit_dir.clone(), audit.max_bytes))
    }

    /// Writes to the audit log, on behalf of whoever the running call acts for. On return it is on the disk.
    ///
    /// # Errors
    /// `W600`; nothing may be destroyed then.
    pub async fn audit(&self, event: audit::Event) -> Result<()> {
        let Some(log) = self.audit_log() else { return Ok(()) };
        self.auditing.append(log, audit::Told { time: self.now(), actor: acting::current(), event }).await
    }

    /// Milliseconds since the epoch.
    #[must_use]
    pub fn now(&self) -> i64 {
        self.clock.now_ms()
    }
}

/// The configured policy in the words of the git layer.
fn policy(config: &GitPolicy) -> Policy {
    Policy {
        hooks: match config.hooks {
            HookPolicy::Run => Hooks::Run,
            HookPolicy::Skip => Hooks::Skip,
        },
        filters: config.filters.clone(),
        merge_drivers: config.merge_drivers.clone(),
        signing: match config.signing {
            SigningPolicy::Off => Signing::Off,
            SigningPolicy::Keep => Signing::Keep,
            SigningPolicy::Fail => Signing::Fail,
        },
        skip_lfs_smudge: config.skip_lfs_smudge,
    }
}

/// Counts the tasks that go on after an answer, so that a stop can wait for them.
#[derive(Default)]
pub struct Background {
    running: watch::Sender<usize>,
}

/// One piece of running work; its end is counted even when it panics.
pub struct Running(watch::Sender<usize>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

impl Background {
    /// Nothing is running.
    #[must_use]
    pub fn new() -> Self {
        Background { running: watch::Sender::new(0) }
    }

    /// Counts work as running until the answer is dropped.
    #[must_use]
    pub fn enter(&self) -> Running {
        self.running.send_modify(|count| *count += 1);
        Running(self.running.clone())
    }

    /// Starts `task` on the current runtime.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let running = self.enter();
        tokio::spawn(async move {
            task.await;
            drop(running);
        });
    }

    /// Whether anything is running.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        *self.running.borrow() > 0
    }

    /// Waits until no task is left.
    pub async fn idle(&self) {
        let mut running = self.running.subscribe();
        // The sender lives in `self`, so the channel cannot close while this waits.
        if let Err(closed) = running.wait_for(|count| *count == 0).await {
            tracing::debug!(%closed, "no background tasks");
        }
    }
}
