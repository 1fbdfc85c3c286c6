//! Removing worktrees.

use std::time::Instant;

use anyhow::{Context as _, ensure};
use serde_json::json;

use super::create::settled;
use crate::measure::{Bench, Samples, timed};
use crate::stand::Stand;

/// The rows of this subject.
pub async fn rows(bench: &mut Bench) -> anyhow::Result<()> {
    if bench.wants("remove") {
        one(bench).await?;
    }
    if bench.wants("prune") {
        many(bench).await?;
    }
    Ok(())
}

async fn one(bench: &mut Bench) -> anyhow::Result<()> {
    let size = bench.size;
    let repository = bench.place.repository("remove-large", size.large_files, size.large_commits)?;
    let stand = Stand::dev(&bench.place, "remove", json!({})).await?;
    let mut samples = Samples::default();
    for round in 0..size.rounds {
        let path = bench.place.path("floor-removed");
        let text = path.to_str().context("a plain path")?;
        let branch = format!("floor-{round}");
        bench.place.git(&repository, &["worktree", "add", "-q", "-b", &branch, text, "main"])?;
        samples.floor.push(bench.place.git_time(&repository, &["worktree", "remove", "--force", text])?);
        let (id, _) = stand.create(&repository).await?;
        settled().await;
        samples.ours.push(timed(stand.client.call("worktree::remove", json!({"worktree_id": id}))).await?.0);
        settled().await;
    }
    bench.row("remove on L, until it answers", "git worktree remove --force", 0.1, &samples);
    Ok(())
}

/// A third of the worktrees is prunable: merged, and older than the least age.
async fn many(bench: &mut Bench) -> anyhow::Result<()> {
    let size = bench.size;
    let (all, prunable) = (size.many, size.many / 3);
    let repository = bench.place.repository("prune-small", 50, 20)?;
    let keys = json!({"prune_expire_hours": 0});
    let stand = Stand::dev(&bench.place, "prune", keys).await?;
    let mut samples = Samples::default();
    let mut spent = std::time::Duration::ZERO;
    for number in 0..prunable {
        let path = bench.place.path("floor-pruned");
        let text = path.to_str().context("a plain path")?;
        let branch = format!("floor-{number}");
        bench.place.git(&repository, &["worktree", "add", "-q", "-b", &branch, text, "main"])?;
        spent += bench.place.git_time(&repository, &["worktree", "remove", "--force", text])?;
    }
    samples.floor.push(spent);
    for number in 0..all {
        let (_, path) = stand.create(&repository).await?;
        if number >= prunable {
            bench.place.commit(path.as_ref(), &format!("work-{number}"), 1)?;
        }
    }
    settled().await;
    let begun = Instant::now();
    let pruned = stand.client.call("worktree::prune", json!({})).await?;
    samples.ours.push(begun.elapsed());
    let removed = pruned["pruned"].as_array().map_or(0, Vec::len);
    ensure!(removed == prunable, "{removed} of {prunable} were pruned: {pruned}");
    settled().await;
    let work = format!("prune of {prunable} prunable of {all}");
    bench.row(&work, &format!("git worktree remove --force of {prunable}"), 0.1, &samples);
    Ok(())
}
