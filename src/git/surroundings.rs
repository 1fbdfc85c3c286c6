//! The environment and the configuration that every git process gets.
//!
//! The environment is the worker's own, less whatever could redirect git, run a program or ask a question, plus what
//! pins its behaviour. All `GIT_*` variables go, with the exceptions of [`KEPT`]: a worker started from a hook or a
//! test runner inherits a `GIT_DIR` or `GIT_INDEX_FILE` that names somebody else's repository.
//!
//! The configuration of the user still applies (identity, line endings, merge settings); the entries in
//! [`CONFIG`] are put on top of it for one process, since the repository's own file is written by agents.
//! `core.autocrlf`, `core.eol` and `safe.directory` are left alone on purpose: the first two decide what a clean file
//! looks like, the last is the user's decision about trust.

use std::ffi::{OsStr, OsString};
use std::path::Path;

/// `GIT_*` variables that survive: who the committer is, and which certificates to trust. They name no place and
/// run nothing. Dates, author, configuration files, the exec path and everything else go.
const KEPT: &[&str] = &["GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL", "GIT_SSL_CAINFO", "GIT_SSL_CAPATH"];

/// Other variables that name a program to run or a language to speak.
const DROPPED: &[&str] = &[
    "SSH_ASKPASS",
    "SSH_ASKPASS_REQUIRE",
    "PAGER",
    "EDITOR",
    "VISUAL",
    "GPG_TTY",
    "LANGUAGE",
    "LC_ALL",
    "LC_MESSAGES",
];

/// What every git process gets on top.
const FORCED: &[(&str, &str)] = &[
    ("LC_MESSAGES", "C"),
    ("GIT_TERMINAL_PROMPT", "0"),
    // The credential manager that many have asks in a window of its own.
    ("GCM_INTERACTIVE", "never"),
    ("GIT_ASKPASS", "false"),
    ("SSH_ASKPASS", "false"),
    // Wins over `core.sshCommand`. Keys and proxies belong into ~/.ssh/config.
    ("GIT_SSH_COMMAND", "ssh -o BatchMode=yes"),
    ("GIT_EDITOR", "true"),
    ("GIT_SEQUENCE_EDITOR", "true"),
    ("GIT_PAGER", "cat"),
    ("GIT_MERGE_AUTOEDIT", "no"),
    ("GIT_ADVICE", "0"),
    // Wins over `protocol.<name>.allow`, whoever sets it: nothing that runs a program named in a URL (`ext::`).
    ("GIT_ALLOW_PROTOCOL", "file:http:https:ssh"),
    // Replacement refs and grafts could make a commit look contained that is not.
    ("GIT_NO_REPLACE_OBJECTS", "1"),
    ("GIT_GRAFT_FILE", "/dev/null"),
];

/// What keeps a process from fetching an object that a partial clone lacks. Versions of git that do not know the first
/// are stopped by the second.
pub(super) const OFFLINE: &[(&str, &str)] = &[("GIT_NO_LAZY_FETCH", "1"), ("GIT_ALLOW_PROTOCOL", "none")];

/// The protocols for a process that may fetch such an object, where the repository names the program on the other end.
/// For a directory that program would run here.
pub(super) const NO_LOCAL_TRANSPORT: (&str, &str) = ("GIT_ALLOW_PROTOCOL", "http:https:ssh");

/// Where git looks for hooks.
const HOOKS: &str = "core.hooksPath";

/// Configuration put on top of the user's and the repository's, for every process but the hook run.
const CONFIG: &[(&str, &str)] = &[
    // Programs the repository could name.
    (HOOKS, "/dev/null"),
    ("core.fsmonitor", "false"),
    ("core.alternateRefsCommand", "true"),
    ("log.showSignature", "false"),
    // One that cannot be read fails every comparison.
    ("diff.orderFile", "/dev/null"),
    ("tag.gpgSign", "false"),
    // Submodules are the owner's to move.
    ("submodule.recurse", "false"),
    ("fetch.recurseSubmodules", "false"),
    ("status.submoduleSummary", "false"),
    // The status of a worktree asks one of each submodule, and hands no option on.
    ("status.showUntrackedFiles", "normal"),
    ("diff.ignoreSubmodules", "none"),
    // A rebase does what it is told and nothing else.
    ("rebase.autoStash", "false"),
    ("rebase.autoSquash", "false"),
    ("rebase.updateRefs", "false"),
    ("rebase.rebaseMerges", "false"),
    ("rebase.backend", "merge"),
    ("rebase.stat", "false"),
    ("rerere.enabled", "false"),
    ("rerere.autoUpdate", "false"),
    // Nothing runs on in the background.
    ("gc.auto", "0"),
    ("maintenance.auto", "false"),
    ("fetch.writeCommitGraph", "false"),
    // Tracking would write to the shared configuration, whose lock has no retry.
    ("branch.autoSetupMerge", "false"),
    ("branch.autoSetupRebase", "never"),
    ("worktree.guessRemote", "false"),
    // Output.
    ("color.ui", "false"),
    ("column.ui", "never"),
];

/// A variable with its value.
pub(super) type Variable = (OsString, OsString);

/// The inherited variables without anything that redirects git, runs a program or asks a question. Relative entries
/// of PATH go too: the current directory of a git process belongs to an agent.
pub(super) fn scrub(inherited: impl IntoIterator<Item = Variable>) -> Vec<Variable> {
    let mut kept = Vec::new();
    let mut encoding = None;
    for (name, value) in inherited {
        let text = name.to_string_lossy().into_owned();
        if text == "LC_ALL" {
            // Removing it must not change the encoding it stood for.
            encoding = Some(value);
        } else if text == "PATH" {
            kept.push((name, absolute_only(&value)));
        } else if (!text.starts_with("GIT_") || KEPT.contains(&text.as_str())) && !DROPPED.contains(&text.as_str()) {
            kept.push((name, value));
        }
    }
    if let Some(encoding) = encoding {
        kept.retain(|(name, _)| name != OsStr::new("LC_CTYPE"));
        kept.push(("LC_CTYPE".into(), encoding));
    }
    kept
}

fn absolute_only(path: &OsStr) -> OsString {
    let entries = std::env::split_paths(path).filter(|entry| entry.is_absolute());
    // An entry with a colon cannot come out of `split_paths`.
    std::env::join_paths(entries).unwrap_or_default()
}

/// The variables for one git process, beside the scrubbed ones: what is forced, and the configuration as
/// `GIT_CONFIG_COUNT` and its pairs. Of entries with one name, the last wins.
pub(super) fn for_process(config: &[Variable], env: &[Variable], writes: bool, own_hooks: bool) -> Vec<Variable> {
    let mut out: Vec<Variable> = FORCED.iter().map(|(name, value)| (name.into(), value.into())).collect();
    if !writes {
        out.push(("GIT_OPTIONAL_LOCKS".into(), "0".into()));
    }
    let fixed = CONFIG
        .iter()
        .filter(|(key, _)| !own_hooks || *key != HOOKS)
        .map(|(key, value)| (OsString::from(key), OsString::from(value)));
    let mut count = 0usize;
    for (key, value) in fixed.chain(config.iter().cloned()) {
        out.push((format!("GIT_CONFIG_KEY_{count}").into(), key));
        out.push((format!("GIT_CONFIG_VALUE_{count}").into(), value));
        count += 1;
    }
    out.push(("GIT_CONFIG_COUNT".into(), count.to_string().into()));
    out.extend(env.iter().cloned());
    out
}

/// Where `program` is, going through the absolute entries of the PATH in `env`.
pub(super) fn find_program(program: &str, env: &[Variable]) -> Option<std::path::PathBuf> {
    let path = env.iter().rev().find(|(name, _)| name == OsStr::new("PATH")).map(|(_, value)| value)?;
    std::env::split_paths(path).map(|dir| dir.join(program)).find(|file| is_executable(file))
}

#[cfg(unix)]
pub(super) fn is_executable(file: &Path) -> bool {
    nix::unistd::access(file, nix::unistd::AccessFlags::X_OK).is_ok() && file.is_file()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scrubbed(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        let pairs = pairs.iter().map(|(n, v)| (OsString::from(n), OsString::from(v)));
        scrub(pairs).into_iter().map(|(n, v)| (n.into_string().unwrap(), v.into_string().unwrap())).collect()
    }

    #[test]
    fn variables_that_redirect_git_are_dropped_c09_c10_invariant_1() {
        for name in [
            "GIT_DIR",
            "GIT_WORK_TREE",
            "GIT_INDEX_FILE",
            "GIT_COMMON_DIR",
            "GIT_CONFIG_COUNT",
            "GIT_CONFIG_GLOBAL",
            "GIT_EXEC_PATH",
            "GIT_AUTHOR_DATE",
            "GIT_TRACE",
            "GIT_SSH",
            "GIT_EXTERNAL_DIFF",
            "GIT_NEW_IN_3",
            "SSH_ASKPASS",
            "EDITOR",
            "VISUAL",
            "PAGER",
            "LANGUAGE",
        ] {
            assert_eq!(scrubbed(&[(name, "x")]), [], "{name}");
        }
        assert_eq!(scrubbed(&[("HOME", "/h"), ("GIT_COMMITTER_NAME", "n")]).len(), 2);
    }

    #[test]
    fn the_encoding_survives_the_language() {
        let env = scrubbed(&[("LC_CTYPE", "C"), ("LC_ALL", "de_DE.UTF-8"), ("LANG", "C")]);
        assert_eq!(env, [("LANG".to_owned(), "C".to_owned()), ("LC_CTYPE".to_owned(), "de_DE.UTF-8".to_owned())]);
    }

    #[test]
    fn relative_path_entries_are_dropped() {
        let env = scrubbed(&[("PATH", ".:/usr/bin::bin:/bin")]);
        assert_eq!(env, [("PATH".to_owned(), "/usr/bin:/bin".to_owned())]);
    }

    #[test]
    fn configuration_of_the_call_comes_last_and_wins() {
        let env = for_process(&[("gc.auto".into(), "7".into())], &[], false, false);
        let count: usize = CONFIG.len() + 1;
        assert!(env.contains(&("GIT_CONFIG_COUNT".into(), count.to_string().into())));
        assert!(env.contains(&(format!("GIT_CONFIG_VALUE_{}", count - 1).into(), "7".into())));
        assert!(env.contains(&("GIT_OPTIONAL_LOCKS".into(), "0".into())));
    }
}
