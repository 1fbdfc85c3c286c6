//! The worker and its neighbours on the engine.

use std::path::Path;

use serde_json::{Value, json};

use super::finding::Findings;
use crate::cli::link::Link;
use crate::cli::trouble::{Outcome, Trouble};
use crate::wire::{WORKER_NAME, catalog};

/// The code by which the shell worker says that a directory lies outside its roots.
const OUTSIDE: &str = "S215";

/// Looks who serves what. Tells whether the worker is there.
///
/// # Errors
/// When the engine does not answer, or standard output is closed.
pub(super) async fn look(link: &Link, findings: &mut Findings) -> Outcome<bool> {
    let listed = link.read("engine::functions::list", json!({"include_internal": true})).await?;
    let functions = listed["functions"].as_array().cloned().unwrap_or_default();
    let serves = |id: &str| functions.iter().any(|one| one["function_id"] == id);
    let missing: Vec<&str> = catalog::functions().iter().map(|one| one.id).filter(|id| !serves(id)).collect();
    let there = missing.is_empty();
    if there {
        version(link, findings).await?;
    } else {
        let message = format!("these functions are not served: {}", missing.join(", "));
        findings.problem("worker", &message, &format!("worktree serve --url {}", link.url()))?;
    }
    if serves("queue::define") {
        findings.ok("queue", "a provider keeps land jobs")?;
    } else {
        let message = "no queue provider: the worker keeps the order of lands itself, which works";
        findings.warn("queue", message, "add iii-queue to the configuration of the engine")?;
    }
    if serves("shell::exec") {
        shell(link, findings).await?;
    } else {
        let message = "no shell provider: a land with tests is stopped with W414";
        findings.problem("shell", message, "connect the iii shell worker to the engine")?;
    }
    Ok(there)
}

async fn version(link: &Link, findings: &mut Findings) -> Outcome<()> {
    let workers = link.read("engine::workers::list", json!({})).await?;
    let mut all = workers["workers"].as_array().into_iter().flatten();
    let here = env!("CARGO_PKG_VERSION");
    match all.find(|one| one["name"] == WORKER_NAME).and_then(|one| one["version"].as_str()) {
        Some(there) if there != here => {
            let message = format!("it is version {there}, this command is {here}");
            findings.warn("worker", &message, "restart the worker with this binary")?;
        }
        _ => findings.ok("worker", &format!("all functions answer, version {here}"))?,
    }
    Ok(())
}

/// Runs a command that does nothing where gates run, to see whether the shell worker may.
async fn shell(link: &Link, findings: &mut Findings) -> Outcome<()> {
    let known = link.read("worktree::list", json!({})).await.unwrap_or(Value::Null);
    // A worktree, for the root of all need not exist yet, and only the worker knows it.
    let paths = known["worktrees"].as_array().into_iter().flatten().filter_map(|one| one["path"].as_str());
    let Some(path) = paths.into_iter().find(|path| Path::new(path).is_dir()) else {
        findings.ok("shell", "a provider runs tests (where it may is seen with the first worktree)")?;
        return Ok(());
    };
    let payload = json!({"command": "true", "cwd": path, "timeout_ms": 5000, "fs_scope": {"root": path}});
    let root = Path::new(path).parent().and_then(Path::parent).unwrap_or(Path::new(path)).display();
    match link.read("shell::exec", payload).await {
        Ok(exit) if exit["exit_code"] == 0 => findings.ok("shell", &format!("runs tests in {root}"))?,
        Ok(exit) => {
            let message = format!("`true` in {path} ended with {exit}");
            findings.problem("shell", &message, "look at the log of the shell worker")?;
        }
        Err(Trouble::Refused { code, message }) if code == OUTSIDE => {
            let message = format!("it may not work in {root}: {message}");
            findings.problem("shell", &message, &format!("add {root} to fs.host_roots of the shell worker"))?;
        }
        Err(Trouble::Refused { code, message }) => {
            findings.problem("shell", &format!("{message} ({code})"), "look at the log of the shell worker")?;
        }
        Err(trouble) => return Err(trouble),
    }
    Ok(())
}
