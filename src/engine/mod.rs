//! The embedded engine: the iii wire protocol for one machine.
//!
//! It serves the SDKs of iii over a real socket: functions, triggers, state, configuration, a queue, cron, HTTP and
//! the shell. It is for development, CI and a laptop; it knows nothing of worktrees, has no authentication, and
//! keeps everything in one directory. Whoever outgrows it runs the iii engine, unchanged.
//!
//! | module | what it owns |
//! |---|---|
//! | `session` | connections: upgrade, reading, writing, the end |
//! | `outbox` | what waits to be written to one connection, and the patience with it |
//! | `router` | who is connected and what they registered; `calls`, `bindings` belong to it, `listing` reads it |
//! | `core` | the parts together: how a call finds its way |
//! | `builtins` | the catalog of what the engine serves itself |
//! | `state`, `configuration`, `queue`, `cron`, `http`, `shell`, `log` | one file each, with its parts beside it |
//! | `channels` | streams between clients, and of HTTP bodies |
//! | `store` | the file under state and queue, and its one writer |
//! | `owner` | the claim on the state directory |
//!
//! Invariants
//! 1. What was answered as stored is on the disk: no crash, of the process or the machine, takes it back.
//! 2. What one client does, or fails to read, never takes the engine down nor makes its memory grow without bound.
//! 3. One engine owns a state directory at a time.

mod bindings;
mod builtins;
mod calls;
mod channels;
mod configuration;
mod configuration_files;
mod core;
mod cron;
mod error;
mod expand;
mod fault;
mod http;
mod http_listener;
mod http_response;
mod ident;
mod listing;
mod log;
mod message;
mod options;
mod outbox;
mod owner;
mod queue;
mod queue_config;
mod queue_delivery;
mod router;
mod session;
mod shell;
mod shell_jobs;
mod shell_output;
mod state;
mod state_ops;
mod store;
mod trigger_calls;

use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::DirBuilderExt as _;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};

pub use error::EngineError;
pub use options::{Limits, Options, ShellOptions};

use self::configuration::{Configuration, ConfigurationEvent};
use self::core::Core;
use self::owner::Claim;
use self::queue::Queue;
use self::router::Router;
use self::shell::Shell;
use self::state::{State, StateEvent};
use self::store::Store;

/// How long connections have to go at a shutdown.
const GOODBYE: Duration = Duration::from_secs(2);
/// How long changes of the set of functions are gathered before bindings hear of them.
const GATHER: Duration = Duration::from_millis(500);

/// A running engine. Dropping it stops it without the courtesies of [`Engine::shutdown`]: what was answered as
/// stored is safe, but calls that are open get no answer.
pub struct Engine {
    core: Arc<Core>,
    address: SocketAddr,
    http_address: SocketAddr,
    tasks: JoinSet<()>,
    accepting: Option<JoinHandle<()>>,
    claim: Option<Claim>,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("url", &self.url()).field("http_url", &self.http_url()).finish_non_exhaustive()
    }
}

impl Engine {
    /// Claims the state directory, reads what it holds, and listens.
    ///
    /// # Errors
    /// When the directory is in use, cannot be read or written, or holds what is not an engine's; and when a port
    /// is taken. Nothing listens then.
    pub async fn start(options: Options) -> Result<Engine, EngineError> {
        let dir = options.state_dir.clone();
        let io = |action, path: &std::path::Path| {
            let path = path.to_owned();
            move |source| EngineError::Io { action, path, source }
        };
        // What clients store is theirs, not everybody's.
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&dir).map_err(io("create", &dir))?;
        // The directory itself must survive, too, for what is stored in it to be found.
        let parent = dir.parent().filter(|parent| !parent.as_os_str().is_empty());
        if let Some(parent) = parent {
            std::fs::File::open(parent).and_then(|parent| parent.sync_all()).map_err(io("sync", parent))?;
        }
        let claim = owner::claim(&dir).await?;
        let (state_events, heard_of_state) = mpsc::unbounded_channel();
        let (configuration_events, heard_of_configuration) = mpsc::unbounded_channel();
        let store_path = dir.join("engine.redb");
        let (store, mut rows) = Store::open(&store_path)?;
        let store = Arc::new(store);
        let refused = |reason| EngineError::Store { path: store_path.clone(), reason };
        let limits = options.limits.clone();
        let state = State::load(&mut rows, store.clone(), state_events, limits.clone()).map_err(refused)?;
        let queue = Queue::load(&mut rows, store.clone(), limits.clone()).map_err(refused)?;
        let configuration = Configuration::open(&dir.join("config"), configuration_events, limits.clone())?;
        let listener = listen(options.host, options.port).await?;
        let http_listener = listen(options.host, options.http_port).await?;
        let address = listener.local_addr().map_err(io("listen for", &dir))?;
        let http_address = http_listener.local_addr().map_err(io("listen for", &dir))?;

        let router = Arc::new(Router::new(limits));
        let routes = Arc::new(http::Routes::default());
        builtins::serve_functions(&router);
        let core = Arc::new_cyclic(|core| {
            builtins::provide_triggers(&router, Arc::new(cron::Cron::new(core.clone())), routes.clone());
            Core {
                shell: Shell::new(options.shell.clone()),
                options,
                router,
                store,
                state,
                configuration,
                queue,
                channels: Arc::new(channels::Channels::default()),
                stopping: watch::Sender::new(false),
                answering: watch::Sender::new(0),
                functions_changed: Notify::new(),
            }
        });
        let mut tasks = JoinSet::new();
        tasks.spawn(tell_of_state(core.clone(), heard_of_state));
        tasks.spawn(tell_of_configuration(core.clone(), heard_of_configuration));
        tasks.spawn(tell_of_functions(core.clone()));
        tasks.spawn(queue_delivery::deliver(core.clone()));
        tasks.spawn(http::serve(core.clone(), routes, http_listener));
        let accepting = Some(tokio::spawn(session::accept(core.clone(), listener)));
        Ok(Engine { core, address, http_address, tasks, accepting, claim: Some(claim) })
    }

    /// Where workers connect: `ws://127.0.0.1:PORT`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("ws://{}", self.address)
    }

    /// Where the routes of `http` triggers are: `http://127.0.0.1:PORT`.
    #[must_use]
    pub fn http_url(&self) -> String {
        format!("http://{}", self.http_address)
    }

    /// Stops taking connections and calls, kills running commands, answers what can be answered, closes the sockets,
    /// writes what is left and gives the state directory up. Messages on their way are delivered again by the next
    /// engine.
    pub async fn shutdown(mut self) {
        self.core.stopping.send_replace(true);
        self.core.shell.stop_all();
        if let Some(accepting) = self.accepting.take()
            && let Err(error) = accepting.await
        {
            tracing::error!(%error, "the listener panicked");
        }
        // What was stored is still told, and so is what became of the commands.
        let mut answering = self.core.answering.subscribe();
        let answered = answering.wait_for(|count| *count == 0);
        if tokio::time::timeout(GOODBYE, answered).await.is_err() {
            tracing::warn!("some calls are left without an answer");
        }
        for outbox in self.core.router.outboxes() {
            outbox.close("the engine is stopping");
        }
        let gone = async {
            while !self.core.router.outboxes().is_empty() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        if tokio::time::timeout(GOODBYE, gone).await.is_err() {
            for outbox in self.core.router.outboxes() {
                outbox.condemn();
            }
        }
        let core = self.core.clone();
        let closed = tokio::task::spawn_blocking(move || {
            core.configuration.close();
            core.store.close();
        });
        if let Err(error) = closed.await {
            tracing::error!(%error, "the store could not be closed");
        }
        self.tasks.shutdown().await;
        self.claim = None;
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.core.stopping.send_replace(true);
        self.core.shell.stop_all();
        for outbox in self.core.router.outboxes() {
            outbox.condemn();
        }
    }
}

async fn listen(host: IpAddr, port: u16) -> Result<TcpListener, EngineError> {
    let address = SocketAddr::new(host, port);
    TcpListener::bind(address).await.map_err(|source| EngineError::Listen { address, source })
}

/// Tells bindings of committed state changes, in the order of the changes.
async fn tell_of_state(core: Arc<Core>, mut events: mpsc::UnboundedReceiver<StateEvent>) {
    while let Some(StateEvent { number, scope, key, payload }) = events.recv().await {
        if core.store.committed(number).await.is_err() {
            continue;
        }
        let matches = |name, value: &str, target: &bindings::Target| target.setting(name).is_none_or(|s| s == value);
        let targets = core.router.targets("state", |t| matches("scope", &scope, t) && matches("key", &key, t));
        core.fire(targets, &payload);
    }
}

/// Tells bindings of configuration changes, in the order of the changes.
async fn tell_of_configuration(core: Arc<Core>, mut events: mpsc::UnboundedReceiver<ConfigurationEvent>) {
    while let Some(ConfigurationEvent { id, event_type, payload }) = events.recv().await {
        let targets = core.router.targets("configuration", |target| {
            let listed = |types: &Vec<serde_json::Value>| types.iter().any(|listed| listed == event_type);
            target.setting("configuration_id").is_none_or(|wanted| wanted == id)
                && target.config.get("event_types").and_then(serde_json::Value::as_array).is_none_or(listed)
        });
        core.fire(targets, &payload);
    }
}

/// Tells bindings that the set of functions changed, once a burst of changes is over.
async fn tell_of_functions(core: Arc<Core>) {
    loop {
        core.functions_changed.notified().await;
        tokio::time::sleep(GATHER).await;
        let targets = core.router.targets("engine::functions-available", |_| true);
        if !targets.is_empty() {
            let payload = listing::functions_changed(&core.router.lock());
            core.fire(targets, &payload);
        }
    }
}
