//! Binding a trigger by call instead of by message.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, ready};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::timeout;
use uuid::Uuid;

use super::core::Core;
use super::fault::{Answer, Fault};
use super::ident;
use super::message::RegisterTrigger;
use super::router::DEFAULT_NAMESPACE;
use super::state::parse;

/// How long a provider has to say whether it takes a binding.
const PROVIDER_TIME: Duration = Duration::from_secs(10);

#[derive(Deserialize)]
struct Bind {
    trigger_type: String,
    function_id: String,
    #[serde(default)]
    config: Option<Value>,
    #[serde(default)]
    metadata: Option<Value>,
    #[serde(default)]
    namespace: Option<String>,
    #[serde(default)]
    trigger_namespace: Option<String>,
}

#[derive(Deserialize)]
struct Unbind {
    id: String,
}

/// Runs `engine::register_trigger` or `engine::unregister_trigger`.
pub(super) fn perform(
    core: &Arc<Core>,
    from: Option<Uuid>,
    function_id: &str,
    data: Value,
) -> BoxFuture<'static, Answer> {
    let started = if function_id == "engine::register_trigger" {
        parse(function_id, data).map(|bind| bind_by_call(core.clone(), from, bind).boxed())
    } else {
        parse(function_id, data).map(|Unbind { id }| {
            let removed = core.router.unbind(&id);
            ready(Ok(Some(json!({ "removed": removed })))).boxed()
        })
    };
    started.unwrap_or_else(|fault| ready(Err(fault)).boxed())
}

async fn bind_by_call(core: Arc<Core>, from: Option<Uuid>, bind: Bind) -> Answer {
    let id = ident::fresh().to_string();
    let namespace = from.map_or_else(|| DEFAULT_NAMESPACE.to_owned(), |from| core.router.namespace_of(from));
    let message = RegisterTrigger {
        id: id.clone(),
        trigger_type: bind.trigger_type,
        function_id: bind.function_id,
        config: bind.config.unwrap_or_else(|| json!({})),
        metadata: bind.metadata,
        namespace: bind.namespace,
        trigger_namespace: bind.trigger_namespace,
    };
    if let Some(provider) = core.router.bind_by_call(&namespace, message)? {
        match timeout(PROVIDER_TIME, provider).await {
            Ok(Ok(word)) => word?,
            // Unregistered or replaced while the provider was thinking.
            Ok(Err(_)) => return Err(Fault::new("trigger_registration_failed", "the binding was dropped meanwhile")),
            Err(_) => {
                core.router.unbind(&id);
                let text = format!("the provider did not answer within {} s", PROVIDER_TIME.as_secs());
                return Err(Fault::new("trigger_registration_failed", text));
            }
        }
    }
    Ok(Some(json!({ "id": id })))
}
