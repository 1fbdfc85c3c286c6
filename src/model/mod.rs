//! Plain types that everything else shares: identifiers, records, jobs, events, configuration, errors.
//!
//! Nothing here starts a process, opens a file or talks to the bus. Imported by all, importing none.

pub mod actor;
pub mod clock;
pub mod config;
pub mod error;
pub mod event;
pub mod id;
pub mod job;
pub mod record;
pub mod status;

pub use error::{Code, Error, Result};
