//! Isolated git worktrees for coding agents, and a landing queue that never loses their work.
//!
//! One binary, one library. Data goes one way: a request comes in at the wire, becomes a typed request, one use
//! case decides and acts through git and the bus, a typed response goes out, then events.
//!
//! | module | what it owns |
//! |---|---|
//! | [`cli`] | one file per command: parse, call, print; decides nothing |
//! | [`wire`] | the bus surface: the catalog, the one handler wrapper, trigger types, the configuration entry |
//! | [`worktrees`] | the use cases: create, claim, inspect, list, remove, … and the registry they share |
//! | [`land`] | the durable machine that lands a branch |
//! | [`queue`] | who runs the next land job |
//! | [`git`] | the only code that starts git |
//! | [`audit`] | the authenticated log of everything that is destroyed |
//! | [`bus`] | what is needed of the engine, as narrow traits, and their `iii-sdk` implementation |
//! | [`engine`] | the embedded engine for one machine; knows nothing of worktrees |
//! | `fault` | places at which a test may end or disturb the process; nothing in a release build |
//! | [`model`] | plain types, no input or output |
//!
//! Imports go one way too: `cli`, `wire` → `worktrees`, `land`, `queue` → `git`, `bus`,
//! `audit` → `model`. Only `main` and
//! `cli` know `engine`. `bus::iii` is the only place outside `wire` and `cli` that names the SDK. A guard test
//! enforces all of it.

pub mod audit;
pub mod bus;
pub mod cli;
pub mod engine;
mod fault;
pub mod git;
pub mod land;
pub mod model;
pub mod queue;
pub mod wire;
pub mod worktrees;
