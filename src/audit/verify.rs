//! Is the log what was written?

use std::path::{Path, PathBuf};

use serde::Serialize;

use super::Log;
use super::entry::{self, NOTHING_BEFORE};
use super::seal::Key;
use super::store::MOST_AHEAD;
use crate::model::{Code, Error, Result};

/// How many faults are listed; a log that was rewritten has as many as it has lines.
const LISTED: usize = 100;

/// Something that is not as it was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Fault {
    /// The key is gone, so nothing can be told.
    KeyMissing,
    /// What is kept outside the directory is gone.
    AnchorMissing,
    /// What is kept outside the directory was changed.
    AnchorChanged,
    /// An entry was changed, or never written by this key.
    Edited {
        /// The file.
        file: PathBuf,
        /// The line, counted from 1.
        line: u64,
    },
    /// Entries are missing before this line.
    Deleted {
        /// The file.
        file: PathBuf,
        /// The line, counted from 1.
        line: u64,
        /// The first that is missing.
        from: u64,
        /// The last that is missing.
        to: u64,
    },
    /// An entry stands where it was not written, or for a second time.
    Reordered {
        /// The file.
        file: PathBuf,
        /// The line, counted from 1.
        line: u64,
        /// Its sequence number.
        seq: u64,
    },
    /// An entry does not continue the one before it, although the numbers fit.
    Unchained {
        /// The file.
        file: PathBuf,
        /// The line, counted from 1.
        line: u64,
        /// Its sequence number.
        seq: u64,
    },
    /// The end is missing.
    Truncated {
        /// The last entry there, 0 when there is none.
        last: u64,
        /// The last entry that was written.
        written: u64,
    },
}

/// What [`Log::verify`] found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Verification {
    /// How many entries were looked at.
    pub entries: u64,
    /// How many files.
    pub files: u64,
    /// The sequence number of the last entry.
    pub last: u64,
    /// What is wrong, in order, at most a hundred. Empty: every entry is as it was written, and none is missing.
    pub faults: Vec<Fault>,
}

impl Verification {
    /// Whether nothing is wrong.
    #[must_use]
    pub fn is_intact(&self) -> bool {
        self.faults.is_empty()
    }
}

/// The walk over the files.
struct Walk<'a> {
    key: &'a Key,
    found: Verification,
    expected: u64,
    prev: String,
    /// The sequence number that is kept outside the directory, and the MAC of that entry.
    anchored: (u64, Option<String>),
}

impl Log {
    /// Looks at every entry. A log that was never written to is intact. Blocking.
    ///
    /// # Errors
    /// `W600` when files cannot be read.
    pub fn verify(&self) -> Result<Verification> {
        let refuse = |why: String| Error::new(Code::AuditFailed, format!("the audit log cannot be read: {why}"));
        // Whoever may only read the log looks at it without the lock.
        let _lock = self.lock().ok();
        let files = self.files().map_err(|error| refuse(error.to_string()))?;
        let anchor = self.anchor();
        let mut found = Verification { entries: 0, files: files.len() as u64, last: 0, faults: Vec::new() };
        if files.is_empty() && matches!(anchor, Ok(None)) {
            return Ok(found);
        }
        let Some(key) = Key::read(self.dir()).map_err(|error| refuse(error.to_string()))? else {
            found.faults.push(Fault::KeyMissing);
            return Ok(found);
        };
        let anchored = (anchor.as_ref().ok().and_then(Option::as_ref).map_or(0, |anchor| anchor.seq), None);
        let mut walk = Walk { key: &key, found, expected: 1, prev: NOTHING_BEFORE.to_owned(), anchored };
        for file in &files {
            let bytes = std::fs::read(file).map_err(|error| refuse(format!("{}: {error}", file.display())))?;
            walk.file(file, &bytes);
        }
        let last = walk.found.last;
        match anchor {
            Err(_) => walk.fault(Fault::AnchorChanged),
            Ok(Some(anchor)) if !anchor.is_genuine(&key) => walk.fault(Fault::AnchorChanged),
            // The first entry's anchor may not have been written yet.
            Ok(None) if last > 1 => walk.fault(Fault::AnchorMissing),
            Ok(Some(anchor)) if anchor.seq > last => walk.fault(Fault::Truncated { last, written: anchor.seq }),
            // What was written at a time may have come after the anchor, when its writer was killed in between.
            Ok(Some(anchor)) if anchor.seq + (MOST_AHEAD as u64) < last => walk.fault(Fault::AnchorChanged),
            Ok(Some(anchor)) if walk.anchored.1.as_ref().is_some_and(|mac| *mac != anchor.mac) => {
                walk.fault(Fault::AnchorChanged);
            }
            Ok(_) => {}
        }
        Ok(walk.found)
    }
}

impl Walk<'_> {
    fn fault(&mut self, fault: Fault) {
        if self.found.faults.len() < LISTED {
            self.found.faults.push(fault);
        }
    }

    fn file(&mut self, file: &Path, bytes: &[u8]) {
        // What has no line end was cut off while it was written, and never acknowledged.
        let complete = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        for (number, line) in (1..).zip(bytes[..complete].split_inclusive(|byte| *byte == b'\n')) {
            self.line(file, number, line.strip_suffix(b"\n").unwrap_or(line));
        }
    }

    fn passed(&mut self, seq: u64, mac: String) {
        if seq == self.anchored.0 {
            self.anchored.1 = Some(mac.clone());
        }
        self.prev = mac;
    }

    fn line(&mut self, file: &Path, line: u64, bytes: &[u8]) {
        self.found.entries += 1;
        let file = file.to_owned();
        let Some(read) = entry::read(bytes, Some(self.key)).filter(|read| read.genuine) else {
            self.fault(Fault::Edited { file, line });
            // What it was cannot be told: the chain is picked up again behind it.
            if let Some(read) = entry::read(bytes, None) {
                self.passed(self.expected, read.mac);
            }
            self.found.last = self.expected;
            self.expected += 1;
            return;
        };
        let seq = read.entry.seq;
        if seq > self.expected {
            self.fault(Fault::Deleted { file, line, from: self.expected, to: seq - 1 });
        } else if seq < self.expected {
            self.fault(Fault::Reordered { file, line, seq });
            return;
        } else if read.entry.prev != self.prev {
            self.fault(Fault::Unchained { file, line, seq });
        }
        self.passed(seq, read.mac);
        self.expected = seq + 1;
        self.found.last = seq;
    }
}
