//! `worktree::list`: the worktrees of one repository, one session, or all.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::git::{Repo, admin, to_text};
use crate::model::record::{Lifecycle, Record};
use crate::model::status::{WorktreeInfo, WorktreeStatus};
use crate::model::{Error, Result};
use crate::worktrees::inspect::RepoView;
use crate::worktrees::{Context, inspect, marker, request, side_by_side};

/// Which worktrees to list; without a filter, all.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct Request {
    /// Only those of this repository: the absolute path of any of its worktrees or subfolders. Also fills `unmanaged`.
    #[serde(default)]
    pub repo_path: Option<String>,
    /// Only those that this session holds.
    #[serde(default)]
    pub session_id: Option<String>,
    /// Ask git for the status of each.
    #[serde(default)]
    pub include_status: bool,
}

/// A worktree of the repository that this worker did not create. It is never touched.
#[derive(Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct UnmanagedWorktree {
    /// Its directory.
    pub path: String,
    /// Its branch, without refs/heads/; absent when HEAD is detached.
    pub branch: Option<String>,
}

/// The worktrees found, oldest first.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Response {
    /// Those that this worker created.
    pub worktrees: Vec<WorktreeInfo>,
    /// With repo_path: the other worktrees of that repository, without the primary checkout.
    pub unmanaged: Vec<UnmanagedWorktree>,
}

/// Lists worktrees. Without a status and a repository it answers from memory.
///
/// # Errors
/// `W001`; with `repo_path` also `W110`, `W111`, `W113`. A status that cannot be told is `null`, not an error.
pub async fn run(ctx: &Arc<Context>, request: Request) -> Result<Response> {
    let session = request::optional_text("session_id", request.session_id.as_deref())?;
    let repo = match &request.repo_path {
        Some(path) => {
            let path = request::absolute_path("repo_path", path)?;
            Some(ctx.git().discover(&path).await.map_err(Error::from)?.repo)
        }
        None => None,
    };
    let key = repo.as_ref().map(crate::git::Repo::key);
    let records: Vec<Arc<Record>> = ctx
        .registry
        .records()
        .into_iter()
        .filter(|record| key.as_ref().is_none_or(|key| record.repo_key == *key))
        .filter(|record| session.is_none_or(|session| record.session_id.as_deref() == Some(session)))
        .collect();
    let unmanaged = match &repo {
        Some(repo) => unmanaged(ctx, repo).await?,
        None => Vec::new(),
    };
    Ok(Response { worktrees: infos(ctx, records, request.include_status).await, unmanaged })
}

/// The worktrees of a repository that are not ours: neither recorded nor marked.
async fn unmanaged(ctx: &Context, repo: &Repo) -> Result<Vec<UnmanagedWorktree>> {
    let canonical = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let key = repo.key();
    let recorded = ctx.registry.records().into_iter().filter(|record| record.repo_key == key);
    let mut ours: BTreeSet<PathBuf> = recorded.map(|record| canonical(Path::new(&record.path))).collect();
    // One that is just being made has no record yet.
    for entry in admin::entries(repo.common_dir()).unwrap_or_default() {
        if matches!(marker::read(&entry), Ok(Some(_)) | Err(_)) {
            ours.extend(entry.gitdir.parent().map(canonical));
        }
    }
    let entries = repo.worktrees().await?.into_iter();
    let theirs = entries.filter(|entry| !entry.primary && !entry.bare && !ours.contains(&canonical(&entry.path)));
    Ok(theirs.map(|entry| UnmanagedWorktree { path: to_text(&entry.path), branch: entry.branch }).collect())
}

/// The records as they are answered, their statuses asked for side by side.
async fn infos(ctx: &Arc<Context>, records: Vec<Arc<Record>>, with_status: bool) -> Vec<WorktreeInfo> {
    let lifecycles = inspect::lifecycles_now(&records);
    let mut statuses: Vec<Option<WorktreeStatus>> = vec![None; records.len()];
    if with_status {
        let there = records.iter().zip(&lifecycles).enumerate().filter(|(_, (_, life))| **life != Lifecycle::Orphaned);
        let views = RepoView::of_all(ctx, there.clone().map(|(_, (record, _))| record), true).await;
        let asked: Vec<(usize, Arc<Record>)> = there.map(|(at, (record, _))| (at, record.clone())).collect();
        let answers = side_by_side::run(asked, |(at, record)| {
            let (ctx, view) = (ctx.clone(), views.get(&record.repo_key).cloned());
            async move {
                match view {
                    Some(view) => (at, inspect::status_or_null(&ctx, &view, &record).await),
                    None => (at, None),
                }
            }
        });
        for (at, status) in answers.await.into_iter().flatten() {
            statuses[at] = status;
        }
    }
    records.iter().zip(lifecycles).zip(statuses).map(|((r, l), s)| WorktreeInfo::new(r, l, s)).collect()
}
