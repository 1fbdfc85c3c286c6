//! Gates: whom they blame, what they run on, and how they end when the worker does.

use serde_json::{Value, json};

use crate::support::{Gate, Stand, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gate_that_could_not_do_its_work_blames_nobody() {
    let stand = Stand::dev().await;
    let repository = stand.repository("shop");
    let mut events = stand.hear().await;
    let created = stand.create(&repository).await;
    created.checkout.commit("apples", "3\n");
    let before = repository.sha("main");
    for (gate, code, words) in [
        ("echo 'cp: write: No space left on device' >&2; exit 1", "W414", "the disk is full"),
        ("no-such-program-anywhere", "W414", "127"),
        ("exit 126", "W414", "126"),
        ("echo 'one test failed'; exit 1", "W411", "exit code 1"),
        ("kill -9 $$", "W411", "137"),
    ] {
        stand.land(&created, json!({"test_cmd": gate})).await;
        let event = events.blocked(&created.id).await;
        assert_eq!(event["code"], code, "{gate}: {event:#}");
        assert!(event["message"].as_str().unwrap().contains(words), "{gate}: {event:#}");
    }
    assert_eq!(repository.sha("main"), before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_land_keeps_what_the_first_one_had_kept_branch_invariant_3() {
    let stand = Stand::dev().await;
    let repository = stand.repository("shop");
    let mut events = stand.hear().await;
    let created = stand.create(&repository).await;
    let backup = format!("refs/iii/wt-backup/{}", created.id);
    let kept = || repository.git(&["for-each-ref", "--format=%(refname) %(objectname)", "refs/iii"]);
    let mut last = String::new();
    for file in ["apples", "plums"] {
        last = created.checkout.commit(file, "3\n");
        stand.land(&created, json!({"test_cmd": "exit 1"})).await;
        events.blocked(&created.id).await;
        assert_eq!(kept().trim(), format!("{backup} {last}"), "the later one contains the earlier one");
    }
    created.checkout.git(&["commit", "--quiet", "--amend", "--message", "Plums, in other words"]);
    stand.land(&created, json!({"test_cmd": "true"})).await;
    events.landed(&created.id).await;
    assert_eq!(kept().trim(), format!("{backup}.{last} {last}"), "no branch contains it");
}

/// Below and above the limit at which a command goes to the background, the same holds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_short_bound_is_kept_in_the_foreground() {
    let stand = Stand::dev_with(json!({"test_timeout_ms": 1500})).await;
    let repository = stand.repository("shop");
    let mut events = stand.hear().await;
    let created = stand.create(&repository).await;
    let head = created.checkout.commit("apples", "3\n");
    stand.land(&created, json!({"test_cmd": "sleep 30"})).await;
    let event = events.blocked(&created.id).await;
    assert_eq!((&event["code"], &event["reason"]), (&json!("W411"), &json!("test_failed")), "{event:#}");
    assert!(event["message"].as_str().unwrap().contains("ran past 1500 ms"), "{event:#}");
    let jobs = stand.client.ok("shell::list", json!({})).await;
    assert_eq!(jobs["jobs"], json!([]), "it went to the background");
    stand.land(&created, json!({"test_cmd": "true"})).await;
    assert_eq!(events.landed(&created.id).await["merged_sha"], head);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gate_ends_with_the_worker_and_runs_again_with_the_next() {
    let mut stand = Stand::apart().await;
    let repository = stand.repository("shop");
    let mut events = stand.hear().await;
    let created = stand.create(&repository).await;
    let head = created.checkout.commit("apples", "3\n");
    let gate = Gate::new(&stand.seal, "slow");
    stand.land(&created, json!({"test_cmd": gate.command()})).await;
    gate.started().await;
    let asked = std::time::Instant::now();
    stand.stop().await;
    // It does not use up the time that a stop may take: nothing is waited for but the answer of the kill.
    assert!(asked.elapsed() < std::time::Duration::from_secs(7), "the stop waited for the gate");
    let jobs = stand.client.ok("shell::list", json!({})).await;
    let states: Vec<&Value> = jobs["jobs"].as_array().unwrap().iter().map(|job| &job["status"]).collect();
    assert_eq!(states, ["killed"], "{jobs:#}");
    stand.restart().await;
    until("the second run of the gate", || async { (gate.runs().len() == 2).then_some(()) }).await;
    gate.end(0);
    assert_eq!(events.landed(&created.id).await["merged_sha"], head);
}

/// What is tested is what lands, also where git was told not to look.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_that_git_does_not_look_at_is_not_tested() {
    for flag in ["--assume-unchanged", "--skip-worktree"] {
        let stand = Stand::dev().await;
        let repository = stand.repository("shop");
        let mut events = stand.hear().await;
        let created = stand.create(&repository).await;
        created.checkout.commit("apples", "3\n");
        created.checkout.git(&["update-index", flag, "README"]);
        created.checkout.write("README", "only here\n");
        let before = repository.sha("main");
        let gate = Gate::new(&stand.seal, "never");
        stand.land(&created, json!({"test_cmd": gate.command()})).await;
        let event = events.blocked(&created.id).await;
        assert_eq!((&event["code"], &event["reason"]), (&json!("W220"), &json!("dirty")), "{event:#}");
        assert!(event["message"].as_str().unwrap().contains("README"), "{event:#}");
        assert!(gate.runs().is_empty());
        assert_eq!(repository.sha("main"), before);
        assert_eq!(created.checkout.read("README"), "only here\n");
    }
}
