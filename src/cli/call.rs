//! `worktree call`: one call on the engine, for shells and scripts.

use std::io::Read as _;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use serde_json::Value;

use super::link::Link;
use super::place::Reach;
use super::trouble::{Outcome, Trouble};
use super::{Exit, output};

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
    pub(super) reach: Reach,
}

pub(super) async fn run(arguments: Arguments, before: Reach) -> anyhow::Result<Exit> {
    let answer = call(arguments, before).await;
    match answer {
        Ok(value) => {
            output::json(&value)?;
            Ok(Exit::Success)
        }
        Err(trouble) => {
            // A refusal is data, the rest is for whoever typed it.
            trouble.tell("call", trouble.code().is_some());
            Ok(trouble.exit())
        }
    }
}

async fn call(arguments: Arguments, before: Reach) -> Outcome<Value> {
    let payload = read_payload(&arguments.payload).map_err(|error| Trouble::usage(format!("{error:#}")))?;
    let link = Link::open(&arguments.reach.resolve(before)?).await?;
    let answer = link.call(&arguments.function_id, payload, Duration::from_millis(arguments.timeout_ms)).await;
    link.close().await?;
    answer
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
