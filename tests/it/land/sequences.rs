//! Random sequences of operations by several actors, against a model of what each may answer and of what must be left.
//!
//! After each sequence:
//! 1. The target has only moved forward, and what a gated land put there is what its gate saw.
//! 2. Every job that was accepted has ended once, and its end was told.
//! 3. Every commit that was ever made is reachable, by itself or as what it was rebased to; no commit landed twice.
//! 4. What nobody committed lies where it was written.

use std::collections::BTreeMap;

use futures_util::future::join_all;
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::long;
use crate::support::{Checkout, Events, Stand, until};

const STANDS: u64 = 6;

/// Numbers that look random and are the same for the same seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % sides
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        let at = self.roll(from.len().max(1) as u64);
        from.get(usize::try_from(at).unwrap())
    }
}

/// What is known of a worktree.
struct Known {
    id: String,
    checkout: Checkout,
    holder: Option<&'static str>,
    /// Asked to land at least once; from then on it may be gone at any moment.
    landing: bool,
    /// Its directory was taken away by `remove`.
    removed: bool,
}

struct Sequence<'a> {
    stand: &'a mut Stand,
    repository: &'a Checkout,
    seed: u64,
    dice: Dice,
    target: String,
    known: Vec<Known>,
    /// The subjects of all commits that were made.
    made: Vec<String>,
    /// Jobs that were accepted, with their worktree.
    accepted: Vec<(String, String)>,
    /// Files that nobody committed.
    loose: Vec<(usize, String)>,
    /// What was done, for whoever reads a failure.
    story: Vec<String>,
}

impl Sequence<'_> {
    fn gate_log(&self) -> std::path::PathBuf {
        self.stand.seal.path().join(format!("gated-{}", self.seed))
    }

    /// Calls a function; the code when it was refused, which must be one of `codes`. A worker that was killed meanwhile
    /// gives no code at all.
    async fn call(&mut self, function_id: &str, request: Value, codes: &[&str]) -> Result<Value, String> {
        let answer = self.stand.client.call(function_id, request.clone()).await;
        let said = match &answer {
            Ok(_) => "ok".to_owned(),
            Err((code, message)) => format!("{code} {message}"),
        };
        self.story.push(format!("{function_id} {request} -> {said}"));
        match answer {
            Ok(answer) => Ok(answer),
            Err((code, message)) => {
                assert!(codes.contains(&code.as_str()), "{code}: {message}\n{:#?}", self.story);
                Err(code)
            }
        }
    }

    async fn create(&mut self) {
        let request = json!({"repo_path": self.repository.text(), "base_ref": self.target});
        let created = self.call("worktree::create", request, &[]).await.unwrap();
        self.known.push(Known {
            id: created["worktree_id"].as_str().unwrap().to_owned(),
            checkout: self.stand.checkout(created["path"].as_str().unwrap()),
            holder: None,
            landing: false,
            removed: false,
        });
    }

    fn commit(&mut self, at: usize) {
        let number = self.made.len();
        // A file that others write too makes conflicts.
        let file = if self.dice.roll(4) == 0 { "common".to_owned() } else { format!("file-{}-{number}", self.seed) };
        let subject = format!("Commit {}-{number}", self.seed);
        let checkout = &self.known[at].checkout;
        // The directory may go away under this hand: then nothing was committed.
        if std::fs::write(checkout.path().join(&file), format!("{subject}\n")).is_err() {
            return;
        }
        // Git goes there by itself: a process cannot be started in a directory that is gone.
        let place = checkout.path().to_str().unwrap();
        let git = |arguments: &[&str]| self.repository.try_git(&[&["-C", place], arguments].concat()).status.success();
        if git(&["add", "--", &file]) && git(&["commit", "--quiet", "--message", &subject, "--", &file]) {
            self.story.push(format!("commit `{subject}` in {}", self.known[at].id));
            self.made.push(subject);
        }
    }

    async fn land(&mut self, at: usize) {
        let gate = match self.dice.roll(4) {
            0 => Value::Null,
            1 => json!("exit 1"),
            _ => json!(format!("git rev-parse HEAD >> {}", self.gate_log().display())),
        };
        let keep = self.dice.roll(4) == 0;
        let id = self.known[at].id.clone();
        let request = json!({"worktree_id": id, "target_branch": self.target, "test_cmd": gate, "keep": keep});
        let codes = ["W401", "W402", "W200", "W201"];
        let live = self.known[at].landing || self.known[at].removed;
        let codes = if live { &codes[..] } else { &codes[1..2] };
        if let Ok(queued) = self.call("worktree::land", request, codes).await {
            self.accepted.push((id, queued["job_id"].as_str().unwrap().to_owned()));
            self.known[at].landing = true;
        }
    }

    async fn claim(&mut self, at: usize) {
        let session = *self.dice.pick(&["ada", "ben"]).unwrap();
        let holder = self.known[at].holder;
        let id = self.known[at].id.clone();
        let mut codes = vec!["W200", "W201"];
        if holder.is_some_and(|holder| holder != session) {
            codes.push("W210");
        }
        let answer = self.call("worktree::claim", json!({"worktree_id": id, "session_id": session}), &codes).await;
        if answer.is_ok() {
            assert!(holder.is_none_or(|holder| holder == session), "two hold {id}: {:#?}", self.story);
            self.known[at].holder = Some(session);
        }
    }

    async fn release(&mut self, at: usize) {
        let Some(holder) = self.known[at].holder else { return };
        let id = self.known[at].id.clone();
        let request = json!({"worktree_id": id, "session_id": holder});
        if self.call("worktree::release", request, &["W200", "W201"]).await.is_ok() {
            self.known[at].holder = None;
        }
    }

    async fn remove(&mut self, at: usize) {
        let id = self.known[at].id.clone();
        let codes = ["W401", "W220", "W221", "W200", "W202"];
        if self.call("worktree::remove", json!({"worktree_id": id}), &codes).await.is_ok() {
            assert!(!self.loose.iter().any(|(of, _)| *of == at), "work of {id} was removed: {:#?}", self.story);
            self.known[at].removed = true;
        }
    }

    fn litter(&mut self, at: usize) {
        let file = format!("loose-{}", self.story.len());
        let path = self.known[at].checkout.path().join(&file);
        if path.parent().unwrap().exists() && std::fs::write(&path, "not committed\n").is_ok() && path.exists() {
            self.story.push(format!("{} is written", path.display()));
            self.loose.push((at, file));
        }
    }

    fn move_target(&mut self) {
        let name = format!("refs/heads/{}", self.target);
        let old = self.repository.sha(&name);
        let subject = format!("By hand {}-{}", self.seed, self.made.len());
        let new = self.repository.git(&["commit-tree", "-p", &old, "-m", &subject, &format!("{old}^{{tree}}")]);
        if self.repository.try_git(&["update-ref", "--create-reflog", &name, &new, &old]).status.success() {
            self.story.push(format!("the target moves to {new}"));
            self.made.push(subject);
        }
    }

    async fn crash(&mut self) {
        self.story.push("crash".to_owned());
        self.stand.signal(Signal::SIGKILL);
        self.stand.restart().await;
    }

    async fn play(&mut self) {
        self.repository.git(&["branch", &self.target, "main"]);
        self.create().await;
        let steps = 4 + self.dice.roll(if long() { 30 } else { 4 });
        // One sequence in six has a crash in it.
        let crash_at = if self.seed.is_multiple_of(6) { Some(2 + self.dice.roll(steps - 2)) } else { None };
        for step in 0..steps {
            if crash_at == Some(step) {
                self.crash().await;
            }
            let at = usize::try_from(self.dice.roll(self.known.len() as u64)).unwrap();
            match self.dice.roll(20) {
                0 | 1 if self.known.len() < 4 => self.create().await,
                2..=7 => self.commit(at),
                8..=11 => self.land(at).await,
                12 | 13 => self.claim(at).await,
                14 => self.release(at).await,
                15 => self.remove(at).await,
                16 => self.litter(at),
                17 => drop(self.repository.git(&["pack-refs", "--all"])),
                _ => self.move_target(),
            }
        }
    }

    /// Waits until every accepted job has ended and checks the four invariants.
    async fn check(&mut self, events: &mut Events) {
        let story = || format!("seed {}: {:#?}\n{}", self.seed, self.story, self.stand.log());
        let mut ended: BTreeMap<&str, Value> = BTreeMap::new();
        let mut heard: Vec<Value> = Vec::new();
        for (id, job_id) in &self.accepted {
            let key = json!({"scope": "worktree_land_job", "key": job_id});
            let job = until("the end of a job", || async {
                let job = self.stand.client.call("state::get", key.clone()).await.ok()?;
                (job["done"] == true && job["untold"] != true).then_some(job)
            })
            .await;
            let landed = job["blocked_code"].is_null();
            assert_eq!(landed, job["merged_sha"].is_string() && job["phase"] == "done", "{job:#}\n{}", story());
            let kind = if landed { "worktree::landed" } else { "worktree::land-blocked" };
            let mut told = events.next(kind, id).await;
            // An event whose job is killed before that is recorded comes again, with a time of its own.
            while told["code"].as_str() != job["blocked_code"].as_str() && said_before(&heard, &told) {
                told = events.next(kind, id).await;
            }
            assert_eq!(told["code"].as_str(), job["blocked_code"].as_str(), "{told:#} {job:#}\n{}", story());
            heard.push(told);
            ended.insert(job_id, job);
        }

        let name = format!("refs/heads/{}", self.target);
        let moves = self.repository.git(&["log", "-g", "--format=%H %gs", &name, "--"]);
        let moves: Vec<(&str, &str)> = moves.lines().filter_map(|line| line.split_once(' ')).collect();
        for pair in moves.windows(2) {
            let forward = self.repository.try_git(&["merge-base", "--is-ancestor", pair[1].0, pair[0].0]);
            assert!(forward.status.success(), "{pair:?}\n{}", story());
        }
        let gated = std::fs::read_to_string(self.gate_log()).unwrap_or_default();
        for (job_id, job) in ended.iter().filter(|(_, job)| job["test_cmd"].is_string()) {
            for (put, _) in moves.iter().filter(|(_, why)| why.contains(job_id)) {
                assert_eq!(job["merged_sha"], *put, "{job:#}\n{}", story());
                assert!(gated.lines().any(|line| line == *put), "{put} was not gated\n{}", story());
            }
        }

        let everywhere = self.repository.git(&["log", "--all", "--format=%s"]);
        let landed = self.repository.git(&["log", &name, "--format=%s"]);
        for subject in &self.made {
            assert!(everywhere.lines().any(|line| line == subject), "`{subject}` is lost\n{}", story());
            assert!(landed.lines().filter(|line| line == subject).count() <= 1, "`{subject}` twice\n{}", story());
        }
        for (at, file) in &self.loose {
            let path = self.known[*at].checkout.path().join(file);
            assert!(path.exists(), "{} is lost\n{}", path.display(), story());
        }
    }
}

/// How many sequences share a repository; git slows down with the worktrees that they leave.
const PER_REPOSITORY: u64 = 12;

async fn play_share(first: u64, count: u64) {
    let mut stand = Stand::apart().await;
    let mut repository = stand.repository("shop");
    let mut events = stand.hear().await;
    for number in 0..count {
        if number > 0 && number.is_multiple_of(PER_REPOSITORY) {
            repository = stand.repository(&format!("shop-{number}"));
        }
        let seed = first + number * STANDS;
        let mut sequence = Sequence {
            stand: &mut stand,
            repository: &repository,
            seed,
            dice: Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1),
            target: format!("trunk-{seed}"),
            known: Vec::new(),
            made: Vec::new(),
            accepted: Vec::new(),
            loose: Vec::new(),
            story: Vec::new(),
        };
        sequence.play().await;
        sequence.check(&mut events).await;
    }
}

/// Six stands in three tests, 84 sequences each; with `WORKTREE_PROOF=long` ten times as many, and longer ones.
async fn play_on_two_stands(first: u64) {
    let each = if long() { 840 } else { 84 };
    let shares = [first, first + 1].map(|stand| tokio::spawn(play_share(stand, each)));
    for share in join_all(shares).await {
        share.unwrap();
    }
}

/// Whether an event says the same as one that was heard before.
fn said_before(heard: &[Value], event: &Value) -> bool {
    let timeless = |event: &Value| {
        let mut event = event.clone();
        event.as_object_mut().unwrap().remove("timestamp");
        event
    };
    heard.iter().any(|other| timeless(other) == timeless(event))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sequences_of_several_actors_lose_nothing_first_third() {
    play_on_two_stands(1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sequences_of_several_actors_lose_nothing_second_third() {
    play_on_two_stands(3).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sequences_of_several_actors_lose_nothing_last_third() {
    play_on_two_stands(5).await;
}
