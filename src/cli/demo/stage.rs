//! The surroundings of the tour: a temporary directory with a repository, the embedded engine on free ports, the
//! worker on it through a socket, and a client of the real SDK that hears every event.
//!
//! Invariants
//! 1. Everything lies in the temporary directory, and that is gone when the tour ends, however it ends.
//! 2. The worker and the client reach the engine through the socket, as they would in separate processes.

use std::fs::DirBuilder;
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use iii_sdk::protocol::{RegisterTriggerInput, TriggerRequest};
use iii_sdk::runtime::WorkerMetadata;
use iii_sdk::{Error, IIIClient, InitOptions, RegisterFunction, WorkerIdentityMode, register_worker};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::agent::Agent;
use super::voice::Voice;
use crate::cli::host::Host;
use crate::engine::Options;

/// Longest wait for anything; the whole tour takes a fraction of it.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);
const EVENTS: [&str; 6] = ["created", "claimed", "released", "removed", "landed", "land-blocked"];

/// A directory that is removed when it goes out of scope.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> anyhow::Result<Self> {
        let parent = std::env::temp_dir().canonicalize().context("the directory for temporary files")?;
        let path = parent.join(format!("worktree-demo-{}", std::process::id()));
        // `create` refuses a path that exists, so nothing that somebody put there is ever taken for ours.
        DirBuilder::new().mode(0o700).create(&path).with_context(|| format!("creating {}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            tracing::error!(path = %self.0.display(), %error, "the demo's directory stays behind");
        }
    }
}

/// Where the SDK puts markers of running clients. Only what was not there before is taken away, and only when empty.
struct SdkMarkers(Vec<PathBuf>);

impl SdkMarkers {
    fn before() -> Self {
        let home = std::env::home_dir().unwrap_or_default();
        let mut created = vec![home.join(".iii").join("run"), home.join(".iii")];
        created.retain(|path| !path.exists());
        Self(created)
    }
}

impl Drop for SdkMarkers {
    fn drop(&mut self) {
        for path in &self.0 {
            if let Err(error) = std::fs::remove_dir(path) {
                tracing::debug!(path = %path.display(), %error, "kept");
            }
        }
    }
}

/// The stage. Strike it with [`Stage::strike`].
pub(super) struct Stage {
    pub(super) voice: Voice,
    /// The person whose repository it is.
    pub(super) owner: Agent,
    scratch: Scratch,
    markers: SdkMarkers,
    host: Host,
    client: IIIClient,
    events: mpsc::UnboundedReceiver<(&'static str, Value)>,
    /// Events that were shown but not waited for yet.
    shown: Vec<(&'static str, Value)>,
}

impl Stage {
    /// Sets everything up and waits until the functions answer.
    pub(super) async fn set() -> anyhow::Result<Self> {
        let markers = SdkMarkers::before();
        let scratch = Scratch::new()?;
        let owner = repository(&scratch.0).await?;
        let seed = write_seed(&scratch.0)?;
        let options = Options {
            host: IpAddr::V4(Ipv4Addr::LOCALHOST),
            port: 0,
            http_port: 0,
            state_dir: scratch.0.join("engine"),
            ..Options::default()
        };
        let host = Host::start(options, Some(seed)).await?;
        let (client, events) = audience(&host.url()).await?;
        Ok(Self { voice: Voice::new(), owner, scratch, markers, host, client, events, shown: Vec::new() })
    }

    /// A home directory without any configuration.
    pub(super) fn home(&self) -> PathBuf {
        self.scratch.0.join("home")
    }

    /// Calls a function; a refusal comes as its code and message.
    pub(super) async fn call(
        &self,
        function_id: &str,
        payload: Value,
    ) -> anyhow::Result<Result<Value, (String, String)>> {
        let request =
            TriggerRequest { function_id: function_id.to_owned(), payload, action: None, timeout_ms: Some(20_000) };
        match self.client.trigger(request).await {
            Ok(value) => Ok(Ok(value)),
            Err(Error::Remote { code, message, .. }) => Ok(Err((code, message))),
            Err(error) => Err(anyhow!(error).context(format!("calling {function_id}"))),
        }
    }

    /// Calls a function that is to succeed.
    pub(super) async fn call_ok(&self, function_id: &str, payload: Value) -> anyhow::Result<Value> {
        self.call(function_id, payload)
            .await?
            .map_err(|(code, message)| anyhow!("{function_id} was refused: {code}: {message}"))
    }

    /// Shows the events that arrive until one of this kind is about this worktree.
    pub(super) async fn wait_for(&mut self, kind: &str, worktree_id: &str) -> anyhow::Result<Value> {
        let limit = tokio::time::Instant::now() + PATIENCE;
        loop {
            if let Some(at) = self.shown.iter().position(|(seen, event)| is_about(seen, event, kind, worktree_id)) {
                return Ok(self.shown.swap_remove(at).1);
            }
            if let Some((_, event)) =
                self.shown.iter().find(|(seen, event)| is_about(seen, event, "land-blocked", worktree_id))
            {
                bail!("the land was blocked: {}: {}", event["code"], event["message"]);
            }
            let next = tokio::time::timeout_at(limit, self.events.recv()).await;
            let (seen, event) = next
                .with_context(|| format!("no event worktree::{kind} for {worktree_id}"))?
                .context("the connection to the engine ended")?;
            self.voice.event(&format!("worktree::{seen}"), &event)?;
            self.shown.push((seen, event));
        }
    }

    /// Takes everything down again, worker first.
    pub(super) async fn strike(self) -> anyhow::Result<()> {
        let Self { scratch, markers, host, client, .. } = self;
        tokio::task::spawn_blocking(move || client.shutdown()).await.context("closing the client")?;
        let stopped = host.stop().await;
        drop(scratch);
        drop(markers);
        stopped
    }
}

fn is_about(seen: &str, event: &Value, kind: &str, worktree_id: &str) -> bool {
    seen == kind && event["worktree_id"] == worktree_id
}

/// The configuration of the worker: the defaults, with everything it writes inside the temporary directory.
fn write_seed(scratch: &Path) -> anyhow::Result<PathBuf> {
    let root = scratch.join("worktrees");
    Agent::new("stage", scratch, scratch).write("seed.yaml", &json!({"worktree_root": root}).to_string())?;
    Ok(scratch.join("seed.yaml"))
}

/// A repository with a price list and the program that checks it.
async fn repository(scratch: &Path) -> anyhow::Result<Agent> {
    let home = scratch.join("home");
    let shop = scratch.join("shop");
    for path in [&home, &shop] {
        DirBuilder::new().create(path).with_context(|| format!("creating {}", path.display()))?;
    }
    let owner = Agent::new("olga", shop, home);
    owner.git(["init", "--quiet", "--initial-branch=main"]).await?;
    // The worker's git reads the configuration of whoever runs the demo; these make the tour independent of it.
    for (key, value) in [
        ("user.name", "worktree demo"),
        ("user.email", "demo@demo.invalid"),
        ("commit.gpgSign", "false"),
        ("core.hooksPath", "/dev/null"),
    ] {
        owner.git(["config", key, value]).await?;
    }
    owner.write("prices", &prices(3, "9"))?;
    owner.write("check.sh", CHECK)?;
    owner.commit("A shop with five prices").await?;
    Ok(owner)
}

/// The file that the tour is about. Its first and its last line are far enough apart to merge.
pub(super) fn prices(apple: u8, quince: &str) -> String {
    format!("apple {apple}\npear 4\nplum 2\nfig 6\nquince {quince}\n")
}

/// The project's test: a price is a number.
const CHECK: &str = "#!/bin/sh\n\
    if grep -nvE '^[a-z]+ [0-9]+$' prices; then echo 'not a price'; exit 1; fi\n\
    echo 'all prices are numbers'\n";

/// A client under its own name, with one function bound to each of the six events.
async fn audience(url: &str) -> anyhow::Result<(IIIClient, mpsc::UnboundedReceiver<(&'static str, Value)>)> {
    let mut options = InitOptions { identity: WorkerIdentityMode::Explicit, ..InitOptions::default() };
    options.otel.get_or_insert_default().enabled = Some(false);
    options.metadata =
        Some(WorkerMetadata { name: format!("worktree-demo-{}", std::process::id()), ..WorkerMetadata::default() });
    let client = register_worker(url, options);
    client.wait_until_registered(PATIENCE).await.context("connecting the client")?;
    let (sender, receiver) = mpsc::unbounded_channel();
    for kind in EVENTS {
        let function_id = format!("demo::on-{kind}");
        let sender = sender.clone();
        let heard = move |event: Value| {
            // Once the tour is over nobody listens, and an event more or less is all the same.
            sender.send((kind, event)).unwrap_or_default();
            std::future::ready(Ok::<_, Error>(Value::Null))
        };
        client.register_function(&*function_id, RegisterFunction::new_async(heard));
        // Bound by a call, which answers when the provider has the binding; a message would not tell.
        let binding =
            serde_json::to_value(RegisterTriggerInput::new(format!("worktree::{kind}"), function_id, json!({})))?;
        let request = TriggerRequest {
            function_id: "engine::register_trigger".to_owned(),
            payload: binding,
            action: None,
            timeout_ms: None,
        };
        client.trigger(request).await.with_context(|| format!("subscribing to worktree::{kind}"))?;
    }
    Ok((client, receiver))
}
