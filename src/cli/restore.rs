//! `worktree restore`: a worktree that was removed by force comes back.

use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use serde_json::json;

use super::link::Link;
use super::session::{Common, Session};
use super::table::{self, Column, column};
use super::trouble::{Outcome, Trouble};
use super::{Exit, here, output, words};
use crate::model::Code;
use crate::model::clock::{Clock as _, SystemClock};
use crate::worktrees::kept::Kept;
use crate::worktrees::{Context, acting, restore};

/// How long the worker may take to hear of it.
const HEARD_LIMIT: Duration = Duration::from_secs(5);

const AFTER_HELP: &str = "\
Directory, branch and record come back as they were, unclaimed; nothing that lies there now is overwritten. Without a \
name, what can be restored is listed. It is kept for retention_hours on the machine of the worker, where this \
command has to run.

Examples:
  worktree restore
  worktree restore fix-login
  worktree restore wt_3f9a --json

Exit codes:
  0  restored, or listed
  1  refused; what is in the way is named, and nothing changed
  2  the command line is wrong, or the name fits several worktrees
  3  no engine answers";

const COLUMNS: [Column; 5] = [
    column("ID"),
    column("BRANCH").cut(),
    column("REMOVED"),
    column("KEPT UNTIL").optional(2),
    column("HELD").optional(1).cut(),
];

/// The subcommand.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Arguments {
    /// Its id or the beginning of it, or its branch
    #[arg(value_name = "WORKTREE")]
    worktree: Option<String>,
    #[command(flatten)]
    pub(super) common: Common,
}

pub(super) async fn run(arguments: Arguments, session: &Session) -> Outcome {
    let link = session.link().await?;
    let context = here::context(link).await?;
    let kept = restore::restorable(&context)?;
    match arguments.worktree {
        None => list(session, &kept)?,
        Some(name) => bring_back(session, link, &context, &pick(&kept, &name)?).await?,
    }
    Ok(Exit::Success)
}

async fn bring_back(session: &Session, link: &Link, context: &Arc<Context>, id: &str) -> Outcome<()> {
    let held = session.interrupts.change();
    let restored = acting::on_behalf(here::actor(), restore::run(context, id)).await?;
    // The next command is to find it: the worker hears of the record from the state.
    let heard = async {
        while link.read("worktree::get", json!({"worktree_id": id})).await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    if tokio::time::timeout(HEARD_LIMIT, heard).await.is_err() {
        output::complain(
            "it is restored, but the worker has not heard of it yet; `worktree prune --dry-run` makes it look",
        );
    }
    drop(held);
    session.print(&json!(restored), || restored.record.path.clone())
}

fn list(session: &Session, kept: &[Kept]) -> Outcome<()> {
    if session.json {
        return Ok(output::json(&json!({ "restorable": kept }))?);
    }
    if kept.is_empty() {
        output::complain("nothing can be restored");
        return Ok(());
    }
    let now = SystemClock.now_ms();
    let rows: Vec<Vec<String>> = kept
        .iter()
        .map(|one| {
            let removed = format!("{} ago", words::age(one.removed_at, now));
            vec![
                one.record.worktree_id.clone(),
                one.record.branch.clone(),
                removed,
                words::date(one.keep_until),
                one.work.clone(),
            ]
        })
        .collect();
    Ok(output::write(&table::render(&COLUMNS, &rows))?)
}

/// The id of the one that is meant.
fn pick(kept: &[Kept], name: &str) -> Outcome<String> {
    let id = |one: &Kept| one.record.worktree_id.clone();
    if let Some(exact) = kept.iter().find(|one| one.record.worktree_id == name) {
        return Ok(id(exact));
    }
    let begins = |one: &&Kept| {
        let id = &one.record.worktree_id;
        !name.is_empty() && (id.starts_with(name) || id.trim_start_matches("wt_").starts_with(name))
    };
    let mut found: Vec<String> = kept.iter().filter(|one| one.record.branch == name || begins(one)).map(id).collect();
    found.dedup();
    match found.as_slice() {
        [one] => Ok(one.clone()),
        [] => Err(Trouble::Refused {
            code: Code::NoSuchWorktree.to_string(),
            message: format!("nothing of the id or branch `{name}` is kept; `worktree restore` lists what is"),
        }),
        several => Err(Trouble::usage(format!("`{name}` fits several: {}", several.join(", ")))),
    }
}
