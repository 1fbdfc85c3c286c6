//! Tests of the worker from outside: the binary, a real SDK client, real git.

mod apart;
mod configured;
mod http;
mod surface;

use crate::scenarios::every_scenario;
use crate::support::Stand;

/// `worktree dev` with the default configuration.
async fn dev() -> Option<Stand> {
    Some(Stand::dev().await)
}

every_scenario!(crate::worker::dev);
