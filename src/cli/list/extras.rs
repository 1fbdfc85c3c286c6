//! What is shown of a worktree only when it was asked for: sizes, the operator's state, whether a sweep would take it.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::Arguments;
use crate::cli::here;
use crate::cli::link::Link;
use crate::cli::trouble::Outcome;
use crate::cli::words;
use crate::worktrees::states::{self, Seen, State};
use crate::worktrees::usage::{self, UsageReport};

/// All of them, by worktree id.
#[derive(Default)]
pub(super) struct Extras {
    usage: Option<Arc<UsageReport>>,
    seen: Option<Vec<Seen>>,
    /// Why a sweep would leave it; nothing when it would take it.
    stays: Option<BTreeMap<String, Option<String>>>,
}

impl Extras {
    /// Finds out what was asked for.
    ///
    /// # Errors
    /// What the worker refuses.
    pub(super) async fn look(link: &Link, arguments: &Arguments, repo_path: &Value) -> Outcome<Self> {
        let mut extras = Extras::default();
        let by_state = arguments.state.iter().any(|state| state.seen_as().is_some());
        if arguments.size || by_state {
            let context = here::context(link).await?;
            if arguments.size {
                extras.usage = Some(usage::measure(&context).await);
            }
            if by_state {
                let survey = move || states::survey(&context);
                extras.seen = Some(tokio::task::spawn_blocking(survey).await.map_err(anyhow::Error::from)?);
            }
        }
        if arguments.reapable {
            let plan = link.read("worktree::prune", json!({"repo_path": repo_path, "dry_run": true})).await?;
            let all = |key: &str| plan[key].as_array().cloned().unwrap_or_default();
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let goes = all("pruned").iter().map(|id| (text(id), None)).collect::<Vec<_>>();
            let skipped = all("skipped");
            let stays = skipped.iter().map(|skip| (text(&skip["id"]), Some(text(&skip["reason"]))));
            extras.stays = Some(goes.into_iter().chain(stays).collect());
        }
        Ok(extras)
    }

    /// The operator's state of a worktree.
    pub(super) fn state_of(&self, id: &str) -> Option<State> {
        self.seen.iter().flatten().find(|seen| seen.worktree_id == id).map(|seen| seen.state)
    }

    /// What lies below the worktree root without a record, in one of these states.
    pub(super) fn unrecorded(&self, wanted: impl Fn(State) -> bool) -> Vec<&Seen> {
        self.seen.iter().flatten().filter(|seen| seen.lifecycle.is_none() && wanted(seen.state)).collect()
    }

    /// Puts what is known of a worktree into its object.
    pub(super) fn add_to(&self, one: &mut Value) {
        let id = one["worktree_id"].as_str().unwrap_or_default().to_owned();
        if let Some(usage) = &self.usage {
            one["size"] = json!(usage.worktrees.get(&id));
        }
        if let Some(seen) = self.seen.iter().flatten().find(|seen| seen.worktree_id == id) {
            one["state"] = json!({"state": seen.state, "why": seen.why});
        }
        if let Some(stays) = &self.stays {
            let why = stays.get(&id).cloned().unwrap_or_else(|| Some("not looked at".to_owned()));
            one["reapable"] = json!({"reapable": why.is_none(), "why": why});
        }
    }

    /// Its size, its state and whether it could go, for the table.
    pub(super) fn cells(&self, id: &str) -> [String; 3] {
        let usage = self.usage.as_ref().and_then(|usage| usage.worktrees.get(id));
        let stays = self.stays.as_ref().and_then(|stays| stays.get(id));
        [
            usage.map(|usage| words::bytes(usage.bytes)).unwrap_or_default(),
            self.state_of(id).map(|state| state.as_str().to_owned()).unwrap_or_default(),
            stays.map(|why| why.clone().unwrap_or_else(|| "yes".to_owned())).unwrap_or_default(),
        ]
    }
}
