//! Under which conditions files are checked out: the same commit checked out under the same conditions gives the same
//! files.
//!
//! Invariants
//! 1. Whatever decides how git writes a file is part of the digest: all of the configuration, the attributes that lie
//!    outside the commit, what policy allows.
//! 2. Where more decides than that (a filter runs a program, a sparse checkout, objects that are fetched when they are
//!    needed), the conditions cannot be compared, and say why.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use super::Repo;
use super::error::GitError;
use super::parse::config::Scoped;
use super::ref_files;
use super::text::{bytes_to_text, digest};

/// The conditions at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conditions {
    /// Two moments with the same digest had the same conditions.
    pub digest: String,
    /// Why the same conditions may still give other files; `None` when they do not.
    pub incomparable: Option<String>,
}

impl Repo {
    /// The conditions of this moment. One process.
    ///
    /// # Errors
    /// W102.
    pub async fn conditions(&self) -> Result<Conditions, GitError> {
        let entries = self.configured().await?;
        let mut all = Vec::new();
        let mut add = |part: &[u8]| {
            all.extend(part.len().to_le_bytes());
            all.extend(part);
        };
        for entry in &entries {
            add(&entry.key);
            add(&entry.value);
        }
        for file in self.attribute_files(&entries) {
            add(&std::fs::read(&file).unwrap_or_default());
        }
        let policy = self.git.policy();
        add(format!("{:?} {}", policy.filters, policy.skip_lfs_smudge).as_bytes());
        Ok(Conditions { digest: digest(&all), incomparable: self.incomparable(&entries) })
    }

    /// Where attributes lie that belong to no commit.
    fn attribute_files(&self, entries: &[Scoped]) -> Vec<PathBuf> {
        let variable = |name: &str| {
            let set = self.git.base_env().iter().rev().find(|(set, _)| set == OsStr::new(name));
            set.map(|(_, value)| PathBuf::from(value)).filter(|value| value.is_absolute())
        };
        let home = variable("HOME").unwrap_or_default();
        let user = variable("XDG_CONFIG_HOME").unwrap_or_else(|| home.join(".config")).join("git/attributes");
        let configured = entries.iter().filter(|entry| entry.key == b"core.attributesfile").map(|entry| {
            let path = bytes_to_text(&entry.value);
            path.strip_prefix("~/").map_or_else(|| self.common_dir.join(&path), |rest| home.join(rest))
        });
        let fixed = [self.common_dir.join("info/attributes"), user, Path::new("/etc/gitattributes").to_owned()];
        fixed.into_iter().chain(configured).collect()
    }

    fn incomparable(&self, entries: &[Scoped]) -> Option<String> {
        if ref_files::is_reftable(&self.common_dir) {
            return Some("its refs are kept in another format than files".to_owned());
        }
        entries.iter().find_map(|entry| {
            let key = bytes_to_text(&entry.key);
            let why = match key.as_str() {
                "core.sparsecheckout" | "core.sparsecheckoutcone" if entry.value != b"false" => {
                    "the checkout is sparse"
                }
                "extensions.worktreeconfig" if entry.value != b"false" => "worktrees have configurations of their own",
                "extensions.partialclone" => "objects are fetched when they are needed",
                key if key.starts_with("includeif.onbranch:") => "configuration depends on the branch",
                key if key.ends_with(".promisor") => "objects are fetched when they are needed",
                key if key.starts_with("filter.") && !key.starts_with("filter.lfs.") => "a filter makes the files",
                _ => return None,
            };
            Some(format!("{why} ({key})"))
        })
    }
}
