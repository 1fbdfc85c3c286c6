//! Creating worktrees.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use serde_json::json;

use crate::measure::{Bench, Row, Samples, Times, timed};
use crate::place::Place;
use crate::stand::Stand;

/// The rows of this subject.
pub async fn rows(bench: &mut Bench) -> anyhow::Result<()> {
    if bench.wants("create-one") {
        let size = bench.size;
        let large = bench.place.repository("create-large", size.large_files, size.large_commits)?;
        one(bench, &large, "create on L", 0.75, size.rounds).await?;
        let small = bench.place.repository("create-small", 50, 20)?;
        one(bench, &small, "create on S", 1.1, size.rounds * 5).await?;
    }
    if bench.wants("create-many") {
        at_once(bench).await?;
    }
    if bench.wants("create-late") {
        late(bench).await?;
    }
    if bench.wants("create-pool") {
        pooled(bench).await?;
    }
    Ok(())
}

/// Puts a worktree of the floor, and its branch, away.
fn put_away(place: &Place, repository: &Path, path: &Path, branch: &str) -> anyhow::Result<()> {
    place.git(repository, &["worktree", "remove", "-f", "-f", path.to_str().context("a plain path")?])?;
    place.git(repository, &["branch", "-q", "-D", branch])?;
    Ok(())
}

/// A `git worktree add` as an agent would type it.
fn add(place: &Place, repository: &Path, path: &Path, branch: &str, more: &[&str]) -> anyhow::Result<Duration> {
    let mut arguments = vec!["worktree", "add", "--lock", "-q", "-b", branch];
    arguments.extend(more);
    arguments.extend([path.to_str().context("a plain path")?, "main"]);
    place.git_time(repository, &arguments)
}

async fn remove(stand: &Stand, id: &str) -> anyhow::Result<()> {
    stand.client.call("worktree::remove", json!({"worktree_id": id, "delete_branch": true})).await.map(drop)
}

async fn one(bench: &mut Bench, repository: &Path, work: &str, target: f64, rounds: usize) -> anyhow::Result<()> {
    let stand = Stand::dev(&bench.place, "create-one", json!({})).await?;
    let mut samples = Samples::default();
    for round in 0..rounds {
        let (path, branch) = (bench.place.path("floor-tree"), format!("floor-{round}"));
        samples.floor.push(add(&bench.place, repository, &path, &branch, &[])?);
        put_away(&bench.place, repository, &path, &branch)?;
        let (time, (id, _)) = timed(stand.create(repository)).await?;
        samples.ours.push(time);
        remove(&stand, &id).await?;
        settled().await;
    }
    bench.row(work, "git worktree add --lock", target, &samples);
    Ok(())
}

/// Lets what goes on behind an answer (trash being emptied, an index being refreshed) come to an end.
pub async fn settled() {
    tokio::time::sleep(Duration::from_millis(1500)).await;
}

async fn at_once(bench: &mut Bench) -> anyhow::Result<()> {
    let size = bench.size;
    let repository = bench.place.repository("create-many", size.large_files, size.large_commits)?;
    let stand = Stand::dev(&bench.place, "create-at-once", json!({})).await?;
    let mut samples = Samples::default();
    for round in 0..size.rounds.min(2) {
        let paths: Vec<(PathBuf, String)> = (0..size.at_once)
            .map(|n| (bench.place.path(&format!("floor-many-{n}")), format!("floor-{round}-{n}")))
            .collect();
        let start = Instant::now();
        for (path, branch) in &paths {
            add(&bench.place, &repository, path, branch, &[])?;
        }
        samples.floor.push(start.elapsed());
        for (path, branch) in &paths {
            put_away(&bench.place, &repository, path, branch)?;
        }
        let start = Instant::now();
        let mut creating = tokio::task::JoinSet::new();
        for _ in 0..size.at_once {
            let (client, repository) = (stand.client.clone(), repository.clone());
            creating.spawn(async move { client.call("worktree::create", json!({"repo_path": repository})).await });
        }
        let mut made = Vec::new();
        while let Some(created) = creating.join_next().await {
            made.push(created??);
        }
        samples.ours.push(start.elapsed());
        for created in made {
            remove(&stand, created["worktree_id"].as_str().context("no id")?).await?;
        }
        settled().await;
    }
    let work = format!("{} creates on L at once", size.at_once);
    bench.row(&work, "the same git worktree adds one after another", 0.6, &samples);
    Ok(())
}

/// A create beside many worktrees, on a repository whose checkout costs nothing.
async fn late(bench: &mut Bench) -> anyhow::Result<()> {
    let size = bench.size;
    let repository = bench.place.repository("create-late", 1, 1)?;
    let stand = Stand::dev(&bench.place, "create-late-stand", json!({})).await?;
    for _ in 0..size.crowd {
        stand.create(&repository).await?;
    }
    settled().await;
    let mut samples = Samples::default();
    for round in 0..size.rounds * 3 {
        let (path, branch) = (bench.place.path("floor-late"), format!("floor-{round}"));
        samples.floor.push(add(&bench.place, &repository, &path, &branch, &["--no-checkout"])?);
        put_away(&bench.place, &repository, &path, &branch)?;
        let (time, (id, _)) = timed(stand.create(&repository)).await?;
        samples.ours.push(time);
        remove(&stand, &id).await?;
        settled().await;
    }
    let work = format!("create number {} of a repository with one file", size.crowd + 1);
    bench.row(&work, "git worktree add --no-checkout", 1.2, &samples);
    Ok(())
}

/// A create that is handed a worktree from the pool.
async fn pooled(bench: &mut Bench) -> anyhow::Result<()> {
    let size = bench.size;
    let repository = bench.place.repository("create-pooled", size.large_files, size.large_commits)?;
    let stand = Stand::dev(&bench.place, "create-pooled-stand", json!({"pool": {"size": 2}})).await?;
    // The first tells the pool that there is such a repository.
    stand.create(&repository).await?;
    let mut times = Times::default();
    for _ in 0..size.rounds {
        ready(&repository, 2).await?;
        settled().await;
        let (time, (id, _)) = timed(stand.create(&repository)).await?;
        times.push(time);
        remove(&stand, &id).await?;
    }
    let (ours, rounds) = (times.median(), size.rounds);
    bench.keep(Row {
        work: "create from the pool on L".to_owned(),
        floor: "30 ms".to_owned(),
        ours,
        floor_value: 30.0,
        ratio: ours / 30.0,
        target: 1.0,
        unit: "ms",
        rounds,
    });
    Ok(())
}

/// Waits until this many worktrees have their files and wait in the pool: their entries have a detached `HEAD`.
async fn ready(repository: &Path, count: usize) -> anyhow::Result<()> {
    for _ in 0..600 {
        let entries = std::fs::read_dir(repository.join(".git/worktrees"))?;
        let waits = |dir: &Path| {
            let head = std::fs::read_to_string(dir.join("HEAD")).unwrap_or_default();
            dir.join("index").exists() && !head.starts_with("ref:")
        };
        let found = entries.filter(|entry| entry.as_ref().is_ok_and(|entry| waits(&entry.path()))).count();
        if found >= count {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    anyhow::bail!("the pool does not fill")
}
