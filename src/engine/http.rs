//! The trigger type `http`: routes on a listener of their own.
//!
//! Invariants
//! 1. A route answers what its function says in an envelope `{status_code, headers, body}`; anything else is 200
//!    with the body `{}`, as on the iii engine.
//! 2. Bodies are bounded, and so is the time a function has.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderName, HeaderValue, Response, StatusCode, header};
use serde_json::{Map, Value, json};
use tokio::net::TcpListener;
use tokio::time::timeout;

use super::bindings::{Provider, Target};
use super::core::{Core, trigger_call};
use super::fault::Fault;
use super::http_listener::Bounded;
use super::ident;

/// How long a connection may stand still beyond the time of a function.
const IDLE: Duration = Duration::from_secs(30);
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
        Found::OtherMethod => return plain(StatusCode::METHOD_NOT_ALLOWED, Body::empty()),
        Found::Nothing => return fault(StatusCode::NOT_FOUND, "NOT_FOUND", "Not Found"),
    };
    let limit = core.options.limits.http_body_bytes;
    let Ok(body) = to_bytes(body, limit).await else {
        let text = format!("the body could not be read, or has more than {limit} bytes");
        return fault(StatusCode::PAYLOAD_TOO_LARGE, "PAYLOAD_TOO_LARGE", &text);
    };
    let mut headers = Map::new();
    for (name, value) in &head.headers {
        headers.insert(name.as_str().to_owned(), Value::String(String::from_utf8_lossy(value.as_bytes()).into_owned()));
    }
    let is_json = head
        .headers
        .get(header::CONTENT_TYPE)
        .is_some_and(|value| String::from_utf8_lossy(value.as_bytes()).contains("application/json"));
    let body = if is_json { serde_json::from_slice::<Value>(&body).unwrap_or_default() } else { Value::Null };
    let payload = json!({
        "method": method,
        "path": route.path,
        "path_params": parameters,
        "query_params": query(head.uri.query().unwrap_or_default()),
        "headers": headers,
        "body": body,
        "trigger": {"type": "http", "path": route.path, "method": method},
    });
    let called = async {
        if !core.condition_holds(&route.target, &payload).await {
            return None;
        }
        Some(core.call(trigger_call(&route.target, payload.clone())).await.into_answer())
    };
    match timeout(core.options.http_timeout, called).await {
        Err(_) => fault(StatusCode::GATEWAY_TIMEOUT, "TIMEOUT", "the function did not answer in time"),
        Ok(None) => {
            let error = json!({"code": "CONDITION_NOT_MET", "message": "the condition did not hold"});
            json_response(StatusCode::UNPROCESSABLE_ENTITY, &json!({"error": error, "skipped": true}))
        }
        Ok(Some(Ok(result))) => envelope(result),
        Ok(Some(Err(error))) => function_fault(&error),
    }
}

fn function_fault(error: &Fault) -> Response<Body> {
    let error = json!({"code": error.code, "message": error.message, "error_id": ident::fresh().to_string()});
    json_response(StatusCode::INTERNAL_SERVER_ERROR, &json!({ "error": error }))
}

fn fault(status: StatusCode, code: &str, message: &str) -> Response<Body> {
    json_response(status, &json!({"error": {"code": code, "message": message}}))
}

fn json_response(status: StatusCode, body: &Value) -> Response<Body> {
    let mut response = plain(status, Body::from(body.to_string()));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn plain(status: StatusCode, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response
}

/// The response that an envelope describes.
fn envelope(result: Option<Value>) -> Response<Body> {
    let envelope = result.unwrap_or_default();
    let status = envelope.get("status_code").and_then(Value::as_u64).and_then(|code| u16::try_from(code).ok());
    let status = status.and_then(|code| StatusCode::from_u16(code).ok()).unwrap_or(StatusCode::OK);
    let body = envelope.get("body").cloned().unwrap_or_else(|| json!({}));
    let mut response = plain(status, Body::empty());
    let pairs: Vec<(String, String)> = match envelope.get("headers") {
        Some(Value::Object(map)) => map.iter().map(|(name, value)| (name.clone(), text(value))).collect(),
        Some(Value::Array(lines)) => lines
            .iter()
            .filter_map(|line| line.as_str()?.split_once(':'))
            .map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned()))
            .collect(),
        _ => Vec::new(),
    };
    for (name, value) in pairs {
        match (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_str(&value)) {
            // The length is the engine's to say.
            (Ok(name), Ok(value)) if name != header::CONTENT_LENGTH && name != header::TRANSFER_ENCODING => {
                response.headers_mut().append(name, value);
            }
            _ => tracing::warn!(name, "a response header is not valid; it is left out"),
        }
    }
    let typed = response.headers().contains_key(header::CONTENT_TYPE);
    *response.body_mut() = match body {
        Value::String(text) if typed => Body::from(text),
        body => Body::from(body.to_string()),
    };
    if !typed {
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    }
    response
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
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
