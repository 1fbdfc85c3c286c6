//! Questions about commits.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::OnceCell;

use super::Repo;
use super::error::GitError;
use super::objects;
use super::parse;
use super::parse::refs::Tip;
use super::sha::Sha;

/// Of how many commits the tree is remembered at a time.
const REMEMBERED: usize = 50_000;

/// The trees of commits, which several may wait for. A commit is named by its content, so this holds for ever and in every
/// repository.
pub(super) type Trees = Mutex<HashMap<Sha, Arc<OnceCell<Sha>>>>;

impl Repo {
    /// Whether `a` is `b` or an ancestor of it. In a shallow repository a `false` may only mean that history is cut
    /// off; ask [`Repo::is_shallow`] before acting on it.
    ///
    /// # Errors
    /// W102, also when a commit is missing.
    pub async fn is_ancestor(&self, a: &Sha, b: &Sha) -> Result<bool, GitError> {
        if self.is_known_ancestor(a, b) {
            return Ok(true);
        }
        let output = self.command(["merge-base", "--is-ancestor", a.as_str(), b.as_str()]).offline().run().await?;
        Ok(output.expect(&[0, 1])?.code == Some(0))
    }

    /// Whether it can be told without git that `a` is `b` or an ancestor of it. `false` says nothing.
    #[must_use]
    pub fn is_known_ancestor(&self, a: &Sha, b: &Sha) -> bool {
        objects::is_ancestor(&self.common_dir, a, b)
    }

    /// The best common ancestor; `None` when there is none. Where there are several, the one git names first.
    ///
    /// # Errors
    /// W114 when there is none in a shallow repository, W102.
    pub async fn merge_base(&self, a: &Sha, b: &Sha) -> Result<Option<Sha>, GitError> {
        let bases = self.merge_bases(a, b).await?;
        if bases.is_empty() && self.is_shallow().await? {
            return Err(GitError::Shallow { path: self.common_dir.to_path_buf() });
        }
        Ok(bases.into_iter().next())
    }

    /// All best common ancestors.
    pub(super) async fn merge_bases(&self, a: &Sha, b: &Sha) -> Result<Vec<Sha>, GitError> {
        let output = self.command(["merge-base", "--all", a.as_str(), b.as_str()]).offline().run().await?;
        parse::refs::many("git merge-base", &output.expect(&[0, 1])?.stdout)
    }

    /// How many commits `tip` has that `base` has not, and the other way round.
    ///
    /// # Errors
    /// W102.
    pub async fn ahead_behind(&self, tip: &Sha, base: &Sha) -> Result<(u64, u64), GitError> {
        let range = format!("{tip}...{base}");
        let output = self.command(["rev-list", "--left-right", "--count", &range, "--"]).offline().run().await?;
        parse::refs::pair("git rev-list", &output.stdout()?)
    }

    /// Tip, tree, and [`Repo::ahead_behind`] of `base` for each of these refs that exists, in one process: for hundreds
    /// of branches about forty times as fast as one by one. By full ref name; a name stands for all below it, too.
    ///
    /// # Errors
    /// W102, also with git before 2.41, which cannot do that.
    pub async fn tips_against(&self, names: &[String], base: &Sha) -> Result<BTreeMap<String, Tip>, GitError> {
        let output = self
            .command(["for-each-ref"])
            .arg(format!("--format=%(refname)%00%(objectname) %(tree) %(ahead-behind:{base})"))
            .args(names)
            .offline()
            .run()
            .await?;
        parse::refs::tips(&output.stdout()?)
    }

    /// How many commits of `tip` are on no remote-tracking ref, nor contained in one of `known`.
    ///
    /// # Errors
    /// W102.
    pub async fn unpushed(&self, tip: &Sha, known: &[Sha]) -> Result<u64, GitError> {
        let known = known.iter().map(Sha::as_str);
        let args = ["rev-list", "--count", tip.as_str(), "--not", "--remotes"].into_iter().chain(known).chain(["--"]);
        parse::refs::number("git rev-list", &self.command(args).offline().run().await?.stdout()?)
    }

    /// How many commits of `tip` are contained in none of `known`.
    ///
    /// # Errors
    /// W102.
    pub async fn commits_beyond(&self, tip: &Sha, known: &[Sha]) -> Result<u64, GitError> {
        let known = known.iter().map(Sha::as_str);
        let args = ["rev-list", "--count", tip.as_str(), "--not"].into_iter().chain(known).chain(["--"]);
        parse::refs::number("git rev-list", &self.command(args).offline().run().await?.stdout()?)
    }

    /// The one-line summary of the changes between two commits, for people (` 3 files changed, …` trimmed); empty
    /// when there are none.
    ///
    /// # Errors
    /// W102.
    pub async fn shortstat(&self, from: &Sha, to: &Sha) -> Result<String, GitError> {
        if from == to {
            return Ok(String::new());
        }
        // As git counts where nobody has configured anything.
        let plain = ["--no-ext-diff", "--no-textconv", "--find-renames", "--diff-algorithm=default"];
        self.command(["diff", "--shortstat"]).args(plain).args([from.as_str(), to.as_str(), "--"]).run().await?.line()
    }

    /// [`Repo::shortstat`] of many pairs (from, to), in their order, in one process. Fetches nothing.
    ///
    /// # Errors
    /// W102, also when a commit is missing.
    pub async fn shortstats(&self, pairs: &[(Sha, Sha)]) -> Result<Vec<String>, GitError> {
        let list: String = pairs.iter().map(|(from, to)| format!("{to} {from}\n")).collect();
        let output = self
            .command(["diff-tree", "--stdin", "-r", "--always", "--shortstat", "--find-renames"])
            .args(["--no-ext-diff", "--no-textconv"])
            .stdin(list.into_bytes())
            .offline()
            .run()
            .await?;
        parse::commits::summaries(&output.stdout()?, pairs.iter().map(|(_, to)| to))
    }

    /// The tree of a commit, where it can be told without git; also of one that is not here any more.
    pub(super) fn known_tree(&self, commit: &Sha) -> Option<Sha> {
        let known = self.git.trees().lock().unwrap_or_else(PoisonError::into_inner).get(commit).cloned();
        known.and_then(|tree| tree.get().cloned()).or_else(|| Some(objects::commit(&self.common_dir, commit)?.tree))
    }

    /// The place of the tree of a commit in memory.
    fn tree_cell(&self, commit: &Sha) -> Arc<OnceCell<Sha>> {
        let mut trees = self.git.trees().lock().unwrap_or_else(PoisonError::into_inner);
        if trees.len() >= REMEMBERED {
            trees.clear();
        }
        trees.entry(commit.clone()).or_default().clone()
    }

    /// The tree of a commit. Of those who ask at the same time, one asks git.
    ///
    /// # Errors
    /// W112 when there is no such commit, W102.
    pub async fn tree_of(&self, commit: &Sha) -> Result<Sha, GitError> {
        if let Some(tree) = self.known_tree(commit) {
            return Ok(tree);
        }
        let missing = || GitError::RefMissing { name: commit.to_string() };
        let ask = async || self.peel(commit.as_str(), "tree").await?.ok_or_else(missing);
        self.tree_cell(commit).get_or_try_init(ask).await.cloned()
    }

    /// The trees of two commits.
    ///
    /// # Errors
    /// W102, also when a commit is missing.
    pub(super) async fn trees_of(&self, commits: [&Sha; 2]) -> Result<[Sha; 2], GitError> {
        if let [Some(first), Some(second)] = commits.map(|commit| self.known_tree(commit)) {
            return Ok([first, second]);
        }
        let names = commits.map(|commit| format!("{commit}^{{tree}}"));
        let output = self.command(["rev-parse"]).args(names).offline().run().await?.stdout()?;
        let trees = parse::refs::many("git rev-parse", &output)?;
        let trees: [Sha; 2] = trees.try_into().map_err(|_| GitError::Parse {
            what: "git rev-parse".to_owned(),
            line: 1,
            text: String::from_utf8_lossy(&output).into_owned(),
        })?;
        for (commit, tree) in commits.into_iter().zip(&trees) {
            self.tree_cell(commit).get_or_init(async || tree.clone()).await;
        }
        Ok(trees)
    }
}
