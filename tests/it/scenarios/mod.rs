//! What the worker does, scenario by scenario, through the bus only. The same functions are played on `worktree dev`
//! (module `worker`) and on a real engine (the test binary `live`).

pub mod blocking;
pub mod claiming;
pub mod creating;
pub mod landing;
pub mod looking;
pub mod pruning;
pub mod refusing;
pub mod removing;
pub mod surviving;

/// Makes a test of each scenario, on the stand that `$stand` makes; when it makes none, the scenario is skipped.
macro_rules! every_scenario {
    ($stand:path) => {
        $crate::scenarios::on_stand! {
            $stand;
            creating {
                a_worktree_on_a_branch_of_its_own,
                a_base_is_anything_that_resolves_to_a_commit,
                a_branch_that_the_caller_names,
                a_session_claims_what_it_creates,
                any_directory_of_the_repository_will_do,
                a_failing_checkout_hook_does_not_fail_a_complete_tree,
                a_refused_create_leaves_nothing,
                a_pull_request_gets_one_worktree,
                many_at_once_all_succeed,
            }
            claiming {
                a_claim_is_exclusive_and_given_back,
                force_is_switched_off_by_default,
            }
            looking {
                a_list_is_ordered_and_filtered,
                a_list_tells_status_only_when_asked,
                a_worktree_of_somebody_else_is_reported_and_left_alone,
                a_status_counts_what_there_is,
                a_status_knows_what_is_integrated,
                validate_tells_what_a_path_is,
                a_directory_that_is_gone_makes_an_orphan,
            }
            removing {
                a_clean_worktree_is_removed,
                uncommitted_work_is_never_removed,
                commits_that_have_not_landed_are_never_removed,
                a_branch_is_deleted_only_when_asked,
                what_is_half_removed_can_be_removed_again,
                another_directory_in_its_place_is_not_removed,
            }
            pruning {
                what_holds_work_or_is_in_use_is_skipped_with_a_reason,
            }
            refusing {
                a_request_that_is_wrong_is_refused_by_field,
                a_worktree_that_does_not_exist,
                land_refuses_what_cannot_land,
                unknown_fields_are_ignored,
            }
            landing {
                a_branch_lands_and_is_cleaned_up,
                a_kept_worktree_goes_on_from_its_new_base,
                a_branch_is_rebased_onto_a_target_that_moved_before,
                a_target_that_moves_during_the_gate_is_rebased_onto,
                a_target_that_nobody_has_checked_out,
                a_clean_checkout_of_the_target_moves_along,
                work_that_appears_during_the_gate_keeps_the_worktree,
                many_lands_of_one_repository_go_one_after_the_other,
                nothing_waits_for_a_gate,
            }
            blocking {
                a_conflict_stays_open_until_its_owner_resolves_it,
                a_failing_gate,
                a_gate_that_cannot_run_blames_nobody,
                uncommitted_work_blocks,
                a_commit_during_the_gate_blocks,
                changes_in_the_way_of_the_target_block,
                a_checkout_of_the_target_that_git_has_locked,
                an_open_operation_blocks,
            }
            surviving {
                a_killed_worker_finishes_its_land_without_help,
                a_stopped_worker_loses_nothing,
                a_worker_that_is_stopped_during_a_gate_goes_on_later,
                a_worker_that_is_killed_at_any_moment_lands_once,
            }
        }
    };
}

/// Makes the tests of [`every_scenario`], one module per topic.
macro_rules! on_stand {
    ($stand:path; $($topic:ident { $($name:ident,)* })*) => {
        $(mod $topic {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $name() {
                    if let Some(stand) = $stand().await {
                        $crate::scenarios::$topic::$name(stand).await;
                    }
                }
            )*
        })*
    };
}

pub(crate) use {every_scenario, on_stand};

use serde_json::Value;

/// The keys of an object, in order.
fn keys(value: &Value) -> Vec<&str> {
    let mut keys: Vec<_> =
        value.as_object().unwrap_or_else(|| panic!("not an object: {value}")).keys().map(String::as_str).collect();
    keys.sort_unstable();
    keys
}

/// Whether `value` has exactly these keys, apart from those that need not be there.
fn assert_keys(value: &Value, always: &[&str], sometimes: &[&str]) {
    let there = keys(value);
    for key in always {
        assert!(there.contains(key), "no `{key}` in {value}");
    }
    for key in there {
        assert!(always.contains(&key) || sometimes.contains(&key), "`{key}` is not expected in {value}");
    }
}

/// Now, in milliseconds since the epoch.
fn now_ms() -> i64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    i64::try_from(now.as_millis()).unwrap()
}
