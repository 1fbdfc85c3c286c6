//! `worktree audit`: the log of everything that was about to be destroyed.

mod read;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::json;

use self::read::{Query, Tail};
use super::place::Reach;
use super::session::{Common, Session, attend};
use super::trouble::Outcome;
use super::{Exit, here, output, words};
use crate::audit::Log;

const AFTER_HELP: &str = "\
Each entry was on the disk before anything went, and is chained to the one before it by a MAC. The log is read on this \
machine: below the worktree root of the worker, or in the directory given with --dir, for which no engine is needed.

Examples:
  worktree audit verify
  worktree audit tail
  worktree audit query --action remove --since 2d --json";

const VERIFY_HELP: &str = "\
Exit codes:
  0  every entry is as it was written, and none is missing
  1  something is not; each fault is named
  2  the command line is wrong
  3  no engine answers";

/// The subcommand.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Tell whether the log is as it was written
    Verify(Verify),
    /// Show the entries that fit
    Query(Query),
    /// Show the last entries
    Tail(Tail),
}

/// Which log.
#[derive(Debug, Clone, Args)]
#[group(skip)]
struct Where {
    /// The directory of the log [default: the one that the worker writes to]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

impl Where {
    /// The log that is meant.
    ///
    /// # Errors
    /// When the configuration of the worker cannot be read.
    async fn log(&self, session: &Session) -> Outcome<Log> {
        let dir = match &self.dir {
            Some(dir) => dir.clone(),
            None => here::context(session.link().await?).await?.settings().audit_dir.clone(),
        };
        // The size at which a new file is begun matters only to whoever writes.
        Ok(Log::new(dir, u64::MAX))
    }
}

#[derive(Debug, Args)]
#[command(after_help = VERIFY_HELP)]
struct Verify {
    #[command(flatten)]
    place: Where,
    #[command(flatten)]
    common: Common,
}

impl Arguments {
    /// Runs it. `before` is what stood before its name.
    pub(super) async fn run(self, before: Reach) -> Exit {
        match self.command {
            Command::Verify(a) => attend("audit verify", a.common.clone(), before, verify, a).await,
            Command::Query(a) => attend("audit query", a.common.clone(), before, read::query, a).await,
            Command::Tail(a) => attend("audit tail", a.common.clone(), before, read::tail, a).await,
        }
    }
}

async fn verify(arguments: Verify, session: &Session) -> Outcome {
    let log = arguments.place.log(session).await?;
    let dir = log.dir().display().to_string();
    let found = tokio::task::spawn_blocking(move || log.verify()).await.map_err(anyhow::Error::from)??;
    let mut document = json!(found);
    document["intact"] = json!(found.is_intact());
    session.print(&document, || {
        let entries = words::counted(found.entries, "entry", "entries");
        if found.is_intact() {
            return format!("intact: {entries} in {dir}");
        }
        found.faults.iter().map(|fault| format!("{}\n", json!(fault))).collect()
    })?;
    if found.is_intact() {
        return Ok(Exit::Success);
    }
    if !session.json {
        let faults = words::counted(found.faults.len() as u64, "fault", "faults");
        output::complain(&format!("{faults} in {dir}: keep a copy, and find out who could write there"));
    }
    Ok(Exit::Failure)
}
