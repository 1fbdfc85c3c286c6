//! Identifiers and what is derived from them.
//!
//! Invariants
//! 1. A worktree id is `wt_` and a job id is `job_`, each followed by twelve lower-case hexadecimal digits.
//! 2. Everything derived from an id (port, code name) is a pure function of it, so that it survives a lost record.

use std::fmt::Write as _;
use std::path::Path;

use sha2::{Digest as _, Sha256};

/// First port handed out as `dev_port`.
const PORT_BASE: u64 = 10_000;
/// How many ports there are from [`PORT_BASE`] on.
const PORT_RANGE: u64 = 10_000;

const ADJECTIVES: [&str; 32] = [
    "amber", "bold", "brisk", "calm", "clear", "cosmic", "crisp", "deft", "eager", "fleet", "gentle", "golden",
    "hardy", "humble", "keen", "lively", "lucid", "mellow", "nimble", "noble", "patient", "plucky", "quiet", "rapid",
    "rustic", "silent", "steady", "sunny", "swift", "tidy", "vivid", "witty",
];
const NOUNS: [&str; 32] = [
    "badger", "beacon", "birch", "brook", "canyon", "cedar", "comet", "coral", "crane", "delta", "ember", "falcon",
    "fjord", "glade", "harbor", "heron", "island", "juniper", "lantern", "maple", "meadow", "otter", "pebble", "pine",
    "quarry", "raven", "reef", "ridge", "sparrow", "summit", "willow", "zephyr",
];

fn digest(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut out, byte| {
        // Writing to a String cannot fail.
        write!(out, "{byte:02x}").unwrap_or_default();
        out
    })
}

/// Whether `text` is `prefix` and twelve lower-case hexadecimal digits.
fn has_form(text: &str, prefix: &str) -> bool {
    text.strip_prefix(prefix)
        .is_some_and(|rest| rest.len() == 12 && rest.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')))
}

/// Whether `text` has the form of a worktree id.
#[must_use]
pub fn is_worktree_id(text: &str) -> bool {
    has_form(text, "wt_")
}

/// Whether `text` has the form of a land job id.
#[must_use]
pub fn is_job_id(text: &str) -> bool {
    has_form(text, "job_")
}

/// Where new identifiers come from. A port, so that tests can foretell them.
pub trait IdSource: Send + Sync {
    /// Twelve lower-case hexadecimal digits that were not handed out before.
    fn next_hex12(&self) -> String;
}

/// Identifiers from the random number generator of the system.
#[derive(Debug, Default, Clone, Copy)]
pub struct RandomIds;

impl IdSource for RandomIds {
    #[expect(clippy::disallowed_methods, reason = "the one place that makes worktree and job ids")]
    fn next_hex12(&self) -> String {
        let mut text = uuid::Uuid::new_v4().simple().to_string();
        text.truncate(12);
        text
    }
}

/// The port an agent may use for a development server in this worktree: 10000 to 19999, from the first eight
/// bytes (big endian) of the SHA-256 of the id. Two ids may share a port; nothing is reserved.
#[must_use]
pub fn dev_port(worktree_id: &str) -> u16 {
    let hash = digest(worktree_id.as_bytes());
    let mut first = [0u8; 8];
    first.copy_from_slice(&hash[..8]);
    let port = PORT_BASE + u64::from_be_bytes(first) % PORT_RANGE;
    u16::try_from(port).unwrap_or(u16::MAX)
}

/// The code name of an id: `<adjective>-<noun>-<last four digits of the id>`, always the same for the same id.
#[must_use]
pub fn codename(worktree_id: &str) -> String {
    let hash = digest(worktree_id.as_bytes());
    let adjective = ADJECTIVES[usize::from(hash[8]) % ADJECTIVES.len()];
    let noun = NOUNS[usize::from(hash[9]) % NOUNS.len()];
    let tail = worktree_id.get(worktree_id.len().saturating_sub(4)..).unwrap_or(worktree_id);
    format!("{adjective}-{noun}-{tail}")
}

/// The directory under the worktree root that holds the worktrees of one repository: a readable name and a short
/// digest of the whole key, so that two repositories of one name stay apart.
#[must_use]
pub fn repo_slug(repo_key: &str) -> String {
    let path = Path::new(repo_key);
    let named = if path.file_name().is_some_and(|name| name == ".git") { path.parent() } else { Some(path) };
    let name = named.and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let name = name.strip_suffix(".git").unwrap_or(&name);
    let mut clean: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' { c } else { '-' }).take(40).collect();
    clean = clean.trim_matches('-').to_owned();
    if clean.is_empty() {
        clean.push_str("repo");
    }
    format!("{clean}-{}", &hex(&digest(repo_key.as_bytes()))[..8])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_are_recognised_invariant_1() {
        let id = format!("wt_{}", RandomIds.next_hex12());
        assert!(is_worktree_id(&id) && !is_job_id(&id));
        assert!(is_job_id("job_0123456789ab"));
        for bad in ["wt_", "wt_0123456789a", "wt_0123456789abc", "wt_0123456789AB", "wt_../../../etc", "0123456789ab"] {
            assert!(!is_worktree_id(bad), "{bad}");
        }
    }

    #[test]
    fn derived_values_are_pure_functions_of_the_id_invariant_2() {
        // sha256("wt_000000000000") starts with the eight bytes asserted through the port below.
        let hash = Sha256::digest(b"wt_000000000000");
        let first = u64::from_be_bytes(hash[..8].try_into().expect("eight bytes"));
        assert_eq!(u64::from(dev_port("wt_000000000000")), 10_000 + first % 10_000);
        assert_eq!(codename("wt_0123456789ab"), codename("wt_0123456789ab"));
        assert!(codename("wt_0123456789ab").ends_with("-89ab"));
    }

    #[test]
    fn slugs_keep_repositories_of_one_name_apart() {
        let one = repo_slug("/a/shop/.git");
        let two = repo_slug("/b/shop/.git");
        assert!(one.starts_with("shop-") && two.starts_with("shop-"));
        assert_ne!(one, two);
        assert!(repo_slug("/srv/-odd name\n.git").starts_with("odd-name-"));
        assert!(repo_slug("/").starts_with("repo-"));
    }
}
