//! Repositories that are not the usual kind, each through the whole life of a worktree, or to a clear refusal.

use serde_json::json;

use super::life;
use crate::support::stranger::Stranger;
use crate::support::{Checkout, Seal, Stand};

/// A clone of `origin` made with these options.
fn clone(stand: &Stand, origin: &Checkout, name: &str, options: &[&str]) -> Checkout {
    let place = stand.seal.path().join(name);
    let url = format!("file://{}", origin.text());
    let arguments = ["clone", "--quiet"].iter().chain(options).copied();
    origin.git(&arguments.chain([url.as_str(), place.to_str().unwrap()]).collect::<Vec<_>>());
    stand.checkout(place)
}

#[tokio::test(flavor = "multi_thread")]
async fn bare() {
    let stand = Stand::dev().await;
    let origin = stand.repository("origin");
    life(&stand, &clone(&stand, &origin, "bare.git", &["--bare"])).await;
    // In `.git`, its worktrees beside it.
    let folder = Checkout::at(stand.seal.path().join("folder"), &stand.seal);
    std::fs::create_dir(folder.path()).unwrap();
    clone(&stand, &origin, "folder/.git", &["--bare"]);
    folder.git(&["worktree", "add", "--quiet", "beside", "main"]);
    let beside = stand.checkout(folder.path().join("beside"));
    life(&stand, &folder).await;
    // The checkout of the target has moved along.
    assert_eq!(beside.read("apples"), "3\n");
    assert_eq!(beside.git(&["status", "--porcelain"]), "");
}

#[tokio::test(flavor = "multi_thread")]
async fn c16_without_commits_or_on_a_branch_without_any() {
    let stand = Stand::dev().await;
    let empty = Checkout::init(stand.seal.path().join("empty"), &stand.seal);
    let message = stand.client.refused("worktree::create", json!({"repo_path": empty.text()}), "W115").await;
    assert!(message.contains("no commits"), "{message}");
    let repository = stand.repository("shop");
    repository.git(&["checkout", "--quiet", "--orphan", "unborn"]);
    stand.client.refused("worktree::create", json!({"repo_path": repository.text()}), "W112").await;
    life(&stand, &repository).await;
    // A worktree whose owner begins anew: no status, nothing taken away, and the others are not disturbed.
    let orphan = stand.create_with(&repository, json!({"base_ref": "main"})).await;
    orphan.checkout.git(&["checkout", "--quiet", "--orphan", "anew"]);
    let other = stand.create_with(&repository, json!({"base_ref": "main"})).await;
    let listed = stand.client.ok("worktree::list", json!({"include_status": true})).await;
    assert!(listed["worktrees"][0]["status"].is_null(), "{listed}");
    assert_eq!(listed["worktrees"][1]["status"]["clean"], true, "{listed}");
    stand.client.ok("worktree::prune", json!({})).await;
    assert!(orphan.checkout.path().exists() && other.checkout.path().exists());
    stand.client.refused("worktree::remove", json!({"worktree_id": orphan.id}), "W220").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn c18_detached_or_with_another_default_branch() {
    let stand = Stand::dev().await;
    let repository = stand.repository("shop");
    let head = repository.sha("main");
    repository.git(&["checkout", "--quiet", "--detach"]);
    assert_eq!(stand.create(&repository).await.base_sha, head);
    repository.git(&["branch", "--move", "main", "trunk"]);
    repository.git(&["checkout", "--quiet", "trunk"]);
    let mut events = stand.hear().await;
    let created = stand.create(&repository).await;
    let tip = created.checkout.commit("apples", "3\n");
    let land = json!({"worktree_id": created.id, "target_branch": "main"});
    stand.client.refused("worktree::land", land, "W112").await;
    stand.land(&created, json!({"target_branch": "trunk"})).await;
    assert_eq!(events.landed(&created.id).await["merged_sha"], tip);
}

#[tokio::test(flavor = "multi_thread")]
async fn clones_that_hold_less_than_everything() {
    let stand = Stand::dev().await;
    let origin = stand.repository("origin");
    origin.commit("big", &"x".repeat(10_000));
    origin.git(&["branch", "other"]);
    origin.git(&["config", "uploadpack.allowFilter", "true"]);
    life(&stand, &clone(&stand, &origin, "single", &["--single-branch"])).await;
    life(&stand, &clone(&stand, &origin, "partial", &["--filter=blob:none"])).await;
    life(&stand, &clone(&stand, &origin, "treeless", &["--filter=tree:0"])).await;
    life(&stand, &clone(&stand, &origin, "shallow", &["--depth=1"])).await;
    life(&stand, &clone(&stand, &origin, "borrowing", &["--shared"])).await;
    // The very same, with the missing objects out of reach once the files are there.
    let partial = clone(&stand, &origin, "cut-off", &["--filter=blob:none"]);
    let created = stand.create(&partial).await;
    partial.git(&["remote", "set-url", "origin", "/nonexistent"]);
    let status = stand.client.ok("worktree::status", json!({"worktree_id": created.id})).await;
    assert_eq!(status["clean"], true, "{status}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shallow_history_that_hides_the_merge_base_is_named() {
    let stand = Stand::dev().await;
    let origin = stand.repository("origin");
    origin.git(&["branch", "other"]);
    origin.commit("on-main", "1\n");
    origin.git(&["checkout", "--quiet", "other"]);
    origin.commit("on-other", "1\n");
    origin.git(&["checkout", "--quiet", "main"]);
    let shallow = clone(&stand, &origin, "shallow", &["--depth=1", "--no-single-branch"]);
    shallow.git(&["branch", "other", "origin/other"]);
    let mut events = stand.hear().await;
    let created = stand.create(&shallow).await;
    let head = created.checkout.commit("apples", "3\n");
    let other = shallow.sha("refs/heads/other");
    stand.land(&created, json!({"target_branch": "other"})).await;
    let event = events.blocked(&created.id).await;
    assert_eq!((&event["code"], &event["reason"]), (&json!("W114"), &json!("rebase_failed")), "{event}");
    assert!(event["message"].as_str().unwrap().contains("--unshallow"), "{event}");
    assert_eq!((created.checkout.sha("HEAD"), shallow.sha("refs/heads/other")), (head, other));
    shallow.git(&["fetch", "--quiet", "--unshallow"]);
    stand.land(&created, json!({"target_branch": "other"})).await;
    events.landed(&created.id).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repository_of_another_user_is_named() {
    let seal = Seal::new();
    let stranger = Stranger::new(&seal.path().join("bin"));
    let stand = Stand::dev_in(seal, json!({}), &[("PATH", stranger.path())]).await;
    let repository = stand.repository("shop");
    let owner = stranger.takes(repository.path());
    let message = stand.client.refused("worktree::create", json!({"repo_path": repository.text()}), "W113").await;
    assert!(message.contains(&repository.text()) && message.contains(&owner), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn other_formats_of_objects_and_refs() {
    let stand = Stand::dev().await;
    for (name, option) in [("sha256", "--object-format=sha256"), ("reftable", "--ref-format=reftable")] {
        let repository = stand.checkout(stand.seal.path().join(name));
        std::fs::create_dir(repository.path()).unwrap();
        if !repository.try_git(&["init", "--quiet", "--initial-branch=main", option]).status.success() {
            // A git without that format is told of it by an extension that it does not know.
            repository.git(&["init", "--quiet", "--initial-branch=main"]);
            repository.commit("README", "hello\n");
            repository.git(&["config", "core.repositoryFormatVersion", "1"]);
            repository.git(&["config", "extensions.refStorage", "reftable"]);
            let create = json!({"repo_path": repository.text()});
            let message = stand.client.refused("worktree::create", create, "W102").await;
            assert!(message.contains("unknown repository extension") && message.contains("refstorage"), "{message}");
            continue;
        }
        repository.commit("README", "hello\n");
        life(&stand, &repository).await;
        // With a rebase.
        let mut events = stand.hear().await;
        let created = stand.create(&repository).await;
        created.checkout.commit("pears", "1\n");
        repository.commit("plums", "1\n");
        stand.land(&created, json!({})).await;
        events.landed(&created.id).await;
        assert_eq!(repository.git(&["status", "--porcelain"]), "");
        assert_eq!(repository.read("pears"), "1\n");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sparse_and_with_settings_of_one_worktree() {
    let stand = Stand::dev().await;
    let repository = stand.repository("shop");
    repository.commit("kept/a", "1\n");
    repository.commit("left/b", "1\n");
    repository.git(&["sparse-checkout", "set", "kept"]);
    assert_eq!(repository.git(&["config", "extensions.worktreeConfig"]), "true");
    life(&stand, &repository).await;
    assert!(!repository.path().join("left").exists() && repository.path().join("kept/a").exists());
    // What the owner of one worktree leaves out is no change, and is not lost by landing.
    let mut events = stand.hear().await;
    let created = stand.create(&repository).await;
    created.checkout.git(&["sparse-checkout", "set", "kept"]);
    assert!(!created.checkout.path().join("left").exists());
    let head = created.checkout.commit("kept/c", "1\n");
    repository.commit("meanwhile", "x\n");
    stand.land(&created, json!({})).await;
    events.landed(&created.id).await;
    assert_ne!(repository.sha("main"), head);
    assert_eq!(repository.git(&["show", "main:left/b"]), "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn c39_c56_submodules() {
    let stand = Stand::dev().await;
    let inner = stand.repository("inner");
    inner.git(&["config", "receive.denyCurrentBranch", "ignore"]);
    let repository = stand.repository("shop");
    let files = ["-c", "protocol.file.allow=always"];
    let git = |checkout: &Checkout, arguments: &[&str]| {
        checkout.git(&[files.as_slice(), arguments].concat());
    };
    git(&repository, &["submodule", "--quiet", "add", &inner.text(), "sub"]);
    repository.git(&["commit", "--quiet", "--message", "sub"]);
    life(&stand, &repository).await;
    let mut events = stand.hear().await;
    let created = stand.create(&repository).await;
    git(&created.checkout, &["submodule", "--quiet", "update", "--init"]);
    let sub = stand.checkout(created.checkout.path().join("sub"));
    // Work inside it is work.
    sub.write("loose", "x\n");
    stand.client.refused("worktree::remove", json!({"worktree_id": created.id}), "W220").await;
    std::fs::remove_file(sub.path().join("loose")).unwrap();
    let tip = sub.commit("inside", "1\n");
    sub.git(&["push", "--quiet", "origin", "HEAD:main"]);
    created.checkout.git(&["commit", "--quiet", "--all", "--message", "advance sub"]);
    repository.commit("meanwhile", "x\n");
    stand.land(&created, json!({})).await;
    events.landed(&created.id).await;
    assert!(repository.git(&["ls-tree", "main", "sub"]).contains(&tip));
    // Clean and pushed, it goes in one attempt.
    let idle = stand.create(&repository).await;
    git(&idle.checkout, &["submodule", "--quiet", "update", "--init"]);
    stand.client.ok("worktree::remove", json!({"worktree_id": idle.id})).await;
    assert!(!idle.checkout.path().exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn c56_a_submodule_commit_that_was_never_pushed_outlives_the_land_of_its_pointer() {
    let stand = Stand::dev().await;
    let inner = stand.repository("inner");
    let repository = stand.repository("shop");
    let files = "protocol.file.allow=always";
    repository.git(&["-c", files, "submodule", "--quiet", "add", &inner.text(), "sub"]);
    repository.git(&["commit", "--quiet", "--message", "sub"]);
    let mut events = stand.hear().await;
    let created = stand.create(&repository).await;
    created.checkout.git(&["-c", files, "submodule", "--quiet", "update", "--init"]);
    let sub = stand.checkout(created.checkout.path().join("sub"));
    let tip = sub.commit("inside", "1\n");
    created.checkout.git(&["commit", "--quiet", "--all", "--message", "advance sub"]);
    // What lands names a commit that nobody else has: the only repository that holds it stays, and the owner is told.
    stand.land(&created, json!({})).await;
    let landed = events.landed(&created.id).await;
    let kept = landed["kept_reason"].as_str().unwrap_or_else(|| panic!("it was cleaned up: {landed}"));
    assert!(kept.contains("1 commit in submodules on no remote"), "{landed}");
    assert!(repository.git(&["ls-tree", "main", "sub"]).contains(&tip));
    assert_eq!(sub.sha("HEAD"), tip);
    let remove = json!({"worktree_id": created.id, "delete_branch": true});
    stand.client.refused("worktree::remove", remove.clone(), "W220").await;
    sub.git(&["push", "--quiet", "origin", "HEAD:refs/heads/topic"]);
    stand.client.ok("worktree::remove", remove).await;
    assert_eq!(inner.branch("topic"), Some(tip));
}

#[tokio::test(flavor = "multi_thread")]
async fn c24_line_endings_are_those_of_the_repository() {
    let stand = Stand::dev().await;
    let repository = stand.repository("shop");
    repository.git(&["config", "core.autocrlf", "true"]);
    repository.commit("text.txt", "a\r\nb\r\n");
    repository.commit(".gitattributes", "*.bat text eol=crlf\n*.sh text eol=lf\n*.png binary\n");
    repository.commit("run.bat", "a\r\n");
    let created = stand.create(&repository).await;
    assert_eq!(
        (created.checkout.read("text.txt"), created.checkout.read("run.bat")),
        ("a\r\nb\r\n".into(), "a\r\n".into())
    );
    let status = stand.client.ok("worktree::status", json!({"worktree_id": created.id})).await;
    assert_eq!(status["clean"], true, "{status}");
    stand.client.ok("worktree::remove", json!({"worktree_id": created.id})).await;
    let mut events = stand.hear().await;
    let created = stand.create(&repository).await;
    created.checkout.commit("run.bat", "a\r\nours\r\n");
    repository.commit("other.txt", "x\r\n");
    stand.land(&created, json!({})).await;
    events.landed(&created.id).await;
    assert_eq!(repository.read("run.bat"), "a\r\nours\r\n");
    assert_eq!(repository.git(&["show", "main:run.bat"]), "a\nours");
}

#[tokio::test(flavor = "multi_thread")]
async fn symbolic_links_to_it_and_in_it() {
    let stand = Stand::dev().await;
    let repository = stand.repository("shop");
    let link = stand.seal.path().join("link");
    std::os::unix::fs::symlink(repository.path(), &link).unwrap();
    let precious = stand.seal.path().join("precious");
    std::fs::create_dir(&precious).unwrap();
    std::fs::write(precious.join("file"), "x\n").unwrap();
    std::os::unix::fs::symlink(&precious, repository.path().join("out")).unwrap();
    std::os::unix::fs::symlink("README", repository.path().join("in")).unwrap();
    std::os::unix::fs::symlink("nowhere", repository.path().join("broken")).unwrap();
    repository.git(&["add", "--all"]);
    repository.git(&["commit", "--quiet", "--message", "links"]);
    let through = stand.create(&stand.checkout(&link)).await;
    let straight = stand.create(&repository).await;
    assert_eq!(through.checkout.path().parent(), straight.checkout.path().parent());
    assert!(through.checkout.path().join("broken").is_symlink());
    for created in [through, straight] {
        stand.client.ok("worktree::remove", json!({"worktree_id": created.id})).await;
    }
    life(&stand, &repository).await;
    assert_eq!(std::fs::read_to_string(precious.join("file")).unwrap(), "x\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn files_that_differ_only_in_case() {
    let stand = Stand::dev().await;
    let repository = stand.repository("shop");
    repository.commit("name", "lower\n");
    repository.commit("NAME", "upper\n");
    repository.git(&["config", "core.ignoreCase", "false"]);
    life(&stand, &repository).await;
    let created = stand.create(&repository).await;
    assert_eq!((created.checkout.read("name"), created.checkout.read("NAME")), ("lower\n".into(), "upper\n".into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn c42_worktrees_inside_the_folder_of_the_repository() {
    let seal = Seal::new();
    let root = seal.path().join("shop/.worktrees");
    let keys = json!({"worktree_root": root, "provision": {"copy_ignored": true}});
    let stand = Stand::dev_in(seal, keys, &[]).await;
    let repository = stand.repository("shop");
    repository.commit(".gitignore", ".worktrees/\ncache/\n");
    repository.write("cache/object", "built\n");
    let first = stand.create(&repository).await;
    let second = stand.create(&repository).await;
    assert!(second.checkout.path().starts_with(&root));
    crate::support::until("the copies", || async {
        second.checkout.path().join("cache/object").exists().then_some(())
    })
    .await;
    assert!(!second.checkout.path().join(".worktrees").exists(), "worktrees were copied into a worktree");
    // A `clean -ffd` of the repository's own checkout leaves what is ignored; the worktrees are.
    repository.git(&["clean", "--quiet", "-ffd"]);
    assert_eq!(first.checkout.git(&["status", "--porcelain"]), "");
    for created in [first, second] {
        stand.client.ok("worktree::remove", json!({"worktree_id": created.id, "delete_branch": true})).await;
    }
    life(&stand, &repository).await;
    assert_eq!(repository.git(&["status", "--porcelain"]), "");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repository_whose_own_configuration_is_hostile() {
    let stand = Stand::dev().await;
    let repository = stand.repository("shop");
    let (program, seen) = super::canary(stand.seal.path(), "exit 0");
    repository.write(".git/info/attributes", "* diff=evil\n");
    let hooks = stand.seal.path().join("hooks");
    std::fs::create_dir(&hooks).unwrap();
    for hook in ["pre-rebase", "reference-transaction", "post-index-change", "pre-commit", "post-merge", "post-rewrite"]
    {
        std::fs::copy(&program, hooks.join(hook)).unwrap();
    }
    let config = [
        ("core.fsmonitor", program.as_str()),
        ("core.hooksPath", hooks.to_str().unwrap()),
        ("core.pager", &program),
        ("core.editor", &program),
        ("core.sshCommand", &program),
        ("core.askPass", &program),
        ("diff.external", &program),
        ("diff.evil.command", &program),
        ("diff.evil.textconv", &program),
        ("gpg.program", &program),
        ("commit.gpgSign", "true"),
        ("log.showSignature", "true"),
        ("credential.helper", &program),
        ("credential.https://x.invalid.helper", &program),
        ("remote.origin.uploadpack", &program),
        ("hook.evil.command", &program),
        ("hook.evil.event", "reference-transaction"),
        ("rebase.autoStash", "true"),
        ("rebase.updateRefs", "true"),
        ("submodule.recurse", "true"),
        ("status.showUntrackedFiles", "no"),
        ("core.worktree", "/nonexistent"),
        ("safe.bareRepository", "explicit"),
    ];
    let mut events = stand.hear().await;
    let created = stand.create(&repository).await;
    created.checkout.commit("apples", "3\n");
    repository.commit("pears", "4\n");
    let conflict = stand.create(&repository).await;
    conflict.checkout.commit("apples", "5\n");
    let text: String = config
        .iter()
        .map(|(key, value)| {
            let (section, variable) = key.rsplit_once('.').unwrap();
            let section = section.split_once('.').map_or(format!("[{section}]"), |(s, n)| format!("[{s} \"{n}\"]"));
            format!("{section}\n\t{variable} = {value}\n")
        })
        .collect();
    let file = repository.path().join(".git/config");
    let calm = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, format!("{calm}{text}")).unwrap();
    conflict.checkout.write("loose", "x\n");
    let status = stand.client.ok("worktree::status", json!({"worktree_id": conflict.id})).await;
    assert_eq!((&status["untracked"], &status["ahead"]), (&json!(1), &json!(1)), "{status}");
    std::fs::remove_file(conflict.checkout.path().join("loose")).unwrap();
    stand.land(&created, json!({"test_cmd": "true"})).await;
    events.landed(&created.id).await;
    stand.land(&conflict, json!({})).await;
    assert_eq!(events.blocked(&conflict.id).await["code"], "W410");
    // Its files lie where it is, whatever its configuration says.
    for place in ["/nonexistent", "/", "../.."] {
        repository.git(&["--git-dir=.git", "config", "core.worktree", place]);
        let message = stand.client.refused("worktree::create", json!({"repo_path": repository.text()}), "W110").await;
        assert!(message.contains("core.worktree"), "{message}");
    }
    repository.git(&["--git-dir=.git", "config", "--unset-all", "core.worktree"]);
    let more = stand.create(&repository).await;
    stand.client.ok("worktree::remove", json!({"worktree_id": more.id, "delete_branch": true})).await;
    stand.client.ok("worktree::prune", json!({})).await;
    assert!(!seen.exists(), "{}", std::fs::read_to_string(&seen).unwrap_or_default());
    std::fs::write(&file, calm).unwrap();
    assert_eq!(repository.read("apples"), "3\n");
    assert_eq!(repository.git(&["status", "--porcelain"]), "");
}
