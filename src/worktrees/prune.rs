//! `worktree::prune`: takes away what is finished, and sets right what was left half done.
//!
//! A worktree goes only when it is unclaimed, idle, clean, quiet and holds no commits that its target lacks. Everything
//! else is skipped with its reason, and one record that cannot be judged never stops the sweep.
//!
//! Invariants
//! 1. Nothing is ever forced, and nothing is taken because of its age or size alone.
//! 2. What speaks against taking a worktree that is finished is in the audit log, once per cause.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::{Arc, PoisonError};

use futures_util::future::join_all;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::discard::{Judgement, discard_tree};
use super::inspect::RepoView;
use super::marker::{self, Identity};
use super::unsaved_work::Cleared;
use super::{Context, branch, inspect, rebuild, remove, request, retention, side_by_side, unsaved_work, usage};
use crate::audit::{self, Action};
use crate::git::admin::{self, AdminEntry};
use crate::git::{Tree, from_text};
use crate::model::event::Event;
use crate::model::record::{Lifecycle, Record};
use crate::model::{Code, Error, Result};

/// One hour in milliseconds.
pub const HOUR_MS: i64 = 3_600_000;

/// How many worktrees of a repository go before somebody else gets its lock.
const AT_ONCE: usize = 64;

/// What to sweep.
#[derive(Debug, Default, Deserialize, JsonSchema)]
pub struct Request {
    /// Only the worktrees of this repository; all when left out.
    #[serde(default)]
    pub repo_path: Option<String>,
    /// Only say what would be done.
    #[serde(default)]
    pub dry_run: bool,
}

/// A worktree that stays.
#[derive(Debug, Serialize, JsonSchema)]
pub struct PruneSkip {
    /// The id of the worktree that stays.
    pub id: String,
    /// Why it stays.
    pub reason: String,
}

/// What the sweep did, or would do.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Response {
    /// The ids of the worktrees that went, or whose record did because the directory was gone.
    pub pruned: Vec<String>,
    /// The worktrees that stay.
    pub skipped: Vec<PruneSkip>,
}

/// Sweeps.
///
/// # Errors
/// `W001`, `W500` when pruning is switched off (the trash is swept all the same), `W110` for a `repo_path` outside any
/// repository.
pub async fn run(ctx: &Arc<Context>, request: Request) -> Result<Response> {
    if !request.dry_run {
        retention::sweep_trash(ctx).await;
    }
    ctx.settings().require_gate("allow_prune", "worktree::prune")?;
    let key = match &request.repo_path {
        Some(path) => {
            let path = request::absolute_path("repo_path", path)?;
            Some(ctx.git().discover(&path).await.map_err(Error::from)?.repo.key())
        }
        None => None,
    };
    if !request.dry_run {
        rebuild::settle(ctx, key.as_deref()).await;
    }
    let over_quota = usage::check_quota(ctx).await;
    let mut response = Response { pruned: Vec::new(), skipped: Vec::new() };
    let records = ctx.registry.records().into_iter();
    let records: Vec<Arc<Record>> = records.filter(|one| key.as_ref().is_none_or(|key| one.repo_key == *key)).collect();
    // Judged first without the lock, so that a sweep keeps nobody waiting, side by side, and those that stay as cheaply as
    // it can be told. Who works where is looked at only when it counts.
    let looked_at = records.iter().filter(|one| matches!(finished(ctx, one), Ok(None)));
    let views = RepoView::of_all(ctx, looked_at, false).await;
    let judged = judge_all(ctx, &records, |record| views.get(&record.repo_key).cloned()).await;
    let swept = if request.dry_run {
        require_idle(&records, judged).await.into_iter().map(|verdict| verdict.map(drop)).collect()
    } else {
        sweep(ctx, &records, judged).await
    };
    let told = records.iter().zip(&swept).filter_map(|(record, swept)| Some((&**record, swept.as_ref().err()?)));
    tell_skips(ctx, told.filter(|(_, skip)| skip.for_safety).collect()).await;
    for (record, swept) in records.into_iter().zip(swept) {
        let id = record.worktree_id.clone();
        match swept {
            Ok(()) => response.pruned.push(id),
            Err(skip) => {
                let reason = match &over_quota {
                    Some(warning) => format!("{} ({warning})", skip.reason),
                    None => skip.reason,
                };
                response.skipped.push(PruneSkip { id, reason });
            }
        }
    }
    if request.dry_run {
        tell_rehearsal(ctx, &response).await;
    } else {
        retention::sweep_rest(ctx, key.as_deref()).await;
    }
    for error in ctx.registry.unreadable() {
        tracing::warn!(%error, "left alone by the sweep");
    }
    Ok(response)
}

/// Why a worktree stays.
struct Skip {
    /// The first words of the reason, which stay the same while counts in it change.
    cause: &'static str,
    reason: String,
    /// Whether it would have gone, had nothing spoken against it.
    for_safety: bool,
}

impl Skip {
    /// It is not finished.
    fn waiting(reason: String) -> Self {
        Skip { cause: "not finished", reason, for_safety: false }
    }

    /// It is finished, but something speaks against taking it.
    fn safety(cause: &'static str, reason: impl std::fmt::Display) -> Self {
        Skip { cause, reason: format!("{cause}: {reason}"), for_safety: true }
    }
}

impl From<Error> for Skip {
    fn from(error: Error) -> Self {
        let cause = match error.code {
            Code::IdentityMismatch => "not the worktree that was created",
            Code::AuditFailed => "the audit log cannot be written",
            _ => "cannot be told",
        };
        Skip { cause, reason: error.message, for_safety: true }
    }
}

/// Writes down why finished worktrees stay, where that was not written down before, by this process or one before it.
async fn tell_skips(ctx: &Context, skips: Vec<(&Record, &Skip)>) {
    let known = |record: &Record, skip: &Skip| {
        let mut told = ctx.told_skips.lock().unwrap_or_else(PoisonError::into_inner);
        told.insert(record.worktree_id.clone(), skip.cause.to_owned())
    };
    let skips: Vec<_> = skips.into_iter().map(|(record, skip)| (record, skip, known(record, skip))).collect();
    let written =
        if skips.iter().any(|(.., known)| known.is_none()) { written_skips(ctx).await } else { HashMap::new() };
    let news = skips.into_iter().filter(|(record, skip, known)| {
        let before = known.as_deref().or_else(|| written.get(&record.worktree_id).map(String::as_str));
        before != Some(skip.cause)
    });
    join_all(news.map(|(record, skip, _)| tell_skip(ctx, record, skip))).await;
}

async fn tell_skip(ctx: &Context, record: &Record, skip: &Skip) {
    let details = json!({
        "cause": skip.cause, "reason": skip.reason, "path": record.path, "branch": record.branch,
        "age_ms": ctx.now() - record.created_at, "disk_bytes": ctx.usage.bytes_of(&record.worktree_id),
    });
    let event = audit::Event::new(Action::PruneSkip, details).about(&record.worktree_id, &record.repo_key);
    if let Err(error) = ctx.audit(event).await {
        tracing::warn!(worktree = record.worktree_id, %error, "a skip was not written down");
    }
}

/// The cause of the last skip of each worktree in the log.
async fn written_skips(ctx: &Context) -> HashMap<String, String> {
    let Some(log) = ctx.audit_log() else { return HashMap::new() };
    let filter = audit::Filter { actions: vec![Action::PruneSkip], ..audit::Filter::default() };
    let entries = tokio::task::spawn_blocking(move || log.query(&filter)).await;
    let entries = entries.ok().and_then(Result::ok).unwrap_or_default().into_iter();
    let cause = |entry: audit::Entry| {
        Some((entry.worktree_id?, entry.details.get("cause").and_then(serde_json::Value::as_str)?.to_owned()))
    };
    entries.filter_map(cause).collect()
}

/// Writes down what a dry run would have taken.
async fn tell_rehearsal(ctx: &Context, response: &Response) {
    if response.pruned.is_empty() {
        return;
    }
    let mut event = audit::Event::new(Action::PruneRehearsal, json!({"would_prune": response.pruned}));
    event.dry_run = true;
    if let Err(error) = ctx.audit(event).await {
        tracing::warn!(%error, "a dry run was not written down");
    }
}

/// What the sweep may do with a worktree.
enum Verdict {
    /// Take it away: everything it holds is elsewhere.
    Remove(Tree, AdminEntry, Cleared),
    /// Its directory is gone: only bookkeeping is left.
    Reconcile(Option<AdminEntry>),
    /// Its directory is no worktree any more, and holds no file.
    Hollow(Option<AdminEntry>),
}

/// What is said of a worktree whose judgement came to no end.
fn given_up<T>() -> Result<T, Skip> {
    Err(Skip::safety("cannot be told", "the judgement was given up"))
}

/// Judges worktrees side by side; a verdict for each.
async fn judge_all(
    ctx: &Arc<Context>,
    records: &[Arc<Record>],
    view: impl Fn(&Record) -> Option<Arc<RepoView>>,
) -> Vec<Result<Verdict, Skip>> {
    let judged = side_by_side::run(records.to_vec(), |record| {
        let (ctx, view) = (ctx.clone(), view(&record));
        async move { judge(&ctx, &record, view.as_deref()).await }
    });
    judged.await.into_iter().map(|verdict| verdict.unwrap_or_else(given_up)).collect()
}

/// Lets those stay in which a process works.
async fn require_idle(records: &[Arc<Record>], mut judged: Vec<Result<Verdict, Skip>>) -> Vec<Result<Verdict, Skip>> {
    let whole = |verdict: &Result<Verdict, Skip>| matches!(verdict, Ok(Verdict::Remove(..)));
    let going: Vec<&Record> =
        records.iter().zip(&judged).filter(|(_, verdict)| whole(verdict)).map(|pair| &**pair.0).collect();
    let idle = remove::require_all_idle(&going).await;
    for (verdict, idle) in judged.iter_mut().filter(|verdict| whole(verdict)).zip(idle) {
        if let Err(error) = idle {
            *verdict = Err(Skip::safety("busy", error.message));
        }
    }
    judged
}

/// Takes away the worktrees that may go, some of one repository at a time; what came of each.
async fn sweep(
    ctx: &Arc<Context>,
    records: &[Arc<Record>],
    judged: Vec<Result<Verdict, Skip>>,
) -> Vec<Result<(), Skip>> {
    let mut swept: Vec<Result<(), Skip>> = judged.into_iter().map(|verdict| verdict.map(drop)).collect();
    let mut going: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (at, record) in records.iter().enumerate().filter(|(at, _)| swept[*at].is_ok()) {
        going.entry(&record.repo_key).or_default().push(at);
    }
    for (repo_key, places) in going {
        for some in places.chunks(AT_ONCE) {
            let ids = some.iter().map(|at| records[*at].worktree_id.as_str());
            for (at, result) in some.iter().zip(sweep_some(ctx, repo_key, ids.collect()).await) {
                swept[*at] = result;
            }
        }
    }
    swept
}

/// Takes away some worktrees of one repository, if they still may go; what came of each.
async fn sweep_some(ctx: &Arc<Context>, repo_key: &str, ids: Vec<&str>) -> Vec<Result<(), Skip>> {
    let guard = match ctx.registry.lock(repo_key).await {
        Ok(guard) => guard,
        Err(error) => return ids.iter().map(|_| Err(error.clone().into())).collect(),
    };
    let found: Vec<Result<Arc<Record>>> = ids.iter().map(|id| ctx.registry.record(id).map(Arc::new)).collect();
    let records: Vec<Arc<Record>> = found.iter().flatten().cloned().collect();
    let judged = judge_all(ctx, &records, |_| None).await;
    let judged = require_idle(&records, judged).await;
    let taken = join_all(records.iter().zip(judged).map(async |(record, verdict)| take(ctx, record, verdict?).await));
    let taken: Vec<Result<bool, Skip>> = taken.await;
    let with_branch = records.iter().zip(&taken).filter(|(_, taken)| matches!(taken, Ok(true)));
    let with_branch: Vec<&Record> = with_branch.map(|(record, _)| &**record).collect();
    let mut deleted = branch::delete_branches(ctx, repo_key, &with_branch).await.into_iter();
    let ended = records.iter().zip(taken).map(|(record, taken)| {
        let branch_deleted = matches!(taken, Ok(true)) && deleted.next() == Some(true);
        let guard = &guard;
        async move {
            taken?;
            ctx.registry.delete_record(guard, &record.worktree_id).await?;
            ctx.events.emit(&Event::removed(record, branch_deleted, false, ctx.now()));
            Ok(())
        }
    });
    let mut ended = join_all(ended).await.into_iter();
    let mut next = || ended.next().unwrap_or_else(given_up);
    found.into_iter().map(|record| record.map_err(Skip::from).and_then(|_| next())).collect()
}

/// Takes a worktree away as its verdict says; whether its branch may be deleted then, too.
async fn take(ctx: &Arc<Context>, record: &Record, verdict: Verdict) -> Result<bool, Skip> {
    match verdict {
        Verdict::Remove(tree, entry, cleared) => {
            // Others were judged since.
            let (why, judgement) = ((Action::Prune, json!({})), Judgement::Old);
            let added = discard_tree(ctx, record, (&tree, &entry), &cleared, why, judgement).await?;
            if let Some(added) = added {
                return Err(Skip::safety("dirty", added));
            }
            return Ok(ctx.settings().config.gates.allow_branch_delete);
        }
        Verdict::Hollow(entry) => {
            // First, because a file may appear meanwhile: then everything stays. Empty directories are no loss.
            remove_hollow(Path::new(&record.path)).map_err(|error| {
                Error::new(Code::GitFailed, format!("the empty {} cannot be removed: {error}", record.path))
            })?;
            remove::reconcile(ctx, record, entry.as_ref()).await?;
        }
        Verdict::Reconcile(entry) => remove::reconcile(ctx, record, entry.as_ref()).await?,
    }
    Ok(false)
}

/// Whether a worktree is finished, as far as that is told without looking into it: what is left of one whose directory is
/// gone, or nothing yet; the reason why it is not.
fn finished(ctx: &Context, record: &Record) -> Result<Option<Verdict>, Skip> {
    if let Some(job) = ctx.registry.live_job(&record.worktree_id) {
        return Err(Skip::waiting(format!("landing ({})", job.job_id)));
    }
    ctx.registry.require_readable_land(&record.worktree_id)?;
    if record.lifecycle == Lifecycle::Landing {
        return Err(Skip::waiting("landing".to_owned()));
    }
    // Also one whose land was blocked: there is nothing left in which its owner could go on.
    if inspect::lifecycle_now(record) == Lifecycle::Orphaned {
        return reconcile(record).map(Some);
    }
    if record.lifecycle == Lifecycle::LandBlocked {
        return Err(Skip::waiting("land-blocked".to_owned()));
    }
    if let Some(session) = &record.session_id {
        return Err(Skip::waiting(format!("claimed by session `{session}`")));
    }
    let idle_ms = ctx.now() - record.updated_at.max(last_touched(record));
    if idle_ms < expire_ms(ctx) {
        let hours = (idle_ms.max(0) / HOUR_MS, expire_ms(ctx) / HOUR_MS);
        return Err(Skip::waiting(format!("not expired: idle for {} of {} hours", hours.0, hours.1)));
    }
    Ok(None)
}

/// Whether a worktree may go; the reason when it may not. `view`: what was seen of all worktrees of the repository; it may
/// only let one stay. Whether a process works there is for [`require_idle`] to say.
async fn judge(ctx: &Context, record: &Record, view: Option<&RepoView>) -> Result<Verdict, Skip> {
    if let Some(verdict) = finished(ctx, record)? {
        return Ok(verdict);
    }
    let (tree, entry) = match marker::identify(&ctx.git(), record) {
        Ok(Identity::Ours(tree, entry)) => (tree, entry),
        Ok(Identity::DirectoryGone(_)) => return reconcile(record),
        Err(error) if error.code == Code::IdentityMismatch && is_hollow(Path::new(&record.path)) => {
            return Ok(Verdict::Hollow(entry_of(record)?));
        }
        Err(error) => return Err(error.into()),
    };
    let foreseen = match view {
        Some(view) => unsaved_work::foresee(ctx, view, record, &tree).await,
        None => None,
    };
    let work = match foreseen {
        Some(stays) => stays,
        None => unsaved_work::judge(record, &tree).await,
    };
    if !work.is_tidy() {
        return Err(Skip::safety("dirty", work.describe()));
    }
    if work.head.is_none() {
        return Err(Skip::safety("dirty", "no commit is checked out"));
    }
    let described = work.describe();
    let cleared = work.clear(record).map_err(|_| Skip::safety("unmerged work", described))?;
    Ok(Verdict::Remove(tree, entry, cleared))
}

/// A record whose directory is gone, unless the place where it lay cannot be seen at all.
fn reconcile(record: &Record) -> Result<Verdict, Skip> {
    let parent = Path::new(&record.path).parent();
    if !parent.is_some_and(Path::is_dir) {
        let parent = parent.unwrap_or(Path::new("/")).display();
        return Err(Skip::safety("unreachable", format!("{parent} is not there (not mounted?)")));
    }
    Ok(Verdict::Reconcile(entry_of(record)?))
}

/// Git's entry of a record whose directory is gone. Only when it is ours: another worktree may have been registered at
/// the same path.
fn entry_of(record: &Record) -> Result<Option<AdminEntry>, Skip> {
    let entry = admin::entry_for(&from_text(&record.repo_key), Path::new(&record.path));
    let entry = entry.map_err(|error| Skip::safety("cannot be told", format!("its entry in git: {error}")))?;
    Ok(entry.filter(|entry| marker::names(entry, record)))
}

/// Whether a directory holds nothing but directories.
fn is_hollow(dir: &Path) -> bool {
    let Ok(entries) = std::fs::read_dir(dir) else { return false };
    let hollow = |entry: std::io::Result<std::fs::DirEntry>| {
        entry.is_ok_and(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()) && is_hollow(&entry.path()))
    };
    entries.into_iter().all(hollow)
}

/// Removes directories that hold nothing; fails at the first thing that is none.
fn remove_hollow(dir: &Path) -> std::io::Result<()> {
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        if !entry.file_type()?.is_dir() {
            return Err(std::io::Error::other(format!("{} appeared meanwhile", entry.path().display())));
        }
        remove_hollow(&entry.path())?;
    }
    std::fs::remove_dir(dir)
}

/// How long a worktree must have been idle, in milliseconds.
#[must_use]
pub fn expire_ms(ctx: &Context) -> i64 {
    let hours = i64::try_from(ctx.settings().config.prune_expire_hours).unwrap_or(i64::MAX);
    hours.saturating_mul(HOUR_MS)
}

/// When somebody last did something in the worktree, as far as git's own files tell: milliseconds since the epoch.
#[must_use]
pub fn last_touched(record: &Record) -> i64 {
    let entry = admin::entry_for(&from_text(&record.repo_key), Path::new(&record.path)).ok().flatten();
    let Some(entry) = entry else { return 0 };
    let touched = ["index", "HEAD", "logs/HEAD"].iter().filter_map(|file| modified_ms(&entry.dir.join(file)));
    touched.max().unwrap_or(0)
}

/// When a file was written last, in milliseconds since the epoch.
pub(super) fn modified_ms(path: &Path) -> Option<i64> {
    let modified = path.metadata().ok()?.modified().ok()?;
    let since = modified.duration_since(std::time::UNIX_EPOCH).ok()?;
    i64::try_from(since.as_millis()).ok()
}
