//! What a repository may make git run, as configured.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use serde_json::json;

use super::{appears, canary, life};
use crate::support::{Checkout, Gate, Seal, Stand};

fn script(path: &Path, body: &str) -> String {
    std::fs::write(path, format!("#!/bin/sh\n{body}\n")).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path.to_str().unwrap().to_owned()
}

/// More lines for the configuration of the worker's user, and of everybody else.
fn user_config(seal: &Seal, lines: &str) {
    for file in [seal.home().join(".gitconfig"), seal.path().join("hostile/calm")] {
        if let Ok(old) = std::fs::read_to_string(&file) {
            std::fs::write(file, format!("{old}\n{lines}\n")).unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_checkout_hook_runs_or_not_as_configured_and_no_other_ever_does() {
    let stand = Stand::dev_with(json!({"git": {"hooks": "skip"}})).await;
    let repository = stand.repository("shop");
    let seen = stand.seal.path().join("seen");
    for hook in ["post-checkout", "pre-rebase", "reference-transaction", "post-merge", "post-rewrite", "pre-commit"] {
        repository.hook(hook, &format!("#!/bin/sh\necho {hook} >>{}\n", seen.display()));
    }
    let created = stand.create(&repository).await;
    assert_eq!(created.checkout.git(&["status", "--porcelain"]), "");
    assert!(!seen.exists(), "{}", std::fs::read_to_string(&seen).unwrap_or_default());
    stand.configure(json!({"git": {"hooks": "run"}})).await;
    stand.create(&repository).await;
    assert_eq!(std::fs::read_to_string(&seen).unwrap(), "post-checkout\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_filter_of_the_repository_runs_only_when_it_is_allowed() {
    let stand = Stand::dev().await;
    let repository = stand.repository("shop");
    repository.commit(".gitattributes", "*.txt filter=evil\n");
    repository.commit("a.txt", "plain\n");
    let before = stand.create(&repository).await;
    let (program, seen) = canary(stand.seal.path(), "sed s/plain/smudged/");
    for command in ["clean", "smudge"] {
        repository.git(&["config", &format!("filter.evil.{command}"), &program]);
    }
    let create = json!({"repo_path": repository.text()});
    let message = stand.client.refused("worktree::create", create.clone(), "W503").await;
    assert!(message.contains("`evil`") && message.contains("git.filters"), "{message}");

    // Looking at files that have to be compared runs it no more than writing them does.
    before.checkout.write("a.txt", "plain text\n");
    let status = stand.client.ok("worktree::status", json!({"worktree_id": before.id})).await;
    assert_eq!(status["unstaged"], 1, "{status}");
    stand.client.refused("worktree::remove", json!({"worktree_id": before.id}), "W220").await;
    stand.client.ok("worktree::list", json!({"include_status": true})).await;
    stand.client.ok("worktree::prune", json!({})).await;
    let land = json!({"worktree_id": before.id, "target_branch": "main"});
    stand.client.refused("worktree::land", land, "W503").await;
    assert!(!seen.exists(), "{}", std::fs::read_to_string(&seen).unwrap_or_default());

    stand.configure(json!({"git": {"filters": ["evil"]}})).await;
    let created = stand.client.ok("worktree::create", create).await;
    let file = Path::new(created["path"].as_str().unwrap()).join("a.txt");
    assert_eq!(std::fs::read_to_string(file).unwrap(), "smudged\n");
    assert!(seen.exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_filter_of_a_submodule_is_not_run_by_looking() {
    let stand = Stand::dev().await;
    let inner = stand.repository("inner");
    inner.commit(".gitattributes", "*.txt filter=evil\n");
    inner.commit("a.txt", "plain\n");
    let repository = stand.repository("shop");
    let file = "protocol.file.allow=always";
    repository.git(&["-c", file, "submodule", "--quiet", "add", &inner.text(), "sub"]);
    repository.git(&["commit", "--quiet", "--message", "sub"]);
    let (program, seen) = canary(stand.seal.path(), "cat");
    // One whose repository lies in git's entry, and one that lies in the worktree and that nobody has registered.
    let created = stand.create(&repository).await;
    created.checkout.git(&["-c", file, "submodule", "--quiet", "update", "--init"]);
    let nested = Checkout::init(created.checkout.path().join("nested"), &stand.seal);
    nested.commit(".gitattributes", "*.txt filter=evil\n");
    nested.commit("a.txt", "plain\n");
    created.checkout.git(&["add", "nested"]);
    created.checkout.git(&["commit", "--quiet", "--message", "nested"]);
    for name in ["sub", "nested"] {
        let sub = stand.checkout(created.checkout.path().join(name));
        sub.git(&["config", "filter.evil.clean", &program]);
        sub.git(&["config", "core.fsmonitor", &program]);
        sub.write("a.txt", "plain text\n");
    }
    let status = stand.client.ok("worktree::status", json!({"worktree_id": created.id})).await;
    assert_eq!(status["unstaged"], 2, "{status}");
    stand.client.refused("worktree::remove", json!({"worktree_id": created.id}), "W220").await;
    assert!(!seen.exists(), "{}", std::fs::read_to_string(&seen).unwrap_or_default());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_filter_that_appears_while_a_branch_lands_is_not_run() {
    let stand = Stand::dev().await;
    let repository = stand.repository("shop");
    repository.commit(".gitattributes", "*.txt filter=evil\n");
    let mut events = stand.hear().await;
    let created = stand.create(&repository).await;
    let head = created.checkout.commit("a.txt", "plain\n");
    let main = repository.sha("main");
    let gate = Gate::new(&stand.seal, "late");
    stand.land(&created, json!({"test_cmd": gate.command()})).await;
    gate.started().await;
    let (program, seen) = canary(stand.seal.path(), "cat");
    // A name that is no text is as good as any other.
    let config = repository.path().join(".git/config");
    let text = std::fs::read_to_string(&config).unwrap();
    let lines = format!("{text}[filter \"evil\"]\n\tsmudge = {program}\n\tclean = {program}\n\trequired\n");
    std::fs::write(&config, lines).unwrap();
    gate.end(0);
    let event = events.blocked(&created.id).await;
    assert!(event["message"].as_str().unwrap().contains("git.filters"), "{event}");
    assert_eq!((repository.sha("main"), created.checkout.sha("HEAD")), (main, head.clone()));
    assert!(!seen.exists(), "{}", std::fs::read_to_string(&seen).unwrap_or_default());
    repository.git(&["config", "--remove-section", "filter.evil"]);
    stand.land(&created, json!({})).await;
    assert_eq!(events.landed(&created.id).await["merged_sha"], head);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_merge_driver_of_the_repository_runs_only_when_it_is_allowed() {
    let stand = Stand::dev().await;
    let repository = stand.repository("shop");
    repository.commit(".gitattributes", "list merge=both\n");
    repository.commit("list", "1\n");
    let mut events = stand.hear().await;
    let created = stand.create(&repository).await;
    created.checkout.commit("list", "1\nours\n");
    repository.commit("list", "1\ntheirs\n");
    let (program, seen) = canary(stand.seal.path(), "git merge-file --union \"$1\" \"$2\" \"$3\"");
    repository.git(&["config", "merge.both.driver", &format!("{program} %A %O %B")]);
    // Whether it is integrated is asked without the driver.
    stand.client.ok("worktree::status", json!({"worktree_id": created.id})).await;
    let land = json!({"worktree_id": created.id, "target_branch": "main"});
    let message = stand.client.refused("worktree::land", land, "W503").await;
    assert!(message.contains("`both`") && message.contains("git.merge_drivers"), "{message}");
    assert!(!seen.exists());
    stand.configure(json!({"git": {"merge_drivers": ["both"]}})).await;
    stand.land(&created, json!({})).await;
    events.landed(&created.id).await;
    assert!(seen.exists());
    let merged = repository.read("list");
    assert!(merged.contains("ours") && merged.contains("theirs"), "{merged}");
}

/// Answers like gpg without asking anybody.
const SIGNER: &str = "cat >/dev/null
printf '\\n[GNUPG:] SIG_CREATED D\\n' >&2
printf -- '-----BEGIN PGP SIGNATURE-----\\n\\nx\\n-----END PGP SIGNATURE-----\\n'";

#[tokio::test(flavor = "multi_thread")]
async fn c55_a_wish_for_signatures_is_decided_by_policy_and_never_hangs() {
    let seal = Seal::new();
    let (signer, seen) = canary(seal.path(), SIGNER);
    user_config(&seal, &format!("[commit]\n\tgpgSign = true\n[gpg]\n\tprogram = {signer}"));
    // What the test commits stays unsigned.
    let stand = Stand::dev_in(seal, json!({}), &[]).await;
    let repository = stand.repository("shop");
    std::fs::remove_file(&seen).unwrap_or_default();
    let mut events = stand.hear().await;
    let rebased = async |name: &str| {
        let created = stand.create(&repository).await;
        created.checkout.commit(name, "3\n");
        repository.commit(&format!("meanwhile-{name}"), "x\n");
        std::fs::remove_file(&seen).unwrap_or_default();
        created
    };
    // Off: nothing is signed, and nobody is asked.
    let created = rebased("off").await;
    stand.land(&created, json!({})).await;
    events.landed(&created.id).await;
    assert!(!seen.exists());
    assert!(!repository.git(&["cat-file", "commit", "main"]).contains("gpgsig"));
    // Fail: blocked before anything was rewritten.
    stand.configure(json!({"git": {"signing": "fail"}})).await;
    let created = rebased("fail").await;
    let head = created.checkout.sha("HEAD");
    stand.land(&created, json!({})).await;
    let event = events.blocked(&created.id).await;
    assert!(event["message"].as_str().unwrap().contains("git.signing"), "{event}");
    assert_eq!((created.checkout.sha("HEAD"), seen.exists()), (head.clone(), false));
    // Keep: signed.
    stand.configure(json!({"git": {"signing": "keep"}})).await;
    stand.land(&created, json!({})).await;
    events.landed(&created.id).await;
    assert!(repository.git(&["cat-file", "commit", "main"]).contains("gpgsig"));
    // A signer without a terminal fails: blocked, and everything is as it was.
    script(Path::new(&signer), "echo 'gpg: cannot open /dev/tty' >&2; exit 2");
    let created = stand.create(&repository).await;
    created.checkout.git(&["-c", "commit.gpgSign=false", "commit", "--quiet", "--allow-empty", "--message", "a"]);
    created.checkout.write("no-tty", "x\n");
    created.checkout.git(&["add", "no-tty"]);
    created.checkout.git(&["-c", "commit.gpgSign=false", "commit", "--quiet", "--message", "b"]);
    repository.write("meanwhile", "x\n");
    repository.git(&["add", "meanwhile"]);
    repository.git(&["-c", "commit.gpgSign=false", "commit", "--quiet", "--message", "c"]);
    let (head, main) = (created.checkout.sha("HEAD"), repository.sha("main"));
    stand.land(&created, json!({})).await;
    let event = events.blocked(&created.id).await;
    assert_eq!(event["reason"], "rebase_failed", "{event}");
    assert_eq!((created.checkout.sha("HEAD"), repository.sha("main")), (head, main));
    assert_eq!(created.checkout.git(&["status", "--porcelain"]), "");
    // A signer of the repository's own is nobody's choice but an agent's.
    repository.git(&["config", "gpg.program", &signer]);
    let land = json!({"worktree_id": created.id, "target_branch": "main"});
    let message = stand.client.refused("worktree::land", land, "W503").await;
    assert!(message.contains("git.signing"), "{message}");
}

const POINTER: &str = "version https://git-lfs.github.com/spec/v1\noid sha256:1234\nsize 9\n";

#[tokio::test(flavor = "multi_thread")]
async fn lfs_files_are_filled_by_the_users_filter() {
    let seal = Seal::new();
    let smudge = script(&seal.path().join("smudge"), "cat >/dev/null; echo contents");
    let pointer = seal.path().join("pointer");
    std::fs::write(&pointer, POINTER).unwrap();
    let clean = script(&seal.path().join("clean"), &format!("cat >/dev/null; cat {}", pointer.display()));
    user_config(&seal, &format!("[filter \"lfs\"]\n\tclean = {clean}\n\tsmudge = {smudge}\n\trequired = true"));
    let stand = Stand::dev_in(seal, json!({}), &[]).await;
    let repository = stand.repository("shop");
    repository.commit(".gitattributes", "*.bin filter=lfs diff=lfs merge=lfs -text\n");
    repository.commit("big.bin", "contents\n");
    assert_eq!(repository.git(&["show", "main:big.bin"]), POINTER.trim_end());
    let created = stand.create(&repository).await;
    assert_eq!(created.checkout.read("big.bin"), "contents\n");
    life(&stand, &repository).await;
    stand.client.ok("worktree::remove", json!({"worktree_id": created.id})).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn c15_a_filter_that_is_missing_is_named_and_can_be_skipped() {
    let seal = Seal::new();
    // No git-lfs, wherever the test runs.
    let bin = seal.path().join("bin");
    std::fs::create_dir(&bin).unwrap();
    let path = std::env::var_os("PATH").unwrap();
    let git = std::env::split_paths(&path).map(|dir| dir.join("git")).find(|file| file.exists()).unwrap();
    script(&bin.join("git"), &format!("exec {} \"$@\"", git.display()));
    let repository = Checkout::init(seal.path().join("shop"), &seal);
    repository.commit(".gitattributes", "*.bin filter=lfs -text\n");
    repository.commit("big.bin", POINTER);
    let lfs = "[filter \"lfs\"]\n\tclean = git-lfs clean -- %f\n\tprocess = git-lfs filter-process\n\trequired = true";
    let config = std::fs::read_to_string(seal.home().join(".gitconfig")).unwrap();
    std::fs::write(seal.home().join(".gitconfig"), format!("{config}\n{lfs}\n")).unwrap();
    let stand = Stand::dev_in(seal, json!({}), &[("PATH", bin.to_str().unwrap())]).await;
    let create = json!({"repo_path": repository.text()});
    let message = stand.client.refused("worktree::create", create, "W102").await;
    assert!(message.contains("`lfs`") && message.contains("git.skip_lfs_smudge"), "{message}");
    assert_eq!(repository.worktrees(), [repository.path()]);
    assert!(!repository.refs().contains("refs/heads/iii/"), "{}", repository.refs());
    stand.configure(json!({"git": {"skip_lfs_smudge": true}})).await;
    let created = stand.create(&repository).await;
    assert_eq!(created.checkout.read("big.bin"), POINTER);
    let status = stand.client.ok("worktree::status", json!({"worktree_id": created.id})).await;
    assert_eq!(status["clean"], true, "{status}");
    stand.client.ok("worktree::remove", json!({"worktree_id": created.id})).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_other_end_of_a_partial_clone_is_gits_own() {
    let stand = Stand::dev().await;
    let origin = stand.repository("origin");
    // What the other end runs when it packs is its owner's affair; here a hostile user is at both ends.
    let user = stand.seal.home().join(".gitconfig");
    origin.try_git(&["config", "--file", user.to_str().unwrap(), "--unset", "uploadpack.packObjectsHook"]);
    origin.commit("big", &"x".repeat(10_000));
    origin.git(&["config", "uploadpack.allowFilter", "true"]);
    let place = stand.seal.path().join("partial");
    let url = format!("file://{}", origin.text());
    // Not by the name for which a hostile user has a program of his own, which he may run.
    let partial = ["clone", "--quiet", "--no-checkout", "--filter=blob:none", "--origin=upstream"];
    origin.git(&[partial.as_slice(), &[&url, place.to_str().unwrap()]].concat());
    let repository = stand.checkout(&place);
    let (program, seen) = canary(stand.seal.path(), "exec git-upload-pack \"$@\"");
    repository.git(&["config", "remote.upstream.uploadpack", &program]);
    // Git would take the first value it finds, so for a directory there is no other end then.
    let create = json!({"repo_path": repository.text()});
    let message = stand.client.refused("worktree::create", create, "W102").await;
    assert!(message.contains("'file' not allowed"), "{message}");
    assert_eq!(repository.worktrees(), [repository.path()]);
    assert!(!seen.exists(), "{}", std::fs::read_to_string(&seen).unwrap_or_default());
    origin.git(&["update-ref", "refs/pull/7/head", "main"]);
    repository.git(&["config", "extensions.partialClone", "upstream"]);
    repository.git(&["remote", "add", "origin", &url]);
    repository.git(&["config", "remote.origin.uploadpack", &program]);
    let pull = json!({"repo_path": repository.text(), "pr": 7});
    stand.client.refused("worktree::create", pull, "W102").await;
    assert!(!seen.exists(), "{}", std::fs::read_to_string(&seen).unwrap_or_default());
    for remote in ["origin", "upstream"] {
        repository.git(&["config", "--unset", &format!("remote.{remote}.uploadpack")]);
    }
    let created = stand.create(&repository).await;
    assert_eq!(created.checkout.read("big").len(), 10_000);
    let status = stand.client.ok("worktree::status", json!({"worktree_id": created.id})).await;
    assert_eq!(status["clean"], true, "{status}");
    repository.git(&["config", "remote.upstream.uploadpack", &program]);
    let status = stand.client.ok("worktree::status", json!({"worktree_id": created.id})).await;
    assert_eq!(status["clean"], true, "{status}");
    assert!(!seen.exists(), "{}", std::fs::read_to_string(&seen).unwrap_or_default());
    // The wires carry current.
    repository.git(&["fetch", "--quiet", "upstream"]);
    appears(&seen).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_remote_that_is_a_program_is_not_run() {
    let stand = Stand::dev().await;
    let repository = stand.repository("shop");
    let (program, seen) = canary(stand.seal.path(), "exit 1");
    repository.git(&["config", "protocol.ext.allow", "always"]);
    repository.git(&["config", "protocol.allow", "always"]);
    let create = json!({"repo_path": repository.text(), "pr": 7});
    for (key, value) in [
        ("remote.origin.url", format!("ext::{program} %S")),
        ("url.ext::sh.insteadOf", "https://example.invalid/".to_owned()),
        ("remote.origin.vcs", "ext".to_owned()),
    ] {
        repository.git(&["config", key, &value]);
        let message = stand.client.refused("worktree::create", create.clone(), "W102").await;
        assert!(message.contains("not allowed"), "{message}");
    }
    assert!(!seen.exists(), "{}", std::fs::read_to_string(&seen).unwrap_or_default());
}
