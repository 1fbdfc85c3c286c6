//! `worktree::create`: a new worktree on its own branch.
//!
//! All or nothing: what a failed create has made, it takes away again. Only the registration with git happens under
//! the lock of the repository; the checkout, which takes the time, runs side by side with others.
//!
//! Killed here → found at the next start → done:
//! - after the registration, before the record: an entry whose marker is not `ready` → nobody was told of it, so it
//!   is taken away when nothing was changed in it.
//! - after the record: a complete worktree.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::remove::branch_ref;
use super::{Context, marker, provision, request};
use crate::audit::{Action, Event as Audit};
use crate::git::admin::{self, AdminEntry};
use crate::git::{AddWorktree, Found, HookOutcome, RefUpdate, Repo, Sha, Tree};
use crate::model::config::{BranchNaming, Settings, is_branch_name};
use crate::model::event::Event;
use crate::model::id::{codename, dev_port, repo_slug};
use crate::model::record::{Lifecycle, RECORD_FORMAT, Record};
use crate::model::{Code, Error, Result};

/// How many generated names are tried before giving up.
const NAME_ATTEMPTS: usize = 5;

/// What to start the worktree from.
#[derive(Debug, Default, Deserialize, JsonSchema)]
pub struct Request {
    /// Absolute path of the repository: its root, any subfolder, or any of its worktrees.
    pub repo_path: String,
    /// What to start from: a branch, tag, commit or anything else that names a commit. HEAD when left out.
    #[serde(default)]
    pub base_ref: Option<String>,
    /// Name of the new branch; generated when left out.
    #[serde(default)]
    pub branch: Option<String>,
    /// Number of a pull request of `origin` to start from. Excludes base_ref and branch.
    #[serde(default)]
    pub pr: Option<u64>,
    /// The session that claims the new worktree at once.
    #[serde(default)]
    pub session_id: Option<String>,
}

/// The new worktree.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Response {
    /// The id that every other call takes.
    pub worktree_id: String,
    /// The directory to work in.
    pub path: String,
    /// The branch that is checked out there, without refs/heads/.
    pub branch: String,
    /// What it was started from, as it was named.
    pub base_ref: String,
    /// The commit it was started from.
    pub base_sha: String,
    /// The canonical git common directory, the identity of the repository.
    pub repo_key: String,
    /// A port from 10000 to 19999 for a development server; derived from the id, not reserved.
    pub dev_port: u16,
    /// Creation time in milliseconds since the epoch.
    pub created_at: i64,
}

/// Creates a worktree.
///
/// # Errors
/// `W001`, `W110`–`W115`, `W120`, `W121`, `W300`, `W503`, `W504`, and what git reports. Nothing is left behind then.
pub async fn run(ctx: &Arc<Context>, request: Request) -> Result<Response> {
    let path = check(&request)?;
    let settings = ctx.settings();
    let found = ctx.git().discover(&path).await?;
    let repo_path = primary_path(&found)?;
    settings.require_repo(&repo_path)?;
    let repo = found.repo.clone();
    let (base_ref, base_sha) = match request.pr {
        Some(number) => fetch_pull(&repo, number).await?,
        None => resolve_base(&found, request.base_ref.as_deref()).await?,
    };
    let (worktree_id, branch) = choose_name(ctx, &settings, &repo, &request).await?;
    let place = settings.root.join(repo_slug(&repo.key())).join(&worktree_id);
    let now = ctx.now();
    let record = Record {
        format: RECORD_FORMAT,
        repo_path: repo_path.to_string_lossy().into_owned(),
        repo_key: repo.key(),
        path: place.to_string_lossy().into_owned(),
        branch,
        base_ref,
        base_sha: base_sha.to_string(),
        lifecycle: Lifecycle::at_rest(request.session_id.as_deref()),
        session_id: request.session_id.clone(),
        dev_port: dev_port(&worktree_id),
        created_at: now,
        updated_at: now,
        fence: 0,
        worktree_id,
    };
    let entry = register(ctx, &settings, &repo, &record, &base_sha).await?;
    if let Err(error) = complete(ctx, &record, &entry, &base_sha).await {
        roll_back(ctx, &repo, &record, &base_sha).await;
        return Err(error);
    }
    ctx.events.emit(&Event::created(&record, ctx.now()));
    provision::start(ctx, &settings, source_checkout(ctx, &found), &place);
    Ok(Response {
        worktree_id: record.worktree_id,
        path: record.path,
        branch: record.branch,
        base_ref: record.base_ref,
        base_sha: record.base_sha,
        repo_key: record.repo_key,
        dev_port: record.dev_port,
        created_at: record.created_at,
    })
}

/// Checks the fields for themselves; returns the path of the repository.
fn check(request: &Request) -> Result<PathBuf> {
    let path = request::absolute_path("repo_path", &request.repo_path)?;
    request::optional_text("session_id", request.session_id.as_deref())?;
    if request.pr.is_some() && (request.base_ref.is_some() || request.branch.is_some()) {
        return Err(Error::new(Code::InvalidRequest, "`pr` excludes `base_ref` and `branch`; leave those out"));
    }
    if let Some(base_ref) = &request.base_ref {
        request::plain_ref("base_ref", base_ref)?;
    }
    if let Some(branch) = &request.branch {
        request::require_text("branch", branch)?;
        if !is_branch_name(branch) {
            return Err(Error::new(
                Code::Malformed,
                format!("`branch`: git takes no branch named `{}`", branch.escape_debug()),
            ));
        }
    }
    Ok(path)
}

/// The primary checkout of a repository, or the repository itself when it has none.
fn primary_path(found: &Found) -> Result<PathBuf> {
    let common = found.repo.common_dir();
    let checkout = match &found.tree {
        Some(tree) if tree.is_primary() => tree.root().to_owned(),
        _ if common.file_name().is_some_and(|name| name == ".git") => common.parent().unwrap_or(common).to_owned(),
        _ => common.to_owned(),
    };
    checkout
        .canonicalize()
        .map_err(|error| Error::new(Code::NotARepository, format!("{} cannot be reached: {error}", checkout.display())))
}

/// The checkout whose ignored files are worth copying: the one the caller named, else the primary one.
fn source_checkout(ctx: &Context, found: &Found) -> Option<Tree> {
    let common = found.repo.common_dir();
    let primary = || ctx.git().tree(common.parent()?).ok().filter(|tree| tree.repo().common_dir() == common);
    found.tree.clone().or_else(primary)
}

async fn resolve_base(found: &Found, base_ref: Option<&str>) -> Result<(String, Sha)> {
    let name = base_ref.unwrap_or("HEAD");
    let sha = match &found.tree {
        // HEAD is that of the checkout the caller named, which may be a linked one.
        Some(tree) if name == "HEAD" => tree.head().await?,
        _ => found.repo.resolve_commit(name).await?,
    };
    match sha {
        Some(sha) => Ok((name.to_owned(), sha)),
        None if !found.repo.has_commits().await? => Err(Error::new(
            Code::NoCommits,
            format!("{} has no commits yet; make a first one", found.repo.common_dir().display()),
        )),
        None => Err(Error::new(
            Code::RefNotFound,
            format!(
                "`{name}` names no commit in {}; fetch it, or name another base_ref",
                found.repo.common_dir().display()
            ),
        )),
    }
}

/// Fetches the head of a pull request into a ref of ours.
async fn fetch_pull(repo: &Repo, number: u64) -> Result<(String, Sha)> {
    let (from, to) = (format!("refs/pull/{number}/head"), format!("refs/iii/pr/{number}"));
    match repo.fetch_ref("origin", &from, &to).await? {
        Some(sha) => Ok((to, sha)),
        None => {
            Err(Error::new(Code::RefNotFound, format!("`origin` has no {from}; check the number of the pull request")))
        }
    }
}

/// The id and the branch of the new worktree. A generated name that is taken is replaced by another one.
async fn choose_name(ctx: &Context, settings: &Settings, repo: &Repo, request: &Request) -> Result<(String, String)> {
    let prefix = &settings.config.branch_prefix;
    let mut refusal = None;
    for _ in 0..NAME_ATTEMPTS {
        let id = format!("wt_{}", ctx.ids.next_hex12());
        let branch = match (&request.branch, request.pr, settings.config.branch_naming) {
            (Some(branch), _, _) => branch.clone(),
            (None, Some(number), _) => format!("{prefix}pr-{number}"),
            (None, None, BranchNaming::Id) => format!("{prefix}{id}"),
            (None, None, BranchNaming::Codename) => format!("{prefix}{}", codename(&id)),
        };
        match require_free(ctx, repo, &branch).await {
            Ok(()) => return Ok((id, branch)),
            Err(error) if request.branch.is_none() && request.pr.is_none() => refusal = Some(error),
            Err(error) => return Err(error),
        }
    }
    Err(refusal.unwrap_or_else(|| Error::new(Code::BranchExists, "no free branch name was found")))
}

/// Refuses a branch that exists, or that git's ref store has no room for.
async fn require_free(ctx: &Context, repo: &Repo, branch: &str) -> Result<()> {
    if repo.branch_sha(branch).await?.is_some() {
        let key = repo.key();
        let holder = ctx.registry.records().into_iter().find(|r| r.repo_key == key && r.branch == branch);
        let where_ = holder.map_or_else(String::new, |r| format!(" in the worktree {} ({})", r.worktree_id, r.path));
        return Err(Error::new(
            Code::BranchExists,
            format!("the branch `{branch}` already exists{where_}; use it there, or name another branch"),
        ));
    }
    match repo.branch_collision(branch).await? {
        Some(other) => Err(Error::new(
            Code::BranchCollision,
            format!(
                "the branch `{branch}` cannot stand beside `{other}`: one name is a folder of the other; name another"
            ),
        )),
        None => Ok(()),
    }
}

/// Registers the worktree with git and marks it as ours, under the lock of the repository.
async fn register(
    ctx: &Context,
    settings: &Settings,
    repo: &Repo,
    record: &Record,
    base_sha: &Sha,
) -> Result<AdminEntry> {
    let place = Path::new(&record.path);
    if place.symlink_metadata().is_ok() {
        return Err(Error::new(
            Code::GitFailed,
            format!("{} is taken by something else; call create again", record.path),
        ));
    }
    if let Some(parent) = place.parent() {
        std::fs::create_dir_all(parent).map_err(|error| {
            Error::new(Code::GitFailed, format!("the directory {} cannot be made: {error}", parent.display()))
        })?;
    }
    let _guard = ctx.registry.lock(&record.repo_key).await?;
    require_budget(ctx, settings, record)?;
    let add = AddWorktree {
        path: place.to_owned(),
        branch: record.branch.clone(),
        start: base_sha.clone(),
        lock_reason: format!("iii worktree {}", record.worktree_id),
    };
    repo.add_worktree(&add).await?;
    let registered = registered_entry(record).and_then(|entry| marker::write(&entry, record, false).map(|()| entry));
    if registered.is_err() {
        roll_back(ctx, repo, record, base_sha).await;
    }
    registered
}

fn registered_entry(record: &Record) -> Result<AdminEntry> {
    match admin::entry_for(Path::new(&record.repo_key), Path::new(&record.path)) {
        Ok(Some(entry)) => Ok(entry),
        Ok(None) => {
            Err(Error::new(Code::GitFailed, format!("git did not register {}; call create again", record.path)))
        }
        Err(error) => {
            Err(Error::new(Code::GitFailed, format!("git's entry of {} cannot be read: {error}", record.path)))
        }
    }
}

/// Refuses when the repository has as many live worktrees as it may. Markers count those that are still being made.
fn require_budget(ctx: &Context, settings: &Settings, record: &Record) -> Result<()> {
    let most = settings.config.gates.max_worktrees_per_repo;
    if most == 0 {
        return Ok(());
    }
    let mut live: std::collections::BTreeSet<String> = ctx
        .registry
        .records()
        .into_iter()
        .filter(|r| r.repo_key == record.repo_key && super::inspect::lifecycle_now(r) != Lifecycle::Orphaned)
        .map(|r| r.worktree_id)
        .collect();
    let entries = admin::entries(Path::new(&record.repo_key)).map_err(|error| {
        Error::new(Code::GitFailed, format!("the worktrees of {} cannot be counted: {error}", record.repo_key))
    })?;
    for entry in entries.iter().filter(|entry| entry.gitdir.exists()) {
        live.extend(marker::read(entry)?.map(|marker| marker.record.worktree_id));
    }
    let count = u64::try_from(live.len()).unwrap_or(u64::MAX);
    if count < most {
        return Ok(());
    }
    Err(Error::new(
        Code::BudgetReached,
        format!(
            "{} already has {count} of {most} worktrees (gates.max_worktrees_per_repo); land, remove or prune one first",
            record.repo_path
        ),
    ))
}

/// Checks the files out, runs the hook, stores the record, and says in the marker that the worktree is complete.
async fn complete(ctx: &Arc<Context>, record: &Record, entry: &AdminEntry, base_sha: &Sha) -> Result<()> {
    let tree = ctx.git().tree(Path::new(&record.path))?;
    tree.checkout_fresh().await?;
    run_hook(&tree, record, base_sha).await;
    let guard = ctx.registry.lock(&record.repo_key).await?;
    ctx.registry.put_record(&guard, record.clone()).await?;
    if let Err(error) = marker::write(entry, record, true) {
        ctx.registry.delete_record(&guard, &record.worktree_id).await?;
        return Err(error);
    }
    drop(guard);
    refresh_later(tree);
    Ok(())
}

/// A hook that fails, or hangs until its limit, does not fail a create whose tree is complete.
async fn run_hook(tree: &Tree, record: &Record, base_sha: &Sha) {
    match tree.run_post_checkout(base_sha).await {
        Ok(HookOutcome::Ok | HookOutcome::Missing) => {}
        Ok(outcome) => {
            tracing::warn!(worktree = record.worktree_id, ?outcome, "the post-checkout hook did not succeed");
        }
        Err(error) => tracing::warn!(worktree = record.worktree_id, %error, "the post-checkout hook could not be run"),
    }
}

/// Right after a checkout every file is as old as the index, and git hashes all of them again at every status until
/// the index is written once more. Doing that a second later makes every later status several times faster.
fn refresh_later(tree: Tree) {
    const UNTIL_NOT_RACY: std::time::Duration = std::time::Duration::from_millis(1_100);
    tokio::spawn(async move {
        tokio::time::sleep(UNTIL_NOT_RACY).await;
        if let Err(error) = tree.refresh_index().await {
            tracing::debug!(tree = %tree.root().display(), %error, "the index was not refreshed");
        }
    });
}

/// Takes away what a failed create has made: directory, admin entry, branch. Nobody has been told of any of them.
async fn roll_back(ctx: &Context, repo: &Repo, record: &Record, base_sha: &Sha) {
    let place = Path::new(&record.path);
    let details = json!({"path": record.path, "branch": record.branch, "head_sha": base_sha});
    let event = Audit::new(Action::RollBack, details).about(&record.worktree_id, &record.repo_key);
    if let Err(error) = ctx.audit(event).await {
        // Its marker is not `ready`: the sweep takes it away once the log can be written again.
        tracing::warn!(path = record.path, %error, "what a failed create has made stays");
        return;
    }
    let dropped = match admin::entry_for(repo.common_dir(), place) {
        // Registered by this call: the directory is ours down to the last file.
        Ok(Some(entry)) => {
            remove_if_there(std::fs::remove_dir_all(place)).and_then(|()| admin::drop_entry(repo.common_dir(), &entry))
        }
        // git takes its own directory away when it fails; what is not empty is not ours.
        Ok(None) => remove_if_there(std::fs::remove_dir(place)),
        Err(error) => Err(error),
    };
    if let Err(error) = dropped {
        tracing::warn!(path = record.path, %error, "what a failed create has made stays");
    }
    match repo.delete_ref(&branch_ref(&record.branch), base_sha).await {
        Ok(RefUpdate::Done | RefUpdate::Lost { .. }) => {}
        Err(error) => tracing::warn!(branch = record.branch, %error, "the branch of a failed create stays"),
    }
}

fn remove_if_there(removed: std::io::Result<()>) -> std::io::Result<()> {
    match removed {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}
