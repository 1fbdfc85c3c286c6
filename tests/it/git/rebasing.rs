//! Real rebases in a worktree.

use std::path::PathBuf;

use super::sealed::{Place, put};
use worktree::git::{Operation, RebaseOutcome};

#[tokio::test]
async fn a_branch_is_rebased_and_a_conflict_is_left_open() {
    let place = Place::new();
    let root = place.repo("shop");
    let tree = place.worktree(&root, "feat").await;
    place.commit(tree.root(), "a", "1\n");
    let onto = place.commit(&root, "b", "2\n");
    let RebaseOutcome::Done { head } = tree.rebase(&onto).await.unwrap() else { panic!() };
    assert_eq!(tree.head().await.unwrap(), Some(head.clone()));
    assert!(tree.repo().is_ancestor(&onto, &head).await.unwrap());
    assert_eq!(tree.rebase(&onto).await.unwrap(), RebaseOutcome::Done { head: head.clone() });

    let onto = place.commit(&root, "a", "other\n");
    let conflict = tree.rebase(&onto).await.unwrap();
    assert_eq!(conflict, RebaseOutcome::Conflict { files: vec![PathBuf::from("a")] });
    assert_eq!(tree.operation(), Some(Operation::Rebase));
    assert_eq!(tree.status().await.unwrap().conflicted, 1);
    assert_eq!(tree.rebase(&onto).await.unwrap_err().code().as_str(), "W402");
    tree.abort_rebase().await.unwrap();
    tree.abort_rebase().await.unwrap();
    assert_eq!(tree.head().await.unwrap(), Some(head));
    assert!(tree.status().await.unwrap().is_clean());
}

#[tokio::test]
async fn a_rebase_that_stops_for_another_reason_is_undone_invariant_2() {
    let place = Place::new();
    let root = place.repo("shop");
    let tree = place.worktree(&root, "feat").await;
    let head = place.commit(tree.root(), "a", "1\n");
    let onto = place.commit(&root, "b", "2\n");
    put(tree.root(), "b", "mine\n");
    let RebaseOutcome::Failed { message } = tree.rebase(&onto).await.unwrap() else { panic!() };
    assert!(message.contains('b'), "{message}");
    assert_eq!(tree.operation(), None);
    assert_eq!(tree.head().await.unwrap(), Some(head));
    assert_eq!(std::fs::read_to_string(tree.root().join("b")).unwrap(), "mine\n");
}
