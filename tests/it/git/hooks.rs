//! The post-checkout hook.

use std::time::Duration;

use super::sealed::{Place, run_hook, script};
use worktree::git::HookOutcome;

#[tokio::test]
async fn c13_the_outcome_of_the_hook_is_data() {
    let place = Place::new();
    let root = place.repo("shop");
    let tree = place.worktree(&root, "one").await;
    let sha = place.head(&root);
    assert_eq!(run_hook(&tree, &sha).await, HookOutcome::Missing);
    let hook = root.join(".git/hooks/post-checkout");
    script(&hook, "echo \"$@\" >seen; pwd >>seen; env | grep -c ^GIT_DIR= >>seen; exit 0");
    assert_eq!(run_hook(&tree, &sha).await, HookOutcome::Ok);
    let seen = std::fs::read_to_string(tree.root().join("seen")).unwrap();
    assert_eq!(seen, format!("{} {sha} 1\n{}\n0\n", "0".repeat(40), tree.root().display()));

    script(&hook, "echo no lfs here >&2; exit 3");
    let failed = HookOutcome::Failed { code: Some(3), tail: "no lfs here".to_owned() };
    assert_eq!(run_hook(&tree, &sha).await, failed);

    std::fs::write(&hook, "echo no first line; exit 4\n").unwrap();
    assert!(matches!(run_hook(&tree, &sha).await, HookOutcome::Failed { code: Some(4), .. }));

    script(&hook, "sleep 60 & sleep 60");
    let short = tree.with_git(&place.git.with_limit(Duration::from_millis(300)));
    assert_eq!(run_hook(&short, &sha).await, HookOutcome::TimedOut);
}

#[tokio::test]
async fn a_configured_hook_directory_is_used_for_this_hook_only() {
    let place = Place::new();
    let root = place.repo("shop");
    place.run(&root, ["config", "core.hooksPath", "tools"]);
    let tree = place.worktree(&root, "one").await;
    assert_eq!(run_hook(&tree, &place.head(&root)).await, HookOutcome::Missing);
    script(&tree.root().join("tools/post-checkout"), "exit 0");
    assert_eq!(run_hook(&tree, &place.head(&root)).await, HookOutcome::Ok);
}
