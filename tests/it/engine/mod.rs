//! Tests of the embedded engine over a real socket.

mod calls;
mod client;
mod configuration;
mod cron;
mod fuzz;
mod http;
mod limits;
mod queue;
mod sdk;
mod shell;
mod store;
mod transcript;
mod triggers;
