//! Which processes work in a directory: those whose current directory, program or open files lie below it.
//!
//! Reads `/proc`; where there is none, nothing is reported. Other users' processes cannot be looked into and are
//! left out, as are processes that end while they are being looked at.

use std::collections::{HashMap, HashSet};
use std::ffi::CStr;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::dir::Dir;
use nix::fcntl::{OFlag, readlinkat};
use nix::sys::stat::Mode;

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

/// The directories of `roots` that a process works below, by their place there.
fn works_in(process: &Path, roots: &HashMap<PathBuf, Vec<usize>>) -> HashSet<usize> {
    let mut found = HashSet::new();
    let mut look = |dir: &Dir, link: &CStr| {
        // What is no path at all, as a socket, has no parents that are asked for.
        let target = readlinkat(dir.as_fd(), link).map(PathBuf::from).unwrap_or_default();
        found.extend(target.ancestors().filter_map(|above| roots.get(above)).flatten());
    };
    if let Some(dir) = open(process) {
        look(&dir, c"cwd");
        look(&dir, c"exe");
    }
    if let Some(mut dir) = open(&process.join("fd")) {
        let files: Vec<_> = dir.iter().flatten().map(|file| file.file_name().to_owned()).collect();
        files.iter().for_each(|file| look(&dir, file));
    }
    found
}

fn open(dir: &Path) -> Option<Dir> {
    Dir::open(dir, OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty()).ok()
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
    probe_all(&[root.to_owned()]).pop().unwrap_or_else(|| Ok(Vec::new()))
}

/// What [`probe`] finds below each of `roots`, in one look at the processes.
#[must_use]
pub fn probe_all(roots: &[PathBuf]) -> Vec<Result<Vec<Holder>, String>> {
    let mut places: HashMap<PathBuf, Vec<usize>> = HashMap::new();
    let mut found: Vec<Result<Vec<Holder>, String>> = Vec::new();
    for (at, root) in roots.iter().enumerate() {
        match root.canonicalize() {
            Ok(place) => {
                places.entry(place).or_default().push(at);
                found.push(Ok(Vec::new()));
            }
            Err(error) => found.push(Err(format!("{}: {error}", root.display()))),
        }
    }
    let Ok(processes) = std::fs::read_dir("/proc") else { return found };
    let deadline = Instant::now() + LIMIT;
    for process in processes.flatten() {
        let Some(pid) = process.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        if Instant::now() > deadline {
            let why = format!("looking through the processes took more than {} s", LIMIT.as_secs());
            return roots.iter().map(|_| Err(why.clone())).collect();
        }
        let held = works_in(&process.path(), &places);
        if held.is_empty() {
            continue;
        }
        let name = std::fs::read_to_string(process.path().join("comm")).unwrap_or_default();
        let name = name.trim().to_owned();
        if is_our_git(&process.path(), &name) {
            continue;
        }
        for at in held {
            if let Ok(holders) = &mut found[at] {
                holders.push(Holder { pid, name: name.clone() });
            }
        }
    }
    for holders in found.iter_mut().flatten() {
        holders.sort_by_key(|holder| holder.pid);
    }
    found
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
        let inner = dir.path().join("inner");
        std::fs::create_dir(&inner).unwrap();
        let other = tempfile::tempdir().unwrap();
        let roots = [dir.path(), &inner, other.path(), &dir.path().join("gone"), dir.path()].map(Path::to_owned);
        let counts: Vec<_> =
            probe_all(&roots).into_iter().map(|found| found.ok().map(|holders| holders.len())).collect();
        assert_eq!(counts, [Some(1), Some(0), Some(0), None, Some(1)]);
        let deeper = std::fs::File::open(&inner).unwrap();
        drop(held);
        let counts: Vec<_> =
            probe_all(&roots).into_iter().map(|found| found.ok().map(|holders| holders.len())).collect();
        assert_eq!(counts, [Some(1), Some(1), Some(0), None, Some(1)]);
        drop(deeper);
        let many: Vec<Holder> = (0..7).map(|pid| Holder { pid, name: "cargo".to_owned() }).collect();
        assert!(describe(&many).ends_with("cargo (4) and 2 more"), "{}", describe(&many));
    }
}
