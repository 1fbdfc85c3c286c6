//! An engine that sets no `TCP_NODELAY` and does not advertise it, as those before 0.24 did: what a call costs there that
//! calls back before it answers, Nagle's algorithm against the delayed acknowledgement makes twenty times as slow.

use anyhow::Context as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

const HEADER: &[u8] = b"x-iii-capabilities:";

/// Stands between an engine and whoever connects; returns where to connect.
pub async fn without_nodelay(engine: &str) -> anyhow::Result<String> {
    let engine = engine.strip_prefix("ws://").context("ws://")?.to_owned();
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((near, _)) = listener.accept().await {
            let engine = engine.clone();
            // One that cannot be made is tried again by whoever wants it.
            tokio::spawn(async move { between(near, &engine).await.ok() });
        }
    });
    Ok(format!("ws://{address}"))
}

async fn between(mut near: TcpStream, engine: &str) -> anyhow::Result<()> {
    let mut far = TcpStream::connect(engine).await?;
    let request = head(&mut near).await?;
    far.write_all(&request).await?;
    let answer = head(&mut far).await?;
    let lines = answer.split_inclusive(|byte| *byte == b'\n');
    let lines = lines.filter(|line| !line.to_ascii_lowercase().starts_with(HEADER));
    near.write_all(&lines.collect::<Vec<_>>().concat()).await?;
    // An end without a goodbye is how the connections of a process end that is ended.
    tokio::io::copy_bidirectional(&mut near, &mut far).await.ok();
    Ok(())
}

/// Reads up to the empty line, and not a byte more.
async fn head(stream: &mut TcpStream) -> anyhow::Result<Vec<u8>> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    Ok(head)
}
