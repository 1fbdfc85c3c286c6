//! The record of one land, as it lies in the state store under scope `worktree_land_job`.
//!
//! The land machine is the only writer after `land` stored the first version. Which field is written in which
//! phase is told in the module `land`.
//!
//! Invariants
//! 1. A job written by the 0.2.x worker loads.
//! 2. A job of a newer format is refused (`W301`) and never rewritten.
//! 3. `done` is true exactly when the phase is [`Phase::Done`]; `blocked_code` then tells whether it landed. `untold`
//!    says that its end is stored, but not yet settled in the record and told.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::record::check_format;
use super::{Code, Error, Result};

/// The newest job format this release reads and the one it writes.
pub const JOB_FORMAT: u32 = 1;

fn oldest_format() -> u32 {
    1
}

/// A step of a land. It is stored before the work of the step begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// Is the worktree what was recorded, clean, and the target there?
    Preflight,
    /// The branch is brought on top of the target.
    Rebase,
    /// The project's tests run at the rebased commit.
    Test,
    /// The target is moved to the gated commit by compare-and-swap.
    Merge,
    /// The worktree and its branch are cleaned up, or kept.
    Finalize,
    /// Nothing is left to do.
    Done,
}

impl Phase {
    /// The text in stored jobs and in answers.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Phase::Preflight => "preflight",
            Phase::Rebase => "rebase",
            Phase::Test => "test",
            Phase::Merge => "merge",
            Phase::Finalize => "finalize",
            Phase::Done => "done",
        }
    }
}

/// One request to land a worktree, and how far it has come.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// Version of this layout; see [`JOB_FORMAT`].
    #[serde(default = "oldest_format")]
    pub format: u32,
    /// `job_` and twelve hexadecimal digits.
    pub job_id: String,
    /// The worktree that lands.
    pub worktree_id: String,
    /// Identity of its repository.
    pub repo_key: String,
    /// Primary checkout of its repository.
    pub repo_path: String,
    /// Directory of the worktree.
    pub worktree_path: String,
    /// Branch that lands, without `refs/heads/`.
    pub branch: String,
    /// Branch it lands on, without `refs/heads/`.
    pub target_branch: String,
    /// The gate, a shell command; none lands ungated.
    #[serde(default)]
    pub test_cmd: Option<String>,
    /// Whether an operation left open in the worktree is discarded first.
    #[serde(default)]
    pub force_restart: bool,
    /// Whether the worktree stays after the land.
    #[serde(default)]
    pub keep: bool,
    /// The step that is being done.
    pub phase: Phase,
    /// How many times the target moved away under this job.
    #[serde(default)]
    pub cas_attempts: u32,
    /// The target commit that the rebase was made onto.
    #[serde(default)]
    pub recorded_target_sha: Option<String>,
    /// The commit that the rebase made.
    #[serde(default)]
    pub rebased_sha: Option<String>,
    /// The commit that passed the gate.
    #[serde(default)]
    pub test_passed_sha: Option<String>,
    /// What the target was moved to.
    #[serde(default)]
    pub merged_sha: Option<String>,
    /// Whether the job has ended.
    #[serde(default)]
    pub done: bool,
    /// Why it ended without landing.
    #[serde(default)]
    pub blocked_code: Option<String>,
    /// Milliseconds since the epoch.
    pub created_at: i64,
    /// Milliseconds since the epoch.
    pub updated_at: i64,
    /// The branch tip that the owner asked to land, frozen by the first preflight.
    #[serde(default)]
    pub head_sha: Option<String>,
    /// Whether this worker started a rebase in the worktree that may still be open.
    #[serde(default)]
    pub rebase_started: bool,
    /// Whether branch and files were left at `head_sha` when `rebased_sha` was worked out, because the land needs neither.
    #[serde(default)]
    pub tree_behind: bool,
    /// Whether the gate was started at the rebased commit: what lies untracked may then be its work.
    #[serde(default)]
    pub gate_started: bool,
    /// Directories in which the target was checked out when it was about to be moved.
    #[serde(default)]
    pub target_checkouts: Vec<String>,
    /// The session that held the worktree when the land was asked for.
    #[serde(default)]
    pub session_id: Option<String>,
    /// How often a step failed for a reason in the surroundings (git, the store) since the last that succeeded.
    #[serde(default)]
    pub failures: u32,
    /// The reason word of the block event.
    #[serde(default)]
    pub blocked_reason: Option<String>,
    /// The sentence of the block event.
    #[serde(default)]
    pub message: Option<String>,
    /// Paths in conflict, or in the way.
    #[serde(default)]
    pub conflict_files: Option<Vec<String>>,
    /// Exit code of the gate.
    #[serde(default)]
    pub exit_code: Option<i64>,
    /// The gate's last lines.
    #[serde(default)]
    pub output_tail: Option<String>,
    /// Why a landed worktree was kept although nobody asked for it.
    #[serde(default)]
    pub kept_reason: Option<String>,
    /// Whether the end of a job that is done has still to be settled in the record and told to the world.
    #[serde(default)]
    pub untold: bool,
}

impl Job {
    /// Reads a stored job.
    ///
    /// # Errors
    /// `W301` when it is of a newer format or cannot be read.
    pub fn from_value(value: &Value) -> Result<Self> {
        let name = value.get("job_id").and_then(Value::as_str).unwrap_or("?");
        check_format(value, JOB_FORMAT, &format!("the land job {name}"))?;
        serde_json::from_value(value.clone()).map_err(|error| {
            Error::new(
                Code::RecordUnreadable,
                format!("the land job {name} cannot be read ({error}); it was left as it is"),
            )
        })
    }

    /// Whether the files of the worktree are not needed at the rebased commit: nothing is run there, and it is to go.
    #[must_use]
    pub fn needs_no_files(&self) -> bool {
        self.test_cmd.is_none() && !self.keep
    }

    /// Whether the target contains already what is to land, so that it need not move.
    #[must_use]
    pub fn lands_nothing(&self) -> bool {
        self.rebased_sha.is_some() && self.rebased_sha == self.recorded_target_sha
    }

    /// The commit that the branch must be at once the rebase is known.
    #[must_use]
    pub fn expected_tip(&self) -> Option<&String> {
        if self.tree_behind { self.head_sha.as_ref() } else { self.rebased_sha.as_ref() }
    }

    /// Whether nothing is left to do: it is done, its record is settled, its event is out.
    #[must_use]
    pub fn ended(&self) -> bool {
        self.done && !self.untold
    }

    /// Whether it ended by landing.
    #[must_use]
    pub fn landed(&self) -> bool {
        self.done && self.blocked_code.is_none()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_job_of_the_0_2_worker_loads_and_a_newer_one_is_refused_invariants_1_2() {
        let mut value = json!({
            "job_id": "job_0123456789ab", "worktree_id": "wt_0123456789ab", "repo_key": "/r/.git", "repo_path": "/r",
            "worktree_path": "/w", "branch": "b", "target_branch": "main", "test_cmd": null, "force_restart": false,
            "keep": false, "phase": "finalize", "cas_attempts": 1, "recorded_target_sha": null, "rebased_sha": null,
            "test_passed_sha": null, "merged_sha": null, "done": false, "blocked_code": null, "created_at": 1,
            "updated_at": 2
        });
        let job = Job::from_value(&value).unwrap();
        assert_eq!((job.phase, job.head_sha.clone(), job.landed()), (Phase::Finalize, None, false));
        value["format"] = json!(JOB_FORMAT + 1);
        assert_eq!(Job::from_value(&value).unwrap_err().code, Code::RecordUnreadable);
    }
}
