//! The next command after a refusal, in the words of the command line. The messages of the worker speak to callers on
//! the bus.

/// What to type next, when there is something better than to read the message.
pub(super) fn for_refusal(command: &str, code: &str, message: &str) -> Option<String> {
    if code.starts_with("W50")
        && let Some(key) = gate_key(message)
    {
        return Some(format!("`worktree config {key}` shows it, `worktree config {key} true` switches it on"));
    }
    let hint = match (code, command) {
        ("W110", "create") => "run it inside the repository, or name one with --repo",
        ("W200", _) => "`worktree list --all` shows what there is",
        ("W201", _) => "`worktree remove` clears the record; the branch is still there",
        ("W202", _) => "`worktree doctor` tells what lies there now",
        ("W203", _) => "check out the recorded branch in that directory, `worktree status` names it",
        ("W210", "claim") => "`worktree claim --force` takes it over",
        ("W211", "release") => "`worktree release --force` releases it all the same",
        ("W220" | "W221" | "W222", "remove") => {
            "`worktree status` shows what is there; `worktree remove --force` shows what would be lost, and asks"
        }
        ("W220", "land") => "commit or discard what is there, then land again",
        ("W401", _) => "`worktree queue` shows how far it is",
        ("W402" | "W403", "land") => "finish or abort it in that directory, or discard it with --force-restart",
        ("W410", _) => "resolve it in that directory, `git rebase --continue`, then land again",
        ("W411", _) => "fix it in that directory, commit, then land again",
        ("W414", _) => "`worktree doctor` looks at what gates need",
        ("W600", _) => "`worktree audit verify` tells what is wrong with the log",
        ("W300", _) | ("function_not_found", _) => "`worktree doctor` tells what is missing",
        _ => return None,
    };
    Some(hint.to_owned())
}

/// The configuration key of a switch that a denial names: `gates.` and a word that starts with `allow_`.
fn gate_key(message: &str) -> Option<String> {
    let start = message.find("gates.allow_")?;
    let key: String =
        message[start..].chars().take_while(|c| c.is_ascii_lowercase() || matches!(c, '.' | '_')).collect();
    Some(key.trim_end_matches('.').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_denial_leads_to_the_key_that_it_names() {
        let hint = for_refusal("remove", "W501", "remove with force is off; set gates.allow_force: true").unwrap();
        assert!(hint.contains("worktree config gates.allow_force true"), "{hint}");
        assert_eq!(for_refusal("remove", "W502", "`x` is not among gates.land_targets"), None);
        assert!(for_refusal("remove", "W221", "2 commits").unwrap().contains("--force"));
        assert_eq!(for_refusal("create", "W120", "the branch exists"), None);
    }
}
