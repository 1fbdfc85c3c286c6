//! The record of one worktree, as it lies in the state store under scope `worktree`.
//!
//! | field | written by |
//! |---|---|
//! | identity, place, `base_*`, `dev_port`, `created_at` | create, once; `base_*` again when a land keeps the worktree |
//! | `session_id` | claim, release, and create when it claims |
//! | `lifecycle` | claim, release, land, validate |
//! | `fence` | every claim, release and start of a land, through an atomic increment |
//!
//! Invariants
//! 1. A record written by the 0.2.x worker (without `format` and `fence`) loads.
//! 2. A record of a newer format is refused (`W301`) and never rewritten.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Code, Error, Result};

/// The newest record format this release reads and the one it writes.
pub const RECORD_FORMAT: u32 = 1;

fn oldest_format() -> u32 {
    1
}

/// Refuses a stored value of a format that this release does not know.
///
/// # Errors
/// `W301` when `value` says that it has a newer format than `known`.
pub fn check_format(value: &Value, known: u32, what: &str) -> Result<()> {
    match value.get("format").and_then(Value::as_u64) {
        Some(found) if found > u64::from(known) => Err(Error::new(
            Code::RecordUnreadable,
            format!(
                "{what} has format {found}, newer than {known}; run the release that wrote it, nothing was changed"
            ),
        )),
        _ => Ok(()),
    }
}

/// Where a worktree is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Lifecycle {
    /// Nobody has claimed it.
    Active,
    /// A session works in it.
    Claimed,
    /// A land is queued or running.
    Landing,
    /// The last land was stopped; the worktree waits for its owner.
    LandBlocked,
    /// Its directory is gone.
    Orphaned,
}

impl Lifecycle {
    /// The text on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Lifecycle::Active => "active",
            Lifecycle::Claimed => "claimed",
            Lifecycle::Landing => "landing",
            Lifecycle::LandBlocked => "land-blocked",
            Lifecycle::Orphaned => "orphaned",
        }
    }

    /// What a worktree without a land is in, given whether a session holds it.
    #[must_use]
    pub fn at_rest(session_id: Option<&str>) -> Self {
        if session_id.is_some() { Lifecycle::Claimed } else { Lifecycle::Active }
    }
}

/// One worktree that this worker created.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Version of this layout; see [`RECORD_FORMAT`].
    #[serde(default = "oldest_format")]
    pub format: u32,
    /// `wt_` and twelve hexadecimal digits.
    pub worktree_id: String,
    /// The primary checkout of the repository, or the repository itself when it is bare; canonical.
    pub repo_path: String,
    /// The canonical git common directory: the identity of the repository.
    pub repo_key: String,
    /// The directory of the worktree.
    pub path: String,
    /// Its branch, without `refs/heads/`.
    pub branch: String,
    /// What it was started from, as the caller named it.
    pub base_ref: String,
    /// The commit it was started from.
    pub base_sha: String,
    /// Where it is in its life, as last stored.
    pub lifecycle: Lifecycle,
    /// The session that holds the claim.
    #[serde(default)]
    pub session_id: Option<String>,
    /// A port for a development server, derived from the id.
    pub dev_port: u16,
    /// Milliseconds since the epoch.
    pub created_at: i64,
    /// Milliseconds since the epoch.
    pub updated_at: i64,
    /// Counts the writes that must not race; two writers never see the same number.
    #[serde(default)]
    pub fence: u64,
}

impl Record {
    /// What tells the newer of two copies of a record: the larger one.
    #[must_use]
    pub fn age(&self) -> (u64, i64) {
        (self.fence, self.updated_at)
    }

    /// Reads a stored record.
    ///
    /// # Errors
    /// `W301` when it is of a newer format or cannot be read.
    pub fn from_value(value: &Value) -> Result<Self> {
        let name = value.get("worktree_id").and_then(Value::as_str).unwrap_or("?");
        check_format(value, RECORD_FORMAT, &format!("the record of {name}"))?;
        serde_json::from_value(value.clone()).map_err(|error| {
            Error::new(
                Code::RecordUnreadable,
                format!("the record of {name} cannot be read ({error}); it was left as it is"),
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn stored_by_0_2() -> Value {
        json!({
            "worktree_id": "wt_0123456789ab", "repo_path": "/r", "repo_key": "/r/.git", "path": "/w/r/wt_0123456789ab",
            "branch": "iii/wt_0123456789ab", "base_ref": "HEAD", "base_sha": "a".repeat(40), "lifecycle": "land-blocked",
            "session_id": null, "dev_port": 12345, "created_at": 1, "updated_at": 2
        })
    }

    #[test]
    fn a_record_of_the_0_2_worker_loads_invariant_1() {
        let record = Record::from_value(&stored_by_0_2()).unwrap();
        assert_eq!((record.format, record.fence, record.lifecycle), (1, 0, Lifecycle::LandBlocked));
    }

    #[test]
    fn a_newer_record_is_refused_invariant_2() {
        let mut value = stored_by_0_2();
        value["format"] = json!(RECORD_FORMAT + 1);
        let error = Record::from_value(&value).unwrap_err();
        assert_eq!(error.code, Code::RecordUnreadable);
        assert!(error.message.contains("wt_0123456789ab"), "{error}");
    }
}
