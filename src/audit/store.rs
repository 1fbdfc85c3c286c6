//! The files of the log.
//!
//! Killed here → found by the next append → done
//! - while a line is written: a line without an end → taken away; nobody was told that it is there.
//! - after the lines, before the anchor: some entries more than the anchor says, all genuine → it is brought up to them.
//! - after a rotation, before the first line of the new file: only rotated files → the chain goes on from the newest.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::entry::{self, Entry, Event, Line, NOTHING_BEFORE};
use super::seal::Key;
use crate::model::actor::Actor;
use crate::model::{Code, Error, Result};

/// Name of the file that is written to.
pub(super) const CURRENT: &str = "audit.jsonl";
/// Name of the lock file.
const LOCK: &str = "lock";
/// How long to wait for another process that appends.
const WAIT: Duration = Duration::from_secs(20);
/// Pause between two attempts.
const PAUSE: Duration = Duration::from_millis(2);
/// How many entries are written before the anchor is.
pub const MOST_AHEAD: usize = 64;

/// What one entry is to say.
#[derive(Debug, Clone, PartialEq)]
pub struct Told {
    /// When it was told, in milliseconds since the epoch.
    pub time: i64,
    /// On whose behalf.
    pub actor: Actor,
    /// What is about to be done.
    pub event: Event,
}

/// The log in one directory. Cheap; everything is on the disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Log {
    dir: PathBuf,
    max_bytes: u64,
}

/// The newest entry, as it is kept outside the directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Anchor {
    pub(super) seq: u64,
    pub(super) mac: String,
    /// Authenticates the two above.
    tag: String,
}

impl Anchor {
    fn new(seq: u64, mac: &str, key: &Key) -> Self {
        Anchor { seq, mac: mac.to_owned(), tag: key.mac_of_anchor(format!("{seq} {mac}").as_bytes()) }
    }

    pub(super) fn is_genuine(&self, key: &Key) -> bool {
        *self == Anchor::new(self.seq, &self.mac, key)
    }
}

fn refuse(why: impl std::fmt::Display) -> Error {
    Error::new(Code::AuditFailed, format!("the audit log cannot be written, so nothing was destroyed: {why}"))
}

/// What may be gone without anything being wrong.
fn found<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

impl Log {
    /// The log in `dir`, a new file begun when one has `max_bytes`. Nothing is touched yet.
    #[must_use]
    pub fn new(dir: impl Into<PathBuf>, max_bytes: u64) -> Self {
        Log { dir: dir.into(), max_bytes }
    }

    /// Its directory.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Where the newest sequence and MAC are kept a second time.
    #[must_use]
    pub fn anchor_path(&self) -> PathBuf {
        let mut name = self.dir.file_name().unwrap_or_default().to_owned();
        name.push(".head");
        self.dir.with_file_name(name)
    }

    /// Appends an entry and returns its sequence number; it is on the disk then. Blocking.
    ///
    /// # Errors
    /// `W600` when it cannot be written, also when the log is not what was written before.
    pub fn append(&self, now_ms: i64, actor: &Actor, event: &Event) -> Result<u64> {
        self.append_all(&[Told { time: now_ms, actor: actor.clone(), event: event.clone() }])
    }

    /// [`Log::append`] of several entries, which are on the disk together; returns the sequence number of the last one, 0
    /// when there is none in the log. Blocking.
    ///
    /// # Errors
    /// `W600` as there; some of the entries may be in the log then.
    pub fn append_all(&self, all: &[Told]) -> Result<u64> {
        self.make_dir().map_err(|error| refuse(format!("{}: {error}", self.dir.display())))?;
        let _lock = self.lock().map_err(refuse)?;
        let (key, last) = self.go_on().map_err(|why| {
            refuse(format!(
                "{why}; look at {} with `worktree audit verify`, and move it aside together with {} to begin a new one",
                self.dir.display(),
                self.anchor_path().display()
            ))
        })?;
        let mut last = last.map_or_else(|| (0, NOTHING_BEFORE.to_owned()), |last| (last.entry.seq, last.mac));
        let mut rest = all.iter();
        while !rest.as_slice().is_empty() {
            let before = last.0;
            // Where there is no anchor yet, one entry shows that it was not taken away; more would not.
            let most = if before == 0 { 1 } else { MOST_AHEAD };
            let mut lines = String::new();
            for told in rest.by_ref().take(most) {
                let line;
                (line, last) = next_line(told, &last, &key).map_err(refuse)?;
                lines.push_str(&line);
                if self.is_long(&lines) {
                    break;
                }
            }
            self.write(&lines, before).map_err(refuse)?;
            self.put_anchor(&Anchor::new(last.0, &last.1, &key)).map_err(refuse)?;
        }
        Ok(last.0)
    }

    /// Whether so much is better written by itself, because a file is to hold several such.
    fn is_long(&self, lines: &str) -> bool {
        u64::try_from(lines.len()).unwrap_or(u64::MAX) > self.max_bytes / 8
    }

    fn make_dir(&self) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.dir)
    }

    /// Takes the lock of the log.
    pub(super) fn lock(&self) -> Result<File, String> {
        let path = self.dir.join(LOCK);
        let say = |why: String| format!("the lock {}: {why}", path.display());
        let file = OpenOptions::new().create(true).truncate(false).write(true).read(true).mode(0o600).open(&path);
        let file = file.map_err(|error| say(error.to_string()))?;
        let deadline = Instant::now() + WAIT;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(file),
                Err(TryLockError::Error(error)) => return Err(say(error.to_string())),
                Err(TryLockError::WouldBlock) if Instant::now() >= deadline => {
                    return Err(say(format!("another process has held it for {} s", WAIT.as_secs())));
                }
                Err(TryLockError::WouldBlock) => std::thread::sleep(PAUSE),
            }
        }
    }

    /// The key and the newest entry; refuses when key, anchor and files do not fit together (invariant 2).
    fn go_on(&self) -> Result<(Key, Option<Line>), String> {
        let text = |error: io::Error| error.to_string();
        let anchor = self.anchor()?;
        let files = self.files().map_err(text)?;
        let Some(key) = Key::read(&self.dir).map_err(text)? else {
            if anchor.is_some() || !files.is_empty() {
                return Err("its key is gone".to_owned());
            }
            return Ok((Key::make(&self.dir).map_err(text)?, None));
        };
        let (mut last, mut cut_off) = (None, None);
        for file in files.iter().rev() {
            let (line, complete) = last_line(file).map_err(text)?;
            cut_off = cut_off.or(complete.map(|complete| (file, complete)));
            if let Some(line) = line {
                let line = entry::read(&line, Some(&key)).filter(|line| line.genuine);
                let line = line.ok_or_else(|| format!("the last entry of {} was changed", file.display()))?;
                last = Some((line, file));
                break;
            }
        }
        self.require_continuity(&key, anchor.as_ref(), last.as_ref().map(|(line, file)| (line, file.as_path())))?;
        if let Some((file, complete)) = cut_off {
            cut(file, complete).map_err(text)?;
        }
        Ok((key, last.map(|(line, _)| line)))
    }

    /// Refuses when the newest entry, in the file that is given with it, is neither the anchored one nor among those that
    /// one write put after it.
    fn require_continuity(
        &self,
        key: &Key,
        anchor: Option<&Anchor>,
        last: Option<(&Line, &Path)>,
    ) -> Result<(), String> {
        match (anchor, last) {
            (None, None) => Ok(()),
            (Some(anchor), _) if !anchor.is_genuine(key) => {
                Err(format!("{} was changed", self.anchor_path().display()))
            }
            (Some(anchor), Some((last, _))) if anchor.seq == last.entry.seq && anchor.mac == last.mac => Ok(()),
            // The anchor is written after the entries: a crash, or a full disk, may have come between.
            (Some(anchor), Some((last, file))) if leads_on(file, key, anchor, last) => self
                .put_anchor(&Anchor::new(last.entry.seq, &last.mac, key))
                .map_err(|error| format!("{}: {error}", self.anchor_path().display())),
            (None, Some((last, _))) if last.entry.seq == 1 => self
                .put_anchor(&Anchor::new(1, &last.mac, key))
                .map_err(|error| format!("{}: {error}", self.anchor_path().display())),
            (None, Some(_)) => Err(format!("{} is gone", self.anchor_path().display())),
            (Some(anchor), last) => Err(format!(
                "its end is missing: entry {} was written, {} is the last one there",
                anchor.seq,
                last.map_or(0, |(last, _)| last.entry.seq)
            )),
        }
    }

    /// Writes a line to the current file; begins a new one first when it has reached its size.
    fn write(&self, line: &str, last_seq: u64) -> io::Result<()> {
        let current = self.dir.join(CURRENT);
        let size = found(current.symlink_metadata())?.map_or(0, |meta| meta.len());
        let more = u64::try_from(line.len()).unwrap_or(u64::MAX);
        let rotate = size > 0 && size.saturating_add(more) > self.max_bytes;
        if rotate {
            fs::rename(&current, self.dir.join(format!("audit.{last_seq:020}.jsonl")))?;
        }
        let mut file = OpenOptions::new().append(true).create(true).mode(0o600).open(&current)?;
        file.write_all(line.as_bytes())?;
        file.sync_data()?;
        if rotate || size == 0 {
            File::open(&self.dir)?.sync_all()?;
        }
        Ok(())
    }

    /// The files of the log, oldest first.
    pub(super) fn files(&self) -> io::Result<Vec<PathBuf>> {
        let Some(entries) = found(fs::read_dir(&self.dir))? else { return Ok(Vec::new()) };
        let mut rotated = Vec::new();
        for entry in entries {
            let name = entry?.file_name();
            let number = name.to_str().and_then(|name| name.strip_prefix("audit.")?.strip_suffix(".jsonl"));
            if number.is_some_and(|number| number.len() == 20 && number.bytes().all(|byte| byte.is_ascii_digit())) {
                rotated.push(self.dir.join(name));
            }
        }
        rotated.sort();
        let current = self.dir.join(CURRENT);
        if found(current.symlink_metadata())?.is_some() {
            rotated.push(current);
        }
        Ok(rotated)
    }

    /// What is kept outside the directory.
    pub(super) fn anchor(&self) -> Result<Option<Anchor>, String> {
        let path = self.anchor_path();
        let bytes = found(fs::read(&path)).map_err(|error| format!("{}: {error}", path.display()))?;
        let Some(bytes) = bytes else { return Ok(None) };
        serde_json::from_slice(&bytes).map(Some).map_err(|error| format!("{} cannot be read: {error}", path.display()))
    }

    fn put_anchor(&self, anchor: &Anchor) -> io::Result<()> {
        let path = self.anchor_path();
        let mut draft = path.clone().into_os_string();
        draft.push(".draft");
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
        file.write_all(&serde_json::to_vec(anchor)?)?;
        file.sync_data()?;
        fs::rename(&draft, &path)
    }
}

/// The line of what is told after the entry with this sequence number and MAC, and its own.
fn next_line(told: &Told, last: &(u64, String), key: &Key) -> serde_json::Result<(String, (u64, String))> {
    let Told { time, actor, event } = told;
    let entry = Entry {
        seq: last.0 + 1,
        time: *time,
        actor: actor.clone(),
        action: event.action.as_str().to_owned(),
        worktree_id: event.worktree_id.clone(),
        repo_key: event.repo_key.clone(),
        dry_run: event.dry_run,
        details: event.details.clone(),
        prev: last.1.clone(),
    };
    let (line, mac) = entry::write(&entry, key)?;
    Ok((line, (entry.seq, mac)))
}

/// Whether the complete lines of `file` go on from the anchor to `last`, no further than one write does. What is written
/// at a time lies in one file.
fn leads_on(file: &Path, key: &Key, anchor: &Anchor, last: &Line) -> bool {
    let ahead = last.entry.seq.saturating_sub(anchor.seq);
    let Ok(bytes) = fs::read(file) else { return false };
    let read = |line| entry::read(line, Some(key)).filter(|line| line.genuine);
    let lines = bytes.split(|byte| *byte == b'\n').filter_map(read);
    let mut at = (anchor.seq, anchor.mac.clone());
    for line in lines.filter(|line| line.entry.seq > anchor.seq) {
        if line.entry.seq != at.0 + 1 || line.entry.prev != at.1 {
            return false;
        }
        at = (line.entry.seq, line.mac);
    }
    ahead > 0 && ahead <= MOST_AHEAD as u64 && at == (last.entry.seq, last.mac.clone())
}

/// The last complete line of a file, and, when something without an end follows it, how many bytes are complete.
fn last_line(path: &Path) -> io::Result<(Option<Vec<u8>>, Option<u64>)> {
    let mut file = File::open(path)?;
    let size = file.metadata()?.len();
    let mut window: u64 = 16 * 1024;
    loop {
        let start = size.saturating_sub(window);
        file.seek(SeekFrom::Start(start))?;
        let mut bytes = Vec::new();
        Read::by_ref(&mut file).take(size - start).read_to_end(&mut bytes)?;
        let end = bytes.iter().rposition(|byte| *byte == b'\n');
        let begin = end.and_then(|end| bytes[..end].iter().rposition(|byte| *byte == b'\n'));
        if start > 0 && begin.is_none() {
            window = window.saturating_mul(4);
            continue;
        }
        let line = end.map(|end| bytes[begin.map_or(0, |begin| begin + 1)..end].to_vec());
        let complete = start + end.map_or(0, |end| u64::try_from(end + 1).unwrap_or(u64::MAX));
        return Ok((line, (complete < size).then_some(complete)));
    }
}

/// Takes away what follows the complete lines.
fn cut(path: &Path, complete: u64) -> io::Result<()> {
    let file = OpenOptions::new().write(true).open(path)?;
    file.set_len(complete)?;
    file.sync_data()
}
