//! `worktree::validate`: is this path a worktree, and one of ours?

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::git::admin::{self, Link};
use crate::model::Result;
use crate::model::record::{Lifecycle, Record};
use crate::worktrees::{Context, inspect, marker, request};

/// Which path to look at.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct Request {
    /// An absolute path: the root of a worktree, or anything inside one.
    pub path: String,
}

/// What the path is.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Response {
    /// Whether the path lies in a usable git worktree.
    pub valid: bool,
    /// Whether this worker created that worktree.
    pub managed: bool,
    /// The id of the worktree, when it is managed.
    pub worktree_id: Option<String>,
    /// Why it is not valid.
    pub reason: Option<String>,
}

fn response(valid: bool, record: Option<&Record>, reason: Option<String>) -> Response {
    Response { valid, managed: record.is_some(), worktree_id: record.map(|r| r.worktree_id.clone()), reason }
}

/// Looks at a path. Answers from memory and the file system alone.
///
/// # Errors
/// `W001`, `W111` for a relative path, `W300` when a record had to be marked as orphaned and could not be.
pub async fn run(ctx: &Context, request: Request) -> Result<Response> {
    let given = request::absolute_path("path", &request.path)?;
    let path = request::real_path(&given);
    // As it was named, a path may also lead through a link that took the place of a worktree.
    let is_plain = !given.components().any(|part| part == std::path::Component::ParentDir);
    let holds = |(place, record): &(PathBuf, Arc<Record>)| {
        path.starts_with(place) || (is_plain && given.starts_with(&record.path))
    };
    // The innermost one: a worktree may lie inside another.
    let mut parents = HashMap::new();
    let places = ctx.registry.records().into_iter().map(|record| (place(&record, &mut parents), record));
    let owner = places.filter(holds).max_by_key(|(place, _)| place.as_os_str().len());
    let Some((_, record)) = owner else { return Ok(unmanaged(ctx, &path)) };
    if inspect::lifecycle_now(&record) == Lifecycle::Orphaned {
        mark_orphaned(ctx, &record).await?;
        return Ok(response(false, Some(&record), Some("the directory of the worktree is gone".to_owned())));
    }
    Ok(match marker::identify(&ctx.git(), &record) {
        Ok(_) if !path.exists() => {
            response(false, Some(&record), Some("the path does not exist in the worktree".to_owned()))
        }
        Ok(_) => response(true, Some(&record), None),
        Err(error) => response(false, Some(&record), Some(error.message)),
    })
}

/// Where the worktree of a record lies: its parents as they really are, itself as it is named. Most records have the same
/// few `parents`.
fn place(record: &Record, parents: &mut HashMap<PathBuf, PathBuf>) -> PathBuf {
    let path = Path::new(&record.path);
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) => match parents.get(parent) {
            Some(real) => real.join(name),
            None => parents.entry(parent.to_owned()).or_insert_with(|| request::real_path(parent)).join(name),
        },
        _ => path.to_owned(),
    }
}

/// What a path is that no record claims.
fn unmanaged(ctx: &Context, path: &Path) -> Response {
    let Ok(found) = std::fs::symlink_metadata(path) else {
        return response(false, None, Some("the path does not exist".to_owned()));
    };
    let start = if found.is_dir() { Some(path) } else { path.parent() };
    let root = start.and_then(|start| start.ancestors().find(|dir| dir.join(".git").symlink_metadata().is_ok()));
    let Some(root) = root else {
        return response(false, None, Some("the path is not inside a git worktree".to_owned()));
    };
    // The root included: a bare repository may hold a `.git` of its own.
    if path.ancestors().take_while(|dir| *dir != root).chain([root]).any(is_git_dir) {
        return response(false, None, Some("the path is inside a git directory, not in a worktree".to_owned()));
    }
    match ctx.git().tree(root) {
        Ok(tree) if tree.is_primary() => response(true, None, None),
        Ok(tree) => match admin::verify_link(tree.repo().common_dir(), root) {
            Ok(Link::Intact(_)) => response(true, None, None),
            Ok(Link::DirectoryGone { .. }) => response(false, None, Some("the directory is gone".to_owned())),
            Ok(Link::Broken { why }) => response(false, None, Some(why)),
            Err(error) => response(false, None, Some(error.to_string())),
        },
        Err(error) => response(false, None, Some(error.to_string())),
    }
}

/// Whether a directory is laid out as git lays out its own.
fn is_git_dir(dir: &Path) -> bool {
    dir.join("HEAD").is_file() && dir.join("objects").is_dir() && dir.join("refs").is_dir()
}

/// Stores that the directory of a record is gone, unless a land still has to say so itself.
async fn mark_orphaned(ctx: &Context, record: &Record) -> Result<()> {
    let guard = ctx.registry.lock(&record.repo_key).await?;
    let current = ctx.registry.record(&record.worktree_id)?;
    let at_rest = !matches!(current.lifecycle, Lifecycle::Landing | Lifecycle::Orphaned);
    if at_rest && inspect::lifecycle_now(&current) == Lifecycle::Orphaned {
        let record = Record { lifecycle: Lifecycle::Orphaned, updated_at: ctx.now(), ..current };
        ctx.registry.put_record(&guard, record).await?;
    }
    Ok(())
}
