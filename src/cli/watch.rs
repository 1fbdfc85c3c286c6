//! `worktree watch`: events as they happen.

use std::time::Duration;

use clap::Args;
use clap_complete::engine::ArgValueCompleter;
use iii_sdk::RegisterFunction;
use iii_sdk::protocol::RegisterTriggerInput;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::link::{Link, READ_LIMIT};
use super::scope::Scope;
use super::select::Which;
use super::session::{Common, Session};
use super::terminal::{Style, paint};
use super::trouble::{Outcome, Trouble};
use super::{Exit, complete, output, words};
use crate::git::{Git, from_text, to_text};
use crate::model::Error;
use crate::model::event::EventKind;

/// How long the worker may take to know that somebody listens.
const BIND_LIMIT: Duration = Duration::from_secs(10);

const AFTER_HELP: &str = "\
With --json each event is one line: {\"type\": \"worktree::landed\", \"event\": {...}}. When the worker knows that \
somebody listens, `watching` is said on standard error.

Examples:
  worktree watch
  worktree watch --all --json | jq -c 'select(.type == \"worktree::land-blocked\")'
  worktree watch fix-login --count 1

Exit codes:
  0  ended by Ctrl-C, or after --count events
  1  refused
  2  the command line is wrong, or the name fits several worktrees
  3  no engine answers";

/// The subcommand.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Arguments {
    /// Only those about this worktree: its id or the beginning of it, its branch, or a path in it
    #[arg(value_name = "WORKTREE", add = ArgValueCompleter::new(complete::worktrees))]
    worktree: Option<String>,
    #[command(flatten)]
    scope: Scope,
    /// Only those about worktrees that this session holds
    #[arg(long, value_name = "NAME")]
    session: Option<String>,
    /// Leave after so many events
    #[arg(long, value_name = "COUNT")]
    count: Option<u64>,
    #[command(flatten)]
    pub(super) common: Common,
}

pub(super) async fn run(arguments: Arguments, session: &Session) -> Outcome {
    let link = session.link().await?;
    let mut filter = json!({});
    if arguments.worktree.is_some() {
        let which = Which { worktree: arguments.worktree.clone() };
        filter["worktree_id"] = json!(which.find(link).await?.worktree_id);
    } else if let Some(repo_path) = repo_path(link, &arguments.scope).await? {
        filter["repo_path"] = json!(repo_path);
    }
    if let Some(name) = &arguments.session {
        filter["session_id"] = json!(name);
    }
    let mut events = listen(link, &filter).await?;
    let _held = session.interrupts.own_end();
    output::complain("watching");
    let mut left = arguments.count;
    while left != Some(0) {
        let (kind, event) = tokio::select! {
            biased;
            () = session.interrupts.received() => return Ok(Exit::Success),
            event = events.recv() => match event {
                Some(event) => event,
                None => return Err(Trouble::NoEngine("the connection to the engine ended".to_owned())),
            },
        };
        session.print(&json!({"type": kind.trigger_type(), "event": event}), || describe(kind, &event))?;
        left = left.map(|left| left - 1);
    }
    Ok(Exit::Success)
}

/// What events call the repository: its primary checkout.
async fn repo_path(link: &Link, scope: &Scope) -> Outcome<Option<String>> {
    let path = scope.repo_path(link).await?;
    let Some(given) = path.as_str() else { return Ok(None) };
    let answer = link.read("worktree::list", json!({"repo_path": path})).await?;
    if let Some(primary) = answer["worktrees"][0]["repo_path"].as_str() {
        return Ok(Some(primary.to_owned()));
    }
    // Without any worktree the worker has not told its name yet; git knows the first of them.
    let found = Git::new(READ_LIMIT).discover(&from_text(given)).await.map_err(Error::from)?;
    let all = found.repo.worktrees().await.map_err(Error::from)?;
    Ok(all.into_iter().find(|one| one.primary).map(|one| to_text(&one.path)))
}

/// Binds a function of this connection to each kind of event, and waits until the worker has all bindings. They go
/// with the connection, however it ends.
async fn listen(link: &Link, filter: &Value) -> Outcome<mpsc::UnboundedReceiver<(EventKind, Value)>> {
    let (sender, receiver) = mpsc::unbounded_channel();
    let mine = format!("worktree-watch-{}", std::process::id());
    for kind in EventKind::ALL {
        let function_id = format!("{mine}::on-{}", &kind.trigger_type()["worktree::".len()..]);
        let sender = sender.clone();
        let heard = move |mut event: Value| {
            if let Some(fields) = event.as_object_mut() {
                fields.remove("_caller_worker_id");
            }
            // A command that has seen enough does not want to know any more.
            sender.send((kind, event)).unwrap_or_default();
            std::future::ready(Ok::<_, iii_sdk::Error>(Value::Null))
        };
        let function = RegisterFunction::new_async(heard).metadata(json!({"internal": true}));
        link.client().register_function(&*function_id, function);
        let input = RegisterTriggerInput::new(kind.trigger_type(), function_id, filter.clone());
        link.client().register_trigger(input).map_err(|error| Trouble::of_call(error, "watch"))?;
    }
    let bound = async {
        loop {
            let ask = json!({"search": mine, "include_internal": true});
            let listed = link.read("engine::registered-triggers::list", ask).await?;
            let count = listed["registered_triggers"].as_array().map_or(0, |all| {
                all.iter().filter(|one| one["function_id"].as_str().is_some_and(|id| id.starts_with(&mine))).count()
            });
            if count == EventKind::ALL.len() {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(30)).await;
        }
    };
    match tokio::time::timeout(BIND_LIMIT, bound).await {
        Ok(outcome) => outcome.map(|()| receiver),
        Err(_) => Err(Trouble::Refused {
            code: "TIMEOUT".to_owned(),
            message: "nobody on the engine sends worktree events; is the worker connected? `worktree doctor` looks"
                .to_owned(),
        }),
    }
}

fn describe(kind: EventKind, event: &Value) -> String {
    let text = |key: &str| event[key].as_str().unwrap_or_default();
    let (style, more) = match kind {
        EventKind::Created => (Style::Dim, format!("{} in {}", text("branch"), text("path"))),
        EventKind::Claimed => (Style::Cyan, format!("by {}", text("session_id"))),
        EventKind::Released => (Style::Dim, format!("by {}", text("session_id"))),
        EventKind::Removed => {
            let forced = if event["forced"] == true { ", forced" } else { "" };
            (Style::Yellow, format!("{}{forced}", text("branch")))
        }
        EventKind::Landed => {
            let sha = words::short(text("merged_sha"));
            (Style::Green, format!("{} on {} as {sha}", text("branch"), text("target_branch")))
        }
        EventKind::LandBlocked => (Style::Red, format!("{}: {}", text("code"), text("message"))),
    };
    let at = words::clock(event["timestamp"].as_i64().unwrap_or_default());
    let name = paint(style, &format!("{:<12}", &kind.trigger_type()["worktree::".len()..]));
    format!("{at} {name} {} {more}", text("worktree_id"))
}
