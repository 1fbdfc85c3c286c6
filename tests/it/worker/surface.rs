//! The functions and trigger types that are registered, against the contract of the wire.

use serde_json::{Map, Value, json};

use crate::support::Stand;

const CONTRACT: &str = include_str!("../../../goldens/contract.json");

/// A schema without its descriptions, its numbers as what they are worth (`0` is `0.0`). A `$ref` wrapped in `allOf` is only there to carry one.
fn without_descriptions(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let kept: Map<_, _> = fields
                .iter()
                .filter(|(key, value)| !(*key == "description" && value.is_string()))
                .map(|(key, value)| (key.clone(), without_descriptions(value)))
                .collect();
            Value::Object(kept)
        }
        Value::Array(items) => items.iter().map(without_descriptions).collect(),
        Value::Number(number) => json!(number.as_f64()),
        other => other.clone(),
    }
}

fn strings<'a>(list: &'a Value, key: &str) -> Vec<&'a str> {
    let mut found: Vec<_> = list.as_array().unwrap().iter().map(|one| one[key].as_str().unwrap()).collect();
    found.sort_unstable();
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn exactly_the_functions_of_the_contract_are_registered() {
    let contract: Value = serde_json::from_str(CONTRACT).unwrap();
    let stand = Stand::dev().await;
    let query = json!({"prefix": "worktree::", "include_internal": true});
    let listed = stand.client.ok("engine::functions::list", query).await;
    assert_eq!(strings(&listed["functions"], "function_id"), strings(&contract["functions"], "id"));
    for function in contract["functions"].as_array().unwrap() {
        let id = function["id"].as_str().unwrap();
        let info = stand.client.ok("engine::functions::info", json!({"function_id": id})).await;
        assert_eq!(
            without_descriptions(&info["request_schema"]),
            without_descriptions(&function["request"]),
            "the request of {id}"
        );
        assert_eq!(
            without_descriptions(&info["response_schema"]),
            without_descriptions(&function["response"]),
            "the response of {id}"
        );
        assert!(info["description"].as_str().is_some_and(|text| text.len() > 20), "{id} is not described: {info}");
        for (field, schema) in info["request_schema"]["properties"].as_object().unwrap() {
            assert!(schema["description"].is_string(), "{id}: the field `{field}` is not described");
        }
        let internal = matches!(id, "worktree::land-step" | "worktree::on-config-change");
        assert_eq!(info["metadata"]["internal"] == true, internal, "{id}: {info}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn exactly_the_trigger_types_of_the_contract_are_registered() {
    let contract: Value = serde_json::from_str(CONTRACT).unwrap();
    let stand = Stand::dev().await;
    let listed = stand.client.ok("engine::triggers::list", json!({})).await;
    let ours: Vec<Value> = listed["triggers"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|one| one["id"].as_str().unwrap().starts_with("worktree::"))
        .cloned()
        .collect();
    assert_eq!(strings(&Value::from(ours), "id"), strings(&contract["trigger_types"], "id"));
    for kind in contract["trigger_types"].as_array().unwrap() {
        let info = stand.client.ok("engine::triggers::info", json!({"id": kind["id"]})).await;
        assert_eq!(
            without_descriptions(&info["configuration_schema"]),
            without_descriptions(&kind["binding_config"]),
            "{info}"
        );
        assert!(info["description"].as_str().is_some_and(|text| text.len() > 20), "{info}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_binding_hears_what_it_asks_for_and_nothing_else() {
    let stand = Stand::dev().await;
    let (shop, farm) = (stand.repository("shop"), stand.repository("farm"));
    let mut of_shop = stand.client.hear(json!({"repo_path": shop.text()})).await;
    let mut of_ada = stand.client.hear(json!({"session_id": "ada"})).await;
    let one = stand.create(&shop).await;
    let two = stand.create_with(&farm, json!({"session_id": "ada"})).await;
    of_shop.next("worktree::created", &one.id).await;
    of_ada.next("worktree::created", &two.id).await;
    assert_eq!(of_shop.rest(&two.id).await, []);
    assert_eq!(of_ada.rest(&one.id).await, []);

    let unknown =
        json!({"trigger_type": "worktree::landed", "function_id": "test::nobody", "config": {"branch": "main"}});
    let message = stand.client.refused("engine::register_trigger", unknown, "trigger_registration_failed").await;
    assert!(message.contains("branch"), "the key is not named: {message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subscriber_that_hangs_holds_nobody_up() {
    let stand = Stand::dev().await;
    let repository = stand.repository("shop");
    let hanging =
        iii_sdk::RegisterFunction::new_async(|_: Value| std::future::pending::<Result<Value, iii_sdk::Error>>());
    stand.client.sdk().register_function("test::hangs", hanging);
    for function_id in ["test::hangs", "test::does-not-exist"] {
        let binding = json!({"trigger_type": "worktree::created", "function_id": function_id, "config": {}});
        stand.client.ok("engine::register_trigger", binding).await;
    }
    let mut events = stand.hear().await;
    for _ in 0..3 {
        let created = stand.create(&repository).await;
        events.next("worktree::created", &created.id).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_binding_made_by_message_is_served_with_its_metadata() {
    let stand = Stand::dev().await;
    let repository = stand.repository("shop");
    let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
    let heard = move |event: Value, metadata: Option<Value>| {
        sender.send((event, metadata)).unwrap_or_default();
        std::future::ready(Ok::<_, iii_sdk::Error>(Value::Null))
    };
    stand.client.sdk().register_function("test::hears", iii_sdk::RegisterFunction::new_async(heard));
    let binding = iii_sdk::protocol::RegisterTriggerInput::new("worktree::created", "test::hears", json!({}))
        .with_metadata(json!({"tag": 7}));
    let bound = stand.client.sdk().register_trigger(binding).unwrap();
    crate::support::until("the binding", || async {
        let query = json!({"trigger_type": "worktree::created"});
        let listed = stand.client.ok("engine::registered-triggers::list", query).await;
        (!listed["registered_triggers"].as_array().unwrap().is_empty()).then_some(())
    })
    .await;
    let created = stand.create(&repository).await;
    let heard = tokio::time::timeout(crate::support::PATIENCE, receiver.recv()).await.unwrap().unwrap();
    assert_eq!((&heard.0["worktree_id"], &heard.1), (&json!(created.id), &Some(json!({"tag": 7}))));
    bound.unregister();
}
