//! The integration tests: one binary, modules by topic. `guards` checks that every file here is listed.

#![allow(clippy::disallowed_methods, reason = "tests start real programs and write real files")]
#![allow(clippy::unwrap_used, clippy::missing_panics_doc, reason = "a test fails by panicking")]
#![allow(clippy::print_stderr, reason = "a test talks to whoever runs it")]
#![allow(unreachable_pub, missing_docs)]

mod cli;
mod engine;
mod git;
mod guards;
mod hostile;
mod land;
mod registry;
mod scenarios;
mod support;
mod surface;
mod terminal;
mod worker;
