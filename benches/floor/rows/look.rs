//! Looking at worktrees.

use std::collections::VecDeque;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use serde_json::json;

use super::create::settled;
use crate::measure::{Bench, Samples, timed};
use crate::place::Place;
use crate::stand::Stand;

const STATUS: [&str; 3] = ["status", "--porcelain=v2", "--branch"];

/// The rows of this subject.
pub async fn rows(bench: &mut Bench) -> anyhow::Result<()> {
    if bench.wants("list-status") {
        with_status(bench).await?;
    }
    if bench.wants("list-records") {
        records(bench).await?;
    }
    if bench.wants("status") {
        let size = bench.size;
        let large = bench.place.repository("status-large", size.large_files, size.large_commits)?;
        status(bench, &large, "status of one, on L", size.rounds * 3).await?;
        let small = bench.place.repository("status-small", 50, 20)?;
        status(bench, &small, "status of one, on S", size.rounds * 10).await?;
    }
    Ok(())
}

/// `git status` in each of these directories, this many at once.
fn statuses(place: &Place, dirs: &[String], at_once: usize) -> anyhow::Result<Duration> {
    let start = Instant::now();
    let mut running = VecDeque::new();
    let wait = |child: Option<std::process::Child>| -> anyhow::Result<()> {
        let output = child.context("one runs")?.wait_with_output()?;
        ensure!(output.status.success(), "git status failed");
        Ok(())
    };
    for dir in dirs {
        if running.len() == at_once {
            wait(running.pop_front())?;
        }
        let mut command = place.command("git");
        running.push_back(command.current_dir(dir).args(STATUS).stdout(Stdio::piped()).spawn()?);
    }
    while !running.is_empty() {
        wait(running.pop_front())?;
    }
    Ok(start.elapsed())
}

/// A repository with `count` worktrees, one commit ahead each, a third of them with changes. Returns their paths.
pub async fn many(bench: &Bench, stand: &Stand, repository: &Path, count: usize) -> anyhow::Result<Vec<String>> {
    let mut paths = Vec::new();
    for number in 0..count {
        let (_, path) = stand.create(repository).await?;
        bench.place.commit(path.as_ref(), "work", 1)?;
        if number % 3 == 0 {
            std::fs::write(Path::new(&path).join("work-0.txt"), "changed")?;
            std::fs::write(Path::new(&path).join("new.txt"), "new")?;
        }
        paths.push(path);
    }
    settled().await;
    Ok(paths)
}

async fn with_status(bench: &mut Bench) -> anyhow::Result<()> {
    let size = bench.size;
    let repository = bench.place.repository("list-many", 50, 20)?;
    let stand = Stand::dev(&bench.place, "list-many-stand", json!({})).await?;
    let paths = many(bench, &stand, &repository, size.many).await?;
    drop(stand);
    let cores = std::thread::available_parallelism()?.get();
    let (mut first, mut again) = (Samples::default(), Samples::default());
    for _ in 0..size.rounds {
        // A worker that was just started remembers nothing.
        let stand = Stand::dev(&bench.place, "list-many-stand", json!({})).await?;
        settled().await;
        let floor = statuses(&bench.place, &paths, cores * 2)?;
        let list = || stand.client.call("worktree::list", json!({"repo_path": repository, "include_status": true}));
        let (time, listed) = timed(list()).await?;
        let listed = listed["worktrees"].as_array().context("no list")?;
        ensure!(listed.len() == size.many, "{} of {} are listed", listed.len(), size.many);
        ensure!(listed.iter().all(|info| info["status"]["ahead"] == 1), "a status is missing or wrong");
        first.ours.push(time);
        first.floor.push(floor);
        again.floor.push(statuses(&bench.place, &paths, cores * 2)?);
        again.ours.push(timed(list()).await?.0);
    }
    let floor = format!("git status in each, {} at once", cores * 2);
    bench.row(&format!("list with status of {} worktrees, first call", size.many), &floor, 0.8, &first);
    bench.row("the same again, nothing changed since", &floor, 0.5, &again);
    Ok(())
}

/// A list of records alone, against the bare list of the state store.
async fn records(bench: &mut Bench) -> anyhow::Result<()> {
    let (count, repositories) = bench.size.records;
    let stand = Stand::dev(&bench.place, "records", json!({})).await?;
    let repository = bench.place.repository("records-one", 1, 1)?;
    let (id, _) = stand.create(&repository).await?;
    let listed = stand.client.call("state::list", json!({"scope": "worktree"})).await?;
    let one = listed.as_array().and_then(|all| all.first()).context("no record")?.clone();
    ensure!(one["worktree_id"] == id.as_str(), "another record than expected: {one}");
    for number in 0..count {
        let mut record = one.clone();
        let id = format!("wt_{number:012x}");
        // A directory that exists, as those of worktrees do.
        let path = bench.place.path("records-trees").join(&id);
        std::fs::create_dir_all(&path)?;
        record["worktree_id"] = json!(id);
        record["path"] = json!(path);
        record["branch"] = json!(format!("iii/{id}"));
        record["repo_key"] = json!(bench.place.path(&format!("repository-{}", number % repositories)));
        record["repo_path"] = record["repo_key"].clone();
        stand.client.call("state::set", json!({"scope": "worktree", "key": id, "value": record})).await?;
    }
    drop(stand);
    let stand = Stand::dev(&bench.place, "records", json!({})).await?;
    settled().await;
    let mut samples = Samples::default();
    for _ in 0..bench.size.rounds * 5 {
        let (time, listed) = timed(stand.client.call("state::list", json!({"scope": "worktree"}))).await?;
        ensure!(listed.as_array().is_some_and(|all| all.len() > count), "records are missing");
        samples.floor.push(time);
        let (time, listed) = timed(stand.client.call("worktree::list", json!({}))).await?;
        ensure!(listed["worktrees"].as_array().is_some_and(|all| all.len() > count), "worktrees are missing");
        samples.ours.push(time);
    }
    let work = format!("list of {count} worktrees in {repositories} repositories, no status");
    bench.row(&work, "state::list of their records", 2.0, &samples);
    Ok(())
}

async fn status(bench: &mut Bench, repository: &Path, work: &str, rounds: usize) -> anyhow::Result<()> {
    let stand = Stand::dev(&bench.place, "status", json!({})).await?;
    let (id, path) = stand.create(repository).await?;
    bench.place.commit(path.as_ref(), "work", 1)?;
    std::fs::write(Path::new(&path).join("work-0.txt"), "changed")?;
    settled().await;
    let status = || stand.client.call("worktree::status", json!({"worktree_id": id}));
    // Once each, so that neither pays for the other's caches.
    bench.place.git(path.as_ref(), &STATUS)?;
    status().await?;
    let mut samples = Samples::default();
    for _ in 0..rounds {
        samples.floor.push(bench.place.git_time(path.as_ref(), &STATUS)?);
        let (time, seen) = timed(status()).await?;
        ensure!(seen["unstaged"] == 1 || seen["status"]["unstaged"] == 1, "a wrong status: {seen}");
        samples.ours.push(time);
    }
    bench.row(work, "git status", 1.6, &samples);
    Ok(())
}
