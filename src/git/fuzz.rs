//! The parsers by name, for fuzzing, and for the replay of what fuzzing has kept. Not in a released binary.

use std::ffi::OsStr;
use std::fmt::Debug;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use super::admin;
use super::error::GitError;
use super::parse::{commits, config, entries, paths, refs, status, version, worktrees};
use super::text::{from_text, to_text};

/// The names that [`run`] takes: one for each kind of output that is read.
pub const TARGETS: &[&str] =
    &["status", "worktrees", "refs", "entries", "commits", "config", "paths", "version", "links", "text"];

/// Gives bytes to the parsers of a target.
///
/// # Panics
/// When a parser breaks its promise: it panics, refuses with anything but a bounded quotation, or loses something. Also
/// for a name that is no target.
pub fn run(target: &str, bytes: &[u8]) {
    match target {
        "status" => {
            if let Some(status) = told(status::parse(bytes)) {
                assert!(status.entries.len() <= bytes.len());
            }
            told(status::ignored(bytes));
        }
        "worktrees" => drop(told(worktrees::parse(bytes))),
        "refs" => {
            told(refs::list(bytes));
            told(refs::many("git", bytes));
            told(refs::one("git", bytes));
            told(refs::pair("git", bytes));
            told(refs::tips(bytes));
            told(refs::number("git", bytes));
        }
        "entries" => drop(told(entries::tree(bytes))),
        "commits" => {
            told(commits::batch(bytes));
            told(commits::marked(bytes));
        }
        "config" => {
            told(config::list(bytes));
            told(config::scoped(bytes));
        }
        "paths" => {
            if let Some(list) = told(paths::list("git", bytes)) {
                assert_eq!(paths::joined(&list), bytes, "a path was lost or changed");
            }
            told(paths::hidden("git", bytes));
        }
        "version" => drop(told(version::parse(bytes))),
        "links" => drop(admin::named_git_dir(bytes)),
        "text" => {
            let path = Path::new(OsStr::from_bytes(bytes));
            assert_eq!(from_text(&to_text(path)), path, "a path did not come back");
        }
        other => panic!("`{other}` is no target"),
    }
}

/// What was read; a refusal has to quote what was not understood, within bounds.
fn told<T: Debug>(read: Result<T, GitError>) -> Option<T> {
    match read {
        Ok(value) => Some(value),
        Err(GitError::Parse { text, .. }) => {
            assert!(text.len() <= 600, "a refusal of {} bytes", text.len());
            None
        }
        Err(other) => panic!("not a refusal of a parser: {other}"),
    }
}
