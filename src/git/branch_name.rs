//! Which names a branch may have.
//!
//! The rules are those of `git check-ref-format --branch` (git-check-ref-format(1)), without its expansion of
//! `@{-1}`. A test compares them with git.

use super::error::GitError;

/// Whether a branch may be called `name`.
pub(super) fn is_valid(name: &str) -> bool {
    // `HEAD` and `@` would be read as the current commit wherever a branch is named in short.
    !name.starts_with('-') && name != "HEAD" && name != "@" && is_valid_ref(&format!("refs/heads/{name}"))
}

/// Refuses what [`is_valid`] refuses.
pub(super) fn require(name: &str) -> Result<(), GitError> {
    if is_valid(name) {
        return Ok(());
    }
    Err(GitError::Malformed { name: name.to_owned(), why: "git does not accept it as the name of a branch" })
}

/// Refuses what cannot be a full ref name below `refs/`.
pub(super) fn require_full(name: &str) -> Result<(), GitError> {
    if name.starts_with("refs/") && is_valid_ref(name) {
        return Ok(());
    }
    Err(GitError::Malformed { name: name.to_owned(), why: "it is not a full ref name" })
}

fn is_valid_ref(name: &str) -> bool {
    let forbidden = |c: char| c.is_ascii_control() || matches!(c, ' ' | '~' | '^' | ':' | '?' | '*' | '[' | '\\');
    !name.ends_with('.')
        && !name.contains("..")
        && !name.contains("@{")
        && !name.contains(forbidden)
        && name.split('/').all(|part| !part.is_empty() && !part.starts_with('.') && !part.ends_with(".lock"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_git_refuses_are_refused() {
        for good in ["main", "feat/x", "é", "a@b", "@x", "stash", "HEAD/x", "origin/x", &"a".repeat(40)] {
            assert!(is_valid(good), "{good}");
        }
        for bad in [
            "", "HEAD", "@", "-x", "x.lock", "a.lock/b", ".a", "a/.b", "a..b", "a@{b", "@{-1}", "a b", "a~", "a^",
            "a:b", "a?", "a*", "a[", "a\\b", "a/", "/a", "a//b", "a.", "a\n", "a\x7f",
        ] {
            assert!(!is_valid(bad), "{bad:?}");
        }
    }
}
