//! The product as it is run, and a client of it on the real SDK.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, ensure};
use iii_sdk::protocol::TriggerRequest;
use iii_sdk::runtime::WorkerMetadata;
use iii_sdk::{IIIClient, InitOptions, RegisterFunction, TriggerAction, WorkerIdentityMode, register_worker};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use worktree::engine::{Engine, Options};

use crate::place::Place;
use crate::relay;

/// The longest that anything may take.
const PATIENCE: Duration = Duration::from_secs(300);

/// A process that ends with its owner.
pub struct Running(Child);

impl Running {
    /// Starts it; what it says goes to the log at `log`.
    pub fn start(mut command: Command, log: &Path) -> anyhow::Result<Self> {
        let log = std::fs::File::options().create(true).append(true).open(log)?;
        Ok(Running(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log).spawn()?))
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.0.id()
    }

    fn first_line(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        BufReader::new(self.0.stdout.take().context("its output was taken")?).read_line(&mut line)?;
        Ok(line)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Ok(id) = i32::try_from(self.0.id()) {
            // It may have ended by itself.
            kill(Pid::from_raw(id), Signal::SIGTERM).unwrap_or_default();
        }
        if let Err(error) = self.0.wait() {
            eprintln!("a process was left behind: {error}");
        }
    }
}

/// A worker and an engine, and a client.
pub struct Stand {
    /// The client.
    pub client: Client,
    /// Where the engine listens.
    pub url: String,
    _worker: Running,
    _engine: Option<Engine>,
}

impl Stand {
    /// Starts `worktree dev` with its state and worktrees under `name`; what lies there already is taken up.
    pub async fn dev(place: &Place, name: &str, keys: Value) -> anyhow::Result<Self> {
        let root = place.path(name);
        std::fs::create_dir_all(&root)?;
        let mut command = place.command(env!("CARGO_BIN_EXE_worktree"));
        command.args(["dev", "--port", "0", "--http-port", "0", "--state-dir"]).arg(root.join("state"));
        command.arg("--config").arg(seed(&root, keys)?);
        let mut dev = Running::start(command, &root.join("log"))?;
        let line = dev.first_line()?;
        let ready: Value = serde_json::from_str(&line)
            .with_context(|| format!("not ready: {}", std::fs::read_to_string(root.join("log")).unwrap_or_default()))?;
        let url = ready["url"].as_str().context("no url")?.to_owned();
        Ok(Stand { client: Client::connect(&url).await?, url, _worker: dev, _engine: None })
    }

    /// Starts `worktree serve` on an engine that does not advertise `tcp-nodelay`.
    pub async fn without_nodelay(place: &Place, name: &str) -> anyhow::Result<Self> {
        let root = place.path(name);
        let engine = engine(&root).await?;
        let url = relay::without_nodelay(&engine.url()).await?;
        let worker = serve(place, &root, &url)?;
        let client = Client::connect(&url).await?;
        client.until_served().await?;
        Ok(Stand { client, url, _worker: worker, _engine: Some(engine) })
    }

    /// Creates a worktree of the repository and returns its id and path.
    pub async fn create(&self, repository: &Path) -> anyhow::Result<(String, String)> {
        let created = self.client.call("worktree::create", json!({"repo_path": repository})).await?;
        let text = |key: &str| created[key].as_str().map(str::to_owned).with_context(|| format!("no {key}"));
        Ok((text("worktree_id")?, text("path")?))
    }
}

/// An engine of its own, with its state in `root`.
pub async fn engine(root: &Path) -> anyhow::Result<Engine> {
    std::fs::create_dir_all(root)?;
    let options = Options { port: 0, http_port: 0, state_dir: root.join("state"), ..Options::default() };
    Ok(Engine::start(options).await?)
}

/// `worktree serve` on the engine at `url`, with its worktrees in `root`.
pub fn serve(place: &Place, root: &Path, url: &str) -> anyhow::Result<Running> {
    let mut command = place.command(env!("CARGO_BIN_EXE_worktree"));
    command.args(["serve", "--url", url, "--config"]).arg(seed(root, json!({}))?);
    Running::start(command, &root.join("log"))
}

/// The configuration of a run in `root`.
fn seed(root: &Path, keys: Value) -> anyhow::Result<std::path::PathBuf> {
    // No sweep by itself in the midst of a measurement.
    let schedule = "0 0 0 29 2 *";
    let mut seed = json!({"worktree_root": root.join("worktrees"), "prune_schedule": schedule});
    if let (Some(seed), Value::Object(keys)) = (seed.as_object_mut(), keys) {
        seed.extend(keys);
    }
    let path = root.join("seed.yaml");
    std::fs::write(&path, seed.to_string())?;
    Ok(path)
}

/// A client on the SDK that other workers use.
#[derive(Clone)]
pub struct Client {
    sdk: IIIClient,
}

impl Client {
    /// Connects to the engine as a caller, without telemetry.
    pub async fn connect(url: &str) -> anyhow::Result<Self> {
        let mut options = InitOptions::default();
        options.otel.get_or_insert_default().enabled = Some(false);
        Self::with(url, options).await
    }

    /// Connects as a worker that does nothing but what the SDK does by default, telemetry included.
    pub async fn bare_worker(url: &str) -> anyhow::Result<Self> {
        Self::with(url, InitOptions::default()).await
    }

    async fn with(url: &str, mut options: InitOptions) -> anyhow::Result<Self> {
        static CLIENTS: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = CLIENTS.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        options.identity = WorkerIdentityMode::Explicit;
        let name = format!("bench-{}-{number}", std::process::id());
        options.metadata = Some(WorkerMetadata { name, ..WorkerMetadata::default() });
        let sdk = register_worker(url, options);
        sdk.wait_until_registered(PATIENCE).await.map_err(|error| anyhow!("no engine at {url}: {error}"))?;
        Ok(Client { sdk })
    }

    /// Closes the connection.
    pub fn leave(&self) {
        self.sdk.shutdown();
    }

    /// Waits until a worker answers.
    pub async fn until_served(&self) -> anyhow::Result<()> {
        let begun = Instant::now();
        while self.call("worktree::list", json!({})).await.is_err() {
            tokio::time::sleep(Duration::from_millis(1)).await;
            ensure!(begun.elapsed() < Duration::from_secs(60), "the worker does not answer");
        }
        Ok(())
    }

    /// Calls a function.
    pub async fn call(&self, function_id: &str, payload: Value) -> anyhow::Result<Value> {
        self.trigger(function_id, payload, None).await
    }

    /// Calls a function that is to refuse with this code.
    pub async fn refused(&self, function_id: &str, payload: Value, code: &str) -> anyhow::Result<()> {
        match self.call(function_id, payload).await {
            Ok(answer) => Err(anyhow!("{function_id} answered {answer} instead of {code}")),
            Err(error) if error.to_string().contains(code) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Puts a call into a queue.
    pub async fn enqueue(&self, queue: &str, function_id: &str, payload: Value) -> anyhow::Result<Value> {
        self.trigger(function_id, payload, Some(TriggerAction::Enqueue { queue: queue.to_owned() })).await
    }

    async fn trigger(&self, function_id: &str, payload: Value, action: Option<TriggerAction>) -> anyhow::Result<Value> {
        let timeout_ms = u64::try_from(PATIENCE.as_millis()).ok();
        let request = TriggerRequest { function_id: function_id.to_owned(), payload, action, timeout_ms };
        self.sdk.trigger(request).await.map_err(|error| anyhow!("{function_id}: {error}"))
    }

    /// Registers a function and waits until it can be called.
    pub async fn register<F>(&self, function_id: &str, answer: F) -> anyhow::Result<()>
    where
        F: Fn(Value) -> Value + Send + Sync + 'static,
    {
        let answered = move |payload: Value| std::future::ready(Ok::<_, iii_sdk::Error>(answer(payload)));
        self.sdk.register_function(function_id, RegisterFunction::new_async(answered));
        for _ in 0..1000 {
            if self.call(function_id, json!({})).await.is_ok() {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Err(anyhow!("{function_id} does not answer"))
    }

    /// Hears of the ends of lands.
    pub async fn lands(&self) -> anyhow::Result<Lands> {
        let (sender, receiver) = mpsc::unbounded_channel();
        for kind in ["worktree::landed", "worktree::land-blocked"] {
            let (function_id, sender) = (format!("bench::{}", &kind["worktree::".len()..]), sender.clone());
            self.register(&function_id, move |event| {
                // Nobody listens any more at the end.
                json!(sender.send((kind, event)).is_ok())
            })
            .await?;
            let binding = json!({"trigger_type": kind, "function_id": function_id, "config": {}});
            self.call("engine::register_trigger", binding).await?;
        }
        Ok(Lands(receiver))
    }
}

/// The ends of lands, as they are heard of.
pub struct Lands(mpsc::UnboundedReceiver<(&'static str, Value)>);

impl Lands {
    /// The next end of a land, which is to be a success.
    pub async fn landed(&mut self) -> anyhow::Result<()> {
        loop {
            let heard = tokio::time::timeout(PATIENCE, self.0.recv()).await.context("no land ended")?;
            let (kind, event) = heard.context("the client is gone")?;
            if event["worktree_id"].is_null() {
                // The call that found out whether the function can be called.
                continue;
            }
            ensure!(kind == "worktree::landed", "blocked: {event}");
            return Ok(());
        }
    }
}
