//! Repositories inside a worktree: those of its submodules.
//!
//! A linked worktree keeps the repositories of its submodules in its own entry (`worktrees/<name>/modules`), so they
//! go with it. What was committed there and never pushed would be gone, and so would what was never committed.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::error::GitError;
use super::surroundings::Variable;
use super::{Repo, Tree, index, own_config, parse};

/// How deep repositories of submodules are looked for: names may hold slashes, and submodules have submodules.
const DEPTH: usize = 12;

impl Tree {
    /// The repositories of the worktree's submodules: those kept in its entry, in use or not, and those that lie in
    /// the directory of a submodule itself.
    ///
    /// # Errors
    /// W102, also when a directory cannot be read.
    pub async fn submodule_repos(&self) -> Result<Vec<Repo>, GitError> {
        let mut found = self.kept_repos()?;
        found.extend(self.submodules_in_use().await?.into_iter().map(|(_, tree)| tree.git_dir().to_owned()));
        Ok(found.into_iter().map(|dir| self.git.repo(&dir)).collect())
    }

    /// The repositories of submodules that are kept in its entry: all, where the index has no submodules.
    ///
    /// # Errors
    /// W102, also when a directory cannot be read.
    pub fn kept_submodule_repos(&self) -> Result<Vec<Repo>, GitError> {
        Ok(self.kept_repos()?.into_iter().map(|dir| self.git.repo(&dir)).collect())
    }

    fn kept_repos(&self) -> Result<BTreeSet<PathBuf>, GitError> {
        let mut found = BTreeSet::new();
        collect(&self.git_dir().join("modules"), DEPTH, &mut found)?;
        Ok(found)
    }

    /// The worktrees of submodules, by their path in this one; not those inside them.
    async fn submodules_in_use(&self) -> Result<Vec<(PathBuf, Tree)>, GitError> {
        let listed = if self.may_have_gitlinks() { self.listed().await? } else { Vec::new() };
        let mut found = Vec::new();
        for path in gitlinks(&listed) {
            let root = self.root().join(&path);
            if root.join(".git").symlink_metadata().is_ok() {
                found.push((path, self.git.tree(&root)?));
            }
        }
        Ok(found)
    }

    /// How many changed and unknown files in submodules, at any depth, [`Tree::status`] does not tell of: those that git
    /// was told not to look at, and all in a submodule that the repository around it is told to ignore.
    ///
    /// # Errors
    /// W102.
    pub async fn unseen_in_submodules(&self) -> Result<u64, GitError> {
        let mut unseen = 0;
        let mut around = vec![(self.clone(), 0)];
        while let Some((tree, depth)) = around.pop() {
            let inside = tree.submodules_in_use().await?;
            if inside.is_empty() {
                continue;
            }
            if depth == DEPTH {
                let source = std::io::Error::other("submodules are nested too deeply");
                return Err(GitError::reading(tree.root(), source));
            }
            let told: BTreeSet<PathBuf> = tree.status().await?.entries.into_iter().map(|entry| entry.path).collect();
            for (path, submodule) in inside {
                if !told.contains(&path) {
                    let status = submodule.status().await?;
                    unseen += status.staged + status.unstaged + status.conflicted + status.untracked;
                }
                unseen += u64::try_from(submodule.hidden_changes().await?.len()).unwrap_or(u64::MAX);
                around.push((submodule, depth + 1));
            }
        }
        Ok(unseen)
    }

    /// The entries of the index.
    async fn listed(&self) -> Result<Vec<u8>, GitError> {
        self.command(["ls-files", "--stage", "-z"]).offline().run().await?.stdout()
    }

    /// Whether the index may hold a submodule.
    fn may_have_gitlinks(&self) -> bool {
        index::scan(self.git_dir()).is_none_or(|holds| holds.gitlinks)
    }
}

impl Tree {
    /// Whether its index has submodules.
    ///
    /// # Errors
    /// W102.
    pub async fn has_submodules(&self) -> Result<bool, GitError> {
        Ok(self.may_have_gitlinks() && !gitlinks(&self.listed().await?).is_empty())
    }

    /// What keeps a status, which goes into the worktrees of submodules, from running what *their* configuration names.
    pub(super) async fn submodule_overrides(&self) -> Result<Vec<Variable>, GitError> {
        let mut overrides = Vec::new();
        if !self.may_have_gitlinks() {
            return Ok(overrides);
        }
        for repo in self.submodule_repos().await? {
            let entries = own_config::entries(&self.git, &repo.place(), false).await?;
            overrides.extend(own_config::overrides(&entries, self.git.policy()));
        }
        Ok(overrides)
    }
}

impl Repo {
    /// How many commits, of any ref and of HEAD, are on no remote-tracking ref.
    ///
    /// # Errors
    /// W102.
    pub async fn commits_on_no_remote(&self) -> Result<u64, GitError> {
        let head = self.peel("HEAD", "commit").await?;
        let head = head.iter().map(super::Sha::as_str);
        let args = ["rev-list", "--count", "--all"].into_iter().chain(head).chain(["--not", "--remotes", "--"]);
        parse::refs::number("git rev-list", &self.command(args).offline().run().await?.stdout()?)
    }
}

/// The paths of the entries that are commits of other repositories.
fn gitlinks(listed: &[u8]) -> Vec<PathBuf> {
    let items = listed.split(|byte| *byte == 0).filter(|item| item.starts_with(b"160000 "));
    items.filter_map(|item| item.splitn(2, |byte| *byte == b'\t').nth(1)).map(parse::paths::path).collect()
}

/// Git directories at or below `dir`.
fn collect(dir: &Path, depth: usize, found: &mut BTreeSet<PathBuf>) -> Result<(), GitError> {
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(source) => return Err(GitError::reading(dir, source)),
    };
    if dir.join("HEAD").is_file() && dir.join("objects").is_dir() {
        found.insert(dir.to_owned());
        return collect(&dir.join("modules"), depth, found);
    }
    if depth == 0 {
        let source = std::io::Error::other("directories are nested too deeply");
        return Err(GitError::reading(dir, source));
    }
    for entry in entries {
        let entry = entry.map_err(|source| GitError::reading(dir, source))?;
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            collect(&entry.path(), depth - 1, found)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_commits_of_other_repositories_are_gitlinks() {
        let listed = b"100644 1111 0\ta\x00160000 2222 0\tlib/x y\x00120000 3333 0\tb\x00";
        assert_eq!(gitlinks(listed), [PathBuf::from("lib/x y")]);
    }
}
