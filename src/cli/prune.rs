//! `worktree prune`, also called `gc`: what is finished and idle goes, after the plan was shown.

use clap::Args;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::holdings::Holdings;
use super::link::Link;
use super::scope::Scope;
use super::session::{Common, Session};
use super::terminal::{Style, paint};
use super::trouble::{Outcome, Trouble};
use super::{Exit, ask, output, select, words};

const AFTER_HELP: &str = "\
The plan is shown first, then the question is asked. Only worktrees go that are unclaimed, idle for \
prune_expire_hours, clean, quiet, and without commits that have not landed. --force-unsaved takes those as well that are \
idle and unclaimed but hold unsaved work: it shows what they hold and asks a second time, for their number; without a \
terminal that number is given with --confirm-unsaved.

Examples:
  worktree prune --dry-run
  worktree gc --all --yes
  worktree prune --force-unsaved --yes --confirm-unsaved 2

Exit codes:
  0    pruned, or there was nothing to prune
  1    refused, not confirmed, or one of them stayed
  2    the command line is wrong, or nobody can be asked
  3    no engine answers
  130  interrupted; what was begun is finished";

/// The subcommand.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Arguments {
    #[command(flatten)]
    scope: Scope,
    /// Show the plan and leave
    #[arg(long, conflicts_with_all = ["yes", "force_unsaved"])]
    dry_run: bool,
    /// Do not ask
    #[arg(long, short)]
    yes: bool,
    /// Remove also what holds unsaved work, after a second confirmation (needs gates.allow_force)
    #[arg(long)]
    force_unsaved: bool,
    /// The second confirmation: how many worktrees with unsaved work go
    #[arg(long, value_name = "COUNT", requires = "force_unsaved")]
    confirm_unsaved: Option<usize>,
    #[command(flatten)]
    pub(super) common: Common,
}

/// What the worker answers.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Swept {
    pruned: Vec<String>,
    skipped: Vec<Skip>,
}

/// A worktree that stays.
#[derive(Debug, Serialize, Deserialize)]
struct Skip {
    id: String,
    reason: String,
}

impl Skip {
    /// Whether it stays for nothing but the unsaved work in it.
    fn is_unsaved(&self) -> bool {
        self.reason.starts_with("dirty:") || self.reason.starts_with("unmerged work:")
    }
}

pub(super) async fn run(arguments: Arguments, session: &Session) -> Outcome {
    let link = session.link().await?;
    let repo_path = arguments.scope.repo_path(link).await?;
    let plan = link.read("worktree::prune", json!({"repo_path": repo_path, "dry_run": true})).await?;
    let plan: Swept = serde_json::from_value(plan)?;
    if !session.json {
        show(link, &plan).await?;
    }
    if arguments.dry_run {
        session.print(&document(true, &plan, &[]), String::new)?;
        return Ok(Exit::Success);
    }
    let unsaved: Vec<&str> = plan
        .skipped
        .iter()
        .filter(|skip| arguments.force_unsaved && skip.is_unsaved())
        .map(|s| s.id.as_str())
        .collect();
    if !unsaved.is_empty() {
        confirm_unsaved(&arguments, session, &unsaved).await?;
    }
    let mut swept = Swept::default();
    if !plan.pruned.is_empty() {
        let count = words::counted(plan.pruned.len() as u64, "worktree", "worktrees");
        if !arguments.yes && !ask::confirm(&format!("Remove {count}?"), "--yes").await? {
            return Err(Trouble::Failed(anyhow::anyhow!("not confirmed; nothing was removed")));
        }
        let answer = session.change("worktree::prune", json!({"repo_path": repo_path})).await?;
        swept = serde_json::from_value(answer)?;
    }
    let mut forced = Vec::new();
    for id in unsaved {
        session.change("worktree::remove", json!({"worktree_id": id, "force": true})).await?;
        forced.push(id.to_owned());
    }
    let stayed: Vec<&String> = plan.pruned.iter().filter(|id| !swept.pruned.contains(id)).collect();
    session.print(&document(false, &swept, &forced), || {
        let gone = swept.pruned.iter().chain(&forced).map(|id| format!("removed {id}\n"));
        let why = |id: &String| swept.skipped.iter().find(|skip| skip.id == *id).map_or("gone", |skip| &skip.reason);
        gone.chain(stayed.iter().map(|id| format!("{id} stayed: {}\n", why(id)))).collect()
    })?;
    Ok(if stayed.is_empty() { Exit::Success } else { Exit::Failure })
}

fn document(dry_run: bool, swept: &Swept, forced: &[String]) -> Value {
    json!({"dry_run": dry_run, "pruned": swept.pruned, "skipped": swept.skipped, "forced": forced})
}

/// The plan for people, on standard error: the result is what was done.
async fn show(link: &Link, plan: &Swept) -> Outcome<()> {
    let known = select::all(link).await?;
    let branch = |id: &str| {
        known.iter().find(|one| one.worktree_id == id).map_or_else(String::new, |one| format!(" ({})", one.branch))
    };
    for id in &plan.pruned {
        output::complain(&format!("{} {id}{}", paint(Style::Red, "goes "), branch(id)));
    }
    for skip in &plan.skipped {
        output::complain(&format!("{} {}{}: {}", paint(Style::Dim, "stays"), skip.id, branch(&skip.id), skip.reason));
    }
    if plan.pruned.is_empty() {
        output::complain("nothing to prune");
    }
    Ok(())
}

/// Shows what would be lost, and has its number confirmed.
async fn confirm_unsaved(arguments: &Arguments, session: &Session, unsaved: &[&str]) -> Outcome<()> {
    let link = session.link().await?;
    if !session.json {
        output::complain("with --force-unsaved these go as well:");
        for id in unsaved {
            output::complain(Holdings::of(link, id).await?.describe().trim_end());
        }
    }
    let count = unsaved.len();
    let confirmed = match arguments.confirm_unsaved {
        Some(given) if given != count => {
            return Err(Trouble::usage(format!(
                "--confirm-unsaved says {given}, but {count} hold unsaved work; look again with --dry-run"
            )));
        }
        Some(_) => true,
        None => {
            let question = "All of that will be lost from the directories.";
            ask::typed(question, &count.to_string(), "--confirm-unsaved with their number").await?
        }
    };
    if confirmed { Ok(()) } else { Err(Trouble::Failed(anyhow::anyhow!("not confirmed; nothing was removed"))) }
}
