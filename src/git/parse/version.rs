//! `git version`.

use std::fmt;

use super::super::error::GitError;

/// A version of git. What vendors append (`.windows.1`, `(Apple Git-154)`, `-rc1`) is left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// The first number.
    pub major: u32,
    /// The second number.
    pub minor: u32,
    /// The third number, 0 where there is none.
    pub patch: u32,
}

impl Version {
    /// A version from its numbers.
    #[must_use]
    pub const fn new(major: u32, minor: u32, patch: u32) -> Version {
        Version { major, minor, patch }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

/// Reads `git version 2.47.3`.
pub(in super::super) fn parse(output: &[u8]) -> Result<Version, GitError> {
    let fail = || super::unknown("git version", 0, output);
    let text = std::str::from_utf8(output).map_err(|_| fail())?;
    let word = text.trim_end().strip_prefix("git version ").and_then(|rest| rest.split(' ').next()).ok_or_else(fail)?;
    let mut numbers = word.split('.').map(|part| {
        let digits = part.bytes().take_while(u8::is_ascii_digit).count();
        part[..digits].parse::<u32>()
    });
    let mut next = || numbers.next().and_then(Result::ok);
    let (Some(major), Some(minor)) = (next(), next()) else { return Err(fail()) };
    Ok(Version { major, minor, patch: next().unwrap_or(0) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vendors_are_understood() {
        for (text, version) in [
            ("git version 2.47.3\n", Version::new(2, 47, 3)),
            ("git version 2.39.5 (Apple Git-154)\n", Version::new(2, 39, 5)),
            ("git version 2.51.0-rc1\n", Version::new(2, 51, 0)),
            ("git version 2.45.1.windows.1\n", Version::new(2, 45, 1)),
            ("git version 3.0.GIT\n", Version::new(3, 0, 0)),
        ] {
            assert_eq!(parse(text.as_bytes()).unwrap(), version, "{text}");
        }
        assert!(Version::new(2, 9, 0) < Version::new(2, 38, 0));
        assert!(parse(b"got version 1\n").is_err());
        assert!(parse(b"git version \xff").is_err());
    }
}
