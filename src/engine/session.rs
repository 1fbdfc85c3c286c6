//! Connections: upgrade, reading, writing, the end.
//!
//! Invariants
//! 1. Frames of one connection are handled in the order in which they arrived.
//! 2. What cannot be read as a message is logged and dropped; the connection stays.
//! 3. However a connection ends, the router forgets it.
//! 4. No page of another machine gets a connection, whatever its visitor's browser lets it try.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt as _, StreamExt as _};
use nix::sys::socket::{setsockopt, sockopt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::handshake::server::{ErrorResponse, Request, Response};
use tokio_tungstenite::tungstenite::http::uri::Authority;
use tokio_tungstenite::tungstenite::http::{HeaderValue, StatusCode};
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, WebSocketConfig};
use tokio_tungstenite::tungstenite::{self, Message as Frame};
use tokio_tungstenite::{WebSocketStream, accept_hdr_async_with_config};
use uuid::Uuid;

use super::channels::End;
use super::core::{Core, Held, Wait};
use super::message::Message;
use super::outbox::{self, Drain, Item};

type Socket = WebSocketStream<TcpStream>;

/// First bytes of telemetry frames, which are dropped.
const TELEMETRY: [&[u8]; 3] = [b"OTLP", b"MTRC", b"LOGS"];

/// Bytes are counted in pieces of this size.
const HELD_UNIT: usize = 1024;

/// What a connection is for.
enum Purpose {
    Worker,
    Telemetry,
    Channel(End),
}

/// Accepts connections until the engine stops.
pub(super) async fn accept(core: Arc<Core>, listener: TcpListener) {
    let places = Arc::new(Semaphore::new(core.options.limits.connections));
    let mut stopping = core.stopping.subscribe();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stopping.wait_for(|stopping| *stopping) => return,
        };
        match accepted {
            Ok((stream, peer)) => {
                let place = places.clone().try_acquire_owned().ok();
                tokio::spawn(serve(core.clone(), stream, peer, place));
            }
            Err(error) => {
                // Out of file descriptors, most likely: trying again at once would only spin.
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            }
        }
    }
}

async fn serve(core: Arc<Core>, stream: TcpStream, peer: SocketAddr, place: Option<OwnedSemaphorePermit>) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "TCP_NODELAY could not be set");
    }
    keep_alive(&stream);
    let mut purpose = Purpose::Worker;
    let limit = core.options.limits.connections;
    #[expect(clippy::result_large_err, reason = "the signature is the library's")]
    let upgrade = |request: &Request, mut response: Response| -> Result<Response, ErrorResponse> {
        if place.is_none() {
            return Err(refuse(StatusCode::SERVICE_UNAVAILABLE, format!("the engine has {limit} connections already")));
        }
        if let Some(origin) = foreign_origin(request) {
            return Err(refuse(StatusCode::FORBIDDEN, format!("pages of {origin} may not connect to this engine")));
        }
        purpose = match request.uri().path() {
            "/" => Purpose::Worker,
            "/otel" => Purpose::Telemetry,
            path => match End::parse(path, request.uri().query().unwrap_or_default()) {
                Some(end) if core.channels.has(&end) => Purpose::Channel(end),
                Some(_) => return Err(refuse(StatusCode::NOT_FOUND, "there is no such end of a channel".to_owned())),
                None => return Err(refuse(StatusCode::NOT_FOUND, format!("there is nothing at {path}"))),
            },
        };
        response.headers_mut().insert("x-iii-capabilities", HeaderValue::from_static("tcp-nodelay"));
        Ok(response)
    };
    let message_bytes = core.options.limits.message_bytes;
    let config = WebSocketConfig::default()
        .read_buffer_size(16 << 10)
        .max_message_size(Some(message_bytes))
        .max_frame_size(Some(message_bytes));
    let accepting = accept_hdr_async_with_config(stream, upgrade, Some(config));
    let socket = match timeout(core.options.limits.handshake, accepting).await {
        Ok(Ok(socket)) => socket,
        Ok(Err(error)) => return tracing::debug!(%peer, %error, "not a WebSocket client"),
        Err(_) => return tracing::debug!(%peer, "the upgrade took too long"),
    };
    match purpose {
        Purpose::Worker => work(core, socket, peer).await,
        Purpose::Telemetry => discard(&core, socket).await,
        Purpose::Channel(end) => core.channels.serve(&end, socket, core.stopping.subscribe()).await,
    }
    drop(place);
}

/// Lets the system find out when the peer's machine is gone: iii engines do not ping, and a worker may be busy for
/// as long as it likes.
pub(super) fn keep_alive(stream: &TcpStream) {
    let set = setsockopt(stream, sockopt::KeepAlive, &true);
    #[cfg(target_os = "linux")]
    let set = set
        .and_then(|()| setsockopt(stream, sockopt::TcpKeepIdle, &60))
        .and_then(|()| setsockopt(stream, sockopt::TcpKeepInterval, &20))
        .and_then(|()| setsockopt(stream, sockopt::TcpKeepCount, &3));
    if let Err(error) = set {
        tracing::debug!(%error, "a socket could not be kept alive");
    }
}

/// The origin of a page that is not of this machine. Browsers let any page connect to a local port, and what is
/// served here includes running commands. SDKs send no origin.
fn foreign_origin(request: &Request) -> Option<String> {
    let origin = String::from_utf8_lossy(request.headers().get("origin")?.as_bytes()).into_owned();
    let host = origin.split_once("://").and_then(|(_, rest)| rest.parse::<Authority>().ok());
    let host = host.as_ref().map(Authority::host).unwrap_or_default();
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    let local = host == "localhost" || address.is_ok_and(|address| address.is_loopback());
    (!local).then_some(origin)
}

fn refuse(status: StatusCode, text: String) -> ErrorResponse {
    let mut response = ErrorResponse::new(Some(text));
    *response.status_mut() = status;
    response
}

/// Telemetry is read, so that its sender is happy, and dropped.
async fn discard(core: &Core, mut socket: Socket) {
    let mut stopping = core.stopping.subscribe();
    loop {
        tokio::select! {
            frame = socket.next() => match frame {
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return,
            },
            _ = stopping.wait_for(|stopping| *stopping) => return,
        }
    }
}

async fn work(core: Arc<Core>, socket: Socket, peer: SocketAddr) {
    let (outbox, drain) = outbox::channel(&core.options.limits);
    let (sink, stream) = socket.split();
    let id = core.router.open(peer.ip(), outbox.clone());
    let connected = vec![super::router::Effect::Worker("worker_connected", id)];
    core.after(connected);
    let writer = tokio::spawn(write(sink, drain, outbox.clone()));
    let grace = release_later(core.clone(), id);
    let grace = tokio::spawn(grace);
    read(&core, id, stream, &outbox).await;
    grace.abort();
    let effects = core.router.close(id);
    core.after(effects);
    if let Err(error) = writer.await {
        tracing::error!(%error, "a connection's writer panicked");
    }
}

async fn release_later(core: Arc<Core>, id: Uuid) {
    tokio::time::sleep(core.options.registration_grace).await;
    let effects = core.router.release(id);
    core.after(effects);
}

async fn read(core: &Arc<Core>, id: Uuid, mut stream: SplitStream<Socket>, outbox: &outbox::Outbox) {
    let budget = core.options.limits.held_bytes.div_ceil(HELD_UNIT).clamp(1, Semaphore::MAX_PERMITS);
    let budget = (Arc::new(Semaphore::new(budget)), u32::try_from(budget).unwrap_or(u32::MAX));
    loop {
        let frame = tokio::select! {
            frame = stream.next() => frame,
            () = outbox.ended() => return,
        };
        let held = match &frame {
            Some(Ok(frame @ (Frame::Text(_) | Frame::Binary(_)))) => tokio::select! {
                held = hold(&budget, frame.len()) => held,
                () = outbox.ended() => return,
            },
            _ => None,
        };
        let wait = match frame {
            Some(Ok(Frame::Text(text))) => take(core, id, text.as_bytes(), held),
            Some(Ok(Frame::Binary(bytes))) if TELEMETRY.iter().any(|prefix| bytes.starts_with(prefix)) => None,
            Some(Ok(Frame::Binary(bytes))) => take(core, id, &bytes, held),
            Some(Ok(Frame::Ping(_) | Frame::Pong(_) | Frame::Frame(_))) => None,
            Some(Ok(Frame::Close(_))) | None => return,
            Some(Err(error)) => return tracing::debug!(%id, %error, "a connection broke"),
        };
        match wait {
            None => {}
            Some(Wait::Reader(reader)) => reader.wait_for_room().await,
            Some(Wait::Disk) => core.store.wait_for_room().await,
        }
        // A client that only asks and does not read is not read on either. That harms nobody else, so only a write
        // that stands still ends it.
        outbox.relieved().await;
    }
}

/// Waits until the frame's bytes fit in what the connection may have open. A frame that is larger than all of it
/// goes alone.
async fn hold((budget, all): &(Arc<Semaphore>, u32), bytes: usize) -> Held {
    let units = u32::try_from(bytes.div_ceil(HELD_UNIT)).unwrap_or(u32::MAX).clamp(1, *all);
    // The semaphore is never closed.
    budget.clone().acquire_many_owned(units).await.ok()
}

fn take(core: &Arc<Core>, id: Uuid, bytes: &[u8], held: Held) -> Option<Wait> {
    match Message::read(bytes) {
        Ok(message) => core.handle(id, message, held),
        Err(error) => {
            tracing::warn!(%id, %error, "a frame is not a message; it is dropped");
            None
        }
    }
}

async fn write(mut sink: SplitSink<Socket, Frame>, mut drain: Drain, outbox: outbox::Outbox) {
    let patience = drain.patience() * 3;
    let mut last = None;
    'open: loop {
        let item = tokio::select! {
            item = drain.next() => item,
            () = outbox.ended() => break,
        };
        let Some(mut item) = item else { break };
        // Everything that has gathered goes out with one flush.
        loop {
            match item {
                Item::Close(reason) => {
                    last = Some(reason);
                    break 'open;
                }
                Item::Frame(text) => {
                    let bytes = text.len();
                    if !within(patience, sink.feed(Frame::Text(text)), &outbox).await {
                        break 'open;
                    }
                    drain.written(bytes);
                }
            }
            match drain.ready() {
                Some(next) => item = next,
                None => break,
            }
        }
        if !within(patience, sink.flush(), &outbox).await {
            break;
        }
    }
    if let Some(reason) = last {
        let frame = CloseFrame { code: CloseCode::Policy, reason: reason.into() };
        within(patience, sink.send(Frame::Close(Some(frame))), &outbox).await;
    }
    outbox.condemn();
}

/// Whether a write came through in time, and before the connection was condemned.
async fn within(
    patience: std::time::Duration,
    writing: impl Future<Output = Result<(), tungstenite::Error>>,
    outbox: &outbox::Outbox,
) -> bool {
    tokio::select! {
        written = timeout(patience, writing) => match written {
            Ok(Ok(())) => true,
            Ok(Err(error)) => {
                tracing::debug!(%error, "a connection broke");
                false
            }
            Err(_) => {
                tracing::warn!("a client does not read what it is sent; dropping its connection");
                false
            }
        },
        () = outbox.ended() => false,
    }
}
