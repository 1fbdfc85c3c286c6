//! What an HTTP caller gets.

use axum::body::{Body, Bytes};
use axum::http::{HeaderName, HeaderValue, Response, StatusCode, header};
use futures_util::stream;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::channels::Piece;
use super::fault::Fault;
use super::ident;

/// A function that failed.
pub(super) fn function_fault(error: &Fault) -> Response<Body> {
    let error = json!({"code": error.code, "message": error.message, "error_id": ident::fresh().to_string()});
    json(StatusCode::INTERNAL_SERVER_ERROR, &json!({ "error": error }))
}

pub(super) fn fault(status: StatusCode, code: &str, message: &str) -> Response<Body> {
    json(status, &json!({"error": {"code": code, "message": message}}))
}

pub(super) fn json(status: StatusCode, body: &Value) -> Response<Body> {
    let mut response = plain(status, Body::from(body.to_string()));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

pub(super) fn plain(status: StatusCode, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response
}

/// The response that an envelope describes.
pub(super) fn envelope(envelope: &Value) -> Response<Body> {
    let status = status(envelope).unwrap_or(StatusCode::OK);
    let body = envelope.get("body").cloned().unwrap_or_else(|| json!({}));
    let mut response = plain(status, Body::empty());
    set_headers(&mut response, envelope.get("headers"));
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

fn status(message: &Value) -> Option<StatusCode> {
    let code = message.get("status_code").and_then(Value::as_u64).and_then(|code| u16::try_from(code).ok())?;
    StatusCode::from_u16(code).ok()
}

/// Headers as an object, or as an array of lines.
fn set_headers(response: &mut Response<Body>, headers: Option<&Value>) {
    let pairs: Vec<(String, String)> = match headers {
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
}

/// The response that a function writes to its channel: texts set status and headers until the first bytes come.
pub(super) async fn streamed(mut next: Option<Piece>, mut pieces: mpsc::Receiver<Piece>) -> Response<Body> {
    let mut response = plain(StatusCode::OK, Body::empty());
    loop {
        let piece = match next.take() {
            Some(piece) => Some(piece),
            None => pieces.recv().await,
        };
        match piece {
            Some(Piece::Text(text)) => direct(&mut response, &text),
            Some(Piece::Binary(first)) => {
                *response.body_mut() = body(first, pieces);
                return response;
            }
            None => return response,
        }
    }
}

fn direct(response: &mut Response<Body>, text: &str) {
    let message: Value = serde_json::from_str(text).unwrap_or_default();
    match message.get("type").and_then(Value::as_str) {
        Some("set_status") => {
            if let Some(status) = status(&message) {
                *response.status_mut() = status;
            }
        }
        Some("set_headers") => set_headers(response, message.get("headers")),
        _ => tracing::warn!("a text on a response channel is neither set_status nor set_headers; it is dropped"),
    }
}

fn body(first: Bytes, pieces: mpsc::Receiver<Piece>) -> Body {
    Body::from_stream(stream::unfold((Some(first), pieces), |(first, mut pieces)| async move {
        if let Some(first) = first {
            return Some((Ok::<Bytes, std::convert::Infallible>(first), (None, pieces)));
        }
        loop {
            match pieces.recv().await? {
                Piece::Binary(bytes) => return Some((Ok(bytes), (None, pieces))),
                Piece::Text(_) => tracing::warn!("a text came after the first bytes of a response; it is dropped"),
            }
        }
    }))
}
