//! `worktree call`: one call on the engine, for shells and scripts.

use std::io::Read as _;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use iii_sdk::protocol::TriggerRequest;
use iii_sdk::runtime::WorkerMetadata;
use iii_sdk::{Error, IIIClient, InitOptions, WorkerIdentityMode, register_worker};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::http::Uri;

use super::{EngineAddress, Exit, output};

/// How long an engine may take to accept a connection.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);

const AFTER_HELP: &str = "\
The result is printed on standard output: indented on a terminal, on one line otherwise. A refusal is \
printed on standard error as {\"code\":\"W200\",\"message\":\"...\"}.

Examples:
  worktree call worktree::list
  worktree call worktree::create '{\"repo_path\":\"/src/shop\",\"session_id\":\"ada\"}'
  echo '{\"worktree_id\":\"wt_0123456789ab\"}' | worktree call worktree::status -
  worktree call --url ws://127.0.0.1:49134 engine::functions::list '{\"prefix\":\"worktree::\"}'

Exit codes:
  0  the call succeeded
  1  the call was refused or not answered in time
  2  the command line or the JSON is wrong; nothing was called
  3  no engine answers at the address";

/// The subcommand.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Arguments {
    /// Function to call, for instance worktree::list
    #[arg(value_name = "FUNCTION_ID", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    function_id: String,
    /// Its input as JSON, `-` to read that from standard input
    #[arg(value_name = "JSON", default_value = "{}")]
    payload: String,
    /// How long to wait for the answer, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 30_000)]
    timeout_ms: u64,
    #[command(flatten)]
    pub(super) engine: EngineAddress,
}

pub(super) async fn run(arguments: Arguments, before: EngineAddress) -> anyhow::Result<Exit> {
    let payload = match read_payload(&arguments.payload) {
        Ok(payload) => payload,
        Err(error) => {
            output::complain(&format!("worktree call: {error:#}"));
            return Ok(Exit::Usage);
        }
    };
    let url = arguments.engine.resolve(before);
    let address = match socket_address(&url) {
        Ok(address) => address,
        Err(error) => {
            output::complain(&format!("worktree call: {error:#}"));
            return Ok(Exit::Usage);
        }
    };
    if !reachable(&address).await {
        return Ok(no_engine(&url));
    }
    let client = connect(&url);
    let outcome = match client.wait_until_registered(CONNECT_LIMIT).await {
        Ok(()) => {
            let request = TriggerRequest {
                function_id: arguments.function_id,
                payload,
                action: None,
                timeout_ms: Some(arguments.timeout_ms),
            };
            client.trigger(request).await
        }
        // Something listens there, but it does not speak as an engine does.
        Err(Error::Timeout) => Err(Error::NotConnected),
        Err(error) => Err(error),
    };
    tokio::task::spawn_blocking(move || client.shutdown()).await.context("closing the connection")?;
    match outcome {
        Ok(value) => {
            output::json(&value)?;
            Ok(Exit::Success)
        }
        Err(Error::NotConnected) => Ok(no_engine(&url)),
        Err(error) => {
            output::complain(&error_object(error, arguments.timeout_ms).to_string());
            Ok(Exit::Failure)
        }
    }
}

fn read_payload(argument: &str) -> anyhow::Result<Value> {
    let mut text = String::new();
    if argument == "-" {
        std::io::stdin().lock().read_to_string(&mut text).context("reading standard input")?;
    } else {
        text.push_str(argument);
    }
    serde_json::from_str(&text).context("the input is not JSON")
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
fn connect(url: &str) -> IIIClient {
    let mut options = InitOptions { identity: WorkerIdentityMode::Explicit, ..InitOptions::default() };
    options.otel.get_or_insert_default().enabled = Some(false);
    options.metadata = Some(WorkerMetadata {
        name: format!("worktree-call-{}", std::process::id()),
        description: Some("One call from the command line".to_owned()),
        ..WorkerMetadata::default()
    });
    register_worker(url, options)
}

fn no_engine(url: &str) -> Exit {
    output::complain(&format!("worktree call: no engine answers at {url}; start one, or name another with --url"));
    Exit::NoEngine
}

/// What is printed of a failed call.
fn error_object(error: Error, timeout_ms: u64) -> Value {
    match error {
        Error::Remote { code, message, .. } => json!({"code": code, "message": message}),
        Error::Timeout => {
            json!({"code": "TIMEOUT", "message": format!("no answer within {timeout_ms} ms; the call may still be running")})
        }
        other => json!({"code": "client_error", "message": other.to_string()}),
    }
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
