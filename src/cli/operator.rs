//! The commands of an operator: the list of them, and what each runs.

use clap::Subcommand;

use super::place::Reach;
use super::session::attend;
use super::{
    Exit, audit, claim, completions, config, create, doctor, du, get, land, list, prune, queue, release, remove,
    restore, status, unlock, validate, watch,
};

/// Each is parse → call → print.
#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Create a worktree on a new branch and print its path
    Create(create::Arguments),
    /// List worktrees
    List(list::Arguments),
    /// Show the record of one worktree
    Get(get::Arguments),
    /// Show what is in one worktree: changes, commits, whether they have landed
    Status(status::Arguments),
    /// Take a worktree for yourself or a session
    Claim(claim::Arguments),
    /// Give a worktree back
    Release(release::Arguments),
    /// Land the branch of a worktree: rebase, test, fast-forward, clean up
    Land(land::Arguments),
    /// Show the lands that wait or run
    Queue(queue::Arguments),
    /// Show events as they happen
    Watch(watch::Arguments),
    /// Remove a worktree, after showing what it holds
    Remove(remove::Arguments),
    /// Remove what is finished and idle, after showing the plan
    #[command(visible_alias = "gc")]
    Prune(prune::Arguments),
    /// Bring back a worktree that was removed by force
    Restore(restore::Arguments),
    /// Show what the worktrees use of the disk
    Du(du::Arguments),
    /// Verify and read the log of everything that went
    Audit(audit::Arguments),
    /// Show who holds the lock of a repository, and clear what a dead holder left
    Unlock(unlock::Arguments),
    /// Tell whether a path is in a usable worktree
    Validate(validate::Arguments),
    /// Look for what is wrong, and name the command that fixes it
    Doctor(doctor::Arguments),
    /// Show or change the configuration of the worker
    Config(config::Arguments),
    /// Print what a shell needs to complete and to enter worktrees
    Completions(completions::Arguments),
}

impl Command {
    /// Runs it. `before` is what stood before its name.
    pub(super) async fn run(self, before: Reach) -> Exit {
        match self {
            Command::Create(a) => attend("create", a.common.clone(), before, create::run, a).await,
            Command::List(a) => attend("list", a.common.clone(), before, list::run, a).await,
            Command::Get(a) => attend("get", a.common.clone(), before, get::run, a).await,
            Command::Status(a) => attend("status", a.common.clone(), before, status::run, a).await,
            Command::Claim(a) => attend("claim", a.common.clone(), before, claim::run, a).await,
            Command::Release(a) => attend("release", a.common.clone(), before, release::run, a).await,
            Command::Land(a) => attend("land", a.common.clone(), before, land::run, a).await,
            Command::Queue(a) => attend("queue", a.common.clone(), before, queue::run, a).await,
            Command::Watch(a) => attend("watch", a.common.clone(), before, watch::run, a).await,
            Command::Remove(a) => attend("remove", a.common.clone(), before, remove::run, a).await,
            Command::Prune(a) => attend("prune", a.common.clone(), before, prune::run, a).await,
            Command::Restore(a) => attend("restore", a.common.clone(), before, restore::run, a).await,
            Command::Du(a) => attend("du", a.common.clone(), before, du::run, a).await,
            Command::Audit(a) => a.run(before).await,
            Command::Unlock(a) => attend("unlock", a.common.clone(), before, unlock::run, a).await,
            Command::Validate(a) => attend("validate", a.common.clone(), before, validate::run, a).await,
            Command::Doctor(a) => attend("doctor", a.common.clone(), before, doctor::run, a).await,
            Command::Config(a) => attend("config", a.common.clone(), before, config::run, a).await,
            Command::Completions(a) => completions::run(&a),
        }
    }
}
