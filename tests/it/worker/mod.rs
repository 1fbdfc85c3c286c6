//! Tests of the worker through `worktree dev` and a real SDK client.
