//! `worktree demo`: a tour in a temporary directory. Everything it announces it has checked; the first thing that
//! differs ends it with a message and a non-zero exit code.

mod agent;
mod stage;
mod voice;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use self::agent::Agent;
use self::stage::{Stage, prices};
use super::stop::StopSignal;
use super::words::short;
use super::{Exit, output};
use crate::model::clock::{Clock as _, SystemClock};

/// What the help says after the usage.
pub(super) const AFTER_HELP: &str = "\
Two agents land, one meets a conflict and resolves it, one is stopped by the tests of the project. The tour \
has its own repository, engine and worktrees in a temporary directory, checks everything that it \
announces, and leaves nothing behind.

Exit codes:
  0  everything was as announced
  1  something differed; it is named on standard error";

const GATE: &str = "sh check.sh";

/// A worktree and the agent that works in it.
struct Workplace {
    id: String,
    branch: String,
    agent: Agent,
}

pub(super) async fn run() -> anyhow::Result<Exit> {
    let started = SystemClock.now_ms();
    let stop = StopSignal::listen()?;
    let mut stage = Stage::set().await.context("setting the stage")?;
    let toured = tokio::select! {
        toured = tour(&mut stage) => toured,
        () = stop.received() => Err(anyhow::anyhow!("interrupted")),
    };
    let struck = stage.strike().await;
    if let Err(error) = toured.and(struck.context("striking the stage")) {
        output::complain(&format!("worktree demo: {error:#}"));
        return Ok(Exit::Failure);
    }
    let tenths = (SystemClock.now_ms() - started) / 100;
    output::line(&format!("\nAll of it checked, in {}.{} s. Nothing is left behind.", tenths / 10, tenths % 10))?;
    output::line("Next: `worktree dev` runs the same engine and worker for you; `worktree call` talks to them.")?;
    Ok(Exit::Success)
}

async fn tour(stage: &mut Stage) -> anyhow::Result<()> {
    let repository = stage.owner.directory().display().to_string();
    stage.voice.chapter("One repository, one branch `main`, four agents")?;
    stage.voice.say("stage", &format!("repository {repository}"))?;
    stage.voice.say("stage", "embedded engine and worker are up; this tour talks to them through a socket")?;
    let ada = open(stage, "ada").await?;
    let ben = open(stage, "ben").await?;
    let cleo = open(stage, "cleo").await?;
    let dora = open(stage, "dora").await?;

    two_land(stage, &ada, &ben).await?;
    one_conflicts(stage, &cleo).await?;
    one_is_stopped(stage, &dora).await?;
    what_is_left(stage, &dora).await
}

/// Creates a worktree for the agent of this name, claimed by a session of this name.
async fn open(stage: &mut Stage, name: &'static str) -> anyhow::Result<Workplace> {
    let request = json!({"repo_path": stage.owner.directory(), "session_id": name});
    let created = stage.call_ok("worktree::create", request).await?;
    let id = text(&created, "worktree_id")?;
    let branch = text(&created, "branch")?;
    let agent = Agent::new(name, text(&created, "path")?, stage.home());
    stage.voice.say(name, &format!("works in {id} on {branch}"))?;
    stage.wait_for("created", &id).await?;
    let head = agent.git(["symbolic-ref", "--short", "HEAD"]).await?;
    ensure!(head == branch, "the worktree of {name} has {head} checked out, not {branch}");
    Ok(Workplace { id, branch, agent })
}

async fn two_land(stage: &mut Stage, ada: &Workplace, ben: &Workplace) -> anyhow::Result<()> {
    stage.voice.chapter("Two agents land: rebased, tested, fast-forwarded, cleaned up")?;
    ada.agent.write("prices", &prices(5, "9"))?;
    ada.agent.commit("Apples cost more").await?;
    ben.agent.write("hours", "9 to 5\n")?;
    ben.agent.commit("Opening hours").await?;
    for workplace in [ada, ben] {
        queue_land(stage, workplace).await?;
    }
    for workplace in [ada, ben] {
        landed(stage, workplace).await?;
    }
    let merges = stage.owner.git(["rev-list", "--count", "--merges", "main"]).await?;
    let commits = stage.owner.git(["rev-list", "--count", "main"]).await?;
    ensure!((merges.as_str(), commits.as_str()) == ("0", "3"), "main has {commits} commits and {merges} merges");
    let landed = stage.owner.git(["show", "main:prices"]).await?;
    ensure!(landed == prices(5, "9").trim_end(), "the prices on main are not Ada's: {landed}");
    stage.voice.say("stage", "main is a straight line of 3 commits, and the owner's checkout moved along")?;
    let checkout = stage.owner.git(["status", "--porcelain"]).await?;
    ensure!(checkout.is_empty(), "the owner's checkout did not follow: {checkout}");
    Ok(())
}

async fn one_conflicts(stage: &mut Stage, cleo: &Workplace) -> anyhow::Result<()> {
    stage.voice.chapter("One conflicts: the rebase stays open in its worktree, for its owner to resolve")?;
    cleo.agent.write("prices", &prices(2, "9"))?;
    cleo.agent.commit("Apples on sale").await?;
    let before = stage.owner.git(["rev-parse", "main"]).await?;
    queue_land(stage, cleo).await?;
    let blocked = stage.wait_for("land-blocked", &cleo.id).await?;
    ensure!(blocked["code"] == "W410", "expected W410, got {}", blocked["code"]);
    ensure!(blocked["conflict_files"] == json!(["prices"]), "conflicts: {}", blocked["conflict_files"]);
    ensure!(stage.owner.git(["rev-parse", "main"]).await? == before, "main moved although the land was blocked");

    cleo.agent.write("prices", &prices(4, "9"))?;
    cleo.agent.git(["add", "prices"]).await?;
    cleo.agent.git(["rebase", "--continue"]).await?;
    stage.voice.say("cleo", "edits the file, git add, git rebase --continue, and lands again")?;
    queue_land(stage, cleo).await?;
    landed(stage, cleo).await
}

async fn one_is_stopped(stage: &mut Stage, dora: &Workplace) -> anyhow::Result<()> {
    stage.voice.chapter("One is stopped by the project's tests: nothing lands, nothing is lost")?;
    dora.agent.write("prices", &prices(3, "nine"))?;
    dora.agent.commit("Spell the price of quinces").await?;
    let before = stage.owner.git(["rev-parse", "main"]).await?;
    queue_land(stage, dora).await?;
    let blocked = stage.wait_for("land-blocked", &dora.id).await?;
    ensure!(blocked["code"] == "W411", "expected W411, got {}", blocked["code"]);
    ensure!(blocked["exit_code"] == 1, "the gate's exit code was {}", blocked["exit_code"]);
    let tail = blocked["output_tail"].as_str().unwrap_or_default();
    ensure!(tail.contains("quince nine"), "the gate's output did not come along: {tail:?}");
    for line in tail.lines() {
        stage.voice.quote(line)?;
    }
    ensure!(stage.owner.git(["rev-parse", "main"]).await? == before, "main moved although the gate failed");
    let kept = dora.agent.git(["show", &format!("{}:prices", dora.branch)]).await?;
    ensure!(kept.contains("quince nine"), "dora's work is not on her branch: {kept}");
    Ok(())
}

async fn what_is_left(stage: &mut Stage, dora: &Workplace) -> anyhow::Result<()> {
    stage.voice.chapter("What is left")?;
    let listed = stage.call_ok("worktree::list", json!({"repo_path": stage.owner.directory()})).await?;
    let ids: Vec<_> = listed["worktrees"].as_array().into_iter().flatten().map(|one| &one["worktree_id"]).collect();
    ensure!(ids == [&json!(dora.id)], "expected only the worktree of dora, found {ids:?}");
    stage.voice.say("stage", &format!("one worktree, {}, with Dora's commit in it; main is:", dora.id))?;
    for line in stage.owner.git(["log", "--format=%h %<(8)%an %s", "main"]).await?.lines() {
        stage.voice.quote(line)?;
    }
    let refused = stage.call("worktree::remove", json!({"worktree_id": dora.id})).await?;
    let Err((code, message)) = refused else { anyhow::bail!("a worktree with work in it was removed") };
    ensure!(code == "W221", "expected W221, got {code}: {message}");
    stage.voice.say("stage", &format!("worktree::remove says {code}: {message}"))?;
    Ok(())
}

async fn queue_land(stage: &Stage, workplace: &Workplace) -> anyhow::Result<()> {
    let request = json!({"worktree_id": workplace.id, "target_branch": "main", "test_cmd": GATE});
    let queued = stage.call_ok("worktree::land", request).await?;
    ensure!(queued["queued"] == true, "the land was not queued: {queued}");
    stage.voice.say(workplace.agent.name(), &format!("worktree::land → main, gate `{GATE}`"))?;
    Ok(())
}

/// Waits until the branch has landed, and checks that it really has.
async fn landed(stage: &mut Stage, workplace: &Workplace) -> anyhow::Result<()> {
    let event = stage.wait_for("landed", &workplace.id).await?;
    let name = workplace.agent.name();
    let sha = text(&event, "merged_sha")?;
    stage.owner.git(["merge-base", "--is-ancestor", &sha, "main"]).await.context("the landed commit is not on main")?;
    let author = stage.owner.git(["show", "--no-patch", "--format=%an", &sha]).await?;
    ensure!(author == name, "the landed commit is {author}'s, not {name}'s");
    let branches = stage.owner.git(["branch", "--list", &workplace.branch]).await?;
    ensure!(branches.is_empty(), "the branch {} is still there", workplace.branch);
    let place = workplace.agent.directory();
    ensure!(!place.exists(), "the worktree {} is still there", place.display());
    stage.voice.say(name, &format!("is on main as {}; worktree and branch are gone", short(&sha)))?;
    Ok(())
}

fn text(value: &Value, key: &str) -> anyhow::Result<String> {
    value[key].as_str().map(str::to_owned).with_context(|| format!("the answer has no text `{key}`: {value}"))
}
