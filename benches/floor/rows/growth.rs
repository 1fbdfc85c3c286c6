//! How costs grow: create and list against the number of worktrees, land against files and against the queue.

use anyhow::Context as _;
use serde_json::json;

use super::create::settled;
use super::{land, look};
use crate::measure::{Bench, Curve, Times, timed};
use crate::stand::Stand;

/// The curves.
pub async fn curves(bench: &mut Bench) -> anyhow::Result<()> {
    if !bench.wants("growth") {
        return Ok(());
    }
    by_worktrees(bench).await?;
    by_files(bench).await?;
    by_queue(bench).await
}

async fn by_worktrees(bench: &mut Bench) -> anyhow::Result<()> {
    let repository = bench.place.repository("growth-worktrees", 50, 20)?;
    let stand = Stand::dev(&bench.place, "growth-worktrees-stand", json!({})).await?;
    let mut create = curve("create", "worktrees of the repository");
    let mut list = curve("list with status", "worktrees of the repository");
    let mut count = 0;
    for step in 1..=5 {
        let wanted = bench.size.many * step / 5;
        look::many(bench, &stand, &repository, wanted - count).await?;
        count = wanted;
        let (mut ours, mut floor, mut listed) = (Times::default(), Times::default(), Times::default());
        for round in 0..bench.size.rounds {
            let (time, (id, _)) = timed(stand.create(&repository)).await?;
            ours.push(time);
            stand.client.call("worktree::remove", json!({"worktree_id": id, "delete_branch": true})).await?;
            let path = bench.place.path("growth-floor");
            let (text, branch) = (path.to_str().context("a plain path")?, format!("floor-{count}-{round}"));
            floor.push(
                bench.place.git_time(&repository, &["worktree", "add", "--lock", "-q", "-b", &branch, text, "main"])?,
            );
            bench.place.git(&repository, &["worktree", "remove", "-f", "-f", text])?;
            let asked = json!({"repo_path": repository, "include_status": true});
            listed.push(timed(stand.client.call("worktree::list", asked)).await?.0);
        }
        create.ours.push((count as f64, ours.median()));
        create.floor.push((count as f64, floor.median()));
        list.ours.push((count as f64, listed.median()));
    }
    bench.curves.extend([create, list]);
    Ok(())
}

async fn by_files(bench: &mut Bench) -> anyhow::Result<()> {
    let mut found = curve("land", "files of the repository");
    let full = bench.size;
    for step in 1..=4 {
        let files = full.large_files * step / 4;
        bench.size.large_files = files;
        let name = format!("growth-files-{step}");
        let (stand, repository) = land::prepared(bench, &name).await?;
        let mut lands = stand.client.lands().await?;
        let (mut floor, mut ours) = (Times::default(), Times::default());
        for _ in 0..full.rounds.min(3) {
            let (spent, took) = land::queued(bench, &stand, &repository, &mut lands, 1).await?;
            floor.push(spent);
            ours.push(took);
        }
        found.floor.push((files as f64, floor.median()));
        found.ours.push((files as f64, ours.median()));
        bench.size = full;
    }
    bench.curves.push(found);
    Ok(())
}

async fn by_queue(bench: &mut Bench) -> anyhow::Result<()> {
    let mut found = curve("all lands of a queue", "lands in the queue");
    let repository = bench.place.repository("growth-queue", 50, 20)?;
    bench.place.git(&repository, &["checkout", "-q", "--detach"])?;
    let stand = Stand::dev(&bench.place, "growth-queue-stand", json!({})).await?;
    let mut lands = stand.client.lands().await?;
    for step in 1..=4 {
        let count = bench.size.lands * step / 4;
        let (spent, took) = land::queued(bench, &stand, &repository, &mut lands, count).await?;
        found.floor.push((count as f64, spent.as_secs_f64() * 1000.0));
        found.ours.push((count as f64, took.as_secs_f64() * 1000.0));
    }
    settled().await;
    bench.curves.push(found);
    Ok(())
}

fn curve(work: &str, over: &str) -> Curve {
    Curve { work: work.to_owned(), over: over.to_owned(), ours: Vec::new(), floor: Vec::new() }
}
