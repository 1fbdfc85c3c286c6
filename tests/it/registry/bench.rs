//! The use cases in this process, over the real bus and the real git, with a clock that is moved by hand and ids that
//! are known beforehand.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use worktree::bus::EventSink;
use worktree::bus::iii::IiiBus;
use worktree::engine::{Engine, Options};
use worktree::git::Git;
use worktree::model::clock::{Clock, SystemClock};
use worktree::model::config::Settings;
use worktree::model::event::Event;
use worktree::model::id::{IdSource, RandomIds};
use worktree::model::record::Record;
use worktree::worktrees::context::Ports;
use worktree::worktrees::{Context, create};

use crate::support::{Checkout, Client, Seal};

struct Silence;

impl EventSink for Silence {
    fn emit(&self, _event: &Event) {}
}

/// The clock of the system, moved.
#[derive(Default)]
pub struct MovedClock(AtomicI64);

impl Clock for MovedClock {
    fn now_ms(&self) -> i64 {
        SystemClock.now_ms() + self.0.load(Ordering::SeqCst)
    }
}

/// First those that were given, then random ones.
#[derive(Default)]
pub struct GivenIds(Mutex<VecDeque<String>>);

impl IdSource for GivenIds {
    fn next_hex12(&self) -> String {
        self.0.lock().unwrap().pop_front().unwrap_or_else(|| RandomIds.next_hex12())
    }
}

pub struct Bench {
    pub seal: Seal,
    pub ctx: Arc<Context>,
    clock: Arc<MovedClock>,
    ids: Arc<GivenIds>,
    client: Client,
    _engine: Engine,
}

impl Bench {
    pub async fn new() -> Self {
        Self::with(json!({})).await
    }

    /// With these keys of the configuration.
    pub async fn with(keys: Value) -> Self {
        Self::within(Seal::new(), keys).await
    }

    /// The same in this seal.
    pub async fn within(seal: Seal, keys: Value) -> Self {
        let options = Options { port: 0, http_port: 0, state_dir: seal.path().join("state"), ..Options::default() };
        let engine = Engine::start(options).await.unwrap();
        let client = Client::connect(&engine.url()).await;
        let (clock, ids) = (Arc::new(MovedClock::default()), Arc::new(GivenIds::default()));
        let ctx = context(&seal, &client, clock.clone(), ids.clone(), keys);
        ctx.registry.load().await.unwrap();
        Bench { seal, ctx, clock, ids, client, _engine: engine }
    }

    /// Another process on the same registry, as far as the use cases can tell.
    pub async fn second(&self) -> Arc<Context> {
        let ctx = context(&self.seal, &self.client, self.clock.clone(), self.ids.clone(), json!({}));
        ctx.registry.load().await.unwrap();
        ctx
    }

    pub fn move_clock(&self, by: Duration) {
        self.clock.0.fetch_add(i64::try_from(by.as_millis()).unwrap(), Ordering::SeqCst);
    }

    pub fn give_id(&self, hex12: &str) {
        self.ids.0.lock().unwrap().push_back(hex12.to_owned());
    }

    /// Other keys of the configuration from now on.
    pub fn configure(&self, keys: Value) {
        self.ctx.swap_settings(settings(&self.seal, keys));
    }

    pub fn client(&self) -> &Client {
        &self.client
    }

    pub fn repository(&self, name: &str) -> Checkout {
        let repository = Checkout::init(self.seal.path().join(name), &self.seal);
        repository.commit("README", "hello\n");
        repository
    }

    /// A worktree of the repository, and the checkout in it.
    pub async fn create(&self, repository: &Checkout) -> (Record, Checkout) {
        let request = create::Request { repo_path: repository.text(), ..create::Request::default() };
        let created = create::run(&self.ctx, request).await.unwrap();
        let record = self.ctx.registry.record(&created.worktree_id).unwrap();
        let checkout = Checkout::at(Path::new(&record.path), &self.seal);
        (record, checkout)
    }

    pub fn log(&self) -> worktree::audit::Log {
        self.ctx.audit_log().unwrap()
    }
}

fn settings(seal: &Seal, keys: Value) -> Settings {
    let mut config = json!({"worktree_root": seal.path().join("worktrees")});
    let Value::Object(keys) = keys else { panic!("the keys of a configuration are an object") };
    config.as_object_mut().unwrap().extend(keys);
    Settings::from_value(&config, None).unwrap()
}

fn context(seal: &Seal, client: &Client, clock: Arc<MovedClock>, ids: Arc<GivenIds>, keys: Value) -> Arc<Context> {
    let bus = Arc::new(IiiBus::new(client.sdk().clone()));
    let ports = Ports { store: bus.clone(), queue: bus.clone(), shell: bus, events: Arc::new(Silence), clock, ids };
    let env = [("HOME", seal.home()), ("XDG_CONFIG_HOME", seal.home().join("none"))];
    let env = env.map(|(name, value)| (name.into(), value.into())).to_vec();
    let git = Git::new(Duration::from_secs(60)).with_env(env);
    Context::new(ports, git, settings(seal, keys))
}
