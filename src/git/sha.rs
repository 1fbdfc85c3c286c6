//! Names of objects.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The full name of an object: 40 (SHA-1) or 64 (SHA-256) lower-case hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Sha(String);

/// A text that is not the full name of an object.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a full object name: 40 or 64 lower-case hexadecimal digits")]
pub struct NotASha(String);

impl Sha {
    /// The whole name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The first twelve digits, for messages. Never passed to git.
    #[must_use]
    pub fn short(&self) -> &str {
        self.0.get(..12).unwrap_or(&self.0)
    }

    /// The name that stands for "no object" in the object format of this one.
    #[must_use]
    pub(super) fn null(&self) -> String {
        "0".repeat(self.0.len())
    }
}

impl FromStr for Sha {
    type Err = NotASha;

    fn from_str(text: &str) -> Result<Self, NotASha> {
        Sha::try_from(text.to_owned())
    }
}

impl TryFrom<String> for Sha {
    type Error = NotASha;

    fn try_from(text: String) -> Result<Self, NotASha> {
        let digits = text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        // All zeroes is git's word for "none", so it names no object.
        let none = text.bytes().all(|b| b == b'0');
        if digits && !none && matches!(text.len(), 40 | 64) { Ok(Sha(text)) } else { Err(NotASha(text)) }
    }
}

impl From<Sha> for String {
    fn from(sha: Sha) -> String {
        sha.0
    }
}

impl AsRef<std::ffi::OsStr> for Sha {
    fn as_ref(&self) -> &std::ffi::OsStr {
        self.0.as_ref()
    }
}

impl fmt::Display for Sha {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_full_names_are_accepted() {
        let one = "0123456789abcdef0123456789abcdef01234567";
        assert_eq!(one.parse::<Sha>().unwrap().short(), "0123456789ab");
        assert!("ab".repeat(32).parse::<Sha>().is_ok());
        for bad in ["", "HEAD", "0123456", &"0".repeat(40), &"A".repeat(40), &"a".repeat(41), &format!("{one}\n")] {
            assert!(bad.parse::<Sha>().is_err(), "{bad:?}");
        }
    }
}
