//! Landing branches.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::ensure;
use serde_json::json;

use super::create::settled;
use crate::measure::{Bench, Samples, timed};
use crate::place::Place;
use crate::stand::{Lands, Stand};

/// Commits of each branch.
const COMMITS: usize = 3;

/// The rows of this subject.
pub async fn rows(bench: &mut Bench) -> anyhow::Result<()> {
    if bench.wants("land-one") {
        one(bench).await?;
    }
    if bench.wants("land-many") {
        let size = bench.size;
        let (stand, repository) = prepared(bench, "land-many").await?;
        let mut lands = stand.client.lands().await?;
        let mut samples = Samples::default();
        let (floor, ours) = queued(bench, &stand, &repository, &mut lands, size.lands).await?;
        samples.floor.push(floor);
        samples.ours.push(ours);
        let work = format!("{} lands of {COMMITS} commits, queued at once on L", size.lands);
        bench.row(&work, "the same merge-tree, commit-tree, update-ref", 2.0, &samples);
    }
    Ok(())
}

/// A large repository whose `main` is not checked out.
pub async fn prepared(bench: &Bench, name: &str) -> anyhow::Result<(Stand, std::path::PathBuf)> {
    let repository = bench.place.repository(name, bench.size.large_files, bench.size.large_commits)?;
    bench.place.git(&repository, &["checkout", "-q", "--detach"])?;
    let stand = Stand::dev(&bench.place, &format!("{name}-stand"), json!({})).await?;
    Ok((stand, repository))
}

/// Makes `branch` of `COMMITS` commits on the tip of `onto`, without a checkout.
fn branch(place: &Place, repository: &Path, branch: &str, onto: &str) -> anyhow::Result<()> {
    let mut parent = place.git(repository, &["rev-parse", onto])?;
    let mut tree = place.git(repository, &["rev-parse", &format!("{onto}^{{tree}}")])?;
    for number in 0..COMMITS {
        let blob = format!("{branch}-{number}");
        let file = place.path("blob");
        std::fs::write(&file, &blob)?;
        let sha = place.git(repository, &["hash-object", "-w", &file.to_string_lossy()])?;
        let listed = place.git(repository, &["ls-tree", &tree])?;
        let listing = format!("{listed}\n100644 blob {sha}\t{branch}-{number}.txt\n");
        tree = place.feed(repository, &["mktree"], &listing)?;
        parent = place.git(repository, &["commit-tree", &tree, "-p", &parent, "-m", &blob])?;
    }
    place.git(repository, &["update-ref", &format!("refs/heads/{branch}"), &parent])?;
    Ok(())
}

/// The floor: what any tool must have git do to put `branch` on `target` in memory.
fn floor(place: &Place, repository: &Path, branch: &str, target: &str) -> anyhow::Result<Duration> {
    let name = format!("refs/heads/{target}");
    let start = Instant::now();
    let old = place.git(repository, &["rev-parse", &name])?;
    let commits = place.git(repository, &["rev-list", "--reverse", &format!("{target}..{branch}")])?;
    let mut onto = old.clone();
    for commit in commits.lines() {
        let base = format!("--merge-base={commit}^");
        let tree = place.git(repository, &["merge-tree", "--write-tree", &base, &onto, commit])?;
        onto = place.git(repository, &["commit-tree", &tree, "-p", &onto, "-m", "landed"])?;
    }
    place.git(repository, &["update-ref", &name, &onto, &old])?;
    let time = start.elapsed();
    ensure!(onto != old, "nothing was landed");
    Ok(time)
}

async fn one(bench: &mut Bench) -> anyhow::Result<()> {
    let (stand, repository) = prepared(bench, "land-one").await?;
    let mut lands = stand.client.lands().await?;
    let (mut samples, mut response) = (Samples::default(), Samples::default());
    stand.client.register("bench::nothing", |_| json!(null)).await?;
    for round in 0..bench.size.rounds {
        let start = bench.place.git(&repository, &["rev-parse", "main"])?;
        let (id, path) = stand.create(&repository).await?;
        bench.place.commit(path.as_ref(), &format!("ours-{round}"), COMMITS)?;
        let other = format!("floor-{round}");
        branch(&bench.place, &repository, &other, &start)?;
        // Both land on a main that has moved since they began.
        moved(&bench.place, &repository, &format!("moved-{round}"))?;
        settled().await;
        samples.floor.push(floor(&bench.place, &repository, &other, "main")?);
        let begun = Instant::now();
        let (time, _) =
            timed(stand.client.call("worktree::land", json!({"worktree_id": id, "target_branch": "main"}))).await?;
        lands.landed().await?;
        samples.ours.push(begun.elapsed());
        response.ours.push(time);
        let begun = Instant::now();
        let value = json!({"scope": "bench", "key": "land", "value": {"round": round}});
        stand.client.call("state::set", value).await?;
        stand.client.enqueue("default", "bench::nothing", json!({})).await?;
        response.floor.push(begun.elapsed());
        settled().await;
    }
    let work = format!("land of {COMMITS} commits on L, no gate, to its event");
    bench.row(&work, "the same merge-tree, commit-tree, update-ref", 2.0, &samples);
    bench.row("land, until it answers", "one state::set and one enqueue", 2.0, &response);
    Ok(())
}

/// Puts one commit on `main` without a checkout.
fn moved(place: &Place, repository: &Path, name: &str) -> anyhow::Result<()> {
    branch(place, repository, name, "main")?;
    place.git(repository, &["update-ref", "refs/heads/main", &format!("refs/heads/{name}")])?;
    Ok(())
}

/// The same number of branches by the floor, one after another, and by the product, queued at once.
pub async fn queued(
    bench: &Bench,
    stand: &Stand,
    repository: &Path,
    lands: &mut Lands,
    count: usize,
) -> anyhow::Result<(Duration, Duration)> {
    let start = bench.place.git(repository, &["rev-parse", "main"])?;
    let mut ids = Vec::new();
    for number in 0..count {
        let (id, path) = stand.create(repository).await?;
        bench.place.commit(path.as_ref(), &format!("queued-{id}-{number}"), COMMITS)?;
        branch(&bench.place, repository, &format!("floor-of-{id}"), &start)?;
        ids.push(id);
    }
    moved(&bench.place, repository, &format!("moved-before-{}", ids.first().map_or("", |id| id)))?;
    // Both find the same target, and make it longer by the same commits.
    let target = format!("floor-target-{}", ids.first().map_or("", |id| id));
    bench.place.git(repository, &["branch", &target, "main"])?;
    settled().await;
    let mut spent = Duration::ZERO;
    for id in &ids {
        spent += floor(&bench.place, repository, &format!("floor-of-{id}"), &target)?;
    }
    let begun = Instant::now();
    for id in &ids {
        stand.client.call("worktree::land", json!({"worktree_id": id, "target_branch": "main"})).await?;
    }
    for _ in &ids {
        lands.landed().await?;
    }
    let ours = begun.elapsed();
    settled().await;
    Ok((spent, ours))
}
