//! The key and the MACs.

use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

/// Name of the key file in the directory of the log.
pub(super) const KEY_FILE: &str = "key";

/// The key of one log.
#[derive(Clone)]
pub(super) struct Key([u8; 32]);

impl Key {
    #[cfg(test)]
    pub(super) fn from_bytes(bytes: [u8; 32]) -> Self {
        Key(bytes)
    }

    /// The key in `dir`; `None` when there is none.
    pub(super) fn read(dir: &Path) -> io::Result<Option<Key>> {
        let bytes = match fs::read(dir.join(KEY_FILE)) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let key =
            bytes.try_into().map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "the key is not 32 bytes"))?;
        Ok(Some(Key(key)))
    }

    /// Makes a key from the random numbers of the system and stores it, readable for its owner alone.
    pub(super) fn make(dir: &Path) -> io::Result<Key> {
        let mut bytes = [0; 32];
        File::open("/dev/urandom")?.read_exact(&mut bytes)?;
        let draft = dir.join(format!(".{KEY_FILE}.draft"));
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
        file.write_all(&bytes)?;
        file.sync_all()?;
        fs::rename(&draft, dir.join(KEY_FILE))?;
        File::open(dir)?.sync_all()?;
        Ok(Key(bytes))
    }

    fn mac(&self, what: &[u8], bytes: &[u8]) -> String {
        let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(&self.0) else {
            // HMAC takes keys of any length.
            return String::new();
        };
        mac.update(what);
        mac.update(bytes);
        mac.finalize().into_bytes().iter().fold(String::with_capacity(64), |mut out, byte| {
            // Writing to a String cannot fail.
            write!(out, "{byte:02x}").unwrap_or_default();
            out
        })
    }

    pub(super) fn mac_of_entry(&self, bytes: &[u8]) -> String {
        self.mac(b"entry\n", bytes)
    }

    pub(super) fn mac_of_anchor(&self, bytes: &[u8]) -> String {
        self.mac(b"anchor\n", bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_key_is_its_owners_alone_and_stays_the_same() {
        let dir = tempfile::tempdir().unwrap();
        assert!(Key::read(dir.path()).unwrap().is_none());
        let key = Key::make(dir.path()).unwrap();
        let mode = dir.path().join(KEY_FILE).metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(Key::read(dir.path()).unwrap().unwrap().0, key.0);
        assert_ne!(key.mac_of_entry(b"x"), key.mac_of_anchor(b"x"));
        assert_eq!(key.mac_of_entry(b"x").len(), 64);
    }
}
