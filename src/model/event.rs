//! What the worker tells the world after it has stored a change.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::job::Job;
use super::record::Record;

/// The six kinds of events; each is a trigger type of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EventKind {
    /// A worktree was created.
    Created,
    /// A session took a worktree.
    Claimed,
    /// A session gave a worktree back.
    Released,
    /// A worktree was removed.
    Removed,
    /// A branch landed on its target.
    Landed,
    /// A land was stopped and waits for its owner.
    LandBlocked,
}

impl EventKind {
    /// All kinds, in the order in which a worktree usually meets them.
    pub const ALL: [EventKind; 6] = [
        EventKind::Created,
        EventKind::Claimed,
        EventKind::Released,
        EventKind::Removed,
        EventKind::Landed,
        EventKind::LandBlocked,
    ];

    /// The trigger type that carries it.
    #[must_use]
    pub fn trigger_type(self) -> &'static str {
        match self {
            EventKind::Created => "worktree::created",
            EventKind::Claimed => "worktree::claimed",
            EventKind::Released => "worktree::released",
            EventKind::Removed => "worktree::removed",
            EventKind::Landed => "worktree::landed",
            EventKind::LandBlocked => "worktree::land-blocked",
        }
    }
}

/// The fields of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventFields {
    /// Those that every event of the kind carries.
    pub always: &'static [&'static str],
    /// Those that are left out when they do not apply.
    pub sometimes: &'static [&'static str],
}

impl EventKind {
    /// What its events carry.
    #[must_use]
    pub fn fields(self) -> EventFields {
        let claim = EventFields {
            always: &["worktree_id", "repo_path", "session_id", "timestamp"],
            sometimes: &["previous_session_id"],
        };
        match self {
            EventKind::Created => EventFields {
                always: &["worktree_id", "repo_path", "path", "branch", "base_ref", "base_sha", "timestamp"],
                sometimes: &["session_id"],
            },
            EventKind::Claimed | EventKind::Released => claim,
            EventKind::Removed => EventFields {
                always: &["worktree_id", "repo_path", "path", "branch", "branch_deleted", "forced", "timestamp"],
                sometimes: &["session_id"],
            },
            EventKind::Landed => EventFields {
                always: &["worktree_id", "repo_path", "branch", "target_branch", "merged_sha", "gated", "timestamp"],
                sometimes: &["kept_reason", "session_id"],
            },
            EventKind::LandBlocked => EventFields {
                always: &["worktree_id", "repo_path", "target_branch", "reason", "code", "message", "timestamp"],
                sometimes: &["conflict_files", "exit_code", "output_tail", "session_id"],
            },
        }
    }
}

/// Why a land was stopped; the word that the block event carries beside the code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BlockReason {
    /// The rebase met a conflict, which is left in progress in the worktree.
    RebaseConflict,
    /// The rebase failed for another reason.
    RebaseFailed,
    /// An unresolved rebase is open in the worktree.
    RebaseInProgress,
    /// Another git operation is open in the worktree.
    OperationInProgress,
    /// The gate ran and failed.
    TestFailed,
    /// The gate could not run.
    GateUnavailable,
    /// There is uncommitted work in the worktree.
    Dirty,
    /// The directory of the worktree is gone.
    WorktreePathMissing,
    /// The directory is no longer the worktree that was created.
    IdentityMismatch,
    /// Another branch than the recorded one is checked out.
    BranchMismatch,
    /// The branch got new commits, or was rewritten, while it was landing.
    BranchMoved,
    /// The target branch does not exist.
    TargetRefNotFound,
    /// The target kept moving.
    TargetMovedExhausted,
    /// The target is checked out somewhere with changes in the way.
    TargetCheckedOutDirty,
}

impl BlockReason {
    /// The text on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            BlockReason::RebaseConflict => "rebase_conflict",
            BlockReason::RebaseFailed => "rebase_failed",
            BlockReason::RebaseInProgress => "rebase_in_progress",
            BlockReason::OperationInProgress => "operation_in_progress",
            BlockReason::TestFailed => "test_failed",
            BlockReason::GateUnavailable => "gate_unavailable",
            BlockReason::Dirty => "dirty",
            BlockReason::WorktreePathMissing => "worktree_path_missing",
            BlockReason::IdentityMismatch => "identity_mismatch",
            BlockReason::BranchMismatch => "branch_mismatch",
            BlockReason::BranchMoved => "branch_moved",
            BlockReason::TargetRefNotFound => "target_ref_not_found",
            BlockReason::TargetMovedExhausted => "target_moved_exhausted",
            BlockReason::TargetCheckedOutDirty => "target_checked_out_dirty",
        }
    }
}

/// One event, ready to be sent to whoever bound its trigger type.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// Which trigger type carries it.
    pub kind: EventKind,
    /// What a binding may filter on.
    pub repo_path: String,
    /// What a binding may filter on.
    pub worktree_id: String,
    /// What a binding may filter on.
    pub session_id: Option<String>,
    /// What the bound function receives.
    pub payload: Value,
}

/// Leaves out what has no value: subscribers read events strictly by type.
fn without_nulls(mut payload: Value) -> Value {
    if let Value::Object(fields) = &mut payload {
        fields.retain(|_, value| !value.is_null());
    }
    payload
}

impl Event {
    fn of(kind: EventKind, record: &Record, payload: Value) -> Self {
        Event {
            kind,
            repo_path: record.repo_path.clone(),
            worktree_id: record.worktree_id.clone(),
            session_id: record.session_id.clone(),
            payload: without_nulls(payload),
        }
    }

    /// A worktree was created.
    #[must_use]
    pub fn created(record: &Record, now_ms: i64) -> Self {
        let payload = json!({
            "worktree_id": record.worktree_id, "repo_path": record.repo_path, "path": record.path,
            "branch": record.branch, "base_ref": record.base_ref, "base_sha": record.base_sha,
            "session_id": record.session_id, "timestamp": now_ms,
        });
        Event::of(EventKind::Created, record, payload)
    }

    /// A session took the worktree, from `previous` when it was forced.
    #[must_use]
    pub fn claimed(record: &Record, previous: Option<&str>, now_ms: i64) -> Self {
        let payload = json!({
            "worktree_id": record.worktree_id, "repo_path": record.repo_path, "session_id": record.session_id,
            "previous_session_id": previous, "timestamp": now_ms,
        });
        Event::of(EventKind::Claimed, record, payload)
    }

    /// `session_id` gave the worktree back; `previous` held it when that was another one.
    #[must_use]
    pub fn released(record: &Record, session_id: &str, previous: Option<&str>, now_ms: i64) -> Self {
        let payload = json!({
            "worktree_id": record.worktree_id, "repo_path": record.repo_path, "session_id": session_id,
            "previous_session_id": previous, "timestamp": now_ms,
        });
        Event { session_id: Some(session_id.to_owned()), ..Event::of(EventKind::Released, record, payload) }
    }

    /// The worktree was removed.
    #[must_use]
    pub fn removed(record: &Record, branch_deleted: bool, forced: bool, now_ms: i64) -> Self {
        let payload = json!({
            "worktree_id": record.worktree_id, "repo_path": record.repo_path, "path": record.path,
            "branch": record.branch, "branch_deleted": branch_deleted, "forced": forced,
            "session_id": record.session_id, "timestamp": now_ms,
        });
        Event::of(EventKind::Removed, record, payload)
    }

    /// The branch landed.
    #[must_use]
    pub fn landed(record: &Record, job: &Job, now_ms: i64) -> Self {
        let payload = json!({
            "worktree_id": record.worktree_id, "repo_path": record.repo_path, "branch": job.branch,
            "target_branch": job.target_branch, "merged_sha": job.merged_sha, "kept_reason": job.kept_reason,
            "gated": job.test_cmd.is_some(), "session_id": record.session_id, "timestamp": now_ms,
        });
        Event::of(EventKind::Landed, record, payload)
    }

    /// The land was stopped; everything about it is in the job.
    #[must_use]
    pub fn land_blocked(record: &Record, job: &Job, now_ms: i64) -> Self {
        let payload = json!({
            "worktree_id": record.worktree_id, "repo_path": record.repo_path, "target_branch": job.target_branch,
            "reason": job.blocked_reason, "code": job.blocked_code, "conflict_files": job.conflict_files,
            "exit_code": job.exit_code, "output_tail": job.output_tail, "message": job.message,
            "session_id": record.session_id, "timestamp": now_ms,
        });
        Event::of(EventKind::LandBlocked, record, payload)
    }
}
