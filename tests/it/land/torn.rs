//! Stored jobs that cannot be read: named with W301, never rewritten, and nobody else is affected.

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::support::{Gate, Stand, until};

async fn a_job_that_becomes(torn: impl Fn(&Value) -> Value) {
    let mut stand = Stand::apart().await;
    let repository = stand.repository("shop");
    let landing = stand.create(&repository).await;
    let head = landing.checkout.commit("apples", "3\n");
    let gate = Gate::new(&stand.seal, "slow");
    let job = stand.land(&landing, json!({"test_cmd": gate.command()})).await;
    gate.started().await;
    stand.signal(Signal::SIGKILL);
    until("the end of the worker", || async { (!stand.runs()).then_some(()) }).await;
    gate.end(0);

    let key = json!({"scope": "worktree_land_job", "key": job});
    let whole = stand.client.ok("state::get", key.clone()).await;
    let broken = torn(&whole);
    let set = |value: &Value| json!({"scope": "worktree_land_job", "key": job, "value": value});
    stand.client.ok("state::set", set(&broken)).await;
    stand.restart().await;

    // Named, by whoever asks for it, and left as it is.
    for (function_id, request) in [
        ("worktree::land", json!({"worktree_id": landing.id, "target_branch": "main"})),
        ("worktree::remove", json!({"worktree_id": landing.id})),
    ] {
        let message = stand.client.refused(function_id, request, "W301").await;
        assert!(message.contains("land job"), "{message}");
    }
    // The queue is not to deliver it again and again: that would hold up whoever comes after it.
    let step = stand.client.ok("worktree::land-step", json!({"job_id": job})).await;
    assert_eq!((&step["done"], &step["phase_completed"]), (&json!(false), &json!("unreadable")));
    assert_eq!(stand.lifecycle(&landing.id).await, "landing");
    let pruned = stand.client.ok("worktree::prune", json!({})).await;
    assert!(pruned["skipped"].to_string().contains(&landing.id), "{pruned}");
    // Others are not affected.
    let mut events = stand.hear().await;
    let other = stand.create(&repository).await;
    let others = other.checkout.commit("pears", "4\n");
    stand.land(&other, json!({})).await;
    assert_eq!(events.landed(&other.id).await["merged_sha"], others);
    assert_eq!(stand.client.ok("state::get", key.clone()).await, broken, "it was rewritten");
    assert_eq!(landing.checkout.sha("HEAD"), head);

    // Whoever can read it goes on with it.
    stand.client.ok("state::set", set(&whole)).await;
    stand.signal(Signal::SIGKILL);
    stand.restart().await;
    until("the end of the land", || async {
        (repository.git(&["log", "--format=%s", "main"]).contains("Write apples")
            && stand.client.call("worktree::get", json!({"worktree_id": landing.id})).await.is_err())
        .then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_of_a_newer_format_waits_for_who_can_read_it() {
    a_job_that_becomes(|whole| {
        let mut newer = whole.clone();
        newer["format"] = json!(whole["format"].as_i64().unwrap() + 1);
        newer
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_was_cut_short_is_found_through_its_worktree() {
    a_job_that_becomes(|whole| {
        let text = whole.to_string();
        Value::String(text[..text.len() / 2].to_owned())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_lost_a_field_is_not_guessed_at() {
    a_job_that_becomes(|whole| {
        let mut less = whole.clone();
        less.as_object_mut().unwrap().remove("phase");
        less
    })
    .await;
}
