//! Tests of the embedded engine over a real socket.

mod calls;
mod client;
mod queue;
mod sdk;
mod shell;
mod store;
mod transcript;
