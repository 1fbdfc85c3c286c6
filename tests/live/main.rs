//! The scenarios of `tests/it` on a real engine: the program that `III_BIN` names, in a temporary directory, on
//! loopback, without telemetry. Without `III_BIN` they are skipped, and say so.
//!
//! That engine has neither a queue provider nor a shell worker. Landing must work all the same: the worker runs its
//! queue itself, and the client of the test provides `shell::exec`.

#![allow(clippy::disallowed_methods, reason = "tests start real programs and write real files")]
#![allow(clippy::unwrap_used, clippy::missing_panics_doc, reason = "a test fails by panicking")]
#![allow(clippy::print_stderr, reason = "a test talks to whoever runs it")]
#![allow(unreachable_pub, missing_docs)]
#![allow(dead_code, reason = "the support is shared with `it`, which uses more of it")]

mod engine;
#[path = "../it/scenarios/mod.rs"]
mod scenarios;
mod shell;
#[path = "../it/support/mod.rs"]
mod support;

use self::scenarios::every_scenario;
use self::support::Stand;

async fn live() -> Option<Stand> {
    let Some(program) = std::env::var_os("III_BIN") else {
        eprintln!("skipped: III_BIN names no engine");
        return None;
    };
    Some(engine::stand(&program).await)
}

every_scenario!(crate::live);
