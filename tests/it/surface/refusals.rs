//! Every code of the table, caused for real and driven through the real handlers; what callers read is reviewed in
//! `goldens/errors.json`, with ids, paths and commits replaced by tokens.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use worktree::model::Code;

use super::{program, script};
use crate::support::golden::Goldens;
use crate::support::stand::Worktree;
use crate::support::stranger::Stranger;
use crate::support::{Checkout, Gate, Seal, Stand, until};

/// What callers read, by code; each with how it came.
#[derive(Default)]
struct Seen(BTreeMap<String, Vec<Value>>);

impl Seen {
    /// A call that is to be refused with this code.
    async fn refused(&mut self, stand: &Stand, function: &str, request: Value, code: &str) {
        let function = format!("worktree::{function}");
        let message = stand.client.refused(&function, request, code).await;
        self.note(code, &function, &message, &stand.seal);
    }

    /// A land that is to be blocked with this code.
    async fn blocked(&mut self, stand: &Stand, worktree: &Worktree, fields: Value, code: &str) {
        let mut events = stand.hear().await;
        stand.land(worktree, fields).await;
        let event = events.blocked(&worktree.id).await;
        assert_eq!(event["code"], code, "{event:#}");
        self.note(code, "worktree::land-blocked", event["message"].as_str().unwrap(), &stand.seal);
    }

    fn note(&mut self, code: &str, by: &str, message: &str, seal: &Seal) {
        let message = with_tokens(message, seal);
        self.0.entry(code.to_owned()).or_default().push(json!({"by": by, "message": message}));
    }
}

/// The message with what differs from run to run replaced.
fn with_tokens(message: &str, seal: &Seal) -> String {
    let mut text = message.replace(seal.path().to_str().unwrap(), "<seal>");
    // Git's own words differ from version to version.
    if let Some((before, _)) = text.split_once(" failed (exit ") {
        text = format!("{before} failed (exit <n>): <the words of git>");
    }
    // A process is named with its number behind it: `sleep (17)`.
    let word_ends = |text: &str, at: usize| text[at..].starts_with(')');
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut out = String::new();
    let mut rest = text.as_str();
    while let Some(start) = rest.find(is_word) {
        out.push_str(&rest[..start]);
        let word = &rest[start..];
        let end = word.find(|c| !is_word(c)).unwrap_or(word.len());
        let word = &word[..end];
        let is_number = word.bytes().all(|b| b.is_ascii_digit());
        let is_hex = word.bytes().all(|b| b.is_ascii_hexdigit());
        out.push_str(match word {
            _ if worktree::model::id::is_worktree_id(word) => "<worktree>",
            _ if worktree::model::id::is_job_id(word) => "<job>",
            _ if is_hex && word.len() == 40 => "<commit>",
            _ if is_hex && word.len() == 8 => "<digest>",
            _ if is_number && (out.ends_with("uid ") || (out.ends_with('(') && word_ends(rest, start + end))) => "<n>",
            other => other,
        });
        rest = &rest[start + end..];
    }
    out + rest
}

fn of(worktree: &Worktree) -> Value {
    json!({"worktree_id": worktree.id})
}

#[tokio::test(flavor = "multi_thread")]
async fn every_code_is_caused_and_read_as_reviewed() {
    let mut seen = Seen::default();
    asked_wrongly(&mut seen).await;
    in_the_worktree(&mut seen).await;
    while_landing(&mut seen).await;
    switched_off(&mut seen).await;
    git_is_not_well(&mut seen).await;
    the_store_is_not_well(&mut seen).await;
    nobody_takes_the_job(&mut seen).await;

    let missing: Vec<_> = Code::ALL.iter().filter(|code| !seen.0.contains_key(code.as_str())).collect();
    assert!(missing.is_empty(), "nothing causes {missing:?}");
    let reviewed: BTreeMap<&str, Value> = Code::ALL
        .iter()
        .filter_map(|code| seen.0.get(code.as_str()).map(|cases| (*code, cases)))
        .map(|(code, cases)| {
            let status = worktree::wire::handler::http_status(code);
            (code.as_str(), json!({"meaning": code.meaning(), "http_status": status, "cases": cases}))
        })
        .collect();
    Goldens::at("").check("errors.json", &format!("{:#}\n", json!(reviewed)));
}

async fn asked_wrongly(seen: &mut Seen) {
    let stand = Stand::dev().await;
    let repository = stand.repository("shop");
    let repo = repository.text();
    let create = |fields: Value| {
        let mut request = json!({"repo_path": repo});
        request.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        request
    };
    seen.refused(&stand, "create", json!({}), "W001").await;
    seen.refused(&stand, "create", json!({"repo_path": 7}), "W001").await;
    seen.refused(&stand, "create", json!([]), "W001").await;
    seen.refused(&stand, "create", create(json!({"session_id": ""})), "W001").await;
    seen.refused(&stand, "create", create(json!({"pr": 7, "branch": "x"})), "W001").await;
    seen.refused(&stand, "create", json!({"repo_path": stand.seal.path()}), "W110").await;
    seen.refused(&stand, "create", json!({"repo_path": "shop"}), "W111").await;
    seen.refused(&stand, "create", create(json!({"base_ref": "--upload-pack=x"})), "W111").await;
    seen.refused(&stand, "create", create(json!({"branch": "a..b"})), "W111").await;
    seen.refused(&stand, "create", create(json!({"base_ref": "nowhere"})), "W112").await;
    seen.refused(&stand, "create", create(json!({"pr": 7})), "W112").await;
    let empty = Checkout::init(stand.seal.path().join("empty"), &stand.seal);
    seen.refused(&stand, "create", json!({"repo_path": empty.text()}), "W115").await;
    let owned = stand.create_with(&repository, json!({"branch": "feat/x"})).await;
    repository.git(&["branch", "loose"]);
    seen.refused(&stand, "create", create(json!({"branch": "feat/x"})), "W120").await;
    seen.refused(&stand, "create", create(json!({"branch": "loose"})), "W120").await;
    seen.refused(&stand, "create", create(json!({"branch": "feat"})), "W121").await;
    seen.refused(&stand, "get", json!({"worktree_id": "wt_0123456789ab"}), "W200").await;
    let land = |target: &str| json!({"worktree_id": owned.id, "target_branch": target});
    seen.refused(&stand, "land", land("nowhere"), "W112").await;
    seen.refused(&stand, "land", land("feat/x"), "W001").await;
}

async fn in_the_worktree(seen: &mut Seen) {
    let stand = Stand::dev().await;
    let repository = stand.repository("shop");
    let gone = stand.create(&repository).await;
    std::fs::remove_dir_all(gone.checkout.path()).unwrap();
    seen.refused(&stand, "status", of(&gone), "W201").await;
    let replaced = stand.create(&repository).await;
    std::fs::rename(replaced.checkout.path(), stand.seal.path().join("aside")).unwrap();
    repository.git(&["clone", "--quiet", &repository.text(), &replaced.checkout.text()]);
    seen.refused(&stand, "remove", of(&replaced), "W202").await;

    let held = stand.create_with(&repository, json!({"session_id": "ada"})).await;
    let by = |session: &str| json!({"worktree_id": held.id, "session_id": session});
    seen.refused(&stand, "claim", by("ben"), "W210").await;
    seen.refused(&stand, "release", by("ben"), "W211").await;
    held.checkout.write("loose", "x\n");
    seen.refused(&stand, "remove", of(&held), "W220").await;
    held.checkout.commit("loose", "x\n");
    held.checkout.commit("more", "x\n");
    seen.refused(&stand, "remove", of(&held), "W221").await;

    let busy = stand.create(&repository).await;
    let mut sleeper = std::process::Command::new("sleep").arg("600").current_dir(busy.checkout.path()).spawn().unwrap();
    // It is in the worktree once it is another program than this one.
    let comm = format!("/proc/{}/comm", sleeper.id());
    until("the process in the worktree", || async {
        std::fs::read_to_string(&comm).is_ok_and(|name| name.trim() == "sleep").then_some(())
    })
    .await;
    seen.refused(&stand, "remove", of(&busy), "W222").await;
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();

    // What is destroyed cannot be written down.
    let idle = stand.create(&repository).await;
    let file = stand.seal.path().join("file");
    std::fs::write(&file, "").unwrap();
    stand.configure(json!({"audit": {"directory": file.join("below")}})).await;
    seen.refused(&stand, "remove", of(&idle), "W600").await;
    assert!(idle.checkout.path().join("README").exists());
    stand.configure(json!({"audit": {"directory": null}})).await;

    let open = stand.create(&repository).await;
    open.checkout.commit("README", "ours\n");
    repository.commit("README", "theirs\n");
    let land = json!({"worktree_id": open.id, "target_branch": "main"});
    assert!(!open.checkout.try_git(&["rebase", "main"]).status.success());
    seen.refused(&stand, "land", land.clone(), "W402").await;
    open.checkout.git(&["rebase", "--abort"]);
    assert!(!open.checkout.try_git(&["merge", "main"]).status.success());
    seen.refused(&stand, "land", land, "W403").await;
}

async fn while_landing(seen: &mut Seen) {
    let stand = Stand::dev().await;
    let repository = stand.repository("shop");
    let fresh = |file: &'static str| {
        let (stand, repository) = (&stand, &repository);
        async move {
            let created = stand.create(repository).await;
            created.checkout.commit(file, "ours\n");
            created
        }
    };
    let elsewhere = fresh("a").await;
    elsewhere.checkout.git(&["checkout", "--quiet", "-b", "another"]);
    seen.blocked(&stand, &elsewhere, json!({}), "W203").await;

    let conflicting = fresh("README").await;
    repository.commit("README", "theirs\n");
    seen.blocked(&stand, &conflicting, json!({}), "W410").await;
    let failing = fresh("b").await;
    seen.blocked(&stand, &failing, json!({"test_cmd": "exit 3"}), "W411").await;
    seen.blocked(&stand, &failing, json!({"test_cmd": "no-such-program-anywhere"}), "W414").await;
    stand.configure(json!({"test_timeout_ms": 300})).await;
    seen.blocked(&stand, &failing, json!({"test_cmd": "sleep 50"}), "W411").await;
    stand.configure(json!({"test_timeout_ms": 600_000, "max_land_retries": 1})).await;
    let moving = repository.words("commit --quiet --allow-empty --message busy");
    let overtaken = fresh("c").await;
    let mut events = stand.hear().await;
    stand.land(&overtaken, json!({"test_cmd": moving})).await;
    let event = events.blocked(&overtaken.id).await;
    assert_eq!(event["code"], "W412", "{event:#}");
    seen.note("W412", "worktree::land-blocked", event["message"].as_str().unwrap(), &stand.seal);

    let in_the_way = fresh("d").await;
    repository.write("d", "the owner's\n");
    seen.blocked(&stand, &in_the_way, json!({}), "W413").await;
    std::fs::remove_file(repository.path().join("d")).unwrap();

    let moved = fresh("e").await;
    let gate = Gate::new(&stand.seal, "slow");
    stand.land(&moved, json!({"test_cmd": gate.command()})).await;
    gate.started().await;
    seen.refused(&stand, "land", json!({"worktree_id": moved.id, "target_branch": "main"}), "W401").await;
    seen.refused(&stand, "remove", of(&moved), "W401").await;
    moved.checkout.commit("e", "late\n");
    gate.end(0);
    let event = events.blocked(&moved.id).await;
    assert_eq!(event["code"], "W415", "{event:#}");
    seen.note("W415", "worktree::land-blocked", event["message"].as_str().unwrap(), &stand.seal);
}

async fn switched_off(seen: &mut Seen) {
    let stand = Stand::dev().await;
    let repository = stand.repository("shop");
    let missing = json!({"worktree_id": "wt_0123456789ab", "target_branch": "main", "session_id": "a"});
    let with = |key: &str| {
        let mut request = missing.clone();
        request[key] = json!(true);
        request
    };
    seen.refused(&stand, "claim", with("force"), "W501").await;
    seen.refused(&stand, "release", with("force"), "W501").await;
    seen.refused(&stand, "remove", with("force"), "W501").await;
    seen.refused(&stand, "land", with("force_restart"), "W501").await;
    let shut = json!({"gates": {
        "allow_remove": false, "allow_land": false, "allow_prune": false, "allow_branch_delete": false,
        "max_worktrees_per_repo": 1,
    }});
    stand.create(&repository).await;
    stand.configure(shut).await;
    seen.refused(&stand, "remove", missing.clone(), "W500").await;
    seen.refused(&stand, "land", missing.clone(), "W500").await;
    seen.refused(&stand, "prune", json!({}), "W500").await;
    seen.refused(&stand, "create", json!({"repo_path": repository.text()}), "W504").await;
    stand.configure(json!({"gates": {"allow_remove": true, "allow_land": true, "land_targets": ["release/*"], "repos": ["/x"]}})).await;
    seen.refused(&stand, "remove", with("delete_branch"), "W500").await;
    seen.refused(&stand, "land", missing, "W502").await;
    seen.refused(&stand, "create", json!({"repo_path": repository.text()}), "W503").await;
    stand.configure(json!({"worktree_root": repository.path().join("trees"), "gates": {"repos": ["*"], "max_worktrees_per_repo": 0}})).await;
    seen.refused(&stand, "create", json!({"repo_path": repository.text()}), "W010").await;
}

async fn git_is_not_well(seen: &mut Seen) {
    // No git on the PATH.
    let seal = Seal::new();
    let nowhere = seal.path().join("tmp").to_str().unwrap().to_owned();
    let stand = Stand::dev_in(seal, json!({}), &[("PATH", &nowhere)]).await;
    let repository = stand.repository("shop");
    seen.refused(&stand, "create", json!({"repo_path": repository.text()}), "W100").await;

    // One that hangs.
    let seal = Seal::new();
    let bin = seal.path().join("bin");
    script(&bin.join("git"), &format!("#!/bin/sh\nexec {} 600\n", program("sleep").display()));
    let path = bin.to_str().unwrap().to_owned();
    let stand = Stand::dev_in(seal, json!({"git_timeout_ms": 400}), &[("PATH", &path)]).await;
    let repository = stand.repository("shop");
    seen.refused(&stand, "create", json!({"repo_path": repository.text()}), "W101").await;

    // One that fails: a filter that must not be missing is.
    let stand = Stand::dev_with(json!({"git": {"filters": ["nowhere"]}})).await;
    let repository = stand.repository("shop");
    repository.commit(".gitattributes", "*.bin filter=nowhere\n");
    repository.commit("large.bin", "pointer\n");
    repository.git(&["config", "filter.nowhere.required", "true"]);
    repository.git(&["config", "filter.nowhere.smudge", "no-such-program-anywhere"]);
    seen.refused(&stand, "create", json!({"repo_path": repository.text()}), "W102").await;

    // One that refuses a repository of another user.
    let seal = Seal::new();
    let stranger = Stranger::new(&seal.path().join("bin"));
    let stand = Stand::dev_in(seal, json!({}), &[("PATH", stranger.path())]).await;
    let repository = stand.repository("shop");
    stranger.takes(repository.path());
    seen.refused(&stand, "create", json!({"repo_path": repository.text()}), "W113").await;

    // A history that is cut off between the branch and its target.
    let stand = Stand::dev().await;
    let origin = stand.repository("origin");
    origin.git(&["checkout", "--quiet", "-b", "feature"]);
    origin.commit("a", "1\n");
    origin.git(&["checkout", "--quiet", "main"]);
    origin.commit("b", "1\n");
    let shallow = stand.seal.path().join("shallow");
    let url = format!("file://{}", origin.text());
    origin.git(&["clone", "--quiet", "--depth=1", "--no-single-branch", &url, shallow.to_str().unwrap()]);
    let shallow = stand.checkout(&shallow);
    let created = stand.create_with(&shallow, json!({"base_ref": "origin/feature"})).await;
    created.checkout.commit("c", "1\n");
    seen.blocked(&stand, &created, json!({}), "W114").await;
}

async fn the_store_is_not_well(seen: &mut Seen) {
    let (stand, relay) = Stand::apart_behind_relay(&[]).await;
    let created = stand.create(&stand.repository("shop")).await;
    let claim = json!({"worktree_id": created.id, "session_id": "ada"});
    relay.refuse("state::", "function_not_found");
    seen.refused(&stand, "claim", claim.clone(), "W300").await;
    relay.allow_all();
    stand.client.ok("worktree::claim", claim.clone()).await;

    // A newer worker was here and wrote what this one cannot read.
    let mut stand = Stand::dev().await;
    let created = stand.create(&stand.repository("shop")).await;
    let key = json!({"scope": "worktree", "key": created.id});
    let mut record = stand.client.ok("state::get", key.clone()).await;
    record["format"] = json!(99);
    let set = json!({"scope": "worktree", "key": created.id, "value": record});
    stand.client.ok("state::set", set).await;
    stand.stop_and_restart().await;
    seen.refused(&stand, "claim", json!({"worktree_id": created.id, "session_id": "ada"}), "W301").await;
    seen.refused(&stand, "remove", of(&created), "W301").await;
    assert_eq!(stand.client.ok("state::get", key).await, record, "it was written anew");
    assert!(created.checkout.path().join("README").exists());
}

async fn nobody_takes_the_job(seen: &mut Seen) {
    let (stand, relay) = Stand::apart_behind_relay(&[]).await;
    relay.refuse("queue::", "function_not_found");
    let repository = stand.repository("shop");
    let (first, second) = (stand.create(&repository).await, stand.create(&repository).await);
    for worktree in [&first, &second] {
        worktree.checkout.commit(&worktree.id, "1\n");
    }
    let gate = Gate::new(&stand.seal, "slow");
    stand.land(&first, json!({"test_cmd": gate.command()})).await;
    gate.started().await;
    let before = stand.client.ok("state::get", json!({"scope": "worktree", "key": second.id})).await;
    // On its way out it finishes what runs, and takes nothing new.
    stand.ask_to_stop();
    until("the last land", || async { stand.log().contains("stopping").then_some(()) }).await;
    seen.refused(&stand, "land", json!({"worktree_id": second.id, "target_branch": "main"}), "W400").await;
    gate.end(0);
    let mut after = stand.client.ok("state::get", json!({"scope": "worktree", "key": second.id})).await;
    for field in ["fence", "updated_at"] {
        after[field] = before[field].clone();
    }
    assert_eq!(after, before, "it was not rolled back");
    let jobs = stand.client.ok("state::list", json!({"scope": "worktree_land_job"})).await;
    assert_eq!(jobs.as_array().unwrap().len(), 1, "{jobs}");
}

#[test]
fn tokens_stand_for_what_differs() {
    let seal = Seal::new();
    let place = seal.path().join("shop-0123abcd/wt_0123456789ab");
    let message = format!("{}: sleep (17), uid 3 of wt_0123456789ab at {} (3 files)", place.display(), "a".repeat(40));
    assert_eq!(
        with_tokens(&message, &seal),
        "<seal>/shop-<digest>/<worktree>: sleep (<n>), uid <n> of <worktree> at <commit> (3 files)"
    );
}
