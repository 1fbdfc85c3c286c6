//! The connection of one command to an engine.

use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use iii_sdk::protocol::TriggerRequest;
use iii_sdk::runtime::WorkerMetadata;
use iii_sdk::{Error as SdkError, IIIClient, InitOptions, WorkerIdentityMode, register_worker};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_tungstenite::tungstenite::http::Uri;

use super::host::Host;
use super::note::{self, Note};
use super::place::Place;
use super::trouble::{Outcome, Trouble};
use crate::bus::iii::IiiBus;
use crate::engine::{EngineError, Options};

/// How long an engine may take to accept a connection.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// How long a read may take.
pub(super) const READ_LIMIT: Duration = Duration::from_secs(30);
/// How long a change may take: a checkout of a large repository takes its time.
pub(super) const CHANGE_LIMIT: Duration = Duration::from_secs(600);
/// How long to wait for another command that holds the state of `worktree dev`.
const OWNED_LIMIT: Duration = Duration::from_secs(15);

/// The connection. End it with [`Link::close`].
pub(super) struct Link {
    client: IIIClient,
    url: String,
    host: Option<Host>,
}

impl Link {
    /// Connects to the engine that was meant.
    ///
    /// # Errors
    /// A usage error when the address is none, or when another command holds the state; no engine when nobody
    /// answers.
    pub(super) async fn open(place: &Place) -> Outcome<Self> {
        match place {
            Place::At(url) => Self::connect(url).await,
            Place::Local(state_dir) => Self::local(state_dir).await,
        }
    }

    async fn connect(url: &str) -> Outcome<Self> {
        let address = socket_address(url).map_err(|error| Trouble::usage(format!("{error:#}")))?;
        if !reachable(&address).await {
            return Err(no_engine(url));
        }
        let link = Link { client: client(url), url: url.to_owned(), host: None };
        // Something may listen there that does not speak as an engine does.
        match link.client.wait_until_registered(CONNECT_LIMIT).await {
            Ok(()) => Ok(link),
            Err(error) => {
                link.close().await?;
                Err(if matches!(error, SdkError::Timeout) {
                    no_engine(url)
                } else {
                    Trouble::of_call(error, "connect")
                })
            }
        }
    }

    async fn local(state_dir: &Path) -> Outcome<Self> {
        let deadline = Instant::now() + OWNED_LIMIT;
        loop {
            let options = Options { port: 0, http_port: 0, state_dir: state_dir.to_owned(), ..Options::default() };
            let owner = match Host::start(options, None).await {
                Ok(host) => {
                    note::remove(state_dir)?;
                    let link = Self::connect(&host.url()).await?;
                    return Ok(Link { host: Some(host), ..link });
                }
                Err(error) => match error.downcast_ref::<EngineError>() {
                    Some(EngineError::Owned { owner, .. }) => owner.clone(),
                    _ => return Err(error.into()),
                },
            };
            if let Some(note) = Note::read(state_dir)
                && let Ok(link) = Self::connect(&note.url).await
            {
                return Ok(link);
            }
            if Instant::now() > deadline {
                return Err(Trouble::usage(format!(
                    "{} is held by {owner}, which cannot be shared; wait for it, or keep `worktree dev` running",
                    state_dir.display()
                )));
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// The SDK's client.
    pub(super) fn client(&self) -> &IIIClient {
        &self.client
    }

    /// The functions of neighbours, such as the state.
    pub(super) fn bus(&self) -> IiiBus {
        IiiBus::new(self.client.clone())
    }

    /// Where this leads.
    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// Whether the engine runs in this process, and ends with it.
    pub(super) fn is_hosted(&self) -> bool {
        self.host.is_some()
    }

    /// One call that is answered within `limit`.
    ///
    /// # Errors
    /// What the function or the engine refuses.
    pub(super) async fn call(&self, function_id: &str, payload: Value, limit: Duration) -> Outcome<Value> {
        let timeout_ms = Some(u64::try_from(limit.as_millis()).unwrap_or(u64::MAX));
        let request = TriggerRequest { function_id: function_id.to_owned(), payload, action: None, timeout_ms };
        self.client.trigger(request).await.map_err(|error| Trouble::of_call(error, function_id))
    }

    /// A call that reads.
    ///
    /// # Errors
    /// What the function or the engine refuses.
    pub(super) async fn read(&self, function_id: &str, payload: Value) -> Outcome<Value> {
        self.call(function_id, payload, READ_LIMIT).await
    }

    /// Ends the connection, and what was started for it.
    ///
    /// # Errors
    /// When it does not end as it should.
    pub(super) async fn close(self) -> anyhow::Result<()> {
        let client = self.client;
        tokio::task::spawn_blocking(move || client.shutdown()).await.context("closing the connection")?;
        match self.host {
            Some(host) => host.stop().await,
            None => Ok(()),
        }
    }
}

fn no_engine(url: &str) -> Trouble {
    Trouble::NoEngine(format!(
        "no engine answers at {url}; start one (`worktree dev`), name another with --url, or use --local"
    ))
}

/// Host and port to which `url` leads.
fn socket_address(url: &str) -> anyhow::Result<String> {
    let uri: Uri = url.parse().with_context(|| format!("`{url}` is not an address"))?;
    let port = match uri.scheme_str() {
        Some("ws") => 80,
        Some("wss") => 443,
        _ => anyhow::bail!("`{url}` does not start with ws:// or wss://"),
    };
    let host = uri.host().with_context(|| format!("`{url}` names no host"))?;
    Ok(format!("{host}:{}", uri.port_u16().unwrap_or(port)))
}

/// Whether anything listens. The SDK would go on trying for ever.
async fn reachable(address: &str) -> bool {
    matches!(tokio::time::timeout(CONNECT_LIMIT, TcpStream::connect(address)).await, Ok(Ok(_)))
}

/// A client under a name of its own, so that it neither takes nor loses one to a worker.
fn client(url: &str) -> IIIClient {
    let mut options = InitOptions { identity: WorkerIdentityMode::Explicit, ..InitOptions::default() };
    options.otel.get_or_insert_default().enabled = Some(false);
    options.metadata = Some(WorkerMetadata {
        name: format!("worktree-cli-{}", std::process::id()),
        description: Some("One command of an operator".to_owned()),
        // The identity is explicit, so the namespace of the worker has to be asked for as well.
        namespace: std::env::var("III_NAMESPACE").ok().filter(|namespace| !namespace.is_empty()),
        ..WorkerMetadata::default()
    });
    register_worker(url, options)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_lead_to_a_host_and_a_port() {
        assert_eq!(socket_address("ws://127.0.0.1:49134").unwrap(), "127.0.0.1:49134");
        assert_eq!(socket_address("ws://[::1]:4/").unwrap(), "[::1]:4");
        assert_eq!(socket_address("wss://engine.example").unwrap(), "engine.example:443");
        for bad in ["", "127.0.0.1:49134", "http://127.0.0.1:1", "ws:// x"] {
            assert!(socket_address(bad).is_err(), "{bad}");
        }
    }
}
