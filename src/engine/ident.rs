//! Identifiers and times that the engine makes.

use chrono::{DateTime, SecondsFormat, Utc};
use uuid::Uuid;

/// A fresh identifier.
#[expect(clippy::disallowed_methods, reason = "the one place where the engine makes ids")]
pub(super) fn fresh() -> Uuid {
    Uuid::new_v4()
}

/// A W3C trace context for a call that starts in the engine.
pub(super) fn traceparent() -> String {
    let trace = fresh().simple().to_string();
    let span = fresh().simple().to_string();
    format!("00-{trace}-{}-01", span.get(..16).unwrap_or(&span))
}

/// Now.
pub(super) fn now() -> DateTime<Utc> {
    Utc::now()
}

/// Milliseconds since the Unix epoch.
pub(super) fn now_ms() -> i64 {
    now().timestamp_millis()
}

/// A time as text: seconds, and the fraction when there is one.
pub(super) fn text(time: DateTime<Utc>) -> String {
    time.to_rfc3339_opts(SecondsFormat::AutoSi, false)
}
