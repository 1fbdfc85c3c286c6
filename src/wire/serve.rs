//! Start, watch, stop.
//!
//! Order of the start: connect, configuration, registry, trigger types, functions, triggers, recovery.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use iii_sdk::errors::Error as SdkError;
use iii_sdk::protocol::RegisterTriggerInput;
use iii_sdk::runtime::{IIIConnectionState, WorkerMetadata};
use iii_sdk::{IIIClient, InitOptions, RegisterFunction, RegisterTriggerType};
use serde_json::{Value, json};
use tokio::runtime::Handle;
use tokio::time::Instant;

use super::bindings::{Bindings, BusEvents, Provider};
use super::catalog::{self, Function, Worker};
use super::configuration::{self, ConfigEntry};
use super::schedule::PruneSchedule;
use super::store_watch;
use super::{WORKER_DESCRIPTION, WORKER_NAME, handler, seed};
use crate::bus::iii::IiiBus;
use crate::git::{Git, GitError};
use crate::land::recover;
use crate::model::clock::SystemClock;
use crate::model::config::Settings;
use crate::model::event::EventKind;
use crate::model::id::RandomIds;
use crate::model::{Code, Error};
use crate::queue::Dispatcher;
use crate::worktrees::context::{Background, Ports};
use crate::worktrees::{Context, pool, rebuild};

/// How often the link is looked at while something waits for the engine.
const WATCH: Duration = Duration::from_secs(1);
/// How often otherwise.
const IDLE_WATCH: Duration = Duration::from_secs(3);
/// How often the engine is asked who is connected, while nothing waits for it.
const ASK_EVERY: Duration = Duration::from_secs(15);
/// How often jobs are looked at that nobody may be running.
const REDRIVE_EVERY: Duration = Duration::from_secs(30);
/// Pause between two attempts to reach the engine.
const RETRY: Duration = Duration::from_millis(500);
/// How many attempts pass between two lines in the log.
const SAY_EVERY: u32 = 20;
/// How long the engine may take to name the connection.
const ASK_LIMIT: Duration = Duration::from_secs(3);
/// How long after a link is back its bindings are taken to be complete.
const SETTLED_AFTER: Duration = Duration::from_secs(10);
/// How long git may take to tell its version.
const GIT_VERSION_LIMIT: Duration = Duration::from_secs(10);
/// How long a stop waits for running work to come to a recorded state.
const STOP_LIMIT: Duration = Duration::from_secs(8);

/// How to serve.
#[derive(Debug, Clone)]
pub struct ServeOptions {
    /// Address of the engine, `ws://host:port`.
    pub url: String,
    /// A YAML file that seeds the configuration when the engine stores none yet.
    pub seed: Option<PathBuf>,
    /// Whether the SDK's spans and metrics go to the engine, where `OTEL_ENABLED` asks for them. An engine that drops them,
    /// as the embedded one does, is spared them.
    pub telemetry: bool,
}

/// Why serving ended other than by being asked to.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Another worker holds the name on this engine.
    #[error(
        "another worker named `{name}` is connected to {url}; stop it, or run this one in another namespace (III_NAMESPACE)"
    )]
    NameTaken {
        /// The name that is taken.
        name: String,
        /// The engine that refused.
        url: String,
    },
    /// The engine does not accept this worker.
    #[error("the engine at {url} turned this worker away: {why}")]
    TurnedAway {
        /// The engine that refused.
        url: String,
        /// Its reason.
        why: String,
    },
    /// The stored configuration, or the seed file, cannot be applied.
    #[error("{0}")]
    Configuration(String),
    /// The installed git is too old.
    #[error("{0} (W100)")]
    Git(String),
}

/// Serves until `shutdown` completes, then brings running work to a recorded state and leaves.
///
/// `ready` is called once, when the functions answer on the engine.
///
/// # Errors
/// [`ServeError`] when the name is taken or the configuration cannot be applied. An engine that cannot be reached
/// is not an error: it is waited for.
pub async fn serve<S, R>(options: ServeOptions, ready: R, shutdown: S) -> Result<(), ServeError>
where
    S: Future<Output = ()> + Send,
    R: FnOnce() + Send,
{
    let seed = seed::read(options.seed.as_deref()).map_err(ServeError::Configuration)?;
    require_git().await?;
    let link = Link { client: connect(&options), url: options.url };
    tokio::pin!(shutdown);
    let started = tokio::select! {
        started = start(&link, &seed) => started.map(Some),
        () = &mut shutdown => Ok(None),
    };
    let outcome = match started {
        Err(error) => Err(error),
        Ok(None) => Ok(()),
        Ok(Some(serving)) => {
            ready();
            let ended = tokio::select! {
                error = serving.watch(&link) => Err(error),
                () = &mut shutdown => Ok(()),
            };
            serving.stop().await;
            ended
        }
    };
    link.close().await;
    outcome
}

/// Refuses a git that is too old. One that is missing may still be installed while the worker runs, and every call
/// says so until then.
async fn require_git() -> Result<(), ServeError> {
    match Git::new(GIT_VERSION_LIMIT).require_version().await {
        Ok(version) => tracing::info!(%version, "git"),
        Err(error @ GitError::TooOld { .. }) => return Err(ServeError::Git(error.to_string())),
        Err(error) => tracing::error!(code = %error.code(), %error, "git does not answer"),
    }
    Ok(())
}

/// The connection to one engine.
struct Link {
    client: IIIClient,
    url: String,
}

fn connect(to: &ServeOptions) -> IIIClient {
    let metadata = WorkerMetadata {
        name: WORKER_NAME.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        description: Some(WORKER_DESCRIPTION.to_owned()),
        ..WorkerMetadata::default()
    };
    let mut options = InitOptions { metadata: Some(metadata), ..InitOptions::default() };
    // The SDK would send without being asked. Each span of a refusal holds a stack trace of this process, and the rest costs
    // an idle worker twenty wake-ups a second. What the variable says is the SDK's to read.
    if !to.telemetry || std::env::var_os("OTEL_ENABLED").is_none() {
        options.otel.get_or_insert_default().enabled = Some(false);
    }
    iii_sdk::register_worker(&to.url, options)
}

/// The name under which the SDK announces this worker.
fn worker_name() -> String {
    std::env::var("III_WORKER_NAME").ok().filter(|name| !name.is_empty()).unwrap_or_else(|| WORKER_NAME.to_owned())
}

impl Link {
    /// Refuses to go on once the engine has turned this worker away.
    fn require_welcome(&self) -> Result<(), ServeError> {
        match self.client.fatal_error() {
            None => Ok(()),
            Some(SdkError::RegistrationRejected { worker_name: Some(name), .. }) => {
                Err(ServeError::NameTaken { name, url: self.url.clone() })
            }
            Some(error) => Err(ServeError::TurnedAway { url: self.url.clone(), why: error.to_string() }),
        }
    }

    /// Repeats `attempt` until it succeeds or says that it never will; says in the log what it waits for.
    async fn insist<T, F, Fut>(&self, what: &str, mut attempt: F) -> Result<T, ServeError>
    where
        F: FnMut() -> Fut,
        Fut: Future<Output = Result<T, Error>>,
    {
        for tries in 0_u32.. {
            self.require_welcome()?;
            match attempt().await {
                Ok(done) => return Ok(done),
                Err(error) if error.code == Code::InvalidConfig => {
                    return Err(ServeError::Configuration(format!("{error} ({})", error.code)));
                }
                Err(error) if tries % SAY_EVERY == 0 => {
                    self.require_welcome()?;
                    tracing::warn!(url = self.url, %error, "waiting for the engine: {what}");
                }
                Err(_) => {}
            }
            tokio::time::sleep(RETRY).await;
        }
        self.require_welcome()?;
        Err(ServeError::TurnedAway { url: self.url.clone(), why: format!("{what} never succeeded") })
    }

    fn is_up(&self) -> bool {
        self.client.get_connection_state() == IIIConnectionState::Connected
    }

    /// Ends the connection; what was handed over before leaves first.
    async fn close(self) {
        let client = self.client;
        if let Err(error) = tokio::task::spawn_blocking(move || client.shutdown()).await {
            tracing::warn!(%error, "the connection did not close");
        }
    }
}

/// How the engine names the connection of this worker; `None` when it does not say. A link that breaks and is back within
/// two seconds is seen by this alone: the SDK goes on saying that it is connected.
async fn connection(bus: &IiiBus) -> Option<String> {
    let asked = bus.builtin("engine::workers::list", json!({}));
    let listed = tokio::time::timeout(ASK_LIMIT, asked).await.ok()?.ok()?;
    let namespace = bus.namespace().unwrap_or_else(|| "default".to_owned());
    let name = worker_name();
    let workers = listed.get("workers")?.as_array()?;
    let ours = workers.iter().find(|one| one["name"] == name && one["namespace"] == namespace)?;
    ours["id"].as_str().map(str::to_owned)
}

/// A worker that serves.
struct Serving {
    worker: Arc<Worker>,
    bus: IiiBus,
    bindings: Bindings,
    /// The connection on which the start began.
    connection: Option<String>,
    seed: Value,
    calls: Arc<Background>,
}

async fn start(link: &Link, seed: &Value) -> Result<Serving, ServeError> {
    let registered = || async {
        link.client
            .wait_until_registered(Duration::from_secs(5))
            .await
            .map_err(|error| Error::new(Code::StateUnreachable, error.to_string()))
    };
    link.insist("no connection yet", registered).await?;
    let bus = IiiBus::new(link.client.clone());
    let connection = connection(&bus).await;
    let config = config_entry(&bus);
    let settings = link.insist("the configuration does not answer", || config.establish(seed)).await?;
    let bindings = Bindings::default();
    let ctx = context(&bus, &bindings, settings);
    link.insist("the state store does not answer", || ctx.registry.load()).await?;
    rebuild::restore_lost(&ctx, None).await;
    let schedule = PruneSchedule::new(link.client.clone());
    let worker = Arc::new(Worker { ctx, dispatcher: Dispatcher::new(), config, schedule });
    let serving = Serving { worker, bus, bindings, connection, seed: seed.clone(), calls: Arc::new(Background::new()) };
    serving.register_trigger_types(link);
    let functions = catalog::functions();
    serving.register_functions(link, &functions);
    store_watch::register(&link.client, &serving.worker.ctx);
    serving.bind_triggers(link, &functions)?;
    serving.look_for_http().await;
    link.insist("the functions do not answer", || serving.answers(&functions)).await?;
    serving.recover();
    Ok(serving)
}

/// The entry with which this process is to be configured.
pub(super) fn config_entry(bus: &IiiBus) -> ConfigEntry {
    let home = std::env::var_os("HOME").filter(|home| !home.is_empty()).map(PathBuf::from);
    let id = std::env::var("III_CONFIG_NAME").ok().filter(|id| !id.is_empty());
    ConfigEntry::new(bus.clone(), id.unwrap_or_else(|| WORKER_NAME.to_owned()), home)
}

pub(super) fn context(bus: &IiiBus, bindings: &Bindings, settings: Settings) -> Arc<Context> {
    let bus = Arc::new(bus.clone());
    let events = BusEvents::new((*bus).clone(), bindings.clone());
    let ports = Ports {
        store: bus.clone(),
        queue: bus.clone(),
        shell: bus,
        events: Arc::new(events),
        clock: Arc::new(SystemClock),
        ids: Arc::new(RandomIds),
    };
    let git = Git::new(settings.git_timeout());
    Context::new(ports, git, settings)
}

impl Serving {
    fn register_trigger_types(&self, link: &Link) {
        for kind in EventKind::ALL {
            let provider = Provider::new(kind, self.bindings.clone());
            let description = catalog::trigger_description(kind);
            let trigger_type = RegisterTriggerType::new(kind.trigger_type(), description, provider);
            link.client.register_trigger_type(trigger_type.trigger_request_format::<super::bindings::BindingConfig>());
        }
    }

    fn register_functions(&self, link: &Link, functions: &[Function]) {
        let runtime = Handle::current();
        for function in functions {
            let (worker, call) = (self.worker.clone(), function.call.clone());
            let (runtime, calls) = (runtime.clone(), self.calls.clone());
            let handle = move |input: Value| {
                let (worker, call, runtime, calls) = (worker.clone(), call.clone(), runtime.clone(), calls.clone());
                async move {
                    let _counted = calls.enter();
                    handler::answer(runtime, input, move |input| call(worker, input)).await
                }
            };
            let registration = RegisterFunction::new_async(handle)
                .description(function.description)
                .request_format(function.request_schema.clone())
                .response_format(function.response_schema.clone());
            let registration =
                if function.internal { registration.metadata(json!({"internal": true})) } else { registration };
            link.client.register_function(function.id, registration);
        }
    }

    fn bind_triggers(&self, link: &Link, functions: &[Function]) -> Result<(), ServeError> {
        let expression = self.worker.ctx.settings().config.prune_schedule.clone();
        let turned_away = |error: SdkError| ServeError::TurnedAway { url: link.url.clone(), why: error.to_string() };
        self.worker.schedule.apply(&expression).map_err(turned_away)?;
        let bind = |trigger_type: &str, function_id: &str, config: Value| {
            let input = RegisterTriggerInput::new(trigger_type, function_id, config);
            link.client.register_trigger(input).map(drop).map_err(turned_away)
        };
        let config = json!({"configuration_id": self.worker.config.id(), "event_types": ["configuration:updated"]});
        bind("configuration", "worktree::on-config-change", config)?;
        for scope in store_watch::SCOPES {
            bind("state", store_watch::FUNCTION, json!({"scope": scope}))?;
        }
        for function in functions.iter().filter(|function| function.http) {
            let path = format!("/{}", function.id.replace("::", "/"));
            bind("http", function.id, json!({"api_path": path, "http_method": "POST"}))?;
        }
        Ok(())
    }

    /// Says once when nothing on the engine serves `http`. The bindings wait for it, should it come later.
    async fn look_for_http(&self) {
        let answer = self.bus.builtin("engine::triggers::info", json!({"id": "http"})).await;
        if let Err(error @ SdkError::Remote { .. }) = answer {
            tracing::warn!(%error, "no provider of `http` triggers: the reads answer on the bus only");
        }
    }

    /// Whether every function can be called.
    async fn answers(&self, functions: &[Function]) -> Result<(), Error> {
        for function in functions {
            let namespace = self.bus.namespace();
            let mut ask = json!({"function_id": function.id});
            if let Some(namespace) = namespace {
                ask["namespace"] = json!(namespace);
            }
            self.bus
                .builtin("engine::functions::info", ask)
                .await
                .map_err(|error| Error::new(Code::StateUnreachable, format!("{}: {error}", function.id)))?;
        }
        Ok(())
    }

    /// Sets right what a crash left and hands over the jobs that have not ended, in the background.
    fn recover(&self) {
        let worker = self.worker.clone();
        let ctx = self.worker.ctx.clone();
        ctx.background.spawn(async move {
            worker.dispatcher.declare(&worker.ctx).await;
            while let Err(error) = recover::run(&worker.ctx, &worker.dispatcher).await {
                tracing::warn!(code = %error.code, %error, "recovery will be tried again");
                if worker.dispatcher.is_stopping() {
                    return;
                }
                tokio::time::sleep(RETRY).await;
            }
            rebuild::clear_unfinished(&worker.ctx, None).await;
        });
    }

    /// Watches the link: catches up after a reconnect, and looks after jobs that nobody may be running. Ends only when
    /// the engine turned this worker away.
    async fn watch(&self, link: &Link) -> ServeError {
        let mut up = true;
        let mut known = self.connection.clone();
        let mut settled = None;
        let (mut asked, mut redriven) = (Instant::now(), Instant::now());
        loop {
            let busy = self.is_at_work();
            tokio::time::sleep(if busy || !up { WATCH } else { IDLE_WATCH }).await;
            if let Err(error) = link.require_welcome() {
                return error;
            }
            let now = link.is_up();
            let asks = now && (!up || busy || self.is_at_work() || asked.elapsed() >= ASK_EVERY);
            let connection = if asks { connection(&self.bus).await } else { None };
            if asks {
                asked = Instant::now();
            }
            let is_another = known.is_some() && connection.is_some() && known != connection;
            if up && (!now || is_another) {
                tracing::warn!(url = link.url, "the engine is gone; waiting for it");
                self.bus.link_lost();
            }
            if now && (!up || is_another) {
                tracing::info!(url = link.url, "the engine is back");
                if let Err(error) = self.catch_up(link).await {
                    return error;
                }
                settled = Some(Instant::now() + SETTLED_AFTER);
            }
            if now && settled.is_some_and(|settled| settled <= Instant::now()) {
                settled = None;
                self.forget_stale_bindings().await;
            }
            known = connection.or(known);
            up = now;
            if up && redriven.elapsed() >= REDRIVE_EVERY {
                redriven = Instant::now();
                self.worker.dispatcher.redrive(&self.worker.ctx);
                pool::wake_all(&self.worker.ctx);
            }
        }
    }

    /// Whether something would wait in vain for an engine that went away and came back.
    fn is_at_work(&self) -> bool {
        let ctx = &self.worker.ctx;
        self.calls.is_busy() || ctx.background.is_busy() || !ctx.registry.unfinished_jobs().is_empty()
    }

    /// Forgets bindings that were made on an engine that has forgotten them.
    async fn forget_stale_bindings(&self) {
        for kind in EventKind::ALL {
            let ids = self.bindings.ids(kind);
            let query = json!({"trigger_type": kind.trigger_type(), "include_internal": true});
            let listed = self.bus.builtin("engine::registered-triggers::list", query).await;
            let bound = listed.ok().and_then(|listed| {
                let bound = listed.get("registered_triggers")?.as_array()?.iter();
                Some(bound.filter_map(|one| one["id"].as_str().map(str::to_owned)).collect())
            });
            // An engine that does not say forgets nothing.
            if let Some(bound) = bound {
                self.bindings.forget_unless(kind, ids, &bound);
            }
        }
    }

    /// After a reconnect: the engine may have forgotten schemas, queue and the last seconds of its state.
    async fn catch_up(&self, link: &Link) -> Result<(), ServeError> {
        let worker = &self.worker;
        let again = || configuration::catch_up(worker, &self.seed);
        match link.insist("the configuration does not answer", again).await {
            Ok(()) => {}
            Err(ServeError::Configuration(why)) => tracing::error!(why, "the previous configuration stays"),
            Err(error) => return Err(error),
        }
        link.insist("the state store does not answer", || worker.ctx.registry.load()).await?;
        rebuild::restore_lost(&worker.ctx, None).await;
        self.recover();
        Ok(())
    }

    /// Takes no more work and waits, within bounds, until what runs has come to a recorded state.
    async fn stop(&self) {
        self.worker.dispatcher.stop();
        self.worker.ctx.pool.stop();
        self.worker.ctx.trash_turns.hurry();
        tracing::info!("stopping: no new land is taken, what runs comes to a recorded state");
        let quiet = async {
            self.calls.idle().await;
            self.worker.ctx.background.idle().await;
        };
        if tokio::time::timeout(STOP_LIMIT, quiet).await.is_err() {
            tracing::warn!("work was still going on; it goes on from its last recorded state at the next start");
        }
    }
}
