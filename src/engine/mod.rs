//! The embedded engine: the iii wire protocol for one machine.
