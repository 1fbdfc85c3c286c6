//! The five states in which operators see what lies on the disk.
//!
//! | state | means | lifecycles of the record |
//! |---|---|---|
//! | unreachable | the place where it lay cannot be seen (not mounted?); nothing can be told | any |
//! | corrupt | there is a directory, and it is not linked with git as a worktree is | any |
//! | orphan | one half is missing: a marker or a place of ours without a record, or a record without a directory | orphaned, or no record |
//! | stale | idle for `prune_expire_hours`, and nobody holds it | active |
//! | active | everything else | active, claimed, landing, land-blocked |
//!
//! Invariants
//! 1. A worktree has one state: the first of unreachable, corrupt, orphan, stale, active that fits.
//! 2. Looking changes nothing, starts no process, and never fails as a whole.

use std::path::Path;

use serde::Serialize;

use super::{Context, inspect, marker, pool, prune, rebuild};
use crate::git::admin::{self, Link};
use crate::git::{from_text, to_text};
use crate::model::record::{Lifecycle, Record};

/// How an operator sees a worktree. In the order in which they are tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// The place where it lay cannot be seen.
    Unreachable,
    /// The directory is no worktree any more.
    Corrupt,
    /// Record or directory is missing.
    Orphan,
    /// Idle, and nobody holds it.
    Stale,
    /// In use, or was a moment ago.
    Active,
}

impl State {
    /// All states, in the order in which they are tried.
    pub const ALL: [State; 5] = [State::Unreachable, State::Corrupt, State::Orphan, State::Stale, State::Active];

    /// Its name for people and scripts.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            State::Unreachable => "unreachable",
            State::Corrupt => "corrupt",
            State::Orphan => "orphan",
            State::Stale => "stale",
            State::Active => "active",
        }
    }
}

/// What is known of one worktree without asking git.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Signs {
    /// The parent of its directory can be seen.
    pub place_visible: bool,
    /// There is a directory.
    pub directory: bool,
    /// Directory and entry name each other, and the marker does not name another worktree.
    pub linked: bool,
    /// There is a record.
    pub record: bool,
    /// A session holds it, or a land does.
    pub held: bool,
    /// It has been idle for as long as the sweep asks.
    pub expired: bool,
}

/// The state that these signs make (invariant 1).
#[must_use]
pub fn state_of(signs: Signs) -> State {
    if !signs.place_visible {
        State::Unreachable
    } else if signs.directory && !signs.linked {
        State::Corrupt
    } else if !signs.record || !signs.directory {
        State::Orphan
    } else if signs.expired && !signs.held {
        State::Stale
    } else {
        State::Active
    }
}

/// One worktree as an operator sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Seen {
    /// Its id.
    pub worktree_id: String,
    /// Its state.
    pub state: State,
    /// What the state rests on, in words.
    pub why: String,
    /// Its directory.
    pub path: String,
    /// Its repository, where that is known.
    pub repo_key: Option<String>,
    /// Its branch, as recorded.
    pub branch: Option<String>,
    /// The session that holds it.
    pub session_id: Option<String>,
    /// The lifecycle that holds now; none without a record.
    pub lifecycle: Option<Lifecycle>,
    /// When somebody last did something there, in milliseconds since the epoch.
    pub last_used: Option<i64>,
    /// Whether the stash moved since the worktree was created. All worktrees of a repository share it, so what one
    /// agent stashed another one may have taken out. False where that cannot be told.
    pub stash_moved: bool,
}

/// Looks at every worktree that has a record, and at everything below the worktree root that looks like one of ours.
/// Blocking, but short: a few small files per worktree. Ordered by state, then by age.
#[must_use]
pub fn survey(ctx: &Context) -> Vec<Seen> {
    let records = ctx.registry.records();
    let mut seen: Vec<Seen> = records.iter().map(|record| look(ctx, record)).collect();
    for (id, path) in rebuild::places(ctx) {
        if !records.iter().any(|record| Path::new(&record.path) == path) && !pool::holds(ctx, &path) {
            seen.push(look_at_place(ctx, id, &path));
        }
    }
    seen.sort_by_key(|one| one.state);
    seen
}

/// Looks at the worktree of a record.
#[must_use]
pub fn look(ctx: &Context, record: &Record) -> Seen {
    let identity = marker::identify(&ctx.git(), record);
    let lifecycle = inspect::lifecycle_now(record);
    let last_used = record.updated_at.max(prune::last_touched(record));
    let idle_ms = ctx.now() - last_used;
    let signs = Signs {
        place_visible: Path::new(&record.path).parent().is_some_and(Path::is_dir),
        directory: Path::new(&record.path).symlink_metadata().is_ok(),
        linked: identity.is_ok(),
        record: true,
        held: record.session_id.is_some() || matches!(lifecycle, Lifecycle::Landing | Lifecycle::LandBlocked),
        expired: idle_ms >= prune::expire_ms(ctx),
    };
    let state = state_of(signs);
    let why = match (state, identity) {
        (State::Corrupt, Err(error)) => error.message,
        (State::Unreachable, _) => "the place where it lies cannot be seen (not mounted?)".to_owned(),
        (State::Orphan, _) => format!("its directory is gone; the branch {} is not", record.branch),
        (State::Stale, _) => format!("idle for {} hours, and nobody holds it", idle_ms / prune::HOUR_MS),
        _ => lifecycle.as_str().to_owned(),
    };
    Seen {
        worktree_id: record.worktree_id.clone(),
        state,
        why,
        path: record.path.clone(),
        repo_key: Some(record.repo_key.clone()),
        branch: Some(record.branch.clone()),
        session_id: record.session_id.clone(),
        lifecycle: Some(lifecycle),
        last_used: Some(last_used),
        stash_moved: stash_moved(record),
    }
}

fn stash_moved(record: &Record) -> bool {
    let moved = prune::modified_ms(&from_text(&record.repo_key).join("logs/refs/stash"));
    moved.is_some_and(|moved| moved > record.created_at)
}

/// Looks at a directory at a place of ours that no record names.
fn look_at_place(ctx: &Context, worktree_id: String, path: &Path) -> Seen {
    let repo = ctx.git().tree(path).ok().map(|tree| tree.repo());
    let link = repo.as_ref().map(|repo| admin::verify_link(repo.common_dir(), path));
    let linked = matches!(link, Some(Ok(Link::Intact(_))));
    let signs = Signs { place_visible: true, directory: true, linked, ..Signs::default() };
    let state = state_of(signs);
    let why = match (state, link) {
        (State::Orphan, _) => "no record names it".to_owned(),
        (_, Some(Ok(Link::Broken { why }))) => format!("no record names it, and {why}"),
        _ => "no record names it, and it is no worktree".to_owned(),
    };
    Seen {
        worktree_id,
        state,
        why,
        path: to_text(path),
        repo_key: repo.map(|repo| repo.key()),
        branch: None,
        session_id: None,
        lifecycle: None,
        last_used: None,
        stash_moved: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_state_that_fits_wins_invariant_1() {
        let fine =
            Signs { place_visible: true, directory: true, linked: true, record: true, held: true, expired: true };
        assert_eq!(state_of(fine), State::Active);
        assert_eq!(state_of(Signs { held: false, expired: false, ..fine }), State::Active);
        let stale = Signs { held: false, ..fine };
        assert_eq!(state_of(stale), State::Stale);
        let orphan = Signs { record: false, ..stale };
        assert_eq!(state_of(orphan), State::Orphan);
        assert_eq!(state_of(Signs { directory: false, linked: false, ..stale }), State::Orphan);
        let corrupt = Signs { linked: false, ..orphan };
        assert_eq!(state_of(corrupt), State::Corrupt);
        assert_eq!(state_of(Signs { place_visible: false, ..corrupt }), State::Unreachable);
        // Whatever the signs are, a later state is never given where an earlier one fits.
        for bits in 0..64_u8 {
            let bit = |at: u8| bits & (1 << at) != 0;
            let signs = Signs {
                place_visible: bit(0),
                directory: bit(1),
                linked: bit(2),
                record: bit(3),
                held: bit(4),
                expired: bit(5),
            };
            let fits = |state: State| match state {
                State::Unreachable => !signs.place_visible,
                State::Corrupt => signs.directory && !signs.linked,
                State::Orphan => !signs.record || !signs.directory,
                State::Stale => signs.expired && !signs.held,
                State::Active => true,
            };
            assert_eq!(Some(state_of(signs)), State::ALL.into_iter().find(|state| fits(*state)), "{signs:?}");
        }
    }
}
