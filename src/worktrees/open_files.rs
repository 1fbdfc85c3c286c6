//! Which processes work in a directory: those whose current directory, program or open files lie below it.
//!
//! Reads `/proc`; where there is none, nothing is reported. Other users' processes cannot be looked into and are
//! left out, as are processes that end while they are being looked at.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long a probe may take.
const LIMIT: Duration = Duration::from_secs(2);
/// How many processes a refusal names.
pub const NAMED: usize = 5;

/// A process that works in the directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// Its process id.
    pub pid: u32,
    /// Its name.
    pub name: String,
}

fn links_into(process: &Path, root: &Path) -> bool {
    let below = |link: PathBuf| std::fs::read_link(link).is_ok_and(|target| target.starts_with(root));
    if below(process.join("cwd")) || below(process.join("exe")) {
        return true;
    }
    std::fs::read_dir(process.join("fd")).is_ok_and(|files| files.flatten().any(|file| below(file.path())))
}

/// Whether a process is a git that this worker has started: it only looks, and is gone in a moment.
fn is_our_git(process: &Path, name: &str) -> bool {
    let stat = std::fs::read_to_string(process.join("stat")).unwrap_or_default();
    // Behind the name, which may hold anything, come the state and the parent.
    let parent = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(1));
    name == "git" && parent == Some(std::process::id().to_string().as_str())
}

/// Looks for processes that work below `root`. Blocking, bounded by two seconds.
///
/// # Errors
/// Words that say why it cannot be told; the caller must then assume that somebody works there.
pub fn probe(root: &Path) -> Result<Vec<Holder>, String> {
    let root = root.canonicalize().map_err(|error| format!("{}: {error}", root.display()))?;
    let Ok(processes) = std::fs::read_dir("/proc") else { return Ok(Vec::new()) };
    let deadline = Instant::now() + LIMIT;
    let mut holders = Vec::new();
    for process in processes.flatten() {
        let Some(pid) = process.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        if Instant::now() > deadline {
            return Err(format!("looking through the processes took more than {} s", LIMIT.as_secs()));
        }
        if links_into(&process.path(), &root) {
            let name = std::fs::read_to_string(process.path().join("comm")).unwrap_or_default();
            let name = name.trim().to_owned();
            if !is_our_git(&process.path(), &name) {
                holders.push(Holder { pid, name });
            }
        }
    }
    holders.sort_by_key(|holder| holder.pid);
    Ok(holders)
}

/// The holders in words: `cargo (4711), node (4712) and 3 more`.
#[must_use]
pub fn describe(holders: &[Holder]) -> String {
    let named: Vec<String> = holders.iter().take(NAMED).map(|h| format!("{} ({})", h.name, h.pid)).collect();
    let rest = holders.len().saturating_sub(NAMED);
    if rest == 0 { named.join(", ") } else { format!("{} and {rest} more", named.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_nobody_works_in_is_free_and_many_holders_are_summed_up() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(probe(dir.path()), Ok(Vec::new()));
        let held = std::fs::File::open(dir.path()).unwrap();
        assert_eq!(probe(dir.path()).unwrap().iter().map(|h| h.pid).collect::<Vec<_>>(), [std::process::id()]);
        drop(held);
        let many: Vec<Holder> = (0..7).map(|pid| Holder { pid, name: "cargo".to_owned() }).collect();
        assert!(describe(&many).ends_with("cargo (4) and 2 more"), "{}", describe(&many));
    }
}
