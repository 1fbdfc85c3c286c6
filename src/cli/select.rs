//! Which worktree is meant: by id, by the beginning of its id, by branch, by path, or by where one stands.
//!
//! Invariants
//! 1. A name that fits several worktrees names none: the candidates are told, and nothing is called.

use std::path::{Path, PathBuf};

use clap::Args;
use clap_complete::engine::ArgValueCompleter;
use serde_json::json;

use super::link::Link;
use super::trouble::{Outcome, Trouble};
use super::{complete, here};
use crate::model::Code;
use crate::model::status::WorktreeInfo;

/// One worktree, as the command line names it.
#[derive(Debug, Clone, Args)]
#[group(skip)]
pub(super) struct Which {
    /// Its id or the beginning of it, its branch, or a path in it [default: the one around this directory]
    #[arg(value_name = "WORKTREE", add = ArgValueCompleter::new(complete::worktrees))]
    pub(super) worktree: Option<String>,
}

/// All worktrees that the worker knows, without their status.
///
/// # Errors
/// What the worker refuses.
pub(super) async fn all(link: &Link) -> Outcome<Vec<WorktreeInfo>> {
    let mut answer = link.read("worktree::list", json!({})).await?;
    Ok(serde_json::from_value(answer["worktrees"].take())?)
}

impl Which {
    /// The worktree that is meant, without its status.
    ///
    /// # Errors
    /// `W200` when there is none, a usage error when there are several.
    pub(super) async fn find(&self, link: &Link) -> Outcome<WorktreeInfo> {
        let here = here::absolute(Path::new("."))?;
        let known = all(link).await?;
        pick(known, self.worktree.as_deref(), &here)
    }
}

fn pick(known: Vec<WorktreeInfo>, name: Option<&str>, here: &Path) -> Outcome<WorktreeInfo> {
    let Some(name) = name.filter(|name| *name != ".") else {
        return around(known, here).ok_or_else(|| {
            Trouble::usage(format!(
                "{} is in no worktree of the worker; name one, `worktree list` shows them",
                here.display()
            ))
        });
    };
    if let Some(exact) = known.iter().find(|one| one.worktree_id == name) {
        return Ok(exact.clone());
    }
    let path = given_path(name, here);
    let holder = path.as_deref().and_then(|path| around(known.clone(), path)).map(|one| one.worktree_id);
    let fits = |one: &WorktreeInfo| {
        let id = &one.worktree_id;
        let begins = !name.is_empty() && (id.starts_with(name) || id.trim_start_matches("wt_").starts_with(name));
        begins || one.branch == name || holder.as_ref() == Some(id)
    };
    let mut found: Vec<WorktreeInfo> = known.into_iter().filter(fits).collect();
    match (found.pop(), found.is_empty()) {
        (Some(one), true) => Ok(one),
        (None, _) => Err(Trouble::Refused {
            code: Code::NoSuchWorktree.to_string(),
            message: format!("no worktree has the id, branch or path `{name}`"),
        }),
        (Some(last), false) => {
            found.push(last);
            let named: Vec<String> =
                found.iter().map(|one| format!("  {} {} in {}", one.worktree_id, one.branch, one.repo_path)).collect();
            Err(Trouble::usage(format!("`{name}` fits several worktrees; name one of them:\n{}", named.join("\n"))))
        }
    }
}

/// The innermost worktree around a path: one may lie inside another.
fn around(known: Vec<WorktreeInfo>, path: &Path) -> Option<WorktreeInfo> {
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    known.into_iter().filter(|one| path.starts_with(&one.path)).max_by_key(|one| one.path.len())
}

/// The path that a name stands for, when it looks like one.
fn given_path(name: &str, here: &Path) -> Option<PathBuf> {
    let looks = name.contains('/') || name.starts_with('.');
    looks.then(|| here.join(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::record::Lifecycle;

    fn info(id: &str, branch: &str, path: &str) -> WorktreeInfo {
        WorktreeInfo {
            worktree_id: id.to_owned(),
            repo_path: "/shop".to_owned(),
            repo_key: "/shop/.git".to_owned(),
            path: path.to_owned(),
            branch: branch.to_owned(),
            base_ref: "HEAD".to_owned(),
            base_sha: "0".repeat(40),
            lifecycle: Lifecycle::Active,
            session_id: None,
            dev_port: 10_000,
            created_at: 0,
            updated_at: 0,
            status: None,
        }
    }

    fn known() -> Vec<WorktreeInfo> {
        vec![
            info("wt_aa0000000000", "iii/one", "/w/one"),
            info("wt_ab0000000000", "ab", "/w/two"),
            info("wt_cc0000000000", "cc/dd", "/w/two/inner"),
        ]
    }

    fn id(name: Option<&str>, here: &str) -> Outcome<String> {
        pick(known(), name, Path::new(here)).map(|one| one.worktree_id)
    }

    #[test]
    fn every_way_to_name_one_leads_to_it() {
        for (name, here, expected) in [
            (Some("wt_aa0000000000"), "/", "wt_aa0000000000"),
            (Some("wt_aa"), "/", "wt_aa0000000000"),
            (Some("c"), "/", "wt_cc0000000000"),
            (Some("iii/one"), "/", "wt_aa0000000000"),
            (Some("/w/two/src/x"), "/", "wt_ab0000000000"),
            (Some("./inner"), "/w/two", "wt_cc0000000000"),
            (Some("."), "/w/one/src", "wt_aa0000000000"),
            (None, "/w/two/inner/deep", "wt_cc0000000000"),
        ] {
            assert_eq!(id(name, here).unwrap(), expected, "{name:?} in {here}");
        }
    }

    #[test]
    fn what_fits_several_names_none_and_tells_them_invariant_1() {
        let Err(Trouble::Usage(message)) = id(Some("a"), "/") else { panic!("picked one") };
        assert!(message.contains("wt_aa0000000000") && message.contains("wt_ab0000000000"), "{message}");
        assert!(matches!(id(None, "/elsewhere"), Err(Trouble::Usage(_))));
        assert_eq!(id(Some("zz"), "/").unwrap_err().code(), Some("W200"));
        assert_eq!(id(Some(""), "/").unwrap_err().code(), Some("W200"));
    }
}
