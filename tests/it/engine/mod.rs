//! Tests of the embedded engine over a real socket.

mod calls;
mod client;
mod clients;
mod configuration;
mod cron;
mod fuzz;
mod http;
mod kill;
mod limits;
mod process;
mod queue;
mod readme;
mod sdk;
mod shell;
mod soak;
mod store;
mod transcript;
mod triggers;
