//! The trigger type `http`: routes on a listener of their own.
//!
//! Invariants
//! 1. A route answers what its function says in an envelope `{status_code, headers, body}`; any other value is 200
//!    with the body `{}`, as on the iii engine. No value means that the function writes to the response channel.
//! 2. Bodies are bounded, and so is the time a function has.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use serde_json::{Map, Value, json};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::bindings::{Provider, Target};
use super::channels::Piece;
use super::core::{Core, trigger_call};
use super::http_listener::Bounded;
use super::http_response as response;

/// How long a connection may stand still beyond the time of a function.
const IDLE: Duration = Duration::from_secs(30);
/// Bytes of the pieces in which a body goes through its channel.
const PIECE_BYTES: usize = 64 << 10;
const METHODS: [&str; 7] = ["GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS"];

#[derive(Debug, Clone)]
enum Segment {
    Literal(String),
    Parameter(String),
}

#[derive(Debug, Clone)]
struct Route {
    method: String,
    path: String,
    segments: Vec<Segment>,
    target: Target,
}

impl Route {
    fn parse(target: &Target) -> Result<Self, String> {
        let path = target.setting("api_path").filter(|path| !path.trim().is_empty()).ok_or("api_path is required")?;
        let path = format!("/{}", path.trim_start_matches('/'));
        let method = target.setting("http_method").unwrap_or("GET").to_ascii_uppercase();
        if !METHODS.contains(&method.as_str()) {
            return Err(format!("http_method '{method}' is not one of {}", METHODS.join(", ")));
        }
        let segments: Vec<Segment> = split(&path)
            .map(|part| match part.strip_prefix(':') {
                Some(name) => Segment::Parameter(name.to_owned()),
                None => Segment::Literal(part.to_owned()),
            })
            .collect();
        if segments.iter().any(|segment| matches!(segment, Segment::Parameter(name) if name.is_empty())) {
            return Err(format!("api_path '{path}' has a parameter without a name"));
        }
        Ok(Self { method, path, segments, target: target.clone() })
    }

    /// The same shape: parameters in the same places, whatever their names.
    fn shape(&self) -> Vec<Option<&str>> {
        let literal = |segment: &Segment| matches!(segment, Segment::Literal(_));
        self.segments
            .iter()
            .map(|segment| match segment {
                Segment::Literal(text) if literal(segment) => Some(text.as_str()),
                _ => None,
            })
            .collect()
    }

    fn matches(&self, parts: &[String]) -> Option<Map<String, Value>> {
        if parts.len() != self.segments.len() {
            return None;
        }
        let mut parameters = Map::new();
        for (segment, part) in self.segments.iter().zip(parts) {
            match segment {
                Segment::Literal(text) if text == part => {}
                Segment::Literal(_) => return None,
                Segment::Parameter(name) => {
                    parameters.insert(name.clone(), Value::String(part.clone()));
                }
            }
        }
        Some(parameters)
    }

    /// Literal parts beat parameters, from the left.
    fn rank(&self) -> Vec<bool> {
        self.segments.iter().map(|segment| matches!(segment, Segment::Parameter(_))).collect()
    }
}

fn split(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|part| !part.is_empty())
}

/// The routes, by binding.
#[derive(Default)]
pub(super) struct Routes {
    routes: Mutex<HashMap<String, Route>>,
}

/// What a request finds.
enum Found {
    Route(Box<Route>, Map<String, Value>),
    OtherMethod,
    Nothing,
}

impl Routes {
    fn find(&self, method: &str, path: &str) -> Found {
        let parts: Vec<String> = split(path).map(decode).collect();
        let routes = self.routes.lock().unwrap_or_else(PoisonError::into_inner);
        let mut matching: Vec<(&Route, Map<String, Value>)> =
            routes.values().filter_map(|route| Some((route, route.matches(&parts)?))).collect();
        matching.sort_by_key(|(route, _)| route.rank());
        let known = !matching.is_empty();
        match matching.into_iter().find(|(route, _)| route.method == method) {
            Some((route, parameters)) => Found::Route(Box::new(route.clone()), parameters),
            None if known => Found::OtherMethod,
            None => Found::Nothing,
        }
    }
}

impl Provider for Routes {
    fn bind(&self, target: &Target) -> Result<(), String> {
        let route = Route::parse(target)?;
        let mut routes = self.routes.lock().unwrap_or_else(PoisonError::into_inner);
        let rival = routes.values().find(|other| {
            other.target.id != target.id
                && other.method == route.method
                && other.path != route.path
                && other.shape() == route.shape()
        });
        if let Some(rival) = rival {
            return Err(format!("{} {} has the same shape as {}", route.method, route.path, rival.path));
        }
        // The same route again replaces the earlier one.
        routes.retain(|_, other| (&other.method, &other.path) != (&route.method, &route.path));
        routes.insert(target.id.clone(), route);
        Ok(())
    }

    fn unbind(&self, id: &str) {
        self.routes.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
    }
}

#[derive(Clone)]
struct Serving {
    core: Arc<Core>,
    routes: Arc<Routes>,
}

/// Serves the routes until the engine stops.
pub(super) async fn serve(core: Arc<Core>, routes: Arc<Routes>, listener: TcpListener) {
    let mut stopping = core.stopping.subscribe();
    // A connection may stand still for as long as a function may take, and a little more.
    let idle = core.options.http_timeout + IDLE;
    let listener = Bounded::new(listener, core.options.limits.http_connections, idle);
    let app = axum::Router::new().fallback(answer).with_state(Serving { core, routes });
    tokio::select! {
        served = axum::serve(listener, app) => {
            if let Err(error) = served {
                tracing::error!(%error, "the HTTP listener ended");
            }
        }
        _ = stopping.wait_for(|stopping| *stopping) => {}
    }
}

async fn answer(State(Serving { core, routes }): State<Serving>, request: Request) -> Response<Body> {
    let (head, body) = request.into_parts();
    let method = head.method.as_str().to_owned();
    let (route, parameters) = match routes.find(&method, head.uri.path()) {
        Found::Route(route, parameters) => (route, parameters),
        Found::OtherMethod => return response::plain(StatusCode::METHOD_NOT_ALLOWED, Body::empty()),
        Found::Nothing => return response::fault(StatusCode::NOT_FOUND, "NOT_FOUND", "Not Found"),
    };
    let limit = core.options.limits.http_body_bytes;
    let Ok(body) = to_bytes(body, limit).await else {
        let text = format!("the body could not be read, or has more than {limit} bytes");
        return response::fault(StatusCode::PAYLOAD_TOO_LARGE, "PAYLOAD_TOO_LARGE", &text);
    };
    let (request_body, writer, response, pieces) = match (core.channels.lend_reader(), core.channels.lend_writer()) {
        (Ok((request_body, writer)), Ok((response, pieces))) => (request_body, writer, response, pieces),
        (Err(fault), _) | (_, Err(fault)) => {
            return response::fault(StatusCode::SERVICE_UNAVAILABLE, &fault.code, &fault.message);
        }
    };
    let payload = json!({
        "method": method,
        "path": route.path,
        "path_params": parameters,
        "query_params": query(head.uri.query().unwrap_or_default()),
        "headers": headers(&head.headers),
        "body": if is_json(&head.headers) { serde_json::from_slice(&body).unwrap_or_default() } else { Value::Null },
        "trigger": {"type": "http", "path": route.path, "method": method},
        "request_body": request_body.reference,
        "response": response.reference,
    });
    tokio::spawn(feed(writer, body));
    let answering = respond(&core, &route.target, payload, pieces);
    match timeout(core.options.http_timeout, answering).await {
        Ok(response) => response,
        Err(_) => response::fault(StatusCode::GATEWAY_TIMEOUT, "TIMEOUT", "the function did not answer in time"),
    }
}

/// What the function makes of the request: an envelope, or what it writes to the response channel, whichever comes
/// first.
async fn respond(
    core: &Arc<Core>,
    target: &Target,
    payload: Value,
    mut pieces: mpsc::Receiver<Piece>,
) -> Response<Body> {
    if !core.condition_holds(target, &payload).await {
        let error = json!({"code": "CONDITION_NOT_MET", "message": "the condition did not hold"});
        return response::json(StatusCode::UNPROCESSABLE_ENTITY, &json!({"error": error, "skipped": true}));
    }
    let mut call = core.call(trigger_call(target, payload));
    let first = tokio::select! {
        biased;
        outcome = &mut call => match outcome.into_answer() {
            Ok(None | Some(Value::Null)) => None,
            Ok(Some(envelope)) => return response::envelope(&envelope),
            Err(error) => return response::function_fault(&error),
        },
        Some(piece) = pieces.recv() => Some(piece),
    };
    response::streamed(first, pieces).await
}

/// Writes the body into its channel, for a function that wants its bytes.
async fn feed(writer: mpsc::Sender<Piece>, mut body: Bytes) {
    while !body.is_empty() {
        let piece = body.split_to(body.len().min(PIECE_BYTES));
        if writer.send(Piece::Binary(piece)).await.is_err() {
            return;
        }
    }
}

fn headers(from: &HeaderMap) -> Map<String, Value> {
    let text = |value: &HeaderValue| Value::String(String::from_utf8_lossy(value.as_bytes()).into_owned());
    from.iter().map(|(name, value)| (name.as_str().to_owned(), text(value))).collect()
}

fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE);
    kind.is_some_and(|value| String::from_utf8_lossy(value.as_bytes()).contains("application/json"))
}

/// The query's parameters; the last of a name wins.
fn query(text: &str) -> Map<String, Value> {
    text.split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .map(|(name, value)| (decode(&name.replace('+', " ")), Value::String(decode(&value.replace('+', " ")))))
        .collect()
}

/// Undoes percent encoding; what is not valid stays as it is.
fn decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let hex = text.get(at + 1..at + 3).filter(|_| *byte == b'%').and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match hex {
            Some(decoded) => {
                out.push(decoded);
                at += 3;
            }
            None => {
                out.push(*byte);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}
