//! What the worktrees use of the disk.
//!
//! Walked when somebody asks or a sweep needs it, never when a worktree is created, and kept until it is measured anew.
//! Sizes are blocks that are really allocated: sparse and compressed files count as what they take, blocks that two
//! files share (reflinks) count for each. A file with several names (hardlinks) counts once per worktree, and once in
//! the total, so the total may be less than the sum.
//!
//! Invariants
//! 1. Measuring changes nothing, follows no symbolic link, and leaves the file system of a worktree for no other.
//! 2. Nothing is ever deleted because of a size.

use std::collections::{BTreeMap, HashSet};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use serde::Serialize;

use super::{Context, marker, pool, trash};
use crate::model::record::Record;

/// Bytes of the unit in which the system counts blocks.
const BLOCK: u64 = 512;
/// How old a measurement may be that a sweep still goes by, in milliseconds.
const FRESH_MS: i64 = 600_000;

/// What one worktree uses.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct TreeUsage {
    /// Allocated bytes, hardlinks once.
    pub bytes: u64,
    /// The part of them that git ignores; null when that could not be told.
    pub ignored_bytes: Option<u64>,
    /// Files, directories not counted.
    pub files: u64,
    /// Entries that could not be looked at; when there are any, the sizes are too small.
    pub unreadable: u64,
}

/// What all worktrees use.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct UsageReport {
    /// When it was measured, in milliseconds since the epoch.
    pub measured_at: i64,
    /// By worktree id.
    pub worktrees: BTreeMap<String, TreeUsage>,
    /// The worktrees of the pool, which nobody has asked for yet; part of the total.
    pub pool_bytes: u64,
    /// All worktrees together, hardlinks once.
    pub total_bytes: u64,
    /// What lies in the trash, to be deleted or to be restored.
    pub trash_bytes: u64,
    /// `quota.disk_soft_bytes`; 0 is without limit.
    pub soft_limit_bytes: u64,
}

impl UsageReport {
    /// What to say when the worktrees use more than they should; `None` when they do not.
    #[must_use]
    pub fn warning(&self) -> Option<String> {
        let over = self.soft_limit_bytes > 0 && self.total_bytes > self.soft_limit_bytes;
        over.then(|| {
            format!(
                "the worktrees use {} bytes, more than the {} of quota.disk_soft_bytes",
                self.total_bytes, self.soft_limit_bytes
            )
        })
    }
}

/// The last measurement.
#[derive(Debug, Default)]
pub struct Usage {
    last: Mutex<Option<Arc<UsageReport>>>,
}

impl Usage {
    /// The last measurement, however old.
    #[must_use]
    pub fn last(&self) -> Option<Arc<UsageReport>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What a worktree used when it was measured last.
    #[must_use]
    pub fn bytes_of(&self, worktree_id: &str) -> Option<u64> {
        Some(self.last()?.worktrees.get(worktree_id)?.bytes)
    }
}

/// Measures all worktrees that have a record, those of the pool, and the trash. Takes as long as walking them does.
pub async fn measure(ctx: &Context) -> Arc<UsageReport> {
    let settings = ctx.settings();
    let mut plans = Vec::new();
    for record in ctx.registry.records() {
        plans.push(plan(ctx, &record).await);
    }
    let pooled = pool::on_disk(ctx);
    let trash_dir = settings.root.join(trash::TRASH);
    let (now, limit) = (ctx.now(), settings.config.quota.disk_soft_bytes);
    let walked = tokio::task::spawn_blocking(move || {
        let mut report = UsageReport { measured_at: now, soft_limit_bytes: limit, ..UsageReport::default() };
        let mut seen = HashSet::new();
        for plan in plans {
            let usage = walk(&plan.root, plan.ignored.as_deref(), &mut seen, &mut report.total_bytes);
            report.worktrees.insert(plan.id, usage);
        }
        for record in pooled {
            report.pool_bytes += walk(Path::new(&record.path), None, &mut seen, &mut report.total_bytes).bytes;
        }
        walk(&trash_dir, None, &mut HashSet::new(), &mut report.trash_bytes);
        report
    });
    let report = Arc::new(walked.await.unwrap_or_else(|error| {
        tracing::warn!(%error, "the use of the disk was not measured");
        UsageReport { measured_at: now, soft_limit_bytes: limit, ..UsageReport::default() }
    }));
    *ctx.usage.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(report.clone());
    report
}

/// What a sweep has to say about the use of the disk, in the log as well. Nothing is measured without a limit, and not
/// again within ten minutes.
pub async fn check_quota(ctx: &Context) -> Option<String> {
    let limit = ctx.settings().config.quota.disk_soft_bytes;
    if limit == 0 {
        return None;
    }
    let fresh = |report: &Arc<UsageReport>| ctx.now() - report.measured_at < FRESH_MS;
    let report = match ctx.usage.last().filter(fresh) {
        Some(report) => UsageReport { soft_limit_bytes: limit, ..(*report).clone() },
        None => (*measure(ctx).await).clone(),
    };
    let warning = report.warning()?;
    tracing::warn!(warning, "land, remove or prune worktrees; nothing is deleted because of this");
    Some(warning)
}

struct Plan {
    id: String,
    root: PathBuf,
    /// Ignored entries, relative to the root.
    ignored: Option<Vec<PathBuf>>,
}

async fn plan(ctx: &Context, record: &Record) -> Plan {
    let ignored = match marker::require_tree(&ctx.git(), record) {
        Ok((tree, _)) => tree.ignored_entries().await.ok(),
        Err(_) => None,
    };
    Plan { id: record.worktree_id.clone(), root: PathBuf::from(&record.path), ignored }
}

/// A file by device and inode.
type Identity = (u64, u64);

/// Walks one tree; adds to `total` what `seen` has not met before.
fn walk(root: &Path, ignored: Option<&[PathBuf]>, seen: &mut HashSet<Identity>, total: &mut u64) -> TreeUsage {
    let mut usage = TreeUsage { ignored_bytes: ignored.map(|_| 0), ..TreeUsage::default() };
    let ignored: HashSet<PathBuf> = ignored
        .unwrap_or_default()
        .iter()
        // A trailing slash marks a directory; as a path it is the same without.
        .map(|path| path.components().collect())
        .collect();
    let Ok(top) = root.symlink_metadata() else { return usage };
    let mut here = HashSet::new();
    let mut open = vec![(root.to_owned(), PathBuf::new(), false)];
    while let Some((path, relative, below_ignored)) = open.pop() {
        let Ok(meta) = path.symlink_metadata() else {
            usage.unreadable += 1;
            continue;
        };
        if meta.dev() != top.dev() {
            continue;
        }
        let is_ignored = below_ignored || ignored.contains(&relative);
        let bytes = meta.blocks() * BLOCK;
        let identity = (meta.dev(), meta.ino());
        let shared = meta.nlink() > 1 && !meta.is_dir();
        if !shared || here.insert(identity) {
            usage.bytes += bytes;
            if let Some(ignored) = usage.ignored_bytes.as_mut().filter(|_| is_ignored) {
                *ignored += bytes;
            }
        }
        if !shared || seen.insert(identity) {
            *total += bytes;
        }
        if !meta.is_dir() {
            usage.files += 1;
            continue;
        }
        match std::fs::read_dir(&path) {
            Ok(entries) => {
                let inside = entries.flatten().map(|entry| entry.file_name());
                open.extend(inside.map(|name| (path.join(&name), relative.join(&name), is_ignored)));
            }
            Err(_) => usage.unreadable += 1,
        }
    }
    usage
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "the test writes the files that are measured")]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_counted_hardlinks_once_and_links_not_followed_invariant_1() {
        let dir = tempfile::tempdir().unwrap();
        let (one, two) = (dir.path().join("one"), dir.path().join("two"));
        for tree in [&one, &two] {
            std::fs::create_dir_all(tree.join("cache")).unwrap();
        }
        std::fs::write(one.join("cache/big"), vec![1_u8; 1 << 20]).unwrap();
        std::fs::hard_link(one.join("cache/big"), one.join("again")).unwrap();
        std::fs::hard_link(one.join("cache/big"), two.join("shared")).unwrap();
        std::os::unix::fs::symlink(one.join("cache"), two.join("link")).unwrap();
        let sparse = std::fs::File::create(two.join("sparse")).unwrap();
        sparse.set_len(1 << 30).unwrap();
        let (mut seen, mut total) = (HashSet::new(), 0);
        let first = walk(&one, Some(&[PathBuf::from("cache/")]), &mut seen, &mut total);
        let second = walk(&two, Some(&[]), &mut seen, &mut total);
        let mib = (1 << 20)..(1 << 21);
        assert!(mib.contains(&first.bytes) && mib.contains(&second.bytes), "{first:?} {second:?}");
        assert!(mib.contains(&total), "{total}");
        assert_eq!((first.files, second.files, first.unreadable), (2, 3, 0));
        assert_eq!(second.ignored_bytes, Some(0));
    }

    #[test]
    fn a_limit_of_zero_is_none() {
        let report = UsageReport { total_bytes: 10, ..UsageReport::default() };
        assert_eq!(report.warning(), None);
        let over = UsageReport { soft_limit_bytes: 9, ..report.clone() };
        assert!(over.warning().unwrap().contains("quota.disk_soft_bytes"));
        assert_eq!(UsageReport { soft_limit_bytes: 10, ..report }.warning(), None);
    }
}
