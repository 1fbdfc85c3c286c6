//! A worker on an engine, and a client of both: the stand on which a scenario is played.
//!
//! | stand | engine | worker |
//! |---|---|---|
//! | [`Stand::dev`] | embedded, one process with the worker | `worktree dev` |
//! | [`Stand::apart`] | embedded, in the test's own process | `worktree serve` |
//! | [`Stand::serve_on`] | whatever its maker has started | `worktree serve` |

use std::path::{Path, PathBuf};
use std::process::ExitStatus;

use serde_json::{Value, json};
use worktree::engine::{Engine, Options};

use super::{BINARY, Checkout, Client, Events, Process, Relay, Seal, until};

enum EngineSide {
    /// One process with the worker.
    InWorker,
    /// In this process.
    Here(Option<Engine>),
    /// Wherever its maker keeps it; held for as long as the stand.
    Elsewhere { _kept: Box<dyn Send + Sync> },
}

pub struct Stand {
    pub seal: Seal,
    pub client: Client,
    worker: Process,
    engine: EngineSide,
    url: String,
    /// Where a worker in a process of its own connects: the engine, or a relay to it.
    worker_url: String,
    http: String,
    /// What a worker beside its engine has in its environment.
    variables: Vec<(String, String)>,
}

/// A worktree that a scenario created, and the checkout in it.
pub struct Worktree {
    pub id: String,
    pub branch: String,
    pub base_sha: String,
    pub checkout: Checkout,
}

impl Stand {
    /// `worktree dev` with the default configuration, its worktrees inside the seal.
    pub async fn dev() -> Self {
        Self::dev_with(json!({})).await
    }

    /// `worktree dev` with these keys of the configuration.
    pub async fn dev_with(keys: Value) -> Self {
        Self::dev_in(Seal::new(), keys, &[]).await
    }

    /// `worktree dev` in this seal, with these keys of the configuration and these variables in its environment.
    pub async fn dev_in(seal: Seal, keys: Value, variables: &[(&str, &str)]) -> Self {
        write_seed(&seal, keys);
        let (worker, url, http) = start_dev(&seal, 0, 0, variables).await;
        let client = Client::connect(&url).await;
        let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Self { seal, client, worker, engine: EngineSide::InWorker, worker_url: url.clone(), url, http, variables }
    }

    /// `worktree serve` on an embedded engine in this process, which can be restarted.
    pub async fn apart() -> Self {
        Self::apart_in(Seal::new(), json!({}), &[]).await
    }

    /// The same in this seal, with these keys of the configuration and these variables in the worker's environment.
    pub async fn apart_in(seal: Seal, keys: Value, variables: &[(&str, &str)]) -> Self {
        let engine = start_here(&seal, 0, 0).await;
        let (url, http) = (engine.url(), engine.http_url());
        let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let mut stand = Self::serve_with(seal, keys, &url.clone(), url, http, Box::new(()), variables).await;
        stand.engine = EngineSide::Here(Some(engine));
        stand
    }

    /// The same, with a relay between the two, on an engine that lacks the functions with these prefixes.
    pub async fn apart_behind_relay(missing: &'static [&'static str]) -> (Self, Relay) {
        let seal = Seal::new();
        let engine = start_here(&seal, 0, 0).await;
        let (url, http) = (engine.url(), engine.http_url());
        let relay = Relay::to(&url, missing).await;
        (Self::serve_on(seal, relay.url(), url, http, Box::new(engine)).await, relay)
    }

    /// `worktree serve`, connected to `worker_url`, on the engine at `url`, which lives as long as `kept`.
    pub async fn serve_on(seal: Seal, worker_url: &str, url: String, http: String, kept: Box<dyn Send + Sync>) -> Self {
        Self::serve_with(seal, json!({}), worker_url, url, http, kept, Vec::new()).await
    }

    async fn serve_with(
        seal: Seal,
        keys: Value,
        worker_url: &str,
        url: String,
        http: String,
        kept: Box<dyn Send + Sync>,
        variables: Vec<(String, String)>,
    ) -> Self {
        write_seed(&seal, keys);
        let worker = start_serve(&seal, worker_url, &variables);
        let client = Client::connect(&url).await;
        let engine = EngineSide::Elsewhere { _kept: kept };
        let worker_url = worker_url.to_owned();
        let stand = Self { seal, client, worker, engine, url, worker_url, http, variables };
        stand.answers().await;
        stand
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    pub fn http(&self) -> &str {
        &self.http
    }

    /// What the worker has logged so far.
    pub fn log(&self) -> String {
        self.worker.log()
    }

    /// What the worker has printed so far.
    pub fn printed(&self) -> Vec<String> {
        self.worker.lines()
    }

    /// SIGKILL for the worker (and the engine that lives in it), then the same again, on the same ports and state.
    pub async fn kill_and_restart(&mut self) {
        self.leave_engine_in_worker();
        self.worker.kill();
        self.restart_worker().await;
    }

    /// SIGKILL for the worker (and the engine that lives in it), then `change`, then the same again.
    pub async fn kill_change_and_restart(&mut self, change: impl FnOnce(&Seal)) {
        self.worker.kill();
        change(&self.seal);
        self.restart_worker().await;
    }

    /// SIGTERM for the worker, then the same again.
    pub async fn stop_and_restart(&mut self) -> ExitStatus {
        self.leave_engine_in_worker();
        let status = self.worker.stop().await;
        self.restart_worker().await;
        status
    }

    /// Whether the worker still runs.
    pub fn runs(&self) -> bool {
        self.worker.runs()
    }

    /// Whether a signal has stopped the worker.
    pub fn stands_still(&self) -> bool {
        self.worker.stands_still()
    }

    /// The worker again, after its end.
    pub async fn restart(&mut self) {
        self.worker.ended().await;
        self.restart_worker().await;
    }

    /// A signal for the worker.
    pub fn signal(&self, signal: nix::sys::signal::Signal) {
        self.worker.signal(signal);
    }

    /// SIGTERM, then the same again with an engine that has forgotten everything.
    pub async fn forget_and_restart(&mut self) {
        self.stop().await;
        std::fs::remove_dir_all(self.seal.path().join("state")).unwrap();
        self.restart_worker().await;
    }

    /// Closes the client when its engine is about to go. One that is left to find out by itself takes two seconds.
    fn leave_engine_in_worker(&self) {
        if let EngineSide::InWorker = self.engine {
            self.client.sdk().shutdown();
        }
    }

    async fn restart_worker(&mut self) {
        if let EngineSide::InWorker = self.engine {
            let variables: Vec<(&str, &str)> = self.variables.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
            let (port, http_port) = (port(&self.url), port(&self.http));
            (self.worker, self.url, self.http) = start_dev(&self.seal, port, http_port, &variables).await;
            self.client = Client::connect(&self.url).await;
        } else {
            self.worker = start_serve(&self.seal, &self.worker_url, &self.variables);
        }
        self.answers().await;
    }

    /// Stops the engine that lives in this process and starts it again, on the same ports and state. The worker is
    /// left alone.
    pub async fn restart_engine(&mut self) {
        self.change_and_restart_engine(|_| ()).await;
    }

    /// The same, with `change` between stop and start.
    pub async fn change_and_restart_engine(&mut self, change: impl FnOnce(&Seal)) {
        let EngineSide::Here(engine) = &mut self.engine else { panic!("this stand's engine is not ours to restart") };
        self.client.sdk().shutdown();
        engine.take().expect("an engine runs").shutdown().await;
        change(&self.seal);
        *engine = Some(start_here(&self.seal, port(&self.url), port(&self.http)).await);
        self.client = Client::connect(&self.url).await;
        self.answers().await;
    }

    /// SIGTERM for the worker.
    pub async fn stop(&mut self) -> ExitStatus {
        self.leave_engine_in_worker();
        self.worker.stop().await
    }

    /// Waits until the functions answer: the first, and one that is registered late.
    async fn answers(&self) {
        until("an answer of worktree::list", || async { self.client.call("worktree::list", json!({})).await.ok() })
            .await;
        until("an answer of worktree::land-step", || async {
            let asked = self.client.call("worktree::land-step", json!({"job_id": ""})).await;
            asked.is_err_and(|(code, _)| code == "W001").then_some(())
        })
        .await;
    }

    /// Asks the worker to leave, and does not wait.
    pub fn ask_to_stop(&self) {
        self.worker.signal_stop();
    }

    /// Puts these keys into the stored configuration and has the worker take them up.
    pub async fn configure(&self, keys: Value) {
        let stored = self.client.ok("configuration::get", json!({"id": "worktree", "raw": true})).await;
        let mut value = stored["value"].clone();
        merge(&mut value, keys);
        self.client.ok("configuration::set", json!({"id": "worktree", "value": value})).await;
        // The engine tells the worker of the change, too; this call answers when it is in force.
        assert_eq!(self.client.ok("worktree::on-config-change", json!({})).await, json!({"ok": true}));
    }

    /// A process of the binary under test in this stand's environment.
    pub fn command(&self, arguments: &[&str]) -> std::process::Command {
        let mut command = self.seal.command(BINARY);
        command.args(arguments);
        command
    }

    /// A repository with one commit on `main`.
    pub fn repository(&self, name: &str) -> Checkout {
        let repository = Checkout::init(self.seal.path().join(name), &self.seal);
        repository.commit("README", "hello\n");
        repository
    }

    /// The checkout at `path`.
    pub fn checkout(&self, path: impl AsRef<Path>) -> Checkout {
        Checkout::at(path.as_ref(), &self.seal)
    }

    /// A worktree of the repository, with the default base and branch.
    pub async fn create(&self, repository: &Checkout) -> Worktree {
        self.create_with(repository, json!({})).await
    }

    /// A worktree of the repository, with these fields of the request.
    pub async fn create_with(&self, repository: &Checkout, fields: Value) -> Worktree {
        let mut request = json!({"repo_path": repository.text()});
        request.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let created = self.client.ok("worktree::create", request).await;
        let text = |key: &str| created[key].as_str().unwrap_or_else(|| panic!("no {key} in {created}")).to_owned();
        Worktree {
            id: text("worktree_id"),
            branch: text("branch"),
            base_sha: text("base_sha"),
            checkout: self.checkout(text("path")),
        }
    }

    /// Queues a land on `main`, with these fields of the request, and returns the job.
    pub async fn land(&self, worktree: &Worktree, fields: Value) -> String {
        let mut request = json!({"worktree_id": worktree.id, "target_branch": "main"});
        request.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let queued = self.client.ok("worktree::land", request).await;
        assert_eq!(queued["queued"], true, "{queued}");
        queued["job_id"].as_str().unwrap().to_owned()
    }

    /// Subscribes to all events.
    pub async fn hear(&self) -> Events {
        self.client.hear(json!({})).await
    }

    /// The lifecycle of a worktree.
    pub async fn lifecycle(&self, id: &str) -> String {
        let got = self.client.ok("worktree::get", json!({"worktree_id": id})).await;
        got["lifecycle"].as_str().unwrap().to_owned()
    }
}

/// Puts the fields of `keys` into `value`, object by object.
fn merge(value: &mut Value, keys: Value) {
    match (value, keys) {
        (Value::Object(fields), Value::Object(keys)) => {
            for (key, given) in keys {
                merge(fields.entry(key).or_insert(Value::Null), given);
            }
        }
        (value, given) => *value = given,
    }
}

/// When the sweep runs in a test by itself: not at the full hour, as by default, which may come in the midst of it.
const RARELY: &str = "0 0 0 29 2 *";

/// The configuration the worker starts with: these keys, its worktrees inside the seal.
fn write_seed(seal: &Seal, keys: Value) {
    let mut seed = json!({"worktree_root": seal.path().join("worktrees"), "prune_schedule": RARELY});
    let Value::Object(keys) = keys else { panic!("the keys of a configuration are an object") };
    seed.as_object_mut().unwrap().extend(keys);
    std::fs::write(seed_path(seal), seed.to_string()).unwrap();
}

fn seed_path(seal: &Seal) -> PathBuf {
    seal.path().join("seed.yaml")
}

async fn start_dev(seal: &Seal, port: u16, http_port: u16, variables: &[(&str, &str)]) -> (Process, String, String) {
    let mut command = seal.command(BINARY);
    command.envs(variables.iter().copied());
    command.arg("dev").args(["--port", &port.to_string(), "--http-port", &http_port.to_string()]);
    command.arg("--state-dir").arg(seal.path().join("state")).arg("--config").arg(seed_path(seal));
    let mut process = Process::start("worktree dev", command);
    let line = process.first_line().await;
    let ready: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("not JSON: {line}"));
    assert_eq!(ready["ready"], true, "{ready}");
    let text = |key: &str| ready[key].as_str().unwrap_or_else(|| panic!("no {key} in {ready}")).to_owned();
    (process, text("url"), text("http"))
}

fn start_serve(seal: &Seal, url: &str, variables: &[(String, String)]) -> Process {
    let mut command = seal.command(BINARY);
    command.envs(variables.iter().map(|(name, value)| (name, value)));
    command.args(["serve", "--url", url, "--config"]).arg(seed_path(seal));
    Process::start("worktree serve", command)
}

async fn start_here(seal: &Seal, port: u16, http_port: u16) -> Engine {
    let options = Options { port, http_port, state_dir: seal.path().join("state"), ..Options::default() };
    Engine::start(options).await.unwrap()
}

fn port(url: &str) -> u16 {
    url.rsplit(':').next().unwrap().parse().unwrap()
}
