//! What the bus adds, and what the embedded engine costs.

use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_tungstenite::tungstenite::Message;

use super::create::settled;
use crate::measure::{Bench, Samples, Times, timed};
use crate::place::Place;
use crate::stand::{Client, Stand};

/// The rows of this subject.
pub async fn rows(bench: &mut Bench) -> anyhow::Result<()> {
    if bench.wants("bus") {
        let repository = bench.place.repository("bus-one", 1, 1)?;
        let stand = Stand::dev(&bench.place, "bus", json!({})).await?;
        let bare = nothing(&stand).await?;
        memory(bench, &stand, &repository, "").await?;
        crowd(bench, &stand).await?;
        bare.leave();
        drop(stand);
        let stand = Stand::without_nodelay(&bench.place, "bus-nagle").await?;
        let bare = nothing(&stand).await?;
        memory(bench, &stand, &repository, ", engine without tcp-nodelay").await?;
        bare.leave();
    }
    if bench.wants("engine") {
        engine(bench).await?;
    }
    Ok(())
}

/// A worker of its own on the same engine, whose function does nothing.
async fn nothing(stand: &Stand) -> anyhow::Result<Client> {
    let bare = Client::bare_worker(&stand.url).await?;
    bare.register("bench::nothing", |_| json!({"ok": true})).await?;
    Ok(bare)
}

/// Calls that are answered from memory.
async fn memory(bench: &mut Bench, stand: &Stand, repository: &Path, on: &str) -> anyhow::Result<()> {
    let (id, _) = stand.create(repository).await?;
    let claim = json!({"worktree_id": id, "session_id": "s"});
    stand.client.call("worktree::claim", claim.clone()).await?;
    settled().await;
    let calls: [(&str, &str, Value, Option<&str>); 4] = [
        ("validate", "worktree::validate", json!({"path": repository}), None),
        ("claim by its holder", "worktree::claim", claim, None),
        ("list without status", "worktree::list", json!({}), None),
        ("get of an unknown id", "worktree::get", json!({"worktree_id": "wt_000000000000"}), Some("W200")),
    ];
    for (name, function, payload, code) in calls {
        let mut samples = Samples::default();
        for _ in 0..bench.size.calls {
            samples.floor.push(timed(stand.client.call("bench::nothing", json!({}))).await?.0);
            let start = Instant::now();
            match code {
                Some(code) => stand.client.refused(function, payload.clone(), code).await?,
                None => drop(stand.client.call(function, payload.clone()).await?),
            }
            samples.ours.push(start.elapsed());
        }
        bench.row_at(&format!("{name}{on}, p50"), "a function that does nothing", 1.5, &samples, 0.5);
        bench.row_at(&format!("{name}{on}, p99"), "a function that does nothing", 1.5, &samples, 0.99);
    }
    Ok(())
}

/// The cheapest call under twenty clients.
async fn crowd(bench: &mut Bench, stand: &Stand) -> anyhow::Result<()> {
    let mut samples = Samples::default();
    let calls = bench.size.calls / 20;
    for _ in 0..5 {
        samples.floor.extend(by_twenty(&stand.url, calls, "bench::nothing", json!({})).await?);
        samples.ours.extend(by_twenty(&stand.url, calls, "worktree::list", json!({"session_id": "nobody"})).await?);
    }
    bench.row_at("cheapest call, 20 clients, p50", "a function that does nothing", 1.2, &samples, 0.5);
    bench.row_at("cheapest call, 20 clients, p99", "a function that does nothing", 2.0, &samples, 0.99);
    Ok(())
}

async fn by_twenty(url: &str, calls: usize, function: &'static str, payload: Value) -> anyhow::Result<Times> {
    let mut clients = Vec::new();
    for _ in 0..20 {
        clients.push(Client::connect(url).await?);
    }
    let mut running = tokio::task::JoinSet::new();
    for client in clients {
        let payload = payload.clone();
        running.spawn(async move {
            let mut times = Times::default();
            for _ in 0..calls {
                times.push(timed(client.call(function, payload.clone())).await?.0);
            }
            client.leave();
            anyhow::Ok(times)
        });
    }
    let mut all = Times::default();
    while let Some(times) = running.join_next().await {
        all.extend(times??);
    }
    Ok(all)
}

async fn engine(bench: &mut Bench) -> anyhow::Result<()> {
    let disk = Place::on_disk()?;
    let stand = Stand::dev(&disk, "engine", json!({})).await?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let echo = tokio::spawn(async move {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let mut socket = tokio_tungstenite::accept_async(stream).await?;
        while let Some(Ok(message)) = socket.next().await {
            socket.send(message).await?;
        }
        anyhow::Ok(())
    });
    let (mut socket, _) = tokio_tungstenite::connect_async_with_config(format!("ws://{address}"), None, true).await?;
    let (heard, mut delivered) = mpsc::unbounded_channel();
    let heard = Arc::new(heard);
    stand
        .client
        .register("bench::delivered", move |_| {
            // Nobody listens any more at the end.
            json!(heard.send(Instant::now()).is_ok())
        })
        .await?;
    let (mut invoke, mut set, mut enqueue) = (Samples::default(), Samples::default(), Samples::default());
    let mut file = std::fs::File::create(disk.path("synced"))?;
    let frame =
        json!({"type": "invokefunction", "invocation_id": "0", "function_id": "engine::none", "data": {"a": 1}});
    for round in 0..bench.size.calls.min(400) {
        let start = Instant::now();
        socket.send(Message::text(frame.to_string())).await?;
        socket.next().await.context("no echo")??;
        let echoed = start.elapsed();
        invoke.floor.push(echoed);
        invoke.ours.push(timed(stand.client.call("state::get", json!({"scope": "bench", "key": "none"}))).await?.0);

        let start = Instant::now();
        file.write_all(frame.to_string().as_bytes())?;
        file.sync_data()?;
        let synced = start.elapsed();
        set.floor.push(synced + echoed);
        let value = json!({"scope": "bench", "key": format!("k{}", round % 10), "value": {"round": round}});
        set.ours.push(timed(stand.client.call("state::set", value)).await?.0);

        while delivered.try_recv().is_ok() {}
        let start = Instant::now();
        stand.client.enqueue("default", "bench::delivered", json!({})).await?;
        let at = tokio::time::timeout(Duration::from_secs(60), delivered.recv()).await?.context("not delivered")?;
        enqueue.ours.push(at.duration_since(start));
        enqueue.floor.push(synced + echoed);
    }
    socket.close(None).await?;
    // It ends with its peer; how does not matter.
    drop(echo.await?);
    bench.row("engine: a call that it answers itself", "one echo on a WebSocket", 2.0, &invoke);
    bench.row("engine: state::set, durable", "one echo and one fdatasync", 2.0, &set);
    bench.row("engine: enqueue to delivery, durable", "one echo and one fdatasync", 2.0, &enqueue);
    Ok(())
}
