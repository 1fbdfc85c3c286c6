//! `worktree du`: what the worktrees use of the disk.

use clap::Args;
use serde_json::json;

use super::session::{Common, Session};
use super::table::{self, Column, column};
use super::trouble::Outcome;
use super::{Exit, here, output, words};
use crate::worktrees::usage;

const AFTER_HELP: &str = "\
Allocated blocks are counted, a file with several links once. The directories are walked on this machine, which has \
to be the one of the worker; that may take a while.

Examples:
  worktree du
  worktree du --json | jq .total_bytes

Exit codes:
  0  measured
  1  refused
  2  the command line is wrong
  3  no engine answers";

const COLUMNS: [Column; 5] =
    [column("ID"), column("BRANCH").cut(), column("SIZE"), column("IGNORED").optional(2), column("FILES").optional(1)];

/// The subcommand.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Arguments {
    #[command(flatten)]
    pub(super) common: Common,
}

pub(super) async fn run(_arguments: Arguments, session: &Session) -> Outcome {
    let context = here::context(session.link().await?).await?;
    let mut progress = super::progress::Progress::new(session.json || !output::errors_are_seen());
    progress.say("measuring");
    let report = usage::measure(&context).await;
    drop(progress);
    if session.json {
        output::json(&json!(*report))?;
        return Ok(Exit::Success);
    }
    let records = context.registry.records();
    let mut rows = Vec::new();
    for (id, one) in &report.worktrees {
        let branch = records.iter().find(|record| record.worktree_id == *id).map(|record| record.branch.clone());
        let unreadable = if one.unreadable > 0 { "+" } else { "" };
        rows.push(vec![
            id.clone(),
            branch.unwrap_or_default(),
            format!("{}{unreadable}", words::bytes(one.bytes)),
            one.ignored_bytes.map(words::bytes).unwrap_or_default(),
            one.files.to_string(),
        ]);
    }
    if !rows.is_empty() {
        output::write(&table::render(&COLUMNS, &rows))?;
    }
    let pool = if report.pool_bytes > 0 {
        format!(" ({} of them ready for the next create)", words::bytes(report.pool_bytes))
    } else {
        String::new()
    };
    let (total, trash) = (words::bytes(report.total_bytes), words::bytes(report.trash_bytes));
    output::line(&format!("total {total}{pool}, trash {trash}"))?;
    if let Some(warning) = report.warning() {
        output::complain(&format!("warning: {warning}; `worktree prune` removes what is finished"));
    }
    Ok(Exit::Success)
}
