//! A registry that cannot lose a worktree, and a record of everything destroyed.

mod audit_log;
mod audited;
mod bench;
mod chaos;
mod creating;
mod lost;
mod pooled;
mod processes;
mod removing;
mod restoring;
mod seen;
mod unsaved;

use serde_json::{Value, json};

use crate::support::Stand;

/// The audit log of a stand.
fn log_of(stand: &Stand) -> worktree::audit::Log {
    worktree::audit::Log::new(stand.seal.path().join("worktrees/.audit"), 16 << 20)
}

/// The entries of this action about this worktree.
fn told(stand: &Stand, action: worktree::audit::Action, id: &str) -> Vec<worktree::audit::Entry> {
    let filter = worktree::audit::Filter {
        actions: vec![action],
        worktree_id: Some(id.to_owned()),
        ..worktree::audit::Filter::default()
    };
    log_of(stand).query(&filter).unwrap()
}

/// Configuration in which every worktree counts as idle at once, and force is allowed.
fn eager() -> Value {
    json!({"prune_expire_hours": 0, "gates": {"allow_force": true}})
}

/// Why a worktree was left alone by the sweep.
fn skipped(pruned: &Value, id: &str) -> String {
    let skips = pruned["skipped"].as_array().unwrap();
    let skip = skips.iter().find(|skip| skip["id"] == id).unwrap_or_else(|| panic!("{id} is not skipped: {pruned}"));
    skip["reason"].as_str().unwrap().to_owned()
}

/// Whether the sweep took a worktree.
fn pruned(answer: &Value, id: &str) -> bool {
    answer["pruned"].as_array().unwrap().contains(&json!(id))
}

/// Copies a directory.
fn copy(from: &std::path::Path, to: &std::path::Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}
