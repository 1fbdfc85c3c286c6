//! Repositories of this machine: traps in their configuration, locks left behind, worktrees that are not managed.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::finding::Findings;
use crate::cli::trouble::Outcome;
use crate::git::{Git, Repo, admin};
use crate::model::Code;
use crate::model::clock::{Clock as _, SystemClock};
use crate::worktrees::marker;
use crate::worktrees::repo_lock::{self, LOCK_FILE};

const GIT_LIMIT: Duration = Duration::from_secs(10);
/// A lock of git older than this was left by a process that died: git itself holds them for moments.
const STALE: Duration = Duration::from_secs(600);

/// Looks at the repository around each path, once.
///
/// # Errors
/// When standard output is closed.
pub(super) async fn look(paths: &[PathBuf], findings: &mut Findings) -> Outcome<()> {
    let git = Git::new(GIT_LIMIT);
    let mut seen = BTreeSet::new();
    for path in paths {
        match git.discover(path).await {
            Ok(found) if seen.insert(found.repo.key()) => look_at(&found.repo, findings).await?,
            Ok(_) => {}
            // Not in a repository is nothing wrong.
            Err(error) if error.code() == Code::NotARepository => {}
            Err(error) => {
                let fix = format!("git config --global --add safe.directory {}", path.display());
                findings.problem("repository", &error.to_string(), &fix)?;
            }
        }
    }
    Ok(())
}

async fn look_at(repo: &Repo, findings: &mut Findings) -> Outcome<()> {
    let name = repo.common_dir().display().to_string();
    let before = findings.len();
    traps(repo, findings).await?;
    locks(repo, findings)?;
    if findings.len() == before {
        findings.ok("repository", &format!("{name} has no traps and no stale locks"))?;
    }
    strangers(repo, findings).await
}

/// Settings that break worktrees, or a land.
async fn traps(repo: &Repo, findings: &mut Findings) -> Outcome<()> {
    let dir = repo.common_dir().display();
    let settings = match repo.settings().await {
        Ok(settings) => settings,
        Err(error) => {
            let fix = format!("git --git-dir={dir} config --list");
            findings.problem("repository", &format!("its configuration cannot be read: {error}"), &fix)?;
            return Ok(());
        }
    };
    let value = |key: &str| settings.get(key).map(String::as_str);
    let unset = |key: &str| format!("git --git-dir={dir} config --unset {key}");
    // An index is what only a repository with a checkout of its own has: `git init` in the wrong place sets this.
    let has_checkout = repo.common_dir().join("index").exists();
    if value("core.bare") == Some("true") && has_checkout {
        let message =
            format!("{dir} has a checkout, and core.bare=true says that it has none: git refuses to work in it");
        findings.problem("repository", &message, &format!("git --git-dir={dir} config core.bare false"))?;
    }
    if let Some(place) = value("core.worktree") {
        let message = format!("{dir}: core.worktree={place} sends every worktree of it to that directory");
        findings.problem("repository", &message, &unset("core.worktree"))?;
    }
    if value("gc.worktreepruneexpire") == Some("now") {
        let message =
            format!("{dir}: gc.worktreePruneExpire=now lets git forget worktrees that are merely not mounted");
        findings.warn("repository", &message, &unset("gc.worktreePruneExpire"))?;
    }
    for (key, flag) in [("user.name", "user.name 'Your Name'"), ("user.email", "user.email you@example.org")] {
        if value(key).is_none_or(str::is_empty) {
            let message =
                format!("{dir}: {key} is not set; a rebase cannot commit, unless the worker's environment does");
            findings.warn("repository", &message, &format!("git config --global {flag}"))?;
        }
    }
    if repo.is_shallow().await.unwrap_or(false) {
        let message = format!("{dir} is a shallow clone: whether work has landed cannot always be told (W114)");
        findings.warn("repository", &message, &format!("git --git-dir={dir} fetch --unshallow"))?;
    }
    Ok(())
}

/// Locks that git processes left when they died, and ours when it is held for too long.
fn locks(repo: &Repo, findings: &mut Findings) -> Outcome<()> {
    let common = repo.common_dir();
    if let Ok(lock) = repo_lock::look(common, LOCK_FILE)
        && let Some(holder) = lock.holder.as_ref().filter(|_| lock.held)
    {
        let minutes = (SystemClock.now_ms() - holder.since) / 60_000;
        if minutes > 0 {
            let message = format!("process {} holds {} for {minutes} minutes", holder.pid, lock.path.display());
            findings.warn("locks", &message, &format!("ps -p {}   # and end it when it hangs", holder.pid))?;
        }
    }
    let mut places = vec![common.to_owned()];
    places.extend(admin::entries(common).unwrap_or_default().into_iter().map(|entry| entry.dir));
    for place in places {
        for name in ["index.lock", "HEAD.lock", "config.lock", "packed-refs.lock", "shallow.lock"] {
            let lock = place.join(name);
            let Some(age) = age(&lock) else { continue };
            if age >= STALE {
                let message =
                    format!("{} is {} minutes old: git refuses to write past it", lock.display(), age.as_secs() / 60);
                let fix = format!("rm {}   # after making sure that no git runs there", lock.display());
                findings.problem("locks", &message, &fix)?;
            }
        }
    }
    Ok(())
}

fn age(file: &Path) -> Option<Duration> {
    file.symlink_metadata().ok()?.modified().ok()?.elapsed().ok()
}

/// Worktrees that the worker did not create, and those that git would forget.
async fn strangers(repo: &Repo, findings: &mut Findings) -> Outcome<()> {
    let name = repo.common_dir().display();
    let all = match repo.worktrees().await {
        Ok(all) => all,
        Err(error) => {
            let fix = format!("git --git-dir={name} worktree list");
            findings.problem("repository", &format!("its worktrees cannot be listed: {error}"), &fix)?;
            return Ok(());
        }
    };
    for one in all.iter().filter(|one| !one.primary && !one.bare) {
        let entry = admin::entry_for(repo.common_dir(), &one.path).ok().flatten();
        let ours = entry.is_some_and(|entry| matches!(marker::read(&entry), Ok(Some(_))));
        let path = one.path.display();
        if let Some(why) = one.prunable.as_ref().filter(|_| !ours) {
            let message = format!("{path} is not managed, and git would forget it ({why})");
            findings.warn("unmanaged", &message, &format!("git --git-dir={name} worktree remove --force {path}"))?;
        } else if !ours {
            let branch = one.branch.as_deref().unwrap_or("no branch");
            findings.ok("unmanaged", &format!("{path} on {branch} is not managed; it is never touched"))?;
        }
    }
    Ok(())
}
