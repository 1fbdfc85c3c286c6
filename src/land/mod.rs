//! The durable machine that lands a branch.
//!
//! `preflight → rebase → test → merge → finalize → done`. A phase is stored before its work begins; on every entry
//! git is looked at again. [`observe`] gathers the facts, [`decide`] chooses from them without touching anything,
//! [`act`] does that one thing, [`transition`] says what the job becomes, and [`step`] stores it. The live run and a
//! run after a crash are the same code.
//!
//! Owners of the fields of a job (`model::job`)
//!
//! | field | set by |
//! |---|---|
//! | identity, `test_cmd`, `keep`, `force_restart`, `session_id` | `land`, once |
//! | `head_sha`, `recorded_target_sha` | preflight; moved on when the target moved |
//! | `rebase_started`, `rebased_sha`, `tree_behind` | rebase: the intent before the effect |
//! | `gate_started`, `test_passed_sha`, `output_tail` | test |
//! | `target_checkouts`, `merged_sha`, `cas_attempts` | merge |
//! | `kept_reason` | finalize |
//! | `blocked_*`, `message`, `conflict_files`, `exit_code` | whichever phase stops the land |
//! | `untold` | set with the end of the job; cleared when record, mark and event have followed |
//!
//! Invariants
//! 1. The commit that lands is the commit that was gated, and the gate began on exactly its tree.
//! 2. The target only moves forward, by compare-and-swap from the commit the rebase was made onto.
//! 3. Every commit that was reachable before stays reachable, until the named clean-up of a branch that has landed.
//! 4. A job ends once: landed or blocked, and its end is told at least once. Running it again after that does nothing.
//! 5. One job of a repository runs at a time, across processes, and jobs run in the order they were asked for.
//! 6. A land without a gate, whose worktree goes at the end, needs no files: branch and files stay where they are
//!    (`tree_behind`), and follow only when the worktree is kept. Its one look at the files comes under the lock, right
//!    before the swap; what it finds is handed on to the clean-up with the lock. Whatever comes in between, a crash or a
//!    fault, has the clean-up look again.
//! 7. The lock of the repository is held around single git steps and registry writes, never across the gate.
//!
//! Killed here → found on restart → done
//!
//! | killed | found | done |
//! |---|---|---|
//! | while a land is accepted | any of job, mark and record | with the job it goes on, without it the record is settled |
//! | before or in preflight | phase preflight | preflight again; the backup ref is written to the same commit |
//! | while the rebase is computed | phase rebase, tip where it was | computed again |
//! | branch moved, working tree not | tip = `rebased_sha`, tree behind | the two-tree move is made again |
//! | branch left behind, target moved | `tree_behind`, tip where it was | judged again; it goes, or follows |
//! | a kept branch followed, its files not | `tree_behind`, tip = `merged_sha` | the two-tree move is made again |
//! | in `git rebase` | an open rebase of ours that has not stopped | aborted, made again |
//! | `git rebase` stopped at a conflict | an open rebase of ours that has stopped | left as it is, blocked with W410 |
//! | in the gate | phase test | the gate runs again, at the same commit |
//! | target moved, not recorded | the target contains `rebased_sha` | recorded as swapped |
//! | target moved, its checkouts not | `target_checkouts` is set | they are brought up to date, or the target is taken back |
//! | worktree renamed, entry not dropped | directory in the trash, entry with our marker | the entry is dropped, then the branch |
//! | the job is done, its end not told | `untold` | [`conclude`] settles the record, drops the backup ref, sends the event |
//! | the trash not emptied | an entry of the trash without a record | deleted |

pub mod act;
pub mod conclude;
pub mod decide;
pub mod gate;
pub mod land_step;
pub mod observe;
pub mod recover;
pub mod start;
pub mod step;
pub mod transition;
