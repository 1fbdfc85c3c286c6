//! Answers of git that are asked for again and again, kept in memory for the reads.
//!
//! What two commits have between them never changes, so it is asked once. Only the reads use this: whatever decides
//! about a deletion asks git itself.
//!
//! Invariants
//! 1. A key names every input of its answer: the repository, the commits, and for remotes what they hold.
//! 2. A failed question is not remembered. "Not integrated", which may also mean "cannot be told", is believed for
//!    [`DOUBT`] only, and so is the upstream of a branch, which the user's own configuration may change.
//! 3. Memory is bounded: when it is full, all of it is forgotten.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::git::{GitError, Integration, Repo, Sha, Tip};

/// For how long a branch is taken for not integrated, or its upstream for the same, without asking again.
pub const DOUBT: Duration = Duration::from_secs(60);
/// How many answers are kept.
const MOST: usize = 50_000;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Question {
    AheadBehind,
    Shortstat,
    /// With the digest of the remote-tracking refs.
    Unpushed(String),
    Integration,
}

#[derive(Debug, Clone)]
enum Answer {
    Counts(u64, u64),
    Text(String),
    Integrated(Integration),
    NotIntegrated(Instant),
}

type Key = (String, Sha, Sha, Question);

/// An upstream, and for which configuration of the repository, since when it is believed.
struct Upstream {
    config: String,
    since: Instant,
    name: Option<String>,
}

/// What is remembered.
#[derive(Default)]
pub struct Memo {
    answers: Mutex<HashMap<Key, Answer>>,
    /// By repository and branch.
    upstreams: Mutex<HashMap<(String, String), Upstream>>,
}

impl Memo {
    fn known(&self, key: &Key) -> Option<Answer> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner).get(key).cloned()
    }

    fn keep(&self, key: Key, answer: Answer) {
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        if answers.len() >= MOST {
            answers.clear();
        }
        answers.insert(key, answer);
    }

    /// Takes down where many commits stand next to `base`.
    pub fn learn(&self, repo: &Repo, base: &Sha, tips: &[Tip]) {
        for tip in tips {
            let key = (repo.key(), tip.sha.clone(), base.clone(), Question::AheadBehind);
            self.keep(key, Answer::Counts(tip.ahead, tip.behind));
        }
    }

    /// Takes down the summaries of what changed from `base` to many commits, in one process. What cannot be told so is
    /// asked for one by one later.
    pub async fn learn_summaries(&self, repo: &Repo, base: &Sha, tips: &[Tip]) {
        let name = repo.key();
        let key = |tip: &Sha| (name.clone(), tip.clone(), base.clone(), Question::Shortstat);
        let unknown = tips.iter().map(|tip| &tip.sha).filter(|tip| *tip != base && self.known(&key(tip)).is_none());
        let pairs: Vec<(Sha, Sha)> = unknown.map(|tip| (base.clone(), tip.clone())).collect();
        if pairs.is_empty() {
            return;
        }
        match repo.shortstats(&pairs).await {
            Ok(texts) => {
                for ((_, tip), text) in pairs.iter().zip(texts) {
                    self.keep(key(tip), Answer::Text(text));
                }
            }
            Err(error) => tracing::debug!(%error, "summaries are asked for one by one"),
        }
    }

    /// Takes down that `tip`, which goes on from `target`, is not contained in it: its tree is another one.
    pub fn learn_not_integrated(&self, repo: &Repo, tip: &Sha, target: &Sha) {
        let key = (repo.key(), tip.clone(), target.clone(), Question::Integration);
        self.keep(key, Answer::NotIntegrated(Instant::now()));
    }

    /// Commits of `tip` that `base` has not, and the other way round.
    ///
    /// # Errors
    /// What git reports.
    pub async fn ahead_behind(&self, repo: &Repo, tip: &Sha, base: &Sha) -> Result<(u64, u64), GitError> {
        if tip == base {
            return Ok((0, 0));
        }
        let key = (repo.key(), tip.clone(), base.clone(), Question::AheadBehind);
        if let Some(Answer::Counts(ahead, behind)) = self.known(&key) {
            return Ok((ahead, behind));
        }
        let (ahead, behind) = repo.ahead_behind(tip, base).await?;
        self.keep(key, Answer::Counts(ahead, behind));
        Ok((ahead, behind))
    }

    /// The summary of what changed from `base` to `tip`.
    ///
    /// # Errors
    /// What git reports.
    pub async fn shortstat(&self, repo: &Repo, base: &Sha, tip: &Sha) -> Result<String, GitError> {
        if tip == base {
            return Ok(String::new());
        }
        let key = (repo.key(), tip.clone(), base.clone(), Question::Shortstat);
        if let Some(Answer::Text(text)) = self.known(&key) {
            return Ok(text);
        }
        let text = repo.shortstat(base, tip).await?;
        self.keep(key, Answer::Text(text.clone()));
        Ok(text)
    }

    /// The full name of the upstream of a branch.
    ///
    /// # Errors
    /// What git reports.
    pub async fn upstream(&self, repo: &Repo, branch: &str) -> Result<Option<String>, GitError> {
        let Some(config) = repo.config_digest() else { return repo.upstream_of(branch).await };
        let key = (repo.key(), branch.to_owned());
        if let Some(known) = self.upstreams.lock().unwrap_or_else(PoisonError::into_inner).get(&key)
            && known.config == config
            && known.since.elapsed() < DOUBT
        {
            return Ok(known.name.clone());
        }
        let name = repo.upstream_of(branch).await?;
        let mut upstreams = self.upstreams.lock().unwrap_or_else(PoisonError::into_inner);
        if upstreams.len() >= MOST {
            upstreams.clear();
        }
        upstreams.insert(key, Upstream { config, since: Instant::now(), name: name.clone() });
        Ok(name)
    }

    /// Commits of `tip` that are neither in `base` nor on a remote-tracking ref; `remotes` is the digest of those.
    ///
    /// # Errors
    /// What git reports.
    pub async fn unpushed(&self, repo: &Repo, tip: &Sha, base: &Sha, remotes: &str) -> Result<u64, GitError> {
        if remotes.is_empty() {
            return Ok(self.ahead_behind(repo, tip, base).await?.0);
        }
        let key = (repo.key(), tip.clone(), base.clone(), Question::Unpushed(remotes.to_owned()));
        if let Some(Answer::Counts(count, _)) = self.known(&key) {
            return Ok(count);
        }
        let count = repo.unpushed(tip, std::slice::from_ref(base)).await?;
        self.keep(key, Answer::Counts(count, 0));
        Ok(count)
    }

    /// Why `tip` counts as integrated into `target`.
    ///
    /// # Errors
    /// What git reports.
    pub async fn integration(&self, repo: &Repo, tip: &Sha, target: &Sha) -> Result<Option<Integration>, GitError> {
        let key = (repo.key(), tip.clone(), target.clone(), Question::Integration);
        match self.known(&key) {
            Some(Answer::Integrated(reason)) => return Ok(Some(reason)),
            Some(Answer::NotIntegrated(since)) if since.elapsed() < DOUBT => return Ok(None),
            _ => {}
        }
        let reason = repo.integration(tip, target).await?;
        self.keep(key, reason.map_or_else(|| Answer::NotIntegrated(Instant::now()), Answer::Integrated));
        Ok(reason)
    }
}
