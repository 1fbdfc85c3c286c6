//! A create that fails leaves nothing, wherever it fails; a hook alone does not make it fail.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{files_below, untouched};
use crate::support::{Checkout, Gate, Stand, until};

async fn refused(stand: &Stand, repository: &Checkout, fields: Value, code: &str) -> String {
    let mut request = json!({"repo_path": repository.text()});
    request.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    stand.client.refused("worktree::create", request, code).await
}

#[tokio::test(flavor = "multi_thread")]
async fn c02_a_checkout_that_fails_leaves_nothing() {
    let stand = Stand::dev_with(json!({"git": {"filters": ["nowhere"]}})).await;
    let repository = stand.repository("shop");
    repository.commit(".gitattributes", "*.bin filter=nowhere\n");
    repository.commit("large.bin", "pointer\n");
    repository.git(&["config", "filter.nowhere.required", "true"]);
    repository.git(&["config", "filter.nowhere.smudge", "no-such-program-anywhere"]);
    let before = untouched(&stand, &repository).await;
    let message = refused(&stand, &repository, json!({"branch": "again"}), "W102").await;
    assert!(message.contains("nowhere"), "the filter is not named: {message}");
    assert_eq!(untouched(&stand, &repository).await, before);
    // Once it is repaired, the same call succeeds: no name is left taken.
    repository.git(&["config", "--unset", "filter.nowhere.required"]);
    stand.create_with(&repository, json!({"branch": "again"})).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn c02_a_checkout_of_a_pull_request_that_fails_leaves_its_ref_as_it_was() {
    let stand = Stand::dev_with(json!({"git": {"filters": ["nowhere"]}})).await;
    let repository = stand.repository("shop");
    let origin = stand.seal.path().join("origin.git");
    repository.git(&["clone", "--quiet", "--bare", &repository.text(), origin.to_str().unwrap()]);
    repository.git(&["remote", "add", "origin", origin.to_str().unwrap()]);
    repository.commit(".gitattributes", "*.bin filter=nowhere\n");
    repository.commit("large.bin", "pointer\n");
    repository.git(&["push", "--quiet", "origin", "HEAD:refs/pull/7/head"]);
    repository.git(&["config", "filter.nowhere.required", "true"]);
    repository.git(&["config", "filter.nowhere.smudge", "no-such-program-anywhere"]);
    for before in [None, Some("main~2")] {
        if let Some(before) = before {
            repository.git(&["update-ref", "refs/iii/pr/7", before]);
        }
        let before = untouched(&stand, &repository).await;
        refused(&stand, &repository, json!({"pr": 7}), "W102").await;
        assert_eq!(untouched(&stand, &repository).await, before);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_root_that_cannot_be_made_leaves_nothing() {
    let stand = Stand::dev().await;
    let repository = stand.repository("shop");
    let file = stand.seal.path().join("file");
    std::fs::write(&file, "").unwrap();
    stand.configure(json!({"worktree_root": file.join("below")})).await;
    let before = untouched(&stand, &repository).await;
    let message = refused(&stand, &repository, json!({}), "W102").await;
    assert!(message.contains("worktree_root") && message.contains(file.to_str().unwrap()), "{message}");
    assert_eq!(untouched(&stand, &repository).await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_entry_that_git_cannot_make_leaves_nothing() {
    let stand = Stand::dev().await;
    let repository = stand.repository("shop");
    // Where git keeps its entries lies a file.
    std::fs::write(repository.path().join(".git/worktrees"), "").unwrap();
    let refs = repository.refs();
    refused(&stand, &repository, json!({"branch": "again"}), "W102").await;
    assert_eq!((repository.refs(), files_below(&stand.seal.path().join("worktrees"))), (refs, Vec::new()));
    std::fs::remove_file(repository.path().join(".git/worktrees")).unwrap();
    stand.create_with(&repository, json!({"branch": "again"})).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_marker_that_cannot_be_written_at_the_end_leaves_nothing() {
    let stand = Stand::dev().await;
    let repository = stand.repository("shop");
    // The hook of the checkout replaces the marker by a directory that is in use.
    repository.hook(
        "post-checkout",
        "#!/bin/sh\nmarker=$(git rev-parse --git-dir)/iii-worktree.json\nrm -f \"$marker\"\nmkdir -p \"$marker/in-the-way\"\n",
    );
    let before = untouched(&stand, &repository).await;
    refused(&stand, &repository, json!({"branch": "again"}), "W102").await;
    assert_eq!(untouched(&stand, &repository).await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_does_not_answer_leaves_nothing() {
    let (stand, relay) = Stand::apart_behind_relay(&[]).await;
    let repository = stand.repository("shop");
    let mut events = stand.hear().await;
    let before = untouched(&stand, &repository).await;
    relay.refuse("state::", "function_not_found");
    let message = refused(&stand, &repository, json!({"branch": "again", "session_id": "ada"}), "W300").await;
    assert!(message.contains("state"), "{message}");
    assert_eq!(untouched(&stand, &repository).await, before);
    relay.allow_all();
    let created = stand.create_with(&repository, json!({"branch": "again", "session_id": "ada"})).await;
    assert_eq!(events.next("worktree::created", &created.id).await["branch"], "again");
    assert_eq!(stand.client.ok("state::list", json!({"scope": "worktree"})).await.as_array().unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn c13_a_hook_is_judged_by_what_it_leaves() {
    let stand = Stand::dev_with(json!({"git_timeout_ms": 1500})).await;
    let repository = stand.repository("shop");
    repository.hook("post-checkout", "#!/bin/sh\necho broken >&2\nexit 1\n");
    let created = stand.create(&repository).await;
    assert_eq!(created.checkout.git(&["status", "--porcelain"]), "");
    until("a word about the hook", || async { stand.log().contains("post-checkout hook").then_some(()) }).await;

    // One that hangs is ended at the limit, with what it started.
    let pid = stand.seal.path().join("pid");
    repository.hook("post-checkout", &format!("#!/bin/sh\nsleep 300 & echo $! > {}\nwait\n", pid.display()));
    let asked = Instant::now();
    let created = stand.create(&repository).await;
    assert!(asked.elapsed() >= Duration::from_millis(1400), "the hook had no time: {:?}", asked.elapsed());
    assert_eq!(created.checkout.read("README"), "hello\n");
    let pid = std::fs::read_to_string(pid).unwrap();
    until("the end of what the hook started", || async {
        (!std::path::Path::new("/proc").join(pid.trim()).exists()).then_some(())
    })
    .await;

    // One that leaves something else than what was asked for.
    repository.hook("post-checkout", "#!/bin/sh\ngit symbolic-ref HEAD refs/heads/elsewhere\n");
    let before = untouched(&stand, &repository).await;
    let message = refused(&stand, &repository, json!({}), "W102").await;
    assert!(message.contains("hook") && message.contains("elsewhere"), "{message}");
    assert_eq!(untouched(&stand, &repository).await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn c08_a_create_that_was_killed_leaves_nothing_half_made_to_be_seen() {
    let mut stand = Stand::dev().await;
    let repository = stand.repository("shop");
    // A gate serves as a hook that waits: the create is killed in its midst.
    let gate = Gate::new(&stand.seal, "hook");
    repository.hook("post-checkout", &format!("#!/bin/sh\nexec {}\n", gate.command()));
    let asked = {
        let sdk = stand.client.sdk().clone();
        let payload = json!({"repo_path": repository.text(), "branch": "cut-off"});
        tokio::spawn(async move {
            let function_id = "worktree::create".to_owned();
            let request =
                iii_sdk::protocol::TriggerRequest { function_id, payload, action: None, timeout_ms: Some(2_000) };
            sdk.trigger(request).await
        })
    };
    gate.started().await;
    stand.kill_and_restart().await;
    gate.end(0);
    assert!(asked.await.unwrap().is_err());
    // Nobody was told of it: it is in no list, neither as ours nor as somebody else's.
    let listed = stand.client.ok("worktree::list", json!({"repo_path": repository.text()})).await;
    assert_eq!((&listed["worktrees"], &listed["unmanaged"]), (&json!([]), &json!([])));
    std::fs::remove_file(repository.path().join(".git/hooks/post-checkout")).unwrap();
    stand.create(&repository).await;
}
