//! What survives: one redb file, written by one thread.
//!
//! Changes are submitted in order and get a number; the thread commits everything that has gathered in one
//! transaction, so that many writers share one sync of the disk. Whoever promises something waits until its number
//! is committed.
//!
//! Invariants
//! 1. `committed(n)` returns success only after every change up to `n` is synced to the disk.
//! 2. Changes take effect in the order of their numbers; a crash keeps a prefix of them.
//! 3. After a failed commit nothing is acknowledged any more: memory and disk may differ, so the engine must be
//!    started again.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;

use redb::{Database, ReadableDatabase as _, ReadableTable as _, TableDefinition, TableHandle as _};
use tokio::sync::watch;

use super::error::EngineError;
use super::fault::Fault;

/// The format this release writes.
const FORMAT: u64 = 1;
/// Memory for cached pages. Everything is held in memory by its owner, so the store needs little.
const CACHE_BYTES: usize = 16 << 20;
/// Changes that wait for the disk before writers are held back.
const BACKLOG_BYTES: usize = 64 << 20;
/// A file smaller than this is never worth compacting.
const COMPACT_FLOOR: u64 = 32 << 20;
/// How many commits pass between two looks at the size of the file.
const COMPACT_EVERY: u32 = 4096;

type Definition = TableDefinition<'static, &'static [u8], &'static [u8]>;

const META: Definition = TableDefinition::new("meta");

/// The tables, each owned by one part of the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Table {
    /// State values.
    State,
    /// Queue settings.
    Queues,
    /// Messages to deliver.
    Messages,
    /// Messages that were given up.
    Dead,
}

impl Table {
    const ALL: [Table; 4] = [Table::State, Table::Queues, Table::Messages, Table::Dead];

    fn definition(self) -> Definition {
        TableDefinition::new(match self {
            Table::State => "state",
            Table::Queues => "queues",
            Table::Messages => "messages",
            Table::Dead => "dead",
        })
    }
}

/// One change of one row.
#[derive(Debug, Clone)]
pub(super) struct Change {
    pub(super) table: Table,
    pub(super) key: Vec<u8>,
    /// The new value, or nothing to delete the row.
    pub(super) value: Option<Vec<u8>>,
}

impl Change {
    fn bytes(&self) -> usize {
        self.key.len() + self.value.as_ref().map_or(0, Vec::len)
    }
}

/// Every row of every table, as found at the start.
pub(super) type Rows = BTreeMap<Table, Vec<(Vec<u8>, Vec<u8>)>>;

struct Batch {
    number: u64,
    changes: Vec<Change>,
}

#[derive(Debug, Clone, Default)]
struct Progress {
    committed: u64,
    failed: Option<String>,
}

struct Intake {
    next: u64,
    /// Nothing once the store is closed.
    batches: Option<mpsc::Sender<Batch>>,
}

/// The store.
pub(super) struct Store {
    intake: Mutex<Intake>,
    progress: watch::Receiver<Progress>,
    backlog: std::sync::Arc<AtomicUsize>,
    writer: Mutex<Option<JoinHandle<()>>>,
}

impl Store {
    /// Opens the file, or makes it, checks it, and gives everything in it.
    pub(super) fn open(path: &Path) -> Result<(Self, Rows), EngineError> {
        let refused = |reason: String| EngineError::Store { path: path.to_owned(), reason };
        make_whole(path)?;
        // A damaged file can make the library panic instead of failing.
        let (database, rows) = catch_unwind(AssertUnwindSafe(|| load(path)))
            .unwrap_or_else(|_| Err(refused("it is damaged".to_owned())))?;
        let (sender, receiver) = mpsc::channel();
        let (report, progress) = watch::channel(Progress::default());
        let backlog = std::sync::Arc::new(AtomicUsize::new(0));
        let writer = Writer { database, path: path.to_owned(), report, backlog: backlog.clone(), commits: 0 };
        let writer =
            std::thread::Builder::new()
                .name("engine-store".to_owned())
                .spawn(move || writer.run(&receiver))
                .map_err(|source| EngineError::Io { action: "start the writer of", path: path.to_owned(), source })?;
        let store = Self {
            intake: Mutex::new(Intake { next: 1, batches: Some(sender) }),
            progress,
            backlog,
            writer: Mutex::new(Some(writer)),
        };
        Ok((store, rows))
    }

    /// Submits changes that take effect together. Gives their number.
    pub(super) fn submit(&self, changes: Vec<Change>) -> u64 {
        let mut intake = self.intake.lock().unwrap_or_else(PoisonError::into_inner);
        let number = intake.next;
        intake.next += 1;
        let bytes = changes.iter().map(Change::bytes).sum();
        self.backlog.fetch_add(bytes, Ordering::AcqRel);
        // A closed store never reaches this number, which is what its waiters then hear.
        if intake.batches.as_ref().is_none_or(|batches| batches.send(Batch { number, changes }).is_err()) {
            tracing::debug!(number, "a change came after the store was closed");
        }
        number
    }

    /// Waits until everything up to this number is on the disk.
    pub(super) async fn committed(&self, number: u64) -> Result<(), Fault> {
        let mut progress = self.progress.clone();
        let waited = progress.wait_for(|now| now.committed >= number || now.failed.is_some()).await;
        match waited {
            Ok(now) if now.committed >= number => Ok(()),
            Ok(now) => Err(Fault::new(
                "STORE_FAILED",
                format!(
                    "the engine could not write to its disk ({}); nothing is stored until it is started again",
                    now.failed.as_deref().unwrap_or_default()
                ),
            )),
            Err(_) => Err(Fault::new("STORE_FAILED", "the engine is stopping; the change is not stored")),
        }
    }

    /// Whether everything up to this number is on the disk already.
    pub(super) fn is_committed(&self, number: u64) -> bool {
        self.progress.borrow().committed >= number
    }

    /// Whether more changes wait for the disk than should.
    pub(super) fn is_congested(&self) -> bool {
        self.backlog.load(Ordering::Acquire) > BACKLOG_BYTES
    }

    /// Waits until the disk has caught up, or writing has failed.
    pub(super) async fn wait_for_room(&self) {
        let mut progress = self.progress.clone();
        while self.is_congested() && progress.borrow_and_update().failed.is_none() {
            if progress.changed().await.is_err() {
                return;
            }
        }
    }

    /// Writes what is left and closes the file. Blocks.
    pub(super) fn close(&self) {
        self.intake.lock().unwrap_or_else(PoisonError::into_inner).batches = None;
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        if writer.is_some_and(|writer| writer.join().is_err()) {
            tracing::error!("the store's writer panicked");
        }
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.close();
    }
}

/// Makes the file, unless it is there. It gets its name when it is complete, so that a crash in between leaves no
/// file that the next start would have to refuse.
fn make_whole(path: &Path) -> Result<(), EngineError> {
    let io = |action| move |source| EngineError::Io { action, path: path.to_owned(), source };
    if path.exists() {
        return Ok(());
    }
    let unfinished = path.with_extension("new");
    match std::fs::remove_file(&unfinished) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(io("remove the leftover of")(error)),
        _ => {}
    }
    let (database, _) = load(&unfinished)?;
    drop(database);
    std::fs::rename(&unfinished, path).map_err(io("create"))?;
    match path.parent() {
        Some(dir) => std::fs::File::open(dir).and_then(|dir| dir.sync_all()).map_err(io("create")),
        None => Ok(()),
    }
}

fn load(path: &Path) -> Result<(Database, Rows), EngineError> {
    let refused = |reason: String| EngineError::Store { path: path.to_owned(), reason };
    let storage = |error: &dyn std::fmt::Display| refused(format!("it cannot be read as a store ({error})"));
    let mut database = Database::builder().set_cache_size(CACHE_BYTES).create(path).map_err(|error| storage(&error))?;
    database.check_integrity().map_err(|error| storage(&error))?;
    let found = {
        let reading = database.begin_read().map_err(|error| storage(&error))?;
        let names: Vec<String> =
            reading.list_tables().map_err(|error| storage(&error))?.map(|table| table.name().to_owned()).collect();
        if names.is_empty() {
            None
        } else if names.iter().any(|name| name == META.name()) {
            let meta = reading.open_table(META).map_err(|error| storage(&error))?;
            let format = meta.get(b"format".as_slice()).map_err(|error| storage(&error))?;
            format.and_then(|bytes| bytes.value().try_into().ok().map(u64::from_le_bytes)).or(Some(0))
        } else {
            return Err(refused("another program made it".to_owned()));
        }
    };
    match found {
        Some(FORMAT) => {}
        Some(found) if found > FORMAT => {
            return Err(EngineError::NewerStore { path: path.to_owned(), found, supported: FORMAT });
        }
        Some(_) => return Err(refused("its format is not known".to_owned())),
        None => create(&database).map_err(|error| storage(&error))?,
    }
    let rows = read(&database).map_err(|error| storage(&error))?;
    let live: usize = rows.values().flatten().map(|(key, value)| key.len() + value.len()).sum();
    if is_wasteful(path, u64::try_from(live).unwrap_or(u64::MAX)) {
        database.compact().map_err(|error| storage(&error))?;
    }
    Ok((database, rows))
}

fn create(database: &Database) -> Result<(), redb::Error> {
    let writing = database.begin_write()?;
    {
        let mut meta = writing.open_table(META)?;
        meta.insert(b"format".as_slice(), FORMAT.to_le_bytes().as_slice())?;
        for table in Table::ALL {
            writing.open_table(table.definition())?;
        }
    }
    writing.commit()?;
    Ok(())
}

fn read(database: &Database) -> Result<Rows, redb::Error> {
    let reading = database.begin_read()?;
    let mut rows = Rows::new();
    for table in Table::ALL {
        let open = reading.open_table(table.definition())?;
        let mut all = Vec::new();
        for row in open.iter()? {
            let (key, value) = row?;
            all.push((key.value().to_vec(), value.value().to_vec()));
        }
        rows.insert(table, all);
    }
    Ok(rows)
}

/// Whether most of a large file is free space.
fn is_wasteful(path: &Path, live: u64) -> bool {
    let size = std::fs::metadata(path).map_or(0, |meta| meta.len());
    size > COMPACT_FLOOR && size / 4 > live
}

struct Writer {
    database: Database,
    path: PathBuf,
    report: watch::Sender<Progress>,
    backlog: std::sync::Arc<AtomicUsize>,
    commits: u32,
}

impl Writer {
    fn run(mut self, batches: &mpsc::Receiver<Batch>) {
        while let Ok(first) = batches.recv() {
            let mut bytes: usize = first.changes.iter().map(Change::bytes).sum();
            let mut group = vec![first];
            while bytes < BACKLOG_BYTES
                && let Ok(next) = batches.try_recv()
            {
                bytes += next.changes.iter().map(Change::bytes).sum::<usize>();
                group.push(next);
            }
            let last = group.last().map_or(0, |batch| batch.number);
            let failed = match catch_unwind(AssertUnwindSafe(|| commit(&self.database, group))) {
                Ok(Ok(())) => None,
                Ok(Err(error)) => Some(error.to_string()),
                Err(_) => Some("the store panicked".to_owned()),
            };
            self.backlog.fetch_sub(bytes, Ordering::AcqRel);
            if let Some(reason) = failed {
                tracing::error!(path = %self.path.display(), reason, "the store cannot be written; it takes no more");
                self.report.send_modify(|progress| progress.failed = Some(reason));
                return;
            }
            self.report.send_modify(|progress| progress.committed = last);
            self.compact_if_wasteful();
        }
    }

    fn compact_if_wasteful(&mut self) {
        self.commits += 1;
        if self.commits < COMPACT_EVERY {
            return;
        }
        self.commits = 0;
        if !is_wasteful(&self.path, 0) {
            return;
        }
        let live = self.database.begin_write().map_err(redb::Error::from).and_then(|writing| {
            let stats = writing.stats()?;
            writing.abort()?;
            Ok(stats.stored_bytes())
        });
        match live {
            Ok(live) if is_wasteful(&self.path, live) => {
                if let Err(error) = self.database.compact() {
                    tracing::warn!(%error, "the store could not be compacted");
                }
            }
            Ok(_) => {}
            Err(error) => tracing::warn!(%error, "the size of the store could not be read"),
        }
    }
}

fn commit(database: &Database, group: Vec<Batch>) -> Result<(), redb::Error> {
    let writing = database.begin_write()?;
    for change in group.into_iter().flat_map(|batch| batch.changes) {
        let mut table = writing.open_table(change.table.definition())?;
        match change.value {
            Some(value) => table.insert(change.key.as_slice(), value.as_slice())?,
            None => table.remove(change.key.as_slice())?,
        };
    }
    writing.commit()?;
    Ok(())
}
