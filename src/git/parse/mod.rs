//! What git writes, read strictly.
//!
//! Pure functions over bytes: no process, no file. Machine formats only, `-z` wherever git offers it; anything
//! unknown is an error that names the item and shows it.

pub(super) mod commits;
pub(super) mod config;
pub(super) mod entries;
pub(super) mod paths;
pub(super) mod refs;
pub(super) mod status;
pub(super) mod version;
pub(super) mod worktrees;

use super::error::GitError;
use super::sha::Sha;

/// How much of a line is shown in an error.
const SHOWN: usize = 200;

/// An item that is not understood.
fn unknown(what: &str, index: usize, item: &[u8]) -> GitError {
    let text = String::from_utf8_lossy(&item[..item.len().min(SHOWN)]).into_owned();
    GitError::Parse { what: what.to_owned(), line: index + 1, text }
}

/// An object name.
pub(super) fn sha(bytes: &[u8]) -> Option<Sha> {
    std::str::from_utf8(bytes).ok()?.parse().ok()
}

/// The items of NUL-terminated output. The last item must be terminated too.
fn terminated<'a>(what: &str, output: &'a [u8]) -> Result<Vec<&'a [u8]>, GitError> {
    if output.is_empty() {
        return Ok(Vec::new());
    }
    let Some(body) = output.strip_suffix(b"\0") else {
        let tail = output.rsplit(|byte| *byte == 0).next().unwrap_or_default();
        return Err(unknown(what, output.iter().filter(|byte| **byte == 0).count(), tail));
    };
    Ok(body.split(|byte| *byte == 0).collect())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Pieces of what git writes, in any order, with anything between them.
    fn output() -> impl Strategy<Value = Vec<u8>> {
        let a = "0123456789abcdef0123456789abcdef01234567";
        let known = [
            format!("{a} commit 7\n"),
            format!("tree {a}\nparent {a}\nauthor A <a@b> 1 +0000\ncommitter A <a@b> 1 +0000\n\n"),
            format!("# branch.oid {a}\0# branch.head main\0# branch.ab +1 -2\0"),
            format!("1 M. N... 100644 100644 100644 {a} {a} path\0"),
            format!("2 R. N... 100644 100644 100644 {a} {a} R100 new\0old\0"),
            "! ignored/\0? unknown\0u UU N... ".to_owned(),
            format!("worktree /r\0HEAD {a}\0branch refs/heads/x\0locked\0\0"),
            format!("refs/heads/x\0{a}\n"),
            "git version 2.47.3\n".to_owned(),
            "core.bare\nfalse\0".to_owned(),
            "12\t7\n".to_owned(),
        ];
        let piece = prop_oneof![
            proptest::sample::select(known.to_vec()).prop_map(String::into_bytes),
            proptest::collection::vec(any::<u8>(), 0..12),
            proptest::sample::select(vec![b"\0".to_vec(), b"\n".to_vec(), b" ".to_vec(), b"\xff".to_vec()]),
        ];
        (proptest::collection::vec(piece, 0..8), any::<proptest::sample::Index>()).prop_map(|(pieces, cut)| {
            let mut all = pieces.concat();
            all.truncate(all.len() - cut.index(all.len() + 1) / 4);
            all
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn no_output_makes_a_parser_panic(output in output()) {
            let texts = [
                status::parse(&output).map(|status| format!("{status:?}")),
                status::ignored(&output).map(|paths| format!("{paths:?}")),
                worktrees::parse(&output).map(|entries| format!("{entries:?}")),
                refs::list(&output).map(|refs| format!("{refs:?}")),
                refs::many("x", &output).map(|refs| format!("{refs:?}")),
                refs::pair("x", &output).map(|pair| format!("{pair:?}")),
                entries::tree(&output).map(|entries| format!("{entries:?}")),
                refs::tips(&output).map(|tips| format!("{tips:?}")),
                refs::number("x", &output).map(|number| number.to_string()),
                commits::marked(&output).map(|commits| format!("{commits:?}")),
                commits::batch(&output).map(|commits| format!("{commits:?}")),
                config::scoped(&output).map(|entries| format!("{entries:?}")),
                config::list(&output).map(|entries| format!("{entries:?}")),
                paths::list("x", &output).map(|paths| format!("{paths:?}")),
                paths::hidden("x", &output).map(|paths| format!("{paths:?}")),
                version::parse(&output).map(|version| version.to_string()),
            ];
            for refused in texts.into_iter().filter_map(Result::err) {
                prop_assert!(matches!(refused, GitError::Parse { ref text, .. } if text.len() <= 3 * SHOWN), "{refused}");
            }
        }

        #[test]
        fn a_status_accounts_for_every_entry(output in output()) {
            if let Ok(status) = status::parse(&output) {
                let both = status.entries.iter().filter(|e| e.kind == status::EntryKind::StagedAndUnstaged).count() as u64;
                prop_assert_eq!(status.staged + status.unstaged + status.untracked + status.conflicted - both, status.changed());
            }
        }
    }
}
