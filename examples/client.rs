//! A worktree, a commit in it, and its branch landed on `main`, over the iii SDK.
//!
//! ```sh
//! worktree dev &                                        # or a real iii engine and `worktree serve`
//! cargo run --example client -- /path/to/a/repository
//! ```

#![allow(clippy::print_stdout, reason = "an example talks to whoever runs it")]
#![allow(clippy::disallowed_methods, reason = "an agent edits files and runs git")]

use std::process::Command;

use anyhow::{Context as _, bail, ensure};
use iii_sdk::protocol::{RegisterTriggerInput, TriggerRequest};
use iii_sdk::{Error, IIIClient, InitOptions, RegisterFunction, register_worker_from_env};
use serde_json::{Value, json};
use tokio::sync::mpsc;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let repository = std::env::args().nth(1).context("usage: client /path/to/a/repository")?;
    let client = register_worker_from_env(InitOptions::default());

    // A land goes on after its call was answered; how it ended comes as an event.
    let (sender, mut ends) = mpsc::unbounded_channel();
    for kind in ["landed", "land-blocked"] {
        let sender = sender.clone();
        let heard = move |event: Value| {
            let sent = sender.send((kind, event)).map_err(|_| Error::Handler("the example has ended".to_owned()));
            std::future::ready(sent.map(|()| Value::Null))
        };
        client.register_function(format!("example::on-{kind}"), RegisterFunction::new_async(heard));
        let binding = RegisterTriggerInput::new(format!("worktree::{kind}"), format!("example::on-{kind}"), json!({}));
        client.register_trigger(binding)?;
    }

    let request = json!({"repo_path": repository, "session_id": "rust-example"});
    let created = call(&client, "worktree::create", request).await?;
    let (id, path) = (text(&created, "worktree_id")?, text(&created, "path")?);
    println!("created {id} at {path}");

    std::fs::write(format!("{path}/from-rust.txt"), "hello\n")?;
    git(path, &["add", "from-rust.txt"])?;
    git(path, &["commit", "--quiet", "--message", "Say hello from Rust"])?;

    let request = json!({"worktree_id": id, "target_branch": "main", "test_cmd": "test -s from-rust.txt"});
    let queued = call(&client, "worktree::land", request).await?;
    println!("queued as {}", text(&queued, "job_id")?);

    loop {
        let (kind, event) = ends.recv().await.context("no more events")?;
        if event["worktree_id"] == id {
            ensure!(kind == "landed", "blocked: {}: {}", event["code"], event["message"]);
            println!("landed as {}", text(&event, "merged_sha")?);
            break;
        }
    }
    tokio::task::spawn_blocking(move || client.shutdown()).await?;
    Ok(())
}

async fn call(client: &IIIClient, function_id: &str, payload: Value) -> anyhow::Result<Value> {
    let request = TriggerRequest { function_id: function_id.to_owned(), payload, action: None, timeout_ms: None };
    match client.trigger(request).await {
        Ok(answer) => Ok(answer),
        // The code is what a program branches on; the message is for people.
        Err(Error::Remote { code, message, .. }) => bail!("{function_id}: {code}: {message}"),
        Err(error) => Err(error.into()),
    }
}

fn text<'a>(answer: &'a Value, key: &str) -> anyhow::Result<&'a str> {
    answer[key].as_str().with_context(|| format!("no {key} in {answer}"))
}

fn git(directory: &str, arguments: &[&str]) -> anyhow::Result<()> {
    let status = Command::new("git").current_dir(directory).args(arguments).status()?;
    ensure!(status.success(), "git {arguments:?}: {status}");
    Ok(())
}
