//! The limits that the README states are those that hold.

use worktree::engine::{Limits, ShellOptions};

const MIB: usize = 1 << 20;

#[test]
fn the_limits_in_the_readme_are_those_that_hold() {
    let readme = include_str!("../../../README.md");
    let limits = Limits::default();
    let shell = ShellOptions::default();
    let mib = |bytes: usize| format!("{} MiB", bytes / MIB);
    let minutes = |limit: std::time::Duration| limit.as_secs() / 60;
    for (what, value) in [
        ("WebSocket connections", limits.connections.to_string()),
        ("HTTP connections", limits.http_connections.to_string()),
        ("one WebSocket message", mib(limits.message_bytes)),
        ("body of an HTTP request", mib(limits.http_body_bytes)),
        ("open calls of one connection", limits.calls_per_connection.to_string()),
        ("functions and trigger types of one connection", limits.functions_per_connection.to_string()),
        ("trigger bindings", limits.bindings.to_string()),
        ("output that a client has not read", mib(limits.outbound_soft_bytes)),
        ("one state value", mib(limits.state_value_bytes)),
        ("all state", mib(limits.state_bytes)),
        ("messages in all queues", limits.queue_messages.to_string()),
        ("bytes of those messages", mib(limits.queue_bytes)),
        ("one configuration entry", mib(limits.configuration_bytes)),
        ("configuration entries", limits.configurations.to_string()),
        ("commands at once", shell.running.to_string()),
        (
            "time of one command",
            format!("{} s unless asked for, {} h", shell.default_timeout.as_secs(), minutes(shell.max_timeout) / 60),
        ),
        ("output kept of a command", mib(shell.output_bytes)),
    ] {
        let row = readme.lines().find(|line| line.starts_with(&format!("| {what}")));
        let row = row.unwrap_or_else(|| panic!("the README has no row for: {what}"));
        let stated = row.split('|').nth(2).unwrap().trim();
        assert!(stated.starts_with(&value), "the README states `{stated}` for {what}; {value} holds");
    }
}
