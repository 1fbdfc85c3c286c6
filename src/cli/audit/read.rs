//! `worktree audit query` and `tail`.

use std::time::Duration;

use clap::Args;
use clap::builder::PossibleValuesParser;
use serde_json::{Value, json};

use super::Where;
use crate::audit::{Action, Entry, Filter, Log};
use crate::cli::session::{Common, Session};
use crate::cli::terminal::{Style, paint};
use crate::cli::trouble::{Outcome, Trouble};
use crate::cli::{Exit, output, words};
use crate::model::clock::{Clock as _, SystemClock};

/// How often `--follow` looks.
const EVERY: Duration = Duration::from_millis(250);

const QUERY_HELP: &str = "\
Times are an age (30m, 12h, 7d) or milliseconds since the epoch.

Examples:
  worktree audit query --worktree wt_3f9a1c20b7de
  worktree audit query --action remove --action prune --since 7d
  worktree audit query --mentions fix-login --json

Exit codes:
  0  shown, however many there are
  1  the log cannot be read
  2  the command line is wrong
  3  no engine answers";

const TAIL_HELP: &str = "\
With --json and --follow each entry is one line.

Exit codes:
  0  shown
  1  the log cannot be read
  2  the command line is wrong
  3  no engine answers";

/// `worktree audit query`.
#[derive(Debug, Args)]
#[command(after_help = QUERY_HELP)]
pub(super) struct Query {
    /// Only about this worktree, by its whole id
    #[arg(long, value_name = "ID")]
    worktree: Option<String>,
    /// Only this action; may be repeated
    #[arg(long, value_name = "ACTION", value_parser = PossibleValuesParser::new(Action::ALL.map(Action::as_str)))]
    action: Vec<String>,
    /// Only by this user, worker or session
    #[arg(long, value_name = "NAME")]
    actor: Option<String>,
    /// Not before this time
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Not after this time
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
    /// Only what holds this text: a commit, a branch, a path
    #[arg(long, value_name = "TEXT")]
    mentions: Option<String>,
    #[command(flatten)]
    place: Where,
    #[command(flatten)]
    pub(super) common: Common,
}

/// `worktree audit tail`.
#[derive(Debug, Args)]
#[command(after_help = TAIL_HELP)]
pub(super) struct Tail {
    /// How many
    #[arg(long, short = 'n', value_name = "COUNT", default_value_t = 10)]
    lines: usize,
    /// Go on with what is written from now on, until Ctrl-C
    #[arg(long, short)]
    follow: bool,
    #[command(flatten)]
    place: Where,
    #[command(flatten)]
    pub(super) common: Common,
}

/// Reads off the threads that serve the connection.
async fn read(log: Log, filter: Filter, count: usize) -> Outcome<Vec<Entry>> {
    let read = tokio::task::spawn_blocking(move || log.tail(&filter, count)).await;
    Ok(read.map_err(anyhow::Error::from)??)
}

pub(super) async fn query(arguments: Query, session: &Session) -> Outcome {
    let now = SystemClock.now_ms();
    let filter = Filter {
        since: arguments.since.as_deref().map(|text| time(text, now)).transpose()?,
        until: arguments.until.as_deref().map(|text| time(text, now)).transpose()?,
        actions: Action::ALL.into_iter().filter(|one| arguments.action.iter().any(|a| a == one.as_str())).collect(),
        worktree_id: arguments.worktree,
        actor: arguments.actor,
        mentions: arguments.mentions,
        ..Filter::default()
    };
    let log = arguments.place.log(session).await?;
    show(session, &read(log, filter, usize::MAX).await?)?;
    Ok(Exit::Success)
}

pub(super) async fn tail(arguments: Tail, session: &Session) -> Outcome {
    let log = arguments.place.log(session).await?;
    let mut entries = read(log.clone(), Filter::default(), arguments.lines).await?;
    if !arguments.follow {
        show(session, &entries)?;
        return Ok(Exit::Success);
    }
    let _held = session.interrupts.own_end();
    let mut last = 0;
    loop {
        for entry in &entries {
            session.print(&json!(entry), || describe(entry))?;
            last = entry.seq;
        }
        let next = async {
            tokio::time::sleep(EVERY).await;
            read(log.clone(), Filter { after_seq: Some(last), ..Filter::default() }, usize::MAX).await
        };
        tokio::select! {
            biased;
            () = session.interrupts.received() => return Ok(Exit::Success),
            read = next => entries = read?,
        }
    }
}

fn show(session: &Session, entries: &[Entry]) -> Outcome<()> {
    if session.json {
        output::json(&json!({ "entries": entries }))?;
    } else {
        for entry in entries {
            output::line(&describe(entry))?;
        }
    }
    Ok(())
}

fn describe(entry: &Entry) -> String {
    let rehearsed = if entry.dry_run { " (dry run)" } else { "" };
    let action = paint(Style::Bold, &format!("{}{rehearsed}", entry.action));
    let id = entry.worktree_id.as_deref().unwrap_or("-");
    let details: Vec<String> = entry.details.iter().filter(|(_, value)| !value.is_null()).map(detail).collect();
    let at = words::date(entry.time);
    let details = paint(Style::Dim, &details.join(" "));
    format!("{:>5} {at} {} {action} {id} {details}", entry.seq, entry.actor.name)
}

fn detail((key, value): (&String, &Value)) -> String {
    match value {
        Value::String(text) => format!("{key}={text}"),
        other => format!("{key}={other}"),
    }
}

/// A point in time: an age, or milliseconds since the epoch.
fn time(text: &str, now: i64) -> Outcome<i64> {
    let wrong = || Trouble::usage(format!("`{text}` is no time; write an age such as 30m, 12h or 7d, or milliseconds"));
    let unit = match text.chars().last() {
        Some('s') => 1000,
        Some('m') => 60_000,
        Some('h') => 3_600_000,
        Some('d') => 86_400_000,
        _ => return text.parse().map_err(|_| wrong()),
    };
    let count: i64 = text[..text.len() - 1].parse().map_err(|_| wrong())?;
    Ok(now.saturating_sub(count.saturating_mul(unit)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_ages_or_milliseconds() {
        assert_eq!(time("2h", 10_000_000).unwrap(), 2_800_000);
        assert_eq!(time("17", 0).unwrap(), 17);
        for bad in ["", "h", "soon", "1w", "é"] {
            assert!(matches!(time(bad, 0), Err(Trouble::Usage(_))), "{bad}");
        }
    }
}
