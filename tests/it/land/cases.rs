//! Lands of every kind, played on a stand whose worker can be disturbed, and what they leave behind.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::support::stand::Worktree;
use crate::support::{Checkout, Events, Seal, Stand, until};

/// What lands, and how it is to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Case {
    /// Rebased, gated, landed on a branch that nobody has checked out.
    Clean,
    /// The rebase meets a conflict.
    Conflict,
    /// The gate says no.
    GateFails,
    /// The target moves while the gate runs for the first time.
    TargetMoves,
    /// The target is checked out, with a file beside it that is in nobody's way.
    CheckedOut,
    /// The worktree stays.
    Keep,
    /// The range holds a merge, so that git itself rebases, in the worktree.
    ByGit,
    /// There is no gate, so that nothing needs the files of the worktree.
    Ungated,
    /// There is no gate, and the worktree holds a change that git was told not to look at, which keeps it.
    UngatedKept,
}

/// All of them.
pub const CASES: [Case; 9] = [
    Case::Clean,
    Case::Conflict,
    Case::GateFails,
    Case::TargetMoves,
    Case::CheckedOut,
    Case::Keep,
    Case::ByGit,
    Case::Ungated,
    Case::UngatedKept,
];

/// A stand whose worker reads its faults from a directory.
pub struct Stage {
    pub stand: Stand,
    events: Events,
    faults: PathBuf,
    plays: u32,
    /// Whether a checkout may refuse to follow the target, which then goes back to where it was.
    pub may_take_back: bool,
}

/// What is left after a land. Equal for every disturbance of one case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// Every ref with the tree and the subject of its commit.
    pub refs: String,
    /// What the target holds, by subject.
    pub target: String,
    /// The record, or the code of the refusal.
    pub record: String,
    /// How the job ended.
    pub job: String,
    /// Which kind of event told it.
    pub event: &'static str,
    /// What lies about: worktree, admin entries, trash, mark of the live job, state of both checkouts.
    pub left: String,
}

/// One play.
pub struct Play {
    repository: Checkout,
    worktree: Worktree,
    target: &'static str,
    request: Value,
    /// What must not be lost: every commit that was there before.
    before: Vec<String>,
}

/// Those of a play among all jobs, oldest first.
fn jobs_in(all: &Value, play: &Play) -> Vec<Value> {
    let all = all.as_array().unwrap().iter();
    let mut jobs: Vec<Value> = all.filter(|job| job["worktree_id"] == play.worktree.id).cloned().collect();
    jobs.sort_by_key(|job| job["created_at"].as_i64());
    jobs
}

impl Play {
    pub fn repository(&self) -> &Checkout {
        &self.repository
    }

    pub fn worktree(&self) -> &Worktree {
        &self.worktree
    }
}

const DATES: &str = "GIT_AUTHOR_DATE=2026-01-02T03:04:05Z GIT_COMMITTER_DATE=2026-01-02T03:04:05Z";

impl Stage {
    pub async fn new() -> Self {
        let seal = Seal::new();
        let faults = seal.path().join("faults");
        std::fs::create_dir(&faults).unwrap();
        let directory = faults.to_str().unwrap().to_owned();
        let stand = Stand::apart_in(seal, json!({}), &[("WORKTREE_FAULT", &directory)]).await;
        let events = stand.hear().await;
        Self { stand, events, faults, plays: 0, may_take_back: false }
    }

    /// Plays a case without disturbing it; also returns the points that it passed.
    pub async fn undisturbed(&mut self, case: Case) -> (Outcome, Vec<String>) {
        let play = self.prepare(case).await;
        self.plan("trace");
        self.ask(&play).await.unwrap();
        let outcome = self.outcome(&play).await;
        (outcome, self.unplan())
    }

    pub async fn prepare(&mut self, case: Case) -> Play {
        self.plays += 1;
        let repository = self.stand.repository(&format!("shop-{}", self.plays));
        let target = if case == Case::CheckedOut { "main" } else { "trunk" };
        if target == "trunk" {
            repository.git(&["branch", "trunk"]);
        }
        let worktree = self.stand.create_with(&repository, json!({"branch": "work", "base_ref": target})).await;
        worktree.checkout.commit("apples", "3\n");
        if case == Case::ByGit {
            worktree.checkout.git(&["checkout", "--quiet", "-b", "side", "HEAD~1"]);
            worktree.checkout.commit("plums", "2\n");
            worktree.checkout.git(&["checkout", "--quiet", "work"]);
            worktree.checkout.git(&["merge", "--quiet", "--no-ff", "--message", "Merge side", "side"]);
        }
        // The target goes its own way meanwhile.
        let file = if case == Case::Conflict { "apples" } else { "pears" };
        if target == "trunk" {
            repository.git(&["checkout", "--quiet", "trunk"]);
        }
        repository.commit(file, "other\n");
        if target == "trunk" {
            repository.git(&["checkout", "--quiet", "main"]);
        }
        repository.write("notes", "mine\n");
        let mut request = json!({"worktree_id": worktree.id, "target_branch": target, "test_cmd": "true"});
        match case {
            Case::GateFails => request["test_cmd"] = json!("echo no; exit 3"),
            Case::Keep => request["keep"] = json!(true),
            Case::TargetMoves => request["test_cmd"] = json!(self.moving_gate(&repository)),
            Case::Ungated => request["test_cmd"] = Value::Null,
            Case::UngatedKept => {
                request["test_cmd"] = Value::Null;
                worktree.checkout.git(&["update-index", "--assume-unchanged", "apples"]);
                worktree.checkout.write("apples", "mine\n");
            }
            Case::Clean | Case::Conflict | Case::CheckedOut | Case::ByGit => {}
        }
        let commits = repository.git(&["rev-list", "--all"]);
        let before = commits.lines().map(str::to_owned).collect();
        Play { repository, worktree, target, request, before }
    }

    /// A gate that moves the target when it runs for the first time.
    fn moving_gate(&self, repository: &Checkout) -> String {
        let moved = self.stand.seal.path().join(format!("moved-{}", self.plays));
        let moved = moved.display();
        let commit = repository.words("commit-tree -p trunk -m 'Move on' 'trunk^{tree}'");
        let update = repository.words(&format!("update-ref refs/heads/trunk $({DATES} {commit})"));
        format!("[ -e {moved} ] || {{ {DATES} {update} && touch {moved}; }}")
    }

    pub fn plan(&self, text: &str) {
        let draft = self.faults.join("draft");
        std::fs::write(&draft, format!("{text} # {}\n", self.plays)).unwrap();
        std::fs::rename(draft, self.faults.join("plan")).unwrap();
    }

    /// Whether a plan holds.
    pub fn is_planned(&self) -> bool {
        self.faults.join("plan").exists()
    }

    /// Ends the plan and returns the points that were passed under it.
    pub fn unplan(&self) -> Vec<String> {
        std::fs::remove_file(self.faults.join("plan")).unwrap();
        let trace = self.faults.join("trace");
        let text = std::fs::read_to_string(&trace).unwrap_or_default();
        if trace.exists() {
            std::fs::remove_file(trace).unwrap();
        }
        text.lines().map(str::to_owned).collect()
    }

    /// Asks for the land.
    pub async fn ask(&self, play: &Play) -> Result<Value, (String, String)> {
        self.stand.client.call("worktree::land", play.request.clone()).await
    }

    /// Asks for the land while the worker is to be killed at a planned point, and brings it back. Whoever got no answer
    /// asks again. False when the land ended before it came to that point.
    pub async fn ask_and_be_killed(&mut self, play: &Play) -> bool {
        let answer = self.ask(play).await;
        let killed = until("the planned end of the worker, or that of the land", || async {
            if !self.stand.runs() {
                return Some(true);
            }
            let jobs = self.stand.client.call("state::list", json!({"scope": "worktree_land_job"})).await.ok()?;
            let over = jobs_in(&jobs, play).iter().any(|job| job["done"] == true && job["untold"] != true);
            over.then_some(false)
        })
        .await;
        self.unplan();
        // What goes on after the end of a land passes points as well.
        let alive = !killed && self.stand.client.call("worktree::list", json!({})).await.is_ok();
        if !alive {
            self.stand.restart().await;
        }
        // Without an answer it may have been accepted all the same.
        if answer.is_err() && self.jobs(play).await.is_empty() {
            self.ask(play).await.unwrap_or_else(|(code, message)| panic!("{code}: {message}"));
        }
        killed
    }

    /// The jobs of a play, oldest first.
    pub async fn jobs(&self, play: &Play) -> Vec<Value> {
        let all = self.stand.client.ok("state::list", json!({"scope": "worktree_land_job"})).await;
        jobs_in(&all, play)
    }

    /// The last job, once every job of the play has ended.
    pub async fn ended(&self, play: &Play) -> Value {
        until("the end of the job", || async {
            let jobs = self.jobs(play).await;
            let over = jobs.iter().all(|job| job["done"] == true && job["untold"] != true);
            jobs.into_iter().next_back().filter(|_| over)
        })
        .await
    }

    /// Waits for the end, checks what must hold for every end, and tells what is left.
    pub async fn outcome(&mut self, play: &Play) -> Outcome {
        let job = self.ended(play).await;
        let id = &play.worktree.id;
        let (event, told) = self.events.next_of(&["worktree::landed", "worktree::land-blocked"], id).await;
        assert_eq!(told["code"].as_str(), job["blocked_code"].as_str(), "{told} tells another end than {job}");
        self.check_nothing_is_lost(play, &job);

        let trash = self.stand.seal.path().join("worktrees/.trash");
        until("the end of the trash", || async {
            let entries = std::fs::read_dir(&trash).into_iter().flatten().flatten();
            let ours = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(id.as_str())).count();
            (ours == 0).then_some(())
        })
        .await;
        let record = match self.stand.client.call("worktree::get", json!({"worktree_id": id})).await {
            Ok(record) => {
                let on_target = record["base_sha"] == play.repository.sha(play.target);
                format!("{} on {}, base is the target: {on_target}", record["lifecycle"], record["base_ref"])
            }
            Err((code, _)) => code,
        };
        let mark = self.stand.client.ok("state::get", json!({"scope": "worktree_land_active", "key": id})).await;
        let refs = play.repository.git(&["for-each-ref", "--format=%(refname) %(tree) %(subject)"]);
        let trees = play.repository.worktrees().len();
        let status = play.repository.git(&["status", "--porcelain"]);
        let own = if play.worktree.checkout.path().exists() {
            let rebasing = play.worktree.checkout.git(&["rev-parse", "--git-path", "rebase-merge"]);
            let open = play.worktree.checkout.path().join(rebasing).exists();
            let head = play.worktree.checkout.git(&["log", "-1", "--format=%s %T"]);
            let status = play.worktree.checkout.git(&["status", "--porcelain"]);
            let files = std::fs::read_to_string(play.worktree.checkout.path().join("apples")).unwrap_or_default();
            format!("at {head}: {status:?} {files:?} rebasing: {open}")
        } else {
            "gone".to_owned()
        };
        Outcome {
            refs: refs.replace(id.as_str(), "<id>"),
            target: play.repository.git(&["log", "--format=%s %T", play.target]),
            record,
            job: format!(
                "{} {} {} {} attempts {}",
                job["phase"], job["blocked_code"], job["blocked_reason"], job["kept_reason"], job["cas_attempts"]
            ),
            event,
            left: format!("{trees} trees, mark {mark}, checkout {status:?}, worktree {own}"),
        }
    }

    /// Every commit from before is reachable, unless its branch has landed; the target moved forward only.
    fn check_nothing_is_lost(&self, play: &Play, job: &Value) {
        let everything = play.repository.git(&["rev-list", "--all"]);
        let landed = job["blocked_code"].is_null();
        for commit in &play.before {
            let kept = everything.contains(commit.as_str());
            let of_the_branch = || {
                let subject = play.repository.git(&["log", "-1", "--format=%s", commit]);
                play.repository.git(&["log", "--format=%s", play.target]).lines().any(|line| line == subject)
            };
            let merged = |commit: &str| play.repository.git(&["rev-list", "--no-walk", "--merges", commit]) == commit;
            assert!(
                kept || (landed && (of_the_branch() || merged(commit))),
                "{commit} is lost: {job:#}\n{}",
                self.stand.log()
            );
        }
        let name = format!("refs/heads/{}", play.target);
        let moves = play.repository.git(&["log", "-g", "--format=%H %gs", &name, "--"]);
        let moves: Vec<(&str, &str)> = moves.lines().filter_map(|line| line.split_once(' ')).collect();
        for pair in moves.windows(2) {
            let taken_back = self.may_take_back && pair[0].1.contains("taken back, a checkout did not follow");
            let forward = play.repository.try_git(&["merge-base", "--is-ancestor", pair[1].0, pair[0].0]);
            assert!(taken_back || forward.status.success(), "the target went back: {pair:?}");
        }
        if landed {
            assert_eq!(job["test_passed_sha"], job["merged_sha"], "another commit was gated: {job:#}");
        }
    }
}
