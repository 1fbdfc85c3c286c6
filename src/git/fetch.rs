//! Fetching one ref.

use super::Repo;
use super::branch_name;
use super::error::GitError;
use super::sha::Sha;

impl Repo {
    /// Whether a remote of this name has an address. Other settings of it do not make a remote: people set such for every
    /// `origin` there may be.
    ///
    /// # Errors
    /// W102.
    pub async fn has_remote(&self, name: &str) -> Result<bool, GitError> {
        let address = self.command(["config", "--get"]).arg(format!("remote.{name}.url")).run().await?;
        Ok(address.expect(&[0, 1])?.code == Some(0))
    }

    /// Fetches the ref `from` of a remote into `to`, both full names, and nothing else: no tags, no submodules, no
    /// other refs. `None` when the remote has no such ref.
    ///
    /// The one call that talks to a remote by itself. Credential helpers may answer, questions may not be asked. What
    /// the remote's entry in the configuration says about its program on the other end is overridden.
    ///
    /// # Errors
    /// W111 for names that are no names, W102 when the remote is unknown or cannot be reached.
    pub async fn fetch_ref(&self, remote: &str, from: &str, to: &str) -> Result<Option<Sha>, GitError> {
        if remote.is_empty() || remote.starts_with('-') || remote.contains("::") {
            return Err(GitError::Malformed { name: remote.to_owned(), why: "it is not the name of a remote" });
        }
        branch_name::require_full(from)?;
        branch_name::require_full(to)?;
        let output = self
            .command(["fetch", "--quiet", "--no-tags", "--no-recurse-submodules", "--no-write-fetch-head"])
            .args(["--no-auto-maintenance", "--refmap=", "--upload-pack=git-upload-pack", "--end-of-options", remote])
            .arg(format!("+{from}:{to}"))
            .network()
            .writes()
            .run_patiently()
            .await?;
        if output.code != Some(0) && output.says("couldn't find remote ref") {
            return Ok(None);
        }
        output.expect(&[0])?;
        self.ref_sha(to).await
    }
}
