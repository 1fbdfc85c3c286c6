//! `worktree doctor`: what is wrong, and the command that fixes it.
//!
//! It speaks to the engine, and looks at this machine where it takes the worker to run.

mod engine;
mod finding;
mod machine;
mod repository;
mod worktrees;

use std::path::{Path, PathBuf};

use clap::Args;

use self::finding::{Findings, Level};
use super::session::{Common, Session};
use super::trouble::{Outcome, Trouble};
use super::{Exit, here, output, select};

const AFTER_HELP: &str = "\
Looked at: the engine, the worker and its version, the queue and shell providers, whether the shell worker may work \
in the worktree root, git and its security fixes, traps in the configuration of repositories, locks that git left \
behind, worktrees that are not what was created, and worktrees that are not managed.

git, repositories and locks are looked at on this machine, which is taken for the one of the worker. Nothing is changed.

Examples:
  worktree doctor
  worktree doctor --repo ~/src/shop
  worktree doctor --json | jq '.findings[] | select(.level == \"problem\")'

Exit codes:
  0  no problem; there may be warnings
  1  problems were found
  2  the command line is wrong
  3  no engine answers; what could be looked at without one was";

/// The subcommand.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Arguments {
    /// Look at this repository as well [default: the one around this directory]
    #[arg(long, value_name = "PATH")]
    repo: Option<PathBuf>,
    #[command(flatten)]
    pub(super) common: Common,
}

pub(super) async fn run(arguments: Arguments, session: &Session) -> Outcome {
    let mut findings = Findings::new(!session.json);
    machine::look(&mut findings).await?;
    let mut repositories = Vec::new();
    let mut no_engine = None;
    match session.link().await {
        Ok(link) => {
            findings.ok("engine", &format!("answers at {}", link.url()))?;
            if engine::look(link, &mut findings).await? {
                let known = select::all(link).await?;
                worktrees::look(link, &known, &mut findings).await?;
                repositories.extend(known.iter().map(|one| PathBuf::from(&one.repo_path)));
            }
        }
        Err(Trouble::NoEngine(message)) => {
            findings.problem("engine", &message, "worktree dev")?;
            no_engine = Some(Exit::NoEngine);
        }
        Err(trouble) => return Err(trouble),
    }
    repositories.push(here::absolute(arguments.repo.as_deref().unwrap_or(Path::new(".")))?);
    repository::look(&repositories, &mut findings).await?;
    if session.json {
        output::json(&findings.document())?;
    } else {
        output::line(&findings.summary())?;
    }
    let found = if findings.count(Level::Problem) > 0 { Exit::Failure } else { Exit::Success };
    Ok(no_engine.unwrap_or(found))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn findings_are_counted_and_carry_their_fix() {
        let mut findings = Findings::new(false);
        findings.ok("git", "fine").unwrap();
        findings.warn("queue", "none", "connect one").unwrap();
        findings.problem("engine", "none", "worktree dev").unwrap();
        assert_eq!(findings.summary(), "1 problem, 1 warning");
        let expected = json!({
            "findings": [
                {"check": "git", "level": "ok", "message": "fine", "fix": null},
                {"check": "queue", "level": "warning", "message": "none", "fix": "connect one"},
                {"check": "engine", "level": "problem", "message": "none", "fix": "worktree dev"},
            ],
            "problems": 1, "warnings": 1,
        });
        assert_eq!(findings.document(), expected);
    }
}
