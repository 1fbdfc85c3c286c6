//! Whether what a branch holds is already in a target.
//!
//! Probes from cheap to dear. Each answers only "yes, for this reason" or "not by this probe": a probe that fails, is
//! cut short or meets something it cannot judge proves nothing, and the next one is asked. Nothing is ever taken for
//! integrated by default, because callers delete what is.

use super::Repo;
use super::error::GitError;
use super::parse;
use super::sha::Sha;

/// Why a branch counts as integrated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Integration {
    /// Branch and target are the same commit.
    SameCommit,
    /// The target contains the branch.
    Ancestor,
    /// The branch has commits, and they change nothing since the merge base.
    NoAddedChanges,
    /// Branch and target have the same files.
    TreesMatch,
    /// Merging the branch would change nothing in the target.
    MergeAddsNothing,
    /// One commit of the target makes exactly the change that the branch makes as a whole (a squash merge).
    PatchIdMatch,
}

/// How many commits of the target are compared with the change of the branch.
const WALK: &str = "300";
/// How many paths the branch may touch for that comparison.
const PATHS: usize = 500;

impl Integration {
    /// The name on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Integration::SameCommit => "same_commit",
            Integration::Ancestor => "ancestor",
            Integration::NoAddedChanges => "no_added_changes",
            Integration::TreesMatch => "trees_match",
            Integration::MergeAddsNothing => "merge_adds_nothing",
            Integration::PatchIdMatch => "patch_id_match",
        }
    }
}

impl Repo {
    /// Why `tip` counts as integrated into `target`; `None` when it does not, or when that cannot be told.
    ///
    /// # Errors
    /// W100 when git cannot be started. Any other failure of a probe is a "cannot tell".
    pub async fn integration(&self, tip: &Sha, target: &Sha) -> Result<Option<Integration>, GitError> {
        if tip == target {
            return Ok(Some(Integration::SameCommit));
        }
        if self.is_known_ancestor(tip, target) {
            return Ok(Some(Integration::Ancestor));
        }
        let counts = told(self.ahead_behind(tip, target).await)?;
        if let Some((0, _)) = counts {
            return Ok(Some(Integration::Ancestor));
        }
        let Some(trees) = told(self.trees_of([tip, target]).await)? else { return Ok(None) };
        let [tip_tree, target_tree] = trees;
        if let Some((_, 0)) = counts {
            // The branch goes on from the target, so that no commit there, and no merge, can hold what it adds.
            return Ok((tip_tree == target_tree).then_some(Integration::NoAddedChanges));
        }
        // With several merge bases, or none, there is no one change that the branch makes.
        let base = match told(self.merge_bases(tip, target).await)?.as_deref() {
            Some([base]) => Some(base.clone()),
            _ => None,
        };
        if let Some(base) = &base
            && told(self.tree_of(base).await)?.as_ref() == Some(&tip_tree)
        {
            return Ok(Some(Integration::NoAddedChanges));
        }
        if tip_tree == target_tree {
            return Ok(Some(Integration::TreesMatch));
        }
        if base.is_some() && told(self.merged_tree(tip, target).await)?.flatten() == Some(target_tree) {
            return Ok(Some(Integration::MergeAddsNothing));
        }
        if let Some(base) = base
            && told(self.squashed(&base, tip, target).await)? == Some(true)
        {
            return Ok(Some(Integration::PatchIdMatch));
        }
        Ok(None)
    }

    /// The tree of a merge of `tip` into `target`; `None` when it conflicts.
    async fn merged_tree(&self, tip: &Sha, target: &Sha) -> Result<Option<Sha>, GitError> {
        let output = self
            .command(["merge-tree", "--write-tree", "--no-messages", target.as_str(), tip.as_str()])
            .writes()
            .run()
            .await?
            .expect(&[0, 1])?;
        if output.code == Some(1) {
            return Ok(None);
        }
        parse::refs::one("git merge-tree", &output.stdout).map(Some)
    }

    /// Whether a recent commit of the target since `base` makes the change from `base` to `tip`.
    ///
    /// Patches are compared byte by byte: without `--verbatim` git would take changes that differ in white space only
    /// for the same. Binary files are left out of patches, so a branch that touches one cannot be judged.
    async fn squashed(&self, base: &Sha, tip: &Sha, target: &Sha) -> Result<bool, GitError> {
        let paths = self.command(["diff-tree", "-r", "-z", "--numstat", "--no-renames"]);
        let counts = paths.args(PLAIN).args([base, tip]).arg("--").run().await?.stdout()?;
        let Some(paths) = touched(&counts).filter(|paths| !paths.is_empty() && paths.len() <= PATHS) else {
            return Ok(false);
        };
        let patch = self.command(["diff-tree", "-r", "-p", "-U3", "--no-renames", "--full-index"]);
        let patch = patch.args(PLAIN).args([base, tip]).arg("--").run().await?.stdout()?;
        let Some((wanted, _)) = self.patch_ids(patch).await?.into_iter().next() else { return Ok(false) };
        // Not `git log`, whose options in the user's configuration change what it shows.
        let walk = self
            .command(["rev-list", "--no-merges", "--max-count", WALK])
            .arg(format!("{base}..{target}"))
            .arg("--")
            .args(&paths)
            .env("GIT_LITERAL_PATHSPECS", "1")
            .run()
            .await?
            .stdout()?;
        let log = self.command(["diff-tree", "--stdin", "-r", "-p", "-U3", "--no-renames", "--full-index"]);
        let log = log.args(PLAIN).stdin(walk).run().await?.stdout()?;
        Ok(self.patch_ids(log).await?.into_iter().any(|(id, _)| id == wanted))
    }

    /// The identity of every patch, with its commit.
    async fn patch_ids(&self, patches: Vec<u8>) -> Result<Vec<(String, String)>, GitError> {
        let output = self.command(["patch-id", "--verbatim"]).stdin(patches).run().await?.stdout()?;
        let text = String::from_utf8_lossy(&output);
        Ok(text
            .lines()
            .filter_map(|line| line.split_once(' '))
            .map(|(id, of)| (id.to_owned(), of.to_owned()))
            .collect())
    }
}

/// What keeps a patch free of the user's taste and of other programs.
const PLAIN: [&str; 7] = [
    "--no-ext-diff",
    "--no-textconv",
    "--no-color",
    "--no-relative",
    "--submodule=short",
    "--src-prefix=a/",
    "--dst-prefix=b/",
];

/// The answer of a probe, where it gave one.
fn told<T>(answer: Result<T, GitError>) -> Result<Option<T>, GitError> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(error @ GitError::Spawn { .. }) => Err(error),
        Err(error) => {
            tracing::debug!(%error, "a probe for integration could not tell");
            Ok(None)
        }
    }
}

/// The paths of `--numstat -z`; `None` when one of them is binary.
fn touched(output: &[u8]) -> Option<Vec<std::path::PathBuf>> {
    let items = output.strip_suffix(b"\0").unwrap_or(output).split(|byte| *byte == 0).filter(|item| !item.is_empty());
    items
        .map(|item| {
            let mut parts = item.splitn(3, |byte| *byte == b'\t');
            let (added, _, path) = (parts.next()?, parts.next()?, parts.next()?);
            (added != b"-").then(|| parse::paths::path(path))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn binary_files_cannot_be_judged() {
        assert_eq!(touched(b"1\t2\ta b\0").unwrap(), [std::path::PathBuf::from("a b")]);
        assert_eq!(touched(b"1\t2\ta\0-\t-\tb\0"), None);
        assert_eq!(touched(b"").unwrap().len(), 0);
    }
}
