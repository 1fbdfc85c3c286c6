//! What a caller can set, and the limits that hold.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::time::Duration;

/// How to start an [`Engine`](super::Engine). Every field has a default; tests set ports to 0.
#[derive(Debug, Clone)]
pub struct Options {
    /// Address both listeners bind. Default: 127.0.0.1. There is no authentication: anything else opens the
    /// engine, and with it `shell::exec`, to the network.
    pub host: IpAddr,
    /// Port of the WebSocket listener; 0 picks a free one. Default: 49134.
    pub port: u16,
    /// Port of the HTTP listener for `http` triggers; 0 picks a free one. Default: 3111.
    pub http_port: u16,
    /// Directory of everything the engine keeps; created when missing, one engine at a time.
    /// Default: `.iii-engine` under the working directory.
    pub state_dir: PathBuf,
    /// How long a connection that never announces itself keeps its registrations waiting before they go to
    /// namespace `default`. Default: 5 s, as the iii engine does.
    pub registration_grace: Duration,
    /// How long an `http` trigger's function may take before the caller gets 504. Default: 30 s.
    pub http_timeout: Duration,
    /// Bounds on what clients can make the engine hold.
    pub limits: Limits,
    /// Settings of `shell::*`.
    pub shell: ShellOptions,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            host: IpAddr::V4(Ipv4Addr::LOCALHOST),
            port: 49_134,
            http_port: 3111,
            state_dir: PathBuf::from(".iii-engine"),
            registration_grace: Duration::from_secs(5),
            http_timeout: Duration::from_secs(30),
            limits: Limits::default(),
            shell: ShellOptions::default(),
        }
    }
}

/// Bounds on what clients can make the engine hold. Each has a clear answer when it is reached.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Open WebSocket connections, `/otel` included. One more is answered 503 at its upgrade. Default: 512, for the
    /// usual bound of 1024 open files.
    pub connections: usize,
    /// Open HTTP connections. One more waits to be accepted. Default: 128.
    pub http_connections: usize,
    /// Bytes of one WebSocket message. A larger one closes the connection. Default: 64 MiB.
    pub message_bytes: usize,
    /// Bytes of one HTTP request body. A larger one is answered 413. Default: 10 MiB.
    pub http_body_bytes: usize,
    /// Bytes of the calls to the engine's own functions that one connection may have open. Beyond, the connection is
    /// not read until some are answered. Default: 128 MiB.
    pub held_bytes: usize,
    /// Calls one connection may have open. One more is answered `too_many_calls`. Default: 16 384.
    pub calls_per_connection: usize,
    /// Functions and trigger types one connection may register. One more closes the connection. Default: 10 000.
    pub functions_per_connection: usize,
    /// Trigger bindings of all connections together. One more is refused to its binder. Default: 100 000.
    pub bindings: usize,
    /// Bytes waiting for one connection to read before callers of it are held back. Default: 16 MiB.
    pub outbound_soft_bytes: usize,
    /// Bytes waiting for one connection to read before that connection is dropped. Default: 160 MiB.
    pub outbound_hard_bytes: usize,
    /// Messages waiting for one connection to read before that connection is dropped. Default: 200 000.
    pub outbound_messages: usize,
    /// How long callers of a client that does not read are held back before its connection is dropped; one write
    /// may stand still for three times as long. Default: 10 s.
    pub reader_patience: Duration,
    /// Time for the WebSocket upgrade. Default: 10 s.
    pub handshake: Duration,
    /// Bytes of one state value as JSON. A larger one is answered `VALUE_TOO_LARGE`. Default: 16 MiB.
    pub state_value_bytes: usize,
    /// Bytes of all state values, scopes and keys together. More is answered `STATE_FULL`. Default: 512 MiB.
    pub state_bytes: usize,
    /// Messages in all queues together, dead letters included. One more is answered `queue_full`.
    /// Default: 100 000.
    pub queue_messages: usize,
    /// Bytes of all those messages. More is answered `queue_full`. Default: 256 MiB.
    pub queue_bytes: usize,
    /// Bytes of one configuration entry. A larger one is answered `VALUE_TOO_LARGE`. Default: 1 MiB.
    pub configuration_bytes: usize,
    /// Configuration entries. One more is answered `TOO_MANY`. Default: 1024.
    pub configurations: usize,
}

impl Default for Limits {
    fn default() -> Self {
        const MIB: usize = 1 << 20;
        Self {
            connections: 512,
            http_connections: 128,
            message_bytes: 64 * MIB,
            http_body_bytes: 10 * MIB,
            held_bytes: 128 * MIB,
            calls_per_connection: 16_384,
            functions_per_connection: 10_000,
            bindings: 100_000,
            outbound_soft_bytes: 16 * MIB,
            outbound_hard_bytes: 160 * MIB,
            outbound_messages: 200_000,
            reader_patience: Duration::from_secs(10),
            handshake: Duration::from_secs(10),
            state_value_bytes: 16 * MIB,
            state_bytes: 512 * MIB,
            queue_messages: 100_000,
            queue_bytes: 256 * MIB,
            configuration_bytes: MIB,
            configurations: 1024,
        }
    }
}

/// Settings of `shell::*`.
#[derive(Debug, Clone)]
pub struct ShellOptions {
    /// The time a command gets when its caller names none. Default: 120 s.
    pub default_timeout: Duration,
    /// The most time a command gets; a longer `timeout_ms` is cut to it. Default: 1 h.
    pub max_timeout: Duration,
    /// Bytes kept of each of stdout and stderr: the first quarter and the last three. The rest is read and
    /// dropped, so that a loud command is never blocked. Default: 1 MiB.
    pub output_bytes: usize,
    /// Commands that run at once, background jobs included. One more is answered `S230`. Default: 64.
    pub running: usize,
    /// Finished background jobs that `shell::status` still knows. Default: 100.
    pub kept_jobs: usize,
    /// Directories a `cwd` must lie inside (`S215` otherwise). Empty, the default: everywhere.
    pub host_roots: Vec<PathBuf>,
}

impl Default for ShellOptions {
    fn default() -> Self {
        Self {
            default_timeout: Duration::from_secs(120),
            max_timeout: Duration::from_secs(3600),
            output_bytes: 1 << 20,
            running: 64,
            kept_jobs: 100,
            host_roots: Vec::new(),
        }
    }
}
