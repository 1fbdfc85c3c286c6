//! The configuration entry `worktree`: its keys, defaults and rules.
//!
//! Invariants
//! 1. Every key has a default; an empty object is a valid configuration.
//! 2. A value that cannot be applied is refused as a whole, with the key named (`W010`); gates fail closed.

use std::path::{Path, PathBuf};
use std::str::FromStr as _;
use std::time::Duration;

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Code, Error, Result};

/// How a branch is named when the caller does not name one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum BranchNaming {
    /// The prefix and the worktree id.
    #[default]
    Id,
    /// The prefix and two words with the last four digits of the id, easier to read.
    Codename,
}

/// What a new worktree gets besides the tracked files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Provision {
    /// Copy the git-ignored files of the source checkout (build caches, local settings) in the background.
    pub copy_ignored: bool,
    /// Copy only what matches one of these globs; empty means everything. `*` crosses `/`.
    pub include: Vec<String>,
    /// Never copy what matches one of these globs. `*` crosses `/`.
    pub exclude: Vec<String>,
    /// Stop copying after this many bytes.
    pub max_copy_bytes: u64,
}

impl Default for Provision {
    fn default() -> Self {
        Provision { copy_ignored: false, include: Vec::new(), exclude: Vec::new(), max_copy_bytes: 2 << 30 }
    }
}

/// What happens to the post-checkout hook of a repository when a worktree is made. No other hook ever runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum HookPolicy {
    /// It runs.
    #[default]
    Run,
    /// It does not run.
    Skip,
}

/// What happens to a wish for signed commits when a land rewrites them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SigningPolicy {
    /// Rewritten commits are not signed; no signing program is started.
    #[default]
    Off,
    /// They are signed when git's configuration asks for it; a signing program that waits is ended at git_timeout_ms.
    Keep,
    /// The land is blocked where git's configuration asks for signatures.
    Fail,
}

/// What a repository may make git run. Its configuration is written by agents; that of the user is not looked at.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct GitPolicy {
    /// Whether the repository's post-checkout hook runs when a worktree is made.
    pub hooks: HookPolicy,
    /// Names of filters that a repository's own configuration may define; `*` for all. git-lfs need not be named.
    pub filters: Vec<String>,
    /// Names of merge drivers that a repository's own configuration may define; `*` for all.
    pub merge_drivers: Vec<String>,
    /// What happens to a wish for signed commits when a land rewrites them.
    pub signing: SigningPolicy,
    /// Leave git-lfs files as pointers instead of downloading them.
    pub skip_lfs_smudge: bool,
}

/// What callers may do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Gates {
    /// Allow worktree::remove.
    pub allow_remove: bool,
    /// Allow force in claim, release, remove, and force_restart in land.
    pub allow_force: bool,
    /// Allow branches to be deleted: by remove when asked, and after a land.
    pub allow_branch_delete: bool,
    /// Allow worktree::land.
    pub allow_land: bool,
    /// Allow worktree::prune to remove worktrees.
    pub allow_prune: bool,
    /// Globs over branch names that may be landed on. `*` crosses `/`.
    pub land_targets: Vec<String>,
    /// Globs over the canonical paths of repositories that may be used. `*` crosses `/`.
    pub repos: Vec<String>,
    /// How many worktrees one repository may have at a time; 0 is without limit.
    pub max_worktrees_per_repo: u64,
}

impl Default for Gates {
    fn default() -> Self {
        Gates {
            allow_remove: true,
            allow_force: false,
            allow_branch_delete: true,
            allow_land: true,
            allow_prune: true,
            land_targets: vec!["*".to_owned()],
            repos: vec!["*".to_owned()],
            max_worktrees_per_repo: 0,
        }
    }
}

/// The record of everything that is destroyed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Audit {
    /// Write it. What cannot be written down is then not destroyed (W600).
    pub enabled: bool,
    /// Where it lies: absolute, or starting with `~/`; `.audit` below worktree_root when left out.
    pub directory: Option<String>,
    /// Size of one file in bytes at which a new one is begun; old ones stay.
    #[schemars(range(min = 4096))]
    pub max_bytes: u64,
}

impl Default for Audit {
    fn default() -> Self {
        Audit { enabled: true, directory: None, max_bytes: 16 << 20 }
    }
}

/// How much disk the worktrees may use.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Quota {
    /// Warn in the log and in the skip reasons of worktree::prune when the worktrees use more; nothing is ever deleted
    /// because of it. 0 is without limit.
    pub disk_soft_bytes: u64,
}

/// Worktrees that are made before anybody asks for them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Pool {
    /// How many stand ready for each repository from which worktrees are created; 0 is none.
    #[schemars(range(max = 16))]
    pub size: u64,
}

/// Settings of the worktree worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct WorktreeConfig {
    /// Directory that holds all worktrees; absolute, or starting with `~/`.
    #[schemars(regex(pattern = r"^(/|~/|~$)"))]
    pub worktree_root: String,
    /// What generated branch names start with, such as `iii/`; not empty.
    #[schemars(length(min = 1), regex(pattern = r"^[^-\s~^:?*\[\\][^\s~^:?*\[\\]*$"))]
    pub branch_prefix: String,
    /// How a branch is named when the caller does not name one.
    pub branch_naming: BranchNaming,
    /// When to prune: a cron line of six fields (seconds first) in UTC.
    #[schemars(regex(pattern = r"^\s*\S+(\s+\S+){5}\s*$"))]
    pub prune_schedule: String,
    /// How long a worktree must be idle before prune may take it, in hours.
    pub prune_expire_hours: u64,
    /// Name of the queue that runs lands.
    #[schemars(length(min = 1))]
    pub land_queue: String,
    /// How often a land starts again because its target moved.
    pub max_land_retries: u32,
    /// Time limit of one git command in milliseconds.
    #[schemars(range(min = 1))]
    pub git_timeout_ms: u64,
    /// Time limit of a test gate in milliseconds.
    #[schemars(range(min = 1))]
    pub test_timeout_ms: u64,
    /// What a new worktree gets besides the tracked files.
    pub provision: Provision,
    /// What a repository may make git run.
    pub git: GitPolicy,
    /// What callers may do.
    pub gates: Gates,
    /// How long what was removed by force can be restored, and how long ended lands are remembered, in hours.
    pub retention_hours: u64,
    /// How much disk the worktrees may use.
    pub quota: Quota,
    /// Worktrees that are made before anybody asks for them.
    pub pool: Pool,
    /// The record of everything that is destroyed.
    pub audit: Audit,
}

impl Default for WorktreeConfig {
    fn default() -> Self {
        WorktreeConfig {
            worktree_root: "~/.iii/worktrees".to_owned(),
            branch_prefix: "iii/".to_owned(),
            branch_naming: BranchNaming::Id,
            prune_schedule: "0 0 * * * *".to_owned(),
            prune_expire_hours: 72,
            land_queue: "worktree-land".to_owned(),
            max_land_retries: 3,
            git_timeout_ms: 60_000,
            test_timeout_ms: 600_000,
            provision: Provision::default(),
            git: GitPolicy::default(),
            gates: Gates::default(),
            retention_hours: 72,
            quota: Quota::default(),
            pool: Pool::default(),
            audit: Audit::default(),
        }
    }
}

/// A configuration that was found applicable, with its globs compiled and its root absolute.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The values as configured.
    pub config: WorktreeConfig,
    /// [`WorktreeConfig::worktree_root`] with the home directory in place of `~`.
    pub root: PathBuf,
    /// Where the audit log lies.
    pub audit_dir: PathBuf,
    land_targets: GlobSet,
    repos: GlobSet,
    copy: CopyFilter,
}

/// Which ignored files a new worktree gets a copy of.
#[derive(Debug, Clone)]
pub struct CopyFilter {
    /// None: everything.
    include: Option<GlobSet>,
    exclude: GlobSet,
}

impl CopyFilter {
    /// Whether a path, relative to the checkout, is asked for; what lies below one that is, is asked for too.
    #[must_use]
    pub fn includes(&self, path: &Path) -> bool {
        self.include.as_ref().is_none_or(|globs| globs.is_match(path))
    }

    /// Whether a path, and all below it, is left out.
    #[must_use]
    pub fn excludes(&self, path: &Path) -> bool {
        self.exclude.is_match(path)
    }
}

/// The most worktrees that stand ready for one repository: each is a whole checkout on the disk.
const MAX_POOL: u64 = 16;
/// The smallest file of the audit log: a few entries.
const MIN_AUDIT_BYTES: u64 = 4096;

fn refused(key: &str, why: impl std::fmt::Display) -> Error {
    Error::new(Code::InvalidConfig, format!("configuration key `{key}`: {why}"))
}

fn globs(key: &str, patterns: &[String]) -> Result<GlobSet> {
    let mut set = GlobSetBuilder::new();
    for pattern in patterns {
        let glob = GlobBuilder::new(pattern).literal_separator(false).build().map_err(|error| refused(key, error))?;
        set.add(glob);
    }
    set.build().map_err(|error| refused(key, error))
}

impl Settings {
    /// Checks a stored configuration value.
    ///
    /// `home` takes the place of `~`.
    ///
    /// # Errors
    /// `W010` naming the key that cannot be applied.
    pub fn from_value(value: &Value, home: Option<&Path>) -> Result<Self> {
        // A list would be read as the values of the first keys, in order.
        let defaults = serde_json::to_value(WorktreeConfig::default()).unwrap_or_default();
        let sections = defaults.as_object().into_iter().flatten().filter(|(_, default)| default.is_object());
        let parts = sections.map(|(key, _)| (key.as_str(), value.get(key)));
        for (key, part) in std::iter::once(("worktree", Some(value))).chain(parts) {
            if part.is_some_and(|part| !part.is_object()) {
                return Err(refused(key, "must hold keys with values"));
            }
        }
        let config = serde_path_to_error::deserialize(value).map_err(|error| {
            let key = error.path().to_string();
            refused(if key == "." { "worktree" } else { &key }, error.into_inner())
        })?;
        Settings::new(config, home)
    }

    /// Checks `config`. See [`Settings::from_value`].
    ///
    /// # Errors
    /// `W010` naming the key that cannot be applied.
    pub fn new(config: WorktreeConfig, home: Option<&Path>) -> Result<Self> {
        let root = absolute("worktree_root", &config.worktree_root, home)?;
        let audit_dir = match &config.audit.directory {
            Some(directory) => absolute("audit.directory", directory, home)?,
            None => root.join(".audit"),
        };
        if config.audit.max_bytes < MIN_AUDIT_BYTES {
            return Err(refused("audit.max_bytes", format!("must be at least {MIN_AUDIT_BYTES}")));
        }
        if config.pool.size > MAX_POOL {
            return Err(refused("pool.size", format!("must be at most {MAX_POOL}")));
        }
        if config.branch_prefix.is_empty() || !is_branch_name(&format!("{}x", config.branch_prefix)) {
            return Err(refused("branch_prefix", format!("`{}` starts no valid branch name", config.branch_prefix)));
        }
        let schedule = &config.prune_schedule;
        // The parser would also take a seventh field, the year, and words such as `@daily`.
        if schedule.split_whitespace().count() != 6 || cron::Schedule::from_str(schedule).is_err() {
            let why = format!("`{schedule}` is no cron line of six fields, seconds first, such as `0 0 * * * *`");
            return Err(refused("prune_schedule", why));
        }
        if config.land_queue.trim().is_empty() {
            return Err(refused("land_queue", "must name a queue"));
        }
        for (key, limit) in [("git_timeout_ms", config.git_timeout_ms), ("test_timeout_ms", config.test_timeout_ms)] {
            if limit == 0 {
                return Err(refused(key, "must be at least 1"));
            }
        }
        let include = globs("provision.include", &config.provision.include)?;
        let copy = CopyFilter {
            include: (!config.provision.include.is_empty()).then_some(include),
            exclude: globs("provision.exclude", &config.provision.exclude)?,
        };
        let land_targets = globs("gates.land_targets", &config.gates.land_targets)?;
        let repos = globs("gates.repos", &config.gates.repos)?;
        Ok(Settings { config, root, audit_dir, land_targets, repos, copy })
    }

    /// Time limit of one git command.
    #[must_use]
    pub fn git_timeout(&self) -> Duration {
        Duration::from_millis(self.config.git_timeout_ms)
    }

    /// Which ignored files a new worktree gets a copy of.
    #[must_use]
    pub fn copy_filter(&self) -> &CopyFilter {
        &self.copy
    }

    /// Refuses when a gate is shut; `key` is its name below `gates`.
    ///
    /// # Errors
    /// `W500` naming the key to flip, or `W501` for the force gate.
    pub fn require_gate(&self, key: &str, what: &str) -> Result<()> {
        let gates = &self.config.gates;
        let (open, code) = match key {
            "allow_remove" => (gates.allow_remove, Code::OperationDisabled),
            "allow_land" => (gates.allow_land, Code::OperationDisabled),
            "allow_prune" => (gates.allow_prune, Code::OperationDisabled),
            "allow_branch_delete" => (gates.allow_branch_delete, Code::OperationDisabled),
            _ => (gates.allow_force, Code::ForceDisabled),
        };
        if open {
            return Ok(());
        }
        let key = if code == Code::ForceDisabled { "allow_force" } else { key };
        Err(Error::new(
            code,
            format!("{what} is switched off; to allow it, set gates.{key}: true in the configuration"),
        ))
    }

    /// Refuses a branch that may not be landed on.
    ///
    /// # Errors
    /// `W502`.
    pub fn require_land_target(&self, branch: &str) -> Result<()> {
        if self.land_targets.is_match(branch) {
            return Ok(());
        }
        Err(Error::new(
            Code::TargetNotAllowed,
            format!("landing on `{branch}` is not allowed; add a glob that matches it to gates.land_targets"),
        ))
    }

    /// Refuses a repository that may not be used; `path` is canonical.
    ///
    /// # Errors
    /// `W503`.
    pub fn require_repo(&self, path: &Path) -> Result<()> {
        if self.repos.is_match(path) {
            return Ok(());
        }
        Err(Error::new(
            Code::RepoNotAllowed,
            format!("the repository {} is not allowed; add a glob that matches it to gates.repos", path.display()),
        ))
    }
}

/// The directory that `text` names for `key`.
fn absolute(key: &str, text: &str, home: Option<&Path>) -> Result<PathBuf> {
    let below_home = if text == "~" { Some("") } else { text.strip_prefix("~/") };
    let root = match (below_home, home) {
        (Some(rest), Some(home)) => home.join(rest),
        (Some(_), None) => return Err(refused(key, "uses `~`, but HOME is not set; give an absolute path")),
        (None, _) => PathBuf::from(text),
    };
    if !root.is_absolute() {
        return Err(refused(key, format!("`{text}` is relative; give an absolute path, or one that starts with `~/`")));
    }
    if root.parent().is_none() {
        return Err(refused(key, "must not be the root of the file system"));
    }
    Ok(root)
}

/// Whether git would take `name` for a branch: the rules of `git check-ref-format --branch`, without its expansion
/// of `@{-1}`, and without names that read as an option or as `HEAD`.
///
/// Source: the manual page git-check-ref-format.
#[must_use]
pub fn is_branch_name(name: &str) -> bool {
    !name.is_empty()
        && name != "@"
        && name != "HEAD"
        && !name.starts_with('-')
        && !name.ends_with(['/', '.'])
        && !name.contains("..")
        && !name.contains("@{")
        && !name.chars().any(|c| c.is_ascii_control() || matches!(c, ' ' | '~' | '^' | ':' | '?' | '*' | '[' | '\\'))
        && name.split('/').all(|part| !part.is_empty() && !part.starts_with('.') && !part.ends_with(".lock"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(value: &Value) -> Result<Settings> {
        Settings::from_value(value, Some(Path::new("/home/u")))
    }

    #[test]
    fn an_empty_object_is_valid_and_has_the_documented_defaults_invariant_1() {
        let settings = check(&json!({})).unwrap();
        assert_eq!(settings.root, Path::new("/home/u/.iii/worktrees"));
        assert_eq!(settings.audit_dir, Path::new("/home/u/.iii/worktrees/.audit"));
        assert_eq!(
            serde_json::to_value(&settings.config).unwrap(),
            json!({
                "worktree_root": "~/.iii/worktrees", "branch_prefix": "iii/", "branch_naming": "id",
                "prune_schedule": "0 0 * * * *", "prune_expire_hours": 72, "land_queue": "worktree-land",
                "max_land_retries": 3, "git_timeout_ms": 60000, "test_timeout_ms": 600_000,
                "provision": {"copy_ignored": false, "include": [], "exclude": [], "max_copy_bytes": 2_147_483_648_u64},
                "git": {"hooks": "run", "filters": [], "merge_drivers": [], "signing": "off", "skip_lfs_smudge": false},
                "gates": {"allow_remove": true, "allow_force": false, "allow_branch_delete": true, "allow_land": true,
                    "allow_prune": true, "land_targets": ["*"], "repos": ["*"], "max_worktrees_per_repo": 0},
                "retention_hours": 72, "quota": {"disk_soft_bytes": 0}, "pool": {"size": 0},
                "audit": {"enabled": true, "directory": null, "max_bytes": 16_777_216}
            })
        );
    }

    #[test]
    fn a_value_that_cannot_be_applied_names_its_key_invariant_2() {
        for (value, key) in [
            (json!({"worktree_root": "relative"}), "worktree_root"),
            (json!({"worktree_root": "/"}), "worktree_root"),
            (json!({"audit": {"directory": "logs"}}), "audit.directory"),
            (json!({"audit": {"max_bytes": 10}}), "audit.max_bytes"),
            (json!({"quota": {"disk_hard_bytes": 10}}), "disk_hard_bytes"),
            (json!({"pool": {"size": 17}}), "pool.size"),
            (json!({"branch_prefix": "-x"}), "branch_prefix"),
            (json!({"branch_prefix": ""}), "branch_prefix"),
            (json!({"branch_prefix": "a b"}), "branch_prefix"),
            (json!({"prune_schedule": "*/5 * * * *"}), "prune_schedule"),
            (json!({"prune_schedule": "0 0 * * * * 2027"}), "prune_schedule"),
            (json!({"prune_schedule": "@daily"}), "prune_schedule"),
            (json!({"git_timeout_ms": "soon"}), "git_timeout_ms"),
            (json!({"gates": {"allow_land": "yes"}}), "gates.allow_land"),
            (json!({"provision": {"include": "*"}}), "provision.include"),
            (json!([]), "worktree"),
            (json!({"gates": []}), "gates"),
            (json!({"provision": null}), "provision"),
            (json!({"land_queue": " "}), "land_queue"),
            (json!({"git_timeout_ms": 0}), "git_timeout_ms"),
            (json!({"gates": {"repos": ["["]}}), "gates.repos"),
            (json!({"gates": {"allow_everything": true}}), "allow_everything"),
            (json!({"branch_naming": "random"}), "random"),
            (json!({"git": {"signing": "sometimes"}}), "sometimes"),
            (json!({"git": {"hook": "run"}}), "hook"),
            (json!({"no_such_key": 1}), "no_such_key"),
        ] {
            let error = check(&value).unwrap_err();
            assert_eq!(error.code, Code::InvalidConfig, "{value}");
            assert!(error.message.contains(key), "{value}: {error}");
        }
    }

    #[test]
    fn gates_name_the_key_and_a_star_crosses_slashes() {
        let settings =
            check(&json!({"gates": {"allow_remove": false, "repos": ["/srv/*"], "land_targets": ["release*"]}}))
                .unwrap();
        let error = settings.require_gate("allow_remove", "worktree::remove").unwrap_err();
        assert_eq!(error.code, Code::OperationDisabled);
        assert!(error.message.contains("set gates.allow_remove: true"), "{error}");
        assert_eq!(settings.require_gate("allow_force", "force").unwrap_err().code, Code::ForceDisabled);
        assert!(settings.require_repo(Path::new("/srv/a/b")).is_ok());
        assert_eq!(settings.require_repo(Path::new("/home/x")).unwrap_err().code, Code::RepoNotAllowed);
        assert!(settings.require_land_target("release/1/2").is_ok());
        assert_eq!(settings.require_land_target("main").unwrap_err().code, Code::TargetNotAllowed);
    }

    #[test]
    fn branch_names_follow_git() {
        for good in
            ["main", "feat/x", "a.b", "#42", "ümlaut", "stash", "origin/x", "0123456789abcdef0123456789abcdef01234567"]
        {
            assert!(is_branch_name(good), "{good}");
        }
        for bad in [
            "", "-x", "a..b", "a b", "a/", "/a", "a//b", ".a", "a/.b", "a.lock", "a.lock/b", "@", "HEAD", "a@{1}",
            "a\\b", "a\nb", "a.", "x~1", "x^", "x:y", "x?", "x*", "x[",
        ] {
            assert!(!is_branch_name(bad), "{bad:?}");
        }
    }
}
