//! The post-checkout hook.

use std::time::Duration;

use super::sealed::{Place, script};
use worktree::git::HookOutcome;

#[tokio::test]
async fn c13_the_outcome_of_the_hook_is_data() {
    let place = Place::new();
    let root = place.repo("shop");
    let tree = place.worktree(&root, "one").await;
    let sha = place.head(&root);
    assert_eq!(tree.run_post_checkout(&sha).await.unwrap(), HookOutcome::Missing);
    let hook = root.join(".git/hooks/post-checkout");
    script(&hook, "echo \"$@\" >seen; pwd >>seen; env | grep -c ^GIT_DIR= >>seen; exit 0");
    assert_eq!(tree.run_post_checkout(&sha).await.unwrap(), HookOutcome::Ok);
    let seen = std::fs::read_to_string(tree.root().join("seen")).unwrap();
    assert_eq!(seen, format!("{} {sha} 1\n{}\n0\n", "0".repeat(40), tree.root().display()));

    script(&hook, "echo no lfs here >&2; exit 3");
    let failed = HookOutcome::Failed { code: Some(3), tail: "no lfs here".to_owned() };
    assert_eq!(tree.run_post_checkout(&sha).await.unwrap(), failed);

    std::fs::write(&hook, "echo no first line; exit 4\n").unwrap();
    assert!(matches!(tree.run_post_checkout(&sha).await.unwrap(), HookOutcome::Failed { code: Some(4), .. }));

    script(&hook, "sleep 60 & sleep 60");
    let short = tree.with_git(&place.git.with_limit(Duration::from_millis(300)));
    assert_eq!(short.run_post_checkout(&sha).await.unwrap(), HookOutcome::TimedOut);
}

#[tokio::test]
async fn a_configured_hook_directory_is_used_for_this_hook_only() {
    let place = Place::new();
    let root = place.repo("shop");
    place.run(&root, ["config", "core.hooksPath", "tools"]);
    let tree = place.worktree(&root, "one").await;
    assert_eq!(tree.run_post_checkout(&place.head(&root)).await.unwrap(), HookOutcome::Missing);
    script(&tree.root().join("tools/post-checkout"), "exit 0");
    assert_eq!(tree.run_post_checkout(&place.head(&root)).await.unwrap(), HookOutcome::Ok);
}
