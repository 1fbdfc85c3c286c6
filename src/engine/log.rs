//! `engine::log::*` and the trigger type `log`.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Value, json};

use super::bindings::Target;
use super::core::Core;
use super::fault::Answer;
use super::ident;
use super::state::parse;

/// Levels from the least to the most severe, with the numbers of OpenTelemetry.
const LEVELS: [(&str, u32); 5] = [("trace", 1), ("debug", 5), ("info", 9), ("warn", 13), ("error", 17)];

#[derive(Deserialize)]
struct Line {
    message: String,
    #[serde(default)]
    data: Value,
    #[serde(default)]
    service_name: Option<String>,
    #[serde(default)]
    trace_id: Option<String>,
    #[serde(default)]
    span_id: Option<String>,
}

fn severity(level: &str) -> Option<u32> {
    LEVELS.iter().find(|(name, _)| *name == level).map(|(_, number)| *number)
}

/// Says what is wrong with a binding to `log`.
pub(super) fn check(target: &Target) -> Result<(), String> {
    match target.config.get("level") {
        None | Some(Value::Null) => Ok(()),
        Some(Value::String(level)) if level == "all" || severity(level).is_some() => Ok(()),
        Some(_) => Err("level must be one of all, trace, debug, info, warn, error".to_owned()),
    }
}

/// Runs one of the functions.
pub(super) fn perform(core: &Arc<Core>, function_id: &str, data: Value) -> Answer {
    let Line { message, data, service_name, trace_id, span_id } = parse(function_id, data)?;
    let level = function_id.rsplit("::").next().unwrap_or_default();
    let service = service_name.as_deref().unwrap_or_default();
    match level {
        "error" => tracing::error!(target: "worker", service, %data, "{message}"),
        "warn" => tracing::warn!(target: "worker", service, %data, "{message}"),
        "debug" => tracing::debug!(target: "worker", service, %data, "{message}"),
        "trace" => tracing::trace!(target: "worker", service, %data, "{message}"),
        _ => tracing::info!(target: "worker", service, %data, "{message}"),
    }
    let number = severity(level).unwrap_or_default();
    let wanted = |target: &Target| target.setting("level").and_then(severity).is_none_or(|least| number >= least);
    let targets = core.router.targets("log", wanted);
    if !targets.is_empty() {
        let nanos = ident::now().timestamp_nanos_opt().unwrap_or_default();
        let payload = json!({
            "timestamp_unix_nano": nanos,
            "observed_timestamp_unix_nano": nanos,
            "severity_number": number,
            "severity_text": level.to_ascii_uppercase(),
            "body": message,
            "attributes": {"log.data": data},
            "trace_id": trace_id.unwrap_or_default(),
            "span_id": span_id.unwrap_or_default(),
            "resource": {},
            "service_name": service,
            "instrumentation_scope_name": "",
            "instrumentation_scope_version": "",
        });
        core.fire(targets, &payload);
    }
    Ok(None)
}
