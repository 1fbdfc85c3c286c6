//! The `worktree` binary.

fn main() {}
