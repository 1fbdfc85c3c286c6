//! The functions and trigger types that are registered, against the contract of the wire.

use serde_json::{Value, json};

use crate::support::Stand;
use crate::surface::schemas::bare;

const CONTRACT: &str = include_str!("../../../goldens/contract.json");

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
        assert_eq!(bare(&info["request_schema"]), bare(&function["request"]), "the request of {id}");
        assert_eq!(bare(&info["response_schema"]), bare(&function["response"]), "the response of {id}");
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
        assert_eq!(bare(&info["configuration_schema"]), bare(&kind["binding_config"]), "{info}");
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
