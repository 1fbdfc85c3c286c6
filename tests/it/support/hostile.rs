//! A user whose git configuration and environment do their worst: every option that could change what the worker sees,
//! and a canary in the place of every program that git could be made to run.
//!
//! The test's own git is not under it: it stands for agents, who have their own configuration.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Below the root of a seal.
const DIRECTORY: &str = "hostile";

/// Every hook of git but post-checkout, which runs on purpose.
pub const HOOKS: &[&str] = &[
    "applypatch-msg",
    "pre-applypatch",
    "post-applypatch",
    "pre-commit",
    "pre-merge-commit",
    "prepare-commit-msg",
    "commit-msg",
    "post-commit",
    "pre-rebase",
    "post-merge",
    "pre-push",
    "pre-auto-gc",
    "post-rewrite",
    "reference-transaction",
    "post-index-change",
    "fsmonitor-watchman",
    "sendemail-validate",
    "update",
    "pre-receive",
];

/// The user's configuration; `CANARY`, `HOOKS` and `ATTRIBUTES` stand for paths.
const CONFIG: &str = r#"
[user]
	name = Test
	email = test@test.invalid
[core]
	hooksPath = HOOKS
	fsmonitor = CANARY
	pager = CANARY
	editor = CANARY
	askPass = CANARY
	sshCommand = CANARY
	gitProxy = CANARY
	alternateRefsCommand = CANARY
	attributesFile = ATTRIBUTES
	quotePath = true
	abbrev = 4
	preloadIndex = false
	untrackedCache = true
	checkStat = minimal
	logAllRefUpdates = false
	commentChar = x
[sequence]
	editor = CANARY
[diff]
	external = CANARY
	noprefix = true
	mnemonicPrefix = true
	context = 0
	renames = copies
	relative = true
	wordRegex = .
	submodule = log
	ignoreSubmodules = all
	orderFile = /nonexistent
[diff "evil"]
	command = CANARY
	textconv = CANARY
	cachetextconv = false
[interactive]
	diffFilter = CANARY
[gpg]
	program = CANARY
	format = openpgp
[gpg "ssh"]
	program = CANARY
	defaultKeyCommand = CANARY
[commit]
	gpgSign = true
	verbose = true
	template = /nonexistent
	cleanup = strip
	status = false
[tag]
	gpgSign = true
	forceSignAnnotated = true
[log]
	showSignature = true
	decorate = full
	diffMerges = on
	follow = true
	abbrevCommit = true
	date = relative
	showRoot = false
[merge]
	verifySignatures = true
	ff = only
	conflictStyle = diff3
	log = true
	autoStash = true
	tool = evil
[mergetool "evil"]
	cmd = CANARY
[pull]
	rebase = true
[pager]
	status = CANARY
	diff = CANARY
	log = CANARY
	branch = CANARY
	worktree = CANARY
	config = CANARY
	refs = CANARY
	rev-list = CANARY
[credential]
	helper = CANARY
[alias]
	status = !CANARY
	rev-parse = !CANARY
	read-tree = !CANARY
	worktree = !CANARY
	update-ref = !CANARY
[remote "origin"]
	uploadpack = CANARY
	receivepack = CANARY
[rebase]
	autoStash = true
	autoSquash = true
	updateRefs = true
	backend = apply
	rebaseMerges = true
	stat = true
	instructionFormat = %B
	missingCommitsCheck = error
	rescheduleFailedExec = true
[rerere]
	enabled = true
	autoUpdate = true
[submodule]
	recurse = true
[status]
	showUntrackedFiles = no
	submoduleSummary = true
	short = true
	branch = true
	renames = false
	aheadBehind = false
	relativePaths = true
	showStash = true
[fetch]
	recurseSubmodules = true
	prune = true
	writeCommitGraph = true
[branch]
	autoSetupMerge = always
	autoSetupRebase = always
	sort = -committerdate
[worktree]
	guessRemote = true
[checkout]
	defaultRemote = origin
	guess = true
[color]
	ui = always
	status = always
	diff = always
	branch = always
[column]
	ui = always
[format]
	pretty = oneline
[gc]
	auto = 1
	autoDetach = true
[maintenance]
	auto = true
[advice]
	detachedHead = true
[apply]
	whitespace = error
[i18n]
	logOutputEncoding = latin1
[init]
	defaultBranch = elsewhere
	templateDir = /nonexistent
[protocol "ext"]
	allow = always
[trailer "evil"]
	command = CANARY
[uploadpack]
	packObjectsHook = CANARY
[web]
	browser = CANARY
[help]
	autoCorrect = immediate
"#;

fn directory(seal: &Path) -> PathBuf {
    seal.join(DIRECTORY)
}

/// Makes a seal hostile.
pub fn arm(seal: &Path) {
    let directory = directory(seal);
    let hooks = directory.join("hooks");
    std::fs::create_dir_all(&hooks).unwrap();
    let seen = directory.join("seen");
    let canary = directory.join("canary");
    let script = format!("#!/bin/sh\necho \"$0 $*\" >>{}\nexit 0\n", seen.display());
    for program in std::iter::once(canary.clone()).chain(HOOKS.iter().map(|hook| hooks.join(hook))) {
        std::fs::write(&program, &script).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let attributes = directory.join("attributes");
    std::fs::write(&attributes, "* diff=evil\n").unwrap();
    let config = [("CANARY", &canary), ("HOOKS", &hooks), ("ATTRIBUTES", &attributes)]
        .iter()
        .fold(CONFIG.to_owned(), |text, (name, path)| text.replace(name, path.to_str().unwrap()));
    std::fs::rename(seal.join("home/.gitconfig"), directory.join("calm")).unwrap();
    std::fs::write(seal.join("home/.gitconfig"), config).unwrap();
    let trap = directory.join("trap");
    std::fs::create_dir(&trap).unwrap();
    let made = Command::new("git").args(["init", "--quiet"]).arg(&trap).env("GIT_CONFIG_GLOBAL", "/dev/null").output();
    assert!(made.unwrap().status.success());
    std::fs::write(trap.join(".git/index"), "no index of anybody's\n").unwrap();
}

/// Whether a seal is hostile.
pub fn is_armed(seal: &Path) -> bool {
    directory(seal).is_dir()
}

/// The configuration of everybody but the worker.
pub fn calm(seal: &Path) -> PathBuf {
    directory(seal).join("calm")
}

/// Every variable by which git can be redirected or made to run something, pointing at the trap or the canary.
pub fn variables(seal: &Path) -> Vec<(&'static str, String)> {
    let directory = directory(seal);
    let text = |path: &str| directory.join(path).to_str().unwrap().to_owned();
    let (git_dir, canary) = (text("trap/.git"), text("canary"));
    let mut all = vec![
        ("GIT_DIR", git_dir.clone()),
        ("GIT_COMMON_DIR", git_dir),
        ("GIT_WORK_TREE", text("trap")),
        ("GIT_INDEX_FILE", text("trap/.git/index")),
        ("GIT_CONFIG_PARAMETERS", format!("'core.bare=true' 'core.fsmonitor={canary}'")),
    ];
    let programs = [
        "GIT_EXTERNAL_DIFF",
        "GIT_SSH",
        "GIT_SSH_COMMAND",
        "GIT_ASKPASS",
        "GIT_EDITOR",
        "GIT_SEQUENCE_EDITOR",
        "GIT_PAGER",
        "GIT_PROXY_COMMAND",
        "GIT_TEST_FSMONITOR",
        "SSH_ASKPASS",
        "PAGER",
        "EDITOR",
        "VISUAL",
    ];
    all.extend(programs.map(|name| (name, canary.clone())));
    let values = [
        ("GIT_OBJECT_DIRECTORY", "/nonexistent"),
        ("GIT_ALTERNATE_OBJECT_DIRECTORIES", "/nonexistent"),
        ("GIT_CONFIG", "/nonexistent"),
        ("GIT_CONFIG_COUNT", "1"),
        ("GIT_CONFIG_KEY_0", "core.bare"),
        ("GIT_CONFIG_VALUE_0", "true"),
        ("GIT_CONFIG_GLOBAL", "/nonexistent"),
        ("GIT_CONFIG_SYSTEM", "/nonexistent"),
        ("GIT_NAMESPACE", "space"),
        ("GIT_CEILING_DIRECTORIES", "/"),
        ("GIT_PREFIX", "x/"),
        ("GIT_INTERNAL_SUPER_PREFIX", "x/"),
        ("GIT_SHALLOW_FILE", "/nonexistent"),
        ("GIT_GRAFT_FILE", "/nonexistent"),
        ("GIT_REPLACE_REF_BASE", "refs/heads/"),
        ("GIT_NO_REPLACE_OBJECTS", "0"),
        ("GIT_IMPLICIT_WORK_TREE", "0"),
        ("GIT_REF_URI", "files:///nonexistent"),
        ("GIT_REFERENCE_BACKEND", "files:///nonexistent"),
        ("GIT_TRACE", "/nonexistent/x"),
        ("GIT_TRACE2_EVENT", "2"),
        ("GIT_ATTR_SOURCE", "elsewhere"),
        ("GIT_ATTR_GLOBAL", "/nonexistent"),
        ("GIT_ATTR_NOSYSTEM", "1"),
        ("GIT_LITERAL_PATHSPECS", "0"),
        ("GIT_ICASE_PATHSPECS", "1"),
        ("GIT_GLOB_PATHSPECS", "1"),
        ("GIT_NOGLOB_PATHSPECS", "0"),
        ("GIT_DEFAULT_HASH", "sha256"),
        ("GIT_DEFAULT_REF_FORMAT", "reftable"),
        ("GIT_DISCOVERY_ACROSS_FILESYSTEM", "1"),
        ("GIT_EXEC_PATH", "/nonexistent"),
        ("GIT_TEMPLATE_DIR", "/nonexistent"),
        ("GIT_AUTHOR_DATE", "nonsense"),
        ("GIT_COMMITTER_DATE", "nonsense"),
        ("GIT_AUTHOR_NAME", "nobody"),
        ("GIT_AUTHOR_EMAIL", "nobody"),
        ("GIT_REFLOG_ACTION", "x"),
        ("GIT_QUARANTINE_PATH", "/x"),
        ("GIT_ALLOW_PROTOCOL", "none"),
        ("GIT_PROTOCOL_FROM_USER", "0"),
        ("GIT_PROTOCOL", "version=0"),
        ("GIT_DIFF_OPTS", "-U9"),
        ("GIT_FLUSH", "1"),
        ("GIT_OPTIONAL_LOCKS", "1"),
        ("GIT_INDEX_VERSION", "4"),
        ("GIT_MERGE_VERBOSITY", "5"),
        ("GIT_MERGE_AUTOEDIT", "yes"),
        ("GIT_TERMINAL_PROMPT", "1"),
        ("GIT_PRINT_SHA1_ELLIPSIS", "yes"),
        ("GIT_LFS_SKIP_SMUDGE", "1"),
        ("LANGUAGE", "de"),
        ("LC_MESSAGES", "de_DE.UTF-8"),
    ];
    all.extend(values.map(|(name, value)| (name, value.to_owned())));
    all
}

/// What the canary and the trap have to tell; nothing when neither was touched.
pub fn found(seal: &Path) -> Option<String> {
    let directory = directory(seal);
    if let Ok(seen) = std::fs::read_to_string(directory.join("seen")) {
        return Some(format!("the canary was run:\n{seen}"));
    }
    let git_dir = directory.join("trap/.git");
    let index = std::fs::read_to_string(git_dir.join("index")).unwrap_or_default();
    let config = std::fs::read_to_string(git_dir.join("config")).unwrap_or_default();
    let refs = std::fs::read_dir(git_dir.join("refs/heads")).map_or(1, Iterator::count);
    let untouched = index == "no index of anybody's\n" && config.contains("bare = false") && refs == 0;
    (!untouched).then(|| format!("the trap was touched: {index:?} {config:?} {refs}"))
}
