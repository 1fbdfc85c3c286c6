//! `worktree::create`: a new worktree on its own branch.
//!
//! This module decides what is made: base, id, branch, place. How it is made, [`super::making`] knows, and
//! [`super::pool`], which has some made beforehand.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::pool::{self, Reserved};
use super::roll_back::Fetched;
use super::{Context, making, provision, request};
use crate::git::{Found, Repo, Room, Sha, Tree, from_text, to_text};
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
/// `W001`, `W010` when `worktree_root` lies where it must not, `W110`–`W115`, `W120`, `W121`, `W300`, `W503`, `W504`, and
/// what git reports. Nothing is left behind then.
pub async fn run(ctx: &Arc<Context>, request: Request) -> Result<Response> {
    let path = check(&request)?;
    let _at_work = ctx.pool.create_begins();
    let settings = ctx.settings();
    let found = match ctx.git().discover(&path).await {
        Ok(found) => found,
        Err(error) => return Err(hidden_by_gate(&settings, &path).unwrap_or_else(|| error.into())),
    };
    let repo_path = primary_path(&found)?;
    settings.require_repo(&repo_path)?;
    let repo = found.repo.clone();
    repo.require_allowed_drivers().await?;
    making::require_budget(ctx, &settings, &repo.key(), &repo_path)?;
    require_root_outside(&settings, &found, &repo_path).await?;
    // Before anything is fetched: a pull request that has its worktree is only named.
    // What a pull request brings is not known before it is fetched, so the pool has nothing for it.
    let reserved = if request.pr.is_none() { pool::reserve(ctx, &repo.key()) } else { None };
    let first = reserved.as_ref().and_then(Reserved::worktree_id);
    let (worktree_id, branch) = choose_name(ctx, &settings, &repo, &request, first).await?;
    let fetched = match request.pr {
        Some(number) => Some(fetch_pull(&repo, number).await?),
        None => None,
    };
    let (base_ref, base_sha) = match &fetched {
        Some(fetched) => (fetched.name.clone(), fetched.now.clone()),
        None => resolve_base(&found, request.base_ref.as_deref()).await?,
    };
    let now = ctx.now();
    let mut record = Record {
        format: RECORD_FORMAT,
        repo_path: to_text(&repo_path),
        repo_key: repo.key(),
        path: place(&settings, &repo, &worktree_id),
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
    let chosen = reserved.filter(|reserved| reserved.worktree_id() == Some(&record.worktree_id));
    let made = match chosen {
        Some(reserved) => pooled(ctx, &settings, &repo, &request, (&mut record, &base_sha), reserved).await,
        None => making::make(ctx, &settings, &repo, &record, &base_sha).await,
    };
    if let Err(error) = made {
        if let Some(fetched) = fetched {
            fetched.undo(&repo).await;
            return Err(error);
        }
        return Err(explain_base(&found, &record, &base_sha, error).await);
    }
    ctx.events.emit(&Event::created(&record, ctx.now()));
    pool::created(ctx, &found, &record);
    provision::start(ctx, &settings, source_checkout(ctx, &found), &from_text(&record.path));
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

/// Where the worktree of an id lies.
fn place(settings: &Settings, repo: &Repo, worktree_id: &str) -> String {
    to_text(&settings.root.join(repo_slug(&repo.key())).join(worktree_id))
}

/// Makes the worktree out of one of the pool; where that will not do, in the ordinary way under another id.
async fn pooled(
    ctx: &Arc<Context>,
    settings: &Settings,
    repo: &Repo,
    request: &Request,
    (record, base_sha): (&mut Record, &Sha),
    reserved: Reserved,
) -> Result<()> {
    if pool::hand_out(ctx, settings, repo, (record, base_sha), reserved).await? {
        return Ok(());
    }
    let (worktree_id, branch) = choose_name(ctx, settings, repo, request, None).await?;
    record.path = place(settings, repo, &worktree_id);
    record.dev_port = dev_port(&worktree_id);
    (record.worktree_id, record.branch) = (worktree_id, branch);
    making::make(ctx, settings, repo, record, base_sha).await
}

/// The refusal that comes before any word about a path: a repository that may not be used is not looked at.
fn hidden_by_gate(settings: &Settings, path: &Path) -> Option<Error> {
    let real = request::real_path(path);
    // A wrong path inside a repository that may be used is told as what it is.
    let allowed = real.ancestors().any(|dir| settings.require_repo(dir).is_ok());
    if allowed { None } else { settings.require_repo(&real).err() }
}

/// Refuses a worktree root inside the repository's git directory, or inside one of its checkouts unless git ignores it
/// there: `git clean` and `git add` would take the worktrees for files of that checkout.
async fn require_root_outside(settings: &Settings, found: &Found, repo_path: &Path) -> Result<()> {
    let root = request::real_path(&settings.root);
    let refuse = |inside: &Path| {
        let (root, inside) = (root.display(), inside.display());
        let why = format!(
            "configuration key `worktree_root`: {root} lies inside the repository {inside}; name a directory outside, or \
             have git ignore it there"
        );
        Err(Error::new(Code::InvalidConfig, why))
    };
    if root.starts_with(found.repo.common_dir()) {
        return refuse(found.repo.common_dir());
    }
    let primary = found.repo.git().tree(repo_path).ok();
    for tree in found.tree.iter().chain(&primary) {
        if root.starts_with(tree.root()) && !tree.ignores(&root.join("x")).await? {
            return refuse(tree.root());
        }
    }
    Ok(())
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

/// The base by its name, and its commit. That a branch names one that is there, git finds out when it makes the new
/// branch, and [`explain_base`] then says so.
pub(super) async fn resolve_base(found: &Found, base_ref: Option<&str>) -> Result<(String, Sha)> {
    let name = base_ref.unwrap_or("HEAD");
    let sha = match &found.tree {
        // HEAD, and what is counted from it, is that of the checkout the caller named, which may be a linked one.
        Some(tree) => tree.resolve_commit(name).await?,
        None => found.repo.resolve_commit(name).await?,
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

/// Why a create has failed: where its base is no commit, that.
async fn explain_base(found: &Found, record: &Record, base_sha: &Sha, error: Error) -> Error {
    if error.code != Code::GitFailed || !matches!(found.repo.commit_exists(base_sha).await, Ok(false)) {
        return error;
    }
    let common_dir = found.repo.common_dir().display();
    let why = format!("`{}` names {base_sha}, which is no commit in {common_dir}", record.base_ref);
    Error::new(Code::RefNotFound, format!("{why}; fetch it, or name another base_ref"))
}

/// Fetches the head of a pull request into a ref of ours.
async fn fetch_pull(repo: &Repo, number: u64) -> Result<Fetched> {
    let (from, name) = (format!("refs/pull/{number}/head"), format!("refs/iii/pr/{number}"));
    if !repo.has_remote("origin").await? {
        return Err(Error::new(
            Code::RefNotFound,
            format!(
                "{} has no remote `origin` to fetch the pull request {number} from; add one (git remote add origin <url>)",
                repo.common_dir().display()
            ),
        ));
    }
    let before = repo.ref_sha(&name).await?;
    match repo.fetch_ref("origin", &from, &name).await? {
        Some(now) => Ok(Fetched { name, before, now }),
        None => {
            Err(Error::new(Code::RefNotFound, format!("`origin` has no {from}; check the number of the pull request")))
        }
    }
}

/// The id and the branch of the new worktree. A generated name that is taken is replaced by another one; where a branch
/// has the name of the prefix's folder (`iii` beside `iii/…`), the prefix is written with dashes. `first` is the id to
/// begin with.
async fn choose_name(
    ctx: &Context,
    settings: &Settings,
    repo: &Repo,
    request: &Request,
    mut first: Option<&str>,
) -> Result<(String, String)> {
    let mut prefix = settings.config.branch_prefix.clone();
    let mut refusal = None;
    for _ in 0..NAME_ATTEMPTS {
        let id = first.take().map_or_else(|| format!("wt_{}", ctx.ids.next_hex12()), str::to_owned);
        let branch = match (&request.branch, request.pr, settings.config.branch_naming) {
            (Some(branch), _, _) => branch.clone(),
            (None, Some(number), _) => format!("{prefix}pr-{number}"),
            (None, None, BranchNaming::Id) => format!("{prefix}{id}"),
            (None, None, BranchNaming::Codename) => format!("{prefix}{}", codename(&id)),
        };
        match require_free(ctx, repo, &branch).await {
            Ok(()) => return Ok((id, branch)),
            Err(error) if request.branch.is_none() && request.pr.is_none() => {
                if error.code == Code::BranchCollision {
                    tracing::warn!(%error, "the branch prefix is written with dashes");
                    prefix = prefix.replace('/', "-");
                }
                refusal = Some(error);
            }
            Err(error) => return Err(error),
        }
    }
    Err(refusal.unwrap_or_else(|| Error::new(Code::BranchExists, "no free branch name was found")))
}

/// Refuses a branch that exists, or that git's ref store has no room for.
async fn require_free(ctx: &Context, repo: &Repo, branch: &str) -> Result<()> {
    let room = repo.room_for(branch).await?;
    if room == Room::Taken {
        let key = repo.key();
        let holder = ctx.registry.records().into_iter().find(|r| r.repo_key == key && r.branch == branch);
        let where_ = holder.map_or_else(String::new, |r| format!(" in the worktree {} ({})", r.worktree_id, r.path));
        return Err(Error::new(
            Code::BranchExists,
            format!("the branch `{branch}` already exists{where_}; use it there, name another one, or delete it first"),
        ));
    }
    match room {
        Room::Collides(other) => Err(Error::new(
            Code::BranchCollision,
            format!(
                "the branch `{branch}` cannot stand beside `{other}`: one name is a folder of the other; name another"
            ),
        )),
        Room::Taken | Room::Free => Ok(()),
    }
}
