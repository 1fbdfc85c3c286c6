//! A program wired into everything a repository can name is never run, whatever the layer is asked to do.

use std::path::{Path, PathBuf};

use super::sealed::{Place, add, put, run_hook, script};
use crate::support::hostile::HOOKS;
use worktree::git::{DriverKind, Expected, Git, HookOutcome, MoveOutcome, RebaseOutcome, RefUpdate, Room, admin};

/// Wires the canary into the repository and into the user's configuration.
fn wire(place: &Place, root: &Path) -> PathBuf {
    let seen = place.path().join("seen");
    let canary = place.path().join("canary");
    script(&canary, &format!("echo \"$0 $*\" >>{}\nexit 0", seen.display()));
    let canary = canary.to_str().unwrap();
    let hooks = place.path().join("hooks");
    for hook in HOOKS.iter().chain(&["post-checkout"]) {
        for dir in [hooks.clone(), root.join(".git/hooks")] {
            script(&dir.join(hook), &format!("echo {hook} >>{}", seen.display()));
        }
    }
    let shell = format!("!{canary}");
    for (key, value) in [
        ("core.fsmonitor", canary),
        ("core.hooksPath", hooks.to_str().unwrap()),
        ("core.pager", canary),
        ("core.editor", canary),
        ("core.askPass", canary),
        ("core.sshCommand", canary),
        ("core.gitProxy", canary),
        ("core.alternateRefsCommand", canary),
        ("sequence.editor", canary),
        ("diff.external", canary),
        ("diff.evil.command", canary),
        ("diff.evil.textconv", canary),
        ("diff.evil.cachetextconv", "false"),
        ("interactive.diffFilter", canary),
        ("gpg.program", canary),
        ("gpg.ssh.program", canary),
        ("gpg.format", "openpgp"),
        ("commit.gpgSign", "true"),
        ("tag.gpgSign", "true"),
        ("log.showSignature", "true"),
        ("merge.verifySignatures", "true"),
        ("pager.status", canary),
        ("pager.diff", canary),
        ("pager.log", canary),
        ("pager.worktree", canary),
        ("pager.config", canary),
        ("pager.refs", canary),
        ("credential.helper", canary),
        ("alias.status", &shell),
        ("alias.rev-parse", &shell),
        ("alias.read-tree", &shell),
        ("alias.iii", &shell),
        ("remote.origin.uploadpack", canary),
        ("rebase.autoStash", "true"),
        ("rebase.autoSquash", "true"),
        ("rebase.updateRefs", "true"),
        ("rerere.enabled", "true"),
        ("rebase.backend", "apply"),
        ("rebase.rebaseMerges", "true"),
        ("rebase.stat", "true"),
        ("rebase.instructionFormat", "%B"),
        ("submodule.recurse", "true"),
        ("status.submoduleSummary", "true"),
        ("fetch.recurseSubmodules", "true"),
        ("status.showUntrackedFiles", "no"),
        ("color.ui", "always"),
        ("column.ui", "always"),
        ("gc.auto", "1"),
        ("core.quotePath", "true"),
        ("log.decorate", "full"),
        ("log.diffMerges", "on"),
        ("log.follow", "true"),
        ("diff.noprefix", "true"),
        ("diff.mnemonicPrefix", "true"),
        ("diff.context", "0"),
        ("diff.renames", "copies"),
        ("diff.relative", "true"),
        ("diff.wordRegex", "."),
        ("format.pretty", "oneline"),
        ("diff.submodule", "log"),
    ] {
        place.run(root, ["config", key, value]);
        place.run(root, ["config", "--global", key, value]);
    }
    seen
}

/// Everything the layer can do, on a repository with an origin that has a pull request.
async fn everything(place: &Place, git: &Git, root: &Path) {
    git.require_version().await.unwrap();
    let found = git.discover(root).await.unwrap();
    let (repo, primary) = (found.repo, found.tree.unwrap());
    let head = repo.resolve_commit("HEAD").await.unwrap().unwrap();
    let base = repo.resolve_commit("HEAD~1").await.unwrap().unwrap();
    let side = repo.branch_sha("side").await.unwrap().unwrap();
    assert_ne!(repo.room_for("side/x").await.unwrap(), Room::Free);
    assert!(!repo.is_shallow().await.unwrap() && repo.has_commits().await.unwrap() && !repo.is_bare().await.unwrap());
    assert_eq!(repo.head_branch().await.unwrap().as_deref(), Some("main"));
    assert_eq!(repo.upstream_of("side").await.unwrap(), None);
    assert!(repo.fetch_ref("origin", "refs/pull/7/head", "refs/iii/pr/7").await.unwrap().is_some());
    assert_eq!(repo.ahead_behind(&head, &base).await.unwrap(), (1, 0));
    assert!(repo.unpushed(&head, &[]).await.unwrap() > 0);
    assert!(!repo.shortstat(&base, &head).await.unwrap().is_empty());
    assert!(repo.commit_exists(&repo.merge_base(&head, &side).await.unwrap().unwrap()).await.unwrap());
    assert_eq!(repo.integration(&side, &head).await.unwrap(), None);

    let path = place.path().join("work");
    repo.add_worktree(&add(&path, "feat", &base)).await.unwrap();
    assert_eq!(repo.worktrees().await.unwrap().len(), 2);
    let tree = git.tree(&path).unwrap();
    tree.checkout_fresh().await.unwrap();
    tree.refresh_index().await.unwrap();
    assert!(tree.status().await.unwrap().is_clean());
    put(&path, "mine", "1\n");
    assert_eq!(tree.status().await.unwrap().untracked, 1);
    tree.ignored_entries().await.unwrap();
    place.run(&path, ["-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "add", "mine"]);
    place.run(
        &path,
        [
            "-c",
            "core.hooksPath=/dev/null",
            "-c",
            "core.fsmonitor=false",
            "-c",
            "commit.gpgSign=false",
            "commit",
            "-qm",
            "mine",
        ],
    );
    let tip = tree.head().await.unwrap().unwrap();
    let RebaseOutcome::Done { head: rebased } = tree.rebase(&tip, &head).await.unwrap() else { panic!() };
    let RebaseOutcome::Conflict { .. } = tree.rebase(&rebased, &side).await.unwrap() else { panic!() };
    tree.conflicted_files().await.unwrap();
    tree.abort_rebase().await.unwrap();
    assert_eq!(tree.head().await.unwrap(), Some(rebased.clone()));

    let moved = repo.update_ref("refs/heads/main", &rebased, Expected::Is(head.clone()), "land").await.unwrap();
    assert_eq!(moved, RefUpdate::Done);
    assert_eq!(primary.fast_forward(&head, &rebased).await.unwrap(), MoveOutcome::Moved);
    assert!(primary.status().await.unwrap().is_clean());
    let entry = admin::entry_for(repo.common_dir(), &path).unwrap().unwrap();
    admin::unlock(&entry).unwrap();
    tree.remove(false).await.unwrap();
    assert_eq!(repo.delete_ref("refs/heads/feat", &rebased).await.unwrap(), RefUpdate::Done);
}

fn stage(place: &Place) -> PathBuf {
    let root = place.repo("shop");
    put(&root, ".gitattributes", "* diff=evil\n");
    put(&root, ".git/info/attributes", "* diff=evil\n");
    place.commit(&root, "a", "1\n");
    place.run(&root, ["branch", "side"]);
    place.run(&root, ["checkout", "--quiet", "side"]);
    place.commit(&root, "b", "side\n");
    place.run(&root, ["checkout", "--quiet", "main"]);
    place.commit(&root, "b", "main\n");
    let origin = place.path().join("origin.git");
    place.run(&place.path(), ["clone", "--quiet", "--bare", root.to_str().unwrap(), origin.to_str().unwrap()]);
    place.run(&origin, ["update-ref", "refs/pull/7/head", "main"]);
    place.run(&root, ["remote", "add", "origin", origin.to_str().unwrap()]);
    root
}

#[tokio::test]
async fn no_program_the_repository_names_is_run_invariant_2() {
    let place = Place::new();
    let root = stage(&place);
    let seen = wire(&place, &root);
    // The wires carry current: the user's own git runs the canary.
    place.try_run(&root, ["status"]);
    assert!(seen.exists());
    std::fs::remove_file(&seen).unwrap();
    everything(&place, &place.git, &root).await;
    assert!(!seen.exists(), "{}", std::fs::read_to_string(&seen).unwrap_or_default());

    // The one exception does run.
    let tree = place.git.tree(&root).unwrap();
    assert_eq!(run_hook(&tree, &place_head(&place, &root)).await, HookOutcome::Ok);
    assert!(std::fs::read_to_string(&seen).unwrap().contains("post-checkout"));
}

fn place_head(place: &Place, root: &Path) -> worktree::git::Sha {
    std::fs::read_to_string(root.join(".git/refs/heads/main"))
        .map_or_else(|_| place.head(root), |text| text.trim().parse().unwrap())
}

#[tokio::test]
async fn c10_the_answers_are_the_same_with_every_variable_preset() {
    let place = Place::new();
    let root = stage(&place);
    let other = place.repo("other");
    let canary = place.path().join("canary");
    let seen = place.path().join("seen");
    script(&canary, &format!("echo \"$0 $*\" >>{}", seen.display()));
    let (other_git, index) = (other.join(".git"), other.join(".git/index"));
    let untouched = std::fs::read(&index).unwrap();
    let (git_dir, work, index, program) =
        (other_git.to_str().unwrap(), other.to_str().unwrap(), index.to_str().unwrap(), canary.to_str().unwrap());
    let env = [
        ("GIT_DIR", git_dir),
        ("GIT_WORK_TREE", work),
        ("GIT_COMMON_DIR", git_dir),
        ("GIT_INDEX_FILE", index),
        ("GIT_OBJECT_DIRECTORY", "/nonexistent"),
        ("GIT_ALTERNATE_OBJECT_DIRECTORIES", "/nonexistent"),
        ("GIT_CONFIG", "/nonexistent"),
        ("GIT_CONFIG_PARAMETERS", "'core.bare=true'"),
        ("GIT_CONFIG_COUNT", "1"),
        ("GIT_CONFIG_KEY_0", "core.bare"),
        ("GIT_CONFIG_VALUE_0", "true"),
        ("GIT_CONFIG_GLOBAL", "/nonexistent"),
        ("GIT_CONFIG_SYSTEM", "/nonexistent"),
        ("GIT_NAMESPACE", "space"),
        ("GIT_CEILING_DIRECTORIES", "/"),
        ("GIT_PREFIX", "x/"),
        ("GIT_SHALLOW_FILE", "/nonexistent"),
        ("GIT_GRAFT_FILE", "/nonexistent"),
        ("GIT_REPLACE_REF_BASE", "refs/heads/"),
        ("GIT_IMPLICIT_WORK_TREE", "0"),
        ("GIT_EXTERNAL_DIFF", program),
        ("GIT_SSH", program),
        ("GIT_SSH_COMMAND", program),
        ("GIT_ASKPASS", program),
        ("GIT_EDITOR", program),
        ("GIT_SEQUENCE_EDITOR", program),
        ("GIT_PAGER", program),
        ("GIT_PROXY_COMMAND", program),
        ("PAGER", program),
        ("EDITOR", program),
        ("VISUAL", program),
        ("SSH_ASKPASS", program),
        ("GIT_TRACE", "/nonexistent/x"),
        ("GIT_TRACE2_EVENT", "2"),
        ("GIT_ATTR_SOURCE", "side"),
        ("GIT_LITERAL_PATHSPECS", "0"),
        ("GIT_ICASE_PATHSPECS", "1"),
        ("GIT_GLOB_PATHSPECS", "1"),
        ("GIT_DEFAULT_HASH", "sha256"),
        ("GIT_DEFAULT_REF_FORMAT", "reftable"),
        ("GIT_DISCOVERY_ACROSS_FILESYSTEM", "1"),
        ("GIT_EXEC_PATH", "/nonexistent"),
        ("GIT_TEMPLATE_DIR", "/nonexistent"),
        ("GIT_AUTHOR_DATE", "nonsense"),
        ("GIT_COMMITTER_DATE", "nonsense"),
        ("GIT_AUTHOR_NAME", "nobody"),
        ("GIT_REFLOG_ACTION", "x"),
        ("GIT_QUARANTINE_PATH", "/x"),
        ("GIT_ALLOW_PROTOCOL", "none"),
        ("GIT_PROTOCOL_FROM_USER", "0"),
        ("GIT_DIFF_OPTS", "-U9"),
        ("GIT_FLUSH", "1"),
        ("LC_ALL", "de_DE.UTF-8"),
        ("LANGUAGE", "de"),
        ("LANG", "de_DE.UTF-8"),
    ];
    everything(&place, &place.git_with(&env), &root).await;
    assert!(!seen.exists(), "{}", std::fs::read_to_string(&seen).unwrap_or_default());
    assert_eq!(std::fs::read(index).unwrap(), untouched);
    assert!(!std::fs::read_to_string(other_git.join("config")).unwrap().contains("bare = true"));
}

#[tokio::test]
async fn the_repositorys_own_drivers_are_listed_and_the_users_are_not() {
    let place = Place::new();
    let root = place.repo("shop");
    place.user_config("[filter \"lfs\"]\nprocess = git-lfs filter-process\nrequired = true");
    let tree = place.worktree(&root, "one").await;
    assert!(tree.own_drivers().await.unwrap().is_empty());
    place.run(&root, ["config", "filter.dot.ted.smudge", "run me"]);
    place.run(&root, ["config", "filter.off.clean", ""]);
    place.run(&root, ["config", "extensions.worktreeConfig", "true"]);
    place.run(tree.root(), ["config", "--worktree", "merge.mine.driver", "merge %A"]);
    put(&root, ".git/more", "[filter \"inc\"]\nprocess = included\n");
    place.run(&root, ["config", "include.path", "more"]);
    let own: Vec<_> = tree.own_drivers().await.unwrap().into_iter().map(|d| (d.kind, d.name, d.command)).collect();
    let wanted = [
        (DriverKind::Filter, "dot.ted", "run me"),
        (DriverKind::Filter, "inc", "included"),
        (DriverKind::Merge, "mine", "merge %A"),
    ];
    assert_eq!(own, wanted.map(|(kind, name, command)| (kind, name.to_owned(), command.to_owned())));
}
