//! Gates: each denial with its code and the key that opens it, taken up over the bus without a restart.

use serde_json::{Value, json};

use crate::support::{Stand, until};

const MISSING: &str = "wt_0123456789ab";

/// What a gate shuts: the call, its request, and the code of the denial.
fn gates(repository: &str) -> Vec<(&'static str, Value, &'static str, Value, &'static str)> {
    let id = |more: Value| {
        let mut request = json!({"worktree_id": MISSING});
        request.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        request
    };
    vec![
        ("allow_remove", json!(false), "worktree::remove", id(json!({})), "W500"),
        ("allow_land", json!(false), "worktree::land", id(json!({"target_branch": "main"})), "W500"),
        ("allow_prune", json!(false), "worktree::prune", json!({}), "W500"),
        ("allow_branch_delete", json!(false), "worktree::remove", id(json!({"delete_branch": true})), "W500"),
        ("allow_force", json!(false), "worktree::claim", id(json!({"session_id": "a", "force": true})), "W501"),
        ("allow_force", json!(false), "worktree::release", id(json!({"session_id": "a", "force": true})), "W501"),
        ("allow_force", json!(false), "worktree::remove", id(json!({"force": true})), "W501"),
        (
            "allow_force",
            json!(false),
            "worktree::land",
            id(json!({"target_branch": "main", "force_restart": true})),
            "W501",
        ),
        ("land_targets", json!(["release/*"]), "worktree::land", id(json!({"target_branch": "main"})), "W502"),
        ("repos", json!(["/nowhere/*"]), "worktree::create", json!({"repo_path": repository}), "W503"),
        ("repos", json!(["/nowhere/*"]), "worktree::create", json!({"repo_path": "/etc"}), "W503"),
        ("repos", json!([]), "worktree::create", json!({"repo_path": "/no/such/place"}), "W503"),
    ]
}

/// The same gates, open.
fn open() -> Value {
    json!({
        "allow_remove": true, "allow_land": true, "allow_prune": true, "allow_branch_delete": true, "allow_force": true,
        "land_targets": ["*"], "repos": ["*"],
    })
}

async fn set(stand: &Stand, gates: Value) {
    let stored = stand.client.ok("configuration::get", json!({"id": "worktree"})).await;
    let mut value = stored["value"].clone();
    value["gates"] = gates;
    stand.client.ok("configuration::set", json!({"id": "worktree", "value": value})).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_gate_shuts_and_opens_while_the_worker_runs() {
    let stand = Stand::dev().await;
    let repository = stand.repository("shop");
    for (key, shut, function, request, code) in gates(&repository.text()) {
        let mut gates = open();
        gates[key] = shut;
        set(&stand, gates).await;
        // Nobody tells the worker but the engine.
        let denied = until("the denial", || async {
            stand.client.call(function, request.clone()).await.err().filter(|(seen, _)| seen.starts_with("W5"))
        });
        let (seen, message) = denied.await;
        assert_eq!(seen, code, "{function} {request}: {message}");
        let named = format!("gates.{key}");
        assert!(message.contains(&named), "{function}: `{named}` is not named: {message}");
        set(&stand, open()).await;
        until("the open gate", || async {
            let answer = stand.client.call(function, request.clone()).await;
            (!matches!(answer, Err((seen, _)) if seen.starts_with("W5"))).then_some(())
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn globs_cross_slashes_and_name_whole_paths() {
    let stand = Stand::dev().await;
    let (shop, farm) = (stand.repository("teams/a/shop"), stand.repository("teams/b/farm"));
    let teams = stand.seal.path().join("teams").to_str().unwrap().to_owned();
    stand.configure(json!({"gates": {"repos": [format!("{teams}/a*")]}})).await;
    let created = stand.create(&shop).await;
    // Through one of its worktrees, or a link, it is the same repository.
    stand.client.ok("worktree::create", json!({"repo_path": created.checkout.text()})).await;
    let link = stand.seal.path().join("link");
    std::os::unix::fs::symlink(farm.path(), &link).unwrap();
    for path in [farm.path(), link.as_path()] {
        let message = stand.client.refused("worktree::create", json!({"repo_path": path}), "W503").await;
        assert!(message.contains(&farm.text()), "{message}");
    }
    // Inside a repository that may be used, a wrong path is told as what it is; elsewhere nothing is told.
    let missing = shop.path().join("no/such/file");
    stand.client.refused("worktree::create", json!({"repo_path": missing}), "W110").await;
    stand.client.refused("worktree::create", json!({"repo_path": farm.path().join("no/such/file")}), "W503").await;

    stand.configure(json!({"gates": {"land_targets": ["release/*", "main"]}})).await;
    shop.git(&["branch", "release/1/2"]);
    for (target, code) in [("mainline", "W502"), ("xmain", "W502"), ("release", "W502")] {
        let land = json!({"worktree_id": created.id, "target_branch": target});
        stand.client.refused("worktree::land", land, code).await;
    }
    created.checkout.commit("a", "1\n");
    let mut events = stand.hear().await;
    stand.client.ok("worktree::land", json!({"worktree_id": created.id, "target_branch": "release/1/2"})).await;
    events.landed(&created.id).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn force_takes_and_gives_back_and_says_from_whom() {
    let stand = Stand::dev_with(json!({"gates": {"allow_force": true}})).await;
    let repository = stand.repository("shop");
    let created = stand.create_with(&repository, json!({"session_id": "ada"})).await;
    let mut events = stand.hear().await;
    let by = |session: &str, force: bool| json!({"worktree_id": created.id, "session_id": session, "force": force});
    // Without need, force changes nothing.
    let again = stand.client.ok("worktree::claim", by("ada", true)).await;
    assert!(again["previous_session_id"].is_null(), "{again}");
    assert_eq!(events.rest(&created.id).await, []);
    let taken = stand.client.ok("worktree::claim", by("ben", true)).await;
    assert_eq!((&taken["session_id"], &taken["previous_session_id"]), (&json!("ben"), &json!("ada")));
    let event = events.next("worktree::claimed", &created.id).await;
    assert_eq!((&event["session_id"], &event["previous_session_id"]), (&json!("ben"), &json!("ada")));
    let released = stand.client.ok("worktree::release", by("eve", true)).await;
    assert_eq!(released, json!({"released": true, "worktree_id": created.id}));
    let event = events.next("worktree::released", &created.id).await;
    assert_eq!((&event["session_id"], &event["previous_session_id"]), (&json!("eve"), &json!("ben")));
    let message = stand.client.refused("worktree::release", by("eve", true), "W211").await;
    assert!(message.contains("nobody"), "{message}");
    // One that lands or is blocked stays so, whoever holds it.
    created.checkout.write("loose", "x\n");
    stand.land(&created, json!({})).await;
    events.blocked(&created.id).await;
    stand.client.ok("worktree::claim", by("ben", false)).await;
    assert_eq!(stand.lifecycle(&created.id).await, "land-blocked");
    stand.client.ok("worktree::release", by("ben", false)).await;
    assert_eq!(stand.lifecycle(&created.id).await, "land-blocked");
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_who_claim_at_once_one_holds_it() {
    let stand = Stand::dev().await;
    let created = stand.create(&stand.repository("shop")).await;
    let claims = (0..20).map(|n| {
        let request = json!({"worktree_id": created.id, "session_id": format!("session-{n}")});
        stand.client.call("worktree::claim", request)
    });
    let answers = futures_util::future::join_all(claims).await;
    let winners: Vec<&Value> = answers.iter().filter_map(|answer| answer.as_ref().ok()).collect();
    assert_eq!(winners.len(), 1, "{answers:?}");
    let holder = winners[0]["session_id"].as_str().unwrap();
    for (code, message) in answers.iter().filter_map(|answer| answer.as_ref().err()) {
        assert_eq!(code, "W210");
        assert!(message.contains(holder), "{message}");
    }
    let got = stand.client.ok("worktree::get", json!({"worktree_id": created.id})).await;
    assert_eq!(got["session_id"], holder);
}
