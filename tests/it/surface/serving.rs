//! What the worker needs of an engine, and how it does with less: other names, other namespaces, no `http`.

use serde_json::{Value, json};
use worktree::engine::{Engine, Options};

use super::schemas::bare;
use crate::support::{BINARY, Checkout, Client, Process, Seal, until};

/// An engine in this process, and a seal beside it.
async fn engine() -> (Seal, Engine) {
    let seal = Seal::new();
    let options = Options { port: 0, http_port: 0, state_dir: seal.path().join("state"), ..Options::default() };
    let engine = Engine::start(options).await.unwrap();
    (seal, engine)
}

/// `worktree serve` on that engine, with these variables.
fn serve(seal: &Seal, url: &str, seed: Option<&str>, variables: &[(&str, &str)]) -> Process {
    let mut command = seal.command(BINARY);
    command.args(["serve", "--url", url]).envs(variables.iter().copied());
    if let Some(seed) = seed {
        let file = seal.path().join("given.yaml");
        std::fs::write(&file, seed).unwrap();
        command.arg("--config").arg(file);
    }
    Process::start("worktree serve", command)
}

async fn answers(client: &Client, namespace: &str) {
    until("an answer of the worker", || async { client.call_in(namespace, "worktree::list", json!({})).await.ok() })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_in_a_namespace_of_its_own_uses_what_is_in_default() {
    let (seal, engine) = engine().await;
    let client = Client::connect(&engine.url()).await;
    let root = seal.path().join("wt").to_str().unwrap().to_owned();
    let mut worker = serve(&seal, &engine.url(), Some(&format!("worktree_root: {root}")), &[("III_NAMESPACE", "team")]);
    answers(&client, "team").await;
    assert_eq!(client.call("worktree::list", json!({})).await.unwrap_err().0, "function_not_found");
    // Its configuration is where all configuration is, and is watched from there.
    let stored = client.ok("configuration::get", json!({"id": "worktree"})).await;
    assert_eq!(stored["value"]["worktree_root"], root);
    let mut value = stored["value"].clone();
    value["branch_prefix"] = json!("team/");
    client.ok("configuration::set", json!({"id": "worktree", "value": value})).await;
    let repository = Checkout::init(seal.path().join("shop"), &seal);
    repository.commit("README", "hello\n");
    let team = |function: &'static str, request: Value| {
        let client = &client;
        async move { client.call_in("team", function, request).await.unwrap() }
    };
    let created = until("the new prefix", || async {
        let created = team("worktree::create", json!({"repo_path": repository.text()})).await;
        created["branch"].as_str().unwrap().starts_with("team/").then_some(created)
    })
    .await;
    let id = created["worktree_id"].as_str().unwrap();
    // State, queue and shell are those of `default`.
    assert_eq!(client.ok("state::get", json!({"scope": "worktree", "key": id})).await["worktree_id"], id);
    let checkout = Checkout::at(created["path"].as_str().unwrap(), &seal);
    let head = checkout.commit("a", "1\n");
    let land = json!({"worktree_id": id, "target_branch": "main", "test_cmd": "true"});
    team("worktree::land", land).await;
    until("the land", || async { (repository.sha("main") == head).then_some(()) }).await;
    // Another one beside it, in `default`, is another worker with the same entry.
    let mut other = serve(&seal, &engine.url(), None, &[]);
    answers(&client, "default").await;
    assert!(other.stop().await.success() && worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_entry_of_another_name_is_used_where_it_is_named() {
    let (seal, engine) = engine().await;
    let client = Client::connect(&engine.url()).await;
    let _worker = serve(&seal, &engine.url(), Some("branch_prefix: own/"), &[("III_CONFIG_NAME", "worktree-two")]);
    answers(&client, "default").await;
    let stored = client.ok("configuration::get", json!({"id": "worktree-two"})).await;
    assert_eq!(stored["value"]["branch_prefix"], "own/");
    assert_eq!(client.call("configuration::get", json!({"id": "worktree"})).await.unwrap_err().0, "NOT_FOUND");
    // What is registered says what may be set, with an example that may.
    let listed = client.ok("configuration::schema", json!({"id": "worktree-two"})).await;
    let schema = &listed["schema"];
    let example = &schema["examples"][0];
    client.ok("configuration::set", json!({"id": "worktree-two", "value": example})).await;
    assert_eq!(bare(schema)["additionalProperties"], false);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_without_http_is_said_once_and_served() {
    let (seal, engine) = engine().await;
    let relay = crate::support::Relay::to(&engine.url(), &[]).await;
    relay.refuse("engine::triggers::info", "NOT_FOUND");
    let client = Client::connect(&engine.url()).await;
    let worker = serve(&seal, relay.url(), None, &[]);
    answers(&client, "default").await;
    assert_eq!(worker.log().matches("no provider of `http` triggers").count(), 1, "{}", worker.log());
    // One that has it is not complained about.
    drop(worker);
    let worker = until("the name is free", || async {
        let mut worker = serve(&seal, &engine.url(), None, &[]);
        let free = tokio::select! {
            _ = worker.ended() => false,
            () = answers(&client, "default") => true,
        };
        free.then_some(worker)
    })
    .await;
    assert!(!worker.log().contains("no provider of `http` triggers"), "{}", worker.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_seed_takes_its_variables_from_the_environment_of_the_worker() {
    let (seal, engine) = engine().await;
    let client = Client::connect(&engine.url()).await;
    let seed =
        "worktree_root: ${WT_BASE}/trees\nprune_expire_hours: ${WT_HOURS:12}\ngates: {repos: ['${WT_REPOS:*}']}\n";
    let mut worker = serve(&seal, &engine.url(), Some(seed), &[]);
    let status = worker.ended().await;
    assert_eq!(status.code(), Some(1), "{}", worker.log());
    assert!(worker.log().contains("WT_BASE") && worker.log().contains("given.yaml"), "{}", worker.log());
    assert_eq!(client.call("configuration::get", json!({"id": "worktree"})).await.unwrap_err().0, "NOT_FOUND");

    let base = seal.path().to_str().unwrap();
    let _worker = serve(&seal, &engine.url(), Some(seed), &[("WT_BASE", base), ("WT_REPOS", "/src/*")]);
    answers(&client, "default").await;
    // Stored as what they mean, so that an engine on another machine reads the same.
    let stored = client.ok("configuration::get", json!({"id": "worktree", "raw": true})).await;
    assert_eq!(stored["value"]["worktree_root"], format!("{base}/trees"));
    assert_eq!(stored["value"]["prune_expire_hours"], 12);
    assert_eq!(stored["value"]["gates"]["repos"], json!(["/src/*"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stored_value_that_is_wrong_ends_the_worker_and_names_the_key() {
    for (value, key) in [
        (json!({"prune_schedule": "0 * * * *"}), "prune_schedule"),
        (json!({"gates": {"allow_land": "yes"}}), "gates.allow_land"),
        (json!({"gates": {"repos": ["["]}}), "gates.repos"),
        (json!({"worktree_root": "relative"}), "worktree_root"),
        (json!({"branch_prefix": ""}), "branch_prefix"),
        (json!({"no_such_key": 1}), "no_such_key"),
        (json!({"worktree_root": "${WT_NOWHERE}/x"}), "WT_NOWHERE"),
    ] {
        let (seal, engine) = engine().await;
        let client = Client::connect(&engine.url()).await;
        // Somebody registered the entry with a schema that says nothing.
        let entry = json!({
            "id": "worktree", "name": "x", "description": "x", "schema": {"type": "object"}, "initial_value": value,
        });
        client.ok("configuration::register", entry).await;
        let mut worker = serve(&seal, &engine.url(), None, &[]);
        let status = worker.ended().await;
        assert_eq!(status.code(), Some(1), "{key}: {}", worker.log());
        assert!(worker.log().contains(key) && worker.log().contains("W010"), "`{key}` is not named: {}", worker.log());
        let stored = client.ok("configuration::get", json!({"id": "worktree", "raw": true})).await;
        assert_eq!(stored["value"], value, "it was overwritten");
    }
}
