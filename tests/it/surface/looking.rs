//! `worktree::list`, `status` and `validate`, at their edges.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::{Checkout, Stand};

#[tokio::test(flavor = "multi_thread")]
async fn a_repository_is_found_by_any_of_its_paths() {
    let stand = Stand::dev().await;
    let repository = stand.repository("shop");
    repository.commit("deep/down/file", "x\n");
    let one = stand.create(&repository).await;
    stand.create(&stand.repository("farm")).await;
    let link = stand.seal.path().join("link");
    std::os::unix::fs::symlink(repository.path().join("deep"), &link).unwrap();
    for path in [
        repository.path().join("deep/down/file"),
        repository.path().join("deep/../deep"),
        repository.path().join(".git"),
        link.join("down"),
        one.checkout.path().join("deep"),
        one.checkout.path().join("."),
    ] {
        let listed = stand.client.ok("worktree::list", json!({"repo_path": path})).await;
        let ids: Vec<&Value> =
            listed["worktrees"].as_array().unwrap().iter().map(|info| &info["worktree_id"]).collect();
        assert_eq!(ids, [&json!(one.id)], "{}", path.display());
    }
    for (path, code) in [(stand.seal.path().to_owned(), "W110"), ("shop".into(), "W111"), ("".into(), "W001")] {
        stand.client.refused("worktree::list", json!({"repo_path": path}), code).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_others_made_is_reported_as_it_is() {
    let stand = Stand::dev().await;
    let repository = stand.repository("shop");
    let ours = stand.create(&repository).await;
    let place = |name: &str| stand.seal.path().join(name).to_str().unwrap().to_owned();
    repository.git(&["worktree", "add", "--quiet", "-b", "theirs", &place("theirs")]);
    repository.git(&["worktree", "add", "--quiet", "--detach", &place("loose")]);
    repository.git(&["worktree", "add", "--quiet", "-b", "gone", &place("gone")]);
    std::fs::remove_dir_all(place("gone")).unwrap();
    let listed = stand.client.ok("worktree::list", json!({"repo_path": ours.checkout.path()})).await;
    let mut seen: Vec<(&str, Option<&str>)> = listed["unmanaged"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| (one["path"].as_str().unwrap(), one["branch"].as_str()))
        .collect();
    seen.sort_unstable();
    let (gone, loose, theirs) = (place("gone"), place("loose"), place("theirs"));
    assert_eq!(seen, [(gone.as_str(), Some("gone")), (&loose, None), (&theirs, Some("theirs"))]);
    // Without a repository nothing is looked for.
    assert_eq!(stand.client.ok("worktree::list", json!({})).await["unmanaged"], json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_worktree_spoils_no_list() {
    let stand = Stand::dev().await;
    let repository = stand.repository("shop");
    let mut worktrees = Vec::new();
    for _ in 0..5 {
        worktrees.push(stand.create(&repository).await);
    }
    // Gone, replaced, without a HEAD, with a damaged index, and well.
    std::fs::remove_dir_all(worktrees[0].checkout.path()).unwrap();
    std::fs::remove_file(worktrees[1].checkout.path().join(".git")).unwrap();
    let git_dir =
        |at: usize| std::path::PathBuf::from(worktrees[at].checkout.git(&["rev-parse", "--absolute-git-dir"]));
    std::fs::write(git_dir(2).join("HEAD"), "nonsense\n").unwrap();
    std::fs::write(git_dir(3).join("index"), "nonsense").unwrap();
    let listed = stand.client.ok("worktree::list", json!({"include_status": true})).await;
    let infos = listed["worktrees"].as_array().unwrap();
    assert_eq!(infos.len(), 5);
    for (at, info) in infos.iter().enumerate() {
        assert_eq!(info["worktree_id"], worktrees[at].id);
        assert_eq!(info["status"].is_null(), at < 4, "{at}: {info}");
        assert_eq!(info["lifecycle"], if at == 0 { "orphaned" } else { "active" });
    }
    for (at, code) in [(0, "W201"), (1, "W202"), (2, "W102"), (3, "W102")] {
        let id = &worktrees[at].id;
        let seen = stand.client.call("worktree::status", json!({"worktree_id": id})).await.unwrap_err();
        assert!(seen.0 == code || (at == 2 && seen.0 == "W110"), "{at}: {seen:?}");
        let got = stand.client.ok("worktree::get", json!({"worktree_id": id})).await;
        assert!(got["status"].is_null(), "{got}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn c23_everything_counts_in_a_status_and_git_locks_nothing() {
    let stand = Stand::dev().await;
    let repository = stand.repository("shop");
    repository.commit("file", "1\n");
    let one = stand.create(&repository).await;
    for (key, value) in
        [("status.showUntrackedFiles", "no"), ("diff.ignoreSubmodules", "all"), ("core.fileMode", "true")]
    {
        repository.git(&["config", key, value]);
    }
    one.checkout.write("loose", "x\n");
    one.checkout.write("staged", "x\n");
    one.checkout.git(&["add", "staged"]);
    one.checkout.write("file", "2\n");
    let status = stand.client.ok("worktree::status", json!({"worktree_id": one.id})).await;
    let counts = ["staged", "unstaged", "untracked", "conflicted"].map(|key| status[key].as_u64().unwrap());
    assert_eq!((counts, &status["clean"]), ([1, 1, 1, 0], &json!(false)));
    // A lock that somebody holds keeps no reader out.
    let git_dir = one.checkout.git(&["rev-parse", "--absolute-git-dir"]);
    std::fs::write(format!("{git_dir}/index.lock"), "").unwrap();
    assert_eq!(stand.client.ok("worktree::status", json!({"worktree_id": one.id})).await, status);
    // Measured against the upstream, once there is one.
    std::fs::remove_file(format!("{git_dir}/index.lock")).unwrap();
    let tip = one.checkout.commit("more", "1\n");
    let ahead = stand.client.ok("worktree::status", json!({"worktree_id": one.id})).await;
    assert_eq!((&ahead["ahead"], &ahead["behind"]), (&json!(1), &json!(0)));
    repository.git(&["branch", "up", &tip]);
    one.checkout.git(&["branch", "--quiet", "--set-upstream-to=up"]);
    let even = stand.client.ok("worktree::status", json!({"worktree_id": one.id})).await;
    assert_eq!((&even["ahead"], &even["behind"]), (&json!(0), &json!(0)));
    // One that is gone is none.
    repository.git(&["branch", "--quiet", "--delete", "--force", "up"]);
    let again = stand.client.ok("worktree::status", json!({"worktree_id": one.id})).await;
    assert_eq!((&again["ahead"], &again["behind"]), (&json!(1), &json!(0)));
}

#[tokio::test(flavor = "multi_thread")]
async fn c40_validate_knows_every_kind_of_path() {
    let stand = Stand::dev().await;
    let repository = stand.repository("shop");
    repository.commit("deep/file", "x\n");
    let one = stand.create(&repository).await;
    let two = stand.create(&repository).await;
    let gone = stand.create(&repository).await;
    let broken = stand.create(&repository).await;
    let path = |checkout: &Checkout, below: &str| checkout.path().join(below);
    let bare = stand.seal.path().join("bare.git");
    repository.git(&["clone", "--quiet", "--bare", &repository.text(), bare.to_str().unwrap()]);
    let bare_inside = path(&repository, "vendor/bare.git");
    repository.git(&["clone", "--quiet", "--bare", &repository.text(), bare_inside.to_str().unwrap()]);
    let link = stand.seal.path().join("link");
    std::os::unix::fs::symlink(one.checkout.path(), &link).unwrap();
    std::fs::remove_dir_all(gone.checkout.path()).unwrap();
    std::fs::remove_dir_all(broken.checkout.path()).unwrap();
    std::os::unix::fs::symlink(repository.path(), broken.checkout.path()).unwrap();
    let from_one_to_two = path(&one.checkout, &format!("../{}/deep", two.id));

    for (path, valid, owner) in [
        (one.checkout.path().to_owned(), true, Some(&one.id)),
        (path(&one.checkout, "deep/file"), true, Some(&one.id)),
        (path(&one.checkout, "deep/../deep/."), true, Some(&one.id)),
        (link.join("deep"), true, Some(&one.id)),
        (path(&one.checkout, "no/such/file"), false, Some(&one.id)),
        (from_one_to_two, true, Some(&two.id)),
        (gone.checkout.path().to_owned(), false, Some(&gone.id)),
        (path(&gone.checkout, "deep"), false, Some(&gone.id)),
        (broken.checkout.path().to_owned(), false, Some(&broken.id)),
        (repository.path().to_owned(), true, None),
        (path(&repository, "deep/file"), true, None),
        (path(&repository, ".git"), false, None),
        (path(&repository, ".git/refs/heads"), false, None),
        (path(&repository, "no/such/file"), false, None),
        (bare.clone(), false, None),
        (bare.join("refs"), false, None),
        (bare_inside, false, None),
        (one.checkout.path().parent().unwrap().to_owned(), false, None),
        (path(&one.checkout, "../../../../.."), false, None),
        (stand.seal.path().to_owned(), false, None),
        ("/".into(), false, None),
        ("/dev/null".into(), false, None),
    ] {
        let validated = stand.client.ok("worktree::validate", json!({"path": path})).await;
        let expected = (json!(valid), json!(owner.is_some()), json!(owner));
        let seen = (&validated["valid"], &validated["managed"], &validated["worktree_id"]);
        assert_eq!(seen, (&expected.0, &expected.1, &expected.2), "{}: {validated}", path.display());
        assert_eq!(validated["reason"].is_string(), !valid, "{}: {validated}", path.display());
    }
    // Told once, it is stored.
    let stored = stand.client.ok("state::get", json!({"scope": "worktree", "key": gone.id})).await;
    assert_eq!(stored["lifecycle"], "orphaned");
    for (path, code) in [("relative", "W111"), ("", "W001"), (" ", "W001"), ("/a\u{0}b", "W111")] {
        stand.client.refused("worktree::validate", json!({"path": path}), code).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_of_hundreds_is_answered_while_one_looks() {
    const REPOSITORIES: usize = 10;
    const EACH: usize = 20;
    let stand = Stand::dev().await;
    for number in 0..REPOSITORIES {
        let repository = stand.repository(&format!("shop-{number}"));
        futures_util::future::join_all((0..EACH).map(|_| stand.create(&repository))).await;
    }
    let ask = || async {
        let asked = Instant::now();
        let listed = stand.client.ok("worktree::list", json!({"include_status": true})).await;
        let infos = listed["worktrees"].as_array().unwrap();
        assert_eq!(infos.len(), REPOSITORIES * EACH);
        assert!(infos.iter().all(|info| info["status"]["integration_reason"] == "same_commit"), "{}", infos[0]);
        asked.elapsed()
    };
    let mut times = Vec::new();
    for _ in 0..5 {
        times.push(ask().await);
    }
    times.sort_unstable();
    eprintln!("{} worktrees with status: {times:?}", REPOSITORIES * EACH);
    // Generous for a machine that does other things as well; a process for each question would take many times that.
    assert!(times[0] < Duration::from_secs(4), "{times:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn many_together_look_as_each_by_itself() {
    let stand = Stand::dev().await;
    let repository = stand.repository("shop");
    repository.commit("file", "1\n");
    let mut worktrees = Vec::new();
    for _ in 0..9 {
        worktrees.push(stand.create(&repository).await);
    }
    let at = |at: usize| &worktrees[at].checkout;
    at(1).commit("a", "1\n");
    at(2).write("loose", "x\n");
    at(3).commit("file", "2\n");
    at(3).write("file", "3\n");
    at(4).git(&["commit", "--quiet", "--allow-empty", "-m", "nothing"]);
    at(5).git(&["mv", "file", "moved"]);
    at(5).git(&["commit", "--quiet", "-m", "moved"]);
    at(6).git(&["checkout", "--quiet", "--detach"]);
    at(7).commit("b", "1\n");
    repository.git(&["branch", "up", "main"]);
    at(7).git(&["branch", "--quiet", "--set-upstream-to=up"]);
    at(8).git(&["checkout", "--quiet", "-b", "other"]);
    at(8).commit("c", "1\n");
    // Long enough for an index to be younger than what it lists.
    tokio::time::sleep(Duration::from_millis(50)).await;
    for moved in [false, true] {
        if moved {
            // The work of one arrives in main as a squash; main goes on from where the others began.
            repository.commit("a", "1\n");
            repository.commit("d", "1\n");
        }
        let listed = stand.client.ok("worktree::list", json!({"include_status": true})).await;
        for info in listed["worktrees"].as_array().unwrap() {
            let mut alone = stand.client.ok("worktree::status", json!({"worktree_id": info["worktree_id"]})).await;
            for field in ["worktree_id", "branch", "lifecycle", "dev_port"] {
                alone.as_object_mut().unwrap().remove(field);
            }
            assert_eq!(info["status"], alone, "{info:#}");
        }
    }
}
