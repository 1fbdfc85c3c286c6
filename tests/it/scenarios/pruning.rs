//! `worktree::prune`.

use serde_json::{Value, json};

use super::assert_keys;
use crate::support::Stand;

fn skipped<'a>(pruned: &'a Value, id: &str) -> &'a str {
    let skips = pruned["skipped"].as_array().unwrap();
    let skip = skips.iter().find(|skip| skip["id"] == id).unwrap_or_else(|| panic!("{id} is not skipped: {pruned}"));
    skip["reason"].as_str().unwrap()
}

pub async fn what_holds_work_or_is_in_use_is_skipped_with_a_reason(stand: Stand) {
    let repository = stand.repository("shop");
    let claimed = stand.create_with(&repository, json!({"session_id": "ada"})).await;
    let dirty = stand.create(&repository).await;
    dirty.checkout.write("loose", "x\n");
    let ahead = stand.create(&repository).await;
    ahead.checkout.commit("apples", "3\n");
    let fresh = stand.create(&repository).await;
    for request in [json!({"dry_run": true}), json!({}), json!({"repo_path": repository.text(), "trigger": "cron"})] {
        let pruned = stand.client.ok("worktree::prune", request).await;
        assert_keys(&pruned, &["pruned", "skipped"], &[]);
        assert_eq!(pruned["pruned"], json!([]));
        for worktree in [&claimed, &dirty, &ahead, &fresh] {
            assert!(!skipped(&pruned, &worktree.id).is_empty());
        }
    }
    for worktree in [&claimed, &dirty, &ahead, &fresh] {
        assert!(worktree.checkout.path().join("README").exists());
    }
    assert_eq!(dirty.checkout.read("loose"), "x\n");
}
