//! The whole surface of the worker, exactly: functions, events, configuration, codes.

mod configuring;
mod creating;
mod events;
mod gates;
mod inherited;
mod integrated;
mod looking;
mod refusals;
mod rolling_back;
pub mod schemas;
mod serving;

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::support::{Checkout, Stand};

/// What a worktree root holds besides worktrees.
const OURS: [&str; 3] = [".trash", ".audit", ".audit.head"];

/// Everything below a directory that may not exist, except what is the worker's own.
fn files_below(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(directory) else { return Vec::new() };
    let mut found = Vec::new();
    for entry in entries.map(Result::unwrap).filter(|entry| !OURS.iter().any(|ours| entry.file_name() == *ours)) {
        if entry.file_type().unwrap().is_dir() {
            found.extend(files_below(&entry.path()));
        }
        found.push(entry.path());
    }
    found.sort();
    found
}

/// What a refused create must leave as it was.
#[derive(Debug, PartialEq, Eq)]
struct Untouched {
    refs: String,
    worktrees: Vec<PathBuf>,
    root: Vec<PathBuf>,
    entries: Vec<PathBuf>,
    records: Value,
    stored: Value,
}

async fn untouched(stand: &Stand, repository: &Checkout) -> Untouched {
    let common = PathBuf::from(repository.git(&["rev-parse", "--path-format=absolute", "--git-common-dir"]));
    Untouched {
        refs: repository.refs(),
        worktrees: repository.worktrees(),
        root: files_below(&stand.seal.path().join("worktrees")),
        entries: files_below(&common.join("worktrees")),
        records: stand.client.ok("worktree::list", serde_json::json!({})).await,
        stored: stand.client.ok("state::list", serde_json::json!({"scope": "worktree"})).await,
    }
}

/// The program of the tests' own PATH.
fn program(name: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap();
    std::env::split_paths(&path).map(|dir| dir.join(name)).find(|file| file.is_file()).unwrap()
}

/// Writes an executable script.
fn script(path: &Path, text: &str) {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}
