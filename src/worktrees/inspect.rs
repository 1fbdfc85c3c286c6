//! What git says about a worktree: the status of the reads, and whether its work has already landed.
//!
//! Invariants
//! 1. Untracked files count whatever the user's git configuration says.
//! 2. Work is called integrated only when one of the six reasons is proven; a probe that fails proves nothing.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use tokio::sync::{Mutex, OnceCell};

use crate::git::{GitError, Integration, Operation, Repo, Sha, Tip, Tree, TreeStatus, cores, from_text};
use crate::model::record::{Lifecycle, Record};
use crate::model::status::WorktreeStatus;
use crate::model::{Code, Error, Result};
use crate::worktrees::Context;
use crate::worktrees::branch::branch_ref;
use crate::worktrees::marker;
use crate::worktrees::memo::Memo;

/// From how many worktrees of a repository on it costs less to ask for all at once.
const MANY: usize = 4;
/// From how many directories on a look at them is worth a thread.
const WORTH_A_THREAD: usize = 1000;

/// The branch that work from `base_ref` is meant for: the base when that is a branch, else the branch of the primary
/// checkout; with its local tip and its upstream's, whichever exist.
#[derive(Debug, Clone, Default)]
struct Target {
    branch: Option<String>,
    tips: Vec<Sha>,
}

impl Target {
    /// `memo`: where an upstream may be remembered.
    async fn of(repo: &Repo, base_ref: &str, memo: Option<&Memo>) -> Result<Target, GitError> {
        let Some(branch) = Target::branch_of(repo, base_ref).await? else { return Ok(Target::default()) };
        let mut tips = Vec::new();
        tips.extend(repo.branch_sha(&branch).await?);
        tips.extend(Target::upstream_tip(repo, &branch, memo).await?);
        tips.dedup();
        Ok(Target { branch: Some(branch), tips })
    }

    async fn branch_of(repo: &Repo, base_ref: &str) -> Result<Option<String>, GitError> {
        if base_ref != "HEAD" {
            let short = base_ref.strip_prefix("refs/heads/").unwrap_or(base_ref);
            // A base may be anything that names a commit (`main~2`), which no branch is called.
            let named = crate::model::config::is_branch_name(short);
            if named && repo.branch_sha(short).await?.is_some() {
                return Ok(Some(short.to_owned()));
            }
        }
        repo.head_branch().await
    }

    async fn upstream_tip(repo: &Repo, branch: &str, memo: Option<&Memo>) -> Result<Option<Sha>, GitError> {
        let upstream = match memo {
            Some(memo) => memo.upstream(repo, branch).await?,
            None => repo.upstream_of(branch).await?,
        };
        match upstream {
            Some(upstream) => repo.resolve_commit(&upstream).await,
            None => Ok(None),
        }
    }

    /// A branch is no target for itself: everything is contained in it.
    fn tips_for(self, record: &Record) -> Vec<Sha> {
        if self.branch.as_ref() == Some(&record.branch) { Vec::new() } else { self.tips }
    }
}

/// The tips that the work of `record` may have reached.
///
/// # Errors
/// What git reports when it cannot be found out.
pub async fn target_tips(repo: &Repo, record: &Record) -> Result<Vec<Sha>, GitError> {
    Ok(Target::of(repo, &record.base_ref, None).await?.tips_for(record))
}

/// The branch that the work of `record` is to reach, unless that is its own.
///
/// # Errors
/// What git reports when it cannot be found out.
pub async fn target_branch(repo: &Repo, record: &Record) -> Result<Option<String>> {
    Ok(Target::branch_of(repo, &record.base_ref).await?.filter(|branch| *branch != record.branch))
}

/// Whether, and how, the target already contains the work at `head`.
///
/// # Errors
/// What git reports when the target cannot be found out; the caller must then assume that nothing is contained.
pub async fn integration(repo: &Repo, record: &Record, head: &Sha) -> Result<Option<Integration>> {
    let Some(branch) = target_branch(repo, record).await? else { return Ok(None) };
    let local = repo.branch_sha(&branch).await?;
    if let Some(tip) = &local
        && let Some(reason) = repo.integration(head, tip).await?
    {
        return Ok(Some(reason));
    }
    // Asked for only where the local tip does not contain it.
    match Target::upstream_tip(repo, &branch, None).await? {
        Some(tip) if local.as_ref() != Some(&tip) => Ok(repo.integration(head, &tip).await?),
        _ => Ok(None),
    }
}

/// What all worktrees of one repository have in common, asked for once in a call.
pub struct RepoView {
    repo: Repo,
    /// By base.
    targets: Mutex<HashMap<String, Target>>,
    remotes: OnceCell<String>,
    overview: OnceCell<Overview>,
}

/// What was seen of many worktrees at once.
struct Overview {
    /// By branch.
    tips: HashMap<String, Tip>,
    /// The branches that have an upstream.
    tracking: BTreeSet<String>,
}

impl RepoView {
    /// Nothing is asked yet.
    #[must_use]
    pub fn new(repo: Repo) -> Self {
        RepoView { repo, targets: Mutex::default(), remotes: OnceCell::new(), overview: OnceCell::new() }
    }

    /// A view of the repository of each of `records`, by its key; with `summaries` where it will be asked what changed.
    pub async fn of_all<'a>(
        ctx: &Context,
        records: impl Iterator<Item = &'a Arc<Record>>,
        summaries: bool,
    ) -> HashMap<String, Arc<RepoView>> {
        let mut by_repo: HashMap<&str, Vec<&Record>> = HashMap::new();
        for record in records {
            by_repo.entry(&record.repo_key).or_default().push(record);
        }
        let mut views = HashMap::new();
        for (key, records) in by_repo {
            let view = RepoView::new(ctx.git().repo(&from_text(key)));
            if records.len() >= MANY {
                view.overlook(ctx, &records, summaries).await;
            }
            views.insert(key.to_owned(), Arc::new(view));
        }
        views
    }

    /// Asks in few processes what would otherwise be asked for each of `records` by itself. What cannot be told so is
    /// asked for later.
    async fn overlook(&self, ctx: &Context, records: &[&Record], summaries: bool) {
        match self.overview_of(ctx, records, summaries).await {
            Ok(overview) => {
                let unset = self.overview.set(overview);
                debug_assert!(unset.is_ok(), "a view is filled once");
            }
            Err(error) => tracing::debug!(%error, "each worktree is asked for by itself"),
        }
    }

    async fn overview_of(&self, ctx: &Context, records: &[&Record], summaries: bool) -> Result<Overview, GitError> {
        let tracking = self.repo.tracking_branches().await?;
        let mut by_base: BTreeMap<&str, Vec<&Record>> = BTreeMap::new();
        for record in records {
            by_base.entry(&record.base_sha).or_default().push(record);
        }
        let mut tips = HashMap::new();
        for (base, records) in by_base {
            let Ok(base) = base.parse::<Sha>() else { continue };
            let mut names: BTreeSet<String> = records.iter().map(|record| branch_ref(&record.branch)).collect();
            for record in &records {
                names.extend(self.target(ctx, record).await?.branch.as_deref().map(branch_ref));
            }
            let mut seen = self.repo.tips_against(&Vec::from_iter(names), &base).await?;
            let base_tree = seen.values().find(|tip| tip.sha == base).map(|tip| tip.tree.clone());
            // Only exact names: one stands for all below it, too.
            let own = records.iter().filter_map(|record| Some((*record, seen.remove(&branch_ref(&record.branch))?)));
            let own: Vec<(&Record, Tip)> = own.collect();
            let all: Vec<Tip> = own.iter().map(|(_, tip)| tip.clone()).collect();
            ctx.memo.learn(&self.repo, &base, &all);
            if summaries {
                ctx.memo.learn_summaries(&self.repo, &base, &all).await;
            }
            for (record, tip) in own {
                let goes_on = tip.ahead > 0 && tip.behind == 0 && base_tree.as_ref().is_some_and(|t| *t != tip.tree);
                if goes_on && self.tips(ctx, record).await?.contains(&base) {
                    ctx.memo.learn_not_integrated(&self.repo, &tip.sha, &base);
                }
                tips.insert(record.branch.clone(), tip);
            }
        }
        Ok(Overview { tips, tracking })
    }

    /// The status of git, without a process where a worktree is proven to be clean.
    async fn look(&self, tree: &Tree) -> Result<TreeStatus, GitError> {
        match self.proven_clean(tree).await {
            Some(clean) => Ok(clean),
            None => tree.status().await,
        }
    }

    async fn proven_clean(&self, tree: &Tree) -> Option<TreeStatus> {
        let overview = self.overview.get()?;
        let branch = tree.head_branch().ok()??;
        let tip = overview.tips.get(&branch).filter(|_| !overview.tracking.contains(&branch))?;
        // It may have moved since.
        let head = self.repo.branch_sha(&branch).await.ok()?.filter(|head| *head == tip.sha)?;
        let clean = TreeStatus { head: Some(head), branch: Some(branch), ..TreeStatus::default() };
        tree.is_proven_clean(&tip.tree).await.then_some(clean)
    }

    /// How many commits of a worktree its target lacks, and how many of those are on no remote, where that can be told
    /// from what was seen of all worktrees, and the files are proven to be those of HEAD: a reason to let it stay. `None`
    /// says nothing.
    pub async fn not_landed(&self, ctx: &Context, record: &Record, tree: &Tree) -> Option<(u64, u64)> {
        let head = self.proven_clean(tree).await?.head?;
        let base: Sha = record.base_sha.parse().ok()?;
        let mut known = self.tips(ctx, record).await.ok()?;
        if head == base || self.integration(ctx, record, &head).await.ok()?.is_some() {
            return None;
        }
        let beyond = if known.iter().all(|tip| *tip == base) {
            ctx.memo.ahead_behind(&self.repo, &head, &base).await.ok()?.0
        } else {
            known.push(base.clone());
            self.repo.commits_beyond(&head, &known).await.ok()?
        };
        let unpushed = if self.remotes().await.ok()?.is_empty() {
            beyond
        } else {
            known.push(base);
            self.repo.unpushed(&head, &known).await.ok()?
        };
        (beyond > 0).then_some((beyond, unpushed))
    }

    async fn remotes(&self) -> Result<&str, GitError> {
        self.remotes.get_or_try_init(|| self.repo.remotes_digest()).await.map(String::as_str)
    }

    async fn tips(&self, ctx: &Context, record: &Record) -> Result<Vec<Sha>, GitError> {
        Ok(self.target(ctx, record).await?.tips_for(record))
    }

    async fn target(&self, ctx: &Context, record: &Record) -> Result<Target, GitError> {
        let mut targets = self.targets.lock().await;
        let target = match targets.get(&record.base_ref) {
            Some(target) => target.clone(),
            None => {
                let target = Target::of(&self.repo, &record.base_ref, Some(&ctx.memo)).await?;
                targets.entry(record.base_ref.clone()).or_insert(target).clone()
            }
        };
        Ok(target)
    }

    async fn integration(&self, ctx: &Context, record: &Record, head: &Sha) -> Result<Option<Integration>, GitError> {
        for tip in self.tips(ctx, record).await? {
            if let Some(reason) = ctx.memo.integration(&self.repo, head, &tip).await? {
                return Ok(Some(reason));
            }
        }
        Ok(None)
    }

    async fn unpushed(&self, ctx: &Context, head: &Sha, base: &Sha) -> Result<u64, GitError> {
        if head == base {
            return Ok(0);
        }
        ctx.memo.unpushed(&self.repo, head, base, self.remotes().await?).await
    }
}

/// The status of one worktree.
///
/// # Errors
/// `W115` when nothing is committed on its branch, and what git reports.
async fn status(ctx: &Context, view: &RepoView, record: &Record, tree: &Tree) -> Result<WorktreeStatus> {
    let seen = view.look(tree).await?;
    let Some(head) = seen.head.clone() else {
        return Err(Error::new(Code::NoCommits, format!("{} has no commit checked out", record.worktree_id)));
    };
    let base: Sha = record.base_sha.parse().map_err(|_| {
        Error::new(Code::RecordUnreadable, format!("the recorded base of {} is no commit id", record.worktree_id))
    })?;
    let (ahead, behind) = match seen.upstream_ahead_behind {
        Some(counts) => counts,
        None => ctx.memo.ahead_behind(&view.repo, &head, &base).await?,
    };
    let reason = view.integration(ctx, record, &head).await.unwrap_or_else(|error| {
        tracing::debug!(worktree = record.worktree_id, %error, "whether it is integrated cannot be told");
        None
    });
    Ok(WorktreeStatus {
        clean: seen.is_clean(),
        ahead,
        behind,
        staged: seen.staged,
        unstaged: seen.unstaged,
        untracked: seen.untracked,
        conflicted: seen.conflicted,
        diffstat: ctx.memo.shortstat(&view.repo, &base, &head).await?,
        unpushed: view.unpushed(ctx, &head, &base).await?,
        in_rebase: tree.operation().is_some_and(Operation::is_rebase),
        head_sha: head.to_string(),
        integrated: reason.is_some(),
        integration_reason: reason.map(|reason| reason.as_str().to_owned()),
    })
}

/// The lifecycle that holds right now: a record whose directory is gone is orphaned, whatever is stored.
#[must_use]
pub fn lifecycle_now(record: &Record) -> Lifecycle {
    match std::fs::symlink_metadata(&record.path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Lifecycle::Orphaned,
        _ if record.lifecycle == Lifecycle::Orphaned => Lifecycle::at_rest(record.session_id.as_deref()),
        _ => record.lifecycle,
    }
}

/// [`lifecycle_now`] of each; that of many on all cores.
#[must_use]
pub fn lifecycles_now(records: &[Arc<Record>]) -> Vec<Lifecycle> {
    let threads = if records.len() < WORTH_A_THREAD { 1 } else { cores() };
    let part = records.len().div_ceil(threads).max(1);
    let mut all: Vec<Lifecycle> = records.iter().map(|record| record.lifecycle).collect();
    let look = |(records, found): (&[Arc<Record>], &mut [Lifecycle])| {
        for (record, found) in records.iter().zip(found) {
            *found = lifecycle_now(record);
        }
    };
    let mut parts = records.chunks(part).zip(all.chunks_mut(part));
    let own = parts.next();
    std::thread::scope(|scope| {
        for part in parts {
            scope.spawn(|| look(part));
        }
        own.map(look)
    });
    all
}

/// The status of the worktree of `record`, checked for identity first.
///
/// # Errors
/// `W201`, `W202`, `W115` when nothing is committed on its branch, and what git reports.
pub async fn status_of(ctx: &Context, record: &Record) -> Result<WorktreeStatus> {
    let view = RepoView::new(ctx.git().repo(&from_text(&record.repo_key)));
    status_in(ctx, &view, record).await
}

async fn status_in(ctx: &Context, view: &RepoView, record: &Record) -> Result<WorktreeStatus> {
    let (tree, _) = marker::require_tree(&ctx.git(), record)?;
    status(ctx, view, record, &tree).await
}

/// Like [`status_of`], for answers in which one broken worktree must not spoil the rest.
pub async fn status_or_null(ctx: &Context, view: &RepoView, record: &Record) -> Option<WorktreeStatus> {
    match status_in(ctx, view, record).await {
        Ok(status) => Some(status),
        Err(error) => {
            tracing::warn!(worktree = record.worktree_id, code = %error.code, %error, "no status");
            None
        }
    }
}
