//! A hundred lands at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::join_all;
use serde_json::json;

use crate::support::{Client, Stand};

const LANDS: usize = 100;
const CLIENTS: usize = 8;

/// One commit on `trunk` by hand; nothing when somebody was faster.
fn move_by_hand(repository: &crate::support::Checkout, number: usize) -> bool {
    let old = repository.sha("refs/heads/trunk");
    let message = format!("By hand {number}");
    let new = repository.git(&["commit-tree", "-p", &old, "-m", &message, &format!("{old}^{{tree}}")]);
    repository.try_git(&["update-ref", "refs/heads/trunk", &new, &old]).status.success()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_lands_by_eight_clients_while_the_target_moves_by_hand() {
    let stand = Arc::new(Stand::dev().await);
    let repository = stand.repository("shop");
    repository.git(&["branch", "trunk"]);
    let mut events = stand.hear().await;
    let shares = join_all((0..CLIENTS).map(|client| {
        let (stand, repository) = (stand.clone(), repository.clone());
        tokio::spawn(async move {
            let mut share = Vec::new();
            for number in (client..LANDS).step_by(CLIENTS) {
                let created = stand.create_with(&repository, json!({"base_ref": "trunk"})).await;
                created.checkout.commit(&format!("file-{number}"), "x\n");
                share.push((number, created));
            }
            share
        })
    }))
    .await;

    let stop = Arc::new(AtomicBool::new(false));
    let mover = {
        let (repository, stop) = (repository.clone(), stop.clone());
        tokio::task::spawn_blocking(move || {
            let mut moved = 0;
            while !stop.load(Ordering::Relaxed) && moved < 40 {
                moved += usize::from(move_by_hand(&repository, moved));
                std::thread::sleep(std::time::Duration::from_millis(120));
            }
            moved
        })
    };
    let queued = join_all(shares.into_iter().map(|share| {
        let url = stand.url().to_owned();
        tokio::spawn(async move {
            let client = Client::connect(&url).await;
            let mut mine = Vec::new();
            for (number, created) in share.unwrap() {
                let gate = if number % 3 == 0 { json!("true") } else { json!(null) };
                let request = json!({"worktree_id": created.id, "target_branch": "trunk", "test_cmd": gate});
                client.ok("worktree::land", request).await;
                mine.push((number, created));
            }
            mine
        })
    }))
    .await;

    let mut exhausted = Vec::new();
    for (number, created) in queued.into_iter().flat_map(Result::unwrap) {
        let kinds = ["worktree::landed", "worktree::land-blocked"];
        if let ("worktree::land-blocked", event) = events.next_of(&kinds, &created.id).await {
            // The only thing that can be in the way, and it is true.
            assert_eq!(event["code"], "W412", "{event:#}");
            exhausted.push((number, created));
        }
    }
    stop.store(true, Ordering::Relaxed);
    let moved = mover.await.unwrap();
    assert!(moved > 5, "the target was moved only {moved} times");
    for (_, created) in &exhausted {
        let request = json!({"worktree_id": created.id, "target_branch": "trunk"});
        stand.client.ok("worktree::land", request).await;
    }
    for (_, created) in &exhausted {
        events.landed(&created.id).await;
    }
    let subjects = repository.git(&["log", "--format=%s", "trunk"]);
    for number in 0..LANDS {
        let subject = format!("Write file-{number}");
        assert_eq!(subjects.lines().filter(|line| *line == subject).count(), 1, "{subject}");
    }
    assert_eq!(subjects.lines().filter(|line| line.starts_with("By hand")).count(), moved);
    assert_eq!(subjects.lines().count(), 1 + LANDS + moved);
    assert_eq!(repository.git(&["rev-list", "--merges", "trunk"]), "");
    assert_eq!(repository.worktrees(), [repository.path()]);
}
