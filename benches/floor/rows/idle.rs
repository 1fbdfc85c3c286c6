//! What a worker costs that has nothing to do.

use std::time::{Duration, Instant};

use anyhow::Context as _;

use crate::measure::{Bench, Row};
use crate::stand::{Client, engine, serve};

/// The rows of this subject.
pub async fn rows(bench: &mut Bench) -> anyhow::Result<()> {
    if !bench.wants("idle") {
        return Ok(());
    }
    let root = bench.place.path("idle");
    let engine = engine(&root).await?;
    let client = Client::connect(&engine.url()).await?;
    let begun = Instant::now();
    let worker = serve(&bench.place, &root, &engine.url())?;
    client.until_served().await?;
    let ready = begun.elapsed();
    tokio::time::sleep(Duration::from_secs(3)).await;
    let before = wake_ups(worker.id())?;
    tokio::time::sleep(Duration::from_secs(bench.size.idle_s)).await;
    let wakes = (wake_ups(worker.id())? - before) as f64 / bench.size.idle_s as f64;
    let row = |work: &str, floor: &str, ours: f64, floor_value: f64, unit: &'static str| Row {
        work: work.to_owned(),
        floor: floor.to_owned(),
        ours,
        floor_value,
        ratio: ours / floor_value,
        target: 1.0,
        unit,
        rounds: 1,
    };
    bench.keep(row("idle worker, resident memory", "25 MB", resident_mb(worker.id())?, 25.0, "MB"));
    bench.keep(row("idle worker, times a thread wakes", "2 a second", wakes, 2.0, "a second"));
    let ms = ready.as_secs_f64() * 1000.0;
    bench.keep(row("from the start of the worker to its first answer", "100 ms", ms, 100.0, "ms"));
    drop(worker);
    client.leave();
    engine.shutdown().await;
    Ok(())
}

/// How often the threads of a process have gone to sleep so far.
fn wake_ups(id: u32) -> anyhow::Result<u64> {
    let mut all = 0;
    for task in std::fs::read_dir(format!("/proc/{id}/task"))? {
        let status = std::fs::read_to_string(task?.path().join("status"))?;
        all += field(&status, "voluntary_ctxt_switches:")?;
    }
    Ok(all)
}

fn resident_mb(id: u32) -> anyhow::Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{id}/status"))?;
    Ok(field(&status, "VmRSS:")? as f64 * 1024.0 / 1e6)
}

fn field(status: &str, name: &str) -> anyhow::Result<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name)).with_context(|| format!("no {name}"))?;
    Ok(line.split_whitespace().next().context("no number")?.parse()?)
}
