//! The six kinds of events: what each carries, who hears it, and when.

use std::time::{Duration, Instant};

use iii_sdk::RegisterFunction;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use worktree::model::event::EventKind;

use crate::support::stand::Worktree;
use crate::support::{Client, PATIENCE, Stand, until};

/// Makes each kind of event happen to a worktree of its own; the worktree it happened to.
async fn happen(stand: &Stand, kind: EventKind) -> Worktree {
    let repository = stand.repository(&format!("{kind:?}"));
    let worktree = stand.create_with(&repository, json!({"session_id": "ada"})).await;
    let id = json!({"worktree_id": worktree.id});
    let by = |session: &str| json!({"worktree_id": worktree.id, "session_id": session, "force": true});
    match kind {
        EventKind::Created => {}
        EventKind::Claimed => drop(stand.client.ok("worktree::claim", by("ben")).await),
        EventKind::Released => drop(stand.client.ok("worktree::release", by("ben")).await),
        EventKind::Removed => drop(stand.client.ok("worktree::remove", id).await),
        EventKind::Landed => {
            worktree.checkout.commit("a", "1\n");
            stand.land(&worktree, json!({})).await;
        }
        EventKind::LandBlocked => {
            worktree.checkout.commit("a", "1\n");
            stand.land(&worktree, json!({"test_cmd": "echo wrong; exit 3"})).await;
        }
    }
    worktree
}

/// Whether the state that an event reports is what a reader sees.
async fn holds(stand: &Stand, kind: EventKind, event: &Value) {
    let got = stand.client.call("worktree::get", json!({"worktree_id": event["worktree_id"]})).await;
    match kind {
        EventKind::Created => assert_eq!(got.unwrap()["path"], event["path"]),
        EventKind::Claimed => assert_eq!(got.unwrap()["session_id"], event["session_id"]),
        EventKind::Released => assert!(got.unwrap()["session_id"].is_null()),
        EventKind::Removed | EventKind::Landed => assert_eq!(got.unwrap_err().0, "W200"),
        EventKind::LandBlocked => assert_eq!(got.unwrap()["lifecycle"], "land-blocked"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_event_carries_its_fields_and_is_sent_when_it_is_so() {
    let stand = Stand::dev_with(json!({"gates": {"allow_force": true}})).await;
    let mut events = stand.hear().await;
    for kind in EventKind::ALL {
        let worktree = happen(&stand, kind).await;
        let event = events.next(kind.trigger_type(), &worktree.id).await;
        holds(&stand, kind, &event).await;
        let fields = kind.fields();
        for key in event.as_object().unwrap().keys() {
            let known = fields.always.contains(&key.as_str()) || fields.sometimes.contains(&key.as_str());
            assert!(known, "{kind:?} carries `{key}`: {event}");
        }
        for field in fields.always {
            assert!(!event[field].is_null(), "{kind:?} lacks `{field}`: {event}");
        }
        // Its reader knows each field by its type.
        for (field, value) in event.as_object().unwrap() {
            let well = match field.as_str() {
                "timestamp" => value.as_i64().is_some_and(|at| at > 1_700_000_000_000),
                "exit_code" => value == 3,
                "branch_deleted" | "forced" | "gated" => value.is_boolean(),
                "conflict_files" => value.is_array(),
                _ => value.as_str().is_some_and(|text| !text.is_empty()),
            };
            assert!(well, "{kind:?} {field}: {value}");
        }
        match kind {
            EventKind::Claimed | EventKind::Released => assert_eq!(event["previous_session_id"], "ada"),
            EventKind::LandBlocked => {
                assert_eq!((&event["code"], &event["output_tail"]), (&json!("W411"), &json!("wrong")));
                assert!(event.get("conflict_files").is_none(), "it does not apply: {event}");
            }
            _ => assert_eq!(event["session_id"], "ada"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_event_is_filtered_by_each_of_the_three_keys() {
    let stand = Stand::dev_with(json!({"gates": {"allow_force": true}})).await;
    let mut all = stand.hear().await;
    let mut of_ada = stand.client.hear(json!({"session_id": "ada"})).await;
    let mut of_ben = stand.client.hear(json!({"session_id": "ben", "repo_path": null})).await;
    let mut of_nobody = stand.client.hear(json!({"worktree_id": "wt_0123456789ab"})).await;
    let mut by_repository = Vec::new();
    for kind in EventKind::ALL {
        let path = stand.seal.path().join(format!("{kind:?}"));
        by_repository.push((kind, path.clone(), stand.client.hear(json!({"repo_path": path})).await));
    }
    for (kind, path, events) in &mut by_repository {
        let worktree = happen(&stand, *kind).await;
        let event = events.next(kind.trigger_type(), &worktree.id).await;
        assert_eq!(event["repo_path"], path.to_str().unwrap());
        assert_eq!(all.next(kind.trigger_type(), &worktree.id).await, event);
        let session = if event["session_id"] == "ben" { &mut of_ben } else { &mut of_ada };
        session.next(kind.trigger_type(), &worktree.id).await;
    }
    for (_, path, events) in &mut by_repository {
        for (kind, event) in events.everything().await {
            assert_eq!(event["repo_path"], path.to_str().unwrap(), "{kind} of another repository was heard");
        }
    }
    for (session, events) in [("ada", &mut of_ada), ("ben", &mut of_ben)] {
        for (kind, event) in events.everything().await {
            assert_eq!(event["session_id"], session, "{kind} of another session was heard: {event}");
        }
    }
    assert_eq!(of_nobody.everything().await, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn events_of_one_worktree_arrive_in_their_order() {
    let stand = Stand::dev().await;
    let created = stand.create(&stand.repository("shop")).await;
    let (sender, mut receiver) = mpsc::unbounded_channel();
    for kind in ["worktree::claimed", "worktree::released"] {
        stand.client.on_event(&format!("test::order-{}", &kind[10..]), kind, sender.clone());
        let function_id = format!("test::order-{}", &kind[10..]);
        let binding = json!({"trigger_type": kind, "function_id": function_id, "config": {}});
        stand.client.ok("engine::register_trigger", binding).await;
    }
    const TURNS: usize = 50;
    for turn in 0..TURNS {
        let by = json!({"worktree_id": created.id, "session_id": format!("session-{turn}")});
        stand.client.ok("worktree::claim", by.clone()).await;
        stand.client.ok("worktree::release", by).await;
    }
    for turn in 0..TURNS {
        for kind in ["worktree::claimed", "worktree::released"] {
            let (seen, event) = tokio::time::timeout(PATIENCE, receiver.recv()).await.unwrap().unwrap();
            assert_eq!((seen, &event["session_id"]), (kind, &json!(format!("session-{turn}"))));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_binding_that_asks_for_what_there_is_not_is_refused_by_the_key() {
    let stand = Stand::dev().await;
    for kind in EventKind::ALL {
        for (config, key) in [
            (json!({"branch": "main"}), "branch"),
            (json!({"repo_path": "/x", "Session_id": "a"}), "Session_id"),
            (json!({"worktree_id": 7}), "worktree_id"),
            (json!([]), ""),
        ] {
            let binding = json!({"trigger_type": kind.trigger_type(), "function_id": "test::x", "config": config});
            let code = "trigger_registration_failed";
            let message = stand.client.refused("engine::register_trigger", binding, code).await;
            assert!(message.contains(key) && message.contains(kind.trigger_type()), "{message}");
        }
    }
    // Repaired and sent again under its id, it is served.
    for config in [json!(null), json!({}), json!({"repo_path": null})] {
        let binding = json!({"trigger_type": "worktree::created", "function_id": "test::x", "config": config});
        stand.client.ok("engine::register_trigger", binding).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_and_dead_subscribers_hold_nobody_up() {
    let stand = Stand::dev().await;
    let repository = stand.repository("shop");
    let hangs = RegisterFunction::new_async(|_: Value| std::future::pending::<Result<Value, iii_sdk::Error>>());
    stand.client.sdk().register_function("test::hangs", hangs);
    let fails = RegisterFunction::new_async(|_: Value| {
        std::future::ready(Err::<Value, _>(iii_sdk::Error::Handler("no".to_owned())))
    });
    stand.client.sdk().register_function("test::fails", fails);
    for kind in EventKind::ALL {
        for function_id in ["test::hangs", "test::fails", "test::nowhere"] {
            for _ in 0..10 {
                let binding = json!({"trigger_type": kind.trigger_type(), "function_id": function_id, "config": {}});
                stand.client.ok("engine::register_trigger", binding).await;
            }
        }
    }
    let mut events = stand.hear().await;
    let begun = Instant::now();
    let created = stand.create_with(&repository, json!({"session_id": "ada"})).await;
    created.checkout.commit("a", "1\n");
    stand.land(&created, json!({"test_cmd": "true"})).await;
    events.next("worktree::created", &created.id).await;
    events.landed(&created.id).await;
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_binding_is_called_in_its_own_namespace_with_its_metadata() {
    let stand = Stand::dev().await;
    let team = Client::connect_in(stand.url(), Some("team")).await;
    let (sender, mut receiver) = mpsc::unbounded_channel();
    // The same name in two namespaces: the binding says which one is meant.
    for (client, place) in [(&stand.client, "default"), (&team, "team")] {
        let sender = sender.clone();
        let heard = move |event: Value, metadata: Option<Value>| {
            sender.send((place, event["worktree_id"].clone(), metadata)).unwrap_or_default();
            std::future::ready(Ok::<_, iii_sdk::Error>(Value::Null))
        };
        client.sdk().register_function("test::heard", RegisterFunction::new_async(heard));
    }
    let binding = iii_sdk::protocol::RegisterTriggerInput::new("worktree::created", "test::heard", json!({}))
        .with_metadata(json!({"tag": [1, {"a": null}]}));
    let bound = team.sdk().register_trigger(binding).unwrap();
    until("the binding", || async {
        let listed =
            stand.client.ok("engine::registered-triggers::list", json!({"trigger_type": "worktree::created"})).await;
        (!listed["registered_triggers"].as_array().unwrap().is_empty()).then_some(())
    })
    .await;
    let created = stand.create(&stand.repository("shop")).await;
    let heard = tokio::time::timeout(PATIENCE, receiver.recv()).await.unwrap().unwrap();
    assert_eq!(heard, ("team", json!(created.id), Some(json!({"tag": [1, {"a": null}]}))));
    bound.unregister();
    until("the end of the binding", || async {
        let listed =
            stand.client.ok("engine::registered-triggers::list", json!({"trigger_type": "worktree::created"})).await;
        listed["registered_triggers"].as_array().unwrap().is_empty().then_some(())
    })
    .await;
    stand.create(&stand.repository("farm")).await;
    assert!(tokio::time::timeout(crate::support::WINDOW, receiver.recv()).await.is_err(), "it was heard all the same");
}

#[tokio::test(flavor = "multi_thread")]
async fn bindings_outlive_a_worker_and_an_engine_that_come_back() {
    let mut stand = Stand::apart().await;
    let repository = stand.repository("shop");
    // Made by a call, it lives as long as the engine, whatever becomes of the worker.
    let mut events = stand.hear().await;
    stand.kill_and_restart().await;
    let created = stand.create(&repository).await;
    events.next("worktree::created", &created.id).await;
    assert_eq!(events.rest(&created.id).await, [], "it was told twice");
    // Made by message, it comes again with its client, also after a new start of the engine.
    let kept = Client::connect(stand.url()).await;
    let (sender, mut receiver) = mpsc::unbounded_channel();
    kept.on_event("test::kept", "worktree::created", sender);
    let binding = iii_sdk::protocol::RegisterTriggerInput::new("worktree::created", "test::kept", json!({}));
    kept.sdk().register_trigger(binding).unwrap();
    stand.restart_engine().await;
    until("the binding", || async {
        let listed =
            stand.client.ok("engine::registered-triggers::list", json!({"trigger_type": "worktree::created"})).await;
        let bound = listed["registered_triggers"].as_array().unwrap().iter();
        bound.map(|one| one["function_id"] == "test::kept").find(|bound| *bound)
    })
    .await;
    let created = stand.create(&repository).await;
    let (_, event) = tokio::time::timeout(PATIENCE, receiver.recv()).await.unwrap().unwrap();
    assert_eq!(event["worktree_id"], created.id);
    assert!(tokio::time::timeout(crate::support::WINDOW, receiver.recv()).await.is_err(), "it was told twice");
    // Those that went with the engine are forgotten.
    let forgotten = || stand.log().matches("a binding that the engine does not know is forgotten").count();
    until("the end of the six bindings made by a call", || async {
        (forgotten() == EventKind::ALL.len()).then_some(())
    })
    .await;
}
