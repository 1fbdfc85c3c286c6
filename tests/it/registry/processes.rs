//! How many git processes each call starts: a process costs two to four milliseconds, so that one more is a decision.

use std::collections::BTreeMap;

use serde_json::json;
use worktree::land::{land_step, start};
use worktree::queue::Dispatcher;
use worktree::worktrees::{claim, create, get, list, prune, release, remove, status, validate};

use super::bench::Bench;
use crate::support::Seal;
use crate::support::golden::Goldens;
use crate::support::seal::can_replay;

/// Counts what the calls of a bench start, by what they are called here.
struct Tally<'a> {
    bench: &'a Bench,
    counts: BTreeMap<&'static str, u64>,
}

impl Tally<'_> {
    /// Runs one call, with nothing of an earlier one still going on.
    async fn of<T>(&mut self, what: &'static str, call: impl Future<Output = worktree::model::Result<T>>) -> T {
        self.bench.ctx.background.idle().await;
        let before = self.bench.ctx.git().processes_started();
        let answer = call.await.unwrap_or_else(|error| panic!("{what}: {error}"));
        self.counts.insert(what, self.bench.ctx.git().processes_started() - before);
        answer
    }
}

fn request<T: serde::de::DeserializeOwned>(fields: serde_json::Value) -> T {
    serde_json::from_value(fields).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_processes_of_each_call_are_as_reviewed() {
    let bench = Bench::within(Seal::calm(), json!({"prune_expire_hours": 0})).await;
    let repository = bench.repository("shop");
    repository.git(&["checkout", "--quiet", "--detach"]);
    let ctx = &bench.ctx;
    let mut tally = Tally { bench: &bench, counts: BTreeMap::new() };
    let create = || create::run(ctx, request(json!({"repo_path": repository.text(), "base_ref": "main"})));
    let one = tally.of("create", create()).await;
    let two = create().await.unwrap();
    let three = create().await.unwrap();
    let four = create().await.unwrap();
    let checkout = |path: &str| crate::support::Checkout::at(std::path::Path::new(path), &bench.seal);
    for made in [&one, &two] {
        checkout(&made.path).commit(&made.worktree_id, "1\n");
    }
    let id = |id: &str| json!({"worktree_id": id});
    let held = json!({"worktree_id": one.worktree_id, "session_id": "s"});
    tally.of("validate", validate::run(ctx, request(json!({"path": one.path})))).await;
    tally.of("claim", claim::run(ctx, request(held.clone()))).await;
    tally.of("release", release::run(ctx, request(held))).await;
    tally.of("list", list::run(ctx, request(json!({})))).await;
    tally.of("list of a repository", list::run(ctx, request(json!({"repo_path": repository.text()})))).await;
    tally.of("status, first", status::run(ctx, request(id(&one.worktree_id)))).await;
    tally.of("status, again", status::run(ctx, request(id(&one.worktree_id)))).await;
    tally.of("get, again", get::run(ctx, request(id(&one.worktree_id)))).await;
    let with_status = || list::run(ctx, request(json!({"include_status": true})));
    // Long enough for an index to be younger than what it lists.
    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    tally.of("list with the status of four, one of them known", with_status()).await;
    tally.of("list with the status of four, again", with_status()).await;

    let dispatcher = Dispatcher::new();
    for (made, what, test_cmd) in [
        (&one, "land of one commit on a target that stands still, to its end", None),
        (&two, "land of one commit on a target that moved, with a gate, to its end", Some("true")),
    ] {
        let mut fields = json!({"worktree_id": made.worktree_id, "target_branch": "main"});
        if let Some(test_cmd) = test_cmd {
            fields["test_cmd"] = json!(test_cmd);
        }
        let landed = tally.of(what, async {
            let job = start::run(ctx, &dispatcher, request(fields)).await?;
            land_step::run(ctx, &dispatcher, request(json!({"job_id": job.job_id}))).await
        });
        assert!(landed.await.done);
        assert!(ctx.registry.record(&made.worktree_id).is_err(), "{what}: it is still there");
    }
    let gone = json!({"worktree_id": three.worktree_id, "delete_branch": true});
    tally.of("remove with its branch", remove::run(ctx, request(gone))).await;
    let pruned = tally.of("prune of one", prune::run(ctx, request(json!({})))).await;
    assert_eq!(pruned.pruned, [four.worktree_id]);
    for number in 0..5 {
        let made = create().await.unwrap();
        checkout(&made.path).commit(&format!("kept-{number}"), "1\n");
    }
    // As far as the commits of the repository are concerned, the usual state.
    repository.git(&["repack", "-a", "-d", "--quiet"]);
    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    let pruned = tally.of("prune of none of five", prune::run(ctx, request(json!({})))).await;
    assert_eq!((pruned.pruned.len(), pruned.skipped.len()), (0, 5));
    for _ in 0..5 {
        create().await.unwrap();
    }
    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    let pruned = tally.of("prune of five of ten", prune::run(ctx, request(json!({})))).await;
    assert_eq!((pruned.pruned.len(), pruned.skipped.len()), (5, 5));

    // An older git proves no replay, and answers for one branch at a time: how often then depends on which of the
    // worktrees, that are looked at side by side, asks first for what another one needs, too.
    let replays = can_replay();
    if !replays {
        tally.counts.remove("prune of none of five").unwrap();
    }
    let mut goldens = Goldens::at(if replays { "processes" } else { "processes_before_git_2.41" });
    goldens.check("calls.json", &(serde_json::to_string_pretty(&tally.counts).unwrap() + "\n"));
    goldens.finish();
}
