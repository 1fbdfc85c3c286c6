//! git on this machine.

use std::time::Duration;

use super::finding::Findings;
use crate::cli::trouble::Outcome;
use crate::git::{Git, Version};

const GIT_LIMIT: Duration = Duration::from_secs(10);

/// The first release of each series with the fix for CVE-2025-48384 (a submodule path that ends in a carriage return
/// runs a hook) and everything known before it.
const FIXED: [Version; 8] = [
    Version::new(2, 43, 7),
    Version::new(2, 44, 4),
    Version::new(2, 45, 4),
    Version::new(2, 46, 4),
    Version::new(2, 47, 3),
    Version::new(2, 48, 2),
    Version::new(2, 49, 1),
    Version::new(2, 50, 1),
];

/// Looks at git and its version.
///
/// # Errors
/// When standard output is closed.
pub(super) async fn look(findings: &mut Findings) -> Outcome<()> {
    let upgrade = "install a git of 2.50.1 or newer from your system's packages";
    match Git::new(GIT_LIMIT).require_version().await {
        Err(error) => findings.problem("git", &error.to_string(), upgrade)?,
        Ok(found) => match fix_for(found) {
            None => findings.ok("git", &format!("{found}, with all known security fixes"))?,
            Some(fixed) => {
                let message = format!("{found} lacks security fixes (CVE-2025-48384 among them) that {fixed} has");
                findings.problem("git", &message, upgrade)?;
            }
        },
    }
    Ok(())
}

/// The release to move to, when this one lacks fixes.
fn fix_for(found: Version) -> Option<Version> {
    let series = FIXED.iter().find(|fixed| (fixed.major, fixed.minor) == (found.major, found.minor));
    match series {
        Some(fixed) => (found < *fixed).then_some(*fixed),
        // A series older than all of these gets no fixes any more.
        None => (found < FIXED[0]).then_some(FIXED[0]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_series_has_its_own_floor() {
        for (found, fixed) in [
            (Version::new(2, 47, 3), None),
            (Version::new(2, 47, 2), Some(Version::new(2, 47, 3))),
            (Version::new(2, 38, 1), Some(Version::new(2, 43, 7))),
            (Version::new(2, 50, 0), Some(Version::new(2, 50, 1))),
            (Version::new(2, 51, 0), None),
            (Version::new(3, 0, 0), None),
        ] {
            assert_eq!(fix_for(found), fixed, "{found}");
        }
    }
}
