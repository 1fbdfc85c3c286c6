//! What a shell is offered for a word: ids and branches of worktrees, branches of the repository.
//!
//! A shell waits for the answer, so it has a second. Whatever goes wrong, nothing is offered.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::time::Duration;

use clap_complete::CompletionCandidate;

use super::link::Link;
use super::place::{Place, Reach, default_state_dir};
use super::{note::Note, select};
use crate::git::Git;

/// How long a shell waits.
const LIMIT: Duration = Duration::from_secs(1);

/// Ids and branches of the worktrees that the worker knows.
pub(super) fn worktrees(current: &OsStr) -> Vec<CompletionCandidate> {
    let current = current.to_string_lossy().into_owned();
    let known = on_a_runtime(async {
        let link = Link::open(&place()?).await.ok()?;
        let known = select::all(&link).await.ok();
        // It was only read from; how the connection ends changes nothing.
        link.close().await.ok();
        known
    });
    let mut offered = Vec::new();
    for one in known.unwrap_or_default() {
        let state = one.lifecycle.as_str();
        let help = |other: &str| Some(format!("{other}, {state}").into());
        offered.push(CompletionCandidate::new(&one.branch).help(help(&one.worktree_id)));
        offered.push(CompletionCandidate::new(&one.worktree_id).help(help(&one.branch)));
    }
    offered.retain(|candidate| candidate.get_value().to_string_lossy().starts_with(&current));
    offered
}

/// Branches of the repository around the working directory.
pub(super) fn branches(current: &OsStr) -> Vec<CompletionCandidate> {
    let current = current.to_string_lossy().into_owned();
    let names = on_a_runtime(async {
        let here = std::env::current_dir().ok()?;
        let repo = Git::new(LIMIT).discover(&here).await.ok()?.repo;
        let refs = repo.refs_under("refs/heads/").await.ok()?;
        Some(refs.into_iter().filter_map(|(name, _)| name.strip_prefix("refs/heads/").map(str::to_owned)).collect())
    });
    let names: Vec<String> = names.unwrap_or_default();
    names.into_iter().filter(|name| name.starts_with(&current)).map(CompletionCandidate::new).collect()
}

/// The engine that the words before the cursor mean. One in this process is never started for a completion.
fn place() -> Option<Place> {
    let words: Vec<String> = std::env::args().collect();
    let after = |name: &str| {
        let next = words.iter().position(|word| word == name).and_then(|at| words.get(at + 1)).cloned();
        let joined = words.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('=').map(str::to_owned));
        next.or(joined)
    };
    if words.iter().any(|word| word == "--local") {
        let state_dir = after("--state-dir").map_or_else(|| default_state_dir().ok(), |dir| Some(PathBuf::from(dir)));
        return Note::read(&state_dir?).map(|note| Place::At(note.url));
    }
    Reach { url: after("--url"), ..Reach::default() }.resolve(Reach::default()).ok()
}

/// Runs to the end on a runtime of its own: completion comes before the program's.
fn on_a_runtime<T: Send>(work: impl Future<Output = Option<T>> + Send) -> Option<T> {
    std::thread::scope(|scope| {
        let run = || {
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().ok()?;
            runtime.block_on(async { tokio::time::timeout(LIMIT, work).await }).ok().flatten()
        };
        scope.spawn(run).join().ok().flatten()
    })
}
