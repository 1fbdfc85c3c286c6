//! `worktree list`: the table of worktrees.
//!
//! On a terminal the rows come at once and their status is filled in as it comes. Elsewhere it is one answer.

mod extras;
mod row;

use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use futures_util::{StreamExt as _, stream};
use serde_json::{Value, json};

use self::extras::Extras;
use self::row::{Row, render};
use super::link::Link;
use super::scope::Scope;
use super::session::{Common, Session};
use super::terminal::Screen;
use super::trouble::Outcome;
use super::{Exit, output};
use crate::model::record::Lifecycle;
use crate::model::status::{WorktreeInfo, WorktreeStatus};
use crate::worktrees::states;

/// How many statuses are asked for side by side.
const SIDE_BY_SIDE: usize = 8;
/// How often a table that fills in is drawn at most.
const REDRAW: Duration = Duration::from_millis(80);
/// How often `--watch` looks again.
const WATCH: Duration = Duration::from_secs(2);

const AFTER_HELP: &str = "\
±TARGET counts commits ahead and behind, or says `landed`; CHANGES counts files: `+` staged, `~` changed, `?` untracked, \
`!` in conflict, `rebase` when one is open. Columns that do not fit are left out; --json has everything.

The states unreachable, corrupt, orphan and stale are those of an operator; what the worker keeps no record of is listed with them. stale is an active one that is idle for prune_expire_hours, orphan one half of which is missing (an orphaned one among them), corrupt a directory that git does not know as a worktree.

These states, --size and --processes are looked at on this machine, which has to be the one of the worker.

Examples:
  worktree list
  worktree list --all --state claimed,land-blocked
  worktree list --watch
  worktree list --json | jq -r '.worktrees[].path'

Exit codes:
  0  listed, however many there are
  1  refused
  2  the command line is wrong
  3  no engine answers";

/// The subcommand.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Arguments {
    #[command(flatten)]
    scope: Scope,
    /// Only those that this session holds
    #[arg(long, value_name = "NAME")]
    session: Option<String>,
    /// Only those in one of these states
    #[arg(long, value_name = "STATE", value_delimiter = ',')]
    state: Vec<State>,
    /// Show how much of the disk each uses
    #[arg(long)]
    size: bool,
    /// Show the processes that work in each
    #[arg(long)]
    processes: bool,
    /// Show whether `prune` would take it now, and why not
    #[arg(long)]
    reapable: bool,
    /// Look again every two seconds until Ctrl-C
    #[arg(long, conflicts_with = "json")]
    watch: bool,
    #[command(flatten)]
    pub(super) common: Common,
}

/// What can be asked for with `--state`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum State {
    Active,
    Claimed,
    Landing,
    LandBlocked,
    Orphaned,
    Unmanaged,
    Unreachable,
    Corrupt,
    Orphan,
    Stale,
}

impl State {
    fn of(lifecycle: Lifecycle) -> Self {
        match lifecycle {
            Lifecycle::Active => State::Active,
            Lifecycle::Claimed => State::Claimed,
            Lifecycle::Landing => State::Landing,
            Lifecycle::LandBlocked => State::LandBlocked,
            Lifecycle::Orphaned => State::Orphaned,
        }
    }

    /// The operator's state that is meant, where it is one.
    fn seen_as(self) -> Option<states::State> {
        match self {
            State::Unreachable => Some(states::State::Unreachable),
            State::Corrupt => Some(states::State::Corrupt),
            State::Orphan => Some(states::State::Orphan),
            State::Stale => Some(states::State::Stale),
            _ => None,
        }
    }
}

pub(super) async fn run(arguments: Arguments, session: &Session) -> Outcome {
    let link = session.link().await?;
    let query = Query { repo_path: arguments.scope.repo_path(link).await?, arguments: &arguments };
    if arguments.watch {
        return watch(&query, link, session).await;
    }
    if session.json {
        output::json(&query.document(link).await?)?;
        return Ok(Exit::Success);
    }
    let mut rows = query.rows(link, !output::is_terminal()).await?;
    if rows.is_empty() {
        output::complain("no worktrees; `worktree create` makes one");
    } else if Screen::fits(rows.len() + 1) {
        fill_in(&mut rows, link).await?;
    } else {
        ask_statuses(&mut rows, link, |_| Ok(())).await?;
        output::write(&render(&rows))?;
    }
    Ok(Exit::Success)
}

/// What is listed.
struct Query<'a> {
    repo_path: Value,
    arguments: &'a Arguments,
}

impl Query<'_> {
    fn wants(&self, state: State) -> bool {
        self.arguments.state.is_empty() || self.arguments.state.contains(&state)
    }

    fn wants_seen(&self, seen: states::State) -> bool {
        self.arguments.state.iter().any(|state| state.seen_as() == Some(seen))
    }

    async fn ask(&self, link: &Link, with_status: bool) -> Outcome<(Value, Extras)> {
        let payload = json!({
            "repo_path": self.repo_path, "session_id": self.arguments.session, "include_status": with_status,
        });
        let mut answer = link.read("worktree::list", payload).await?;
        let extras = Extras::look(link, self.arguments, &self.repo_path).await?;
        if let Some(all) = answer["worktrees"].as_array_mut() {
            all.retain(|one| {
                let id = one["worktree_id"].as_str().unwrap_or_default();
                let lifecycle = serde_json::from_value::<Lifecycle>(one["lifecycle"].clone());
                lifecycle.is_ok_and(|lifecycle| self.wants(State::of(lifecycle)))
                    || extras.state_of(id).is_some_and(|seen| self.wants_seen(seen))
            });
        }
        if !self.wants(State::Unmanaged) {
            answer["unmanaged"] = json!([]);
        }
        Ok((answer, extras))
    }

    /// The answer for programs.
    async fn document(&self, link: &Link) -> Outcome<Value> {
        let (mut answer, extras) = self.ask(link, true).await?;
        for one in answer["worktrees"].as_array_mut().into_iter().flatten() {
            extras.add_to(one);
            if self.arguments.processes {
                let path = one["path"].as_str().unwrap_or_default().to_owned();
                one["processes"] = row::processes(path).await;
            }
        }
        if self.arguments.state.iter().any(|state| state.seen_as().is_some()) {
            answer["unrecorded"] = json!(extras.unrecorded(|seen| self.wants_seen(seen)));
        }
        Ok(answer)
    }

    async fn rows(&self, link: &Link, with_status: bool) -> Outcome<Vec<Row>> {
        let (mut answer, extras) = self.ask(link, with_status).await?;
        let infos: Vec<WorktreeInfo> = serde_json::from_value(answer["worktrees"].take())?;
        let mut rows = Vec::new();
        for info in infos {
            let cells = extras.cells(&info.worktree_id);
            let mut row = Row::managed(info, with_status, cells);
            if self.arguments.processes {
                row.look_at_processes().await;
            }
            rows.push(row);
        }
        let unmanaged = answer["unmanaged"].as_array().cloned().unwrap_or_default();
        rows.extend(unmanaged.iter().map(Row::unmanaged));
        rows.extend(extras.unrecorded(|seen| self.wants_seen(seen)).into_iter().map(Row::unrecorded));
        Ok(rows)
    }
}

/// Draws the rows at once, and again as their statuses come.
async fn fill_in(rows: &mut [Row], link: &Link) -> Outcome<()> {
    let mut screen = Screen::default();
    screen.draw(&render(rows))?;
    let mut drawn = Instant::now();
    let draw = |rows: &[Row]| {
        let now = Instant::now();
        if now - drawn >= REDRAW {
            drawn = now;
            screen.draw(&render(rows))?;
        }
        Ok(())
    };
    ask_statuses(rows, link, draw).await?;
    Ok(screen.draw(&render(rows))?)
}

/// Asks for the status of each row that has none yet; `seen` hears of each.
async fn ask_statuses(
    rows: &mut [Row],
    link: &Link,
    mut seen: impl FnMut(&[Row]) -> std::io::Result<()>,
) -> Outcome<()> {
    let ids: Vec<(usize, String)> =
        rows.iter().enumerate().filter_map(|(at, row)| Some((at, row.pending()?))).collect();
    let mut answers = stream::iter(ids)
        .map(|(at, id)| async move { (at, link.read("worktree::status", json!({"worktree_id": id})).await) })
        .buffer_unordered(SIDE_BY_SIDE);
    while let Some((at, answer)) = answers.next().await {
        // A status that cannot be told is shown as such; the list goes on.
        let status = answer.ok().and_then(|answer| serde_json::from_value::<WorktreeStatus>(answer).ok());
        rows[at].tell(status);
        seen(rows)?;
    }
    Ok(())
}

/// The table again and again, until a signal ends it.
async fn watch(query: &Query<'_>, link: &Link, session: &Session) -> Outcome {
    let _held = session.interrupts.own_end();
    let mut screen = Screen::default();
    let mut last = String::new();
    loop {
        let turn = async {
            let table = render(&query.rows(link, true).await?);
            let table = if table.is_empty() { "no worktrees\n".to_owned() } else { table };
            if output::is_terminal() {
                screen.draw(&table)?;
            } else if table != last {
                output::line(&table)?;
                last = table;
            }
            tokio::time::sleep(WATCH).await;
            Outcome::Ok(())
        };
        tokio::select! {
            biased;
            () = session.interrupts.received() => return Ok(Exit::Success),
            outcome = turn => outcome?,
        }
    }
}
