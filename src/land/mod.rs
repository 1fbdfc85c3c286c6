//! The durable machine that lands a branch.
