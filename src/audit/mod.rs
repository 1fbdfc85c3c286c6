//! The record of everything destroyed: an append-only log in which every entry authenticates the one before it.
//!
//! One JSON object per line in `audit.jsonl`; when that has grown to its limit it is renamed to
//! `audit.<last sequence>.jsonl` and a new one goes on with the chain. Each line ends with `mac`, the HMAC-SHA256 over
//! all bytes of the line before it, among them the `mac` of the line before (`prev`) and the sequence number. The key
//! lies beside the log with mode 0600. Sequence and MAC of the newest entry are kept a second time, outside the
//! directory (`<directory>.head`), so that a log whose end was cut off, or that is gone, does not look complete.
//!
//! What it is not: a defence against somebody who can read the key. It tells accident and careless tampering from an
//! untouched log; whoever needs more points `audit.directory` at a place that agents cannot read.
//!
//! | module | what it owns |
//! |---|---|
//! | [`entry`] | what is said of one event, and its line |
//! | [`seal`] | the key and the MACs |
//! | [`store`] | files: locking, the newest entry, appending, rotation, the anchor |
//! | [`together`] | those who write at the same time |
//! | [`mod@verify`] | is the log what was written? |
//! | [`query`] | reading it |
//!
//! Invariants
//! 1. An entry that was acknowledged is on the disk.
//! 2. The log never goes on from a state that [`mod@verify`] would object to: appending is refused instead (`W600`), and
//!    whoever asked destroys nothing.
//! 3. A line that a crash cut off was never acknowledged; the next append takes it away.
//! 4. Any number of processes may append: a lock of the operating system keeps their order.

pub mod entry;
pub mod query;
pub mod seal;
pub mod store;
pub mod together;
pub mod verify;

pub use entry::{Action, Entry, Event};
pub use query::Filter;
pub use store::{Log, Told};
pub use together::Together;
pub use verify::{Fault, Verification};
