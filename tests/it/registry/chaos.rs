//! Everything at once, on one repository: two workers on engines of their own, clients that create, claim, land and
//! remove, a command line, agents that commit, an operator who deletes directories by hand, a sweep, bursts of creates,
//! and SIGKILL. Afterwards nothing is lost, and nothing is left over.
//!
//! Twenty seconds; `CHAOS_SECONDS` asks for more.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use worktree::audit::{Action, Filter, Log};
use worktree::engine::{Engine, Options};

use crate::support::{BINARY, Checkout, Client, Process, Seal, until};

/// A worker with an engine and a root of its own.
struct Site {
    name: &'static str,
    seal: Arc<Seal>,
    engine: Engine,
    client: Arc<Client>,
    worker: Mutex<Option<Process>>,
}

impl Site {
    async fn start(seal: &Arc<Seal>, name: &'static str) -> Arc<Self> {
        let options = Options { port: 0, http_port: 0, state_dir: seal.path().join(name), ..Options::default() };
        let engine = Engine::start(options).await.unwrap();
        let client = Arc::new(Client::connect(&engine.url()).await);
        let site = Site { name, seal: seal.clone(), engine, client, worker: Mutex::default() };
        let seed = json!({
            "worktree_root": site.root(), "prune_expire_hours": 0, "branch_prefix": format!("{name}/"),
            "gates": {"allow_force": true},
        });
        std::fs::write(site.seed(), seed.to_string()).unwrap();
        site.serve();
        site.answers().await;
        Arc::new(site)
    }

    fn root(&self) -> PathBuf {
        self.seal.path().join(format!("{}-worktrees", self.name))
    }

    fn seed(&self) -> PathBuf {
        self.seal.path().join(format!("{}.yaml", self.name))
    }

    fn serve(&self) {
        let mut command = self.seal.command(BINARY);
        command.args(["serve", "--url", &self.engine.url(), "--config"]).arg(self.seed());
        *self.worker.lock().unwrap() = Some(Process::start(self.name, command));
    }

    async fn answers(&self) {
        until("an answer of the worker", || async { self.client.call("worktree::list", json!({})).await.ok() }).await;
    }

    fn kill_and_restart(&self) {
        let worker = self.worker.lock().unwrap().take();
        worker.unwrap().kill();
        self.serve();
    }

    fn log(&self) -> Log {
        Log::new(self.root().join(".audit"), 16 << 20)
    }

    async fn list(&self) -> Vec<Value> {
        self.client.ok("worktree::list", json!({})).await["worktrees"].as_array().unwrap().clone()
    }
}

/// Numbers that look random and are the same for the same seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// What all actors know of each other.
struct Play {
    repository: Checkout,
    seal: Arc<Seal>,
    over: AtomicBool,
    /// Worktrees that a create has answered with: id, path.
    created: Mutex<Vec<(String, PathBuf)>>,
    /// Every commit that an agent made.
    commits: Mutex<Vec<String>>,
    /// How often each actor got something done.
    done: [AtomicU64; 8],
}

impl Play {
    fn goes_on(&self) -> bool {
        !self.over.load(Ordering::SeqCst)
    }

    fn count(&self, actor: usize) {
        self.done[actor].fetch_add(1, Ordering::SeqCst);
    }

    fn any(&self, dice: &mut Dice) -> Option<(String, PathBuf)> {
        let created = self.created.lock().unwrap();
        let among = created.len().min(12);
        if among == 0 {
            return None;
        }
        // Rather a young one: the old ones are gone.
        let back = usize::try_from(dice.below(among as u64)).unwrap();
        created.get(created.len() - 1 - back).cloned()
    }

    fn note(&self, created: &Value) {
        let text = |key: &str| created[key].as_str().unwrap().to_owned();
        self.created.lock().unwrap().push((text("worktree_id"), PathBuf::from(text("path"))));
    }
}

/// A client of one worker that does whatever comes to its mind.
async fn visitor(play: Arc<Play>, site: Arc<Site>, actor: usize) {
    let mut dice = Dice(actor as u64 + 7);
    while play.goes_on() {
        let asked = match (dice.below(10), play.any(&mut dice)) {
            (0..=3, _) | (_, None) => ("worktree::create", json!({"repo_path": play.repository.text()})),
            (4, Some((id, _))) => ("worktree::claim", json!({"worktree_id": id, "session_id": "ada", "force": true})),
            (5, Some((id, _))) => ("worktree::release", json!({"worktree_id": id, "session_id": "ada", "force": true})),
            (6, Some((id, _))) => ("worktree::land", json!({"worktree_id": id, "target_branch": "main"})),
            (7, Some((id, _))) => ("worktree::remove", json!({"worktree_id": id, "delete_branch": true})),
            (8, Some((id, _))) => {
                ("worktree::remove", json!({"worktree_id": id, "delete_branch": true, "force": true}))
            }
            (_, Some(_)) => ("worktree::list", json!({"include_status": true})),
        };
        if let Ok(Ok(answer)) = tokio::time::timeout(Duration::from_secs(8), site.client.call(asked.0, asked.1)).await {
            play.count(actor);
            if asked.0 == "worktree::create" {
                play.note(&answer);
            }
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A command line that creates.
async fn command_line(play: Arc<Play>, site: Arc<Site>) {
    while play.goes_on() {
        let mut command = play.seal.command(BINARY);
        let input = json!({"repo_path": play.repository.text(), "session_id": "shell"}).to_string();
        command.args(["call", "--url", &site.engine.url(), "--timeout-ms", "6000", "worktree::create", &input]);
        let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
        if output.status.success() {
            play.note(&serde_json::from_slice(&output.stdout).unwrap());
            play.count(2);
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
}

/// An agent that commits wherever it finds a worktree.
fn agent(play: &Play, number: u64) {
    let mut dice = Dice(number + 99);
    while play.goes_on() {
        if let Some((_, path)) = play.any(&mut dice)
            && path.is_dir()
        {
            let name = format!("agent-{number}-{}", dice.below(1_000_000));
            let at = path.to_str().unwrap();
            let git = |arguments: &[&str]| {
                let output = play.repository.try_git(&[&["-C", at], arguments].concat());
                output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
            };
            // `[branch 1234567] message`: the commit is known even when everything is gone a moment later.
            let committed = std::fs::write(path.join(&name), "work\n").ok().and_then(|()| {
                git(&["add", "--", &name])?;
                let said = git(&["commit", "--message", &name])?;
                said.split_once(']')?.0.rsplit(' ').next().map(str::to_owned)
            });
            if let Some(short) = committed {
                play.commits.lock().unwrap().push(play.repository.sha(&short));
                play.count(3);
            }
        }
        std::thread::sleep(Duration::from_millis(15));
    }
}

/// An operator who deletes a directory by hand now and then.
fn operator(play: &Play) {
    let mut dice = Dice(5);
    while play.goes_on() {
        std::thread::sleep(Duration::from_millis(900));
        if let Some((_, path)) = play.any(&mut dice)
            && path.is_dir()
        {
            // Somebody may be writing there: what is left then is for the sweep to judge.
            std::fs::remove_dir_all(&path).unwrap_or_default();
            play.count(4);
        }
    }
}

async fn sweeper(play: Arc<Play>, sites: [Arc<Site>; 2]) {
    while play.goes_on() {
        for site in &sites {
            let asked = site.client.call("worktree::prune", json!({}));
            if let Ok(Ok(_)) = tokio::time::timeout(Duration::from_secs(10), asked).await {
                play.count(5);
            }
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
}

async fn burst(play: Arc<Play>, site: Arc<Site>) {
    while play.goes_on() {
        let ask = || site.client.call("worktree::create", json!({"repo_path": play.repository.text()}));
        let all = futures_util::future::join_all((0..4).map(|_| ask()));
        if let Ok(answers) = tokio::time::timeout(Duration::from_secs(10), all).await {
            for created in answers.into_iter().flatten() {
                play.note(&created);
                play.count(6);
            }
        }
        tokio::time::sleep(Duration::from_millis(1500)).await;
    }
}

async fn killer(play: Arc<Play>, sites: [Arc<Site>; 2]) {
    let mut dice = Dice(3);
    while play.goes_on() {
        tokio::time::sleep(Duration::from_millis(1500 + dice.below(1500))).await;
        let site = sites[usize::try_from(dice.below(2)).unwrap()].clone();
        tokio::task::spawn_blocking(move || site.kill_and_restart()).await.unwrap();
        play.count(7);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nothing_is_lost_and_nothing_left_over_whatever_happens() {
    let seconds = std::env::var("CHAOS_SECONDS").ok().map_or(20, |text| text.parse().unwrap());
    let seal = Arc::new(Seal::new());
    let repository = Checkout::init(seal.path().join("shop"), &seal);
    repository.git(&["config", "gc.auto", "0"]);
    repository.commit("README", "hello\n");
    repository.git(&["checkout", "--quiet", "--detach"]);
    let sites = [Site::start(&seal, "one").await, Site::start(&seal, "two").await];
    let play = Arc::new(Play {
        repository: repository.clone(),
        seal,
        over: AtomicBool::new(false),
        created: Mutex::default(),
        commits: Mutex::default(),
        done: Default::default(),
    });
    let mut actors = tokio::task::JoinSet::new();
    for (actor, site) in sites.iter().enumerate() {
        actors.spawn(visitor(play.clone(), site.clone(), actor));
    }
    actors.spawn(command_line(play.clone(), sites[0].clone()));
    for number in 0..2 {
        let play = play.clone();
        actors.spawn_blocking(move || agent(&play, number));
    }
    {
        let play = play.clone();
        actors.spawn_blocking(move || operator(&play));
    }
    actors.spawn(sweeper(play.clone(), sites.clone()));
    actors.spawn(burst(play.clone(), sites[1].clone()));
    actors.spawn(killer(play.clone(), sites.clone()));
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    play.over.store(true, Ordering::SeqCst);
    while let Some(ended) = actors.join_next().await {
        ended.unwrap();
    }
    let done: Vec<u64> = play.done.iter().map(|count| count.load(Ordering::SeqCst)).collect();
    eprintln!("done by each actor: {done:?}");
    assert!(done.iter().all(|count| *count > 0), "an actor did nothing: {done:?}");
    settle(&sites).await;
    nothing_is_lost(&play, &sites);
    nothing_is_left_over(&play, &sites).await;
}

/// Lands come to their end, and the sweep sets right what was left half done.
async fn settle(sites: &[Arc<Site>; 2]) {
    for site in sites {
        site.answers().await;
        until("the end of all lands", || async {
            site.list().await.iter().all(|one| one["lifecycle"] != "landing").then_some(())
        })
        .await;
        // What the last process had begun is known to be cut off once it is gone.
        tokio::task::spawn_blocking({
            let site = site.clone();
            move || site.kill_and_restart()
        })
        .await
        .unwrap();
        site.answers().await;
        // A process of its own may outlive a worker that was killed for a moment, and keeps what it works in.
        until("a sweep that finds nothing unfinished", || async {
            site.client.ok("worktree::prune", json!({})).await;
            unfinished(site).is_empty().then_some(())
        })
        .await;
    }
}

/// What creates of this worker have left that never answered.
fn unfinished(site: &Site) -> Vec<String> {
    let entries = worktree::git::admin::entries(&site.seal.path().join("shop/.git")).unwrap();
    let markers = entries.iter().filter_map(|entry| worktree::worktrees::marker::read(entry).unwrap());
    let ours = markers.filter(|marker| Path::new(&marker.record.path).starts_with(site.root()));
    ours.filter(|marker| !marker.ready).map(|marker| marker.record.worktree_id).collect()
}

/// Every commit is reachable from a ref, or from a commit that the audit log names.
fn nothing_is_lost(play: &Play, sites: &[Arc<Site>; 2]) {
    let repository = &play.repository;
    let mut known: BTreeSet<String> = BTreeSet::new();
    known.extend(repository.git(&["rev-list", "--all", "HEAD"]).lines().map(str::to_owned));
    let reachable = known.len();
    let mut named = BTreeSet::new();
    for site in sites {
        let found = site.log().verify().unwrap();
        assert!(found.is_intact(), "{}: {found:?}", site.name);
        for entry in site.log().query(&Filter::default()).unwrap() {
            for value in entry.details.values().filter_map(Value::as_str) {
                if value.len() == 40 && value.bytes().all(|byte| byte.is_ascii_hexdigit()) {
                    named.insert(value.to_owned());
                }
            }
        }
    }
    for name in &named {
        known.extend(repository.git(&["rev-list", name]).lines().map(str::to_owned));
    }
    let commits = play.commits.lock().unwrap();
    eprintln!("{} commits, {reachable} reachable, {} named", commits.len(), named.len());
    let lost: Vec<_> = commits.iter().filter(|commit| !known.contains(*commit)).collect();
    assert!(lost.is_empty(), "lost: {lost:?}");
    let checked = repository.try_git(&["fsck", "--no-dangling", "--no-progress"]);
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
}

/// Registry, markers, git's list and the disk name the same worktrees, and no branch is nobody's.
async fn nothing_is_left_over(play: &Play, sites: &[Arc<Site>; 2]) {
    let repository = &play.repository;
    let listed: BTreeSet<PathBuf> =
        repository.worktrees().into_iter().filter(|path| path != repository.path()).collect();
    let mut recorded = BTreeSet::new();
    let mut on_disk = BTreeSet::new();
    let mut ids: BTreeSet<String> = play.created.lock().unwrap().iter().map(|(id, _)| id.clone()).collect();
    for site in sites {
        for record in site.list().await {
            recorded.insert(PathBuf::from(record["path"].as_str().unwrap()));
            ids.insert(record["worktree_id"].as_str().unwrap().to_owned());
        }
        for slug in std::fs::read_dir(site.root()).unwrap().map(|entry| entry.unwrap().path()) {
            if !slug.file_name().unwrap().to_str().unwrap().starts_with('.') && slug.is_dir() {
                on_disk.extend(std::fs::read_dir(slug).unwrap().map(|entry| entry.unwrap().path()));
            }
        }
        // Created, and gone again, without its client ever having heard of it.
        let answered = [Action::Remove, Action::Prune, Action::Reconcile, Action::Finalize];
        let filter = Filter { actions: answered.to_vec(), ..Filter::default() };
        ids.extend(site.log().query(&filter).unwrap().into_iter().filter_map(|entry| entry.worktree_id));
    }
    let mut marked = BTreeSet::new();
    for entry in worktree::git::admin::entries(&repository.path().join(".git")).unwrap() {
        let marker = worktree::worktrees::marker::read(&entry).unwrap();
        let marker = marker.unwrap_or_else(|| panic!("{} has no marker", entry.dir.display()));
        assert!(marker.ready, "{} was never finished", marker.record.path);
        marked.insert(PathBuf::from(marker.record.path));
    }
    let apart = |other: &BTreeSet<PathBuf>| -> Vec<String> {
        recorded.symmetric_difference(other).map(|path| traces(play, sites, path)).collect()
    };
    assert_eq!(recorded, listed, "registry and git: {:#?}", apart(&listed));
    assert_eq!(recorded, marked, "registry and markers: {:#?}", apart(&marked));
    // A directory that an agent made anew where the operator had deleted one is nobody's worktree, but holds its file.
    let strangers: Vec<&PathBuf> = on_disk.difference(&recorded).filter(|path| path.join(".git").exists()).collect();
    assert!(strangers.is_empty(), "on the disk, not in the registry: {strangers:?}");
    let missing: Vec<&PathBuf> = recorded.difference(&on_disk).collect();
    assert!(missing.is_empty(), "in the registry, not on the disk: {missing:?}");
    let branches = repository.git(&["for-each-ref", "--format=%(refname:short)", "refs/heads/one", "refs/heads/two"]);
    let nobodys: Vec<&str> = branches
        .lines()
        .filter(|branch| !ids.contains(Path::new(branch).file_name().unwrap().to_str().unwrap()))
        .collect();
    assert!(nobodys.is_empty(), "left over: {nobodys:?}");
    let notes = std::fs::read_dir(repository.path().join(".git")).unwrap();
    let notes: Vec<_> = notes
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with("iii-worktree-") && !name.ends_with(".lock"))
        .collect();
    assert!(notes.is_empty(), "{notes:?}");
}

/// What can be found out about a worktree that should not be, or should.
fn traces(play: &Play, sites: &[Arc<Site>; 2], path: &Path) -> String {
    let names = |dir: &Path| -> Vec<String> {
        let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    };
    let id = path.file_name().unwrap().to_str().unwrap();
    let entry = play.repository.path().join(".git/worktrees").join(id);
    let marker = std::fs::read_to_string(entry.join("iii-worktree.json"));
    let filter = Filter { worktree_id: Some(id.to_owned()), ..Filter::default() };
    let logged: Vec<_> = sites.iter().flat_map(|site| site.log().query(&filter).unwrap()).collect();
    let (inside, entry) = (names(path), names(&entry));
    format!("{id}: directory {inside:?}, entry {entry:?}, marker {marker:?}, logged {logged:#?}")
}
