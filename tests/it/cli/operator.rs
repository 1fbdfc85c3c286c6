//! The commands of an operator as scripts use them: no terminal, JSON, exit codes.

use std::path::Path;
use std::process::Output;

use serde_json::{Value, json};

use super::{err, out};
use crate::support::golden::Goldens;
use crate::support::{BINARY, Checkout, Process, Stand};

/// Runs `worktree` in a directory, with these words.
async fn run(stand: &Stand, place: &Path, arguments: &[&str]) -> Output {
    let mut command = stand.command(arguments);
    command.current_dir(place).env("III_URL", stand.url()).env("USER", "olga");
    tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
}

/// Runs it with `--json`, and reads what it prints.
async fn json_of(stand: &Stand, place: &Path, arguments: &[&str], code: i32) -> Value {
    let output = run(stand, place, &[arguments, &["--json"]].concat()).await;
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", err(&output));
    serde_json::from_str(&out(&output)).unwrap_or_else(|_| panic!("{arguments:?}: not JSON: {}", out(&output)))
}

/// What `doctor` says where all is well: with a git of a version that lacks no fix, whichever is installed.
async fn doctor(stand: &Stand, place: &Path) -> Value {
    use std::os::unix::fs::PermissionsExt as _;
    let bin = stand.seal.path().join("doctors-bin");
    let path = std::env::var("PATH").unwrap();
    let git = std::env::split_paths(&path).map(|dir| dir.join("git")).find(|file| file.is_file()).unwrap();
    let version = "case \"$*\" in *' version') echo git version 2.50.1; exit ;; esac";
    std::fs::create_dir(&bin).unwrap();
    std::fs::write(bin.join("git"), format!("#!/bin/sh\n{version}\nexec {} \"$@\"\n", git.display())).unwrap();
    std::fs::set_permissions(bin.join("git"), std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = stand.command(&["doctor", "--json"]);
    command.current_dir(place).env("III_URL", stand.url()).env("PATH", format!("{}:{path}", bin.display()));
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", out(&output));
    serde_json::from_str(&out(&output)).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worktree_has_many_names_and_an_unclear_one_names_none() {
    let stand = Stand::dev().await;
    let (shop, other) = (stand.repository("shop"), stand.repository("other"));
    let one = stand.create_with(&shop, json!({"branch": "one"})).await;
    let inside = one.checkout.path().join("below");
    std::fs::create_dir(&inside).unwrap();
    let here = shop.path();
    for (place, name) in
        [(here, one.id.as_str()), (here, &one.id[..9]), (here, &one.id[3..9]), (here, "one"), (&inside, ".")]
    {
        let output = run(&stand, place, &["get", "--path", name]).await;
        assert_eq!(out(&output).trim(), one.checkout.text(), "{name}: {}", err(&output));
    }
    let output = run(&stand, &inside, &["get", "--path"]).await;
    assert_eq!(out(&output).trim(), one.checkout.text());
    let output = run(&stand, here, &["get", "--path", inside.to_str().unwrap()]).await;
    assert_eq!(out(&output).trim(), one.checkout.text());

    let twin = stand.create_with(&other, json!({"branch": "one"})).await;
    let output = run(&stand, here, &["remove", "one", "--yes"]).await;
    assert_eq!(output.status.code(), Some(2));
    for id in [&one.id, &twin.id] {
        assert!(err(&output).contains(id.as_str()), "{}", err(&output));
        stand.client.ok("worktree::get", json!({"worktree_id": id})).await;
    }
    let output = run(&stand, here, &["get", "nothing-of-that-name"]).await;
    assert_eq!(output.status.code(), Some(1));
    assert!(err(&output).contains("W200"), "{}", err(&output));
    assert_eq!(run(&stand, here, &["get"]).await.status.code(), Some(2));
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_terminal_nothing_goes_unasked() {
    let stand = Stand::dev_with(json!({"prune_expire_hours": 0})).await;
    let shop = stand.repository("shop");
    let one = stand.create_with(&shop, json!({"branch": "one"})).await;
    for arguments in [&["remove", "one"][..], &["prune"], &["remove", "one", "--json"], &["gc", "--json"]] {
        let output = run(&stand, shop.path(), arguments).await;
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", err(&output));
        assert!(err(&output).contains("--yes"), "{}", err(&output));
        stand.client.ok("worktree::get", json!({"worktree_id": one.id})).await;
    }
    let plan = json_of(&stand, shop.path(), &["prune", "--dry-run"], 0).await;
    assert_eq!(plan, json!({"dry_run": true, "pruned": [one.id], "skipped": [], "forced": []}));
    stand.client.ok("worktree::get", json!({"worktree_id": one.id})).await;
    // The second confirmation counts what it confirms.
    one.checkout.write("notes", "an idea\n");
    let forced = ["prune", "--force-unsaved", "--yes", "--confirm-unsaved", "2"];
    assert_eq!(run(&stand, shop.path(), &forced).await.status.code(), Some(2));
    let forced = ["prune", "--force-unsaved", "--yes", "--confirm-unsaved", "1"];
    let output = run(&stand, shop.path(), &forced).await;
    assert_eq!(output.status.code(), Some(1), "force is switched off");
    assert!(err(&output).contains("worktree config gates.allow_force true"), "{}", err(&output));
    assert_eq!(one.checkout.read("notes"), "an idea\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn remove_from_within_counts_the_shell_and_not_itself() {
    let stand = Stand::dev().await;
    let shop = stand.repository("shop");
    let one = stand.create_with(&shop, json!({"branch": "one"})).await;
    // `worktree` stands there alone: nobody else is at work in it.
    let removed = json_of(&stand, one.checkout.path(), &["remove", "--yes"], 0).await;
    assert_eq!((&removed["worktree_id"], &removed["held"]["processes"]), (&json!(one.id), &json!([])));
}

#[tokio::test(flavor = "multi_thread")]
async fn local_shares_the_engine_of_dev_or_brings_its_own() {
    let mut stand = Stand::dev().await;
    let shop = stand.repository("shop");
    let state = stand.seal.path().join("state");
    let local = ["--local", "--state-dir", state.to_str().unwrap()];
    let words = |rest: &[&'static str]| [&local[..], rest].concat();
    let seed = format!("{}", stand.seal.path().join("worktrees").display());
    let created = run(&stand, shop.path(), &words(&["create", "one"])).await;
    assert!(created.status.success() && out(&created).starts_with(&seed), "{}", err(&created));
    let listed = stand.client.ok("worktree::list", json!({})).await;
    assert_eq!(listed["worktrees"][0]["branch"], "one");
    assert!(stand.stop().await.success());
    assert!(!state.join("dev.json").exists());

    // Nobody owns the state now: each command brings an engine of its own, one after the other.
    let (two, three) = (words(&["create", "two"]), words(&["create", "three"]));
    let (first, second) = tokio::join!(run(&stand, shop.path(), &two), run(&stand, shop.path(), &three));
    assert!(first.status.success() && second.status.success(), "{}{}", err(&first), err(&second));
    let worktree = Checkout::at(out(&first).trim(), &stand.seal);
    worktree.commit("apples", "3\n");
    // The land runs in the command, so it waits for its end.
    let landed = run(&stand, shop.path(), &words(&["land", "two", "--test", "test -f apples", "--json"])).await;
    assert!(landed.status.success(), "{}", err(&landed));
    assert_eq!(serde_json::from_str::<Value>(&out(&landed)).unwrap()["outcome"], "landed");
    let listed = run(&stand, shop.path(), &words(&["list", "--json"])).await;
    let listed: Value = serde_json::from_str(&out(&listed)).unwrap();
    let branches: Vec<&str> =
        listed["worktrees"].as_array().unwrap().iter().map(|one| one["branch"].as_str().unwrap()).collect();
    assert!(branches.contains(&"one") && branches.contains(&"three") && branches.len() == 2, "{branches:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn exit_codes_tell_what_kind_of_no_it_is() {
    let stand = Stand::dev().await;
    let shop = stand.repository("shop");
    stand.create_with(&shop, json!({"branch": "one"})).await;
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let nobody = format!("ws://127.0.0.1:{port}");
    for (arguments, code, word) in [
        (&["create", "one"][..], 1, "W120"),
        (&["claim", "none", "--session", "ada"], 1, "W200"),
        (&["land", "one", "--onto", "none"], 1, "W112"),
        (&["release", "one"], 1, "W211"),
        (&["config", "gates.no_such_key"], 2, "USAGE"),
        (&["config", "prune_schedule", "soon"], 1, "prune_schedule"),
        (&["list", "--state-dir", "x"], 2, "USAGE"),
        (&["list", "--url", "http://127.0.0.1:1"], 2, "USAGE"),
        (&["list", "--url", &nobody], 3, "NO_ENGINE"),
        (&["audit", "verify", "--url", &nobody], 3, "NO_ENGINE"),
        (&["audit", "query", "--since", "soon"], 2, "USAGE"),
    ] {
        let output = run(&stand, shop.path(), &[arguments, &["--json"]].concat()).await;
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", err(&output));
        let object: Value = serde_json::from_str(&err(&output)).unwrap_or_else(|_| panic!("{}", err(&output)));
        assert_eq!(object.as_object().unwrap().keys().collect::<Vec<_>>(), ["code", "message"]);
        assert!(object.to_string().contains(word), "{arguments:?}: {object}");
        assert_eq!(out(&output), "", "{arguments:?}");
    }
    assert_eq!(run(&stand, shop.path(), &["list", "--local", "--url", &nobody]).await.status.code(), Some(2));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_is_held_is_told_with_its_holder() {
    let stand = Stand::dev().await;
    let shop = stand.repository("shop");
    let locks = worktree::worktrees::repo_lock::RepoLocks::default();
    let held = locks.lock(shop.path().join(".git").to_str().unwrap()).await.unwrap();
    let told = json_of(&stand, shop.path(), &["unlock"], 2).await;
    assert_eq!(told["lock"]["holder"]["pid"], std::process::id());
    drop(held);
    let told = json_of(&stand, shop.path(), &["unlock"], 0).await;
    assert_eq!((&told["lock"]["held"], &told["cleared"]), (&json!(false), &json!(false)));
    // A holder that died leaves its note, which is cleared, and told to the log.
    let lock = shop.path().join(".git").join(worktree::worktrees::repo_lock::LOCK_FILE);
    let mut gone = std::process::Command::new("true").spawn().unwrap();
    gone.wait().unwrap();
    std::fs::write(&lock, json!({"pid": gone.id(), "since": 1}).to_string()).unwrap();
    let told = json_of(&stand, shop.path(), &["unlock"], 0).await;
    assert_eq!((&told["lock"]["holder"]["pid"], &told["cleared"]), (&json!(gone.id()), &json!(true)));
    let entries = json_of(&stand, shop.path(), &["audit", "query", "--action", "unlock"], 0).await;
    assert_eq!(entries["entries"][0]["actor"], json!({"kind": "command-line", "name": "olga"}));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_was_tampered_with_fails_the_verification() {
    let stand = Stand::dev().await;
    let shop = stand.repository("shop");
    for name in ["one", "two"] {
        stand.create_with(&shop, json!({"branch": name})).await;
        json_of(&stand, shop.path(), &["remove", name, "--yes"], 0).await;
    }
    let found = json_of(&stand, shop.path(), &["audit", "verify"], 0).await;
    assert_eq!(found["intact"], true, "{found}");
    let directory = stand.seal.path().join("worktrees/.audit");
    let logs: Vec<_> = std::fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    let log = logs
        .iter()
        .find(|path| path.extension().is_some_and(|end| end == "jsonl"))
        .unwrap_or_else(|| panic!("{logs:?}"));
    let text = std::fs::read_to_string(log).unwrap();
    std::fs::write(log, text.replacen("one", "0ne", 1)).unwrap();
    // The directory alone is enough: whoever looks into a copy has no engine.
    let verify = ["audit", "verify", "--dir", directory.to_str().unwrap(), "--url", "ws://127.0.0.1:9"];
    let found = json_of(&stand, shop.path(), &verify, 1).await;
    assert_eq!((&found["intact"], &found["faults"][0]["kind"]), (&json!(false), &json!("edited")));
}

#[tokio::test(flavor = "multi_thread")]
async fn shells_are_offered_ids_and_branches() {
    let stand = Stand::dev().await;
    let shop = stand.repository("shop");
    let one = stand.create_with(&shop, json!({"branch": "fix-login"})).await;
    let offered = |words: &'static [&'static str]| {
        let mut command = stand.seal.command(BINARY);
        command.current_dir(shop.path()).env("III_URL", stand.url()).env("WORKTREE_COMPLETE", "bash");
        command.env("_CLAP_COMPLETE_INDEX", (words.len() - 1).to_string()).env("_CLAP_IFS", "\n");
        command.arg("--").args(words);
        async { out(&tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()) }
    };
    let words = offered(&["worktree", "status", ""]).await;
    assert!(words.lines().any(|word| word == "fix-login") && words.contains(&one.id), "{words}");
    let words = offered(&["worktree", "status", "fi"]).await;
    assert_eq!(words.lines().collect::<Vec<_>>(), ["fix-login"]);
    let words = offered(&["worktree", "land", "--onto", "m"]).await;
    assert_eq!(words.lines().collect::<Vec<_>>(), ["main"]);
    let words = offered(&["worktree", "rem"]).await;
    assert_eq!(words.lines().collect::<Vec<_>>(), ["remove"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_shell_function_enters_what_was_created() {
    let stand = Stand::dev().await;
    let shop = stand.repository("shop");
    let script = "eval \"$(command worktree completions --init bash)\"\n\
        worktree create fix >/dev/null && pwd && cd / && wt fix && pwd\n\
        worktree create fix >/dev/null 2>&1; echo $?";
    let mut command = stand.seal.command("bash");
    let directory = Path::new(BINARY).parent().unwrap().to_str().unwrap();
    command.env("PATH", format!("{directory}:{}", std::env::var("PATH").unwrap()));
    command.args(["--norc", "-c", script]).current_dir(shop.path()).env("III_URL", stand.url());
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let text = out(&output);
    let lines: Vec<&str> = text.lines().collect();
    let path = stand.client.ok("worktree::list", json!({})).await["worktrees"][0]["path"].as_str().unwrap().to_owned();
    assert_eq!(lines, [path.as_str(), &path, "1"], "{}", err(&output));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_land_that_is_waited_for_survives_the_death_of_the_worker() {
    let mut stand = Stand::apart().await;
    let shop = stand.repository("shop");
    let one = stand.create_with(&shop, json!({"branch": "one"})).await;
    one.checkout.commit("apples", "3\n");
    let gate = crate::support::Gate::new(&stand.seal, "slow");
    let mut command = stand.command(&["land", "one", "--wait", "--json", "--test", &gate.command()]);
    command.current_dir(shop.path()).env("III_URL", stand.url());
    let mut waiting = Process::start("worktree land", command);
    gate.started().await;
    stand.kill_and_restart().await;
    gate.end(0);
    assert!(waiting.ended().await.success(), "{}", waiting.log());
    assert_eq!(serde_json::from_str::<Value>(&waiting.lines()[0]).unwrap()["outcome"], "landed");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_shapes_of_the_json_are_as_reviewed_and_documented() {
    let stand = Stand::dev_with(json!({"gates": {"allow_force": true}})).await;
    let shop = stand.repository("shop");
    let here = shop.path();
    let mut shapes = Vec::new();
    let created = json_of(&stand, here, &["create", "one"], 0).await;
    let place = Checkout::at(created["path"].as_str().unwrap(), &stand.seal);
    shapes.push(("create", created));
    shapes.push(("claim", json_of(&stand, here, &["claim", "one"], 0).await));
    place.commit("apples", "3\n");
    shop.git(&["worktree", "add", "-q", "-b", "stranger", stand.seal.path().join("stranger").to_str().unwrap()]);
    let all = ["list", "--size", "--processes", "--reapable", "--state", "claimed,unmanaged,orphan"];
    shapes.push(("list", json_of(&stand, here, &all, 0).await));
    shapes.push(("get", json_of(&stand, here, &["get", "one"], 0).await));
    shapes.push(("release", json_of(&stand, here, &["release", "one"], 0).await));
    shapes.push(("validate", json_of(&stand, place.path(), &["validate"], 0).await));
    shapes.push(("du", json_of(&stand, here, &["du"], 0).await));
    let stopped = json_of(&stand, here, &["land", "one", "--wait", "--test", "echo no; exit 1"], 1).await;
    assert_eq!((&stopped["outcome"], &stopped["code"]), (&json!("blocked"), &json!("W411")));
    shapes.push(("land-blocked", stopped));
    shapes.push(("status", json_of(&stand, here, &["status", "one"], 0).await));
    shapes.push(("queue", json_of(&stand, here, &["queue", "--ended"], 0).await));
    shapes.push(("land-landed", json_of(&stand, here, &["land", "one", "--wait", "--keep"], 0).await));
    place.write("notes", "an idea\n");
    shapes.push(("land-queued", json_of(&stand, here, &["land", "one"], 0).await));
    let queued = |value: &Value| value["jobs"].as_array().unwrap().is_empty();
    crate::support::until("the end of the land", || async {
        let waiting = json_of(&stand, here, &["queue"], 0).await;
        queued(&waiting).then_some(())
    })
    .await;
    shapes.push(("remove", json_of(&stand, here, &["remove", "one", "--force", "--yes"], 0).await));
    shapes.push(("restore-list", json_of(&stand, here, &["restore"], 0).await));
    shapes.push(("restore", json_of(&stand, here, &["restore", "one"], 0).await));
    shapes.push(("prune", json_of(&stand, here, &["prune", "--dry-run"], 0).await));
    shapes.push(("audit-verify", json_of(&stand, here, &["audit", "verify"], 0).await));
    shapes.push(("audit-query", json_of(&stand, here, &["audit", "query", "--action", "restore"], 0).await));
    shapes.push(("unlock", json_of(&stand, here, &["unlock"], 0).await));
    shapes.push(("doctor", doctor(&stand, here).await));
    shapes.push(("config", json_of(&stand, here, &["config", "gates"], 0).await));

    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/json.md");
    let page = std::fs::read_to_string(page).unwrap();
    let mut goldens = Goldens::at("json");
    for (name, value) in &shapes {
        goldens.check(&format!("{name}.json"), &format!("{:#}\n", shape(value)));
        for key in value.as_object().unwrap().keys() {
            assert!(page.contains(&format!("`{key}`")), "docs/json.md does not tell of `{key}` in {name}");
        }
    }
    goldens.finish();
}

/// The value with its texts, numbers and switches replaced by what they are; of a list, its first item.
fn shape(value: &Value) -> Value {
    match value {
        Value::Null => json!("null"),
        Value::Bool(_) => json!("bool"),
        Value::Number(_) => json!("number"),
        Value::String(_) => json!("text"),
        Value::Array(items) => items.iter().take(1).map(shape).collect(),
        Value::Object(fields) => {
            let named = |(key, value): (&String, &Value)| {
                let key = if key.starts_with("wt_") { "<worktree_id>" } else { key };
                (key.to_owned(), shape(value))
            };
            Value::Object(fields.iter().map(named).collect())
        }
    }
}

#[test]
fn the_readme_shows_the_sessions_that_are_run() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let readme = std::fs::read_to_string(root.join("README.md")).unwrap();
    for example in ["operator-session.sh", "operator-script.sh"] {
        let text = std::fs::read_to_string(root.join("examples").join(example)).unwrap();
        let shown = text.split("# --- README\n").nth(1).unwrap();
        assert!(readme.contains(shown), "README.md does not show {example} as it is run");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn from_a_directory_that_is_gone_the_way_out_is_told() {
    let stand = Stand::dev().await;
    let repository = stand.repository("shop");
    let worktree = stand.create(&repository).await;
    for words in ["remove", "status", "doctor", "create", "unlock"] {
        let mut command = stand.seal.command("sh");
        let leave = format!("mkdir gone && cd gone && rmdir ../gone && exec \"$0\" {words} --url {}", stand.url());
        command.args(["-c", &leave, BINARY]).current_dir(stand.seal.path());
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{words}: {said}");
        assert!(said.contains("the current directory is gone"), "{words}: {said}");
    }
    assert!(worktree.checkout.path().exists());
}
