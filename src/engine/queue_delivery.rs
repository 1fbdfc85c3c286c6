//! Delivering what the queue holds.

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until, timeout};

use super::calls::Outcome;
use super::core::{Core, EngineCall};
use super::fault::{Answer, Fault};
use super::ident;
use super::queue::{Delivery, Due};
use super::queue_config::QueueConfig;
use super::router::DEFAULT_NAMESPACE;
use super::state::parse;

/// Hands out due messages until the engine stops.
pub(super) async fn deliver(core: Arc<Core>) {
    let mut stopping = core.stopping.subscribe();
    loop {
        let exists = |key: &super::router::Key| core.router.owner(key).is_some();
        for due in core.queue.due(Instant::now(), &exists) {
            tokio::spawn(deliver_one(core.clone(), due));
        }
        let pause = core.queue.next_pause();
        let over = async {
            match pause {
                Some(at) => sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = core.queue.work.notified() => {}
            () = over => {}
            _ = stopping.wait_for(|stopping| *stopping) => return,
        }
    }
}

async fn deliver_one(core: Arc<Core>, due: Due) {
    let Delivery { data, metadata, traceparent, baggage, .. } = due.stored.delivery.clone();
    let call = core.call(EngineCall { key: due.stored.delivery.key(), data, metadata, traceparent, baggage });
    let outcome = if due.timeout_ms == 0 {
        call.await
    } else {
        timeout(Duration::from_millis(due.timeout_ms), call).await.unwrap_or_else(|_| {
            let text = format!("no answer within {} ms", due.timeout_ms);
            Outcome::Answered(Err(Fault::new("delivery_timeout", text)))
        })
    };
    let (lost, fault) = match outcome {
        Outcome::Answered(Ok(_)) => {
            let number = core.queue.delivered(&due);
            // Without the disk the message comes again after the restart; the lane stays as it is until then.
            if core.store.committed(number).await.is_ok() {
                core.queue.forget(&due.queue, due.number);
            }
            return;
        }
        Outcome::NotFound(_) => return core.queue.put_back(&due),
        Outcome::Stopped if *core.stopping.borrow() => return,
        Outcome::Stopped => (true, Fault::new("invocation_stopped", "the worker went away in the middle")),
        Outcome::Answered(Err(fault)) => (false, fault),
    };
    tracing::warn!(queue = due.queue, function = due.stored.delivery.function_id, %fault, "a delivery failed");
    let number = core.queue.failed(&due, lost, fault, Instant::now(), ident::now_ms());
    if let Err(fault) = core.store.committed(number).await {
        tracing::error!(%fault, "a failed attempt could not be noted");
    }
}

#[derive(Deserialize)]
struct Enqueue {
    queue: String,
    function_id: String,
    #[serde(default)]
    data: Value,
    #[serde(default, rename = "messageReceiptId")]
    receipt: Option<String>,
    #[serde(default)]
    namespace: Option<String>,
    #[serde(default)]
    traceparent: Option<String>,
    #[serde(default)]
    baggage: Option<String>,
}

#[derive(Deserialize)]
struct Define {
    queue: String,
    #[serde(default)]
    config: Value,
}

#[derive(Deserialize)]
struct OneQueue {
    #[serde(alias = "topic")]
    queue: String,
}

#[derive(Deserialize)]
struct OneMessage {
    #[serde(alias = "topic")]
    queue: String,
    #[serde(alias = "messageReceiptId")]
    message_id: String,
}

/// What a function of the queue answers, once the number is committed.
pub(super) fn perform(core: &Arc<Core>, function_id: &str, data: Value) -> Result<(Value, u64), Fault> {
    match function_id {
        "engine::queue::enqueue" => {
            let Enqueue { queue, function_id, data, receipt, namespace, traceparent, baggage } =
                parse(function_id, data)?;
            let receipt = receipt.unwrap_or_else(|| ident::fresh().to_string());
            let namespace = namespace.unwrap_or_else(|| DEFAULT_NAMESPACE.to_owned());
            let delivery = Delivery {
                receipt: receipt.clone(),
                namespace,
                function_id,
                data,
                metadata: None,
                traceparent,
                baggage,
            };
            let number = core.queue.enqueue(&queue, delivery)?;
            Ok((json!({ "messageReceiptId": receipt }), number))
        }
        "queue::define" => {
            let Define { queue, config } = parse(function_id, data)?;
            if queue.is_empty() || queue.contains('\0') || queue.len() > 200 {
                return Err(Fault::new("INVALID_CONFIG", "a queue's name has 1 to 200 bytes and no NUL"));
            }
            let config = QueueConfig::parse(if config.is_null() { json!({}) } else { config })?;
            let (changed, number) = core.queue.define(&queue, config);
            Ok((json!({"queue": queue, "changed": changed}), number))
        }
        "iii::queue::redrive" => {
            let OneQueue { queue } = parse(function_id, data)?;
            let (count, number) = core.queue.redrive(&queue, None)?;
            Ok((json!({"queue": queue, "redriven": count}), number))
        }
        "iii::queue::redrive_message" => {
            let OneMessage { queue, message_id } = parse(function_id, data)?;
            let (count, number) = core.queue.redrive(&queue, Some(&message_id))?;
            found(&queue, &message_id, count)?;
            Ok((json!({"queue": queue, "message_id": message_id, "redriven": count}), number))
        }
        "iii::queue::discard_message" => {
            let OneMessage { queue, message_id } = parse(function_id, data)?;
            let (count, number) = core.queue.discard(&queue, &message_id)?;
            found(&queue, &message_id, count)?;
            Ok((json!({"queue": queue, "message_id": message_id, "discarded": count}), number))
        }
        "engine::queue::dlq_messages" => {
            let OneQueue { queue } = parse(function_id, data)?;
            Ok((json!({"topic": queue, "messages": core.queue.dead(&queue)?}), 0))
        }
        "engine::queue::topic_stats" => {
            let OneQueue { queue } = parse(function_id, data)?;
            let stats = core.queue.stats(Some(&queue)).pop();
            let missing = || Fault::new("queue_not_defined", format!("queue '{queue}' is not defined"));
            Ok((stats.ok_or_else(missing)?, 0))
        }
        "engine::queue::dlq_topics" => {
            let mut topics = core.queue.stats(None);
            topics.retain(|topic| topic.get("dlq_depth").and_then(Value::as_u64) > Some(0));
            let topics: Vec<Value> = topics
                .into_iter()
                .map(|topic| {
                    let (name, count) = (&topic["topic"], &topic["dlq_depth"]);
                    json!({"topic": name, "broker_type": "builtin", "message_count": count})
                })
                .collect();
            Ok((json!({ "topics": topics }), 0))
        }
        _ => Ok((json!({"topics": core.queue.stats(None)}), 0)),
    }
}

fn found(queue: &str, message_id: &str, count: usize) -> Result<(), Fault> {
    if count > 0 {
        return Ok(());
    }
    Err(Fault::new("NOT_FOUND", format!("queue '{queue}' has no dead letter '{message_id}'")))
}

/// Waits for the number and gives the answer.
pub(super) async fn settled(core: Arc<Core>, result: Result<(Value, u64), Fault>) -> Answer {
    let (answer, number) = result?;
    core.enqueued(number).await?;
    Ok(Some(answer))
}
