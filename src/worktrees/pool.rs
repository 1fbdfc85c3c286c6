//! Worktrees that are made before anybody asks for them (`pool.size`), so that a create only has to hand one out.
//!
//! A pooled worktree is a real one, registered with git, locked, at the place that belongs to its id, with a marker that
//! is not `ready` and says `pooled`. It has no branch and no record. So it is nobody's: no read lists it, no sweep takes
//! it for somebody's, and a release that knows nothing of the pool takes it for what a create has left.
//!
//! | part | what it does |
//! |---|---|
//! | this file | who may have which worktree, and when the pool is looked after |
//! | `tend` | looks after the pool of a repository: takes away, brings up to date, adds |
//! | `fill` | makes one, and looks whether one is as it was made |
//! | `hand_out` | gives one to a create |
//! | `footprint`, `listen` | what tells that nothing in a worktree has changed |
//!
//! Invariants
//! 1. A worktree is handed out once: memory gives it to one task, and what its marker says is decided under the lock of
//!    the repository.
//! 2. Handed out is only what git would check out at this moment: nothing in it has changed since it was looked at, and
//!    the conditions of a checkout are the same. Everything else is made in the ordinary way.
//! 3. Killed while a worktree is made or brought up to date, it is taken away or finished at the next start. Killed while
//!    one is handed out, either it still is in the pool, or it is what a create has left (see [`super::making`]).
//! 4. A pooled worktree goes by the judgement of [`super::unsaved_work`], the audit log and the trash, as any other does;
//!    one in which something changed stays, and is named in the log.
//! 5. Nobody waits for the pool: it is filled one worktree at a time, while no create is at work, by processes that are
//!    nice to others, and a stop ends it at once.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use super::{Context, marker, rebuild};
use crate::git::admin::{self, AdminEntry, Link};
use crate::git::{Found, from_text};
use crate::model::record::Record;

mod fill;
mod footprint;
mod hand_out;
mod listen;
mod tend;

pub use hand_out::hand_out;
pub(super) use tend::adopt;

use footprint::Footprint;
use listen::Listener;

/// A worktree that may be handed out.
#[derive(Debug, Clone)]
struct Ready {
    /// What its marker says: no branch, and the commit that is checked out as the base.
    record: Record,
    entry: AdminEntry,
    footprint: Footprint,
    /// What hears of changes since the footprint was taken, where that is possible.
    listener: Option<Arc<Listener>>,
    /// Under which conditions its files were written.
    conditions: String,
}

/// What worktrees of a repository are started from: the name that a create gave, and where that name was looked up.
#[derive(Debug, Clone)]
struct Base {
    found: Found,
    name: String,
}

/// The pool of one repository.
#[derive(Debug, Default)]
struct Shelf {
    repo_path: PathBuf,
    /// The worktree root for which a create has found that worktrees of this repository may lie there.
    root: Option<PathBuf>,
    /// What the last create started from.
    base: Option<Base>,
    ready: Vec<Ready>,
    /// Worktrees that were found to be other than they were made, and have to be looked at.
    doubtful: Vec<Ready>,
    /// Ids of those in which something changed. They stay, and take up a place.
    changed: BTreeSet<String>,
    /// The commit of which no worktrees can be made beforehand.
    declined: Option<String>,
    /// Ids of those that some task of this process has in its hands.
    held: BTreeSet<String>,
    tending: bool,
    again: bool,
}

/// The pools of all repositories, as far as this process keeps them.
#[derive(Debug, Default)]
pub struct Pool {
    shelves: Mutex<HashMap<String, Shelf>>,
    /// How many creates are at work.
    creates: watch::Sender<usize>,
    stopping: watch::Sender<bool>,
}

/// A create at work; the pool rests meanwhile.
#[derive(Debug)]
pub struct AtWork(watch::Sender<usize>);

impl Drop for AtWork {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

/// A pooled worktree in the hands of one task, by its id.
struct Held {
    ctx: Arc<Context>,
    repo_key: String,
    worktree_id: String,
}

impl Held {
    fn new(ctx: &Arc<Context>, record: &Record) -> Held {
        let held =
            Held { ctx: ctx.clone(), repo_key: record.repo_key.clone(), worktree_id: record.worktree_id.clone() };
        ctx.pool.shelf(&held.repo_key, |shelf| shelf.held.insert(held.worktree_id.clone()));
        held
    }

    /// Takes what `pick` chooses off the shelf of a repository; at no moment is it in nobody's hands.
    fn take(
        ctx: &Arc<Context>,
        repo_key: &str,
        pick: impl FnOnce(&mut Shelf) -> Option<Ready>,
    ) -> Option<(Ready, Held)> {
        let ready = ctx.pool.shelf(repo_key, |shelf| {
            let ready = pick(shelf)?;
            shelf.held.insert(ready.record.worktree_id.clone());
            Some(ready)
        })?;
        let worktree_id = ready.record.worktree_id.clone();
        Some((ready, Held { ctx: ctx.clone(), repo_key: repo_key.to_owned(), worktree_id }))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.ctx.pool.shelf(&self.repo_key, |shelf| shelf.held.remove(&self.worktree_id));
    }
}

/// A worktree that one create may have. Dropped, it goes back to its place.
pub struct Reserved {
    ready: Option<Ready>,
    held: Held,
}

impl Reserved {
    /// The id that the worktree has had from the beginning.
    #[must_use]
    pub fn worktree_id(&self) -> Option<&str> {
        self.ready.as_ref().map(|ready| ready.record.worktree_id.as_str())
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        if let Some(ready) = self.ready.take() {
            self.held.ctx.pool.put_back(ready);
        }
    }
}

impl Pool {
    fn shelves(&self) -> MutexGuard<'_, HashMap<String, Shelf>> {
        self.shelves.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn shelf<R>(&self, repo_key: &str, look: impl FnOnce(&mut Shelf) -> R) -> R {
        look(self.shelves().entry(repo_key.to_owned()).or_default())
    }

    fn put_back(&self, ready: Ready) {
        let (key, id) = (ready.record.repo_key.clone(), ready.record.worktree_id.clone());
        self.shelf(&key, |shelf| shelf.ready.push(ready));
        tracing::debug!(worktree = id, "a worktree stands ready for the next create");
    }

    /// What has to be looked at before it may be handed out.
    fn doubt(&self, ready: Ready) {
        self.shelf(&ready.record.repo_key.clone(), |shelf| shelf.doubtful.push(ready));
    }

    /// Says that a create is at work until the answer is dropped.
    #[must_use]
    pub fn create_begins(&self) -> AtWork {
        self.creates.send_modify(|count| *count += 1);
        AtWork(self.creates.clone())
    }

    /// Ends what fills the pool; it begins no more.
    pub fn stop(&self) {
        self.stopping.send_replace(true);
    }

    /// Waits until the worker stops.
    async fn stopped(&self) {
        let mut stopping = self.stopping.subscribe();
        if let Err(closed) = stopping.wait_for(|stopping| *stopping).await {
            tracing::debug!(%closed, "the pool is gone");
        }
    }

    /// Waits until no create is at work.
    async fn quiet(&self) {
        let mut creates = self.creates.subscribe();
        if let Err(closed) = creates.wait_for(|count| *count == 0).await {
            tracing::debug!(%closed, "the pool is gone");
        }
    }
}

/// Takes a worktree out of the pool of a repository for one create.
#[must_use]
pub fn reserve(ctx: &Arc<Context>, repo_key: &str) -> Option<Reserved> {
    if ctx.settings().config.pool.size == 0 {
        return None;
    }
    let root = ctx.settings().root.clone();
    let (ready, held) = Held::take(ctx, repo_key, |shelf| {
        let at = shelf.ready.iter().rposition(|ready| Path::new(&ready.record.path).starts_with(&root))?;
        Some(shelf.ready.remove(at))
    })?;
    Some(Reserved { ready: Some(ready), held })
}

/// Notes what a create has started from, and has the pool looked after.
pub fn created(ctx: &Arc<Context>, found: &Found, record: &Record) {
    let base = Base { found: found.clone(), name: record.base_ref.clone() };
    let root = ctx.settings().root.clone();
    ctx.pool.shelf(&record.repo_key, |shelf| {
        shelf.repo_path = from_text(&record.repo_path);
        shelf.root = Path::new(&record.path).starts_with(&root).then_some(root);
        shelf.base = Some(base);
    });
    tend::wake(ctx, &record.repo_key);
}

/// Has the pools of all repositories looked after: settings, branches or the use of the disk may have changed.
pub fn wake_all(ctx: &Arc<Context>) {
    let keys: Vec<String> = ctx.pool.shelves().keys().cloned().collect();
    for key in keys {
        tend::wake(ctx, &key);
    }
}

/// The pooled worktrees that there are on the disk, as their markers tell, whoever keeps them. Reads a few small files
/// per worktree of the repositories that are known.
#[must_use]
pub fn on_disk(ctx: &Context) -> Vec<Record> {
    let markers = rebuild::marked(&rebuild::repos_of(ctx, None)).into_iter().map(|one| one.marker);
    markers.filter(|marker| marker.pooled.is_some()).map(|marker| marker.record).collect()
}

/// Whether the directory at `path` is a worktree that nobody has asked for yet.
#[must_use]
pub fn holds(ctx: &Context, path: &Path) -> bool {
    let Ok(tree) = ctx.git().tree(path) else { return false };
    match admin::verify_link(tree.repo().common_dir(), path) {
        Ok(Link::Intact(entry)) => marker::read(&entry).ok().flatten().is_some_and(|marker| marker.pooled.is_some()),
        _ => false,
    }
}
