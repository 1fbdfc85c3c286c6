//! The ordinary scenarios, for a user whose git configuration and environment do their worst.
//!
//! A seal checks at its end that no canary was run. `WORKTREE_TEST_HOSTILE=1` plays the whole suite like this.

use serde_json::json;

use crate::scenarios::on_stand;
use crate::support::hostile::variables;
use crate::support::{Seal, Stand};

async fn hostile() -> Option<Stand> {
    Some(Stand::dev_in(Seal::hostile(), json!({}), &[]).await)
}

on_stand! {
    crate::hostile::under_fire::hostile;
    creating {
        a_worktree_on_a_branch_of_its_own,
        a_base_is_anything_that_resolves_to_a_commit,
        a_refused_create_leaves_nothing,
        a_pull_request_gets_one_worktree,
        many_at_once_all_succeed,
    }
    looking {
        a_list_tells_status_only_when_asked,
        a_status_counts_what_there_is,
        a_status_knows_what_is_integrated,
    }
    removing {
        a_clean_worktree_is_removed,
        uncommitted_work_is_never_removed,
        commits_that_have_not_landed_are_never_removed,
        a_branch_is_deleted_only_when_asked,
    }
    pruning {
        what_holds_work_or_is_in_use_is_skipped_with_a_reason,
    }
    landing {
        a_branch_lands_and_is_cleaned_up,
        a_kept_worktree_goes_on_from_its_new_base,
        a_branch_is_rebased_onto_a_target_that_moved_before,
        a_target_that_moves_during_the_gate_is_rebased_onto,
        a_target_that_nobody_has_checked_out,
        a_clean_checkout_of_the_target_moves_along,
        work_that_appears_during_the_gate_keeps_the_worktree,
    }
    blocking {
        a_conflict_stays_open_until_its_owner_resolves_it,
        uncommitted_work_blocks,
        changes_in_the_way_of_the_target_block,
        an_open_operation_blocks,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_idle_and_holds_nothing_is_pruned() {
    let stand = Stand::dev_in(Seal::hostile(), json!({"prune_expire_hours": 0}), &[]).await;
    let repository = stand.repository("shop");
    let idle = stand.create(&repository).await;
    let untracked = stand.create(&repository).await;
    untracked.checkout.write("loose", "x\n");
    let pruned = stand.client.ok("worktree::prune", json!({})).await;
    assert_eq!(pruned["pruned"], json!([idle.id]));
    assert!(pruned["skipped"][0]["reason"].as_str().unwrap().starts_with("dirty"), "{pruned}");
}

#[test]
fn the_canary_would_be_seen_and_no_variable_of_git_is_forgotten() {
    let seal = Seal::hostile();
    let repository = crate::support::Checkout::init(seal.path().join("shop"), &seal);
    // A git without the worker's care runs it.
    let mut careless = std::process::Command::new("git");
    careless.args(["status"]).current_dir(repository.path()).env("HOME", seal.home()).output().unwrap();
    assert!(crate::support::hostile::found(seal.path()).is_some_and(|found| found.contains("canary")));
    std::fs::remove_file(seal.path().join("hostile/seen")).unwrap();

    let preset: Vec<&str> = variables(seal.path()).into_iter().map(|(name, _)| name).collect();
    let local = repository.git(&["rev-parse", "--local-env-vars"]);
    let missing: Vec<&str> = local.lines().filter(|name| !preset.contains(name)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}
