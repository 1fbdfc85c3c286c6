//! Worktrees that are made before anybody asks for them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use futures_util::future::join_all;
use serde_json::{Value, json};
use worktree::audit::Action;
use worktree::worktrees::{pool, states, usage};

use super::bench::Bench;
use super::{eager, told};
use crate::support::stand::Worktree;
use crate::support::{Checkout, Seal, Stand, WINDOW, until};

/// The markers in git's entries of a repository.
fn markers(repository: &Checkout) -> Vec<Value> {
    let entries = std::fs::read_dir(repository.path().join(".git/worktrees")).into_iter().flatten();
    let read = |entry: std::fs::DirEntry| std::fs::read(entry.path().join("iii-worktree.json")).ok();
    let bytes = entries.map(Result::unwrap).filter_map(read);
    bytes.filter_map(|bytes| serde_json::from_slice(&bytes).ok()).collect()
}

/// Ids of the pooled worktrees of a repository that are complete.
fn complete(repository: &Checkout) -> BTreeSet<String> {
    let ready = |marker: &Value| marker["pooled"]["ready_at"].is_number();
    let id = |marker: Value| marker["record"]["worktree_id"].as_str().unwrap().to_owned();
    markers(repository).into_iter().filter(ready).map(id).collect()
}

/// Waits until exactly so many worktrees are complete, and nothing is being made.
async fn complete_are(repository: &Checkout, count: usize) -> BTreeSet<String> {
    until(&format!("{count} worktrees that stand ready"), || async {
        let pooled = markers(repository).iter().filter(|marker| marker["pooled"].is_object()).count();
        let complete = complete(repository);
        (complete.len() == count && pooled == count).then_some(complete)
    })
    .await
}

/// The same, until the next create can have them.
async fn filled(stand: &Stand, repository: &Checkout, count: usize) -> BTreeSet<String> {
    let ids = complete_are(repository, count).await;
    for id in &ids {
        until(&format!("the word that {id} stands ready"), || async {
            let log = stand.log();
            log.lines().any(|line| line.contains("stands ready") && line.contains(id)).then_some(())
        })
        .await;
    }
    ids
}

fn place(repository: &Checkout, id: &str) -> PathBuf {
    repository.worktrees().into_iter().find(|path| path.ends_with(id)).unwrap_or_else(|| panic!("no worktree {id}"))
}

/// A stand, a repository whose pool is full, and the ids in it.
async fn stand_with(size: u64) -> (Stand, Checkout, BTreeSet<String>) {
    let stand = Stand::dev_with(json!({"pool": {"size": size}, "prune_expire_hours": 0})).await;
    let repository = stand.repository("shop");
    repository.commit("apples", "1\n");
    stand.create(&repository).await;
    let ids = filled(&stand, &repository, usize::try_from(size).unwrap()).await;
    (stand, repository, ids)
}

/// That a worktree is as a create makes it.
fn assert_whole(repository: &Checkout, created: &Worktree) {
    let checkout = &created.checkout;
    assert_eq!(checkout.git(&["status", "--porcelain", "--ignored"]), "");
    assert_eq!(checkout.git(&["symbolic-ref", "--short", "HEAD"]), created.branch);
    assert_eq!(
        (checkout.sha("HEAD"), repository.branch(&created.branch)),
        (created.base_sha.clone(), Some(created.base_sha.clone()))
    );
    let listed = repository.git(&["worktree", "list", "--porcelain"]);
    let ours = listed.split("\n\n").find(|one| one.contains(&created.id)).unwrap();
    assert!(ours.contains(&format!("locked iii worktree {}", created.id)), "{ours}");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_is_handed_out_once_under_twenty_creates_invariant_1() {
    let (stand, repository, ids) = stand_with(3).await;
    let mut events = stand.hear().await;
    let created = join_all((0..20).map(|_| stand.create(&repository))).await;
    let given: BTreeSet<String> = created.iter().map(|one| one.id.clone()).collect();
    assert_eq!(given.len(), 20);
    assert!(given.is_superset(&ids), "{ids:?} were not handed out");
    for one in &created {
        assert_whole(&repository, one);
        assert_eq!(one.branch, format!("iii/{}", one.id));
        let event = events.next("worktree::created", &one.id).await;
        assert_eq!((&event["branch"], &event["base_sha"]), (&json!(one.branch), &json!(one.base_sha)));
    }
    assert!(filled(&stand, &repository, 3).await.is_disjoint(&given));
    let listed = stand.client.ok("worktree::list", json!({"repo_path": repository.text()})).await;
    assert_eq!(listed["worktrees"].as_array().unwrap().len(), 21, "{listed}");
    assert_eq!(listed["unmanaged"], json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn it_is_nobodys_and_counts_for_the_disk() {
    let bench =
        Bench::with(json!({"pool": {"size": 2}, "prune_expire_hours": 0, "gates": {"max_worktrees_per_repo": 2}}))
            .await;
    let repository = bench.repository("shop");
    repository.commit("large", &"x".repeat(1 << 20));
    let (record, _) = bench.create(&repository).await;
    let ids = complete_are(&repository, 2).await;
    for marker in markers(&repository).iter().filter(|marker| marker["pooled"].is_object()) {
        let id = marker["record"]["worktree_id"].as_str().unwrap();
        let checkout = Checkout::at(place(&repository, id), &bench.seal);
        assert!(!checkout.try_git(&["symbolic-ref", "--quiet", "HEAD"]).status.success(), "it has a branch");
        let refused = bench.client().call("worktree::get", json!({"worktree_id": id})).await;
        assert!(refused.is_err());
    }
    assert_eq!(pool::on_disk(&bench.ctx).len(), 2);
    let seen = states::survey(&bench.ctx);
    assert_eq!(seen.iter().map(|one| &one.worktree_id).collect::<Vec<_>>(), [&record.worktree_id]);
    let report = usage::measure(&bench.ctx).await;
    assert_eq!(report.worktrees.len(), 1);
    assert!((2 << 20..4 << 20).contains(&report.pool_bytes), "{report:?}");
    assert_eq!(report.total_bytes, report.pool_bytes + report.worktrees[&record.worktree_id].bytes);
    // Those in the pool are none of the two that are allowed, and the sweep leaves them alone.
    bench.create(&repository).await;
    bench.ctx.background.idle().await;
    let before = complete_are(&repository, 2).await;
    let swept = worktree::worktrees::prune::run(&bench.ctx, Default::default()).await.unwrap();
    assert_eq!((swept.pruned.len(), swept.skipped.len()), (2, 0), "{swept:?}");
    bench.ctx.background.idle().await;
    assert_eq!(complete(&repository), before);
    assert!(!ids.is_empty() && worktree::worktrees::rebuild::known_repos(&bench.ctx).len() == 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn it_is_brought_to_the_base_before_it_is_handed_out() {
    let (stand, repository, ids) = stand_with(1).await;
    let moved = repository.commit("apples", "2\n");
    let created = stand.create(&repository).await;
    assert!(ids.contains(&created.id), "it was made anew");
    assert_eq!((created.base_sha.as_str(), created.checkout.read("apples").as_str()), (moved.as_str(), "2\n"));
    assert_whole(&repository, &created);
    // An older commit is as good, and what comes next stands where the last create began.
    filled(&stand, &repository, 1).await;
    let older = stand.create_with(&repository, json!({"base_ref": "main~1"})).await;
    assert_eq!(older.checkout.read("apples"), "1\n");
    assert_whole(&repository, &older);
    let [id] = Vec::from_iter(filled(&stand, &repository, 1).await).try_into().unwrap();
    assert_eq!(stand.checkout(place(&repository, &id)).sha("HEAD"), older.base_sha);
    // Rules for files that differ call for a new checkout.
    repository.commit(".gitattributes", "apples text eol=crlf\n");
    let other = stand.create(&repository).await;
    assert_ne!(other.id, id);
    assert_eq!(other.checkout.read("apples"), "2\r\n");
    assert_whole(&repository, &other);
    until("the one that will not do is taken away", || async {
        (told(&stand, Action::Drain, &id).len() == 1).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_fresh_checkout_would_make_differently_is_made_anew_invariant_2() {
    let (stand, repository, ids) = stand_with(1).await;
    repository.git(&["config", "core.autocrlf", "true"]);
    let created = stand.create(&repository).await;
    assert!(!ids.contains(&created.id));
    assert_eq!(created.checkout.read("apples"), "1\r\n");
    let next = until("one under the new conditions", || async {
        complete(&repository).into_iter().find(|id| !ids.contains(id))
    })
    .await;
    assert_eq!(stand.checkout(place(&repository, &next)).read("apples"), "1\r\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_somebody_changed_is_never_handed_out_and_stays_invariant_4() {
    let (stand, repository, ids) = stand_with(3).await;
    let places: Vec<PathBuf> = ids.iter().map(|id| place(&repository, id)).collect();
    std::fs::write(places[0].join("loose"), "mine\n").unwrap();
    // Of the same size and with its old time: only git's reading of the file would tell.
    let apples = places[1].join("apples");
    let modified = apples.metadata().unwrap().modified().unwrap();
    std::fs::write(&apples, "7\n").unwrap();
    std::fs::File::options().write(true).open(&apples).unwrap().set_modified(modified).unwrap();
    stand.checkout(&places[2]).git(&["commit", "--quiet", "--allow-empty", "--message", "work"]);
    let created = join_all((0..4).map(|_| stand.create(&repository))).await;
    assert!(created.iter().all(|one| !ids.contains(&one.id)));
    created.iter().for_each(|one| assert_whole(&repository, one));
    stand.configure(json!({"pool": {"size": 0}})).await;
    for id in &ids {
        until("the word about it", || async {
            stand.log().lines().find(|line| line.contains("changed by somebody") && line.contains(id)).map(drop)
        })
        .await;
    }
    stand.client.ok("worktree::prune", json!({})).await;
    tokio::time::sleep(WINDOW).await;
    assert_eq!(std::fs::read_to_string(places[0].join("loose")).unwrap(), "mine\n");
    assert_eq!(std::fs::read_to_string(&apples).unwrap(), "7\n");
    assert_eq!(stand.checkout(&places[2]).git(&["log", "-1", "--format=%s"]), "work");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_pool_follows_the_configuration() {
    let (stand, repository, ids) = stand_with(2).await;
    stand.configure(json!({"pool": {"size": 1}})).await;
    let left = filled(&stand, &repository, 1).await;
    let gone: Vec<_> = ids.difference(&left).collect();
    assert_eq!(told(&stand, Action::Drain, gone[0]).len(), 1);
    stand.configure(json!({"gates": {"repos": ["/nowhere"]}})).await;
    filled(&stand, &repository, 0).await;
    stand.configure(json!({"gates": {"repos": ["*"]}})).await;
    filled(&stand, &repository, 1).await;
    stand.configure(json!({"pool": {"size": 0}})).await;
    filled(&stand, &repository, 0).await;
    assert_eq!(repository.worktrees().len(), 2);
    // Also for a repository from which was created while there was no pool.
    let other = stand.repository("farm");
    stand.create(&other).await;
    stand.configure(json!({"pool": {"size": 2}})).await;
    filled(&stand, &other, 2).await;
    // Nothing is added while the worktrees use more than they should.
    stand.configure(json!({"quota": {"disk_soft_bytes": 1}, "pool": {"size": 3}})).await;
    tokio::time::sleep(WINDOW).await;
    assert_eq!(filled(&stand, &other, 2).await.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_hook_runs_when_it_is_handed_out() {
    let (stand, repository, before) = stand_with(1).await;
    // Where a user has hooks elsewhere, the first one changes the repository's configuration, and with it the pool.
    repository.hook("post-checkout", "#!/bin/sh\n");
    stand.create(&repository).await;
    let another = || async { Some(filled(&stand, &repository, 1).await).filter(|ids| ids.is_disjoint(&before)) };
    let ids = until("a pool for what holds now", another).await;
    let seen = stand.seal.path().join("seen");
    repository.hook("post-checkout", &format!("#!/bin/sh\necho \"$@\" $(pwd) >> {}\nexit 3\n", seen.display()));
    let created = stand.create(&repository).await;
    assert!(ids.contains(&created.id));
    let path = created.checkout.path().display().to_string();
    let told = format!("{} {} 1 {path}\n", "0".repeat(40), created.base_sha);
    assert_eq!(std::fs::read_to_string(&seen).unwrap(), told);
    // Not for those that nobody has asked for.
    filled(&stand, &repository, 1).await;
    assert_eq!(std::fs::read_to_string(&seen).unwrap(), told);
    // A hook that leaves another branch fails the create, which leaves nothing.
    repository.hook("post-checkout", "#!/bin/sh\ngit symbolic-ref HEAD refs/heads/elsewhere\n");
    let refs = repository.refs();
    let request = json!({"repo_path": repository.text()});
    stand.client.refused("worktree::create", request, "W102").await;
    assert_eq!(repository.refs(), refs);
    stand.configure(json!({"git": {"hooks": "skip"}})).await;
    assert_whole(&repository, &stand.create(&repository).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_is_taken_costs_no_pooled_worktree() {
    let (stand, repository, ids) = stand_with(1).await;
    let [id] = Vec::from_iter(ids).try_into().unwrap();
    for branch in ["main", "main/x"] {
        let request = json!({"repo_path": repository.text(), "branch": branch});
        let code = if branch == "main" { "W120" } else { "W121" };
        stand.client.refused("worktree::create", request, code).await;
    }
    stand.client.refused("worktree::create", json!({"repo_path": repository.text(), "base_ref": "nope"}), "W112").await;
    // The branch that its own id would give it: the create takes another id, the worktree stays where it is.
    repository.git(&["branch", &format!("iii/{id}")]);
    let other = stand.create(&repository).await;
    assert_ne!(other.id, id);
    let named = stand.create_with(&repository, json!({"branch": "task", "session_id": "ada"})).await;
    assert_eq!((named.id.as_str(), named.branch.as_str()), (id.as_str(), "task"));
    assert_whole(&repository, &named);
    assert_eq!(stand.lifecycle(&named.id).await, "claimed");
    let removed = stand.client.ok("worktree::remove", json!({"worktree_id": named.id, "delete_branch": true})).await;
    assert_eq!(removed["removed"], true, "what was handed out is a worktree like any other");
}

#[tokio::test(flavor = "multi_thread")]
async fn repositories_that_need_more_than_a_checkout_have_no_pool() {
    let stand = Stand::dev_with(json!({"pool": {"size": 1}})).await;
    let sparse = stand.repository("sparse");
    sparse.git(&["config", "core.sparseCheckout", "true"]);
    let library = stand.repository("library");
    let nested = stand.repository("nested");
    let source = library.path().to_str().unwrap();
    nested.git(&["-c", "protocol.file.allow=always", "submodule", "--quiet", "add", source, "library"]);
    nested.git(&["commit", "--quiet", "--message", "Use the library"]);
    for repository in [&sparse, &nested] {
        stand.create(repository).await;
        let key = repository.path().join(".git").display().to_string();
        until("the word about it", || async {
            let log = stand.log();
            log.lines().find(|line| line.contains("made beforehand") && line.contains(&key)).map(drop)
        })
        .await;
        filled(&stand, repository, 0).await;
        assert_whole(repository, &stand.create(repository).await);
    }
}

/// A stage whose worker can be killed at a point.
struct Stage {
    stand: Stand,
    directory: PathBuf,
    repository: Checkout,
}

impl Stage {
    async fn new() -> Self {
        let seal = Seal::new();
        let directory = seal.path().join("fault");
        std::fs::create_dir(&directory).unwrap();
        let fault = directory.to_str().unwrap().to_owned();
        let keys = json!({"pool": {"size": 1}});
        let stand = Stand::apart_in(seal, keys, &[("WORKTREE_FAULT", &fault)]).await;
        let repository = stand.repository("shop");
        stand.create(&repository).await;
        filled(&stand, &repository, 1).await;
        Stage { stand, directory, repository }
    }

    fn plan(&self, plan: &str) {
        std::fs::write(self.directory.join("draft"), plan).unwrap();
        std::fs::rename(self.directory.join("draft"), self.directory.join("plan")).unwrap();
    }

    fn unplan(&self) {
        std::fs::remove_file(self.directory.join("plan")).unwrap();
    }

    /// The points from a create until the pool is full again.
    async fn points(&self) -> Vec<String> {
        self.plan("trace");
        self.stand.create(&self.repository).await;
        filled(&self.stand, &self.repository, 1).await;
        self.unplan();
        let trace = std::fs::read_to_string(self.directory.join("trace")).unwrap();
        trace.lines().map(str::to_owned).collect()
    }

    /// Creates while the plan says that the worker dies; it comes back, and everything is as it should be.
    async fn play(&mut self, plan: &str) {
        self.plan(plan);
        let request = json!({"repo_path": self.repository.text()});
        let create = self.stand.client.call("worktree::create", request);
        let answered = tokio::select! {
            answer = create => answer.ok(),
            () = until_ended(&self.stand) => None,
        };
        until("the end of the worker, or a pool that is full", || async {
            let over = !self.stand.runs() || complete(&self.repository).len() == 1;
            over.then_some(())
        })
        .await;
        self.unplan();
        if !self.stand.runs() {
            self.stand.restart().await;
        }
        let next = self.stand.create(&self.repository).await;
        assert_whole(&self.repository, &next);
        let pooled = filled(&self.stand, &self.repository, 1).await;
        let listed = self.stand.client.ok("worktree::list", json!({"repo_path": self.repository.text()})).await;
        assert_eq!(listed["unmanaged"], json!([]), "{plan}");
        let recorded: BTreeSet<String> = listed["worktrees"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one["worktree_id"].as_str().unwrap().to_owned())
            .collect();
        if let Some(answer) = &answered {
            assert!(recorded.contains(answer["worktree_id"].as_str().unwrap()), "{plan}: {answer} is lost");
        }
        let expected: BTreeSet<String> = recorded.union(&pooled).cloned().collect();
        self.nothing_else(plan, &recorded, &expected).await;
    }

    /// Nothing is there but what is expected: worktrees, branches, notes.
    async fn nothing_else(&self, plan: &str, recorded: &BTreeSet<String>, expected: &BTreeSet<String>) {
        let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
        let slugs = self.stand.seal.path().join("worktrees");
        let looked = until_settled(|| {
            let known: BTreeSet<String> = self.repository.worktrees().iter().skip(1).map(|path| name(path)).collect();
            let slugs = std::fs::read_dir(&slugs).unwrap().map(|slug| slug.unwrap().path());
            let slugs = slugs.filter(|slug| !name(slug).starts_with('.'));
            let below = |slug: PathBuf| {
                std::fs::read_dir(slug).unwrap().map(|one| name(&one.unwrap().path())).collect::<Vec<_>>()
            };
            let directories: BTreeSet<String> = slugs.flat_map(below).collect();
            let branches = self.repository.git(&["for-each-ref", "--format=%(refname:lstrip=3)", "refs/heads/iii"]);
            let branches: BTreeSet<String> = branches.lines().map(str::to_owned).collect();
            let git_dir = std::fs::read_dir(self.repository.path().join(".git")).unwrap();
            let entries = std::fs::read_dir(self.repository.path().join(".git/worktrees")).unwrap();
            let entries: BTreeSet<String> = entries.map(|entry| name(&entry.unwrap().path())).collect();
            let notes = git_dir.filter(|one| name(&one.as_ref().unwrap().path()).contains("creating")).count();
            (known == *expected
                && entries == *expected
                && directories == *expected
                && branches == *recorded
                && notes == 0)
                .then_some(())
                .ok_or_else(|| format!("{known:?} {entries:?} {directories:?} {branches:?} {notes} notes"))
        })
        .await;
        assert_eq!(
            looked,
            Ok(()),
            "{plan}: expected {expected:?}, of them recorded {recorded:?}\n{}",
            self.stand.log()
        );
    }
}

async fn until_ended(stand: &Stand) {
    until("the end of the worker", || async { (!stand.runs()).then_some(()) }).await;
}

/// Looks again for a while when something is not as it should be: what a crash has left is taken away after the start.
async fn until_settled(look: impl Fn() -> Result<(), String>) -> Result<(), String> {
    let mut last = look();
    for _ in 0..200 {
        if last.is_ok() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        last = look();
    }
    last
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_at_every_point_of_handing_out_and_filling_invariant_3() {
    let points = Stage::new().await.points().await;
    assert!(points.len() >= 12, "only {} points: {points:#?}", points.len());
    let looks = ["rev-parse", "config", "status", "ls-files", "rev-list", "for-each-ref"];
    let only_looks = |at: usize| looks.iter().any(|command| points[at].ends_with(&format!("git git {command}")));
    let adds = |at: usize| points[at].contains(" add ");
    // Where the point before only looked, the disk is as it was; but adding a worktree writes before its first point.
    let plans = (1..=points.len()).filter(|at| *at == 1 || adds(at - 1) || !only_looks(at - 2));
    let plans = plans.map(|at| format!("kill before {at}"));
    let mut shares = vec![Vec::new(); 3];
    for (at, plan) in plans.enumerate() {
        shares[at % 3].push(plan);
    }
    join_all(shares.into_iter().map(|plans| async move {
        let mut stage = Stage::new().await;
        for plan in plans {
            stage.play(&plan).await;
        }
    }))
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_outlives_its_worker() {
    let (mut stand, repository, ids) = stand_with(2).await;
    // Taken over by the new process, which has looked at them.
    let keepers = || {
        let pooled = markers(&repository).into_iter().filter(|one| one["pooled"]["ready_at"].is_number());
        pooled.map(|one| one["creator"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    let before = keepers();
    stand.kill_and_restart().await;
    until("the pool in new hands", || async {
        let now = keepers();
        (now.len() == 2 && now.iter().all(|keeper| !before.contains(keeper))).then_some(())
    })
    .await;
    until("one of the old ones", || async {
        let created = stand.create(&repository).await;
        ids.contains(&created.id).then_some(())
    })
    .await;
    stand.configure(eager()).await;
    stand.configure(json!({"pool": {"size": 0}})).await;
    stand.stop_and_restart().await;
    filled(&stand, &repository, 0).await;
}
