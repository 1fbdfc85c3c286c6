//! Copies the git-ignored files of the source checkout (build caches, local settings) into a new worktree, in the
//! background, when `provision.copy_ignored` is set.
//!
//! Invariants
//! 1. Nothing is overwritten: what is already there stays.
//! 2. Nothing is read or written through a symbolic link: links are copied as links, and a link in the place of a
//!    parent directory ends the way.
//! 3. Version control directories, the worktree root and registered worktrees are never copied.
//! 4. At most `provision.max_copy_bytes` are copied; failures are logged and change nothing else.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::Metadata;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use super::Context;
use crate::git::Tree;
use crate::model::config::{CopyFilter, Settings};

/// Directories in which version control systems keep what is theirs.
const VCS: [&str; 4] = [".git", ".jj", ".hg", ".svn"];

/// What to copy, and what not.
struct Plan {
    source: PathBuf,
    target: PathBuf,
    /// Ignored entries, relative to the source.
    entries: Vec<PathBuf>,
    /// Canonical directories that are left out.
    forbidden: BTreeSet<PathBuf>,
    filter: CopyFilter,
    budget: u64,
}

/// What was copied.
#[derive(Debug, Default, PartialEq, Eq)]
struct Tally {
    files: u64,
    bytes: u64,
    failed: u64,
    over_budget: bool,
}

/// Starts the copy in the background when it is switched on.
pub fn start(ctx: &Arc<Context>, settings: &Arc<Settings>, source: Option<Tree>, target: &Path) {
    let Some(source) = source.filter(|_| settings.config.provision.copy_ignored) else { return };
    let (settings, target) = (settings.clone(), target.to_owned());
    ctx.background.spawn(async move {
        let plan = match plan(&settings, &source, target).await {
            Ok(plan) => plan,
            Err(error) => {
                tracing::warn!(source = %source.root().display(), %error, "ignored files cannot be listed");
                return;
            }
        };
        let target = plan.target.clone();
        match tokio::task::spawn_blocking(move || carry_out(&plan)).await {
            Ok(tally) => tracing::info!(
                target = %target.display(),
                files = tally.files,
                bytes = tally.bytes,
                failed = tally.failed,
                over_budget = tally.over_budget,
                "ignored files copied"
            ),
            Err(error) => tracing::warn!(%error, "copying ignored files was given up"),
        }
    });
}

async fn plan(settings: &Settings, source: &Tree, target: PathBuf) -> Result<Plan, crate::git::GitError> {
    let mut forbidden: BTreeSet<PathBuf> = BTreeSet::new();
    forbidden.extend(settings.root.canonicalize());
    for entry in source.repo().worktrees().await? {
        forbidden.extend(entry.path.canonicalize());
    }
    Ok(Plan {
        source: source.root().to_owned(),
        target,
        entries: source.ignored_entries().await?,
        forbidden,
        filter: settings.copy_filter().clone(),
        budget: settings.config.provision.max_copy_bytes,
    })
}

fn carry_out(plan: &Plan) -> Tally {
    let mut tally = Tally::default();
    for entry in &plan.entries {
        // A trailing slash marks a directory; as a path it is the same without.
        let relative: PathBuf = entry.components().collect();
        let inside = relative.components().all(|part| matches!(part, Component::Normal(_)));
        if inside && !tally.over_budget {
            copy_entry(plan, &relative, plan.filter.includes(&relative), &mut tally);
        }
    }
    tally
}

fn copy_entry(plan: &Plan, relative: &Path, included: bool, tally: &mut Tally) {
    if plan.filter.excludes(relative) || relative.file_name().is_some_and(is_vcs) {
        return;
    }
    let included = included || plan.filter.includes(relative);
    let from = plan.source.join(relative);
    let copied = match from.symlink_metadata() {
        Ok(found) if found.is_dir() => return copy_dir(plan, relative, &from, included, tally),
        Ok(_) if !included => return,
        Ok(found) if found.is_symlink() => copy_link(plan, relative, &from),
        Ok(found) if found.is_file() => copy_file(plan, relative, &from, &found, tally),
        // Sockets, pipes and devices belong to running programs.
        Ok(_) => return,
        Err(error) => Err(error),
    };
    match copied {
        Ok(true) => tally.files += 1,
        Ok(false) => {}
        // Caches change while they are being copied.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => {
            tally.failed += 1;
            tracing::debug!(path = %from.display(), %error, "not copied");
        }
    }
}

fn is_vcs(name: &OsStr) -> bool {
    VCS.iter().any(|vcs| name == *vcs)
}

fn copy_dir(plan: &Plan, relative: &Path, from: &Path, included: bool, tally: &mut Tally) {
    if from.canonicalize().map_or(true, |canonical| plan.forbidden.contains(&canonical)) {
        return;
    }
    let Ok(entries) = std::fs::read_dir(from) else {
        tally.failed += 1;
        return;
    };
    for entry in entries.flatten() {
        if tally.over_budget {
            return;
        }
        copy_entry(plan, &relative.join(entry.file_name()), included, tally);
    }
}

/// The place for `relative` in the target, its parents made; `None` when something is there, or when a parent is
/// anything but a directory.
fn place(plan: &Plan, relative: &Path) -> io::Result<Option<PathBuf>> {
    let mut place = plan.target.clone();
    if !place.symlink_metadata()?.is_dir() {
        return Ok(None);
    }
    for part in relative.parent().into_iter().flat_map(Path::components) {
        place.push(part);
        match place.symlink_metadata() {
            Ok(found) if found.is_dir() => {}
            Ok(_) => return Ok(None),
            Err(_) => std::fs::create_dir(&place)?,
        }
    }
    let Some(name) = relative.file_name() else { return Ok(None) };
    place.push(name);
    Ok(place.symlink_metadata().is_err().then_some(place))
}

fn copy_link(plan: &Plan, relative: &Path, from: &Path) -> io::Result<bool> {
    let Some(to) = place(plan, relative)? else { return Ok(false) };
    std::os::unix::fs::symlink(std::fs::read_link(from)?, to)?;
    Ok(true)
}

fn copy_file(plan: &Plan, relative: &Path, from: &Path, found: &Metadata, tally: &mut Tally) -> io::Result<bool> {
    if tally.bytes.saturating_add(found.len()) > plan.budget {
        tally.over_budget = true;
        return Ok(false);
    }
    let Some(to) = place(plan, relative)? else { return Ok(false) };
    reflink_copy::reflink_or_copy(from, &to)?;
    // Sharing blocks copies the content alone.
    std::fs::set_permissions(&to, found.permissions())?;
    tally.bytes += found.len();
    Ok(true)
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "the test writes the files that are to be copied")]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;
    use crate::model::config::{Provision, WorktreeConfig};

    struct Stage {
        _dir: tempfile::TempDir,
        source: PathBuf,
        target: PathBuf,
    }

    fn stage() -> Stage {
        let dir = tempfile::tempdir().unwrap();
        let (source, target) = (dir.path().join("source"), dir.path().join("target"));
        for dir in [&source, &target] {
            std::fs::create_dir(dir).unwrap();
        }
        Stage { source, target, _dir: dir }
    }

    fn put(root: &Path, path: &str, content: &str) {
        let path = root.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    fn copy(stage: &Stage, entries: &[&str], provision: Provision, forbidden: &[&str]) -> Tally {
        let budget = provision.max_copy_bytes;
        let config = WorktreeConfig { worktree_root: "/w".to_owned(), provision, ..WorktreeConfig::default() };
        let filter = Settings::new(config, None).unwrap().copy_filter().clone();
        carry_out(&Plan {
            source: stage.source.clone(),
            target: stage.target.clone(),
            entries: entries.iter().map(PathBuf::from).collect(),
            forbidden: forbidden.iter().map(|path| stage.source.join(path).canonicalize().unwrap()).collect(),
            filter,
            budget,
        })
    }

    #[test]
    fn files_modes_and_links_are_copied_and_nothing_is_overwritten_invariant_1() {
        let stage = stage();
        put(&stage.source, "cache/a/tool", "run");
        std::fs::set_permissions(stage.source.join("cache/a/tool"), PermissionsExt::from_mode(0o755)).unwrap();
        symlink("/nowhere", stage.source.join("cache/link")).unwrap();
        put(&stage.source, ".env", "theirs");
        put(&stage.target, ".env", "mine");
        let tally = copy(&stage, &["cache/", ".env"], Provision::default(), &[]);
        assert_eq!((tally.files, tally.failed), (2, 0));
        let mode = stage.target.join("cache/a/tool").metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o755);
        assert_eq!(std::fs::read_link(stage.target.join("cache/link")).unwrap(), Path::new("/nowhere"));
        assert_eq!(std::fs::read_to_string(stage.target.join(".env")).unwrap(), "mine");
    }

    #[test]
    fn no_way_leads_out_through_a_link_invariant_2() {
        let stage = stage();
        let outside = tempfile::tempdir().unwrap();
        put(outside.path(), "secret", "s");
        symlink(outside.path(), stage.source.join("in")).unwrap();
        put(&stage.source, "out/file", "f");
        symlink(outside.path(), stage.target.join("out")).unwrap();
        copy(&stage, &["in/", "out/", "../escape"], Provision::default(), &[]);
        assert!(stage.target.join("in").symlink_metadata().unwrap().is_symlink());
        assert!(!outside.path().join("file").exists());
    }

    #[test]
    fn vcs_directories_and_worktrees_are_left_out_invariant_3() {
        let stage = stage();
        for path in ["d/.git/config", "d/x", "trees/wt/file", "trees/other"] {
            put(&stage.source, path, "c");
        }
        copy(&stage, &["d/", "trees/"], Provision::default(), &["trees/wt"]);
        assert!(stage.target.join("d/x").exists() && stage.target.join("trees/other").exists());
        assert!(!stage.target.join("d/.git").exists() && !stage.target.join("trees/wt").exists());
    }

    #[test]
    fn globs_and_the_budget_bound_the_copy_invariant_4() {
        let stage = stage();
        for path in ["n/keep/a", "n/drop/b", "m/c", "big"] {
            put(&stage.source, path, "0123456789");
        }
        let provision = Provision {
            include: vec!["n".into(), "*.x".into()],
            exclude: vec!["n/drop".into()],
            ..Provision::default()
        };
        assert_eq!(copy(&stage, &["n/", "m/", "big"], provision, &[]).files, 1);
        assert!(stage.target.join("n/keep/a").exists() && !stage.target.join("n/drop").exists());
        let small = Provision { max_copy_bytes: 15, ..Provision::default() };
        let tally = copy(&stage, &["m/", "big"], small, &[]);
        assert_eq!((tally.bytes, tally.over_budget), (10, true));
    }
}
