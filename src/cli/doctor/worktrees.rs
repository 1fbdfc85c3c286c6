//! Worktrees that are not what was created.

use serde_json::json;

use super::finding::Findings;
use crate::cli::link::Link;
use crate::cli::trouble::Outcome;
use crate::model::record::Lifecycle;
use crate::model::status::WorktreeInfo;

/// Has the worker look at each of its worktrees.
///
/// # Errors
/// What the worker refuses, or when standard output is closed.
pub(super) async fn look(link: &Link, known: &[WorktreeInfo], findings: &mut Findings) -> Outcome<()> {
    let mut sound = 0;
    for one in known {
        let (id, path) = (&one.worktree_id, &one.path);
        if one.lifecycle == Lifecycle::Orphaned {
            let message = format!("{id}: the directory {path} is gone, the branch {} is not", one.branch);
            findings.warn("worktrees", &message, &format!("worktree remove {id} --yes"))?;
            continue;
        }
        let answer = link.read("worktree::validate", json!({"path": path})).await?;
        if answer["valid"] == true && answer["worktree_id"] == *id {
            sound += 1;
            continue;
        }
        let why = answer["reason"].as_str().unwrap_or("another worktree answers for the path");
        findings.problem("worktrees", &format!("{id}: {why}"), &format!("git -C {} worktree repair", one.repo_path))?;
    }
    findings.ok("worktrees", &format!("{sound} of {} are what was created", known.len()))?;
    Ok(())
}
