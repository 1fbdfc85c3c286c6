//! Queues that do not keep their promises. The queue is a fake; store, shell, git and the machine are real.

use std::path::Path;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use worktree::bus::iii::IiiBus;
use worktree::bus::{EventSink, Fut, LandQueue, NotQueued};
use worktree::engine::{Engine, Options};
use worktree::git::Git;
use worktree::land::{land_step, recover, start};
use worktree::model::clock::{Clock, SystemClock};
use worktree::model::config::Settings;
use worktree::model::event::{Event, EventKind};
use worktree::model::id::RandomIds;
use worktree::model::{Code, Result};
use worktree::queue::Dispatcher;
use worktree::worktrees::context::Ports;
use worktree::worktrees::{Context, create};

use crate::support::{Checkout, Client, Gate, Seal, until};

/// What the provider makes of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Provider {
    /// There is none, or it knows no such queue.
    Missing,
    /// It accepts and delivers only when the test does.
    Accepts,
}

struct FakeQueue {
    provider: Provider,
    accepted: Mutex<Vec<String>>,
}

impl LandQueue for FakeQueue {
    fn define<'a>(&'a self, _queue: &'a str, _group_field: &'a str) -> Fut<'a, Result<(), NotQueued>> {
        Box::pin(async { Err(NotQueued { why: "no provider".to_owned() }) })
    }

    fn enqueue<'a>(&'a self, _queue: &'a str, _id: &'a str, data: Value) -> Fut<'a, Result<(), NotQueued>> {
        Box::pin(async move {
            if self.provider == Provider::Missing {
                return Err(NotQueued { why: "no provider".to_owned() });
            }
            self.accepted.lock().unwrap().push(data["job_id"].as_str().unwrap().to_owned());
            Ok(())
        })
    }
}

#[derive(Default)]
struct Heard(Mutex<Vec<Event>>);

impl EventSink for Heard {
    fn emit(&self, event: &Event) {
        self.0.lock().unwrap().push(event.clone());
    }
}

/// The clock of the system, moved forward by hand.
#[derive(Default)]
struct MovedClock(AtomicI64);

impl Clock for MovedClock {
    fn now_ms(&self) -> i64 {
        SystemClock.now_ms() + self.0.load(Ordering::Relaxed)
    }
}

/// The parts of a worker, over a real engine, without its surface.
struct Parts {
    ctx: Arc<Context>,
    dispatcher: Arc<Dispatcher>,
    queue: Arc<FakeQueue>,
    heard: Arc<Heard>,
    clock: Arc<MovedClock>,
    repository: Checkout,
    seal: Seal,
    _client: Client,
    _engine: Engine,
}

impl Parts {
    async fn new(provider: Provider) -> Self {
        let seal = Seal::new();
        let options = Options { port: 0, http_port: 0, state_dir: seal.path().join("state"), ..Options::default() };
        let engine = Engine::start(options).await.unwrap();
        let client = Client::connect(&engine.url()).await;
        let bus = Arc::new(IiiBus::new(client.sdk().clone()));
        let queue = Arc::new(FakeQueue { provider, accepted: Mutex::default() });
        let (heard, clock) = (Arc::new(Heard::default()), Arc::new(MovedClock::default()));
        let ports = Ports {
            store: bus.clone(),
            queue: queue.clone(),
            shell: bus,
            events: heard.clone(),
            clock: clock.clone(),
            ids: Arc::new(RandomIds),
        };
        let config = json!({"worktree_root": seal.path().join("worktrees")});
        let settings = Settings::from_value(&config, None).unwrap();
        let ctx = Context::new(ports, Git::new(Duration::from_secs(60)), settings);
        ctx.registry.load().await.unwrap();
        let repository = Checkout::init(seal.path().join("shop"), &seal);
        repository.commit("README", "hello\n");
        Self {
            ctx,
            dispatcher: Dispatcher::new(),
            queue,
            heard,
            clock,
            repository,
            seal,
            _client: client,
            _engine: engine,
        }
    }

    /// A worktree with one commit; its id and its subject.
    async fn worktree(&self, name: &str) -> (String, String) {
        let request = serde_json::from_value(json!({"repo_path": self.repository.text()})).unwrap();
        let created = create::run(&self.ctx, request).await.unwrap();
        Checkout::at(Path::new(&created.path), &self.seal).commit(name, "x\n");
        (created.worktree_id, format!("Write {name}"))
    }

    async fn land(&self, worktree_id: &str, test_cmd: &str) -> Result<String> {
        let request = json!({"worktree_id": worktree_id, "target_branch": "main", "test_cmd": test_cmd});
        let queued = start::run(&self.ctx, &self.dispatcher, serde_json::from_value(request).unwrap()).await?;
        Ok(queued.job_id)
    }

    async fn deliver(&self, job_id: &str) -> land_step::Response {
        let request = serde_json::from_value(json!({"job_id": job_id})).unwrap();
        land_step::run(&self.ctx, &self.dispatcher, request).await.unwrap()
    }

    async fn ended(&self, job_id: &str) {
        until("the end of the job", || async {
            self.ctx.registry.job(job_id).unwrap().filter(worktree::model::job::Job::ended)
        })
        .await;
    }

    /// What has landed, in order.
    fn landed(&self) -> Vec<String> {
        let log = self.repository.git(&["log", "--reverse", "--format=%s", "main"]);
        log.lines().skip(1).map(str::to_owned).collect()
    }

    fn heard(&self) -> usize {
        self.heard.0.lock().unwrap().iter().filter(|event| event.kind == EventKind::Landed).count()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_provider_jobs_run_here_in_order() {
    let parts = Parts::new(Provider::Missing).await;
    parts.dispatcher.declare(&parts.ctx).await;
    let gate = Gate::new(&parts.seal, "slow");
    let mut expected = Vec::new();
    let mut jobs = Vec::new();
    for name in ["a", "b", "c"] {
        let (id, subject) = parts.worktree(name).await;
        let test_cmd = if name == "a" { gate.command() } else { "true".to_owned() };
        jobs.push(parts.land(&id, &test_cmd).await.unwrap());
        expected.push(subject);
    }
    gate.started().await;
    gate.end(0);
    for job in &jobs {
        parts.ended(job).await;
    }
    assert_eq!(parts.landed(), expected);
    assert_eq!(parts.heard(), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_was_accepted_and_never_delivered_is_run_here_after_a_while() {
    let parts = Parts::new(Provider::Accepts).await;
    let (id, subject) = parts.worktree("a").await;
    let job = parts.land(&id, "true").await.unwrap();
    // As long as the provider may still deliver, it is left to it.
    parts.dispatcher.redrive(&parts.ctx);
    tokio::time::sleep(crate::support::WINDOW).await;
    assert!(parts.landed().is_empty());
    parts.clock.0.store(60_000, Ordering::Relaxed);
    parts.dispatcher.redrive(&parts.ctx);
    parts.ended(&job).await;
    assert_eq!(parts.landed(), [subject]);
    // And if it is delivered after all, that changes nothing.
    assert!(parts.deliver(&job).await.done);
    assert_eq!(parts.heard(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deliveries_out_of_order_and_twice_and_at_once_land_each_job_once_in_order() {
    let parts = Arc::new(Parts::new(Provider::Accepts).await);
    let gate = Gate::new(&parts.seal, "slow");
    let mut expected = Vec::new();
    let mut jobs = Vec::new();
    for name in ["a", "b", "c", "d"] {
        let (id, subject) = parts.worktree(name).await;
        jobs.push(parts.land(&id, &gate.command()).await.unwrap());
        expected.push(subject);
    }
    assert_eq!(*parts.queue.accepted.lock().unwrap(), jobs);
    // The last one first, each one twice, all of them while the first one runs.
    let mut deliveries = tokio::task::JoinSet::new();
    for job in jobs.iter().rev().chain(&jobs) {
        let (parts, job) = (parts.clone(), job.clone());
        deliveries.spawn(async move { parts.deliver(&job).await.done });
    }
    gate.started().await;
    assert_eq!(gate.runs().len(), 1, "two steps of one repository run at once");
    gate.end(0);
    while let Some(done) = deliveries.join_next().await {
        assert!(done.unwrap());
    }
    assert_eq!(parts.landed(), expected);
    assert_eq!((gate.runs().len(), parts.heard()), (4, 4), "a job ran twice");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_land_that_nobody_takes_is_refused_and_leaves_nothing() {
    let parts = Parts::new(Provider::Missing).await;
    let (id, _) = parts.worktree("a").await;
    let before = parts.ctx.registry.record(&id).unwrap();
    parts.dispatcher.stop();
    let refused = parts.land(&id, "true").await.unwrap_err();
    assert_eq!(refused.code, Code::NotQueued);
    let after = parts.ctx.registry.record(&id).unwrap();
    assert_eq!(after.lifecycle, before.lifecycle);
    assert!(parts.ctx.registry.live_job(&id).is_none() && parts.ctx.registry.unfinished_jobs().is_empty());
    // Nor does the store remember it.
    parts.ctx.registry.load().await.unwrap();
    assert!(parts.ctx.registry.unfinished_jobs().is_empty());
    // Whoever starts anew can land it.
    let dispatcher = Dispatcher::new();
    recover::run(&parts.ctx, &dispatcher).await.unwrap();
    let request = json!({"worktree_id": id, "target_branch": "main"});
    let queued = start::run(&parts.ctx, &dispatcher, serde_json::from_value(request).unwrap()).await.unwrap();
    parts.ended(&queued.job_id).await;
    assert_eq!(parts.landed(), ["Write a"]);
}
