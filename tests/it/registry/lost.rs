//! The registry after the store lost records, and after somebody else wrote to it.

use std::path::Path;
use std::time::Duration;

use serde_json::json;
use worktree::land::{land_step, start};
use worktree::queue::Dispatcher;
use worktree::worktrees::{claim, rebuild};

use super::bench::Bench;
use super::{copy, eager};
use crate::support::{Stand, until};

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_is_killed_right_after_a_create_loses_no_worktree() {
    // Worker and engine go together, and the engine has saved nothing of what it acknowledged.
    let mut stand = Stand::dev().await;
    let repository = stand.repository("shop");
    let old = stand.create(&repository).await;
    stand.kill_change_and_restart(|seal| copy(&seal.path().join("state"), &seal.path().join("saved"))).await;
    let created = stand.create_with(&repository, json!({"session_id": "ada"})).await;
    stand.client.ok("worktree::claim", json!({"worktree_id": old.id, "session_id": "ben"})).await;
    let head = created.checkout.commit("apples", "3\n");
    stand
        .kill_change_and_restart(|seal| {
            std::fs::remove_dir_all(seal.path().join("state")).unwrap();
            copy(&seal.path().join("saved"), &seal.path().join("state"));
        })
        .await;
    // The first answer has it all: the record that was lost, and the claim of the one that was only old.
    let listed = stand.client.ok("worktree::list", json!({})).await;
    let found: Vec<_> = listed["worktrees"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| (one["worktree_id"].as_str().unwrap(), one["session_id"].as_str(), one["lifecycle"].as_str()))
        .collect();
    assert_eq!(
        found,
        [(old.id.as_str(), Some("ben"), Some("claimed")), (created.id.as_str(), Some("ada"), Some("claimed"))]
    );
    assert_eq!(created.checkout.sha("HEAD"), head);
    let mut events = stand.hear().await;
    stand.land(&created, json!({})).await;
    assert_eq!(events.landed(&created.id).await["merged_sha"], head);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_was_wiped_is_filled_again_and_nothing_else_is_taken_in() {
    let mut stand = Stand::dev().await;
    let repository = stand.repository("shop");
    let kept = stand.create(&repository).await;
    // Landed and kept: its base has moved, and the rebuilt record knows that.
    let mut events = stand.hear().await;
    let head = kept.checkout.commit("apples", "3\n");
    stand.land(&kept, json!({"keep": true})).await;
    events.landed(&kept.id).await;
    let removed = stand.create(&repository).await;
    stand.client.ok("worktree::remove", json!({"worktree_id": removed.id})).await;
    // Worktrees of somebody else: beside ours, and at a place that looks like one of ours.
    let slug = kept.checkout.path().parent().unwrap().to_owned();
    let theirs = [stand.seal.path().join("theirs"), slug.join("wt_aaaaaaaaaaaa")];
    for (number, path) in theirs.iter().enumerate() {
        let branch = format!("theirs-{number}");
        repository.git(&["worktree", "add", "--quiet", "-b", &branch, path.to_str().unwrap()]);
    }
    // A copy of the repository bears our markers, and is not what we created.
    copy(repository.path(), &stand.seal.path().join("copied"));
    stand.kill_change_and_restart(|seal| std::fs::remove_dir_all(seal.path().join("state")).unwrap()).await;
    let listed = stand.client.ok("worktree::list", json!({"repo_path": repository.text()})).await;
    let found: Vec<_> = listed["worktrees"].as_array().unwrap().iter().collect();
    assert_eq!(found.len(), 1, "{listed}");
    assert_eq!((&found[0]["worktree_id"], &found[0]["base_sha"]), (&json!(kept.id), &json!(head)));
    assert_eq!(found[0]["lifecycle"], "active");
    let mut unmanaged: Vec<_> =
        listed["unmanaged"].as_array().unwrap().iter().map(|one| one["path"].as_str().unwrap()).collect();
    unmanaged.sort_unstable();
    let mut expected = theirs.map(|path| path.to_str().unwrap().to_owned());
    expected.sort_unstable();
    assert_eq!(unmanaged, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_outlives_its_engine_writes_back_what_that_lost() {
    let mut stand = Stand::apart().await;
    let repository = stand.repository("shop");
    let gone = stand.create(&repository).await;
    stand.change_and_restart_engine(|seal| copy(&seal.path().join("state"), &seal.path().join("saved"))).await;
    let created = stand.create_with(&repository, json!({"session_id": "ada"})).await;
    stand.client.ok("worktree::remove", json!({"worktree_id": gone.id})).await;
    stand
        .change_and_restart_engine(|seal| {
            std::fs::remove_dir_all(seal.path().join("state")).unwrap();
            copy(&seal.path().join("saved"), &seal.path().join("state"));
        })
        .await;
    // Its store has what the worker knows: the record it had lost, and not the one that was deleted since.
    until("the store as the worker knows it", || async {
        let stored = stand.client.ok("state::list", json!({"scope": "worktree"})).await;
        let stored = stored.as_array().unwrap().clone();
        let ids: Vec<_> = stored.iter().map(|one| one["worktree_id"].as_str().unwrap()).collect();
        (ids == [created.id.as_str()]).then_some(())
    })
    .await;
    let listed = stand.client.ok("worktree::list", json!({})).await;
    assert_eq!(listed["worktrees"].as_array().unwrap().len(), 1, "{listed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_somebody_else_writes_is_taken_over_and_a_deleted_record_comes_back() {
    let stand = Stand::dev_with(eager()).await;
    let repository = stand.repository("shop");
    let created = stand.create(&repository).await;
    let at = json!({"scope": "worktree", "key": created.id});
    let mut record = stand.client.ok("state::get", at.clone()).await;
    record["session_id"] = json!("eve");
    record["lifecycle"] = json!("claimed");
    let set = json!({"scope": "worktree", "key": created.id, "value": record});
    stand.client.ok("state::set", set).await;
    until("the claim that was written into the store", || async {
        let got = stand.client.ok("worktree::get", json!({"worktree_id": created.id})).await;
        (got["session_id"] == "eve").then_some(())
    })
    .await;
    let claim = json!({"worktree_id": created.id, "session_id": "ada"});
    let message = stand.client.refused("worktree::claim", claim, "W210").await;
    assert!(message.contains("eve"), "{message}");
    // A value that cannot be read is left alone and named.
    let newer = json!({"scope": "worktree", "key": created.id, "value": {"worktree_id": created.id, "format": 99}});
    stand.client.ok("state::set", newer.clone()).await;
    until("a record that cannot be read", || async {
        let got = stand.client.call("worktree::get", json!({"worktree_id": created.id})).await;
        got.is_err_and(|(code, _)| code == "W301").then_some(())
    })
    .await;
    assert_eq!(stand.client.ok("state::get", at.clone()).await["format"], 99);
    // Deleted although the worktree is there: it comes back, with what it was last.
    stand.client.ok("state::set", json!({"scope": "worktree", "key": created.id, "value": record})).await;
    until("the record", || async { stand.client.call("worktree::get", json!({"worktree_id": created.id})).await.ok() })
        .await;
    stand.client.ok("state::delete", at.clone()).await;
    until("the record that was deleted", || async {
        let stored = stand.client.ok("state::get", at.clone()).await;
        (stored["worktree_id"] == created.id).then_some(())
    })
    .await;
    stand.client.ok("worktree::get", json!({"worktree_id": created.id})).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_leads_elsewhere_is_no_way_to_remove_somebody_elses_work() {
    let stand = Stand::dev_with(eager()).await;
    let repository = stand.repository("shop");
    let created = stand.create(&repository).await;
    let theirs = stand.seal.path().join("theirs");
    repository.git(&["worktree", "add", "--quiet", "-b", "theirs", theirs.to_str().unwrap()]);
    let record = stand.client.ok("state::get", json!({"scope": "worktree", "key": created.id})).await;
    for path in [repository.path(), &theirs] {
        let mut forged = record.clone();
        forged["path"] = json!(path);
        stand.client.ok("state::set", json!({"scope": "worktree", "key": created.id, "value": forged})).await;
        until("the forged record", || async {
            let got = stand.client.ok("worktree::get", json!({"worktree_id": created.id})).await;
            (got["path"] == json!(path)).then_some(())
        })
        .await;
        for force in [false, true] {
            let request = json!({"worktree_id": created.id, "force": force});
            stand.client.refused("worktree::remove", request, "W202").await;
        }
        stand.client.ok("worktree::prune", json!({})).await;
        assert!(path.join("README").exists());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn echoes_of_our_own_writes_change_nothing() {
    let bench = Bench::new().await;
    let repository = bench.repository("shop");
    let (record, _) = bench.create(&repository).await;
    let value = serde_json::to_value(&record).unwrap();
    use worktree::worktrees::registry::Outside;
    let changed = |value: serde_json::Value| {
        let (ctx, id) = (bench.ctx.clone(), record.worktree_id.clone());
        async move { ctx.registry.changed_outside("worktree", &id, &value).await.unwrap() }
    };
    assert_eq!(changed(value.clone()).await, Outside::Known);
    // News that is older than what is stored.
    let mut older = value.clone();
    older["session_id"] = json!("somebody");
    assert_eq!(changed(older).await, Outside::Known);
    assert_eq!(bench.ctx.registry.record(&record.worktree_id).unwrap().session_id, None);
    // Another process (a command of the command line) writes, and the first one is told.
    let second = bench.second().await;
    let claim = worktree::worktrees::claim::Request {
        worktree_id: record.worktree_id.clone(),
        session_id: "ada".to_owned(),
        force: false,
    };
    worktree::worktrees::claim::run(&second, claim).await.unwrap();
    let stored = bench.client().ok("state::get", json!({"scope": "worktree", "key": record.worktree_id})).await;
    assert_eq!(changed(stored).await, Outside::TakenOver);
    assert_eq!(bench.ctx.registry.record(&record.worktree_id).unwrap().session_id.as_deref(), Some("ada"));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_cut_off_create_left_goes_only_when_it_holds_nothing() {
    let bench = Bench::new().await;
    let repository = bench.repository("shop");
    let (empty, _) = bench.create(&repository).await;
    let (used, checkout) = bench.create(&repository).await;
    checkout.write("loose", "x\n");
    // The checkout of the first was cut off before it wrote the index.
    let entry = Path::new(&empty.repo_key).join("worktrees").join(&empty.worktree_id);
    std::fs::rename(entry.join("index"), entry.join("index.lock")).unwrap();
    for record in [&empty, &used] {
        // As if the process had been killed before it stored the record.
        let guard = bench.ctx.registry.lock(&record.repo_key).await.unwrap();
        let link = worktree::git::admin::verify_link(record.repo_key.as_ref(), record.path.as_ref()).unwrap();
        let worktree::git::admin::Link::Intact(entry) = link else { panic!("{link:?}") };
        worktree::worktrees::marker::write(&entry, record, false).unwrap();
        bench.ctx.registry.delete_record(&guard, &record.worktree_id).await.unwrap();
    }
    rebuild::restore_lost(&bench.ctx, None).await;
    rebuild::clear_unfinished(&bench.ctx, None).await;
    assert!(Path::new(&empty.path).exists(), "its create may still be running");
    bench.move_clock(Duration::from_secs(3600));
    rebuild::clear_unfinished(&bench.ctx, None).await;
    assert!(!Path::new(&empty.path).exists());
    assert_eq!(repository.branch(&empty.branch), None);
    assert_eq!(checkout.read("loose"), "x\n");
    assert!(repository.branch(&used.branch).is_some());
    assert!(bench.ctx.registry.records().is_empty(), "neither is taken in");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_create_that_was_killed_before_its_marker_leaves_no_branch() {
    let bench = Bench::new().await;
    let repository = bench.repository("shop");
    let (record, _) = bench.create(&repository).await;
    let (mut branch_only, mut moved) = (record.clone(), record.clone());
    branch_only.worktree_id = "wt_aaaaaaaaaaaa".to_owned();
    moved.worktree_id = "wt_bbbbbbbbbbbb".to_owned();
    let made = ["-c", "core.logAllRefUpdates=always", "update-ref", "--create-reflog", "-m"];
    for one in [&mut branch_only, &mut moved] {
        one.branch = format!("iii/{}", one.worktree_id);
        one.path = Path::new(&record.path).with_file_name(&one.worktree_id).to_str().unwrap().to_owned();
        let guard = bench.ctx.registry.lock(&record.repo_key).await.unwrap();
        worktree::worktrees::intent::note(&guard, one).unwrap();
        let name = format!("refs/heads/{}", one.branch);
        repository.git(&[&made[..], &["branch: Created for a worktree", &name, &one.base_sha]].concat());
    }
    // Somebody has used one of them since.
    let later = repository.commit("pears", "4\n");
    repository.git(&["update-ref", &format!("refs/heads/{}", moved.branch), &later]);
    rebuild::clear_unfinished(&bench.ctx, None).await;
    assert_eq!(repository.branch(&branch_only.branch), None);
    assert_eq!(repository.branch(&moved.branch), Some(later));
    assert!(Path::new(&record.path).exists() && repository.branch(&record.branch).is_some());
    let notes = std::fs::read_dir(repository.path().join(".git")).unwrap();
    let creating = |name: std::ffi::OsString| name.to_str().unwrap().starts_with("iii-worktree-creating");
    assert!(!notes.map(|entry| entry.unwrap().file_name()).any(creating));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_create_that_was_killed_right_after_its_record_is_complete() {
    let bench = Bench::new().await;
    let repository = bench.repository("shop");
    let (record, _) = bench.create(&repository).await;
    let link = worktree::git::admin::verify_link(record.repo_key.as_ref(), record.path.as_ref()).unwrap();
    let worktree::git::admin::Link::Intact(entry) = link else { panic!("{link:?}") };
    worktree::worktrees::marker::write(&entry, &record, false).unwrap();
    bench.move_clock(Duration::from_secs(3600));
    rebuild::clear_unfinished(&bench.ctx, None).await;
    assert!(worktree::worktrees::marker::read(&entry).unwrap().unwrap().ready);
    assert!(Path::new(&record.path).exists());
    // So it comes back like any other when the store loses it.
    bench.client().ok("state::delete", json!({"scope": "worktree", "key": record.worktree_id})).await;
    let second = bench.second().await;
    rebuild::restore_lost(&second, None).await;
    assert!(second.registry.knows(&record.worktree_id));
}

/// The end of a land whose worktree stays is no news from somebody else.
#[tokio::test(flavor = "multi_thread")]
async fn the_news_of_a_mark_that_was_taken_away_is_known() {
    let bench = Bench::new().await;
    let repository = bench.repository("shop");
    let (record, _) = bench.create(&repository).await;
    let guard = bench.ctx.registry.lock(&record.repo_key).await.unwrap();
    bench.ctx.registry.set_live_job(&guard, &record.worktree_id, None).await.unwrap();
    let news = bench.ctx.registry.changed_outside("worktree_land_active", &record.worktree_id, &json!(null));
    assert_eq!(news.await.unwrap(), worktree::worktrees::registry::Outside::Known);
    let other = bench.ctx.registry.changed_outside("worktree", &record.worktree_id, &json!(null));
    assert_eq!(other.await.unwrap(), worktree::worktrees::registry::Outside::Known, "the store still has the record");
}

#[tokio::test(flavor = "multi_thread")]
async fn lands_that_ended_long_ago_are_forgotten() {
    let bench = Bench::with(json!({"prune_expire_hours": 10_000})).await;
    let repository = bench.repository("shop");
    let (record, checkout) = bench.create(&repository).await;
    let head = checkout.commit("apples", "3\n");
    let job = |id: &str, done: bool, at: i64| -> worktree::model::job::Job {
        let value = json!({
            "job_id": id, "worktree_id": record.worktree_id, "repo_key": record.repo_key,
            "repo_path": record.repo_path, "worktree_path": record.path, "branch": record.branch,
            "target_branch": "main", "phase": if done { "done" } else { "merge" }, "done": done, "head_sha": head,
            "created_at": at, "updated_at": at,
        });
        worktree::model::job::Job::from_value(&value).unwrap()
    };
    let now = bench.ctx.now();
    let jobs =
        [("job_000000000001", true, now - 3), ("job_000000000002", true, now - 2), ("job_000000000003", false, 5)];
    for (id, done, at) in jobs {
        bench.ctx.registry.put_job(job(id, done, at)).await.unwrap();
    }
    bench.move_clock(Duration::from_secs(71 * 3600));
    let sweep = || worktree::worktrees::prune::run(&bench.ctx, worktree::worktrees::prune::Request::default());
    sweep().await.unwrap();
    assert!(bench.ctx.registry.job("job_000000000001").unwrap().is_some());
    bench.move_clock(Duration::from_secs(2 * 3600));
    sweep().await.unwrap();
    let left: Vec<bool> = jobs.iter().map(|(id, ..)| bench.ctx.registry.job(id).unwrap().is_some()).collect();
    assert_eq!(left, [false, true, true], "the last one of a worktree, and what has not ended, stay");
    let stored = bench.client().ok("state::list", json!({"scope": "worktree_land_job"})).await;
    assert_eq!(stored.as_array().unwrap().len(), 2);
}

/// What another process wrote, and this one has not heard of, is judged before anything lands; what the first attempt has
/// stored is gone by then.
#[tokio::test(flavor = "multi_thread")]
async fn a_land_of_a_record_that_somebody_else_changed_is_judged_again() {
    let bench = Bench::new().await;
    let repository = bench.repository("shop");
    repository.git(&["checkout", "--quiet", "--detach"]);
    let (record, checkout) = bench.create(&repository).await;
    let head = checkout.commit("apples", "3\n");
    let second = bench.second().await;
    let claimed = json!({"worktree_id": record.worktree_id, "session_id": "ben"});
    claim::run(&second, serde_json::from_value(claimed).unwrap()).await.unwrap();
    assert_eq!(bench.ctx.registry.record(&record.worktree_id).unwrap().session_id, None, "it has not heard of it");
    let dispatcher = Dispatcher::new();
    let request = json!({"worktree_id": record.worktree_id, "target_branch": "main"});
    let job = start::run(&bench.ctx, &dispatcher, serde_json::from_value(request).unwrap()).await.unwrap();
    let stored = bench.client().ok("state::list", json!({"scope": "worktree_land_job"})).await;
    let stored: Vec<_> = stored.as_array().unwrap().iter().map(|job| (&job["job_id"], &job["session_id"])).collect();
    assert_eq!(stored, [(&json!(job.job_id), &json!("ben"))]);
    let now = bench.ctx.registry.record(&record.worktree_id).unwrap();
    assert_eq!((now.session_id.as_deref(), now.lifecycle.as_str()), (Some("ben"), "landing"));
    // The claim and both attempts took a number each.
    assert_eq!(now.fence, record.fence + 3);
    let step = json!({"job_id": job.job_id});
    assert!(land_step::run(&bench.ctx, &dispatcher, serde_json::from_value(step).unwrap()).await.unwrap().done);
    assert_eq!(repository.sha("main"), head);
}
