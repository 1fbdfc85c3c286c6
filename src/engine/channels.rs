//! Channels: bytes and texts from one client to another, or between a client and an HTTP request.
//!
//! A channel has a writing and a reading end. Each is taken once, by a connection to
//! `/ws/channels/<id>?key=<access key>&dir=<read|write>` or by the engine itself.
//!
//! Invariants
//! 1. A channel holds at most its number of pieces: a writer that is faster than its reader waits.
//! 2. An end that nobody took goes away with the session, or the request, that the channel was made for.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::body::Bytes;
use futures_util::{SinkExt as _, StreamExt as _};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message as Frame;
use uuid::Uuid;

use super::fault::{Answer, Fault};
use super::ident;
use super::state::parse;

/// Pieces a channel holds, unless its maker says otherwise.
const DEFAULT_PIECES: usize = 64;
/// The most pieces a channel holds.
const MAX_PIECES: usize = 1024;
/// Bytes of the largest piece.
const MAX_PIECE_BYTES: usize = 1 << 20;
/// Channels with an end that nobody took yet.
const MAX_CHANNELS: usize = 4096;

/// What goes through a channel at a time.
#[derive(Debug)]
pub(super) enum Piece {
    Text(String),
    Binary(Bytes),
}

struct Channel {
    key: String,
    /// Whose end takes the channel with it.
    owner: Option<Uuid>,
    writer: Option<mpsc::Sender<Piece>>,
    reader: Option<mpsc::Receiver<Piece>>,
}

/// The channels with an end that nobody took yet.
#[derive(Default)]
pub(super) struct Channels {
    table: Mutex<HashMap<String, Channel>>,
}

/// One end of a channel, as a connection names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct End {
    id: String,
    key: String,
    writes: bool,
}

#[derive(Deserialize)]
struct Create {
    #[serde(default)]
    buffer_size: Option<usize>,
}

/// The end of a channel that a client may take, while the engine has the other. Dropped, it can no longer be taken.
pub(super) struct Lent {
    channels: Arc<Channels>,
    id: String,
    /// What the client is told, to take it.
    pub(super) reference: Value,
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.channels.lock().remove(&self.id);
    }
}

impl End {
    /// The end that the path and query of a request name.
    pub(super) fn parse(path: &str, query: &str) -> Option<Self> {
        let id = path.strip_prefix("/ws/channels/").filter(|id| !id.is_empty() && !id.contains('/'))?;
        let value = |name: &str| {
            query.split('&').filter_map(|pair| pair.split_once('=')).find(|(key, _)| *key == name).map(|(_, v)| v)
        };
        let writes = match value("dir")? {
            "write" => true,
            "read" => false,
            _ => return None,
        };
        Some(Self { id: id.to_owned(), key: value("key")?.to_owned(), writes })
    }
}

impl Channels {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Channel>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn make(&self, owner: Option<Uuid>, pieces: usize) -> Result<(String, String), Fault> {
        let (id, key) = (ident::fresh().to_string(), ident::fresh().to_string());
        let (writer, reader) = mpsc::channel(pieces.clamp(1, MAX_PIECES));
        let mut table = self.lock();
        if table.len() >= MAX_CHANNELS {
            return Err(Fault::new(
                "TOO_MANY",
                format!("{MAX_CHANNELS} channels wait to be taken, which is the limit"),
            ));
        }
        let channel = Channel { key: key.clone(), owner, writer: Some(writer), reader: Some(reader) };
        table.insert(id.clone(), channel);
        Ok((id, key))
    }

    /// Runs `engine::channels::create`.
    pub(super) fn create(&self, owner: Option<Uuid>, function_id: &str, data: Value) -> Answer {
        let Create { buffer_size } = parse(function_id, data)?;
        let (id, key) = self.make(owner, buffer_size.unwrap_or(DEFAULT_PIECES))?;
        Ok(Some(json!({"writer": reference(&id, &key, "write"), "reader": reference(&id, &key, "read")})))
    }

    /// A channel that the engine writes and a client may read.
    pub(super) fn lend_reader(self: &Arc<Self>) -> Result<(Lent, mpsc::Sender<Piece>), Fault> {
        let (id, key) = self.make(None, DEFAULT_PIECES)?;
        let taken = self.lock().get_mut(&id).and_then(|channel| channel.writer.take());
        let end = taken.ok_or_else(gone)?;
        Ok((Lent { channels: self.clone(), reference: reference(&id, &key, "read"), id }, end))
    }

    /// A channel that a client may write and the engine reads.
    pub(super) fn lend_writer(self: &Arc<Self>) -> Result<(Lent, mpsc::Receiver<Piece>), Fault> {
        let (id, key) = self.make(None, DEFAULT_PIECES)?;
        let taken = self.lock().get_mut(&id).and_then(|channel| channel.reader.take());
        let end = taken.ok_or_else(gone)?;
        Ok((Lent { channels: self.clone(), reference: reference(&id, &key, "write"), id }, end))
    }

    /// Whether this end can be taken.
    pub(super) fn has(&self, end: &End) -> bool {
        self.lock().get(&end.id).is_some_and(|channel| {
            channel.key == end.key && if end.writes { channel.writer.is_some() } else { channel.reader.is_some() }
        })
    }

    /// Forgets the channels that a session made and nobody took.
    pub(super) fn drop_of(&self, owner: Uuid) {
        self.lock().retain(|_, channel| channel.owner != Some(owner));
    }

    fn take<T>(&self, end: &End, pick: impl Fn(&mut Channel) -> Option<T>) -> Option<T> {
        let mut table = self.lock();
        let channel = table.get_mut(&end.id).filter(|channel| channel.key == end.key)?;
        let taken = pick(channel);
        if channel.writer.is_none() && channel.reader.is_none() {
            table.remove(&end.id);
        }
        taken
    }

    /// Serves a connection that takes an end.
    pub(super) async fn serve(
        &self,
        end: &End,
        socket: WebSocketStream<TcpStream>,
        mut stopping: watch::Receiver<bool>,
    ) {
        let serving = async {
            if end.writes {
                match self.take(end, |channel| channel.writer.take()) {
                    Some(writer) => receive(socket, writer).await,
                    None => tracing::debug!("the writing end of a channel was taken meanwhile"),
                }
            } else {
                match self.take(end, |channel| channel.reader.take()) {
                    Some(reader) => send(socket, reader).await,
                    None => tracing::debug!("the reading end of a channel was taken meanwhile"),
                }
            }
        };
        tokio::select! {
            () = serving => {}
            _ = stopping.wait_for(|stopping| *stopping) => {}
        }
    }
}

/// From the connection into the channel, until either ends.
async fn receive(mut socket: WebSocketStream<TcpStream>, writer: mpsc::Sender<Piece>) {
    loop {
        let frame = tokio::select! {
            frame = socket.next() => frame,
            () = writer.closed() => break,
        };
        let piece = match frame {
            Some(Ok(frame)) if frame.len() > MAX_PIECE_BYTES => {
                tracing::warn!(bytes = frame.len(), "a piece is too large for a channel; the channel is closed");
                break;
            }
            Some(Ok(Frame::Text(text))) => Piece::Text(text.as_str().to_owned()),
            Some(Ok(Frame::Binary(bytes))) => Piece::Binary(bytes),
            Some(Ok(Frame::Ping(_) | Frame::Pong(_) | Frame::Frame(_))) => continue,
            Some(Ok(Frame::Close(_)) | Err(_)) | None => break,
        };
        if writer.send(piece).await.is_err() {
            break;
        }
    }
    close(socket).await;
}

/// From the channel to the connection, until either ends.
async fn send(mut socket: WebSocketStream<TcpStream>, mut reader: mpsc::Receiver<Piece>) {
    loop {
        let piece = tokio::select! {
            piece = reader.recv() => piece,
            frame = socket.next() => match frame {
                Some(Ok(Frame::Close(_)) | Err(_)) | None => break,
                Some(Ok(_)) => continue,
            },
        };
        let frame = match piece {
            Some(Piece::Text(text)) => Frame::text(text),
            Some(Piece::Binary(bytes)) => Frame::Binary(bytes),
            None => break,
        };
        if socket.send(frame).await.is_err() {
            break;
        }
    }
    close(socket).await;
}

async fn close(mut socket: WebSocketStream<TcpStream>) {
    if let Err(error) = socket.close(None).await {
        tracing::debug!(%error, "a channel's connection was gone already");
    }
}

fn reference(id: &str, key: &str, direction: &str) -> Value {
    json!({"channel_id": id, "access_key": key, "direction": direction})
}

fn gone() -> Fault {
    Fault::new("channel_send_failed", "the channel is gone")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_named_by_path_and_query() {
        let end = |writes| Some(End { id: "a-1".into(), key: "k".into(), writes });
        assert_eq!(End::parse("/ws/channels/a-1", "key=k&dir=write"), end(true));
        assert_eq!(End::parse("/ws/channels/a-1", "token=t&key=k&dir=read"), end(false));
        for (path, query) in [("/ws/channels/", "key=k&dir=read"), ("/ws/channels/a/b", "key=k&dir=read"), ("/x", "")] {
            assert_eq!(End::parse(path, query), None);
        }
        assert_eq!(End::parse("/ws/channels/a", "key=k&dir=both"), None);
        assert_eq!(End::parse("/ws/channels/a", "dir=read"), None);
    }
}
