//! Refs: resolving them, and moving them by compare-and-swap.
//!
//! A branch is always named in full (`refs/heads/…`), because in git's short form a tag or a file of the same name
//! comes first.

use std::collections::BTreeSet;
use std::path::Path;

use super::branch_name;
use super::error::GitError;
use super::invocation::Invocation;
use super::parse;
use super::ref_files::{self, Told};
use super::sha::Sha;
use super::text::digest;
use super::{Repo, Tree};

/// What a ref must be for an update to happen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expected {
    /// It must not exist.
    Absent,
    /// It must name this object.
    Is(Sha),
}

/// What became of an update.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum RefUpdate {
    /// It happened.
    Done,
    /// The ref was not as expected, and is unchanged.
    Lost {
        /// What it is instead; `None` when it does not exist.
        current: Option<Sha>,
    },
}

impl Repo {
    /// The commit that a revision names, or `None`.
    ///
    /// A branch of that name comes before a tag; `HEAD` and `@` are always the commit of the primary checkout (ask
    /// [`super::Tree::head`] for that of another worktree), and a name that begins with `refs/` is taken as it stands.
    /// Otherwise whatever git understands (`main~2`, `v1.0`, a short object name).
    ///
    /// # Errors
    /// W111 for an empty revision, a leading dash or a NUL, before git is started.
    pub async fn resolve_commit(&self, rev: &str) -> Result<Option<Sha>, GitError> {
        if let Some(sha) = plain_branch(&self.common_dir, rev) {
            return Ok(Some(sha));
        }
        resolve(&|| self.command(REV_PARSE), rev).await
    }

    /// The object of this type that a revision names, or `None`.
    pub(super) async fn peel(&self, rev: &str, kind: &str) -> Result<Option<Sha>, GitError> {
        peel(self.command(REV_PARSE), rev, kind).await
    }

    /// The commit of a branch, or `None`.
    ///
    /// # Errors
    /// W111 when no branch can have this name.
    pub async fn branch_sha(&self, branch: &str) -> Result<Option<Sha>, GitError> {
        branch_name::require(branch)?;
        self.ref_sha(&format!("refs/heads/{branch}")).await
    }

    /// The object that a ref names, or `None`. The name is full and exact.
    ///
    /// # Errors
    /// W111 when it is not a full ref name.
    pub async fn ref_sha(&self, full_name: &str) -> Result<Option<Sha>, GitError> {
        branch_name::require_full(full_name)?;
        match ref_files::look(&self.common_dir, full_name) {
            Told::Is(sha) => return Ok(Some(sha)),
            Told::Absent => return Ok(None),
            Told::AskGit => {}
        }
        let refs = self.refs_under(full_name).await?;
        Ok(refs.into_iter().find(|(name, _)| name == full_name).map(|(_, sha)| sha))
    }

    /// The refs that are `prefix` or lie below it (`refs/heads/iii`, `refs/iii/`), by name.
    ///
    /// # Errors
    /// W102.
    pub async fn refs_under(&self, prefix: &str) -> Result<Vec<(String, Sha)>, GitError> {
        let output =
            self.command(["for-each-ref", "--format=%(refname)%00%(objectname)"]).arg(prefix).offline().run().await?;
        parse::refs::list(&output.stdout()?)
    }

    /// The branches, tags and remote-tracking refs that contain a commit, by full name.
    ///
    /// # Errors
    /// W102, also when the commit is not here.
    pub async fn refs_containing(&self, commit: &Sha) -> Result<Vec<String>, GitError> {
        let output = self
            .command(["for-each-ref", "--format=%(refname)"])
            .arg(format!("--contains={commit}"))
            .args(["refs/heads", "refs/tags", "refs/remotes"])
            .offline()
            .run()
            .await?
            .stdout()?;
        Ok(String::from_utf8_lossy(&output).lines().map(str::to_owned).collect())
    }

    /// Whether the last thing that happened to a branch was that [`Repo::add_worktree`] made it.
    ///
    /// # Errors
    /// W111 when it is not a full ref name, W102.
    pub async fn made_for_worktree(&self, full_name: &str) -> Result<bool, GitError> {
        branch_name::require_full(full_name)?;
        let output = self
            .command(["reflog", "show", "-1", "--format=%gs", full_name])
            .arg("--")
            .offline()
            .run()
            .await?
            .expect(&[0, 128])?;
        Ok(output.stdout.trim_ascii() == super::worktrees::MADE.as_bytes())
    }

    /// When a ref was last moved, in seconds since the epoch, as its reflog tells; `None` where it has none.
    ///
    /// # Errors
    /// W111 when it is not a full ref name, W102.
    pub async fn last_moved(&self, full_name: &str) -> Result<Option<i64>, GitError> {
        branch_name::require_full(full_name)?;
        let output = self
            .command(["reflog", "show", "-1", "--format=%gd", "--date=unix", full_name])
            .arg("--")
            .offline()
            .run()
            .await?
            .expect(&[0, 128])?;
        let text = String::from_utf8_lossy(&output.stdout);
        Ok(text.trim_end().strip_suffix('}').and_then(|text| text.rsplit_once("@{")?.1.parse().ok()))
    }

    /// A text that differs whenever a remote-tracking ref does; empty when there is none.
    ///
    /// # Errors
    /// W102.
    pub async fn remotes_digest(&self) -> Result<String, GitError> {
        if let Some(digest) = ref_files::remotes_digest(&self.common_dir) {
            return Ok(digest);
        }
        let output = self
            .command(["for-each-ref", "--format=%(refname)%00%(objectname)", "refs/remotes"])
            .offline()
            .run()
            .await?
            .stdout()?;
        Ok(if output.is_empty() { String::new() } else { digest(&output) })
    }

    /// Moves or creates a ref if it is as expected, with `message` in its reflog. The names are full.
    ///
    /// # Errors
    /// W111 for a name that is not full, W121 when another ref makes it impossible, W102.
    pub async fn update_ref(
        &self,
        full_name: &str,
        new: &Sha,
        old: Expected,
        message: &str,
    ) -> Result<RefUpdate, GitError> {
        branch_name::require_full(full_name)?;
        let expected = match &old {
            Expected::Absent => new.null(),
            Expected::Is(sha) => sha.as_str().to_owned(),
        };
        let output = self
            .command(["update-ref", "--no-deref", "--create-reflog", "-m", message, full_name])
            .args([new.as_str(), &expected])
            .writes()
            .run_patiently()
            .await?;
        if output.code == Some(0) {
            return Ok(RefUpdate::Done);
        }
        let failure = output.failure();
        let wanted = match old {
            Expected::Absent => None,
            Expected::Is(sha) => Some(sha),
        };
        self.lost_or(full_name, wanted.as_ref(), failure).await
    }

    /// Deletes a ref if it names `old`.
    ///
    /// # Errors
    /// W111 for a name that is not full, W102.
    pub async fn delete_ref(&self, full_name: &str, old: &Sha) -> Result<RefUpdate, GitError> {
        branch_name::require_full(full_name)?;
        let output =
            self.command(["update-ref", "--no-deref", "-d", full_name, old.as_str()]).writes().run_patiently().await?;
        if output.code == Some(0) {
            return Ok(RefUpdate::Done);
        }
        self.lost_or(full_name, Some(old), output.failure()).await
    }

    /// Deletes several refs, each if it names what is given with it; one answer for each.
    ///
    /// # Errors
    /// Those of [`Repo::delete_ref`], of each.
    pub async fn delete_refs(&self, refs: &[(String, Sha)]) -> Vec<Result<RefUpdate, GitError>> {
        // As one transaction, which happens as a whole or not at all.
        if refs.len() > 1 && self.delete_together(refs).await {
            return refs.iter().map(|_| Ok(RefUpdate::Done)).collect();
        }
        let mut answers = Vec::new();
        for (full_name, old) in refs {
            answers.push(self.delete_ref(full_name, old).await);
        }
        answers
    }

    async fn delete_together(&self, refs: &[(String, Sha)]) -> bool {
        let mut lines = Vec::new();
        for (full_name, old) in refs {
            if branch_name::require_full(full_name).is_err() {
                return false;
            }
            lines.extend(format!("delete {full_name}\0{old}\0").into_bytes());
        }
        let command = self.command(["update-ref", "--no-deref", "-z", "--stdin"]).stdin(lines).writes();
        command.run().await.is_ok_and(|output| output.code == Some(0))
    }

    /// A refused update is lost when the ref is indeed not what was expected; any other refusal is a failure.
    async fn lost_or(&self, name: &str, expected: Option<&Sha>, failure: GitError) -> Result<RefUpdate, GitError> {
        let GitError::Failed { stderr, .. } = &failure else { return Err(failure) };
        let refused = ["but expected", "reference already exists", "unable to resolve reference"];
        if refused.iter().any(|words| stderr.contains(words)) {
            let current = self.ref_sha(name).await?;
            // Where it is as expected by now, somebody moved it there and back; the update still did not happen.
            return Ok(RefUpdate::Lost { current });
        }
        if let Some(existing) = in_the_way(stderr) {
            let branch = name.strip_prefix("refs/heads/").unwrap_or(name).to_owned();
            return Err(GitError::BranchCollision { branch, existing });
        }
        let current = self.ref_sha(name).await?;
        if current.as_ref() == expected { Err(failure) } else { Ok(RefUpdate::Lost { current }) }
    }

    /// The branch of the primary checkout; `None` when detached. The branch need not have commits.
    ///
    /// # Errors
    /// W102.
    pub async fn head_branch(&self) -> Result<Option<String>, GitError> {
        if let Some(named) = ref_files::head_branch(&self.common_dir)? {
            return Ok(named);
        }
        let output = self.command(["symbolic-ref", "--quiet", "HEAD"]).run().await?.expect(&[0, 1])?;
        Ok(short_branch(&output.stdout))
    }

    /// Whether configuration asks for signed commits.
    pub(super) async fn wants_signatures(&self) -> Result<bool, GitError> {
        let output = self.command(["config", "--type=bool", "--default=false", "--get", "commit.gpgSign"]);
        Ok(output.own_signing().run().await?.line()? == "true")
    }

    /// The short names of the branches that configuration gives an upstream.
    ///
    /// # Errors
    /// W102.
    pub async fn tracking_branches(&self) -> Result<BTreeSet<String>, GitError> {
        let output =
            self.command(["config", "-z", "--name-only", "--get-regexp", r"^branch\..*\.merge$"]).run().await?;
        let output = output.expect(&[0, 1])?.stdout;
        let names = output.split(|byte| *byte == 0).map(String::from_utf8_lossy);
        let branch = |key: &str| Some(key.strip_prefix("branch.")?.strip_suffix(".merge")?.to_owned());
        Ok(names.filter_map(|key| branch(&key)).collect())
    }

    /// The full name of the branch's upstream, or `None`. The upstream need not exist any more.
    ///
    /// # Errors
    /// W111 when no branch can have this name.
    pub async fn upstream_of(&self, branch: &str) -> Result<Option<String>, GitError> {
        branch_name::require(branch)?;
        let wanted = format!("refs/heads/{branch}");
        let output = self
            .command(["for-each-ref", "--format=%(refname)%00%(upstream)", &wanted])
            .offline()
            .run()
            .await?
            .stdout()?;
        let text = String::from_utf8_lossy(&output);
        let mut pairs = text.lines().filter_map(|line| line.split_once('\0'));
        Ok(pairs
            .find(|(name, upstream)| *name == wanted && !upstream.is_empty())
            .map(|(_, upstream)| upstream.to_owned()))
    }
}

impl Tree {
    /// [`Repo::resolve_commit`] as seen from this worktree: `HEAD`, and all that is counted from it, is its own.
    ///
    /// # Errors
    /// W111 for an empty revision, a leading dash or a NUL, before git is started.
    pub async fn resolve_commit(&self, rev: &str) -> Result<Option<Sha>, GitError> {
        if rev == "HEAD" {
            return self.head().await;
        }
        if let Some(sha) = plain_branch(self.repo().common_dir(), rev) {
            return Ok(Some(sha));
        }
        resolve(&|| self.command(REV_PARSE), rev).await
    }
}

/// The commit of a revision that is the name of a branch, or the full name of a branch or remote-tracking ref, and
/// nothing more. Nothing else comes before such a name.
fn plain_branch(common_dir: &Path, rev: &str) -> Option<Sha> {
    let full = if rev.starts_with("refs/heads/") || rev.starts_with("refs/remotes/") {
        rev.to_owned()
    } else if rev.starts_with("refs/") || matches!(rev, "HEAD" | "@") {
        return None;
    } else {
        format!("refs/heads/{rev}")
    };
    branch_name::require_full(&full).ok()?;
    match ref_files::look(common_dir, &full) {
        Told::Is(sha) => Some(sha),
        Told::Absent | Told::AskGit => None,
    }
}

/// How an object is asked for.
const REV_PARSE: [&str; 4] = ["rev-parse", "--quiet", "--verify", "--end-of-options"];

async fn resolve(rev_parse: &(dyn Fn() -> Invocation + Sync), rev: &str) -> Result<Option<Sha>, GitError> {
    let why = if rev.is_empty() {
        Some("it is empty")
    } else if rev.starts_with('-') {
        Some("it begins with a dash")
    } else if rev.contains(['\0', '\n']) {
        Some("it holds a NUL or a line break")
    } else {
        None
    };
    if let Some(why) = why {
        return Err(GitError::Malformed { name: rev.to_owned(), why });
    }
    // The mark of an excluded revision is none of a name.
    if rev.starts_with('^') {
        return Ok(None);
    }
    let word = rev.split(['~', '^', '@', ':']).next().unwrap_or(rev);
    let is_head = word == "HEAD" || rev == "@" || ["@{", "@~", "@^"].iter().any(|start| rev.starts_with(start));
    if !is_head
        && !rev.starts_with("refs/")
        && let Some(sha) = peel(rev_parse(), &format!("refs/heads/{rev}"), "commit").await?
    {
        return Ok(Some(sha));
    }
    peel(rev_parse(), rev, "commit").await
}

async fn peel(rev_parse: Invocation, rev: &str, kind: &str) -> Result<Option<Sha>, GitError> {
    let output = rev_parse.arg(format!("{rev}^{{{kind}}}")).offline().run().await?;
    // 1 is the quiet "no"; 128 comes with words when the revision has a form that git cannot take.
    if output.code == Some(1) || (output.code == Some(128) && names_nothing(&output.stderr)) {
        return Ok(None);
    }
    parse::refs::one("git rev-parse", &output.stdout()?).map(Some)
}

/// The short name of a branch from the output of `symbolic-ref`.
pub(super) fn short_branch(output: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(output);
    text.trim_end_matches('\n').strip_prefix("refs/heads/").map(str::to_owned)
}

/// Whether git says that a revision has no meaning here, rather than that it could not look.
fn names_nothing(stderr: &[u8]) -> bool {
    let text = String::from_utf8_lossy(stderr);
    // A reflog that does not go back so far is no answer without a word.
    text.trim().is_empty()
        || [
            "Needed a single revision",
            "bad revision",
            "unknown revision",
            "log for",
            "ambiguous",
            "empty string",
            "Not a valid object name",
        ]
        .iter()
        .any(|words| text.contains(words))
}

/// The ref of `'refs/heads/a' exists; cannot create 'refs/heads/a/b'`.
fn in_the_way(stderr: &str) -> Option<String> {
    let (before, _) = stderr.split_once("' exists; cannot create '")?;
    before.rsplit('\'').next().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ref_in_the_way_is_named() {
        let text = "fatal: cannot lock ref 'refs/heads/a/b': 'refs/heads/a' exists; cannot create 'refs/heads/a/b'";
        assert_eq!(in_the_way(text).as_deref(), Some("refs/heads/a"));
        assert_eq!(in_the_way("fatal: something else"), None);
    }
}
