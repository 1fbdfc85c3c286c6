//! Plain types that everything else shares: identifiers, records, jobs, configuration, errors.
//!
//! Nothing here starts a process, opens a file or talks to the bus. Imported by all, importing none.

pub mod clock;
pub mod error;
pub mod id;

pub use error::{Code, Error, Result};
